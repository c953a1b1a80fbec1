//! Local images to and from registries, with what belongs to them: lists of packages, the lock,
//! provenance and signatures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sconce_schema::{Hint, Lock, Progress, Sha256, exit};
use sconce_store::{Store, StoreError};

use crate::local_image::{LocalError, LocalImage};
use crate::open::{self, OpenError};
use crate::provenance::{self, LOCAL_BUILDER, ProvenanceInput};
use crate::sbom::{self, PackageMetadata, SbomSubject};
use sconce_oci as oci;
use sconce_oci::{Descriptor, Digest, ImageManifest, Platform, media};
use sconce_registry::sign::{
    self, AttachmentError, Claim, ClaimError, KeyError, MAX_PAYLOAD_BYTES, PublicKey, SigningKey,
    UnverifiedSignature, VerificationFailure,
};
use sconce_registry::{
    self, Blob, BlobSource, ManifestDocument, PushSummary, Reference, ReferenceError, Registry,
    RegistryError,
};

/// The kinds of what is attached to an image: artifact types and, at once, media types.
const SPDX: &str = "application/spdx+json";
const CYCLONEDX: &str = "application/vnd.cyclonedx+json";
const PROVENANCE: &str = "application/vnd.in-toto+json";
const LOCK: &str = "application/vnd.sconce.lock.v1+toml";

/// Why an image could not be pushed, pulled, signed or verified.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The registry, or the way to it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The image is not complete here.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The name of a signature's place.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The signing key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The name cannot be signed.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The signatures that are there cannot be read.
    #[error(transparent)]
    Attachment(#[from] AttachmentError),
    /// No signature is good.
    #[error(transparent)]
    Unverified(#[from] VerificationFailure),
    /// It cannot be kept as an image of this machine.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The image is not in the registry.
    #[error("there is no image {reference}")]
    Absent {
        /// Its reference.
        reference: String,
    },
    /// A file that was fetched is gone.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Hint for PublishError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Registry(error) => error.hint(),
            Self::Local(error) => error.hint(),
            Self::Store(error) => error.hint(),
            Self::Key(error) => error.hint(),
            Self::Reference(error) => error.hint(),
            Self::Claim(_) => Some("a signature names HOST/PATH:TAG".to_owned()),
            Self::Attachment(error) => error.hint(),
            Self::Unverified(error) => error.hint(),
            Self::Open(error) => error.hint(),
            Self::Absent { .. } | Self::File { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Registry(error) => error.exit_code(),
            Self::Local(error) => error.exit_code(),
            Self::Store(error) => error.exit_code(),
            Self::Key(error) => error.exit_code(),
            Self::Reference(error) => error.exit_code(),
            Self::Claim(_) => exit::USAGE,
            Self::Attachment(error) => error.exit_code(),
            Self::Unverified(error) => error.exit_code(),
            Self::Open(error) => error.exit_code(),
            Self::Absent { .. } => exit::FETCH,
            Self::File { .. } => exit::STORE,
        }
    }
}

/// Pushes a local image, and what its lock says of it as artifacts that refer to it.
///
/// # Errors
/// [`PublishError`]. What got there stays and is skipped the next time.
pub fn push(
    registry: &Registry,
    image: &LocalImage,
    to: &Reference,
    mount_from: &[String],
    facts: &BTreeMap<Sha256, PackageMetadata>,
    store: &Store,
    progress: &dyn Progress,
) -> Result<PushSummary, PublishError> {
    let blob = |(descriptor, path)| Blob {
        descriptor,
        content: BlobSource::File(path),
    };
    let whole = sconce_registry::PushArtifact {
        layers: image.layer_blobs(store)?.into_iter().map(blob).collect(),
        config: Blob {
            descriptor: image.manifest.config.clone(),
            content: BlobSource::Bytes(image.config_bytes.clone()),
        },
        manifest: ManifestDocument {
            media_type: media::MANIFEST.to_owned(),
            bytes: image.manifest_bytes.clone(),
        },
    };
    let total = image.manifest.layers.iter().map(|layer| layer.size).sum();
    progress.stage("push", Some(total));
    let pushed = registry.push_images(to, &[whole], None, mount_from, progress);
    if let Err(RegistryError::ChangedSource { wanted, .. }) = &pushed {
        store.verify_blob(&wanted.0)?;
    }
    let pushed = pushed?;
    if let Some(lock) = image.load_lock(store)? {
        for artifact in artifacts(image, to, &lock, facts) {
            registry.attach_artifact(to, &artifact, progress)?;
        }
    }
    Ok(pushed)
}

