//! A project's folder, as the survey of it reads it: bounded, and nothing outside it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use sconce_base::input::read_regular;
use sconce_import::{FolderEntry, ImportFormat, ProjectFolder};
use sconce_schema::Bytes;

/// Entries that are listed of one folder.
const MAX_ENTRIES: usize = 5000;
/// Folders that are listed, all together.
const MAX_FOLDERS: usize = 5000;
/// Of a folder's path: each part of it is looked up in the folder above.
const MAX_PATH_BYTES: usize = 1000;
/// Of a file that is looked at for what it is.
const START_BYTES: u64 = 64;
/// Larger files are looked at no further: a pointer of Git LFS has less than 1 KiB.
const MAX_START_FILE_BYTES: u64 = 2048;

/// The folder, with what was listed so far.
pub(super) struct ProjectTree {
    /// Without links.
    root: Option<PathBuf>,
    name: String,
    listed: RefCell<BTreeMap<String, Rc<[FolderEntry]>>>,
}

impl ProjectTree {
    pub(super) fn new(folder: &Path) -> Self {
        let root = folder.canonicalize().ok();
        let name = root.as_deref().and_then(Path::file_name);
        Self {
            name: name.unwrap_or_default().to_string_lossy().into_owned(),
            root,
            listed: RefCell::default(),
        }
    }

    /// The path of a file or folder that lies in the project, links followed.
    fn find(&self, path: &str) -> Option<PathBuf> {
        let root = self.root.as_deref()?;
        let whole = root.join(path).canonicalize().ok()?;
        whole.starts_with(root).then_some(whole)
    }

    fn read_entries(&self, path: &str) -> Option<Vec<FolderEntry>> {
        let whole = self.find(path)?;
        let mut entries: Vec<FolderEntry> = std::fs::read_dir(whole)
            .ok()?
            .take(MAX_ENTRIES)
            .filter_map(|entry| {
                let entry = entry.ok()?;
                Some(FolderEntry {
                    name: entry.file_name().into_string().ok()?,
                    is_dir: entry.file_type().ok()?.is_dir(),
                })
            })
            .collect();
        entries.sort();
        Some(entries)
    }
}

impl ProjectFolder for ProjectTree {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_text(&self, path: &str) -> Option<String> {
        let name = path.rsplit('/').next()?;
        let kind = ImportFormat::from_file_name(name).unwrap_or(ImportFormat::Requirements);
        let bytes = read_regular(&self.find(path)?, Bytes(kind.limit_bytes())).ok()?;
        let text = sconce_import::decode_text(kind, &bytes).ok()?;
        Some(text.into_owned())
    }

    fn list(&self, path: &str) -> Rc<[FolderEntry]> {
        if let Some(known) = self.listed.borrow().get(path) {
            return Rc::clone(known);
        }
        // What the folder above does not have is not asked for; a link is no folder.
        let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
        let is_there = || {
            let entries = self.list(above);
            let at = entries.binary_search_by(|entry| entry.name.as_str().cmp(name));
            at.is_ok_and(|at| entries[at].is_dir)
        };
        let full = self.listed.borrow().len() >= MAX_FOLDERS || path.len() > MAX_PATH_BYTES;
        if full || !path.is_empty() && !is_there() {
            return Rc::from([]);
        }
        let entries: Rc<[FolderEntry]> = self.read_entries(path).unwrap_or_default().into();
        let mut listed = self.listed.borrow_mut();
        listed.insert(path.to_owned(), Rc::clone(&entries));
        entries
    }

    fn read_start(&self, path: &str) -> Vec<u8> {
        let read = || {
            let whole = self.find(path)?;
            let about = whole.metadata().ok()?;
            let small = about.is_file() && about.len() <= MAX_START_FILE_BYTES;
            small.then(|| read_regular(&whole, Bytes(MAX_START_FILE_BYTES)).ok())?
        };
        let mut bytes: Vec<u8> = read().unwrap_or_default();
        bytes.truncate(usize::try_from(START_BYTES).unwrap_or_default());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_out_of_the_folder_and_pipes_are_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("x"), "secret").unwrap();
        std::fs::write(folder.path().join("a.txt"), "torch").unwrap();
        std::fs::create_dir(folder.path().join("c.txt")).unwrap();
        for (target, name) in [("x", "b.txt"), ("", "d")] {
            let target = outside.path().join(target);
            std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
        }
        let tree = ProjectTree::new(folder.path());
        assert_eq!(tree.read_text("a.txt").as_deref(), Some("torch"));
        for name in ["b.txt", "c.txt", "d/x", "gone.txt", "../x", "/etc/passwd"] {
            assert_eq!(tree.read_text(name), None, "{name}");
            assert_eq!(tree.read_start(name), [0_u8; 0], "{name}");
        }
        assert!(tree.list("d").is_empty() && tree.list("gone/x").is_empty());
        assert!(tree.list(&"a/".repeat(1 << 20)).is_empty());
        let folders: Vec<bool> = tree.list("").iter().map(|entry| entry.is_dir).collect();
        assert_eq!(folders, [false, false, true, false]);
        assert!(read_regular(Path::new("/dev/zero"), Bytes(10)).is_err());
    }
}
