//! Files inside a folder as if it were the root of the file system.
//!
//! What a package or an image brings is hostile: a link may stand anywhere and lead anywhere. Here
//! every name and every link is followed part by part below the folder: an absolute link begins at
//! the folder, and `..` above it is the folder. The folder belongs to this process alone while it is
//! worked on, so a path that was resolved stays what it was.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use sconce_schema::{Hint, exit};

/// As the kernel's own limit.
const MAX_LINKS: u32 = 40;
/// No folder that is made lies deeper: who walks or removes a tree holds every level of it open.
const MAX_DEPTH: usize = 250;

/// Why a name could not be worked on inside the folder.
#[derive(Debug, thiserror::Error)]
pub enum ScopedRootError {
    /// A name or a link that cannot be followed inside the folder.
    #[error("the entry `{name}` {why}")]
    Name {
        /// The entry, made printable.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The system refused.
    #[error("cannot {action} {}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// The real path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Hint for ScopedRootError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Disk { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("the disk is full; make room, or give another store folder".to_owned())
            }
            Self::Disk { .. } | Self::Name { .. } => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Name { .. } => exit::VERIFY,
            Self::Disk { .. } => exit::STORE,
        }
    }
}

impl ScopedRootError {
    fn name(name: &[u8], why: &'static str) -> Self {
        Self::Name {
            name: printable_name(name),
            why,
        }
    }

    fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Disk {
            action,
            path: path.to_owned(),
            source,
        }
    }
}

/// An entry's name for people: at most 200 characters, without control characters.
#[must_use]
pub fn printable_name(name: &[u8]) -> String {
    let short: String = String::from_utf8_lossy(name).chars().take(200).collect();
    short.escape_debug().to_string()
}

/// What happens to a folder in whose place something else is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnConflict {
    /// It stays, as dpkg has it: a link in its place is passed over, a file is refused, and a
    /// folder in the place of a link to a folder means that folder.
    Stay,
    /// It goes with all that is in it, as in a layer of an image: the later entry counts.
    Yield,
}

/// Folders that are remembered at most: a hostile archive can have millions.
const MAX_KNOWN_FOLDERS: usize = 50_000;

/// A folder, worked on as if it were the root. Names are bytes with slashes; a slash before them
/// changes nothing, `..` is refused.
#[derive(Debug)]
pub struct ScopedRoot {
    root: PathBuf,
    folders: OnConflict,
    /// Folders that were resolved: the parts of their name to the real path.
    known: HashMap<Vec<u8>, PathBuf>,
}

impl ScopedRoot {
    /// The folder `root`, which is there.
    #[must_use]
    pub fn new(root: &Path, folders: OnConflict) -> Self {
        Self {
            root: root.to_owned(),
            folders,
            known: HashMap::new(),
        }
    }

