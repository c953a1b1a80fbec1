//! Objects: in files of their own, and in packs, where one may be told by its difference from another
//! (gitformat-pack(5)). Only commits and tags are read whole.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flate2::read::ZlibDecoder;
use sconce_base::input::{open_regular, read_regular};

use super::{MAX_LINE_FILE, ObjectId, Repository};

/// No commit or tag that is read is longer.
const MAX_OBJECT_BYTES: u64 = 1 << 20;
/// The longest chain of differences: git makes none of more than 50 by itself.
const MAX_DELTA_DEPTH: usize = 200;
/// Packs, and object folders of other repositories that one borrows from.
const MAX_PACKS: usize = 10_000;
const MAX_ALTERNATES: usize = 5;
/// What one object is read by.
const READ_BYTES: usize = 1024;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectKind {
    Commit,
    Tag,
    /// A tree or a file, whose bytes are not read.
    Other,
}

/// What is known of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) parents: Vec<ObjectId>,
    /// When it was committed, seconds since 1970.
    pub(super) time: i64,
}

/// The objects of a repository.
pub(super) struct ObjectDatabase {
    folders: Vec<PathBuf>,
    packs: Vec<Pack>,
}

struct Pack {
    index: File,
    data: File,
    /// How many objects have a first byte of at most this.
    fanout: Vec<u32>,
}

impl ObjectDatabase {
    pub(super) fn open(repository: &Repository) -> Self {
        let mut folders = vec![repository.common_dir.join("objects")];
        let mut at = 0;
        while let Some(folder) = folders.get(at).cloned() {
            at += 1;
            let text = read_regular(&folder.join("info/alternates"), MAX_LINE_FILE);
            let text = String::from_utf8(text.unwrap_or_default()).unwrap_or_default();
            let others = text.lines().filter(|line| !line.starts_with('#'));
            for other in others {
                let other = folder.join(other);
                if folders.len() <= MAX_ALTERNATES && !folders.contains(&other) {
                    folders.push(other);
                }
            }
        }
        let packs = folders
            .iter()
            .flat_map(|folder| open_packs(folder))
            .collect();
        Self { folders, packs }
    }

    /// An object, and its bytes where it is a commit or a tag. `None` where it is not there, or damaged.
    pub(super) fn read(&self, id: ObjectId) -> Option<(ObjectKind, Vec<u8>)> {
        let packed = self
            .packs
            .iter()
            .find_map(|pack| Some((pack, pack.find(id)?)));
        match packed {
            Some((pack, offset)) => self.read_packed(pack, offset, id.as_bytes().len(), 0),
            None => self
                .folders
                .iter()
                .find_map(|folder| read_loose(folder, id)),
        }
    }

    /// A commit.
    pub(super) fn read_commit(&self, id: ObjectId) -> Option<Commit> {
        match self.read(id)? {
            (ObjectKind::Commit, bytes) => parse_commit(&bytes),
            _ => None,
        }
    }

    /// What lies at an offset of a pack. `width` is the length of an object's name.
    fn read_packed(
        &self,
        pack: &Pack,
        at: u64,
        width: usize,
        depth: usize,
    ) -> Option<(ObjectKind, Vec<u8>)> {
        if depth > MAX_DELTA_DEPTH {
            return None;
        }
        let file = &pack.data;
        let mut reader = BufReader::with_capacity(READ_BYTES, FileFrom { file, offset: at });
        let (kind, size) = read_entry_header(&mut reader)?;
        let base = match kind {
            1 => return Some((ObjectKind::Commit, inflate(reader, size)?)),
            4 => return Some((ObjectKind::Tag, inflate(reader, size)?)),
            2 | 3 => return Some((ObjectKind::Other, Vec::new())),
            6 => {
                let back = read_offset(&mut reader)?;
                let base = at.checked_sub(back).filter(|_| back > 0)?;
                self.read_packed(pack, base, width, depth + 1)?
            }
            7 => {
                let mut id = vec![0; width];
                reader.read_exact(&mut id).ok()?;
                // A pack that is not complete by itself is never kept so.
                let base = pack.find(ObjectId::from_bytes(&id)?)?;
                self.read_packed(pack, base, width, depth + 1)?
            }
            _ => return None,
        };
        match base {
            (ObjectKind::Other, _) => Some(base),
            (kind, base) => Some((kind, apply_delta(&base, &inflate(reader, size)?)?)),
        }
    }
}

/// A file from an offset on.
struct FileFrom<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for FileFrom<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

fn open_packs(objects: &Path) -> Vec<Pack> {
    let entries = std::fs::read_dir(objects.join("pack"))
        .into_iter()
        .flatten()
        .flatten();
    let indexes = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "idx"));
    let mut indexes: Vec<PathBuf> = indexes.take(MAX_PACKS).collect();
    indexes.sort();
    indexes.iter().filter_map(|path| Pack::open(path)).collect()
}

