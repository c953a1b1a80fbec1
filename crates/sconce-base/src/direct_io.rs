//! Large files read and written past the page cache.
//!
//! Most of an installation's CPU time is the kernel copying large libraries into the page cache,
//! and a third of an image's is copying them out of it and the layers in.
//!
//! A written file that outgrows one buffer is therefore written with `O_DIRECT` into space that was set
//! aside before, from one aligned buffer that is used for every file. Where the file system
//! refuses this, the same buffers are written as usual.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl};

/// The modification time of every file and folder that the store keeps, seconds since 1970:
/// 1980-01-01, the first that zip can say.
pub const MTIME: u64 = 315_532_800;

/// [`MTIME`] as a time.
#[must_use]
pub fn fixed_time() -> std::time::SystemTime {
    std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(MTIME)
}

/// Memory that one writer takes, and the size from which a file is large.
const BUFFER_BYTES: usize = 1 << 20;
/// What [`DirectReader::read_chunk_at`] gives at most, in bytes.
pub const CHUNK_BYTES: u64 = BUFFER_BYTES as u64;
/// Large enough for every disk's block.
const ALIGN_BYTES: usize = 4096;

/// Writes one file after the other.
#[derive(Debug)]
pub struct DirectWriter {
    /// The aligned buffer begins at `base`.
    memory: Vec<u8>,
    base: usize,
    filled: usize,
    path: PathBuf,
    expected: Option<u64>,
    /// Set while a large file is under way.
    file: Option<File>,
    /// A file that the caller made: its mode and time are the caller's too.
    given: Option<File>,
    is_given: bool,
    flushed: u64,
    /// Whether this file system takes direct writes, as far as is known.
    direct: bool,
}

impl Default for DirectWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory of [`BUFFER_BYTES`] bytes that is aligned for the disk, from the offset on that is told.
fn aligned() -> (Vec<u8>, usize) {
    let memory = vec![0; BUFFER_BYTES + ALIGN_BYTES];
    let base = memory.as_ptr().align_offset(ALIGN_BYTES);
    // An offset that cannot be computed leaves the buffer unaligned; the first direct read or
    // write is then refused and all others are buffered.
    let base = if base <= ALIGN_BYTES { base } else { 0 };
    (memory, base)
}

/// Reads one file after the other, from the first byte to the last.
#[derive(Debug)]
pub struct DirectReader {
    memory: Vec<u8>,
    base: usize,
    direct: bool,
}

impl Default for DirectReader {
    fn default() -> Self {
        Self::new()
    }
}

impl DirectReader {
    /// With a buffer of its own.
    #[must_use]
    pub fn new() -> Self {
        let (memory, base) = aligned();
        Self {
            memory,
            base,
            direct: true,
        }
    }

