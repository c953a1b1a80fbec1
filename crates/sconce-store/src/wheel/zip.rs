//! The zip records that a wheel is made of (PKWARE's APPNOTE, sections 4.3 to 4.5), as far as
//! wheels use them. Pure: bytes in, values out.

use super::error::ZipError;

/// Begins an entry.
pub(super) const LOCAL: u32 = 0x0403_4b50;
/// Begins an entry of the directory at the end.
pub(super) const CENTRAL: u32 = 0x0201_4b50;
/// Begins the directory's large-file end record.
const END64: u32 = 0x0606_4b50;
/// Begins the pointer to [`END64`].
const LOCATOR: u32 = 0x0706_4b50;
/// Begins the end record.
const END: u32 = 0x0605_4b50;
/// May begin the sizes behind an entry's data.
const DESCRIPTOR: u32 = 0x0807_4b50;

/// Bytes of an entry's fixed part.
pub(super) const LOCAL_LEN: usize = 30;
/// Bytes of a directory entry's fixed part.
pub(super) const CENTRAL_LEN: usize = 46;
/// The most that a descriptor takes.
pub(super) const DESCRIPTOR_LEN: usize = 24;

/// General purpose flags.
const ENCRYPTED: u16 = 1;
const SIZES_BEHIND: u16 = 1 << 3;
const PATCH: u16 = 1 << 5;
const STRONG_ENCRYPTION: u16 = 1 << 6;
const UTF8: u16 = 1 << 11;
const MASKED: u16 = 1 << 13;

/// How an entry's data are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CompressionMethod {
    /// As they are.
    Stored,
    /// Deflate.
    Deflated,
}

/// What an entry says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZipEntry {
    pub(super) name: String,
    pub(super) method: CompressionMethod,
    pub(super) crc: u32,
    /// Compressed, bytes.
    pub(super) packed: u64,
    /// Uncompressed, bytes.
    pub(super) size: u64,
    /// Sizes and checksum come behind the data; the three above are not known yet.
    pub(super) sizes_behind: bool,
}

/// An entry of the directory: the entry and what only the directory knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DirectoryEntry {
    pub(super) entry: ZipEntry,
    /// Offset of the entry's record.
    pub(super) offset: u64,
    /// Unix mode, 0 where the archive was made without.
    pub(super) mode: u32,
}

/// The record's variable part: (name, extra fields, comment) lengths.
pub(super) fn local_tail(fixed: &[u8; LOCAL_LEN]) -> (usize, usize) {
    (u16_at(fixed, 26) as usize, u16_at(fixed, 28) as usize)
}

/// As [`local_tail`] for a directory entry, with the comment's length.
pub(super) fn central_tail(fixed: &[u8; CENTRAL_LEN]) -> (usize, usize, usize) {
    (
        u16_at(fixed, 28) as usize,
        u16_at(fixed, 30) as usize,
        u16_at(fixed, 32) as usize,
    )
}

/// The signature at the beginning of `bytes`.
pub(super) fn parse_signature(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|b| u32::from_le_bytes(*b))
}

/// Reads an entry's record.
pub(super) fn parse_local_header(
    fixed: &[u8; LOCAL_LEN],
    name: &[u8],
    extra: &[u8],
) -> Result<ZipEntry, ZipError> {
    let entry = Fields {
        flags: u16_at(fixed, 6),
        method: u16_at(fixed, 8),
        crc: u32_at(fixed, 14),
        packed: u32_at(fixed, 18),
        size: u32_at(fixed, 22),
        offset: 0,
        disk: 0,
    };
    entry.read(name, extra).map(|(entry, _)| entry)
}

/// Reads an entry of the directory.
pub(super) fn parse_central_header(
    fixed: &[u8; CENTRAL_LEN],
    name: &[u8],
    extra: &[u8],
) -> Result<DirectoryEntry, ZipError> {
    let fields = Fields {
        flags: u16_at(fixed, 8),
        method: u16_at(fixed, 10),
        crc: u32_at(fixed, 16),
        packed: u32_at(fixed, 20),
        size: u32_at(fixed, 24),
        offset: u32_at(fixed, 42),
        disk: u16_at(fixed, 34),
    };
    let (entry, offset) = fields.read(name, extra)?;
    Ok(DirectoryEntry {
        entry,
        offset,
        mode: u32_at(fixed, 38) >> 16,
    })
}

