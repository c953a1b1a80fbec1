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

use crate::assemble::{self, AssembleError, DebTree, Priority};
use crate::system;

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
fn packages(lock: &Lock) -> Vec<&Deb> {
    let python = &lock.target.python;
    let names = [
        format!("python{python}-minimal"),
        format!("libpython{python}-minimal"),
        format!("libpython{python}-stdlib"),
        "libc6".to_owned(),
        "libexpat1".to_owned(),
        "zlib1g".to_owned(),
    ];
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
    Sha256(hash.finalize().into()).to_string()
}

/// The tree, if it is in the store.
#[must_use]
pub fn find_tree(lock: &Lock, store: &Store) -> Option<PathBuf> {
    store.find_tree(KIND, &tree_key(lock))
}

/// The packages of the tree that the store does not have.
#[must_use]
pub fn list_missing_debs<'l>(lock: &'l Lock, store: &Store) -> Vec<&'l Deb> {
    let mut debs = packages(lock);
    debs.retain(|deb| store.find_blob(&deb.sha256).is_none());
    debs
}

/// The tree, made if it is not in the store. Without a fetcher, what is [`list_missing_debs`] is an error.
///
/// # Errors
/// [`AssembleError`].
pub fn ensure_tree(
    lock: &Lock,
    store: &Store,
    fetcher: Option<&Fetcher>,
    priority: Priority,
    progress: &dyn Progress,
) -> Result<PathBuf, AssembleError> {
    if let Some(path) = find_tree(lock, store) {
        return Ok(path);
    }
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
    tree.build_if_missing(store, priority, progress, |root| {
        system::mount_points(root).map_err(assemble::system_error(lock))
    })
}
