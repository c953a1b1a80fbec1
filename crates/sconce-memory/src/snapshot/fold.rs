//! Dicts that become frames, entries, blocks, segments and annotations.

use super::build::{
    FinishedList, History, NodeKind, SnapshotBuilder, as_text_id, as_unsigned, decode_node,
    known_field_bits, too_many,
};
use super::event::MAX_LANES;
use super::names::key;
use super::stacks::FrameIds;
use super::{
    Annotation, BlockInfo, BlockUsage, Lane, PrivatePoolId, SegmentInfo, TraceAction, TraceEntry,
};
use crate::pickle::{PickleNode, PickleRejection, PickleValue};

const fn all(names: &[u32]) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < names.len() {
        bits |= 1 << names[at];
        at += 1;
    }
    bits
}

const FRAME: u64 = all(&[key::FILENAME, key::NAME]);
const EVENT: u64 = all(&[key::ACTION]);
const BLOCK: u64 = all(&[key::STATE, key::SIZE]);
const SEGMENT: u64 = all(&[key::TOTAL_SIZE, key::BLOCKS]);
const HISTORY: u64 = all(&[key::REAL_SIZE]);
const ANNOTATION: u64 = all(&[key::NAME, key::STAGE]);
/// Only the snapshot itself has these.
const TOP: u64 = all(&[key::SEGMENTS]);

impl SnapshotBuilder {
    /// Makes of a dict what its fields say that it is.
    pub(super) fn convert_dict(
        &mut self,
        pairs: &[PickleValue],
    ) -> Result<PickleNode, PickleRejection> {
        let (pairs, _) = pairs.as_chunks::<2>();
        let fields = known_field_bits(pairs);
        let has = |all: u64| fields & all == all;
        if has(TOP) {
            self.other(pairs)
        } else if has(EVENT) {
            self.event(pairs)
        } else if has(FRAME) {
            self.frame(pairs)
        } else if has(SEGMENT) {
            self.segment(pairs)
        } else if has(BLOCK) {
            self.block(pairs)
        } else if has(HISTORY) {
            self.history(pairs)
        } else if has(ANNOTATION) {
            self.annotation(pairs)
        } else {
            self.other(pairs)
        }
    }

    fn other(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        self.reserve_budget(1 + pairs.len())?;
        let pairs = pairs.iter().map(|[key, value]| (*key, *value));
        self.dicts.push(pairs.collect());
        NodeKind::Dict.encode_node(self.dicts.len() - 1)
    }

    fn frame(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        let mut frame = FrameIds {
            filename: key::EMPTY,
            name: key::EMPTY,
            line: 0,
        };
        for [name, value] in pairs {
            match as_text_id(*name) {
                Some(key::FILENAME) => frame.filename = as_text_id(*value).unwrap_or(key::EMPTY),
                Some(key::NAME) => frame.name = as_text_id(*value).unwrap_or(key::EMPTY),
                Some(key::LINE) => {
                    let line = as_unsigned(*value).and_then(|line| u32::try_from(line).ok());
                    frame.line = line.unwrap_or(0);
                }
                _ => {}
            }
        }
        NodeKind::Frame.encode_node(self.stacks.intern_frame(frame)? as usize)
    }

    fn event(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        if self.events.len() >= self.limits.events {
            return Err(too_many("trace entries", self.limits.events));
        }
        let mut lane = Lane::default();
        let mut event = TraceEntry::new(TraceAction::Other);
        let mut is_oom = false;
        for [name, value] in pairs {
            if as_text_id(*name) == Some(key::ACTION) {
                event = TraceEntry::new(action(as_text_id(*value)));
                is_oom = event.action() == TraceAction::Oom;
            }
        }
        for &[name, value] in pairs {
            match as_text_id(name) {
                Some(key::ADDR) if !is_oom => event.set_at(as_unsigned(value)),
                Some(key::DEVICE_FREE) if is_oom => event.set_at(as_unsigned(value)),
                Some(key::SIZE) => event.set_size(as_unsigned(value)),
                Some(key::TIME_US) => event.set_time(signed(value)),
                Some(key::FRAMES) => event.set_stack(self.stack_of(value)),
                Some(key::STREAM) => lane.stream = signed(value),
                Some(key::POOL_ID) => lane.pool = self.pool_of(value),
                Some(key::COMPILE_CONTEXT) => lane.compile_context = said(value),
                Some(key::USER_METADATA) => lane.user_metadata = said(value),
                _ => {}
            }
        }
        event.set_lane(self.lane(lane)?);
        self.events.push(event);
        NodeKind::Event.encode_node(self.events.len() - 1)
    }

