//! Wheels of packages that have sources alone. Their code runs in containers without network, as a
//! plain user, over an environment of locked build requirements; what it leaves is one wheel.
//!
//! A wheel is known by all that it is made from, and made once: what was built stays in the store.

mod build_container;
mod build_plan;
mod own_project;
mod prebuilt;
mod source_fetcher;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use sconce_fetch::Fetcher;
use sconce_formats::normalize_project_name;
use sconce_formats::tags::WheelName;
use sconce_resolve::python::build_settings::{BuildSettingError, check_variables};
use sconce_resolve::python::compile::project_of;
use sconce_resolve::python::compile_error::CompileError;
use sconce_resolve::python::source_package::{SourceMetadata, SourceOrigin, SourcePackage};
use sconce_resolve::{BuildFailure, BuildSetting, BuiltWheel, SourceBuilder};
use sconce_schema::lock::{BUILD, BuildRequest, Lock, Wheel, WheelBuild};
use sconce_schema::{Hint, NoProgress, Progress, Sha256, exit};
use sconce_store::{Store, TreeBuildError};
use sha2::Digest as _;

pub(crate) use self::build_plan::requirement_of_module;
pub(crate) use self::own_project::OwnProject;

use self::build_container::{BuildContainer, BuildOutcome};
use self::build_plan::{BuildPlan, SourceFacts};
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;

/// The kind of the store's items that hold built wheels.
const KIND: &str = "built";
/// Environments have no older Python than 3.8.
const OLDEST_PYTHON: u32 = 8;
/// Rounds in which a build asks for something more.
const MAX_ROUNDS: usize = 6;

/// A Python that came out after what is built for it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewerPython {
    /// 13 for 3.13.
    minor: u32,
    /// The newest Python of when the sources were written.
    older: u32,
    /// The day of the sources, `2019-04-08`.
    written: String,
}

impl NewerPython {
    fn find(minor: u32, written: String) -> Option<Self> {
        let is_older = |minor: &u32| build_plan::day_of_python(*minor) <= written;
        let older = (OLDEST_PYTHON..minor).rev().find(is_older);
        (!is_older(&minor) && minor > OLDEST_PYTHON).then(|| Self {
            minor,
            older: older.unwrap_or(OLDEST_PYTHON),
            written,
        })
    }
}

impl fmt::Display for NewerPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            minor,
            older,
            written,
        } = self;
        write!(
            f,
            "it was built for Python 3.{minor}, and its sources are of {written}, before that Python: an older one may \
             build it, `version = \"3.{older}\"` in [python]; or take a version of it that has a wheel. System \
             libraries that it is built with go into `[system] packages`"
        )
    }
}

