//! Files and folders that were made on the way, and go again where what they were made for fails.

use std::cell::{Cell, RefCell};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, unlinkat};

/// Names that are removed with this, last made first, where [`NewNames::keep`] was not called. Folders go only
/// where nothing else is in them.
#[derive(Debug, Default)]
pub(super) struct NewNames {
    names: RefCell<Vec<(OwnedFd, OsString, AtFlags)>>,
    is_kept: Cell<bool>,
}

impl NewNames {
    pub(super) fn add_folder(&self, above: &OwnedFd, name: &OsStr) -> io::Result<()> {
        self.add(above, name, AtFlags::REMOVEDIR)
    }

    pub(super) fn add_file(&self, folder: &OwnedFd, name: &OsStr) -> io::Result<()> {
        self.add(folder, name, AtFlags::empty())
    }

    fn add(&self, folder: &OwnedFd, name: &OsStr, how: AtFlags) -> io::Result<()> {
        let entry = (folder.try_clone()?, name.to_owned(), how);
        self.names.borrow_mut().push(entry);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.names.borrow().is_empty()
    }

    pub(super) fn keep(&self) {
        self.is_kept.set(true);
    }
}

impl Drop for NewNames {
    fn drop(&mut self) {
        if self.is_kept.get() {
            return;
        }
        for (folder, name, how) in self.names.get_mut().iter().rev() {
            let _ = unlinkat(folder, name, *how);
        }
    }
}
