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
        let digest = Digest::of(archive);
        let done = unpack(archive, digest, digest, &self.tree(), LIMITS, &|_| ());
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
        .folder("./")
        .with_mode("etc/", b'5', 0o2500, b"")
        .with_mode("etc/secret", b'0', 0o4000, b"s")
        .with_mode("tmp", b'5', 0o1777, b"")
        .file("/bin/sh", "shell")
        .link("bin/bash", "/bin/sh")
        .hard("bin/ash", "bin/sh")
        .hard("bin/also", "/bin/bash")
        .entry(b"dev/null", b'3', b"", b"")
        .entry(b"run/pipe", b'6', b"", b"")
        .pax(&[
            ("path", b"odd/\x01\xffname"),
            ("SCHILY.xattr.security.capability", b"\x01\0"),
        ])
        .file("x", "odd")
        .file("large", &"0123456789abcdef".repeat(100_000))
        .done();
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
        .link("a", &out)
        .file("a/file", "inside")
        .folder("b/folder/")
        .link("b", &out)
        .link("up", "../../../../../..")
        .file("up/c", "c")
        .folder("a/folder/")
        .link("f", &format!("{out}/file"))
        .file("f", "f")
        .done();
    pen.unpack(&archive).unwrap();
    assert_eq!(
        (pen.text("c"), pen.text("f")),
        ("c".to_owned(), "f".to_owned())
    );
    for archive in [
        TarBuilder::default().file("../outside/file", "x"),
        TarBuilder::default().file("a/../../outside/file", "x"),
        TarBuilder::default().hard("x", "../outside/file"),
        TarBuilder::default().hard("x", &format!("{out}/file")),
        TarBuilder::default().link("l", &out).hard("x", "l/file"),
        TarBuilder::default().folder("d/").hard("x", "d"),
        TarBuilder::default()
            .link("loop", "loop")
            .file("loop/x", ""),
        TarBuilder::default().file("f", "").file("f/x", ""),
        TarBuilder::default().file("a/.wh...", ""),
        TarBuilder::default().file("a/.wh.", ""),
        TarBuilder::default().file(".wh..", ""),
        TarBuilder::default().file("../.wh.outside", ""),
        TarBuilder::default()
            .pax(&[("path", "d/".repeat(400).as_bytes())])
            .file("x", ""),
        TarBuilder::default().entry(b"x", b'V', b"", b""),
        TarBuilder::default().link("x", ""),
        TarBuilder::default().file("", "x"),
        TarBuilder::default()
            .pax(&[("path", b"x\0y")])
            .file("x", ""),
    ] {
        assert!(Pen::new().unpack(&archive.done()).is_err());
    }
}

#[test]
fn the_later_entry_counts() {
    let pen = Pen::new();
    let archive = TarBuilder::default()
        .file("a", "1")
        .file("a", "2")
        .folder("b/")
        .file("b/x", "")
        .file("b", "file")
        .file("c", "")
        .folder("c/")
        .link("d", "b")
        .folder("d/")
        .entry(b"gone", b'0', b"", b"x")
        .entry(b"gone", b'3', b"", b"")
        .done();
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
        .folder("etc/")
        .file("etc/.wh.passwd", "")
        .file("./etc/new/.wh..wh..opq", "")
        .file("/.wh.var", "")
        .file(".wh..wh.plnk/1.2", "aufs")
        .file(".wh..wh.aufs", "")
        .file("etc/passwd", "again")
        .done();
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
    let archive = TarBuilder::default().file("a", &"text".repeat(9000)).done();
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
            true => Digest::of(&blob),
            false => Digest::of(&archive),
        };
        let digest = Digest::of(&blob);
        let run = |blob: &[u8], digest, diff_id| {
            let pen = Pen::new();
            let told = Cell::new(0);
            let tell = |n| told.set(told.get() + n);
            let done = unpack(blob, digest, diff_id, &pen.tree(), LIMITS, &tell);
            done.map(|_| (pen.text("a").len(), told.get()))
        };
        assert_eq!(
            run(&blob, digest, diff_id).unwrap(),
            (36_000, blob.len() as u64)
        );
        let wrong = Digest::of(b"other");
        let blob_wrong = run(&blob, wrong, diff_id);
        assert!(matches!(blob_wrong, Err(UnpackError::Blob { .. })));
        let archive_wrong = run(&blob, digest, wrong);
        assert!(matches!(archive_wrong, Err(UnpackError::Archive { .. })));
        for cut in [1, 3, 300, blob.len() - 1] {
            let short = &blob[..cut.min(blob.len() - 1)];
            assert!(run(short, Digest::of(short), diff_id).is_err(), "{cut}");
        }
    }
}

#[test]
fn bombs_are_refused() {
    let zeros = TarBuilder::default()
        .file("a", &"\0".repeat(8 << 20))
        .done();
    let packed = gzip(&zeros);
    let bomb = unpack(
        &packed[..],
        Digest::of(&packed),
        Digest::of(&zeros),
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
    let said = TarBuilder::default().raw(TarBuilder::header(b"a", b'0', b"", 1 << 32), b"");
    let said = pen.unpack(&said.done());
    assert!(
        matches!(said, Err(UnpackError::TooLarge { .. })),
        "{said:?}"
    );
    let holes = TarBuilder::default()
        .pax(&[
            ("GNU.sparse.map", b"0,1"),
            ("GNU.sparse.size", b"99999999999"),
        ])
        .file("a", "x");
    let holes = pen.unpack(&holes.done());
    assert!(
        matches!(holes, Err(UnpackError::TooLarge { .. })),
        "{holes:?}"
    );
    let many = (0..1200).fold(TarBuilder::default(), |made, n| {
        made.link(&format!("l{n}"), "x")
    });
    assert!(matches!(pen.unpack(&many.done()), Err(UnpackError::Tar(_))));
    let error = pen
        .unpack(b"not an archive at all, but long enough to be one; no")
        .unwrap_err();
    let error = crate::unpack::TreesError::Layer {
        layer: Digest::of(b""),
        source: error,
    };
    assert_eq!(error.exit_code(), sconce_schema::exit::VERIFY);
    assert!(error.hint().is_some());
}
