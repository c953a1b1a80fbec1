//! Debian packages to trees (deb(5)): an `ar` archive of two tar archives.
//!
//! No maintainer script is run and none is kept; of `postinst` it is read which names it asks for. Names and links are followed inside the target
//! folder as if it were the root of the file system, so that packages that install through
//! `/lib -> usr/lib` work and none can reach outside.

mod alternatives;
mod ar;
mod control;
mod unpack;

pub use alternatives::Alternative;
pub use control::DebControl;
pub use unpack::{DebLimits, unpack, unpack_file};

use std::io;
use std::path::PathBuf;

use sconce_schema::{Hint, exit};

use crate::tar_stream::TarError;

/// Why a Debian package could not be unpacked. The target folder is then incomplete.
#[derive(Debug, thiserror::Error)]
pub enum DebError {
    /// The package's file could not be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The package's bytes cannot be read: cut off, or broken compressed data.
    #[error("cannot read {member}")]
    Read {
        /// The member of the package.
        member: String,
        /// What the reader or the decompressor said.
        source: io::Error,
    },
    /// Not a Debian package, or one of another format.
    #[error("not a Debian package: {why}")]
    Format {
        /// What is wrong.
        why: String,
    },
    /// A name or a link that cannot be followed inside the tree.
    #[error("the entry `{name}` {why}")]
    Entry {
        /// The entry, made printable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// More comes out than the caller allows.
    #[error("the package unpacks to more than {limit} {unit}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// `bytes` or `entries`.
        unit: &'static str,
    },
    /// A file of the tree could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl From<TarError> for DebError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Read { archive, source } => Self::Read {
                member: archive,
                source,
            },
            TarError::Format(why) => Self::format(why),
            TarError::Entry { name, why } => Self::Entry { name, why },
            TarError::TooLarge { limit, unit } => Self::TooLarge { limit, unit },
            TarError::Write { path, source } => Self::Write { path, source },
        }
    }
}

impl DebError {
    fn format(why: impl Into<String>) -> Self {
        Self::Format { why: why.into() }
    }
}

impl Hint for DebError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Open { .. } => None,
            Self::Write { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => Some("the disk is full; make room".to_owned()),
                _ => None,
            },
            _ => Some("leave this package out, or use another mirror or version".to_owned()),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Open { .. } | Self::Write { .. } => exit::STORE,
            Self::Read { .. }
            | Self::Format { .. }
            | Self::Entry { .. }
            | Self::TooLarge { .. } => exit::VERIFY,
        }
    }
}
