//! From a lock to trees that can be laid over each other.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use sconce_fetch::Fetcher;
use sconce_schema::environment_layers::LayerTree;
use sconce_schema::lock::{Deb, Lock, StandalonePython, Wheel};
use sconce_schema::{EnvironmentLayers, Hint, Progress, Sha256, WaitCause, exit};
use sconce_store::deb::{self, DebError, DebLimits};
use sconce_store::scoped_root::printable_name;
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use sha2::Digest;
use tracing::{debug, info};

use crate::environment::image_variables;
use crate::fetch::{RemoteFile, fetch_files};
use crate::priority::Priority;
use crate::standalone::StandaloneError;
use crate::system::{self, SystemError};
use crate::{bytecode, compiler, standalone};

/// Kind of a system tree in the store.
const SYSTEM: &str = "system";
/// Why an environment could not be assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A package could not be fetched, verified or unpacked.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A Debian package is not what a package should be.
    #[error("{package} cannot be unpacked")]
    Deb {
        /// Its name and version.
        package: String,
        /// What is wrong with it.
        source: DebError,
    },
    /// The standalone Python cannot be had.
    #[error(transparent)]
    Standalone(StandaloneError),
    /// The lock gives a Debian package another name than the package has.
    #[error("the Debian package that the lock calls `{wanted}` is `{found}`")]
    OtherPackage {
        /// As the lock has it.
        wanted: String,
        /// As the package says, made printable.
        found: String,
    },
    /// A tree that was there a moment ago is not.
    #[error("{what} has left the store while it was needed")]
    Gone {
        /// The wheel or the release.
        what: String,
    },
    /// The root file system could not be finished.
    #[error("the root file system of {release} could not be made")]
    System {
        /// The Debian release.
        release: String,
        /// What went wrong.
        source: SystemError,
    },
}

impl From<StandaloneError> for AssembleError {
    fn from(error: StandaloneError) -> Self {
        match error {
            StandaloneError::Gone { file } => Self::Gone { what: file },
            error => Self::Standalone(error),
        }
    }
}

impl Hint for AssembleError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::System { source, .. } => source.hint(),
            Self::Deb { source, .. } => source.hint(),
            Self::Standalone(error) => error.hint(),
            Self::Gone { .. } => Some("run the same command again".to_owned()),
            Self::OtherPackage { .. } => {
                Some("the lock was edited; make it anew with `sconce lock`".to_owned())
            }
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Deb { source, .. } => source.exit_code(),
            Self::Standalone(error) => error.exit_code(),
            Self::System { .. } | Self::Gone { .. } => exit::STORE,
            Self::OtherPackage { .. } => exit::VERIFY,
        }
    }
}

/// What a lock needs that the store does not have.
#[derive(Debug, Default)]
pub struct MissingPackages<'l> {
    /// Wheels to fetch.
    pub wheels: Vec<&'l Wheel>,
    /// Wheels whose files are there, and their trees not.
    pub packed_wheels: Vec<&'l Wheel>,
    /// Debian packages to fetch.
    pub debs: Vec<&'l Deb>,
    /// The standalone Python, of which the tree is to be made, and whether its archive is there.
    pub python: Option<(&'l StandalonePython, bool)>,
    /// The system tree is to be made, from packages that may all be there.
    pub system: bool,
    /// The compiler's tree is, too.
    pub compiler: bool,
}

impl MissingPackages<'_> {
    /// Whether the environment is ready.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let has_all_wheels = self.wheels.is_empty() && self.packed_wheels.is_empty();
        has_all_wheels && !self.system && !self.compiler && self.python.is_none()
    }

    /// The archive of a standalone Python, where it is to be fetched.
    #[must_use]
    pub fn python_archive(&self) -> Option<&'_ StandalonePython> {
        let (python, is_there) = self.python?;
        (!is_there).then_some(python)
    }

    /// Bytes to fetch, as far as the lock knows sizes.
    #[must_use]
    pub fn download_bytes(&self) -> u64 {
        self.wheels
            .iter()
            .filter_map(|wheel| wheel.size)
            .sum::<u64>()
            + self.python_archive().and_then(|one| one.size).unwrap_or(0)
            + self.debs.iter().map(|deb| deb.size).sum::<u64>()
    }

    /// [`MissingPackages::download_bytes`] if no size is missing.
    fn bytes_if_known(&self) -> Option<u64> {
        let known = self.wheels.iter().all(|wheel| wheel.size.is_some())
            && self.python_archive().is_none_or(|one| one.size.is_some());
        known.then(|| self.download_bytes())
    }
}

