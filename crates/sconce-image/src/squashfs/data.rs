//! The files' bytes: cut into jobs beforehand, compressed by every core, written in order.
//!
//! Which bytes make a block follows from the paths and sizes alone, so the same trees give the same
//! file on any number of cores. A file that is shorter than a block shares one with its neighbours
//! (a fragment); everything else has blocks of its own. A block of zeros takes no place at all.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use sconce_base::direct_io::{CHUNK_BYTES, DirectReader};
use sconce_schema::Progress;

use super::block::BlockPacker;
use super::nodes::{ContentSource, InodeKind, InodeTable};
use super::{Shape, SquashfsError};
use crate::layer::archive::{ArchiveError, io_error};

/// In a block's size: it is not compressed (`SQUASHFS_COMPRESSED_BIT_BLOCK`).
pub(super) const UNCOMPRESSED_BIT: u32 = 1 << 24;
/// Each takes up to 8 MiB with what waits to be written: 32 of them took 278 MiB for the default torch
/// environment, and these are to stay below that.
const MAX_WORKERS: usize = 24;

/// Where a file's bytes lie.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileExtent {
    /// Of its first block, in the squashfs file.
    pub(super) start: u64,
    /// The size of each of its blocks, with [`UNCOMPRESSED_BIT`]; 0 for zeros.
    pub(super) blocks: Vec<u32>,
    /// The fragment that it lies in, and where in there.
    pub(super) fragment: Option<(u32, u32)>,
    /// Bytes in blocks of zeros.
    pub(super) sparse: u64,
}

/// All that the tables say of the files' bytes.
#[derive(Debug, Default)]
pub(super) struct DataLayout {
    /// By inode; of files only.
    pub(super) files: BTreeMap<usize, FileExtent>,
    /// Start and size of each fragment.
    pub(super) fragments: Vec<(u64, u32)>,
}

/// Work for one core at a time.
#[derive(Debug, PartialEq, Eq)]
enum Job {
    /// A part of a file that has blocks of its own.
    Piece {
        inode: usize,
        offset: u64,
        bytes: usize,
    },
    /// Files that share a block.
    Fragment(Vec<usize>),
}

/// What came of a job.
struct PackedFile {
    bytes: Vec<u8>,
    /// As in [`FileExtent::blocks`]; of a fragment, one.
    blocks: Vec<u32>,
}

/// The jobs for `nodes`, and what is known of each file's place before its bytes are.
fn plan(nodes: &InodeTable, block: usize) -> (Vec<Job>, DataLayout) {
    let (mut jobs, mut placed) = (Vec::new(), DataLayout::default());
    let (mut shared, mut filled, mut fragment) = (Vec::new(), 0, 0_u32);
    for (inode, node) in nodes.0.iter().enumerate() {
        let InodeKind::File(content) = &node.kind else {
            continue;
        };
        let place = placed.files.entry(inode).or_default();
        if content.size == 0 {
            continue;
        }
        match usize::try_from(content.size) {
            Ok(size) if size < block => {
                if filled + size > block {
                    jobs.push(Job::Fragment(std::mem::take(&mut shared)));
                    filled = 0;
                    fragment += 1;
                }
                // A block's size fits 32 bits.
                place.fragment = Some((fragment, filled as u32));
                shared.push(inode);
                filled += size;
            }
            _ => {
                let offsets = (0..content.size).step_by(CHUNK_BYTES as usize);
                jobs.extend(offsets.map(|offset| Job::Piece {
                    inode,
                    offset,
                    bytes: CHUNK_BYTES.min(content.size - offset) as usize,
                }));
            }
        }
    }
    if !shared.is_empty() {
        jobs.push(Job::Fragment(shared));
    }
    (jobs, placed)
}

/// Reads and compresses.
struct Worker<'a> {
    nodes: &'a InodeTable,
    block: usize,
    reader: DirectReader,
    packer: BlockPacker,
    buffer: Vec<u8>,
}

impl<'a> Worker<'a> {
    fn new(nodes: &'a InodeTable, shape: Shape) -> io::Result<Self> {
        Ok(Self {
            nodes,
            block: shape.block_bytes as usize,
            reader: DirectReader::new(),
            packer: BlockPacker::new(shape.compression)?,
            buffer: Vec::new(),
        })
    }

    fn work(&mut self, job: &Job) -> Result<PackedFile, SquashfsError> {
        let (mut out, mut sizes) = (Vec::new(), Vec::new());
        match job {
            Job::Fragment(inodes) => {
                let mut buffer = std::mem::take(&mut self.buffer);
                buffer.clear();
                for &inode in inodes {
                    buffer.extend_from_slice(self.read(inode, 0, self.block)?.0);
                }
                self.pack(&buffer, &mut out, &mut sizes)?;
                self.buffer = buffer;
            }
            &Job::Piece {
                inode,
                offset,
                bytes,
            } => {
                let block = self.block;
                let (piece, packer) = self.read(inode, offset, bytes)?;
                for block in piece.chunks(block) {
                    if block.iter().all(|&byte| byte == 0) {
                        sizes.push(0);
                    } else {
                        sizes.push(pack(packer, block, &mut out)?);
                    }
                }
            }
        }
        Ok(PackedFile {
            bytes: out,
            blocks: sizes,
        })
    }

