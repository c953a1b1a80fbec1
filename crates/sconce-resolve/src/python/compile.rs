//! Driving `uv pip compile`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use sconce_schema::lock::Wheel;
use tracing::{debug, info};

use super::compile_error::{CompileError, classify};
use super::downloads::{HIGHEST_MINOR, LOWEST_MINOR};
use super::index_settings::IndexSettings;
use super::local_sources::PyprojectForUv;
use super::pylock::{self, KnownFiles, LockedPackages};
use super::source_package::{SourceMetadata, UnnamedSource};
use super::torch_indexes::{self, RestrictedIndexes};
use super::{says_disk_full, uv_settings};
use sconce_base::text::redact_url_credentials;
use sconce_formats::tags::WheelTarget;
use sconce_formats::{PinnedPackage, normalize_project_name};

/// What is wanted. All of them may be given; together they are one set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Requirements {
    /// Requirements, one each (PEP 508).
    pub packages: Vec<String>,
    /// A `requirements.txt`.
    pub file: Option<PathBuf>,
    /// The text of another one, whose paths are absolute.
    pub file_text: Option<String>,
    /// Addresses of sources that no name stands before.
    pub unnamed: Vec<UnnamedSource>,
    /// Of each `pyproject.toml`, its `[project] dependencies`, but projects on this machine. The projects
    /// themselves are not built.
    pub pyprojects: Vec<PyprojectForUv>,
    /// Extras of these.
    pub extras: Vec<String>,
    /// Dependency groups, each of the first of these.
    pub groups: Vec<String>,
    /// What the lock of another tool pins: all of it is wanted, in no other version, whatever packages
    /// say that they need.
    pub pinned: Vec<PinnedPackage>,
    /// Files whose digests stand beside requirements that are in `file`.
    pub hashed: Vec<PinnedPackage>,
    /// Whether the best version of all indexes is taken, as pip does, instead of the first index that has
    /// a project: `file` was written for pip and names indexes.
    pub compares_indexes: bool,
}

impl Requirements {
    /// Whether nothing is wanted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What of [`Requirements::pinned`] counts: a version that is asked for in [`Requirements::packages`]
    /// takes the place of the lock's.
    fn effective_pins(&self) -> impl Iterator<Item = &PinnedPackage> {
        let replaced: BTreeSet<String> = self
            .packages
            .iter()
            .filter_map(|r| versioned_project(r))
            .collect();
        let pinned = self.pinned.iter();
        pinned.filter(move |package| !replaced.contains(&package.name))
    }

    /// The files that each project may be.
    fn known_files(&self) -> KnownFiles<'_> {
        let mut files = KnownFiles::new();
        for package in self.effective_pins().chain(&self.hashed) {
            files
                .entry(&package.name)
                .or_default()
                .extend(&package.files);
        }
        files
    }
}

/// What a resolution needs besides the requirements.
#[derive(Debug, Clone, Copy)]
pub struct UvCompile<'a> {
    /// uv.
    pub uv: &'a Path,
    /// Relative paths among the requirements are below this folder; uv also looks here for
    /// settings of its own.
    pub folder: &'a Path,
    /// Where uv keeps what indexes told it, unless the environment names a place.
    pub cache: &'a Path,
    /// The complete environment of uv.
    pub environment: &'a BTreeMap<OsString, OsString>,
    /// Indexes that the spec or a flag names.
    pub index: &'a IndexSettings,
    /// Indexes that the machine's pip uses.
    pub pip_index: &'a IndexSettings,
    /// The full version of Python, `3.13.5`.
    pub python: &'a str,
    /// What the wheels have to run on.
    pub target: WheelTarget,
    /// Wheels of the previous lock, whose versions are kept where they still satisfy.
    pub keep: &'a [Wheel],
    /// Whether pre-releases count that nobody named, where no stable version fits.
    pub takes_prereleases: bool,
    /// The last day whose uploads count, `2021-03-25`; absent: all count.
    pub as_of: Option<&'a str>,
    /// The packages that are taken as sources, and of no other uv looks at sources. It runs nothing of
    /// them: it goes by what stands here.
    pub sources: &'a [SourceMetadata],
}

