//! Trees in which somebody else may change something at any moment, as code in a container may.
//!
//! A path leads elsewhere as soon as a folder on its way is exchanged for a link, also between a look and what
//! follows from it. So each folder is opened from the one above it and never through a link, and what is done in
//! it is done by its descriptor and one name (openat(2), unlinkat(2), fchmod(2)). However deep a tree is, few
//! descriptors are open at a time: the way back is `..`, which has to lead to where the walk came from.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, chmod, fchmod, fstat, openat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::path::Arg;

const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A folder that stays the same one, whatever its name leads to later.
#[derive(Debug)]
pub struct TreeDirectory(OwnedFd);

impl TreeDirectory {
    /// Opens a folder. The last name of `path` may not be a link; those before it are followed, so nobody else may
    /// be able to change them.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(openat(CWD, path, OPEN_DIRECTORY, Mode::empty())?))
    }

    /// Opens a folder in it that is no link.
    ///
    /// # Errors
    /// What the system says.
    pub fn open_subdir(&self, name: &OsStr) -> io::Result<Self> {
        let name = file_name(name)?;
        Ok(Self(openat(&self.0, name, OPEN_DIRECTORY, Mode::empty())?))
    }

    /// Lists the names in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn list_names(&self) -> io::Result<Vec<OsString>> {
        let names = list_names(&self.0)?.into_iter();
        Ok(names
            .map(|name| OsString::from_vec(name.into_bytes()))
            .collect())
    }

    /// Opens a regular file in it for reading. A link is not followed; a FIFO or a device, of which a read might
    /// wait for ever or never end, is refused without a read.
    ///
    /// # Errors
    /// `InvalidData` where it is not a regular file; what the system says.
    pub fn open_regular_file(&self, name: &OsStr) -> io::Result<File> {
        regular_file(&self.0, file_name(name)?)
    }

    /// Removes a file or a link in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.0, file_name(name)?, AtFlags::empty())?)
    }
}

/// Opens a regular file for reading, as [`TreeDirectory::open_regular_file`] does.
///
/// # Errors
/// `InvalidData` where it is not a regular file; what the system says.
pub fn open_regular_file(path: &Path) -> io::Result<File> {
    regular_file(CWD, path)
}

/// Removes a file or a tree, never through a link; what is not there counts as removed. Folders that are closed to
/// their owner are opened, as a program may leave them so, and overlayfs does.
///
/// # Errors
/// What the system says; a tree that somebody moves or fills meanwhile.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    // Those above it are the caller's, and may be links.
    let flags = OPEN_DIRECTORY.difference(OFlags::NOFOLLOW);
    let above = match openat(CWD, above, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        above => above?,
    };
    let start = ListedDirectory {
        folder: above,
        names: vec![CString::new(name.as_bytes())?],
    };
    walk_tree(start, &mut Removal)
}

/// Removes what is below a folder but those files of which `is_kept` says so, and folders.
///
/// # Errors
/// As [`remove_tree`].
pub fn retain_files(folder: &Path, is_kept: impl Fn(&OsStr) -> bool) -> io::Result<()> {
    let start = ListedDirectory::list(TreeDirectory::open(folder)?.0)?;
    walk_tree(start, &mut Retention(is_kept))
}

/// Measures what is below a folder takes on the disk, bytes. What cannot be looked at counts for nothing, nor does
/// what somebody moves elsewhere meanwhile.
#[must_use]
pub fn measure_disk_space(folder: &Path) -> u64 {
    let mut space = DiskSpace(0);
    let measured = TreeDirectory::open(folder)
        .and_then(|folder| ListedDirectory::list(folder.0))
        .and_then(|start| walk_tree(start, &mut space));
    // Whatever ended it early, this much there is.
    drop(measured);
    space.0
}

/// What is done with the entries of a tree.
trait TreeVisitor {
    /// Does it with one. A folder that is given back is walked through next.
    fn visit(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<Option<ListedDirectory>>;

    /// Does it with a folder that was walked through.
    fn leave(&mut self, _folder: &OwnedFd, _name: &CStr) -> io::Result<()> {
        Ok(())
    }
}

/// A folder with names that are still to be visited.
struct ListedDirectory {
    folder: OwnedFd,
    names: Vec<CString>,
}

impl ListedDirectory {
    fn list(folder: OwnedFd) -> io::Result<Self> {
        Ok(Self {
            names: list_names(&folder)?,
            folder,
        })
    }

