//! A folder that a user names for the program to write files in.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};

use super::error::OutputError;
use super::made::NewNames;
use super::unnamed_file::UnnamedFile;
use super::walk::{self, MissingDirectories};
use super::{OutputDestination, OutputForm, location};

/// A folder that was looked at: files can be written in it, or it can be made.
#[derive(Debug)]
pub struct DirectoryDestination {
    /// Where it is or will be, without links.
    real: PathBuf,
}

impl DirectoryDestination {
    /// Looks at `path`. Nothing is made.
    ///
    /// # Errors
    /// [`OutputError::NotAFolder`], for `-` too; what else keeps it from being written.
    pub fn for_path(path: &Path) -> Result<Self, OutputError> {
        let not_a_folder = || OutputError::NotAFolder {
            path: path.to_owned(),
        };
        if path.as_os_str() == "-" {
            return Err(not_a_folder());
        }
        let mut whole = path.to_owned();
        let mut links = 0;
        let mut above = whole.as_path();
        let folder = loop {
            match walk::resolve_dir(above, MissingDirectories::Refused) {
                Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {
                    // A link to what is not there yet: the folders are made where it leads.
                    if links < walk::MAX_LINKS
                        && let Some(target) = follow_last_link(&whole, above)
                    {
                        links += 1;
                        whole = target;
                        above = whole.as_path();
                        continue;
                    }
                    above = match above.parent() {
                        Some(above) if !above.as_os_str().is_empty() => above,
                        Some(_) => Path::new("."),
                        None => return Err(error),
                    };
                }
                Err(OutputError::NotAFolder { .. }) => return Err(not_a_folder()),
                found => break found?,
            }
        };
        let failed = OutputError::io_error(path);
        UnnamedFile::create_in(&folder, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let mut real = location::real_path(&folder).map_err(OutputError::io_error(path))?;
        let missing = whole.strip_prefix(above).unwrap_or(&whole).components();
        for part in missing {
            match part {
                Component::ParentDir => drop(real.pop()),
                Component::Normal(name) => real.push(name),
                _ => {}
            }
        }
        Ok(Self { real })
    }

    /// Returns where it is or will be, without links.
    #[must_use]
    pub fn real_path(&self) -> &Path {
        &self.real
    }

    /// Whether a file lies in it, or where it or a folder above it is to be.
    #[must_use]
    pub fn overlaps(&self, file: &OutputDestination) -> bool {
        let file = file.real_path();
        file.is_some_and(|file| {
            location::lies_in(&file, &self.real) || location::lies_in(&self.real, &file)
        })
    }

    /// Whether it lies in a folder, or is it.
    #[must_use]
    pub fn lies_in(&self, folder: &Path) -> bool {
        location::lies_in(&self.real, folder)
    }
}

/// Returns where `path` leads to where `above`, a beginning of it, is a link.
fn follow_last_link(path: &Path, above: &Path) -> Option<PathBuf> {
    let target = std::fs::read_link(above).ok()?;
    let beside = above.parent()?.join(target);
    let rest = path.strip_prefix(above).ok()?;
    Some(match rest.as_os_str().is_empty() {
        true => beside,
        false => beside.join(rest),
    })
}

/// A folder, held open: whatever its name leads to later, files are written into this one.
#[derive(Debug)]
pub struct OutputDirectory {
    folder: OwnedFd,
    path: PathBuf,
    /// It was made here, and what is made in it goes with it.
    is_new: bool,
    /// One for it and those in it.
    made: Rc<NewNames>,
}

impl OutputDirectory {
    /// Opens it, and makes what is missing of it. What was made goes again with this and the folders in it, unless
    /// they are kept ([`OutputDirectory::keep`]).
    ///
    /// # Errors
    /// As [`DirectoryDestination::for_path`].
    pub fn open_or_create(path: &Path) -> Result<Self, OutputError> {
        if path.as_os_str() == "-" {
            return Err(OutputError::NotAFolder {
                path: path.to_owned(),
            });
        }
        let made = Rc::new(NewNames::default());
        let folder = walk::resolve_dir(path, MissingDirectories::Made(&made))?;
        let mut opened = Self {
            folder,
            path: path.to_owned(),
            is_new: false,
            made,
        };
        // `new/../there` makes one, and is another.
        opened.is_new = !opened.made.is_empty() && opened.is_empty().unwrap_or(false);
        Ok(opened)
    }

    /// Keeps what was made: all that belongs into the folder is there.
    pub fn keep(&self) {
        self.made.keep();
    }

    /// A folder in it, which is made where it is missing.
    ///
    /// # Errors
    /// As [`OutputDirectory::open_or_create`].
    pub fn ensure_subdir(&self, name: &str) -> Result<Self, OutputError> {
        let path = self.path.join(name);
        let refused = OutputError::io_error(&path);
        let is_new = match self.made.create_folder(&self.folder, OsStr::new(name)) {
            Ok(()) => true,
            Err(rustix::io::Errno::EXIST) => false,
            Err(error) => return Err(refused(error.into())),
        };
        // Those that the program makes in it are no links.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.folder, name, flags, Mode::empty());
        Ok(Self {
            folder: folder.map_err(|error| refused(error.into()))?,
            path,
            is_new,
            made: Rc::clone(&self.made),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    ///
    /// # Errors
    /// As [`OutputDestination::for_path`].
    pub fn output_for(
        &self,
        name: &str,
        form: OutputForm,
    ) -> Result<OutputDestination, OutputError> {
        let path = self.path.join(name);
        let found = walk::from_folder(&self.folder, Path::new(name), &path)?;
        self.note_file(name).map_err(OutputError::io_error(&path))?;
        // None of its files is a descriptor.
        OutputDestination::of(&path, found, form, |_| {
            Err(io::ErrorKind::Unsupported.into())
        })
    }

    /// Whether nothing is in it.
    ///
    /// # Errors
    /// What the system says.
    pub fn is_empty(&self) -> io::Result<bool> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = openat(&self.folder, ".", flags, Mode::empty())?;
        for entry in Dir::new(open)? {
            if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What a file in it says, up to `most` bytes.
    ///
    /// # Errors
    /// What the system says; a link is no file of it.
    pub fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, name, flags, Mode::empty())?);
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Notes a file that goes with the folder. In one that was there, others may count on it by then.
    fn note_file(&self, name: &str) -> io::Result<()> {
        match self.is_new {
            true => Ok(self.made.add_file(&self.folder, OsStr::new(name))?),
            false => Ok(()),
        }
    }

    /// Opens a regular file in it for reading.
    ///
    /// # Errors
    /// What the system says; a link, a FIFO or a device is no file of it.
    pub fn open_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.folder, name, flags, Mode::empty())?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::other("it is not a regular file")),
        }
    }

    /// Takes the name away from what has it. Its other names stay, and nothing is written to it.
    ///
    /// # Errors
    /// What the system says, of a folder too.
    pub fn remove_name(&self, name: &str) -> io::Result<()> {
        match unlinkat(&self.folder, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
