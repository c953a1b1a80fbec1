//! Blocks: pieces of segments, each knowing its neighbours. They lie in one vector and are named
//! by their place in it, so that a block costs no allocation and a neighbour no search.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

use super::pools::PoolIndex;

/// A block, by its place.
pub(super) type BlockId = NonZeroU32;
/// An expandable segment, by its place.
pub(super) type SegmentIndex = u32;

#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) size: u64,
    /// What was asked for; of an active block alone.
    pub(super) requested: u64,
    pub(super) stream: u64,
    /// The age of its segment, where blocks of the same size are ordered by that: lower is older.
    pub(super) age: u64,
    /// How often its pool had been searched when it became free.
    pub(super) free_since: u64,
    pub(super) pool: PoolIndex,
    pub(super) prev: Option<BlockId>,
    pub(super) next: Option<BlockId>,
    /// The expandable segment that it is in.
    pub(super) segment: Option<SegmentIndex>,
    /// Events that have to complete before it is free.
    pub(super) events: u32,
    pub(super) allocated: bool,
    /// Whether there is memory behind its addresses.
    pub(super) mapped: bool,
    /// Other streams use it: [`super::events::StreamEvents`] knows which.
    pub(super) used_elsewhere: bool,
    live: bool,
}

impl Block {
    pub(super) fn new(address: u64, size: u64, stream: u64, pool: PoolIndex) -> Self {
        Self {
            address,
            size,
            requested: 0,
            stream,
            age: 0,
            free_since: 0,
            pool,
            prev: None,
            next: None,
            segment: None,
            events: 0,
            allocated: false,
            mapped: true,
            used_elsewhere: false,
            live: true,
        }
    }

    /// A part of a segment rather than a whole one.
    pub(super) fn is_split(&self) -> bool {
        self.prev.is_some() || self.next.is_some()
    }

    /// Nobody has it, and no stream uses it still.
    pub(super) fn is_idle(&self) -> bool {
        !self.allocated && self.events == 0 && !self.used_elsewhere
    }
}

/// All blocks.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    /// The first has no name.
    slots: Vec<Block>,
    vacant: Vec<BlockId>,
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![Block {
                live: false,
                ..Block::new(0, 0, 0, 0)
            }],
            vacant: Vec::new(),
        }
    }

    pub(super) fn insert(&mut self, block: Block) -> BlockId {
        if let Some(id) = self.vacant.pop() {
            self[id] = block;
            return id;
        }
        // 1 TiB has 2^31 blocks of 512 bytes: the number fits.
        let id = u32::try_from(self.slots.len()).ok().and_then(BlockId::new);
        self.slots.push(block);
        id.unwrap_or(BlockId::MAX)
    }

    pub(super) fn remove(&mut self, id: BlockId) {
        self[id].live = false;
        self.vacant.push(id);
    }

    /// Puts `id`, which is new, between two that were neighbours.
    pub(super) fn link_between(
        &mut self,
        before: Option<BlockId>,
        id: BlockId,
        after: Option<BlockId>,
    ) {
        self[id].prev = before;
        self[id].next = after;
        if let Some(before) = before {
            self[before].next = Some(id);
        }
        if let Some(after) = after {
            self[after].prev = Some(id);
        }
    }

    /// All blocks there are, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Block> {
        self.slots.iter().filter(|block| block.live)
    }
}

impl Index<BlockId> for Blocks {
    type Output = Block;
    fn index(&self, id: BlockId) -> &Block {
        &self.slots[id.get() as usize]
    }
}

impl IndexMut<BlockId> for Blocks {
    fn index_mut(&mut self, id: BlockId) -> &mut Block {
        &mut self.slots[id.get() as usize]
    }
}

/// Allocated blocks by their address.
pub(super) type ByAddress = HashMap<u64, BlockId, BuildHasherDefault<AddressHasher>>;

/// One multiplication: addresses are our own, so nobody can choose those that collide.
#[derive(Debug, Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        let product = (self.0 ^ address).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}
