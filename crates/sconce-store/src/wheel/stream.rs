//! A zip archive read from its beginning while it arrives.
//!
//! Zip has two descriptions of the same entries: a record before each entry's data and a
//! directory at the end, and readers that use one can be shown other files than readers of the
//! other. Here both are read and must agree in everything, with no byte between the records
//! that neither describes; what was unpacked before is thrown away if they do not.

use std::collections::HashMap;

use flate2::{Decompress, FlushDecompress, Status};

use super::error::{WheelError, ZipError};
use super::input::{BufferedInput, ByteStream};
use super::zip::{self, CompressionMethod, DirectoryEntry, ZipEntry};

/// What an archive may unpack to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WheelLimits {
    /// All files together, bytes.
    pub bytes: u64,
    /// Files and folders.
    pub entries: u64,
}

impl Default for WheelLimits {
    /// 64 GiB and a million entries; the largest wheels known unpack to some 5 GiB.
    fn default() -> Self {
        Self {
            bytes: 64 << 30,
            entries: 1_000_000,
        }
    }
}

/// Deflate cannot do better than this (zlib's technical notes: 1032 to 1).
const MAX_DEFLATE_RATIO: u64 = 1032;

/// As many compressed bytes at once as can be had: every call of the inflater ends with 32 KiB
/// of window copied aside, and a socket gives 16 KiB at a time.
const INPUT_CHUNK_BYTES: usize = 192 << 10;

/// Takes what comes out.
pub(super) trait EntrySink {
    /// A file begins. `size` is its size in bytes where the archive tells it beforehand.
    fn begin(&mut self, name: &str, size: Option<u64>) -> Result<(), WheelError>;
    /// Room for the next bytes of the file; never empty.
    fn room(&mut self) -> Result<&mut [u8], WheelError>;
    /// The first `n` bytes of the room are filled.
    fn filled(&mut self, n: usize) -> Result<(), WheelError>;
    /// A folder; `name` ends with a slash.
    fn folder(&mut self, name: &str) -> Result<(), WheelError>;
    /// The file is complete.
    fn end(&mut self) -> Result<(), WheelError>;
}

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum ReadFailure<E> {
    /// The source.
    Source(E),
    /// The archive or the sink.
    Wheel(WheelError),
}

impl<E> From<ZipError> for ReadFailure<E> {
    fn from(e: ZipError) -> Self {
        Self::Wheel(e.into())
    }
}

impl<E> From<WheelError> for ReadFailure<E> {
    fn from(e: WheelError) -> Self {
        Self::Wheel(e)
    }
}

/// Unpacks the archive, to its very last byte, and gives the directory's view of its entries in
/// the order of their data. `sizes` holds the compressed sizes, by offset, of entries that do not
/// tell it themselves.
pub(super) fn unpack_archive<S: ByteStream>(
    input: &mut BufferedInput<S>,
    sink: &mut impl EntrySink,
    limits: WheelLimits,
    sizes: &HashMap<u64, u64>,
) -> Result<Vec<DirectoryEntry>, ReadFailure<S::Error>> {
    let mut reader = Reader {
        input,
        inflate: Decompress::new(false),
        limits,
        written: 0,
        seen: Vec::new(),
    };
    while reader.peek_signature()? == zip::LOCAL {
        reader.entry(sink, sizes)?;
        if reader.seen.len() as u64 > limits.entries {
            return Err(ZipError::TooLarge {
                limit: limits.entries,
                unit: "entries",
            }
            .into());
        }
    }
    reader.directory()
}

struct Reader<'a, S> {
    input: &'a mut BufferedInput<S>,
    inflate: Decompress,
    limits: WheelLimits,
    written: u64,
    seen: Vec<DirectoryEntry>,
}

