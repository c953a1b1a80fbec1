//! Files made inside a folder as if it were the root of the file system.
//!
//! The folder belongs to this process alone while it is filled, so a path that was resolved stays
//! what it was.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::DebError;
use super::unpack::Named;

/// As the kernel's own limit.
const MOST_LINKS: u32 = 40;

/// A folder that is filled.
pub(super) struct Inside<'a> {
    root: &'a Path,
    /// Folders that were resolved: name in the archive to real path.
    known: HashMap<Vec<u8>, PathBuf>,
}

/// An entry's name, split: the folders above it and its own name.
struct Split<'a> {
    above: &'a [u8],
    name: &'a OsStr,
}

impl<'a> Inside<'a> {
    pub(super) fn new(root: &'a Path) -> Self {
        Self {
            root,
            known: HashMap::new(),
        }
    }

    /// A regular file with what `data` gives.
    pub(super) fn file(
        &mut self,
        name: &[u8],
        mode: u32,
        mtime: u64,
        data: &mut Named<'_>,
    ) -> Result<(), DebError> {
        let path = self.free(name)?;
        let write = |source| DebError::Write {
            path: path.clone(),
            source,
        };
        let mut file = fs::File::create_new(&path).map_err(write)?;
        let mut chunk = vec![0; 64 << 10];
        loop {
            let n = data.read(&mut chunk)?;
            if n == 0 {
                break;
            }
            io::Write::write_all(&mut file, &chunk[..n]).map_err(write)?;
        }
        file.set_permissions(fs::Permissions::from_mode(mode & 0o777))
            .map_err(write)?;
        if let Some(time) = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(mtime)) {
            file.set_modified(time).map_err(write)?;
        }
        Ok(())
    }

    /// A folder; one that is there, or a link to one, is kept as dpkg keeps it.
    pub(super) fn folder(&mut self, name: &[u8], mode: u32) -> Result<(), DebError> {
        let path = self.resolve(name)?;
        // The owner must be able to fill it and, one day, to remove it.
        fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o1777 | 0o700))
            .map_err(|source| DebError::Write { path, source })
    }

    /// A symbolic link. Its text is kept as it is; it means something inside the tree only.
    pub(super) fn link(&mut self, name: &[u8], target: &[u8]) -> Result<(), DebError> {
        if target.is_empty() || target.contains(&0) {
            return Err(DebError::entry(name, "is a link to nowhere"));
        }
        let (above, own) = self.place(name)?;
        let path = above.join(own);
        // As with dpkg, a folder is never replaced by a link.
        if path.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            return Ok(());
        }
        let path = self.free(name)?;
        symlink(OsStr::from_bytes(target), &path).map_err(|source| DebError::Write { path, source })
    }

    /// Another name for a file of the tree.
    pub(super) fn hard_link(&mut self, name: &[u8], target: &[u8]) -> Result<(), DebError> {
        let (above, own) = self.place(target)?;
        let old = above.join(own);
        if !old.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            return Err(DebError::entry(
                name,
                "is another name for no file of the tree",
            ));
        }
        let path = self.free(name)?;
        fs::hard_link(&old, &path).map_err(|source| DebError::Write { path, source })
    }

    /// The real path for a new file, with what was there before removed.
    fn free(&mut self, name: &[u8]) -> Result<PathBuf, DebError> {
        let (above, own) = self.place(name)?;
        let path = above.join(own);
        match path.symlink_metadata() {
            Ok(meta) if meta.is_dir() => {
                return Err(DebError::entry(name, "would replace a folder"));
            }
            Ok(meta) => {
                if meta.is_symlink() {
                    self.known.clear();
                }
                fs::remove_file(&path).map_err(|source| DebError::Write {
                    path: path.clone(),
                    source,
                })?;
            }
            Err(_) => {}
        }
        Ok(path)
    }

    /// The real folder above an entry, and the entry's own name.
    fn place<'n>(&mut self, name: &'n [u8]) -> Result<(PathBuf, &'n OsStr), DebError> {
        let split = split(name)?;
        let above = match self.known.get(split.above) {
            Some(path) => path.clone(),
            None => {
                let path = self.resolve(split.above)?;
                self.known.insert(split.above.to_owned(), path.clone());
                path
            }
        };
        Ok((above, split.name))
    }

    /// The real path of a folder, following links inside the tree; missing folders are made.
    fn resolve(&self, name: &[u8]) -> Result<PathBuf, DebError> {
        let mut real = self.root.to_owned();
        let mut depth = 0_usize;
        let mut links = 0;
        // What is still to walk, last first.
        let mut rest: Vec<Vec<u8>> = parts(name)?.map(<[u8]>::to_vec).rev().collect();
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
                Ok(meta) if meta.is_dir() => {
                    real = next;
                    depth += 1;
                }
                Ok(meta) if meta.is_symlink() => {
                    links += 1;
                    if links > MOST_LINKS {
                        return Err(DebError::entry(name, "lies behind a loop of links"));
                    }
                    let target = fs::read_link(&next)
                        .map_err(|source| DebError::Write { path: next, source })?;
                    let target = target.as_os_str().as_bytes();
                    if target.starts_with(b"/") {
                        self.root.clone_into(&mut real);
                        depth = 0;
                    }
                    let walk = target
                        .split(|&b| b == b'/')
                        .filter(|part| !matches!(*part, b"" | b"."));
                    rest.extend(walk.map(<[u8]>::to_vec).rev());
                }
                Ok(_) => return Err(DebError::entry(name, "lies below a file")),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    crate::store::make_folder(&next, 0o755).map_err(|source| DebError::Write {
                        path: next.clone(),
                        source,
                    })?;
                    real = next;
                    depth += 1;
                }
                Err(source) => return Err(DebError::Write { path: next, source }),
            }
        }
        Ok(real)
    }
}

/// The parts of an entry's name. `./` before it is dpkg's way; a slash before it is refused.
fn parts(name: &[u8]) -> Result<impl DoubleEndedIterator<Item = &[u8]>, DebError> {
    if name.starts_with(b"/") {
        return Err(DebError::entry(name, "has an absolute name"));
    }
    if name.contains(&0) {
        return Err(DebError::entry(name, "has a name with a zero byte"));
    }
    let parts = || {
        name.split(|&b| b == b'/')
            .filter(|part| !matches!(*part, b"" | b"."))
    };
    if parts().any(|part| part == b"..") {
        return Err(DebError::entry(name, "has a name that leads elsewhere"));
    }
    Ok(parts())
}

fn split(name: &[u8]) -> Result<Split<'_>, DebError> {
    let last = parts(name)?
        .next_back()
        .ok_or_else(|| DebError::entry(name, "has no name"))?;
    let end = name
        .windows(last.len())
        .rposition(|window| window == last)
        .unwrap_or_default();
    Ok(Split {
        above: &name[..end],
        name: OsStr::from_bytes(last),
    })
}