impl Pack {
    fn open(path: &Path) -> Option<Self> {
        let index = open_regular(path).ok()?.into_file();
        let data = open_regular(&path.with_extension("pack")).ok()?.into_file();
        let mut head = [0; 8 + 256 * 4];
        index.read_exact_at(&mut head, 0).ok()?;
        if head[..8] != *b"\xfftOc\0\0\0\x02" {
            return None;
        }
        let number = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap_or_default());
        let fanout: Vec<u32> = head[8..].chunks(4).map(number).collect();
        fanout.is_sorted().then_some(Self {
            index,
            data,
            fanout,
        })
    }

    fn count(&self) -> u64 {
        self.fanout.last().copied().unwrap_or(0).into()
    }

    /// Where an object lies in the data.
    fn find(&self, id: ObjectId) -> Option<u64> {
        let width = id.as_bytes().len() as u64;
        let first = usize::from(id.as_bytes()[0]);
        let mut low = match first {
            0 => 0,
            _ => u64::from(self.fanout[first - 1]),
        };
        let mut high = u64::from(self.fanout[first]);
        let names = 8 + 1024;
        let mut name = vec![0; id.as_bytes().len()];
        while low < high {
            let middle = u64::midpoint(low, high);
            self.index
                .read_exact_at(&mut name, names + middle * width)
                .ok()?;
            match name.as_slice().cmp(id.as_bytes()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.offset_of(middle, width),
            }
        }
        None
    }

    fn offset_of(&self, number: u64, width: u64) -> Option<u64> {
        let offsets = 8 + 1024 + self.count() * (width + 4);
        let mut short = [0; 4];
        self.index
            .read_exact_at(&mut short, offsets + number * 4)
            .ok()?;
        let short = u32::from_be_bytes(short);
        if short & 0x8000_0000 == 0 {
            return Some(short.into());
        }
        let far = u64::from(short & 0x7fff_ffff);
        let mut long = [0; 8];
        let at = offsets + self.count() * 4 + far * 8;
        self.index.read_exact_at(&mut long, at).ok()?;
        Some(u64::from_be_bytes(long))
    }
}

fn read_byte(reader: &mut impl Read) -> Option<u8> {
    let mut byte = [0];
    reader.read_exact(&mut byte).ok()?;
    Some(byte[0])
}

/// The kind and the size of what is packed.
fn read_entry_header(reader: &mut impl Read) -> Option<(u8, u64)> {
    let mut byte = read_byte(reader)?;
    let kind = byte >> 4 & 7;
    let mut size = u64::from(byte & 15);
    let mut shift = 4;
    while byte & 0x80 != 0 {
        byte = read_byte(reader)?;
        size |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if shift > 60 {
            return None;
        }
    }
    Some((kind, size))
}

/// How far before an object its base lies.
fn read_offset(reader: &mut impl Read) -> Option<u64> {
    let mut byte = read_byte(reader)?;
    let mut offset = u64::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = read_byte(reader)?;
        offset = offset.checked_add(1)?.checked_mul(128)? | u64::from(byte & 0x7f);
    }
    Some(offset)
}

/// What inflates to exactly `size` bytes.
fn inflate(reader: impl Read, size: u64) -> Option<Vec<u8>> {
    if size > MAX_OBJECT_BYTES {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).ok()?);
    let mut inflated = ZlibDecoder::new(reader).take(size);
    inflated.read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 == size).then_some(bytes)
}

/// A size in seven bits a byte, the lowest first.
fn take_size(delta: &mut &[u8]) -> Option<usize> {
    let mut size = 0_usize;
    for shift in (0..56).step_by(7) {
        let (byte, rest) = delta.split_first()?;
        *delta = rest;
        size |= usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(size);
        }
    }
    None
}

/// What a difference makes of a base: copies of its parts, and new bytes.
fn apply_delta(base: &[u8], mut delta: &[u8]) -> Option<Vec<u8>> {
    let delta = &mut delta;
    if take_size(delta)? != base.len() {
        return None;
    }
    let size = take_size(delta)?;
    if size as u64 > MAX_OBJECT_BYTES {
        return None;
    }
    let mut made = Vec::with_capacity(size);
    while let Some((&order, rest)) = delta.split_first() {
        *delta = rest;
        if order & 0x80 == 0 {
            // 0 is kept for later.
            let new = delta
                .get(..usize::from(order))
                .filter(|new| !new.is_empty())?;
            made.extend_from_slice(new);
            *delta = &delta[new.len()..];
        } else {
            let mut number = |bits: std::ops::Range<u32>| {
                let mut value = 0_usize;
                for (place, bit) in bits.enumerate() {
                    if order >> bit & 1 == 1 {
                        let (byte, rest) = delta.split_first()?;
                        *delta = rest;
                        value |= usize::from(*byte) << (8 * place);
                    }
                }
                Some(value)
            };
            let start = number(0..4)?;
            let length = match number(4..7)? {
                0 => 0x10000,
                length => length,
            };
            made.extend_from_slice(base.get(start..start.checked_add(length)?)?);
        }
        if made.len() > size {
            return None;
        }
    }
    (made.len() == size).then_some(made)
}

