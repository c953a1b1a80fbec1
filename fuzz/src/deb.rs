//! Debian packages: `ar`, `tar`, `control`, and links that try to lead out of the tree.

use std::os::unix::fs::PermissionsExt as _;

use arbitrary::Unstructured;
use sconce_schema::Hint as _;
use sconce_store::deb::{DebLimits, unpack};

use crate::bytes::{flag, noise, pick, some_bytes};
use crate::scratch::{Pen, walk};

const LIMITS: DebLimits = DebLimits {
    bytes: 1 << 20,
    entries: 100,
};

/// Any bytes.
pub(crate) fn raw(data: &[u8]) {
    unpack_all(&Pen::new(), &[data.to_vec()]);
}

pub(crate) fn raw_seeds() -> Vec<Vec<u8>> {
    let mut data = Vec::new();
    tar_entry(&mut data, b"./usr/", b"", b'5', 0o755, b"");
    tar_entry(&mut data, b"./usr/a", b"", b'0', 0o4755, b"text");
    tar_entry(&mut data, b"./usr/l", b"a", b'2', 0o777, b"");
    tar_entry(&mut data, b"./usr/h", b"./usr/a", b'1', 0o644, b"");
    let mut long = Vec::new();
    tar_entry(
        &mut long,
        b"././@LongLink",
        b"",
        b'L',
        0o644,
        b"usr/long-name\0",
    );
    tar_entry(&mut long, b"x", b"", b'0', 0o644, b"y");
    vec![package(&data), package(&long)]
}

/// One to three sound packages of odd entries, unpacked over each other.
pub(crate) fn entries(data: &[u8]) {
    let pen = Pen::new();
    let mut from = Unstructured::new(data);
    let mut packages = Vec::new();
    while !from.is_empty() && packages.len() < 3 {
        let mut archive = Vec::new();
        for _ in 0..from.int_in_range(1..=8).unwrap_or(1) {
            let (name, link) = (path(&mut from, &pen), path(&mut from, &pen));
            let kind = pick(&mut from, b"0001122225557LKxgS3");
            let mode = pick(&mut from, &[0o644, 0o755, 0o6755, 0o1777, 0, 0o40000]);
            let long = flag(&mut from);
            if long && name.len() > 60 {
                tar_entry(&mut archive, b"././@LongLink", b"", b'L', 0o644, &name);
            }
            tar_entry(
                &mut archive,
                &name,
                &link,
                kind,
                mode,
                some_bytes(&mut from, 40),
            );
        }
        packages.push(package(&archive));
    }
    unpack_all(&pen, &packages);
}

pub(crate) fn entry_seeds() -> Vec<Vec<u8>> {
    noise()
}

/// A path that may climb, or name the file outside.
pub(crate) fn path(from: &mut Unstructured<'_>, pen: &Pen) -> Vec<u8> {
    const PARTS: [&str; 9] = [
        "a",
        "b",
        "c",
        "..",
        ".",
        "",
        "usr",
        "lib",
        "../../outside/file",
    ];
    if let Ok(true) = from.ratio(1, 12) {
        return pen.outside.to_string_lossy().into_owned().into_bytes();
    }
    if let Ok(true) = from.ratio(1, 20) {
        return some_bytes(from, 30).to_vec();
    }
    let mut parts = Vec::new();
    for _ in 0..from.int_in_range(1..=4).unwrap_or(1) {
        parts.push(pick(from, &PARTS));
    }
    let root = if flag(from) { "/" } else { "" };
    format!("{root}{}", parts.join("/")).into_bytes()
}

pub(crate) fn tar_entry(
    out: &mut Vec<u8>,
    name: &[u8],
    link: &[u8],
    kind: u8,
    mode: u32,
    data: &[u8],
) {
    let mut header = tar::Header::new_gnu();
    let gnu = header.as_gnu_mut().expect("it was made as one");
    for (field, text) in [(&mut gnu.name, name), (&mut gnu.linkname, link)] {
        let length = text.len().min(field.len());
        field[..length].copy_from_slice(&text[..length]);
    }
    gnu.typeflag = [kind];
    header.set_mode(mode);
    header.set_mtime(1);
    header.set_size(data.len() as u64);
    header.set_cksum();
    out.extend(header.as_bytes());
    out.extend(data);
    out.resize(out.len().next_multiple_of(512), 0);
}

/// A package with `data` as its uncompressed tree (deb(5)).
fn package(data: &[u8]) -> Vec<u8> {
    let mut control = Vec::new();
    let text = b"Package: demo\nVersion: 1.0\nArchitecture: all\n";
    tar_entry(&mut control, b"./control", b"", b'0', 0o644, text);
    tar_entry(&mut control, b"./conffiles", b"", b'0', 0o644, b"/etc/a\n");
    let mut out = b"!<arch>\n".to_vec();
    let archive = [data, &[0; 1024]].concat();
    control.extend([0; 1024]);
    for (name, bytes) in [
        ("debian-binary", &b"2.0\n"[..]),
        ("control.tar", &control),
        ("data.tar", &archive),
    ] {
        let length = bytes.len();
        out.extend(
            format!(
                "{name:<16}{:<12}{:<6}{:<6}{:<8}{length:<10}`\n",
                0, 0, 0, 100_644
            )
            .bytes(),
        );
        out.extend(bytes);
    }
    out
}

fn unpack_all(pen: &Pen, packages: &[Vec<u8>]) {
    for bytes in packages {
        match unpack(&bytes[..], &pen.tree, LIMITS) {
            Ok(control) => {
                assert!(!control.package.is_empty() && !control.version.is_empty());
                assert!(control.conffiles.iter().all(|path| path.starts_with('/')));
            }
            Err(error) => drop((error.to_string(), error.hint())),
        }
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
