//! Standalone Pythons: the tables that say where they are, and their archives.

use std::os::unix::fs::PermissionsExt as _;

use arbitrary::Unstructured;
use flate2::Compression;
use flate2::write::GzEncoder;
use sconce_formats::tags::CpuArchitecture;
use sconce_resolve::python::downloads::{PythonDownloads, TableOrigin};
use sconce_schema::Hint as _;
use sconce_store::standalone_python::unpack_archive;
use std::io::Write as _;

use crate::bytes::{flag, noise, pick, some_bytes};
use crate::deb::{path, tar_entry};
use crate::scratch::{Pen, folder, walk};

/// Any bytes as a table of uv's or of pbs-installer's.
pub(crate) fn table(data: &[u8]) {
    for is_local in [false, true] {
        let origin = TableOrigin {
            mirror: is_local.then_some("https://mirror.example.org/x"),
            is_local,
        };
        let Ok(table) = PythonDownloads::parse(data, CpuArchitecture::X86_64, &origin) else {
            continue;
        };
        let versions = table.list_versions();
        assert!(!versions.is_empty());
        for minor in 0..=20 {
            let Some(python) = table.newest(minor) else {
                continue;
            };
            assert!(python.version.starts_with(&format!("3.{minor}.")));
            assert!(!python.file.is_empty() && !python.file.contains(['/', '\0']));
            assert!(
                !python
                    .url
                    .contains(|c: char| c.is_whitespace() || c.is_control()),
                "{}",
                python.url
            );
            let schemes: &[&str] = match is_local {
                true => &["https://", "http://", "file:"],
                false => &["https://", "http://"],
            };
            assert!(schemes.iter().any(|scheme| python.url.starts_with(scheme)));
            assert_eq!(
                table.find(&python.sha256).map(|found| &found.sha256),
                Some(&python.sha256)
            );
        }
    }
}

pub(crate) fn table_seeds() -> Vec<Vec<u8>> {
    let digest = "0a06".repeat(16);
    let file = "cpython-3.10.13%2B20240107-x86_64-unknown-linux-gnu-install_only.tar.gz";
    let url = format!("https://host.example.org/x/releases/download/20240107/{file}");
    vec![
        format!(
            r#"{{"a": {{"name": "cpython", "arch": {{"family": "x86_64", "variant": null}}, "os": "linux", "libc": "gnu", "major": 3, "minor": 10, "patch": 13, "prerelease": "", "url": "{url}", "sha256": "{digest}", "variant": null}}}}"#
        )
        .into_bytes(),
        format!(
            r#"[{{"python_version": {{"implementation": "cpython", "major": 3, "minor": 10, "micro": 13, "freethreaded": false}}, "files": [{{"platform": "linux", "arch": "x86_64", "install_only": true, "url": "{url}", "sha256": "{digest}"}}]}}]"#
        )
        .into_bytes(),
    ]
}

/// A sound archive of odd entries, most of them below the folder that an archive has.
pub(crate) fn archive(data: &[u8]) {
    let pen = Pen::new();
    let mut from = Unstructured::new(data);
    let mut tar = Vec::new();
    for _ in 0..from.int_in_range(1..=10).unwrap_or(1) {
        let (mut name, mut link) = (path(&mut from, &pen), path(&mut from, &pen));
        for one in [&mut name, &mut link] {
            if flag(&mut from) {
                *one = [b"python/", one.as_slice()].concat();
            }
        }
        let kind = pick(&mut from, b"0001122225557LKxgS3");
        let mode = pick(&mut from, &[0o644, 0o755, 0o6755, 0o1777, 0]);
        tar_entry(
            &mut tar,
            &name,
            &link,
            kind,
            mode,
            some_bytes(&mut from, 40),
        );
    }
    tar.extend([0; 1024]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&tar).expect("memory takes it");
    unpack_bytes(&pen, &packed.finish().expect("memory takes it"));
}

pub(crate) fn archive_seeds() -> Vec<Vec<u8>> {
    noise()
}

/// Any bytes as an archive.
pub(crate) fn raw(data: &[u8]) {
    unpack_bytes(&Pen::new(), data);
}

pub(crate) fn raw_seeds() -> Vec<Vec<u8>> {
    let mut tar = Vec::new();
    tar_entry(&mut tar, b"python/", b"", b'5', 0o755, b"");
    tar_entry(
        &mut tar,
        b"python/bin/python3.10",
        b"",
        b'0',
        0o4755,
        b"text",
    );
    tar_entry(
        &mut tar,
        b"python/bin/python3",
        b"python3.10",
        b'2',
        0o777,
        b"",
    );
    tar_entry(
        &mut tar,
        b"python/lib/a",
        b"python/bin/python3.10",
        b'1',
        0o644,
        b"",
    );
    tar.extend([0; 1024]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&tar).expect("memory takes it");
    vec![packed.finish().expect("memory takes it")]
}

fn unpack_bytes(pen: &Pen, bytes: &[u8]) {
    let file = folder().join("archive.tar.gz");
    std::fs::write(&file, bytes).expect("a file can be written");
    let unpacked = unpack_archive(&file, &pen.tree, "/opt/python/3.10");
    std::fs::remove_file(&file).expect("it was written above");
    if let Err(error) = unpacked {
        drop((error.to_string(), error.hint()));
    }
    pen.assert_closed();
    walk(&pen.tree, &mut |path, meta| {
        let kind = meta.file_type();
        assert!(
            kind.is_file() || kind.is_dir() || kind.is_symlink(),
            "{}",
            path.display()
        );
        let special = meta.permissions().mode() & 0o6000;
        assert!(
            kind.is_symlink() || special == 0,
            "{special:o} {}",
            path.display()
        );
    });
}
