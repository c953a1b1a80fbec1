//! Bytecode for trees that hold Python sources: made once per tree, never on the way to a first
//! run, and laid over the tree as a layer of its own.
//!
//! Every project of a store runs what is made here, so it is named by all that decides its bytes:
//! the tree, the script, and the packages of the interpreter ([`interpreter`]), which are all the
//! files that the interpreter has before it. What a lock says of itself, such as a version, decides
//! nothing.
//!
//! The sources of an unpacked tree have a fixed modification time, so that a timestamp `.pyc` is
//! the same bytes everywhere, and a source that is edited in a container is compiled again.

pub mod interpreter;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sconce_base::tree::retain_files;
use sconce_schema::environment_layers::{EnvironmentLayers, LayerTree};
use sconce_schema::{Lock, Progress, Sha256};
use sconce_store::{OnBusy, PartialWork, Store, StoreError, TreeBuildError};
use sha2::Digest as _;

use crate::compiler;

/// The program that compiles, for the environment's own interpreter:
/// `python -I -S -B -c SCRIPT SOURCE OUTPUT`, two folders.
pub const SCRIPT: &str = include_str!("compile.py");

/// The variables that it is started with: the environment's own have no say in what is shared.
#[must_use]
pub fn compile_variables() -> BTreeMap<String, String> {
    let set = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    VARIABLES.into_iter().map(set).collect()
}

const VARIABLES: [(&str, &str); 2] = [("LANG", "C.UTF-8"), ("PATH", "/usr/bin")];
/// Kind of a bytecode tree in the store.
const KIND: &str = "bytecode";
/// Kind of the work that a build does beside another process that has the work already.
const BESIDE: &str = "bytecode-beside";
/// Counts up whenever the same names would stand for other bytes.
const FORMAT: u32 = 2;

/// A tree whose bytecode is not there yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BytecodeJob {
    /// The tree of sources.
    pub source: PathBuf,
    /// The layer's name.
    pub name: String,
    key: String,
}

/// Adds the bytecode that is there to the layers of `manifest`.
/// Used for every environment ([`crate::load_environment`]).
pub fn add_layers(manifest: &mut EnvironmentLayers, lock: &Lock, store: &Store) {
    // As long as an environment is in use, so is what compiles for it: prune leaves it.
    let _ = interpreter::find_trees(lock, store);
    let compiler = Compiler::of(lock);
    let found: Vec<LayerTree> = manifest
        .layers
        .iter()
        .filter_map(|layer| {
            let path = store.find_tree(KIND, &compiler.key(&layer.path)?)?;
            Some(LayerTree {
                name: format!("{} bytecode", layer.name),
                path,
            })
        })
        .collect();
    manifest.layers.extend(found);
}

/// The trees of `manifest` whose bytecode is missing.
#[must_use]
pub fn list_missing(manifest: &EnvironmentLayers, lock: &Lock, store: &Store) -> Vec<BytecodeJob> {
    let mut jobs = jobs(manifest, lock);
    jobs.retain(|job| !job.is_done(store));
    jobs
}

/// A tree of `manifest` whose bytecode is none of its layers, by name. Where all of it was just made, another process
/// has removed this one since.
#[must_use]
pub fn find_uncompiled(manifest: &EnvironmentLayers, lock: &Lock) -> Option<String> {
    let is_layer = |job: &BytecodeJob| {
        let of_item = |layer: &LayerTree| {
            let mut above = layer.path.ancestors().skip(1);
            let mut is = |name: &str| above.next().is_some_and(|path| path.ends_with(name));
            is(&job.key) && is(KIND)
        };
        manifest.layers.iter().any(of_item)
    };
    let job = jobs(manifest, lock).into_iter().find(|job| !is_layer(job));
    job.map(|job| job.name)
}

/// Removes what a process that was killed left of bytecode that another one has made since.
///
/// # Errors
/// [`StoreError`].
pub fn clear_leftovers(
    manifest: &EnvironmentLayers,
    lock: &Lock,
    store: &Store,
) -> Result<(), StoreError> {
    for job in jobs(manifest, lock) {
        if store.has_unfinished(KIND, &job.key) && job.is_done(store) {
            // Gives up what it finds done.
            job.try_start(store)?;
        }
    }
    Ok(())
}

/// A job for each tree of sources.
fn jobs(manifest: &EnvironmentLayers, lock: &Lock) -> Vec<BytecodeJob> {
    let compiler = Compiler::of(lock);
    let of_sources =
        |layer: &&LayerTree| !layer.name.ends_with(" bytecode") && layer.name != compiler::LAYER;
    let job = |layer: &LayerTree| {
        Some(BytecodeJob {
            source: layer.path.clone(),
            name: layer.name.clone(),
            key: compiler.key(&layer.path)?,
        })
    };
    let layers = manifest.layers.iter().filter(of_sources);
    layers.filter_map(job).collect()
}

