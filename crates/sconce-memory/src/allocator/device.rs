//! The card: how much memory it has, and which addresses it gives.
//!
//! The addresses follow a rule that is simple and written down, so that the allocator of PyTorch,
//! run on a virtual card with the same rule, gives the same addresses as the simulator:
//!
//! 1. A granule is 2 MiB. Sizes of `cudaMalloc`, of `cuMemAddressReserve` and of `cuMemCreate` are
//!    rounded up to whole granules; addresses are multiples of it.
//! 2. `cudaMalloc` gives the lowest address from 1 TiB on ([`MALLOC_BASE`]) where as many free
//!    granules follow each other, and takes as much physical memory. It fails where that exceeds
//!    what is free, and where 1 TiB of addresses has no such place.
//! 3. `cuMemAddressReserve` gives the lowest such address from 16 TiB on ([`RESERVE_BASE`]), in
//!    8 TiB of addresses, and takes no physical memory. The alignment and the address that it is
//!    asked for count for nothing.
//! 4. `cuMemCreate` takes physical memory, `cuMemRelease` gives it back; where it is mapped
//!    changes nothing of this.
//! 5. The second card of a machine begins 1 TiB and 8 TiB higher, and so on, for eight cards.
//! 6. What the card holds beside the allocator (the context, other processes) is a number of
//!    bytes that is not free, and not rounded.
//!
//! The ranges lie where Linux puts neither programs nor their libraries nor stacks.

use std::collections::BTreeMap;

/// Everything on the card is a multiple of this, in bytes.
pub const GRANULE: u64 = 2 << 20;
/// The first address of `cudaMalloc` on the first card.
pub const MALLOC_BASE: u64 = 1 << 40;
/// How many addresses `cudaMalloc` has on each card, and the most memory that a card may have.
pub const MALLOC_SPAN: u64 = 1 << 40;
/// The first address of `cuMemAddressReserve` on the first card.
pub const RESERVE_BASE: u64 = 16 << 40;
/// How many addresses `cuMemAddressReserve` has on each card.
pub const RESERVE_SPAN: u64 = 8 << 40;
/// Cards that a machine may have.
pub const MAX_CARDS: u64 = 8;

/// A card's memory and addresses.
#[derive(Debug, Clone)]
pub struct SimulatedGpu {
    total: u64,
    outside: u64,
    used: u64,
    mallocs: Ranges,
    reservations: Ranges,
}

/// A card that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulatedGpuError {
    /// More memory than addresses.
    #[error("a card of {bytes} bytes is larger than the {MALLOC_SPAN} that can be simulated")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
    },
}

impl sconce_schema::Hint for SimulatedGpuError {
    fn exit_code(&self) -> u8 {
        sconce_schema::exit::USAGE
    }
}

impl SimulatedGpu {
    /// The first card of a machine, with `total` bytes, all of them free.
    ///
    /// # Errors
    /// [`SimulatedGpuError::TooLarge`] above 1 TiB.
    pub fn new(total: u64) -> Result<Self, SimulatedGpuError> {
        if total > MALLOC_SPAN {
            return Err(SimulatedGpuError::TooLarge { bytes: total });
        }
        Ok(Self {
            total,
            outside: 0,
            used: 0,
            mallocs: Ranges::new(MALLOC_BASE, MALLOC_SPAN),
            reservations: Ranges::new(RESERVE_BASE, RESERVE_SPAN),
        })
    }

    /// The same with `bytes` taken by what is not the allocator's.
    #[must_use]
    pub fn with_outside(mut self, bytes: u64) -> Self {
        self.outside = bytes;
        self
    }

    /// The card's memory in bytes, as `totalGlobalMem` and `cudaMemGetInfo` say it.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Free bytes, as `cudaMemGetInfo` says it.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.total
            .saturating_sub(self.outside)
            .saturating_sub(self.used)
    }

    /// `cudaMalloc`: an address, or nothing where memory ran out. `bytes` is not 0.
    pub fn malloc(&mut self, bytes: u64) -> Option<u64> {
        let size = self.affordable(bytes, 1)?;
        let address = self.mallocs.take(size)?;
        self.used += size;
        Some(address)
    }

    /// `cudaFree`. What is not allocated stays so.
    pub fn free_allocation(&mut self, address: u64) {
        if let Some(size) = self.mallocs.give(address) {
            self.used -= size;
        }
    }

    /// `cuMemAddressReserve`: an address, or nothing where addresses ran out.
    pub fn reserve_addresses(&mut self, bytes: u64) -> Option<u64> {
        let size = bytes.checked_next_multiple_of(GRANULE)?;
        self.reservations.take(size)
    }

    /// `cuMemAddressFree`.
    pub fn free_addresses(&mut self, address: u64) {
        self.reservations.give(address);
    }

    /// `cuMemCreate` and `cuMemMap` of `count` pages of `bytes` each: all of them or none.
    pub fn map_pages(&mut self, bytes: u64, count: u64) -> bool {
        match self.affordable(bytes, count) {
            Some(size) => {
                self.used += size;
                true
            }
            None => false,
        }
    }

    /// `cuMemUnmap` and `cuMemRelease` of as many.
    pub fn unmap_pages(&mut self, bytes: u64, count: u64) {
        let size = bytes.next_multiple_of(GRANULE).saturating_mul(count);
        self.used = self.used.saturating_sub(size);
    }

    /// What `count` times `bytes` takes, if that is free.
    fn affordable(&self, bytes: u64, count: u64) -> Option<u64> {
        let size = bytes.checked_next_multiple_of(GRANULE)?;
        let size = size.checked_mul(count)?;
        (size <= self.free_bytes()).then_some(size)
    }
}

