//! Zip archives of given entries, so that checksums and offsets, which a fuzzer cannot guess, are
//! right and what lies behind them is reached.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// One entry.
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) deflated: bool,
    /// Sizes and checksum come behind the data.
    pub(crate) sizes_behind: bool,
    pub(crate) mode: u32,
}

/// An entry that is stored.
pub(crate) fn entry(name: &str, data: &[u8]) -> Entry {
    Entry {
        name: name.to_owned(),
        data: data.to_vec(),
        deflated: false,
        sizes_behind: false,
        mode: 0o100_644,
    }
}

fn u16s(out: &mut Vec<u8>, values: &[u16]) {
    values
        .iter()
        .for_each(|value| out.extend(value.to_le_bytes()));
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values
        .iter()
        .for_each(|value| out.extend(value.to_le_bytes()));
}

/// The archive (APPNOTE.TXT, sections 4.3.7, 4.3.9, 4.3.12 and 4.3.16).
pub(crate) fn zip(entries: &[Entry]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = out.len() as u32;
        let packed = if entry.deflated {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&entry.data).expect("memory takes all");
            encoder.finish().expect("memory takes all")
        } else {
            entry.data.clone()
        };
        let sizes = [
            crc32fast::hash(&entry.data),
            packed.len() as u32,
            entry.data.len() as u32,
        ];
        let flags =
            (u16::from(entry.sizes_behind) << 3) | (u16::from(!entry.name.is_ascii()) << 11);
        let method = if entry.deflated { 8 } else { 0 };
        u32s(&mut out, &[0x0403_4b50]);
        u16s(&mut out, &[20, flags, method, 0, 33]);
        u32s(&mut out, if entry.sizes_behind { &[0; 3] } else { &sizes });
        u16s(&mut out, &[entry.name.len() as u16, 0]);
        out.extend(entry.name.as_bytes());
        out.extend(&packed);
        if entry.sizes_behind {
            u32s(&mut out, &[0x0807_4b50]);
            u32s(&mut out, &sizes);
        }
        u32s(&mut directory, &[0x0201_4b50]);
        u16s(&mut directory, &[0x0314, 20, flags, method, 0, 33]);
        u32s(&mut directory, &sizes);
        u16s(&mut directory, &[entry.name.len() as u16, 0, 0, 0, 0]);
        u32s(&mut directory, &[entry.mode << 16, offset]);
        directory.extend(entry.name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    let count = entries.len() as u16;
    u32s(&mut out, &[0x0605_4b50]);
    u16s(&mut out, &[0, 0, count, count]);
    u32s(&mut out, &[directory.len() as u32, start]);
    u16s(&mut out, &[0]);
    out
}