struct Fields {
    flags: u16,
    method: u16,
    crc: u32,
    packed: u32,
    size: u32,
    offset: u32,
    disk: u16,
}

impl Fields {
    fn read(&self, raw: &[u8], extra: &[u8]) -> Result<(ZipEntry, u64), ZipError> {
        let name = String::from_utf8_lossy(raw).into_owned();
        let no = |what| ZipError::Unsupported {
            name: name.clone(),
            what,
        };
        if self.flags & (ENCRYPTED | STRONG_ENCRYPTION | MASKED) != 0 {
            return Err(no("encrypted"));
        }
        if self.flags & PATCH != 0 {
            return Err(no("a patch"));
        }
        if self.disk != 0 {
            return Err(no("on another disk"));
        }
        // Without the flag the name is in code page 437, and readers differ in what they make of it.
        if std::str::from_utf8(raw).is_err() || (!raw.is_ascii() && self.flags & UTF8 == 0) {
            return Err(no("named in an encoding that is not UTF-8"));
        }
        let method = match self.method {
            0 => CompressionMethod::Stored,
            8 => CompressionMethod::Deflated,
            _ => return Err(no("compressed with another method than deflate")),
        };
        let mut packed = u64::from(self.packed);
        let mut size = u64::from(self.size);
        let mut offset = u64::from(self.offset);
        let mut seen = false;
        for (id, data) in fields(extra) {
            match id {
                // Large-file sizes: of each value that did not fit its field, in this order.
                1 if !seen => {
                    seen = true;
                    let mut rest = data;
                    for value in [&mut size, &mut packed, &mut offset] {
                        if *value == u64::from(u32::MAX) {
                            let (head, tail) = rest
                                .split_first_chunk::<8>()
                                .ok_or_else(|| no("given with broken large-file sizes"))?;
                            *value = u64::from_le_bytes(*head);
                            rest = tail;
                        }
                    }
                }
                1 => return Err(no("given with large-file sizes twice")),
                // Another name for the same entry; readers differ in which they use.
                0x7075 => return Err(no("given two names")),
                _ => {}
            }
        }
        let entry = ZipEntry {
            name,
            method,
            crc: self.crc,
            packed,
            size,
            sizes_behind: self.flags & SIZES_BEHIND != 0,
        };
        Ok((entry, offset))
    }
}

/// The extra fields as (id, data). Stops where they stop making sense: some tools pad with zeros.
fn fields(mut extra: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = extra.split_first_chunk::<4>()?;
        let id = u16_at(head, 0);
        let data = rest.get(..u16_at(head, 2) as usize)?;
        extra = &rest[data.len()..];
        Some((id, data))
    })
}

/// How many bytes the descriptor at the beginning of `bytes` takes, if it says just this. The
/// format leaves open whether it has a signature and how wide its sizes are.
pub(super) fn match_descriptor(bytes: &[u8], crc: u32, packed: u64, size: u64) -> Option<usize> {
    let signed = parse_signature(bytes) == Some(DESCRIPTOR);
    for start in if signed { [4, 0] } else { [0, 4] } {
        if start == 4 && !signed {
            continue;
        }
        let Some(body) = bytes.get(start..) else {
            continue;
        };
        if parse_signature(body) != Some(crc) {
            continue;
        }
        let narrow = |at: usize| body.get(at..at + 4).map(|b| u64::from(u32_at(b, 0)));
        let wide = |at: usize| body.get(at..at + 8).map(|b| u64_at(b, 0));
        if narrow(4) == Some(packed) && narrow(8) == Some(size) {
            // A wide form whose high halves are zero begins like this too; what comes next tells.
            let after = start + 12;
            if bytes.get(after..after + 2) == Some(b"PK") {
                return Some(after);
            }
        }
        if wide(4) == Some(packed) && wide(12) == Some(size) {
            return Some(start + 20);
        }
    }
    None
}

/// Where the directory is and how much it lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EndOfDirectory {
    pub(super) entries: u64,
    pub(super) length: u64,
    pub(super) offset: u64,
}

