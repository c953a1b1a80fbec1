//! Things that several unit tests need.

/// A small shared library for this machine: one loaded segment and a dynamic section.
pub(crate) fn shared_library(soname: Option<&str>) -> Vec<u8> {
    const BASE: u64 = 0x10000;
    let machine: u16 = if cfg!(target_arch = "aarch64") {
        183
    } else {
        62
    };
    let dynamic_at = 64 + 2 * 56;
    let mut dynamic = Vec::new();
    let entries = [
        soname.map(|_| (14, 1)),
        Some((5, BASE + dynamic_at + 3 * 16)),
        Some((0, 0)),
    ];
    for (tag, value) in entries.into_iter().flatten() {
        dynamic.extend_from_slice(&u64::to_le_bytes(tag));
        dynamic.extend_from_slice(&u64::to_le_bytes(value));
    }
    dynamic.resize(3 * 16, 0);
    let strings = format!("\0{}\0", soname.unwrap_or_default());
    let size = dynamic_at + 3 * 16 + strings.len() as u64;

    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend_from_slice(&3_u16.to_le_bytes());
    bytes.extend_from_slice(&machine.to_le_bytes());
    bytes.extend_from_slice(&1_u32.to_le_bytes());
    for word in [0_u64, 64, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(&0_u32.to_le_bytes());
    for half in [64_u16, 56, 2, 0, 0, 0] {
        bytes.extend_from_slice(&half.to_le_bytes());
    }
    let dynamic_size = dynamic.len() as u64;
    for (kind, at, length) in [(1_u32, 0_u64, size), (2, dynamic_at, dynamic_size)] {
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&4_u32.to_le_bytes());
        for word in [at, BASE + at, BASE + at, length, length, 8] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes.extend(dynamic);
    bytes.extend(strings.as_bytes());
    bytes
}
