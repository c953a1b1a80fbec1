//! `/etc/ld.so.cache`, as `ldconfig` would write it.
//!
//! The loader finds Debian's libraries without it, but `ctypes.util.find_library` and whatever
//! else asks `ldconfig -p` does not. Running the host's ldconfig would need a chroot, which a plain
//! user has not, so the file is written here. Format: glibc `sysdeps/generic/dl-cache.h`, the
//! `glibc-ld.so.cache1.1` form without extensions.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;

use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::{Endianness, elf};

use super::SystemError;
use super::files::SystemTree;

/// One line of the cache: a name that programs ask for and the file that answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    name: String,
    path: String,
}

/// Writes the cache for the tree's library folders.
pub(super) fn write_cache(tree: &mut SystemTree, multiarch: &str) -> Result<(), SystemError> {
    let folders = ["usr/local/lib", &format!("usr/lib/{multiarch}"), "usr/lib"].map(str::to_owned);
    let mut entries = BTreeSet::new();
    for folder in &folders {
        scan(tree, folder, &mut entries)?;
    }
    let entries: Vec<Entry> = entries.into_iter().collect();
    let cache = encode(entries, library_flags(multiarch));
    tree.write_bytes("etc/ld.so.cache", &cache, 0o644)
}

/// What marks a library of this architecture: `FLAG_ELF_LIBC6` and the 64-bit class.
fn library_flags(multiarch: &str) -> u32 {
    match multiarch {
        "aarch64-linux-gnu" => 0x0a03,
        _ => 0x0303,
    }
}

fn scan(tree: &SystemTree, folder: &str, entries: &mut BTreeSet<Entry>) -> Result<(), SystemError> {
    let Some(real) = tree.resolve_path(folder)? else {
        return Ok(());
    };
    for name in tree.list(folder)? {
        if !(name.starts_with("lib") || name.starts_with("ld-")) || !name.contains(".so") {
            continue;
        }
        // A link that leads to nothing of the tree is not a library of the image.
        let Some(target) = tree.resolve_path(&format!("{folder}/{name}"))? else {
            continue;
        };
        let Ok(bytes) = fs::read(&target) else {
            continue;
        };
        let Some(soname) = soname(&bytes) else {
            continue;
        };
        let is_link = real.join(&name).is_symlink();
        let answers_to = if is_link {
            name.clone()
        } else {
            soname.unwrap_or(name.clone())
        };
        // Debian's merged /usr: the loader knows these folders as /lib.
        let path = format!(
            "/{}/{name}",
            folder
                .strip_prefix("usr/")
                .filter(|f| f.starts_with("lib"))
                .unwrap_or(folder)
        );
        entries.insert(Entry {
            name: answers_to,
            path,
        });
    }
    Ok(())
}

/// `Some(DT_SONAME)` of a 64-bit shared library, `None` for anything else.
fn soname(bytes: &[u8]) -> Option<Option<String>> {
    let header = elf::FileHeader64::<Endianness>::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    if header.e_type(endian) != elf::ET_DYN {
        return None;
    }
    for segment in header.program_headers(endian, bytes).ok()? {
        let Ok(Some(dynamic)) = segment.dynamic(endian, bytes) else {
            continue;
        };
        let find = |tag| {
            dynamic
                .iter()
                .find(|d| d.tag(endian) == tag)
                .map(|d| d.d_val(endian))
        };
        let (Some(offset), Some(strings)) = (find(elf::DT_SONAME), find(elf::DT_STRTAB)) else {
            return Some(None);
        };
        let at = file_offset(header, endian, bytes, strings)?.checked_add(offset)?;
        let text = bytes.get(usize::try_from(at).ok()?..)?;
        let end = text.iter().position(|&b| b == 0)?;
        return Some(Some(String::from_utf8(text[..end].to_vec()).ok()?));
    }
    None
}

/// Where the address `address` lies in the file.
fn file_offset(
    header: &elf::FileHeader64<Endianness>,
    endian: Endianness,
    bytes: &[u8],
    address: u64,
) -> Option<u64> {
    let segments = header.program_headers(endian, bytes).ok()?;
    segments
        .iter()
        .filter(|s| s.p_type(endian) == elf::PT_LOAD)
        .find_map(|s| {
            let into = address.checked_sub(s.p_vaddr(endian))?;
            (into < s.p_filesz(endian)).then(|| s.p_offset(endian).checked_add(into))?
        })
}

