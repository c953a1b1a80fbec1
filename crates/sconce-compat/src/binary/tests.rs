//! Whole files, made by hand and broken by hand.

use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use sconce_schema::ComputeCapability;

use super::testing::{
    self, EXACT, ElfFixture, FAMILY, PTX, SASS, SymbolHashKind, build_archive, build_container,
    build_elf, build_entry, extension_fixture, member_header, push_member,
};
use super::*;
use crate::library::{CodeKind, CodeReach, CodeTarget, Coverage, NeededVersions, symbol_hash};

fn read_bytes(bytes: &[u8]) -> Result<ParsedBinary, BinaryError> {
    read(&bytes)
}

fn library(bytes: &[u8]) -> ElfLibrary {
    match read_bytes(bytes) {
        Ok(ParsedBinary::Library(library)) => *library,
        other => panic!("{other:?}"),
    }
}

fn fat(bytes: &[u8]) -> GpuCode {
    read_fat_binary(&bytes).unwrap()
}

fn target(major: u32, minor: u32, code: CodeKind, reach: CodeReach) -> CodeTarget {
    CodeTarget {
        capability: ComputeCapability::new(major, minor),
        code,
        reach,
    }
}

fn sass(major: u32, minor: u32) -> CodeTarget {
    target(major, minor, CodeKind::Sass, CodeReach::Onward)
}

fn coverage(containers: u32, targets: &[CodeTarget]) -> Coverage {
    Coverage {
        targets: targets.to_vec(),
        containers,
    }
}

const PTX_93: CodeKind = CodeKind::Ptx { major: 9, minor: 3 };

#[test]
fn a_library_says_all_of_itself() {
    let exact = target(9, 0, CodeKind::Sass, CodeReach::Exact);
    let family = target(12, 0, PTX_93, CodeReach::Family);
    let text = |names: &[&str]| {
        names
            .iter()
            .map(|&name| name.to_owned())
            .collect::<Vec<_>>()
    };
    let mut defined = ["_ZN3c103ownEv", "_ZTVN5torch6UniqueE"].map(|n| symbol_hash(n.as_bytes()));
    defined.sort_unstable();
    let wanted = ElfLibrary {
        machine: 62,
        soname: Some("libextension.so.1".to_owned()),
        needed: text(&["libc10.so", "libc.so.6"]),
        rpath: text(&["$ORIGIN/../torch/lib", "$ORIGIN"]),
        runpath: None,
        needs_versions: vec![NeededVersions {
            of: "libc.so.6".to_owned(),
            versions: text(&["GLIBC_2.27"]),
        }],
        defines_versions: text(&["EXTENSION_1.0", "EXTENSION_1.1"]),
        undefined: text(&["_ZN3c105ErrorD1Ev", "_ZNK2at10TensorBase4sizeEl"]),
        defined: defined.to_vec(),
        gpu: GpuCode {
            coverage: vec![
                coverage(2, &[sass(8, 0), exact]),
                coverage(1, &[sass(7, 5)]),
                coverage(1, &[family]),
            ],
            ..GpuCode::default()
        },
    };
    assert_eq!(library(&build_elf(&extension_fixture())), wanted);
    // Without section headers nothing but the device code is lost, whichever table of symbols.
    for lookup in [SymbolHashKind::Sysv, SymbolHashKind::Gnu] {
        let stripped = ElfFixture {
            section_headers: false,
            lookup,
            ..extension_fixture()
        };
        let mut wanted = wanted.clone();
        wanted.gpu = GpuCode::default();
        assert_eq!(library(&build_elf(&stripped)), wanted);
    }
}

#[test]
fn an_empty_runpath_is_one() {
    let made = |runpath| ElfFixture {
        rpath: Some(""),
        runpath,
        ..extension_fixture()
    };
    let read = |runpath| {
        let library = library(&build_elf(&made(runpath)));
        (library.rpath, library.runpath)
    };
    assert_eq!(read(None), (vec![], None));
    assert_eq!(read(Some("")), (vec![], Some(vec![])));
    let two = vec!["/a".to_owned(), String::new()];
    assert_eq!(read(Some("/a:")), (vec![], Some(two)));
}

