//! An OCI image layout (image specification, "Image Layout").

use sconce_schema::Progress;
use sconce_store::{Store, StoreError};

use super::files::ImageFiles;
use super::{OpenError, check_layer, select_manifest, store_if_runnable};
use crate::local_image::LocalImage;
use sconce_oci::{Annotations, Descriptor, Digest, ImageIndex, ImageManifest, Platform};

/// The list of a layout.
pub(super) const INDEX: &str = "index.json";
/// The annotations by which it names an image: the specification's, and containerd's, which has
/// the whole name where the other has the tag alone.
const NAMES: [&str; 2] = [
    "io.containerd.image.name",
    "org.opencontainers.image.ref.name",
];

/// Reads the image `name`, or the only one.
pub(super) fn read_image(
    files: &ImageFiles,
    name: Option<&str>,
    platform: &Platform,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LocalImage, OpenError> {
    let document = |what: &str| {
        let what = what.to_owned();
        move |source| OpenError::Document { what, source }
    };
    let index =
        ImageIndex::from_json(&files.read_document(INDEX)?).map_err(document("the index"))?;
    let get = |descriptor: &Descriptor| verified(files, descriptor.digest);
    let meant = meant(files, &index, name, platform)?;
    let found = select_manifest::select_manifest(&meant, platform, &get)?;
    let manifest_bytes = get(&found)?;
    let manifest = ImageManifest::from_json(&manifest_bytes).map_err(document("the manifest"))?;
    let config_bytes = verified(files, manifest.config.digest)?;
    let total = manifest.layers.iter().map(|layer| layer.size);
    progress.stage("read", Some(total.fold(0, u64::saturating_add)));
    for layer in &manifest.layers {
        check_layer(&layer.media_type)?;
        let name = blob(layer.digest);
        let mut open = files.open(&name)?;
        // Room is set aside for what is announced, so it is compared first.
        if open.size != layer.size {
            return Err(StoreError::Size {
                what: name,
                expected: layer.size,
                found: open.size,
            }
            .into());
        }
        let shown = layer.digest.to_short_hex();
        let told = |bytes| progress.advance(&shown, bytes);
        store.read_blob(&name, &mut open.reader, &layer.digest.0, layer.size, &told)?;
        progress.done(&shown);
    }
    store_if_runnable(manifest_bytes, config_bytes, platform, store)
}

/// The entry of the index that `name` names. Without a name there must be one image only, or one
/// only for this machine.
fn meant(
    files: &ImageFiles,
    index: &ImageIndex,
    name: Option<&str>,
    platform: &Platform,
) -> Result<Descriptor, OpenError> {
    let named = |d: &&Descriptor| {
        name.is_none_or(|name| names(d.annotations.as_ref()).any(|other| other == name))
    };
    let mut candidates: Vec<&Descriptor> = index.manifests.iter().filter(named).collect();
    // An image of several names stands there several times.
    let mut seen = std::collections::BTreeSet::new();
    candidates.retain(|candidate| seen.insert(candidate.digest));
    if candidates.len() > 1 {
        let fits = |d: &Descriptor| {
            let same =
                |p: &Platform| p.os == platform.os && p.architecture == platform.architecture;
            d.platform.as_ref().is_some_and(same)
        };
        let fitting: Vec<&Descriptor> = candidates.iter().copied().filter(|d| fits(d)).collect();
        if fitting.len() == 1 {
            candidates = fitting;
        }
    }
    let all = || {
        let all = index.manifests.iter();
        all.flat_map(|d| names(d.annotations.as_ref()).map(str::to_owned))
            .collect()
    };
    match (candidates.as_slice(), name) {
        ([only], _) => Ok((*only).clone()),
        ([], Some(name)) => Err(OpenError::Unknown {
            path: files.path.clone(),
            name: name.to_owned(),
            names: all(),
        }),
        ([], None) => Err(OpenError::Missing {
            path: files.path.clone(),
            name: "image".to_owned(),
        }),
        _ => Err(OpenError::Ambiguous {
            path: files.path.clone(),
            names: all(),
        }),
    }
}

fn names(annotations: Option<&Annotations>) -> impl Iterator<Item = &str> {
    let get = move |name: &&str| annotations?.get(*name).map(String::as_str);
    NAMES.iter().filter_map(get)
}

fn blob(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.to_hex())
}

/// A document, if its bytes are what the digest says.
fn verified(files: &ImageFiles, digest: Digest) -> Result<Vec<u8>, OpenError> {
    let name = blob(digest);
    let bytes = files.read_document(&name)?;
    let found = Digest::hash_bytes(&bytes);
    if found != digest {
        return Err(StoreError::Hash {
            what: name,
            expected: digest.0,
            found: found.0,
        }
        .into());
    }
    Ok(bytes)
}
