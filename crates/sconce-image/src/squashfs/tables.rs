//! The tables of a squashfs 4.0 file, as the kernel's fs/squashfs/squashfs_fs.h lays them out.
//! All numbers are little-endian.

use super::SquashfsError;
use super::block::BlockPacker;
use super::data::{DataLayout, FileExtent};
use super::nodes::{Inode, InodeKind, InodeTable};
use crate::layer::Compression;

/// Tables are cut into blocks of this many bytes (`SQUASHFS_METADATA_SIZE`).
const METADATA_BLOCK_BYTES: usize = 8192;
/// In a table's block's size: it is not compressed (`SQUASHFS_COMPRESSED_BIT`).
const UNCOMPRESSED_BIT: u16 = 1 << 15;
/// No fragment, no extended attributes.
const NONE: u32 = u32::MAX;
/// Entries that one header of a folder's list may stand for (`SQUASHFS_DIR_COUNT`).
const MAX_ENTRIES: usize = 256;

/// Kinds of inodes; an extended one is 7 more than its basic one.
mod kind {
    pub(super) const FOLDER: u16 = 1;
    pub(super) const FILE: u16 = 2;
    pub(super) const LINK: u16 = 3;
    pub(super) const EXTENDED: u16 = 7;
}

/// Place of something in a table: where its block begins there, and where it begins in the block
/// when that is unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct TableOffset {
    block: u32,
    offset: u16,
}

impl TableOffset {
    /// As references to inodes are written.
    fn reference(self) -> u64 {
        u64::from(self.block) << 16 | u64::from(self.offset)
    }
}

/// A table that is being written.
struct Table {
    packer: BlockPacker,
    filling: Vec<u8>,
    done: Vec<u8>,
    /// Where each block begins in `done`.
    blocks: Vec<u64>,
}

impl Table {
    fn new(compression: Compression) -> Result<Self, SquashfsError> {
        Ok(Self {
            packer: BlockPacker::new(compression).map_err(SquashfsError::Compress)?,
            filling: Vec::with_capacity(METADATA_BLOCK_BYTES),
            done: Vec::new(),
            blocks: Vec::new(),
        })
    }

