//! Sizes: how a request is rounded, and how much is asked of the card for it.
//!
//! Constants and rules: `c10/core/AllocatorConfig.h` and `round_size`, `get_allocation_size` of
//! `c10/cuda/CUDACachingAllocator.cpp`, PyTorch 2.6 to 2.15.

use super::settings::AllocatorSettings;

/// 1 MiB.
pub const MIB: u64 = 1 << 20;
/// No block is smaller, and sizes are multiples of it.
pub const MIN_BLOCK: u64 = 512;
/// Requests up to this come from the small pool.
pub const SMALL: u64 = MIB;
/// What is asked of the card for a small request.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// From this on, a segment is made for its request alone.
pub const LARGE_ALONE: u64 = 10 * MIB;
/// Segments that are made for one request are multiples of it.
pub const ROUND_LARGE: u64 = 2 * MIB;
/// Requests from here on are refused before anything else ("more than 1EB").
pub const EXABYTE: u64 = 1 << 60;

/// What a request takes of a block. `bytes` is below [`EXABYTE`].
#[must_use]
pub fn round_size(bytes: u64, settings: &AllocatorSettings) -> u64 {
    if bytes < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let divisions = settings.divisions_for(bytes);
    // The product wraps there too.
    if divisions > 1 && bytes > MIN_BLOCK.wrapping_mul(divisions) {
        if bytes.is_power_of_two() {
            return bytes;
        }
        let floor = 1 << bytes.ilog2();
        // `divisions` is a power of two: the settings take no others.
        return match floor >> divisions.ilog2() {
            0 => floor << 1,
            step => bytes.next_multiple_of(step),
        };
    }
    bytes.next_multiple_of(MIN_BLOCK)
}

/// What is asked of the card for a request that was rounded to `size`.
#[must_use]
pub fn segment_size(size: u64, settings: &AllocatorSettings) -> u64 {
    if size <= SMALL {
        SMALL_SEGMENT
    } else if size < LARGE_ALONE {
        settings.large_segment_size
    } else {
        size.next_multiple_of(ROUND_LARGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocator::TorchVersion;

    fn settings(text: &str) -> AllocatorSettings {
        AllocatorSettings::parse(text, TorchVersion::MAX_KNOWN).unwrap()
    }

    #[test]
    fn requests_are_rounded_to_512() {
        let default = AllocatorSettings::default();
        for (bytes, size) in [
            (1, 512),
            (511, 512),
            (512, 512),
            (513, 1024),
            (MIB + 1, MIB + 512),
        ] {
            assert_eq!(round_size(bytes, &default), size, "{bytes}");
        }
    }

    #[test]
    fn requests_are_rounded_to_parts_of_a_power_of_two() {
        let four = settings("roundup_power2_divisions:4");
        for (bytes, size) in [
            (1200, 1536),
            (2048, 2048),
            (2049, 2560),
            (5000, 5120),
            (8192, 8192),
            (9000, 10240),
            (EXABYTE - 1, EXABYTE),
        ] {
            assert_eq!(round_size(bytes, &four), size, "{bytes}");
        }
        let list = settings("roundup_power2_divisions:[1:4,4:2,>:0]");
        assert_eq!(round_size(5 * MIB, &list), 6 * MIB);
        // A gap is off, and so is what `>` says here.
        assert_eq!(round_size(2 * MIB + 1, &list), 2 * MIB + 512);
        assert_eq!(round_size(9 * MIB + 1, &list), 9 * MIB + 512);
        // More divisions than bytes.
        let many = settings("roundup_power2_divisions:9223372036854775808");
        assert_eq!(round_size(9 * MIB + 1, &many), 16 * MIB);
    }

    #[test]
    fn segments_have_three_sizes() {
        let default = AllocatorSettings::default();
        for (size, asked) in [
            (512, 2 * MIB),
            (MIB, 2 * MIB),
            (MIB + 512, 20 * MIB),
            (10 * MIB - 512, 20 * MIB),
            (10 * MIB, 10 * MIB),
            (10 * MIB + 512, 12 * MIB),
        ] {
            assert_eq!(segment_size(size, &default), asked, "{size}");
        }
        let forty = settings("large_segment_size_mb:40");
        assert_eq!(segment_size(2 * MIB, &forty), 40 * MIB);
    }
}