/// uv resolves for no older Python than 3.6.
const OLDEST_MINOR_OF_UV: u32 = 6;
/// uv's own variable for which pre-releases count.
const PRERELEASE: &str = "UV_PRERELEASE";
/// uv's own variable for the folder of its cache.
const CACHE: &str = "UV_CACHE_DIR";

/// Platforms that uv 0.7 and newer know, as minor numbers of glibc.
const PLATFORMS: [u32; 12] = [17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40];

impl UvCompile<'_> {
    /// As [`Self::resolve_packages`], the wheels alone.
    pub fn resolve_wheels(&self, requirements: &Requirements) -> Result<Vec<Wheel>, CompileError> {
        let packages = self.resolve_packages(requirements)?;
        Ok(packages.wheels)
    }

    /// Resolves to one wheel for each package, or the sources of one of [`UvCompile::sources`].
    pub fn resolve_packages(
        &self,
        requirements: &Requirements,
    ) -> Result<LockedPackages, CompileError> {
        self.compile(requirements, &[])
    }

    /// The newest that the requirements allow, whatever they need themselves.
    pub(crate) fn resolve_without_needs(
        &self,
        requirements: &Requirements,
    ) -> Result<LockedPackages, CompileError> {
        self.compile(requirements, &["--no-deps"])
    }

    fn compile(
        &self,
        requirements: &Requirements,
        further: &[&str],
    ) -> Result<LockedPackages, CompileError> {
        if requirements.is_empty() {
            return Ok(LockedPackages::default());
        }
        let indexes = torch_indexes::find_build_indexes(self, requirements);
        if !indexes.is_empty() {
            let origins = self.run_uv(requirements, None, OutputFormat::Origins, further)?;
            let restricted = RestrictedIndexes::new(self, requirements, &indexes, &origins.text);
            if let Some(restricted) = restricted {
                return self.compile_restricted(&restricted, further);
            }
        }
        let lock = self.run_uv(requirements, None, OutputFormat::Pylock, further)?;
        self.parse(&lock, requirements)
    }

    fn compile_restricted(
        &self,
        restricted: &RestrictedIndexes,
        further: &[&str],
    ) -> Result<LockedPackages, CompileError> {
        let (requirements, project) = (&restricted.requirements, Some(&*restricted.project));
        let compile = UvCompile {
            index: &restricted.index,
            ..*self
        };
        let lock = match compile.run_uv(requirements, project, OutputFormat::Pylock, further) {
            Ok(lock) => lock,
            Err(CompileError::NoSolution { kind, stderr }) => {
                let packages = restricted.lacking(&stderr);
                return Err(match packages.is_empty() {
                    true => CompileError::NoSolution { kind, stderr },
                    false => CompileError::OnlyOnTorchIndex { packages, stderr },
                });
            }
            Err(other) => return Err(other),
        };
        self.parse(&lock, requirements)
    }

    fn parse(
        &self,
        lock: &UvOutput,
        requirements: &Requirements,
    ) -> Result<LockedPackages, CompileError> {
        let known = requirements.known_files();
        Ok(pylock::parse(
            &lock.text,
            self.target,
            &lock.folder,
            &known,
        )?)
    }

    /// Writes settings for uv where it is not to go by those that it would find itself.
    fn write_settings(&self, scratch: &Path) -> std::io::Result<()> {
        if self.sources.is_empty() && !uv_settings::names_unneeded_index(self.folder) {
            return Ok(());
        }
        let settings = uv_settings::settings_with(self.folder, self.sources);
        std::fs::write(scratch.join(uv_settings::FILE), settings)
    }

    /// What uv writes of `requirements` and of `project`, the text of a `pyproject.toml`.
    fn run_uv(
        &self,
        requirements: &Requirements,
        project: Option<&str>,
        format: OutputFormat,
        further: &[&str],
    ) -> Result<UvOutput, CompileError> {
        check_packages(&requirements.packages)?;
        let pinned = requirements.effective_pins();
        let pinned: Vec<&str> = pinned.map(|package| package.requirement.as_str()).collect();
        check_packages(&pinned)?;
        let failed = |source| CompileError::Run {
            program: self.uv.to_owned(),
            source,
        };
        let named = self.environment.get(OsStr::new("TMPDIR"));
        let temporary = Path::new(named.map_or(OsStr::new("/tmp"), OsString::as_os_str));
        let in_scratch = |source| CompileError::Scratch {
            path: temporary.to_owned(),
            source,
        };
        let scratch = tempfile::tempdir_in(temporary).map_err(in_scratch)?;
        // uv takes nothing else for the name of such a file, and reads the versions to keep from
        // the file that it is going to write.
        let lock = scratch.path().join(format.file());
        if !self.keep.is_empty() && format == OutputFormat::Pylock {
            std::fs::write(&lock, preferences(self.keep)).map_err(in_scratch)?;
        }
        // What replaces needs of packages: a lock has been resolved, with whatever its tool was told.
        let overrides = scratch.path().join("pinned.txt");
        if !pinned.is_empty() {
            std::fs::write(&overrides, pinned.join("\n")).map_err(in_scratch)?;
        }
        info!(
            python = self.python,
            platform = self.platform(),
            "uv resolves Python packages"
        );
        self.write_settings(scratch.path()).map_err(in_scratch)?;
        let mut copies = RequirementCopies::write(requirements, scratch.path(), in_scratch)?;
        if let Some(text) = project {
            let path = scratch.path().join("pyproject.toml");
            std::fs::write(&path, text).map_err(in_scratch)?;
            copies.pyprojects.push(path);
        }
        let overrides = (!pinned.is_empty()).then_some(overrides.as_path());
        let packages = &mut copies.requirements.packages;
        packages.extend(pinned.iter().map(|text| (*text).to_owned()));
        let call = || self.call(&copies, overrides, format, &lock, further);
        let output = call_until_checkouts_rest(call).map_err(failed)?;
        debug!(status = %output.status, "uv ended");
        if !output.status.success() {
            let stderr = copies.with_own_paths(&String::from_utf8_lossy(&output.stderr));
            let stderr = redact_url_credentials(stderr.trim_end());
            if says_disk_full(&stderr) {
                let cache = self.cache_folder();
                return Err(CompileError::DiskFull { cache, stderr });
            }
            return Err(classify(stderr));
        }
        Ok(UvOutput {
            text: std::fs::read_to_string(&lock).map_err(in_scratch)?,
            folder: scratch.path().to_owned(),
        })
    }

    /// Whether some version that a requirement allows has wheels for some Python. Where that cannot be
    /// known, there are none.
    pub(crate) fn has_wheels(&self, requirement: &str) -> bool {
        let mut pythons = (LOWEST_MINOR..=HIGHEST_MINOR).rev();
        pythons.any(|minor| self.has_wheels_for(requirement, &format!("3.{minor}")))
    }

    /// The same of Pythons before all that there could be.
    pub(crate) fn had_wheels(&self, requirement: &str) -> bool {
        let mut pythons = (OLDEST_MINOR_OF_UV..LOWEST_MINOR).rev();
        pythons.any(|minor| self.has_wheels_for(requirement, &format!("3.{minor}")))
    }

    /// The same of the Python that is resolved for.
    pub(crate) fn has_wheels_here(&self, requirement: &str) -> bool {
        self.has_wheels_for(requirement, self.python)
    }

    fn has_wheels_for(&self, requirement: &str, python: &str) -> bool {
        let copies = RequirementCopies {
            requirements: Requirements {
                packages: vec![requirement.to_owned()],
                ..Requirements::default()
            },
            pyprojects: Vec::new(),
            paths: Vec::new(),
        };
        let Ok(scratch) = tempfile::tempdir() else {
            return false;
        };
        // uv takes no other file's name.
        let lock = scratch.path().join("pylock.toml");
        let compile = UvCompile {
            python,
            sources: &[],
            keep: &[],
            ..*self
        };
        let called = compile.write_settings(scratch.path()).and_then(|()| {
            compile.call(&copies, None, OutputFormat::Pylock, &lock, &["--no-deps"])
        });
        called.is_ok_and(|output| output.status.success())
    }

    fn call(
        &self,
        copies: &RequirementCopies,
        overrides: Option<&Path>,
        format: OutputFormat,
        lock: &Path,
        further: &[&str],
    ) -> std::io::Result<Output> {
        let requirements = &copies.requirements;
        let mut command = Command::new(self.uv);
        command
            .args([
                "pip",
                "compile",
                "--quiet",
                "--color",
                "never",
                "--no-progress",
            ])
            .args(["--no-header", "--no-annotate"])
            .args(format.uv_args())
            .args(["--only-binary", ":all:", "--no-python-downloads"])
            .args(further)
            .args(["--python-version", self.python])
            .args(["--python-platform", &self.platform()])
            .arg("--output-file")
            .arg(lock)
            .args(self.index.uv_args())
            .current_dir(match lock.parent() {
                Some(scratch) if scratch.join(uv_settings::FILE).exists() => scratch,
                _ => self.folder,
            })
            .env_clear()
            .envs(self.environment)
            .env(CACHE, self.cache_folder())
            .envs(self.index.uv_variables(self.pip_index, self.environment))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if self.index.is_empty() {
            command.args(self.pip_index.uv_args());
        }
        command.args(&requirements.file);
        command.args(&copies.pyprojects);
        for extra in &requirements.extras {
            command.args(["--extra", extra]);
        }
        for group in &requirements.groups {
            command.arg("--group");
            let mut own = copies.pyprojects.iter().take(requirements.pyprojects.len());
            command.arg(match own.next() {
                Some(path) => [path.as_os_str(), OsStr::new(group)].join(OsStr::new(":")),
                None => group.into(),
            });
        }
        for source in self.sources {
            command.args(["--no-binary", &source.name]);
        }
        if !self.sources.is_empty() {
            // A commit is asked of git, which knows the user's logins and other addresses.
            command.env("UV_NO_GITHUB_FAST_PATH", "1");
        }
        if !self.takes_prereleases && !self.environment.contains_key(OsStr::new(PRERELEASE)) {
            command.args(["--prerelease", "explicit"]);
        }
        if let Some(day) = self.as_of {
            // Without a time, uv takes the day of the machine's time zone.
            command.args(["--exclude-newer", &format!("{day}T23:59:59Z")]);
        }
        if requirements.compares_indexes {
            command.args(["--index-strategy", "unsafe-best-match"]);
        }
        if let Some(overrides) = overrides {
            command.arg("--override").arg(overrides);
        }
        if !requirements.packages.is_empty() {
            command.arg("-");
        }
        let mut uv = command.spawn()?;
        if let Some(mut stdin) = uv.stdin.take() {
            // A uv that ended early has said why on its standard error.
            let _ = stdin.write_all(requirements.packages.join("\n").as_bytes());
        }
        uv.wait_with_output()
    }

    fn cache_folder(&self) -> PathBuf {
        let named = self.environment.get(OsStr::new(CACHE));
        match named.filter(|folder| !folder.is_empty()) {
            Some(folder) => PathBuf::from(folder),
            None => self.cache.to_owned(),
        }
    }

    /// The newest platform that uv knows and the target runs.
    fn platform(&self) -> String {
        let known = PLATFORMS
            .into_iter()
            .rfind(|minor| *minor <= self.target.glibc_minor);
        let minor = known.unwrap_or(PLATFORMS[0]);
        format!("{}-manylinux_2_{minor}", self.target.machine.name())
    }
}

