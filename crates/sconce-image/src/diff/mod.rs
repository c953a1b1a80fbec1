//! What a step of a build changes, as a tree of the store that is laid over the environment.
//!
//! A step is named by everything that decides it: the trees it runs over, which are named by what
//! is in them, its variables and its words. What it changed is named by its own content. So a step
//! that is unchanged is not run again; and one that is run again and gives the same files changes
//! nothing above it.

mod normalize;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sconce_schema::{EnvironmentLayers, Hint, Progress, Sha256, exit};
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use sha2::Digest as _;

use crate::layer::{ArchiveEntries, ArchiveError, TreeSource};

/// Kind of the notes that say what a step gave.
const STEP: &str = "step";
/// Kind of the trees of changes.
const KIND: &str = "changes";
/// Counts up whenever the same step would leave another tree.
const FORMAT: u32 = 1;
/// The file of a note: the digest of what the step changed.
const NOTE: &str = "changes";

/// Why the changes of a step could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    /// A file that the step left could not be worked on.
    #[error("cannot {action} {}, which a build step left", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// They cannot be a layer.
    #[error("what a build step changed cannot be a layer")]
    Archive(#[from] ArchiveError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hint for ChangesError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::File { source, .. } | Self::Archive(ArchiveError::Read { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some(
                    "have the step leave files and folders that their owner may read: `chmod -R \
                     u+rwX`"
                        .to_owned(),
                )
            }
            Self::Archive(ArchiveError::Reserved { .. }) => {
                Some("names that begin with `.wh.` mean removed files in images".to_owned())
            }
            Self::File { .. } | Self::Archive(_) => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::File { .. } => exit::STORE,
            Self::Archive(_) => exit::STEP,
        }
    }
}

/// Why there are no changes.
#[derive(Debug)]
pub enum StepError<E> {
    /// The step itself failed, as the caller says it.
    Step(E),
    /// What it left cannot be kept.
    Changes(ChangesError),
}

impl<E> From<ChangesError> for StepError<E> {
    fn from(error: ChangesError) -> Self {
        Self::Changes(error)
    }
}

/// A step, by its name in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildStep {
    key: String,
}

impl BuildStep {
    /// A step over `environment`, of which `words` say everything else that decides it.
    #[must_use]
    pub fn new(environment: &EnvironmentLayers, words: &[&str]) -> Self {
        let mut hash = sha2::Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        add(&FORMAT.to_le_bytes());
        for layer in &environment.layers {
            // The folder above `content` is named by what the tree holds.
            let name = layer.path.parent().and_then(Path::file_name);
            add(name.unwrap_or_default().as_encoded_bytes());
        }
        add(b"");
        for (name, value) in &environment.env {
            add(name.as_bytes());
            add(value.as_bytes());
        }
        add(b"");
        words.iter().for_each(|word| add(word.as_bytes()));
        Self {
            key: Sha256(hash.finalize().into()).to_string(),
        }
    }

    /// What it changed, if it was run before.
    #[must_use]
    pub fn find_tree(&self, store: &Store) -> Option<PathBuf> {
        noted(&store.find_tree(STEP, &self.key)?, store)
    }

