//! What leaves the store: what nobody has used for some time. All of it can be had again.
//!
//! When an item was last used is the time of its `boot` file, to the hour. A run holds the trees that
//! it stands on, by their locks; what is being made is held by whoever makes it. What was used within
//! the time is never looked at, so that a build that has just found its packages keeps them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path};
use std::time::Duration;

use sconce_base::tree::remove_tree;
use sconce_schema::Bytes;

use crate::item::ItemPaths;
use crate::item_access::RetryBackoff;
use crate::lock::{ItemGuard, LockAttempt, ShareAttempt};
use crate::store::{PACKS, disk_space, older};
use crate::{Store, StoreError};

/// How often a tree is tried to be held that another process makes anew or removes: for 15 seconds. Who
/// asks for the tree then waits for it as for any other, and is told for whom.
const MAX_RETRIES: u32 = 80;

/// What [`Store::prune`] removed or would remove.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PruneSummary {
    /// By kind (`blob`, `wheel`, …): how many items, and the disk space that they took.
    pub kinds: BTreeMap<String, (usize, Bytes)>,
    /// Items that a run holds, and that stayed for it.
    pub held: usize,
}

impl PruneSummary {
    fn add(&mut self, kind: String, size: u64) {
        let (count, bytes) = self.kinds.entry(kind).or_default();
        *count += 1;
        bytes.0 += size;
    }

    /// Disk space of all of them.
    #[must_use]
    pub fn total_bytes(&self) -> Bytes {
        Bytes(self.kinds.values().map(|(_, bytes)| bytes.0).sum())
    }
}

/// Has trees of a store stay as long as what this gives is held. Other folders are passed over, and so are trees
/// that this process cannot lock: in a store that is another user's or is mounted for reading, or whose locks do not
/// work. There the store's owner sees to it that `prune` removes nothing that is in use.
///
/// # Errors
/// [`StoreError::Gone`] where another process removed one of them just before, or makes it anew: they
/// are to be asked for again; [`StoreError::Disk`], [`StoreError::NoLocks`].
pub fn acquire_item_guards<'a>(
    trees: impl Iterator<Item = &'a Path>,
) -> Result<Vec<ItemGuard>, StoreError> {
    let mut held = Vec::new();
    for tree in trees {
        if let Some(place) = place_of(tree) {
            let mut pauses = RetryBackoff::new();
            let one = loop {
                match place.lock.try_lock_shared()? {
                    ShareAttempt::Taken if pauses.pause_count() < MAX_RETRIES => {
                        pauses.sleep_before_retry();
                    }
                    one => break one,
                }
            };
            if matches!(one, ShareAttempt::Taken) || !tree.exists() {
                return Err(StoreError::Gone {
                    path: tree.to_owned(),
                });
            }
            if let ShareAttempt::Shared(guard) = one {
                held.push(guard);
            }
        }
    }
    Ok(held)
}

/// Kind and key of the item of a store that a path lies in.
#[must_use]
pub fn item_of_path(path: &Path) -> Option<(String, String)> {
    let (_, kind, key) = split_item_path(path)?;
    Some((kind.to_owned(), key.to_owned()))
}

fn place_of(path: &Path) -> Option<ItemPaths> {
    let (root, kind, key) = split_item_path(path)?;
    root.join("locks").is_dir().then_some(())?;
    ItemPaths::new(root, kind, key).ok()
}

/// `ROOT/items/KIND/KEY/content…` as root, kind and key.
fn split_item_path(path: &Path) -> Option<(&Path, &str, &str)> {
    let mut above = path.ancestors();
    let content = above.find(|path| {
        let is = |path: Option<&Path>, name: &str| {
            path.and_then(Path::file_name) == Some(OsStr::new(name))
        };
        is(Some(path), "content") && is(path.ancestors().nth(3), "items")
    })?;
    let root = content.ancestors().nth(4)?;
    let mut names = content.strip_prefix(root).ok()?.components().skip(1);
    let mut name = || match names.next() {
        Some(Component::Normal(name)) => name.to_str(),
        _ => None,
    };
    Some((root, name()?, name()?))
}

impl Store {
    /// Removes the items that nobody has used for `unused`, but for those that `keep` says of by kind
    /// and key and those that runs hold. With `dry`, nothing is removed.
    ///
    /// # Errors
    /// [`StoreError::LocalLocks`], [`StoreError::NoLocks`], [`StoreError::OwnDisk`]: nothing tells what others use; [`StoreError::Disk`];
    /// what was removed until then is gone.
    pub fn prune(
        &self,
        unused: Duration,
        keep: &dyn Fn(&str, &str) -> bool,
        dry: bool,
    ) -> Result<PruneSummary, StoreError> {
        if self.is_writable() && !self.has_locks() {
            return Err(self.view.lock_obstacle(self.root()));
        }
        let mut items = Vec::new();
        self.each_item(|kind, folder| {
            let key = folder.file_name().and_then(OsStr::to_str);
            items.extend(key.map(|key| (kind.to_owned(), key.to_owned())));
            Ok(())
        })?;
        let mut pruned = PruneSummary::default();
        for (kind, key) in items {
            // What has another name than an item was not made by Sconce.
            let Ok(place) = self.item_paths(&kind, &key) else {
                continue;
            };
            let old = || {
                let last = place.last_use().1;
                last.is_some_and(|last| last.elapsed().is_ok_and(|age| age >= unused))
            };
            if keep(&kind, &key) || !old() {
                continue;
            }
            let LockAttempt::Alone(_held) =
                place.lock.try_lock_exclusive("removes what nobody uses")?
            else {
                pruned.held += 1;
                continue;
            };
            // It may have come into use before the lock was had.
            if !old() {
                continue;
            }
            let size =
                disk_space(&place.folder).map_err(StoreError::from_io("read", &place.folder))?;
            if !dry {
                remove_tree(&place.work).map_err(StoreError::from_io("remove", &place.work))?;
                fs::rename(&place.folder, &place.work)
                    .map_err(StoreError::from_io("rename", &place.folder))?;
                remove_tree(&place.work).map_err(StoreError::from_io("remove", &place.work))?;
            }
            tracing::debug!(kind, key, size, dry, "nobody used the item");
            pruned.add(kind, size);
        }
        for (path, meta) in self.list_packs()? {
            // Of one that waits for long in a scheduler's queue, nodes read the items themselves.
            if older(&meta, unused) {
                if !dry {
                    remove_tree(&path).map_err(StoreError::from_io("remove", &path))?;
                }
                pruned.add(PACKS.to_owned(), meta.blocks() * 512);
            }
        }
        Ok(pruned)
    }
}
