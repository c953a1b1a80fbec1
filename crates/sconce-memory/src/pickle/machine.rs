//! The stack machine.

use std::io::Read;

use super::input::Input;
use super::opcode::{self, op};
use super::{PickleBuilder, PickleError, PickleLimits, PickleNode, PickleRejection, PickleValue};

/// Entries of the memo above [`PickleNode::MAX_NUMBER`]: a list that is still open, by its slot, of which there are
/// so many…
const OPEN_LIST: u32 = 0xf000_0000;
const MAX_LISTS: usize = 0x00ff_ffff;
/// …an empty dict that may be filled…
const OPEN_DICT: u32 = 0xffff_fffd;
/// …data that is not looked at…
const OPAQUE: u32 = 0xffff_fffe;
/// …and a number that nothing was stored under.
const UNSET: u32 = 0xffff_ffff;

/// Numbers that may be left out of the memo at once.
const MAX_SKIPPED_NUMBERS: usize = 16;

/// A list from its beginning until another container takes it.
#[derive(Default)]
struct OpenList<L> {
    items: L,
    memo: Option<u32>,
    /// Set when something else refers to it before a container takes it: it can no longer grow.
    closed: Option<PickleNode>,
}

struct PickleMachine<'b, R, B: PickleBuilder> {
    input: Input<R>,
    build: &'b mut B,
    limits: PickleLimits,
    stack: Vec<PickleValue>,
    /// Where in the stack each MARK stands.
    marks: Vec<usize>,
    memo: Vec<u32>,
    lists: Vec<OpenList<B::List>>,
    free_lists: Vec<u32>,
    /// Offset of the operation that is carried out.
    offset: u64,
}

/// Reads one pickle. What stands behind its end is not read further than the source's pieces go.
///
/// # Errors
/// [`PickleError`] where the source fails, the pickle is none, is broken, holds more than plain data,
/// or more than a limit.
pub fn read<R: Read, B: PickleBuilder>(
    source: R,
    build: &mut B,
    limits: &PickleLimits,
) -> Result<PickleValue, PickleError> {
    let mut machine = PickleMachine {
        input: Input::new(source),
        build,
        limits: *limits,
        stack: Vec::new(),
        marks: Vec::new(),
        memo: Vec::new(),
        lists: Vec::new(),
        free_lists: Vec::new(),
        offset: 0,
    };
    machine.begin()?;
    loop {
        if let Some(value) = machine.step()? {
            return Ok(value);
        }
    }
}

