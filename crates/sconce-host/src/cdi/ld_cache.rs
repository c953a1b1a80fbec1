//! `/etc/ld.so.cache`, the loader's index of libraries (glibc's `sysdeps/generic/dl-cache.h`).

use std::path::{Path, PathBuf};

/// The format since glibc 2.2; glibc 2.32 and later write nothing else.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic, number of entries, length of the strings, and 20 bytes that are not used here.
const HEADER: usize = 48;
/// flags, name, path, OS version (4 bytes each), hardware capabilities (8 bytes).
const ENTRY: usize = 24;
/// The older format may stand before the newer: its magic, and 12 bytes for each entry.
const OLD_MAGIC: &[u8] = b"ld.so-1.7.0\0";
const OLD_ENTRY: usize = 12;

/// The folders of the cache's libraries whose names `wanted` accepts, in the cache's order,
/// without repetition. A cache that is cut off or makes no sense gives what was readable: the
/// standard folders are searched anyway.
pub(super) fn find_library_dirs(cache: &[u8], wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for (name, path) in entries(cache) {
        let Some(folder) = Path::new(path).parent() else {
            continue;
        };
        if wanted(name) && folder.is_absolute() && !folders.iter().any(|known| known == folder) {
            folders.push(folder.to_owned());
        }
    }
    folders
}

/// Library names and paths.
fn entries(cache: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    // Offsets of strings count from here.
    let cache = new_format(cache).unwrap_or_default();
    let count = number(cache, MAGIC.len()).unwrap_or(0);
    // No more than fit, whatever the file says.
    let count = count.min(cache.len().saturating_sub(HEADER) / ENTRY);
    (0..count).filter_map(move |index| {
        let entry = HEADER + index * ENTRY;
        Some((
            string(cache, number(cache, entry + 4)?)?,
            string(cache, number(cache, entry + 8)?)?,
        ))
    })
}

fn new_format(cache: &[u8]) -> Option<&[u8]> {
    if cache.starts_with(MAGIC) {
        return Some(cache);
    }
    let old = cache.starts_with(OLD_MAGIC).then_some(OLD_MAGIC.len())?;
    let entries = number(cache, old)?.checked_mul(OLD_ENTRY)?;
    // The newer format begins at a multiple of 8.
    let start = entries.checked_add(old + 4)?.checked_next_multiple_of(8)?;
    cache.get(start..).filter(|rest| rest.starts_with(MAGIC))
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let four = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    usize::try_from(u32::from_ne_bytes(four)).ok()
}

fn string(bytes: &[u8], at: usize) -> Option<&str> {
    /// PATH_MAX: a longer path cannot be opened.
    const MAX_PATH_BYTES: usize = 4096;
    let rest = bytes.get(at..)?;
    let rest = &rest[..rest.len().min(MAX_PATH_BYTES)];
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&rest[..end]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A cache as ldconfig writes it.
    fn cache(libraries: &[(&str, &str)]) -> Vec<u8> {
        let strings_at = HEADER + ENTRY * libraries.len();
        let mut strings = Vec::new();
        let mut entries = Vec::new();
        let mut place = |text: &str| {
            let at = strings_at + strings.len();
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            (at as u32).to_ne_bytes()
        };
        for (name, path) in libraries {
            entries.extend_from_slice(&0x303_u32.to_ne_bytes());
            entries.extend_from_slice(&place(name));
            entries.extend_from_slice(&place(path));
            entries.extend_from_slice(&[0; 12]);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(libraries.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(&(strings.len() as u32).to_ne_bytes());
        bytes.resize(HEADER, 0);
        bytes.extend(entries);
        bytes.extend(strings);
        bytes
    }

    fn two() -> Vec<u8> {
        cache(&[
            ("libcuda.so.1", "/opt/driver/lib/libcuda.so.1"),
            ("libcuda.so", "/opt/driver/lib/libcuda.so"),
            ("libc.so.6", "/lib/x86_64-linux-gnu/libc.so.6"),
            ("libcuda.so.1", "relative/libcuda.so.1"),
        ])
    }

    #[test]
    fn folders_in_order_without_repetition() {
        let found = find_library_dirs(&two(), |name| name.starts_with("libcuda.so"));
        assert_eq!(found, [PathBuf::from("/opt/driver/lib")]);
        assert_eq!(find_library_dirs(&two(), |_| true).len(), 2);
    }

    #[test]
    fn the_old_format_may_stand_first() {
        let mut both = OLD_MAGIC.to_vec();
        both.extend_from_slice(&1_u32.to_ne_bytes());
        both.extend_from_slice(&[0; OLD_ENTRY]);
        both.resize(both.len().next_multiple_of(8), 0);
        both.extend(two());
        assert_eq!(find_library_dirs(&both, |_| true).len(), 2);
    }

    #[test]
    fn this_machines_cache_has_a_c_library() {
        let cache = std::fs::read("/etc/ld.so.cache").unwrap();
        let found = find_library_dirs(&cache, |name| name == "libc.so.6");
        assert!(found[0].join("libc.so.6").exists(), "{found:?}");
    }

    #[test]
    fn a_count_or_an_offset_that_lies_is_harmless() {
        let mut bytes = two();
        bytes[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        let _ = find_library_dirs(&bytes, |_| true);
        let mut bytes = two();
        bytes[HEADER + 8..HEADER + 12].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(find_library_dirs(&bytes, |_| true).len(), 2);
        let old = [OLD_MAGIC, &u32::MAX.to_ne_bytes()].concat();
        assert_eq!(find_library_dirs(&old, |_| true).len(), 0);
        let whole = two();
        for cut in 0..whole.len() {
            let _ = find_library_dirs(&whole[..cut], |_| true);
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..200_usize, byte: u8) {
            let mut bytes = two();
            let at = at % bytes.len();
            bytes[at] = byte;
            let _ = find_library_dirs(&bytes, |_| true);
        }
    }
}
