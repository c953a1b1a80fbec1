//! The written types of an OCI image: what the image specification (version 1.1) and the
//! distribution specification put into JSON.
//!
//! Fields are written in one fixed order, without white space, and an absent field is left out: the
//! same value is always the same bytes, so its digest says what it is. Foreign documents are read
//! with [`parse_document`], which bounds their size; fields that nobody here needs are passed over.
#![forbid(unsafe_code)]

mod config;
mod digest;
#[cfg(test)]
mod golden;
mod manifest;

pub use config::{ExecutionDefaults, History, ImageConfiguration, RootFs};
pub use digest::{Digest, DigestError};
pub use manifest::{Annotations, Descriptor, ImageIndex, ImageManifest, Platform, media};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest manifest, index or configuration that is read. Registries must take manifests of
/// 4 MiB (distribution specification, "Pushing Manifests").
pub const MAX_DOCUMENT_BYTES: usize = 4 << 20;

/// Why bytes are not the OCI document that was expected.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// More than [`MAX_DOCUMENT_BYTES`].
    #[error("it has {bytes} bytes; {MAX_DOCUMENT_BYTES} are the most")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not JSON, or not of the shape that the specification gives.
    #[error("it is not what the image specification describes")]
    Malformed(#[from] serde_json::Error),
    /// `schemaVersion` is another than 2.
    #[error("its schemaVersion is {found}; 2 is the only one in use")]
    Version {
        /// What it says.
        found: u32,
    },
}

/// Reads a document of an image.
///
/// # Errors
/// [`DocumentError`].
pub fn parse_document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DocumentError> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(DocumentError::TooLarge { bytes: bytes.len() });
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// The bytes of a document.
///
/// # Panics
/// Never: documents are plain data with text for keys.
#[must_use]
pub fn to_json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).expect("plain data is JSON")
}
