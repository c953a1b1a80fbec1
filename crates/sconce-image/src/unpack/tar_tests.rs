use super::super::testing::TarBuilder;
use super::*;
use proptest::prelude::*;

/// All entries with their data.
fn read(bytes: &[u8]) -> Result<Vec<(TarEntry, Vec<u8>)>, TarError> {
    let mut archive = TarReader::new(ForwardReader(bytes), 1000);
    let mut found = Vec::new();
    while let Some(entry) = archive.next_entry()? {
        let mut data = Vec::new();
        archive.entry_data().take(1 << 20).read_to_end(&mut data)?;
        found.push((entry, data));
    }
    Ok(found)
}

fn names(bytes: &[u8]) -> Vec<String> {
    let read = read(bytes).unwrap();
    let name = |(entry, _): &(TarEntry, Vec<u8>)| String::from_utf8(entry.name.clone()).unwrap();
    read.iter().map(name).collect()
}

#[test]
fn entries_are_read_in_order() {
    let bytes = TarBuilder::default()
        .with_dir("a/")
        .with_file("a/x", "hello")
        .with_symlink("l", "a/x")
        .with_hard_link("h", "a/x")
        .with_entry(b"old/", 0, b"", b"")
        .with_entry(b"dev", b'3', b"", b"")
        .with_entry(b"pipe", b'6', b"", b"")
        .with_entry(b"odd", b'V', b"", b"skipped")
        .into_bytes();
    let found = read(&bytes).unwrap();
    let kinds: Vec<TarEntryKind> = found.iter().map(|(entry, _)| entry.kind).collect();
    assert_eq!(
        kinds,
        [
            TarEntryKind::Folder,
            TarEntryKind::File,
            TarEntryKind::Link,
            TarEntryKind::HardLink,
            TarEntryKind::Folder,
            TarEntryKind::Device,
            TarEntryKind::Pipe,
            TarEntryKind::Other(b'V'),
        ]
    );
    assert_eq!(found[1].1, b"hello");
    assert_eq!((found[1].0.mode, found[1].0.mtime), (0o644, 100));
    assert_eq!(&bytes[found[1].0.at as usize..][..5], b"hello");
    assert_eq!(found[2].0.link, b"a/x");
}

#[test]
fn long_names_come_before_their_entry() {
    let long = "n".repeat(300);
    let bytes = TarBuilder::default()
        .with_entry(b"././@LongLink", b'L', b"", format!("{long}\0").as_bytes())
        .with_entry(b"././@LongLink", b'K', b"", b"target\0")
        .with_symlink("short", "t")
        .with_pax_header(&[
            ("path", b"p\xff\n="),
            ("linkpath", b"far"),
            ("mtime", b"-7.25"),
        ])
        .with_symlink("x", "y")
        .with_file("own", "")
        .into_bytes();
    let found = read(&bytes).unwrap();
    assert_eq!(found[0].0.name, long.as_bytes());
    assert_eq!(found[0].0.link, b"target");
    let (name, link, time) = (&found[1].0.name, &found[1].0.link, found[1].0.mtime);
    assert_eq!(
        (&name[..], &link[..], time),
        (&b"p\xff\n="[..], &b"far"[..], -7)
    );
    assert_eq!(found[2].0.name, b"own");
}

#[test]
fn a_prefix_is_posixs_alone() {
    let mut header = TarBuilder::build_header(b"name", b'0', b"", 0);
    header[345..348].copy_from_slice(b"dir");
    TarBuilder::set_checksum(&mut header);
    assert_eq!(
        names(
            &TarBuilder::default()
                .with_raw_entry(header, b"")
                .into_bytes()
        ),
        ["dir/name"]
    );
    header[257..265].copy_from_slice(b"ustar  \0");
    TarBuilder::set_checksum(&mut header);
    assert_eq!(
        names(
            &TarBuilder::default()
                .with_raw_entry(header, b"")
                .into_bytes()
        ),
        ["name"]
    );
}

