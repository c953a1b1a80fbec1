//! The files that a repository tracks: the names in its index (gitformat-index(5)).

use std::path::PathBuf;

use sconce_base::input::read_regular;
use sconce_schema::Bytes;

use super::Repository;

/// No index that is read is longer.
const MAX_INDEX_BYTES: Bytes = Bytes::from_mib(256);
/// Bytes of an entry before the name of its object: times, device, mode, owner, size.
const STAT_BYTES: usize = 40;
/// The mode of a submodule, which is no file.
const GITLINK: u32 = 0o160_000;

/// The names of all tracked files, below the working tree. `None` where the index is not there or damaged.
pub(crate) fn tracked_files(repository: &Repository) -> Option<Vec<PathBuf>> {
    let bytes = read_regular(&repository.git_dir.join("index"), MAX_INDEX_BYTES).ok()?;
    let width = repository.head().map_or(20, |id| id.as_bytes().len());
    parse_index(&bytes, width)
}

/// The names in an index of the versions 2 to 4. `width` is the length of an object's name.
fn parse_index(bytes: &[u8], width: usize) -> Option<Vec<PathBuf>> {
    use std::os::unix::ffi::OsStringExt as _;
    let number = |at: usize| {
        let four = bytes.get(at..at + 4)?;
        Some(u32::from_be_bytes(four.try_into().ok()?))
    };
    let version = number(4)?;
    if bytes.get(..4)? != b"DIRC" || !(2..=4).contains(&version) {
        return None;
    }
    let mut names = Vec::new();
    let mut name: Vec<u8> = Vec::new();
    let mut at = 12;
    for _ in 0..number(8)? {
        let start = at;
        let mode = number(start + 24)?;
        at += STAT_BYTES + width;
        let flags = u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        // A second word of flags stands there from version 3 on.
        at += if flags & 0x4000 == 0 { 2 } else { 4 };
        if version == 4 {
            // So many bytes of the name before are not this one's.
            let mut dropped = 0_usize;
            loop {
                let byte = *bytes.get(at)?;
                at += 1;
                dropped |= usize::from(byte & 0x7f);
                if byte & 0x80 == 0 {
                    break;
                }
                dropped = dropped.checked_add(1)?.checked_mul(128)?;
            }
            name.truncate(name.len().checked_sub(dropped)?);
        } else {
            name.clear();
        }
        let rest = bytes.get(at..)?;
        let end = rest.iter().position(|b| *b == 0)?;
        name.extend_from_slice(&rest[..end]);
        at += end + 1;
        if version < 4 {
            // Entries are padded to eight bytes, with one zero at least.
            at = start + (at - start).next_multiple_of(8);
        }
        if mode & 0o170_000 != GITLINK {
            names.push(PathBuf::from(std::ffi::OsString::from_vec(name.clone())));
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_index_has_no_names() {
        for bytes in [
            &b""[..],
            b"DIRC",
            b"DIRC\0\0\0\x02\0\0\0\x09",
            b"DIRC\0\0\0\x09\0\0\0\0",
        ] {
            assert_eq!(parse_index(bytes, 20), None);
        }
        assert_eq!(parse_index(b"DIRC\0\0\0\x02\0\0\0\0", 20), Some(Vec::new()));
    }

    proptest::proptest! {
        #[test]
        fn no_index_has_more_names_than_bytes(
            version in 2u8..5,
            count in 0u8..9,
            rest in proptest::collection::vec(0u8.., 0..400),
        ) {
            let head = [&b"DIRC\0\0\0"[..], &[version, 0, 0, 0, count]].concat();
            if let Some(names) = parse_index(&[head, rest].concat(), 20) {
                proptest::prop_assert!(names.len() <= usize::from(count));
            }
        }
    }
}
