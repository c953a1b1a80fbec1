//! From a path to the file that it names, one name at a time.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, fstatfs, openat, readlinkat, stat};
use rustix::io::Errno;

use super::error::OutputError;
use super::made::NewNames;

/// Links that are followed on the way, as by the kernel (path_resolution(7)).
pub(super) const MAX_LINKS: usize = 40;
/// `PROC_SUPER_MAGIC` (linux/magic.h).
const PROC: u64 = 0x9fa0;
const STICKY: u32 = 0o1000;
/// Others than its owner may write to it.
const SHARED: u32 = 0o022;

/// The last name of a path, in its folder.
#[derive(Debug)]
pub(super) struct PathLookup {
    /// A path descriptor.
    pub(super) folder: OwnedFd,
    pub(super) name: OsString,
    pub(super) what: PathKind,
}

#[derive(Debug)]
pub(super) enum PathKind {
    Nothing,
    /// A path descriptor of something that is no link.
    Thing(OwnedFd, Stat),
    /// A descriptor of this process.
    Descriptor(RawFd),
    /// A regular file by way of another process's descriptor: it has no name here.
    Foreign,
}

/// Whether folders that are missing are made.
#[derive(Debug, Clone, Copy)]
pub(super) enum MissingDirectories<'n> {
    Refused,
    /// And noted here.
    Made(&'n NewNames),
}

/// Walks a path from the working directory or the top.
pub(super) fn from_here(path: &Path) -> Result<PathLookup, OutputError> {
    Walk::new(path, None, MissingDirectories::Refused)?.end()
}

/// The same, from a folder on.
pub(super) fn from_folder(
    folder: &OwnedFd,
    name: &Path,
    told: &Path,
) -> Result<PathLookup, OutputError> {
    let mut walk = Walk::new(name, Some(folder), MissingDirectories::Refused)?;
    walk.told = told;
    // The folder was named, not this file of it: its owner has not to say where that leads.
    walk.is_planted = true;
    walk.end()
}

/// A folder, by a path descriptor.
pub(super) fn resolve_dir(
    path: &Path,
    missing: MissingDirectories<'_>,
) -> Result<OwnedFd, OutputError> {
    let mut walk = Walk::new(path, None, missing)?;
    walk.as_folder = true;
    let found = walk.end()?;
    let not_a_folder = || OutputError::NotAFolder {
        path: path.to_owned(),
    };
    match found.what {
        PathKind::Thing(thing, stat) if is(&stat, FileType::Directory) => Ok(thing),
        PathKind::Nothing => Err(OutputError::io_error(path)(Errno::NOENT.into())),
        _ => Err(not_a_folder()),
    }
}

/// The folder of a path and its last name, which is not followed if it is a link.
pub(super) fn resolve_parent(path: &Path) -> Result<(OwnedFd, OsString), OutputError> {
    let wrong = || OutputError::io_error(path)(Errno::ISDIR.into());
    let name = path.file_name().ok_or_else(wrong)?;
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(wrong());
    }
    let above = match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    };
    let mut walk = Walk::new(above, None, MissingDirectories::Refused)?;
    walk.told = path;
    walk.as_folder = true;
    match walk.end()?.what {
        PathKind::Thing(thing, stat) if is(&stat, FileType::Directory) => {
            Ok((thing, name.to_owned()))
        }
        PathKind::Nothing => Err(OutputError::io_error(path)(Errno::NOENT.into())),
        _ => Err(OutputError::io_error(path)(Errno::NOTDIR.into())),
    }
}

/// Names that are still to be walked, from an open folder on.
struct Walk<'p> {
    told: &'p Path,
    at: OwnedFd,
    /// The way so far, for people.
    way: PathBuf,
    names: VecDeque<OsString>,
    links: usize,
    /// The way led through a stranger's folder in one where others may write: whoever made it arranged for the
    /// caller to come there. Links in it are not its owner's to make.
    is_planted: bool,
    /// The last name is to be a folder.
    as_folder: bool,
    missing: MissingDirectories<'p>,
}

impl<'p> Walk<'p> {
    fn new(
        path: &'p Path,
        from: Option<&OwnedFd>,
        missing: MissingDirectories<'p>,
    ) -> Result<Self, OutputError> {
        let failed = |error: Errno| OutputError::io_error(path)(error.into());
        if path.as_os_str().is_empty() {
            return Err(failed(Errno::NOENT));
        }
        let at = match from {
            Some(folder) if !path.is_absolute() => open_folder(folder, OsStr::new(".")),
            _ => open_folder(CWD, start(path)),
        };
        let mut walk = Self {
            told: path,
            at: at.map_err(failed)?,
            way: PathBuf::from(if path.is_absolute() { "/" } else { "" }),
            names: VecDeque::new(),
            links: 0,
            is_planted: false,
            as_folder: false,
            missing,
        };
        // The working directory is judged as if its whole path had been named.
        walk.is_planted = from.is_none() && !path.is_absolute() && is_planted_folder(&walk.at);
        walk.ahead(path.as_os_str());
        Ok(walk)
    }

