//! Files of machine code: bytes in, [`ElfLibrary`] out.
//!
//! ELF files are read by hand and by ranges. The crate `object` was weighed: its ranged reading
//! (`ReadCache`) lends what it read for as long as the file is open, so keeps all of it, and its
//! errors do not say whether the disk failed or the file is wrong. What is needed of 64-bit
//! little-endian ELF are eight small records.
//!
//! What the loader would look at is read from where the loader looks: the dynamic segment. Section
//! headers serve for what it does not need, the device code, and for the number of symbols; a file
//! without section headers has therefore no device code as far as is seen here.

use std::io;
use std::ops::Range;

use sconce_schema::{ComputeCapability, Hint, exit};

use crate::library::{ElfLibrary, GpuCode};

mod archive;
mod bytes;
mod dynamic;
mod elf;
mod fatbin;
mod symbols;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unused_code;

pub use bytes::ByteSource;

/// What a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedBinary {
    /// An ELF file: a shared library, a Python extension, a program, an object file.
    Library(Box<ElfLibrary>),
    /// A static library.
    Archive(StaticLibrary),
    /// Something else.
    NotABinary,
}

/// What was read of a static library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StaticLibrary {
    /// Whether it only names files that lie elsewhere, and so has no code itself.
    pub thin: bool,
    /// Its members, in order, without the tables of symbols and names.
    pub members: Vec<ArchiveMember>,
    /// The device code of all members.
    pub gpu: GpuCode,
}

/// A file in a static library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveMember {
    /// Its name, of a thin archive a path.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// `e_machine`, where it is a 64-bit little-endian ELF file.
    pub machine: Option<u16>,
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BinaryError {
    /// The disk, or whatever the bytes come from, failed.
    #[error("could not read at byte {offset}")]
    Read {
        /// Where.
        offset: u64,
        /// How.
        source: io::Error,
    },
    /// An ELF file that is not 64-bit and little-endian: for a machine without NVIDIA drivers.
    #[error(
        "an ELF file of class {class} and byte order {order}; only 64-bit little-endian ones are read"
    )]
    OtherForm {
        /// `EI_CLASS`: 1 is 32-bit.
        class: u8,
        /// `EI_DATA`: 2 is big-endian.
        order: u8,
    },
    /// A part of the file begins or ends outside of it: it was cut off, or its headers are wrong.
    #[error("{part} lie outside of the file")]
    Outside {
        /// Which.
        part: MalformedPart,
    },
    /// A part of the file is not as the format says.
    #[error("{part} are malformed: {what} is `{value}`")]
    Malformed {
        /// Which.
        part: MalformedPart,
        /// The field.
        what: &'static str,
        /// What it says.
        value: String,
    },
    /// More than any real file has.
    #[error("{part} take {size}, more than the {most} that are read")]
    TooLarge {
        /// Of which part.
        part: MalformedPart,
        /// Bytes or entries that there are.
        size: u64,
        /// Bytes or entries that are read.
        most: u64,
    },
    /// A member of a static library could not be read.
    #[error("could not read member {name}")]
    Member {
        /// Its name.
        name: String,
        /// Why.
        source: Box<BinaryError>,
    },
}

/// A part of a file that can be wrong, as a plural.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MalformedPart {
    /// The ELF header's fields.
    Header,
    /// ELF section headers.
    Sections,
    /// ELF program headers.
    Segments,
    /// Entries of the dynamic segment.
    Dynamic,
    /// Names of libraries, versions and symbols.
    Strings,
    /// Dynamic symbols.
    Symbols,
    /// Symbol versions.
    Versions,
    /// Members of an archive.
    Members,
}

impl std::fmt::Display for MalformedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Header => "the first headers",
            Self::Sections => "the section headers",
            Self::Segments => "the program headers",
            Self::Dynamic => "the dynamic entries",
            Self::Strings => "the names",
            Self::Symbols => "the dynamic symbols",
            Self::Versions => "the symbol versions",
            Self::Members => "the members",
        })
    }
}

impl Hint for BinaryError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } | Self::OtherForm { .. } => None,
            Self::Outside { .. } | Self::Malformed { .. } | Self::TooLarge { .. } => Some(
                "The file is damaged or was cut off; install the package again that it is from."
                    .to_owned(),
            ),
            Self::Member { source, .. } => source.hint(),
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Reads a file of any kind. Headers are read, names, symbols, and the headers of device code, never
/// the code itself.
///
/// # Errors
/// For a file that begins as an ELF file or an archive, and is wrong further on.
pub fn read(bytes: &dyn ByteSource) -> Result<ParsedBinary, BinaryError> {
    let mut magic = [0; 8];
    let there = usize::try_from(bytes.size()).map_or(8, |size| size.min(8));
    bytes
        .read_at(0, &mut magic[..there])
        .map_err(|source| BinaryError::Read { offset: 0, source })?;
    if magic.starts_with(elf::MAGIC) {
        let library = elf::read(bytes, &mut fatbin::FatbinLimits::default())?;
        return Ok(ParsedBinary::Library(Box::new(library)));
    }
    if [archive::MAGIC, archive::THIN_MAGIC].contains(&&magic) {
        return read_archive(bytes).map(ParsedBinary::Archive);
    }
    Ok(ParsedBinary::NotABinary)
}

/// Reads a static library as `ar` writes it. Its members' device code is summed.
///
/// # Errors
/// When it is none, or a member is wrong.
pub fn read_archive(bytes: &dyn ByteSource) -> Result<StaticLibrary, BinaryError> {
    archive::read(bytes)
}

/// Parts of a library with device code that none of these cards runs: whether they hold it or zeros
/// changes nothing on these cards. None for a file that is no library, or that is not read to its end.
///
/// # Errors
/// As [`read`].
pub fn list_unused_code(
    bytes: &dyn ByteSource,
    cards: &[ComputeCapability],
) -> Result<Vec<Range<u64>>, BinaryError> {
    let mut magic = [0; 4];
    if bytes.size() < magic.len() as u64 {
        return Ok(Vec::new());
    }
    bytes
        .read_at(0, &mut magic)
        .map_err(|source| BinaryError::Read { offset: 0, source })?;
    match magic.as_slice() == elf::MAGIC {
        true => elf::list_unused_code(bytes, cards),
        false => Ok(Vec::new()),
    }
}

/// Reads the containers of a fat binary that is a file of its own, or of a section of device code.
///
/// # Errors
/// When the bytes cannot be read; what is no container is counted in
/// [`GpuCode::unread_bytes`].
pub fn read_fat_binary(bytes: &dyn ByteSource) -> Result<GpuCode, BinaryError> {
    let mut tally = fatbin::ContainerCounts::default();
    tally.add_containers(bytes, 0, bytes.size(), &mut fatbin::FatbinLimits::default())?;
    Ok(tally.finish())
}
