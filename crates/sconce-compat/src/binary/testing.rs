//! ELF files, fat binaries and archives made by hand. Also compiled into the fuzzer, for its seeds.

/// How far the addresses of a made file lie from its offsets.
const BASE: u64 = 0x10_000;

/// A table for looking symbols up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SymbolHashKind {
    Sysv,
    Gnu,
}

/// A symbol of a made file.
#[derive(Clone, Copy)]
pub(crate) struct SymbolFixture {
    pub(crate) name: &'static str,
    /// `STB_GLOBAL` 1, `STB_WEAK` 2, …
    pub(crate) bind: u8,
    /// `STV_DEFAULT` 0, `STV_HIDDEN` 2, …
    pub(crate) visibility: u8,
    pub(crate) defined: bool,
}

/// What a made file has.
#[derive(Clone)]
pub(crate) struct ElfFixture {
    pub(crate) soname: Option<&'static str>,
    pub(crate) needed: &'static [&'static str],
    pub(crate) rpath: Option<&'static str>,
    pub(crate) runpath: Option<&'static str>,
    /// Libraries and the versions needed of them, with whether they are weak.
    pub(crate) needs: &'static [(&'static str, &'static [(&'static str, bool)])],
    pub(crate) defines: &'static [&'static str],
    pub(crate) symbols: Vec<SymbolFixture>,
    pub(crate) lookup: SymbolHashKind,
    /// `.nv_fatbin`.
    pub(crate) fat: Vec<u8>,
    /// `__nv_relfatbin`.
    pub(crate) relocatable_fat: Vec<u8>,
    pub(crate) section_headers: bool,
}

/// An extension of PyTorch that has a little of everything.
pub(crate) fn extension_fixture() -> ElfFixture {
    let symbol = |name, bind, visibility, defined| SymbolFixture {
        name,
        bind,
        visibility,
        defined,
    };
    ElfFixture {
        soname: Some("libextension.so.1"),
        needed: &["libc10.so", "libc.so.6"],
        rpath: Some("$ORIGIN/../torch/lib:$ORIGIN"),
        runpath: None,
        needs: &[
            (
                "libc.so.6",
                &[("GLIBC_2.27", false), ("GLIBC_ABI_DT_RELR", true)],
            ),
            ("libm.so.6", &[("GLIBC_2.29", true)]),
        ],
        defines: &["EXTENSION_1.0", "EXTENSION_1.1"],
        symbols: vec![
            symbol("_ZN3c105ErrorD1Ev", 1, 0, false),
            symbol("_ZNK2at10TensorBase4sizeEl", 1, 0, false),
            symbol("_ZN5torch4weakEv", 2, 0, false),
            symbol("malloc", 1, 0, false),
            symbol("_ZN3c103ownEv", 2, 0, true),
            symbol("_ZN3c106hiddenEv", 1, 2, true),
            symbol("_ZN3c105localEv", 0, 0, true),
            symbol("_ZTVN5torch6UniqueE", 10, 0, true),
            symbol("PyInit__C", 1, 0, true),
        ],
        lookup: SymbolHashKind::Gnu,
        fat: [
            build_container(&[build_entry(SASS, 80, 0), build_entry(SASS, 90, EXACT)]),
            build_container(&[build_entry(SASS, 90, EXACT), build_entry(SASS, 80, 0)]),
            build_container(&[build_entry(PTX, 120, FAMILY)]),
        ]
        .concat(),
        relocatable_fat: build_container(&[build_entry(SASS, 75, 0)]),
        section_headers: true,
    }
}

pub(crate) const PTX: u16 = 1;
pub(crate) const SASS: u16 = 2;
pub(crate) const EXACT: u64 = 0x10_0000;
pub(crate) const FAMILY: u64 = 0x20_0000;

/// An entry of a fat binary with 24 bytes of code, with the fields as they are in CUDA 13's: PTX is
/// of version 9.3.
pub(crate) fn build_entry(kind: u16, arch: u32, flags: u64) -> Vec<u8> {
    let (major, minor): (u16, u16) = if kind == PTX { (9, 3) } else { (1, 8) };
    let mut made = Vec::new();
    made.extend(kind.to_le_bytes());
    made.extend(0x0101_u16.to_le_bytes());
    made.extend(64_u32.to_le_bytes());
    made.extend(24_u64.to_le_bytes());
    made.extend([0; 8]);
    made.extend(minor.to_le_bytes());
    made.extend(major.to_le_bytes());
    made.extend(arch.to_le_bytes());
    made.extend([0; 8]);
    made.extend((flags | 0x8011).to_le_bytes());
    made.extend([0; 16]);
    made.extend([0xc0; 24]);
    made
}

