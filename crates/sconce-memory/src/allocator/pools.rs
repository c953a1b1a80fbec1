//! Pools: free blocks by stream and size, unmapped addresses by stream and address.

use std::collections::BTreeMap;

use super::PoolId;
use super::blocks::{Block, BlockId};

/// A pool, by its place.
pub(super) type PoolIndex = u32;
/// Requests up to 1 MiB.
pub(super) const SMALL_POOL: PoolIndex = 0;
/// Larger ones.
pub(super) const LARGE_POOL: PoolIndex = 1;

/// Blocks of one kind. Streams never share them.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockPool {
    pub(super) small: bool,
    /// The private pool that it is a half of.
    pub(super) owner: Option<PoolId>,
    /// How often it was searched, counted while garbage is collected.
    pub(super) searches: u64,
    /// Blocks of it, in whatever state.
    pub(super) blocks: usize,
    /// Bytes of its free blocks.
    pub(super) free_bytes: u64,
    /// By stream. They are few, so that a search among them is nothing.
    streams: Vec<(u64, StreamBlocks)>,
}

#[derive(Debug, Clone, Default)]
struct StreamBlocks {
    /// By size, then the segment's age, then address.
    free: BTreeMap<u128, BlockId>,
    /// By address.
    unmapped: BTreeMap<u64, BlockId>,
}

/// Sizes are multiples of 512 bytes below 2^41, addresses are below 2^47, and no process lives for 2^48
/// segments.
fn key(size: u64, age: u64, address: u64) -> u128 {
    // What is asked for may be larger than any block.
    let units = size.div_ceil(512).min(u64::from(u32::MAX));
    u128::from(units) << 96 | u128::from(age) << 48 | u128::from(address)
}

fn key_of(block: &Block) -> u128 {
    key(block.size, block.age, block.address)
}

impl BlockPool {
    pub(super) fn new(small: bool, owner: Option<PoolId>) -> Self {
        Self {
            small,
            owner,
            ..Self::default()
        }
    }

    fn of(&self, stream: u64) -> Option<&StreamBlocks> {
        let place = self.streams.binary_search_by_key(&stream, |entry| entry.0);
        Some(&self.streams[place.ok()?].1)
    }

    fn of_mut(&mut self, stream: u64) -> &mut StreamBlocks {
        let place = self.streams.binary_search_by_key(&stream, |entry| entry.0);
        let place = place.unwrap_or_else(|place| {
            self.streams
                .insert(place, (stream, StreamBlocks::default()));
            place
        });
        &mut self.streams[place].1
    }

    pub(super) fn insert_free(&mut self, block: &Block, id: BlockId) {
        self.of_mut(block.stream).free.insert(key_of(block), id);
        self.free_bytes += block.size;
    }

    pub(super) fn remove_free(&mut self, block: &Block) {
        self.of_mut(block.stream).free.remove(&key_of(block));
        self.free_bytes -= block.size;
    }

    pub(super) fn insert_unmapped(&mut self, block: &Block, id: BlockId) {
        let unmapped = &mut self.of_mut(block.stream).unmapped;
        unmapped.insert(block.address, id);
    }

    pub(super) fn remove_unmapped(&mut self, block: &Block) {
        self.of_mut(block.stream).unmapped.remove(&block.address);
    }

    /// A stream's free blocks of `size` and more: smallest first, of the same size the
    /// oldest segment's first, of the same segment the lowest first.
    pub(super) fn free_from(&self, stream: u64, size: u64) -> impl Iterator<Item = BlockId> {
        let blocks = self.of(stream).into_iter();
        blocks.flat_map(move |blocks| blocks.free.range(key(size, 0, 0)..).map(|(_, &id)| id))
    }

    /// A stream's free blocks below `size`, the other way round.
    pub(super) fn free_below(&self, stream: u64, size: u64) -> impl Iterator<Item = BlockId> {
        let blocks = self.of(stream).into_iter();
        blocks.flat_map(move |blocks| {
            let below = blocks.free.range(..key(size, 0, 0));
            below.rev().map(|(_, &id)| id)
        })
    }

    /// All free blocks by stream, size, age and address.
    pub(super) fn free_blocks(&self) -> impl Iterator<Item = BlockId> {
        let streams = self.streams.iter();
        streams.flat_map(|(_, blocks)| blocks.free.values().copied())
    }

    /// A stream's unmapped blocks by address.
    pub(super) fn unmapped_blocks(&self, stream: u64) -> impl Iterator<Item = BlockId> {
        let blocks = self.of(stream).into_iter();
        blocks.flat_map(|blocks| blocks.unmapped.values().copied())
    }
}
