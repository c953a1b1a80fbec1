//! A trace played again: what was live when.
//!
//! The ring keeps the newest entries, so that a trace may begin within a run. What was live at its
//! beginning follows from what is freed without having been allocated in it, and from the blocks that
//! are live at its end and that it never names. A block is live until `free_completed`: until then
//! nothing else can have its bytes. Sizes are those that were asked for.

use std::collections::HashMap;

use crate::snapshot::{BlockUsage, Snapshot, StackId, TraceAction, TraceEntry};

/// A block that is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LiveBlock {
    pub(super) size: u64,
    /// Where it was allocated; absent where the trace began later.
    pub(super) stack: Option<StackId>,
}

/// Live blocks by their addresses.
pub(super) type LiveBlocks = HashMap<u64, LiveBlock>;

/// The least that was live within one step, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StepMinimum {
    pub(super) at: usize,
    pub(super) bytes: u64,
}

/// What one pass over a trace tells.
#[derive(Debug, Clone, Default)]
pub(super) struct TraceOutline {
    /// Live before the first entry.
    pub(super) initial: LiveBlocks,
    /// Entries until the most was live, that one included.
    pub(super) peak_at: usize,
    /// Bytes that were live then.
    pub(super) peak_bytes: u64,
    /// The most that was reserved.
    pub(super) peak_reserved: u64,
    /// Reserved before the first entry.
    pub(super) first_reserved: u64,
    /// Frees of what is not live: the trace or the file has a gap.
    pub(super) unmatched: u64,
    /// One for each step.
    pub(super) troughs: Vec<StepMinimum>,
    /// Which entries are failed requests.
    pub(super) ooms: Vec<usize>,
}

/// A running figure that begins at an unknown one.
#[derive(Debug, Clone, Copy)]
struct RunningTotal {
    now: i128,
    most: i128,
}

impl RunningTotal {
    fn add(&mut self, size: u64) {
        self.now += i128::from(size);
        self.most = self.most.max(self.now);
    }

    fn take(&mut self, size: u64) {
        self.now -= i128::from(size);
    }
}

fn bytes(figure: i128) -> u64 {
    u64::try_from(figure.max(0)).unwrap_or(u64::MAX)
}

/// Plays a card's trace. `is_optimizer` is asked of each allocation and says whether it is the
/// optimizer's: steps end where the optimizer begins.
pub(super) fn outline_trace(
    snapshot: &Snapshot,
    device: u64,
    is_optimizer: &dyn Fn(Option<StackId>) -> bool,
) -> TraceOutline {
    let trace = snapshot.trace_entries(device);
    let mut outline = TraceOutline::default();
    // Whether an address that the trace names is live, and with how much.
    let mut named: HashMap<u64, Option<u64>> = HashMap::new();
    let mut live = RunningTotal { now: 0, most: 0 };
    let mut reserved = RunningTotal { now: 0, most: 0 };
    let mut troughs: Vec<(usize, i128)> = Vec::new();
    let (mut lowest, mut in_optimizer) = ((0, 0), false);
    for (at, event) in trace.iter().enumerate() {
        let size = event.size().unwrap_or(0);
        match (event.action(), event.addr()) {
            (TraceAction::Alloc, Some(addr)) => {
                let optimizer = is_optimizer(event.stack_id());
                if optimizer && !in_optimizer {
                    troughs.push(lowest);
                    lowest = (at, live.now);
                }
                in_optimizer = optimizer;
                let most = live.most;
                // An address that is handed out again was free: its end is missing.
                if let Some(lost) = named.insert(addr, Some(size)).flatten() {
                    outline.unmatched += 1;
                    live.take(lost);
                }
                live.add(size);
                if live.most > most {
                    outline.peak_at = at + 1;
                }
            }
            (TraceAction::FreeCompleted, Some(addr)) => match named.insert(addr, None) {
                Some(Some(known)) => live.take(known),
                Some(None) => outline.unmatched += 1,
                None => {
                    outline
                        .initial
                        .insert(addr, LiveBlock { size, stack: None });
                    live.take(size);
                }
            },
            (TraceAction::SegmentAlloc | TraceAction::SegmentMap, _) => reserved.add(size),
            (TraceAction::SegmentFree | TraceAction::SegmentUnmap, _) => reserved.take(size),
            (TraceAction::Oom, _) => outline.ooms.push(at),
            _ => {}
        }
        if live.now < lowest.1 {
            lowest = (at + 1, live.now);
        }
    }
    troughs.push(lowest);
    let mut last_reserved = 0;
    for (segment, blocks) in snapshot.segments_of(device) {
        last_reserved += i128::from(segment.total_size.unwrap_or(0));
        for block in blocks {
            let Some(addr) = block
                .address
                .filter(|_| block.state != BlockUsage::Inactive)
            else {
                continue;
            };
            if !named.contains_key(&addr) {
                let size = block.requested_size.unwrap_or(block.size);
                let stack = block.stack;
                outline.initial.insert(addr, LiveBlock { size, stack });
            }
        }
    }
    let first: i128 = outline
        .initial
        .values()
        .map(|one| i128::from(one.size))
        .sum();
    outline.peak_bytes = bytes(first + live.most);
    let first_reserved = last_reserved - reserved.now;
    outline.first_reserved = bytes(first_reserved);
    outline.peak_reserved = bytes(first_reserved + reserved.most);
    let troughs = troughs.into_iter().map(|(at, figure)| StepMinimum {
        at,
        bytes: bytes(first + figure),
    });
    outline.troughs = troughs.collect();
    outline
}

/// Plays a trace again and stops after so many entries, once for each of `stops`, which must rise.
pub(super) fn replay_trace(
    trace: &[TraceEntry],
    initial: &LiveBlocks,
    stops: &[usize],
    mut stopped: impl FnMut(usize, &LiveBlocks),
) {
    let mut live = initial.clone();
    let mut done = 0;
    for (number, &stop) in stops.iter().enumerate() {
        let stop = stop.clamp(done, trace.len());
        for event in &trace[done..stop] {
            match (event.action(), event.addr()) {
                (TraceAction::Alloc, Some(addr)) => {
                    let size = event.size().unwrap_or(0);
                    let stack = event.stack_id();
                    live.insert(addr, LiveBlock { size, stack });
                }
                (TraceAction::FreeCompleted, Some(addr)) => {
                    live.remove(&addr);
                }
                _ => {}
            }
        }
        done = stop;
        stopped(number, &live);
    }
}
