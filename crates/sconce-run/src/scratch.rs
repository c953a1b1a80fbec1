//! A run's scratch folder, and what killed runs left behind.
//!
//! In the state folder each run has `ID/` (the writable layer) and `ID.lock`, which it holds
//! locked while it lives and which names its cgroups. A lock that can be had belongs to a run
//! whose Sconce is dead, however it died; process ids play no part.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use sconce_base::locks;
use sconce_base::tree::remove_tree;

use crate::cgroup;

/// The scratch folder of a run that lives.
#[derive(Debug)]
pub(crate) struct ScratchDirectory {
    /// `STATE/ID`; it exists.
    pub(crate) folder: PathBuf,
    lock: File,
    lock_path: PathBuf,
}

/// How often a new run tries to lock its name, and how long after: half a second in all.
const MAX_LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_INTERVAL: std::time::Duration = std::time::Duration::from_millis(10);

impl ScratchDirectory {
    /// Makes the state folder and, in it, the run's own.
    ///
    /// # Errors
    /// The path that failed, and why; `WouldBlock` when a run of this name lives.
    pub(crate) fn create(state: &Path, id: &str) -> Result<Self, (PathBuf, io::Error)> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| (path, error)
        };
        // Init names these paths from other working directories.
        let state = std::fs::create_dir_all(state)
            .and_then(|()| std::fs::canonicalize(state))
            .map_err(at(state))?;
        let lock_path = state.join(format!("{id}.lock"));
        let lock = take_soon(&lock_path).map_err(at(&lock_path))?;
        let lock = lock.ok_or_else(|| at(&lock_path)(io::ErrorKind::WouldBlock.into()))?;
        let scratch = Self {
            folder: state.join(id),
            lock,
            lock_path,
        };
        // What a run writes outside of its mounts is its user's alone, whatever the umask is.
        let create = |folder: &Path| std::fs::DirBuilder::new().mode(0o700).create(folder);
        match create(&scratch.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(at(&scratch.folder)(error))
            }
            Ok(()) => Ok(scratch),
            // A killed run of the same name; we hold its lock now.
            Err(_) => remove_tree(&scratch.folder)
                .and_then(|()| create(&scratch.folder))
                .map_err(at(&scratch.folder))
                .map(|()| scratch),
        }
    }

    /// Writes down the cgroups that the run is about to make.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn note_cgroups<'a>(
        &mut self,
        folders: impl Iterator<Item = &'a Path>,
    ) -> io::Result<()> {
        let mut text = Vec::new();
        for folder in folders {
            text.extend_from_slice(folder.as_os_str().as_bytes());
            text.push(b'\n');
        }
        if text.is_empty() {
            Ok(())
        } else {
            self.lock.write_all(&text)
        }
    }

    /// Removes the run's folder and its lock. When the folder cannot go, the lock file stays, so
    /// that a later run tries again.
    ///
    /// # Errors
    /// The path that could not be removed, and why.
    pub(crate) fn remove(self) -> Result<(), (PathBuf, io::Error)> {
        remove_tree(&self.folder).map_err(|error| (self.folder.clone(), error))?;
        std::fs::remove_file(&self.lock_path).map_err(|error| (self.lock_path.clone(), error))
    }
}

/// Cleans up after runs whose Sconce was killed. What cannot be removed yet (a process that is
/// still dying) stays for the next time.
pub(crate) fn remove_stale_runs(state: &Path, files: &dyn cgroup::CgroupFs) {
    let Ok(entries) = std::fs::read_dir(state) else {
        return;
    };
    for entry in entries.flatten() {
        let lock_path = entry.path();
        if lock_path
            .extension()
            .is_none_or(|extension| extension != "lock")
        {
            continue;
        }
        let Ok(Some(mut lock)) = take(&lock_path, false) else {
            continue;
        };
        let mut noted = Vec::new();
        let read = lock.rewind().and_then(|()| lock.read_to_end(&mut noted));
        let cgroups_gone = read.is_ok()
            && noted
                .split(|byte| *byte == b'\n')
                .filter(|line| !line.is_empty())
                .map(|line| PathBuf::from(std::ffi::OsString::from_vec(line.to_vec())))
                // A list that somebody else wrote must not make root remove just anything.
                .filter(|path| is_run_cgroup(path))
                .all(|path| cgroup::remove_all(files, &path).is_ok());
        if cgroups_gone && remove_tree(&lock_path.with_extension("")).is_ok() {
            let _ = std::fs::remove_file(&lock_path);
        }
    }
}

