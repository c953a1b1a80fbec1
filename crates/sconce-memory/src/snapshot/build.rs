//! What the parts of a pickle become: dicts with the fields of frames, entries, blocks and segments
//! become these as soon as they are complete; only the rest is kept as it is.

use std::collections::HashMap;

use super::names::{Names, key};
use super::stacks::Stacks;
use super::{Annotation, Block, Event, Lane, Limits, Pool, Segment, StackId};
use crate::pickle::{Build, Node, Value, Wrong};

/// What a node is: 4 bits of it; the other 28 are its number among its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
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

const KINDS: [Kind; 11] = [
    Kind::Text,
    Kind::Frame,
    Kind::Stack,
    Kind::Event,
    Kind::Block,
    Kind::Segment,
    Kind::History,
    Kind::Annotation,
    Kind::Dict,
    Kind::List,
    Kind::Pair,
];
const NUMBER_BITS: u32 = 28;

impl Kind {
    pub(super) fn node(self, number: usize) -> Result<Node, Wrong> {
        let limit = 1 << NUMBER_BITS;
        let fits = u32::try_from(number).ok().filter(|&number| number < limit);
        let node = fits.and_then(|number| Node::new(((self as u32) << NUMBER_BITS) | number));
        node.ok_or(Wrong::TooMany {
            what: "things of a kind",
            limit: u64::from(limit),
        })
    }
}

/// Its kind and number.
pub(super) fn split(node: Node) -> (Kind, usize) {
    let kind = KINDS[(node.number() >> NUMBER_BITS) as usize % KINDS.len()];
    (kind, (node.number() & ((1 << NUMBER_BITS) - 1)) as usize)
}

/// A list that is kept. Things of which there are many follow each other, so that their list is a
/// range.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum List {
    Run {
        kind: Kind,
        first: usize,
        len: usize,
    },
    Values(Box<[Value]>),
    /// Of several kinds, or in another order: of no use, and not kept.
    Mixed,
}

/// A list that is being read.
#[derive(Debug, Default)]
pub(super) enum Items {
    #[default]
    Empty,
    Frames(Vec<u32>),
    Run {
        kind: Kind,
        first: usize,
        len: usize,
    },
    Values(Vec<Value>),
    Mixed,
}

/// A block of torch 2.0 says what it was used for; its newest use comes first.
#[derive(Debug, Clone, Copy)]
pub(super) struct History {
    pub(super) real_size: Option<u64>,
    pub(super) stack: Option<StackId>,
}

/// A dict that is kept as it is.
pub(super) type Pairs = Vec<(Value, Value)>;

#[derive(Debug)]
pub(super) struct Builder {
    pub(super) limits: Limits,
    pub(super) names: Names,
    pub(super) stacks: Stacks,
    pub(super) events: Vec<Event>,
    pub(super) blocks: Vec<Block>,
    pub(super) segments: Vec<Segment>,
    pub(super) histories: Vec<History>,
    pub(super) annotations: Vec<Annotation>,
    pub(super) dicts: Vec<Pairs>,
    pub(super) lists: Vec<List>,
    /// Values in the dicts and lists that are kept.
    pub(super) values: usize,
    pub(super) pairs: Vec<Pool>,
    pub(super) pair_numbers: HashMap<Pool, usize>,
    pub(super) lanes: Vec<Lane>,
    pub(super) lane_numbers: HashMap<Lane, u32>,
    /// The last lane and its number: most events have that of the one before.
    pub(super) last_lane: Option<(Lane, u32)>,
    /// Blocks that are in a segment: none is in two.
    pub(super) claimed: usize,
    /// Frames of the list that was read last, to be used again.
    spare: Vec<u32>,
}

impl Builder {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            limits: *limits,
            names: Names::new(limits.text_bytes),
            stacks: Stacks::new(limits.frames),
            events: Vec::new(),
            blocks: Vec::new(),
            segments: Vec::new(),
            histories: Vec::new(),
            annotations: Vec::new(),
            dicts: Vec::new(),
            // Empty lists are one.
            lists: vec![List::Values(Box::default())],
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

    pub(super) fn keep(&mut self, count: usize) -> Result<(), Wrong> {
        self.values += count;
        let most = self.limits.others;
        match self.values > most || self.dicts.len() + self.lists.len() > most {
            true => Err(too_many("lists and dicts of other kinds", most)),
            false => Ok(()),
        }
    }

    fn keep_list(&mut self, list: List) -> Result<Node, Wrong> {
        self.keep(1)?;
        self.lists.push(list);
        Kind::List.node(self.lists.len() - 1)
    }

