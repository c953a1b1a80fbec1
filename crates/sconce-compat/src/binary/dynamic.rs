//! The dynamic segment: names and versions. Numbers are those of the gABI, "Dynamic Linking", and
//! of the Linux Standard Base, "Symbol Versioning".

use std::ffi::CStr;

use super::bytes::{BlockReader, ByteSource, read_range, u16_at, u32_at, u64_at};
use super::elf::{ElfLayout, ElfRange};
use super::{BinaryError, MalformedPart};
use crate::library::{ElfLibrary, NeededVersions};

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;
/// `VER_FLG_BASE`: the version is the library's own name.
const BASE: u16 = 1;
/// `VER_FLG_WEAK`: the loader does not insist on it.
const WEAK: u16 = 2;
const ENTRY: usize = 16;
const VERNEED: usize = 16;
const VERNAUX: usize = 16;
const VERDEF: usize = 20;
const VERDAUX: usize = 8;
/// The most entries of the segment, and the most versions. libstdc++ defines some hundred.
const MAX_ENTRIES: u64 = 1 << 16;
/// The most bytes of all names together but those of symbols.
const MAX_NAMES_BYTES: usize = 4 << 20;
/// The most bytes of the names' table. libcusparseLt 0.7 has 26 MB.
const MAX_STRING_TABLE_BYTES: u64 = 256 << 20;
const BLOCK: usize = 4 << 10;

/// What symbols are read with.
#[derive(Debug)]
pub(super) struct DynamicSection {
    pub(super) strings: StringTable,
    /// `DT_SYMTAB`, an address.
    pub(super) symbols: Option<u64>,
    /// `DT_HASH`, an address.
    pub(super) hash: Option<u64>,
    /// `DT_GNU_HASH`, an address.
    pub(super) gnu_hash: Option<u64>,
}

/// The table of names.
#[derive(Debug)]
pub(super) struct StringTable {
    table: Vec<u8>,
    /// How many bytes may still be taken from it: names can overlap each other.
    left: usize,
}

impl StringTable {
    /// What begins at `at`, which may be more than one name.
    pub(super) fn bytes_from(&self, at: u32) -> &[u8] {
        self.table.get(at as usize..).unwrap_or_default()
    }

    /// The name at `at`.
    pub(super) fn name_at(&self, at: u32) -> Result<&[u8], BinaryError> {
        let name = CStr::from_bytes_until_nul(self.bytes_from(at));
        name.map(CStr::to_bytes).map_err(|_| BinaryError::Outside {
            part: MalformedPart::Strings,
        })
    }

    fn take(&mut self, at: u64) -> Result<String, BinaryError> {
        let name = self.name_at(u32::try_from(at).unwrap_or(u32::MAX))?;
        let text = String::from_utf8_lossy(name).into_owned();
        self.left = self.left.checked_sub(text.len()).ok_or({
            BinaryError::TooLarge {
                part: MalformedPart::Strings,
                size: text.len() as u64,
                most: MAX_NAMES_BYTES as u64,
            }
        })?;
        Ok(text)
    }
}

/// Puts into `library` what the segment in `extent` says.
pub(super) fn read(
    bytes: &dyn ByteSource,
    layout: &ElfLayout,
    extent: ElfRange,
    library: &mut ElfLibrary,
) -> Result<DynamicSection, BinaryError> {
    let entries = entries(bytes, extent)?;
    // Where a tag stands twice, the loader takes the last.
    let last = |wanted: u64| {
        let mut entries = entries.iter().rev();
        entries.find_map(|&(tag, value)| (tag == wanted).then_some(value))
    };
    let table = match (last(DT_STRTAB), last(DT_STRSZ)) {
        (Some(address), Some(size)) if size > 0 => {
            let place = layout.locate_address(address, MalformedPart::Strings)?;
            read_range(
                bytes,
                place.offset,
                size,
                MalformedPart::Strings,
                MAX_STRING_TABLE_BYTES,
            )?
        }
        _ => Vec::new(),
    };
    let mut strings = StringTable {
        table,
        left: MAX_NAMES_BYTES,
    };
    for &(tag, value) in &entries {
        if tag == DT_NEEDED {
            library.needed.push(strings.take(value)?);
        }
    }
    let mut text = |tag| last(tag).map(|at| strings.take(at)).transpose();
    library.soname = text(DT_SONAME)?;
    library.rpath = text(DT_RPATH)?.map(folders).unwrap_or_default();
    library.runpath = text(DT_RUNPATH)?.map(folders);
    let versions = |table, count| {
        let (Some(address), Some(count)) = (last(table), last(count)) else {
            return Ok(None);
        };
        let place = layout.locate_address(address, MalformedPart::Versions)?;
        Ok(Some((place.offset, count)))
    };
    if let Some((offset, count)) = versions(DT_VERNEED, DT_VERNEEDNUM)? {
        library.needs_versions = needs(bytes, &mut strings, offset, count)?;
    }
    if let Some((offset, count)) = versions(DT_VERDEF, DT_VERDEFNUM)? {
        library.defines_versions = defines(bytes, &mut strings, offset, count)?;
    }
    Ok(DynamicSection {
        symbols: last(DT_SYMTAB),
        hash: last(DT_HASH),
        gnu_hash: last(DT_GNU_HASH),
        strings,
    })
}

