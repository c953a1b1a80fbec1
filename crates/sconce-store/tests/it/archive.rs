//! Wheels and zip archives made byte by byte, so that every field can be wrong.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use sconce_schema::Sha256;
use sconce_schema::lock::Wheel;
use sha2::Digest as _;

/// One entry, and how it lies about itself.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) stored: bool,
    pub(crate) sizes_behind: bool,
    pub(crate) mode: u32,
    pub(crate) listed_name: Option<String>,
    pub(crate) listed_size: Option<u32>,
    pub(crate) listed_crc: Option<u32>,
    pub(crate) told_size: Option<u32>,
    pub(crate) unlisted: bool,
}

pub(crate) fn entry(name: &str, data: &[u8]) -> Entry {
    Entry {
        name: name.to_owned(),
        data: data.to_vec(),
        stored: false,
        sizes_behind: false,
        mode: 0o100_644,
        listed_name: None,
        listed_size: None,
        listed_crc: None,
        told_size: None,
        unlisted: false,
    }
}

fn u16s(out: &mut Vec<u8>, values: &[u16]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values.iter().for_each(|v| out.extend(v.to_le_bytes()));
}

/// The archive of `entries`.
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    zip_with(entries, |_| {})
}

/// As [`zip`], with something done to the bytes between the last entry and the directory.
pub(crate) fn zip_with(entries: &[Entry], before_directory: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    let mut listed = 0;
    for e in entries {
        let offset = out.len() as u32;
        let mut packed = e.data.clone();
        if !e.stored {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&e.data).unwrap();
            packed = encoder.finish().unwrap();
        }
        let crc = crc32fast::hash(&e.data);
        let size = e.data.len() as u32;
        let flags = if e.sizes_behind { 8 } else { 0 };
        let method = if e.stored { 0 } else { 8 };
        let told = if e.sizes_behind {
            [0, 0, 0]
        } else {
            [crc, packed.len() as u32, e.told_size.unwrap_or(size)]
        };
        u32s(&mut out, &[0x0403_4b50]);
        u16s(&mut out, &[20, flags, method, 0, 33]);
        u32s(&mut out, &told);
        u16s(&mut out, &[e.name.len() as u16, 0]);
        out.extend(e.name.as_bytes());
        out.extend(&packed);
        if e.sizes_behind {
            u32s(&mut out, &[0x0807_4b50, crc, packed.len() as u32, size]);
        }
        if e.unlisted {
            continue;
        }
        listed += 1;
        let name = e.listed_name.as_ref().unwrap_or(&e.name);
        u32s(&mut directory, &[0x0201_4b50]);
        u16s(&mut directory, &[0x0314, 20, flags, method, 0, 33]);
        u32s(
            &mut directory,
            &[
                e.listed_crc.unwrap_or(crc),
                packed.len() as u32,
                e.listed_size.or(e.told_size).unwrap_or(size),
            ],
        );
        u16s(&mut directory, &[name.len() as u16, 0, 0, 0, 0]);
        u32s(&mut directory, &[e.mode << 16, offset]);
        directory.extend(name.as_bytes());
    }
    before_directory(&mut out);
    let start = out.len() as u32;
    out.extend(&directory);
    u32s(&mut out, &[0x0605_4b50]);
    u16s(&mut out, &[0, 0, listed, listed]);
    u32s(&mut out, &[directory.len() as u32, start]);
    u16s(&mut out, &[0]);
    out
}

/// The entries of a small, complete wheel `demo` 1.0.
pub(crate) fn demo() -> Vec<Entry> {
    let mut program = entry("demo/bin/program", b"\x7fELF");
    program.mode = 0o100_755;
    vec![
        entry("demo/__init__.py", b"value = 1\n"),
        program,
        entry("demo-1.0.data/scripts/tool", b"#!python\nprint('tool')\n"),
        entry("demo-1.0.data/data/share/demo.txt", b"shared\n"),
        entry("demo-1.0.data/headers/demo.h", b"#pragma once\n"),
        entry("demo-1.0.data/platlib/demo/extra.py", b"extra = 1\n"),
        entry(
            "demo-1.0.dist-info/METADATA",
            b"Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n",
        ),
        entry(
            "demo-1.0.dist-info/WHEEL",
            b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        ),
        entry(
            "demo-1.0.dist-info/entry_points.txt",
            b"[console_scripts]\ndemo = demo.main:run\n",
        ),
        entry("demo-1.0.dist-info/direct_url.json", b"{}"),
        entry(
            "demo-1.0.dist-info/RECORD",
            // The digest of `value = 1\n`, and a wrong size for another, which must not be believed.
            b"demo/__init__.py,sha256=WFyTZm_LBGt7Jk0_pzICqio4JUroKks7oZ6HPC1amIY,10\n\
              demo/bin/program,sha256=WFyTZm_LBGt7Jk0_pzICqio4JUroKks7oZ6HPC1amIY,99\n\
              demo-1.0.dist-info/RECORD,,\n",
        ),
    ]
}

/// [`demo`] with more entries before its metadata.
pub(crate) fn demo_with(more: Vec<Entry>) -> Vec<u8> {
    let mut all = more;
    all.extend(demo());
    zip(&all)
}

pub(crate) fn sha256(bytes: &[u8]) -> Sha256 {
    Sha256(sha2::Sha256::digest(bytes).into())
}

/// The lock's entry for a wheel with these bytes under `url`.
pub(crate) fn locked(url: &str, bytes: &[u8]) -> Wheel {
    Wheel {
        name: "demo".to_owned(),
        version: "1.0".to_owned(),
        file: "demo-1.0-py3-none-any.whl".to_owned(),
        url: url.to_owned(),
        size: Some(bytes.len() as u64),
        sha256: sha256(bytes),
        build: None,
    }
}
