//! Files and folders that were made on the way, and go again where what they were made for fails.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, mkdirat};
use rustix::io::Errno;

use super::unfinished::UnfinishedName;

/// Names that are removed with this, last made first, where [`NewNames::keep`] was not called. Folders go only
/// where nothing else is in them.
#[derive(Debug, Default)]
pub(super) struct NewNames(RefCell<Vec<UnfinishedName>>);

impl NewNames {
    /// Makes a folder.
    pub(super) fn create_folder(&self, above: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let make = || mkdirat(above, name, Mode::from_raw_mode(0o777));
        let ((), made) = UnfinishedName::create(above, name, AtFlags::REMOVEDIR, make)?;
        self.0.borrow_mut().push(made);
        Ok(())
    }

    /// Notes a file that is yet to be made.
    pub(super) fn add_file(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let ((), noted) = UnfinishedName::create(folder, name, AtFlags::empty(), || Ok(()))?;
        self.0.borrow_mut().push(noted);
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub(super) fn keep(&self) {
        for name in self.0.take() {
            name.keep();
        }
    }
}

impl Drop for NewNames {
    fn drop(&mut self) {
        let names = self.0.get_mut();
        while let Some(name) = names.pop() {
            drop(name);
        }
    }
}