/// Tags and values, to the end's mark.
fn entries(bytes: &dyn ByteSource, extent: ElfRange) -> Result<Vec<(u64, u64)>, BinaryError> {
    let mut window = BlockReader::new(bytes, BLOCK);
    let mut entries = Vec::new();
    for number in 0..extent.size / ENTRY as u64 {
        check_count(MalformedPart::Dynamic, number + 1)?;
        let at = extent.offset.saturating_add(number * ENTRY as u64);
        let entry = window.read_array::<ENTRY>(at, MalformedPart::Dynamic)?;
        match u64_at(entry, 0) {
            DT_NULL => break,
            tag => entries.push((tag, u64_at(entry, 8))),
        }
    }
    Ok(entries)
}

/// The loader takes an empty list for none.
fn folders(list: String) -> Vec<String> {
    if list.is_empty() {
        return Vec::new();
    }
    list.split(':').map(str::to_owned).collect()
}

fn needs(
    bytes: &dyn ByteSource,
    strings: &mut StringTable,
    offset: u64,
    count: u64,
) -> Result<Vec<NeededVersions>, BinaryError> {
    let mut window = BlockReader::new(bytes, BLOCK);
    let mut seen = 0;
    let mut needs = Vec::new();
    let mut at = offset;
    for _ in 0..count {
        seen += 1;
        check_count(MalformedPart::Versions, seen)?;
        let library = *window.read_array::<VERNEED>(at, MalformedPart::Versions)?;
        let mut versions = Vec::new();
        let mut version_at = at.saturating_add(u64::from(u32_at(&library, 8)));
        for _ in 0..u16_at(&library, 2) {
            seen += 1;
            check_count(MalformedPart::Versions, seen)?;
            let version = *window.read_array::<VERNAUX>(version_at, MalformedPart::Versions)?;
            if u16_at(&version, 4) & WEAK == 0 {
                versions.push(strings.take(u64::from(u32_at(&version, 8)))?);
            }
            match u32_at(&version, 12) {
                0 => break,
                next => version_at = version_at.saturating_add(u64::from(next)),
            }
        }
        if !versions.is_empty() {
            let of = strings.take(u64::from(u32_at(&library, 4)))?;
            needs.push(NeededVersions { of, versions });
        }
        match u32_at(&library, 12) {
            0 => break,
            next => at = at.saturating_add(u64::from(next)),
        }
    }
    Ok(needs)
}

fn defines(
    bytes: &dyn ByteSource,
    strings: &mut StringTable,
    offset: u64,
    count: u64,
) -> Result<Vec<String>, BinaryError> {
    let mut window = BlockReader::new(bytes, BLOCK);
    let mut defines = Vec::new();
    let mut at = offset;
    for number in 0..count {
        check_count(MalformedPart::Versions, number + 1)?;
        let version = *window.read_array::<VERDEF>(at, MalformedPart::Versions)?;
        // The first name is its own; others are those that it follows.
        if u16_at(&version, 2) & BASE == 0 {
            let name_at = at.saturating_add(u64::from(u32_at(&version, 12)));
            let name = *window.read_array::<VERDAUX>(name_at, MalformedPart::Versions)?;
            defines.push(strings.take(u64::from(u32_at(&name, 0)))?);
        }
        match u32_at(&version, 16) {
            0 => break,
            next => at = at.saturating_add(u64::from(next)),
        }
    }
    Ok(defines)
}

fn check_count(part: MalformedPart, count: u64) -> Result<(), BinaryError> {
    if count <= MAX_ENTRIES {
        return Ok(());
    }
    Err(BinaryError::TooLarge {
        part,
        size: count,
        most: MAX_ENTRIES,
    })
}