/// Why sources gave no wheel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceBuildError {
    /// git could not fetch a commit.
    #[error("git cannot fetch {commit} of {url}; it says:\n{said}")]
    Git {
        /// The repository.
        url: String,
        /// The commit.
        commit: String,
        /// git's own text.
        said: String,
    },
    /// There is no git.
    #[error("there is no git on this machine, and {url} is a git repository")]
    NoGit {
        /// The repository.
        url: String,
    },
    /// The archive is not what was locked.
    #[error("{url} has the SHA-256 {found}, and {expected} is expected")]
    OtherBytes {
        /// The archive.
        url: String,
        /// Its digest.
        found: Sha256,
        /// The index's, or the lock's.
        expected: Sha256,
    },
    /// A lock asks for a variable that no build may have.
    #[error("the lock is refused")]
    Setting(#[source] BuildSettingError),
    /// Sources that cannot be read: no archive, or without the folder that is named.
    #[error("its sources cannot be read")]
    Unreadable,
    /// The build backend failed.
    #[error("its build failed; the whole log is in {}:\n{excerpt}", log.display())]
    Failed {
        /// Where all of it is.
        log: PathBuf,
        /// What matters of it.
        excerpt: String,
        /// The module that it did not find.
        module: Option<String>,
        /// Where the Python that it was built for came out after the sources.
        newer_python: Option<NewerPython>,
    },
    /// It was refused a process by the limit on them.
    #[error(
        "its build was refused further processes by the limit of {limit}; the whole log is in {}",
        log.display()
    )]
    TooManyProcesses {
        /// Processes and threads at once.
        limit: u64,
        /// Where its output is.
        log: PathBuf,
    },
    /// It takes too long.
    #[error("its build took longer than {minutes} minutes; its log is in {}", log.display())]
    TooLong {
        /// The limit.
        minutes: u64,
        /// Where its output is.
        log: PathBuf,
    },
    /// The build left no wheel, or several.
    #[error("its build made {count} wheels")]
    NotOneWheel {
        /// So many.
        count: usize,
    },
    /// The build backend asks for what the lock does not have.
    #[error("its build backend asks for {}, which is not among what it is said to be built with", .packages.join(", "))]
    Lacks {
        /// Requirements (PEP 508).
        packages: Vec<String>,
    },
    /// The wheel is another package's.
    #[error("its build made {file}, which is another package or version")]
    OtherPackage {
        /// The wheel.
        file: String,
    },
    /// A built wheel has other bytes than the lock says, and may not.
    #[error(
        "{file} was built anew, and is not the one that was locked: {found} instead of {expected}"
    )]
    OtherWheel {
        /// The wheel.
        file: String,
        /// What came out.
        found: Sha256,
        /// What the lock says.
        expected: Sha256,
    },
}

impl Hint for SourceBuildError {
    fn hint(&self) -> Option<String> {
        if let Self::Failed {
            module: Some(module),
            ..
        } = self
        {
            return Some(format!(
                "its build imports `{module}` and does not say so: name what brings that, `NAME = [\"…\"]` below \
                 `[tool.uv.extra-build-dependencies]` in the pyproject.toml beside the spec"
            ));
        }
        let text = match self {
            Self::Git { .. } => {
                "check the address, the network and this user's login: git runs as it does in a terminal"
            }
            Self::NoGit { .. } => "install git",
            Self::OtherBytes { .. } => "lock again where the new sources are meant: `sconce lock`",
            Self::Setting(_) => "lock again: `sconce lock`",
            Self::Unreadable => "take another version of it",
            Self::Failed { excerpt, .. } if excerpt.contains("--extra-index-url ") => {
                "its build names an index that has its wheels: where you trust that, it goes into `[python] extra-index`"
            }
            Self::Failed { excerpt, .. } if wants_network(excerpt) => {
                "builds have no network, and this one fetches something: take a version of it that has a wheel"
            }
            Self::Failed { excerpt, .. } if wants_cuda(excerpt) => {
                "it is compiled with a CUDA toolkit, which builds do not have: take a version of it that has a wheel \
                 for this torch and this Python (`NAME @ https://…whl`)"
            }
            Self::Failed { excerpt, .. } if excerpt.contains("pkg-config search path") => {
                "name the Debian package of the library that is not found in `[system] packages`, \
                 `libavformat-dev` for libavformat; or take a version of it that has a wheel"
            }
            Self::TooManyProcesses { .. } => {
                "its setup starts processes without end, or that many at once: take a version of it that has a wheel"
            }
            Self::Failed {
                newer_python: Some(newer),
                ..
            } => return Some(newer.to_string()),
            Self::Failed { .. } | Self::TooLong { .. } => {
                "take a version of it that has a wheel, or an older Python with `[python] version`; system \
                 libraries that it is built with go into `[system] packages`"
            }
            Self::Lacks { .. } => "name it in `requires` of [build-system] in pyproject.toml",
            Self::NotOneWheel { .. } | Self::OtherPackage { .. } => "take another version of it",
            Self::OtherWheel { .. } => "without `--locked` it is accepted, and said",
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Git { .. } => exit::FETCH,
            Self::NoGit { .. } | Self::Setting(_) => exit::BAD_INPUT,
            Self::OtherBytes { .. } | Self::OtherPackage { .. } | Self::OtherWheel { .. } => {
                exit::VERIFY
            }
            Self::Unreadable
            | Self::Failed { .. }
            | Self::TooLong { .. }
            | Self::TooManyProcesses { .. }
            | Self::Lacks { .. }
            | Self::NotOneWheel { .. } => exit::NO_SOLUTION,
        }
    }
}

