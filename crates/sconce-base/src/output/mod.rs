//! Files that a user names for the program to write. All of them are written here.
//!
//! What a path leads to decides how it is written: a descriptor of this process (`-`, `/dev/stdout`,
//! `/dev/fd/N`) is duplicated, never opened again; a device or a FIFO is opened as the kernel opens it; a regular
//! file is replaced by a new one of the same mode and owner, which takes its name when it is complete, or is
//! written in place where that cannot be.
//!
//! The path is walked one name at a time from open folders, so that nothing can be swapped between a check and
//! its use. Links and files that strangers planted are refused: see [`OutputError::StrangersLink`] and
//! [`OutputError::StrangersFile`].

mod attributes;
mod error;
mod file;
mod folder;
mod location;
mod made;
#[cfg(test)]
mod place_tests;
mod stream;
#[cfg(test)]
mod tests;
mod unfinished;
mod unnamed_file;
mod walk;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, AtFlags, CWD, FileType, Mode, OFlags, Stat, accessat, fcntl_getfl, openat,
};
use rustix::io::Errno;

pub use error::OutputError;
pub use file::OutputFile;
pub use folder::{DirectoryDestination, OutputDirectory};
pub use stream::BlockingWriter;
pub use unfinished::{remove_unfinished, set_signal_watch};

use unfinished::UnfinishedName;
use unnamed_file::UnnamedFile;
use walk::{PathKind, PathLookup};

/// What `-` is called in errors.
const STANDARD_OUTPUT: &str = "standard output";

/// Duplicates an inherited descriptor by its number: safe Rust cannot. The duplicate shares the offset.
pub type DuplicateFd = fn(RawFd) -> io::Result<OwnedFd>;

/// What a destination must be able to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputForm {
    /// Text, written from beginning to end.
    Text,
    /// Bytes that mean nothing on a terminal, written from beginning to end.
    Binary,
    /// The same, but the beginning is written last.
    Seekable,
}

/// A destination that was looked at: it can be written, as far as that is known beforehand.
#[derive(Debug)]
pub struct OutputDestination {
    path: PathBuf,
    form: OutputForm,
    kind: Kind,
    for_everybody: bool,
}

#[derive(Debug)]
enum Kind {
    /// A duplicate of this descriptor.
    Descriptor(RawFd, File),
    /// A device, open.
    Device(File),
    /// A FIFO, as a path descriptor: it is opened when there is something to write.
    Fifo(OwnedFd),
    /// There is nothing of this name yet.
    New { folder: OwnedFd, name: OsString },
    /// A regular file that another one takes the place of.
    Replaced {
        folder: OwnedFd,
        name: OsString,
        present: File,
    },
    /// A regular file that must stay the same file.
    InPlace(File),
}

impl OutputDestination {
    /// Looks at where `path` leads. Nothing that is there is changed. `-` is standard output.
    ///
    /// # Errors
    /// [`OutputError`]: whatever is known to keep the path from being written.
    pub fn for_path(
        path: &Path,
        form: OutputForm,
        duplicate: DuplicateFd,
    ) -> Result<Self, OutputError> {
        if path.as_os_str() == "-" {
            return Self::descriptor_of(path, 1, form, duplicate);
        }
        let found = walk::from_here(path)?;
        Self::of(path, found, form, duplicate)
    }