/// How often uv is called where a checkout of git is still written, and how long between.
const MAX_CALLS: usize = 6;
const CALL_PAUSE: Duration = Duration::from_secs(2);

/// Calls uv, and again where it fails to make a checkout anew while somebody writes there: uv ends without waiting for
/// the git that it started (seen once, after a resolution for a newer Python had failed).
fn call_until_checkouts_rest(
    call: impl Fn() -> std::io::Result<Output>,
) -> std::io::Result<Output> {
    let is_written = |output: &Output| {
        let said = String::from_utf8_lossy(&output.stderr);
        let signs = ["Git operation failed", "Directory not empty"];
        !output.status.success() && signs.iter().all(|sign| said.contains(sign))
    };
    for _ in 1..MAX_CALLS {
        let output = call()?;
        if !is_written(&output) {
            return Ok(output);
        }
        debug!("a checkout of git is still written: uv is called again");
        std::thread::sleep(CALL_PAUSE);
    }
    call()
}

/// What uv is to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputFormat {
    /// The packages with their files.
    Pylock,
    /// The packages with the index of each.
    Origins,
}

impl OutputFormat {
    /// uv takes a lock's name for nothing else.
    fn file(self) -> &'static str {
        match self {
            Self::Pylock => "pylock.toml",
            Self::Origins => "origins.txt",
        }
    }

    fn uv_args(self) -> &'static [&'static str] {
        match self {
            Self::Pylock => &["--format", "pylock.toml", "--generate-hashes"],
            Self::Origins => &["--format", "requirements.txt", "--emit-index-annotation"],
        }
    }
}