    /// What it changes over `environment`: found, or made by `run`, which gets an empty folder
    /// and leaves overlayfs's upper layer in its place. `is_machinery` names the paths in it that
    /// are not the step's. At most one process runs a step at a time; `progress` is told of a wait for it.
    ///
    /// # Errors
    /// [`StepError`]. Nothing of a step that failed is kept.
    pub fn ensure_tree<E>(
        &self,
        environment: &EnvironmentLayers,
        store: &Store,
        is_machinery: &dyn Fn(&Path) -> bool,
        progress: &dyn Progress,
        run: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, StepError<E>> {
        if let Some(tree) = self.find_tree(store) {
            return Ok(tree);
        }
        let making = TreeBuildOptions {
            name: "step",
            work: "runs a build step",
            progress,
            // A note whose tree was taken away is worth nothing.
            accept: &|note| noted(note, store).is_some(),
        };
        let make = |folder: &Path| -> Result<(), StepError<E>> {
            let upper = folder.join("upper");
            fs::create_dir(&upper).map_err(file("create", &upper))?;
            run(&upper).map_err(StepError::Step)?;
            let lower: Vec<&Path> = environment
                .layers
                .iter()
                .map(|l| l.path.as_path())
                .collect();
            normalize::normalize_upper_dir(&upper, &lower, is_machinery)?;
            let digest = digest(&upper)?;
            let place = |tree: &Path| fs::rename(&upper, tree).map_err(file("move", &upper));
            let kept = store.build_tree(KIND, &digest, place);
            kept.map_err(whole::<ChangesError>)?;
            // The same changes may have been there already.
            sconce_base::tree::remove_tree(&upper).map_err(file("remove", &upper))?;
            let note = folder.join(NOTE);
            Ok(fs::write(&note, digest).map_err(file("write", &note))?)
        };
        let built = store.build_tree_with(STEP, &self.key, making, make);
        built.map_err(|error| match error {
            TreeBuildError::Store(error) => ChangesError::from(error).into(),
            TreeBuildError::Build(error) => error,
        })?;
        let gone = || file("find", store.root())(io::ErrorKind::NotFound.into());
        Ok(self.find_tree(store).ok_or_else(gone)?)
    }
}

/// The tree that a step's note names.
fn noted(note: &Path, store: &Store) -> Option<PathBuf> {
    let digest = fs::read_to_string(note.join(NOTE)).ok()?;
    store.find_tree(KIND, &digest)
}

fn whole<E: From<StoreError>>(error: TreeBuildError<E>) -> E {
    match error {
        TreeBuildError::Store(error) => error.into(),
        TreeBuildError::Build(error) => error,
    }
}

/// Names a tree by the archive that it makes.
fn digest(tree: &Path) -> Result<String, ChangesError> {
    struct HashingWriter(sha2::Sha256);
    impl io::Write for HashingWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.update(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let entries = ArchiveEntries::from_trees(&[TreeSource::from_root(tree)])?;
    let mut hashed = HashingWriter(sha2::Sha256::new());
    entries.write(&mut hashed, |_| ())?;
    Ok(Sha256(hashed.0.finalize().into()).to_string())
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ChangesError {
    move |source| ChangesError::File {
        action,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::NoProgress;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use sconce_schema::environment_layers::LayerTree;

    fn environment(store: &Store) -> EnvironmentLayers {
        let place = |root: &Path| fs::write(root.join("old"), "");
        EnvironmentLayers {
            layers: vec![LayerTree {
                name: "base".to_owned(),
                path: store.build_tree("wheel", "base", place).unwrap(),
            }],
            env: BTreeMap::new(),
        }
    }

    fn changes(step: &BuildStep, store: &Store, name: &str) -> PathBuf {
        let run = |upper: &Path| {
            fs::write(upper.join(name), "").unwrap();
            Ok::<_, Infallible>(())
        };
        step.ensure_tree(&environment(store), store, &|_| false, &NoProgress, run)
            .unwrap_or_else(|_| panic!("a step of a test"))
    }

    #[test]
    fn a_step_is_run_once_and_named_by_all_that_decides_it() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(place.path()).unwrap();
        let mut over = environment(&store);
        let step = BuildStep::new(&over, &["run", "make"]);
        assert_eq!(step.find_tree(&store), None);
        let made = changes(&step, &store, "new");
        assert_eq!(step.find_tree(&store), Some(made.clone()));
        assert_eq!(changes(&step, &store, "not run"), made);
        assert!(made.join("new").exists());

        assert_ne!(step, BuildStep::new(&over, &["run", "make all"]));
        // Where one word ends is part of it.
        assert_ne!(step, BuildStep::new(&over, &["runm", "ake"]));
        over.env.insert("A".to_owned(), "1".to_owned());
        assert_ne!(step, BuildStep::new(&over, &["run", "make"]));
        over.env.clear();
        over.layers.push(LayerTree {
            name: "changes".to_owned(),
            path: made,
        });
        assert_ne!(step, BuildStep::new(&over, &["run", "make"]));
    }

    #[test]
    fn the_same_changes_are_the_same_tree_and_one_that_is_gone_is_made_again() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(place.path()).unwrap();
        let over = environment(&store);
        let (one, two) = (BuildStep::new(&over, &["1"]), BuildStep::new(&over, &["2"]));
        let made = changes(&one, &store, "new");
        assert_eq!(changes(&two, &store, "new"), made);
        let key = made
            .parent()
            .unwrap()
            .file_name()
            .unwrap()
            .to_str()
            .unwrap();
        store.remove_item(KIND, key).unwrap();
        assert_eq!(one.find_tree(&store), None);
        assert_ne!(changes(&one, &store, "other"), made);
        assert_eq!(changes(&two, &store, "new"), made);
    }

    #[test]
    fn nothing_is_kept_of_a_step_that_fails() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::open(place.path()).unwrap();
        let over = environment(&store);
        let step = BuildStep::new(&over, &["1"]);
        let failed = step.ensure_tree(&over, &store, &|_| false, &NoProgress, |upper| {
            fs::write(upper.join("half"), "").unwrap();
            Err("exit code 3")
        });
        assert!(matches!(failed, Err(StepError::Step("exit code 3"))));
        let reserved = step.ensure_tree(&over, &store, &|_| false, &NoProgress, |upper| {
            fs::write(upper.join(".wh.old"), "").unwrap();
            Ok::<_, Infallible>(())
        });
        let Err(StepError::Changes(error)) = reserved else {
            panic!("{reserved:?}");
        };
        assert_eq!(error.exit_code(), exit::STEP);
        assert_eq!(step.find_tree(&store), None);
        assert_eq!(fs::read_dir(place.path().join("tmp")).unwrap().count(), 0);
    }
}
