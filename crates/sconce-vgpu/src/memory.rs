//! Addresses of device memory: which are given out, and what they take of the card.

use std::collections::BTreeMap;

/// What the driver gives memory out in, in bytes.
pub const GRANULE: u64 = 2 << 20;

/// Where the memory of the first card begins; the next card's begins [`CARD_SPAN`] further on. Linux
/// puts neither programs nor their libraries nor stacks there. The rule of all these addresses is
/// that of `sconce-memory`'s simulated card, so that both give the same.
pub const CARD_BASE: u64 = 1 << 40;
pub const CARD_SPAN: u64 = 1 << 40;
/// Where reserved ranges of addresses begin, and how many each card has.
pub const RANGE_BASE: u64 = 16 << 40;
pub const RANGE_SPAN: u64 = 8 << 40;
const MAX_CARDS: u64 = 8;

/// Which card's memory an address is, as [`AddressSpace`] gives it out.
pub fn card_of(address: u64) -> Option<usize> {
    let beyond = address.checked_sub(CARD_BASE)?;
    let card = beyond / CARD_SPAN;
    (card < MAX_CARDS).then_some(card as usize)
}

/// Whether an address is one that a card's memory or a reserved range may have.
pub fn is_of_a_card(address: u64) -> bool {
    card_of(address).is_some()
        || (RANGE_BASE..RANGE_BASE + MAX_CARDS * RANGE_SPAN).contains(&address)
}

/// Addresses that are given out lowest first: the lowest gap that is large enough, its low end.
#[derive(Debug, Default)]
pub struct AddressSpace {
    first: u64,
    last: u64,
    given: BTreeMap<u64, u64>,
}

impl AddressSpace {
    pub fn of_card(index: usize) -> Self {
        let first = CARD_BASE + index as u64 * CARD_SPAN;
        Self {
            first,
            last: first + CARD_SPAN,
            given: BTreeMap::new(),
        }
    }

    pub fn of_ranges(index: usize) -> Self {
        let first = RANGE_BASE + index as u64 * RANGE_SPAN;
        Self {
            first,
            last: first + RANGE_SPAN,
            given: BTreeMap::new(),
        }
    }

    /// An address with `size` bytes behind it, a multiple of [`GRANULE`].
    pub fn allocate(&mut self, size: u64) -> Option<u64> {
        let mut at = self.first;
        for (&address, &taken) in &self.given {
            if address - at >= size {
                break;
            }
            at = address + taken;
        }
        if at.checked_add(size)? > self.last {
            return None;
        }
        self.given.insert(at, size);
        Some(at)
    }

    /// Gives back what begins at `address`; its size.
    pub fn give_back(&mut self, address: u64) -> Option<u64> {
        self.given.remove(&address)
    }

    /// What an address lies in: where that begins, and its size.
    pub fn find_allocation(&self, address: u64) -> Option<(u64, u64)> {
        let (&start, &size) = self.given.range(..=address).next_back()?;
        (address - start < size).then_some((start, size))
    }
}

/// Bytes of a card that are taken, and the most that ever were.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct MemoryGauge {
    pub current: u64,
    pub peak: u64,
}

impl MemoryGauge {
    /// Takes more, if the card has it.
    pub fn try_reserve(&mut self, size: u64, capacity: u64) -> bool {
        let Some(more) = self
            .current
            .checked_add(size)
            .filter(|&more| more <= capacity)
        else {
            return false;
        };
        self.current = more;
        self.peak = self.peak.max(more);
        true
    }

    pub fn give_back(&mut self, size: u64) {
        self.current = self.current.saturating_sub(size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_gap_is_taken() {
        let mut space = AddressSpace::of_card(1);
        let first = CARD_BASE + CARD_SPAN;
        let taken: Vec<u64> = (0..3)
            .map(|_| space.allocate(4 * GRANULE).unwrap())
            .collect();
        assert_eq!(taken, [first, first + 4 * GRANULE, first + 8 * GRANULE]);
        assert_eq!(space.give_back(taken[0]), Some(4 * GRANULE));
        assert_eq!(space.give_back(taken[0]), None);
        assert_eq!(space.allocate(6 * GRANULE), Some(first + 12 * GRANULE));
        assert_eq!(space.allocate(GRANULE), Some(first));
        assert_eq!(space.allocate(3 * GRANULE), Some(first + GRANULE));
        assert_eq!(
            space.find_allocation(first + GRANULE + 5),
            Some((first + GRANULE, 3 * GRANULE))
        );
        assert_eq!(space.allocate(u64::MAX), None);
        assert_eq!(card_of(first), Some(1));
        assert_eq!(card_of(first - 1), Some(0));
        assert_eq!(card_of(0x7fff_0000_0000), None);
    }

    #[test]
    fn a_card_has_what_it_has() {
        let mut taken = MemoryGauge::default();
        assert!(taken.try_reserve(6, 10) && !taken.try_reserve(5, 10) && taken.try_reserve(4, 10));
        taken.give_back(8);
        assert_eq!(
            taken,
            MemoryGauge {
                current: 2,
                peak: 10
            }
        );
    }
}
