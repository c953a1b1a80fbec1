//! Images to a registry.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;

use sconce_schema::Progress;
use ureq::http::Method;

use super::client::{Endpoint, ManifestDocument, RegistryClient, RegistryRequest};
use super::error::{RegistryError, printable_text};
use super::pool::{TransferMeter, run_parallel};
use super::reference::{Reference, check_path};
use super::upload::{Blob, Upload, UploadOutcome};
use super::wire::RequestBody;
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, MAX_DOCUMENT_BYTES};

/// An image or another artifact to push: everything that its manifest names, and the manifest.
#[derive(Debug, Clone)]
pub struct PushArtifact {
    /// Its layers.
    pub layers: Vec<Blob>,
    /// Its configuration.
    pub config: Blob,
    /// Its manifest.
    pub manifest: ManifestDocument,
}

/// Blobs and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlobCount {
    /// How many.
    pub blobs: u64,
    /// Their bytes together.
    pub bytes: u64,
}

impl BlobCount {
    pub(super) fn add_blob(&mut self, bytes: u64) {
        self.blobs += 1;
        self.bytes += bytes;
    }
}

/// What a push came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSummary {
    /// The digest of what was pushed last: the index, or the manifest. With it the image is named
    /// for good.
    pub digest: Digest,
    /// Blobs that were sent.
    pub uploaded: BlobCount,
    /// Blobs that the registry took from another repository.
    pub mounted: BlobCount,
    /// Blobs that were there.
    pub skipped: BlobCount,
}

pub(super) fn push_images(
    client: &RegistryClient,
    to: &Reference,
    images: &[PushArtifact],
    index: Option<&ManifestDocument>,
    mount_from: &[String],
    progress: &dyn Progress,
) -> Result<PushSummary, RegistryError> {
    let incomplete = |why| RegistryError::Incomplete {
        reference: to.to_string(),
        why,
    };
    let last = check(images, index).map_err(incomplete)?;
    let digest = last.digest();
    if let Some(wanted) = to.digest()
        && wanted != digest
    {
        let why = format!("the reference says {wanted}, and the digest is {digest}");
        return Err(incomplete(why));
    }
    for from in mount_from {
        check_path(from).map_err(|why| RegistryError::Setting {
            setting: "mount_from",
            why: format!("`{}`: {why}", printable_text(from, 300)),
        })?;
    }
    let place = client.resolve_endpoint(to)?;
    let mut pushed = push_blobs(client, &place, images, mount_from, progress)?;
    for document in images.iter().map(|image| &image.manifest).chain(index) {
        push_manifest(client, &place, document, &document.digest().to_string())?;
    }
    let tag = to.tag().or(match to.digest() {
        Some(_) => None,
        None => Some("latest"),
    });
    if let Some(tag) = tag {
        push_manifest(client, &place, last, tag)?;
    }
    pushed.digest = digest;
    Ok(pushed)
}

/// Sends the blobs of `images`: layers first, then configurations.
pub(super) fn push_blobs(
    client: &RegistryClient,
    place: &Endpoint,
    images: &[PushArtifact],
    mount_from: &[String],
    progress: &dyn Progress,
) -> Result<PushSummary, RegistryError> {
    let mut seen = BTreeSet::new();
    let layers = images.iter().flat_map(|image| &image.layers);
    let layers: Vec<&Blob> = layers
        .filter(|blob| seen.insert(blob.descriptor.digest))
        .collect();
    let configs = images.iter().map(|image| &image.config);
    let configs: Vec<&Blob> = configs
        .filter(|blob| seen.insert(blob.descriptor.digest))
        .collect();
    let sizes = layers.iter().chain(&configs).map(|b| b.descriptor.size);
    progress.stage("push", sizes.reduce(u64::saturating_add));
    let mut pushed = PushSummary {
        digest: Digest::hash_bytes(b""),
        uploaded: BlobCount::default(),
        mounted: BlobCount::default(),
        skipped: BlobCount::default(),
    };
    let stop = AtomicBool::new(false);
    for group in [layers, configs] {
        let went = run_parallel(&group, client.settings.parallel, &stop, |blob| {
            let name = blob.descriptor.digest.to_string();
            let upload = Upload {
                client,
                place,
                blob,
                mount_from,
                meter: TransferMeter::new(progress, &stop, name),
            };
            upload.run()
        })?;
        for (blob, went) in group.iter().zip(went) {
            let tally = match went {
                UploadOutcome::Uploaded => &mut pushed.uploaded,
                UploadOutcome::Mounted => &mut pushed.mounted,
                UploadOutcome::Skipped => &mut pushed.skipped,
            };
            tally.add_blob(blob.descriptor.size);
        }
    }
    Ok(pushed)
}