/// Addresses that are given at the lowest place.
#[derive(Debug, Clone)]
struct Ranges {
    /// Free ranges: from an address, so many bytes. No two touch.
    free: BTreeMap<u64, u64>,
    /// Ranges that were given.
    taken: BTreeMap<u64, u64>,
}

impl Ranges {
    fn new(base: u64, span: u64) -> Self {
        Self {
            free: BTreeMap::from([(base, span)]),
            taken: BTreeMap::new(),
        }
    }

    fn take(&mut self, size: u64) -> Option<u64> {
        let (&address, &room) = self.free.iter().find(|&(_, &room)| room >= size)?;
        self.free.remove(&address);
        if room > size {
            self.free.insert(address + size, room - size);
        }
        self.taken.insert(address, size);
        Some(address)
    }

    fn give(&mut self, address: u64) -> Option<u64> {
        let size = self.taken.remove(&address)?;
        let (mut from, mut room) = (address, size);
        if let Some(after) = self.free.remove(&(address + size)) {
            room += after;
        }
        let before = self.free.range(..address).next_back();
        if let Some((&at, &length)) = before.filter(|&(&at, &length)| at + length == address) {
            from = at;
            room += length;
        }
        self.free.insert(from, room);
        Some(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_lowest_place_is_taken() {
        let mut device = SimulatedGpu::new(64 * GRANULE).unwrap();
        assert_eq!(device.malloc(1), Some(MALLOC_BASE));
        assert_eq!(device.malloc(3 * GRANULE), Some(MALLOC_BASE + GRANULE));
        assert_eq!(device.malloc(GRANULE), Some(MALLOC_BASE + 4 * GRANULE));
        assert_eq!(device.free_bytes(), 59 * GRANULE);
        device.free_allocation(MALLOC_BASE);
        device.free_allocation(MALLOC_BASE + GRANULE);
        assert_eq!(device.malloc(5 * GRANULE), Some(MALLOC_BASE + 5 * GRANULE));
        assert_eq!(device.malloc(4 * GRANULE), Some(MALLOC_BASE));
        // Twice, or never given: nothing happens.
        device.free_allocation(MALLOC_BASE + GRANULE);
        assert_eq!(device.free_bytes(), 54 * GRANULE);
    }

    #[test]
    fn memory_runs_out_and_addresses_too() {
        let mut device = SimulatedGpu::new(8 * GRANULE).unwrap().with_outside(1);
        assert_eq!(device.free_bytes(), 8 * GRANULE - 1);
        assert_eq!(device.malloc(8 * GRANULE), None);
        assert_eq!(device.malloc(u64::MAX), None);
        assert!(device.malloc(4 * GRANULE).is_some());
        assert!(device.map_pages(GRANULE, 3) && !device.map_pages(1, 1));
        assert!(!device.map_pages(GRANULE, u64::MAX));
        device.unmap_pages(GRANULE, 3);
        assert_eq!(device.free_bytes(), 4 * GRANULE - 1);
        assert_eq!(device.reserve_addresses(RESERVE_SPAN), Some(RESERVE_BASE));
        assert_eq!(device.reserve_addresses(1), None);
        device.free_addresses(RESERVE_BASE);
        assert_eq!(device.reserve_addresses(1), Some(RESERVE_BASE));
        assert!(SimulatedGpu::new(MALLOC_SPAN + 1).is_err());
    }

    proptest! {
        /// First fit by a bitmap.
        #[test]
        fn addresses_are_first_fit(steps in prop::collection::vec((0_u64..6, 0_usize..40), 1..200)) {
            let mut device = SimulatedGpu::new(48 * GRANULE).unwrap();
            // 48 granules with holes of at most four between them.
            let (mut map, mut live) = ([false; 256], Vec::new());
            for (size, pick) in steps {
                if size == 0 {
                    if pick < live.len() {
                        let (at, size) = live.swap_remove(pick);
                        device.free_allocation(MALLOC_BASE + at as u64 * GRANULE);
                        map[at..at + size].fill(false);
                    }
                    continue;
                }
                let want = size as usize;
                let used = map.iter().filter(|&&used| used).count();
                let place = (0..256 - want).find(|&at| !map[at..at + want].contains(&true));
                let place = place.filter(|_| used + want <= 48);
                let given = device.malloc(size * GRANULE);
                prop_assert_eq!(given, place.map(|at| MALLOC_BASE + at as u64 * GRANULE));
                if let Some(at) = place {
                    map[at..at + want].fill(true);
                    live.push((at, want));
                }
            }
        }
    }
}
