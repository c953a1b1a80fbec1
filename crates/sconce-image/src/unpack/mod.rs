//! Layers of any image to trees of the store that can be laid over each other.
//!
//! A layer that hides nothing is one tree, made once and shared by every image that has it. Whiteouts
//! of overlayfs are device nodes or extended attributes, which a plain user cannot make. So nothing
//! is marked: where a layer hides something of a layer below, that one is taken without it, as a
//! second tree of hard links ([`stack`]).

mod layer;
mod lookup;
mod sparse;
mod stack;
pub(crate) mod tar;
#[cfg(test)]
pub(crate) mod testing;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use sconce_schema::{Hint, Progress, environment_layers, exit};
use sconce_store::{ItemGuard, Store, StoreError, TreeBuildError, TreeBuildOptions};

pub use layer::{LayerWhiteouts, UnpackError, UnpackLimits, UnpackedLayer, unpack_layer};
pub use lookup::{OverlayLookup, ResolvedPath};
pub use sparse::SparseError;
pub use stack::{MAX_TREES, StackError};
pub use tar::TarError;

use crate::local_image::{LocalError, LocalImage};
use sconce_oci::{Descriptor, Digest};
use stack::StackedTree;

/// Kind of unpacked layers in the store: a folder with the tree and what it hides.
const KIND: &str = "unpacked";
/// Counts up whenever the same layer would give another tree.
const FORMAT: u32 = 2;
/// The tree, in the folder of the item.
const TREE: &str = "tree";
/// What the layer hides.
const HIDES: &str = "hides";