const MAGIC: &[u8; 20] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;
const LITTLE_ENDIAN: u8 = 2;

fn encode(mut entries: Vec<Entry>, flags: u32) -> Vec<u8> {
    entries.sort_by(|a, b| compare(&b.name, &a.name).then_with(|| a.path.cmp(&b.path)));
    let mut strings = Vec::new();
    let base = HEADER + ENTRY * entries.len();
    let mut table = Vec::with_capacity(ENTRY * entries.len());
    for entry in &entries {
        let mut place = |text: &str| {
            let at = (base + strings.len()) as u32;
            strings.extend_from_slice(text.as_bytes());
            strings.push(0);
            at
        };
        let (key, value) = (place(&entry.name), place(&entry.path));
        for word in [flags, key, value, 0, 0, 0] {
            table.extend_from_slice(&word.to_le_bytes());
        }
    }
    let mut out = Vec::with_capacity(base + strings.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.extend_from_slice(&(strings.len() as u32).to_le_bytes());
    out.extend_from_slice(&[LITTLE_ENDIAN, 0, 0, 0]);
    out.resize(HEADER, 0);
    out.extend_from_slice(&table);
    out.extend_from_slice(&strings);
    out
}

/// The order that the loader searches in (`_dl_cache_libcmp` of glibc's `dl-cache.c`): runs of
/// digits count as numbers, and a digit is larger than anything else.
fn compare(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        match (a.first(), b.first()) {
            (None, None) => return Ordering::Equal,
            (Some(x), Some(y)) if x.is_ascii_digit() && y.is_ascii_digit() => {
                let (x, rest_a) = number(a);
                let (y, rest_b) = number(b);
                if x != y {
                    return x.cmp(&y);
                }
                (a, b) = (rest_a, rest_b);
            }
            (Some(x), _) if x.is_ascii_digit() => return Ordering::Greater,
            (_, Some(y)) if y.is_ascii_digit() => return Ordering::Less,
            (x, y) if x == y => (a, b) = (&a[1..], &b[1..]),
            (x, y) => return x.cmp(&y),
        }
    }
}

fn number(text: &[u8]) -> (u64, &[u8]) {
    let digits = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let value = text[..digits].iter().fold(0_u64, |value, digit| {
        value
            .saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    });
    (value, &text[digits..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, path: &str) -> Entry {
        Entry {
            name: name.into(),
            path: path.into(),
        }
    }

    #[test]
    fn digits_are_numbers_and_larger_than_letters() {
        let mut names = [
            "libc.so.6",
            "libb.so.10",
            "libb.so.9",
            "libb.so",
            "liba1.so",
            "liba.so",
        ];
        names.sort_by(|a, b| compare(a, b));
        assert_eq!(
            names,
            [
                "liba.so",
                "liba1.so",
                "libb.so",
                "libb.so.9",
                "libb.so.10",
                "libc.so.6"
            ]
        );
    }

    #[test]
    fn the_layout_is_that_of_glibc() {
        let out = encode(
            vec![
                entry("libz.so.1", "/lib/libz.so.1"),
                entry("liba.so.2", "/lib/liba.so.2"),
            ],
            0x0303,
        );
        assert_eq!(&out[..20], MAGIC);
        let word = |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap());
        assert_eq!((word(20), out[28]), (2, 2));
        assert_eq!(word(24) as usize, out.len() - HEADER - 2 * ENTRY);
        let text = |at: u32| {
            let rest = &out[at as usize..];
            std::str::from_utf8(&rest[..rest.iter().position(|&b| b == 0).unwrap()]).unwrap()
        };
        // The highest name comes first.
        assert_eq!(
            (word(HEADER), text(word(HEADER + 4)), text(word(HEADER + 8))),
            (0x0303, "libz.so.1", "/lib/libz.so.1")
        );
        assert_eq!(text(word(HEADER + ENTRY + 4)), "liba.so.2");
    }

    #[test]
    fn what_is_not_a_library_has_no_soname() {
        assert_eq!(soname(b""), None);
        assert_eq!(soname(b"\x7fELF"), None);
        assert_eq!(soname(&[0x7f; 4096]), None);
    }
}
