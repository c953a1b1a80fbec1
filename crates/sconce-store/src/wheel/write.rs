//! Files written fast: small ones as usual, large ones past the page cache.
//!
//! Most of an installation's CPU time is the kernel copying large libraries into the page cache.
//! A file that outgrows one buffer is therefore written with `O_DIRECT` into space that was set
//! aside before, from one aligned buffer that is used for every file. Where the file system
//! refuses this, the same buffers are written as usual.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};

use super::fixed_time;

/// Memory that one writer takes, and the size from which a file is large.
const BUFFER: usize = 1 << 20;
/// Large enough for every disk's block.
const ALIGN: usize = 4096;

/// Writes one file after the other.
#[derive(Debug)]
pub(super) struct Writer {
    /// The aligned buffer begins at `base`.
    memory: Vec<u8>,
    base: usize,
    filled: usize,
    path: PathBuf,
    expected: Option<u64>,
    /// Set while a large file is under way.
    file: Option<File>,
    flushed: u64,
    /// Whether this file system takes direct writes, as far as is known.
    direct: bool,
}

impl Writer {
    pub(super) fn new() -> Self {
        let memory = vec![0; BUFFER + ALIGN];
        let base = memory.as_ptr().align_offset(ALIGN);
        Self {
            // An offset that cannot be computed leaves the buffer unaligned; the first direct
            // write is then refused and all writes are buffered.
            base: if base <= ALIGN { base } else { 0 },
            memory,
            filled: 0,
            path: PathBuf::new(),
            expected: None,
            file: None,
            flushed: 0,
            direct: true,
        }
    }

    /// Begins the file `path`. The last one must be ended or given up.
    pub(super) fn begin(&mut self, path: PathBuf, expected: Option<u64>) {
        self.path = path;
        self.expected = expected;
        self.filled = 0;
        self.flushed = 0;
        self.file = None;
    }

    /// The file that was begun last.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Sees to it that [`Writer::room`] is not empty.
    pub(super) fn make_room(&mut self) -> io::Result<()> {
        if self.filled == BUFFER {
            self.flush(BUFFER)?;
            self.flushed += BUFFER as u64;
            self.filled = 0;
        }
        Ok(())
    }

    /// Room for the next bytes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.memory[self.base + self.filled..self.base + BUFFER]
    }

    /// The first `n` bytes of the room are filled.
    pub(super) fn filled(&mut self, n: usize) {
        self.filled += n;
    }

    /// The whole file, if it is so small that nothing of it was written yet.
    pub(super) fn small(&self) -> Option<&[u8]> {
        (self.flushed == 0).then(|| &self.memory[self.base..self.base + self.filled])
    }

    /// What the buffer holds, if it is full.
    pub(super) fn full(&self) -> Option<&[u8]> {
        (self.filled == BUFFER).then(|| &self.memory[self.base..self.base + BUFFER])
    }

    /// Completes the file and gives its size in bytes.
    pub(super) fn end(&mut self) -> io::Result<u64> {
        let size = self.flushed + self.filled as u64;
        if self.file.is_none() {
            let mut file = create(&self.path, OFlags::empty())?;
            file.write_all(&self.memory[self.base..self.base + self.filled])?;
            finish(&file)?;
            return Ok(size);
        }
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(ALIGN);
            self.memory[self.base + self.filled..self.base + padded].fill(0);
            self.flush(padded)?;
        }
        if let Some(file) = self.file.take() {
            // Cuts off the padding and what was set aside too much.
            file.set_len(size)?;
            finish(&file)?;
        }
        Ok(size)
    }

    /// Writes the first `n` bytes of the buffer; `n` is a multiple of [`ALIGN`].
    fn flush(&mut self, n: usize) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = match create(&self.path, direct(self.direct)) {
                    Err(e) if self.direct && refused(&e) => {
                        self.direct = false;
                        create(&self.path, OFlags::empty())
                    }
                    other => other,
                }?;
                if let Some(size) = self.expected
                    && let Err(e) = fallocate(&file, FallocateFlags::empty(), 0, size)
                    && e == rustix::io::Errno::NOSPC
                {
                    return Err(e.into());
                }
                self.file.insert(file)
            }
        };
        let mut bytes = &self.memory[self.base..self.base + n];
        while !bytes.is_empty() {
            match file.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if self.direct && refused(&e) => {
                    // Some file systems refuse at the first write only.
                    self.direct = false;
                    let flags = fcntl_getfl(&*file)?;
                    fcntl_setfl(&*file, flags - OFlags::DIRECT)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

fn direct(wanted: bool) -> OFlags {
    if wanted {
        OFlags::DIRECT
    } else {
        OFlags::empty()
    }
}

fn refused(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

fn create(path: &Path, flags: OFlags) -> io::Result<File> {
    // The bits of open's flags fit an i32; rustix keeps them unsigned.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// Mode and time that do not depend on umask and clock.
fn finish(file: &File) -> io::Result<()> {
    file.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    file.set_modified(fixed_time())
}
