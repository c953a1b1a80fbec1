//! Plays calls on an allocator.

use super::calls::{ReplayCall, ReplayCalls, StreamPool};
use super::initial_segments::{self, InitialSegment};
use crate::allocator::{Allocator, NULL, PoolId, PoolScope};

/// Streams that stand for what a freed block waits for, each its own: none of CUDA's handles, which
/// are addresses or small numbers, has this bit.
const WAIT_STREAM_BIT: u64 = 1 << 63;
/// No block.
const NONE: u64 = NULL;

/// How a replay begins.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReplayStart<'a> {
    /// With the segments as they stood.
    AsItStood(&'a [InitialSegment]),
    /// With the live blocks alone.
    Afresh,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReplayCounters {
    /// The most that was reserved.
    pub(super) peak_reserved: u64,
    /// Requests that had failed, and fail again.
    pub(super) failed_again: u64,
    /// Requests that had failed, and get memory.
    pub(super) saved: u64,
    /// Requests that had got memory, and fail.
    pub(super) failed_now: u64,
    /// Blocks of the beginning that got none.
    pub(super) missing: u64,
    /// Times that all of the cache was given back to serve a request.
    pub(super) retries: u64,
    /// Calls to the card: memory got, and given back.
    pub(super) card_calls: u64,
    /// Requests at the address that they had.
    pub(super) same_addresses: u64,
    /// Requests that were played.
    pub(super) requests: u64,
    /// How far what is reserved was from the trace's, at most.
    pub(super) farthest: u64,
    /// Calls after which it was the same.
    pub(super) same: usize,
}

/// One request; absent where memory ran out.
pub(super) fn malloc_in_pool(
    allocator: &mut Allocator,
    lane: StreamPool,
    bytes: u64,
) -> Option<u64> {
    if lane.pool == PoolId::default() {
        return allocator.malloc(bytes, lane.stream).ok();
    }
    // Beginning a pool makes it, or counts a user more: it stays.
    allocator
        .begin_pool(lane.pool, PoolScope::All, false)
        .ok()?;
    let got = allocator.malloc(bytes, lane.stream).ok();
    let _ = allocator.end_pool(lane.pool);
    got
}

/// Plays the calls.
pub(super) fn replay_calls(
    mut allocator: Allocator,
    calls: &ReplayCalls,
    start: ReplayStart<'_>,
) -> ReplayCounters {
    let mut addresses = vec![NONE; calls.slots];
    let mut played = ReplayCounters {
        missing: match start {
            ReplayStart::AsItStood(stood) => {
                initial_segments::as_it_stood(&mut allocator, calls, stood, &mut addresses)
            }
            ReplayStart::Afresh => {
                initial_segments::allocate_live_blocks(&mut allocator, calls, &mut addresses)
            }
        },
        ..ReplayCounters::default()
    };
    let stats = allocator.stats_mut();
    stats.reset_peaks();
    stats.reset_accumulated();
    let mut curve = calls.curve.iter().peekable();
    let mut recorded = calls.first_reserved;
    for (number, call) in calls.calls.iter().enumerate() {
        one(&mut allocator, calls, *call, &mut addresses, &mut played);
        if let Some(&(_, reserved)) = curve.next_if(|&&(at, _)| at == number) {
            recorded = reserved;
        }
        let off = reserved(&allocator).abs_diff(recorded);
        played.farthest = played.farthest.max(off);
        played.same += usize::from(off == 0);
    }
    let stats = allocator.stats();
    played.peak_reserved = unsigned(stats.reserved_bytes.all.peak);
    played.retries = stats.num_alloc_retries;
    played.card_calls = stats.num_device_alloc.saturating_add(stats.num_device_free);
    played
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

fn reserved(allocator: &Allocator) -> u64 {
    unsigned(allocator.stats().reserved_bytes.all.current)
}

fn one(
    allocator: &mut Allocator,
    calls: &ReplayCalls,
    call: ReplayCall,
    addresses: &mut [u64],
    played: &mut ReplayCounters,
) {
    let lane = |lane: u32| calls.lanes.get(lane as usize).copied().unwrap_or_default();
    match call {
        ReplayCall::Alloc {
            slot,
            lane: number,
            bytes,
            at,
        } => {
            let got = malloc_in_pool(allocator, lane(number), bytes);
            played.requests += 1;
            played.failed_now += u64::from(got.is_none());
            played.same_addresses += u64::from(got == Some(at));
            addresses[slot as usize] = got.unwrap_or(NONE);
        }
        ReplayCall::Failed {
            lane: number,
            bytes,
        } => match malloc_in_pool(allocator, lane(number), bytes) {
            Some(address) => {
                played.saved += 1;
                // What would have come next is not known: the trace goes on without it.
                let _ = allocator.free(address);
            }
            None => played.failed_again += 1,
        },
        ReplayCall::Free { slot } => {
            let address = std::mem::replace(&mut addresses[slot as usize], NONE);
            let _ = allocator.free(address);
        }
        ReplayCall::FreeLater { slot } => {
            let address = std::mem::replace(&mut addresses[slot as usize], NONE);
            let _ = allocator.record_stream(address, WAIT_STREAM_BIT | u64::from(slot));
            let _ = allocator.free(address);
        }
        ReplayCall::Complete { slot } => {
            allocator.complete_events(WAIT_STREAM_BIT | u64::from(slot), None)
        }
        ReplayCall::EmptyCache => allocator.empty_cache(),
    }
}
