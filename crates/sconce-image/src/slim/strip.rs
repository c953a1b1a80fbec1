//! ELF files without what only debuggers read: symbol tables that the loader does not use, and
//! DWARF. What the loader maps stays where it is, byte for byte; the headers of the sections that go
//! become unused ones, so that the numbers of the others hold (gABI, "Sections"). What goes from
//! between mapped parts, as in files that patchelf has added a part to, becomes zeros: the file is as
//! long as before, and an archive of it shorter.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _};
use object::{LittleEndian, ReadRef, elf};

type Header = elf::FileHeader64<LittleEndian>;
type Section = elf::SectionHeader64<LittleEndian>;

const LE: LittleEndian = LittleEndian;
/// The most that is moved, in bytes: what stays behind the mapped part is notes and names.
const MAX_MOVED_BYTES: u64 = 16 << 20;
/// The most zeros behind everything, in bytes.
const MAX_PADDING_BYTES: u64 = 4096;
/// The most sections and segments that a file may have. Linked ones have some forty.
const MAX_PARTS: usize = 4096;
/// Bytes of a section header.
const SECTION: u64 = size_of::<Section>() as u64;
/// Where the file's header says where the section headers are.
const SHOFF: Range<usize> = 40..48;

/// A file as it is without them: its first `head` bytes, in which 8 bytes may be others, and `tail`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StrippedFile {
    /// Bytes of the file that stay.
    head: u64,
    /// Parts of the head that become zeros.
    zeros: Vec<Range<u64>>,
    /// What follows them: the sections that moved, and the section headers.
    tail: Vec<u8>,
    /// Where in the new file the section headers are, if they moved.
    headers: Option<u64>,
}

impl StrippedFile {
    /// A file of `size` bytes that is whole but for what becomes zeros.
    pub(crate) fn with_size(size: u64) -> Self {
        Self {
            head: size,
            zeros: Vec::new(),
            tail: Vec::new(),
            headers: None,
        }
    }

    /// Makes these parts of the old file zeros too. What lies behind the head is not touched.
    pub(crate) fn zero_ranges(&mut self, parts: Vec<Range<u64>>) {
        self.zeros.extend(parts);
    }

    /// Size of the new file in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.head + self.tail.len() as u64
    }

    /// Bytes that become zeros.
    pub(crate) fn zeroed_bytes(&self) -> u64 {
        self.zeros.iter().map(|part| part.end - part.start).sum()
    }

    /// What follows the head.
    pub(crate) fn tail_bytes(&self) -> &[u8] {
        &self.tail
    }

    /// What becomes of the bytes at `offset` of the old file: as many of them as stay, patched.
    pub(crate) fn patch_head(&self, offset: u64, bytes: &[u8]) -> Vec<u8> {
        let left = self.head.saturating_sub(offset).min(bytes.len() as u64);
        let mut kept = bytes[..left as usize].to_vec();
        for zeros in &self.zeros {
            let within = |at: u64| at.clamp(offset, offset + left) - offset;
            kept[within(zeros.start) as usize..within(zeros.end) as usize].fill(0);
        }
        let moved = self.headers.iter().flat_map(|at| at.to_le_bytes());
        for (at, byte) in SHOFF.zip(moved) {
            if let Some(place) = (at as u64)
                .checked_sub(offset)
                .and_then(|at| kept.get_mut(at as usize))
            {
                *place = byte;
            }
        }
        kept
    }
}

/// What the file is without them; `None` where it is no ELF file of a usual form, where it has none,
/// or where something else lies behind them.
pub(crate) fn strip_symbols(path: &Path) -> Option<StrippedFile> {
    let file = File::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    plan(&ReadCache::new(file), size)
}

