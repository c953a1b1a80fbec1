//! Why a request failed: what was asked, what was free and in which pieces, and who stands between them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::breakdown::{MemoryBreakdown, compute_breakdown};
use super::fragmentation::RetainingBlock;
use super::replay::{LiveBlock, LiveBlocks, TraceOutline, replay_trace};
use super::source_locations::{SourceLocation, StackIndex};
use super::stack_lines;
use crate::snapshot::{Snapshot, TraceAction, TraceEntry};

/// Failed requests that are explained; the last ones.
const MAX_EXPLAINED_ERRORS: usize = 4;
/// Blocks that are listed as in the way.
const MAX_PINS: usize = 8;
/// Blocks are multiples of this.
const ROUND: u64 = 512;

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OomReason {
    /// More than was free altogether, in the cache and on the card.
    TooMuch,
    /// Enough was free altogether, but in pieces.
    Fragmented,
    /// The card had as much: a limit of the process, or the segment that PyTorch wanted for it was
    /// larger than the request.
    Limited,
    /// The file does not say what was free.
    Unknown,
}

/// A request that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailedRequest {
    /// Which entry of the trace, from 0.
    pub entry: usize,
    /// Microseconds after the first entry.
    pub after_us: Option<i64>,
    /// Bytes that were asked for, rounded as the allocator does.
    pub asked_bytes: Option<u64>,
    /// Bytes that the card had free.
    pub device_free_bytes: Option<u64>,
    /// What PyTorch had reserved.
    pub reserved_bytes: u64,
    /// Of it free, for the stream that asked; about, as roundings are not recorded.
    pub free_bytes: u64,
    /// The largest piece of it.
    pub largest_free_bytes: u64,
    /// Why it failed.
    pub reason: OomReason,
    /// By how much it was too much.
    pub short_bytes: Option<u64>,
    /// Where it was asked.
    pub place: Option<SourceLocation>,
    /// The whole stack, the innermost frame first.
    pub stack: Vec<String>,
    /// The fewest bytes of live blocks between which the request would have fitted; absent where no
    /// segment is as large.
    pub in_the_way_bytes: Option<u64>,
    /// These blocks; of many the largest.
    pub in_the_way: Vec<RetainingBlock>,
    /// What filled the memory then.
    pub filled: MemoryBreakdown,
}

/// Reserved ranges: beginning → end, stream, whether neighbours are one.
pub(crate) type ReservedRanges = BTreeMap<u64, ReservedRange>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReservedRange {
    pub(crate) end: u64,
    pub(crate) stream: Option<i64>,
    /// Whether it is of an expandable segment.
    pub(crate) grows: bool,
}

fn add(ranges: &mut ReservedRanges, begin: u64, mut new: ReservedRange) {
    let mut begin = begin;
    if new.grows {
        let before = ranges
            .range(..begin)
            .next_back()
            .map(|(at, one)| (*at, *one));
        if let Some((at, one)) = before
            && one.grows
            && one.end == begin
        {
            ranges.remove(&at);
            begin = at;
        }
        if let Some(after) = ranges.get(&new.end).copied()
            && after.grows
        {
            ranges.remove(&new.end);
            new.end = after.end;
        }
    }
    ranges.insert(begin, new);
}

fn remove(ranges: &mut ReservedRanges, begin: u64, end: u64) {
    let touched = ranges
        .range(..end)
        .rev()
        .take_while(|(_, one)| one.end > begin);
    let touched: Vec<(u64, ReservedRange)> = touched.map(|(at, one)| (*at, *one)).collect();
    for (at, one) in touched {
        ranges.remove(&at);
        if at < begin {
            ranges.insert(at, ReservedRange { end: begin, ..one });
        }
        if one.end > end {
            ranges.insert(end, one);
        }
    }
}

/// What an entry does to the reserved ranges; `backward` undoes it.
fn apply(snapshot: &Snapshot, ranges: &mut ReservedRanges, event: &TraceEntry, backward: bool) {
    let (reserves, grows) = match event.action() {
        TraceAction::SegmentAlloc => (true, false),
        TraceAction::SegmentMap => (true, true),
        TraceAction::SegmentFree => (false, false),
        TraceAction::SegmentUnmap => (false, true),
        _ => return,
    };
    let (Some(begin), Some(size)) = (event.addr(), event.size()) else {
        return;
    };
    let end = begin.saturating_add(size);
    if reserves == backward {
        remove(ranges, begin, end);
    } else if end > begin {
        let stream = snapshot.stream_of(event);
        add(ranges, begin, ReservedRange { end, stream, grows });
    }
}

