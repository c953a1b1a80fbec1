//! `sconce.lock`: the exact bytes of an environment, and the versions that matter for CUDA.
//!
//! A lock is TOML, written by `sconce lock` and read by everything after it. It is a function of
//! the spec and of what the indexes held that day; it never holds a credential.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{CudaVersion, DriverVersion, Sha256};

/// The newest format that this program reads. Since 2 a Debian package names its source package
/// where that is another one; what has format 1 is read too, and does not tell it. Since 3 there
/// are [`Lock::stages`], since 4 [`Lock::interpreter`], [`Lock::projects`] and [`Wheel::build`], since 5
/// [`WheelBuild::asked`].
pub const FORMAT: u32 = 5;
/// The format of a lock with a Python or builds of its own and nothing of [`FORMAT`].
pub const FORMAT_WITH_BUILDS: u32 = 4;
/// The format of a lock that has stages and nothing of [`FORMAT_WITH_BUILDS`].
pub const FORMAT_WITH_STAGES: u32 = 3;
/// The format of a lock without stages: what an older program can read stays readable for it.
pub const FORMAT_WITHOUT_STAGES: u32 = 2;

/// A whole lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Lock {
    /// The oldest format that has all that is in it, when it was written ([`Lock::oldest_format`]).
    pub version: u32,
    /// Digest of what decides the lock: the spec's `[python]` and `[system]` tables in a fixed
    /// form, and the requirement files that they name. A changed command keeps the lock.
    pub inputs: Sha256,
    /// What the environment is made for.
    pub target: LockTarget,
    /// The versions that decide whether it runs on a given card and driver.
    pub versions: LockedVersions,
    /// The interpreter, where it is none of Debian's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<StandalonePython>,
    /// Python packages, sorted by name.
    #[serde(default, rename = "wheel", skip_serializing_if = "Vec::is_empty")]
    pub wheels: Vec<Wheel>,
    /// Debian packages, sorted by name.
    #[serde(default, rename = "deb", skip_serializing_if = "Vec::is_empty")]
    pub debs: Vec<Deb>,
    /// What stages of the build, or an image with compilers, have beside these; sorted by name.
    #[serde(default, rename = "stage", skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<LockedStage>,
}

/// A Python of python-build-standalone: one archive that is unpacked under a prefix of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct StandalonePython {
    /// Its full version, `3.10.13`.
    pub version: String,
    /// The release of python-build-standalone that it is of, `20240107`.
    pub release: String,
    /// The archive's file name.
    pub file: String,
    /// Where it was found: an http(s) URL without credentials, or a `file:` URL.
    pub url: String,
    /// Size in bytes, where its table told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of the whole file.
    pub sha256: Sha256,
}

/// Where standalone Pythons lie in an environment, each in a folder by its version.
pub const STANDALONE_PYTHONS: &str = "/opt/python";

/// How a wheel that no index has was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WheelBuild {
    /// Digest of the archive that [`Wheel::url`] names; absent for a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Sha256>,
    /// The commit of the repository that [`Wheel::url`] names; absent for an archive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The project's folder in it, where that is not its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subdirectory: Option<String>,
    /// What its build backend was run with, sorted by name.
    #[serde(default, rename = "requires", skip_serializing_if = "Vec::is_empty")]
    pub build_requires: Vec<Wheel>,
    /// What the project that needs it asks for beside what its sources say.
    #[serde(default, skip_serializing_if = "BuildRequest::is_empty")]
    pub asked: BuildRequest,
}

/// What a project asks for when one of its packages is built, beside what the package's sources say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct BuildRequest {
    /// Further requirements (PEP 508, of an index), in the environment's versions where those count.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
    /// Further variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// Whether it is built in sight of the environment's own packages, as with pip's
    /// `--no-build-isolation`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub sees_environment: bool,
}

impl BuildRequest {
    /// Whether nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// The name under which a lock keeps the Debian packages that source packages are built with, as a
/// stage keeps what it has more. No stage of a spec can have this name.
pub const BUILD: &str = "@build";

/// What the names begin with under which a lock keeps the Python packages that the spec's own projects are built with
/// for an image, as a stage keeps what it has more. A program that does not know them reads the lock, and builds none.
pub const PROJECT_BUILD: &str = "@build/";

/// The name under which a lock keeps the compiler of the environment, as a stage keeps what it has
/// more: a program that does not know it reads the lock, and runs without. No stage of a spec can
/// have this name.
pub const COMPILER: &str = "@compiler";

/// What one stage has beside the environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LockedStage {
    /// Its name in the spec, [`crate::spec::IMAGE`], [`COMPILER`], [`BUILD`], or begins as [`PROJECT_BUILD`].
    pub name: String,
    /// Further Python packages, sorted by name.
    #[serde(default, rename = "wheel", skip_serializing_if = "Vec::is_empty")]
    pub wheels: Vec<Wheel>,
    /// Further Debian packages, sorted by name. One that the environment has too replaces it.
    #[serde(default, rename = "deb", skip_serializing_if = "Vec::is_empty")]
    pub debs: Vec<Deb>,
}