    /// Its real path.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The real path of the folder `name`, links followed. What is missing is made, with mode 0755.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn make_folder(&mut self, name: &[u8]) -> Result<PathBuf, ScopedRootError> {
        self.above(&split_name(name)?, name)
    }

    /// A folder with this mode, of which the owner keeps all rights: it must be possible to fill it
    /// and, one day, to remove it. Set-user-id and set-group-id are dropped.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn ensure_dir(&mut self, name: &[u8], mode: u32) -> Result<PathBuf, ScopedRootError> {
        let path = match (self.folders, split_name(name)?.is_empty()) {
            (OnConflict::Stay, _) | (_, true) => self.make_folder(name)?,
            (OnConflict::Yield, false) => {
                let path = self.place(name)?;
                if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
                    path
                } else {
                    self.remove(&path)?;
                    // Made by the walk, which knows how deep it lies.
                    self.make_folder(name)?
                }
            }
        };
        fs::set_permissions(&path, Permissions::from_mode(mode & 0o1777 | 0o700))
            .map_err(ScopedRootError::disk("set the mode of", &path))?;
        Ok(path)
    }

    /// The real path for a new file: its folder is there, and nothing is in its place.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn prepare_new_path(&mut self, name: &[u8]) -> Result<PathBuf, ScopedRootError> {
        let path = self.place(name)?;
        if let Ok(meta) = path.symlink_metadata() {
            if meta.is_dir() && self.folders == OnConflict::Stay {
                return Err(ScopedRootError::name(name, "would replace a folder"));
            }
            self.remove(&path)?;
        }
        Ok(path)
    }

    /// A regular file in the place of what was there. Of `mode` the permissions count.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn write(
        &mut self,
        name: &[u8],
        bytes: &[u8],
        mode: u32,
    ) -> Result<PathBuf, ScopedRootError> {
        let path = self.prepare_new_path(name)?;
        let write = || {
            let mut file = fs::File::create_new(&path)?;
            file.write_all(bytes)?;
            file.set_permissions(Permissions::from_mode(mode & 0o777))
        };
        write().map_err(ScopedRootError::disk("write", &path))?;
        Ok(path)
    }

    /// A symbolic link. Its text is kept as it is; it means something inside the folder only. Gives
    /// the link's real path, or `None` where a folder stays in its place.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn create_symlink(
        &mut self,
        name: &[u8],
        target: &[u8],
    ) -> Result<Option<PathBuf>, ScopedRootError> {
        if target.is_empty() || target.contains(&0) {
            return Err(ScopedRootError::name(name, "is a link to nowhere"));
        }
        let path = self.place(name)?;
        if self.folders == OnConflict::Stay
            && path.symlink_metadata().is_ok_and(|meta| meta.is_dir())
        {
            return Ok(None);
        }
        let path = self.prepare_new_path(name)?;
        symlink(OsStr::from_bytes(target), &path).map_err(ScopedRootError::disk("link", &path))?;
        Ok(Some(path))
    }

    /// Another name for a file of the folder; with [`OnConflict::Yield`] also for a link.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), ScopedRootError> {
        let old = self.place(target)?;
        let is_file = |meta: Metadata| {
            meta.is_file() || meta.is_symlink() && self.folders == OnConflict::Yield
        };
        if !old.symlink_metadata().is_ok_and(is_file) {
            return Err(ScopedRootError::name(
                name,
                "is another name for no file of the tree",
            ));
        }
        if self.place(name)? == old {
            return Ok(());
        }
        let path = self.prepare_new_path(name)?;
        // The kernel does not follow a link here (linkat(2) without AT_SYMLINK_FOLLOW).
        fs::hard_link(&old, &path).map_err(ScopedRootError::disk("link", &path))
    }

    /// The real path of what `name` leads to, links followed; `None` where it leads to nothing, or
    /// below a file, or in a circle.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn resolve_path(&self, name: &[u8]) -> Result<Option<PathBuf>, ScopedRootError> {
        self.walk(&split_name(name)?, name, false)
    }

    /// Whether there is anything of that name itself, be it a link to nowhere.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn contains_entry(&self, name: &[u8]) -> Result<bool, ScopedRootError> {
        Ok(self.resolve_no_follow(name)?.is_some())
    }

    /// The real path of what stands under that name itself: a link is not followed.
    ///
    /// # Errors
    /// [`ScopedRootError`].
    pub fn resolve_no_follow(&self, name: &[u8]) -> Result<Option<PathBuf>, ScopedRootError> {
        let parts = split_name(name)?;
        let Some((last, above)) = parts.split_last() else {
            return Ok(Some(self.root.clone()));
        };
        let above = self.walk(above, name, false)?;
        let path = above.map(|above| above.join(last));
        Ok(path.filter(|path| path.symlink_metadata().is_ok()))
    }

    /// What is in the file that `name` leads to; `None` where there is none.
    ///
    /// # Errors
    /// [`ScopedRootError`], also where it has more than `most` bytes.
    pub fn read(&self, name: &[u8], most: u64) -> Result<Option<Vec<u8>>, ScopedRootError> {
        let Some(path) = self.resolve_path(name)? else {
            return Ok(None);
        };
        let meta = path.symlink_metadata();
        if !meta
            .map_err(ScopedRootError::disk("read", &path))?
            .is_file()
        {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let read =
            fs::File::open(&path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
        read.map_err(ScopedRootError::disk("read", &path))?;
        if bytes.len() as u64 > most {
            return Err(ScopedRootError::name(name, "is too large"));
        }
        Ok(Some(bytes))
    }

    /// The real path of an entry: its folder, made where it is missing, and its own name.
    fn place(&mut self, name: &[u8]) -> Result<PathBuf, ScopedRootError> {
        let parts = split_name(name)?;
        let (last, above) = parts
            .split_last()
            .ok_or_else(|| ScopedRootError::name(name, "has no name"))?;
        Ok(self.above(above, name)?.join(last))
    }

    /// The real path of the folder `parts`, made where it is missing.
    fn above(&mut self, parts: &[&OsStr], name: &[u8]) -> Result<PathBuf, ScopedRootError> {
        let key = parts
            .iter()
            .map(|part| part.as_bytes())
            .collect::<Vec<_>>()
            .join(&b'/');
        if let Some(path) = self.known.get(&key) {
            return Ok(path.clone());
        }
        let path = self
            .walk(parts, name, true)?
            .ok_or_else(|| ScopedRootError::name(name, "lies below a file"))?;
        if self.known.len() >= MAX_KNOWN_FOLDERS {
            self.known.clear();
        }
        self.known.insert(key, path.clone());
        Ok(path)
    }

    /// Removes what is at a real path, if anything is.
    fn remove(&mut self, path: &Path) -> Result<(), ScopedRootError> {
        let Ok(meta) = path.symlink_metadata() else {
            return Ok(());
        };
        let removed = if meta.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        if !meta.is_file() {
            self.known.clear();
        }
        removed.map_err(ScopedRootError::disk("remove", path))
    }

    /// Follows `parts` from the root. With `make` it is the way to a folder, of which missing parts
    /// are made; without, it ends at whatever is there. `None` below a file, and without `make`
    /// also where something is missing or links lead in a circle.
    fn walk(
        &self,
        parts: &[&OsStr],
        name: &[u8],
        make: bool,
    ) -> Result<Option<PathBuf>, ScopedRootError> {
        let mut real = self.root.clone();
        let mut depth = 0_usize;
        let mut links = 0;
        // What is still to walk, last first.
        let mut rest: Vec<Vec<u8>> = parts.iter().rev().map(|p| p.as_bytes().to_vec()).collect();
        while let Some(part) = rest.pop() {
            if part == b".." {
                // Only links can say so; above the root is the root.
                if depth > 0 {
                    real.pop();
                    depth -= 1;
                }
                continue;
            }
            let next = real.join(OsStr::from_bytes(&part));
            match next.symlink_metadata() {
                Ok(meta) if meta.is_dir() => {}
                Ok(meta) if meta.is_symlink() => {
                    links += 1;
                    if links > MAX_LINKS && make {
                        return Err(ScopedRootError::name(name, "lies behind a loop of links"));
                    } else if links > MAX_LINKS {
                        return Ok(None);
                    }
                    let target =
                        fs::read_link(&next).map_err(ScopedRootError::disk("read", &next))?;
                    let target = target.as_os_str().as_bytes();
                    if target.starts_with(b"/") {
                        self.root.clone_into(&mut real);
                        depth = 0;
                    }
                    rest.extend(plain_parts(target).map(<[u8]>::to_vec).rev());
                    continue;
                }
                Ok(_) if !make && rest.is_empty() => return Ok(Some(next)),
                Ok(_) => return Ok(None),
                Err(e) if make && e.kind() == io::ErrorKind::NotFound => {
                    if depth >= MAX_DEPTH {
                        return Err(ScopedRootError::name(name, "lies too deep"));
                    }
                    crate::store::make_folder(&next, 0o755)
                        .map_err(ScopedRootError::disk("create", &next))?;
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(e) => return Err(ScopedRootError::disk("look at", &next)(e)),
            }
            real = next;
            depth += 1;
        }
        Ok(Some(real))
    }
}

/// Sets when a file, a folder or a link itself was last modified, seconds since 1970.
///
/// # Errors
/// [`ScopedRootError::Disk`].
pub fn set_modified(path: &Path, seconds: i64) -> Result<(), ScopedRootError> {
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(0, UTIME_OMIT),
        last_modification: time(seconds, 0),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|e| ScopedRootError::disk("set the time of", path)(e.into()))
}

fn plain_parts(name: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    name.split(|&b| b == b'/')
        .filter(|part| !matches!(*part, b"" | b"."))
}

/// The parts of a name, without empty ones and dots.
///
/// # Errors
/// [`ScopedRootError::Name`] for a zero byte or `..`.
pub fn split_name(name: &[u8]) -> Result<Vec<&OsStr>, ScopedRootError> {
    if name.contains(&0) {
        return Err(ScopedRootError::name(name, "has a name with a zero byte"));
    }
    if plain_parts(name).any(|part| part == b"..") {
        return Err(ScopedRootError::name(
            name,
            "has a name that leads elsewhere",
        ));
    }
    Ok(plain_parts(name).map(OsStr::from_bytes).collect())
}

#[cfg(test)]
#[path = "rooted_tests.rs"]
mod tests;
