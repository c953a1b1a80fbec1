//! Bytecode for trees that hold Python sources: made once per tree, never on the way to a first
//! run, and laid over the tree as a layer of its own.
//!
//! The sources of an unpacked tree have a fixed modification time, so that a timestamp `.pyc` is
//! the same bytes everywhere, and a source that is edited in a container is compiled again.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sconce_schema::Lock;
use sconce_schema::manifest::{ImageManifest, Layer};
use sconce_store::{BuildError, Store};

/// The program that compiles, for the environment's own interpreter:
/// `python -I -S -B -c SCRIPT SOURCE OUTPUT`, two folders.
pub const SCRIPT: &str = include_str!("bytecode.py");

/// Kind of a bytecode tree in the store.
const KIND: &str = "bytecode";

/// A tree whose bytecode is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The tree of sources.
    pub source: PathBuf,
    /// Where its bytecode is collected until it is complete. It survives a kill.
    pub output: PathBuf,
    key: String,
}

/// Adds the bytecode that is there to the layers of `manifest`, and says what is missing.
pub(crate) fn add_layers(manifest: &mut ImageManifest, lock: &Lock, store: &Store) {
    let found: Vec<Layer> = manifest
        .layers
        .iter()
        .filter_map(|layer| {
            let path = store.tree(KIND, &key(&layer.path, lock)?)?;
            Some(Layer {
                name: format!("{} bytecode", layer.name),
                path,
            })
        })
        .collect();
    manifest.layers.extend(found);
}

/// The trees of `manifest` whose bytecode is missing.
#[must_use]
pub fn missing(manifest: &ImageManifest, lock: &Lock, store: &Store) -> Vec<Job> {
    let job = |layer: &Layer| {
        let key = key(&layer.path, lock)?;
        let absent = store.tree(KIND, &key).is_none() && !layer.name.ends_with(" bytecode");
        let output = store.root().join("partial").join(format!("{KIND}~{key}"));
        absent.then(|| Job {
            source: layer.path.clone(),
            output,
            key,
        })
    };
    manifest.layers.iter().filter_map(job).collect()
}

/// Names the bytecode of a tree by the tree's own key in the store (the folder that holds its
/// `content`), and by the interpreter: the format of bytecode is fixed for a minor version of
/// Python (PEP 3147).
fn key(tree: &Path, lock: &Lock) -> Option<String> {
    let name = tree.parent()?.file_name()?.to_str()?;
    Some(format!("{name}-py{}", lock.target.python))
}

impl Job {
    /// Makes the folder that the compiler writes to.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn begin(&self) -> io::Result<()> {
        fs::create_dir_all(&self.output)?;
        fs::set_permissions(&self.output, fs::Permissions::from_mode(0o755))
    }

    /// Puts the complete bytecode in its place in the store.
    ///
    /// # Errors
    /// The store cannot take it.
    pub fn finish(&self, store: &Store) -> Result<(), BuildError<io::Error>> {
        // A folder may be renamed over an empty one, rename(2).
        store
            .build_tree(KIND, &self.key, |tree| fs::rename(&self.output, tree))
            .map(drop)
    }
}
