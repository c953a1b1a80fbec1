//! What the parts of a pickle become: dicts with the fields of frames, entries, blocks and segments
//! become these as soon as they are complete; only the rest is kept as it is.

use std::collections::HashMap;

use super::names::{NameTable, key};
use super::stacks::Stacks;
use super::{
    Annotation, BlockInfo, Lane, PrivatePoolId, SegmentInfo, SnapshotLimits, StackId, TraceEntry,
};
use crate::pickle::{PickleBuilder, PickleNode, PickleRejection, PickleValue};

/// What a node is: 4 bits of it; the other 28 are its number among its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NodeKind {
    Text,
    Frame,
    Stack,
    Event,
    Block,
    Segment,
    History,
    Annotation,
    Dict,
    List,
    Pair,
}

const KINDS: [NodeKind; 11] = [
    NodeKind::Text,
    NodeKind::Frame,
    NodeKind::Stack,
    NodeKind::Event,
    NodeKind::Block,
    NodeKind::Segment,
    NodeKind::History,
    NodeKind::Annotation,
    NodeKind::Dict,
    NodeKind::List,
    NodeKind::Pair,
];
const NUMBER_BITS: u32 = 28;

impl NodeKind {
    pub(super) fn encode_node(self, number: usize) -> Result<PickleNode, PickleRejection> {
        let limit = 1 << NUMBER_BITS;
        let fits = u32::try_from(number).ok().filter(|&number| number < limit);
        let node = fits.and_then(|number| PickleNode::new(((self as u32) << NUMBER_BITS) | number));
        node.ok_or(PickleRejection::TooMany {
            what: "things of a kind",
            limit: u64::from(limit),
        })
    }
}

/// Its kind and number.
pub(super) fn decode_node(node: PickleNode) -> (NodeKind, usize) {
    let kind = KINDS[(node.as_u32() >> NUMBER_BITS) as usize % KINDS.len()];
    (kind, (node.as_u32() & ((1 << NUMBER_BITS) - 1)) as usize)
}

/// A list that is kept. Things of which there are many follow each other, so that their list is a
/// range.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum FinishedList {
    Run {
        kind: NodeKind,
        first: usize,
        len: usize,
    },
    Values(Box<[PickleValue]>),
    /// Of several kinds, or in another order: of no use, and not kept.
    Mixed,
}

/// A list that is being read.
#[derive(Debug, Default)]
pub(super) enum ListBuilder {
    #[default]
    Empty,
    Frames(Vec<u32>),
    Run {
        kind: NodeKind,
        first: usize,
        len: usize,
    },
    Values(Vec<PickleValue>),
    Mixed,
}

/// A block of torch 2.0 says what it was used for; its newest use comes first.
#[derive(Debug, Clone, Copy)]
pub(super) struct History {
    pub(super) real_size: Option<u64>,
    pub(super) stack: Option<StackId>,
}

/// A dict that is kept as it is.
pub(super) type DictPairs = Vec<(PickleValue, PickleValue)>;

#[derive(Debug)]
pub(super) struct SnapshotBuilder {
    pub(super) limits: SnapshotLimits,
    pub(super) names: NameTable,
    pub(super) stacks: Stacks,
    pub(super) events: Vec<TraceEntry>,
    pub(super) blocks: Vec<BlockInfo>,
    pub(super) segments: Vec<SegmentInfo>,
    pub(super) histories: Vec<History>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) dicts: Vec<DictPairs>,
    pub(super) lists: Vec<FinishedList>,
    /// Values in the dicts and lists that are kept.
    pub(super) values: usize,
    pub(super) pairs: Vec<PrivatePoolId>,
    pub(super) pair_numbers: HashMap<PrivatePoolId, usize>,
    pub(super) lanes: Vec<Lane>,
    pub(super) lane_numbers: HashMap<Lane, u32>,
    /// The last lane and its number: most events have that of the one before.
    pub(super) last_lane: Option<(Lane, u32)>,
    /// Blocks that are in a segment: none is in two.
    pub(super) claimed: usize,
    /// Frames of the list that was read last, to be used again.
    spare: Vec<u32>,
}