/// A container of these entries.
pub(crate) fn build_container(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.concat();
    let mut made = 0xba55_ed50_u32.to_le_bytes().to_vec();
    made.extend(1_u16.to_le_bytes());
    made.extend(16_u16.to_le_bytes());
    made.extend((entries.len() as u64).to_le_bytes());
    made.extend(entries);
    made
}

/// A static library in GNU's form, with a table of long names.
pub(crate) fn build_archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut names = String::new();
    let mut fields = Vec::new();
    for (name, _) in members {
        if name.len() < 16 {
            fields.push(format!("{name}/"));
        } else {
            fields.push(format!("/{}", names.len()));
            names.push_str(&format!("{name}/\n"));
        }
    }
    let mut made = b"!<arch>\n".to_vec();
    push_member(&mut made, "/", &[0; 4]);
    push_member(&mut made, "//", names.as_bytes());
    for (field, (_, bytes)) in fields.iter().zip(members) {
        push_member(&mut made, field, bytes);
    }
    made
}

/// Adds a member as ar(5) writes it.
pub(crate) fn push_member(archive: &mut Vec<u8>, field: &str, bytes: &[u8]) {
    member_header(archive, field, bytes.len());
    archive.extend(bytes);
    archive.resize(archive.len().next_multiple_of(2), b'\n');
}

/// The 60 bytes before a member.
pub(crate) fn member_header(archive: &mut Vec<u8>, field: &str, size: usize) {
    let header = format!(
        "{field:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
        0, 0, 0, 644
    );
    archive.extend(header.bytes());
}

/// A table of names, as it grows.
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend(name.bytes());
        self.0.push(0);
        at
    }
}

/// Puts a part at the file's end, and gives its offset.
fn put(file: &mut Vec<u8>, part: &[u8]) -> u64 {
    file.resize(file.len().next_multiple_of(8), 0);
    let at = file.len() as u64;
    file.extend(part);
    at
}

/// The file: headers, one segment that is loaded and has all of it, the dynamic one, and sections.
pub(crate) fn build_elf(made: &ElfFixture) -> Vec<u8> {
    let mut names = Names(vec![0]);
    let mut dynamic: Vec<(u64, u64)> = Vec::new();
    for (tag, name) in made.needed.iter().map(|name| (1, *name)).chain(
        [(14, made.soname), (15, made.rpath), (29, made.runpath)]
            .into_iter()
            .filter_map(|(tag, name)| Some((tag, name?))),
    ) {
        dynamic.push((tag, u64::from(names.add(name))));
    }
    let needs = needs(made, &mut names);
    let defines = defines(made, &mut names);
    let symbols = symbols(made, &mut names);
    let mut file = vec![0; 64 + 2 * 56];
    for (part, tag, count) in [
        (&needs, 0x6fff_fffe, made.needs.len()),
        (&defines, 0x6fff_fffc, made.defines.len() + 1),
    ] {
        if !part.is_empty() {
            dynamic.push((tag, BASE + put(&mut file, part)));
            dynamic.push((tag + 1, count as u64));
        }
    }
    let symbols_at = put(&mut file, &symbols);
    let (tag, lookup) = lookup(made);
    dynamic.push((tag, BASE + put(&mut file, &lookup)));
    dynamic.push((6, BASE + symbols_at));
    dynamic.push((5, BASE + put(&mut file, &names.0)));
    dynamic.push((10, names.0.len() as u64));
    dynamic.push((0, 0));
    let words = dynamic.iter().flat_map(|&(tag, value)| [tag, value]);
    let dynamic: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
    let dynamic_at = put(&mut file, &dynamic);

    let mut section_names = Names(vec![0]);
    // Name, type, address, offset, size.
    let mut sections = vec![(0, 0, 0, 0, 0)];
    let name = section_names.add(".dynsym");
    sections.push((
        name,
        11,
        BASE + symbols_at,
        symbols_at,
        symbols.len() as u64,
    ));
    for (name, bytes) in [
        (".nv_fatbin", &made.fat),
        ("__nv_relfatbin", &made.relocatable_fat),
    ] {
        let name = section_names.add(name);
        let at = put(&mut file, bytes);
        sections.push((name, 1, BASE + at, at, bytes.len() as u64));
    }
    let name = section_names.add(".shstrtab");
    let at = put(&mut file, &section_names.0);
    sections.push((name, 3, 0, at, section_names.0.len() as u64));
    let mut headers: Vec<u8> = Vec::new();
    for &(name, kind, address, offset, size) in &sections {
        headers.extend(u32::to_le_bytes(name));
        headers.extend(u32::to_le_bytes(kind));
        for word in [2_u64, address, offset, size, 0, 8, 0] {
            headers.extend(word.to_le_bytes());
        }
    }
    let headers_at = if made.section_headers {
        put(&mut file, &headers)
    } else {
        0
    };

    let size = file.len() as u64;
    let mut set = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, b"\x7fELF\x02\x01\x01");
    for (at, half) in [(16, 3_u16), (18, 62), (52, 64), (54, 56), (56, 2), (58, 64)] {
        set(at, &half.to_le_bytes());
    }
    set(60, &(sections.len() as u16).to_le_bytes());
    set(62, &(sections.len() as u16 - 1).to_le_bytes());
    set(32, &64_u64.to_le_bytes());
    set(40, &headers_at.to_le_bytes());
    for (at, kind, offset, length) in [
        (64, 1_u32, 0, size),
        (120, 2, dynamic_at, dynamic.len() as u64),
    ] {
        set(at, &kind.to_le_bytes());
        for (field, word) in [(8, offset), (16, BASE + offset), (32, length), (40, length)] {
            set(at + field, &word.to_le_bytes());
        }
    }
    file
}