    /// Puts the names of a path before those that are left.
    fn ahead(&mut self, path: &OsStr) {
        let names = path.as_bytes().split(|byte| *byte == b'/');
        for name in names.rev().filter(|name| !matches!(*name, b"" | b".")) {
            self.names.push_front(OsStr::from_bytes(name).to_owned());
        }
    }

    fn ends_in_slash(&self) -> bool {
        let path = self.told.as_os_str().as_bytes();
        path.ends_with(b"/") || path.ends_with(b"/.")
    }

    fn failed(&self, error: Errno) -> OutputError {
        OutputError::io_error(self.told)(error.into())
    }

    fn end(mut self) -> Result<PathLookup, OutputError> {
        loop {
            // A path of dots alone is the folder itself.
            let Some(name) = self.names.pop_front() else {
                let thing = open_folder(&self.at, OsStr::new(".")).map_err(|e| self.failed(e))?;
                let stat = fstat(&thing).map_err(|error| self.failed(error))?;
                return Ok(self.found(OsString::from("."), PathKind::Thing(thing, stat)));
            };
            let last = self.names.is_empty();
            let thing = match self.look(&name) {
                Err(Errno::NOENT) if let MissingDirectories::Made(made) = self.missing => {
                    self.make(&name, made)?;
                    self.names.push_front(name);
                    continue;
                }
                Err(Errno::NOENT) if last => {
                    if let Some(number) = self.own_descriptor(&name) {
                        return Ok(self.found(name, PathKind::Descriptor(number)));
                    }
                    // No file can be called so.
                    return match self.ends_in_slash() && !self.as_folder {
                        true => Err(self.failed(Errno::ISDIR)),
                        false => Ok(self.found(name, PathKind::Nothing)),
                    };
                }
                thing => thing.map_err(|error| self.failed(error))?,
            };
            let stat = fstat(&thing).map_err(|error| self.failed(error))?;
            self.is_planted |= self.is_strangers_folder(&stat)?;
            if is(&stat, FileType::Symlink) {
                if let Some(what) = self.link(&name, &thing, &stat)? {
                    return Ok(self.found(name, what));
                }
                continue;
            }
            if !is(&stat, FileType::Directory) && (!last || self.ends_in_slash()) {
                return Err(self.failed(Errno::NOTDIR));
            }
            if last {
                return Ok(self.found(name, PathKind::Thing(thing, stat)));
            }
            self.way.push(&name);
            self.at = thing;
        }
    }

    /// What has a name, by a path descriptor. A folder is opened as one, since only that has the kernel mount what
    /// belongs there (automounts; open(2), O_PATH).
    fn look(&self, name: &OsStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let thing = openat(&self.at, name, flags, Mode::empty())?;
        match is(&fstat(&thing)?, FileType::Directory) {
            true => openat(&self.at, name, flags | OFlags::DIRECTORY, Mode::empty()),
            false => Ok(thing),
        }
    }

    fn is_strangers_folder(&self, stat: &Stat) -> Result<bool, OutputError> {
        if !is(stat, FileType::Directory) {
            return Ok(false);
        }
        let above = fstat(&self.at).map_err(|error| self.failed(error))?;
        Ok(is_strangers_in_shared(stat, &above))
    }

    fn found(self, name: OsString, what: PathKind) -> PathLookup {
        PathLookup {
            folder: self.at,
            name,
            what,
        }
    }

    fn make(&self, name: &OsStr, made: &NewNames) -> Result<(), OutputError> {
        match made.create_folder(&self.at, name) {
            Ok(()) | Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Follows a link, or says where it ends the walk.
    fn link(
        &mut self,
        name: &OsStr,
        link: &OwnedFd,
        stat: &Stat,
    ) -> Result<Option<PathKind>, OutputError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self.failed(Errno::LOOP));
        }
        let file_system = fstatfs(&self.at).map_err(|error| self.failed(error))?;
        if file_system.f_type as u64 == PROC {
            return self.proc_link(name);
        }
        let folder = fstat(&self.at).map_err(|error| self.failed(error))?;
        let is_trusted = match self.is_planted {
            true => is_own(stat.st_uid),
            false => is_trusted(stat.st_uid, &folder),
        };
        if !is_trusted {
            return Err(OutputError::StrangersLink {
                path: self.told.to_owned(),
                link: self.way.join(name),
                uid: stat.st_uid,
            });
        }
        // Of the link that was looked at, whatever has its name by now (readlinkat(2)).
        let text = readlinkat(link, "", Vec::new()).map_err(|error| self.failed(error))?;
        let text = OsString::from_vec(text.into_bytes());
        let path = Path::new(&text);
        if path.is_absolute() {
            self.at = open_folder(CWD, OsStr::new("/")).map_err(|error| self.failed(error))?;
            self.way = PathBuf::from("/");
            self.is_planted = false;
        }
        self.ahead(&text);
        Ok(None)
    }

    /// The number of a descriptor of this process, open or not.
    fn own_descriptor(&self, name: &OsStr) -> Option<RawFd> {
        let name = name.to_str()?;
        let number: RawFd = name.parse().ok()?;
        // `+1`, `01` and `-1` are no names that /proc gives.
        (number >= 0 && number.to_string() == name).then_some(())?;
        is_own_descriptors(&self.at).then_some(number)
    }

    /// Links of /proc lead by themselves, not by their texts.
    fn proc_link(&mut self, name: &OsStr) -> Result<Option<PathKind>, OutputError> {
        if !self.names.is_empty() {
            self.at = open_folder(&self.at, name).map_err(|error| self.failed(error))?;
            self.way.push(name);
            // A working directory or a descriptor: the way to it was not walked here.
            self.is_planted |= is_planted_folder(&self.at);
            return Ok(None);
        }
        if let Some(number) = self.own_descriptor(name) {
            return Ok(Some(PathKind::Descriptor(number)));
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let thing = openat(&self.at, name, flags, Mode::empty());
        let thing = thing.map_err(|error| self.failed(error))?;
        let stat = fstat(&thing).map_err(|error| self.failed(error))?;
        Ok(Some(match is(&stat, FileType::RegularFile) {
            true => PathKind::Foreign,
            false => PathKind::Thing(thing, stat),
        }))
    }
}