/// Whether a build failed because it has no network.
fn wants_network(log: &str) -> bool {
    let signs = [
        "Name or service not known",
        "Temporary failure in name resolution",
        "Network is unreachable",
        "Could not resolve host",
        "urlopen error",
        "NewConnectionError",
    ];
    signs.iter().any(|sign| log.contains(sign))
}

/// Whether a build failed because it has no CUDA compiler.
fn wants_cuda(log: &str) -> bool {
    let signs = [
        "CUDA_HOME",
        "nvcc was not found",
        "nvcc: not found",
        "No such file or directory: 'nvcc'",
    ];
    signs.iter().any(|sign| log.contains(sign))
}

/// Builds in containers.
pub(crate) struct ContainedBuilder<'a> {
    /// Where wheels, sources and environments are kept.
    pub(crate) store: &'a Store,
    /// The directories to work in.
    pub(crate) places: &'a SconceDirs,
    /// How the program was started.
    pub(crate) context: &'a AppContext,
    /// Fetches packages and sources.
    pub(crate) fetcher: &'a Fetcher,
    /// Shows the stages of the work.
    pub(crate) progress: &'a dyn Progress,
}

impl SourceBuilder for ContainedBuilder<'_> {
    fn needs_build_tools(
        &self,
        package: &SourcePackage,
        base: &Lock,
    ) -> Result<bool, BuildFailure> {
        let facts = self.inspect_sources(package, base);
        let native = facts.map_err(Failure::into_build_failure)?.native;
        Ok(native
            || self
                .asks_git(package)
                .map_err(Failure::into_build_failure)?)
    }

    fn fetch_prebuilt(
        &self,
        package: &SourcePackage,
        installed: &[Wheel],
        base: &Lock,
    ) -> Result<Option<BuiltWheel>, BuildFailure> {
        self.find_prebuilt(package, installed, base)
            .map_err(Failure::into_build_failure)
    }

    fn build_wheel(
        &self,
        package: &SourcePackage,
        setting: &BuildSetting<'_>,
    ) -> Result<BuiltWheel, BuildFailure> {
        self.build_anew(package, setting)
            .map_err(Failure::into_build_failure)
    }
}

