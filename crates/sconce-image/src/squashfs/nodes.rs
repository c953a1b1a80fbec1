//! What a squashfs file holds: inodes in the order of their first paths, and the names in folders.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sconce_base::direct_io::MTIME;

use super::{ExtraEntry, SquashfsError};
use crate::layer::archive::{ArchiveEntries, ArchiveEntry, ArchiveError, io_error, owner_id};

/// The longest name (`SQUASHFS_NAME_LEN` of the kernel's squashfs_fs.h), in bytes.
const MAX_NAME_BYTES: usize = 256;

/// An inode.
#[derive(Debug)]
pub(super) struct Inode {
    /// Permissions with setuid, setgid and the sticky bit.
    pub(super) mode: u16,
    /// User and group.
    pub(super) owner: u32,
    /// Seconds since 1970.
    pub(super) mtime: u32,
    /// Its names; of a folder, 2 and its subfolders.
    pub(super) links: u32,
    /// What it is.
    pub(super) kind: InodeKind,
}

/// What an inode is.
#[derive(Debug)]
pub(super) enum InodeKind {
    /// A folder.
    Folder {
        /// Where it lies itself; the root in itself.
        parent: usize,
        /// Its entries, sorted by their bytes: names and inodes.
        entries: Vec<(Box<[u8]>, usize)>,
    },
    /// A symbolic link and its target.
    Link(Box<[u8]>),
    /// A file.
    File(FileContent),
}

/// A file's bytes.
#[derive(Debug)]
pub(super) struct FileContent {
    /// Where they come from.
    pub(super) source: ContentSource,
    /// How many there are.
    pub(super) size: u64,
    /// Which of the trees it is from, for people; `None` for what was made.
    pub(super) tree: Option<usize>,
}

/// Where bytes come from.
#[derive(Debug)]
pub(super) enum ContentSource {
    /// A file of the store.
    Stored(PathBuf),
    /// Memory.
    Made(Arc<[u8]>),
}

/// All inodes, by their number less one. The first is the root; a folder stands before what is in
/// it.
#[derive(Debug)]
pub(super) struct InodeTable(pub(super) Vec<Inode>);

/// What lies at a path.
enum PathEntry<'a> {
    Entry(Box<ArchiveEntry>),
    Made(&'a ExtraEntry),
    /// A folder that something made lies in.
    Above,
}

impl InodeTable {
    /// The union of `entries` and `made`, which counts where both have a path. What lies below
    /// something that is no folder (any more) is left out, as in any union.
    pub(super) fn from_entries(
        entries: ArchiveEntries,
        made: &[ExtraEntry],
    ) -> Result<Self, SquashfsError> {
        let found = entries.0.into_iter();
        let mut found: BTreeMap<PathBuf, PathEntry<'_>> = found
            .map(|(path, entry)| (path, PathEntry::Entry(Box::new(entry))))
            .collect();
        for file in made {
            let is_folder = |found: &PathEntry<'_>| match found {
                PathEntry::Entry(entry) => entry.meta.is_dir(),
                PathEntry::Made(made) => made.bytes.is_none(),
                PathEntry::Above => true,
            };
            for above in file.path.ancestors().skip(1) {
                if !above.as_os_str().is_empty() && !found.get(above).is_some_and(is_folder) {
                    found.insert(above.to_owned(), PathEntry::Above);
                }
            }
            if file.bytes.is_some() || !found.get(&file.path).is_some_and(is_folder) {
                found.insert(file.path.clone(), PathEntry::Made(file));
            }
        }
        let mut nodes = Self(vec![folder(0o755, 0)]);
        let mut linked = HashMap::new();
        // The folders that the path before lay in, each with its inode.
        let mut above: Vec<(PathBuf, usize)> = vec![(PathBuf::new(), 0)];
        for (path, found) in found {
            let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
                continue;
            };
            while above
                .last()
                .is_some_and(|(last, _)| !parent.starts_with(last))
            {
                above.pop();
            }
            let Some(&(_, at)) = above.last().filter(|(last, _)| last == parent) else {
                continue;
            };
            let name = name.as_bytes();
            if name.len() > MAX_NAME_BYTES {
                return Err(SquashfsError::Name { path });
            }
            let number = nodes.add(&path, found, at, &mut linked)?;
            let is_folder = matches!(nodes.0[number].kind, InodeKind::Folder { .. });
            if let Inode {
                links,
                kind: InodeKind::Folder { entries, .. },
                ..
            } = &mut nodes.0[at]
            {
                entries.push((name.into(), number));
                *links += u32::from(is_folder);
            }
            if is_folder {
                above.push((path, number));
            }
        }
        Ok(nodes)
    }

    /// The inode of what lies at `path`: a new one, or that of a file with several names.
    fn add(
        &mut self,
        path: &Path,
        found: PathEntry<'_>,
        parent: usize,
        linked: &mut HashMap<(u64, u64), usize>,
    ) -> Result<usize, SquashfsError> {
        let number = self.0.len();
        let mut inode = match found {
            PathEntry::Above => folder(0o755, parent),
            PathEntry::Made(ExtraEntry { mode, bytes, .. }) => match bytes {
                None => folder(*mode, parent),
                Some(bytes) => Inode {
                    mode: *mode,
                    kind: InodeKind::File(FileContent {
                        size: bytes.len() as u64,
                        source: ContentSource::Made(Arc::clone(bytes)),
                        tree: None,
                    }),
                    ..folder(*mode, parent)
                },
            },
            PathEntry::Entry(entry) => {
                let ArchiveEntry {
                    source, meta, tree, ..
                } = *entry;
                let mode = (meta.mode() & 0o7777) as u16;
                let mut inode = folder(mode, parent);
                if meta.is_symlink() {
                    let target = fs::read_link(&source).map_err(io_error("read", &source))?;
                    inode.mode = 0o777;
                    inode.kind = InodeKind::Link(target.as_os_str().as_bytes().into());
                } else if meta.is_file() {
                    if meta.nlink() > 1 {
                        let first = linked.entry((meta.dev(), meta.ino())).or_insert(number);
                        if *first != number {
                            self.0[*first].links += 1;
                            return Ok(*first);
                        }
                    }
                    inode.mtime = u32::try_from(meta.mtime()).unwrap_or(MTIME as u32);
                    inode.kind = InodeKind::File(FileContent {
                        size: meta.size(),
                        source: ContentSource::Stored(source),
                        tree: Some(tree),
                    });
                } else if !meta.is_dir() {
                    return Err(ArchiveError::Kind { path: source }.into());
                }
                inode
            }
        };
        if !matches!(inode.kind, InodeKind::Folder { .. }) {
            inode.links = 1;
        }
        inode.owner = owner_id(path);
        self.0.push(inode);
        Ok(number)
    }

    /// Bytes in all files.
    pub(super) fn file_bytes(&self) -> u64 {
        let size = |inode: &Inode| match &inode.kind {
            InodeKind::File(content) => content.size,
            _ => 0,
        };
        self.0.iter().map(size).sum()
    }
}

/// An empty folder of root's.
fn folder(mode: u16, parent: usize) -> Inode {
    Inode {
        mode,
        owner: 0,
        mtime: MTIME as u32,
        links: 2,
        kind: InodeKind::Folder {
            parent,
            entries: Vec::new(),
        },
    }
}
