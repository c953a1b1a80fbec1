//! The day of the newest commit, read from `.git` without running git: gitrepository-layout(5),
//! gitformat-pack(5).

use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flate2::read::ZlibDecoder;
use sconce_base::input::read_regular;
use sconce_schema::Bytes;

/// Of a file of names, and of a commit.
const MAX_TEXT_BYTES: u64 = 4 << 20;
const MAX_COMMIT_BYTES: u64 = 256 << 10;
/// Packs that are looked into.
const MAX_PACKS: usize = 200;
/// An entry of a pack, from its place on, as far as it is read.
const MAX_ENTRY_BYTES: usize = 128 << 10;

/// Seconds since 1970 of the commit that is checked out; `None` where it is not found or not plain.
#[must_use]
pub fn newest_commit_seconds(folder: &Path) -> Option<i64> {
    let git = folder.join(".git");
    let hash = head_commit(&git)?;
    let commit = loose_object(&git, &hash).or_else(|| packed_object(&git, &hash))?;
    committer_seconds(&commit)
}

/// `committer NAME <MAIL> SECONDS ZONE`
fn committer_seconds(commit: &[u8]) -> Option<i64> {
    let text = String::from_utf8_lossy(commit);
    let line = text.lines().take_while(|line| !line.is_empty());
    let line = line
        .into_iter()
        .find_map(|line| line.strip_prefix("committer "))?;
    line.rsplit(' ').nth(1)?.parse().ok()
}

fn read_text(path: &Path) -> Option<String> {
    String::from_utf8(read_regular(path, Bytes(MAX_TEXT_BYTES)).ok()?).ok()
}

fn is_hash(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn head_commit(git: &Path) -> Option<String> {
    let head = read_text(&git.join("HEAD"))?;
    let head = head.trim();
    let Some(name) = head.strip_prefix("ref: ") else {
        return is_hash(head).then(|| head.to_owned());
    };
    if name.contains("..") || name.starts_with('/') {
        return None;
    }
    if let Some(hash) = read_text(&git.join(name)) {
        let hash = hash.trim();
        return is_hash(hash).then(|| hash.to_owned());
    }
    let packed = read_text(&git.join("packed-refs"))?;
    packed.lines().find_map(|line| {
        let (hash, of) = line.split_once(' ')?;
        (of == name && is_hash(hash)).then(|| hash.to_owned())
    })
}

fn loose_object(git: &Path, hash: &str) -> Option<Vec<u8>> {
    let path = git.join("objects").join(&hash[..2]).join(&hash[2..]);
    let bytes = read_regular(&path, Bytes(MAX_COMMIT_BYTES)).ok()?;
    let object = inflate(&bytes)?;
    let body = object.strip_prefix(b"commit ")?;
    let start = body.iter().position(|&b| b == 0)?;
    Some(body[start + 1..].to_vec())
}

fn inflate(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut decoder = ZlibDecoder::new(bytes).take(MAX_COMMIT_BYTES);
    decoder.read_to_end(&mut out).ok()?;
    Some(out)
}

fn packed_object(git: &Path, hash: &str) -> Option<Vec<u8>> {
    let wanted: Vec<u8> = (0..20)
        .filter_map(|at| u8::from_str_radix(hash.get(2 * at..2 * at + 2)?, 16).ok())
        .collect();
    let packs = std::fs::read_dir(git.join("objects/pack")).ok()?;
    let indexes = packs.take(4 * MAX_PACKS).filter_map(|entry| {
        let path = entry.ok()?.path();
        let is_index = path.extension().is_some_and(|end| end == "idx");
        (is_index && path.symlink_metadata().ok()?.is_file()).then_some(path)
    });
    indexes
        .take(MAX_PACKS)
        .find_map(|index| entry_in_pack(&index, find_offset(&index, &wanted)?))
}

/// The place of an object in the pack of an index of version 2, by its table of first bytes and a search.
fn find_offset(index: &PathBuf, wanted: &[u8]) -> Option<u64> {
    let file = std::fs::File::open(index).ok()?;
    let word = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).ok()?;
        Some(u32::from_be_bytes(bytes))
    };
    if word(0)? != 0xff74_4f63 || word(4)? != 2 {
        return None;
    }
    let first = u64::from(*wanted.first()?);
    let count = u64::from(word(8 + 255 * 4)?);
    let mut low = match first {
        0 => 0,
        first => u64::from(word(8 + (first - 1) * 4)?),
    };
    let mut high = u64::from(word(8 + first * 4)?).min(count);
    let hashes = 8 + 256 * 4;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut hash = [0; 20];
        file.read_exact_at(&mut hash, hashes + middle * 20).ok()?;
        match hash.as_slice().cmp(wanted) {
            std::cmp::Ordering::Less => low = middle + 1,
            std::cmp::Ordering::Greater => high = middle,
            std::cmp::Ordering::Equal => {
                // Behind the hashes come their check sums, then the places.
                let place = word(hashes + count * 24 + middle * 4)?;
                return (place >> 31 == 0).then(|| u64::from(place));
            }
        }
    }
    None
}

