//! A standalone Python of an environment: one archive under a prefix of its own, beside the Debian
//! packages. The tree is named by the archive and the prefix alone, so projects share it.

mod sysconfig;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sconce_base::direct_io::MTIME;
use sconce_fetch::{Fetcher, redact_url};
use sconce_schema::lock::StandalonePython;
use sconce_schema::{Hint, Lock, Progress, Sha256, exit};
use sconce_store::scoped_root::{OnConflict, ScopedRoot, ScopedRootError, set_modified};
use sconce_store::standalone_python::{StandalonePythonError, unpack_archive};
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use sha2::Digest as _;

use crate::priority::Priority;

/// Kind of these trees in the store.
const KIND: &str = "python";
/// Counts up whenever the same archive would give another tree.
const FORMAT: u32 = 2;
/// No file that is mended is longer, bytes: the Makefile has 100 KiB.
const MAX_TEXT_BYTES: u64 = 4 << 20;

/// Why a standalone Python cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum StandaloneError {
    /// Its archive could not be fetched.
    #[error("cannot fetch Python {version} from {url}")]
    Fetch {
        /// Its version.
        version: String,
        /// Its address in the lock.
        url: String,
        /// Why.
        source: Box<StoreError>,
    },
    /// Its archive has left the store while it was needed.
    #[error("{file} has left the store while it was needed")]
    Gone {
        /// The archive's name.
        file: String,
    },
    /// Its archive is not what it should be.
    #[error("the Python {file} cannot be unpacked")]
    Archive {
        /// The archive's name.
        file: String,
        /// What is wrong with it.
        source: StandalonePythonError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hint for StandaloneError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Fetch { source, .. } if matches!(**source, StoreError::Fetch(_)) => Some(
                "lock again with UV_PYTHON_INSTALL_MIRROR naming a mirror of these archives, or with a \
                 table of your own (`python-downloads` in config.toml); or take a Python that Debian \
                 has: `[python] version = \"3.13\"` or \"3.11\""
                    .to_owned(),
            ),
            Self::Fetch { source, .. } => source.hint(),
            Self::Gone { .. } => Some("run the same command again".to_owned()),
            Self::Archive { source, .. } => source.hint(),
            Self::Store(error) => error.hint(),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Fetch { source, .. } => source.exit_code(),
            Self::Gone { .. } => exit::STORE,
            Self::Archive { source, .. } => source.exit_code(),
            Self::Store(error) => error.exit_code(),
        }
    }
}

/// The key of the tree in the store; `None` where the interpreter is Debian's.
pub(crate) fn tree_key(lock: &Lock) -> Option<String> {
    let python = lock.interpreter.as_ref()?;
    let mut hash = sha2::Sha256::new();
    hash.update(format!("{FORMAT} {}\n", lock.python_prefix()));
    hash.update(python.sha256.0);
    Some(Sha256(hash.finalize().into()).to_string())
}

/// The tree of the lock's standalone Python, if the store has it.
pub(crate) fn find_tree(lock: &Lock, store: &Store) -> Option<PathBuf> {
    store.find_tree(KIND, &tree_key(lock)?)
}

/// The name of its layer, in runs.
pub(crate) fn layer_name(python: &StandalonePython) -> String {
    format!("python {}", python.version)
}

/// The tree, made if it is not in the store; `None` where the interpreter is Debian's. Without a
/// fetcher, an archive that is not in the store is an error.
pub(crate) fn ensure_tree(
    lock: &Lock,
    store: &Store,
    fetcher: Option<&Fetcher>,
    priority: Priority,
    progress: &dyn Progress,
) -> Result<Option<PathBuf>, StandaloneError> {
    let (Some(python), Some(key)) = (&lock.interpreter, tree_key(lock)) else {
        return Ok(None);
    };
    if let Some(path) = store.find_tree(KIND, &key) {
        return Ok(Some(path));
    }
    let file = match fetcher {
        Some(fetcher) => store
            .fetch_blob(fetcher, &python.url, &python.sha256, python.size, progress)
            .map_err(|source| StandaloneError::Fetch {
                version: python.version.clone(),
                url: redact_url(&python.url),
                source: Box::new(source),
            })?,
        None => store
            .find_blob(&python.sha256)
            .ok_or_else(|| StandaloneError::Gone {
                file: python.file.clone(),
            })?,
    };
    let name = layer_name(python);
    let making = TreeBuildOptions {
        name: &name,
        work: &format!("unpacks {name}"),
        progress,
        accept: &|_| true,
    };
    let failed = |source| StandaloneError::Archive {
        file: python.file.clone(),
        source,
    };
    let unpack = |root: &Path| {
        unpack_archive(&file, root, &lock.python_prefix()).map_err(failed)?;
        complete_tree(root, lock).map_err(failed)
    };
    progress.advance(&name, 0);
    let built = match priority {
        Priority::Foreground => store.build_tree_with(KIND, &key, making, unpack),
        Priority::Background => store.build_tree_apart(KIND, &key, making, unpack),
    };
    progress.done(&name);
    built.map(Some).map_err(|error| match error {
        TreeBuildError::Store(error) => error.into(),
        TreeBuildError::Build(error) => error,
    })
}