impl ContainedBuilder<'_> {
    fn inspect_sources(&self, package: &SourcePackage, base: &Lock) -> Result<SourceFacts> {
        let source = self.fetch_source(&package.origin)?;
        let base = Lock {
            stages: Vec::new(),
            ..base.clone()
        };
        let container = BuildContainer::prepare(self, &base)?;
        container.inspect(&source, package.origin.subdirectory().unwrap_or("."))
    }

    /// Builds with what its sources and the project ask for, as of the day of the sources, else of now; a
    /// module that its setup lacks is added.
    fn build_anew(
        &self,
        package: &SourcePackage,
        setting: &BuildSetting<'_>,
    ) -> Result<BuiltWheel> {
        let facts = self.inspect_sources(package, setting.base)?;
        let plan = BuildPlan::read(&facts);
        let asked = setting.asked;
        if let Some(build) = setting.previous.and_then(|wheel| wheel.build.as_deref())
            && fits_request(build, asked, setting.installed)
            && origin_of(setting.previous, build).is_some_and(|o| o.is_same(&package.origin))
            && let Ok(built) = self.build_with(
                package,
                setting.base,
                &BuildPlan::of_lock(&facts),
                &build.build_requires,
                asked,
            )?
        {
            return Ok(built);
        }
        let minor = setting.base.target.python.strip_prefix("3.");
        let minor: Option<u32> = minor.and_then(|minor| minor.parse().ok());
        let written = self.commit_time(package).unwrap_or(facts.newest);
        let day = build_plan::day_of_tools(&package.origin, written, minor.unwrap_or(0));
        let mut failed = None;
        for as_of in [day.as_deref(), None] {
            let mut requires = plan.requires.clone();
            requires.extend(asked.requires.iter().cloned());
            for _ in 0..MAX_ROUNDS {
                let wheels = match resolve_requires(&requires, setting, as_of) {
                    Ok(wheels) => wheels,
                    // What there was on that day has no wheels for this Python.
                    Err(_) if as_of.is_some() => break,
                    Err(error) => return Err(error.into()),
                };
                let plan = plan.with(&requires);
                let wanted = match self.build_with(package, setting.base, &plan, &wheels, asked)? {
                    Ok(built) => return Ok(built),
                    Err(Unbuilt::Lacks(wanted)) => wanted,
                    Err(Unbuilt::Module(name, error)) => {
                        let found = build_plan::requirement_of_module(&name, setting.installed);
                        failed = Some(error);
                        Vec::from_iter(found)
                    }
                    Err(Unbuilt::Failed(error)) => {
                        failed = Some(error);
                        break;
                    }
                };
                let before = requires.len();
                requires.extend(
                    wanted
                        .into_iter()
                        .filter(|one| !plan.requires.contains(one)),
                );
                requires.dedup();
                if requires.len() == before {
                    break;
                }
            }
        }
        let mut failed = failed.unwrap_or(SourceBuildError::Unreadable);
        if let SourceBuildError::Failed { newer_python, .. } = &mut failed {
            let day = build_plan::day_of_sources(&package.origin, written);
            *newer_python = minor.and_then(|minor| NewerPython::find(minor, day));
        }
        Err(failed.into())
    }

    /// Builds with these wheels, or says what is missing.
    fn build_with(
        &self,
        package: &SourcePackage,
        base: &Lock,
        plan: &BuildPlan,
        requires: &[Wheel],
        asked: &BuildRequest,
    ) -> Result<Result<BuiltWheel, Unbuilt>> {
        let lock = Lock {
            wheels: requires.to_vec(),
            ..base.clone()
        }
        .for_stage(BUILD);
        let sources = [
            package.origin.fingerprint(),
            package.origin.subdirectory().unwrap_or_default().to_owned(),
        ];
        let key = build_key(&sources, &lock, &asked.variables);
        let store = self.store;
        let file = match store.find_tree(KIND, &key) {
            Some(tree) => single_file(&tree),
            None => None,
        };
        let file = match file {
            Some(file) => file,
            None => {
                let source = self.fetch_source(&package.origin)?;
                let container = BuildContainer::prepare(self, &lock)?;
                let label = match (&package.origin, &package.version) {
                    (SourceOrigin::Archive { .. }, Some(version)) => {
                        format!("{}-{version}", package.name)
                    }
                    (SourceOrigin::Git { commit, .. }, _) => {
                        format!("{}-{commit:.12}", package.name)
                    }
                    (SourceOrigin::Archive { .. }, None) => package.name.clone(),
                };
                let folder = package.origin.subdirectory().unwrap_or(".");
                let plan = BuildPlan {
                    env: asked.variables.clone(),
                    ..plan.clone()
                };
                match container.build(&source, folder, &plan, &label)? {
                    BuildOutcome::Wheel(file) => self.keep_wheel(&key, file.path())?,
                    BuildOutcome::Lacks(wanted) => return Ok(Err(Unbuilt::Lacks(wanted))),
                    BuildOutcome::Module(name, error) => {
                        return Ok(Err(Unbuilt::Module(name, error)));
                    }
                    BuildOutcome::Failed(error) => return Ok(Err(Unbuilt::Failed(error))),
                }
            }
        };
        let mut built = self.install_wheel(package, &file, base)?;
        built.wheel.url = package.origin.url().to_owned();
        built.wheel.build = Some(Box::new(build_of(&package.origin, requires, asked)));
        Ok(Ok(built))
    }

    /// A folder that goes away.
    fn temp_folder(&self) -> Result<tempfile::TempDir> {
        let scratch = &self.places.scratch;
        let failed = |source| AppError::File {
            action: FileAction::Create,
            path: scratch.clone(),
            source,
        };
        std::fs::create_dir_all(scratch).map_err(failed)?;
        Ok(tempfile::tempdir_in(scratch).map_err(failed)?)
    }

    fn keep_wheel(&self, key: &str, wheel: &Path) -> Result<PathBuf> {
        let name = wheel.file_name().unwrap_or_default();
        let built = self.store.build_tree(KIND, key, |folder| {
            std::fs::copy(wheel, folder.join(name)).map(|_| ())
        });
        let tree = built.map_err(|error| match error {
            TreeBuildError::Store(error) => Failure::from(error),
            TreeBuildError::Build(source) => AppError::File {
                action: FileAction::Write,
                path: wheel.to_owned(),
                source,
            }
            .into(),
        })?;
        Ok(tree.join(name))
    }

    /// Puts a wheel that lies in a file into the store, as one of an index.
    fn install_wheel(
        &self,
        package: &SourcePackage,
        file: &Path,
        base: &Lock,
    ) -> Result<BuiltWheel> {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let other = || SourceBuildError::OtherPackage {
            file: name.clone().into_owned(),
        };
        let parsed = WheelName::parse(&name).ok_or_else(other)?;
        let project = normalize_project_name(parsed.project).ok_or_else(other)?;
        if project != package.name && !package.is_name_guessed {
            return Err(other().into());
        }
        let bytes = std::fs::read(file).map_err(AppError::unreadable(file))?;
        let python = &base.target.python;
        let mut wheel = Wheel {
            name: project.clone(),
            version: parsed.version.replace('_', "-"),
            file: name.clone().into_owned(),
            url: sconce_fetch::file_url(file),
            size: Some(bytes.len() as u64),
            sha256: Sha256(sha2::Sha256::digest(&bytes).into()),
            build: None,
        };
        let one = std::slice::from_ref(&wheel);
        let store = self.store;
        let trees = store.ensure_wheels(self.fetcher, one, python, &NoProgress)?;
        let site = trees[0].join(format!("opt/venv/lib/python{python}/site-packages"));
        let text = sconce_image::embedded_documents::read_metadata_text(&site).ok_or_else(other)?;
        let metadata = SourceMetadata::parse(&text);
        if metadata.name != project {
            return Err(other().into());
        }
        wheel.version = metadata.version.clone().unwrap_or(wheel.version);
        Ok(BuiltWheel { wheel, metadata })
    }
}