/// Tells a further stage when all bytes have arrived: what is left then is to unpack the last of
/// them.
struct ArrivalNotice<'a> {
    progress: &'a dyn Progress,
    /// Bytes that are still to come; 0 from the beginning where that is not known.
    left: AtomicU64,
}

impl Progress for ArrivalNotice<'_> {
    fn stage(&self, stage: &str, total_bytes: Option<u64>) {
        self.progress.stage(stage, total_bytes);
    }

    fn advance(&self, name: &str, bytes: u64) {
        self.progress.advance(name, bytes);
        let rest = |left: u64| Some(left.saturating_sub(bytes));
        let before = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
        if before.is_ok_and(|left| 0 < left && left <= bytes) {
            self.progress.stage("assemble", None);
        }
    }

    fn done(&self, name: &str) {
        self.progress.done(name);
    }

    fn note(&self, text: &str) {
        self.progress.note(text);
    }

    fn waits(&self, name: &str, wait: Option<&WaitCause>) {
        self.progress.waits(name, wait);
    }
}

/// What `lock` needs that `store` does not have. Looks at folder names only.
#[must_use]
pub fn find_missing_packages<'l>(lock: &'l Lock, store: &Store) -> MissingPackages<'l> {
    let system = store.find_tree(SYSTEM, &system_key(lock)).is_none();
    let compiler =
        compiler::tree_key(lock).is_some_and(|key| store.find_tree(compiler::KIND, &key).is_none());
    let debs = (lock.debs.iter().filter(|_| system))
        .chain(lock.compiler_debs().iter().filter(|_| compiler))
        .filter(|deb| store.find_blob(&deb.sha256).is_none());
    let python = &lock.target.python;
    let interpreter = lock.interpreter.as_ref();
    let interpreter = interpreter.filter(|_| standalone::find_tree(lock, store).is_none());
    let wheels = lock.wheels.iter();
    let wheels = wheels.filter(|wheel| store.wheel_tree(wheel, python).is_none());
    let (packed_wheels, wheels) =
        wheels.partition(|wheel| store.find_blob(&wheel.sha256).is_some());
    MissingPackages {
        wheels,
        packed_wheels,
        debs: debs.collect(),
        python: interpreter.map(|one| (one, store.find_blob(&one.sha256).is_some())),
        system,
        compiler,
    }
}

/// The environment of a lock that needs nothing more ([`find_missing_packages`]).
///
/// # Errors
/// Something has left the store meanwhile.
pub fn load_environment(lock: &Lock, store: &Store) -> Result<EnvironmentLayers, AssembleError> {
    let gone = |what: &str| AssembleError::Gone {
        what: what.to_owned(),
    };
    let system = store
        .find_tree(SYSTEM, &system_key(lock))
        .ok_or_else(|| gone(&lock.target.release))?;
    let python = match &lock.interpreter {
        Some(python) => {
            let tree = standalone::find_tree(lock, store);
            Some(tree.ok_or_else(|| gone(&python.file))?)
        }
        None => None,
    };
    let compiler = match compiler::tree_key(lock) {
        Some(key) => {
            let tree = store.find_tree(compiler::KIND, &key);
            Some(tree.ok_or_else(|| gone(compiler::LAYER))?)
        }
        None => None,
    };
    let wheel = |wheel| {
        store
            .wheel_tree(wheel, &lock.target.python)
            .ok_or_else(|| gone(&wheel.file))
    };
    let wheels = lock
        .wheels
        .iter()
        .map(wheel)
        .collect::<Result<Vec<_>, _>>()?;
    info!(
        layers = wheels.len(),
        "the environment is ready: nothing is fetched"
    );
    let trees = EnvironmentTrees {
        system,
        wheels,
        python,
        compiler,
    };
    Ok(manifest(lock, store, trees))
}

/// The trees of `lock` that are in the store already, its system tree first; `None` while that is
/// not there. For work on trees while others are still fetched; a compiler is not among them, as
/// there is no Python in it.
#[must_use]
pub fn so_far(lock: &Lock, store: &Store) -> Option<EnvironmentLayers> {
    let system = store.find_tree(SYSTEM, &system_key(lock))?;
    let python = &lock.target.python;
    let there = |wheel: &Wheel| Some((wheel.clone(), store.wheel_tree(wheel, python)?));
    let (wheels, trees) = lock.wheels.iter().filter_map(there).unzip();
    let part = Lock {
        wheels,
        ..lock.clone()
    };
    let trees = EnvironmentTrees {
        system,
        wheels: trees,
        python: standalone::find_tree(lock, store),
        compiler: None,
    };
    Some(manifest(&part, store, trees))
}