/// Makes the tree speak of where it lies, and of compilers by the names that they have here.
fn complete_tree(root: &Path, lock: &Lock) -> Result<(), StandalonePythonError> {
    let python = &lock.target.python;
    let prefix = lock.python_prefix();
    let mut tree = ScopedRoot::new(root, OnConflict::Stay);
    let program = tree.resolve_path(lock.python_program().as_bytes());
    if !program.map_err(of_tree)?.is_some_and(|path| path.is_file()) {
        return Err(StandalonePythonError::Format {
            why: "it has no bin/python of the version that the lock names",
        });
    }
    let library = format!("{prefix}/lib/python{python}");
    tree.make_folder(format!("{library}/site-packages").as_bytes())
        .map_err(of_tree)?;
    for name in list_folder(&tree, &library)? {
        let path = format!("{library}/{name}");
        if name.starts_with("_sysconfigdata_") && name.ends_with(".py") {
            mend_file(&mut tree, &path, |text| {
                sysconfig::mend_variables(text, &prefix)
            })?;
        } else if name.starts_with("_sysconfig_vars_") && name.ends_with(".json") {
            mend_file(&mut tree, &path, |text| sysconfig::mend_json(text, &prefix))?;
        } else if name.starts_with("build-details") && name.ends_with(".json") {
            mend_file(&mut tree, &path, |text| {
                sysconfig::move_prefix(text, &prefix)
            })?;
        } else if name.starts_with("config-") {
            mend_file(&mut tree, &format!("{path}/Makefile"), |text| {
                sysconfig::mend_makefile(text, &prefix)
            })?;
        }
    }
    let pkgconfig = format!("{prefix}/lib/pkgconfig");
    for name in list_folder(&tree, &pkgconfig)? {
        mend_file(&mut tree, &format!("{pkgconfig}/{name}"), |text| {
            sysconfig::move_prefix(text, &prefix)
        })?;
    }
    let programs = format!("{prefix}/bin");
    for name in list_folder(&tree, &programs)? {
        mend_file(&mut tree, &format!("{programs}/{name}"), |text| {
            let is_script = text.starts_with("#!");
            match is_script {
                true => sysconfig::move_prefix(text, &prefix),
                false => text.to_owned(),
            }
        })?;
    }
    Ok(())
}

/// Writes what `mend` makes of a file's text; a file that is not text, or not there, stays as it is.
fn mend_file(
    tree: &mut ScopedRoot,
    path: &str,
    mend: impl FnOnce(&str) -> String,
) -> Result<(), StandalonePythonError> {
    let Some(real) = tree.resolve_no_follow(path.as_bytes()).map_err(of_tree)? else {
        return Ok(());
    };
    let failed = |source| StandalonePythonError::Write {
        path: real.clone(),
        source,
    };
    let meta = real.symlink_metadata().map_err(failed)?;
    // What a link leads to is mended under its own name.
    if !meta.is_file() || meta.len() > MAX_TEXT_BYTES {
        return Ok(());
    }
    let Ok(text) = String::from_utf8(fs::read(&real).map_err(failed)?) else {
        return Ok(());
    };
    let mended = mend(&text);
    if mended == text {
        return Ok(());
    }
    let mode = std::os::unix::fs::PermissionsExt::mode(&meta.permissions());
    let real = tree
        .write(path.as_bytes(), mended.as_bytes(), mode)
        .map_err(of_tree)?;
    set_modified(&real, MTIME.cast_signed()).map_err(of_tree)
}

/// The names in a folder that are text, sorted; none where there is no folder.
fn list_folder(tree: &ScopedRoot, path: &str) -> Result<Vec<String>, StandalonePythonError> {
    let Some(real) = tree.resolve_path(path.as_bytes()).map_err(of_tree)? else {
        return Ok(Vec::new());
    };
    let list = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        if real.is_dir() {
            for entry in fs::read_dir(&real)? {
                names.extend(entry?.file_name().into_string());
            }
        }
        names.sort();
        Ok(names)
    };
    list().map_err(|source| StandalonePythonError::Write {
        path: real.clone(),
        source,
    })
}

fn of_tree(error: ScopedRootError) -> StandalonePythonError {
    match error {
        ScopedRootError::Name { name, why } => StandalonePythonError::Entry { name, why },
        ScopedRootError::Disk { path, source, .. } => StandalonePythonError::Write { path, source },
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