/// What uv wrote.
struct UvOutput {
    text: String,
    /// Relative paths in it are below this folder, which is gone.
    folder: PathBuf,
}

/// Requirements whose files are copies without the projects on this machine.
struct RequirementCopies {
    requirements: Requirements,
    pyprojects: Vec<PathBuf>,
    /// Each copy's path, and the file's own.
    paths: Vec<(PathBuf, PathBuf)>,
}

impl RequirementCopies {
    fn write(
        requirements: &Requirements,
        folder: &Path,
        failed: impl Fn(std::io::Error) -> CompileError,
    ) -> Result<Self, CompileError> {
        let mut copies = Self {
            requirements: requirements.clone(),
            pyprojects: Vec::new(),
            paths: Vec::new(),
        };
        if let Some(text) = &requirements.file_text {
            let copy = folder.join("requirements.txt");
            std::fs::write(&copy, text).map_err(&failed)?;
            if let Some(own) = copies.requirements.file.replace(copy.clone()) {
                copies.paths.push((copy, own));
            }
        }
        for (number, pyproject) in requirements.pyprojects.iter().enumerate() {
            let copy = folder.join(number.to_string()).join("pyproject.toml");
            std::fs::create_dir(folder.join(number.to_string())).map_err(&failed)?;
            std::fs::write(&copy, &pyproject.text).map_err(&failed)?;
            copies.pyprojects.push(copy.clone());
            copies.paths.push((copy, pyproject.path.clone()));
        }
        Ok(copies)
    }