impl<R: Read, B: PickleBuilder> PickleMachine<'_, R, B> {
    fn begin(&mut self) -> Result<(), PickleError> {
        match self.input.read_byte() {
            Ok(op::PROTO) => {}
            Ok(_) | Err(PickleError::Truncated { .. }) => return Err(PickleError::NoPickle),
            Err(error) => return Err(error),
        }
        match self.input.read_byte()? {
            2..=5 => Ok(()),
            protocol => Err(PickleError::Protocol { protocol }),
        }
    }

    /// Carries out one operation; the value at the end.
    fn step(&mut self) -> Result<Option<PickleValue>, PickleError> {
        self.offset = self.input.offset();
        let opcode = self.input.read_byte()?;
        match opcode {
            op::BINGET => {
                let number = u32::from(self.input.read_byte()?);
                self.get(number)?;
            }
            op::LONG_BINGET => {
                let number = u32::from_le_bytes(self.input.read_array()?);
                self.get(number)?;
            }
            op::MEMOIZE => {
                let number = u32::try_from(self.memo.len()).unwrap_or(u32::MAX);
                self.put(number)?;
            }
            op::BINPUT => {
                let number = u32::from(self.input.read_byte()?);
                self.put(number)?;
            }
            op::LONG_BINPUT => {
                let number = u32::from_le_bytes(self.input.read_array()?);
                self.put(number)?;
            }
            op::MARK => {
                if self.marks.len() >= self.limits.depth {
                    return Err(self.too_many("containers inside each other", self.limits.depth));
                }
                self.marks.push(self.stack.len());
            }
            op::NONE => self.push(PickleValue::None)?,
            op::NEWTRUE => self.push(PickleValue::Bool(true))?,
            op::NEWFALSE => self.push(PickleValue::Bool(false))?,
            op::BININT1 => {
                let value = i64::from(self.input.read_byte()?);
                self.push(PickleValue::Int(value))?;
            }
            op::BININT2 => {
                let value = i64::from(u16::from_le_bytes(self.input.read_array()?));
                self.push(PickleValue::Int(value))?;
            }
            op::BININT => {
                let value = i64::from(i32::from_le_bytes(self.input.read_array()?));
                self.push(PickleValue::Int(value))?;
            }
            op::LONG1 => {
                let len = usize::from(self.input.read_byte()?);
                let value = long(self.input.read_bytes(len)?);
                self.push(value)?;
            }
            op::LONG4 => {
                let len = i32::from_le_bytes(self.input.read_array()?);
                let len = u64::try_from(len).map_err(|_| self.broken("a negative length"))?;
                let len = self.length(len)?;
                let value = long(self.input.read_bytes(len)?);
                self.push(value)?;
            }
            op::BINFLOAT => {
                let value = f64::from_be_bytes(self.input.read_array()?);
                self.push(PickleValue::Float(value))?;
            }
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => {
                let len = u64::from(self.input.read_byte()?);
                self.text(len)?;
            }
            op::BINUNICODE => {
                let len = u64::from(u32::from_le_bytes(self.input.read_array()?));
                self.text(len)?;
            }
            op::BINSTRING => {
                let len = i32::from_le_bytes(self.input.read_array()?);
                let len = u64::try_from(len).map_err(|_| self.broken("a negative length"))?;
                self.text(len)?;
            }
            op::BINUNICODE8 => {
                let len = u64::from_le_bytes(self.input.read_array()?);
                self.text(len)?;
            }
            op::SHORT_BINBYTES => {
                let len = u64::from(self.input.read_byte()?);
                self.opaque(len)?;
            }
            op::BINBYTES => {
                let len = u64::from(u32::from_le_bytes(self.input.read_array()?));
                self.opaque(len)?;
            }
            op::BINBYTES8 | op::BYTEARRAY8 => {
                let len = u64::from_le_bytes(self.input.read_array()?);
                self.opaque(len)?;
            }
            op::EMPTY_LIST => {
                let slot = self.open_list()?;
                self.push(PickleValue::OpenList(slot))?;
            }
            op::EMPTY_DICT => self.push(PickleValue::OpenDict(None))?,
            op::APPEND => {
                let from = self.below(1)?;
                self.append(from)?;
            }
            op::APPENDS => {
                let from = self.mark()?;
                self.append(from)?;
            }
            op::LIST => {
                let from = self.mark()?;
                let slot = self.open_list()?;
                self.fill(slot, from)?;
                self.push(PickleValue::OpenList(slot))?;
            }
            op::SETITEM => {
                let from = self.below(2)?;
                self.set_items(from)?;
            }
            op::SETITEMS => {
                let from = self.mark()?;
                self.set_items(from)?;
            }
            op::DICT => {
                let from = self.mark()?;
                let node = self.dict(from)?;
                self.push(PickleValue::Node(node))?;
            }
            op::EMPTY_TUPLE => self.tuple(self.stack.len())?,
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let from = self.below(usize::from(opcode - op::TUPLE1) + 1)?;
                self.tuple(from)?;
            }
            op::TUPLE => {
                let from = self.mark()?;
                self.tuple(from)?;
            }
            // Frames only say how much may be read ahead.
            op::FRAME => {
                self.input.read_array::<8>()?;
            }
            op::STOP => {
                if !self.marks.is_empty() || self.stack.len() != 1 {
                    return Err(self.broken("it ends with values left over"));
                }
                self.close_from(0)?;
                return Ok(self.stack.pop());
            }
            op::PROTO => return Err(self.broken("it begins a second time")),
            opcode => {
                let offset = self.offset;
                return Err(match opcode::rejected_opcode_name(opcode) {
                    Some(name) => PickleError::Refused { offset, name },
                    None => PickleError::Unknown { offset, opcode },
                });
            }
        }
        Ok(None)
    }

    fn broken(&self, what: &'static str) -> PickleError {
        PickleError::Broken {
            offset: self.offset,
            what,
        }
    }

    fn too_many(&self, what: &'static str, limit: usize) -> PickleError {
        self.wrong(PickleRejection::TooMany {
            what,
            limit: limit as u64,
        })
    }

    fn wrong(&self, wrong: PickleRejection) -> PickleError {
        let offset = self.offset;
        match wrong {
            PickleRejection::TooMany { what, limit } => PickleError::TooMany {
                offset,
                what,
                limit,
            },
            PickleRejection::Shape { what } => PickleError::Broken { offset, what },
        }
    }

    fn push(&mut self, value: PickleValue) -> Result<(), PickleError> {
        if self.stack.len() >= self.limits.stack {
            return Err(self.too_many("values that no container has taken", self.limits.stack));
        }
        self.stack.push(value);
        Ok(())
    }

    fn length(&self, len: u64) -> Result<usize, PickleError> {
        match usize::try_from(len) {
            Ok(few) if len <= self.limits.text_bytes => Ok(few),
            _ => Err(PickleError::TooMany {
                offset: self.offset,
                what: "bytes of one text",
                limit: self.limits.text_bytes,
            }),
        }
    }

    fn text(&mut self, len: u64) -> Result<(), PickleError> {
        let len = self.length(len)?;
        let bytes = self.input.read_bytes(len)?;
        // Python writes lone surrogates as UTF-8 that is none.
        let text = String::from_utf8_lossy(bytes);
        let made = self.build.text(&text);
        let node = made.map_err(|wrong| self.wrong(wrong))?;
        self.push(PickleValue::Node(node))
    }

    fn opaque(&mut self, len: u64) -> Result<(), PickleError> {
        let len = self.length(len)?;
        self.input.read_bytes(len)?;
        self.push(PickleValue::Opaque)
    }

    /// Where the topmost `count` values begin, above the last MARK.
    fn below(&self, count: usize) -> Result<usize, PickleError> {
        let floor = self.marks.last().copied().unwrap_or(0);
        match self.stack.len().checked_sub(count) {
            Some(from) if from >= floor => Ok(from),
            _ => Err(self.broken("a value is missing")),
        }
    }

    /// Takes the last MARK.
    fn mark(&mut self) -> Result<usize, PickleError> {
        let mark = self.marks.pop();
        mark.ok_or_else(|| self.broken("a MARK is missing"))
    }

    fn get(&mut self, number: u32) -> Result<(), PickleError> {
        let entry = self.memo.get(number as usize).copied().unwrap_or(UNSET);
        let value = match entry {
            UNSET => return Err(self.broken("it refers to what was not stored")),
            OPAQUE => PickleValue::Opaque,
            OPEN_DICT => {
                let made = self.build.dict(&[]);
                let node = made.map_err(|wrong| self.wrong(wrong))?;
                self.memo[number as usize] = node.as_u32();
                PickleValue::Node(node)
            }
            entry => match PickleNode::new(entry) {
                Some(node) => PickleValue::Node(node),
                None => PickleValue::Node(self.close_list(entry - OPEN_LIST)?),
            },
        };
        self.push(value)
    }

    /// Stores what is on top of the stack.
    fn put(&mut self, number: u32) -> Result<(), PickleError> {
        let top = self.below(1)?;
        let known = self.memo.len();
        if number >= self.limits.memo {
            return Err(self.too_many("entries of the memo", self.limits.memo as usize));
        }
        // Picklers count from 0. A few numbers may be left out, not a billion.
        if number as usize > known + MAX_SKIPPED_NUMBERS {
            return Err(self.broken("it leaves out numbers of the memo"));
        }
        let entry = match &mut self.stack[top] {
            PickleValue::Node(node) => node.as_u32(),
            PickleValue::OpenList(slot) => match self.lists[*slot as usize].closed {
                Some(node) => node.as_u32(),
                None if self.lists[*slot as usize].memo.is_none() => {
                    self.lists[*slot as usize].memo = Some(number);
                    OPEN_LIST + *slot
                }
                None => return Err(self.broken("it stores a list twice")),
            },
            PickleValue::OpenDict(memo) if memo.is_none() => {
                *memo = Some(number);
                OPEN_DICT
            }
            PickleValue::OpenDict(_) => return Err(self.broken("it stores a dict twice")),
            PickleValue::Opaque => OPAQUE,
            _ => return Err(self.broken("it stores a plain value")),
        };
        let number = number as usize;
        if number == known {
            self.memo.push(entry);
        } else {
            if number > known {
                self.memo.resize(number + 1, UNSET);
            } else if self.memo[number] > PickleNode::MAX_NUMBER && self.memo[number] != UNSET {
                return Err(self.broken("it stores two things under one number"));
            }
            self.memo[number] = entry;
        }
        Ok(())
    }

    fn open_list(&mut self) -> Result<u32, PickleError> {
        if let Some(slot) = self.free_lists.pop() {
            return Ok(slot);
        }
        if self.lists.len() >= self.limits.open_lists.min(MAX_LISTS) {
            return Err(self.too_many("lists that nothing has taken", self.limits.open_lists));
        }
        self.lists.push(OpenList {
            items: B::List::default(),
            memo: None,
            closed: None,
        });
        Ok(u32::try_from(self.lists.len() - 1).unwrap_or(u32::MAX))
    }

    /// The list can no longer grow.
    fn close_list(&mut self, slot: u32) -> Result<PickleNode, PickleError> {
        let list = &mut self.lists[slot as usize];
        if let Some(node) = list.closed {
            return Ok(node);
        }
        let made = self.build.list(&mut list.items);
        if let Ok(node) = made {
            list.closed = Some(node);
            if let Some(number) = list.memo {
                self.memo[number as usize] = node.as_u32();
            }
        }
        made.map_err(|wrong| self.wrong(wrong))
    }

    /// A container takes the values from there on.
    fn close_from(&mut self, from: usize) -> Result<(), PickleError> {
        for at in from..self.stack.len() {
            match self.stack[at] {
                PickleValue::OpenList(slot) => {
                    let node = self.close_list(slot)?;
                    let list = &mut self.lists[slot as usize];
                    (list.memo, list.closed) = (None, None);
                    self.free_lists.push(slot);
                    self.stack[at] = PickleValue::Node(node);
                }
                PickleValue::OpenDict(memo) => {
                    let known = memo.map(|number| self.memo[number as usize]);
                    let node = match known.and_then(PickleNode::new) {
                        Some(node) => node,
                        None => {
                            let made = self.build.dict(&[]);
                            made.map_err(|wrong| self.wrong(wrong))?
                        }
                    };
                    if let Some(number) = memo {
                        self.memo[number as usize] = node.as_u32();
                    }
                    self.stack[at] = PickleValue::Node(node);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Adds the values from there on to the list below them.
    fn append(&mut self, from: usize) -> Result<(), PickleError> {
        let list = from.checked_sub(1).map(|at| self.stack[at]);
        match list {
            Some(PickleValue::OpenList(slot)) if self.lists[slot as usize].closed.is_none() => {
                self.fill(slot, from)
            }
            Some(PickleValue::OpenList(_) | PickleValue::Node(_)) => {
                Err(self.broken("a list grows after it was used"))
            }
            _ => Err(self.broken("items without a list")),
        }
    }

    fn fill(&mut self, slot: u32, from: usize) -> Result<(), PickleError> {
        self.close_from(from)?;
        let items = &mut self.lists[slot as usize].items;
        let added = self.build.append(items, &self.stack[from..]);
        added.map_err(|wrong| self.wrong(wrong))?;
        self.stack.truncate(from);
        Ok(())
    }

    /// Puts the pairs from there on into the dict below them.
    fn set_items(&mut self, from: usize) -> Result<(), PickleError> {
        let at = from.checked_sub(1);
        let at = at.ok_or_else(|| self.broken("pairs without a dict"))?;
        match self.stack[at] {
            PickleValue::OpenDict(memo) => {
                let node = self.dict(from)?;
                if let Some(number) = memo {
                    if self.memo[number as usize] != OPEN_DICT {
                        return Err(self.broken("a dict grows after it was used"));
                    }
                    self.memo[number as usize] = node.as_u32();
                }
                self.stack[at] = PickleValue::Node(node);
                Ok(())
            }
            PickleValue::Node(node) => {
                self.pairs(from)?;
                let added = self.build.extend_dict(node, &self.stack[from..]);
                added.map_err(|wrong| self.wrong(wrong))?;
                self.stack.truncate(from);
                Ok(())
            }
            _ => Err(self.broken("pairs without a dict")),
        }
    }

    fn pairs(&mut self, from: usize) -> Result<(), PickleError> {
        if !(self.stack.len() - from).is_multiple_of(2) {
            return Err(self.broken("a key without a value"));
        }
        self.close_from(from)
    }

    fn dict(&mut self, from: usize) -> Result<PickleNode, PickleError> {
        self.pairs(from)?;
        let made = self.build.dict(&self.stack[from..]);
        let node = made.map_err(|wrong| self.wrong(wrong))?;
        self.stack.truncate(from);
        Ok(node)
    }

    fn tuple(&mut self, from: usize) -> Result<(), PickleError> {
        self.close_from(from)?;
        let made = self.build.tuple(&self.stack[from..]);
        let node = made.map_err(|wrong| self.wrong(wrong))?;
        self.stack.truncate(from);
        self.push(PickleValue::Node(node))
    }
}

/// An integer as `encode_long` of CPython writes it: two's complement, the lowest byte first.
fn long(bytes: &[u8]) -> PickleValue {
    let fill = match bytes.last() {
        Some(last) if last & 0x80 != 0 => 0xff,
        _ => 0,
    };
    let (low, high) = bytes.split_at(bytes.len().min(8));
    let mut word = [fill; 8];
    word[..low.len()].copy_from_slice(low);
    let negative = fill != 0;
    match high {
        [] => PickleValue::Int(i64::from_le_bytes(word)),
        // 64 bits and a byte for the sign.
        [0] if !negative => match u64::from_le_bytes(word) {
            value if i64::try_from(value).is_ok() => PickleValue::Int(i64::from_le_bytes(word)),
            value => PickleValue::Unsigned(value),
        },
        _ => PickleValue::Opaque,
    }
}
