//! Which runs are over, told by their cgroups alone: the folders of a run that lives are locked.
//!
//! A run notes its cgroups in its scratch folder, and the next run of that store removes what a killed
//! one noted. Where the store went, or is never used again, the folders stayed, a handful for each kill:
//! the next run of any store that is a few seconds later removes them.
//! A lock goes with its process, however that ends.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::CgroupFs;

/// So many runs that are over are removed at one time. A start waits for it.
const MAX_REMOVED_RUNS: usize = 128;
/// A folder this young stays: an older Sconce, which locks none, may be about to use it.
const MIN_STALE_AGE: Duration = Duration::from_secs(5);
/// A new folder may be taken for one of a run that is over before it is locked; then it is made again.
const MAX_ATTEMPTS: u32 = 8;

/// Makes a run's folder, and adds what says that the run lives.
///
/// # Errors
/// The kernel's.
pub(super) fn create_locked_dir(
    files: &dyn CgroupFs,
    folder: &Path,
    held: &mut Vec<OwnedFd>,
) -> io::Result<()> {
    for _ in 0..MAX_ATTEMPTS {
        files.make(folder)?;
        let hold = files.hold(folder);
        let there = || folder.symlink_metadata().is_ok();
        match hold {
            Ok(Some(lock)) if there() => {
                held.push(lock);
                return Ok(());
            }
            // Somebody looks whether it is empty and over.
            Ok(_) => {
                let _ = files.remove(folder);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            // It is made, and of no use to anybody else.
            Err(_) => return Ok(()),
        }
    }
    files.make(folder)
}

/// Removes the folders of runs that are over from `parents`, the folders of runs in each hierarchy: those
/// of this user in which nothing lives.
pub(crate) fn remove_stale_cgroups(files: &dyn CgroupFs, parents: &[PathBuf]) {
    sweep_older(files, parents, MIN_STALE_AGE);
}

fn sweep_older(files: &dyn CgroupFs, parents: &[PathBuf], age: Duration) {
    let is_old = |meta: &std::fs::Metadata| {
        let made = meta.modified().ok().and_then(|time| time.elapsed().ok());
        made.is_none_or(|passed| passed >= age)
    };
    let own = rustix::process::geteuid().as_raw();
    let mut runs: BTreeMap<std::ffi::OsString, Vec<PathBuf>> = BTreeMap::new();
    for parent in parents {
        for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
            let ours =
                |meta: std::fs::Metadata| meta.is_dir() && meta.uid() == own && is_old(&meta);
            if entry.metadata().is_ok_and(ours) {
                runs.entry(entry.file_name())
                    .or_default()
                    .push(entry.path());
            }
        }
    }
    let mut removed = 0;
    for folders in runs.into_values() {
        // An engine makes one of them itself; so long as another one is locked, all of them are in use.
        let locks: Vec<_> = folders.iter().map(|folder| files.hold(folder)).collect();
        if locks.iter().any(|lock| !matches!(lock, Ok(Some(_)))) {
            continue;
        }
        folders
            .iter()
            .for_each(|folder| remove_empty(files, folder));
        removed += 1;
        if removed == MAX_REMOVED_RUNS {
            return;
        }
    }
}

/// Removes a folder and those within, as far as nothing lives there: the kernel refuses the others.
fn remove_empty(files: &dyn CgroupFs, folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_empty(files, &entry.path());
        }
    }
    let _ = files.remove(folder);
}

#[cfg(test)]
mod tests {
    use super::super::KernelCgroupFs;
    use super::*;

    #[test]
    fn folders_of_runs_that_are_over_go_and_those_of_others_stay() {
        let parents: Vec<_> = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
        let at = |parent: usize, name: &str| parents[parent].path().join(name);
        let mut held = Vec::new();
        create_locked_dir(&KernelCgroupFs, &at(0, "alive"), &mut held).unwrap();
        // Made by an engine, and of a run that lives.
        std::fs::create_dir(at(1, "alive")).unwrap();
        for folder in [at(0, "over"), at(1, "over"), at(1, "over/engine")] {
            std::fs::create_dir(folder).unwrap();
        }
        // Something is left in it.
        std::fs::create_dir(at(0, "full")).unwrap();
        std::fs::write(at(0, "full/file"), "").unwrap();
        let all: Vec<_> = parents.iter().map(|dir| dir.path().to_owned()).collect();
        // Whoever made them a moment ago may be an older Sconce, which locks none.
        remove_stale_cgroups(&KernelCgroupFs, &all);
        assert!(at(0, "over").exists());
        sweep_older(&KernelCgroupFs, &all, Duration::ZERO);
        assert!(at(0, "alive").exists() && at(1, "alive").exists() && at(0, "full").exists());
        assert!(!at(0, "over").exists() && !at(1, "over").exists());
        drop(held);
        sweep_older(&KernelCgroupFs, &all, Duration::ZERO);
        assert!(!at(0, "alive").exists() && !at(1, "alive").exists());
    }

    #[test]
    fn a_folder_of_another_user_stays() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("other");
        std::fs::create_dir(&folder).unwrap();
        std::os::unix::fs::chown(&folder, Some(12_345), Some(12_345)).unwrap();
        sweep_older(&KernelCgroupFs, &[parent.path().to_owned()], Duration::ZERO);
        assert!(folder.exists());
    }

    /// Two make and sweep at once: whoever made a folder finds it there.
    #[test]
    fn a_folder_that_is_being_made_is_not_lost() {
        let parent = tempfile::tempdir().unwrap();
        let sweeper = parent.path().to_owned();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let over = stop.clone();
        let thread = std::thread::spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                sweep_older(
                    &KernelCgroupFs,
                    std::slice::from_ref(&sweeper),
                    Duration::ZERO,
                );
            }
        });
        for number in 0..500 {
            let folder = parent.path().join(number.to_string());
            let mut held = Vec::new();
            create_locked_dir(&KernelCgroupFs, &folder, &mut held).unwrap();
            assert!(folder.exists());
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        thread.join().unwrap();
    }
}