    /// A text of uv's that names the files that were copied.
    fn with_own_paths(&self, text: &str) -> String {
        let copies = self.paths.iter();
        copies.fold(text.to_owned(), |text, (copy, own)| {
            text.replace(&*copy.to_string_lossy(), &own.to_string_lossy())
        })
    }
}

/// A requirement must not be an option of a requirements file, nor several of them.
fn check_packages(packages: &[impl AsRef<str>]) -> Result<(), CompileError> {
    for text in packages {
        let text = text.as_ref();
        let why = if text.trim().is_empty() {
            "it is empty"
        } else if text.trim_start().starts_with('-') {
            "it is an option"
        } else if text.contains(['\n', '\r', '\0']) {
            "it has more than one line"
        } else {
            continue;
        };
        return Err(CompileError::Requirement {
            text: text.to_owned(),
            why,
        });
    }
    Ok(())
}

/// The project that a requirement is of.
#[must_use]
pub fn project_of(requirement: &str) -> Option<String> {
    split_name(requirement).0
}

/// The project that a requirement is of, where it says which version or file of it is meant.
#[must_use]
pub fn versioned_project(requirement: &str) -> Option<String> {
    let (name, rest) = split_name(requirement);
    let rest = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?.1.trim(),
        None => rest,
    };
    name.filter(|_| !rest.is_empty() && !rest.starts_with(';'))
}

