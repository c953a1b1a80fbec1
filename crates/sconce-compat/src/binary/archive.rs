//! Static libraries, as ar(5) describes them: GNU's names and BSD's, and thin ones.

use super::bytes::{BlockReader, ByteSource, FileSlice};
use super::{ArchiveMember, BinaryError, MalformedPart, StaticLibrary, elf, fatbin};

pub(super) const MAGIC: &[u8; 8] = b"!<arch>\n";
/// The members are files that lie elsewhere (binutils, `ar --thin`).
pub(super) const THIN_MAGIC: &[u8; 8] = b"!<thin>\n";
const HEADER: usize = 60;
/// The most members. libcusparse's has some thousand.
const MAX_MEMBERS: u64 = 1 << 17;
/// The most bytes of a member's name: that of a path.
const MAX_NAME_BYTES: usize = 4096;
/// The most bytes of all names.
const MAX_NAMES_BYTES: usize = 16 << 20;
const BLOCK: usize = 4 << 10;
const OUTSIDE: BinaryError = BinaryError::Outside {
    part: MalformedPart::Members,
};

/// What a header's name field says.
enum Name {
    /// A table of symbols.
    Symbols,
    /// The table of long names.
    Names,
    /// A member's whole name.
    Short(Vec<u8>),
    /// A place in the table of names.
    Long(u64),
    /// This many bytes before the member.
    Before(u64),
}

pub(super) fn read(bytes: &dyn ByteSource) -> Result<StaticLibrary, BinaryError> {
    let mut window = BlockReader::new(bytes, BLOCK);
    let thin = match window.read_array::<8>(0, MalformedPart::Members)? {
        MAGIC => false,
        THIN_MAGIC => true,
        other => return Err(malformed("what the file begins with", other)),
    };
    let mut archive = StaticLibrary {
        thin,
        ..StaticLibrary::default()
    };
    let mut limits = fatbin::FatbinLimits::default();
    let mut tally = fatbin::ContainerCounts::default();
    let mut names = None;
    let mut left = MAX_NAMES_BYTES;
    let mut at = 8;
    // What is left is padding.
    while bytes.size().saturating_sub(at) > 1 {
        let header = *window.read_array::<HEADER>(at, MalformedPart::Members)?;
        let mut size = number(&header[48..58], "a size")?;
        if &header[58..] != b"`\n" {
            return Err(malformed("the end of a header", &header[58..]));
        }
        at += HEADER as u64;
        let mut start = at;
        let name = name(&header[..16])?;
        let inside = !thin || matches!(name, Name::Symbols | Name::Names);
        if inside {
            at = at.saturating_add(size);
            if at > bytes.size() {
                return Err(OUTSIDE);
            }
            at += at % 2;
        }
        let name = match name {
            Name::Symbols => continue,
            Name::Names => {
                names = Some((start, size));
                continue;
            }
            Name::Short(name) => name,
            Name::Long(offset) => long_name(&mut window, names, offset)?,
            Name::Before(length) => {
                let name = window.up_to(start, length.min(MAX_NAME_BYTES as u64) as usize)?;
                let end = name.iter().position(|&byte| byte == 0);
                let name = name[..end.unwrap_or(name.len())].to_vec();
                start = start.saturating_add(length);
                size = size.checked_sub(length).ok_or(OUTSIDE)?;
                // BSD's table of symbols has such a name.
                if name.starts_with(b"__.SYMDEF") {
                    continue;
                }
                name
            }
        };
        let name = String::from_utf8_lossy(&name).into_owned();
        let count = archive.members.len() as u64 + 1;
        left = left.saturating_sub(name.len());
        if count > MAX_MEMBERS || left == 0 {
            return Err(BinaryError::TooLarge {
                part: MalformedPart::Members,
                size: count,
                most: MAX_MEMBERS,
            });
        }
        let machine = if inside {
            let member = FileSlice::new(bytes, start, size).ok_or(OUTSIDE)?;
            self::member(&member, &mut tally, &mut limits).map_err(|source| {
                BinaryError::Member {
                    name: name.clone(),
                    source: Box::new(source),
                }
            })?
        } else {
            None
        };
        archive.members.push(ArchiveMember {
            name,
            size,
            machine,
        });
    }
    archive.gpu = tally.finish();
    Ok(archive)
}

/// The machine that a member is for, if it is an ELF file that can be read.
fn member(
    bytes: &FileSlice<'_>,
    tally: &mut fatbin::ContainerCounts<'_>,
    limits: &mut fatbin::FatbinLimits,
) -> Result<Option<u16>, BinaryError> {
    if !BlockReader::new(bytes, 4)
        .up_to(0, 4)?
        .starts_with(elf::MAGIC)
    {
        return Ok(None);
    }
    match elf::read(bytes, limits) {
        Ok(library) => {
            tally.merge(&library.gpu);
            Ok(Some(library.machine))
        }
        Err(BinaryError::OtherForm { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn name(field: &[u8]) -> Result<Name, BinaryError> {
    let field = field.trim_ascii_end();
    Ok(match field {
        b"/" | b"/SYM64/" | b"__.SYMDEF" | b"__.SYMDEF SORTED" => Name::Symbols,
        b"//" | b"ARFILENAMES/" => Name::Names,
        [b'/', digits @ ..] => Name::Long(number(digits, "the place of a name")?),
        [b'#', b'1', b'/', digits @ ..] => Name::Before(number(digits, "the length of a name")?),
        [name @ .., b'/'] | name => Name::Short(name.to_vec()),
    })
}

/// GNU's long names end with `/` and a line feed.
fn long_name(
    window: &mut BlockReader<'_>,
    names: Option<(u64, u64)>,
    offset: u64,
) -> Result<Vec<u8>, BinaryError> {
    let (start, size) = names.ok_or(OUTSIDE)?;
    let left = size.saturating_sub(offset).min(MAX_NAME_BYTES as u64);
    let name = window.up_to(start.saturating_add(offset), left as usize)?;
    let end = name.iter().position(|&byte| matches!(byte, b'\n' | 0));
    let Some(end) = end else {
        return Err(OUTSIDE);
    };
    let name = &name[..end];
    Ok(name.strip_suffix(b"/").unwrap_or(name).to_vec())
}

/// A decimal number, of at most the 13 digits that a field has room for.
fn number(digits: &[u8], what: &'static str) -> Result<u64, BinaryError> {
    let text = digits.trim_ascii_end();
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(malformed(what, text));
    }
    let add = |number: u64, digit: &u8| number * 10 + u64::from(digit - b'0');
    Ok(text.iter().fold(0, add))
}

fn malformed(what: &'static str, field: &[u8]) -> BinaryError {
    BinaryError::Malformed {
        part: MalformedPart::Members,
        what,
        value: field.escape_ascii().to_string(),
    }
}