    /// At most `bytes` of a file from `offset` on, and what packs them.
    fn read(
        &mut self,
        inode: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<(&[u8], &mut BlockPacker), SquashfsError> {
        let nodes = self.nodes;
        let InodeKind::File(content) = &nodes.0[inode].kind else {
            return Ok((&[], &mut self.packer));
        };
        let bytes = bytes.min((content.size - offset) as usize);
        let piece = match &content.source {
            ContentSource::Made(all) => &all[offset as usize..][..bytes],
            ContentSource::Stored(path) => self
                .reader
                .read_chunk_at(path, content.size, offset, bytes)
                .map_err(io_error("read", path))?
                .ok_or_else(|| ArchiveError::Changed { path: path.clone() })?,
        };
        Ok((piece, &mut self.packer))
    }

    fn pack(
        &mut self,
        block: &[u8],
        out: &mut Vec<u8>,
        sizes: &mut Vec<u32>,
    ) -> Result<(), SquashfsError> {
        sizes.push(pack(&mut self.packer, block, out)?);
        Ok(())
    }
}

/// Appends a block to `out` and gives its size, with [`UNCOMPRESSED_BIT`].
fn pack(packer: &mut BlockPacker, block: &[u8], out: &mut Vec<u8>) -> Result<u32, SquashfsError> {
    let before = out.len();
    let compressed = packer.pack(block, out).map_err(SquashfsError::Compress)?;
    let size = (out.len() - before) as u32;
    Ok(if compressed {
        size
    } else {
        size | UNCOMPRESSED_BIT
    })
}

/// The queue between the workers and the one who writes: results leave it in the order of their
/// jobs, and nobody works far ahead of that.
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    jobs: usize,
    ahead: usize,
}

struct State {
    taken: usize,
    written: usize,
    ready: BTreeMap<usize, Result<PackedFile, SquashfsError>>,
    stopped: bool,
}

impl Queue {
    fn new(jobs: usize, ahead: usize) -> Self {
        Self {
            state: Mutex::new(State {
                taken: 0,
                written: 0,
                ready: BTreeMap::new(),
                stopped: false,
            }),
            changed: Condvar::new(),
            jobs,
            ahead,
        }
    }

