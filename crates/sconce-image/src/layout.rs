//! An image as an OCI image layout: a folder that every tool of the field reads (image
//! specification, "Image Layout").

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sconce_base::direct::DirectReader;
use sconce_base::output::{
    DirectoryDestination, OutputDestination, OutputDirectory, OutputError, OutputFile, OutputForm,
};
use sconce_schema::{Hint, Progress, exit};
use sconce_store::Store;

use crate::layer::{put_file, write_end_of_archive, write_padding};
use crate::local::{LocalError, LocalImage};
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageIndex, Platform, media};

/// The annotation by which a layout's index names an image.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The list of images in a layout, and more bytes than any has.
const INDEX: &str = "index.json";
const MOST_INDEX: u64 = 64 << 20;

/// What the file `oci-layout` says.
const VERSION: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;

/// Why an image could not be written out.
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
    /// It cannot be written where it was asked for.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The configuration and the manifest name different numbers of layers.
    #[error("the image {digest} contradicts itself about its layers")]
    Layers {
        /// Its digest.
        digest: Digest,
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
            Self::Output(error) => error.hint(),
            Self::File { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("the disk is full; make room, or write elsewhere".to_owned())
            }
            Self::File { source, .. } if source.kind() == io::ErrorKind::BrokenPipe => {
                Some("what reads it ended before all was written".to_owned())
            }
            Self::File { .. } | Self::Layers { .. } => None,
            Self::Occupied { .. } => Some("give a new folder, or that of a layout".to_owned()),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Image(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
            Self::File { .. } => exit::STORE,
            Self::Occupied { .. } | Self::Layers { .. } => exit::BAD_INPUT,
        }
    }
}

/// The descriptor of an image in an index.
pub(crate) fn index_descriptor(
    image: &LocalImage,
    name: Option<&str>,
) -> Result<Descriptor, LocalError> {
    let config = image.parse_config()?;
    let mut descriptor = Descriptor::for_bytes(media::MANIFEST, &image.manifest_bytes);
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
/// [`LayoutError`]. The layout names the image only when all of it is there; of a folder that was made for it,
/// nothing is left then. In one that was there, layers that were complete stay: another image may have them by then.
pub fn write_folder(
    image: &LocalImage,
    name: Option<&str>,
    store: &Store,
    folder: &Path,
) -> Result<(), LayoutError> {
    let occupied = || LayoutError::Occupied {
        path: folder.to_owned(),
    };
    let folder = OutputDirectory::open_or_create(folder)?;
    let mut index = match folder.read(INDEX, MOST_INDEX) {
        Ok(bytes) => ImageIndex::from_json(&bytes).map_err(|_| occupied())?,
        Err(_) if !folder.is_empty().map_err(io_error("read", folder.path()))? => {
            return Err(occupied());
        }
        Err(_) => ImageIndex::new(Vec::new()),
    };
    let blobs = folder.ensure_subdir("blobs")?.ensure_subdir("sha256")?;
    for (layer, source) in image.layer_blobs(store)? {
        place(&source, &blobs, &layer.digest.to_hex())?;
    }
    for bytes in [&image.config_bytes, &image.manifest_bytes] {
        let name = Digest::hash_bytes(bytes).to_hex();
        blobs.output_for(&name, OutputForm::Binary)?.write(bytes)?;
    }
    folder
        .output_for("oci-layout", OutputForm::Text)?
        .write(VERSION)?;
    let entry = index_descriptor(image, name)?;
    index.manifests.retain(|other| {
        let named = |d: &Descriptor| d.annotations.as_ref()?.get(REF_NAME).cloned();
        other.digest != entry.digest && (name.is_none() || named(other) != named(&entry))
    });
    index.manifests.push(entry);
    folder
        .output_for(INDEX, OutputForm::Text)?
        .write(&oci::to_json(&index))?;
    folder.keep();
    Ok(())
}

/// Looks whether a layout can be written into `folder`, before there is an image.
///
/// # Errors
/// [`LayoutError`].
pub fn check_folder(folder: &Path) -> Result<DirectoryDestination, LayoutError> {
    let found = DirectoryDestination::for_path(folder)?;
    let has_others = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    match has_others && !folder.join(INDEX).exists() {
        true => Err(LayoutError::Occupied {
            path: folder.to_owned(),
        }),
        false => Ok(found),
    }
}

/// Writes `image` as a layout in one tar archive; a file there has all of it or is as it was. `manifest.json` beside the
/// index lets `docker load` before 25 read it too, if its layers are not of zstd.
///
/// # Errors
/// [`LayoutError`].
pub fn write_tar(
    image: &LocalImage,
    names: &[String],
    store: &Store,
    output: OutputDestination,
    progress: &dyn Progress,
) -> Result<(), LayoutError> {
    let blobs = image.layer_blobs(store)?;
    let name = |digest: &Digest| format!("blobs/sha256/{}", digest.to_hex());
    let documents = [&image.config_bytes, &image.manifest_bytes];
    let docker = crate::docker::render_manifest(
        &name(&image.manifest.config.digest),
        names,
        blobs.iter().map(|(layer, _)| name(&layer.digest)).collect(),
    );
    let index = oci::to_json(&ImageIndex::new(vec![index_descriptor(
        image,
        names.first().map(String::as_str),
    )?]));
    progress.stage(
        "export",
        Some(blobs.iter().map(|(layer, _)| layer.size).sum()),
    );
    let path = output.path().to_owned();
    let mut out = output.open()?;
    let wrong = |source| io_error("write", &path)(source);
    let put = |name: &str, bytes: &[u8], out: &mut OutputFile| {
        put_file(name, bytes.len() as u64, out).map_err(wrong)?;
        out.write_all(bytes).map_err(wrong)?;
        write_padding(bytes.len() as u64, out).map_err(wrong)
    };
    put("oci-layout", VERSION, &mut out)?;
    put(INDEX, &index, &mut out)?;
    put("manifest.json", &docker, &mut out)?;
    for bytes in documents {
        put(&name(&Digest::hash_bytes(bytes)), bytes, &mut out)?;
    }
    let mut reader = DirectReader::new();
    let mut written = Vec::new();
    for (layer, blob) in &blobs {
        if written.contains(&layer.digest) {
            continue;
        }
        written.push(layer.digest);
        let name = name(&layer.digest);
        put_file(&name, layer.size, &mut out).map_err(wrong)?;
        let sent = reader.read_chunks(blob, layer.size, |bytes| {
            progress.advance(&name, bytes.len() as u64);
            out.write_all(bytes)
        });
        sent.map_err(io_error("read", blob))?.map_err(wrong)?;
        write_padding(layer.size, &mut out).map_err(wrong)?;
        progress.done(&name);
    }
    write_end_of_archive(&mut out).map_err(wrong)?;
    Ok(out.finish()?)
}

/// Puts the file `source` of the store into `folder`.
fn place(source: &Path, folder: &OutputDirectory, name: &str) -> Result<(), LayoutError> {
    if folder.contains_name(name) || folder.add_hard_link(source, name) {
        return Ok(());
    }
    let output = folder.output_for(name, OutputForm::Binary)?;
    let path = output.path().to_owned();
    let mut from = fs::File::open(source).map_err(io_error("read", source))?;
    let mut out = output.open()?;
    io::copy(&mut from, &mut out).map_err(io_error("write", &path))?;
    Ok(out.finish()?)
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    move |source| LayoutError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
