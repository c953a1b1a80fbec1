//! Trees laid over each other without marks for what is hidden.
//!
//! Where a layer hides a path, that path is taken out of each tree below that has it: that tree is
//! made anew of hard links, which cost no bytes. What overlayfs does by itself stays its work: a
//! file or a link over a folder hides it, and so does a folder over a file.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sconce_schema::{Hint, Sha256, environment_layers, exit};
use sconce_store::scoped_root::{ScopedRootError, set_modified};
use sconce_store::{Store, StoreError, TreeBuildError};
use sha2::Digest as _;

use super::layer::LayerWhiteouts;

/// Kind of trees that were made of others.
const KIND: &str = "stacked";
/// Counts up whenever the same trees would give another one.
const FORMAT: u32 = 1;
/// The most trees that are handed out. An overlay takes 500; some room is left for what a run adds.
pub const MAX_TREES: usize = 400;

/// Why trees could not be laid over each other.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be looked at or linked.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A time could not be set.
    #[error(transparent)]
    Time(#[from] ScopedRootError),
}

impl Hint for StackError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Time(error) => error.hint(),
            Self::File { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Time(error) => error.exit_code(),
            Self::File { .. } => exit::STORE,
        }
    }
}

/// A tree and what its layer hides of those below.
pub(super) struct StackedTree {
    pub(super) name: String,
    /// What the tree is called in the store.
    pub(super) key: String,
    pub(super) tree: PathBuf,
    pub(super) hides: LayerWhiteouts,
}

/// A tree and what is not taken of it.
struct Part {
    name: String,
    key: String,
    tree: PathBuf,
    /// Paths in it that are left out.
    without: LayerWhiteouts,
}

/// The trees to lay over each other, lowest first: each once, none of them empty.
pub(super) fn stack_trees(
    pieces: Vec<StackedTree>,
    store: &Store,
) -> Result<Vec<environment_layers::LayerTree>, StackError> {
    let mut parts = parts(pieces)?;
    if parts.len() > MAX_TREES {
        let above = parts.split_off(parts.len() - MAX_TREES + 1);
        let merged = Part {
            name: format!(
                "{} and {} below",
                parts[parts.len() - 1].name,
                parts.len() - 1
            ),
            key: String::new(),
            tree: made(&parts, store)?,
            without: LayerWhiteouts::default(),
        };
        parts = vec![merged];
        parts.extend(above);
    }
    let layer = |part: Part| {
        let path = match part.without.is_empty() {
            true => part.tree.clone(),
            false => made(std::slice::from_ref(&part), store)?,
        };
        Ok(environment_layers::LayerTree {
            name: part.name,
            path,
        })
    };
    parts.into_iter().map(layer).collect()
}

/// Finds what is left out of each tree.
fn parts(pieces: Vec<StackedTree>) -> Result<Vec<Part>, StackError> {
    let mut hidden = LayerWhiteouts::default();
    let mut seen = BTreeSet::new();
    let mut parts: Vec<Part> = Vec::new();
    // From the highest down, so that what lies above is known.
    for piece in pieces.into_iter().rev() {
        // An overlay refuses a tree that it has already. The lower of two shows nothing: it is
        // without all that the higher one is without, and maybe more; and it hides the same.
        let again = !seen.insert(piece.key.clone());
        if again {
            continue;
        }
        let without = present(&hidden, &piece.tree)?;
        hidden.names.extend(piece.hides.names);
        hidden.folders.extend(piece.hides.folders);
        if is_empty(&piece.tree)? {
            continue;
        }
        parts.push(Part {
            name: piece.name,
            key: piece.key,
            tree: piece.tree,
            without,
        });
    }
    parts.reverse();
    Ok(parts)
}

/// What of `hidden` there is in a tree.
fn present(hidden: &LayerWhiteouts, tree: &Path) -> Result<LayerWhiteouts, StackError> {
    let mut found = LayerWhiteouts::default();
    for path in &hidden.names {
        if look(tree, path)?.is_some() {
            found.names.insert(path.clone());
        }
    }
    for path in &hidden.folders {
        if look(tree, path)?.is_some_and(|meta| meta.is_dir())
            && !is_empty(&tree.join(OsStr::from_bytes(path)))?
        {
            found.folders.insert(path.clone());
        }
    }
    Ok(found)
}

