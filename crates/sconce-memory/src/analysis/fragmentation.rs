//! Memory that is reserved and free and cannot be given back, and the blocks that hold it.

use serde::{Deserialize, Serialize};

use super::source_locations::{SourceLocation, StackIndex};
use super::stack_lines;
use crate::snapshot::{BlockInfo, BlockUsage, SegmentInfo, Snapshot};

/// Segments that are listed.
const MAX_SEGMENTS: usize = 50;
/// Blocks that are listed of one.
const MAX_PINS: usize = 8;
/// Expandable segments give back pages of this size.
const PAGE: u64 = 2 << 20;

/// A live block that stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RetainingBlock {
    /// Where it is.
    pub address: u64,
    /// Bytes of it.
    pub size_bytes: u64,
    /// Where it was allocated, if that was recorded.
    pub place: Option<SourceLocation>,
    /// The whole stack, the innermost frame first.
    pub stack: Vec<String>,
}

/// A segment that is partly free.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FragmentedSegment {
    /// Where it begins.
    pub address: Option<u64>,
    /// Bytes of it.
    pub total_bytes: u64,
    /// Bytes that are free and stay reserved as long as its blocks live.
    pub free_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
    /// Live blocks in it.
    pub live_blocks: usize,
    /// Bytes of these.
    pub live_bytes: u64,
    /// These, the largest first; of many the first ones.
    pub pins: Vec<RetainingBlock>,
}

/// What of the reserved memory is used, and what of the rest could be given back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FragmentationReport {
    /// What `cudaMalloc` gave.
    pub reserved_bytes: u64,
    /// Of it in live blocks.
    pub live_bytes: u64,
    /// Of these what was not asked for; absent where the file does not say what was.
    pub rounding_bytes: Option<u64>,
    /// Blocks that were given back and that another stream still uses.
    pub pending_bytes: u64,
    /// Free, and given back by `torch.cuda.empty_cache()`.
    pub returnable_bytes: u64,
    /// Free, and kept by live blocks in the same segment.
    pub stuck_bytes: u64,
    /// The largest free block.
    pub largest_free_bytes: u64,
    /// Segments.
    pub segments: usize,
    /// Those with stuck memory, the most of it first; of many the first ones.
    pub pinned: Vec<FragmentedSegment>,
}

/// What a free block of an expandable segment can give back: whole pages.
fn whole_pages(block: &BlockInfo) -> u64 {
    let Some(begin) = block.address else {
        return 0;
    };
    let end = begin.saturating_add(block.size) / PAGE;
    end.saturating_sub(begin.div_ceil(PAGE)) * PAGE
}

pub(super) fn compute_fragmentation(
    snapshot: &Snapshot,
    places: &StackIndex,
    device: u64,
) -> FragmentationReport {
    let mut all = FragmentationReport::default();
    let mut requested = Some(0u64);
    let mut pinned: Vec<(FragmentedSegment, &[BlockInfo])> = Vec::new();
    for (segment, blocks) in snapshot.segments_of(device) {
        let of_it = one(segment, blocks);
        all.segments += 1;
        all.reserved_bytes = all.reserved_bytes.saturating_add(of_it.total_bytes);
        all.live_bytes = all.live_bytes.saturating_add(of_it.live_bytes);
        all.largest_free_bytes = all.largest_free_bytes.max(of_it.largest_free_bytes);
        let mut free = 0u64;
        for block in blocks {
            match block.state {
                BlockUsage::Inactive => free = free.saturating_add(block.size),
                BlockUsage::PendingFree => {
                    all.pending_bytes = all.pending_bytes.saturating_add(block.size);
                }
                BlockUsage::Allocated => {}
            }
            if block.state != BlockUsage::Inactive {
                let sum = requested.zip(block.requested_size);
                requested = sum.map(|(sum, size)| sum.saturating_add(size));
            }
        }
        let stuck = of_it.free_bytes;
        all.stuck_bytes = all.stuck_bytes.saturating_add(stuck);
        all.returnable_bytes = all
            .returnable_bytes
            .saturating_add(free.saturating_sub(stuck));
        if stuck > 0 {
            pinned.push((of_it, blocks));
        }
    }
    all.rounding_bytes = requested.map(|sum| all.live_bytes.saturating_sub(sum));
    pinned.sort_by_key(|(of_it, _)| (std::cmp::Reverse(of_it.free_bytes), of_it.address));
    pinned.truncate(MAX_SEGMENTS);
    let described = pinned.into_iter().map(|(mut of_it, blocks)| {
        let mut live: Vec<&BlockInfo> = blocks
            .iter()
            .filter(|one| one.state != BlockUsage::Inactive)
            .collect();
        live.sort_by_key(|block| (std::cmp::Reverse(block.size), block.address));
        let pins = live.into_iter().take(MAX_PINS);
        of_it.pins = pins.map(|block| pin(snapshot, places, block)).collect();
        of_it
    });
    all.pinned = described.collect();
    all
}

/// A segment's figures; its `free_bytes` are those that cannot be given back.
fn one(segment: &SegmentInfo, blocks: &[BlockInfo]) -> FragmentedSegment {
    let mut of_it = FragmentedSegment {
        address: segment.address,
        total_bytes: segment.total_size.unwrap_or(0),
        free_bytes: 0,
        largest_free_bytes: 0,
        live_blocks: 0,
        live_bytes: 0,
        pins: Vec::new(),
    };
    let mut free = 0u64;
    let mut in_pages = 0u64;
    for block in blocks {
        if block.state == BlockUsage::Inactive {
            free = free.saturating_add(block.size);
            in_pages = in_pages.saturating_add(whole_pages(block));
            of_it.largest_free_bytes = of_it.largest_free_bytes.max(block.size);
        } else {
            of_it.live_blocks += 1;
            of_it.live_bytes = of_it.live_bytes.saturating_add(block.size);
        }
    }
    of_it.free_bytes = match (of_it.live_blocks, segment.is_expandable) {
        (0, _) => 0,
        (_, Some(true)) => free.saturating_sub(in_pages),
        _ => free,
    };
    of_it
}

fn pin(snapshot: &Snapshot, places: &StackIndex, block: &BlockInfo) -> RetainingBlock {
    RetainingBlock {
        address: block.address.unwrap_or(0),
        size_bytes: block.size,
        place: places.source_location(block.stack),
        stack: stack_lines(snapshot, block.stack),
    }
}
