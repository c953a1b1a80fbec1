//! A card's trace as calls of the allocator.
//!
//! Of the trace's entries, requests and frees are what the program did; segments are what the
//! allocator did with that, and are left out. `torch.cuda.empty_cache` has no entry of its own:
//! it is a burst of freed segments that no request stands behind.

use std::collections::{BTreeMap, HashMap};

use crate::allocator::{PoolId, device::GRANULE};
use crate::snapshot::{BlockUsage, Snapshot, StackId, TraceAction, TraceEntry};

/// What a block is called, for as long as it lives.
pub(super) type Slot = u32;

/// A call of the allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReplayCall {
    /// A request that got the address `at`.
    Alloc {
        slot: Slot,
        lane: u32,
        bytes: u64,
        at: u64,
    },
    /// A request that failed.
    Failed { lane: u32, bytes: u64 },
    /// A free that ended at once.
    Free { slot: Slot },
    /// A free that waited for another stream.
    FreeLater { slot: Slot },
    /// That stream came to it.
    Complete { slot: Slot },
    /// `torch.cuda.empty_cache`.
    EmptyCache,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct StreamPool {
    pub(super) stream: u64,
    pub(super) pool: PoolId,
}

/// A block that was live before the first entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InitialBlock {
    pub(super) slot: Slot,
    pub(super) lane: u32,
    pub(super) at: u64,
    pub(super) bytes: u64,
}

/// A trace's calls, and what the trace says came of them.
#[derive(Debug, Clone, Default)]
pub(super) struct ReplayCalls {
    pub(super) calls: Vec<ReplayCall>,
    pub(super) lanes: Vec<StreamPool>,
    /// Slots are below this.
    pub(super) slots: usize,
    /// By address.
    pub(super) initial: Vec<InitialBlock>,
    /// Entries that do not fit each other.
    pub(super) unmatched: u64,
    /// Bytes reserved before the first call.
    pub(super) first_reserved: u64,
    /// The most that was reserved.
    pub(super) peak_reserved: u64,
    /// What was reserved after a call, by the call's number, where it changed.
    pub(super) curve: Vec<(usize, u64)>,
    /// Requests that failed.
    pub(super) ooms: u64,
    /// What PyTorch could have of the card, where a request failed.
    pub(super) room_at_oom: Option<u64>,
    /// What it could not have, where it gave its cache back to serve a request.
    pub(super) room_below: Option<u64>,
}

/// What is known of an address.
#[derive(Debug, Clone, Copy)]
enum AddressState {
    Live(Slot),
    Pending(Slot),
    Free,
}

struct Reader<'s> {
    snapshot: &'s Snapshot,
    /// Private pools by their segments at the end: traces before 2.10 do not name them.
    private: BTreeMap<u64, (u64, PoolId)>,
    lane_numbers: HashMap<StreamPool, u32>,
    blocks: HashMap<u64, AddressState>,
    vacant: Vec<Slot>,
    found: ReplayCalls,
    /// Reserved bytes, counted from the first entry.
    reserved: i128,
    most: i128,
    curve: Vec<(usize, i128)>,
    room_at_oom: Option<i128>,
    room_below: Option<i128>,
}

/// Reads a card's trace. `grows`: segments of it can grow.
pub(super) fn extract_calls(snapshot: &Snapshot, device: u64, grows: bool) -> ReplayCalls {
    let mut private = BTreeMap::new();
    for (segment, _) in snapshot.segments_of(device) {
        if let (Some(begin), Some(size), Some(pool)) =
            (segment.address, segment.total_size, segment.pool)
        {
            private.insert(begin, (begin.saturating_add(size), PoolId(pool.0, pool.1)));
        }
    }
    let mut reader = Reader {
        snapshot,
        private,
        lane_numbers: HashMap::new(),
        blocks: HashMap::new(),
        vacant: Vec::new(),
        found: ReplayCalls::default(),
        reserved: 0,
        most: 0,
        curve: Vec::new(),
        room_at_oom: None,
        room_below: None,
    };
    let trace = snapshot.trace_entries(device);
    let mut at = 0;
    while let Some(event) = trace.get(at) {
        at += match event.action() {
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => reader.burst(&trace[at..]),
            TraceAction::FreeRequested => reader.free(event, trace.get(at + 1)),
            _ => {
                reader.other(event, grows);
                1
            }
        };
    }
    reader.finish(device)
}

