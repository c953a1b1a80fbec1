//! What the allocator holds, as `torch.cuda.memory_snapshot` lists it.

use super::blocks::Block;
use super::{Allocator, PoolId};

/// What is done with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockState {
    /// `active_allocated`.
    Allocated,
    /// `active_pending_free`: freed, and a stream uses it still.
    PendingFree,
    /// `inactive`: free.
    Inactive,
}

/// A block of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockView {
    /// Its first address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// What was asked for, in bytes; 0 of a free block.
    pub requested_size: u64,
    /// What is done with it.
    pub state: BlockState,
}

/// Memory of the card whose addresses follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentView {
    /// Its first address.
    pub address: u64,
    /// Bytes.
    pub total_size: u64,
    /// The stream whose requests it serves.
    pub stream: u64,
    /// Whether it is of a small pool.
    pub small: bool,
    /// The pool.
    pub pool: PoolId,
    /// Whether it is a mapped part of an expandable segment.
    pub is_expandable: bool,
    /// Its blocks by address.
    pub blocks: Vec<BlockView>,
}

impl Allocator {
    /// All segments by address. Of an expandable segment, each mapped part is one.
    #[must_use]
    pub fn segment_views(&self) -> Vec<SegmentView> {
        let mapped = |id| {
            let block: &Block = &self.blocks[id];
            block.mapped.then_some(block)
        };
        let mut segments: Vec<SegmentView> = self
            .blocks
            .iter()
            .filter(|block| block.mapped && block.prev.and_then(mapped).is_none())
            .map(|head| {
                let chain = std::iter::successors(Some(head), |block| block.next.and_then(mapped));
                let blocks: Vec<BlockView> = chain.map(view).collect();
                let pool = &self.pools[head.pool as usize];
                SegmentView {
                    address: head.address,
                    total_size: blocks.iter().map(|block| block.size).sum(),
                    stream: head.stream,
                    small: pool.small,
                    pool: pool.owner.unwrap_or_default(),
                    is_expandable: head.segment.is_some(),
                    blocks,
                }
            })
            .collect();
        segments.sort_unstable_by_key(|segment| segment.address);
        segments
    }
}

fn view(block: &Block) -> BlockView {
    let state = if block.allocated {
        BlockState::Allocated
    } else if block.is_idle() {
        BlockState::Inactive
    } else {
        BlockState::PendingFree
    };
    BlockView {
        address: block.address,
        size: block.size,
        requested_size: match state {
            BlockState::Inactive => 0,
            _ => block.requested,
        },
        state,
    }
}