fn plan<'a>(data: impl ReadRef<'a>, size: u64) -> Option<StrippedFile> {
    let header = Header::parse(data).ok()?;
    if header.endian().ok()? != LE || ![elf::ET_DYN, elf::ET_EXEC].contains(&header.e_type(LE)) {
        return None;
    }
    let table = header.section_headers(LE, data).ok()?;
    let segments = header.program_headers(LE, data).ok()?;
    if table.len().max(segments.len()) > MAX_PARTS {
        return None;
    }
    let names = header.section_strings(LE, data, table).ok()?;
    let names_at = header.shstrndx(LE, data).ok()? as usize;
    let is_mapped = |section: &Section| section.sh_flags(LE).contains(elf::SHF_ALLOC);
    let goes = |section: &Section| {
        let debug = || {
            let name = section.name(LE, names).unwrap_or_default();
            name.starts_with(b".debug_") || name.starts_with(b".zdebug_")
        };
        !is_mapped(section)
            && (matches!(section.sh_type(LE), elf::SHT_SYMTAB | elf::SHT_SYMTAB_SHNDX) || debug())
    };
    let strings_of: Vec<usize> = table
        .iter()
        .filter(|section| goes(section))
        .map(|section| section.sh_link(LE) as usize)
        .collect();
    let goes = |at: usize, section: &Section| {
        let strings = section.sh_type(LE) == elf::SHT_STRTAB && strings_of.contains(&at);
        at != names_at && !is_mapped(section) && (goes(section) || strings)
    };
    if !table
        .iter()
        .enumerate()
        .any(|(at, section)| goes(at, section))
    {
        return None;
    }
    let end = |offset: u64, length: u64| offset.checked_add(length).filter(|end| *end <= size);
    let in_file = |section: &Section| match section.sh_type(LE) {
        elf::SHT_NOBITS | elf::SHT_NULL => Some(0),
        _ => end(section.sh_offset(LE), section.sh_size(LE)),
    };
    let headers_end = end(header.e_shoff(LE), SECTION.checked_mul(table.len() as u64)?)?;
    let mut head = size_of::<Header>() as u64;
    let mut mapped = Vec::new();
    let listed = size_of_val(segments) as u64;
    let phoff = header.e_phoff(LE);
    mapped.push(phoff..end(phoff, listed)?);
    for segment in segments {
        let offset = segment.p_offset(LE);
        mapped.push(offset..end(offset, segment.p_filesz(LE))?);
    }
    let mut last = mapped
        .iter()
        .map(|part| part.end)
        .fold(headers_end, u64::max);
    for section in table {
        let end = in_file(section)?;
        last = last.max(end);
        if is_mapped(section) && end > 0 {
            mapped.push(section.sh_offset(LE)..end);
        }
    }
    head = mapped.iter().map(|part| part.end).fold(head, u64::max);
    // Something that was appended, and may find itself by the file's end. patchelf leaves a zero.
    let rest = size.saturating_sub(last);
    if rest > MAX_PADDING_BYTES
        || data
            .read_bytes_at(last.min(size), rest)
            .ok()?
            .iter()
            .any(|b| *b != 0)
    {
        return None;
    }
    let mut zeros = Vec::new();
    let mut tail = Vec::new();
    let mut headers = Vec::new();
    for (at, section) in table.iter().enumerate() {
        let mut section = *section;
        if goes(at, &section) {
            let part = section.sh_offset(LE)..in_file(&section)?;
            // One that says that nothing of it is in the file has nothing to be cleared.
            if !part.is_empty()
                && part.end <= head
                && !mapped
                    .iter()
                    .any(|one| one.start < part.end && part.start < one.end)
            {
                zeros.push(part);
            }
            // SHT_NULL is 0.
            headers.extend_from_slice(&[0; SECTION as usize]);
            continue;
        }
        if in_file(&section)? > head && section.sh_size(LE) > 0 {
            let length = section.sh_size(LE);
            if length > MAX_MOVED_BYTES || tail.len() as u64 + length > MAX_MOVED_BYTES {
                return None;
            }
            align(&mut tail, head, section.sh_addralign(LE))?;
            let bytes = data.read_bytes_at(section.sh_offset(LE), length).ok()?;
            section.sh_offset.set(LE, head + tail.len() as u64);
            tail.extend_from_slice(bytes);
        }
        headers.extend_from_slice(object::pod::bytes_of(&section));
    }
    align(&mut tail, head, 8)?;
    let at = head + tail.len() as u64;
    tail.extend(headers);
    let stripped = StrippedFile {
        head,
        zeros,
        tail,
        headers: Some(at),
    };
    (stripped.size() < size || !stripped.zeros.is_empty()).then_some(stripped)
}