fn start(path: &Path) -> &OsStr {
    OsStr::new(if path.is_absolute() { "/" } else { "." })
}

fn open_folder(at: impl AsFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Whether the folder lists the descriptors of this process or thread.
fn is_own_descriptors(folder: &OwnedFd) -> bool {
    let Ok(here) = fstat(folder) else {
        return false;
    };
    ["/proc/self/fd", "/proc/thread-self/fd"]
        .iter()
        .filter_map(|own| stat(*own).ok())
        .any(|own| (own.st_dev, own.st_ino) == (here.st_dev, here.st_ino))
}

/// Whether what `uid` made in a folder was made by somebody whom the caller trusts there.
fn is_trusted(uid: u32, folder: &Stat) -> bool {
    is_own(uid) || uid == folder.st_uid
}

/// Root's, or the caller's.
fn is_own(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

/// Whether a folder is a stranger's, and lies in one where others may write.
fn is_strangers_in_shared(folder: &Stat, above: &Stat) -> bool {
    !is_own(folder.st_uid) && above.st_mode & SHARED != 0
}

/// Whether an open folder, or one above it, is a stranger's in one where others may write. One that cannot be
/// looked at counts as such.
fn is_planted_folder(folder: &OwnedFd) -> bool {
    let climb = || -> io::Result<bool> {
        let mut at = open_folder(folder, OsStr::new("."))?;
        loop {
            let above = open_folder(&at, OsStr::new(".."))?;
            let (below, stat) = (fstat(&at)?, fstat(&above)?);
            let is_same = (below.st_dev, below.st_ino) == (stat.st_dev, stat.st_ino);
            // A folder that is mounted in itself is above itself, and not the top.
            if is_same && mount_id(&at)? == mount_id(&above)? {
                return Ok(false);
            }
            if is_strangers_in_shared(&below, &stat) {
                return Ok(true);
            }
            at = above;
        }
    };
    climb().unwrap_or(true)
}

/// Refuses a file of a stranger in a folder in which everybody makes files.
pub(super) fn no_strangers_file(
    path: &Path,
    folder: &OwnedFd,
    file: &Stat,
) -> Result<(), OutputError> {
    let above = fstat(folder).map_err(|error| OutputError::io_error(path)(error.into()))?;
    let shared = above.st_mode & STICKY != 0 && above.st_mode & SHARED != 0;
    match shared && !is_trusted(file.st_uid, &above) {
        true => Err(OutputError::StrangersFile {
            path: path.to_owned(),
            uid: file.st_uid,
        }),
        false => Ok(()),
    }
}

/// Whether the folder is sticky, and neither it nor the file is the caller's.
pub(super) fn is_held_by_sticky(folder: &OwnedFd, file: &Stat) -> io::Result<bool> {
    let above = fstat(folder)?;
    let caller = rustix::process::geteuid();
    let own = [above.st_uid, file.st_uid].contains(&caller.as_raw());
    Ok(above.st_mode & STICKY != 0 && !own && !caller.is_root())
}

/// The mount that a descriptor lies on, by the kernel's number (proc_pid_fdinfo(5)).
pub(super) fn mount_id(of: &impl AsFd) -> io::Result<Option<String>> {
    let path = format!("/proc/self/fdinfo/{}", of.as_fd().as_raw_fd());
    let text = std::fs::read_to_string(path)?;
    let mut lines = text.lines();
    Ok(lines.find_map(|line| Some(line.strip_prefix("mnt_id:")?.trim().to_owned())))
}

/// The name under which /proc opens exactly what a descriptor stands for.
pub(super) fn proc_path(of: &impl AsFd) -> String {
    format!("/proc/self/fd/{}", of.as_fd().as_raw_fd())
}
