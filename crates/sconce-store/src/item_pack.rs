//! Items of a store in one file, for machines that have a disk of their own: each reads the file once, from its
//! beginning to its end, in the place of tens of thousands of small ones over the network.
//!
//! It is `packed/<digest of the items' names>.tar.zst`, a tar archive (POSIX.1-2001 with GNU's long names) in one zstd
//! frame, with entries `KIND/KEY/content…`. Beside it a file `.json` says what is in it ([`ItemPack`]). An item never
//! changes, and so a pack is written once. Whoever unpacks one compares it with its SHA-256 before anything of it is an
//! item.

mod pack;
mod unpack;

use std::io;
use std::path::{Path, PathBuf};

use sconce_schema::{Bytes, Hint, exit};

use crate::StoreError;
use crate::tar_stream::TarError;

#[doc(no_inline)]
pub use sconce_schema::job::{ItemPack, PackedItem};
pub use unpack::UnpackOutcome;

/// How much of a file is read or written at once, bytes.
const CHUNK_BYTES: usize = 4 << 20;

/// Why a pack cannot be made, or not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The store's.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk has no room for what is in it.
    #[error("{} has {have} free, and the environment takes {need}", path.display())]
    NoSpace {
        /// The directory.
        path: PathBuf,
        /// What is needed.
        need: Bytes,
        /// What is free.
        have: Bytes,
    },
    /// The file is the right one, and is none that this program writes.
    #[error("{} cannot be unpacked: {why}", file.display())]
    Archive {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A file of an item that no package has.
    #[error("{} is neither a file nor a directory nor a link", path.display())]
    SpecialFile {
        /// The file.
        path: PathBuf,
    },
    /// An item that is to be packed and is not there.
    #[error("{kind} {key} has just been removed from the store")]
    Missing {
        /// Its kind.
        kind: String,
        /// Its key.
        key: String,
    },
}

impl PackError {
    fn from_tar(error: TarError, file: &Path) -> Self {
        let why = match error {
            TarError::Write { path, source } => {
                return StoreError::from_io("write", &path)(source).into();
            }
            TarError::Read { source, .. } => source.to_string(),
            TarError::Format(why) => why.to_owned(),
            TarError::Entry { name, why } => format!("`{name}` {why}"),
            TarError::TooLarge { limit, unit } => format!("it has more than {limit} {unit}"),
        };
        let file = file.to_owned();
        Self::Archive { file, why }
    }

    fn from_io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let failed = StoreError::from_io(what, path);
        move |source| failed(source).into()
    }
}

impl Hint for PackError {
    fn hint(&self) -> Option<String> {
        match self {
            // Of a pack, named by its file.
            Self::Store(StoreError::Hash { what, .. } | StoreError::Size { what, .. }) => {
                Some(format!("remove {what}, and submit the job again"))
            }
            Self::Store(error) => error.hint(),
            Self::NoSpace { .. } => Some(
                "make room there, or name another directory of the nodes, or `off`, as `local-store` of the target"
                    .to_owned(),
            ),
            Self::Archive { file, .. } => Some(format!(
                "remove {}, and submit the job again",
                file.display()
            )),
            Self::Missing { .. } => Some("submit it again".to_owned()),
            Self::SpecialFile { .. } => {
                Some("`local-store = \"off\"` of the target has nodes read the store itself".to_owned())
            }
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::NoSpace { .. } | Self::Missing { .. } | Self::SpecialFile { .. } => exit::STORE,
            Self::Archive { .. } => exit::VERIFY,
        }
    }
}
