//! Which files outputs are, so that none takes the place of another or of what is read.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, fstat, readlinkat, stat};

use super::walk::{self, PathKind};
use super::{Kind, OutputDestination};

/// What tells a file from others: its device and inode; of one that is not there yet those of its folder, and its
/// name there.
type FileId = (u64, u64, OsString);

impl OutputDestination {
    /// Whether both are one file, of which one would lose what the other writes.
    #[must_use]
    pub fn is_same_file(&self, other: &Self) -> bool {
        self.file_id().is_some_and(|id| Some(id) == other.file_id())
    }

    /// Whether it is the file that a path leads to, takes its place or the one that it is to have, or lies in the
    /// folder that the path leads to.
    #[must_use]
    pub fn would_overwrite(&self, path: &Path) -> bool {
        match stat(path) {
            Ok(there) if FileType::from_raw_mode(there.st_mode) == FileType::Directory => {
                self.lies_in(path)
            }
            Ok(there) => self.file_id() == Some((there.st_dev, there.st_ino, OsString::new())),
            Err(_) => {
                let future = walk::from_here(path).ok().and_then(|found| {
                    matches!(found.what, PathKind::Nothing)
                        .then(|| future_id(&found.folder, found.name))?
                });
                future.is_some() && self.file_id() == future
            }
        }
    }

    /// Whether it is a file in a folder, however deep.
    #[must_use]
    pub fn lies_in(&self, folder: &Path) -> bool {
        let file = self.real_path();
        file.is_some_and(|file| lies_in(&file, folder))
    }

    /// A character device such as /dev/null takes any number of outputs, a FIFO one after the other.
    fn file_id(&self) -> Option<FileId> {
        let file = match &self.kind {
            Kind::Descriptor(_, file)
            | Kind::Device(file)
            | Kind::Replaced { present: file, .. }
            | Kind::InPlace(file) => file,
            Kind::New { folder, name } => return future_id(folder, name.clone()),
            Kind::Fifo(_) => return None,
        };
        let seen = fstat(file).ok()?;
        let is_one = FileType::from_raw_mode(seen.st_mode) != FileType::CharacterDevice;
        is_one.then(|| (seen.st_dev, seen.st_ino, OsString::new()))
    }

    /// Returns where it lies, or will, without links. `None` of devices, FIFOs and descriptors of such.
    #[must_use]
    pub fn real_path(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::New { folder, name } | Kind::Replaced { folder, name, .. } => {
                Some(real_path(folder).ok()?.join(name))
            }
            Kind::Descriptor(_, file) | Kind::InPlace(file) => {
                let seen = fstat(file).ok()?;
                let is_file = FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile;
                is_file.then(|| real_path(file).ok())?
            }
            Kind::Device(_) | Kind::Fifo(_) => None,
        }
    }
}

fn future_id(folder: &OwnedFd, name: OsString) -> Option<FileId> {
    let seen = fstat(folder).ok()?;
    Some((seen.st_dev, seen.st_ino, name))
}

/// The path of what a descriptor stands for, as the kernel knows it: without links.
pub(super) fn real_path(of: &impl AsFd) -> io::Result<PathBuf> {
    let text = readlinkat(CWD, walk::proc_path(of), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
}

/// Whether a path without links leads into a folder, or is it, both of which may yet be made. Folders are told by
/// what they are too: one may be mounted in several places.
pub(super) fn lies_in(path: &Path, folder: &Path) -> bool {
    let wanted = place_id(folder);
    path.ancestors()
        .any(|above| above == folder || (wanted.is_some() && place_id(above) == wanted))
}

/// What tells a place without links from others: device and inode of the nearest that is there, and the names that
/// are yet to be made below it.
fn place_id(path: &Path) -> Option<(u64, u64, &Path)> {
    path.ancestors().find_map(|there| {
        let seen = stat(there).ok()?;
        let rest = path.strip_prefix(there).ok()?;
        Some((seen.st_dev, seen.st_ino, rest))
    })
}