    fn of(
        path: &Path,
        found: PathLookup,
        form: OutputForm,
        duplicate: DuplicateFd,
    ) -> Result<Self, OutputError> {
        let failed = OutputError::io_error(path);
        let PathLookup { folder, name, what } = found;
        let kind = match what {
            PathKind::Descriptor(number) => {
                return Self::descriptor_of(path, number, form, duplicate);
            }
            PathKind::Foreign => {
                return Err(OutputError::Foreign {
                    path: path.to_owned(),
                });
            }
            PathKind::Nothing => {
                // Whether a file can be made there is known once one was.
                UnnamedFile::create_in(&folder, Mode::RUSR | Mode::WUSR).map_err(failed)?;
                Kind::New { folder, name }
            }
            PathKind::Thing(thing, stat) => match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    return Err(OutputError::io_error(path)(Errno::ISDIR.into()));
                }
                FileType::Socket => {
                    return Err(OutputError::Socket {
                        path: path.to_owned(),
                    });
                }
                FileType::Fifo => {
                    if form == OutputForm::Seekable {
                        return Err(OutputError::NotSeekable {
                            path: path.to_owned(),
                        });
                    }
                    walk::no_strangers_file(path, &folder, &stat)?;
                    let at = walk::proc_path(&thing);
                    accessat(CWD, &at, Access::WRITE_OK, AtFlags::empty())
                        .map_err(|error| failed(error.into()))?;
                    Kind::Fifo(thing)
                }
                FileType::RegularFile => {
                    walk::no_strangers_file(path, &folder, &stat)?;
                    let present = reopened(&thing, OFlags::NONBLOCK).map_err(failed)?;
                    regular(folder, name, &stat, present).map_err(OutputError::io_error(path))?
                }
                _ => Kind::Device(device(path, &folder, (&thing, &stat), form)?),
            },
        };
        Ok(Self {
            path: path.to_owned(),
            form,
            kind,
            for_everybody: false,
        })
    }

    fn descriptor_of(
        path: &Path,
        number: RawFd,
        form: OutputForm,
        duplicate: DuplicateFd,
    ) -> Result<Self, OutputError> {
        let path = match path.as_os_str() == "-" {
            true => PathBuf::from(STANDARD_OUTPUT),
            false => path.to_owned(),
        };
        if form == OutputForm::Seekable {
            return Err(OutputError::NotSeekable { path });
        }
        let Ok(own) = duplicate(number) else {
            return Err(OutputError::Closed { path, number });
        };
        let flags =
            fcntl_getfl(&own).map_err(|error| OutputError::io_error(&path)(error.into()))?;
        let reads_only = flags & OFlags::ACCMODE == OFlags::RDONLY;
        if flags.contains(OFlags::PATH) || reads_only {
            return Err(OutputError::Closed { path, number });
        }
        refuse_terminal(&path, &own, form)?;
        Ok(Self {
            path,
            form,
            kind: Kind::Descriptor(number, own.into()),
            for_everybody: false,
        })
    }

    /// As it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The number of the descriptor that this leads to, 1 for standard output.
    #[must_use]
    pub fn descriptor_number(&self) -> Option<RawFd> {
        match self.kind {
            Kind::Descriptor(number, _) => Some(number),
            _ => None,
        }
    }

    /// Whether a file of this name is there, or will be: not so for descriptors, devices and FIFOs.
    #[must_use]
    pub fn is_file(&self) -> bool {
        matches!(
            self.kind,
            Kind::New { .. } | Kind::Replaced { .. } | Kind::InPlace(_)
        )
    }

    /// A new file is one that everybody reads, whatever the umask is, and lies on the disk when it is complete:
    /// a file of the machine.
    #[must_use]
    pub fn for_everybody(self) -> Self {
        Self {
            for_everybody: true,
            ..self
        }
    }

    /// Opens it for writing. A FIFO waits for its reader here.
    ///
    /// # Errors
    /// [`OutputError::Io`].
    pub fn open(self) -> Result<OutputFile, OutputError> {
        OutputFile::open(self)
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// [`OutputError::Io`]; a regular file that is replaced is as it was before, then.
    pub fn write(self, bytes: &[u8]) -> Result<(), OutputError> {
        let path = self.path.clone();
        let mut file = self.open()?;
        file.write_all(bytes)
            .map_err(OutputError::io_error(&path))?;
        file.finish()
    }
}

/// How a regular file that is there is written.
fn regular(folder: OwnedFd, name: OsString, stat: &Stat, present: File) -> io::Result<Kind> {
    // A file that is a mount of its own cannot be replaced (rename(2): EBUSY); in a sticky folder only by its
    // owner, the folder's or root; in one that lets no name go by nobody.
    if walk::mount_id(&folder)? != walk::mount_id(&present)?
        || walk::is_held_by_sticky(&folder, stat)?
        || unnamed_file::is_append_only(&folder)
    {
        return Ok(Kind::InPlace(present));
    }
    match UnnamedFile::create_in(&folder, Mode::RUSR | Mode::WUSR) {
        Ok(fresh) => Ok(match attributes::copy_owner(fresh.file(), stat) {
            Ok(()) => Kind::Replaced {
                folder,
                name,
                present,
            },
            // A new file would be another's.
            Err(_) => Kind::InPlace(present),
        }),
        Err(error) => match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Ok(Kind::InPlace(present))
            }
            _ => Err(error),
        },
    }
}