/// The bytecode of a tree, if it is there.
#[must_use]
pub(crate) fn of_tree(tree: &Path, lock: &Lock, store: &Store) -> Option<PathBuf> {
    store.find_tree(KIND, &Compiler::of(lock).key(tree)?)
}

/// All that decides what sources are compiled to, in one digest.
struct Compiler(Sha256);

impl Compiler {
    fn of(lock: &Lock) -> Self {
        let mut hash = sha2::Sha256::new();
        hash.update(format!("{FORMAT}\n{}\n", interpreter::tree_key(lock)));
        for (name, value) in VARIABLES {
            hash.update(format!("{name}={value}\n"));
        }
        hash.update(SCRIPT);
        Self(Sha256(hash.finalize().into()))
    }

    /// Names the bytecode of a tree: by this, and by the tree's kind and key in the store (the
    /// names of the two folders above its `content`), which say what is in it.
    fn key(&self, tree: &Path) -> Option<String> {
        let mut above = tree.ancestors().skip(1);
        let mut name = || above.next()?.file_name()?.to_str();
        let (key, kind) = (name()?, name()?);
        let mut hash = sha2::Sha256::new();
        hash.update(self.0.0);
        hash.update(format!("{kind}\n{key}\n"));
        Some(Sha256(hash.finalize().into()).to_string())
    }
}

impl BytecodeJob {
    /// Whether the bytecode is in the store by now.
    #[must_use]
    pub fn is_done(&self, store: &Store) -> bool {
        store.find_tree(KIND, &self.key).is_some()
    }

    /// Takes up the work, where an earlier process left it, unless another process has it now.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn try_start(&self, store: &Store) -> Result<Option<BytecodeBuild>, StoreError> {
        self.take_up(KIND, OnBusy::Leave, store)
    }

    /// Takes up the work although another process has it, as that one may be in no hurry. Of those
    /// who do so one works at a time; the others wait until it is done, by whomever.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn begin_beside(
        &self,
        store: &Store,
        progress: &dyn Progress,
    ) -> Result<Option<BytecodeBuild>, StoreError> {
        let wait = OnBusy::Wait {
            is_done: &|| self.is_done(store),
            progress,
        };
        match self.try_start(store)? {
            None => self.take_up(BESIDE, wait, store),
            work => Ok(work),
        }
    }

    fn take_up(
        &self,
        kind: &str,
        taken: OnBusy<'_>,
        store: &Store,
    ) -> Result<Option<BytecodeBuild>, StoreError> {
        let work = format!("compiles {}", self.name);
        let Some(unfinished) = store.open_partial_work(kind, &self.key, &work, taken)? else {
            return Ok(None);
        };
        // Whoever had it may have finished it.
        if self.is_done(store) {
            unfinished.give_up()?;
            return Ok(None);
        }
        let output = unfinished.content_dir();
        remove_half_written(&output).map_err(|source| StoreError::Disk {
            what: "clean",
            path: output,
            source,
        })?;
        tracing::debug!(name = self.name, "compiles bytecode");
        Ok(Some(BytecodeBuild {
            key: self.key.clone(),
            unfinished,
        }))
    }
}

/// A tree that this process compiles. Dropped, what was made is kept for the next one.
#[derive(Debug)]
pub struct BytecodeBuild {
    key: String,
    unfinished: PartialWork,
}

impl BytecodeBuild {
    /// Where the bytecode is collected until it is complete.
    #[must_use]
    pub fn output_dir(&self) -> PathBuf {
        self.unfinished.content_dir()
    }

    /// Puts the complete bytecode in its place in the store.
    ///
    /// # Errors
    /// The store cannot take it.
    pub fn finish(self, store: &Store) -> Result<(), TreeBuildError<io::Error>> {
        // A compiler whose sconce was killed lives a moment longer than its lock, and may have begun
        // a file meanwhile.
        remove_half_written(&self.output_dir()).map_err(TreeBuildError::Build)?;
        self.unfinished.publish(store, KIND, &self.key).map(drop)
    }
}

/// Removes what a compiler that was killed had not yet given its name: every whole file is called
/// `….pyc`, and nothing else may get into the tree.
fn remove_half_written(folder: &Path) -> io::Result<()> {
    // That compiler may be of a package that does what it likes: no path is followed here.
    retain_files(folder, |name| {
        Path::new(name)
            .extension()
            .is_some_and(|ending| ending == "pyc")
    })
}