    fn lane(&mut self, lane: Lane) -> Result<u32, PickleRejection> {
        if let Some((last, number)) = self.last_lane
            && last == lane
        {
            return Ok(number);
        }
        let number = match self.lane_numbers.get(&lane) {
            Some(&number) => number,
            None => {
                if self.lanes.len() >= MAX_LANES {
                    return Err(too_many("streams, pools and metadata", MAX_LANES));
                }
                let number = u32::try_from(self.lanes.len()).unwrap_or(u32::MAX);
                self.lanes.push(lane);
                self.lane_numbers.insert(lane, number);
                number
            }
        };
        self.last_lane = Some((lane, number));
        Ok(number)
    }

    fn block(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        if self.blocks.len() >= self.limits.blocks {
            return Err(too_many("blocks", self.limits.blocks));
        }
        let mut block = BlockInfo {
            address: None,
            size: 0,
            requested_size: None,
            state: BlockUsage::Inactive,
            stack: None,
        };
        let mut used = None;
        for &[name, value] in pairs {
            match as_text_id(name) {
                Some(key::ADDRESS) => block.address = as_unsigned(value),
                Some(key::SIZE) => block.size = as_unsigned(value).unwrap_or(0),
                Some(key::REQUESTED_SIZE) => block.requested_size = as_unsigned(value),
                Some(key::FRAMES) => block.stack = self.stack_of(value),
                Some(key::HISTORY) => used = self.first_use(value),
                Some(key::STATE) => {
                    block.state = match as_text_id(value) {
                        Some(key::ACTIVE_ALLOCATED) => BlockUsage::Allocated,
                        Some(key::ACTIVE_PENDING_FREE | key::ACTIVE_AWAITING_FREE) => {
                            BlockUsage::PendingFree
                        }
                        _ => BlockUsage::Inactive,
                    }
                }
                _ => {}
            }
        }
        // What a free block was used for before says nothing of what fills the card.
        if let Some(used) = used.filter(|_| block.state != BlockUsage::Inactive) {
            block.stack = block.stack.or(used.stack);
            block.requested_size = block.requested_size.or(used.real_size);
        }
        self.blocks.push(block);
        NodeKind::Block.encode_node(self.blocks.len() - 1)
    }

    fn first_use(&self, value: PickleValue) -> Option<History> {
        let PickleValue::Node(node) = value else {
            return None;
        };
        let (NodeKind::List, number) = decode_node(node) else {
            return None;
        };
        match self.lists.get(number)? {
            FinishedList::Run {
                kind: NodeKind::History,
                first,
                ..
            } => self.histories.get(*first).copied(),
            _ => None,
        }
    }

    fn history(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        if self.histories.len() >= self.limits.blocks {
            return Err(too_many("uses of blocks", self.limits.blocks));
        }
        let mut history = History {
            real_size: None,
            stack: None,
        };
        for &[name, value] in pairs {
            match as_text_id(name) {
                Some(key::REAL_SIZE) => history.real_size = as_unsigned(value),
                Some(key::FRAMES) => history.stack = self.stack_of(value),
                _ => {}
            }
        }
        self.histories.push(history);
        NodeKind::History.encode_node(self.histories.len() - 1)
    }

    fn segment(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        if self.segments.len() >= self.limits.segments {
            return Err(too_many("segments", self.limits.segments));
        }
        let mut segment = SegmentInfo::default();
        for &[name, value] in pairs {
            match as_text_id(name) {
                Some(key::DEVICE) => segment.device = as_unsigned(value),
                Some(key::ADDRESS) => segment.address = as_unsigned(value),
                Some(key::TOTAL_SIZE) => segment.total_size = as_unsigned(value),
                Some(key::ALLOCATED_SIZE) => segment.allocated_size = as_unsigned(value),
                Some(key::ACTIVE_SIZE) => segment.active_size = as_unsigned(value),
                Some(key::REQUESTED_SIZE) => segment.requested_size = as_unsigned(value),
                Some(key::STREAM) => segment.stream = signed(value),
                Some(key::FRAMES) => segment.stack = self.stack_of(value),
                Some(key::SEGMENT_POOL_ID) => segment.pool = self.pool_of(value),
                Some(key::IS_EXPANDABLE) => {
                    segment.is_expandable = match value {
                        PickleValue::Bool(is) => Some(is),
                        _ => None,
                    }
                }
                Some(key::SEGMENT_TYPE) => {
                    segment.is_small = match as_text_id(value) {
                        Some(key::SMALL) => Some(true),
                        Some(key::LARGE) => Some(false),
                        _ => None,
                    }
                }
                Some(key::BLOCKS) => segment.blocks = self.blocks_of(value)?,
                _ => {}
            }
        }
        let mut address = segment.address;
        for block in &mut self.blocks[segment.blocks.clone()] {
            block.address = block.address.or(address);
            address = address.and_then(|address| address.checked_add(block.size));
        }
        self.segments.push(segment);
        NodeKind::Segment.encode_node(self.segments.len() - 1)
    }