/// What a build did not do.
enum Unbuilt {
    /// It wants these requirements.
    Lacks(Vec<String>),
    /// Its setup imports a module that is not there.
    Module(String, SourceBuildError),
    /// It failed.
    Failed(SourceBuildError),
}

/// What is built with: what of `requires` the environment has not, where the build sees that.
fn resolve_requires(
    requires: &[String],
    setting: &BuildSetting<'_>,
    as_of: Option<&str>,
) -> Result<Vec<Wheel>, CompileError> {
    if !setting.asked.sees_environment {
        return (setting.resolve)(requires, as_of);
    }
    let is_installed = |name: &str| setting.installed.iter().any(|wheel| wheel.name == name);
    let mut lacking = requires.to_vec();
    lacking.retain(|text| !project_of(text).is_some_and(|name| is_installed(&name)));
    let mut wheels = match lacking.is_empty() {
        true => Vec::new(),
        false => (setting.resolve)(&lacking, as_of)?,
    };
    wheels.retain(|wheel| !is_installed(&wheel.name));
    wheels.extend(setting.installed.iter().cloned());
    wheels.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(wheels)
}

/// Whether a wheel was built as is asked for now, in an environment with these packages.
fn fits_request(build: &WheelBuild, asked: &BuildRequest, installed: &[Wheel]) -> bool {
    let had = |wheel: &Wheel| {
        build
            .build_requires
            .iter()
            .any(|one| one.sha256 == wheel.sha256)
    };
    build.asked == *asked && (!asked.sees_environment || installed.iter().all(had))
}

