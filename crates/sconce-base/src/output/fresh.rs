//! A new file that gets its name when it is complete.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, StatxAttributes, StatxFlags, linkat, openat, renameat, statx,
    unlinkat,
};
use rustix::io::Errno;

use super::walk::proc_path;
use crate::random_name;

/// A file in a folder, without a name where the file system can do that (`O_TMPFILE`): nothing of it stays when
/// the program is killed.
#[derive(Debug)]
pub(super) struct UnnamedFile {
    folder: OwnedFd,
    file: File,
    /// The name that it has for the time being.
    name: Option<String>,
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
        loop {
            let name = hidden_name();
            let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            match openat(&folder, &name, flags, mode) {
                Ok(file) => {
                    return Ok(Self {
                        folder,
                        file: file.into(),
                        name: Some(name),
                    });
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name, in place of whatever has that.
    pub(super) fn persist_as(mut self, name: &OsStr) -> io::Result<()> {
        if self.name.is_none() && self.link(name)? {
            return Ok(());
        }
        // Something came there meanwhile, which cannot be replaced.
        if is_append_only(&self.folder) {
            return Err(Errno::EXIST.into());
        }
        let own = loop {
            if let Some(own) = &self.name {
                break own.clone();
            }
            let own = hidden_name();
            if self.link(OsStr::new(&own))? {
                self.name = Some(own);
            }
        };
        renameat(&self.folder, &own, &self.folder, name)?;
        self.name = None;
        Ok(())
    }

    /// Whether it could be given a name that nothing has.
    fn link(&self, name: &OsStr) -> io::Result<bool> {
        let from = proc_path(&self.file);
        match linkat(CWD, from, &self.folder, name, AtFlags::SYMLINK_FOLLOW) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

/// Whether a folder takes new names and lets none go (chattr(1), `+a`).
pub(super) fn is_append_only(folder: &OwnedFd) -> bool {
    let seen = statx(folder, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
    seen.is_ok_and(|seen| seen.stx_attributes.contains(StatxAttributes::APPEND))
}

fn hidden_name() -> String {
    format!(".sconce-{}", random_name())
}
