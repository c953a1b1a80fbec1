//! Files that a user names for the program to read.
//!
//! A path may lead to anything: a FIFO without a writer keeps whoever opens it waiting, a device may have no end.
//! So it is looked at first and opened without waiting, and what it says is known to end.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat, openat};
use rustix::io::Errno;

/// How long a FIFO may have no writer before somebody is told of the wait.
const PATIENCE: Duration = Duration::from_secs(1);
/// `/dev/null`, which ends at once (Documentation/admin-guide/devices.txt of Linux).
const NULL_DEVICE: (u32, u32) = (1, 3);

/// Why a path cannot be read as what it is named for. Found in an [`io::Error`] by [`UnusableInput::of`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnusableInput {
    /// Something else where only a regular file will do.
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    /// A device that never says that this was all.
    #[error("it is a device that has no end")]
    EndlessDevice,
    /// A file of the kernel's that waits for more.
    #[error("it has no end: it waits for more")]
    Waits,
    /// More than such a file ever has.
    #[error("it is larger than {0}, as no such file is")]
    TooLarge(sconce_schema::Bytes),
}

impl UnusableInput {
    /// The reason within an error of the system, where it is one of these.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// What to do instead.
    #[must_use]
    pub fn hint(self) -> &'static str {
        match self {
            Self::NotRegular(_) => "write it to a file of its own, and name that",
            Self::EndlessDevice => {
                "name a file, or a part of the device: <(head -c 1M DEVICE) instead of its name"
            }
            Self::Waits => {
                "name what is there now: of the kernel's log, <(dmesg) instead of its name"
            }
            Self::TooLarge(_) => "look whether it is the file that you mean",
        }
    }
}

impl From<UnusableInput> for io::Error {
    fn from(reason: UnusableInput) -> Self {
        let kind = match reason {
            UnusableInput::TooLarge(_) => io::ErrorKind::FileTooLarge,
            _ => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, reason)
    }
}

/// A file that is open for reading. To read what waits for more is an error.
#[derive(Debug)]
pub struct InputFile(File);

impl InputFile {
    /// The file itself.
    #[must_use]
    pub fn into_file(self) -> File {
        self.0
    }
}

impl Read for InputFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                Err(UnusableInput::Waits.into())
            }
            read => read,
        }
    }
}

/// Opens a regular file. Nothing else is opened: not even to look at it, as some devices act on that.
///
/// # Errors
/// [`UnusableInput::NotRegular`], and what the system says. A folder is opened; to read it is an error.
pub fn open_regular(path: &Path) -> io::Result<InputFile> {
    let refuse_other = |stat: &Stat| match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile | FileType::Directory => Ok(()),
        other => Err(UnusableInput::NotRegular(name_of(other))),
    };
    refuse_other(&rustix::fs::stat(path)?)?;
    let file = open(path)?;
    // What has come there since.
    refuse_other(&fstat(&file)?)?;
    Ok(InputFile(file))
}

/// Opens whatever ends: a regular file, a FIFO (such as `<(command)` of a shell is), a terminal, `/dev/null`. A
/// FIFO is waited for until somebody writes to it, as `cat` does; `tell_wait` is called where that takes longer.
///
/// # Errors
/// [`UnusableInput::EndlessDevice`], and what the system says.
pub fn open_stream(path: &Path, tell_wait: &dyn Fn()) -> io::Result<InputFile> {
    let stat = rustix::fs::stat(path)?;
    match FileType::from_raw_mode(stat.st_mode) {
        // Only once it is open it is known whether this is a terminal, which takes nothing of it.
        FileType::CharacterDevice | FileType::Fifo => {}
        FileType::BlockDevice => return Err(UnusableInput::EndlessDevice.into()),
        _ => return open_regular(path),
    }
    let file = open(path)?;
    check_stream(&file)?;
    let kind = FileType::from_raw_mode(fstat(&file)?.st_mode);
    if kind == FileType::Fifo && !wait_for_writer(&file, Some(PATIENCE))? {
        tell_wait();
        wait_for_writer(&file, None)?;
    }
    if kind != FileType::RegularFile {
        let flags = fcntl_getfl(&file)?;
        fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    }
    Ok(InputFile(file))
}

/// Looks whether what is open ends at some time.
///
/// # Errors
/// [`UnusableInput::EndlessDevice`], and what the system says.
pub fn check_stream(file: &impl AsFd) -> io::Result<()> {
    use std::io::IsTerminal as _;
    let stat = fstat(file)?;
    let device = (
        rustix::fs::major(stat.st_rdev),
        rustix::fs::minor(stat.st_rdev),
    );
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::CharacterDevice if device == NULL_DEVICE || file.as_fd().is_terminal() => Ok(()),
        FileType::CharacterDevice | FileType::BlockDevice => {
            Err(UnusableInput::EndlessDevice.into())
        }
        _ => Ok(()),
    }
}

