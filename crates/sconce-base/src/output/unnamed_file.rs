//! A new file that gets its name when it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, linkat, openat, renameat, statx,
};
use rustix::io::Errno;

use super::unfinished::{UnfinishedName, do_undisturbed};
use super::walk::proc_path;
use crate::random_name;

/// A file in a folder, without a name where the file system can do that (`O_TMPFILE`): nothing of it stays when
/// the program is killed.
#[derive(Debug)]
pub(super) struct UnnamedFile {
    folder: OwnedFd,
    file: File,
    /// The name that it has for the time being.
    name: Option<(OsString, UnfinishedName)>,
}

impl UnnamedFile {
    /// Makes one, with the permissions `mode` less those of the umask.
    pub(super) fn create_in(folder: &OwnedFd, mode: Mode) -> io::Result<Self> {
        let (folder, flags) = (folder.try_clone()?, OFlags::WRONLY | OFlags::CLOEXEC);
        match openat(&folder, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => {
                return Ok(Self {
                    folder,
                    file: file.into(),
                    name: None,
                });
            }
            // The file system, or a kernel before it, has no such files (open(2)).
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        // The name for the time being would stay.
        if is_append_only(&folder) {
            return Err(Errno::PERM.into());
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let (file, name) = create_hidden(&folder, |name| openat(&folder, name, flags, mode))?;
        Ok(Self {
            folder,
            file: file.into(),
            name: Some(name),
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, in place of whatever has that.
    pub(super) fn persist_as(self, name: &OsStr) -> io::Result<()> {
        // A signal removes what was made for it before this or after it.
        if self.name.is_none() && do_undisturbed(|| is_new(self.link(name)))? {
            return Ok(());
        }
        // Something came there meanwhile, which cannot be replaced.
        if is_append_only(&self.folder) {
            return Err(Errno::EXIST.into());
        }
        let (own, unfinished) = match self.name {
            Some(named) => named,
            None => create_hidden(&self.folder, |own| self.link(own))?.1,
        };
        let renamed = unfinished.keep_after(|| renameat(&self.folder, &own, &self.folder, name));
        Ok(renamed?)
    }

    /// Gives it a name that nothing has.
    fn link(&self, name: &OsStr) -> Result<(), Errno> {
        let from = proc_path(&self.file);
        linkat(CWD, from, &self.folder, name, AtFlags::SYMLINK_FOLLOW)
    }
}

/// Makes something of a name that nothing in the folder has, and that is removed again if nobody keeps it.
fn create_hidden<T>(
    folder: &OwnedFd,
    make: impl Fn(&OsStr) -> Result<T, Errno>,
) -> Result<(T, (OsString, UnfinishedName)), Errno> {
    loop {
        let name = OsString::from(format!(".sconce-{}", random_name()));
        match UnfinishedName::create(folder, &name, AtFlags::empty(), || make(&name)) {
            Ok((made, unfinished)) => return Ok((made, (name, unfinished))),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether something could be made, and was not there.
fn is_new(made: Result<(), Errno>) -> Result<bool, Errno> {
    match made {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a folder takes new names and lets none go (chattr(1), `+a`).
pub(super) fn is_append_only(folder: &OwnedFd) -> bool {
    let seen = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    seen.is_ok_and(|seen| seen.stx_attributes.contains(StatxAttributes::APPEND))
}