fn read_loose(folder: &Path, id: ObjectId) -> Option<(ObjectKind, Vec<u8>)> {
    let name = id.to_hex();
    let file = open_regular(&folder.join(&name[..2]).join(&name[2..])).ok()?;
    let mut reader = BufReader::with_capacity(READ_BYTES, ZlibDecoder::new(file));
    let mut header = Vec::new();
    reader.by_ref().take(32).read_until(0, &mut header).ok()?;
    let header = std::str::from_utf8(header.strip_suffix(&[0])?).ok()?;
    let (kind, size) = header.split_once(' ')?;
    let size: u64 = size.parse().ok()?;
    let kind = match kind {
        "commit" => ObjectKind::Commit,
        "tag" => ObjectKind::Tag,
        _ => return Some((ObjectKind::Other, Vec::new())),
    };
    let mut bytes = Vec::new();
    reader
        .take(MAX_OBJECT_BYTES + 1)
        .read_to_end(&mut bytes)
        .ok()?;
    (bytes.len() as u64 == size).then_some((kind, bytes))
}

/// The lines before the text.
fn headers(bytes: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let lines = bytes
        .split(|b| *b == b'\n')
        .take_while(|line| !line.is_empty());
    // A name in another encoding has no say in the lines that count.
    lines.filter_map(|line| {
        let at = line.iter().position(|b| *b == b' ')?;
        let key = std::str::from_utf8(&line[..at]).ok()?;
        let value = match key {
            "committer" | "tagger" => {
                let end = line.iter().rposition(|b| *b == b'>')?;
                &line[end + 1..]
            }
            _ => &line[at + 1..],
        };
        Some((key, std::str::from_utf8(value).ok()?))
    })
}

/// `1700000000 +0100`
fn seconds(text: &str) -> i64 {
    let number = text.split_whitespace().next();
    number.and_then(|n| n.parse().ok()).unwrap_or(0)
}

fn parse_commit(bytes: &[u8]) -> Option<Commit> {
    let mut commit = Commit {
        parents: Vec::new(),
        time: 0,
    };
    let mut has_tree = false;
    for (key, value) in headers(bytes) {
        match key {
            "tree" => has_tree = true,
            "parent" => commit.parents.push(ObjectId::parse(value)?),
            "committer" => commit.time = seconds(value),
            _ => {}
        }
    }
    has_tree.then_some(commit)
}

/// What a tag's object names, and when it was made.
pub(super) fn parse_tag(bytes: &[u8]) -> Option<(ObjectId, i64)> {
    let mut target = None;
    let mut made = 0;
    for (key, value) in headers(bytes) {
        match key {
            "object" => target = ObjectId::parse(value),
            "tagger" => made = seconds(value),
            _ => {}
        }
    }
    Some((target?, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_applied_within_its_bounds() {
        let base = b"hello world";
        let good = [&[11, 9][..], &[0x90, 6], &[3], b"big"].concat();
        assert_eq!(apply_delta(base, &good).as_deref(), Some(&b"hello big"[..]));
        for bad in [
            &[][..],
            &[11],
            &[10, 9, 0x90, 6],
            &[11, 9, 0x90, 12],
            &[11, 9, 0x91, 11, 6],
            &[11, 9, 0],
            &[11, 9, 5, 1],
            &[11, 8, 0x90, 6, 3, 1, 2, 3],
            &[0xff; 20],
        ] {
            assert_eq!(apply_delta(base, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn commits_are_read_whatever_their_authors_are_called() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        let text = format!(
            "tree {id}\nparent {id}\nauthor A <a> 1 +0\ncommitter \u{fc} > <b> 17 +0100\n\nparent x"
        );
        let mut bytes = text.into_bytes();
        bytes.retain(|b| *b != 0xc3);
        let commit = parse_commit(&bytes).unwrap();
        assert_eq!((commit.parents.len(), commit.time), (1, 17));
        assert_eq!(parse_commit(b"parent x\n"), None);
        assert_eq!(parse_commit(b"tree x\nparent x\n"), None);
        assert_eq!(parse_tag(b"tag x\n"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_difference_gives_at_most_its_size(base in ".{0,40}", delta in proptest::collection::vec(0u8.., 0..60)) {
            if let Some(made) = apply_delta(base.as_bytes(), &delta) {
                let mut rest = &delta[..];
                take_size(&mut rest);
                proptest::prop_assert_eq!(Some(made.len()), take_size(&mut rest));
            }
        }
    }
}
