//! The interpreter that compiles, alone: a root file system of its own packages and the libraries
//! that it is linked to.
//!
//! In the environment's own root any package could change what the interpreter loads
//! (`/etc/ld.so.preload`, a library of another package's), so bytecode that was made there would
//! depend on every package of the lock, and could be shared only by projects with all of them. Here
//! nothing of other packages is there, no wheel, and no file of the project.

use std::path::PathBuf;

use sconce_fetch::Fetcher;
use sconce_schema::lock::{Deb, Lock};
use sconce_schema::{Progress, Sha256};
use sconce_store::Store;
use sha2::Digest as _;

use crate::assemble::{self, AssembleError, DebTree};
use crate::priority::Priority;
use crate::{standalone, system};

/// Kind of these trees in the store.
const KIND: &str = "interpreter";
/// Counts up whenever the same packages would give another tree.
const FORMAT: u32 = 1;

/// The packages that `python3.13 -I -S` reads when it compiles: the program and what it is linked
/// to (`Depends` of `python3.13-minimal`, the same from Debian 12 on), and the standard library,
/// whose codecs read sources that are not UTF-8.
///
/// Where a lock has not all of them, every package of it: it is made in some other way, and more
/// packages make less to share, never something wrong.
///
/// A standalone Python has all of that in itself but the C library, and lies over it as its own tree.
fn packages(lock: &Lock) -> Vec<&Deb> {
    let python = &lock.target.python;
    let names = match lock.interpreter {
        None => vec![
            format!("python{python}-minimal"),
            format!("libpython{python}-minimal"),
            format!("libpython{python}-stdlib"),
            "libc6".to_owned(),
            "libexpat1".to_owned(),
            "zlib1g".to_owned(),
        ],
        Some(_) => ["libc6", "libcrypt1", "libgcc-s1"]
            .map(str::to_owned)
            .to_vec(),
    };
    let mut debs: Vec<&Deb> = lock.debs.iter().collect();
    let is_there = |name: &String| debs.iter().any(|deb| deb.name == *name);
    if names.iter().all(is_there) {
        debs.retain(|deb| names.contains(&deb.name));
    }
    debs
}

/// Names the tree by all that decides its bytes: the packages' digests, in the order that they are
/// unpacked in.
pub(crate) fn tree_key(lock: &Lock) -> String {
    let target = &lock.target;
    let mut hash = sha2::Sha256::new();
    hash.update(format!(
        "{FORMAT} {} {} {}\n",
        system::BUILDER,
        target.architecture,
        target.python
    ));
    for deb in packages(lock) {
        hash.update(deb.sha256.0);
    }
    if let Some(key) = standalone::tree_key(lock) {
        hash.update(key);
    }
    Sha256(hash.finalize().into()).to_string()
}

/// The trees, lowest first, if they are in the store: one, and a standalone Python's.
#[must_use]
pub fn find_trees(lock: &Lock, store: &Store) -> Option<Vec<PathBuf>> {
    let mut trees = vec![store.find_tree(KIND, &tree_key(lock))?];
    if lock.interpreter.is_some() {
        trees.push(standalone::find_tree(lock, store)?);
    }
    Some(trees)
}

/// The packages that are to be fetched for the trees.
pub(crate) fn list_missing_debs<'l>(lock: &'l Lock, store: &Store) -> Vec<&'l Deb> {
    let mut debs = packages(lock);
    debs.retain(|deb| store.find_blob(&deb.sha256).is_none());
    debs
}

/// What is to be fetched for the trees, by name: packages, and a standalone Python's archive.
#[must_use]
pub fn list_missing_files(lock: &Lock, store: &Store) -> Vec<String> {
    let debs = list_missing_debs(lock, store).into_iter();
    let names = debs.map(|deb| format!("{} {}", deb.name, deb.version));
    let python = lock.interpreter.iter().filter(|python| {
        standalone::find_tree(lock, store).is_none() && store.find_blob(&python.sha256).is_none()
    });
    names
        .chain(python.map(|python| python.file.clone()))
        .collect()
}

/// The trees, made where they are not in the store. Without a fetcher, what is [`list_missing_files`] is an
/// error.
///
/// # Errors
/// [`AssembleError`].
pub fn ensure_trees(
    lock: &Lock,
    store: &Store,
    fetcher: Option<&Fetcher>,
    priority: Priority,
    progress: &dyn Progress,
) -> Result<Vec<PathBuf>, AssembleError> {
    if let Some(trees) = find_trees(lock, store) {
        return Ok(trees);
    }
    let python = standalone::ensure_tree(lock, store, fetcher, priority, progress)?;
    let debs = packages(lock);
    let packages = match fetcher {
        Some(fetcher) => assemble::fetch_debs(&debs, store, fetcher, progress)?,
        None => debs
            .iter()
            .map(|deb| match store.find_blob(&deb.sha256) {
                Some(file) => Ok((*deb, file)),
                None => Err(AssembleError::Gone {
                    what: format!("{} {}", deb.name, deb.version),
                }),
            })
            .collect::<Result<_, _>>()?,
    };
    let tree = DebTree {
        kind: KIND,
        key: &tree_key(lock),
        name: "interpreter",
        lock,
        packages: &packages,
    };
    let base = tree.build_if_missing(store, priority, progress, |root| {
        system::mount_points(root).map_err(assemble::system_error(lock))
    })?;
    Ok([base].into_iter().chain(python).collect())
}
