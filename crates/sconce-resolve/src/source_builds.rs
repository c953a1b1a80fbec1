//! The loop in which packages that have sources alone are built and resolved by what they then say that they need.
//!
//! First a package is taken to need nothing; what was built says what it needs, and uv resolves again, until nothing
//! new is to be built.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use pep440_rs::Version;
use sconce_schema::Progress;
use sconce_schema::lock::{BuildRequest, Lock, Wheel};

use crate::ResolveError;
use crate::build_failure::{BuildFailure, OtherVersionError};
use crate::late_rounds::{describe_limits, list_reasons, meet_limits};
use crate::python::build_settings::BuildSettings;
use crate::python::compile::{Requirements, UvCompile};
use crate::python::compile_error::CompileError;
use crate::python::late_limits::{LimitKind, find_limits};
use crate::python::pylock::LockedPackages;
use crate::python::source_package::{SourceMetadata, SourceOrigin, SourcePackage};
use crate::source_names::{SourceNames, UNBUILT_VERSION};

/// More rounds are a circle: what is built changes what is to be built.
const MAX_ROUNDS: usize = 8;

/// Builds wheels from sources. Their code runs where it can reach nothing but those.
pub trait SourceBuilder: Sync {
    /// Whether these sources want a compiler, or git for their version. Fetches them, and looks at them in
    /// `base`.
    ///
    /// # Errors
    /// They cannot be fetched, or not be read.
    fn needs_build_tools(&self, package: &SourcePackage, base: &Lock)
    -> Result<bool, BuildFailure>;

    /// The wheel that the project itself published for this environment, which is in the store then; its
    /// address and its digest stand in the lock, and nothing of it runs.
    ///
    /// # Errors
    /// There is one, and it cannot be used.
    fn fetch_prebuilt(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<Option<BuiltWheel>, BuildFailure>;

    /// The wheel of these sources, which is in the store then.
    ///
    /// # Errors
    /// They cannot be fetched, what they are built with does not resolve, or the build fails.
    fn build_wheel(
        &self,
        package: &SourcePackage,
        setting: &BuildSetting<'_>,
    ) -> Result<BuiltWheel, BuildFailure>;
}

/// What a package is built in.
pub struct BuildSetting<'a> {
    /// Its system and interpreter, without Python packages; the stage [`sconce_schema::lock::BUILD`] has
    /// a compiler.
    pub base: &'a Lock,
    /// The Python packages of the environment, as far as they are resolved.
    pub installed: &'a [Wheel],
    /// The package's wheel in the previous lock, where its versions are kept.
    pub previous: Option<&'a Wheel>,
    /// What the project asks for beside what its sources say.
    pub asked: &'a BuildRequest,
    /// Resolves build requirements to wheels, of what indexes had on a day.
    pub resolve: ResolveRequirements<'a>,
}

/// Requirements (PEP 508) to wheels, of what indexes had on a day such as `2021-03-25`, or of all.
pub type ResolveRequirements<'a> =
    &'a dyn Fn(&[String], Option<&str>) -> Result<Vec<Wheel>, CompileError>;

/// What a build gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltWheel {
    /// The wheel, with how it was built.
    pub wheel: Wheel,
    /// What it says of itself.
    pub metadata: SourceMetadata,
}

/// Builds what an environment needs of sources.
pub(crate) struct SourceBuilds<'a> {
    pub(crate) builder: &'a dyn SourceBuilder,
    pub(crate) names: &'a SourceNames,
    pub(crate) compile: &'a UvCompile<'a>,
    pub(crate) requirements: &'a Requirements,
    /// What the project says of single builds.
    pub(crate) settings: &'a BuildSettings,
    /// The lock whose versions are kept.
    pub(crate) previous: Option<&'a Lock>,
    pub(crate) progress: &'a dyn Progress,
}