/// What lies at a path of a tree, no link followed.
fn look(tree: &Path, path: &[u8]) -> Result<Option<Metadata>, StackError> {
    let mut real = tree.to_owned();
    let mut found = Some(real.symlink_metadata().map_err(file("look at", tree))?);
    for part in path.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
        if !found.is_some_and(|meta| meta.is_dir()) {
            return Ok(None);
        }
        real.push(OsStr::from_bytes(part));
        found = match real.symlink_metadata() {
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            // A name that no file of this system can have.
            Err(e) if e.kind() == io::ErrorKind::InvalidFilename => return Ok(None),
            Err(e) => return Err(file("look at", &real)(e)),
        };
    }
    Ok(found)
}

fn is_empty(folder: &Path) -> Result<bool, StackError> {
    let mut entries = folder.read_dir().map_err(file("list", folder))?;
    Ok(entries.next().is_none())
}

/// One tree of hard links: `parts` over each other, lowest first, without what each is without.
fn made(parts: &[Part], store: &Store) -> Result<PathBuf, StackError> {
    let mut hash = sha2::Sha256::new();
    hash.update(format!("{FORMAT} {}\n", parts.len()));
    for part in parts {
        let list = part.without.to_bytes();
        hash.update(format!("{} {}\n", part.key, list.len()));
        hash.update(&list);
    }
    let key = Sha256(hash.finalize().into()).to_string();
    let built = store.build_tree(KIND, &key, |root| {
        parts.iter().try_for_each(|part| {
            let mut copy = Copy {
                without: &part.without,
                path: Vec::new(),
            };
            copy.folder(&part.tree, root)
        })
    });
    built.map_err(|error| match error {
        TreeBuildError::Store(error) => error.into(),
        TreeBuildError::Build(error) => error,
    })
}

/// A copy of a tree under way.
struct Copy<'a> {
    without: &'a LayerWhiteouts,
    /// Where it is in the tree.
    path: Vec<u8>,
}

impl Copy<'_> {
    /// Copies what is in a folder into the folder `to`, which is there.
    fn folder(&mut self, from: &Path, to: &Path) -> Result<(), StackError> {
        let meta = from.symlink_metadata().map_err(file("look at", from))?;
        if !self.without.folders.contains(&self.path) {
            let depth = self.path.len();
            for name in sorted(from)? {
                if depth > 0 {
                    self.path.push(b'/');
                }
                self.path.extend(name.as_bytes());
                if !self.without.names.contains(&self.path) {
                    self.entry(&from.join(&name), &to.join(&name))?;
                }
                self.path.truncate(depth);
            }
        }
        fs::set_permissions(to, meta.permissions()).map_err(file("set the mode of", to))?;
        Ok(set_modified(to, meta.mtime())?)
    }

    /// Puts one entry in the place of what a lower tree has there.
    fn entry(&mut self, from: &Path, to: &Path) -> Result<(), StackError> {
        let meta = from.symlink_metadata().map_err(file("look at", from))?;
        let there = to.symlink_metadata().ok();
        let merges = meta.is_dir() && there.as_ref().is_some_and(Metadata::is_dir);
        if let Some(there) = there.filter(|_| !merges) {
            let removed = match there.is_dir() {
                true => fs::remove_dir_all(to),
                false => fs::remove_file(to),
            };
            removed.map_err(file("remove", to))?;
        }
        if !meta.is_dir() {
            return link(from, to, &meta);
        }
        if !merges {
            fs::create_dir(to).map_err(file("create", to))?;
        }
        self.folder(from, to)
    }
}

/// Another name for a file, or a copy where the file has too many names already.
fn link(from: &Path, to: &Path, meta: &Metadata) -> Result<(), StackError> {
    match fs::hard_link(from, to) {
        Err(e) if e.kind() == io::ErrorKind::TooManyLinks && meta.is_file() => {
            fs::copy(from, to).map_err(file("copy", from))?;
            Ok(set_modified(to, meta.mtime())?)
        }
        done => done.map_err(file("link", from)),
    }
}

fn sorted(folder: &Path) -> Result<BTreeSet<std::ffi::OsString>, StackError> {
    let list = || {
        let mut names = BTreeSet::new();
        for entry in folder.read_dir()? {
            names.insert(entry?.file_name());
        }
        Ok(names)
    };
    list().map_err(file("list", folder))
}

fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StackError {
    move |source| StackError::File {
        action,
        path: path.to_owned(),
        source,
    }
}
