//! The SONAME of a shared library: the name under which programs ask for it. Only the few bytes
//! that lead to it are read, for libraries of the driver have up to 100 MB.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// `e_machine` of this machine's programs; `None` on an architecture without NVIDIA drivers.
const MACHINE: Option<u16> = if cfg!(target_arch = "x86_64") {
    Some(62)
} else if cfg!(target_arch = "aarch64") {
    Some(183)
} else {
    None
};

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SONAME: u64 = 14;
const PROGRAM_HEADER: usize = 56;
/// More entries than any real library's dynamic section has.
const MAX_DYNAMIC_BYTES: u64 = 64 << 10;

/// A shared library for this machine.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SharedLibrary {
    /// Its DT_SONAME, where it has one that is a plain file name.
    pub(super) soname: Option<String>,
}

/// Reads the library at `path`; `None` when it is no 64-bit ELF file for this machine (a linker
/// script, a 32-bit library of the same name).
pub(super) fn read_library(path: &Path) -> Option<SharedLibrary> {
    let file = File::open(path).ok()?;
    parse(|at, length| {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match file.read_at(&mut bytes[filled..], at.checked_add(filled as u64)?) {
                Ok(0) | Err(_) => break,
                Ok(n) => filled += n,
            }
        }
        bytes.truncate(filled);
        Some(bytes)
    })
}

/// `bytes(at, length)` gives that part of the file, or what of it there is. The layout is that of
/// elf(5), 64-bit and little-endian.
fn parse(bytes: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<SharedLibrary> {
    let header = bytes(0, 64)?;
    let is_ours = header.starts_with(b"\x7fELF\x02\x01")
        && MACHINE.is_some_and(|machine| u16_at(&header, 18) == Some(machine));
    if !is_ours || usize::from(u16_at(&header, 54)?) != PROGRAM_HEADER {
        return None;
    }
    let count = usize::from(u16_at(&header, 56)?);
    let programs = bytes(u64_at(&header, 32)?, count * PROGRAM_HEADER)?;
    Some(SharedLibrary {
        soname: soname(&programs, &bytes),
    })
}

fn soname(programs: &[u8], bytes: &impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<String> {
    let program = |kind: u32| {
        programs
            .chunks_exact(PROGRAM_HEADER)
            .filter(move |header| u32_at(header, 0) == Some(kind))
    };
    let dynamic = program(PT_DYNAMIC).next()?;
    let length = u64_at(dynamic, 32)?.min(MAX_DYNAMIC_BYTES);
    let dynamic = bytes(u64_at(dynamic, 8)?, usize::try_from(length).ok()?)?;
    let (mut strings, mut name) = (None, None);
    for entry in dynamic.chunks_exact(16) {
        match u64_at(entry, 0)? {
            DT_NULL => break,
            DT_STRTAB => strings = u64_at(entry, 8),
            DT_SONAME => name = u64_at(entry, 8),
            _ => {}
        }
    }
    // The table is named by its address in memory; a loaded segment says where in the file.
    let address = strings?.checked_add(name?)?;
    let at = program(PT_LOAD).find_map(|segment| {
        let inside = address.checked_sub(u64_at(segment, 16)?)?;
        (inside < u64_at(segment, 32)?).then(|| u64_at(segment, 8)?.checked_add(inside))?
    })?;
    let text = bytes(at, 256)?;
    let end = text.iter().position(|&byte| byte == 0)?;
    let name = std::str::from_utf8(&text[..end]).ok()?;
    // It becomes the name of a link: it must not lead anywhere else.
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    plain.then(|| name.to_owned())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::shared_library;
    use proptest::prelude::*;

    fn parse_bytes(whole: &[u8]) -> Option<SharedLibrary> {
        parse(|at, length| {
            let at = usize::try_from(at).ok()?;
            let rest = whole.get(at..).unwrap_or_default();
            Some(rest[..rest.len().min(length)].to_vec())
        })
    }

    fn named(name: &str) -> Option<SharedLibrary> {
        Some(SharedLibrary {
            soname: Some(name.to_owned()),
        })
    }

    #[test]
    fn a_library_made_here_and_the_c_library() {
        let whole = shared_library(Some("libcuda.so.1"));
        assert_eq!(parse_bytes(&whole), named("libcuda.so.1"));
        let nameless = parse_bytes(&shared_library(None));
        assert_eq!(nameless, Some(SharedLibrary { soname: None }));
        let cache = std::fs::read("/etc/ld.so.cache").unwrap();
        let folders = super::super::ld_cache::find_library_dirs(&cache, |name| name == "libc.so.6");
        let found = folders
            .iter()
            .find_map(|f| read_library(&f.join("libc.so.6")));
        assert_eq!(found, named("libc.so.6"));
    }

    #[test]
    fn what_is_no_library_for_this_machine() {
        assert_eq!(parse_bytes(b""), None);
        assert_eq!(parse_bytes(b"INPUT(libcuda.so.1)\n"), None);
        let mut other = shared_library(Some("x"));
        other[18] = 3; // i386
        assert_eq!(parse_bytes(&other), None);
        let mut narrow = shared_library(Some("x"));
        narrow[4] = 1; // 32-bit
        assert_eq!(parse_bytes(&narrow), None);
    }

    #[test]
    fn a_name_that_leads_elsewhere_is_no_name() {
        for name in ["../../etc/passwd", "..", "", "a/b"] {
            let found = parse_bytes(&shared_library(Some(name)));
            assert_eq!(found, Some(SharedLibrary { soname: None }), "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(at in 0..400_usize, bytes: [u8; 8], cut in 0..400_usize) {
            let mut whole = shared_library(Some("libcuda.so.1"));
            let at = at % (whole.len() - 8);
            whole[at..at + 8].copy_from_slice(&bytes);
            let _ = parse_bytes(&whole);
            whole.truncate(cut);
            let _ = parse_bytes(&whole);
        }
    }
}