/// What a lock was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LockTarget {
    /// `debian/trixie`.
    pub release: String,
    /// Debian's name of the architecture: `amd64`, `arm64`.
    pub architecture: String,
    /// Python's major and minor version, `3.13`.
    pub python: String,
}

/// Named versions. An absent one is absent from the environment, not unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LockedVersions {
    /// The full version of the interpreter's Debian package, `3.13.5-2+deb13u5`.
    pub python: String,
    /// The full version of the C library's Debian package.
    pub glibc: String,
    /// torch, with its local part, `2.15.0` or `2.8.0+cu126`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub torch: Option<String>,
    /// The CUDA runtime among the wheels (from its own version, not the largest of all wheels').
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaVersion>,
    /// cuDNN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cudnn: Option<String>,
    /// NCCL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl: Option<String>,
    /// Triton.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub triton: Option<String>,
    /// The oldest driver that accepts this CUDA version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowest_driver: Option<DriverVersion>,
}

/// One wheel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Wheel {
    /// Normalised project name, `nvidia-cudnn-cu13`.
    pub name: String,
    /// Version.
    pub version: String,
    /// The wheel's file name, which carries its tags.
    pub file: String,
    /// Where it was found: an http(s) URL without credentials, or a `file:` URL. Of one that was
    /// built: where its sources are.
    pub url: String,
    /// Size in bytes, where the index told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Of the whole file. A build elsewhere may give other bytes.
    pub sha256: Sha256,
    /// How it was built, where no index has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Box<WheelBuild>>,
}

/// One Debian package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Deb {
    /// Package name.
    pub name: String,
    /// Debian version.
    pub version: String,
    /// The source package that it was built from, where that has another name (deb-control(5),
    /// `Source`): security advisories name source packages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The source package's version, where it is another one: a rebuild (`+b1`), or a package with
    /// a numbering of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_version: Option<String>,
    /// `amd64`, `all`, …
    pub architecture: String,
    /// Where it was found.
    pub url: String,
    /// Size in bytes.
    pub size: u64,
    /// Of the whole file.
    pub sha256: Sha256,
}

/// Why a text is not a lock that this program can use.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Not TOML, or not a lock.
    #[error("not a lock file")]
    Malformed(#[from] toml::de::Error),
    /// Written by a newer program.
    #[error("the lock has format {found}; this Sconce reads up to {FORMAT}")]
    Newer {
        /// The format that the file names.
        found: u32,
    },
}

impl crate::Hint for LockError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Malformed(_) => {
                "take the one of before back; or remove it, and `sconce lock` makes one".to_owned()
            }
            Self::Newer { .. } => "update Sconce; the file was left as it is".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        crate::exit::BAD_INPUT
    }
}

impl Lock {
    /// Reads a lock file's text.
    pub fn parse(text: &str) -> Result<Self, LockError> {
        // The version is read first, so that a newer format is named as such.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let Version { version } = toml::from_str(text)?;
        if version > FORMAT {
            return Err(LockError::Newer { found: version });
        }
        Ok(toml::from_str(text)?)
    }

    /// The Debian packages of the compiler that lies over the environment, sorted by name. Empty
    /// where nothing in it compiles, where it is not wanted, and in a lock from before there was one.
    #[must_use]
    pub fn compiler_debs(&self) -> &[Deb] {
        let stage = self.stages.iter().find(|stage| stage.name == COMPILER);
        stage.map_or(&[], |stage| &stage.debs)
    }

    /// What a project of the spec is built with, by its normalised name. Absent where that did not resolve, and in a
    /// lock from before there was any.
    #[must_use]
    pub fn project_build(&self, name: &str) -> Option<&[Wheel]> {
        let of = |stage: &&LockedStage| stage.name.strip_prefix(PROJECT_BUILD) == Some(name);
        self.stages.iter().find(of).map(|stage| &stage.wheels[..])
    }

