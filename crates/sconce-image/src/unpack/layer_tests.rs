use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;

use super::super::testing::TarBuilder;
use super::*;
use sconce_schema::Hint as _;

const LIMITS: UnpackLimits = UnpackLimits {
    bytes: 4 << 20,
    entries: 1000,
};

/// A folder `tree` beside one that nobody may reach.
struct Pen(tempfile::TempDir);

impl Pen {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tree")).unwrap();
        fs::create_dir_all(folder.path().join("outside/folder")).unwrap();
        fs::write(folder.path().join("outside/file"), "kept").unwrap();
        let pen = Self(folder);
        for name in ["folder", "file"] {
            set_modified(&pen.outside().join(name), 7).unwrap();
        }
        pen
    }

    fn tree(&self) -> PathBuf {
        self.0.path().join("tree")
    }

    fn outside(&self) -> PathBuf {
        self.0.path().join("outside")
    }

    fn unpack(&self, archive: &[u8]) -> Result<UnpackedLayer, UnpackError> {
        let digest = Digest::hash_bytes(archive);
        let done = unpack_layer(archive, digest, digest, &self.tree(), LIMITS, &|_| ());
        let outside = self.outside();
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 2);
        assert_eq!(fs::read_dir(outside.join("folder")).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
        for name in ["folder", "file"] {
            let meta = outside.join(name).metadata().unwrap();
            assert_eq!(
                (meta.mtime(), meta.nlink()),
                (7, 1 + u64::from(meta.is_dir()))
            );
        }
        done
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.tree().join(name)).unwrap()
    }

    fn mode(&self, name: &str) -> u32 {
        let meta = self.tree().join(name).symlink_metadata();
        meta.unwrap().mode() & 0o7777
    }
}

#[test]
fn a_layer_becomes_a_tree() {
    let pen = Pen::new();
    let archive = TarBuilder::default()
        .with_dir("./")
        .with_mode("etc/", b'5', 0o2500, b"")
        .with_mode("etc/secret", b'0', 0o4000, b"s")
        .with_mode("tmp", b'5', 0o1777, b"")
        .with_file("/bin/sh", "shell")
        .with_symlink("bin/bash", "/bin/sh")
        .with_hard_link("bin/ash", "bin/sh")
        .with_hard_link("bin/also", "/bin/bash")
        .with_entry(b"dev/null", b'3', b"", b"")
        .with_entry(b"run/pipe", b'6', b"", b"")
        .with_pax_header(&[
            ("path", b"odd/\x01\xffname"),
            ("SCHILY.xattr.security.capability", b"\x01\0"),
        ])
        .with_file("x", "odd")
        .with_file("large", &"0123456789abcdef".repeat(100_000))
        .into_bytes();
    let done = pen.unpack(&archive).unwrap();
    assert_eq!((done.entries, done.skipped), (10, 2));
    let skipped = ["dev/null", "run/pipe"].map(|name| name.as_bytes().to_vec());
    assert_eq!(done.hides.names, skipped.into());
    assert!(done.hides.folders.is_empty());
    assert_eq!(pen.text("bin/sh"), "shell");
    let inode = |name: &str| pen.tree().join(name).symlink_metadata().unwrap().ino();
    assert_eq!(inode("bin/sh"), inode("bin/ash"));
    assert_eq!(inode("bin/bash"), inode("bin/also"));
    assert_eq!(
        ["etc", "etc/secret", "tmp", "bin/sh"].map(|name| pen.mode(name)),
        [0o700, 0o400, 0o1777, 0o644]
    );
    assert_eq!(fs::read_dir(pen.tree().join("odd")).unwrap().count(), 1);
    assert_eq!(pen.text("large").len(), 1_600_000);
    assert!(!pen.tree().join("dev/null").exists() && !pen.tree().join("run/pipe").exists());
    for name in ["etc", "bin/sh", "bin/bash", "large"] {
        let meta = pen.tree().join(name).symlink_metadata().unwrap();
        assert_eq!(meta.mtime(), 100, "{name}");
    }
}

