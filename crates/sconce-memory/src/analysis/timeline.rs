//! A card's history entry by entry, for a picture of it: who took and who gave back, and what was
//! reserved.

use std::collections::HashMap;

use sconce_schema::finding::Certainty;

use super::replay::{self, LiveBlock};
use super::source_locations::{MemoryCategory, SourceLocation, StackIndex};
use super::stack_lines;
use crate::snapshot::{Snapshot, StackId, TraceAction};

/// What an entry does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// A block is allocated.
    Takes,
    /// A block is given back: from now on others can have its bytes.
    Gives,
    /// The allocator takes memory of the card.
    Reserves,
    /// The allocator gives memory back to the card.
    Returns,
    /// A request failed.
    Fails,
}

/// An entry that changes what is live or reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Microseconds since the first entry; 0 where no time was recorded.
    pub after_us: u64,
    /// What it does.
    pub does: EntryKind,
    /// Whose block it is, by its place in [`MemoryTimeline::groups`]; 0 of what is reserved.
    pub group: usize,
    /// How many bytes.
    pub bytes: u64,
}

/// Blocks of one line of code and one category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineGroup {
    /// The line; absent where no stack was recorded.
    pub place: Option<SourceLocation>,
    /// What the memory is for.
    pub category: MemoryCategory,
    /// How sure that is.
    pub certainty: Certainty,
    /// A stack of it, the innermost frame first.
    pub stack: Vec<String>,
    /// What of it was live before the first entry, in bytes.
    pub first_bytes: u64,
}

/// A card's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryTimeline {
    /// Whose blocks there are. The first is what no stack was recorded of.
    pub groups: Vec<TimelineGroup>,
    /// Entries in the order of time.
    pub entries: Vec<TimelineEntry>,
    /// Reserved before the first entry, in bytes.
    pub first_reserved_bytes: u64,
}

struct Groups<'s> {
    snapshot: &'s Snapshot,
    places: StackIndex,
    numbers: HashMap<(Option<usize>, MemoryCategory, Certainty), usize>,
    of_stacks: HashMap<Option<StackId>, usize>,
    groups: Vec<TimelineGroup>,
}

impl Groups<'_> {
    fn number(&mut self, stack: Option<StackId>) -> usize {
        if let Some(&known) = self.of_stacks.get(&stack) {
            return known;
        }
        let said = self.places.stack_summary(stack);
        let (category, certainty) = said.category;
        let next = self.groups.len();
        let key = (said.place, category, certainty);
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.groups.push(TimelineGroup {
                place: self.places.source_location(stack),
                category,
                certainty,
                stack: stack_lines(self.snapshot, stack),
                first_bytes: 0,
            });
        }
        self.of_stacks.insert(stack, number);
        number
    }
}

/// The history of a card. `None` where none was recorded.
#[must_use]
pub fn build_timeline(snapshot: &Snapshot, device: u64) -> Option<MemoryTimeline> {
    let trace = snapshot.trace_entries(device);
    let began = trace.first()?.time_us();
    let outline = replay::outline_trace(snapshot, device, &|_| false);
    let mut groups = Groups {
        snapshot,
        places: StackIndex::from_snapshot(snapshot, &[]),
        numbers: HashMap::new(),
        of_stacks: HashMap::new(),
        groups: Vec::new(),
    };
    groups.number(None);
    // Addresses in their order, so that the groups are always in the same.
    let mut initial: Vec<(&u64, &LiveBlock)> = outline.initial.iter().collect();
    initial.sort_unstable_by_key(|(address, _)| **address);
    let mut live: HashMap<u64, (usize, u64)> = HashMap::new();
    for (&address, block) in initial {
        let group = groups.number(block.stack);
        let first = &mut groups.groups[group].first_bytes;
        *first = first.saturating_add(block.size);
        live.insert(address, (group, block.size));
    }
    let mut entries = Vec::new();
    for event in trace {
        let after = began.and_then(|began| event.time_us()?.checked_sub(began));
        let after_us = after.and_then(|after| u64::try_from(after).ok());
        let mut tell = |does, group, bytes| {
            entries.push(TimelineEntry {
                after_us: after_us.unwrap_or(0),
                does,
                group,
                bytes,
            });
        };
        let size = event.size().unwrap_or(0);
        match (event.action(), event.addr()) {
            (TraceAction::Alloc, Some(address)) => {
                let group = groups.number(event.stack_id());
                // An address that is handed out again was free: its end is missing.
                if let Some((group, lost)) = live.insert(address, (group, size)) {
                    tell(EntryKind::Gives, group, lost);
                }
                tell(EntryKind::Takes, group, size);
            }
            (TraceAction::FreeCompleted, Some(address)) => {
                if let Some((group, bytes)) = live.remove(&address) {
                    tell(EntryKind::Gives, group, bytes);
                }
            }
            (TraceAction::SegmentAlloc | TraceAction::SegmentMap, _) => {
                tell(EntryKind::Reserves, 0, size)
            }
            (TraceAction::SegmentFree | TraceAction::SegmentUnmap, _) => {
                tell(EntryKind::Returns, 0, size)
            }
            (TraceAction::Oom, _) => tell(EntryKind::Fails, groups.number(event.stack_id()), size),
            _ => {}
        }
    }
    Some(MemoryTimeline {
        groups: groups.groups,
        entries,
        first_reserved_bytes: outline.first_reserved,
    })
}