    /// Hands the file's bytes to `each`, piece by piece. `size` is what the file is expected to
    /// have: only a large one is read past the page cache.
    ///
    /// # Errors
    /// What the system says. What `each` returns ends the reading and stands inside.
    pub fn read_chunks<E>(
        &mut self,
        path: &Path,
        size: u64,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> io::Result<Result<(), E>> {
        let wanted = self.direct && size >= BUFFER_BYTES as u64;
        let mut file = match open(path, direct(wanted)) {
            Err(e) if wanted && refused(&e) => {
                self.direct = false;
                open(path, OFlags::empty())
            }
            other => other,
        }?;
        loop {
            match file.read(&mut self.memory[self.base..self.base + BUFFER_BYTES]) {
                Ok(0) => return Ok(Ok(())),
                Ok(n) => {
                    if let Err(error) = each(&self.memory[self.base..self.base + n]) {
                        return Ok(Err(error));
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if wanted && refused(&e) => {
                    // Some file systems refuse at the first read only, or at an odd offset.
                    self.direct = false;
                    let flags = fcntl_getfl(&file)?;
                    fcntl_setfl(&file, flags - OFlags::DIRECT)?;
                }
                Err(e) => return Err(e),
            }
        }
    }
}

impl DirectReader {
    /// The `bytes` of the file from `offset` on, at most [`CHUNK_BYTES`] of them, if the file still has
    /// `size` bytes. Of a large file, offsets that are multiples of [`CHUNK_BYTES`] are read past the
    /// page cache.
    ///
    /// # Errors
    /// What the system says.
    pub fn read_chunk_at(
        &mut self,
        path: &Path,
        size: u64,
        offset: u64,
        bytes: usize,
    ) -> io::Result<Option<&[u8]>> {
        let bytes = bytes.min(BUFFER_BYTES);
        let mut wanted =
            self.direct && size >= BUFFER_BYTES as u64 && offset.is_multiple_of(CHUNK_BYTES);
        let file = match open(path, direct(wanted)) {
            Err(e) if wanted && refused(&e) => {
                (self.direct, wanted) = (false, false);
                open(path, OFlags::empty())
            }
            other => other,
        }?;
        if file.metadata()?.len() != size {
            return Ok(None);
        }
        let mut read = 0;
        while read < bytes {
            // The disk gives whole blocks only; what lies behind the piece is not looked at.
            let end = if wanted {
                bytes.next_multiple_of(ALIGN_BYTES)
            } else {
                bytes
            };
            let room = &mut self.memory[self.base + read..self.base + end];
            match file.read_at(room, offset + read as u64) {
                Ok(0) => return Ok(None),
                Ok(n) => read += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if wanted && refused(&e) => {
                    // Some file systems refuse at the first read only, or at an odd offset.
                    (self.direct, wanted) = (false, false);
                    let flags = fcntl_getfl(&file)?;
                    fcntl_setfl(&file, flags - OFlags::DIRECT)?;
                }
                Err(e) => return Err(e),
            }
        }
        Ok(Some(&self.memory[self.base..self.base + bytes]))
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

impl io::Write for DirectWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.make_room()?;
        let room = self.unfilled_buffer();
        let n = bytes.len().min(room.len());
        room[..n].copy_from_slice(&bytes[..n]);
        self.mark_filled(n);
        Ok(n)
    }

    /// Does nothing: a file is complete when it is ended.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl DirectWriter {
    /// With a buffer of its own.
    #[must_use]
    pub fn new() -> Self {
        let (memory, base) = aligned();
        Self {
            base,
            memory,
            filled: 0,
            path: PathBuf::new(),
            expected: None,
            file: None,
            given: None,
            is_given: false,
            flushed: 0,
            direct: true,
        }
    }

    /// Begins the file `path`. The last one must be ended or given up.
    pub fn start_file(&mut self, path: PathBuf, expected: Option<u64>) {
        self.path = path;
        self.expected = expected;
        self.filled = 0;
        self.flushed = 0;
        self.file = None;
        self.given = None;
        self.is_given = false;
    }

    /// Begins a file that is open for writing, and empty.
    pub fn begin_open(&mut self, file: File) {
        self.start_file(PathBuf::new(), None);
        self.given = Some(file);
        self.is_given = true;
    }

    /// The file that was begun last.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sees to it that [`DirectWriter::unfilled_buffer`] is not empty.
    pub fn make_room(&mut self) -> io::Result<()> {
        if self.filled == BUFFER_BYTES {
            self.put(BUFFER_BYTES)?;
            self.flushed += BUFFER_BYTES as u64;
            self.filled = 0;
        }
        Ok(())
    }

    /// Room for the next bytes.
    pub fn unfilled_buffer(&mut self) -> &mut [u8] {
        &mut self.memory[self.base + self.filled..self.base + BUFFER_BYTES]
    }

    /// The first `n` bytes of the room are filled.
    pub fn mark_filled(&mut self, n: usize) {
        self.filled += n;
    }

    /// The whole file, if it is so small that nothing of it was written yet.
    pub fn buffered_file(&self) -> Option<&[u8]> {
        (self.flushed == 0).then(|| &self.memory[self.base..self.base + self.filled])
    }

    /// What the buffer holds, if it is full.
    pub fn full_buffer(&self) -> Option<&[u8]> {
        (self.filled == BUFFER_BYTES).then(|| &self.memory[self.base..self.base + BUFFER_BYTES])
    }

    /// Completes the file and gives its size in bytes.
    pub fn finish_file(&mut self) -> io::Result<u64> {
        let size = self.flushed + self.filled as u64;
        if self.file.is_none() {
            let mut file = match self.given.take() {
                Some(file) => file,
                // It was ended before.
                None if self.is_given => return Ok(size),
                None => create(&self.path, OFlags::empty())?,
            };
            file.write_all(&self.memory[self.base..self.base + self.filled])?;
            if !self.is_given {
                finish(&file)?;
            }
            return Ok(size);
        }
        if self.filled > 0 {
            let padded = self.filled.next_multiple_of(ALIGN_BYTES);
            self.memory[self.base + self.filled..self.base + padded].fill(0);
            self.put(padded)?;
        }
        if let Some(file) = self.file.take() {
            // Cuts off the padding and what was set aside too much.
            file.set_len(size)?;
            if !self.is_given {
                finish(&file)?;
            }
        }
        Ok(size)
    }

    /// Writes the first `n` bytes of the buffer; `n` is a multiple of [`ALIGN_BYTES`].
    fn put(&mut self, n: usize) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = match self.given.take() {
                    Some(file) => {
                        let flags = fcntl_getfl(&file)?;
                        let past_cache = fcntl_setfl(&file, flags | direct(self.direct));
                        self.direct &= past_cache.is_ok();
                        file
                    }
                    None => match create(&self.path, direct(self.direct)) {
                        Err(e) if self.direct && refused(&e) => {
                            self.direct = false;
                            create(&self.path, OFlags::empty())
                        }
                        other => other,
                    }?,
                };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_what_the_file_has_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let whole = CHUNK_BYTES as usize;
        let bytes: Vec<u8> = (0..2 * whole + 12_345).map(|n| (n % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let size = bytes.len() as u64;
        let mut reader = DirectReader::new();
        for (offset, length) in [
            (0, whole),
            (whole, whole),
            (2 * whole, 12_345),
            (0, 1),
            (17, 5000),
            (2 * whole + 12_344, 1),
            (5, 0),
        ] {
            let piece = reader.read_chunk_at(&path, size, offset as u64, length);
            let piece = piece.unwrap().unwrap();
            assert!(
                piece == &bytes[offset..offset + length],
                "{offset} {length}"
            );
        }
        // Past the end, and of another size than was said.
        let past = reader
            .read_chunk_at(&path, size, 2 * CHUNK_BYTES, whole)
            .unwrap();
        assert!(past.is_none());
        for other in [size - 1, size + 1] {
            assert!(reader.read_chunk_at(&path, other, 0, 10).unwrap().is_none());
        }
        assert!(
            reader
                .read_chunk_at(&folder.path().join("absent"), 1, 0, 1)
                .is_err()
        );
    }
}
