//! An environment as one tree, where nothing lays its trees over each other: the whole root for another's container,
//! or Python and its packages alone, which work wherever they lie.
//!
//! Files are names of the store's own (hard links), so that a tree takes hardly any room; where the file system
//! refuses that, they are copies.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use sconce_base::direct_io::MTIME;
use sconce_schema::environment_layers::VENV;
use sconce_schema::{EnvironmentLayers, Hint, Progress, Sha256, exit};
use sconce_store::scoped_root::set_modified;
use sconce_store::{Store, StoreError, TreeBuildError, TreeBuildOptions};
use sha2::Digest as _;

use crate::layer::archive::is_whiteout;
use crate::layer::{ArchiveEntries, ArchiveError, TreeSource};

/// Counts up whenever the same layers would give another tree.
const FORMAT: u32 = 1;
/// No script that is moved is longer, bytes.
const MAX_SCRIPT_BYTES: u64 = 4 << 20;
/// What bytecode layers are called behind the name of their sources.
const BYTECODE: &str = " bytecode";

/// Which part of an environment a tree has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlatTreePart {
    /// All of it: it is to be the root of a container.
    Root,
    /// Its standalone Python, its packages and its certificates, which are told where they lie.
    Python,
}

impl FlatTreePart {
    fn kind(self) -> &'static str {
        match self {
            Self::Root => "flat-root",
            Self::Python => "flat-python",
        }
    }

    /// Whether what lies at `path` belongs to it.
    fn has(self, path: &Path) -> bool {
        const CERTIFICATES: [&str; 5] = [
            "etc",
            "etc/ssl",
            "etc/ssl/cert.pem",
            "etc/ssl/certs",
            "etc/ssl/certs/ca-certificates.crt",
        ];
        match self {
            Self::Root => true,
            Self::Python => {
                path.starts_with("opt") || CERTIFICATES.iter().any(|one| path == Path::new(one))
            }
        }
    }
}

/// Why an environment cannot be laid out as one tree.
#[derive(Debug, thiserror::Error)]
pub enum FlatTreeError {
    /// A tree could not be read.
    #[error(transparent)]
    Source(#[from] ArchiveError),
    /// A file could not be made.
    #[error("cannot make {}", path.display())]
    Disk {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Hint for FlatTreeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Store(error) => error.hint(),
            Self::Source(_) | Self::Disk { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => error.exit_code(),
            Self::Source(_) | Self::Disk { .. } => exit::STORE,
        }
    }
}

/// The tree of `layers` in the store, made if it is not there.
///
/// # Errors
/// [`FlatTreeError`].
pub fn ensure_flat_tree(
    layers: &EnvironmentLayers,
    part: FlatTreePart,
    store: &Store,
    progress: &dyn Progress,
) -> Result<PathBuf, FlatTreeError> {
    let key = environment_key(layers, store);
    let place = store.tree_path(part.kind(), &key)?;
    let name = "one tree";
    let making = TreeBuildOptions {
        name,
        work: "lays the environment out as one tree",
        progress,
        accept: &|_| true,
    };
    progress.advance(name, 0);
    let built = store.build_tree_with(part.kind(), &key, making, |root| {
        FlatTreeBuild {
            part,
            root,
            place: &place,
        }
        .fill(layers)
    });
    progress.done(name);
    built.map_err(|error| match error {
        TreeBuildError::Store(error) => error.into(),
        TreeBuildError::Build(error) => error,
    })
}

/// The tree of `layers`, if the store has it.
#[must_use]
pub fn find_flat_tree(
    layers: &EnvironmentLayers,
    part: FlatTreePart,
    store: &Store,
) -> Option<PathBuf> {
    store.find_tree(part.kind(), &environment_key(layers, store))
}

/// Names what is made of all of an environment by what is in it. Bytecode does not count: it comes when nobody looks, and a tree that was made without
/// it is the same.
#[must_use]
pub fn environment_key(layers: &EnvironmentLayers, store: &Store) -> String {
    let mut hash = sha2::Sha256::new();
    hash.update(format!("{FORMAT}\n"));
    for layer in &layers.layers {
        if !layer.name.ends_with(BYTECODE) {
            let path = layer.path.strip_prefix(store.root());
            let path = path.unwrap_or(&layer.path).to_string_lossy();
            hash.update(format!("{path}\n"));
        }
    }
    Sha256(hash.finalize().into()).to_string()
}

/// A tree in the making.
struct FlatTreeBuild<'a> {
    part: FlatTreePart,
    /// Where it is made.
    root: &'a Path,
    /// Where it will lie.
    place: &'a Path,
}