#[test]
fn a_file_of_another_kind_is_said_to_be_one() {
    for bytes in [
        &b""[..],
        b"\x7fEL",
        b"/* GNU ld script */",
        b"!<arch>",
        b"\x93NUMPY\x01\0",
    ] {
        assert_eq!(
            read_bytes(bytes).unwrap(),
            ParsedBinary::NotABinary,
            "{bytes:?}"
        );
    }
    let mut file = build_elf(&extension_fixture());
    for (place, value) in [(4, 1), (5, 2)] {
        let old = std::mem::replace(&mut file[place], value);
        let error = read_bytes(&file).unwrap_err();
        assert!(matches!(error, BinaryError::OtherForm { .. }), "{error}");
        file[place] = old;
    }
    file[18] = 183;
    assert_eq!(library(&file).machine, 183);
}

#[test]
fn errors_say_what_is_wrong_and_how_to_mend_it() {
    let file = build_elf(&extension_fixture());
    let with = |at: usize, bytes: &[u8]| {
        let mut file = file.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        let error = read_bytes(&file).unwrap_err();
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
        assert!(error.hint().is_some());
        error.to_string()
    };
    let said = [
        with(40, &u64::MAX.to_le_bytes()),
        with(32, &u64::MAX.to_le_bytes()),
        with(58, &[63, 0]),
        with(54, &[0, 0]),
        // The dynamic segment's offset and the loaded segment's size.
        with(120 + 8, &(u64::MAX - 3).to_le_bytes()),
        with(64 + 32, &[0; 8]),
        // As many sections as their own size field says.
        {
            let mut many = file.clone();
            let at = u64::from_le_bytes(many[40..48].try_into().unwrap()) as usize;
            many[60..62].fill(0);
            many[at + 32..at + 40].copy_from_slice(&u64::MAX.to_le_bytes());
            read_bytes(&many).unwrap_err().to_string()
        },
    ];
    assert_eq!(
        said,
        [
            "the section headers lie outside of the file",
            "the program headers lie outside of the file",
            "the section headers are malformed: the size of one is `63`",
            "the program headers are malformed: the size of one is `0`",
            "the dynamic entries lie outside of the file",
            "the names lie outside of the file",
            "the section headers take 18446744073709551615, more than the 262144 that are read",
        ]
    );
}

#[test]
fn zeros_between_containers_are_padding() {
    let one = build_container(&[build_entry(SASS, 80, 0)]);
    for zeros in [0, 4, 8, 511, 512, 513, 200_000] {
        let zeros = vec![0; zeros / 4 * 4];
        let code = fat(&[&zeros, &one[..], &zeros, &one, &zeros].concat());
        assert_eq!(
            code.coverage,
            [coverage(2, &[sass(8, 0)])],
            "{}",
            zeros.len()
        );
        assert_eq!(code.unread_bytes, 0);
    }
}

#[test]
fn what_is_no_container_is_unread() {
    let one = build_container(&[build_entry(SASS, 80, 0)]);
    let noise = [7; 1000];
    let both = fat(&[&one[..], &noise, &one, &noise[..3]].concat());
    assert_eq!((both.container_count(), both.unread_bytes), (2, 1003));
    // A container of another version, and one with a header that cannot be.
    for (place, value) in [(4, 2), (6, 8)] {
        let mut other = one.clone();
        other[place] = value;
        let code = fat(&[&other[..], &one].concat());
        assert_eq!(code.container_count(), 1);
        assert!(code.unread_bytes > 0);
    }
}

#[test]
fn an_entry_that_cannot_be_ends_its_container() {
    let (good, bad) = (build_entry(SASS, 80, 0), build_entry(SASS, 90, 0));
    let next = build_container(&[build_entry(SASS, 75, 0)]);
    // Header length and code length, too small and too large.
    for (place, bytes) in [
        (4, &0_u32.to_le_bytes()[..]),
        (4, &47_u32.to_le_bytes()),
        (4, &u32::MAX.to_le_bytes()),
        (8, &25_u64.to_le_bytes()),
        (8, &u64::MAX.to_le_bytes()),
        (8, &(u64::MAX - 500).to_le_bytes()),
    ] {
        let mut bad = bad.clone();
        bad[place..place + bytes.len()].copy_from_slice(bytes);
        let code = fat(&[build_container(&[good.clone(), bad.clone()]), next.clone()].concat());
        let kinds = [coverage(1, &[sass(7, 5)]), coverage(1, &[sass(8, 0)])];
        assert_eq!(code.coverage, kinds, "{place} {bytes:?}");
        assert_eq!(code.unread_bytes, bad.len() as u64);
    }
}

