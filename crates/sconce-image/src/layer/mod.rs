//! Layers: a part of an environment as one blob, made once and never again.
//!
//! A layer is named by all that decides its bytes: the trees it holds, which of their entries, how
//! it is compressed and by which version of this code. The name leads to its digest, and the digest
//! to the blob in the store; so a layer that any image needed is there for every other.

pub(crate) mod archive;
mod packed;
mod unpacked;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sconce_schema::{Hint, Progress, Sha256, exit};
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use serde::{Deserialize, Serialize};
use sha2::Digest as _;
use tracing::{debug, info};

pub use archive::ArchiveError;
pub(crate) use archive::{
    ArchiveEntries, is_below, is_whiteout, put_file, write_end_of_archive, write_padding,
};
pub use packed::Compression;

use crate::slim::SlimRules;
use sconce_oci::{Descriptor, Digest};
pub(crate) use unpacked::{HashedBlob, decompress};

use packed::LayerPacker;

/// Kind of the records of layers in the store.
const KIND: &str = "layer";
/// Counts up whenever the same trees would give another blob.
const FORMAT: u32 = 1;
/// The record of a layer.
const RECORD: &str = "layer.json";

/// Why a layer could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// Its files could not be put together.
    #[error("the layer `{layer}` cannot be made")]
    Archive {
        /// Its name.
        layer: String,
        /// Why.
        source: ArchiveError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was noted about a layer cannot be read.
    #[error("{} is not the record of a layer", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

impl Hint for LayerError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Archive { source, .. } => match source {
                ArchiveError::Write(e) | ArchiveError::Read { source: e, .. }
                    if e.kind() == io::ErrorKind::StorageFull =>
                {
                    Some("the disk is full; make room, or give another store folder".to_owned())
                }
                ArchiveError::Changed { .. } => Some(
                    "something writes to the store; remove the store and build again".to_owned(),
                ),
                ArchiveError::Reserved { .. } => {
                    Some("the package or the step that made it cannot be in an image".to_owned())
                }
                _ => None,
            },
            Self::Record { path, .. } => Some(format!(
                "remove the folder {} and build again",
                path.parent()
                    .and_then(Path::parent)
                    .unwrap_or(path)
                    .display()
            )),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Archive { .. } | Self::Record { .. } => exit::STORE,
        }
    }
}

/// A layer to be made.
pub(crate) struct LayerJob<'a> {
    /// What it is, for people.
    pub(crate) name: String,
    /// Its trees, lowest first.
    pub(crate) trees: Vec<TreeSource<'a>>,
}

/// A tree of a layer, or a part of it.
pub(crate) struct TreeSource<'a> {
    /// Its folder in the store: `…/KEY/content`.
    pub(crate) root: &'a Path,
    /// Which part of it.
    pub(crate) part: TreeSubset<'a>,
}

/// Whether a part has a path, which is a folder or not.
pub(crate) type PathFilter<'a> = dyn Fn(&Path, bool) -> bool + Send + Sync + 'a;

/// A choice of a tree's entries.
pub(crate) struct TreeSubset<'a> {
    /// Names the choice: the same name over the same tree is the same part.
    pub(crate) name: String,
    /// What is in it.
    pub(crate) has: Box<PathFilter<'a>>,
    /// What is taken out of files that stay.
    pub(crate) shrinks: Option<&'a SlimRules>,
}

impl<'a> TreeSource<'a> {
    /// A whole tree.
    pub(crate) fn from_root(root: &'a Path) -> Self {
        Self {
            root,
            part: TreeSubset {
                name: "all".to_owned(),
                has: Box::new(|_, _| true),
                shrinks: None,
            },
        }
    }
}

/// A layer that is in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LayerBlob {
    /// Digest of the blob.
    pub digest: Digest,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Digest of the tar archive in it.
    pub diff_id: Digest,
    /// The archive's size in bytes.
    pub unpacked_bytes: u64,
    /// Files, folders and links.
    pub entries: u64,
    /// How it is compressed.
    pub compression: Compression,
}

impl LayerBlob {
    /// As a manifest refers to it.
    #[must_use]
    pub fn descriptor(&self) -> Descriptor {
        Descriptor::new(self.compression.media_type(), self.digest, self.size_bytes)
    }
}