impl<S: ByteStream> Reader<'_, S> {
    /// At least `need` bytes.
    fn need(&mut self, need: usize) -> Result<&[u8], ReadFailure<S::Error>> {
        let at = self.input.offset();
        let bytes = self.input.peek(need).map_err(ReadFailure::Source)?;
        if bytes.len() < need {
            let at = at + bytes.len() as u64;
            return Err(ZipError::CutOff { at }.into());
        }
        Ok(bytes)
    }

    fn peek_signature(&mut self) -> Result<u32, ReadFailure<S::Error>> {
        let bytes = self.need(4)?;
        Ok(zip::parse_signature(bytes).unwrap_or_default())
    }

    /// The fixed part of a record and how long it is with its tail.
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], ReadFailure<S::Error>> {
        let bytes = self.need(N)?;
        let mut fixed = [0; N];
        fixed.copy_from_slice(&bytes[..N]);
        Ok(fixed)
    }

    fn entry(
        &mut self,
        sink: &mut impl EntrySink,
        sizes: &HashMap<u64, u64>,
    ) -> Result<(), ReadFailure<S::Error>> {
        let offset = self.input.offset();
        let fixed = self.fixed::<{ zip::LOCAL_LEN }>()?;
        let (name, extra) = zip::local_tail(&fixed);
        let whole = zip::LOCAL_LEN + name + extra;
        let bytes = self.need(whole)?;
        let (name, extra) = bytes[zip::LOCAL_LEN..whole].split_at(name);
        let mut entry = zip::parse_local_header(&fixed, name, extra)?;
        self.input.consume(whole);

        let folder = entry.name.ends_with('/');
        if folder {
            sink.folder(&entry.name)?;
        } else {
            let size = (!entry.sizes_behind).then_some(entry.size);
            // A promise that the compressed bytes cannot keep gets no disk space set aside.
            let likely = size.filter(|&size| {
                size / MAX_DEFLATE_RATIO <= entry.packed && size <= self.limits.bytes
            });
            sink.begin(&entry.name, likely)?;
        }
        let mut out = Out {
            sink,
            folder,
            spare: [0],
            crc: crc32fast::Hasher::new(),
            size: 0,
        };
        let before = self.input.offset();
        match entry.method {
            CompressionMethod::Deflated => self.inflate(&entry, &mut out)?,
            CompressionMethod::Stored => {
                let packed = match (entry.sizes_behind, sizes.get(&offset)) {
                    (false, _) => entry.packed,
                    (true, Some(&packed)) => packed,
                    (true, None) if folder => 0,
                    (true, None) => return Err(ZipError::SizeBehind { name: entry.name }.into()),
                };
                self.copy(&entry, packed, &mut out)?;
            }
        }
        let packed = self.input.offset() - before;
        let (size, crc) = (out.size, out.crc.finalize());
        if !folder {
            sink.end()?;
        }
        if entry.sizes_behind {
            let bytes = self
                .input
                .peek(zip::DESCRIPTOR_LEN)
                .map_err(ReadFailure::Source)?;
            let Some(n) = zip::match_descriptor(bytes, crc, packed, size) else {
                return Err(ZipError::Differs {
                    name: entry.name,
                    what: "size",
                    said: zip::parse_signature(bytes).map_or(0, u64::from),
                    found: size,
                }
                .into());
            };
            self.input.consume(n);
            (entry.crc, entry.packed, entry.size) = (crc, packed, size);
        }
        for (what, said, found) in [
            ("size", entry.size, size),
            ("compressed size", entry.packed, packed),
            ("CRC-32", u64::from(entry.crc), u64::from(crc)),
        ] {
            if said != found {
                return Err(ZipError::Differs {
                    name: entry.name,
                    what,
                    said,
                    found,
                }
                .into());
            }
        }
        self.seen.push(DirectoryEntry {
            entry,
            offset,
            mode: 0,
        });
        Ok(())
    }

    /// Counts `n` bytes more of `entry` and says when they are too many.
    fn count(&mut self, entry: &ZipEntry, size: u64, n: usize) -> Result<(), ZipError> {
        self.written += n as u64;
        if self.written > self.limits.bytes {
            return Err(ZipError::TooLarge {
                limit: self.limits.bytes,
                unit: "bytes",
            });
        }
        if !entry.sizes_behind && size > entry.size {
            return Err(ZipError::Differs {
                name: entry.name.clone(),
                what: "size",
                said: entry.size,
                found: size,
            });
        }
        Ok(())
    }

    fn copy(
        &mut self,
        entry: &ZipEntry,
        mut packed: u64,
        out: &mut Out<'_, impl EntrySink>,
    ) -> Result<(), ReadFailure<S::Error>> {
        while packed > 0 {
            let bytes = self.need(1)?;
            let room = out.room()?;
            let n = bytes
                .len()
                .min(room.len())
                .min(usize::try_from(packed).unwrap_or(usize::MAX));
            room[..n].copy_from_slice(&bytes[..n]);
            out.filled(n, entry)?;
            self.input.consume(n);
            packed -= n as u64;
            self.count(entry, out.size, n)?;
        }
        Ok(())
    }

    fn inflate(
        &mut self,
        entry: &ZipEntry,
        out: &mut Out<'_, impl EntrySink>,
    ) -> Result<(), ReadFailure<S::Error>> {
        let broken = || ZipError::Data {
            name: entry.name.clone(),
        };
        self.inflate.reset(false);
        loop {
            let left = if entry.sizes_behind {
                u64::MAX
            } else {
                entry.packed - self.inflate.total_in()
            };
            let at = self.input.offset();
            let wanted = usize::try_from(left)
                .map_or(INPUT_CHUNK_BYTES, |left| left.clamp(1, INPUT_CHUNK_BYTES));
            let bytes = self.input.peek(wanted).map_err(ReadFailure::Source)?;
            if bytes.is_empty() {
                return Err(ZipError::CutOff { at }.into());
            }
            let bytes = &bytes[..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            let room = out.room()?;
            let (in_before, out_before) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self
                .inflate
                .decompress(bytes, room, FlushDecompress::None)
                .map_err(|_| broken())?;
            let taken = (self.inflate.total_in() - in_before) as usize;
            let given = (self.inflate.total_out() - out_before) as usize;
            self.input.consume(taken);
            if given > 0 {
                out.filled(given, entry)?;
                self.count(entry, out.size, given)?;
            }
            match status {
                Status::StreamEnd => return Ok(()),
                // The compressed bytes are used up and the end was not among them.
                _ if taken == 0 && given == 0 => return Err(broken().into()),
                _ => {}
            }
        }
    }

    /// The directory and all behind it.
    fn directory(mut self) -> Result<Vec<DirectoryEntry>, ReadFailure<S::Error>> {
        let no = |why: String| ZipError::Directory { why };
        let start = self.input.offset();
        let by_offset: HashMap<u64, usize> = self
            .seen
            .iter()
            .enumerate()
            .map(|(i, e)| (e.offset, i))
            .collect();
        let mut listed = vec![false; self.seen.len()];
        let mut entries = 0;
        while self.peek_signature()? == zip::CENTRAL {
            let fixed = self.fixed::<{ zip::CENTRAL_LEN }>()?;
            let (name, extra, comment) = zip::central_tail(&fixed);
            let whole = zip::CENTRAL_LEN + name + extra + comment;
            let bytes = self.need(whole)?;
            let (name, rest) = bytes[zip::CENTRAL_LEN..whole].split_at(name);
            let one = zip::parse_central_header(&fixed, name, &rest[..extra])?;
            self.input.consume(whole);
            let name = &one.entry.name;
            let Some(&index) = by_offset.get(&one.offset) else {
                return Err(no(format!("`{name}` is not at byte {}", one.offset)).into());
            };
            if std::mem::replace(&mut listed[index], true) {
                return Err(no(format!("`{name}` is listed twice")).into());
            }
            if self.seen[index].entry != one.entry {
                return Err(no(format!(
                    "`{name}` is described in two ways (the entry's own name is `{}`)",
                    self.seen[index].entry.name
                ))
                .into());
            }
            self.seen[index].mode = one.mode;
            entries += 1;
        }
        if let Some(missing) = listed.iter().position(|&listed| !listed) {
            let name = &self.seen[missing].entry.name;
            return Err(no(format!("`{name}` is not listed")).into());
        }
        let at = self.input.offset();
        // The end records and the longest comment.
        const MAX_END_RECORDS_BYTES: usize = 56 + 20 + 22 + u16::MAX as usize;
        let bytes = self
            .input
            .peek(MAX_END_RECORDS_BYTES + 1)
            .map_err(ReadFailure::Source)?;
        let end = zip::parse_end_records(bytes, at)?;
        let found = zip::EndOfDirectory {
            entries,
            length: at - start,
            offset: start,
        };
        if end != found {
            return Err(no(format!(
                "it says {} entries at byte {}, {} bytes; there are {entries} at byte {start}, {} bytes",
                end.entries, end.offset, end.length, found.length
            ))
            .into());
        }
        let n = bytes.len();
        self.input.consume(n);
        Ok(self.seen)
    }
}

/// One entry's way out: checksum and count. A folder's data go nowhere: it may have none.
struct Out<'a, T> {
    sink: &'a mut T,
    folder: bool,
    /// Where a folder's first byte shows.
    spare: [u8; 1],
    crc: crc32fast::Hasher,
    size: u64,
}

impl<T: EntrySink> Out<'_, T> {
    fn room(&mut self) -> Result<&mut [u8], WheelError> {
        if self.folder {
            return Ok(&mut self.spare);
        }
        self.sink.room()
    }

    /// The first `n` bytes of what [`Out::room`] gave are there.
    fn filled(&mut self, n: usize, entry: &ZipEntry) -> Result<(), WheelError> {
        if self.folder {
            return Err(WheelError::NotAFile {
                name: entry.name.clone(),
                what: "a folder with data",
            });
        }
        self.size += n as u64;
        let room = self.sink.room()?;
        self.crc.update(&room[..n]);
        self.sink.filled(n)
    }
}