/// `…/sconce/ID`, or an engine's folder in it.
fn is_run_cgroup(path: &Path) -> bool {
    let run = match path.ends_with(cgroup::ENGINE) {
        true => path.parent().unwrap_or(path),
        false => path,
    };
    let in_sconce = |path: &Path| {
        let parent = path.parent().and_then(Path::file_name);
        parent.is_some_and(|name| name == cgroup::PARENT)
    };
    path.is_absolute()
        && (in_sconce(path) || in_sconce(run))
        && !path
            .components()
            .any(|part| part == std::path::Component::ParentDir)
}

/// [`take`] for a new run. A sweep of another process may hold a lock that it has only just found, for a moment.
fn take_soon(path: &Path) -> io::Result<Option<File>> {
    for _ in 0..MAX_LOCK_ATTEMPTS {
        if let Some(lock) = take(path, true)? {
            return Ok(Some(lock));
        }
        std::thread::sleep(LOCK_RETRY_INTERVAL);
    }
    Ok(None)
}

/// Opens and locks; `None` when somebody else holds the lock, or removed the file meanwhile.
fn take(path: &Path, create: bool) -> io::Result<Option<File>> {
    for _ in 0..8 {
        let file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(create)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            // No lock tells anything here: nobody sweeps, and a folder of this name is another one's.
            Err(errno) if create && locks::are_unsupported(&errno.into()) => {
                let is_free = !path.with_extension("").exists();
                return Ok(is_free.then_some(file));
            }
            other => other?,
        }
        // Between open and lock, the holder before us may have removed the file.
        if std::fs::symlink_metadata(path).is_ok_and(|now| {
            file.metadata()
                .is_ok_and(|ours| (ours.dev(), ours.ino()) == (now.dev(), now.ino()))
        }) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::KernelCgroupFs;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_a_dead_run_left_goes_and_what_lives_stays() {
        let state = tempfile::tempdir().unwrap();
        let alive = ScratchDirectory::create(state.path(), "alive").unwrap();
        let dead = ScratchDirectory::create(state.path(), "dead").unwrap();
        let sealed = dead.folder.join("work/work");
        std::fs::create_dir_all(&sealed).unwrap();
        std::fs::set_permissions(&sealed, std::fs::Permissions::from_mode(0o000)).unwrap();
        let (dead_folder, dead_lock) = (dead.folder.clone(), dead.lock_path.clone());
        drop(dead);
        remove_stale_runs(state.path(), &KernelCgroupFs);
        assert!(!dead_folder.exists() && !dead_lock.exists());
        assert!(alive.folder.exists() && alive.lock_path.exists());
        let (path, error) = ScratchDirectory::create(state.path(), "alive").unwrap_err();
        assert!(path.ends_with("alive.lock"));
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        alive.remove().unwrap();
        assert_eq!(std::fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_run_that_begins_is_not_taken_for_one_that_goes_on() {
        let state = tempfile::tempdir().unwrap();
        // As a sweep does that finds the file before its run has locked it.
        let path = state.path().join("new.lock");
        let swept = take(&path, true).unwrap().unwrap();
        let sweep = std::thread::spawn(move || {
            std::thread::sleep(5 * LOCK_RETRY_INTERVAL);
            std::fs::remove_file(path).unwrap();
            drop(swept);
        });
        let scratch = ScratchDirectory::create(state.path(), "new").unwrap();
        sweep.join().unwrap();
        assert!(scratch.lock_path.exists() && scratch.folder.exists());
        scratch.remove().unwrap();
    }

    #[test]
    fn a_link_in_the_scratch_folder_leads_nowhere() {
        let state = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "").unwrap();
        let scratch = ScratchDirectory::create(state.path(), "a").unwrap();
        std::os::unix::fs::symlink(outside.path(), scratch.folder.join("link")).unwrap();
        scratch.remove().unwrap();
        assert!(outside.path().join("kept").exists());
    }

    #[test]
    fn only_a_runs_own_cgroup_is_swept() {
        for path in ["memory/sconce/a", "sconce/a/engine", "sconce/engine"] {
            assert!(
                is_run_cgroup(&Path::new("/sys/fs/cgroup").join(path)),
                "{path}"
            );
        }
        for path in [
            "sconce/a",
            "/etc/passwd",
            "/a/sconce/../b",
            "/a/b/engine",
            "/sys/fs/cgroup/sconce/../x",
        ] {
            assert!(!is_run_cgroup(Path::new(path)), "{path}");
        }
    }
}
