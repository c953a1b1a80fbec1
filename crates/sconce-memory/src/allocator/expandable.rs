//! Expandable segments: addresses reserved for more memory than the card has, and memory behind
//! as many of them as are needed, page by page.

use super::blocks::{Block, BlockId, SegmentIndex};
use super::malloc::Request;
use super::settings::AddressReservation;
use super::{Allocator, sizes};

/// Reserved addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct ExpandableSegment {
    pub(super) address: u64,
    /// A multiple of the page.
    pub(super) size: u64,
    /// Memory is put behind addresses in pieces of this size.
    pub(super) page: u64,
}

/// All expandable segments.
#[derive(Debug, Clone, Default)]
pub(super) struct ExpandableSegments {
    slots: Vec<ExpandableSegment>,
    vacant: Vec<SegmentIndex>,
}

impl ExpandableSegments {
    pub(super) fn get(&self, index: SegmentIndex) -> ExpandableSegment {
        self.slots[index as usize]
    }

    fn add(&mut self, segment: ExpandableSegment) -> SegmentIndex {
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = segment;
            return index;
        }
        self.slots.push(segment);
        // Each takes addresses, of which there are too few for 2^32.
        u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
    }

    fn remove(&mut self, index: SegmentIndex) {
        self.vacant.push(index);
    }
}

impl Allocator {
    /// A free block for a request, out of pools, made by mapping what is missing.
    ///
    /// What was mapped before the card said no stays mapped and cached.
    pub(super) fn allocate_expandable_block(&mut self, request: &Request) -> Option<BlockId> {
        let mut id = match self.expandable_place(request) {
            Some(id) => id,
            None => self.reserve_segment(request)?,
        };
        let wanted = request.size;
        if !self.blocks[id].mapped {
            let room = self.blocks[id].size.min(wanted);
            if !self.map(id, room) {
                return None;
            }
        }
        while self.blocks[id].size < wanted {
            let missing = wanted - self.blocks[id].size;
            // Free, then unmapped, for as long as it has to be; a reservation made small by the
            // settings may end first.
            let next = self.blocks[id].next?;
            let room = self.blocks[next].size.min(missing);
            if !self.map(next, room) {
                return None;
            }
            id = next;
        }
        self.free_remove(id);
        Some(id)
    }

    /// The lowest place of the stream where free and unmapped blocks follow each other for long
    /// enough.
    fn expandable_place(&self, request: &Request) -> Option<BlockId> {
        let idle = |id: Option<BlockId>| id.filter(|&id| self.blocks[id].is_idle());
        let pool = &self.pools[request.pool as usize];
        pool.unmapped_blocks(request.stream)
            .map(|id| idle(self.blocks[id].prev).unwrap_or(id))
            .find(|&start| {
                let (mut bytes, mut at) = (0_u64, Some(start));
                while bytes < request.size
                    && let Some(id) = idle(at)
                {
                    bytes = bytes.saturating_add(self.blocks[id].size);
                    at = self.blocks[id].next;
                }
                bytes >= request.size
            })
    }

    /// Reserves addresses for one and an eighth of the card's memory, unless settings say less.
    fn reserve_segment(&mut self, request: &Request) -> Option<BlockId> {
        let page = match self.is_small(request.pool) {
            true => sizes::SMALL_SEGMENT,
            false => self.settings.large_segment_size,
        };
        let total = self.device.total_bytes();
        let full = total + total / 8;
        let bytes = match self.settings.expandable_segments_reserve {
            // PyTorch multiplies in floating point too; `as` saturates.
            Some(AddressReservation::Fraction(part)) => (part * total as f64) as u64,
            Some(AddressReservation::Gib(count)) => (count * (1_u64 << 30) as f64) as u64,
            None => full,
        };
        let size = bytes.min(full).max(1).checked_next_multiple_of(page)?;
        let address = self.device.reserve_addresses(size)?;
        let segment = self.segments.add(ExpandableSegment {
            address,
            size,
            page,
        });
        let mut block = Block::new(address, size, request.stream, request.pool);
        block.mapped = false;
        block.segment = Some(segment);
        let id = self.add_block(block);
        self.unmapped_insert(id);
        Some(id)
    }

    /// Puts memory behind the first `bytes` of an unmapped block, rounded up to pages.
    fn map(&mut self, id: BlockId, bytes: u64) -> bool {
        let block = &self.blocks[id];
        let (address, size, pool) = (block.address, block.size, block.pool);
        let (prev, next) = (block.prev, block.next);
        let Some(index) = block.segment else {
            return false;
        };
        let page = self.segments.get(index).page;
        // Unmapped blocks begin and end where pages do.
        let mapped = bytes.next_multiple_of(page);
        if !self.device.map_pages(page, mapped / page) {
            return false;
        }
        self.unmapped_remove(id);
        if mapped < size {
            let mut rest = Block::new(
                address + mapped,
                size - mapped,
                self.blocks[id].stream,
                pool,
            );
            rest.mapped = false;
            rest.segment = Some(index);
            let rest = self.add_block(rest);
            self.blocks.link_between(Some(id), rest, next);
            self.unmapped_insert(rest);
        }
        let block = &mut self.blocks[id];
        block.size = mapped;
        block.mapped = true;
        self.try_merge_blocks(id, prev);
        let next = self.blocks[id].next;
        self.try_merge_blocks(id, next);
        self.free_insert(id);
        self.count_reserved(pool, mapped, true);
        self.stats.num_device_alloc += 1;
        true
    }

    /// Gives back the whole pages of a free block. What is left of it at either end becomes a
    /// block of its own; a segment with nothing behind it goes.
    pub(super) fn unmap_block(&mut self, id: BlockId) {
        let block = &self.blocks[id];
        let (address, size, pool) = (block.address, block.size, block.pool);
        let (stream, prev, next) = (block.stream, block.prev, block.next);
        let Some(index) = block.segment else { return };
        let ExpandableSegment {
            address: base,
            page,
            size: whole,
        } = self.segments.get(index);
        let from = base + (address - base).next_multiple_of(page);
        let to = base + (address + size - base) / page * page;
        if from >= to {
            return;
        }
        self.device.unmap_pages(page, (to - from) / page);
        self.free_remove(id);
        let mut piece = |from: u64, to: u64, before: Option<BlockId>, after: Option<BlockId>| {
            if from < to {
                let mut piece = Block::new(from, to - from, stream, pool);
                piece.segment = Some(index);
                let piece = self.add_block(piece);
                self.blocks.link_between(before, piece, after);
                self.free_insert(piece);
            }
        };
        piece(address, from, prev, Some(id));
        piece(to, address + size, Some(id), next);
        let block = &mut self.blocks[id];
        block.address = from;
        block.size = to - from;
        block.mapped = false;
        let prev = block.prev;
        self.try_merge_blocks(id, prev);
        let next = self.blocks[id].next;
        self.try_merge_blocks(id, next);
        self.unmapped_insert(id);
        self.count_reserved(pool, to - from, false);
        self.uncount_private(pool);
        self.stats.num_device_free += 1;
        if self.blocks[id].size == whole {
            self.unmapped_remove(id);
            self.remove_block(id);
            self.segments.remove(index);
            self.device.free_addresses(base);
        }
    }
}
