//! A folder of one run alone, that goes with it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{CliError, Result};

/// How the folder of a run ends.
const ENDING: &str = ".private";

/// The folder of a run, which only the caller opens. It goes with this; after a killed Sconce, the
/// next one takes it away.
#[derive(Debug)]
pub(crate) struct Private {
    path: PathBuf,
    /// Locked (flock) for as long as it is.
    _lock: File,
}

impl Private {
    /// Makes it, and takes away those beside it whose runs are over.
    pub(crate) fn make(path: &Path) -> Result<Self> {
        if let Some(beside) = path.parent() {
            sweep(beside);
        }
        // It has its name once it is locked: nobody takes it for one that was left. Until then its name is
        // left to chance: process ids are equal where machines or containers share a store.
        let fresh = path.with_extension(format!("fresh.{}", sconce_store::random_name()));
        private_folder(&fresh)?;
        let locked = || {
            let lock = File::open(&fresh)?;
            lock.lock()?;
            std::fs::rename(&fresh, path)?;
            Ok(lock)
        };
        Ok(Self {
            _lock: locked().map_err(|error| failed("create", path, error))?,
            path: path.to_owned(),
        })
    }
}

impl Private {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Takes away the folders in `folder` whose runs are over: of a Sconce that was killed, or that ended with
/// its machine.
pub(crate) fn sweep(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let left = entries.map(|entry| entry.path()).filter(|path| {
        let named = path.to_string_lossy().ends_with(ENDING);
        named && path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
    });
    for path in left {
        if File::open(&path).is_ok_and(|lock| lock.try_lock().is_ok()) {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// Makes a folder that only the caller opens, and what is missing above it.
pub(crate) fn private_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let closed =
        made.and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)));
    closed.map_err(|error| failed("create", path, error))
}

pub(crate) fn failed(
    action: &'static str,
    path: &Path,
    source: io::Error,
) -> crate::failure::Failure {
    CliError::File {
        action,
        path: path.to_owned(),
        source,
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_run_that_is_over_goes() {
        let dir = tempfile::tempdir().unwrap();
        let here = |name: &str| dir.path().join(name);
        let running = Private::make(&here("running.private")).ok().unwrap();
        std::fs::create_dir_all(here("killed.private/jupyter")).unwrap();
        std::fs::create_dir(here("other")).unwrap();
        let next = Private::make(&here("next.private")).ok().unwrap();
        let there = |name: &str| here(name).exists();
        assert!(there("running.private") && there("other") && !there("killed.private"));
        drop((running, next));
        assert!(!there("running.private") && !there("next.private") && there("other"));
    }
}
