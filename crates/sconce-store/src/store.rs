//! The store: a folder of items that are found by what they are.

mod make;
mod view;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sconce_base::tree::remove_tree;
use sconce_schema::{Bytes, Progress};
use tracing::{debug, trace};

use crate::StoreError;
use crate::item::{ItemPaths, OWN_WORK_PREFIX, sync_disk};
use crate::lock::{ItemGuard, LockAttempt, ShareAttempt};

#[doc(hidden)]
pub use view::Machine;
use view::StoreView;

/// The layout that this program writes.
const FORMAT: u32 = 1;
/// Where packs lie ([`crate::item_pack`]).
pub(crate) const PACKS: &str = "packed";
/// The file that says which layout a store has.
const VERSION_FILE: &str = "version";
/// How long bytes of a download that broke off are kept, and what was made or set aside without locks: longer than
/// anything is made, or a machine's clock is off.
const DOWNLOAD_RETENTION_PERIOD: Duration = Duration::from_secs(7 * 24 * 3600);

/// A folder of verified blobs and trees. Several processes may use it at once, on several machines.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    pub(crate) view: StoreView,
    /// By their folders: items that are good because somebody uses them, and that stay because this
    /// process uses them too.
    taken: Arc<Mutex<BTreeMap<PathBuf, ItemGuard>>>,
}

/// How a tree is made, for [`Store::build_tree_with`].
#[derive(Clone, Copy)]
pub struct TreeBuildOptions<'a> {
    /// What `progress` calls it.
    pub name: &'a str,
    /// What it does, for those who wait: `installs six-1.16.0-py2.py3-none-any.whl`.
    pub work: &'a str,
    /// Who is told of a wait.
    pub progress: &'a dyn Progress,
    /// Whether a tree that is there will do. Any other is made anew, unless a run uses it.
    pub accept: &'a (dyn Fn(&Path) -> bool + Sync),
}

/// What [`Store::sync`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSummary {
    /// Items that are safe against a power loss from now on.
    pub items: usize,
}

/// What the store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreUsage {
    /// By kind (`blob`, `wheel`, …): how many items, and the disk space that they take.
    pub kinds: BTreeMap<String, (usize, Bytes)>,
    /// Disk space of unfinished work.
    pub unfinished: Bytes,
}

