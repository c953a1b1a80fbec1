//! Folders in the store that last no longer than the process that made them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::item::{Held, remove};
use crate::{Store, StoreError};

/// An empty folder on the store's file system. Dropping it removes it; that of a killed process
/// is removed by the next [`Store::open`].
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    lock: PathBuf,
    _held: Held,
}

impl Store {
    /// A folder of a name that no one else uses now. `kind` and `key` as in
    /// [`Store::build_tree`].
    ///
    /// # Errors
    /// [`StoreError::Name`], [`StoreError::Disk`].
    pub fn scratch(&self, kind: &str, key: &str) -> Result<Scratch, StoreError> {
        let place = self.place(kind, key)?;
        let held = place.lock(|| ())?;
        place.begin(&held)?;
        Ok(Scratch {
            folder: place.work,
            lock: place.lock,
            _held: held,
        })
    }
}

impl Scratch {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next open. The lock goes last, while it is
        // held: the name is not used again.
        let _ = remove(&self.folder);
        let _ = fs::remove_file(&self.lock);
    }
}