/// `.gnu.version_r`.
fn needs(made: &ElfFixture, names: &mut Names) -> Vec<u8> {
    let mut part = Vec::new();
    for (at, (library, versions)) in made.needs.iter().enumerate() {
        let next = if at + 1 == made.needs.len() {
            0
        } else {
            16 + 16 * versions.len() as u32
        };
        part.extend(1_u16.to_le_bytes());
        part.extend((versions.len() as u16).to_le_bytes());
        for word in [names.add(library), 16, next] {
            part.extend(word.to_le_bytes());
        }
        for (at, (version, weak)) in versions.iter().enumerate() {
            part.extend([0; 4]);
            part.extend((u16::from(*weak) * 2).to_le_bytes());
            part.extend([2, 0]);
            part.extend(names.add(version).to_le_bytes());
            let next: u32 = if at + 1 == versions.len() { 0 } else { 16 };
            part.extend(next.to_le_bytes());
        }
    }
    part
}

/// `.gnu.version_d`, with the file's own name as its base.
fn defines(made: &ElfFixture, names: &mut Names) -> Vec<u8> {
    let mut part = Vec::new();
    if made.defines.is_empty() {
        return part;
    }
    let own = made.soname.unwrap_or_default();
    for (at, version) in std::iter::once(&own).chain(made.defines).enumerate() {
        for half in [1, u16::from(at == 0), at as u16 + 1, 1] {
            part.extend(half.to_le_bytes());
        }
        let next = if at == made.defines.len() { 0 } else { 28 };
        for word in [0, 20, next, names.add(version), 0] {
            part.extend(u32::to_le_bytes(word));
        }
    }
    part
}

/// `.dynsym`, which begins with none.
fn symbols(made: &ElfFixture, names: &mut Names) -> Vec<u8> {
    let mut part = vec![0; 24];
    for symbol in &made.symbols {
        part.extend(names.add(symbol.name).to_le_bytes());
        part.extend([symbol.bind << 4, symbol.visibility]);
        part.extend((u16::from(symbol.defined) * 7).to_le_bytes());
        part.extend([0; 16]);
    }
    part
}

/// `.hash` or `.gnu.hash`: its tag, and as much of it as tells how many symbols there are. All
/// symbols stand in one bucket, and its chain's last word alone is odd.
fn lookup(made: &ElfFixture) -> (u64, Vec<u8>) {
    let count = made.symbols.len() as u32 + 1;
    let (tag, words) = match made.lookup {
        SymbolHashKind::Sysv => (4, vec![1, count, 0]),
        SymbolHashKind::Gnu => {
            let mut words = vec![2, 1, 1, 0, 0, 0, 0, 1];
            words.extend((1..count).map(|symbol| u32::from(symbol + 1 == count)));
            (0x6fff_fef5, words)
        }
    };
    (tag, words.into_iter().flat_map(u32::to_le_bytes).collect())
}