impl Store {
    /// Opens the store in the folder `root`, making it if it is not there, and removes what
    /// killed processes left unfinished. One that may not be written is read.
    ///
    /// # Errors
    /// [`StoreError::Newer`] for a store of a newer Sconce, which is left untouched;
    /// [`StoreError::Version`] and [`StoreError::Disk`] for one that cannot be used.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        Self::open_as(root, Machine::of_this_boot())
    }

    /// As [`Store::open`], in a boot with this id: for tests.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_in_boot(root: &Path, boot: Option<String>) -> Result<Self, StoreError> {
        let machine = Machine {
            boot,
            ..Machine::default()
        };
        Self::open_as(root, machine)
    }

    /// As [`Store::open`], as a machine sees the store: for tests.
    ///
    /// # Errors
    /// As [`Store::open`].
    #[doc(hidden)]
    pub fn open_as(root: &Path, machine: Machine) -> Result<Self, StoreError> {
        let is_new = !root.join(VERSION_FILE).exists();
        private_folders(root)?;
        let root = fs::canonicalize(root).map_err(StoreError::from_io("open", root))?;
        check_version(&root)?;
        let view = StoreView::open(&root, machine, is_new)?;
        let store = Self {
            view,
            root,
            taken: Arc::default(),
        };
        if store.is_writable() {
            close_to_others(&store.root.join("locks"))?;
            store.clean()?;
        }
        let (root, is_shared) = (store.root.display(), store.view.has_other_machines);
        let is_writable = store.is_writable();
        debug!(%root, is_shared, is_writable, "opened the store");
        Ok(store)
    }

    /// Whether items can be made and removed by this process. Of any other store, what is there can be used.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.view.is_writable
    }

    /// Whether locks tell others what this process does. Where they do not, each makes what it needs beside the others.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        self.view.has_locks(&self.root)
    }

    /// The store's folder, absolute.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn item_paths(&self, kind: &str, key: &str) -> Result<ItemPaths, StoreError> {
        ItemPaths::new(&self.root, kind, key)
    }

    /// The folder of a tree that is in the store. Nobody may write to it.
    #[must_use]
    pub fn find_tree(&self, kind: &str, key: &str) -> Option<PathBuf> {
        let place = self.item_paths(kind, key).ok()?;
        let found = self.find_trusted_item(&place, &|_| true).ok()?;
        trace!(kind, key, is_there = found.is_some(), "looked for an item");
        found
    }

    /// Where a tree lies once it is in the store, whether it is there or not: for a tree that says where it lies.
    ///
    /// # Errors
    /// [`StoreError::Name`].
    pub fn tree_path(&self, kind: &str, key: &str) -> Result<PathBuf, StoreError> {
        Ok(self.item_paths(kind, key)?.content_path())
    }

    /// What an item that is there and can be trusted holds, if `accept` takes it; it counts as used now.
    pub(crate) fn find_trusted_item(
        &self,
        place: &ItemPaths,
        accept: &dyn Fn(&Path) -> bool,
    ) -> Result<Option<PathBuf>, StoreError> {
        let content = place.content_path();
        if place.is_good(self.view.trusted_boots()) || self.has_taken(place) {
            if self.is_writable() {
                place.mark_used();
            }
            if accept(&content) {
                return Ok(Some(content));
            }
            // It may be replaced: this process is not the one that uses it.
            self.taken().remove(&place.folder);
            return Ok(None);
        }
        // Of a boot that is over, as far as is known here.
        if place.folder.is_dir()
            && self.is_writable()
            && self.has_locks()
            && let LockAttempt::Shared = place.lock.try_lock_exclusive("looks who uses it")?
        {
            return self.reuse_item_in_use(place, accept);
        }
        Ok(None)
    }

    /// Takes an item that others use, though neither this boot nor the disk vouches for it.
    ///
    /// Who uses it found it good when it got the lock that it still shares. So its machine has not
    /// gone down since, and what its page cache held for the disk is not lost. That this machine is
    /// another one and sees the same bytes is the shared file system's promise: every file of an item
    /// is closed before the item appears, and what is opened later has what was closed (close-to-open
    /// consistency, nfs(5)). From now on this process shares the lock, so nobody replaces the item.
    pub(crate) fn reuse_item_in_use(
        &self,
        place: &ItemPaths,
        accept: &dyn Fn(&Path) -> bool,
    ) -> Result<Option<PathBuf>, StoreError> {
        let ShareAttempt::Shared(held) = place.lock.try_lock_shared()? else {
            return Ok(None);
        };
        let content = place.content_path();
        if content.symlink_metadata().is_err() || !accept(&content) {
            return Ok(None);
        }
        self.taken().insert(place.folder.clone(), held);
        Ok(Some(content))
    }

    fn has_taken(&self, place: &ItemPaths) -> bool {
        self.taken().contains_key(&place.folder)
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<PathBuf, ItemGuard>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the disk confirm every item that is not safe against a power loss yet. Meant to be
    /// called off the critical path, for example while the first run is under way.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn sync(&self) -> Result<SyncSummary, StoreError> {
        if !self.is_writable() {
            return Ok(SyncSummary { items: 0 });
        }
        // Only what is good now may be marked: an item of another boot is not made good by
        // syncing what is left of it.
        let identity = |folder: &Path| {
            let meta = folder.symlink_metadata().ok()?;
            Some((meta.dev(), meta.ino()))
        };
        let mut fresh = Vec::new();
        self.each_item(|kind, folder| {
            let text = fs::read_to_string(folder.join("boot")).ok();
            let key = folder.file_name().and_then(|key| key.to_str());
            if !folder.join("synced").exists()
                && text.is_some()
                && text.as_deref() == self.view.boot()
                && let Some(place) = key.and_then(|key| self.item_paths(kind, key).ok())
            {
                fresh.push((identity(folder), place));
            }
            Ok(())
        })?;
        let mut synced = SyncSummary { items: 0 };
        if fresh.is_empty() {
            return Ok(synced);
        }
        sync_disk(&self.root).map_err(StoreError::from_io("sync", &self.root))?;
        for (before, place) in &fresh {
            // Somebody may be removing it, or may have made it anew meanwhile: that one is not synced.
            let held = place.lock.try_lock_shared()?;
            let is_taken = matches!(held, ShareAttempt::Taken);
            if !is_taken && before.is_some() && identity(&place.folder) == *before {
                let path = place.folder.join("synced");
                fs::File::create(&path).map_err(StoreError::from_io("create", &path))?;
                synced.items += 1;
            }
        }
        Ok(synced)
    }

    /// What the store holds and how much disk space it takes. Walks every tree.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn measure_usage(&self) -> Result<StoreUsage, StoreError> {
        let mut usage = StoreUsage::default();
        self.each_item(|kind, folder| {
            let size = disk_space(folder).map_err(StoreError::from_io("read", folder))?;
            let (count, bytes) = usage.kinds.entry(kind.to_owned()).or_default();
            *count += 1;
            bytes.0 += size;
            Ok(())
        })?;
        let packs = disk_space(&self.root.join(PACKS));
        let packs = packs.map_err(StoreError::from_io("read", &self.root))?;
        let files = self.list_packs()?.len();
        if files > 0 {
            let kind = PACKS.to_owned();
            usage.kinds.insert(kind, (files, Bytes(packs)));
        }
        for name in ["tmp", "partial"] {
            let folder = self.root.join(name);
            usage.unfinished.0 +=
                disk_space(&folder).map_err(StoreError::from_io("read", &folder))?;
        }
        Ok(usage)
    }

    pub(crate) fn each_item(
        &self,
        mut tell: impl FnMut(&str, &Path) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for kind in names(&self.root.join("items"))? {
            let folder = self.root.join("items").join(&kind);
            for key in names(&folder)? {
                tell(&kind, &folder.join(key))?;
            }
        }
        Ok(())
    }

    /// The files of packs, whole ones alone.
    pub(crate) fn list_packs(&self) -> Result<Vec<(PathBuf, fs::Metadata)>, StoreError> {
        let dir = self.root.join(PACKS);
        let names = names(&dir)?.into_iter();
        let whole = names.filter(|name| !name.starts_with(OWN_WORK_PREFIX));
        let packs = whole.filter_map(|name| {
            let path = dir.join(name);
            let meta = path.symlink_metadata().ok()?;
            meta.is_file().then_some((path, meta))
        });
        Ok(packs.collect())
    }

    /// Removes the work of processes that no longer live, and kept bytes of downloads and unfinished
    /// work that nobody went on with. The locks of the dead can be had.
    fn clean(&self) -> Result<(), StoreError> {
        for name in names(&self.root.join("partial"))? {
            let path = self.root.join("partial").join(&name);
            let old =
                |meta: &fs::Metadata| meta.is_file() && older(meta, DOWNLOAD_RETENTION_PERIOD);
            match path.symlink_metadata() {
                Ok(meta) if meta.is_dir() => {
                    self.clean_unfinished(&name, DOWNLOAD_RETENTION_PERIOD)?
                }
                Ok(meta) if old(&meta) => {
                    remove_tree(&path).map_err(StoreError::from_io("remove", &path))?;
                }
                _ => {}
            }
        }
        for name in names(&self.root.join(PACKS))? {
            let path = self.root.join(PACKS).join(&name);
            if name.starts_with(OWN_WORK_PREFIX) {
                remove_if_older(&path, DOWNLOAD_RETENTION_PERIOD)?;
            }
        }
        for name in names(&self.root.join("tmp"))? {
            if name.starts_with(OWN_WORK_PREFIX) {
                remove_if_older(
                    &self.root.join("tmp").join(&name),
                    DOWNLOAD_RETENTION_PERIOD,
                )?;
                continue;
            }
            if !self.has_locks() {
                continue;
            }
            let Some(place) = name
                .split_once('~')
                .and_then(|(kind, key)| self.item_paths(kind, key).ok())
            else {
                continue;
            };
            if let LockAttempt::Alone(_held) = place.lock.try_lock_exclusive(CLEARS)? {
                remove_tree(&place.work).map_err(StoreError::from_io("remove", &place.work))?;
            }
        }
        Ok(())
    }
}

