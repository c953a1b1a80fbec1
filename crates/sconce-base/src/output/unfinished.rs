//! Names that are there only until an output is complete. They go where it fails, and where a signal ends the program:
//! a process that is killed drops nothing, so they are known to the whole process.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::{Errno, fcntl_dupfd_cloexec};

static NAMES: Mutex<NameList> = Mutex::new(NameList {
    names: Vec::new(),
    next: 0,
});
static SIGNAL_WATCH: OnceLock<fn()> = OnceLock::new();
static WATCH_START: Once = Once::new();

#[derive(Debug)]
struct NameList {
    names: Vec<NameEntry>,
    next: u64,
}

#[derive(Debug)]
struct NameEntry {
    id: u64,
    folder: OwnedFd,
    name: OsString,
    /// A folder goes only where nothing else is in it.
    how: AtFlags,
}

impl NameEntry {
    fn remove(&self) {
        let _ = unlinkat(&self.folder, &self.name, self.how);
    }
}

/// Says what is called, once, before the first name is made that a signal would leave: whatever has signals lead to
/// [`remove_unfinished`].
pub fn set_signal_watch(start: fn()) {
    // A second one in a process would say the same.
    let _ = SIGNAL_WATCH.set(start);
}

/// Removes all that is there for the time being, last made first, and calls `end`, which ends the program. Nothing
/// is made or completed meanwhile.
pub fn remove_unfinished(end: impl FnOnce()) {
    let list = lock();
    for entry in list.names.iter().rev() {
        entry.remove();
    }
    end();
}

/// A name that is removed with this, and by a signal, where [`UnfinishedName::keep`] was not called.
#[derive(Debug)]
pub(super) struct UnfinishedName(u64);

impl UnfinishedName {
    /// Makes what has the name, by `make`; a name that could not be made is not removed.
    pub(super) fn create<T>(
        folder: &OwnedFd,
        name: &OsStr,
        how: AtFlags,
        make: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<(T, Self), Errno> {
        if let Some(start) = SIGNAL_WATCH.get() {
            WATCH_START.call_once(start);
        }
        let folder = fcntl_dupfd_cloexec(folder, 0)?;
        // Held until it is noted: no signal comes in between.
        let mut list = lock();
        let made = make()?;
        let id = list.next;
        list.next += 1;
        list.names.push(NameEntry {
            id,
            folder,
            name: name.to_owned(),
            how,
        });
        Ok((made, Self(id)))
    }

    /// Lets the name stay, once `complete` was done with it.
    pub(super) fn keep_after<T>(
        self,
        complete: impl FnOnce() -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        // A signal finds it either as it was or complete.
        let mut list = lock();
        let completed = complete();
        if completed.is_ok() {
            list.names.retain(|entry| entry.id != self.0);
        }
        drop(list);
        // Where it failed, the name goes here.
        completed
    }

    /// Lets the name stay.
    pub(super) fn keep(self) {
        lock().names.retain(|entry| entry.id != self.0);
    }
}

impl Drop for UnfinishedName {
    fn drop(&mut self) {
        let mut list = lock();
        if let Some(place) = list.names.iter().position(|entry| entry.id == self.0) {
            list.names.remove(place).remove();
        }
    }
}

/// Does something that a signal's removal waits for.
pub(super) fn do_undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let _list = lock();
    work()
}

fn lock() -> MutexGuard<'static, NameList> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}
