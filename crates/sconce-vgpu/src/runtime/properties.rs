//! What a card says of itself: `cudaDeviceProp` and `cudaDeviceAttr`.

use crate::abi::{self, write_text};
use crate::card::GpuProperties;

/// Writes [`PropertiesLayout`]: a field's name, and where it stands in CUDA 12 and in CUDA 13.
macro_rules! layout {
    ($($field:ident $twelve:literal $thirteen:literal;)*) => {
        /// Where the fields of `cudaDeviceProp` stand (`driver_types.h`), in bytes, and the size of all.
        #[derive(Debug)]
        pub struct PropertiesLayout {
            $($field: usize),*
        }

        impl PropertiesLayout {
            /// Of `cudaGetDeviceProperties_v2`, CUDA 12.
            pub const TWELVE: Self = Self { $($field: $twelve),* };
            /// Of `cudaGetDeviceProperties`, CUDA 13, which dropped some fields.
            pub const THIRTEEN: Self = Self { $($field: $thirteen),* };
        }
    };
}

layout! {
    size                 1032 1008;
    uuid                  256  256;
    total_memory          288  288;
    shared_per_block      296  296;
    registers_per_block   304  304;
    warp                  308  308;
    pitch                 312  312;
    threads_per_block     320  320;
    block                 324  324;
    grid                  336  336;
    constants             352  352;
    major                 360  360;
    minor                 364  364;
    texture_alignment     368  368;
    multiprocessors       388  384;
    can_map_host          400  392;
    concurrent_kernels    576  560;
    bus                   584  568;
    copy_engines          600  584;
    unified               604  588;
    bus_width             612  592;
    l2                    616  596;
    threads               624  604;
    priorities            628  608;
    global_l1             632  612;
    local_l1              636  616;
    shared                640  624;
    registers             648  632;
    managed               652  636;
    concurrent_managed    676  656;
    preemption            680  660;
    cooperative           688  668;
    shared_optin          696  672;
    blocks                712  688;
    reserved_shared       720  696;
    register_host         728  704;
    pools                 744  720;
    ipc_events            768  744;
    clusters              772  748;
}

const KIB: usize = 1 << 10;
const GRID: [i32; 3] = [i32::MAX, 65_535, 65_535];
const BLOCK: [i32; 3] = [1024, 1024, 64];
/// Registers of 32 bits, of every multiprocessor since Kepler.
const REGISTERS: i32 = 65_536;

/// The address on the bus of the card with this index.
pub fn pci_bus_id(index: usize) -> String {
    format!("0000:{:02X}:00.0", index + 1)
}

/// The 16 bytes of a card's UUID: made up, and told apart by the last.
pub fn uuid(index: usize) -> [u8; 16] {
    let mut bytes = *b"sconce virtual \0";
    bytes[15] = index as u8;
    bytes
}

/// Writes the structure.
pub fn write(to: usize, card: &GpuProperties, index: usize, layout: &PropertiesLayout) {
    if to == 0 {
        return;
    }
    abi::fill_bytes(to, 0, layout.size);
    write_text(to, 256, &card.name);
    let put = |offset: usize, bytes: &[u8]| {
        abi::copy_bytes(to + offset, bytes.as_ptr() as usize, bytes.len())
    };
    let int = |offset: usize, value: i32| put(offset, &value.to_ne_bytes());
    let size = |offset: usize, value: usize| put(offset, &value.to_ne_bytes());
    let has = card.multiprocessor_limits();
    put(layout.uuid, &uuid(index));
    size(layout.total_memory, card.memory_bytes as usize);
    size(layout.shared_per_block, 48 * KIB);
    size(layout.pitch, i32::MAX as usize);
    size(layout.constants, 64 * KIB);
    size(layout.texture_alignment, 512);
    size(layout.shared, has.shared_bytes as usize);
    size(layout.shared_optin, has.shared_optin_bytes as usize);
    size(layout.reserved_shared, KIB);
    for (at, value) in GRID.iter().enumerate() {
        int(layout.grid + 4 * at, *value);
    }
    for (at, value) in BLOCK.iter().enumerate() {
        int(layout.block + 4 * at, *value);
    }
    for (offset, value) in [
        (layout.registers_per_block, REGISTERS),
        (layout.registers, REGISTERS),
        (layout.warp, 32),
        (layout.threads_per_block, 1024),
        (layout.major, card.major),
        (layout.minor, card.minor),
        (layout.multiprocessors, card.multiprocessors),
        (layout.bus, index as i32 + 1),
        (layout.copy_engines, 2),
        (layout.bus_width, 5120),
        (layout.l2, card.l2_bytes),
        (layout.threads, has.threads),
        (layout.blocks, has.blocks),
        (layout.clusters, i32::from(card.major >= 9)),
    ] {
        int(offset, value);
    }
    for offset in [
        layout.can_map_host,
        layout.concurrent_kernels,
        layout.unified,
        layout.priorities,
        layout.global_l1,
        layout.local_l1,
        layout.managed,
        layout.concurrent_managed,
        layout.preemption,
        layout.cooperative,
        layout.register_host,
        layout.pools,
        layout.ipc_events,
    ] {
        int(offset, 1);
    }
}

/// The value of a `cudaDeviceAttr`, which are `CUdevice_attribute`'s too.
pub fn device_attribute(card: &GpuProperties, index: usize, attribute: i32) -> i32 {
    let has = card.multiprocessor_limits();
    match attribute {
        1..=3 => 1024,
        4 => BLOCK[2],
        5..=7 => GRID[attribute as usize - 5],
        8 => 48 << 10,
        9 => 64 << 10,
        10 => 32,
        11 => i32::MAX,
        12 | 82 => REGISTERS,
        13 => 1_500_000,
        14 => 512,
        16 => card.multiprocessors,
        33 => index as i32 + 1,
        36 => 1_500_000,
        37 => 5120,
        38 => card.l2_bytes,
        39 => has.threads,
        40 => 2,
        51 => 32,
        75 => card.major,
        76 => card.minor,
        81 => has.shared_bytes,
        87 => 2,
        97 => has.shared_optin_bytes,
        106 => has.blocks,
        111 => 1 << 10,
        120 => i32::from(card.major >= 9),
        126 => 4,
        // What virtual memory and its handles can be asked for; fabrics and multicast are not.
        15 | 19 | 31 | 41 | 78 | 79 | 80 | 83 | 89 | 90 | 95 | 98 | 99 | 102 | 103 | 115 | 125 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_says_what_it_is() {
        let line = "card\tname=A100\tcapability=8.0\tmemory_bytes=42949672960\tmultiprocessors=108";
        let card = &crate::card::parse(line).unwrap()[0];
        for layout in [PropertiesLayout::TWELVE, PropertiesLayout::THIRTEEN] {
            let bytes = vec![0xffu8; layout.size];
            write(bytes.as_ptr() as usize, card, 3, &layout);
            let int = |at: usize| i32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
            assert!(bytes.starts_with(b"A100\0"));
            assert_eq!((int(layout.major), int(layout.minor)), (8, 0));
            assert_eq!(int(layout.multiprocessors), 108);
            assert_eq!(int(layout.shared_optin), 163 << 10);
            assert_eq!(bytes[layout.uuid + 15], 3);
        }
        assert_eq!(device_attribute(card, 0, 75), 8);
        assert_eq!(device_attribute(card, 0, 9_999), 0);
    }
}