/// Makes sure that everything `lock` needs is in `store`, fetching what is missing, and says how
/// it lies together.
///
/// # Errors
/// The first package that fails; what others brought stays in the store.
pub fn assemble_environment(
    lock: &Lock,
    store: &Store,
    fetcher: &Fetcher,
    progress: &dyn Progress,
) -> Result<EnvironmentLayers, AssembleError> {
    let missing = find_missing_packages(lock, store);
    let total = missing.bytes_if_known();
    let (wheels, debs) = (missing.wheels.len(), missing.debs.len());
    let (system, compiler) = (missing.system, missing.compiler);
    let python = missing.python.map(|(one, _)| one.file.as_str());
    info!(
        wheels,
        debs,
        system,
        compiler,
        python,
        bytes = missing.download_bytes(),
        "the store lacks"
    );
    match total {
        Some(0) => progress.stage("assemble", None),
        total => progress.stage("fetch", total),
    }
    let progress = &ArrivalNotice {
        progress,
        left: AtomicU64::new(total.unwrap_or(0)),
    };
    // Wheels are bound by inflating and writing, debs by xz: together they fill the cores.
    let (system, compiler, python, wheels) = thread::scope(|scope| {
        let system = scope.spawn(|| system_tree(lock, store, fetcher, progress));
        let compiler = scope.spawn(|| compiler_tree(lock, store, fetcher, progress));
        let python = scope.spawn(|| {
            standalone::ensure_tree(lock, store, Some(fetcher), Priority::Foreground, progress)
        });
        let wheels = store.ensure_wheels(fetcher, &lock.wheels, &lock.target.python, progress);
        (system.join(), compiler.join(), python.join(), wheels)
    });
    let system = system.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let compiler = compiler.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let python = python.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
    let trees = EnvironmentTrees {
        system,
        wheels: wheels?,
        python,
        compiler,
    };
    Ok(manifest(lock, store, trees))
}

/// Where the trees of an environment lie.
struct EnvironmentTrees {
    system: PathBuf,
    /// As the lock's wheels.
    wheels: Vec<PathBuf>,
    /// A standalone Python's.
    python: Option<PathBuf>,
    compiler: Option<PathBuf>,
}

/// The trees of an environment, lowest first, and its variables.
fn manifest(lock: &Lock, store: &Store, trees: EnvironmentTrees) -> EnvironmentLayers {
    let mut layers = vec![LayerTree {
        name: lock.target.release.clone(),
        path: trees.system,
    }];
    layers.extend(
        lock.wheels
            .iter()
            .zip(trees.wheels)
            .map(|(wheel, path)| LayerTree {
                name: format!("{} {}", wheel.name, wheel.version),
                path,
            }),
    );
    // Others find the wheels' trees by their place behind the system's.
    let python = lock.interpreter.as_ref().zip(trees.python);
    layers.extend(python.map(|(python, path)| LayerTree {
        name: standalone::layer_name(python),
        path,
    }));
    let mut manifest = EnvironmentLayers {
        layers,
        env: image_variables(lock),
    };
    bytecode::add_layers(&mut manifest, lock, store);
    manifest.layers.extend(trees.compiler.map(|path| LayerTree {
        name: compiler::LAYER.to_owned(),
        path,
    }));
    manifest
}

/// Names a system tree by all that decides its bytes.
fn system_key(lock: &Lock) -> String {
    let mut hasher = sha2::Sha256::new();
    let target = &lock.target;
    hasher.update(format!(
        "{} {} {}",
        system::BUILDER,
        target.architecture,
        target.python
    ));
    for deb in &lock.debs {
        hasher.update(deb.sha256.0);
    }
    if lock.interpreter.is_some() {
        hasher.update(lock.python_prefix());
    }
    Sha256(hasher.finalize().into()).to_string()
}

/// Every one of these Debian packages with its file, in their order.
pub(crate) fn fetch_debs<'l>(
    debs: &'l [&'l Deb],
    store: &Store,
    fetcher: &Fetcher,
    progress: &dyn Progress,
) -> Result<Vec<(&'l Deb, PathBuf)>, StoreError> {
    let files: Vec<RemoteFile<'_>> = debs.iter().map(|deb| RemoteFile::of_deb(deb)).collect();
    // Small files: the answer's way takes longer than the bytes.
    let files = fetch_files(&files, store, fetcher, progress)?;
    Ok(debs.iter().copied().zip(files).collect())
}

