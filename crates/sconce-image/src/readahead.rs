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
/// Larger sections without code hold what only cards, and only parts of them, will be given.
const LARGEST_DATA: u64 = 32 << 20;
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
        let is_code = flags.contains(elf::SHF_EXECINSTR);
        let (start, size) = (section.sh_offset(endian), section.sh_size(endian));
        let end = start.checked_add(size).filter(|end| *end <= length);
        if let Some(end) = end
            && flags.contains(elf::SHF_ALLOC)
            && section.sh_type(endian) != elf::SHT_NOBITS
            && !is_for_cards(name)
            && (is_code || size <= LARGEST_DATA)
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