#[test]
fn sizes_that_do_not_fit_stand_elsewhere() {
    let mut header = TarBuilder::build_header(b"a", b'0', b"", 0);
    header[124..136].copy_from_slice(b"\x80\0\0\0\0\0\0\0\0\0\0\x03");
    TarBuilder::set_checksum(&mut header);
    let bytes = TarBuilder::default()
        .with_raw_entry(header, b"abc")
        .with_pax_header(&[("size", b"4")])
        .with_raw_entry(TarBuilder::build_header(b"b", b'0', b"", 0), b"abcd")
        .with_file("c", "")
        .into_bytes();
    let found = read(&bytes).unwrap();
    assert_eq!(
        (found[0].1.as_slice(), found[1].1.as_slice()),
        (&b"abc"[..], &b"abcd"[..])
    );
    assert_eq!(found[2].0.name, b"c");
    // A link has no data, whatever it says.
    let link = TarBuilder::build_header(b"l", b'2', b"t", 5000);
    assert_eq!(
        names(
            &TarBuilder::default()
                .with_raw_entry(link, b"")
                .with_file("d", "")
                .into_bytes()
        ),
        ["l", "d"]
    );
}

#[test]
fn numbers_are_octal_or_base_256() {
    for (field, value) in [
        (&b"0000644\0"[..], Some(0o644)),
        (b"   644 \0", Some(0o644)),
        (b"\0\0\0\0", Some(0)),
        (b"9", None),
        (b"-1", None),
        (b"\x80\0\0\x01", Some(1)),
        (b"\xff\xff\xff\xff", Some(-1)),
        (b"\xff\xff\xff\xfe", Some(-2)),
        (
            &[
                0x80, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ],
            None,
        ),
        (&[0xbf; 12], None),
        (b"", Some(0)),
    ] {
        assert_eq!(parse_numeric_field(field), value, "{field:?}");
    }
}

#[test]
fn sparse_files_have_their_holes() {
    let parts = b"aabbb";
    let wanted = [&b"\0\0\0\0aa\0\0bbb\0"[..]].concat();
    let mut old = TarBuilder::build_header(b"s", b'S', b"", 5);
    old[257..265].copy_from_slice(b"ustar  \0");
    for (at, text) in [(386, "4"), (398, "2"), (410, "10"), (422, "3"), (483, "14")] {
        let field = format!("{text:0>11}");
        old[at..at + 11].copy_from_slice(field.as_bytes());
    }
    TarBuilder::set_checksum(&mut old);
    let mut map = b"2\n4\n2\n8\n3\n".to_vec();
    map.resize(512, 0);
    let bytes = TarBuilder::default()
        .with_raw_entry(old, parts)
        .with_pax_header(&[
            ("GNU.sparse.map", b"4,2,8,3"),
            ("GNU.sparse.size", b"12"),
            ("GNU.sparse.name", b"one"),
        ])
        .with_entry(b"x", b'0', b"", parts)
        .with_pax_header(&[
            ("GNU.sparse.major", b"1"),
            ("GNU.sparse.minor", b"0"),
            ("GNU.sparse.name", b"two"),
            ("GNU.sparse.realsize", b"12"),
        ])
        .with_entry(b"y", b'0', b"", &[&map[..], parts].concat())
        .with_file("after", "z")
        .into_bytes();
    let found = read(&bytes).unwrap();
    assert_eq!(names(&bytes), ["s", "one", "two", "after"]);
    for (entry, data) in &found[..3] {
        assert_eq!((entry.size, data), (12, &wanted), "{:?}", entry.name);
    }
    assert_eq!(found[3].1, b"z");
}

/// The old format goes on in further blocks.
#[test]
fn sparse_maps_go_on() {
    let mut old = TarBuilder::build_header(b"s", b'S', b"", 6);
    old[257..265].copy_from_slice(b"ustar  \0");
    let octal = |n: u64| format!("{n:011o}\0").into_bytes();
    for n in 0..4_u64 {
        let at = 386 + 24 * n as usize;
        old[at..at + 12].copy_from_slice(&octal(n * 10));
        old[at + 12..at + 24].copy_from_slice(&octal(1));
    }
    old[482] = 1;
    old[483..495].copy_from_slice(&octal(100));
    TarBuilder::set_checksum(&mut old);
    let mut more = [0; 512];
    for n in 0..2_u64 {
        let at = 24 * n as usize;
        more[at..at + 12].copy_from_slice(&octal(50 + n));
        more[at + 12..at + 24].copy_from_slice(&octal(1));
    }
    let mut made = TarBuilder::default();
    made.0.extend(old);
    made.0.extend(more);
    made.0.extend(b"abcdef");
    made.0.resize(3 * 512, 0);
    let bytes = made.with_file("after", "z").into_bytes();
    let found = read(&bytes).unwrap();
    assert_eq!(found[0].1.len(), 100);
    assert_eq!((found[0].1[30], &found[0].1[50..52]), (b'd', &b"ef"[..]));
    assert_eq!(found[1].1, b"z");
}

