//! Why a wheel cannot be installed though its bytes are the right ones.

use std::io;
use std::path::PathBuf;

/// What is wrong with a wheel. Names are shown as the archive has them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ZipError {
    /// The file ends before the archive does.
    #[error("the archive is cut off at byte {at}")]
    CutOff {
        /// Offset in the file.
        at: u64,
    },
    /// Neither an entry nor the directory begins where one must.
    #[error("no zip record at byte {at}")]
    NoRecord {
        /// Offset in the file.
        at: u64,
    },
    /// A feature of zip that no wheel uses.
    #[error("`{name}` is {what}, which no wheel may have")]
    Unsupported {
        /// The entry.
        name: String,
        /// The feature.
        what: &'static str,
    },
    /// The compressed data do not inflate.
    #[error("the data of `{name}` are broken")]
    Data {
        /// The entry.
        name: String,
    },
    /// Size or checksum of an entry is not what the archive says.
    #[error("`{name}` has {what} {found}, the archive says {said}")]
    Differs {
        /// The entry.
        name: String,
        /// `size`, `compressed size` or `CRC-32`.
        what: &'static str,
        /// What the archive says.
        said: u64,
        /// What was found.
        found: u64,
    },
    /// The directory at the end does not describe the entries before it.
    #[error("the archive's directory does not agree with its entries: {why}")]
    Directory {
        /// Where they part.
        why: String,
    },
    /// More comes out than the caller allows.
    #[error("the archive unpacks to more than {limit} {unit}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// `bytes` or `entries`.
        unit: &'static str,
    },
    /// The sizes stand only in the directory at the end, so the file must be read from there.
    #[error("`{name}` is stored with its size behind it")]
    SizeBehind {
        /// The entry.
        name: String,
    },
}

/// Why a wheel cannot be installed.
#[derive(Debug, thiserror::Error)]
pub enum WheelError {
    /// The archive.
    #[error(transparent)]
    Zip(#[from] ZipError),
    /// A name that leads out of the tree, or that no file here can have.
    #[error("the entry `{name}` has an unusable name: {why}")]
    Name {
        /// The entry, made printable.
        name: String,
        /// Why it is unusable.
        why: &'static str,
    },
    /// Two entries would be the same file.
    #[error("`{name}` is there twice, or is a file and a folder")]
    Twice {
        /// The entry.
        name: String,
    },
    /// An entry that is neither file nor folder.
    #[error("the entry `{name}` is {what}; wheels hold files and folders")]
    NotAFile {
        /// The entry.
        name: String,
        /// What it is.
        what: &'static str,
    },
    /// The `.dist-info` folder is missing, not the only one, or incomplete.
    #[error("its metadata are unusable: {why}")]
    Metadata {
        /// What is wrong.
        why: String,
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
