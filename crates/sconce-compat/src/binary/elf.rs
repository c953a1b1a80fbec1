//! ELF files: the headers, and what they lead to. Layout and numbers are those of elf(5) and of the
//! System V ABI ("gABI"), 64-bit and little-endian.

use std::ops::Range;

use sconce_schema::ComputeCapability;

use super::bytes::{BlockReader, ByteSource, u16_at, u32_at, u64_at};
use super::unused_code::UnusedCodeFinder;
use super::{BinaryError, MalformedPart, dynamic, fatbin, symbols};
use crate::library::ElfLibrary;

pub(super) const MAGIC: &[u8] = b"\x7fELF";
const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const HEADER: usize = 64;
const SECTION: usize = 64;
const SEGMENT: usize = 56;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const SHT_NOBITS: u32 = 8;
const SHT_DYNSYM: u32 = 11;
/// `e_shnum` and `e_shstrndx` that are larger stand in the first section header.
const SHN_XINDEX: u16 = 0xffff;
/// The most sections. Object files have one for each function.
const MAX_SECTIONS: u64 = 1 << 18;
/// How much of the headers is read at once.
const BLOCK: usize = 4 << 10;

/// Sections with fat binaries: of whole programs, and of device code that is linked separately
/// (`nvcc -rdc=true`).
const DEVICE_CODE: [&[u8]; 2] = [b".nv_fatbin\0", b"__nv_relfatbin\0"];

/// Where things lie in an ELF file.
#[derive(Debug, Default)]
pub(super) struct ElfLayout {
    pub(super) machine: u16,
    loads: Vec<Load>,
    /// Of the dynamic segment.
    pub(super) dynamic: Option<ElfRange>,
    /// Of each section of device code.
    device_code: Vec<ElfRange>,
    /// Address and size of the dynamic symbols.
    dynsym: Option<(u64, u64)>,
}

/// A part of the file, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElfRange {
    pub(super) offset: u64,
    pub(super) size: u64,
}

#[derive(Debug)]
struct Load {
    address: u64,
    part: ElfRange,
}

/// Reads a file that begins with [`MAGIC`].
pub(super) fn read(
    bytes: &dyn ByteSource,
    limits: &mut fatbin::FatbinLimits,
) -> Result<ElfLibrary, BinaryError> {
    let layout = layout(bytes)?;
    let mut library = ElfLibrary {
        machine: layout.machine,
        ..ElfLibrary::default()
    };
    if let Some(extent) = layout.dynamic {
        let dynamic = dynamic::read(bytes, &layout, extent, &mut library)?;
        symbols::read(bytes, &layout, &dynamic, &mut library)?;
    }
    let mut tally = fatbin::ContainerCounts::default();
    for part in &layout.device_code {
        tally.add_containers(bytes, part.offset, part.size, limits)?;
    }
    library.gpu = tally.finish();
    Ok(library)
}

/// Parts of the file with device code that none of these cards runs.
pub(super) fn list_unused_code(
    bytes: &dyn ByteSource,
    cards: &[ComputeCapability],
) -> Result<Vec<Range<u64>>, BinaryError> {
    let layout = layout(bytes)?;
    let mut limits = fatbin::FatbinLimits::default();
    let parts = Vec::new();
    let mut tally = fatbin::ContainerCounts::default();
    tally.superfluous = Some(UnusedCodeFinder { cards, parts });
    for part in &layout.device_code {
        tally.add_containers(bytes, part.offset, part.size, &mut limits)?;
    }
    Ok(tally.superfluous.map_or(Vec::new(), |found| found.parts))
}

impl ElfLayout {
    /// The place in the file of what is loaded at `address`, and how many bytes of its segment are
    /// there from it on.
    pub(super) fn locate_address(
        &self,
        address: u64,
        part: MalformedPart,
    ) -> Result<ElfRange, BinaryError> {
        let found = self.loads.iter().find_map(|load| {
            let inside = address.checked_sub(load.address)?;
            let size = load
                .part
                .size
                .checked_sub(inside)
                .filter(|&size| size > 0)?;
            let offset = load.part.offset.checked_add(inside)?;
            Some(ElfRange { offset, size })
        });
        found.ok_or(BinaryError::Outside { part })
    }