#[test]
fn what_is_not_an_archive_is_refused() {
    let sound = TarBuilder::default().with_file("a", "hello").into_bytes();
    let mut broken = sound.clone();
    broken[0] ^= 1;
    assert!(matches!(read(&broken), Err(TarError::Header { .. })));
    for cut in [1, 511, 513, 516] {
        assert!(
            matches!(read(&sound[..cut]), Err(TarError::Read(_))),
            "{cut}"
        );
    }
    // Without the empty blocks at the end, and without what fills up the last file's.
    for end in [517, 600, 1024] {
        assert_eq!(read(&sound[..end]).unwrap()[0].1, b"hello", "{end}");
    }
    assert!(read(b"").unwrap().is_empty());
    for records in [
        &b"5 a=b\n"[..],
        b"6 a=b",
        b"x a=b\n",
        b"99999999999999999999999 a=b\n",
        b"1 ",
        b"9 path=a\n9 path=b",
    ] {
        let bytes = TarBuilder::default()
            .with_entry(b"p", b'x', b"", records)
            .with_file("a", "")
            .into_bytes();
        assert!(
            matches!(read(&bytes), Err(TarError::Header { .. })),
            "{records:?}"
        );
    }
    for (key, value) in [
        ("size", "-1"),
        ("size", "99999999999999999999"),
        ("mtime", "x"),
    ] {
        let bytes = TarBuilder::default()
            .with_pax_header(&[(key, value.as_bytes())])
            .with_file("a", "")
            .into_bytes();
        assert!(
            matches!(read(&bytes), Err(TarError::Header { .. })),
            "{key}={value}"
        );
    }
    // A long name that claims a gigabyte is not read.
    let long = TarBuilder::default()
        .with_raw_entry(TarBuilder::build_header(b"l", b'L', b"", 1 << 30), b"")
        .into_bytes();
    assert!(matches!(read(&long), Err(TarError::Header { .. })));
    let many = (0..20).fold(TarBuilder::default(), |made, _| made.with_pax_header(&[]));
    let mut archive = TarReader::new(ForwardReader(&many.0[..]), 10);
    assert!(matches!(archive.next_entry(), Err(TarError::Header { .. })));
}

#[test]
fn sparse_maps_that_cannot_be_are_refused() {
    for (map, size) in [
        ("0,2,1,3", "9"),
        ("0,5,8,0", "4"),
        ("0,4", "9"),
        ("0,18446744073709551615,1,6", "9"),
        ("0", "9"),
        ("a,b", "9"),
        ("", "9"),
    ] {
        let bytes = TarBuilder::default()
            .with_pax_header(&[
                ("GNU.sparse.map", map.as_bytes()),
                ("GNU.sparse.size", size.as_bytes()),
            ])
            .with_entry(b"x", b'0', b"", b"aabbb")
            .into_bytes();
        let refused = map.is_empty() || matches!(read(&bytes), Err(TarError::Sparse { .. }));
        assert!(refused, "{map}");
    }
    let old = TarBuilder::default()
        .with_pax_header(&[("GNU.sparse.numblocks", b"1")])
        .with_file("x", "")
        .into_bytes();
    assert!(matches!(read(&old), Err(TarError::Sparse { .. })));
}

proptest! {
    #[test]
    fn no_archive_panics(changes in prop::collection::vec((0..5000_usize, any::<u8>()), 0..12), fix: bool) {
        let mut bytes = TarBuilder::default()
            .with_file("a", "hello")
            .with_pax_header(&[("path", b"x"), ("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"99")])
            .with_entry(b"y", b'0', b"", &[&b"1\n5\n4\n"[..], &[0; 506], b"data"].concat())
            .with_entry(b"s", b'S', b"", b"")
            .into_bytes();
        for (at, value) in changes {
            let length = bytes.len();
            bytes[at % length] = value;
        }
        if fix {
            for block in bytes.chunks_exact_mut(512) {
                if &block[257..262] == b"ustar" {
                    TarBuilder::set_checksum(block.try_into().unwrap());
                }
            }
        }
        let _ = read(&bytes);
    }
}