    /// Opens and lists a folder in another.
    fn open(folder: &OwnedFd, name: &CStr) -> io::Result<Self> {
        Self::list(openat(folder, name, OPEN_DIRECTORY, Mode::empty())?)
    }
}

/// A folder that the walk has left for one in it.
struct WalkLevel {
    id: (u64, u64),
    /// The name of the folder that it is left for.
    name: CString,
    /// The names that are still to be visited.
    rest: Vec<CString>,
}

/// Visits the names of a folder, and all that is below them.
fn walk_tree(start: ListedDirectory, visitor: &mut impl TreeVisitor) -> io::Result<()> {
    let ListedDirectory {
        mut folder,
        mut names,
    } = start;
    let mut above: Vec<WalkLevel> = Vec::new();
    loop {
        if let Some(name) = names.pop() {
            if let Some(inner) = visitor.visit(&folder, &name)? {
                let id = directory_id(&folder)?;
                let rest = std::mem::replace(&mut names, inner.names);
                above.push(WalkLevel { id, name, rest });
                folder = inner.folder;
            }
        } else if let Some(level) = above.pop() {
            folder = openat(&folder, c"..", OPEN_DIRECTORY, Mode::empty())?;
            if directory_id(&folder)? != level.id {
                let text = "a folder was moved while its tree was worked on";
                return Err(io::Error::other(text));
            }
            visitor.leave(&folder, &level.name)?;
            names = level.rest;
        } else {
            return Ok(());
        }
    }
}

struct Removal;

impl TreeVisitor for Removal {
    fn visit(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<Option<ListedDirectory>> {
        // Says by itself that a name is a folder's (unlink(2)), so there is no look that could be out of date.
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR) => unlocked_directory(folder, name)?
                .map(ListedDirectory::list)
                .transpose(),
            Err(Errno::NOENT) => Ok(None),
            done => Ok(done.map(|()| None)?),
        }
    }

    fn leave(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        match unlinkat(folder, name, AtFlags::REMOVEDIR) {
            Err(Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }
}

struct Retention<F>(F);

impl<F: Fn(&OsStr) -> bool> TreeVisitor for Retention<F> {
    fn visit(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<Option<ListedDirectory>> {
        let meta = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::Directory => Ok(Some(ListedDirectory::open(folder, name)?)),
            FileType::RegularFile if (self.0)(OsStr::from_bytes(name.to_bytes())) => Ok(None),
            _ => Ok(unlinkat(folder, name, AtFlags::empty()).map(|()| None)?),
        }
    }
}

struct DiskSpace(u64);

impl TreeVisitor for DiskSpace {
    fn visit(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<Option<ListedDirectory>> {
        let Ok(meta) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return Ok(None);
        };
        // Blocks are of 512 bytes (stat(2)).
        let bytes = u64::try_from(meta.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        self.0 = self.0.saturating_add(bytes);
        let is_folder = FileType::from_raw_mode(meta.st_mode) == FileType::Directory;
        let inner = is_folder.then(|| ListedDirectory::open(folder, name));
        Ok(inner.and_then(Result::ok))
    }
}

/// Opens a folder that is to be removed, with every right of its owner on it. `None` where it is gone.
fn unlocked_directory(folder: &OwnedFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let opened = match openat(folder, name, OPEN_DIRECTORY, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // A descriptor that may not read it names it all the same, and /proc leads to just what it stands for.
            let flags = OPEN_DIRECTORY | OFlags::PATH;
            let named = openat(folder, name, flags, Mode::empty())?;
            chmod(format!("/proc/self/fd/{}", named.as_raw_fd()), Mode::RWXU)?;
            openat(&named, c".", OPEN_DIRECTORY, Mode::empty())
        }
        opened => opened,
    };
    let opened = match opened {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    if !Mode::from_raw_mode(fstat(&opened)?.st_mode).contains(Mode::RWXU) {
        // Where it is another's, its own rights decide whether it can be emptied.
        let _ = fchmod(&opened, Mode::RWXU);
    }
    Ok(Some(opened))
}

fn regular_file(folder: impl AsFd, name: impl Arg) -> io::Result<File> {
    let flags =
        OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = match openat(folder, name, flags, Mode::empty()) {
        Err(Errno::LOOP) => return Err(not_regular("a link")),
        // A socket cannot be opened at all.
        Err(Errno::NXIO) => return Err(not_regular("a socket")),
        opened => File::from(opened?),
    };
    match opened.metadata()?.is_file() {
        true => Ok(opened),
        false => Err(not_regular("a folder, a pipe or a device")),
    }
}

fn not_regular(what: &str) -> io::Error {
    let text = format!("it is {what}, not a plain file");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

fn list_names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// The file system and inode of a folder.
fn directory_id(folder: &OwnedFd) -> io::Result<(u64, u64)> {
    let meta = fstat(folder)?;
    Ok((meta.st_dev, meta.st_ino))
}

/// A name of one part: the kernel would follow links in more.
fn file_name(name: &OsStr) -> io::Result<&OsStr> {
    match Path::new(name).file_name() {
        Some(whole) if whole == name => Ok(name),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not the name of an entry", name.display()),
        )),
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