    /// How many symbols there are at `address`, where a section header says so.
    pub(super) fn symbols_at(&self, address: u64) -> Option<u64> {
        let (at, size) = self.dynsym?;
        (at == address).then_some(size / symbols::SYMBOL as u64)
    }
}

/// Reads the headers.
fn layout(bytes: &dyn ByteSource) -> Result<ElfLayout, BinaryError> {
    let mut window = BlockReader::new(bytes, BLOCK);
    let header = *window.read_array::<HEADER>(0, MalformedPart::Header)?;
    let (class, order) = (header[4], header[5]);
    if (class, order) != (CLASS_64, LITTLE_ENDIAN) {
        return Err(BinaryError::OtherForm { class, order });
    }
    let mut layout = ElfLayout {
        machine: u16_at(&header, 18),
        ..ElfLayout::default()
    };
    segments(&mut layout, &mut window, &header)?;
    sections(&mut layout, &mut window, &header, bytes)?;
    Ok(layout)
}

fn segments(
    layout: &mut ElfLayout,
    window: &mut BlockReader<'_>,
    header: &[u8; HEADER],
) -> Result<(), BinaryError> {
    let (offset, each, count) = (u64_at(header, 32), u16_at(header, 54), u16_at(header, 56));
    if count > 0 {
        must_be(each, SEGMENT, MalformedPart::Segments, "the size of one")?;
    }
    for number in 0..u64::from(count) {
        let at = offset.saturating_add(number * SEGMENT as u64);
        let segment = window.read_array::<SEGMENT>(at, MalformedPart::Segments)?;
        let part = ElfRange {
            offset: u64_at(segment, 8),
            size: u64_at(segment, 32),
        };
        match u32_at(segment, 0) {
            PT_LOAD => layout.loads.push(Load {
                address: u64_at(segment, 16),
                part,
            }),
            // As the loader does: the last one.
            PT_DYNAMIC => layout.dynamic = Some(part),
            _ => {}
        }
    }
    Ok(())
}

fn sections(
    layout: &mut ElfLayout,
    window: &mut BlockReader<'_>,
    header: &[u8; HEADER],
    bytes: &dyn ByteSource,
) -> Result<(), BinaryError> {
    let offset = u64_at(header, 40);
    if offset == 0 {
        return Ok(());
    }
    must_be(
        u16_at(header, 58),
        SECTION,
        MalformedPart::Sections,
        "the size of one",
    )?;
    let place = |number: u64| offset.saturating_add(number.saturating_mul(SECTION as u64));
    let first = *window.read_array::<SECTION>(offset, MalformedPart::Sections)?;
    let count = match u16_at(header, 60) {
        0 => u64_at(&first, 32),
        count => u64::from(count),
    };
    let names = match u16_at(header, 62) {
        SHN_XINDEX => u64::from(u32_at(&first, 40)),
        names => u64::from(names),
    };
    if count > MAX_SECTIONS {
        return Err(BinaryError::TooLarge {
            part: MalformedPart::Sections,
            size: count,
            most: MAX_SECTIONS,
        });
    }
    let names = u64_at(
        window.read_array::<SECTION>(place(names), MalformedPart::Sections)?,
        24,
    );
    let mut name_window = BlockReader::new(bytes, BLOCK);
    for number in 0..count {
        let section = *window.read_array::<SECTION>(place(number), MalformedPart::Sections)?;
        let part = ElfRange {
            offset: u64_at(&section, 24),
            size: u64_at(&section, 32),
        };
        match u32_at(&section, 4) {
            SHT_NOBITS => continue,
            SHT_DYNSYM => layout.dynsym = Some((u64_at(&section, 16), part.size)),
            _ => {}
        }
        let name = names.saturating_add(u64::from(u32_at(&section, 0)));
        let name = name_window.up_to(name, 16)?;
        if DEVICE_CODE.iter().any(|device| name.starts_with(device)) {
            layout.device_code.push(part);
        }
    }
    Ok(())
}

fn must_be(
    value: u16,
    wanted: usize,
    part: MalformedPart,
    what: &'static str,
) -> Result<(), BinaryError> {
    if usize::from(value) == wanted {
        return Ok(());
    }
    Err(BinaryError::Malformed {
        part,
        what,
        value: value.to_string(),
    })
}
