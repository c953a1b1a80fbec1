//! What was there before the first entry.
//!
//! A snapshot says which blocks were live then and how the segments lay, but not how they came
//! about. As they stood: each segment is made of its size, and its blocks are cut out of it at
//! their places. Afresh: the blocks are asked for one after the other, as if the run began there.

use std::collections::{BTreeMap, HashMap};

use super::calls::{ReplayCalls, StreamPool};
use super::playback::malloc_in_pool;
use crate::allocator::{Allocator, NULL, PoolId, sizes};
use crate::analysis::first_ranges;
use crate::snapshot::{SegmentInfo, Snapshot};

/// A segment as it stood before the first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitialSegment {
    begin: u64,
    end: u64,
    lane: StreamPool,
    small: bool,
    /// Whether it is a mapped part of an expandable segment.
    grows: bool,
}

/// More segments than this are not made again.
const MAX_SEGMENTS: usize = 200_000;

/// The segments before the first entry, by address.
pub(super) fn initial_segments(
    snapshot: &Snapshot,
    device: u64,
    calls: &ReplayCalls,
) -> Vec<InitialSegment> {
    let ends: BTreeMap<u64, &SegmentInfo> = snapshot
        .segments_of(device)
        .filter_map(|(one, _)| Some((one.address?, one)))
        .collect();
    let ranges = first_ranges(snapshot, device);
    let stood = ranges.into_iter().take(MAX_SEGMENTS);
    let stood = stood.map(|(begin, range)| {
        let end = range.end;
        let inside = |at: u64| (begin..end).contains(&at);
        let from = calls.initial.partition_point(|block| block.at < begin);
        let first = calls.initial.get(from).filter(|block| inside(block.at));
        let at_end = ends.range(begin..end).next().map(|(_, one)| *one);
        // An address may be another segment's at the end, so that sizes tell more.
        let small = match (range.grows, first) {
            (false, _) => end - begin == sizes::SMALL_SEGMENT,
            (true, Some(block)) => block.bytes <= sizes::SMALL,
            (true, None) => at_end.and_then(|one| one.is_small).unwrap_or(false),
        };
        let pool = at_end.and_then(|one| one.pool);
        let lane = first.and_then(|block| calls.lanes.get(block.lane as usize));
        InitialSegment {
            begin,
            end,
            lane: lane.copied().unwrap_or(StreamPool {
                stream: range.stream.unwrap_or(0).cast_unsigned(),
                pool: pool.map_or_else(PoolId::default, |pool| PoolId(pool.0, pool.1)),
            }),
            small,
            grows: range.grows,
        }
    });
    stood.collect()
}

/// Makes the segments as they stood, with the blocks that were live. Gives how many blocks got no
/// memory.
pub(super) fn as_it_stood(
    allocator: &mut Allocator,
    calls: &ReplayCalls,
    stood: &[InitialSegment],
    addresses: &mut [u64],
) -> u64 {
    let mut missing = 0;
    // All at once: what is full is left alone by what comes after.
    let mut holes = Vec::new();
    let mut ends: HashMap<(StreamPool, bool), u64> = HashMap::new();
    let most = allocator.device().total_bytes();
    let mut make = |one: &InitialSegment| {
        if one.grows
            && let Some(end) = ends.insert((one.lane, one.small), one.end)
            && one.begin.saturating_sub(end) < most
        {
            // Between mapped parts of one segment are addresses without memory.
            fill(allocator, one, one.begin.saturating_sub(end), &mut holes);
        }
        whole(allocator, one)
    };
    let held: Vec<Vec<u64>> = stood.iter().map(&mut make).collect();
    if !holes.is_empty() {
        give_back(allocator, &holes);
        allocator.empty_cache();
    }
    let mut fillers = Vec::new();
    for (one, held) in stood.iter().zip(held) {
        let from = calls.initial.partition_point(|block| block.at < one.begin);
        let to = calls.initial.partition_point(|block| block.at < one.end);
        let blocks = &calls.initial[from..to];
        if blocks.is_empty() {
            fillers.extend(held);
            continue;
        }
        give_back(allocator, &held);
        let mut at = one.begin;
        for (number, block) in blocks.iter().enumerate() {
            fill(allocator, one, block.at.saturating_sub(at), &mut fillers);
            let next = blocks.get(number + 1).map_or(one.end, |next| next.at);
            let size = sizes::round_size(
                block.bytes.clamp(1, sizes::EXABYTE - 1),
                allocator.settings(),
            );
            // What was too little to be split off belongs to the block.
            let room = next.saturating_sub(block.at);
            let slack = room
                .checked_sub(size)
                .filter(|&rest| rest <= sizes::SMALL && !one.small);
            let bytes = slack.map_or(block.bytes, |_| room);
            match malloc_in_pool(allocator, one.lane, bytes) {
                Some(address) => addresses[block.slot as usize] = address,
                None => missing += 1,
            }
            at = block.at.saturating_add(slack.map_or(size, |_| room));
        }
        fill(allocator, one, one.end.saturating_sub(at), &mut fillers);
    }
    give_back(allocator, &fillers);
    missing
}

/// Asks for the blocks that were live, as if the run began there. Gives how many got no memory.
pub(super) fn allocate_live_blocks(
    allocator: &mut Allocator,
    calls: &ReplayCalls,
    addresses: &mut [u64],
) -> u64 {
    let mut missing = 0;
    for block in &calls.initial {
        let lane = calls.lanes.get(block.lane as usize).copied();
        match malloc_in_pool(allocator, lane.unwrap_or_default(), block.bytes) {
            Some(address) => addresses[block.slot as usize] = address,
            None => missing += 1,
        }
    }
    missing
}

/// A segment with nothing in it but what is given back at once.
fn whole(allocator: &mut Allocator, one: &InitialSegment) -> Vec<u64> {
    let size = one.end - one.begin;
    let mut held = Vec::new();
    if one.small {
        fill(allocator, one, size, &mut held);
    } else {
        held.extend(malloc_in_pool(allocator, one.lane, size));
    }
    held
}

/// Takes so many bytes of the pool that the segment is of.
fn fill(allocator: &mut Allocator, one: &InitialSegment, bytes: u64, fillers: &mut Vec<u64>) {
    let mut rest = bytes;
    while rest > 0 {
        let piece = if one.small {
            rest.min(sizes::SMALL)
        } else {
            rest
        };
        // Pieces of the large pool are larger; a smaller one would come from the other.
        if !one.small && piece <= sizes::SMALL {
            return;
        }
        match malloc_in_pool(allocator, one.lane, piece) {
            Some(address) => fillers.push(address),
            None => return,
        }
        rest -= piece;
    }
}

fn give_back(allocator: &mut Allocator, addresses: &[u64]) {
    for &address in addresses.iter().filter(|&&address| address != NULL) {
        // It was given above.
        let _ = allocator.free(address);
    }
}