fn size(event: &TraceEntry) -> u64 {
    event.size().unwrap_or(0)
}

impl Reader<'_> {
    fn other(&mut self, event: &TraceEntry, grows: bool) {
        match (event.action(), event.addr()) {
            (TraceAction::Alloc, Some(at)) => {
                let lane = self.lane(event, Some(at));
                let slot = self.slot();
                let bytes = size(event);
                // An address that is handed out again was free: its end is missing.
                match self.blocks.insert(at, AddressState::Live(slot)) {
                    Some(AddressState::Live(lost)) => {
                        self.lost(ReplayCall::Free { slot: lost }, lost)
                    }
                    Some(AddressState::Pending(lost)) => {
                        self.lost(ReplayCall::Complete { slot: lost }, lost)
                    }
                    Some(AddressState::Free) | None => {}
                }
                self.called(ReplayCall::Alloc {
                    slot,
                    lane,
                    bytes,
                    at,
                });
            }
            (TraceAction::FreeCompleted, Some(at)) => {
                match self.blocks.insert(at, AddressState::Free) {
                    Some(AddressState::Pending(slot)) => {
                        self.called(ReplayCall::Complete { slot });
                        self.vacant.push(slot);
                    }
                    Some(AddressState::Live(slot)) => self.lost(ReplayCall::Free { slot }, slot),
                    Some(AddressState::Free) => self.found.unmatched += 1,
                    // It waited for another stream when the trace began.
                    None => {
                        let slot = self.initial(event, at);
                        self.called(ReplayCall::Free { slot });
                        self.vacant.push(slot);
                    }
                }
            }
            (TraceAction::SegmentAlloc | TraceAction::SegmentMap, _) => {
                self.reserved += i128::from(size(event));
                self.most = self.most.max(self.reserved);
            }
            (TraceAction::Oom, _) => {
                let lane = self.lane(event, None);
                self.found.ooms += 1;
                if let Some(free) = event.device_free() {
                    let mut room = self.reserved + i128::from(free);
                    let granules = size(event).div_ceil(GRANULE);
                    let asked = i128::from(granules.saturating_mul(GRANULE));
                    if !grows && i128::from(free) >= asked {
                        // The card had as much: the process may not have it.
                        room = self.reserved + asked - i128::from(GRANULE);
                    }
                    self.room_at_oom = Some(self.room_at_oom.map_or(room, |had| had.min(room)));
                }
                self.called(ReplayCall::Failed {
                    lane,
                    bytes: size(event),
                });
            }
            _ => {}
        }
    }

    /// The end of a block whose own end is missing, or says otherwise.
    fn lost(&mut self, call: ReplayCall, slot: Slot) {
        self.found.unmatched += 1;
        self.called(call);
        self.vacant.push(slot);
    }

    /// A free, which ends with the next entry where no other stream used the block. Gives the
    /// entries that it read.
    fn free(&mut self, event: &TraceEntry, next: Option<&TraceEntry>) -> usize {
        let Some(at) = event.addr() else { return 1 };
        let slot = match self.blocks.get(&at) {
            Some(&AddressState::Live(slot)) => slot,
            None => self.initial(event, at),
            Some(AddressState::Pending(_) | AddressState::Free) => {
                self.found.unmatched += 1;
                return 1;
            }
        };
        let ends = next.is_some_and(|next| {
            next.action() == TraceAction::FreeCompleted && next.addr() == event.addr()
        });
        if ends {
            self.blocks.insert(at, AddressState::Free);
            self.called(ReplayCall::Free { slot });
            self.vacant.push(slot);
            return 2;
        }
        self.blocks.insert(at, AddressState::Pending(slot));
        self.called(ReplayCall::FreeLater { slot });
        1
    }

    /// Segments that were given back one after the other. Gives their number.
    fn burst(&mut self, trace: &[TraceEntry]) -> usize {
        let is_freed = |event: &&TraceEntry| {
            matches!(
                event.action(),
                TraceAction::SegmentFree | TraceAction::SegmentUnmap
            )
        };
        let freed: Vec<&TraceEntry> = trace.iter().take_while(is_freed).collect();
        let before = self.reserved;
        self.reserved -= freed
            .iter()
            .map(|event| i128::from(size(event)))
            .sum::<i128>();
        let next = trace.get(freed.len());
        match next.filter(|next| serves(freed.last().copied(), next)) {
            Some(next) if next.action() != TraceAction::Oom => {
                let wanted = before + i128::from(size(next));
                self.room_below = Some(self.room_below.map_or(wanted, |had| had.min(wanted)));
            }
            Some(_) => {}
            None => self.called(ReplayCall::EmptyCache),
        }
        freed.len()
    }

    /// A block that was there before the first entry.
    fn initial(&mut self, event: &TraceEntry, at: u64) -> Slot {
        let (slot, lane) = (self.new_slot(), self.lane(event, Some(at)));
        self.found.initial.push(InitialBlock {
            slot,
            lane,
            at,
            bytes: size(event),
        });
        slot
    }

    fn called(&mut self, call: ReplayCall) {
        let number = self.found.calls.len();
        if self
            .curve
            .last()
            .is_none_or(|&(_, last)| last != self.reserved)
        {
            self.curve.push((number, self.reserved));
        }
        self.found.calls.push(call);
    }

    fn slot(&mut self) -> Slot {
        self.vacant.pop().unwrap_or_else(|| self.new_slot())
    }

    /// One that no block had: those of the beginning are there all at once.
    fn new_slot(&mut self) -> Slot {
        self.found.slots += 1;
        Slot::try_from(self.found.slots - 1).unwrap_or(Slot::MAX)
    }

    fn lane(&mut self, event: &TraceEntry, at: Option<u64>) -> u32 {
        let named = self.snapshot.pool_of(event);
        let pool = named.map(|pool| PoolId(pool.0, pool.1));
        let pool = pool.or_else(|| self.private_at(at?));
        let stream = self.snapshot.stream_of(event).unwrap_or(0);
        self.lane_of(stream, pool)
    }

    fn private_at(&self, at: u64) -> Option<PoolId> {
        let (_, &(end, pool)) = self.private.range(..=at).next_back()?;
        (at < end).then_some(pool)
    }

    fn lane_of(&mut self, stream: i64, pool: Option<PoolId>) -> u32 {
        let lane = StreamPool {
            stream: stream.cast_unsigned(),
            pool: pool.unwrap_or_default(),
        };
        let lanes = &mut self.found.lanes;
        *self.lane_numbers.entry(lane).or_insert_with(|| {
            lanes.push(lane);
            u32::try_from(lanes.len() - 1).unwrap_or(u32::MAX)
        })
    }

    fn finish(mut self, device: u64) -> ReplayCalls {
        let mut last_reserved = 0;
        for (segment, blocks) in self.snapshot.segments_of(device) {
            last_reserved += i128::from(segment.total_size.unwrap_or(0));
            let pool = segment.pool.map(|pool| PoolId(pool.0, pool.1));
            for block in blocks {
                let Some(at) = block
                    .address
                    .filter(|_| block.state != BlockUsage::Inactive)
                else {
                    continue;
                };
                // Live from beginning to end, so that no entry names it.
                if !self.blocks.contains_key(&at) {
                    let (slot, lane) = (
                        self.new_slot(),
                        self.lane_of(segment.stream.unwrap_or(0), pool),
                    );
                    self.found.initial.push(InitialBlock {
                        slot,
                        lane,
                        at,
                        bytes: block.requested_size.unwrap_or(block.size),
                    });
                }
            }
        }
        let first = last_reserved - self.reserved;
        let bytes = |figure: i128| u64::try_from((first + figure).max(0)).unwrap_or(u64::MAX);
        let mut found = self.found;
        found.initial.sort_unstable_by_key(|block| block.at);
        found.first_reserved = bytes(0);
        found.peak_reserved = bytes(self.most);
        found.curve = self
            .curve
            .into_iter()
            .map(|(at, figure)| (at, bytes(figure)))
            .collect();
        found.room_at_oom = self.room_at_oom.map(bytes);
        found.room_below = self.room_below.map(bytes);
        found
    }
}

/// Whether segments were given back to serve the request that `next` is of. A request's entries
/// have its stack, all of them; without stacks, one that needs memory of the card is taken for it.
fn serves(freed: Option<&TraceEntry>, next: &TraceEntry) -> bool {
    let needs = matches!(
        next.action(),
        TraceAction::SegmentAlloc | TraceAction::SegmentMap | TraceAction::Oom
    );
    let stack = |event: &TraceEntry| event.stack_id().filter(|&stack| stack != StackId(0));
    match (freed.and_then(stack), stack(next)) {
        (None, None) => needs,
        (freed, next) => needs && freed == next,
    }
}