/// What refers to an image that was built from `lock`.
fn artifacts(
    image: &LocalImage,
    to: &Reference,
    lock: &Lock,
    facts: &BTreeMap<Sha256, PackageMetadata>,
) -> Vec<sconce_registry::PushArtifact> {
    let name = to.path();
    let subject = SbomSubject {
        name,
        manifest: Some(image.digest),
        lock,
        facts,
        created_s: 0,
    };
    let lock_text = lock.to_text().into_bytes();
    let build = ProvenanceInput {
        image: name,
        manifest: image.digest,
        spec: None,
        lock_file: Digest::hash_bytes(&lock_text).0,
        lock,
        builder: LOCAL_BUILDER,
    };
    let documents = [
        (SPDX, sbom::spdx(&subject)),
        (CYCLONEDX, sbom::cyclonedx(&subject)),
        (PROVENANCE, provenance::render_statement(&build)),
        (LOCK, lock_text),
    ];
    let of = Descriptor::for_bytes(media::MANIFEST, &image.manifest_bytes);
    documents
        .into_iter()
        .map(|(kind, bytes)| artifact(kind, bytes, &of))
        .collect()
}

/// An artifact of one document (image specification, "Guidelines for Artifact Usage").
fn artifact(kind: &str, bytes: Vec<u8>, subject: &Descriptor) -> sconce_registry::PushArtifact {
    const EMPTY: &[u8] = b"{}";
    let mut manifest = ImageManifest::new(
        Descriptor::for_bytes(media::EMPTY, EMPTY),
        vec![Descriptor::for_bytes(kind, &bytes)],
    );
    manifest.artifact_type = Some(kind.to_owned());
    manifest.subject = Some(subject.clone());
    image_of(&manifest, EMPTY.to_vec(), vec![bytes])
}

/// A manifest with its blobs in memory.
fn image_of(
    manifest: &ImageManifest,
    config: Vec<u8>,
    layers: Vec<Vec<u8>>,
) -> sconce_registry::PushArtifact {
    let blob = |(descriptor, bytes): (&Descriptor, Vec<u8>)| Blob {
        descriptor: descriptor.clone(),
        content: BlobSource::Bytes(bytes),
    };
    sconce_registry::PushArtifact {
        layers: manifest.layers.iter().zip(layers).map(blob).collect(),
        config: blob((&manifest.config, config)),
        manifest: ManifestDocument {
            media_type: media::MANIFEST.to_owned(),
            bytes: oci::to_json(manifest),
        },
    }
}

/// Brings an image into the store: every blob verified, only what is missing fetched.
///
/// # Errors
/// [`PublishError`]. What was complete stays.
pub fn pull(
    registry: &Registry,
    from: &Reference,
    platform: &Platform,
    store: &Store,
    progress: &dyn Progress,
) -> Result<LocalImage, PublishError> {
    let resolved = registry.resolve_manifest(from, platform, progress)?;
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| PublishError::File { path, source }
    };
    // On the store's file system, so that complete files are moved into it. Of two that pull one image, the
    // second finds what the first has brought.
    let name = format!("pull-{}", resolved.digest.to_hex());
    let (folder, _held) = store.partial_folder(&name, &format!("pulls {from}"), progress)?;
    let at = from.with_digest(resolved.document.digest());
    let has = |digest: &Digest| store.find_blob(&digest.0).is_some();
    let pulled = registry.pull_image(&at, platform, &folder, &has, progress)?;
    for (layer, path) in resolved.manifest.layers.iter().zip(&pulled.layers) {
        // Not there if the store has it, or after the same layer came before.
        if path.exists() {
            store.adopt_blob(path, &layer.digest.0)?;
        }
    }
    let config = fs::read(&pulled.config).map_err(file(&pulled.config))?;
    let image = open::store_if_runnable(resolved.document.bytes, config, platform, store)?;
    let _ = fs::remove_dir_all(&folder);
    Ok(image)
}

