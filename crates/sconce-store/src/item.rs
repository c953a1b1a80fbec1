//! One item of the store: how it is locked, made, published and trusted.
//!
//! An item is a folder `items/<kind>/<key>/` that holds
//! - `content`, the blob or the tree,
//! - `boot`, the id of the boot during which it was written,
//! - `synced`, an empty file made after the disk confirmed everything before it.
//!
//! It is made in `tmp/<kind>~<key>/` under the lock `locks/<kind>~<key>` ([`crate::lock`]) and appears
//! by one rename, so that a killed process leaves nothing but a folder in `tmp`, which whoever gets
//! the lock next removes. After a power loss a renamed folder can be there while the bytes in it are
//! not. So an item is trusted only when it is `synced` or when this is still the boot that wrote
//! it (the page cache then holds what the disk may not); any other is made anew, unless somebody
//! uses it ([`crate::Store`] says why that one is good). Nobody waits for the disk: `synced` is
//! written later, by [`crate::Store::sync`], but on file systems that other machines may share: there
//! an item is synced before it appears, as it is no item of their boot.
//!
//! Where locks tell nobody anything, each maker has a directory of its own, `tmp/beside-<random>/`, and the
//! first rename wins. Nothing is removed there that others may have: what has to make room is renamed into
//! `tmp`, and what lies in such a directory for a week is nobody's.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sconce_base::tree::remove_tree;

use crate::StoreError;
use crate::lock::{ItemGuard, ItemLock};

/// Where an item is and where it is made.
#[derive(Debug, Clone)]
pub(crate) struct ItemPaths {
    /// Its final folder.
    pub(crate) folder: PathBuf,
    /// The folder it is made in, under its lock.
    pub(crate) work: PathBuf,
    pub(crate) lock: ItemLock,
}

/// How names in `tmp` and `partial` begin that belong to no lock.
pub(crate) const OWN_WORK_PREFIX: &str = "beside-";
/// How exactly it is known when an item was last used.
const LAST_USE_PRECISION: Duration = Duration::from_secs(3600);

/// Which boots vouch for items that the disk has not confirmed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TrustedBoots<'a> {
    /// None: the kernel tells none.
    None,
    /// This one: on a file system of one machine, every other is over.
    Own(&'a str),
    /// Any: this machine's own items are on the disk before they appear, and so such an item is of the machine
    /// that has the disk and shares it. Whether its boot is over nobody here can tell; that machine can, and
    /// makes the item anew where it is.
    Any,
}

/// Whether `name` can be part of a file name here: not empty, no separator, not hidden, and short
/// enough that kind, key and suffix fit one file name.
fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 120
        && !name.starts_with('.')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._+-".contains(&b))
}

impl ItemPaths {
    pub(crate) fn new(root: &Path, kind: &str, key: &str) -> Result<Self, StoreError> {
        for name in [kind, key] {
            if !is_plain(name) {
                return Err(StoreError::Name {
                    name: name.to_owned(),
                });
            }
        }
        let flat = format!("{kind}~{key}");
        Ok(Self {
            folder: root.join("items").join(kind).join(key),
            work: root.join("tmp").join(&flat),
            lock: ItemLock::new(root.join("locks").join(&flat)),
        })
    }

    /// The path of what the item holds.
    pub(crate) fn content_path(&self) -> PathBuf {
        self.folder.join("content")
    }

    /// Whether the item is there and can be trusted.
    pub(crate) fn is_good(&self, boots: TrustedBoots<'_>) -> bool {
        if self.folder.join("synced").exists() {
            return true;
        }
        let is_of = |trusted: &str| {
            fs::read_to_string(self.folder.join("boot")).is_ok_and(|text| text == trusted)
        };
        match boots {
            TrustedBoots::None => false,
            TrustedBoots::Own(boot) => is_of(boot),
            TrustedBoots::Any => self.folder.join("boot").exists(),
        }
    }

    /// Notes that the item is in use now, where the last note is older than an hour. A note that cannot
    /// be written is not worth a failure.
    pub(crate) fn mark_used(&self) {
        let (path, last) = self.last_use();
        let old = last.is_none_or(|last| last.elapsed().is_ok_and(|age| age > LAST_USE_PRECISION));
        if old && let Ok(file) = File::open(path) {
            let _ = file.set_modified(SystemTime::now());
        }
    }

    /// When it was last used, and the file whose time says so.
    pub(crate) fn last_use(&self) -> (PathBuf, Option<SystemTime>) {
        let file = ["boot", "synced"].map(|name| self.folder.join(name));
        let [boot, synced] = file;
        let path = if boot.exists() { boot } else { synced };
        let last = path.metadata().and_then(|meta| meta.modified()).ok();
        (path, last)
    }

    /// A new empty directory to make the item in, of which nobody else knows.
    pub(crate) fn create_own_work_dir(&self) -> Result<PathBuf, StoreError> {
        let path = self.own_dir_name();
        fs::create_dir(&path).map_err(StoreError::from_io("create", &path))?;
        Ok(path)
    }

    fn own_dir_name(&self) -> PathBuf {
        let name = format!("{OWN_WORK_PREFIX}{}", sconce_base::random_name());
        self.work.with_file_name(name)
    }

    /// Renames the item away, so that whoever has it open keeps it. Says whether it was there.
    pub(crate) fn set_aside(&self) -> Result<bool, StoreError> {
        match fs::rename(&self.folder, self.own_dir_name()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            renamed => renamed
                .map(|()| true)
                .map_err(StoreError::from_io("rename", &self.folder)),
        }
    }

    /// An empty folder to make the item in. What a killed process left there is removed, and so
    /// is an item that lost its trust.
    pub(crate) fn prepare_work_dir(&self, _held: &ItemGuard) -> Result<(), StoreError> {
        remove_tree(&self.work).map_err(StoreError::from_io("remove", &self.work))?;
        if self.folder.exists() {
            // Renamed first, so that no half-removed item is ever seen.
            fs::rename(&self.folder, &self.work)
                .map_err(StoreError::from_io("rename", &self.folder))?;
            remove_tree(&self.work).map_err(StoreError::from_io("remove", &self.work))?;
        }
        fs::create_dir(&self.work).map_err(StoreError::from_io("create", &self.work))
    }

    /// Makes what lies in `work` the item, unless one is there: then this says `false`, and `work` is left. Without
    /// the id of a boot during which it can be trusted, the disk confirms it first.
    pub(crate) fn publish(&self, work: &Path, boot: Option<&str>) -> Result<bool, StoreError> {
        match boot {
            Some(boot) => {
                let path = work.join("boot");
                fs::write(&path, boot).map_err(StoreError::from_io("write", &path))?;
            }
            None => {
                sync_disk(work).map_err(StoreError::from_io("sync", work))?;
                let path = work.join("synced");
                File::create(&path).map_err(StoreError::from_io("create", &path))?;
            }
        }
        let kind = self.folder.parent().unwrap_or(&self.folder);
        fs::create_dir_all(kind).map_err(StoreError::from_io("create", kind))?;
        match fs::rename(work, &self.folder) {
            Ok(()) => Ok(true),
            // rename(2) has both for a directory that is not empty.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists
                ) =>
            {
                Ok(false)
            }
            Err(error) => Err(StoreError::from_io("rename", &self.folder)(error)),
        }
    }
}

/// Has the kernel write everything of the file system that holds `path`.
pub(crate) fn sync_disk(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::syncfs(File::open(path)?)?)
}