    fn held(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `good` says something.
    fn wait<T>(&self, mut good: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut state = self.held();
        loop {
            if let Some(value) = good(&mut state) {
                return value;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The next job, or `None` when there are no more.
    fn take(&self) -> Option<usize> {
        self.wait(|state| {
            if state.stopped || state.taken == self.jobs {
                return Some(None);
            }
            (state.taken < state.written + self.ahead).then(|| {
                state.taken += 1;
                Some(state.taken - 1)
            })
        })
    }

    fn give(&self, job: usize, result: Result<PackedFile, SquashfsError>) {
        self.held().ready.insert(job, result);
        self.changed.notify_all();
    }

    /// The result of the next job that is to be written.
    fn next(&self) -> Result<PackedFile, SquashfsError> {
        let result = self.wait(|state| {
            let result = state.ready.remove(&state.written)?;
            state.written += 1;
            Some(result)
        });
        self.changed.notify_all();
        result
    }

    fn stop(&self) {
        self.held().stopped = true;
        self.changed.notify_all();
    }
}

/// Gives all files' bytes to `put`, which has `start` already. `names` are those of the trees.
pub(super) fn write_file_data(
    nodes: &InodeTable,
    shape: Shape,
    names: &[&str],
    start: u64,
    put: &mut dyn FnMut(&[u8]) -> Result<(), SquashfsError>,
    progress: &dyn Progress,
) -> Result<(DataLayout, u64), SquashfsError> {
    let (jobs, mut placed) = plan(nodes, shape.block_bytes as usize);
    let mut left = vec![0_usize; names.len()];
    let tree = |job: &Job| {
        let inode = match job {
            Job::Piece { inode, .. } => Some(inode),
            Job::Fragment(inodes) => inodes.first(),
        };
        match &nodes.0[*inode?].kind {
            InodeKind::File(content) => content.tree,
            _ => None,
        }
    };
    for at in jobs.iter().filter_map(tree) {
        left[at] += 1;
    }
    // One more than there are cores: each waits for the disk now and then.
    let workers = (shape.threads + 1).min(MAX_WORKERS);
    let queue = Queue::new(jobs.len(), 2 * workers);
    let work = || {
        let mut worker = Worker::new(nodes, shape);
        while let Some(number) = queue.take() {
            let result = match &mut worker {
                Ok(worker) => worker.work(&jobs[number]),
                Err(_) => Err(SquashfsError::Compress(io::ErrorKind::OutOfMemory.into())),
            };
            queue.give(number, result);
        }
    };
    let mut position = start;
    let mut write = || {
        for job in &jobs {
            let packed = queue.next()?;
            put(&packed.bytes)?;
            let read = place(
                &mut placed,
                nodes,
                job,
                &packed,
                position,
                shape.block_bytes,
            );
            position += packed.bytes.len() as u64;
            if let Some(at) = tree(job) {
                progress.advance(names[at], read);
                left[at] -= 1;
                if left[at] == 0 {
                    progress.done(names[at]);
                }
            }
        }
        Ok(())
    };
    let written = thread::scope(|scope| {
        for _ in 0..workers.min(jobs.len()) {
            scope.spawn(work);
        }
        let written = write();
        queue.stop();
        written
    });
    written.map(|()| (placed, position))
}

/// Notes where a job's bytes lie; how many there were before they were compressed.
fn place(
    placed: &mut DataLayout,
    nodes: &InodeTable,
    job: &Job,
    packed: &PackedFile,
    position: u64,
    block: u32,
) -> u64 {
    match job {
        Job::Fragment(inodes) => {
            let size = packed.blocks.first().copied().unwrap_or_default();
            placed.fragments.push((position, size));
            let size = |&inode: &usize| match &nodes.0[inode].kind {
                InodeKind::File(content) => content.size,
                _ => 0,
            };
            inodes.iter().map(size).sum()
        }
        Job::Piece { inode, bytes, .. } => {
            let place = placed.files.entry(*inode).or_default();
            if place.blocks.is_empty() {
                place.start = position;
            }
            let mut left = *bytes as u64;
            for &size in &packed.blocks {
                let length = left.min(u64::from(block));
                left -= length;
                if size == 0 {
                    place.sparse += length;
                }
            }
            place.blocks.extend_from_slice(&packed.blocks);
            *bytes as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ExtraEntry;
    use super::*;
    use crate::layer::ArchiveEntries;

    #[test]
    fn small_files_share_a_block_and_large_ones_come_in_pieces() {
        const BLOCK: usize = 4096;
        let large = CHUNK_BYTES as usize + 10;
        let sizes = [10, BLOCK - 10, 1, 0, BLOCK, BLOCK - 1, 2, large, 3];
        let made = |(at, &size): (usize, &usize)| ExtraEntry {
            path: format!("{at}").into(),
            mode: 0o644,
            bytes: Some(vec![0; size].into()),
        };
        let made: Vec<ExtraEntry> = sizes.iter().enumerate().map(made).collect();
        let nodes =
            InodeTable::from_entries(ArchiveEntries::from_trees(&[]).unwrap(), &made).unwrap();
        let (jobs, placed) = plan(&nodes, BLOCK);
        // The root is inode 0.
        let piece = |inode, offset, bytes| Job::Piece {
            inode,
            offset,
            bytes,
        };
        assert_eq!(
            jobs,
            [
                Job::Fragment(vec![1, 2]),
                piece(5, 0, BLOCK),
                Job::Fragment(vec![3, 6]),
                piece(8, 0, CHUNK_BYTES as usize),
                piece(8, CHUNK_BYTES, 10),
                Job::Fragment(vec![7, 9]),
            ]
        );
        let places: Vec<_> = placed.files.values().map(|place| place.fragment).collect();
        let some = |fragment, offset| Some((fragment, offset));
        assert_eq!(
            places,
            [
                some(0, 0),
                some(0, 10),
                some(1, 0),
                None,
                None,
                some(1, 1),
                some(2, 0),
                None,
                some(2, 2),
            ]
        );
    }

    #[test]
    fn holes_are_counted_by_the_bytes_that_they_stand_for() {
        let nodes =
            InodeTable::from_entries(ArchiveEntries::from_trees(&[]).unwrap(), &[]).unwrap();
        let mut placed = DataLayout::default();
        let job = |offset, bytes| Job::Piece {
            inode: 1,
            offset,
            bytes,
        };
        let packed = |blocks: &[u32]| PackedFile {
            bytes: Vec::new(),
            blocks: blocks.to_vec(),
        };
        let (first, second) = (packed(&[0, 70]), packed(&[0, 50 | UNCOMPRESSED_BIT, 0]));
        assert_eq!(
            place(&mut placed, &nodes, &job(0, 200), &first, 1000, 100),
            200
        );
        assert_eq!(
            place(&mut placed, &nodes, &job(200, 207), &second, 1070, 100),
            207
        );
        let expected = FileExtent {
            start: 1000,
            blocks: vec![0, 70, 0, 50 | UNCOMPRESSED_BIT, 0],
            fragment: None,
            sparse: 207,
        };
        assert_eq!(placed.files[&1], expected);
    }
}
