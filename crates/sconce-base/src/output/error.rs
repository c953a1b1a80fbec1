//! Why a file that was asked for is not written.

use std::io;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use sconce_schema::{Hint, exit};

/// Why a file that was asked for is not written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The system refuses it.
    #[error("cannot write {}", path.display())]
    Io {
        /// As it was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A link on the way was made neither by the caller, nor by root, nor by the owner of its folder. As the kernel
    /// does in shared folders (`fs.protected_symlinks`), but in every folder and for every link of a path.
    #[error("cannot write {}: the link {} is user {uid}'s, in a folder of another", path.display(), link.display())]
    StrangersLink {
        /// As it was named.
        path: PathBuf,
        /// The link.
        link: PathBuf,
        /// Who made it.
        uid: u32,
    },
    /// In a sticky folder where others may write, the file is neither the caller's, nor root's, nor the folder's
    /// owner's (`fs.protected_regular`, `fs.protected_fifos`).
    #[error("cannot write {}: it is user {uid}'s, in a folder that is everybody's", path.display())]
    StrangersFile {
        /// As it was named.
        path: PathBuf,
        /// Who owns it.
        uid: u32,
    },
    /// A socket cannot be opened.
    #[error("cannot write {}: it is a socket", path.display())]
    Socket {
        /// As it was named.
        path: PathBuf,
    },
    /// The beginning is written last, which a descriptor, a FIFO or a terminal cannot do.
    #[error("cannot write {}: what is written there needs a regular file", path.display())]
    NotSeekable {
        /// As it was named.
        path: PathBuf,
    },
    /// A folder is made, and this is none.
    #[error("cannot write {}: what is written there needs a folder", path.display())]
    NotAFolder {
        /// As it was named.
        path: PathBuf,
    },
    /// Bytes that mean nothing on a terminal.
    #[error("cannot write {}: it is a terminal, and these bytes are no text", path.display())]
    Terminal {
        /// As it was named.
        path: PathBuf,
    },
    /// The descriptor was not handed to this program, or not for writing.
    #[error("cannot write {}: descriptor {number} is not open for writing", path.display())]
    Closed {
        /// As it was named.
        path: PathBuf,
        /// Its number.
        number: RawFd,
    },
    /// A file that another process has open, named by its descriptor there.
    #[error("cannot write {}: it is a file that another process has open", path.display())]
    Foreign {
        /// As it was named.
        path: PathBuf,
    },
    /// There is something, and nothing is replaced.
    #[error("there is a {} already", path.display())]
    Exists {
        /// As it was named.
        path: PathBuf,
    },
}

impl OutputError {
    /// What the system says of writing `path`.
    pub fn io_error(path: &Path) -> impl Fn(io::Error) -> Self + Copy {
        move |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }

    /// What the system said, where it did.
    #[must_use]
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

impl Hint for OutputError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Io { path, source } => match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    "the disk is full; make room, or write elsewhere".to_owned()
                }
                io::ErrorKind::IsADirectory => "give the name of a file".to_owned(),
                io::ErrorKind::NotFound => match path.parent() {
                    Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
                        match find_dangling_link(folder) {
                            Some((link, target)) => format!(
                                "the link {} leads to {}, which is not there: make that, or name a place \
                                 elsewhere",
                                link.display(),
                                target.display()
                            ),
                            None => format!("make the folder first: mkdir -p {}", folder.display()),
                        }
                    }
                    _ => "no file can be made there; name one elsewhere".to_owned(),
                },
                io::ErrorKind::BrokenPipe => {
                    "what reads it ended before all was written".to_owned()
                }
                _ => return None,
            },
            Self::StrangersLink { .. } => {
                "name the file that it leads to, if that is the one you mean".to_owned()
            }
            Self::StrangersFile { .. } => {
                "write under another name, or into a folder of your own".to_owned()
            }
            Self::Socket { .. } => {
                "write to `-`, into a pipe to what speaks to the socket".to_owned()
            }
            Self::NotSeekable { .. } => "name a file, and read that when it is complete".to_owned(),
            Self::NotAFolder { .. } => "name a folder, or one that is not there yet".to_owned(),
            Self::Terminal { .. } => "name a file, or pipe it into a program".to_owned(),
            Self::Closed { number, .. } => match number {
                0..=2 => "name a file".to_owned(),
                number => format!("open it in the shell: {number}>FILE"),
            },
            Self::Foreign { .. } => "name the file itself".to_owned(),
            Self::Exists { .. } => "give another name, or move it away".to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NotSeekable { .. }
            | Self::NotAFolder { .. }
            | Self::Terminal { .. }
            | Self::Closed { .. }
            | Self::Foreign { .. } => exit::USAGE,
            Self::Io { .. }
            | Self::StrangersLink { .. }
            | Self::StrangersFile { .. }
            | Self::Socket { .. }
            | Self::Exists { .. } => exit::STORE,
        }
    }
}

/// The first link of a path that leads to nothing, and where it leads. No folder can be made under its name.
fn find_dangling_link(path: &Path) -> Option<(&Path, PathBuf)> {
    let mut above: Vec<&Path> = path.ancestors().collect();
    above.reverse();
    above.into_iter().find_map(|path| {
        let target = std::fs::read_link(path).ok()?;
        (!path.exists()).then_some((path, target))
    })
}
