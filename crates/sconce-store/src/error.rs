//! Why the store could not give what was asked for.

use std::io;
use std::path::{Path, PathBuf};

use sconce_schema::{Bytes, Hint, Sha256, exit};

use crate::wheel::WheelError;
use sconce_fetch::FetchError;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store's folder was written by a newer Sconce. It was left as it is.
    #[error("the store {} has format {found}; this Sconce knows up to {known}", root.display())]
    Newer {
        /// The store's folder.
        root: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// The store's version file is not a number.
    #[error("{} is not a store's version file: it says `{text}`", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says, cut to 40 characters.
        text: String,
    },
    /// A file or folder of the store could not be used.
    #[error("cannot {what} {}", path.display())]
    Disk {
        /// What was tried: `create`, `write`, `rename`, …
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that the caller has could not be read.
    #[error("cannot read {what}")]
    Read {
        /// What they are.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// A kind or key that cannot be the name of a folder.
    #[error("`{name}` cannot name an item of the store")]
    Name {
        /// The kind or key.
        name: String,
    },
    /// The store's file system has no locks, so that nothing tells what others do there.
    #[error("the file system of {} has no file locks", path.display())]
    NoLocks {
        /// The file that was to be locked.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store's file system is mounted so that other machines that use it do not see this one's locks.
    #[error("other machines do not see locks in {}: it is mounted with `{option}`", path.display())]
    LocalLocks {
        /// The store's folder.
        path: PathBuf,
        /// The mount option.
        option: &'static str,
    },
    /// The store is on this machine's disk, and other machines use it: they do not see locks that are taken here.
    #[error("other machines use this store, as {} says, and do not see this one's locks", mark.display())]
    OwnDisk {
        /// The file that one of them left.
        mark: PathBuf,
    },
    /// Another process removed an item that was there a moment before.
    #[error("{} has just been removed from the store", path.display())]
    Gone {
        /// Where it was.
        path: PathBuf,
    },
    /// The bytes could not be had.
    #[error("fetching failed")]
    Fetch(#[from] FetchError),
    /// The bytes are not the ones that were asked for. Nothing of them was kept.
    #[error("{what} has SHA-256 {found}, expected {expected}")]
    Hash {
        /// A URL or a name.
        what: String,
        /// The digest that was asked for.
        expected: Sha256,
        /// The digest of what came.
        found: Sha256,
    },
    /// A blob of the store has other bytes than its name says: something wrote to it, or the disk lost it.
    #[error("{} in the store is damaged: its SHA-256 is {found}, not {expected}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The digest that it is named by.
        expected: Sha256,
        /// The digest of its bytes.
        found: Sha256,
        /// Whether it was taken out of the store.
        is_removed: bool,
    },
    /// The size is not the one that was asked for. Nothing was kept.
    #[error("{what} has {found} bytes, expected {expected}")]
    Size {
        /// A URL or a name.
        what: String,
        /// Bytes that were asked for.
        expected: u64,
        /// Bytes that came, or that the server announced.
        found: u64,
    },
    /// The bytes are the right ones, but they are no wheel that can be installed.
    #[error("{file} cannot be installed")]
    Wheel {
        /// The wheel's file name.
        file: String,
        /// Why.
        source: WheelError,
    },
}

impl StoreError {
    /// For `map_err` after a file operation.
    pub(crate) fn from_io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk {
            what,
            path: path.to_owned(),
            source,
        }
    }
}

impl Hint for StoreError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Newer { .. } => Some("update Sconce, or give another store folder".to_owned()),
            Self::Version { .. } => Some("give the folder of a store, or a new folder".to_owned()),
            Self::Disk { source, path, .. } => disk_hint(source, path),
            Self::Fetch(e) => e.hint(),
            Self::Hash { .. } | Self::Size { .. } => Some(
                "the file changed where it is kept; if that is expected, make the lock anew"
                    .to_owned(),
            ),
            Self::Wheel { source, file } => match source {
                WheelError::Write { source, path } => disk_hint(source, path),
                _ => Some(format!("use another version of {file}'s project")),
            },
            Self::NoLocks { .. } => Some(
                "nothing tells what others use: mount it with locks (nfs: without `nolock`; lustre: with \
                 `flock`), or remove the store while nobody uses it"
                    .to_owned(),
            ),
            Self::LocalLocks { option, .. } => Some(format!(
                "nothing tells what others use: mount it without `{option}`, or remove the store while \
                 nobody uses it"
            )),
            Self::OwnDisk { mark } => Some(format!(
                "do it on one of them; if there is none any more, remove {}",
                mark.display()
            )),
            Self::Damaged {
                path, is_removed, ..
            } => Some(match is_removed {
                true => format!("it was removed; {BROUGHT_AGAIN}"),
                // Somebody uses it, or the disk refused.
                false => {
                    let folder = path.parent().unwrap_or(path).display();
                    format!("it could not be removed: remove {folder}; {BROUGHT_AGAIN}")
                }
            }),
            Self::Gone { .. } => Some("do it once more: it is brought again".to_owned()),
            Self::Name { .. } | Self::Read { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Newer { .. }
            | Self::Version { .. }
            | Self::Gone { .. }
            | Self::NoLocks { .. }
            | Self::LocalLocks { .. }
            | Self::OwnDisk { .. }
            | Self::Disk { .. } => exit::STORE,
            Self::Fetch(e) => e.exit_code(),
            Self::Hash { .. } | Self::Size { .. } | Self::Damaged { .. } => exit::VERIFY,
            Self::Wheel { source, .. } => match source {
                WheelError::Write { .. } => exit::STORE,
                WheelError::Zip(_)
                | WheelError::Name { .. }
                | WheelError::Twice { .. }
                | WheelError::NotAFile { .. }
                | WheelError::Metadata { .. } => exit::VERIFY,
            },
            Self::Read { .. } => exit::BAD_INPUT,
            Self::Name { .. } => exit::BUG,
        }
    }
}

/// How a part of an image comes back.
const BROUGHT_AGAIN: &str =
    "`sconce build` or `submit` makes it again, and an image from elsewhere is to be brought again";

fn disk_hint(source: &io::Error, path: &Path) -> Option<String> {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let free = rustix::fs::statvfs(path.ancestors().find(|p| p.exists())?)
                .map(|s| Bytes(s.f_bavail.saturating_mul(s.f_frsize)))
                .ok()?;
            Some(format!(
                "the disk is full ({free} free now that what was unfinished is removed); make \
                 room, or give another store folder"
            ))
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            Some("give a store folder that this user may write to".to_owned())
        }
        _ => None,
    }
}

/// A failure of [`crate::Store::build_tree`]: the store's or the caller's own.
#[derive(Debug, thiserror::Error)]
pub enum TreeBuildError<E> {
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the caller's function returned. The unfinished tree was removed.
    #[error("the tree could not be built")]
    Build(#[source] E),
}