    /// Where the next byte goes.
    fn at(&self) -> Result<TableOffset, SquashfsError> {
        Ok(TableOffset {
            block: u32::try_from(self.done.len()).map_err(|_| SquashfsError::TooMany)?,
            // A block is packed as soon as it is full.
            offset: self.filling.len() as u16,
        })
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), SquashfsError> {
        while !bytes.is_empty() {
            let (now, later) =
                bytes.split_at(bytes.len().min(METADATA_BLOCK_BYTES - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
            if self.filling.len() == METADATA_BLOCK_BYTES {
                self.pack()?;
            }
        }
        Ok(())
    }

    fn pack(&mut self) -> Result<(), SquashfsError> {
        let begin = self.done.len();
        self.blocks.push(begin as u64);
        self.done.extend_from_slice(&[0; 2]);
        let compressed = self.packer.pack(&self.filling, &mut self.done);
        let size = (self.done.len() - begin - 2) as u16;
        let compressed = compressed.map_err(SquashfsError::Compress)?;
        let size = if compressed {
            size
        } else {
            size | UNCOMPRESSED_BIT
        };
        self.done[begin..begin + 2].copy_from_slice(&size.to_le_bytes());
        self.filling.clear();
        Ok(())
    }

    /// The table's bytes and where its blocks begin.
    fn end(mut self) -> Result<(Vec<u8>, Vec<u64>), SquashfsError> {
        if !self.filling.is_empty() {
            self.pack()?;
        }
        Ok((self.done, self.blocks))
    }
}

/// Appends numbers as little-endian bytes.
macro_rules! put {
    ($out:expr, $($number:expr),+ $(,)?) => {
        $( $out.extend_from_slice(&$number.to_le_bytes()); )+
    };
}

/// All tables, as they follow the files' bytes, and where they begin in the squashfs file.
pub(super) struct MetadataTables {
    pub(super) bytes: Vec<u8>,
    pub(super) inodes: u64,
    pub(super) folders: u64,
    pub(super) fragments: u64,
    pub(super) exports: u64,
    pub(super) owners: u64,
    /// How many owners there are.
    pub(super) owner_count: u16,
    /// Reference of the root's inode.
    pub(super) root: u64,
}

impl MetadataTables {
    /// The tables for `nodes`, whose bytes lie as `placed` says. `start` is where the tables begin.
    pub(super) fn from_nodes(
        nodes: &InodeTable,
        placed: &DataLayout,
        start: u64,
        compression: Compression,
    ) -> Result<Self, SquashfsError> {
        let mut owners: Vec<u32> = nodes.0.iter().map(|inode| inode.owner).collect();
        owners.sort_unstable();
        owners.dedup();
        let InodeTables {
            inodes,
            folders,
            references,
        } = InodeTables::of(nodes, placed, &owners, compression)?;
        let mut tables = Self {
            inodes: start,
            folders: start + inodes.len() as u64,
            fragments: 0,
            exports: 0,
            owners: 0,
            owner_count: u16::try_from(owners.len()).map_err(|_| SquashfsError::TooMany)?,
            root: references.first().copied().unwrap_or_default(),
            bytes: inodes,
        };
        tables.bytes.extend_from_slice(&folders);
        drop(folders);
        let mut flat = Vec::new();
        for &(position, size) in &placed.fragments {
            put!(flat, position, size, 0_u32);
        }
        tables.fragments = tables.append(&flat, start, compression)?;
        flat.clear();
        for reference in references {
            put!(flat, reference);
        }
        tables.exports = tables.append(&flat, start, compression)?;
        flat.clear();
        for owner in owners {
            put!(flat, owner);
        }
        tables.owners = tables.append(&flat, start, compression)?;
        Ok(tables)
    }

    /// Appends a table of fixed entries: its blocks, then where each of them lies. Gives the place
    /// of that list, which is what leads to the table.
    fn append(
        &mut self,
        flat: &[u8],
        start: u64,
        compression: Compression,
    ) -> Result<u64, SquashfsError> {
        let mut table = Table::new(compression)?;
        table.put(flat)?;
        let (bytes, blocks) = table.end()?;
        let first = start + self.bytes.len() as u64;
        self.bytes.extend_from_slice(&bytes);
        let list = start + self.bytes.len() as u64;
        for block in blocks {
            put!(self.bytes, first + block);
        }
        Ok(list)
    }
}

/// The table of inodes, that of folders' lists, and the reference of each inode.
struct InodeTables {
    inodes: Vec<u8>,
    folders: Vec<u8>,
    references: Vec<u64>,
}

impl InodeTables {
    /// A folder's list refers to what is in it, and its inode to the list: so everything that is no
    /// folder comes first, then folders from the last to the first, since each stands before its own.
    fn of(
        nodes: &InodeTable,
        placed: &DataLayout,
        owners: &[u32],
        compression: Compression,
    ) -> Result<Self, SquashfsError> {
        let count = u32::try_from(nodes.0.len()).map_err(|_| SquashfsError::TooMany)?;
        let mut places = vec![TableOffset::default(); nodes.0.len()];
        let mut inodes = Table::new(compression)?;
        let mut folders = Table::new(compression)?;
        let mut out = Vec::new();
        for (number, inode) in nodes.0.iter().enumerate() {
            out.clear();
            match &inode.kind {
                InodeKind::Folder { .. } => continue,
                InodeKind::Link(target) => {
                    head(&mut out, kind::LINK, inode, number, owners);
                    put!(out, inode.links, target.len() as u32);
                    out.extend_from_slice(target);
                }
                InodeKind::File(content) => {
                    let place = placed.files.get(&number).ok_or(SquashfsError::TooMany)?;
                    file(&mut out, inode, number, content.size, place, owners);
                }
            }
            places[number] = inodes.at()?;
            inodes.put(&out)?;
        }
        for (number, inode) in nodes.0.iter().enumerate().rev() {
            if let InodeKind::Folder { parent, entries } = &inode.kind {
                // Above the root there is what no inode is.
                let parent = if number == 0 {
                    count + 1
                } else {
                    *parent as u32 + 1
                };
                let list = List::write(entries, nodes, &places, &mut folders)?;
                out.clear();
                list.inode(&mut out, inode, number, parent, owners)?;
                places[number] = inodes.at()?;
                inodes.put(&out)?;
            }
        }
        Ok(Self {
            inodes: inodes.end()?.0,
            folders: folders.end()?.0,
            references: places.iter().map(|at| at.reference()).collect(),
        })
    }
}

/// What every inode begins with.
fn head(out: &mut Vec<u8>, kind: u16, inode: &Inode, number: usize, owners: &[u32]) {
    let owner = owners.binary_search(&inode.owner).unwrap_or_default() as u16;
    put!(
        out,
        kind,
        inode.mode,
        owner,
        owner,
        inode.mtime,
        number as u32 + 1
    );
}

fn file(
    out: &mut Vec<u8>,
    inode: &Inode,
    number: usize,
    size: u64,
    place: &FileExtent,
    owners: &[u32],
) {
    let (fragment, offset) = place.fragment.unwrap_or((NONE, 0));
    match (u32::try_from(place.start), u32::try_from(size)) {
        (Ok(start), Ok(size)) if inode.links == 1 && place.sparse == 0 => {
            head(out, kind::FILE, inode, number, owners);
            put!(out, start, fragment, offset, size);
        }
        _ => {
            head(out, kind::FILE + kind::EXTENDED, inode, number, owners);
            put!(
                out,
                place.start,
                size,
                place.sparse,
                inode.links,
                fragment,
                offset,
                NONE
            );
        }
    }
    for size in &place.blocks {
        put!(out, size);
    }
}

/// A folder's list in the table.
struct List {
    at: TableOffset,
    bytes: u32,
    /// For readers that look for a name: where in the list a block of the table begins to have
    /// entries, which block that is, and the first name there.
    index: Vec<(u32, u32, Box<[u8]>)>,
}

impl List {
    fn write(
        entries: &[(Box<[u8]>, usize)],
        nodes: &InodeTable,
        places: &[TableOffset],
        table: &mut Table,
    ) -> Result<Self, SquashfsError> {
        let mut list = Self {
            at: table.at()?,
            bytes: 0,
            index: Vec::new(),
        };
        let mut indexed = list.at.block;
        let mut rest = entries;
        let mut out = Vec::new();
        while let Some((name, first)) = rest.first() {
            let block = places[*first].block;
            let near = |&(_, inode): &(Box<[u8]>, usize)| {
                let delta = i16::try_from(inode as i64 - *first as i64);
                delta.ok().filter(|_| places[inode].block == block)
            };
            let run = rest.iter().take(MAX_ENTRIES);
            let run: Vec<i16> = run.map_while(near).collect();
            let at = table.at()?;
            if at.block != indexed {
                list.index.push((list.bytes, at.block, name.clone()));
                indexed = at.block;
            }
            out.clear();
            put!(out, run.len() as u32 - 1, block, *first as u32 + 1);
            let (now, later) = rest.split_at(run.len());
            for ((name, inode), delta) in now.iter().zip(run) {
                let kind = match nodes.0[*inode].kind {
                    InodeKind::Folder { .. } => kind::FOLDER,
                    InodeKind::Link(_) => kind::LINK,
                    InodeKind::File(_) => kind::FILE,
                };
                put!(
                    out,
                    places[*inode].offset,
                    delta,
                    kind,
                    name.len() as u16 - 1
                );
                out.extend_from_slice(name);
            }
            rest = later;
            table.put(&out)?;
            let bytes = u32::try_from(out.len()).ok();
            let sum = bytes.and_then(|bytes| list.bytes.checked_add(bytes));
            list.bytes = sum.ok_or(SquashfsError::TooMany)?;
        }
        Ok(list)
    }

    /// The inode of the folder with this list.
    fn inode(
        &self,
        out: &mut Vec<u8>,
        inode: &Inode,
        number: usize,
        parent: u32,
        owners: &[u32],
    ) -> Result<(), SquashfsError> {
        // Readers take 3 off, for `.` and `..`, which are not written.
        let size = self.bytes.checked_add(3).ok_or(SquashfsError::TooMany)?;
        if let (Ok(size), true) = (u16::try_from(size), self.index.is_empty()) {
            head(out, kind::FOLDER, inode, number, owners);
            put!(
                out,
                self.at.block,
                inode.links,
                size,
                self.at.offset,
                parent
            );
            return Ok(());
        }
        let count = u16::try_from(self.index.len()).map_err(|_| SquashfsError::TooMany)?;
        head(out, kind::FOLDER + kind::EXTENDED, inode, number, owners);
        put!(
            out,
            inode.links,
            size,
            self.at.block,
            parent,
            count,
            self.at.offset,
            NONE
        );
        for (position, block, name) in &self.index {
            put!(out, position, block, name.len() as u32 - 1);
            out.extend_from_slice(name);
        }
        Ok(())
    }
}
