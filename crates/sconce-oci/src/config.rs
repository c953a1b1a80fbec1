//! The image configuration (image specification, "Image Configuration").

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Digest, DocumentError};

/// An image configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageConfiguration {
    /// When it was made, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// Go's name of the processor: `amd64`, `arm64`.
    pub architecture: String,
    /// `linux`.
    pub os: String,
    /// How it is run.
    #[serde(default)]
    pub config: Option<ExecutionDefaults>,
    /// Its layers.
    pub rootfs: RootFs,
    /// Where each layer comes from, lowest first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<History>>,
}

impl ImageConfiguration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub fn from_json(bytes: &[u8]) -> Result<Self, DocumentError> {
        super::parse_document(bytes)
    }
}

/// How an image is run when nothing else is said.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ExecutionDefaults {
    /// `user`, `uid`, `user:group` or `uid:gid`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Ports it listens on, `8888/tcp`. The values are empty objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed_ports: Option<BTreeMap<String, serde_json::Map<String, serde_json::Value>>>,
    /// `NAME=VALUE`, in order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// What is always run; `Cmd` follows as its arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// What is run unless something else is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cmd: Option<Vec<String>>,
    /// The working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// The signal that asks it to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// The layers of an image, not compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootFs {
    /// `layers`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The digest of each layer's tar archive, lowest first.
    pub diff_ids: Vec<Digest>,
}

/// What made a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// When, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// By what.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// A remark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// Whether it made no layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty_layer: Option<bool>,
}
