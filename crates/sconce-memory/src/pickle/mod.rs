//! Reading pickles as data: protocols 2 to 5, from a stream, without running anything.
//!
//! A pickle is a program for a small stack machine. The operations that make plain data (numbers,
//! texts, lists, dicts, tuples, the memo) are carried out here; those that import, call or build
//! objects are refused by name. No tree of the file is kept: every dict and list is handed to a
//! [`PickleBuilder`] when it is complete and is a number of 32 bits from then on, so that memory follows what
//! the builder keeps and not the file.
//!
//! Source of the rules: `Lib/pickletools.py` of CPython, which documents every operation, and PEP 307,
//! 3154 and 574.

mod input;
mod machine;
mod opcode;

use sconce_schema::{Hint, exit};

pub use machine::read;

/// A thing that a [`PickleBuilder`] made, as it calls it. Texts, dicts, lists and tuples have one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PickleNode(u32);

impl PickleNode {
    /// The largest number of a node; those above mean something to the machine.
    pub const MAX_NUMBER: u32 = 0xefff_ffff;

    /// The node of a number; absent above [`PickleNode::MAX_NUMBER`].
    #[must_use]
    pub fn new(number: u32) -> Option<Self> {
        (number <= Self::MAX_NUMBER).then_some(Self(number))
    }

    /// Its number.
    #[must_use]
    pub fn as_u32(self) -> u32 {
        self.0
    }
}

/// A value as builders see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PickleValue {
    /// Python's `None`.
    None,
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`, as addresses and handles may be.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
    /// A text, dict, list or tuple.
    Node(PickleNode),
    /// Data that no snapshot has: bytes, or an integer of more than 64 bits.
    Opaque,
    /// A list that may still grow. Builders never see it.
    #[doc(hidden)]
    OpenList(u32),
    /// An empty dict, with its number in the memo. Builders never see it.
    #[doc(hidden)]
    OpenDict(Option<u32>),
}

/// Makes things of what a pickle holds.
///
/// A dict comes whole: picklers write up to 1,000 pairs at once, and nothing in a snapshot has more.
/// Lists come in parts.
pub trait PickleBuilder {
    /// A list that is being read.
    type List: Default;

    /// A text; the same one comes once for each time it is written.
    ///
    /// # Errors
    /// [`PickleRejection`] where it is too much.
    fn text(&mut self, text: &str) -> Result<PickleNode, PickleRejection>;

    /// A dict.
    ///
    /// # Errors
    /// [`PickleRejection`] where it is too much.
    fn dict(&mut self, pairs: &[PickleValue]) -> Result<PickleNode, PickleRejection>;

    /// More pairs of a dict that was made before.
    ///
    /// # Errors
    /// [`PickleRejection`] where it is too much, or may not come in parts.
    fn extend_dict(
        &mut self,
        dict: PickleNode,
        pairs: &[PickleValue],
    ) -> Result<(), PickleRejection>;

    /// More items of a list.
    ///
    /// # Errors
    /// [`PickleRejection`] where it is too much.
    fn append(
        &mut self,
        list: &mut Self::List,
        items: &[PickleValue],
    ) -> Result<(), PickleRejection>;

    /// The list is whole. What is left in it is used for another one: it must be empty.
    ///
    /// # Errors
    /// [`PickleRejection`] where it is too much.
    fn list(&mut self, list: &mut Self::List) -> Result<PickleNode, PickleRejection>;

    /// A tuple.
    ///
    /// # Errors
    /// [`PickleRejection`] where it is too much.
    fn tuple(&mut self, items: &[PickleValue]) -> Result<PickleNode, PickleRejection>;
}

/// What a builder refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PickleRejection {
    /// There is more of it than may be.
    TooMany {
        /// What of.
        what: &'static str,
        /// How many, or bytes, may be.
        limit: u64,
    },
    /// It is not as it should be.
    Shape {
        /// What is wrong with it.
        what: &'static str,
    },
}

/// How much a pickle may hold on its way; builders have limits of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PickleLimits {
    /// Entries of the memo, 4 bytes each.
    pub memo: u32,
    /// Values on the stack, 16 bytes each: picklers put 1,000 items there at once, those of
    /// libtorch a whole list.
    pub stack: usize,
    /// Containers inside each other.
    pub depth: usize,
    /// Lists that are begun and not yet in another container.
    pub open_lists: usize,
    /// Length of one text or one piece of bytes, in bytes.
    pub text_bytes: u64,
}

impl Default for PickleLimits {
    fn default() -> Self {
        Self {
            memo: 200_000_000,
            stack: 16_000_000,
            depth: 100,
            open_lists: 10_000,
            text_bytes: 16 << 20,
        }
    }
}

/// Why a pickle was not read. Offsets are bytes from its beginning.
#[derive(Debug, thiserror::Error)]
pub enum PickleError {
    /// The source failed.
    #[error("cannot be read at byte {offset}")]
    Read {
        /// Where.
        offset: u64,
        /// Why.
        source: std::io::Error,
    },
    /// It does not begin as pickles of protocol 2 and newer do.
    #[error("this is no pickle of protocol 2 to 5: it does not begin with byte 0x80")]
    NoPickle,
    /// A protocol that is not known.
    #[error("this is a pickle of protocol {protocol}; known are 2 to 5")]
    Protocol {
        /// What it says.
        protocol: u8,
    },
    /// It ends too early.
    #[error("the pickle ends at byte {offset}, before it is complete")]
    Truncated {
        /// Where it ends.
        offset: u64,
    },
    /// An operation that imports, calls, builds an object, or has another meaning than plain data.
    #[error("operation {name} at byte {offset} is not plain data")]
    Refused {
        /// Where.
        offset: u64,
        /// Its name in `pickletools`.
        name: &'static str,
    },
    /// No pickle has this operation.
    #[error("byte {opcode:#04x} at {offset} is no operation of a pickle")]
    Unknown {
        /// Where.
        offset: u64,
        /// The byte.
        opcode: u8,
    },
    /// An operation does not fit what was before it.
    #[error("the pickle is broken at byte {offset}: {what}")]
    Broken {
        /// Where.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A limit.
    #[error("too many or too long at byte {offset}: {what} (at most {limit})")]
    TooMany {
        /// Where.
        offset: u64,
        /// What of.
        what: &'static str,
        /// How many, or how many bytes.
        limit: u64,
    },
}

impl Hint for PickleError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Read { .. } => return None,
            Self::NoPickle | Self::Protocol { .. } => {
                "a snapshot is what torch.cuda.memory._dump_snapshot(FILE) writes".to_owned()
            }
            Self::Truncated { .. } => "copy it again; the process may have been killed while it \
                 wrote the file"
                .to_owned(),
            Self::Refused { .. } => "a snapshot needs none of these: do not unpickle this file \
                 with Python unless you trust where it came from"
                .to_owned(),
            Self::Unknown { .. } | Self::Broken { .. } => "the file was damaged".to_owned(),
            Self::TooMany { .. } => "record fewer entries: \
                 torch.cuda.memory._record_memory_history(max_entries=1000000)"
                .to_owned(),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

#[cfg(test)]
mod tests;
