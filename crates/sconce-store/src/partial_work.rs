//! Work that may take longer than a process lives: a folder that the next process goes on with.
//!
//! It is `partial/<kind>~<key>/`, and holds
//! - `content`, what was made so far,
//! - `boot`, the id of the boot during which that was written.
//!
//! One process at a time has it, under the lock `locks/partial~<kind>~<key>`, which the kernel
//! gives back when that process ends. What another boot wrote is not continued: after a power loss
//! a name can be there while the bytes behind it are not (see [`crate::Store::sync`]), and nothing
//! tells the files of which that is true. Where the kernel tells no boot id, nothing is continued. Where locks
//! tell nobody anything, each process has a folder of its own, which nobody goes on with.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_base::tree::remove_tree;
use sconce_schema::Progress;

use crate::item::OWN_WORK_PREFIX;
use crate::item_access::{MakeJob, Waiting};
use crate::lock::{ItemGuard, ItemLock};
use crate::store::{CLEARS, make_folder};
use crate::{Store, StoreError, TreeBuildError};

/// Unfinished work that this process has, until it is dropped.
#[derive(Debug)]
pub struct PartialWork {
    folder: PathBuf,
    _held: ItemGuard,
}

/// What to do where another process has the work.
#[derive(Clone, Copy)]
pub enum OnBusy<'a> {
    /// Nothing: it is left to that process.
    Leave,
    /// Wait until that process has ended or has finished it.
    Wait {
        /// Whether what the work is for is there by now, whoever made it: then nothing is waited for.
        is_done: &'a dyn Fn() -> bool,
        /// Who is told of the wait.
        progress: &'a dyn Progress,
    },
}

impl Store {
    /// The work on an item: what an earlier process of this boot left of it, or an empty folder. `work`
    /// says what it is, for those who wait: `compiles six 1.16.0`. `None` where another process has it, and
    /// it is not waited for, or no longer.
    ///
    /// # Errors
    /// [`StoreError::Disk`], [`StoreError::Name`].
    pub fn open_partial_work(
        &self,
        kind: &str,
        key: &str,
        work: &str,
        taken: OnBusy<'_>,
    ) -> Result<Option<PartialWork>, StoreError> {
        // Checks both names, and that together they fit a file's name.
        self.item_paths(kind, key)?;
        let (folder, held) = match self.has_locks() {
            true => {
                let name = format!("{kind}~{key}");
                let Some(held) = self.lock_unfinished(&name, work, taken)? else {
                    return Ok(None);
                };
                (self.root().join("partial").join(name), held)
            }
            false => (self.own_partial_folder(), ItemGuard::of_own_dir()),
        };
        let boot = folder.join("boot");
        let own = self.view.boot();
        let goes_on = own.is_some() && fs::read_to_string(&boot).ok().as_deref() == own;
        if !goes_on {
            remove_tree(&folder).map_err(StoreError::from_io("remove", &folder))?;
            make_folder(&folder, 0o700).map_err(StoreError::from_io("create", &folder))?;
            let content = folder.join("content");
            make_folder(&content, 0o755).map_err(StoreError::from_io("create", &content))?;
        }
        // Last, so that a folder with it is complete; and each time, as its age says when the work
        // was last taken up.
        fs::write(&boot, own.unwrap_or_default()).map_err(StoreError::from_io("write", &boot))?;
        Ok(Some(PartialWork {
            folder,
            _held: held,
        }))
    }

    /// Whether there is unfinished work on an item, whoever has it or had it.
    #[must_use]
    pub fn has_unfinished(&self, kind: &str, key: &str) -> bool {
        let name = format!("{kind}~{key}");
        self.root().join("partial").join(name).exists()
    }

    fn lock_unfinished(
        &self,
        name: &str,
        work: &str,
        taken: OnBusy<'_>,
    ) -> Result<Option<ItemGuard>, StoreError> {
        let lock = ItemLock::new(self.root().join("locks").join(format!("partial~{name}")));
        let mut waiting = None;
        loop {
            let wait = match lock.try_lock_exclusive(work)?.into_guard() {
                Ok(held) => return Ok(Some(held)),
                Err(wait) => wait,
            };
            let OnBusy::Wait { is_done, progress } = taken else {
                return Ok(None);
            };
            if is_done() {
                return Ok(None);
            }
            let job = MakeJob {
                name: work,
                work,
                progress,
            };
            let waiting = waiting.get_or_insert_with(|| Waiting::new(job));
            waiting.pause_for(wait);
        }
    }

    /// The folder `partial/NAME` and the right to it, for bytes that are found to be the right ones however
    /// they came: every process may go on with them, in any boot.
    ///
    /// # Errors
    /// [`StoreError::Disk`], [`StoreError::Name`].
    pub fn partial_folder(
        &self,
        name: &str,
        work: &str,
        progress: &dyn Progress,
    ) -> Result<(PathBuf, ItemGuard), StoreError> {
        let (folder, held) = match self.has_locks() {
            true => {
                // The lock by which `clean_unfinished` leaves it.
                let held = self.acquire_exclusive("partial", name, work, progress)?;
                (self.root().join("partial").join(name), held)
            }
            false => (self.own_partial_folder(), ItemGuard::of_own_dir()),
        };
        fs::create_dir_all(&folder).map_err(StoreError::from_io("create", &folder))?;
        Ok((folder, held))
    }

    fn own_partial_folder(&self) -> PathBuf {
        let name = format!("{OWN_WORK_PREFIX}{}", sconce_base::random_name());
        self.root().join("partial").join(name)
    }

    /// Removes the unfinished work `name` if nobody took it up for `age` and nobody has it.
    pub(crate) fn clean_unfinished(&self, name: &str, age: Duration) -> Result<(), StoreError> {
        let folder = self.root().join("partial").join(name);
        let old = |path: &Path| {
            let time = path.symlink_metadata().and_then(|meta| meta.modified());
            time.is_ok_and(|time| time.elapsed().is_ok_and(|passed| passed > age))
        };
        // Without a boot id it is of an older Sconce, which named work otherwise.
        let boot = folder.join("boot");
        let is_old = |boot: &Path| old(if boot.exists() { boot } else { &folder });
        if !is_old(&boot) {
            return Ok(());
        }
        if name.starts_with(OWN_WORK_PREFIX) || !self.has_locks() {
            return remove_tree(&folder).map_err(StoreError::from_io("remove", &folder));
        }
        match self.lock_unfinished(name, CLEARS, OnBusy::Leave)? {
            Some(_held) if is_old(&boot) => {
                remove_tree(&folder).map_err(StoreError::from_io("remove", &folder))
            }
            _ => Ok(()),
        }
    }
}

impl PartialWork {
    /// The folder to work in, with what was made of it earlier.
    #[must_use]
    pub fn content_dir(&self) -> PathBuf {
        self.folder.join("content")
    }

    /// Makes what was made the item `kind`, `key` of the store, unless that is there by now.
    ///
    /// # Errors
    /// The store cannot take it.
    pub fn publish(
        self,
        store: &Store,
        kind: &str,
        key: &str,
    ) -> Result<PathBuf, TreeBuildError<io::Error>> {
        // A folder may be renamed over an empty one, rename(2).
        let tree = store.build_tree(kind, key, |tree| fs::rename(self.content_dir(), tree))?;
        self.give_up()?;
        Ok(tree)
    }

    /// Removes it.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn give_up(self) -> Result<(), StoreError> {
        remove_tree(&self.folder).map_err(StoreError::from_io("remove", &self.folder))
    }
}