    fn add(&mut self, items: &mut Items, value: Value) -> Result<(), Wrong> {
        let thing = match value {
            Value::Node(node) => Some(split(node)),
            _ => None,
        };
        match (items, thing) {
            (Items::Mixed, _) => {}
            (Items::Frames(frames), Some((Kind::Frame, number))) => {
                if frames.len() as u64 >= self.limits.frames {
                    return Err(too_many("frames", frames.len()));
                }
                frames.push(u32::try_from(number).unwrap_or(u32::MAX));
            }
            (items @ Items::Empty, Some((Kind::Frame, number))) => {
                let mut frames = std::mem::take(&mut self.spare);
                frames.clear();
                frames.push(u32::try_from(number).unwrap_or(u32::MAX));
                *items = Items::Frames(frames);
            }
            (Items::Run { kind, first, len }, Some(next)) if next == (*kind, *first + *len) => {
                *len += 1;
            }
            (items, thing) => {
                let is_plain = !matches!(
                    thing,
                    Some((
                        Kind::Frame
                            | Kind::Event
                            | Kind::Block
                            | Kind::Segment
                            | Kind::History
                            | Kind::Annotation,
                        _
                    ))
                );
                match (&mut *items, thing) {
                    (Items::Empty, Some((kind, first))) if !is_plain => {
                        *items = Items::Run {
                            kind,
                            first,
                            len: 1,
                        };
                    }
                    (Items::Empty, _) => *items = Items::Values(vec![value]),
                    (Items::Values(values), _) if is_plain => values.push(value),
                    _ => *items = Items::Mixed,
                }
                self.keep(1)?;
            }
        }
        Ok(())
    }

    pub(super) fn pool(&mut self, items: &[Value]) -> Option<Pool> {
        match items {
            [one, other] => Some((unsigned(*one)?, unsigned(*other)?)),
            _ => None,
        }
    }

    /// A list of frames, or an empty list.
    pub(super) fn stack_of(&self, value: Value) -> Option<StackId> {
        let Value::Node(node) = value else {
            return None;
        };
        match split(node) {
            (Kind::Stack, number) => Some(StackId(u32::try_from(number).ok()?)),
            (Kind::List, 0) => Some(StackId(0)),
            _ => None,
        }
    }
}

/// A number that is not negative.
pub(super) fn unsigned(value: Value) -> Option<u64> {
    match value {
        Value::Int(value) => u64::try_from(value).ok(),
        Value::Unsigned(value) => Some(value),
        _ => None,
    }
}

/// The number of a text.
pub(super) fn text(value: Value) -> Option<u32> {
    match value {
        Value::Node(node) => match split(node) {
            (Kind::Text, number) => u32::try_from(number).ok(),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn too_many(what: &'static str, limit: usize) -> Wrong {
    Wrong::TooMany {
        what,
        limit: limit as u64,
    }
}

impl Build for Builder {
    type List = Items;

    fn text(&mut self, text: &str) -> Result<Node, Wrong> {
        Kind::Text.node(self.names.number(text)? as usize)
    }

    fn dict(&mut self, pairs: &[Value]) -> Result<Node, Wrong> {
        self.fold(pairs)
    }

    fn extend_dict(&mut self, dict: Node, pairs: &[Value]) -> Result<(), Wrong> {
        match split(dict) {
            (Kind::Dict, number) => {
                self.keep(pairs.len())?;
                let (pairs, _) = pairs.as_chunks::<2>();
                self.dicts[number].extend(pairs.iter().map(|[key, value]| (*key, *value)));
                Ok(())
            }
            (Kind::Frame | Kind::Event | Kind::Block | Kind::Segment, _) => Err(Wrong::Shape {
                what: "a frame, an entry, a block or a segment in parts",
            }),
            _ => Err(Wrong::Shape {
                what: "pairs without a dict",
            }),
        }
    }

    fn append(&mut self, list: &mut Items, items: &[Value]) -> Result<(), Wrong> {
        items.iter().try_for_each(|item| self.add(list, *item))
    }

    fn list(&mut self, list: &mut Items) -> Result<Node, Wrong> {
        match std::mem::take(list) {
            Items::Empty => Kind::List.node(0),
            Items::Frames(frames) => {
                let stack = self.stacks.stack(&frames)?;
                self.spare = frames;
                Kind::Stack.node(stack.0 as usize)
            }
            Items::Run { kind, first, len } => self.keep_list(List::Run { kind, first, len }),
            Items::Values(values) => self.keep_list(List::Values(values.into_boxed_slice())),
            Items::Mixed => self.keep_list(List::Mixed),
        }
    }

    fn tuple(&mut self, items: &[Value]) -> Result<Node, Wrong> {
        let Some(pool) = self.pool(items) else {
            let mut list = Items::Empty;
            self.append(&mut list, items)?;
            return self.list(&mut list);
        };
        if let Some(&number) = self.pair_numbers.get(&pool) {
            return Kind::Pair.node(number);
        }
        self.keep(2)?;
        self.pairs.push(pool);
        self.pair_numbers.insert(pool, self.pairs.len() - 1);
        Kind::Pair.node(self.pairs.len() - 1)
    }
}

/// Which fields of a dict are known, as bits.
pub(super) fn fields(pairs: &[[Value; 2]]) -> u64 {
    let known = pairs.iter().filter_map(|[key, _]| text(*key));
    known
        .filter(|&name| name < key::ALLOC)
        .fold(0, |fields, name| fields | (1 << name))
}
