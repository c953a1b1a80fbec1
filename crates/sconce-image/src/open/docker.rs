//! What `docker save` and `skopeo copy … docker-archive:` write (Docker image specification v1.2,
//! "Combined Image JSON + Filesystem Changeset Format"): configuration and layers, and a list that
//! names them. It has no manifest, so one is made, of these layers as they are.

use std::io::{self, Read};

use sconce_schema::{Progress, Sha256};
use sconce_store::Store;
use sconce_store::scoped_root::printable_name;
use serde::Deserialize;
use sha2::Digest as _;

use super::files::{ImageFiles, is_packed};
use super::{OpenError, store_if_runnable};
use crate::local_image::LocalImage;
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageManifest, Platform, media};

/// The list.
const LIST: &str = "manifest.json";

/// One image of the list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    layers: Option<Vec<String>>,
}

/// Reads the image `name`, or the only one.
pub(super) fn read_image(
    files: &ImageFiles,
    name: Option<&str>,
    platform: &Platform,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LocalImage, OpenError> {
    let document = |what: String| move |source| OpenError::Document { what, source };
    let list = files.read_document(LIST)?;
    let entries: Vec<Entry> = oci::parse_document(&list).map_err(document(format!("`{LIST}`")))?;
    let entry = meant(files, &entries, name)?;
    let config_bytes = files.read_document(&entry.config)?;
    let config = oci::ImageConfiguration::from_json(&config_bytes)
        .map_err(document("the configuration".to_owned()))?;
    let diff_ids = &config.rootfs.diff_ids;
    let names = entry.layers.as_deref().unwrap_or_default();
    if names.len() != diff_ids.len() {
        return Err(OpenError::Count {
            layers: names.len(),
            diff_ids: diff_ids.len(),
        });
    }
    let sizes = names.iter().map(|name| Ok(files.open(name)?.size));
    let sizes: Vec<u64> = sizes.collect::<Result<_, OpenError>>()?;
    let total = sizes.iter().copied().fold(0, u64::saturating_add);
    progress.stage("read", Some(total));
    let mut layers = Vec::with_capacity(names.len());
    for (name, diff_id) in names.iter().zip(diff_ids) {
        let layer = describe(files, name, *diff_id)?;
        let mut open = files.open(name)?;
        // What the archive calls it is anyone's text.
        let shown = layer.digest.to_short_hex();
        let told = |bytes| progress.advance(&shown, bytes);
        let file = printable_name(name.as_bytes());
        store.read_blob(&file, &mut open.reader, &layer.digest.0, layer.size, &told)?;
        progress.done(&shown);
        layers.push(layer);
    }
    let manifest = ImageManifest::new(Descriptor::for_bytes(media::CONFIG, &config_bytes), layers);
    store_if_runnable(oci::to_json(&manifest), config_bytes, platform, store)
}

/// The image that is meant. `name` may leave out where it comes from: `busybox:1` is
/// also `registry.example.org/library/busybox:1`.
fn meant<'a>(
    files: &ImageFiles,
    entries: &'a [Entry],
    name: Option<&str>,
) -> Result<&'a Entry, OpenError> {
    let tags = |entry: &'a Entry| entry.repo_tags.as_deref().unwrap_or_default();
    let ends = |tag: &str, name: &str| {
        let above = tag.strip_suffix(name);
        above.is_some_and(|above| above.is_empty() || above.ends_with('/'))
    };
    let named =
        |entry: &&'a Entry| name.is_none_or(|name| tags(entry).iter().any(|tag| ends(tag, name)));
    let found: Vec<&Entry> = entries.iter().filter(named).collect();
    let path = files.path.clone();
    let names = || entries.iter().flat_map(tags).cloned().collect();
    match (found.as_slice(), name) {
        ([only], _) => Ok(only),
        ([], None) => Err(OpenError::Missing {
            path,
            name: "image".to_owned(),
        }),
        ([], Some(name)) => Err(OpenError::Unknown {
            path,
            name: name.to_owned(),
            names: names(),
        }),
        _ => Err(OpenError::Ambiguous {
            path,
            names: names(),
        }),
    }
}

/// What a layer is. An archive's digest is the one that the configuration has; a compressed one is
/// read for its own.
fn describe(files: &ImageFiles, name: &str, diff_id: Digest) -> Result<Descriptor, OpenError> {
    let mut open = files.open(name)?;
    let mut head = Vec::new();
    let failed = |source| OpenError::File {
        path: files.path.join(printable_name(name.as_bytes())),
        source,
    };
    let first = open.reader.by_ref().take(4).read_to_end(&mut head);
    first.map_err(failed)?;
    if !is_packed(&head) {
        return Ok(Descriptor::new(media::LAYER, diff_id, open.size));
    }
    let kind = match head.starts_with(b"\x1f\x8b") {
        true => media::LAYER_GZIP,
        false => media::LAYER_ZSTD,
    };
    let mut hash = sha2::Sha256::new();
    let mut chunk = vec![0; 256 << 10];
    let mut rest = io::Cursor::new(head).chain(open.reader);
    loop {
        match rest.read(&mut chunk).map_err(failed)? {
            0 => break,
            n => hash.update(&chunk[..n]),
        }
    }
    let digest = Digest(Sha256(hash.finalize().into()));
    Ok(Descriptor::new(kind, digest, open.size))
}