/// A commit that is stored whole: most are, and the others are not worth their deltas.
fn entry_in_pack(index: &Path, offset: u64) -> Option<Vec<u8>> {
    let pack = index.with_extension("pack");
    if !pack.symlink_metadata().ok()?.is_file() {
        return None;
    }
    let file = std::fs::File::open(pack).ok()?;
    let mut bytes = vec![0; MAX_ENTRY_BYTES];
    let mut filled = 0;
    while filled < bytes.len() {
        match file
            .read_at(&mut bytes[filled..], offset + filled as u64)
            .ok()?
        {
            0 => break,
            more => filled += more,
        }
    }
    bytes.truncate(filled);
    // Three bits of the first byte are the kind, 1 is a commit; the length goes on while the highest is set.
    const COMMIT: u8 = 1;
    if bytes.first()? >> 4 & 7 != COMMIT {
        return None;
    }
    let header = bytes.iter().take(10).position(|byte| byte & 0x80 == 0)? + 1;
    inflate(&bytes[header..])
}

/// A day of UTC as `2021-03-25`, by Howard Hinnant's `civil_from_days`; `None` before 1970 and after 9999.
#[must_use]
pub fn format_day(seconds: i64) -> Option<String> {
    let days = u64::try_from(seconds).ok()? / 86_400;
    // Days from 1 March of the year 0; eras of 400 years have 146,097.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    (year <= 9999).then(|| format!("{year:04}-{month:02}-{day:02}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, Some("1970-01-01")),
            (951_782_400, Some("2000-02-29")),
            (1_616_630_400, Some("2021-03-25")),
            (1_616_716_799, Some("2021-03-25")),
            (-1, None),
            (i64::MAX, None),
        ] {
            assert_eq!(format_day(seconds).as_deref(), day, "{seconds}");
        }
    }

    const HASH: &str = "0123456789abcdef0123456789abcdef01234567";
    const COMMIT: &[u8] =
        b"tree x\nauthor A <a@example.org> 1 +0000\ncommitter A B <a@example.org> 1616630400 +0200\n\ncommitter x\n";

    fn deflate(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let git = folder.path().join(".git");
        std::fs::create_dir_all(git.join("refs/heads")).unwrap();
        std::fs::create_dir_all(git.join("objects/pack")).unwrap();
        std::fs::write(git.join("HEAD"), "ref: refs/heads/main\n").unwrap();
        folder
    }

    #[test]
    fn a_loose_commit_is_read() {
        let folder = repository();
        let git = folder.path().join(".git");
        assert_eq!(newest_commit_seconds(folder.path()), None);
        std::fs::write(git.join("refs/heads/main"), HASH).unwrap();
        std::fs::create_dir(git.join("objects/01")).unwrap();
        let object = [format!("commit {}\0", COMMIT.len()).as_bytes(), COMMIT].concat();
        std::fs::write(git.join("objects/01").join(&HASH[2..]), deflate(&object)).unwrap();
        assert_eq!(newest_commit_seconds(folder.path()), Some(1_616_630_400));
    }

    #[test]
    fn a_packed_commit_is_read_and_a_broken_pack_is_none() {
        let folder = repository();
        let git = folder.path().join(".git");
        let refs = format!("# pack-refs\n{HASH} refs/heads/main\n");
        std::fs::write(git.join("packed-refs"), refs).unwrap();
        // An index of one object, and a pack that has it behind its header.
        let mut index = vec![0xff, 0x74, 0x4f, 0x63, 0, 0, 0, 2];
        for first in 0..256_u32 {
            index.extend(u32::from(first >= 1).to_be_bytes());
        }
        let hash: Vec<u8> = (0..20)
            .map(|at| u8::from_str_radix(&HASH[2 * at..2 * at + 2], 16).unwrap())
            .collect();
        index.extend(&hash);
        index.extend([0; 4]);
        index.extend(12_u32.to_be_bytes());
        let mut pack = b"PACK\0\0\0\x02\0\0\0\x01".to_vec();
        let length = u8::try_from(COMMIT.len() >> 4).unwrap();
        pack.extend([0x90 | u8::try_from(COMMIT.len() & 15).unwrap(), length]);
        pack.extend(deflate(COMMIT));
        let write = |index: &[u8], pack: &[u8]| {
            std::fs::write(git.join("objects/pack/a.idx"), index).unwrap();
            std::fs::write(git.join("objects/pack/a.pack"), pack).unwrap();
            newest_commit_seconds(folder.path())
        };
        assert_eq!(write(&index, &pack), Some(1_616_630_400));
        for end in (0..index.len()).step_by(7) {
            write(&index[..end], &pack);
        }
        for at in 0..pack.len() {
            let mut broken = pack.clone();
            broken[at] ^= 0xff;
            write(&index, &broken);
            write(&index, &pack[..at]);
        }
    }
}