#[test]
fn code_of_an_unknown_kind_is_unread() {
    let (known, unknown) = (build_entry(SASS, 80, 0), build_entry(8, 80, 0));
    let size = unknown.len() as u64;
    for other in [
        unknown.clone(),
        build_entry(SASS, 9, 0),
        build_entry(SASS, 1000, 0),
    ] {
        let code = fat(&build_container(&[other, known.clone()]));
        assert_eq!(code.coverage, [coverage(1, &[sass(8, 0)])]);
        assert_eq!(code.unread_bytes, size);
    }
    // A container without anything that could run is none.
    let code = fat(&[build_container(&[unknown]), build_container(&[])].concat());
    assert_eq!((code.container_count(), code.unread_bytes), (0, size));
}

#[test]
fn targets_are_those_of_the_headers() {
    let entries = [
        build_entry(PTX, 120, 0),
        build_entry(SASS, 121, FAMILY | EXACT),
        build_entry(SASS, 103, FAMILY),
        build_entry(SASS, 75, 0),
        build_entry(SASS, 75, 0),
    ];
    let wanted = [
        sass(7, 5),
        target(10, 3, CodeKind::Sass, CodeReach::Family),
        target(12, 0, PTX_93, CodeReach::Onward),
        target(12, 1, CodeKind::Sass, CodeReach::Exact),
    ];
    assert_eq!(
        fat(&build_container(&entries)).coverage,
        [coverage(1, &wanted)]
    );
}

#[test]
fn a_container_longer_than_its_section_is_read_as_far_as_it_goes() {
    let mut one = build_container(&[build_entry(SASS, 80, 0), build_entry(SASS, 90, 0)]);
    one[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    let code = fat(&one);
    assert_eq!(code.coverage, [coverage(1, &[sass(8, 0), sass(9, 0)])]);
    assert_eq!(code.unread_bytes, 0);
    let cut = fat(&one[..one.len() - 1]);
    assert_eq!(cut.coverage, [coverage(1, &[sass(8, 0)])]);
    assert_eq!(cut.unread_bytes, 87);
    // A file that was cut off within its section.
    let file = build_elf(&extension_fixture());
    let mut cut = file.clone();
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let size = headers + 2 * 64 + 32;
    cut[size..size + 8].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    assert!(library(&cut).gpu.unread_bytes >= (1 << 40) - file.len() as u64);
    // Two such sections, with more in them than containers: the sum would overflow.
    for size in [size, size + 64] {
        cut[size..size + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    }
    assert_eq!(library(&cut).gpu.unread_bytes, u64::MAX);
}

/// A source of bytes that counts them.
struct Counted<'a> {
    bytes: &'a [u8],
    reads: AtomicU64,
    read: AtomicU64,
}

impl ByteSource for Counted<'_> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read.fetch_add(into.len() as u64, Ordering::Relaxed);
        self.bytes.read_at(offset, into)
    }
}

fn counted(bytes: &[u8]) -> Counted<'_> {
    Counted {
        bytes,
        reads: AtomicU64::new(0),
        read: AtomicU64::new(0),
    }
}