/// Reads what follows the directory, which must reach to the end of the file. `at` is its offset.
pub(super) fn parse_end_records(mut bytes: &[u8], at: u64) -> Result<EndOfDirectory, ZipError> {
    let cut = || ZipError::CutOff { at };
    let no = |why: &str| ZipError::Directory {
        why: why.to_owned(),
    };
    let mut large = None;
    if parse_signature(bytes) == Some(END64) {
        let record: &[u8; 56] = bytes.first_chunk().ok_or_else(cut)?;
        if u64_at(record, 4) != 44 {
            return Err(no("its large-file end record has data of its own"));
        }
        if u32_at(record, 16) != 0
            || u32_at(record, 20) != 0
            || u64_at(record, 24) != u64_at(record, 32)
        {
            return Err(no("it spans several disks"));
        }
        large = Some(EndOfDirectory {
            entries: u64_at(record, 32),
            length: u64_at(record, 40),
            offset: u64_at(record, 48),
        });
        let locator: &[u8; 20] = bytes[56..].first_chunk().ok_or_else(cut)?;
        if parse_signature(locator) != Some(LOCATOR)
            || u32_at(locator, 4) != 0
            || u64_at(locator, 8) != at
            || u32_at(locator, 16) != 1
        {
            return Err(no("its large-file locator is wrong"));
        }
        bytes = &bytes[76..];
    }
    if parse_signature(bytes).is_some_and(|s| s != END) {
        return Err(ZipError::NoRecord { at });
    }
    let record: &[u8; 22] = bytes.first_chunk().ok_or_else(cut)?;
    let comment = &bytes[22..];
    if comment.len() != u16_at(record, 20) as usize {
        return Err(no("the file does not end where the archive does"));
    }
    if comment.windows(4).any(|w| w == END.to_le_bytes()) {
        return Err(no("its comment holds another end record"));
    }
    if u16_at(record, 4) != 0 || u16_at(record, 6) != 0 || u16_at(record, 8) != u16_at(record, 10) {
        return Err(no("it spans several disks"));
    }
    let small = EndOfDirectory {
        entries: u64::from(u16_at(record, 10)),
        length: u64::from(u32_at(record, 12)),
        offset: u64::from(u32_at(record, 16)),
    };
    let Some(large) = large else {
        return Ok(small);
    };
    let agree = |narrow: u64, most: u64, wide: u64| narrow == wide || narrow == most;
    if agree(small.entries, u64::from(u16::MAX), large.entries)
        && agree(small.length, u64::from(u32::MAX), large.length)
        && agree(small.offset, u64::from(u32::MAX), large.offset)
    {
        Ok(large)
    } else {
        Err(no("its two end records differ"))
    }
}

/// Finds the end records in the last bytes of a file, and gives their offset within `tail`.
/// Only for reading a file that cannot be read from its beginning; [`parse_end_records`] still has to agree.
pub(super) fn find_end(tail: &[u8]) -> Option<usize> {
    let last = (0..tail.len().checked_sub(21)?).rev().find(|&at| {
        parse_signature(&tail[at..]) == Some(END)
            && u16_at(&tail[at..], 20) as usize == tail.len() - at - 22
    })?;
    let with_large = last
        .checked_sub(76)
        .filter(|&at| parse_signature(&tail[at..]) == Some(END64));
    Some(with_large.unwrap_or(last))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Reads a whole directory.
pub(super) fn central_all(mut bytes: &[u8]) -> Result<Vec<DirectoryEntry>, ZipError> {
    let mut all = Vec::new();
    let cut = ZipError::CutOff { at: 0 };
    while let Some(fixed) = bytes.first_chunk::<CENTRAL_LEN>() {
        if parse_signature(fixed) != Some(CENTRAL) {
            break;
        }
        let (name, extra, comment) = central_tail(fixed);
        let tail = &bytes[CENTRAL_LEN..];
        let (Some(rest), Some(name_bytes)) = (tail.get(name + extra + comment..), tail.get(..name))
        else {
            return Err(cut);
        };
        all.push(parse_central_header(
            fixed,
            name_bytes,
            &tail[name..name + extra],
        )?);
        bytes = rest;
    }
    Ok(all)
}