/// How a wheel of these sources was built.
fn build_of(origin: &SourceOrigin, requires: &[Wheel], asked: &BuildRequest) -> WheelBuild {
    let (sha256, commit) = match origin {
        SourceOrigin::Archive { sha256, .. } => (Some(*sha256), None),
        SourceOrigin::Git { commit, .. } => (None, Some(commit.clone())),
    };
    WheelBuild {
        sha256,
        commit,
        subdirectory: origin.subdirectory().map(str::to_owned),
        build_requires: requires.to_vec(),
        asked: asked.clone(),
    }
}

/// Where the sources of a locked wheel are.
fn origin_of(wheel: Option<&Wheel>, build: &WheelBuild) -> Option<SourceOrigin> {
    let url = wheel?.url.clone();
    let subdirectory = build.subdirectory.clone();
    match (&build.sha256, &build.commit) {
        (Some(sha256), _) => Some(SourceOrigin::Archive {
            url,
            sha256: *sha256,
            subdirectory,
            uploaded: None,
        }),
        (None, Some(commit)) => Some(SourceOrigin::Git {
            url,
            commit: commit.clone(),
            subdirectory,
        }),
        (None, None) => None,
    }
}

/// All that a built wheel depends on.
fn build_key(sources: &[String], lock: &Lock, variables: &BTreeMap<String, String>) -> String {
    let mut lines = vec!["2".to_owned()];
    lines.extend_from_slice(sources);
    lines.extend([lock.target.python.clone(), lock.target.architecture.clone()]);
    lines.extend(
        lock.interpreter
            .iter()
            .map(|python| python.sha256.to_string()),
    );
    lines.extend(lock.wheels.iter().map(|wheel| wheel.sha256.to_string()));
    lines.extend(lock.debs.iter().map(|deb| deb.sha256.to_string()));
    lines.extend(
        variables
            .iter()
            .map(|(name, value)| format!("{name}={value}")),
    );
    Sha256(sha2::Sha256::digest(lines.join("\n")).into()).to_string()
}

/// The one file in a folder.
fn single_file(folder: &Path) -> Option<PathBuf> {
    let mut entries = std::fs::read_dir(folder).ok()?.flatten();
    let first = entries.next()?.path();
    entries.next().is_none().then_some(first)
}

/// Whether wheels that are built from sources are not in the store.
pub(crate) fn lacks_built_wheels(lock: &Lock, store: &Store) -> bool {
    let python = &lock.target.python;
    let mut built = lock.wheels.iter().filter(|wheel| wheel.build.is_some());
    built.any(|wheel| store.wheel_tree(wheel, python).is_none())
}