/// Puts a manifest or an index under a digest or a tag. Returns the `OCI-Subject` that the registry
/// has heeded.
pub(super) fn push_manifest(
    client: &RegistryClient,
    place: &Endpoint,
    document: &ManifestDocument,
    name: &str,
) -> Result<Option<Digest>, RegistryError> {
    let url = place.resource_url(&format!("manifests/{name}"));
    let ask = RegistryRequest::new(Method::PUT, &url, place.push_scopes())
        .with_header("content-type", document.media_type.as_str());
    let send = || client.send_once(place, &ask, RequestBody::Bytes(&document.bytes));
    let mut tries = 0;
    let reply = loop {
        match client.wire.retry_transient(send) {
            // All blobs of it are there, and the digest was computed here. But distribution writes its
            // note of a blob in place, so that for a moment, while somebody else pushes the same one,
            // the note is empty, and the registry takes that for a wrong digest.
            Err(error) if error.misses_blobs() => {
                tries += 1;
                if tries > client.wire.config.retries {
                    return Err(error.with_attempt_count(tries));
                }
                client.wire.sleep_before_retry(tries, None);
            }
            reply => break reply?,
        }
    };
    let stated = reply.header("docker-content-digest");
    let wanted = document.digest();
    match stated.and_then(|text| text.parse().ok()) {
        Some(found) if found != wanted => Err(RegistryError::Digest {
            url: reply.redacted_url(),
            wanted,
            found,
        }),
        _ if reply.status >= 300 => Err(RegistryError::Protocol {
            url: reply.redacted_url(),
            why: "the manifest was sent, and it says otherwise",
        }),
        _ => {
            let subject = reply.header("oci-subject");
            Ok(subject.and_then(|text| text.trim().parse().ok()))
        }
    }
}

/// Checks that nothing is missing, and returns what is to be pushed last.
fn check<'a>(
    images: &'a [PushArtifact],
    index: Option<&'a ManifestDocument>,
) -> Result<&'a ManifestDocument, String> {
    for image in images {
        let bytes = &image.manifest.bytes;
        let manifest =
            oci::ImageManifest::from_json(bytes).map_err(|e| format!("a manifest: {e}"))?;
        let blobs = image.layers.iter().chain([&image.config]);
        let given: BTreeMap<_, _> = blobs
            .map(|blob| (blob.descriptor.digest, blob.descriptor.size))
            .collect();
        for Descriptor { digest, size, .. } in manifest.layers.iter().chain([&manifest.config]) {
            match given.get(digest) {
                None => return Err(format!("the blob {digest} is not given")),
                Some(found) if found != size => {
                    return Err(format!("{digest} is to have {size} bytes and has {found}"));
                }
                Some(_) => {}
            }
        }
    }
    let Some(index) = index else {
        return match images {
            [image] => Ok(&image.manifest),
            [] => Err("there is no image".to_owned()),
            _ => Err("there are several images and no index".to_owned()),
        };
    };
    if index.bytes.len() > MAX_DOCUMENT_BYTES {
        return Err("the index is too large".to_owned());
    }
    let read = oci::ImageIndex::from_json(&index.bytes).map_err(|e| format!("the index: {e}"))?;
    let given: BTreeSet<Digest> = images.iter().map(|i| i.manifest.digest()).collect();
    match read.manifests.iter().find(|d| !given.contains(&d.digest)) {
        Some(missing) => Err(format!("the manifest {} is not given", missing.digest)),
        None => Ok(index),
    }
}