impl FlatTreeBuild<'_> {
    fn fill(&self, layers: &EnvironmentLayers) -> Result<(), FlatTreeError> {
        let sources: Vec<TreeSource<'_>> = (layers.layers.iter())
            .map(|layer| TreeSource::from_root(&layer.path))
            .collect();
        let entries = ArchiveEntries::from_trees(&sources)?;
        let mut folders = BTreeSet::from([PathBuf::new()]);
        // A folder stands before what is in it. What lies below something that is no folder is not there.
        for (path, entry) in entries.0 {
            let is_below = path.parent().is_some_and(|above| folders.contains(above));
            if !is_below || !self.part.has(&path) || is_whiteout(&entry.meta) {
                continue;
            }
            let to = self.root.join(&path);
            let made = match entry.meta.file_type() {
                kind if kind.is_dir() => {
                    folders.insert(path.clone());
                    make_folder(&to, &entry.meta)
                }
                kind if kind.is_symlink() => self.link(&path, &entry.source, &to),
                kind if kind.is_file() => self.file(&path, &entry.source, &entry.meta, &to),
                _ => continue,
            };
            made.map_err(|source| FlatTreeError::Disk { path: to, source })?;
        }
        Ok(())
    }

    fn link(&self, path: &Path, source: &Path, to: &Path) -> io::Result<()> {
        let target = fs::read_link(source)?;
        let target = match self.part {
            FlatTreePart::Root => target,
            FlatTreePart::Python => from_link(path, &target),
        };
        symlink(target, to)
    }

    fn file(&self, path: &Path, source: &Path, meta: &Metadata, to: &Path) -> io::Result<()> {
        if self.part == FlatTreePart::Python && names_its_place(path) {
            let moved = (meta.len() <= MAX_SCRIPT_BYTES)
                .then(|| fs::read(source))
                .transpose()?
                .and_then(|bytes| String::from_utf8(bytes).ok())
                .and_then(|text| move_text(path, &text, self.place));
            if let Some(text) = moved {
                fs::write(to, text)?;
                fs::set_permissions(to, meta.permissions())?;
                return set_modified(to, MTIME.cast_signed()).map_err(io::Error::other);
            }
        }
        if fs::hard_link(source, to).is_ok() {
            return Ok(());
        }
        fs::copy(source, to)?;
        // Bytecode is known by the time of its source.
        fs::File::open(to)?.set_modified(meta.modified()?)
    }
}

/// Its owner may write into it until it is filled.
fn make_folder(to: &Path, meta: &Metadata) -> io::Result<()> {
    fs::create_dir(to)?;
    let mode = meta.permissions().mode() & 0o1777 | 0o700;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
}

/// What an absolute link of an environment leads to from where it lies, wherever that is.
fn from_link(path: &Path, target: &Path) -> PathBuf {
    let Ok(inside) = target.strip_prefix("/") else {
        return target.to_owned();
    };
    let depth = path.components().count().saturating_sub(1);
    let mut relative: PathBuf = std::iter::repeat_n(Component::ParentDir, depth).collect();
    relative.push(inside);
    relative
}

/// Whether a file may say where it lies: programs, and the settings of the virtual environment.
fn names_its_place(path: &Path) -> bool {
    let is_program = path.parent().is_some_and(|folder| folder.ends_with("bin"));
    is_program || path == Path::new(&VENV[1..]).join("pyvenv.cfg")
}

/// The text of a file that says where it lies, for a tree at `place`; `None` where it says nothing of the kind.
fn move_text(path: &Path, text: &str, place: &Path) -> Option<String> {
    let place = place.display();
    if path.ends_with("pyvenv.cfg") {
        let moved = text.replace("= /opt/", &format!("= {place}/opt/"));
        return Some(moved);
    }
    let (first, rest) = text.split_once('\n')?;
    let interpreter = first.strip_prefix("#!")?.trim();
    if interpreter.starts_with(&format!("{VENV}/bin/python")) {
        // The kernel takes neither a long path nor one with spaces there. To a shell the second line is a command, to
        // Python it begins a string that the third ends.
        return Some(format!(
            "#!/bin/sh\n'''exec' \"${{0%/*}}/python\" \"$0\" \"$@\"\n' '''\n{rest}"
        ));
    }
    let moved = text.replace(" /opt/", &format!(" {place}/opt/"));
    (moved != text).then_some(moved)
}

#[cfg(test)]
#[path = "flat_tree_tests.rs"]
mod tests;