#[test]
fn only_headers_are_read() {
    let mut big = build_entry(SASS, 80, 0);
    let length = 1_usize << 20;
    big[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    big.resize(64 + length, 1);
    let made = ElfFixture {
        fat: vec![build_container(&[big.clone(), big]); 10].concat(),
        ..extension_fixture()
    };
    let file = build_elf(&made);
    let source = counted(&file);
    assert!(matches!(read(&source), Ok(ParsedBinary::Library(_))));
    assert!(source.reads.into_inner() < 60);
    assert!(source.read.into_inner() < 100_000);
}

#[test]
fn hostile_device_code_costs_no_more_than_its_limits() {
    // Tiny containers, more than are read.
    let tiny = build_container(&[]);
    let many = tiny.repeat((1 << 20) + 10);
    assert_eq!(fat(&many).unread_bytes, 10 * tiny.len() as u64);
    // Words that look like containers and are none.
    let magics = 0xba55_ed50_u32.to_le_bytes().repeat(8 << 20);
    let source = counted(&magics);
    assert_eq!(read_fat_binary(&source).unwrap().unread_bytes, 32 << 20);
    assert!(source.read.into_inner() < 64 << 20);
    // Many sections that all are the same one.
    let made = ElfFixture {
        fat: tiny.repeat(1 << 14),
        ..extension_fixture()
    };
    let mut file = build_elf(&made);
    let headers = u64::from_le_bytes(file[40..48].try_into().unwrap()) as usize;
    let section = file[headers + 2 * 64..headers + 3 * 64].to_vec();
    let names = file[headers + 4 * 64..headers + 5 * 64].to_vec();
    file.truncate(headers);
    file.extend(names);
    file.extend(section.repeat(5_000));
    file[60..62].copy_from_slice(&5_000_u16.to_le_bytes());
    file[62..64].copy_from_slice(&[0, 0]);
    assert!(library(&file).gpu.unread_bytes > 0);
}

#[test]
fn an_archive_is_the_sum_of_its_members() {
    let object = build_elf(&extension_fixture());
    let long = "a_name_of_more_than_sixteen.o";
    let file = build_archive(&[("a.o", &object), ("notes.txt", b"odd"), (long, &object)]);
    let Ok(ParsedBinary::Archive(archive)) = read_bytes(&file) else {
        panic!("no archive");
    };
    let named: Vec<_> = archive
        .members
        .iter()
        .map(|member| (member.name.as_str(), member.size, member.machine))
        .collect();
    let size = object.len() as u64;
    let members = [
        ("a.o", size, Some(62)),
        ("notes.txt", 3, None),
        (long, size, Some(62)),
    ];
    assert_eq!(named, members);
    assert!(!archive.thin);
    assert_eq!(archive.gpu.container_count(), 8);
    assert_eq!(archive.gpu.coverage[0].containers, 4);
}

#[test]
fn names_of_bsd_and_thin_archives_are_read() {
    let object = build_elf(&extension_fixture());
    let mut bsd = b"!<arch>\n".to_vec();
    push_member(&mut bsd, "#1/12", b"__.SYMDEF\0\0\0table");
    push_member(
        &mut bsd,
        "#1/16",
        &[b"long_name.o\0\0\0\0\0", &object[..]].concat(),
    );
    let bsd = read_archive(&&bsd[..]).unwrap();
    assert_eq!(bsd.members.len(), 1);
    assert_eq!(bsd.members[0].name, "long_name.o");
    assert_eq!(bsd.members[0].machine, Some(62));
    let mut thin = b"!<thin>\n".to_vec();
    push_member(&mut thin, "/", &[0; 4]);
    push_member(&mut thin, "//", b"folder/of/some/object.o/\n");
    member_header(&mut thin, "/0", 1 << 20);
    let thin = read_archive(&&thin[..]).unwrap();
    assert!(thin.thin);
    assert_eq!(thin.members[0].name, "folder/of/some/object.o");
    assert_eq!(
        (thin.members[0].size, thin.members[0].machine),
        (1 << 20, None)
    );
}

#[test]
fn a_wrong_archive_is_an_error() {
    let said = |field: &str, bytes: &[u8], spoil: &dyn Fn(&mut Vec<u8>)| {
        let mut file = b"!<arch>\n".to_vec();
        push_member(&mut file, field, bytes);
        spoil(&mut file);
        read_bytes(&file).unwrap_err().to_string()
    };
    let nothing = |_: &mut Vec<u8>| {};
    assert_eq!(
        said("/7", b"x", &nothing),
        "the members lie outside of the file"
    );
    assert_eq!(
        said("#1/9", b"x", &nothing),
        "the members lie outside of the file"
    );
    let cut = |file: &mut Vec<u8>| file.truncate(40);
    assert_eq!(
        said("a.o/", b"x", &cut),
        "the members lie outside of the file"
    );
    let text = |file: &mut Vec<u8>| file[56..66].copy_from_slice(b"-1        ");
    assert_eq!(
        said("a.o/", b"x", &text),
        "the members are malformed: a size is `-1`"
    );
    let large = |file: &mut Vec<u8>| file[56..66].copy_from_slice(b"9999999999");
    assert_eq!(
        said("a.o/", b"x", &large),
        "the members lie outside of the file"
    );
    let end = |file: &mut Vec<u8>| file[66] = b'!';
    let malformed = "the members are malformed: the end of a header is `!\\n`";
    assert_eq!(said("a.o/", b"x", &end), malformed);
    let object = build_elf(&extension_fixture());
    assert_eq!(
        said("a.o/", &object[..500], &nothing),
        "could not read member a.o"
    );
    assert!(read_archive(&&b"#!/bin/sh"[..]).is_err());
}

#[test]
fn the_kept_form_reads_the_same() {
    let library = library(&build_elf(&extension_fixture()));
    let kept = serde_json::to_vec(&library).unwrap();
    assert_eq!(
        serde_json::from_slice::<ElfLibrary>(&kept).unwrap(),
        library
    );
}

/// What holds of whatever is read.
fn holds(found: &ParsedBinary, size: u64) {
    let gpu = match found {
        ParsedBinary::Library(library) => {
            assert!(library.undefined.is_sorted() && library.defined.is_sorted());
            &library.gpu
        }
        ParsedBinary::Archive(archive) => &archive.gpu,
        ParsedBinary::NotABinary => return,
    };
    // A container takes 16 bytes, and may be in both sections.
    assert!(u64::from(gpu.container_count()) <= size);
    for kind in &gpu.coverage {
        assert!(!kind.targets.is_empty() && kind.targets.is_sorted() && kind.containers > 0);
    }
}

proptest! {
    #[test]
    fn no_file_panics(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        form in 0..3,
    ) {
        let object = ElfFixture { section_headers: form != 1, ..extension_fixture() };
        let mut file = build_elf(&object);
        if form == 2 {
            file = build_archive(&[("a.o", &file), ("a_long_name_it_is.o", &file)]);
        }
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        if let Ok(found) = read_bytes(&file) {
            holds(&found, file.len() as u64);
        }
        let _ = read_bytes(&file[..cut.index(file.len())]);
        let _ = read_fat_binary(&&file[cut.index(file.len())..]);
    }
}

#[test]
fn what_was_emptied_is_no_device_code() {
    let made = testing::ElfFixture {
        fat: build_container(&[
            build_entry(SASS, 75, 0),
            build_entry(SASS, 90, 0),
            build_entry(PTX, 90, 0),
        ]),
        relocatable_fat: build_container(&[build_entry(SASS, 80, 0)]),
        ..testing::extension_fixture()
    };
    let mut file = testing::build_elf(&made);
    let card = ComputeCapability::new(9, 0);
    let parts = list_unused_code(&&file[..], &[card]).unwrap();
    assert_eq!(parts.len(), 3);
    for part in parts {
        let part = part.start as usize..part.end as usize;
        assert_eq!(file[part.clone()], [0xc0; 24]);
        file[part].fill(0);
    }
    let ParsedBinary::Library(library) = read(&&file[..]).unwrap() else {
        panic!("not a library");
    };
    assert_eq!(library.gpu.coverage, [coverage(1, &[sass(9, 0)])]);
    assert_eq!(library.gpu.unread_bytes, 0);
    let emptied = |major, minor| {
        library
            .gpu
            .is_emptied_for(ComputeCapability::new(major, minor))
    };
    assert!(emptied(7, 5) && emptied(8, 6), "{:?}", library.gpu.emptied);
    // It has code, and only its PTX went; there never was any.
    assert!(emptied(9, 0) && !emptied(7, 0));
    assert_eq!(list_unused_code(&&file[..], &[card]).unwrap(), []);
    assert_eq!(list_unused_code(&&b"#!/bin/sh"[..], &[card]).unwrap(), []);
}