    fn blocks_of(&mut self, value: PickleValue) -> Result<std::ops::Range<usize>, PickleRejection> {
        let list = match value {
            PickleValue::Node(node) => match decode_node(node) {
                (NodeKind::List, 0) => return Ok(0..0),
                (NodeKind::List, number) => self.lists.get(number),
                _ => None,
            },
            _ => None,
        };
        match list {
            Some(FinishedList::Run {
                kind: NodeKind::Block,
                first,
                len,
            }) if *first >= self.claimed => {
                self.claimed = first + len;
                Ok(*first..self.claimed)
            }
            _ => Err(PickleRejection::Shape {
                what: "a segment's blocks are no list of blocks, or another segment's",
            }),
        }
    }

    fn annotation(&mut self, pairs: &[[PickleValue; 2]]) -> Result<PickleNode, PickleRejection> {
        if self.annotations.len() >= self.limits.segments {
            return Err(too_many("annotations", self.limits.segments));
        }
        let mut annotation = Annotation {
            name: key::EMPTY,
            begins: None,
            device: None,
            time_us: None,
        };
        for &[name, value] in pairs {
            match as_text_id(name) {
                Some(key::NAME) => annotation.name = as_text_id(value).unwrap_or(key::EMPTY),
                Some(key::DEVICE) => annotation.device = as_unsigned(value),
                Some(key::TIME_US) => annotation.time_us = signed(value),
                Some(key::STAGE) => {
                    annotation.begins = match as_text_id(value) {
                        Some(key::START) => Some(true),
                        Some(key::END) => Some(false),
                        _ => None,
                    }
                }
                _ => {}
            }
        }
        self.annotations.push(annotation);
        NodeKind::Annotation.encode_node(self.annotations.len() - 1)
    }

    /// A pool that is not the default one.
    fn pool_of(&self, value: PickleValue) -> Option<PrivatePoolId> {
        let PickleValue::Node(node) = value else {
            return None;
        };
        let (NodeKind::Pair, number) = decode_node(node) else {
            return None;
        };
        self.pairs
            .get(number)
            .copied()
            .filter(|&pool| pool != (0, 0))
    }
}

fn action(name: Option<u32>) -> TraceAction {
    match name {
        Some(key::ALLOC) => TraceAction::Alloc,
        Some(key::FREE_REQUESTED) => TraceAction::FreeRequested,
        Some(key::FREE_COMPLETED | key::FREE) => TraceAction::FreeCompleted,
        Some(key::SEGMENT_ALLOC) => TraceAction::SegmentAlloc,
        Some(key::SEGMENT_FREE) => TraceAction::SegmentFree,
        Some(key::SEGMENT_MAP) => TraceAction::SegmentMap,
        Some(key::SEGMENT_UNMAP) => TraceAction::SegmentUnmap,
        Some(key::SNAPSHOT) => TraceAction::Snapshot,
        Some(key::OOM) => TraceAction::Oom,
        Some(key::ANNOTATE) => TraceAction::Annotate,
        _ => TraceAction::Other,
    }
}

/// A number that may be negative; a handle above `i64::MAX` keeps its bits.
fn signed(value: PickleValue) -> Option<i64> {
    match value {
        PickleValue::Int(value) => Some(value),
        PickleValue::Unsigned(value) => Some(value.cast_signed()),
        _ => None,
    }
}

/// A text that says something.
fn said(value: PickleValue) -> Option<u32> {
    as_text_id(value).filter(|&name| name != key::NOTHING && name != key::EMPTY)
}