/// Reads a regular file that has at most `limit` bytes.
///
/// # Errors
/// As [`open_regular`], and [`UnusableInput::TooLarge`].
pub fn read_regular(path: &Path, limit: sconce_schema::Bytes) -> io::Result<Vec<u8>> {
    read_up_to(open_regular(path)?, limit)
}

/// Reads all of it, which has at most `limit` bytes.
///
/// # Errors
/// [`UnusableInput::TooLarge`], and what the system says.
pub fn read_up_to(file: InputFile, limit: sconce_schema::Bytes) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One more, to tell what ends there from what goes on.
    file.take(limit.0.saturating_add(1))
        .read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit.0 {
        true => Err(UnusableInput::TooLarge(limit).into()),
        false => Ok(bytes),
    }
}

/// Opens without waiting: for a FIFO's writer, for a line's carrier; no terminal becomes the process's own.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?.into())
}

/// Whether somebody writes to a FIFO, or has, within a time. One that never had a writer is not ready for
/// anything (fs/pipe.c of Linux, `pipe_poll`).
fn wait_for_writer(file: &File, most: Option<Duration>) -> io::Result<bool> {
    let most = most.map(|most| Timespec {
        tv_sec: most.as_secs().cast_signed(),
        tv_nsec: 0,
    });
    loop {
        let mut files = [PollFd::new(file, PollFlags::IN)];
        match poll(&mut files, most.as_ref()) {
            Err(Errno::INTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mknodat;
    use sconce_schema::Bytes;
    use std::io::Write as _;

    fn fifo(folder: &tempfile::TempDir) -> std::path::PathBuf {
        let path = folder.path().join("fifo");
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        path
    }

    #[test]
    fn only_regular_files_of_a_size_are_read_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read_regular(&path, Bytes(5)).unwrap(), b"12345");
        let error = read_regular(&path, Bytes(4)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is larger than 4 B, as no such file is"
        );
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("fifo", &link).unwrap();
        for (path, kind) in [
            (fifo(&folder), "a FIFO"),
            (link, "a FIFO"),
            ("/dev/zero".into(), "a device"),
            ("/dev/null".into(), "a device"),
        ] {
            let error = open_regular(&path).unwrap_err();
            let reason = UnusableInput::of(&error);
            assert_eq!(reason, Some(UnusableInput::NotRegular(kind)), "{path:?}");
        }
        let absent = open_regular(Path::new("/nowhere")).unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
        assert!(read_regular(folder.path(), Bytes(5)).is_err());
    }

    #[test]
    fn a_stream_is_what_ends() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["/dev/zero", "/dev/urandom", "/dev/full"] {
            let error = open_stream(Path::new(path), &|| {}).unwrap_err();
            let reason = UnusableInput::of(&error);
            assert_eq!(reason, Some(UnusableInput::EndlessDevice), "{path}");
        }
        let read = |path: &Path| read_up_to(open_stream(path, &|| {}).unwrap(), Bytes(1 << 20));
        assert_eq!(read(Path::new("/dev/null")).unwrap(), b"");
        let path = folder.path().join("x");
        std::fs::write(&path, "12345").unwrap();
        assert_eq!(read(&path).unwrap(), b"12345");
        // More than a pipe holds, so that its reader has to wait in between.
        let path = fifo(&folder);
        let to = path.clone();
        let text = vec![7; 300_000];
        let written = text.clone();
        let writer = std::thread::spawn(move || {
            let mut file = File::options().write(true).open(to).unwrap();
            for piece in written.chunks(100_000) {
                file.write_all(piece).unwrap();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        assert!(read(&path).unwrap() == text);
        writer.join().unwrap();
    }

    /// An anonymous pipe by its path, as shells give it for `<(command)`, also when the command has ended.
    #[test]
    fn a_pipe_is_read_by_its_path() {
        use std::os::fd::AsRawFd as _;
        let (from, mut to) = io::pipe().unwrap();
        to.write_all(b"text").unwrap();
        drop(to);
        let path = format!("/dev/fd/{}", from.as_raw_fd());
        let file = open_stream(Path::new(&path), &|| {}).unwrap();
        assert_eq!(read_up_to(file, Bytes(9)).unwrap(), b"text");
    }
}