    /// The oldest format that has all that is in it.
    #[must_use]
    pub fn oldest_format(&self) -> u32 {
        let stages = self.stages.iter().map(|stage| &stage.wheels);
        let wheels = stages.chain([&self.wheels]).flatten();
        let builds: Vec<&WheelBuild> = wheels.filter_map(|wheel| wheel.build.as_deref()).collect();
        if builds.iter().any(|build| !build.asked.is_empty()) {
            FORMAT
        } else if self.interpreter.is_some() || !builds.is_empty() {
            FORMAT_WITH_BUILDS
        } else if self.stages.is_empty() {
            FORMAT_WITHOUT_STAGES
        } else {
            FORMAT_WITH_STAGES
        }
    }

    /// The prefix of its interpreter in the environment: `/usr`, or `/opt/python/3.10`.
    #[must_use]
    pub fn python_prefix(&self) -> String {
        match &self.interpreter {
            None => "/usr".to_owned(),
            Some(_) => format!("{STANDALONE_PYTHONS}/{}", self.target.python),
        }
    }

    /// Its interpreter in the environment: `/usr/bin/python3.13`, or `/opt/python/3.10/bin/python3.10`.
    #[must_use]
    pub fn python_program(&self) -> String {
        format!("{}/bin/python{}", self.python_prefix(), self.target.python)
    }

    /// The environment without its compiler.
    #[must_use]
    pub fn without_compiler(&self) -> Self {
        let mut lock = self.clone();
        lock.stages.retain(|stage| stage.name != COMPILER);
        lock
    }

    /// Every Debian package that a run of the environment has: its own, then its compiler's.
    pub fn all_debs(&self) -> impl Iterator<Item = &Deb> {
        self.debs.iter().chain(self.compiler_debs())
    }

    /// The environment of a stage, as a lock of its own: this one with what the stage has beside it,
    /// and without [`Lock::compiler_debs`]: a stage of [`crate::spec::Variant::Devel`] brings more than
    /// that. A stage that needs nothing more has this very environment.
    #[must_use]
    pub fn for_stage(&self, name: &str) -> Self {
        let Some(stage) = self.stages.iter().find(|stage| stage.name == name) else {
            return self.without_compiler();
        };
        let replaced = |deb: &&Deb| !stage.debs.iter().any(|other| other.name == deb.name);
        let mut debs: Vec<Deb> = self.debs.iter().filter(replaced).cloned().collect();
        debs.extend(stage.debs.clone());
        debs.sort_by(|a, b| a.name.cmp(&b.name));
        let mut wheels = [self.wheels.clone(), stage.wheels.clone()].concat();
        wheels.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            wheels,
            debs,
            stages: Vec::new(),
            ..self.clone()
        }
    }

    /// The file's text. The same lock always gives the same text.
    ///
    /// # Panics
    /// Never: every field of a lock can be written as TOML.
    #[must_use]
    pub fn to_text(&self) -> String {
        let body = toml::to_string(self).expect("a lock is plain data");
        format!("# Made by `sconce lock`. Commit it; do not edit it.\n{body}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As an older program writes and reads it, but for the stage, which that one does not look for.
    #[test]
    fn a_compiler_is_beside_the_environment_and_in_no_stage() {
        let digest = Sha256([0; 32]);
        let deb = |table: &str, name: &str| {
            format!(
                "[[{table}]]\nname = \"{name}\"\nversion = \"1\"\narchitecture = \"amd64\"\n\
                 url = \"file:///x\"\nsize = 1\nsha256 = \"{digest}\"\n"
            )
        };
        let before = format!(
            "version = 2\ninputs = \"{digest}\"\n[target]\nrelease = \"debian/trixie\"\n\
             architecture = \"amd64\"\npython = \"3.13\"\n[versions]\npython = \"3.13.5-2\"\n\
             glibc = \"2.41\"\n{}",
            deb("deb", "libc6")
        );
        let old = Lock::parse(&before).unwrap();
        assert!(old.compiler_debs().is_empty());
        let text = format!(
            "{}[[stage]]\nname = \"@compiler\"\n{}[[stage]]\nname = \"builder\"\n{}",
            before.replace("version = 2", "version = 3"),
            deb("stage.deb", "g++"),
            deb("stage.deb", "git")
        );
        let lock = Lock::parse(&text).unwrap();
        let names =
            |lock: &Lock| -> Vec<String> { lock.all_debs().map(|deb| deb.name.clone()).collect() };
        assert_eq!(names(&lock), ["libc6", "g++"]);
        assert_eq!(names(&lock.for_stage("builder")), ["git", "libc6"]);
        assert_eq!(names(&lock.for_stage("another")), ["libc6"]);
        assert_eq!(names(&lock.without_compiler()), ["libc6"]);
        assert_eq!(lock.without_compiler().stages.len(), 1);
        assert_eq!(Lock::parse(&lock.to_text()).unwrap(), lock);
    }
}
