//! The store: a folder of items that are found by what they are.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_schema::Bytes;

use crate::item::{Place, remove, sync_disk};
use crate::{BuildError, StoreError};

/// The layout that this program writes.
const FORMAT: u32 = 1;
/// How long bytes of a download that broke off are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// A folder of verified blobs and trees. Several processes may use it at once.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    /// The kernel's id of this boot; absent where /proc does not tell it.
    pub(crate) boot: Option<String>,
}

/// What [`Store::sync`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Synced {
    /// Items that are safe against a power loss from now on.
    pub items: usize,
}

/// What the store holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// By kind (`blob`, `wheel`, …): how many items, and the disk space that they take.
    pub kinds: BTreeMap<String, (usize, Bytes)>,
    /// Disk space of unfinished work.
    pub unfinished: Bytes,
}

impl Store {
    /// Opens the store in the folder `root`, making it if it is not there, and removes what
    /// killed processes left unfinished.
    ///
    /// # Errors
    /// [`StoreError::Newer`] for a store of a newer Sconce, which is left untouched;
    /// [`StoreError::Version`] and [`StoreError::Disk`] for one that cannot be used.
    pub fn open(root: &Path) -> Result<Self, StoreError> {
        private_folders(root)?;
        let root = fs::canonicalize(root).map_err(StoreError::disk("open", root))?;
        check_version(&root)?;
        for name in ["items", "locks", "partial", "tmp"] {
            private_folders(&root.join(name))?;
        }
        let store = Self {
            root,
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .ok()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty()),
        };
        store.clean()?;
        Ok(store)
    }

    /// The store's folder, absolute.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn place(&self, kind: &str, key: &str) -> Result<Place, StoreError> {
        Place::new(&self.root, kind, key)
    }

    /// The folder of a tree that is in the store. Nobody may write to it.
    #[must_use]
    pub fn tree(&self, kind: &str, key: &str) -> Option<PathBuf> {
        let place = self.place(kind, key).ok()?;
        self.good(&place)
    }

    /// What an item that is there and can be trusted holds; it counts as used now.
    fn good(&self, place: &Place) -> Option<PathBuf> {
        place.is_good(self.boot.as_deref()).then(|| {
            place.used();
            place.content()
        })
    }

    /// The folder of a tree, made by `build` if it is not in the store. `build` gets an empty
    /// folder with mode 0755; it runs at most once at a time for one `kind` and `key`, in all
    /// processes. `kind` and `key` are made of ASCII letters, digits and `._+-`.
    ///
    /// # Errors
    /// [`BuildError::Build`] with what `build` returned, else [`BuildError::Store`].
    pub fn build_tree<E>(
        &self,
        kind: &str,
        key: &str,
        build: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, BuildError<E>> {
        let place = self.place(kind, key)?;
        self.make(
            &place,
            || (),
            |work| {
                let content = work.join("content");
                make_folder(&content, 0o755).map_err(StoreError::disk("create", &content))?;
                build(&content).map_err(BuildError::Build)
            },
        )
    }

    /// Removes an item, so that it is made anew when it is next asked for. Whoever uses it now keeps
    /// the files that are open.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn forget(&self, kind: &str, key: &str) -> Result<(), StoreError> {
        let place = self.place(kind, key)?;
        let held = place.lock(|| ())?;
        place.begin(&held)?;
        remove(&place.work).map_err(StoreError::disk("remove", &place.work))
    }

    /// Makes an item unless it is there: `fill` gets the work folder and leaves `content` in it.
    pub(crate) fn make<E: From<StoreError>>(
        &self,
        place: &Place,
        waiting: impl FnOnce(),
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        if let Some(content) = self.good(place) {
            return Ok(content);
        }
        let held = place.lock(waiting)?;
        if let Some(content) = self.good(place) {
            return Ok(content);
        }
        place.begin(&held)?;
        let made = fill(&place.work)
            .and_then(|()| place.publish(self.boot.as_deref(), &held).map_err(E::from));
        if made.is_err() {
            // What cannot be removed now is removed by the next open.
            let _ = remove(&place.work);
        }
        made.map(|()| place.content())
    }

    /// Has the disk confirm every item that is not safe against a power loss yet. Meant to be
    /// called off the critical path, for example while the first run is under way.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn sync(&self) -> Result<Synced, StoreError> {
        // Only what is good now may be marked: an item of another boot is not made good by
        // syncing what is left of it.
        let mut fresh = Vec::new();
        self.each_item(|_, folder| {
            let text = fs::read_to_string(folder.join("boot")).ok();
            if !folder.join("synced").exists() && text.is_some() && text == self.boot {
                fresh.push(folder.to_owned());
            }
            Ok(())
        })?;
        if fresh.is_empty() {
            return Ok(Synced { items: 0 });
        }
        sync_disk(&self.root).map_err(StoreError::disk("sync", &self.root))?;
        for folder in &fresh {
            let path = folder.join("synced");
            fs::File::create(&path).map_err(StoreError::disk("create", &path))?;
        }
        Ok(Synced { items: fresh.len() })
    }

    /// What the store holds and how much disk space it takes. Walks every tree.
    ///
    /// # Errors
    /// [`StoreError::Disk`].
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let mut usage = Usage::default();
        self.each_item(|kind, folder| {
            let size = disk_space(folder).map_err(StoreError::disk("read", folder))?;
            let (count, bytes) = usage.kinds.entry(kind.to_owned()).or_default();
            *count += 1;
            bytes.0 += size;
            Ok(())
        })?;
        for name in ["tmp", "partial"] {
            let folder = self.root.join(name);
            usage.unfinished.0 += disk_space(&folder).map_err(StoreError::disk("read", &folder))?;
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

    /// Removes the work of processes that no longer live, and kept bytes of downloads that nobody
    /// went on with. The locks of the dead can be had.
    fn clean(&self) -> Result<(), StoreError> {
        for name in names(&self.root.join("partial"))? {
            let path = self.root.join("partial").join(name);
            let old = |meta: fs::Metadata| meta.is_file() && older(&meta, KEPT);
            if path.symlink_metadata().is_ok_and(old) {
                remove(&path).map_err(StoreError::disk("remove", &path))?;
            }
        }
        for name in names(&self.root.join("tmp"))? {
            let Some(place) = name
                .split_once('~')
                .and_then(|(kind, key)| self.place(kind, key).ok())
            else {
                continue;
            };
            if let Some(_held) = place.try_lock() {
                remove(&place.work).map_err(StoreError::disk("remove", &place.work))?;
            }
        }
        Ok(())
    }
}

