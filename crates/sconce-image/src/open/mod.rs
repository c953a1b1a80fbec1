//! Images of others into the store: an image layout as a folder or a tar archive, or what
//! `docker save` writes. Every blob is verified on its way in.
//!
//! [`store_if_runnable`] is the one door: whoever has brought the layers into the store, from a file or from a
//! registry, hands manifest and configuration to it. [`select_manifest`] finds a machine's image in an index.

mod docker;
mod error;
mod files;
mod layout;
mod select_manifest;
mod source;

use sconce_schema::Progress;
use sconce_store::scoped_root::printable_name;
use sconce_store::{Store, StoreError};

pub use error::OpenError;
pub use select_manifest::{MAX_INDEX_DEPTH, select_manifest};
pub use source::{ImageFormat, ImageSource};

use crate::local_image::{LocalError, LocalImage};
use files::ImageFiles;
use sconce_oci as oci;
use sconce_oci::{Digest, ImageManifest, Platform, media};

/// Reads an image from a file or a folder and keeps it among the local images, under its digest
/// alone: what it calls itself would take that name from another.
///
/// # Errors
/// [`OpenError`]; blobs that were read stay in the store.
pub fn load_image(
    source: &ImageSource,
    platform: &Platform,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LocalImage, OpenError> {
    let files = match source.kind {
        ImageFormat::Layout => ImageFiles::from_dir(&source.path),
        ImageFormat::LayoutArchive | ImageFormat::DockerArchive | ImageFormat::Archive => {
            ImageFiles::from_archive(&source.path, store, progress)?
        }
    };
    let name = source.name.as_deref();
    // What newer versions of `docker save` write is both; the layout has the layers as they were
    // pushed.
    let is_layout = match source.kind {
        ImageFormat::Layout | ImageFormat::LayoutArchive => true,
        ImageFormat::DockerArchive => false,
        ImageFormat::Archive => files.contains_file(layout::INDEX)?,
    };
    match is_layout {
        true => layout::read_image(&files, name, platform, store, progress),
        false => docker::read_image(&files, name, platform, store, progress),
    }
}

/// Keeps an image whose layers are in the store, if it is one that this machine can run. The bytes
/// of the documents are verified by whoever brings them: the manifest against the digest that was
/// asked for, the configuration here.
///
/// # Errors
/// [`OpenError`].
pub fn store_if_runnable(
    manifest_bytes: Vec<u8>,
    config_bytes: Vec<u8>,
    platform: &Platform,
    store: &Store,
) -> Result<LocalImage, OpenError> {
    let document = |what: &str| {
        let what = what.to_owned();
        move |source| OpenError::Document { what, source }
    };
    let manifest = ImageManifest::from_json(&manifest_bytes).map_err(document("the manifest"))?;
    let kind = &manifest.config.media_type;
    if ![media::CONFIG, media::DOCKER_CONFIG].contains(&kind.as_str()) {
        return Err(unsupported("configuration", kind));
    }
    let found = Digest::hash_bytes(&config_bytes);
    if found != manifest.config.digest {
        return Err(StoreError::Hash {
            what: "the image's configuration".to_owned(),
            expected: manifest.config.digest.0,
            found: found.0,
        }
        .into());
    }
    let config =
        oci::ImageConfiguration::from_json(&config_bytes).map_err(document("the configuration"))?;
    if config.rootfs.diff_ids.len() != manifest.layers.len() {
        return Err(OpenError::Count {
            layers: manifest.layers.len(),
            diff_ids: config.rootfs.diff_ids.len(),
        });
    }
    let there = Platform {
        architecture: config.architecture,
        os: config.os,
        variant: None,
    };
    if (&there.os, &there.architecture) != (&platform.os, &platform.architecture) {
        return Err(OpenError::for_others(platform, &[there]));
    }
    for layer in &manifest.layers {
        check_layer(&layer.media_type)?;
        if store.find_blob(&layer.digest.0).is_none() {
            let digest = layer.digest;
            return Err(LocalError::Gone { digest }.into());
        }
    }
    Ok(LocalImage::store_image(
        store,
        manifest_bytes,
        config_bytes,
        Vec::new(),
    )?)
}

/// Whether a layer's media type is one of a tar archive, before it is fetched. How it is compressed
/// is told by its bytes.
///
/// # Errors
/// [`OpenError::Unsupported`].
pub fn check_layer(media_type: &str) -> Result<(), OpenError> {
    let ends = [".tar", ".tar+gzip", ".tar+zstd", ".tar.gzip", ".tar.zstd"];
    match ends.iter().any(|end| media_type.ends_with(end)) {
        true => Ok(()),
        false => Err(unsupported("layer", media_type)),
    }
}

fn unsupported(what: &'static str, media_type: &str) -> OpenError {
    OpenError::Unsupported {
        what,
        media_type: printable_name(media_type.as_bytes()),
    }
}

#[cfg(test)]
mod tests;