/// What who clears up after others does, for those who wait for it.
pub(crate) const CLEARS: &str = "clears away what an ended process left unfinished";

/// Removes what nobody has changed for `age`, where no lock says whether somebody is at it.
pub(crate) fn remove_if_older(path: &Path, age: Duration) -> Result<(), StoreError> {
    match path.symlink_metadata() {
        Ok(meta) if older(&meta, age) => {
            remove_tree(path).map_err(StoreError::from_io("remove", path))
        }
        _ => Ok(()),
    }
}

/// Whether a file was last written more than `age` ago.
pub(crate) fn older(meta: &fs::Metadata, age: Duration) -> bool {
    meta.modified()
        .ok()
        .and_then(|time| time.elapsed().ok())
        .is_some_and(|elapsed| elapsed > age)
}

/// The UTF-8 names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = match fs::read_dir(folder) {
            // Of a store that could not be made whole.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
            entries => entries?,
        };
        for entry in entries {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    };
    read().map_err(StoreError::from_io("list", folder))
}

/// Makes `folder` and what is missing above it, for its owner alone.
fn private_folders(folder: &Path) -> Result<(), StoreError> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(StoreError::from_io("create", folder))
}

/// Makes a folder with exactly this mode, whatever the umask.
pub(crate) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn check_version(root: &Path) -> Result<(), StoreError> {
    let path = root.join(VERSION_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse::<u32>() {
            Ok(found) if found > FORMAT => Err(StoreError::Newer {
                root: root.to_owned(),
                found,
                known: FORMAT,
            }),
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::Version {
                path,
                text: text.chars().take(40).collect(),
            }),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // Whole or not at all, and never over one that somebody else writes now.
            let write = || {
                let mut file = tempfile::Builder::new()
                    .prefix(".version-")
                    .tempfile_in(root)?;
                writeln!(file, "{FORMAT}")?;
                file.as_file().sync_all()?;
                match file.persist_noclobber(&path) {
                    Err(e) if e.error.kind() != io::ErrorKind::AlreadyExists => Err(e.error),
                    _ => Ok(()),
                }
            };
            write().map_err(StoreError::from_io("write", &path))?;
            check_version(root)
        }
        Err(e) => Err(StoreError::from_io("read", &path)(e)),
    }
}