#[test]
fn what_leads_out_stays_inside_or_is_refused() {
    let pen = Pen::new();
    let out = pen.outside().to_str().unwrap().to_owned();
    let archive = TarBuilder::default()
        .with_symlink("a", &out)
        .with_file("a/file", "inside")
        .with_dir("b/folder/")
        .with_symlink("b", &out)
        .with_symlink("up", "../../../../../..")
        .with_file("up/c", "c")
        .with_dir("a/folder/")
        .with_symlink("f", &format!("{out}/file"))
        .with_file("f", "f")
        .into_bytes();
    pen.unpack(&archive).unwrap();
    assert_eq!(
        (pen.text("c"), pen.text("f")),
        ("c".to_owned(), "f".to_owned())
    );
    for archive in [
        TarBuilder::default().with_file("../outside/file", "x"),
        TarBuilder::default().with_file("a/../../outside/file", "x"),
        TarBuilder::default().with_hard_link("x", "../outside/file"),
        TarBuilder::default().with_hard_link("x", &format!("{out}/file")),
        TarBuilder::default()
            .with_symlink("l", &out)
            .with_hard_link("x", "l/file"),
        TarBuilder::default()
            .with_dir("d/")
            .with_hard_link("x", "d"),
        TarBuilder::default()
            .with_symlink("loop", "loop")
            .with_file("loop/x", ""),
        TarBuilder::default()
            .with_file("f", "")
            .with_file("f/x", ""),
        TarBuilder::default().with_file("a/.wh...", ""),
        TarBuilder::default().with_file("a/.wh.", ""),
        TarBuilder::default().with_file(".wh..", ""),
        TarBuilder::default().with_file("../.wh.outside", ""),
        TarBuilder::default()
            .with_pax_header(&[("path", "d/".repeat(400).as_bytes())])
            .with_file("x", ""),
        TarBuilder::default().with_entry(b"x", b'V', b"", b""),
        TarBuilder::default().with_symlink("x", ""),
        TarBuilder::default().with_file("", "x"),
        TarBuilder::default()
            .with_pax_header(&[("path", b"x\0y")])
            .with_file("x", ""),
    ] {
        assert!(Pen::new().unpack(&archive.into_bytes()).is_err());
    }
}

#[test]
fn the_later_entry_counts() {
    let pen = Pen::new();
    let archive = TarBuilder::default()
        .with_file("a", "1")
        .with_file("a", "2")
        .with_dir("b/")
        .with_file("b/x", "")
        .with_file("b", "file")
        .with_file("c", "")
        .with_dir("c/")
        .with_symlink("d", "b")
        .with_dir("d/")
        .with_entry(b"gone", b'0', b"", b"x")
        .with_entry(b"gone", b'3', b"", b"")
        .into_bytes();
    let done = pen.unpack(&archive).unwrap();
    assert_eq!(
        (pen.text("a"), pen.text("b")),
        ("2".to_owned(), "file".to_owned())
    );
    // What a folder took the place of in the layer itself hid what is below; a device hides it too.
    let names = ["c", "d", "gone"].map(|name| name.as_bytes().to_vec());
    assert_eq!(done.hides.names, names.into());
    assert!(pen.tree().join("c").is_dir());
    assert!(pen.tree().join("d").symlink_metadata().unwrap().is_dir());
    assert!(!pen.tree().join("gone").exists());
}