fn system_tree(
    lock: &Lock,
    store: &Store,
    fetcher: &Fetcher,
    progress: &dyn Progress,
) -> Result<PathBuf, AssembleError> {
    let key = system_key(lock);
    if let Some(path) = store.find_tree(SYSTEM, &key) {
        return Ok(path);
    }
    let debs: Vec<&Deb> = lock.debs.iter().collect();
    let packages = fetch_debs(&debs, store, fetcher, progress)?;
    let tree = DebTree {
        kind: SYSTEM,
        key: &key,
        name: &lock.target.release,
        lock,
        packages: &packages,
    };
    tree.build_if_missing(store, Priority::Foreground, progress, |root| {
        system::configure_root(root, lock).map_err(system_error(lock))
    })
}

/// The compiler's tree; `None` where the lock has no compiler.
fn compiler_tree(
    lock: &Lock,
    store: &Store,
    fetcher: &Fetcher,
    progress: &dyn Progress,
) -> Result<Option<PathBuf>, AssembleError> {
    let Some(key) = compiler::tree_key(lock) else {
        return Ok(None);
    };
    if let Some(path) = store.find_tree(compiler::KIND, &key) {
        return Ok(Some(path));
    }
    let debs: Vec<&Deb> = lock.compiler_debs().iter().collect();
    let tree = DebTree {
        kind: compiler::KIND,
        key: &key,
        name: compiler::LAYER,
        lock,
        packages: &fetch_debs(&debs, store, fetcher, progress)?,
    };
    let built = tree.build_if_missing(store, Priority::Foreground, progress, |root| {
        compiler::complete_tree(root, lock).map_err(|source| {
            AssembleError::Store(StoreError::Disk {
                what: "finish",
                path: root.to_owned(),
                source,
            })
        })
    });
    built.map(Some)
}

/// A tree that Debian packages are unpacked into, over each other.
pub(crate) struct DebTree<'a> {
    /// Its kind in the store.
    pub(crate) kind: &'a str,
    /// Its key in the store.
    pub(crate) key: &'a str,
    /// What the progress calls it.
    pub(crate) name: &'a str,
    /// The lock that has the packages.
    pub(crate) lock: &'a Lock,
    /// They, each with its file.
    pub(crate) packages: &'a [(&'a Deb, PathBuf)],
}

impl DebTree<'_> {
    /// Makes the tree, unless it is there; `finish` completes it.
    ///
    /// # Errors
    /// [`AssembleError`].
    pub(crate) fn build_if_missing(
        &self,
        store: &Store,
        priority: Priority,
        progress: &dyn Progress,
        finish: impl FnOnce(&Path) -> Result<(), AssembleError>,
    ) -> Result<PathBuf, AssembleError> {
        let making = TreeBuildOptions {
            name: self.name,
            work: &format!("unpacks {}", self.name),
            progress,
            accept: &|_| true,
        };
        let unpack = |root: &Path| {
            self.unpack(root)?;
            finish(root)
        };
        progress.advance(self.name, 0);
        let built = match priority {
            Priority::Foreground => store.build_tree_with(self.kind, self.key, making, unpack),
            Priority::Background => store.build_tree_apart(self.kind, self.key, making, unpack),
        };
        progress.done(self.name);
        built.map_err(|error| match error {
            TreeBuildError::Store(error) => error.into(),
            TreeBuildError::Build(error) => error,
        })
    }

    fn unpack(&self, root: &Path) -> Result<(), AssembleError> {
        let wrong = system_error(self.lock);
        system::create_merged_usr(root).map_err(&wrong)?;
        debug!(
            tree = self.name,
            packages = self.packages.len(),
            "unpacks Debian packages"
        );
        let mut alternatives = Vec::new();
        for (deb, file) in self.packages {
            let unpacked = deb::unpack_file(file, root, DebLimits::default());
            let control = unpacked.map_err(|source| AssembleError::Deb {
                package: format!("{} {}", deb.name, deb.version),
                source,
            })?;
            // A tree is named by its packages' bytes: no name that only the lock gives them may
            // show in it.
            if control.package != deb.name {
                return Err(AssembleError::OtherPackage {
                    wanted: deb.name.clone(),
                    found: printable_name(control.package.as_bytes()),
                });
            }
            system::note_package(root, &deb.name, &control.text).map_err(&wrong)?;
            alternatives.extend(control.alternatives);
        }
        system::link_alternatives(root, &alternatives).map_err(wrong)
    }
}

/// What went wrong with the tree of a lock's packages.
pub(crate) fn system_error(lock: &Lock) -> impl Fn(SystemError) -> AssembleError + '_ {
    |source| AssembleError::System {
        release: lock.target.release.clone(),
        source,
    }
}