/// Signs what `reference` names in the registry, beside the signatures that are there, and gives
/// the digest that was signed.
///
/// # Errors
/// [`PublishError`].
pub fn sign(
    registry: &Registry,
    reference: &Reference,
    key: &SigningKey,
    progress: &dyn Progress,
) -> Result<Digest, PublishError> {
    let digest = found(registry, reference)?;
    let claim = Claim::new(&name(reference), digest)?;
    let signature = sign::sign_claim(key, &claim)?;
    let at = reference_to(reference, &sign::signature_tag(&digest))?;
    let present = signatures(registry, &at, progress)?;
    let attachment = sign::attach_signature(&digest, present.as_deref(), &signature)?;
    let manifest = ImageManifest::from_json(&attachment.manifest).map_err(AttachmentError::from)?;
    // Payloads of signatures that were there are there still; only the new one is sent.
    let new = Digest::hash_bytes(&attachment.payload);
    let layers = manifest.layers.iter().filter(|layer| layer.digest == new);
    let blob = |descriptor: &Descriptor, bytes: &[u8]| Blob {
        descriptor: descriptor.clone(),
        content: BlobSource::Bytes(bytes.to_vec()),
    };
    let image = sconce_registry::PushArtifact {
        layers: layers
            .map(|layer| blob(layer, &attachment.payload))
            .collect(),
        config: blob(&manifest.config, &attachment.config),
        manifest: ManifestDocument {
            media_type: media::MANIFEST.to_owned(),
            bytes: attachment.manifest.clone(),
        },
    };
    registry.push_images(&at, &[image], None, &[], progress)?;
    Ok(digest)
}

/// Whether one of `keys` has signed what `reference` names. Gives the digest that is good.
///
/// # Errors
/// [`PublishError::Unverified`] says of each signature why it is not; and the others.
pub fn verify(
    registry: &Registry,
    reference: &Reference,
    keys: &[PublicKey],
    progress: &dyn Progress,
) -> Result<Digest, PublishError> {
    let digest = found(registry, reference)?;
    let at = reference_to(reference, &sign::signature_tag(&digest))?;
    let listed = match signatures(registry, &at, progress)? {
        Some(manifest) => sign::parse_signatures(&manifest)?,
        None => Vec::new(),
    };
    let mut signed: Vec<(UnverifiedSignature, Vec<u8>)> = Vec::new();
    for one in listed {
        let mut payload = Vec::new();
        if one.layer.size <= MAX_PAYLOAD_BYTES as u64 {
            registry.fetch_blob(&at, &one.layer, &mut payload, progress)?;
        }
        signed.push((one, payload));
    }
    let pairs = signed
        .iter()
        .map(|(one, payload)| (one, payload.as_slice()));
    sign::verify_any_signature(pairs, keys, &digest, &name(reference))?;
    Ok(digest)
}

/// The digest of an image that must be there.
fn found(registry: &Registry, reference: &Reference) -> Result<Digest, PublishError> {
    if let Some(digest) = reference.digest() {
        return Ok(digest);
    }
    registry
        .resolve_digest(reference)?
        .ok_or_else(|| PublishError::Absent {
            reference: reference.to_string(),
        })
}

/// The manifest of the signatures at `at`, if there is one.
fn signatures(
    registry: &Registry,
    at: &Reference,
    progress: &dyn Progress,
) -> Result<Option<Vec<u8>>, PublishError> {
    let Some(digest) = registry.resolve_digest(at)? else {
        return Ok(None);
    };
    Ok(Some(registry.fetch_document(at, digest, progress)?.bytes))
}

/// The name that is signed: with its tag, without a digest.
fn name(reference: &Reference) -> String {
    let tag = reference.tag().map(|tag| format!(":{tag}"));
    format!(
        "{}/{}{}",
        reference.host(),
        reference.path(),
        tag.unwrap_or_default()
    )
}

/// Another tag of the same repository.
fn reference_to(reference: &Reference, tag: &str) -> Result<Reference, PublishError> {
    let text = format!("{}/{}:{tag}", reference.host(), reference.path());
    Ok(Reference::parse(&text, None)?)
}
