//! The answers.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use crate::allocator::{AllocationFailure, OutOfMemory};

/// The answer to one line.
#[derive(Debug, Clone, PartialEq)]
pub struct LineResult {
    /// The line's number, from 1.
    pub line: u64,
    /// What came of it.
    pub given: CallResult,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub enum CallResult {
    /// Nothing to say.
    Done,
    /// Memory at this address; 0 for no bytes.
    Address(u64),
    /// Memory ran out.
    OutOfMemory(Box<OutOfMemory>),
    /// The block had got no memory, so nothing was done.
    NoMemory,
    /// The counters.
    Stats(BTreeMap<String, i64>),
}

impl Serialize for LineResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("line", &self.line)?;
        match &self.given {
            CallResult::Done => {}
            CallResult::Address(address) => map.serialize_entry("address", address)?,
            CallResult::NoMemory => map.serialize_entry("skipped", "no_memory")?,
            CallResult::Stats(stats) => map.serialize_entry("stats", stats)?,
            CallResult::OutOfMemory(error) => {
                map.serialize_entry("error", &Error::from(&**error))?
            }
        }
        map.end()
    }
}

/// The figures of an out-of-memory error, in bytes.
#[derive(Serialize)]
struct Error {
    kind: &'static str,
    requested: u64,
    rounded: u64,
    tried_to_allocate: u64,
    total: u64,
    free: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<u64>,
    allocated: u64,
    reserved: u64,
    reserved_unallocated: u64,
    in_private_pools: u64,
    message: String,
}

impl From<&OutOfMemory> for Error {
    fn from(error: &OutOfMemory) -> Self {
        Self {
            kind: match error.why {
                AllocationFailure::Exhausted => "out_of_memory",
                AllocationFailure::Rejected => "rejected",
                AllocationFailure::Exabyte => "exabyte",
            },
            requested: error.requested,
            rounded: error.rounded,
            tried_to_allocate: error.tried,
            total: error.total,
            free: error.free,
            allowed: error.allowed,
            allocated: error.allocated,
            reserved: error.reserved,
            reserved_unallocated: error.reserved_unallocated(),
            in_private_pools: error.in_private_pools,
            message: error.to_string(),
        }
    }
}