#[test]
fn whiteouts_are_noted_and_not_made() {
    let pen = Pen::new();
    let archive = TarBuilder::default()
        .with_dir("etc/")
        .with_file("etc/.wh.passwd", "")
        .with_file("./etc/new/.wh..wh..opq", "")
        .with_file("/.wh.var", "")
        .with_file(".wh..wh.plnk/1.2", "aufs")
        .with_file(".wh..wh.aufs", "")
        .with_file("etc/passwd", "again")
        .into_bytes();
    let done = pen.unpack(&archive).unwrap();
    let paths = |list: &[&str]| list.iter().map(|p| p.as_bytes().to_vec()).collect();
    let hides = LayerWhiteouts {
        names: paths(&["etc/passwd", "var"]),
        folders: paths(&["etc/new"]),
    };
    assert_eq!(done.hides, hides);
    assert_eq!(LayerWhiteouts::parse(&hides.to_bytes()), Some(hides));
    assert_eq!(pen.text("etc/passwd"), "again");
    // A folder that only hides something would cover the mode of the one below.
    assert!(!pen.tree().join("etc/new").exists());
    for wrong in [&b"-a"[..], b"?a\0", b"\0"] {
        assert_eq!(LayerWhiteouts::parse(wrong), None);
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn every_compression_is_read_and_both_digests_are_checked() {
    let archive = TarBuilder::default()
        .with_file("a", &"text".repeat(9000))
        .into_bytes();
    let (one, two) = archive.split_at(700);
    let skippable = [&b"\x50\x2a\x4d\x18\x02\0\0\0xy"[..]];
    let frames = |parts: &[&[u8]]| {
        let frame = |part: &&[u8]| zstd::encode_all(*part, 1).unwrap();
        parts.iter().map(frame).collect::<Vec<_>>().concat()
    };
    for blob in [
        archive.clone(),
        gzip(&archive),
        [gzip(one), gzip(two)].concat(),
        frames(&[&archive]),
        frames(&[one, two]),
        [&skippable.concat()[..], &frames(&[&archive])].concat(),
        // What comes after the end of an archive is hashed, and says nothing.
        [&archive[..], &[0; 10_240]].concat(),
    ] {
        let diff_id = match blob.starts_with(&archive) {
            true => Digest::hash_bytes(&blob),
            false => Digest::hash_bytes(&archive),
        };
        let digest = Digest::hash_bytes(&blob);
        let run = |blob: &[u8], digest, diff_id| {
            let pen = Pen::new();
            let told = Cell::new(0);
            let tell = |n| told.set(told.get() + n);
            let done = unpack_layer(blob, digest, diff_id, &pen.tree(), LIMITS, &tell);
            done.map(|_| (pen.text("a").len(), told.get()))
        };
        assert_eq!(
            run(&blob, digest, diff_id).unwrap(),
            (36_000, blob.len() as u64)
        );
        let wrong = Digest::hash_bytes(b"other");
        let blob_wrong = run(&blob, wrong, diff_id);
        assert!(matches!(blob_wrong, Err(UnpackError::Blob { .. })));
        let archive_wrong = run(&blob, digest, wrong);
        assert!(matches!(archive_wrong, Err(UnpackError::Archive { .. })));
        for cut in [1, 3, 300, blob.len() - 1] {
            let short = &blob[..cut.min(blob.len() - 1)];
            assert!(
                run(short, Digest::hash_bytes(short), diff_id).is_err(),
                "{cut}"
            );
        }
    }
}

#[test]
fn bombs_are_refused() {
    let zeros = TarBuilder::default()
        .with_file("a", &"\0".repeat(8 << 20))
        .into_bytes();
    let packed = gzip(&zeros);
    let bomb = unpack_layer(
        &packed[..],
        Digest::hash_bytes(&packed),
        Digest::hash_bytes(&zeros),
        &Pen::new().tree(),
        LIMITS,
        &|_| (),
    );
    assert!(
        matches!(bomb, Err(UnpackError::TooLarge { .. })),
        "{bomb:?}"
    );
    // A size that is only said, and one that is only holes.
    let pen = Pen::new();
    let said = TarBuilder::default()
        .with_raw_entry(TarBuilder::build_header(b"a", b'0', b"", 1 << 32), b"");
    let said = pen.unpack(&said.into_bytes());
    assert!(
        matches!(said, Err(UnpackError::TooLarge { .. })),
        "{said:?}"
    );
    let holes = TarBuilder::default()
        .with_pax_header(&[
            ("GNU.sparse.map", b"0,1"),
            ("GNU.sparse.size", b"99999999999"),
        ])
        .with_file("a", "x");
    let holes = pen.unpack(&holes.into_bytes());
    assert!(
        matches!(holes, Err(UnpackError::TooLarge { .. })),
        "{holes:?}"
    );
    let many = (0..1200).fold(TarBuilder::default(), |made, n| {
        made.with_symlink(&format!("l{n}"), "x")
    });
    assert!(matches!(
        pen.unpack(&many.into_bytes()),
        Err(UnpackError::Tar(_))
    ));
    let error = pen
        .unpack(b"not an archive at all, but long enough to be one; no")
        .unwrap_err();
    let error = crate::unpack::TreesError::Layer {
        layer: Digest::hash_bytes(b""),
        source: error,
    };
    assert_eq!(error.exit_code(), sconce_schema::exit::VERIFY);
    assert!(error.hint().is_some());
}