/// Fills `tail`, which begins at `head` of its file, up to a multiple of `to`.
fn align(tail: &mut Vec<u8>, head: u64, to: u64) -> Option<()> {
    if to > 4096 {
        return None;
    }
    let at = head + tail.len() as u64;
    let gap = at.checked_next_multiple_of(to.max(1))? - at;
    tail.resize(tail.len() + gap as usize, 0);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    /// What follows the head, and the whole new file.
    fn apply(stripped: &StrippedFile, old: &[u8], piece: usize) -> Vec<u8> {
        let mut new = Vec::new();
        for (at, bytes) in old.chunks(piece).enumerate() {
            new.extend(stripped.patch_head((at * piece) as u64, bytes));
        }
        new.extend(stripped.tail_bytes());
        new
    }

    /// A shared library by hand: `.text` is mapped, `.debug_info`, `.comment`, `.symtab`,
    /// `.strtab` and `.shstrtab` are not.
    fn library() -> Vec<u8> {
        let names = b"\0.text\0.debug_info\0.comment\0.symtab\0.strtab\0.shstrtab\0";
        let name = |name: &[u8]| {
            let at = names.windows(name.len()).position(|window| window == name);
            at.unwrap() as u32
        };
        // Name, type, flags, link, bytes.
        type Made<'a> = (&'a [u8], u32, u64, u32, &'a [u8]);
        let sections: [Made<'_>; 6] = [
            (b".text", 1, 2, 0, &[0x90; 16]),
            (b".debug_info", 1, 0, 0, &[7; 40]),
            (b".comment", 1, 0, 0, b"by hand\0"),
            (b".symtab", 2, 0, 5, &[3; 48]),
            (b".strtab", 3, 0, 0, b"\0symbol\0"),
            (b".shstrtab", 3, 0, 0, names),
        ];
        let mut file = vec![0_u8; 64 + 56];
        let mut table = vec![0_u8; 64];
        for (section, kind, flags, link, bytes) in sections {
            let offset = file.len() as u64;
            file.extend(bytes);
            table.extend(name(section).to_le_bytes());
            table.extend(kind.to_le_bytes());
            for word in [flags, 0, offset, bytes.len() as u64] {
                table.extend(word.to_le_bytes());
            }
            table.extend(link.to_le_bytes());
            table.extend(0_u32.to_le_bytes());
            for word in [1_u64, 0] {
                table.extend(word.to_le_bytes());
            }
        }
        let shoff = file.len() as u64;
        file.extend(&table);
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"\x7fELF\x02\x01\x01");
        put(16, &3_u16.to_le_bytes());
        put(18, &62_u16.to_le_bytes());
        put(20, &1_u32.to_le_bytes());
        put(32, &64_u64.to_le_bytes());
        put(40, &shoff.to_le_bytes());
        for (at, half) in [(52, 64_u16), (54, 56), (56, 1), (58, 64), (60, 7), (62, 6)] {
            put(at, &half.to_le_bytes());
        }
        // PT_LOAD of the header and `.text`.
        put(64, &1_u32.to_le_bytes());
        put(64 + 32, &136_u64.to_le_bytes());
        file
    }

    #[test]
    fn what_is_mapped_stays_and_symbols_go() {
        let old = library();
        let stripped = plan(&old[..], old.len() as u64).unwrap();
        let new = apply(&stripped, &old, 13);
        assert_eq!(new.len() as u64, stripped.size());
        assert_eq!(apply(&stripped, &old, old.len()), new);
        assert!(new.len() < old.len());
        assert_eq!(new[..40], old[..40]);
        assert_eq!(new[48..136], old[48..136]);
        let header = Header::parse(&new[..]).unwrap();
        let table = header.section_headers(LE, &new[..]).unwrap();
        let names = header.section_strings(LE, &new[..], table).unwrap();
        let listed: Vec<_> = table
            .iter()
            .filter(|section| section.sh_type(LE) != elf::SHT_NULL)
            .map(|section| {
                let name = section.name(LE, names).unwrap();
                (
                    String::from_utf8_lossy(name),
                    section.data(LE, &new[..]).unwrap(),
                )
            })
            .collect();
        let kept: Vec<&str> = listed.iter().map(|(name, _)| name.as_ref()).collect();
        assert_eq!(kept, [".text", ".comment", ".shstrtab"]);
        assert_eq!(listed[1].1, b"by hand\0");
        assert_eq!(
            plan(&new[..], new.len() as u64),
            None,
            "nothing is left to go"
        );
    }

    /// As patchelf leaves a file: a part that is mapped lies behind the symbols.
    #[test]
    fn what_goes_from_between_becomes_zeros() {
        let mut old = library();
        let table = u64::from_le_bytes(old[SHOFF].try_into().unwrap()) as usize;
        let offset = |number: usize| {
            let at = table + 64 * number + 24;
            u64::from_le_bytes(old[at..at + 8].try_into().unwrap()) as usize
        };
        let (debug, comment, symbols) = (offset(2), offset(3), offset(4));
        // `.shstrtab` is mapped, too, by its flags; and patchelf leaves a byte at the end.
        let end = table as u64;
        old[table + 64 * 6 + 8] = 2;
        old.push(0);
        let stripped = plan(&old[..], old.len() as u64).unwrap();
        assert_eq!(stripped.head, end);
        let new = apply(&stripped, &old, 7);
        assert_eq!(apply(&stripped, &old, old.len()), new);
        assert!(new[debug..comment].iter().all(|byte| *byte == 0));
        assert_eq!(new[comment..symbols], old[comment..symbols]);
        assert!(new[symbols..symbols + 57].iter().all(|byte| *byte == 0));
        assert_eq!(new[symbols + 57..table], old[symbols + 57..table]);
    }

    #[test]
    fn what_has_something_appended_is_left_alone() {
        let mut file = library();
        file.extend(b"PK\x05\x06");
        assert_eq!(plan(&file[..], file.len() as u64), None);
        assert_eq!(plan(&b"\x7fELF"[..], 4), None);
    }

    /// This very program, which has symbols and debug information.
    #[test]
    fn a_real_program_still_runs() {
        let program = std::env::current_exe().unwrap();
        let Some(stripped) = strip_symbols(&program) else {
            return; // Built without symbols.
        };
        let old = std::fs::read(&program).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let copy = dir.path().join("program");
        std::fs::write(&copy, apply(&stripped, &old, 1 << 20)).unwrap();
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        let listed = Command::new(&copy).arg("--list").output().unwrap();
        assert!(listed.status.success(), "{listed:?}");
        assert!(stripped.size() < old.len() as u64);
    }

    #[test]
    fn a_section_that_is_not_in_the_file_clears_nothing() {
        let whole = library();
        for at in 0..whole.len() {
            let mut file = whole.clone();
            file[at] = 0;
            if let Some(stripped) = plan(&file[..], file.len() as u64) {
                assert_eq!(apply(&stripped, &file, 64).len() as u64, stripped.size());
            }
        }
    }

    proptest! {
        #[test]
        fn no_file_panics(at in 0..library().len(), byte in any::<u8>(), cut in 0..library().len()) {
            let mut file = library();
            file[at] = byte;
            if let Some(stripped) = plan(&file[..], file.len() as u64) {
                prop_assert_eq!(apply(&stripped, &file, 64).len() as u64, stripped.size());
            }
            let _ = plan(&file[..cut], cut as u64);
        }
    }
}
