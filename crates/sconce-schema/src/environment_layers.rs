//! What an assembled environment is made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Path of the Python environment inside every image: a virtual environment's layout on top of
/// Debian's interpreter, so that `site-packages` belongs to the lock alone.
pub const VENV: &str = "/opt/venv";

/// An environment that is ready to run: unpacked trees, lowest first, and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EnvironmentLayers {
    /// Trees to lay over each other, lowest first. Each is immutable and shared.
    pub layers: Vec<LayerTree>,
    /// Variables that the image sets (`PATH`, `LANG`, `PYTORCH_VERSION`, …).
    pub env: BTreeMap<String, String>,
}

/// One unpacked tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LayerTree {
    /// What it holds, for people: `debian/trixie`, `torch 2.15.0`.
    pub name: String,
    /// Its folder in the store.
    pub path: PathBuf,
}