impl LayerJob<'_> {
    /// All that decides the blob's bytes.
    fn key(&self, compression: Compression) -> String {
        let mut hash = sha2::Sha256::new();
        hash.update(format!("{FORMAT} {}\n", compression.as_str()));
        for tree in &self.trees {
            // The folder above `content` is named by what the tree holds.
            let name = tree.root.parent().and_then(Path::file_name);
            hash.update(name.unwrap_or_default().as_encoded_bytes());
            hash.update(format!("\n{}\n", tree.part.name));
        }
        Sha256(hash.finalize().into()).to_string()
    }

    /// The layer, if it is in the store.
    pub(crate) fn find_blob(&self, compression: Compression, store: &Store) -> Option<LayerBlob> {
        let folder = store.find_tree(KIND, &self.key(compression))?;
        let layer = read(&folder.join(RECORD)).ok()?;
        store.find_blob(&layer.digest.0)?;
        Some(layer)
    }

    /// The layer, made if it is not in the store.
    fn make(
        &self,
        entries: &ArchiveEntries,
        compression: Compression,
        store: &Store,
        progress: &dyn Progress,
    ) -> Result<LayerBlob, LayerError> {
        let key = self.key(compression);
        let making = TreeBuildOptions {
            name: &self.name,
            work: &format!("makes the layer {}", self.name),
            progress,
            // Where the blob was taken away, the record alone is worth nothing.
            accept: &|folder| {
                let layer = read(&folder.join(RECORD));
                layer.is_ok_and(|layer| store.find_blob(&layer.digest.0).is_some())
            },
        };
        let built = store.build_tree_with(KIND, &key, making, |folder| {
            let archive = |source| LayerError::Archive {
                layer: self.name.clone(),
                source,
            };
            let path = folder.join("blob");
            let pack = || {
                let mut packer = LayerPacker::new(&path, compression, entries.file_bytes())?;
                entries.write(&mut packer, |bytes| progress.advance(&self.name, bytes))?;
                Ok(packer.finish_blob()?)
            };
            let sealed = pack().map_err(archive)?;
            debug!(layer = self.name, digest = %sealed.digest, bytes = sealed.size, "packed a layer");
            store.adopt_blob(&path, &sealed.digest.0)?;
            // The same bytes may have been there already.
            let _ = fs::remove_file(&path);
            let layer = LayerBlob {
                digest: sealed.digest,
                size_bytes: sealed.size,
                diff_id: sealed.diff_id,
                unpacked_bytes: sealed.unpacked,
                entries: entries.count(),
                compression,
            };
            let text = serde_json::to_vec(&layer).map_err(|e| ArchiveError::Write(e.into()));
            let written = text.and_then(|text| Ok(fs::write(folder.join(RECORD), text)?));
            written.map_err(archive)
        });
        match built {
            Ok(folder) => read(&folder.join(RECORD)),
            Err(TreeBuildError::Store(error)) => Err(error.into()),
            Err(TreeBuildError::Build(error)) => Err(error),
        }
    }
}

/// Makes what is missing of `jobs`, on as many threads as the machine has cores, the largest first,
/// and gives the layers in the order of `jobs`.
///
/// # Errors
/// The first that fails; those that were made stay in the store.
pub(crate) fn make_all(
    jobs: &[LayerJob<'_>],
    compression: Compression,
    store: &Store,
    progress: &dyn Progress,
) -> Result<Vec<LayerBlob>, LayerError> {
    let mut layers: Vec<Option<LayerBlob>> = Vec::new();
    let mut missing: Vec<(usize, ArchiveEntries)> = Vec::new();
    for (at, job) in jobs.iter().enumerate() {
        let found = job.find_blob(compression, store);
        debug!(
            layer = job.name,
            is_there = found.is_some(),
            "a layer of the image"
        );
        if found.is_none() {
            let entries =
                ArchiveEntries::from_trees(&job.trees).map_err(|source| LayerError::Archive {
                    layer: job.name.clone(),
                    source,
                })?;
            missing.push((at, entries));
        }
        layers.push(found);
    }
    info!(
        layers = jobs.len(),
        missing = missing.len(),
        "layers of the image"
    );
    if !missing.is_empty() {
        let total = missing
            .iter()
            .map(|(_, entries)| entries.file_bytes())
            .sum();
        progress.stage("build", Some(total));
    }
    missing.sort_by_key(|(at, entries)| (std::cmp::Reverse(entries.file_bytes()), *at));
    let made = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((at, entries)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            let job = &jobs[*at];
            let layer = job.make(entries, compression, store, progress);
            progress.done(&job.name);
            if layer.is_err() {
                // Nobody begins another one.
                next.store(missing.len(), Ordering::Relaxed);
            }
            let mut made = made.lock().unwrap_or_else(|e| e.into_inner());
            made.push((*at, layer));
        }
    };
    let cores = thread::available_parallelism().map_or(1, Into::into);
    thread::scope(|scope| {
        // One more than there are cores: each waits for the disk now and then.
        for _ in 0..(cores + 1).min(missing.len()) {
            scope.spawn(work);
        }
    });
    for (at, layer) in made.into_inner().unwrap_or_else(|e| e.into_inner()) {
        layers[at] = Some(layer?);
    }
    Ok(layers.into_iter().flatten().collect())
}

fn read(path: &Path) -> Result<LayerBlob, LayerError> {
    let record = |source| LayerError::Record {
        path: path.to_owned(),
        source,
    };
    let bytes = fs::read(path).map_err(record)?;
    serde_json::from_slice(&bytes).map_err(|e| record(e.into()))
}