impl SourceBuilds<'_> {
    /// Whether a compiler or git is wanted for some of these packages.
    ///
    /// # Errors
    /// Sources cannot be fetched.
    pub(crate) fn need_tools(
        &self,
        packages: &LockedPackages,
        base: &Lock,
    ) -> Result<bool, ResolveError> {
        let mut needed = false;
        for package in &packages.sources {
            if self
                .fetch_prebuilt(package, &packages.wheels, base)?
                .is_none()
            {
                needed |= (self.builder)
                    .needs_build_tools(package, base)
                    .map_err(|failure| failed(package, failure))?;
            }
        }
        Ok(needed)
    }

    fn fetch_prebuilt(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<Option<BuiltWheel>, ResolveError> {
        let found = self.builder.fetch_prebuilt(package, installed, base);
        found.map_err(|failure| failed(package, failure))
    }

    /// All wheels of the environment: those of `packages`, and those of its sources, which are built;
    /// what they need is resolved with them.
    ///
    /// # Errors
    /// A build fails, or what was built needs what does not resolve.
    pub(crate) fn build_all(
        &self,
        mut packages: LockedPackages,
        base: &Lock,
    ) -> Result<Vec<Wheel>, ResolveError> {
        let mut requirements = self.requirements.clone();
        let mut built: BTreeMap<String, (SourceOrigin, BuiltWheel)> = BTreeMap::new();
        for _ in 0..MAX_ROUNDS {
            let mut is_new = false;
            for package in &packages.sources {
                let known = built.get(&package.name);
                if known.is_some_and(|(origin, _)| origin.is_same(&package.origin)) {
                    continue;
                }
                let wheel = match self.fetch_prebuilt(package, &packages.wheels, base)? {
                    Some(wheel) => {
                        self.progress.note(&format!(
                            "{} has no wheel on the index: the one of its release is taken, {}",
                            label(package),
                            wheel.wheel.url
                        ));
                        wheel
                    }
                    None => {
                        self.progress.note(&format!(
                            "{} has no wheel: it is built from {}, which runs its code, in a container without \
                             network (`[python] build-sources = false` refuses)",
                            label(package),
                            described(&package.origin),
                        ));
                        self.build_one(package, &packages.wheels, base)?
                    }
                };
                for unread in &wheel.metadata.unread {
                    self.progress.note(&format!(
                        "{} asks for `{unread}`, which cannot be read: what of it is wrong does not count",
                        label(package)
                    ));
                }
                let name = wheel.metadata.name.clone();
                if name != package.name {
                    self.names.rename(&package.name, &name, self.requirements);
                }
                self.names.insert(wheel.metadata.clone());
                built.insert(name, (package.origin.clone(), wheel));
                is_new = true;
            }
            if !is_new {
                let of = |package: &SourcePackage| built.get(&package.name);
                let from_sources = packages.sources.iter().filter_map(of);
                let mut wheels = packages.wheels;
                wheels.extend(from_sources.map(|(_, built)| built.wheel.clone()));
                wheels.sort_by(|a, b| a.name.cmp(&b.name));
                return Ok(wheels);
            }
            packages = self.resolve_again(&mut requirements, base)?;
        }
        Err(ResolveError::BuildCircle {
            packages: built.into_keys().collect(),
        })
    }

    /// Resolves by what was built, with what its packages do not say of themselves.
    fn resolve_again(
        &self,
        requirements: &mut Requirements,
        base: &Lock,
    ) -> Result<LockedPackages, ResolveError> {
        let resolve = |all: &Requirements| self.names.resolve_packages(self.compile, all, true);
        let packages = resolve(requirements)?;
        let minor = base.target.python.strip_prefix("3.");
        let Some(minor) = minor.and_then(|minor| minor.parse().ok()) else {
            return Ok(packages);
        };
        // What a repository has locked is what runs.
        if !requirements.pinned.is_empty() {
            return Ok(packages);
        }
        let mut limits = find_limits(&packages, minor);
        limits.retain(|limit| match &limit.asks {
            LimitKind::Package(text) => !requirements.packages.contains(text),
            LimitKind::Python(_) => false,
        });
        if limits.is_empty() {
            return Ok(packages);
        }
        let met = meet_limits(limits, |limits| {
            let mut limited = requirements.clone();
            for limit in limits {
                if let LimitKind::Package(text) = &limit.asks {
                    limited.packages.push(text.clone());
                }
            }
            Some((resolve(&limited).ok()?, limited))
        });
        if !met.refused.is_empty() {
            self.progress.note(&format!(
                "this may not work, and nothing else resolves: {}",
                list_reasons(&met.refused)
            ));
        }
        let Some((taken, (packages_then, limited))) = met.taken else {
            return Ok(packages);
        };
        for note in describe_limits(&taken) {
            self.progress.note(&note);
        }
        *requirements = limited;
        Ok(packages_then)
    }

    fn build_one(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<BuiltWheel, ResolveError> {
        let resolve = |packages: &[String], as_of: Option<&str>| {
            let compile = UvCompile {
                sources: &[],
                keep: installed,
                as_of: as_of.or(self.compile.as_of),
                ..*self.compile
            };
            compile.resolve_wheels(&Requirements {
                packages: packages.to_vec(),
                ..Requirements::default()
            })
        };
        let before = self.previous.map_or(&[][..], |lock| &lock.wheels);
        let settings_of = |name: &str| {
            let asked = self.settings.for_package(name, installed);
            asked.map_err(|source| ResolveError::BuildSetting {
                package: label(package),
                source,
            })
        };
        let build = |asked: &BuildRequest| {
            if !asked.is_empty() {
                self.progress.note(&describe_request(package, asked));
            }
            let setting = BuildSetting {
                base,
                installed,
                previous: before
                    .iter()
                    .find(|wheel| wheel.name == package.name && wheel.build.is_some()),
                asked,
                resolve: &resolve,
            };
            let built = self.builder.build_wheel(package, &setting);
            built.map_err(|failure| failed(package, failure))
        };
        let asked = settings_of(&package.name)?;
        let mut built = build(&asked)?;
        // What was guessed to be called otherwise may have settings under its own name.
        let own = settings_of(&built.metadata.name)?;
        if built.metadata.name != package.name && !own.is_empty() && own != asked {
            built = build(&own)?;
        }
        if let Some(error) = find_other_version(package, &built.metadata) {
            return Err(failed(package, error.into()));
        }
        let asked = built.metadata.requires_dist.iter();
        if let Some(requirement) = asked.into_iter().find(|text| names_local_file(text)) {
            return Err(ResolveError::LocalRequirement {
                package: label(package),
                requirement: requirement.clone(),
            });
        }
        Ok(built)
    }
}

/// What is wrong where an archive of an index says that it is of another version. What an address names has no version
/// before it is built, and a build may add which CUDA it is for, `+cu124`.
fn find_other_version(
    package: &SourcePackage,
    metadata: &SourceMetadata,
) -> Option<OtherVersionError> {
    let known = package.version.as_deref().filter(|v| *v != UNBUILT_VERSION);
    let expected = known.filter(|_| matches!(package.origin, SourceOrigin::Archive { .. }))?;
    let found = metadata.version.as_deref()?;
    let public = |text: &str| {
        let text = text.split('+').next().unwrap_or_default();
        Version::from_str(text).ok()
    };
    let (found_public, expected_public) = (public(found)?, public(expected)?);
    (found_public != expected_public).then(|| OtherVersionError {
        found: found.to_owned(),
        expected: expected.to_owned(),
    })
}

/// Whether a requirement is an address of this machine, which a package of others has no business with.
fn names_local_file(requirement: &str) -> bool {
    let (_, address) = requirement.split_once('@').unwrap_or_default();
    let address = address.trim_start().to_ascii_lowercase();
    let address = address.strip_prefix("git+").unwrap_or(&address);
    let schemes = ["https://", "http://", "ssh://", "git://"];
    !address.is_empty() && !schemes.iter().any(|scheme| address.starts_with(scheme))
}

fn failed(package: &SourcePackage, failure: BuildFailure) -> ResolveError {
    ResolveError::Build {
        package: label(package),
        source: failure,
    }
}

fn label(package: &SourcePackage) -> String {
    match &package.version {
        Some(version) if version != UNBUILT_VERSION => format!("{} {version}", package.name),
        _ => package.name.clone(),
    }
}

/// In words, what is asked for beside what the sources of a package say.
fn describe_request(package: &SourcePackage, asked: &BuildRequest) -> String {
    let mut parts = asked.requires.clone();
    parts.extend(
        asked
            .variables
            .keys()
            .map(|name| format!("the variable {name}")),
    );
    if asked.sees_environment {
        parts.push("the environment's own packages (no build isolation)".to_owned());
    }
    format!(
        "{} is built with {}, as it is set",
        label(package),
        parts.join(", ")
    )
}

fn described(origin: &SourceOrigin) -> String {
    match origin {
        SourceOrigin::Archive { .. } => "its sources".to_owned(),
        SourceOrigin::Git { url, commit, .. } => format!("{url} at {}", &commit[..12]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_of_the_version_that_the_index_says() {
        let differs = |expected: &str, found: &str, uploaded: bool| {
            let package = SourcePackage {
                name: "x".to_owned(),
                is_name_guessed: false,
                version: Some(expected.to_owned()),
                origin: match uploaded {
                    true => SourceOrigin::Archive {
                        url: String::new(),
                        sha256: sconce_schema::Sha256([0; 32]),
                        subdirectory: None,
                        uploaded: None,
                    },
                    false => SourceOrigin::Git {
                        url: String::new(),
                        commit: "0".repeat(40),
                        subdirectory: None,
                    },
                },
            };
            let metadata = SourceMetadata {
                version: Some(found.to_owned()),
                ..SourceMetadata::default()
            };
            let error = find_other_version(&package, &metadata);
            error.map(|error| error.to_string())
        };
        assert_eq!(
            differs("1.0", "1.5", true).as_deref(),
            Some("its build made version 1.5, and the index has its sources as 1.0")
        );
        for (expected, found) in [
            ("1.0", "1"),
            ("1.0", "1.0+cu124"),
            ("0", "1.5"),
            ("1.0rc1", "1.0.rc1"),
            ("1.0", "odd"),
        ] {
            assert_eq!(differs(expected, found, true), None, "{expected} {found}");
        }
        assert_eq!(differs("1.0", "1.5", false), None);
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        for (requirement, expected) in [
            ("numpy>=1.18", false),
            ("x @ https://example.org/x.zip", false),
            ("x @ git+https://example.org/x", false),
            ("x@git+ssh://git@example.org/x", false),
            ("x @ file:///home/me/private", true),
            ("x @ git+file:///home/me/private", true),
            ("x @ GIT+FILE:///home/me/private", true),
            ("x @ ../private", true),
            ("x @ git+ext::sh", true),
        ] {
            assert_eq!(names_local_file(requirement), expected, "{requirement}");
        }
    }
}