fn split_name(requirement: &str) -> (Option<String>, &str) {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let text = requirement.trim();
    let end = text.find(|c: char| !plain(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    (normalize_project_name(name), rest.trim())
}

/// The least of a `pylock.toml` that uv reads versions from. Names and versions in a lock are of
/// plain characters; others are left out and so resolved anew.
fn preferences(keep: &[Wheel]) -> String {
    let plain = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".+!-_".contains(&b))
    };
    let mut text = "lock-version = \"1.0\"\ncreated-by = \"sconce\"\n".to_owned();
    for wheel in keep.iter().filter(|w| plain(&w.name) && plain(&w.version)) {
        text += &format!(
            "[[packages]]\nname = \"{}\"\nversion = \"{}\"\n",
            wheel.name, wheel.version
        );
    }
    text
}

/// Whether an environment names indexes for uv by itself.
pub(super) fn names_indexes(environment: &BTreeMap<OsString, OsString>) -> bool {
    [
        "UV_DEFAULT_INDEX",
        "UV_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
        "UV_FIND_LINKS",
        "UV_CONFIG_FILE",
    ]
    .into_iter()
    .any(|name| {
        environment
            .get(OsStr::new(name))
            .is_some_and(|value| !value.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_packages_say_takes_the_place_of_a_lock() {
        let pinned = |name: &str| PinnedPackage {
            name: name.to_owned(),
            requirement: format!("{name}==1"),
            files: vec![],
        };
        let requirements = Requirements {
            packages: [
                "numpy<2",
                "torch",
                "ray[tune] ; os_name == 'posix'",
                "Pillow @ https://a.example.org/x",
            ]
            .map(str::to_owned)
            .to_vec(),
            pinned: ["numpy", "torch", "ray", "pillow"].map(pinned).to_vec(),
            ..Requirements::default()
        };
        let names: Vec<&str> = requirements
            .effective_pins()
            .map(|p| p.name.as_str())
            .collect();
        assert_eq!(names, ["torch", "ray"]);
        assert_eq!(requirements.known_files().len(), 2);
        assert_eq!(project_of("Ray[tune]>=2").as_deref(), Some("ray"));
        assert_eq!(versioned_project("-e ."), None);
    }

    #[test]
    fn a_package_is_one_requirement() {
        for text in [
            "--index-url https://evil.example",
            " -r other.txt",
            "numpy\n--find-links /tmp",
            "",
            "a\r-e .",
        ] {
            let error = check_packages(&[text.to_owned()]).unwrap_err();
            assert!(matches!(error, CompileError::Requirement { .. }), "{text}");
        }
        assert!(
            check_packages(&[
                "torch==2.15.0".to_owned(),
                "x @ https://example.org/x.whl".to_owned()
            ])
            .is_ok()
        );
    }

    #[test]
    fn preferences_are_toml_whatever_the_lock_holds() {
        let wheel = |name: &str, version: &str| Wheel {
            name: name.to_owned(),
            version: version.to_owned(),
            file: String::new(),
            url: String::new(),
            size: None,
            sha256: sconce_schema::Sha256([0; 32]),
            build: None,
        };
        let text = preferences(&[wheel("torch", "2.8.0+cu126"), wheel("evil", "1\"\n[x]")]);
        let table: toml::Table = toml::from_str(&text).unwrap();
        assert_eq!(table["packages"].as_array().unwrap().len(), 1);
        assert_eq!(
            table["packages"][0]["version"].as_str(),
            Some("2.8.0+cu126")
        );
    }
}
