//! One entry of a trace, in 32 bytes.

use super::StackId;

/// What the allocator did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TraceAction {
    /// A block was handed out.
    Alloc,
    /// It was given back; other streams may still use it.
    FreeRequested,
    /// It can be handed out again.
    FreeCompleted,
    /// `cudaMalloc`.
    SegmentAlloc,
    /// `cudaFree`.
    SegmentFree,
    /// Memory was mapped into an expandable segment.
    SegmentMap,
    /// Memory was unmapped from an expandable segment.
    SegmentUnmap,
    /// A snapshot was taken.
    Snapshot,
    /// A request failed.
    Oom,
    /// A live block was given a text (2.15).
    Annotate,
    /// An action that is not known here.
    Other,
}

const ACTIONS: [TraceAction; 11] = [
    TraceAction::Alloc,
    TraceAction::FreeRequested,
    TraceAction::FreeCompleted,
    TraceAction::SegmentAlloc,
    TraceAction::SegmentFree,
    TraceAction::SegmentMap,
    TraceAction::SegmentUnmap,
    TraceAction::Snapshot,
    TraceAction::Oom,
    TraceAction::Annotate,
    TraceAction::Other,
];

/// An entry of a trace. What a snapshot does not say is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceEntry {
    at: u64,
    size: u64,
    time_us: i64,
    stack: u32,
    /// Action in 4 bits, what is there in 4 bits, lane in 24 bits.
    tag: u32,
}

const HAS_AT: u32 = 1 << 4;
const HAS_SIZE: u32 = 1 << 5;
const HAS_TIME: u32 = 1 << 6;
const HAS_STACK: u32 = 1 << 7;
/// Lanes that can be told apart.
pub(super) const MAX_LANES: usize = 1 << 24;

impl TraceEntry {
    pub(super) fn new(action: TraceAction) -> Self {
        Self {
            at: 0,
            size: 0,
            time_us: 0,
            stack: 0,
            tag: action as u32,
        }
    }

    pub(super) fn set_at(&mut self, at: Option<u64>) {
        if let Some(at) = at {
            self.at = at;
            self.tag |= HAS_AT;
        }
    }

    pub(super) fn set_size(&mut self, size: Option<u64>) {
        if let Some(size) = size {
            self.size = size;
            self.tag |= HAS_SIZE;
        }
    }

    pub(super) fn set_time(&mut self, time_us: Option<i64>) {
        if let Some(time_us) = time_us {
            self.time_us = time_us;
            self.tag |= HAS_TIME;
        }
    }

    pub(super) fn set_stack(&mut self, stack: Option<StackId>) {
        if let Some(stack) = stack {
            self.stack = stack.0;
            self.tag |= HAS_STACK;
        }
    }

    /// The lane must be below [`MAX_LANES`].
    pub(super) fn set_lane(&mut self, lane: u32) {
        self.tag |= lane << 8;
    }

    fn has(&self, what: u32) -> bool {
        self.tag & what != 0
    }

    /// What the allocator did.
    #[must_use]
    pub fn action(&self) -> TraceAction {
        ACTIONS[(self.tag & 0xf) as usize % ACTIONS.len()]
    }

    /// Address of the block or segment.
    #[must_use]
    pub fn addr(&self) -> Option<u64> {
        (self.has(HAS_AT) && self.action() != TraceAction::Oom).then_some(self.at)
    }

    /// Bytes that the card had free when a request failed.
    #[must_use]
    pub fn device_free(&self) -> Option<u64> {
        (self.has(HAS_AT) && self.action() == TraceAction::Oom).then_some(self.at)
    }

    /// Bytes: requested ones of blocks, mapped ones of segments, rounded ones of a failed request.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        self.has(HAS_SIZE).then_some(self.size)
    }

    /// Microseconds since 1970 (absent before 2.1).
    #[must_use]
    pub fn time_us(&self) -> Option<i64> {
        self.has(HAS_TIME).then_some(self.time_us)
    }

    /// Where it was called.
    #[must_use]
    pub fn stack_id(&self) -> Option<StackId> {
        self.has(HAS_STACK).then_some(StackId(self.stack))
    }

    pub(super) fn lane_index(&self) -> usize {
        (self.tag >> 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_small_and_keeps_what_it_is_given() {
        assert_eq!(size_of::<TraceEntry>(), 32);
        for action in ACTIONS {
            let mut event = TraceEntry::new(action);
            assert_eq!(event.action(), action);
            assert_eq!(
                (event.addr(), event.size(), event.stack_id()),
                (None, None, None)
            );
            event.set_at(Some(0));
            event.set_time(Some(-1));
            event.set_lane(MAX_LANES as u32 - 1);
            let is_oom = action == TraceAction::Oom;
            assert_eq!(event.addr(), (!is_oom).then_some(0));
            assert_eq!(event.device_free(), is_oom.then_some(0));
            assert_eq!(event.action(), action);
            assert_eq!(event.time_us(), Some(-1));
            assert_eq!(event.lane_index(), MAX_LANES - 1);
            assert_eq!(event.size(), None);
        }
    }
}
