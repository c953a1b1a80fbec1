//! Layers of images: tar in all its forms, whiteouts, and links that try to lead out of the tree.

use std::os::unix::fs::PermissionsExt as _;

use arbitrary::Unstructured;
use sconce_image::unpack::{UnpackLimits, UnpackedLayer, unpack_layer};
use sconce_oci::Digest;

use crate::bytes::{flag, noise, pick, some_bytes};
use crate::deb::{path, tar_entry};
use crate::scratch::{Pen, walk};

const LIMITS: UnpackLimits = UnpackLimits {
    bytes: 1 << 20,
    entries: 100,
};

/// Any bytes.
pub(crate) fn raw(data: &[u8]) {
    unpack_into(&Pen::new(), data);
}

pub(crate) fn raw_seeds() -> Vec<Vec<u8>> {
    let mut plain = Vec::new();
    tar_entry(&mut plain, b"./usr/", b"", b'5', 0o755, b"");
    tar_entry(&mut plain, b"usr/a", b"", b'0', 0o4755, b"text");
    tar_entry(&mut plain, b"usr/l", b"a", b'2', 0o777, b"");
    tar_entry(&mut plain, b"usr/h", b"usr/a", b'1', 0o644, b"");
    tar_entry(&mut plain, b"usr/.wh.b", b"", b'0', 0o644, b"");
    tar_entry(&mut plain, b"c/.wh..wh..opq", b"", b'0', 0o644, b"");
    let mut pax = Vec::new();
    let records = b"17 path=long/name\n9 size=4\n13 mtime=1.5\n";
    tar_entry(&mut pax, b"pax", b"", b'x', 0o644, records);
    tar_entry(&mut pax, b"x", b"", b'0', 0o644, b"data");
    let mut sparse = Vec::new();
    let records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n26 GNU.sparse.realsize=99\n";
    tar_entry(&mut sparse, b"pax", b"", b'x', 0o644, records);
    let map = [&b"1\n5\n4\n"[..], &[0; 506], b"data"].concat();
    tar_entry(&mut sparse, b"y", b"", b'0', 0o644, &map);
    let mut old = Vec::new();
    tar_entry(&mut old, b"z", b"", b'S', 0o644, b"");
    vec![plain, pax, sparse, old]
}

/// A sound archive of odd entries.
pub(crate) fn entries(data: &[u8]) {
    const NAMES: [&[u8]; 6] = [
        b".wh.a",
        b"a/.wh.b",
        b"a/.wh..wh..opq",
        b".wh...",
        b"b/.wh..wh.plnk",
        b"../.wh.outside",
    ];
    let pen = Pen::new();
    let mut from = Unstructured::new(data);
    let mut archive = Vec::new();
    for _ in 0..from.int_in_range(1..=24).unwrap_or(1) {
        let name = match from.ratio(1, 6) {
            Ok(true) => pick(&mut from, &NAMES).to_vec(),
            _ => path(&mut from, &pen),
        };
        let link = path(&mut from, &pen);
        let kind = pick(&mut from, b"00011122255573467LKxgS");
        let mode = pick(&mut from, &[0o644, 0o755, 0o6755, 0o1777, 0]);
        if flag(&mut from) && name.len() > 60 {
            tar_entry(&mut archive, b"././@LongLink", b"", b'L', 0o644, &name);
        }
        let data = match kind {
            b'0' | b'7' | b'L' | b'K' | b'x' => some_bytes(&mut from, 600).to_vec(),
            _ => Vec::new(),
        };
        tar_entry(&mut archive, &name, &link, kind, mode, &data);
    }
    unpack_into(&pen, &archive);
}

pub(crate) fn entry_seeds() -> Vec<Vec<u8>> {
    noise()
}

fn unpack_into(pen: &Pen, bytes: &[u8]) {
    let digest = Digest::hash_bytes(bytes);
    match unpack_layer(bytes, digest, digest, &pen.tree, LIMITS, &|_| ()) {
        Ok(UnpackedLayer { hides, .. }) => {
            for path in hides.names.iter().chain(&hides.folders) {
                let parts: Vec<&[u8]> = path.split(|&b| b == b'/').collect();
                assert!(!parts.contains(&&b".."[..]) && !path.contains(&0));
            }
        }
        Err(error) => drop(error.to_string()),
    }
    pen.assert_closed();
    walk(&pen.tree, &mut |path, meta| {
        let kind = meta.file_type();
        let mode = meta.permissions().mode();
        let shown = path.display();
        assert!(
            kind.is_file() || kind.is_dir() || kind.is_symlink(),
            "{shown}"
        );
        assert!(kind.is_symlink() || mode & 0o6000 == 0, "{mode:o} {shown}");
        assert!(mode & 0o400 != 0, "{mode:o} {shown}");
    });
}
