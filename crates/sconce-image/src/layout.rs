//! An image as an OCI image layout: a folder that every tool of the field reads (image
//! specification, "Image Layout").

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sconce_schema::{Hint, exit};
use sconce_store::Store;

use crate::local::{Image, LocalError};
use crate::oci::{self, Descriptor, Digest, Index, Platform, media};

/// The annotation by which a layout's index names an image.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Why a layout could not be written.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The image is not complete in the store.
    #[error(transparent)]
    Image(#[from] LocalError),
    /// A file could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is something else at the place.
    #[error("{} is there and is no image layout", path.display())]
    Occupied {
        /// The place.
        path: PathBuf,
    },
}

impl Hint for LayoutError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Image(error) => error.hint(),
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("the disk is full; make room, or write elsewhere".to_owned())
            }
            Self::File { .. } => None,
            Self::Occupied { .. } => Some("give a new folder, or that of a layout".to_owned()),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Image(error) => error.exit_code(),
            Self::File { .. } => exit::STORE,
            Self::Occupied { .. } => exit::BAD_INPUT,
        }
    }
}

/// The descriptor of an image in an index.
pub(crate) fn entry(image: &Image, name: Option<&str>) -> Result<Descriptor, LocalError> {
    let config = image.config()?;
    let mut descriptor = Descriptor::of(media::MANIFEST, &image.manifest_bytes);
    descriptor.platform = Some(Platform {
        architecture: config.architecture,
        os: config.os,
        variant: None,
    });
    let named = |name: &str| [(REF_NAME.to_owned(), name.to_owned())].into();
    descriptor.annotations = name.map(named);
    Ok(descriptor)
}

/// Writes `image` into the layout `folder`, which is made if it is not there; other images in it
/// stay. Layers are hard links to the store's files where that is possible, and nobody may write
/// to them.
///
/// # Errors
/// [`LayoutError`]. The layout names the image only when all of it is there.
pub fn write_folder(
    image: &Image,
    name: Option<&str>,
    store: &Store,
    folder: &Path,
) -> Result<(), LayoutError> {
    let index_file = folder.join("index.json");
    let mut index = match fs::read(&index_file) {
        Ok(bytes) => Index::parse(&bytes).map_err(|_| LayoutError::Occupied {
            path: folder.to_owned(),
        })?,
        Err(_) if fs::read_dir(folder).is_ok_and(|mut dir| dir.next().is_some()) => {
            return Err(LayoutError::Occupied {
                path: folder.to_owned(),
            });
        }
        Err(_) => Index::new(Vec::new()),
    };
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs).map_err(file("create", &blobs))?;
    for (layer, source) in image.blobs(store)? {
        place(&source, &blobs.join(layer.digest.hex()))?;
    }
    for bytes in [&image.config_bytes, &image.manifest_bytes] {
        write_whole(&blobs.join(Digest::of(bytes).hex()), bytes)?;
    }
    write_whole(
        &folder.join("oci-layout"),
        br#"{"imageLayoutVersion":"1.0.0"}"#,
    )?;
    let entry = entry(image, name)?;
    index.manifests.retain(|other| {
        let named = |d: &Descriptor| d.annotations.as_ref()?.get(REF_NAME).cloned();
        other.digest != entry.digest && (name.is_none() || named(other) != named(&entry))
    });
    index.manifests.push(entry);
    write_whole(&index_file, &oci::write(&index))
}

/// Puts the file `source` of the store at `target`.
fn place(source: &Path, target: &Path) -> Result<(), LayoutError> {
    if target.exists() {
        return Ok(());
    }
    if fs::hard_link(source, target).is_ok() {
        return Ok(());
    }
    let fresh = fresh(target);
    fs::copy(source, &fresh)
        .and_then(|_| fs::rename(&fresh, target))
        .map_err(|source| {
            let _ = fs::remove_file(&fresh);
            LayoutError::File {
                action: "write",
                path: target.to_owned(),
                source,
            }
        })
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), LayoutError> {
    let fresh = fresh(path);
    let written = fs::write(&fresh, bytes).and_then(|()| fs::rename(&fresh, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&fresh);
        LayoutError::File {
            action: "write",
            path: path.to_owned(),
            source,
        }
    })
}

fn fresh(path: &Path) -> PathBuf {
    path.with_extension(format!("tmp-{}", std::process::id()))
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    move |source| LayoutError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