/// Reserved ranges before the first entry: those at the end, with everything undone.
pub(crate) fn first_ranges(snapshot: &Snapshot, device: u64) -> ReservedRanges {
    let mut ranges = ReservedRanges::new();
    for (segment, _) in snapshot.segments_of(device) {
        let (Some(begin), Some(size)) = (segment.address, segment.total_size) else {
            continue;
        };
        let range = ReservedRange {
            end: begin.saturating_add(size),
            stream: segment.stream,
            grows: segment.is_expandable.unwrap_or(false),
        };
        add(&mut ranges, begin, range);
    }
    for event in snapshot.trace_entries(device).iter().rev() {
        apply(snapshot, &mut ranges, event, true);
    }
    ranges
}

pub(super) fn explain_ooms(
    snapshot: &Snapshot,
    places: &StackIndex,
    device: u64,
    outline: &TraceOutline,
) -> Vec<FailedRequest> {
    if outline.ooms.is_empty() {
        return Vec::new();
    }
    let trace = snapshot.trace_entries(device);
    let stops = &outline.ooms[outline.ooms.len().saturating_sub(MAX_EXPLAINED_ERRORS)..];
    let mut ranges = first_ranges(snapshot, device);
    let mut done = 0;
    let mut found = Vec::new();
    replay_trace(trace, &outline.initial, stops, |number, live| {
        let at = stops[number];
        for event in &trace[done..at] {
            apply(snapshot, &mut ranges, event, false);
        }
        done = at;
        found.push(explain(snapshot, places, device, at, &ranges, live));
    });
    found
}

fn explain(
    snapshot: &Snapshot,
    places: &StackIndex,
    device: u64,
    at: usize,
    ranges: &ReservedRanges,
    live: &LiveBlocks,
) -> FailedRequest {
    let trace = snapshot.trace_entries(device);
    let event = &trace[at];
    let asked = event.size();
    let stream = snapshot.stream_of(event);
    let mut order: Vec<(u64, LiveBlock)> =
        live.iter().map(|(addr, block)| (*addr, *block)).collect();
    order.sort_unstable_by_key(|(addr, _)| *addr);
    let mut free = 0u64;
    let mut largest = 0u64;
    let mut way: Option<EvictionCandidate> = None;
    for (&begin, range) in ranges {
        if stream.is_some() && range.stream.is_some() && range.stream != stream {
            continue;
        }
        let from = order.partition_point(|(addr, _)| *addr < begin);
        let to = order.partition_point(|(addr, _)| *addr < range.end);
        let inside = &order[from..to];
        for (from, to) in gaps(begin, range.end, inside) {
            free = free.saturating_add(to - from);
            largest = largest.max(to - from);
        }
        if let Some(asked) = asked
            && let Some(found) = narrowest(begin, range.end, inside, asked)
            && way.as_ref().is_none_or(|known| found.bytes < known.bytes)
        {
            way = Some(found);
        }
    }
    let device_free = event.device_free();
    let reason = match (asked, device_free) {
        (Some(asked), Some(device)) if device >= asked => OomReason::Limited,
        (Some(asked), Some(device)) if device.saturating_add(free) >= asked => {
            OomReason::Fragmented
        }
        (Some(asked), None) if free >= asked => OomReason::Fragmented,
        (Some(_), Some(_)) => OomReason::TooMuch,
        _ => OomReason::Unknown,
    };
    let short = asked
        .zip(device_free)
        .map(|(asked, device)| asked.saturating_sub(device).saturating_sub(free));
    let mut blocks = way.as_ref().map_or(Vec::new(), |way| way.blocks.clone());
    blocks.sort_by_key(|(addr, block)| (std::cmp::Reverse(block.size), *addr));
    let pins = blocks
        .into_iter()
        .take(MAX_PINS)
        .map(|(address, block)| RetainingBlock {
            address,
            size_bytes: block.size,
            place: places.source_location(block.stack),
            stack: stack_lines(snapshot, block.stack),
        });
    FailedRequest {
        entry: at,
        after_us: super::after_us(trace, event),
        asked_bytes: asked,
        device_free_bytes: device_free,
        reserved_bytes: ranges.iter().fold(0u64, |sum, (begin, range)| {
            sum.saturating_add(range.end - begin)
        }),
        free_bytes: free,
        largest_free_bytes: largest,
        reason,
        short_bytes: short.filter(|_| reason == OomReason::TooMuch),
        place: places.source_location(event.stack_id()),
        stack: stack_lines(snapshot, event.stack_id()),
        in_the_way_bytes: way.as_ref().map(|way| way.bytes),
        in_the_way: pins.collect(),
        filled: compute_breakdown(snapshot, places, live),
    }
}