fn device(
    path: &Path,
    folder: &OwnedFd,
    (thing, stat): (&OwnedFd, &Stat),
    form: OutputForm,
) -> Result<File, OutputError> {
    walk::no_strangers_file(path, folder, stat)?;
    // A line without a carrier would keep the caller waiting.
    let opened = reopened(thing, OFlags::NONBLOCK).and_then(|file| {
        let flags = fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
        Ok(file)
    });
    let mut file = opened.map_err(OutputError::io_error(path))?;
    if form == OutputForm::Seekable && file.stream_position().is_err() {
        return Err(OutputError::NotSeekable {
            path: path.to_owned(),
        });
    }
    refuse_terminal(path, &file, form)?;
    Ok(file)
}

fn refuse_terminal(path: &Path, file: &impl AsFd, form: OutputForm) -> Result<(), OutputError> {
    use std::io::IsTerminal as _;
    match form != OutputForm::Text && file.as_fd().is_terminal() {
        true => Err(OutputError::Terminal {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

/// Opens what a path descriptor stands for, which is that very file whatever its name leads to by now. Neither
/// created nor truncated, and no terminal becomes the process's own.
fn reopened(thing: &OwnedFd, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::WRONLY | OFlags::NOCTTY | OFlags::CLOEXEC;
    loop {
        match openat(CWD, walk::proc_path(thing), flags, Mode::empty()) {
            Err(Errno::INTR) => {}
            opened => return Ok(opened.map(File::from)?),
        }
    }
}

/// A file that must not be there yet, such as a private key: nothing of any type is replaced, no link followed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    mode: u32,
}

impl NewFile {
    /// Looks whether the file can be made with the permissions `mode`, of which the umask takes some away.
    ///
    /// # Errors
    /// [`OutputError::Exists`], and what else is known to keep it from being made.
    pub fn for_path(path: &Path, mode: u32) -> Result<Self, OutputError> {
        let owned = || path.to_owned();
        let (folder, name) = walk::resolve_parent(path)?;
        let there = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW);
        match there {
            Err(Errno::NOENT) => {}
            Ok(_) => return Err(OutputError::Exists { path: owned() }),
            Err(error) => return Err(OutputError::io_error(path)(error.into())),
        }
        UnnamedFile::create_in(&folder, Mode::RUSR | Mode::WUSR)
            .map_err(OutputError::io_error(path))?;
        Ok(Self {
            path: owned(),
            folder,
            name,
            mode,
        })
    }

    /// As it was named.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns where it will lie, without links in its folder's path. `None` where the kernel does not say.
    #[must_use]
    pub fn real_path(&self) -> Option<PathBuf> {
        Some(location::real_path(&self.folder).ok()?.join(&self.name))
    }

    /// Makes the file. What was written of it goes again where not all could be.
    ///
    /// # Errors
    /// [`OutputError::Exists`] where something came there in the meantime; [`OutputError::Io`].
    pub fn write(&self, bytes: &[u8]) -> Result<(), OutputError> {
        let flags = OFlags::WRONLY
            | OFlags::CREATE
            | OFlags::EXCL
            | OFlags::NOFOLLOW
            | OFlags::NOCTTY
            | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(self.mode);
        let open = || openat(&self.folder, &self.name, flags, mode);
        let made = UnfinishedName::create(&self.folder, &self.name, AtFlags::empty(), open);
        let (mut file, unfinished) = match made {
            Ok((file, unfinished)) => (File::from(file), unfinished),
            Err(Errno::EXIST) => {
                return Err(OutputError::Exists {
                    path: self.path.clone(),
                });
            }
            Err(error) => return Err(OutputError::io_error(&self.path)(error.into())),
        };
        let written = file.write_all(bytes).and_then(|()| file.sync_data());
        written.map_err(OutputError::io_error(&self.path))?;
        unfinished.keep();
        Ok(())
    }

    /// Takes the file away again.
    pub fn remove(&self) {
        let _ = rustix::fs::unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}
