//! Descriptors, manifests and indexes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Digest, DocumentError};

/// Media types, of the OCI image specification and of Docker's image manifest version 2.
pub mod media {
    /// An image manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// An image index.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// An image configuration.
    pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    /// A layer, not compressed.
    pub const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
    /// A layer, by gzip.
    pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    /// A layer, by zstd.
    pub const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
    /// The two bytes `{}`, where an artifact has no configuration.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
    /// Docker's image manifest.
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// Docker's manifest list.
    pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    /// Docker's image configuration.
    pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
    /// Docker's layer, by gzip.
    pub const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    /// Docker's layer, not compressed.
    pub const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
}

/// Names and values that say something about a document or a blob.
pub type Annotations = BTreeMap<String, String>;

/// What another document refers to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Media type of what is referred to.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// For a manifest of an artifact: what kind of artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// For a manifest in an index: the machine it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

impl Descriptor {
    /// Describes `bytes`.
    #[must_use]
    pub fn for_bytes(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::hash_bytes(bytes), bytes.len() as u64)
    }

    /// A descriptor without anything optional.
    #[must_use]
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            artifact_type: None,
            platform: None,
            annotations: None,
        }
    }
}

/// The machine that an image is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Go's name of the processor: `amd64`, `arm64`.
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// `v8` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// An image manifest, also of an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageManifest {
    /// 2.
    pub schema_version: u32,
    /// [`media::MANIFEST`], where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// For an artifact: what kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The configuration.
    pub config: Descriptor,
    /// The layers, lowest first.
    pub layers: Vec<Descriptor>,
    /// The manifest that this one says something about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

impl ImageManifest {
    /// A manifest of `layers`, lowest first.
    #[must_use]
    pub fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media::MANIFEST.to_owned()),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: None,
        }
    }

    /// Reads a manifest.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_json(bytes: &[u8]) -> Result<Self, DocumentError> {
        let read: Self = super::parse_document(bytes)?;
        match read.schema_version {
            2 => Ok(read),
            found => Err(DocumentError::Version { found }),
        }
    }
}

/// An image index: the list of a layout, or one image for several machines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageIndex {
    /// 2.
    pub schema_version: u32,
    /// [`media::INDEX`], where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// The manifests.
    pub manifests: Vec<Descriptor>,
    /// What else is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
}

impl ImageIndex {
    /// An index of `manifests`.
    #[must_use]
    pub fn new(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media::INDEX.to_owned()),
            manifests,
            annotations: None,
        }
    }

    /// Reads an index.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_json(bytes: &[u8]) -> Result<Self, DocumentError> {
        let read: Self = super::parse_document(bytes)?;
        match read.schema_version {
            2 => Ok(read),
            found => Err(DocumentError::Version { found }),
        }
    }
}
