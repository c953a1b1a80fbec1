//! A folder that a user names for the program to write files in.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};

use super::error::OutputError;
use super::fresh::UnnamedFile;
use super::walk::{self, MissingDirectories};
use super::{OutputDestination, OutputForm};

/// A folder, held open: whatever its name leads to later, files are written into this one.
#[derive(Debug)]
pub struct OutputDirectory {
    folder: OwnedFd,
    path: PathBuf,
}

impl OutputDirectory {
    /// Looks whether `path` is a folder that can be written in, or can be made. Nothing is made.
    ///
    /// # Errors
    /// [`OutputError::NotAFolder`], for `-` too; what else keeps it from being written.
    pub fn check_writable(path: &Path) -> Result<(), OutputError> {
        let not_a_folder = || OutputError::NotAFolder {
            path: path.to_owned(),
        };
        if path.as_os_str() == "-" {
            return Err(not_a_folder());
        }
        let mut above = path;
        let folder = loop {
            match walk::resolve_dir(above, MissingDirectories::Refused) {
                Err(error) if error.io_kind() == Some(io::ErrorKind::NotFound) => {
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
        let tried = UnnamedFile::create_in(&folder, Mode::RUSR | Mode::WUSR);
        tried.map(drop).map_err(OutputError::io_error(path))
    }

    /// Opens it, and makes what is missing of it.
    ///
    /// # Errors
    /// As [`OutputDirectory::check_writable`].
    pub fn open_or_create(path: &Path) -> Result<Self, OutputError> {
        if path.as_os_str() == "-" {
            return Err(OutputError::NotAFolder {
                path: path.to_owned(),
            });
        }
        Ok(Self {
            folder: walk::resolve_dir(path, MissingDirectories::Made)?,
            path: path.to_owned(),
        })
    }

    /// A folder in it, which is made where it is missing.
    ///
    /// # Errors
    /// As [`OutputDirectory::check_writable`].
    pub fn ensure_subdir(&self, name: &str) -> Result<Self, OutputError> {
        let path = self.path.join(name);
        let refused = OutputError::io_error(&path);
        match rustix::fs::mkdirat(&self.folder, name, Mode::from_raw_mode(0o777)) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(refused(error.into())),
        }
        // Those that the program makes in it are no links.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = openat(&self.folder, name, flags, Mode::empty());
        Ok(Self {
            folder: folder.map_err(|error| refused(error.into()))?,
            path,
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
