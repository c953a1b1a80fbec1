//! An image as an OCI image layout: a folder that every tool of the field reads (image
//! specification, "Image Layout").

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sconce_base::direct_io::DirectReader;
use sconce_base::output::{
    DirectoryDestination, OutputDestination, OutputDirectory, OutputError, OutputFile, OutputForm,
};
use sconce_schema::{Hint, Progress, Sha256, exit};
use sconce_store::{Store, StoreError};
use sha2::Digest as _;

use crate::layer::{put_file, write_end_of_archive, write_padding};
use crate::local_image::{LocalError, LocalImage};
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageIndex, Platform, media};

/// The annotation by which a layout's index names an image.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// The list of images in a layout, and more bytes than any has.
const INDEX: &str = "index.json";
const MAX_INDEX_BYTES: u64 = 64 << 20;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// The file that says that a folder is a layout, and what it says.
const MARK: &str = "oci-layout";
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
/// stay. Layers are copies, which share their blocks with the store's files where the file system can do that:
/// a layout is its user's to change.
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
    let mut index = match folder.read(INDEX, MAX_INDEX_BYTES) {
        Ok(bytes) => ImageIndex::from_json(&bytes).map_err(|_| occupied())?,
        // One whose writing ended early has no index yet.
        Err(_)
            if folder.read(MARK, VERSION.len() as u64 + 1).is_err()
                && holds_more(folder.path()) =>
        {
            return Err(occupied());
        }
        Err(_) => ImageIndex::new(Vec::new()),
    };
    folder.output_for(MARK, OutputForm::Text)?.write(VERSION)?;
    let blobs = folder.ensure_subdir("blobs")?.ensure_subdir("sha256")?;
    for (layer, source) in image.layer_blobs(store)? {
        place(&layer, &source, &blobs, store)?;
    }
    for bytes in [&image.config_bytes, &image.manifest_bytes] {
        let name = Digest::hash_bytes(bytes).to_hex();
        blobs.output_for(&name, OutputForm::Binary)?.write(bytes)?;
    }
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
    let is_layout = [INDEX, MARK].iter().any(|name| folder.join(name).exists());
    match holds_more(folder) && !is_layout {
        true => Err(LayoutError::Occupied {
            path: folder.to_owned(),
        }),
        false => Ok(found),
    }
}

/// Whether a folder holds more than the folders of a layout with nothing in them, which a build that a signal ended may
/// have left.
fn holds_more(folder: &Path) -> bool {
    let may_hold = [("", "blobs"), ("blobs", "sha256"), ("blobs/sha256", "")];
    may_hold.iter().any(|(parent, name)| {
        let entries = fs::read_dir(folder.join(parent)).into_iter().flatten();
        let is_other = |entry: fs::DirEntry| {
            entry.file_name() != *name || !entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        entries.flatten().any(is_other)
    })
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
    let docker = crate::docker_archive::render_manifest(
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
    put(MARK, VERSION, &mut out)?;
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
        let (mut hash, mut left) = (sha2::Sha256::new(), layer.size);
        let sent = reader.read_chunks(blob, layer.size, |bytes| {
            progress.advance(&name, bytes.len() as u64);
            hash.update(bytes);
            // No more than the header says.
            let fit = usize::try_from(left).map_or(bytes.len(), |left| bytes.len().min(left));
            left -= fit as u64;
            out.write_all(&bytes[..fit])
        });
        sent.map_err(io_error("read", blob))?.map_err(wrong)?;
        check_digest(layer, Digest(Sha256(hash.finalize().into())), store)?;
        write_padding(layer.size, &mut out).map_err(wrong)?;
        progress.done(&name);
    }
    write_end_of_archive(&mut out).map_err(wrong)?;
    Ok(out.finish()?)
}

/// Puts the file `source` of the store into `folder`, as a file of its own: whoever may write to the layout may
/// not write to the store.
fn place(
    layer: &Descriptor,
    source: &Path,
    folder: &OutputDirectory,
    store: &Store,
) -> Result<(), LayoutError> {
    let name = layer.digest.to_hex();
    let mut from = fs::File::open(source).map_err(io_error("read", source))?;
    if holds_blob(folder, &name, layer, &from) {
        return Ok(());
    }
    // It may be a name of the store's own file, which is not to be written to: layouts once had such names.
    let path = folder.path().join(&name);
    folder
        .remove_name(&name)
        .map_err(io_error("replace", &path))?;
    let mut out = folder.output_for(&name, OutputForm::Binary)?.open()?;
    let mut sink: Box<dyn io::Write> = match out.share_blocks(&from) {
        true => Box::new(io::sink()),
        false => Box::new(&mut out),
    };
    let found = hash_copy(&mut from, &mut sink).map_err(|error| match error {
        CopyError::Read(error) => io_error("read", source)(error),
        CopyError::Write(error) => io_error("write", &path)(error),
    })?;
    drop(sink);
    check_digest(layer, found, store)?;
    Ok(out.finish()?)
}

/// Whether the layout has a blob already, as a file that is not the store's own.
fn holds_blob(
    folder: &OutputDirectory,
    name: &str,
    layer: &Descriptor,
    of_store: &fs::File,
) -> bool {
    let look = || -> io::Result<bool> {
        let mut present = folder.open_file(name)?;
        let (there, own) = (present.metadata()?, of_store.metadata()?);
        let is_own = (there.dev(), there.ino()) == (own.dev(), own.ino());
        if is_own || there.len() != layer.size {
            return Ok(false);
        }
        let found = hash_copy(&mut present, &mut io::sink());
        Ok(found.is_ok_and(|found| found == layer.digest))
    };
    look().unwrap_or(false)
}

/// The side on which a copy failed.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

/// Copies all bytes and gives their digest.
fn hash_copy(from: &mut fs::File, to: &mut dyn io::Write) -> Result<Digest, CopyError> {
    let (mut hash, mut piece) = (sha2::Sha256::new(), vec![0; PIECE]);
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(Digest(Sha256(hash.finalize().into()))),
            Ok(n) => {
                hash.update(&piece[..n]);
                to.write_all(&piece[..n]).map_err(CopyError::Write)?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(CopyError::Read(error)),
        }
    }
}

/// Compares what was read of a layer's blob with its name.
pub(crate) fn check_digest(
    layer: &Descriptor,
    found: Digest,
    store: &Store,
) -> Result<(), LayoutError> {
    match found == layer.digest {
        true => Ok(()),
        false => {
            let damaged = store.remove_damaged_blob(&layer.digest.0, found.0);
            Err(LocalError::from(damaged).into())
        }
    }
}

/// Why a layer's blob could not be read or decompressed: where it is damaged, that says more.
pub(crate) fn unreadable_blob(
    layer: &Descriptor,
    blob: &Path,
    store: &Store,
    source: io::Error,
) -> LayoutError {
    match store.verify_blob(&layer.digest.0) {
        Err(damaged @ StoreError::Damaged { .. }) => LocalError::from(damaged).into(),
        _ => io_error("read", blob)(source),
    }
}

pub(crate) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> LayoutError {
    move |source| LayoutError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