impl SnapshotBuilder {
    pub(super) fn new(limits: &SnapshotLimits) -> Self {
        Self {
            limits: *limits,
            names: NameTable::new(limits.text_bytes),
            stacks: Stacks::new(limits.frames),
            events: Vec::new(),
            blocks: Vec::new(),
            segments: Vec::new(),
            histories: Vec::new(),
            annotations: Vec::new(),
            dicts: Vec::new(),
            // Empty lists are one.
            lists: vec![FinishedList::Values(Box::default())],
            values: 0,
            pairs: Vec::new(),
            pair_numbers: HashMap::new(),
            lanes: Vec::new(),
            lane_numbers: HashMap::new(),
            last_lane: None,
            claimed: 0,
            spare: Vec::new(),
        }
    }

    pub(super) fn reserve_budget(&mut self, count: usize) -> Result<(), PickleRejection> {
        self.values += count;
        let most = self.limits.others;
        match self.values > most || self.dicts.len() + self.lists.len() > most {
            true => Err(too_many("lists and dicts of other kinds", most)),
            false => Ok(()),
        }
    }

    fn keep_list(&mut self, list: FinishedList) -> Result<PickleNode, PickleRejection> {
        self.reserve_budget(1)?;
        self.lists.push(list);
        NodeKind::List.encode_node(self.lists.len() - 1)
    }

    fn add(&mut self, items: &mut ListBuilder, value: PickleValue) -> Result<(), PickleRejection> {
        let thing = match value {
            PickleValue::Node(node) => Some(decode_node(node)),
            _ => None,
        };
        match (items, thing) {
            (ListBuilder::Mixed, _) => {}
            (ListBuilder::Frames(frames), Some((NodeKind::Frame, number))) => {
                if frames.len() as u64 >= self.limits.frames {
                    return Err(too_many("frames", frames.len()));
                }
                frames.push(u32::try_from(number).unwrap_or(u32::MAX));
            }
            (items @ ListBuilder::Empty, Some((NodeKind::Frame, number))) => {
                let mut frames = std::mem::take(&mut self.spare);
                frames.clear();
                frames.push(u32::try_from(number).unwrap_or(u32::MAX));
                *items = ListBuilder::Frames(frames);
            }
            (ListBuilder::Run { kind, first, len }, Some(next))
                if next == (*kind, *first + *len) =>
            {
                *len += 1;
            }
            (items, thing) => {
                let is_plain = !matches!(
                    thing,
                    Some((
                        NodeKind::Frame
                            | NodeKind::Event
                            | NodeKind::Block
                            | NodeKind::Segment
                            | NodeKind::History
                            | NodeKind::Annotation,
                        _
                    ))
                );
                match (&mut *items, thing) {
                    (ListBuilder::Empty, Some((kind, first))) if !is_plain => {
                        *items = ListBuilder::Run {
                            kind,
                            first,
                            len: 1,
                        };
                    }
                    (ListBuilder::Empty, _) => *items = ListBuilder::Values(vec![value]),
                    (ListBuilder::Values(values), _) if is_plain => values.push(value),
                    _ => *items = ListBuilder::Mixed,
                }
                self.reserve_budget(1)?;
            }
        }
        Ok(())
    }

    pub(super) fn parse_pool(&mut self, items: &[PickleValue]) -> Option<PrivatePoolId> {
        match items {
            [one, other] => Some((as_unsigned(*one)?, as_unsigned(*other)?)),
            _ => None,
        }
    }

    /// A list of frames, or an empty list.
    pub(super) fn stack_of(&self, value: PickleValue) -> Option<StackId> {
        let PickleValue::Node(node) = value else {
            return None;
        };
        match decode_node(node) {
            (NodeKind::Stack, number) => Some(StackId(u32::try_from(number).ok()?)),
            (NodeKind::List, 0) => Some(StackId(0)),
            _ => None,
        }
    }
}

