//! Why an image could not be read.

use std::io;
use std::path::PathBuf;

use sconce_base::input::UnusableInput;
use sconce_schema::{Hint, exit};
use sconce_store::StoreError;
use sconce_store::scoped_root::ScopedRootError;

use crate::local_image::LocalError;
use crate::unpack::TarError;
use sconce_oci::{DocumentError, Platform};

/// Why an image could not be read from a file or a folder.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store failed, or bytes are not what their digest says.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of local images.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file of the layout's folder could not be read.
    #[error(transparent)]
    Inside(#[from] ScopedRootError),
    /// Not a tar archive.
    #[error("{} is not an image's archive", path.display())]
    Tar {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: TarError,
    },
    /// Something is missing in the folder or archive.
    #[error("{} has no `{name}`", path.display())]
    Missing {
        /// The folder or archive.
        path: PathBuf,
        /// What is not in it.
        name: String,
    },
    /// A document is not what the specification describes.
    #[error("{what} of the image cannot be used")]
    Document {
        /// Which one.
        what: String,
        /// What is wrong with it.
        source: DocumentError,
    },
    /// No image in it has this name.
    #[error("{} has no image `{name}`; it has {}", path.display(), list(names))]
    Unknown {
        /// The folder or archive.
        path: PathBuf,
        /// What was asked for.
        name: String,
        /// What there is.
        names: Vec<String>,
    },
    /// There are several, and none was named.
    #[error("{} has several images: {}", path.display(), list(names))]
    Ambiguous {
        /// The folder or archive.
        path: PathBuf,
        /// Their names.
        names: Vec<String>,
    },
    /// It is for other machines.
    #[error("the image is not for {wanted}, but for {}", list(there))]
    Platform {
        /// This machine, as `linux/amd64`.
        wanted: String,
        /// The machines it is for.
        there: Vec<String>,
    },
    /// An index of indexes of indexes.
    #[error("the image's indexes lie too deep in each other")]
    TooDeep,
    /// Manifest and configuration do not belong together.
    #[error("the manifest has {layers} layers, the configuration {diff_ids}")]
    Count {
        /// Of the manifest.
        layers: usize,
        /// Of the configuration.
        diff_ids: usize,
    },
    /// Something that is not a container image.
    #[error("its {what} is of the kind `{media_type}`, which cannot be run")]
    Unsupported {
        /// `manifest`, `configuration` or `layer`.
        what: &'static str,
        /// Its media type.
        media_type: String,
    },
}

impl OpenError {
    /// An image for `there` where `wanted` is needed.
    #[must_use]
    pub fn for_others(wanted: &Platform, there: &[Platform]) -> Self {
        Self::Platform {
            wanted: shown(wanted),
            there: there.iter().map(shown).collect(),
        }
    }
}

/// As it is written for people.
fn shown(platform: &Platform) -> String {
    format!("{}/{}", platform.os, platform.architecture)
}

fn list(names: &[String]) -> String {
    const MAX_LISTED_NAMES: usize = 8;
    let shown: Vec<String> = names
        .iter()
        .take(MAX_LISTED_NAMES)
        .map(|name| {
            name.chars()
                .take(100)
                .flat_map(char::escape_debug)
                .collect()
        })
        .collect();
    match (names.len(), shown.join(", ")) {
        (0, _) => "none that has a name".to_owned(),
        (n, shown) if n > MAX_LISTED_NAMES => format!("{shown} and {} more", n - MAX_LISTED_NAMES),
        (_, shown) => shown,
    }
}

impl Hint for OpenError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Store(StoreError::Hash { .. } | StoreError::Size { .. }) => {
                "the file is damaged or was changed; get it again".to_owned()
            }
            Self::Store(error) => return error.hint(),
            Self::Local(error) => return error.hint(),
            Self::Missing { name, .. } if name.starts_with("blobs/") || name.ends_with(".tar") => {
                "what its own documents name is not there: it is not whole; get it again".to_owned()
            }
            Self::Missing { .. } | Self::Tar { .. } => {
                "an image is a folder or a tar archive that \
                 has `index.json` (an OCI layout) or `manifest.json` (`docker save`)"
                    .to_owned()
            }
            Self::Unknown { .. } | Self::Ambiguous { .. } => {
                "say which: oci:FOLDER:NAME, oci-archive:FILE:NAME or docker-archive:FILE:NAME"
                    .to_owned()
            }
            Self::Platform { .. } => "get the image that is for this machine".to_owned(),
            // A compressed archive is unpacked into the store before it is read.
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full; make room, or give another store folder".to_owned()
            }
            Self::File { source, .. } if UnusableInput::of(source).is_some() => {
                return Some(UnusableInput::of(source)?.hint().to_owned());
            }
            Self::TooDeep
            | Self::Count { .. }
            | Self::Unsupported { .. }
            | Self::File { .. }
            | Self::Inside(_)
            | Self::Document { .. } => return None,
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Local(error) => error.exit_code(),
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => exit::STORE,
            Self::File { .. }
            | Self::Inside(_)
            | Self::Tar { .. }
            | Self::Missing { .. }
            | Self::Document { .. }
            | Self::Unknown { .. }
            | Self::Ambiguous { .. }
            | Self::Platform { .. }
            | Self::TooDeep
            | Self::Count { .. }
            | Self::Unsupported { .. } => exit::BAD_INPUT,
        }
    }
}