impl ContainedBuilder<'_> {
    /// Fetches what the wheels of `lock` that are built from sources are built from and with, where they are not in the
    /// store, and builds nothing. Gives how many files of packages there were, and their bytes.
    ///
    /// # Errors
    /// Sources or packages cannot be fetched.
    pub(crate) fn fetch_build_inputs(&self, lock: &Lock) -> Result<(usize, u64)> {
        let (mut count, mut bytes) = (0, 0);
        let mut fetch = |lock: &Lock| -> Result<()> {
            let (store, progress) = (self.store, self.progress);
            let fetched = sconce_image::fetch_packages(lock, store, self.fetcher, progress)?;
            (count, bytes) = (count + fetched.0, bytes + fetched.1);
            Ok(())
        };
        let base = Lock {
            wheels: Vec::new(),
            ..lock.clone()
        };
        for wheel in &lock.wheels {
            let Some(build) = wheel.build.as_deref() else {
                continue;
            };
            if self.store.wheel_tree(wheel, &lock.target.python).is_some() {
                continue;
            }
            let origin = origin_of(Some(wheel), build).ok_or(SourceBuildError::Unreadable)?;
            self.fetch_source(&origin)?;
            // Its sources are looked at without what it is built with.
            fetch(&Lock {
                stages: Vec::new(),
                ..base.clone()
            })?;
            let with_requires = Lock {
                wheels: build.build_requires.clone(),
                ..base.clone()
            };
            fetch(&with_requires.for_stage(BUILD))?;
        }
        Ok((count, bytes))
    }

    /// A lock whose wheels that were built from sources are in the store: they are built as it says where
    /// they are not. A build may give other bytes elsewhere, which is said, and then stands in what this
    /// gives.
    ///
    /// # Errors
    /// A build fails; or gives other bytes, and `exact`.
    pub(crate) fn with_built_wheels(&self, lock: &Lock, exact: bool) -> Result<Lock> {
        let python = &lock.target.python;
        let is_missing =
            |wheel: &Wheel| wheel.build.is_some() && self.store.wheel_tree(wheel, python).is_none();
        let mut with_built = lock.clone();
        let base = Lock {
            wheels: Vec::new(),
            ..lock.clone()
        };
        for wheel in &mut with_built.wheels {
            let Some(build) = wheel.build.clone().filter(|_| is_missing(wheel)) else {
                continue;
            };
            let origin = origin_of(Some(wheel), &build).ok_or(SourceBuildError::Unreadable)?;
            let package = SourcePackage {
                name: wheel.name.clone(),
                is_name_guessed: false,
                version: Some(wheel.version.clone()),
                origin,
            };
            self.progress.note(&format!(
                "{} {} is built from its sources, as the lock says, in a container without network",
                wheel.name, wheel.version
            ));
            let facts = self.inspect_sources(&package, &base)?;
            let plan = BuildPlan::of_lock(&facts);
            let requires = &build.build_requires;
            check_variables(&package.name, &build.asked.variables)
                .map_err(SourceBuildError::Setting)?;
            let built = match self.build_with(&package, &base, &plan, requires, &build.asked)? {
                Ok(built) => built,
                Err(Unbuilt::Module(_, error) | Unbuilt::Failed(error)) => return Err(error.into()),
                Err(Unbuilt::Lacks(_)) => return Err(SourceBuildError::Unreadable.into()),
            };
            if built.wheel.sha256 != wheel.sha256 {
                let file = built.wheel.file.clone();
                if exact {
                    let (found, expected) = (built.wheel.sha256, wheel.sha256);
                    return Err(SourceBuildError::OtherWheel {
                        file,
                        found,
                        expected,
                    }
                    .into());
                }
                self.progress.note(&format!(
                    "{file} has other bytes than where it was locked: it was built anew, from the same sources"
                ));
            }
            *wheel = built.wheel;
        }
        Ok(with_built)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_that_names_an_index_is_led_there() {
        // As packages end whose wheels are on another index alone.
        let failed = SourceBuildError::Failed {
            excerpt: "You might try installing this package via\n$ pip install --extra-index-url https://wheels.example.org mine\n".to_owned(),
            log: PathBuf::from("mine.log"),
            module: None,
            newer_python: None,
        };
        assert!(failed.hint().unwrap().contains("`[python] extra-index`"));
    }

    #[test]
    fn an_older_python_is_named_for_older_sources() {
        let find = |minor, day: &str| {
            let newer = NewerPython::find(minor, day.to_owned())?;
            Some((newer.older, newer.to_string()))
        };
        let (older, said) = find(13, "2022-01-03").unwrap();
        assert_eq!(older, 10);
        assert!(
            said.contains("for Python 3.13") && said.contains("`version = \"3.10\"` in [python]"),
            "{said}"
        );
        assert_eq!(find(13, "2016-05-01").map(|(older, _)| older), Some(8));
        assert_eq!(find(13, "2024-11-01"), None);
        assert_eq!(find(8, "2016-05-01"), None);
    }
}
