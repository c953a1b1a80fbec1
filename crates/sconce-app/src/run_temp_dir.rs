//! A folder of one run alone, that goes with it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};

use sconce_base::locks;

use crate::failure::{AppError, Result};
use crate::file_action::FileAction;

/// How the folder of a run ends.
const ENDING: &str = ".private";
/// How the file beside it ends whose lock says that the run goes on.
const LOCK_ENDING: &str = ".private.lock";

/// The folder of a run, which only the caller opens. It goes with this; after a killed Sconce, the
/// next one takes it away.
#[derive(Debug)]
pub struct RunTempDir {
    path: PathBuf,
    /// Locked (flock) for as long as it is, where the file system has locks, and else never swept by others: a file beside it, as NFS has no locks on folders that another
    /// machine sees; and the folder, by which older programs judge.
    _locks: [File; 2],
}

impl RunTempDir {
    /// Makes it, and takes away those beside it whose runs are over.
    pub fn create(path: &Path) -> Result<Self> {
        if let Some(beside) = path.parent() {
            remove_stale_dirs(beside);
        }
        // Both have their names once they are locked: nobody takes them for what was left. Until then their name is
        // left to chance: process ids are equal where machines or containers share a store.
        let chance = sconce_base::random_name();
        let fresh = path.with_extension(format!("fresh.{chance}"));
        let fresh_lock = path.with_extension(format!("fresh-lock.{chance}"));
        private_folder(&fresh)?;
        let locked = || {
            let lock = open_lock(&fresh_lock, true)?;
            locks::if_supported(lock.lock())?;
            std::fs::rename(&fresh_lock, lock_of(path))?;
            let folder = File::open(&fresh)?;
            locks::if_supported(folder.lock())?;
            std::fs::rename(&fresh, path)?;
            Ok([lock, folder])
        };
        Ok(Self {
            _locks: locked().map_err(|error| file_error(FileAction::Create, path, error))?,
            path: path.to_owned(),
        })
    }
}

impl RunTempDir {
    /// Returns where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunTempDir {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

fn lock_of(path: &Path) -> PathBuf {
    path.with_extension(LOCK_ENDING.trim_start_matches('.'))
}

/// Read and write, which NFS wants of a file that is locked.
fn open_lock(path: &Path, create: bool) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create_new(create)
        .mode(0o600)
        .open(path)
}

/// The folder first: a lock without one is removed by the next sweep.
fn remove(path: &Path) {
    let _ = std::fs::remove_dir_all(path);
    let _ = std::fs::remove_file(lock_of(path));
}

/// Takes away the folders in `folder` whose runs are over: of a Sconce that was killed, or that ended with
/// its machine.
pub fn remove_stale_dirs(folder: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.to_string_lossy();
        let folder = match name.strip_suffix(LOCK_ENDING) {
            Some(name) => PathBuf::from(format!("{name}{ENDING}")),
            None if name.ends_with(ENDING) => path.clone(),
            None => continue,
        };
        let real = folder.symlink_metadata();
        if real.is_ok_and(|meta| !meta.is_dir()) {
            continue;
        }
        if is_over(&folder) {
            remove(&folder);
        }
    }
}

/// Whether nobody holds a lock of a run's folder. An older program's has no file beside it.
fn is_over(folder: &Path) -> bool {
    let free = |lock: io::Result<File>| match lock {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    free(open_lock(&lock_of(folder), false)) && free(File::open(folder))
}

/// Makes a folder that only the caller opens, and what is missing above it.
pub fn private_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    let closed =
        made.and_then(|()| std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)));
    closed.map_err(|error| file_error(FileAction::Create, path, error))
}

/// Returns the failure of an `action` on a file.
pub fn file_error(action: FileAction, path: &Path, source: io::Error) -> crate::failure::Failure {
    AppError::File {
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
        let running = RunTempDir::create(&here("running.private")).ok().unwrap();
        std::fs::create_dir_all(here("killed.private/jupyter")).unwrap();
        std::fs::create_dir(here("other")).unwrap();
        let next = RunTempDir::create(&here("next.private")).ok().unwrap();
        let there = |name: &str| here(name).exists();
        assert!(there("running.private") && there("other") && !there("killed.private"));
        drop((running, next));
        assert!(!there("running.private") && !there("next.private") && there("other"));
        let left = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(left, 1, "only `other`");
    }

    #[test]
    fn either_lock_says_that_a_run_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let here = |name: &str| dir.path().join(name);
        // On another machine, the lock of the folder is not seen.
        std::fs::create_dir(here("elsewhere.private")).unwrap();
        let elsewhere = open_lock(&here("elsewhere.private.lock"), true).unwrap();
        elsewhere.lock().unwrap();
        // An older program has no other.
        std::fs::create_dir(here("older.private")).unwrap();
        let older = File::open(here("older.private")).unwrap();
        older.lock().unwrap();
        let alone = open_lock(&here("begun.private.lock"), true).unwrap();
        alone.lock().unwrap();
        remove_stale_dirs(dir.path());
        let there = |name: &str| here(name).exists();
        assert!(there("elsewhere.private") && there("older.private"));
        assert!(there("begun.private.lock"));
        drop((elsewhere, older, alone));
        remove_stale_dirs(dir.path());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
