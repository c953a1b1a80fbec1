//! An environment as one squashfs file: what apptainer, enroot and pyxis run from.
//!
//! The format is squashfs 4.0, as the kernel reads it (Documentation/filesystems/squashfs.rst and
//! fs/squashfs/squashfs_fs.h). The same trees give the same bytes on any machine: the rules of
//! [`crate::layer`] for what enters, and a fixed cut of the files into blocks.

mod block;
mod data;
pub mod launch;
mod nodes;
mod tables;
#[cfg(test)]
mod tests;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sconce_base::direct_io::MTIME;
use sconce_base::output::{OutputDestination, OutputError, OutputFile};
use sconce_schema::{Hint, Progress, exit};

use crate::layer::{ArchiveEntries, ArchiveError, Compression, TreeSource};
use nodes::InodeTable;
use tables::MetadataTables;

/// Bytes of a file that are compressed together.
const BLOCK_BYTES: u32 = 256 << 10;
/// Bytes of the superblock, with which a squashfs file begins.
const SUPERBLOCK: u64 = 96;
/// A squashfs file is padded to this many bytes, the size of a page.
const PAD: u64 = 4096;

/// Why a squashfs file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SquashfsError {
    /// A tree could not be read.
    #[error(transparent)]
    Source(#[from] ArchiveError),
    /// The compressor failed.
    #[error("the blocks cannot be compressed")]
    Compress(#[source] io::Error),
    /// It cannot be written where it was asked for.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// A name that the format has no room for.
    #[error("the name of {} is longer than 256 bytes", path.display())]
    Name {
        /// The path in the environment.
        path: PathBuf,
    },
    /// More files, or longer lists of them, than the format can count.
    #[error("there are more files than a squashfs file can hold")]
    TooMany,
}

impl Hint for SquashfsError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Output(error) => error.hint(),
            Self::Source(ArchiveError::Changed { .. }) => {
                Some("something writes to the store; remove the store and build again".to_owned())
            }
            Self::Source(_) | Self::Compress(_) | Self::Name { .. } | Self::TooMany => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) => error.exit_code(),
            Self::Source(_) | Self::Compress(_) | Self::Name { .. } | Self::TooMany => exit::STORE,
        }
    }
}

/// A tree of the store.
#[derive(Debug, Clone, Copy)]
pub struct SquashfsTree<'a> {
    /// What it is, for people.
    pub name: &'a str,
    /// Its folder.
    pub root: &'a Path,
}

/// A file or folder that is in no tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtraEntry {
    /// Its path in the environment, without a slash at the beginning.
    pub path: PathBuf,
    /// Its permissions. A folder that a tree has keeps its own.
    pub mode: u16,
    /// What is in it; `None` for a folder.
    pub bytes: Option<Arc<[u8]>>,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SquashfsSummary {
    /// Size of the squashfs file, in bytes.
    pub size_bytes: u64,
    /// Bytes in the files in it.
    pub content_bytes: u64,
    /// Files, folders and links, a file with several names once.
    pub inodes: u64,
}

/// How a file is written. None of it but `threads` may change without changing the bytes.
#[derive(Debug, Clone, Copy)]
struct Shape {
    compression: Compression,
    block_bytes: u32,
    threads: usize,
}

/// Writes the union of `sources` (lowest first; where two have the same path, the later one's entry
/// counts) and `made`, which counts before them all. Everything belongs to root but the plain user's
/// home and the workspace. `output` is [`OutputForm::Seekable`](sconce_base::output::OutputForm).
///
/// # Errors
/// [`SquashfsError`]; a regular file that was there before is as it was then.
pub fn write(
    sources: &[SquashfsTree<'_>],
    made: &[ExtraEntry],
    compression: Compression,
    output: OutputDestination,
    progress: &dyn Progress,
) -> Result<SquashfsSummary, SquashfsError> {
    let shape = Shape {
        compression,
        block_bytes: BLOCK_BYTES,
        threads: std::thread::available_parallelism().map_or(1, Into::into),
    };
    write_to(sources, made, shape, output, progress)
}

fn write_to(
    sources: &[SquashfsTree<'_>],
    made: &[ExtraEntry],
    shape: Shape,
    output: OutputDestination,
    progress: &dyn Progress,
) -> Result<SquashfsSummary, SquashfsError> {
    let names: Vec<&str> = sources.iter().map(|source| source.name).collect();
    let trees: Vec<TreeSource<'_>> = sources
        .iter()
        .map(|source| TreeSource::from_root(source.root))
        .collect();
    let nodes = InodeTable::from_entries(ArchiveEntries::from_trees(&trees)?, made)?;
    let content_bytes = nodes.file_bytes();
    progress.stage("squashfs", Some(content_bytes));

    let path = output.path().to_owned();
    let failed = OutputError::io_error(&path);
    let mut out = output.open()?;
    let put = |out: &mut OutputFile, bytes: &[u8]| out.write_all(bytes).map_err(failed);
    put(&mut out, &[0; SUPERBLOCK as usize])?;
    let mut blocks = |bytes: &[u8]| Ok(put(&mut out, bytes)?);
    let (placed, end) =
        data::write_file_data(&nodes, shape, &names, SUPERBLOCK, &mut blocks, progress)?;
    let tables = MetadataTables::from_nodes(&nodes, &placed, end, shape.compression)?;
    put(&mut out, &tables.bytes)?;
    let used = end + tables.bytes.len() as u64;
    let size_bytes = used.next_multiple_of(PAD);
    put(&mut out, &vec![0; (size_bytes - used) as usize])?;
    let superblock = superblock(&nodes, placed.fragments.len(), &tables, used, shape)?;
    out.begin_with(&superblock).map_err(failed)?;
    out.finish()?;
    Ok(SquashfsSummary {
        size_bytes,
        content_bytes,
        inodes: nodes.0.len() as u64,
    })
}

/// The first 96 bytes (`struct squashfs_super_block`).
fn superblock(
    nodes: &InodeTable,
    fragments: usize,
    tables: &MetadataTables,
    used: u64,
    shape: Shape,
) -> Result<Vec<u8>, SquashfsError> {
    /// Inodes, data, fragments and owners are not compressed.
    const FLAGS_AS_IS: u16 = 1 << 0 | 1 << 1 | 1 << 3 | 1 << 11;
    /// There is a table from numbers to inodes; there are no extended attributes.
    const FLAGS: u16 = 1 << 7 | 1 << 9;
    let count = |n: usize| u32::try_from(n).map_err(|_| SquashfsError::TooMany);
    let (compressor, flags) = match shape.compression {
        Compression::Gzip => (1_u16, FLAGS),
        Compression::Zstd => (6, FLAGS),
        // There is no such compressor: this is gzip where nothing is compressed.
        Compression::None => (1, FLAGS | FLAGS_AS_IS),
    };
    let mut out = Vec::with_capacity(SUPERBLOCK as usize);
    out.extend_from_slice(b"hsqs");
    for number in [
        count(nodes.0.len())?,
        MTIME as u32,
        shape.block_bytes,
        count(fragments)?,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    // Version 4.0.
    let log = shape.block_bytes.ilog2() as u16;
    for number in [compressor, log, flags, tables.owner_count, 4, 0] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    let no_attributes = u64::MAX;
    for number in [
        tables.root,
        used,
        tables.owners,
        no_attributes,
        tables.inodes,
        tables.folders,
        tables.fragments,
        tables.exports,
    ] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    Ok(out)
}
