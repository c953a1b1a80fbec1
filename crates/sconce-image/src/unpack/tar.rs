//! Tar archives as the tools of the field write them: ustar, pax and GNU (POSIX.1-2017, "pax"; GNU
//! tar manual, "Basic Tar Format"; star(5)). What stands in a header is followed as Go's
//! archive/tar does, since that is what images are made with and for.
//!
//! Not the `tar` crate: it takes a long name of any length into memory, or, read in the raw, knows
//! no size in a pax header and no sparse file.

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Seek};

use super::sparse::{SparseError, SparseMap, SparseReader};

/// A tar archive's unit.
pub(crate) const BLOCK: usize = 512;
/// No name and no pax header that is taken is longer, bytes.
const MAX_TEXT_BYTES: u64 = 1 << 20;

/// Why bytes are not a tar archive that can be read.
#[derive(Debug, thiserror::Error)]
pub enum TarError {
    /// They cannot be read: cut off, or broken compressed data.
    #[error("the archive cannot be read")]
    Read(#[from] io::Error),
    /// A header is not one.
    #[error("the archive's header at byte {at} {why}")]
    Header {
        /// Where it begins.
        at: u64,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The map of a sparse file is wrong.
    #[error("the archive's header at byte {at} is of a sparse file that cannot be")]
    Sparse {
        /// Where it begins.
        at: u64,
        /// What is wrong with it.
        source: SparseError,
    },
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TarEntryKind {
    File,
    Folder,
    Link,
    HardLink,
    Device,
    Pipe,
    /// Of this type flag.
    Other(u8),
}

/// An entry without its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TarEntry {
    pub(crate) name: Vec<u8>,
    /// Target of a link.
    pub(crate) link: Vec<u8>,
    pub(crate) kind: TarEntryKind,
    pub(crate) mode: u32,
    /// Seconds since 1970.
    pub(crate) mtime: i64,
    /// Bytes of the file, holes included.
    pub(crate) size: u64,
    /// Where its data begins in the archive.
    pub(crate) at: u64,
}

/// A reader in which bytes can be passed over.
pub(crate) trait SkippingRead: Read {
    /// Passes over `n` bytes; an end before that is an error now or at the next read.
    fn pass(&mut self, n: u64) -> io::Result<()>;
}

/// A reader that only goes forward.
pub(crate) struct ForwardReader<R>(pub(crate) R);

impl<R: Read> Read for ForwardReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> SkippingRead for ForwardReader<R> {
    fn pass(&mut self, n: u64) -> io::Result<()> {
        match io::copy(&mut self.0.by_ref().take(n), &mut io::sink())? {
            passed if passed < n => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

impl<R: Read + Seek> SkippingRead for BufReader<R> {
    fn pass(&mut self, n: u64) -> io::Result<()> {
        let n = i64::try_from(n).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        self.seek_relative(n)
    }
}

/// An archive that is read from its beginning.
pub(crate) struct TarReader<S> {
    source: S,
    /// Bytes read so far.
    at: u64,
    /// Bytes of the present entry, and of the padding behind it, that were not read.
    left: u64,
    padding: u64,
    sparse: Option<SparseReader>,
    /// Headers that may still come.
    headers: u64,
}

impl<S: SkippingRead> TarReader<S> {
    /// `most` is how many headers it may have, those with long names included.
    pub(crate) fn new(source: S, most: u64) -> Self {
        Self {
            source,
            at: 0,
            left: 0,
            padding: 0,
            sparse: None,
            headers: most,
        }
    }

    /// The next entry; `None` at the end.
    pub(crate) fn next_entry(&mut self) -> Result<Option<TarEntry>, TarError> {
        let (mut long_name, mut long_link) = (None, None);
        let mut pax = Pax::default();
        loop {
            self.source.pass(self.left)?;
            self.at = self.at.saturating_add(self.left);
            self.pass_padding()?;
            (self.left, self.padding, self.sparse) = (0, 0, None);
            let begins = self.at;
            let Some(header) = self.header()? else {
                return Ok(None);
            };
            let wrong = |why| TarError::Header { at: begins, why };
            self.headers = self
                .headers
                .checked_sub(1)
                .ok_or_else(|| wrong("is one of too many"))?;
            let flag = header[156];
            let size = parse_numeric_field(&header[124..136])
                .and_then(|size| u64::try_from(size).ok())
                .ok_or_else(|| wrong("has no size"))?;
            match flag {
                b'L' => long_name = Some(until_zero(&self.text(size, begins)?).to_vec()),
                b'K' => long_link = Some(until_zero(&self.text(size, begins)?).to_vec()),
                b'x' => {
                    pax = Pax::parse(&self.text(size, begins)?)
                        .ok_or_else(|| wrong("is a pax header that cannot be read"))?
                }
                // Go's users pass a global header over.
                b'g' => self.holds(size),
                _ => {
                    let mut entry = plain(&header, size, pax.long_name(long_name), long_link)
                        .ok_or_else(|| wrong("has a field that is no number"))?;
                    pax.apply(&mut entry)
                        .ok_or_else(|| wrong("is of a pax header that cannot be"))?;
                    self.begin(&header, &mut entry, &pax, begins)?;
                    return Ok(Some(entry));
                }
            }
        }
    }

    /// The data of the present entry.
    pub(crate) fn entry_data(&mut self) -> impl Read + '_ {
        Data(self)
    }

    /// Whether the present entry has holes, so that its data lies otherwise than its size says.
    pub(crate) fn is_sparse(&self) -> bool {
        self.sparse.is_some()
    }

    /// What it was read from, after the last entry.
    pub(crate) fn into_source(self) -> S {
        self.source
    }

    /// Passes what fills up the last block of an entry. At the very end it may be missing, as Go has
    /// it: layers that `umoci insert` makes end with the last file's data.
    fn pass_padding(&mut self) -> Result<(), TarError> {
        let mut block = [0; BLOCK];
        let wanted = usize::try_from(self.padding).map_or(BLOCK, |padding| padding.min(BLOCK));
        let mut got = 0;
        while got < wanted {
            match self.source.read(&mut block[got..wanted]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.at = self.at.saturating_add(got as u64);
        Ok(())
    }

    /// A header, whose checksum is right; `None` at the end.
    fn header(&mut self) -> Result<Option<[u8; BLOCK]>, TarError> {
        let mut header = [0; BLOCK];
        let mut got = 0;
        while got < BLOCK {
            match self.source.read(&mut header[got..]) {
                // Some tools leave the empty blocks at the end out.
                Ok(0) if got == 0 => return Ok(None),
                Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        let at = self.at;
        self.at += BLOCK as u64;
        if header.iter().all(|&b| b == 0) {
            return Ok(None);
        }
        let found = parse_numeric_field(&header[148..156]);
        // The field counts as if it were blank; old tools added signed bytes.
        let summed = |value: &dyn Fn(u8) -> i64| -> i64 {
            let sum = |bytes: &[u8]| bytes.iter().map(|&b| value(b)).sum::<i64>();
            sum(&header[..148]) + 8 * i64::from(b' ') + sum(&header[156..])
        };
        let good = [summed(&|b| b.into()), summed(&|b| b.cast_signed().into())];
        if !found.is_some_and(|found| good.contains(&found)) {
            return Err(TarError::Header {
                at,
                why: "has a wrong checksum",
            });
        }
        Ok(Some(header))
    }

    /// The present entry has `size` bytes.
    fn holds(&mut self, size: u64) {
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    /// The data of a header that belongs to the next one.
    fn text(&mut self, size: u64, at: u64) -> Result<Vec<u8>, TarError> {
        if size > MAX_TEXT_BYTES {
            let why = "has too long a text";
            return Err(TarError::Header { at, why });
        }
        self.holds(size);
        let mut text = Vec::new();
        Data(self).read_to_end(&mut text)?;
        Ok(text)
    }

    /// Finds where the data of `entry` lies.
    fn begin(
        &mut self,
        header: &[u8; BLOCK],
        entry: &mut TarEntry,
        pax: &Pax,
        at: u64,
    ) -> Result<(), TarError> {
        // Whatever size a link says, no data follows it.
        if !matches!(entry.kind, TarEntryKind::File | TarEntryKind::Other(_)) {
            entry.size = 0;
        }
        if entry.size > i64::MAX as u64 {
            let why = "has too large a size";
            return Err(TarError::Header { at, why });
        }
        let wrong = |source| TarError::Sparse { at, source };
        let stored = entry.size;
        if header[156] == b'S' {
            let sparse = SparseMap::of_gnu(header, || {
                let mut block = [0; BLOCK];
                self.source.read_exact(&mut block)?;
                self.at += BLOCK as u64;
                Ok(block)
            });
            let sparse = sparse?.map_err(wrong)?;
            entry.size = sparse.size;
            self.holds(stored);
            self.sparse = Some(SparseReader::new(sparse, stored).map_err(wrong)?);
        } else if let Some(wanted) = SparseMap::of_pax(&pax.0).map_err(wrong)? {
            self.holds(stored);
            let mut sparse = SparseMap {
                size: wanted.size,
                chunks: wanted.chunks.unwrap_or_default(),
            };
            if wanted.in_data {
                let mut next = || {
                    let mut block = [0; BLOCK];
                    Data(self).read_exact(&mut block)?;
                    Ok(block)
                };
                sparse.chunks = SparseMap::read_map(&mut next)?.map_err(wrong)?;
            }
            entry.size = sparse.size;
            self.sparse = Some(SparseReader::new(sparse, self.left).map_err(wrong)?);
        } else {
            self.holds(stored);
        }
        entry.at = self.at;
        Ok(())
    }
}

/// The data of the present entry.
struct Data<'a, S>(&'a mut TarReader<S>);

impl<S: SkippingRead> Read for Data<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let archive = &mut *self.0;
        let (source, left, at) = (&mut archive.source, &mut archive.left, &mut archive.at);
        let mut stored = |buffer: &mut [u8]| {
            let most = usize::try_from(*left)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let n = source.read(&mut buffer[..most])?;
            if n == 0 && most > 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *left -= n as u64;
            *at += n as u64;
            Ok(n)
        };
        match &mut archive.sparse {
            Some(sparse) => sparse.read(buffer, stored),
            None => stored(buffer),
        }
    }
}

/// The records of a pax header that count here.
#[derive(Default)]
struct Pax(BTreeMap<Vec<u8>, Vec<u8>>);

impl Pax {
    /// Records are `LENGTH KEY=VALUE\n`; the length counts all of it.
    fn parse(text: &[u8]) -> Option<Self> {
        let mut found = BTreeMap::new();
        let mut rest = text;
        while !rest.is_empty() {
            let space = rest.iter().take(20).position(|&b| b == b' ')?;
            let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
            let record = rest.get(space + 1..length)?.strip_suffix(b"\n")?;
            let equals = record.iter().position(|&b| b == b'=')?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            if [&b"path"[..], b"linkpath", b"size", b"mtime"].contains(&key)
                || key.starts_with(b"GNU.sparse.")
            {
                found.insert(key.to_vec(), value.to_vec());
            }
            rest = &rest[length..];
        }
        // An empty value takes what another header said away.
        found.retain(|_, value| !value.is_empty());
        Some(Self(found))
    }

    fn long_name(&mut self, gnu: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let sparse = self.0.remove(&b"GNU.sparse.name"[..]);
        let path = self.0.remove(&b"path"[..]);
        sparse.or(path).or(gnu)
    }

    /// `None` where a number is none.
    fn apply(&mut self, entry: &mut TarEntry) -> Option<()> {
        if let Some(link) = self.0.remove(&b"linkpath"[..]) {
            entry.link = link;
        }
        if let Some(size) = self.0.get(&b"size"[..]) {
            entry.size = parse_decimal(size)?;
        }
        if let Some(time) = self.0.get(&b"mtime"[..]) {
            let whole = time.split(|&b| b == b'.').next()?;
            entry.mtime = std::str::from_utf8(whole).ok()?.parse().ok()?;
        }
        Some(())
    }
}

/// A number in decimal digits and nothing else.
pub(super) fn parse_decimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text)
        .ok()
        .filter(|_| digits)?
        .parse()
        .ok()
}

/// A header's own fields, under the long names that came before it.
fn plain(
    header: &[u8; BLOCK],
    size: u64,
    long_name: Option<Vec<u8>>,
    long_link: Option<Vec<u8>>,
) -> Option<TarEntry> {
    let name = long_name.unwrap_or_else(|| short_name(header));
    let kind = match header[156] {
        0 if name.ends_with(b"/") => TarEntryKind::Folder,
        0 | b'0' | b'7' | b'S' => TarEntryKind::File,
        b'1' => TarEntryKind::HardLink,
        b'2' => TarEntryKind::Link,
        b'3' | b'4' => TarEntryKind::Device,
        b'5' => TarEntryKind::Folder,
        b'6' => TarEntryKind::Pipe,
        other => TarEntryKind::Other(other),
    };
    Some(TarEntry {
        name,
        link: long_link.unwrap_or_else(|| until_zero(&header[157..257]).to_vec()),
        kind,
        // Only these bits are anyone's.
        mode: (parse_numeric_field(&header[100..108])? & 0o7777) as u32,
        mtime: parse_numeric_field(&header[136..148])?,
        size,
        at: 0,
    })
}

/// The name that fits the header: POSIX has a prefix for it, GNU has other things there.
fn short_name(header: &[u8; BLOCK]) -> Vec<u8> {
    let name = until_zero(&header[..100]);
    let prefix = match (&header[257..263], &header[508..]) {
        (b"ustar\0", b"tar\0") => until_zero(&header[345..476]),
        (b"ustar\0", _) => until_zero(&header[345..500]),
        _ => &[],
    };
    match prefix {
        [] => name.to_vec(),
        prefix => [prefix, b"/", name].concat(),
    }
}

/// A numeric field: octal digits among blanks, or GNU's base 256, whose first bit is set. An empty
/// field is 0.
pub(super) fn parse_numeric_field(field: &[u8]) -> Option<i64> {
    if field.first().is_some_and(|&b| b & 0x80 != 0) {
        // The second bit is the sign of a number in two's complement.
        let negative = field[0] & 0x40 != 0;
        let mut value = if negative { -1_i64 } else { 0 };
        for (place, &byte) in field.iter().enumerate() {
            let byte = match (place, negative) {
                (0, false) => byte & 0x7f,
                _ => byte,
            };
            value = value.checked_mul(256)?.checked_add(byte.into())?;
        }
        return Some(value);
    }
    let text = field.split(|&b| b == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).ok()?.trim_matches(' ');
    match text {
        "" => Some(0),
        text if text.starts_with(['+', '-']) => None,
        text => i64::from_str_radix(text, 8).ok(),
    }
}

fn until_zero(text: &[u8]) -> &[u8] {
    text.split(|&b| b == 0).next().unwrap_or_default()
}

#[cfg(test)]
#[path = "tar_tests.rs"]
mod tests;
