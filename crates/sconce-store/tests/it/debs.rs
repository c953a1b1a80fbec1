//! Debian packages become trees, and nothing beside them.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use proptest::prelude::*;
use sconce_store::deb::{DebControl, DebError, DebLimits, unpack};
use tar::{Builder, EntryType, Header};

const CONTROL: &[u8] = b"Package: demo\nVersion: 1.0-1\nArchitecture: amd64\nDescription: x\n";

/// One entry of data.tar: kind, name, link, mode, data.
struct Item<'a>(EntryType, &'a str, &'a str, u32, &'a [u8]);

fn file<'a>(name: &'a str, data: &'a [u8]) -> Item<'a> {
    Item(EntryType::Regular, name, "", 0o644, data)
}

fn folder(name: &str) -> Item<'_> {
    Item(EntryType::Directory, name, "", 0o755, b"")
}

fn link<'a>(name: &'a str, target: &'a str) -> Item<'a> {
    Item(EntryType::Symlink, name, target, 0o777, b"")
}

fn hard<'a>(name: &'a str, target: &'a str) -> Item<'a> {
    Item(EntryType::Link, name, target, 0o644, b"")
}

fn tar_of(items: &[Item<'_>]) -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    for Item(kind, name, target, mode, data) in items {
        if name.len() >= 100 {
            let mut long = Header::new_gnu();
            long.set_entry_type(EntryType::GNULongName);
            long.set_size(name.len() as u64 + 1);
            long.set_cksum();
            tar.append(&long, [name.as_bytes(), b"\0"].concat().as_slice())
                .unwrap();
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(*kind);
        // Set as bytes: the crate would refuse the names that the tests are about.
        let gnu = header.as_gnu_mut().unwrap();
        let short = &name.as_bytes()[..name.len().min(99)];
        gnu.name[..short.len()].copy_from_slice(short);
        gnu.linkname[..target.len()].copy_from_slice(target.as_bytes());
        header.set_mode(*mode);
        header.set_mtime(1_700_000_000);
        header.set_size(data.len() as u64);
        header.set_cksum();
        tar.append(&header, *data).unwrap();
    }
    tar.into_inner().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut out = liblzma::write::XzEncoder::new(Vec::new(), 0);
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn ar(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = b"!<arch>\n".to_vec();
    for (name, data) in members {
        writeln!(
            out,
            "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`",
            0,
            0,
            0,
            100_644,
            data.len()
        )
        .unwrap();
        out.extend(*data);
        if data.len() % 2 == 1 {
            out.push(b'\n');
        }
    }
    out
}

fn deb(items: &[Item<'_>]) -> Vec<u8> {
    let control = xz(&tar_of(&[
        file("./control", CONTROL),
        file("./postinst", b"exit 1"),
    ]));
    ar(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar.xz", &control),
        ("data.tar.xz", &xz(&tar_of(items))),
    ])
}

fn into(dest: &Path, bytes: &[u8]) -> Result<DebControl, DebError> {
    unpack(bytes, dest, DebLimits::default())
}

/// The error of a package that must not be unpacked; nothing may appear beside the tree.
fn refused(items: &[Item<'_>]) -> DebError {
    let place = tempfile::tempdir().unwrap();
    let dest = place.path().join("root");
    fs::create_dir(&dest).unwrap();
    let error = into(&dest, &deb(items)).unwrap_err();
    let beside: Vec<_> = fs::read_dir(place.path()).unwrap().collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
    error
}

#[test]
fn a_package_becomes_a_tree() {
    let dest = tempfile::tempdir().unwrap();
    let long = format!("./usr/share/{}/{}", "d".repeat(90), "f".repeat(90));
    let bytes = deb(&[
        folder("./"),
        folder("./usr/"),
        Item(EntryType::Directory, "./var/tmp/", "", 0o1777, b""),
        Item(EntryType::Regular, "./usr/bin/su", "", 0o4755, b"program"),
        Item(EntryType::Regular, "./etc/shadow", "", 0o640, b"secret"),
        link("./usr/bin/sh", "dash"),
        link("./etc/absolute", "/usr/bin/su"),
        hard("./usr/bin/same", "./usr/bin/su"),
        file(&long, b"long"),
    ]);
    let control = into(dest.path(), &bytes).unwrap();
    assert_eq!(
        (control.package.as_str(), control.version.as_str()),
        ("demo", "1.0-1")
    );
    let at = |path: &str| dest.path().join(path);
    let mode = |path: &str| fs::symlink_metadata(at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode("usr/bin/su"), 0o755, "set-user-id is dropped");
    assert_eq!(mode("etc/shadow"), 0o640);
    assert_eq!(mode("var/tmp"), 0o1777);
    assert_eq!(fs::read_link(at("usr/bin/sh")).unwrap(), Path::new("dash"));
    assert_eq!(
        fs::read_link(at("etc/absolute")).unwrap(),
        Path::new("/usr/bin/su")
    );
    let inode = |path: &str| fs::metadata(at(path)).unwrap().ino();
    assert_eq!(inode("usr/bin/same"), inode("usr/bin/su"));
    assert_eq!(
        fs::metadata(at("etc/shadow")).unwrap().mtime(),
        1_700_000_000
    );
    assert_eq!(fs::read(dest.path().join(&long)).unwrap(), b"long");
    assert!(!at("postinst").exists());
}

#[test]
fn every_compression_is_read() {
    let data = tar_of(&[file("./a", b"a")]);
    let control = tar_of(&[file("control", CONTROL)]);
    let gz = |bytes: &[u8]| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).unwrap();
        out.finish().unwrap()
    };
    let zst = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    for (control_name, control, data_name, data) in [
        ("control.tar", control.clone(), "data.tar", data.clone()),
        ("control.tar.gz", gz(&control), "data.tar.gz", gz(&data)),
        ("control.tar.zst", zst(&control), "data.tar.zst", zst(&data)),
        ("control.tar.xz", xz(&control), "data.tar.xz", xz(&data)),
        ("control.tar/", control.clone(), "data.tar/", data.clone()),
    ] {
        let dest = tempfile::tempdir().unwrap();
        let bytes = ar(&[
            ("debian-binary", b"2.0\n"),
            ("_signature", b"odd"),
            (control_name, &control),
            (data_name, &data),
        ]);
        into(dest.path(), &bytes).unwrap();
        assert_eq!(
            fs::read(dest.path().join("a")).unwrap(),
            b"a",
            "{data_name}"
        );
    }
}

#[test]
fn links_are_followed_inside_the_tree() {
    let dest = tempfile::tempdir().unwrap();
    into(
        dest.path(),
        &deb(&[
            folder("./usr/lib/"),
            link("./lib", "usr/lib"),
            link("./absolute", "/usr/lib"),
            link("./up", "../../../../usr/lib"),
        ]),
    )
    .unwrap();
    // Packages that come later write through the links, and may ship the link's place as a folder.
    into(
        dest.path(),
        &deb(&[
            folder("./lib/"),
            folder("./lib/x86_64/"),
            file("./lib/x86_64/a", b"a"),
            file("./absolute/b", b"b"),
            file("./up/c", b"c"),
        ]),
    )
    .unwrap();
    for (path, data) in [("x86_64/a", b"a"), ("b", b"b"), ("c", b"c")] {
        assert_eq!(
            fs::read(dest.path().join("usr/lib").join(path)).unwrap(),
            data
        );
    }
    assert!(dest.path().join("lib").is_symlink());
}

#[test]
fn later_packages_replace_files() {
    let dest = tempfile::tempdir().unwrap();
    into(
        dest.path(),
        &deb(&[file("./a", b"one"), hard("./b", "./a"), folder("./d/")]),
    )
    .unwrap();
    into(
        dest.path(),
        &deb(&[file("./a", b"two"), link("./d", "/etc")]),
    )
    .unwrap();
    assert_eq!(fs::read(dest.path().join("a")).unwrap(), b"two");
    assert_eq!(fs::read(dest.path().join("b")).unwrap(), b"one");
    assert!(
        !dest.path().join("d").is_symlink(),
        "a folder is not replaced by a link"
    );
}

#[test]
fn links_that_lead_out_lead_back_in() {
    let place = tempfile::tempdir().unwrap();
    let dest = place.path().join("root");
    fs::create_dir(&dest).unwrap();
    let outside = place.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let target = outside.to_str().unwrap();
    into(
        &dest,
        &deb(&[
            link("./out", target),
            file("./out/a", b"a"),
            link("./up", "../outside"),
            file("./up/b", b"b"),
            link("./self", "/"),
            file("./self/c", b"c"),
            // A file through a link to a file replaces the link, not what it names.
            link("./passwd", "/etc/passwd"),
            file("./passwd", b"p"),
        ]),
    )
    .unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read(dest.join("outside/b")).unwrap(), b"b");
    assert_eq!(fs::read(dest.join("c")).unwrap(), b"c");
    assert!(dest.join(target.trim_start_matches('/')).join("a").exists());
    assert!(!dest.join("passwd").is_symlink());
}

