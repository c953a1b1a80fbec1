//! The calls.

use serde::{Deserialize, Serialize};

use super::LineError;
use crate::allocator::PoolId;

/// A private pool: `[0, 1]` of a graph, `[1, 0]` of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolName(pub u64, pub u64);

impl From<PoolName> for PoolId {
    fn from(pool: PoolName) -> Self {
        Self(pool.0, pool.1)
    }
}

/// One call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum AllocatorCall {
    /// Memory, called `id` from here on.
    Alloc {
        /// The program's number for it.
        id: u64,
        /// How much.
        bytes: u64,
        /// For which stream.
        #[serde(default)]
        stream: u64,
    },
    /// Gives it back to the allocator.
    Free {
        /// Which.
        id: u64,
    },
    /// Another stream uses it too.
    RecordStream {
        /// Which.
        id: u64,
        /// The stream.
        stream: u64,
    },
    /// The oldest events of a stream complete: so many, or all that were recorded.
    Complete {
        /// The stream.
        stream: u64,
        /// How many.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        events: Option<usize>,
    },
    /// All events complete.
    Synchronize {},
    /// Whether events complete as soon as they are recorded, from here on.
    Events {
        /// They do.
        at_once: bool,
    },
    /// Gives what is cached back to the card: all of it, or that of a released pool.
    EmptyCache {
        /// The pool.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<PoolName>,
    },
    /// What part of the card the process may have.
    SetFraction {
        /// 0 to 1.
        fraction: f64,
    },
    /// Other settings, as `torch.cuda.memory._set_allocator_settings`.
    Settings {
        /// As in `PYTORCH_CUDA_ALLOC_CONF`.
        conf: String,
    },
    /// `torch.cuda.MemPool`.
    CreatePool {
        /// Its name.
        pool: PoolName,
        /// It has its own allocator.
        #[serde(default)]
        own_allocator: bool,
        /// Its free blocks help out.
        #[serde(default)]
        use_on_oom: bool,
        /// Its blocks are not split.
        #[serde(default)]
        no_split: bool,
    },
    /// Requests go to a pool: those of one stream, or all.
    BeginPool {
        /// Its name; made where it is not there.
        pool: PoolName,
        /// The stream.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stream: Option<u64>,
        /// A graph is captured.
        #[serde(default)]
        captures: bool,
    },
    /// They do no more.
    EndPool {
        /// Its name.
        pool: PoolName,
    },
    /// A user of the pool less.
    ReleasePool {
        /// Its name.
        pool: PoolName,
    },
    /// Peaks become what is now.
    ResetPeaks {},
    /// Sums become 0.
    ResetAccumulated {},
    /// The counters as they are.
    Stats {},
}

impl AllocatorCall {
    /// Reads one line.
    ///
    /// # Errors
    /// [`LineError::Call`]: it is none.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        serde_json::from_slice(line).map_err(|error| {
            let text = error.to_string();
            // The line is the program's, and the column is mostly that of its end.
            let place = format!(" at line {} column {}", error.line(), error.column());
            LineError::Call {
                reason: text.strip_suffix(&place).unwrap_or(&text).to_owned(),
            }
        })
    }
}