/// Why an image's layers could not become trees.
#[derive(Debug, thiserror::Error)]
pub enum TreesError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The image is not complete in the store.
    #[error(transparent)]
    Image(#[from] LocalError),
    /// Manifest and configuration do not belong together.
    #[error("the manifest has {layers} layers, the configuration {diff_ids}")]
    Count {
        /// Of the manifest.
        layers: usize,
        /// Of the configuration.
        diff_ids: usize,
    },
    /// An image has to have a file to run.
    #[error("the image has no layers")]
    Empty,
    /// A layer is not what it should be.
    #[error("the layer {layer} cannot be unpacked")]
    Layer {
        /// Digest of its blob.
        layer: Digest,
        /// What is wrong with it.
        source: UnpackError,
    },
    /// The trees could not be laid over each other.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// What was noted beside a tree of the store cannot be read.
    #[error("cannot read {}", path.display())]
    Note {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Hint for TreesError {
    fn hint(&self) -> Option<String> {
        let full = |e: &io::Error| e.kind() == io::ErrorKind::StorageFull;
        match self {
            Self::Store(error) => error.hint(),
            Self::Image(error) => error.hint(),
            Self::Layer { source, .. } => match source {
                UnpackError::Write { source, .. } if full(source) => {
                    Some("the disk is full; make room, or give another store folder".to_owned())
                }
                UnpackError::Write { .. } => None,
                UnpackError::Entry(error) if error.exit_code() == exit::STORE => error.hint(),
                _ => Some("get the image again, from somebody you trust".to_owned()),
            },
            Self::Count { .. } | Self::Empty => Some("it is not an image to run".to_owned()),
            Self::Stack(error) => error.hint(),
            Self::Note { path, .. } => Some(format!(
                "remove the folder {} and run it again",
                path.ancestors().nth(2).unwrap_or(path).display()
            )),
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Image(error) => error.exit_code(),
            Self::Layer { source, .. } => match source {
                UnpackError::Write { .. } => exit::STORE,
                UnpackError::Entry(error) => error.exit_code(),
                UnpackError::Blob { .. }
                | UnpackError::Archive { .. }
                | UnpackError::Read(_)
                | UnpackError::Tar(_)
                | UnpackError::Kind { .. }
                | UnpackError::TooLarge { .. } => exit::VERIFY,
            },
            Self::Count { .. } | Self::Empty => exit::VERIFY,
            Self::Stack(error) => error.exit_code(),
            Self::Note { .. } => exit::STORE,
        }
    }
}

/// The trees of `image`, lowest first, ready for an overlay: made where they are not in the store.
/// Their names say the image's `name` and which layer it is.
///
/// # Errors
/// [`TreesError`]; layers that were unpacked stay in the store.
pub fn ensure_trees(
    image: &LocalImage,
    name: &str,
    store: &Store,
    limits: UnpackLimits,
    progress: &dyn Progress,
) -> Result<Vec<environment_layers::LayerTree>, TreesError> {
    let diff_ids = image.parse_config()?.rootfs.diff_ids;
    let layers = &image.manifest.layers;
    if diff_ids.len() != layers.len() {
        return Err(TreesError::Count {
            layers: layers.len(),
            diff_ids: diff_ids.len(),
        });
    }
    let pairs: Vec<(&Descriptor, Digest)> = layers.iter().zip(diff_ids).collect();
    let mut missing: Vec<&(&Descriptor, Digest)> = pairs
        .iter()
        .filter(|(_, diff_id)| store.find_tree(KIND, &key(*diff_id)).is_none())
        .collect();
    // The largest first, each once.
    missing.sort_by_key(|(layer, diff_id)| (std::cmp::Reverse(layer.size), *diff_id));
    missing.dedup_by_key(|(_, diff_id)| *diff_id);
    if !missing.is_empty() {
        let total = missing.iter().map(|(layer, _)| layer.size);
        progress.stage("unpack", Some(total.fold(0, u64::saturating_add)));
    }
    unpack_all(&missing, store, limits, progress)?;

    let mut pieces = Vec::with_capacity(pairs.len());
    // They stay until they are laid over each other; then whoever asked holds what came of it.
    let mut held = Vec::with_capacity(pairs.len());
    for (number, (layer, diff_id)) in pairs.iter().enumerate() {
        let (folder, stays) = ensure_held(|| ensure(layer, *diff_id, store, limits, progress))?;
        held.extend(stays);
        pieces.push(StackedTree {
            name: format!("{name} layer {}", number + 1),
            key: key(*diff_id),
            hides: hides(&folder)?,
            tree: folder.join(TREE),
        });
    }
    let stacked = stack::stack_trees(pieces, store)?;
    drop(held);
    if stacked.is_empty() {
        return Err(TreesError::Empty);
    }
    Ok(stacked)
}

fn key(diff_id: Digest) -> String {
    format!("{}-{FORMAT}", diff_id.to_hex())
}

fn hides(folder: &Path) -> Result<LayerWhiteouts, TreesError> {
    let path = folder.join(HIDES);
    let note = |source| TreesError::Note {
        path: path.clone(),
        source,
    };
    let text = fs::read(&path).map_err(note)?;
    LayerWhiteouts::parse(&text).ok_or_else(|| note(io::ErrorKind::InvalidData.into()))
}

/// How often a folder is made again that another process removed before it was held.
const MAX_ATTEMPTS: u32 = 5;

/// What `ensure` gives, and its right to stay. Taken away in between, it is made again.
fn ensure_held(
    mut ensure: impl FnMut() -> Result<PathBuf, TreesError>,
) -> Result<(PathBuf, Vec<ItemGuard>), TreesError> {
    let mut tries = 1;
    loop {
        let folder = ensure()?;
        match sconce_store::acquire_item_guards(std::iter::once(folder.as_path())) {
            Err(StoreError::Gone { .. }) if tries < MAX_ATTEMPTS => tries += 1,
            held => return Ok((folder, held?)),
        }
    }
}

/// Unpacks layers, on as many threads as the machine has cores.
fn unpack_all(
    missing: &[&(&Descriptor, Digest)],
    store: &Store,
    limits: UnpackLimits,
    progress: &dyn Progress,
) -> Result<(), TreesError> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    let work = || {
        while let Some((layer, diff_id)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = ensure(layer, *diff_id, store, limits, progress) {
                // Nobody begins another one.
                next.store(missing.len(), Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(|e| e.into_inner());
                failed.get_or_insert(error);
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, Into::into);
    thread::scope(|scope| {
        for _ in 0..cores.min(missing.len()) {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().unwrap_or_else(|e| e.into_inner());
    failed.map_or(Ok(()), Err)
}

/// The folder of an unpacked layer.
fn ensure(
    layer: &Descriptor,
    diff_id: Digest,
    store: &Store,
    limits: UnpackLimits,
    progress: &dyn Progress,
) -> Result<PathBuf, TreesError> {
    let key = key(diff_id);
    if let Some(folder) = store.find_tree(KIND, &key) {
        return Ok(folder);
    }
    let blob = store.find_blob(&layer.digest.0).ok_or(LocalError::Gone {
        digest: layer.digest,
    })?;
    let name = layer.digest.to_short_hex();
    let making = TreeBuildOptions {
        name: &name,
        work: &format!("unpacks {name}"),
        progress,
        accept: &|_| true,
    };
    let built = store.build_tree_with(KIND, &key, making, |folder| {
        let write = |path: PathBuf| move |source| UnpackError::Write { path, source };
        let tree = folder.join(TREE);
        fs::create_dir(&tree)
            .and_then(|()| fs::set_permissions(&tree, open_to_all()))
            .map_err(write(tree.clone()))?;
        let file = fs::File::open(&blob).map_err(UnpackError::Read)?;
        let told = |bytes| progress.advance(&name, bytes);
        let unpacked = unpack_layer(file, layer.digest, diff_id, &tree, limits, &told)?;
        if unpacked.skipped > 0 {
            progress.note(&format!(
                "{name}: {} devices and pipes of the image are left out",
                unpacked.skipped
            ));
        }
        let path = folder.join(HIDES);
        fs::write(&path, unpacked.hides.to_bytes()).map_err(write(path))
    });
    progress.done(&name);
    built.map_err(|error| match error {
        TreeBuildError::Store(error) => error.into(),
        TreeBuildError::Build(source @ UnpackError::Write { .. }) => TreesError::Layer {
            layer: layer.digest,
            source,
        },
        // What came into the store had its digest: where it has another one now, the store is to blame.
        TreeBuildError::Build(source) => match store.verify_blob(&layer.digest.0) {
            Err(damaged @ StoreError::Damaged { .. }) => damaged.into(),
            _ => TreesError::Layer {
                layer: layer.digest,
                source,
            },
        },
    })
}

/// Whoever runs a command must be able to enter, whatever the umask is.
fn open_to_all() -> fs::Permissions {
    std::os::unix::fs::PermissionsExt::from_mode(0o755)
}

#[cfg(test)]
mod tests;