/// Whether a file was last written more than `age` ago.
fn older(meta: &fs::Metadata, age: Duration) -> bool {
    meta.modified()
        .ok()
        .and_then(|time| time.elapsed().ok())
        .is_some_and(|elapsed| elapsed > age)
}

/// The UTF-8 names in a folder, sorted.
fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let read = || -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(folder)? {
            names.extend(entry?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    };
    read().map_err(StoreError::disk("list", folder))
}

/// Makes `folder` and what is missing above it, for its owner alone.
fn private_folders(folder: &Path) -> Result<(), StoreError> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(StoreError::disk("create", folder))
}

/// Makes a folder with exactly this mode, whatever the umask.
pub(crate) fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn check_version(root: &Path) -> Result<(), StoreError> {
    let path = root.join("version");
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
            // Whole or not at all, and by one at a time: the lock is the folder's own.
            let fresh = root.join("version.new");
            let write = || {
                let lock = fs::File::open(root)?;
                lock.lock()?;
                let mut file = fs::File::create(&fresh)?;
                writeln!(file, "{FORMAT}")?;
                file.sync_all()?;
                fs::rename(&fresh, &path)
            };
            write().map_err(StoreError::disk("write", &path))
        }
        Err(e) => Err(StoreError::disk("read", &path)(e)),
    }
}

/// Disk space of a tree in bytes, hard links within it counted once each.
pub(crate) fn disk_space(path: &Path) -> io::Result<u64> {
    let meta = path.symlink_metadata()?;
    let mut total = meta.blocks() * 512;
    if meta.is_dir() {
        for entry in fs::read_dir(path)? {
            total += disk_space(&entry?.path())?;
        }
    } else {
        total /= meta.nlink().max(1);
    }
    Ok(total)
}