/// The end of a block, as far as its request tells.
fn end_of(addr: u64, block: &LiveBlock) -> u64 {
    addr.saturating_add(block.size.div_ceil(ROUND).saturating_mul(ROUND))
}

/// What is free between blocks in order.
fn gaps(begin: u64, end: u64, blocks: &[(u64, LiveBlock)]) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut at = begin;
    for (addr, block) in blocks {
        if *addr > at {
            gaps.push((at, *addr));
        }
        at = at.max(end_of(*addr, block)).min(end);
    }
    if end > at {
        gaps.push((at, end));
    }
    gaps
}

/// Neighbouring blocks whose end would make room.
#[derive(Debug, Clone)]
struct EvictionCandidate {
    bytes: u64,
    blocks: Vec<(u64, LiveBlock)>,
}

/// The neighbouring blocks with the fewest bytes between which `asked` bytes fit.
fn narrowest(
    begin: u64,
    end: u64,
    blocks: &[(u64, LiveBlock)],
    asked: u64,
) -> Option<EvictionCandidate> {
    if end - begin < asked {
        return None;
    }
    let size = |one: &(u64, LiveBlock)| end_of(one.0, &one.1) - one.0;
    // Blocks from..to go: free is from the end of the one before to the beginning of the one after.
    let begins = |from: usize| match from {
        0 => begin,
        from => end_of(blocks[from - 1].0, &blocks[from - 1].1),
    };
    let ends = |to: usize| blocks.get(to).map_or(end, |(addr, _)| *addr);
    let (mut to, mut bytes) = (0, 0u64);
    let mut best: Option<(u64, usize, usize)> = None;
    for from in 0..=blocks.len() {
        if to < from {
            (to, bytes) = (from, 0);
        }
        while to < blocks.len() && ends(to).saturating_sub(begins(from)) < asked {
            bytes = bytes.saturating_add(size(&blocks[to]));
            to += 1;
        }
        if ends(to).saturating_sub(begins(from)) < asked {
            break;
        }
        if best.is_none_or(|(least, ..)| bytes < least) {
            best = Some((bytes, from, to));
        }
        if from < to {
            bytes = bytes.saturating_sub(size(&blocks[from]));
        }
    }
    best.map(|(bytes, from, to)| EvictionCandidate {
        bytes,
        blocks: blocks[from..to].to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(size: u64) -> LiveBlock {
        LiveBlock { size, stack: None }
    }

    #[test]
    fn the_fewest_bytes_in_the_way_are_found() {
        const K: u64 = 1024;
        // 10 KiB: live at 0..2, 3..4, 6..9.
        let blocks = [(0, live(2 * K)), (3 * K, live(K)), (6 * K, live(3 * K))];
        let gaps = gaps(0, 10 * K, &blocks);
        assert_eq!(gaps, [(2 * K, 3 * K), (4 * K, 6 * K), (9 * K, 10 * K)]);
        let way =
            |asked| narrowest(0, 10 * K, &blocks, asked).map(|way| (way.bytes, way.blocks.len()));
        assert_eq!(way(2 * K), Some((0, 0)));
        assert_eq!(way(4 * K), Some((K, 1)));
        assert_eq!(way(5 * K), Some((3 * K, 1 + 1)));
        assert_eq!(way(10 * K), Some((6 * K, 3)));
        assert_eq!(way(11 * K), None);
        assert_eq!(
            narrowest(0, 4 * K, &[], 4 * K).map(|way| way.bytes),
            Some(0)
        );
    }

    #[test]
    fn ranges_grow_and_shrink() {
        let range = |end, grows| ReservedRange {
            end,
            stream: None,
            grows,
        };
        let shown = |ranges: &ReservedRanges| {
            ranges
                .iter()
                .map(|(at, one)| (*at, one.end))
                .collect::<Vec<_>>()
        };
        let mut ranges = ReservedRanges::new();
        add(&mut ranges, 10, range(20, true));
        add(&mut ranges, 30, range(40, true));
        add(&mut ranges, 20, range(30, true));
        assert_eq!(shown(&ranges), [(10, 40)]);
        remove(&mut ranges, 15, 20);
        assert_eq!(shown(&ranges), [(10, 15), (20, 40)]);
        remove(&mut ranges, 0, 25);
        assert_eq!(shown(&ranges), [(25, 40)]);
        // What cudaMalloc gave is never one with its neighbour.
        add(&mut ranges, 40, range(50, false));
        assert_eq!(shown(&ranges), [(25, 40), (40, 50)]);
    }
}
