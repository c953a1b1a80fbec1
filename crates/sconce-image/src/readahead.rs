//! Having the kernel read what the loader is about to touch.
//!
//! Large files are written past the page cache, so the first import of torch waits for a disk that
//! is asked for 8 MiB here and there. Read ahead of it, beside the compiling of its bytecode, the
//! same takes no time of its own. The greater part of those files is code for cards, which the
//! loader leaves alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn as _, FileHeader as _, SectionHeader as _};
use object::read::{ReadCache, ReadRef};
use object::{Endianness, elf};
use rustix::fs::{Advice, fadvise};
use sconce_schema::ImageManifest;

/// The kernel reads no more at once than the disk's own limit, which is seldom smaller.
const PIECE: u64 = 128 << 10;
/// Larger sections that are neither code nor written to hold what only cards will be given.
const LARGEST_CONSTANTS: u64 = 32 << 20;
/// Sections that are written to hold pointers, which the loader sets; larger ones hold few.
const LARGEST_DATA: u64 = 128 << 20;
/// No program needs more libraries, and no library more others.
const MOST_LIBRARIES: usize = 512;
/// No tree is deeper.
const DEEPEST: usize = 32;

/// The libraries that wheels bring, by file name.
#[derive(Debug, Default)]
pub struct Libraries {
    by_name: BTreeMap<String, PathBuf>,
    done: BTreeSet<PathBuf>,
}

/// What a library tells of itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Library {
    /// Names of libraries that it needs (`DT_NEEDED`).
    needed: Vec<String>,
    /// Parts of the file that the loader may touch, in order.
    parts: Vec<Range<u64>>,
}

impl Libraries {
    /// Finds them in the trees of `manifest` but for the lowest, the system's, which is in memory.
    #[must_use]
    pub fn find(manifest: &ImageManifest) -> Self {
        let mut libraries = Self::default();
        for layer in manifest.layers.iter().skip(1) {
            libraries.scan(&layer.path, 0);
        }
        libraries
    }

    fn scan(&mut self, folder: &Path, depth: usize) {
        // Nothing depends on it: what cannot be listed is not read ahead.
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < DEEPEST => {
                    self.scan(&entry.path(), depth + 1);
                }
                Ok(kind) if kind.is_file() => {
                    if let Ok(name) = entry.file_name().into_string()
                        && name.contains(".so")
                    {
                        self.by_name.insert(name, entry.path());
                    }
                }
                _ => {}
            }
        }
    }

    /// Has the kernel read `library` and all that it needs. Returns before it is read.
    pub fn read_ahead(&mut self, library: PathBuf) {
        let mut pending = vec![library];
        while let Some(path) = pending.pop() {
            if self.done.len() >= MOST_LIBRARIES || !self.done.insert(path.clone()) {
                continue;
            }
            let needed = read_one(&path).unwrap_or_default();
            let found = needed.iter().filter_map(|name| self.by_name.get(name));
            pending.extend(found.cloned());
        }
    }
}

/// Has the kernel read one library, and gives the names of what it needs.
fn read_one(path: &Path) -> io::Result<Vec<String>> {
    let file = File::open(path)?;
    let library = parse(&ReadCache::new(&file)).unwrap_or_default();
    for part in library.parts {
        let mut at = part.start;
        while at < part.end {
            let length = PIECE.min(part.end - at);
            fadvise(
                &file,
                at,
                std::num::NonZeroU64::new(length),
                Advice::WillNeed,
            )?;
            at += length;
        }
    }
    Ok(library.needed)
}

/// Reads the sections of a 64-bit ELF file (gABI, chapters 4 and 5). `None` for anything else.
fn parse<'d, R: ReadRef<'d>>(data: R) -> Option<Library> {
    let header = elf::FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let length = data.len().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let mut library = Library::default();
    for section in sections.iter() {
        if let Ok(Some((entries, strings))) = section.dynamic(endian, data) {
            let strings = sections.strings(endian, data, strings).unwrap_or_default();
            let needed = entries
                .iter()
                .take_while(|entry| entry.d_tag(endian) != elf::DT_NULL)
                .filter(|entry| entry.d_tag(endian) == elf::DT_NEEDED);
            library.needed = needed
                .filter_map(|entry| strings.get(entry.d_val(endian) as u32).ok())
                .filter_map(|name| String::from_utf8(name.to_vec()).ok())
                .take(MOST_LIBRARIES)
                .collect();
        }
        let flags = section.sh_flags(endian);
        let name = sections.section_name(endian, section).unwrap_or_default();
        let most = match () {
            () if flags.contains(elf::SHF_EXECINSTR) => u64::MAX,
            () if flags.contains(elf::SHF_WRITE) => LARGEST_DATA,
            () => LARGEST_CONSTANTS,
        };
        let (start, size) = (section.sh_offset(endian), section.sh_size(endian));
        let end = start.checked_add(size).filter(|end| *end <= length);
        if let Some(end) = end
            && flags.contains(elf::SHF_ALLOC)
            && section.sh_type(endian) != elf::SHT_NOBITS
            && !is_for_cards(name)
            && size <= most
        {
            add(&mut library.parts, start..end);
        }
    }
    Some(library)
}

/// Sections that nvcc makes: code for cards, compressed or not.
fn is_for_cards(name: &[u8]) -> bool {
    [&b".nv_fatbin"[..], b"__nv_relfatbin", b".nvFatBinSegment"].contains(&name)
}