#[test]
fn what_cannot_stay_inside_is_refused() {
    let cases: [(&str, Vec<Item<'_>>); 11] = [
        ("climbs", vec![file("./../x", b"x")]),
        ("climbs late", vec![file("./a/../../x", b"x")]),
        ("absolute", vec![file("/x", b"x")]),
        ("no name", vec![file("./", b"x")]),
        ("hard link out", vec![hard("./x", "../outside")]),
        ("hard link absolute", vec![hard("./x", "/etc/passwd")]),
        (
            "hard link to a link",
            vec![link("./l", "/etc/passwd"), hard("./x", "./l")],
        ),
        (
            "loop",
            vec![link("./a", "b"), link("./b", "a"), file("./a/x", b"x")],
        ),
        ("below a file", vec![file("./a", b""), file("./a/x", b"x")]),
        ("over a folder", vec![folder("./a/"), file("./a", b"x")]),
        ("empty link", vec![link("./a", "")]),
    ];
    for (what, items) in cases {
        let e = refused(&items);
        assert!(matches!(e, DebError::Entry { .. }), "{what}: {e:?}");
    }
    for kind in [
        EntryType::Char,
        EntryType::Block,
        EntryType::Fifo,
        EntryType::GNUSparse,
    ] {
        let e = refused(&[Item(kind, "./x", "", 0o644, b"")]);
        assert!(matches!(e, DebError::Entry { .. }), "{kind:?}: {e:?}");
    }
}

#[test]
fn broken_packages_are_refused() {
    let dest = tempfile::tempdir().unwrap();
    let whole = deb(&[file("./a", &[7; 5000])]);
    for cut in [0, 5, 30, 70, 100, whole.len() / 2, whole.len() - 20] {
        let e = into(dest.path(), &whole[..cut]).unwrap_err();
        assert!(matches!(e, DebError::Read { .. }), "{cut}: {e:?}");
    }
    let control = tar_of(&[file("control", CONTROL)]);
    let empty = tar_of(&[]);
    let version: (&str, &[u8]) = ("debian-binary", b"2.0\n");
    for members in [
        vec![("debian-binary", &b"3.0\n"[..])],
        vec![version, ("data.tar", &empty)],
        vec![version, ("control.tar", &empty), ("data.tar", &empty)],
        vec![
            version,
            ("control.tar", &control),
            ("data.tar.lzma", &empty),
        ],
    ] {
        let e = into(dest.path(), &ar(&members)).unwrap_err();
        assert!(matches!(e, DebError::Format { .. }), "{e:?}");
    }
    let mut wrong_sum = whole;
    let last = wrong_sum.len() - 30;
    wrong_sum[last] ^= 0xff;
    assert!(into(dest.path(), &wrong_sum).is_err());
}

#[test]
fn bombs_are_refused() {
    let dest = tempfile::tempdir().unwrap();
    let zeros = vec![0; 4 << 20];
    let limits = DebLimits {
        bytes: 1 << 20,
        entries: 10,
    };
    let many: Vec<String> = (0..20).map(|i| format!("./{i}")).collect();
    let many: Vec<Item<'_>> = many.iter().map(|name| file(name, b"")).collect();
    // A long name that would fill the memory counts like everything else.
    let long = [Item(
        EntryType::GNULongName,
        "././@LongLink",
        "",
        0o644,
        &zeros,
    )];
    for (items, unit) in [
        (&[file("./a", &zeros)][..], "bytes"),
        (&long, "bytes"),
        (&many, "entries"),
    ] {
        let e = unpack(deb(items).as_slice(), dest.path(), limits).unwrap_err();
        let DebError::TooLarge { unit: found, .. } = e else {
            panic!("{e:?}");
        };
        assert_eq!(found, unit);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn changed_packages_stay_inside(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let place = tempfile::tempdir().unwrap();
        let dest = place.path().join("root");
        fs::create_dir(&dest).unwrap();
        // Uncompressed, so that the changes reach the tar archives.
        let mut bytes = ar(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar", &tar_of(&[file("control", CONTROL)])),
            ("data.tar", &tar_of(&[folder("./a/"), link("./a/l", "../b"), file("./a/l/f", b"data"), hard("./h", "./b/f")])),
        ]);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = into(&dest, &bytes);
        prop_assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
}