/// A number that is not negative.
pub(super) fn as_unsigned(value: PickleValue) -> Option<u64> {
    match value {
        PickleValue::Int(value) => u64::try_from(value).ok(),
        PickleValue::Unsigned(value) => Some(value),
        _ => None,
    }
}

/// The number of a text.
pub(super) fn as_text_id(value: PickleValue) -> Option<u32> {
    match value {
        PickleValue::Node(node) => match decode_node(node) {
            (NodeKind::Text, number) => u32::try_from(number).ok(),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn too_many(what: &'static str, limit: usize) -> PickleRejection {
    PickleRejection::TooMany {
        what,
        limit: limit as u64,
    }
}

impl PickleBuilder for SnapshotBuilder {
    type List = ListBuilder;

    fn text(&mut self, text: &str) -> Result<PickleNode, PickleRejection> {
        NodeKind::Text.encode_node(self.names.intern_text(text)? as usize)
    }

    fn dict(&mut self, pairs: &[PickleValue]) -> Result<PickleNode, PickleRejection> {
        self.convert_dict(pairs)
    }

    fn extend_dict(
        &mut self,
        dict: PickleNode,
        pairs: &[PickleValue],
    ) -> Result<(), PickleRejection> {
        match decode_node(dict) {
            (NodeKind::Dict, number) => {
                self.reserve_budget(pairs.len())?;
                let (pairs, _) = pairs.as_chunks::<2>();
                self.dicts[number].extend(pairs.iter().map(|[key, value]| (*key, *value)));
                Ok(())
            }
            (NodeKind::Frame | NodeKind::Event | NodeKind::Block | NodeKind::Segment, _) => {
                Err(PickleRejection::Shape {
                    what: "a frame, an entry, a block or a segment in parts",
                })
            }
            _ => Err(PickleRejection::Shape {
                what: "pairs without a dict",
            }),
        }
    }

    fn append(
        &mut self,
        list: &mut ListBuilder,
        items: &[PickleValue],
    ) -> Result<(), PickleRejection> {
        items.iter().try_for_each(|item| self.add(list, *item))
    }

    fn list(&mut self, list: &mut ListBuilder) -> Result<PickleNode, PickleRejection> {
        match std::mem::take(list) {
            ListBuilder::Empty => NodeKind::List.encode_node(0),
            ListBuilder::Frames(frames) => {
                let stack = self.stacks.intern_stack(&frames)?;
                self.spare = frames;
                NodeKind::Stack.encode_node(stack.0 as usize)
            }
            ListBuilder::Run { kind, first, len } => {
                self.keep_list(FinishedList::Run { kind, first, len })
            }
            ListBuilder::Values(values) => {
                self.keep_list(FinishedList::Values(values.into_boxed_slice()))
            }
            ListBuilder::Mixed => self.keep_list(FinishedList::Mixed),
        }
    }

    fn tuple(&mut self, items: &[PickleValue]) -> Result<PickleNode, PickleRejection> {
        let Some(pool) = self.parse_pool(items) else {
            let mut list = ListBuilder::Empty;
            self.append(&mut list, items)?;
            return self.list(&mut list);
        };
        if let Some(&number) = self.pair_numbers.get(&pool) {
            return NodeKind::Pair.encode_node(number);
        }
        self.reserve_budget(2)?;
        self.pairs.push(pool);
        self.pair_numbers.insert(pool, self.pairs.len() - 1);
        NodeKind::Pair.encode_node(self.pairs.len() - 1)
    }
}

/// Which fields of a dict are known, as bits.
pub(super) fn known_field_bits(pairs: &[[PickleValue; 2]]) -> u64 {
    let known = pairs.iter().filter_map(|[key, _]| as_text_id(*key));
    known
        .filter(|&name| name < key::ALLOC)
        .fold(0, |fields, name| fields | (1 << name))
}