/// Adds a part, joined to the last one where that touches it.
fn add(parts: &mut Vec<Range<u64>>, part: Range<u64>) {
    match parts.last_mut() {
        Some(last) if last.start <= part.start && part.start <= last.end.saturating_add(PIECE) => {
            last.end = last.end.max(part.end);
        }
        _ => parts.push(part),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A shared library as nvcc and a linker would lay it out, made by hand: sections of given
    /// name, type, flags and size after a string table with `needed`, which `.dynamic` names.
    fn library(needed: &[&str], sections: &[(&str, u32, u64, usize)]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        let mut headers: Vec<[u64; 6]> = vec![[0; 6]];
        let mut names = b"\0.dynstr\0.dynamic\0.shstrtab\0".to_vec();
        let mut strings = vec![0];
        let mut dynamic = Vec::new();
        for name in needed {
            dynamic.extend(1_u64.to_le_bytes());
            dynamic.extend((strings.len() as u64).to_le_bytes());
            strings.extend(name.as_bytes());
            strings.push(0);
        }
        dynamic.extend([0; 16]);
        let at = |bytes: &mut Vec<u8>, more: &[u8]| {
            let at = bytes.len() as u64;
            bytes.extend(more);
            (at, more.len() as u64)
        };
        // Name, type, flags, offset, size, link.
        let (offset, size) = at(&mut bytes, &strings);
        headers.push([1, 3, 2, offset, size, 0]);
        let (offset, size) = at(&mut bytes, &dynamic);
        headers.push([9, 6, 2, offset, size, 1]);
        for (name, kind, flags, size) in sections {
            let name_at = names.len() as u64;
            names.extend(name.as_bytes());
            names.push(0);
            let (offset, size) = at(&mut bytes, &vec![0; *size]);
            headers.push([name_at, u64::from(*kind), *flags, offset, size, 0]);
        }
        let (offset, size) = at(&mut bytes, &names);
        headers.push([18, 3, 0, offset, size, 0]);
        let table = bytes.len() as u64;
        for [name, kind, flags, offset, size, link] in &headers {
            bytes.extend((*name as u32).to_le_bytes());
            bytes.extend((*kind as u32).to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend([0; 8]);
            bytes.extend(offset.to_le_bytes());
            bytes.extend(size.to_le_bytes());
            bytes.extend((*link as u32).to_le_bytes());
            bytes.extend([0; 20]);
        }
        bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\0");
        bytes[16..18].copy_from_slice(&3_u16.to_le_bytes());
        bytes[18..20].copy_from_slice(&62_u16.to_le_bytes());
        bytes[20..24].copy_from_slice(&1_u32.to_le_bytes());
        bytes[40..48].copy_from_slice(&table.to_le_bytes());
        let numbers = [64, 0, 0, 64, headers.len() as u16, headers.len() as u16 - 1];
        for (at, number) in numbers.into_iter().enumerate() {
            bytes[52 + 2 * at..54 + 2 * at].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    const MIB: usize = 1 << 20;

    #[test]
    fn code_for_cards_and_large_data_are_left_alone() {
        let bytes = library(
            &["libcublas.so.13", "libc.so.6"],
            &[
                (".text", 1, 6, 40 * MIB),
                (".nv_fatbin", 1, 2, MIB),
                (".rodata", 1, 2, MIB),
                (".bss", 8, 3, MIB),
                (".debug_info", 1, 0, MIB),
                (".cask_resource", 1, 2, 33 * MIB),
                (".ldata", 1, 3, 33 * MIB),
                (".large", 1, 3, 129 * MIB),
                (".data", 1, 3, MIB),
            ],
        );
        let library = parse(bytes.as_slice()).unwrap();
        assert_eq!(library.needed, ["libcublas.so.13", "libc.so.6"]);
        let sizes = library.parts.iter().map(|part| part.end - part.start);
        let mib: Vec<u64> = sizes.map(|size| size >> 20).collect();
        // The first begins with the strings, which touch the code.
        assert_eq!(mib, [40, 1, 33, 1]);
    }

    #[test]
    fn broken_files_are_passed_over() {
        let good = library(&["liba.so"], &[(".text", 1, 6, 100), (".data", 1, 3, 100)]);
        assert!(parse(good.as_slice()).is_some());
        for end in 0..good.len() {
            // Whatever comes of it, it comes to an end and lies in the file.
            let parts = parse(&good[..end]).unwrap_or_default().parts;
            assert!(parts.iter().all(|part| part.end <= end as u64));
        }
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..3 {
                // xorshift64
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = seed as usize % bytes.len();
                bytes[at] = (seed >> 32) as u8;
            }
            let parts = parse(bytes.as_slice()).unwrap_or_default().parts;
            let length = bytes.len() as u64;
            assert!(parts.iter().all(|p| p.start <= p.end && p.end <= length));
        }
    }

    #[test]
    fn what_a_library_needs_is_followed_once() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, needed: &[&str]| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, library(needed, &[(".text", 1, 6, 100)])).unwrap();
            path
        };
        write("system/lib/liba.so", &[]);
        let module = write("one/_C.so", &["liba.so", "libb.so"]);
        let a = write("one/lib/liba.so", &["libb.so", "libmissing.so"]);
        let b = write("two/lib/libb.so", &["liba.so"]);
        write("two/lib/libother.so", &[]);
        let layer = |name: &str| sconce_schema::manifest::Layer {
            name: name.to_owned(),
            path: folder.path().join(name),
        };
        let mut libraries = Libraries::find(&ImageManifest {
            layers: ["system", "one", "two", "gone"].map(layer).into(),
            env: BTreeMap::new(),
        });
        libraries.read_ahead(module.clone());
        libraries.read_ahead(folder.path().join("gone/x.so"));
        let known = [module, a, b, folder.path().join("gone/x.so")];
        assert_eq!(libraries.done, BTreeSet::from(known));
    }
}