/// Disk space of a tree in bytes, hard links within it counted once each. What goes meanwhile takes none.
pub(crate) fn disk_space(path: &Path) -> io::Result<u64> {
    let gone = |e: &io::Error| e.kind() == io::ErrorKind::NotFound;
    let meta = match path.symlink_metadata() {
        Err(e) if gone(&e) => return Ok(0),
        meta => meta?,
    };
    let mut total = meta.blocks() * 512;
    if meta.is_dir() {
        let entries = match fs::read_dir(path) {
            Err(e) if gone(&e) => return Ok(total),
            entries => entries?,
        };
        for entry in entries {
            total += disk_space(&entry?.path())?;
        }
    } else {
        total /= meta.nlink().max(1);
    }
    Ok(total)
}

/// Takes away every right of others on a folder: whoever can open a lock can hold it.
fn close_to_others(folder: &Path) -> Result<(), StoreError> {
    let failed = || StoreError::from_io("close to others", folder);
    let mode = folder.metadata().map_err(failed())?.permissions().mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let closed = fs::Permissions::from_mode(mode & 0o700);
    match fs::set_permissions(folder, closed) {
        // It is another user's, who lets this one write.
        Err(error) if crate::lock::is_refused(&error) => Ok(()),
        closed => closed.map_err(failed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_machines_may_see_is_on_the_disk_before_it_appears() {
        let folder = tempfile::tempdir().unwrap();
        let open = |boot: &str| Store::open_in_boot(folder.path(), Some(boot.to_owned())).unwrap();
        let make = |store: &Store, key: &str| {
            let build = |tree: &Path| fs::write(tree.join("a"), key);
            store.build_tree("wheel", key, build).unwrap()
        };
        let (mut shared, other) = (open("one"), open("two"));
        shared.view.has_other_machines = true;
        let tree = make(&shared, "shared");
        assert!(tree.with_file_name("synced").exists() && !tree.with_file_name("boot").exists());
        // The other one has it, though nobody holds it.
        assert_eq!(other.find_tree("wheel", "shared"), Some(tree));
        // Where one machine alone sees it, nobody waits for the disk.
        let tree = make(&open("one"), "local");
        assert!(tree.with_file_name("boot").exists() && !tree.with_file_name("synced").exists());
        assert_eq!(other.find_tree("wheel", "local"), None);
    }
}
