//! Snapshots of PyTorch's CUDA allocator, as `torch.cuda.memory._dump_snapshot` writes them.
//!
//! Taken are pickles of torch 2.0 to 2.15: blocks with `history` (2.0), traces without times (2.0),
//! without annotations, with those of pinned host memory (2.15), and the bare list of segments that
//! `torch.cuda.memory_snapshot` gives. A field that is not there is absent; one that is not known is
//! passed over. Source of the format: torch/csrc/cuda/Module.cpp, torch/cuda/memory.py.

mod build;
mod event;
mod finish;
mod fold;
mod names;
mod stacks;

use std::io::Read;
use std::ops::Range;

use sconce_schema::{Hint, exit};

use crate::pickle::{self, PickleError};
pub use event::{TraceAction, TraceEntry};
pub use names::NameId;
pub use stacks::StackId;

/// How much a snapshot may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotLimits {
    /// Those of its pickle.
    pub pickle: pickle::PickleLimits,
    /// Trace entries, 32 bytes each.
    pub events: usize,
    /// Blocks, 40 bytes each.
    pub blocks: usize,
    /// Segments and annotations, each.
    pub segments: usize,
    /// Different texts, in bytes, each with 48 more.
    pub text_bytes: u64,
    /// Frames of all different stacks, 4 bytes each.
    pub frames: u64,
    /// Lists and dicts that are none of these.
    pub others: usize,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            pickle: pickle::PickleLimits::default(),
            events: 100_000_000,
            blocks: 20_000_000,
            segments: 2_000_000,
            text_bytes: 256 << 20,
            frames: 100_000_000,
            others: 2_000_000,
        }
    }
}

/// What `cudaMalloc` gave, or an expandable segment's mapped part.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SegmentInfo {
    /// Number of the card.
    pub device: Option<u64>,
    /// Where it begins.
    pub address: Option<u64>,
    /// Bytes of it.
    pub total_size: Option<u64>,
    /// Bytes of blocks that are in use.
    pub allocated_size: Option<u64>,
    /// The same with blocks that other streams still use.
    pub active_size: Option<u64>,
    /// Bytes that were asked for (absent before 2.0).
    pub requested_size: Option<u64>,
    /// Handle of the stream whose blocks it holds.
    pub stream: Option<i64>,
    /// Whether it is of the pool for requests up to 1 MiB.
    pub is_small: Option<bool>,
    /// Whether it can grow (absent before 2.1).
    pub is_expandable: Option<bool>,
    /// Its private pool; absent too where it is of the default one, which has the id (0, 0).
    pub pool: Option<PrivatePoolId>,
    /// Where it was allocated.
    pub stack: Option<StackId>,
    /// Which of [`Snapshot::blocks`] are in it, by address.
    pub blocks: Range<usize>,
}

/// Id of a private pool.
pub type PrivatePoolId = (u64, u64);

/// A part of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Where it begins; counted from its segment's beginning where the file does not say.
    pub address: Option<u64>,
    /// Bytes of it.
    pub size: u64,
    /// Bytes that were asked for.
    pub requested_size: Option<u64>,
    /// What it is used for.
    pub state: BlockUsage,
    /// Where it was allocated.
    pub stack: Option<StackId>,
}

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockUsage {
    /// In use.
    Allocated,
    /// Given back, but another stream may still use it.
    PendingFree,
    /// Free.
    Inactive,
}

/// What is said of one device: its trace, and the devices' number is its place in the list.
pub type Trace = Range<usize>;

/// Begin or end of a `record_function` or a profiler's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Annotation {
    /// Its name.
    pub name: NameId,
    /// Whether it begins there; absent where it is neither a begin nor an end.
    pub begins: Option<bool>,
    /// Number of the card.
    pub device: Option<u64>,
    /// Microseconds since 1970.
    pub time_us: Option<i64>,
}

/// The allocator's settings in effect. Absent is what the file does not say.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RecordedSettings {
    /// `PYTORCH_CUDA_ALLOC_CONF` as it was set.
    pub conf: Option<String>,
    /// Largest block that may be split, in bytes; absent too where there is no limit.
    pub max_split_size_bytes: Option<u64>,
    /// Share of the limit above which cached blocks are given back.
    pub garbage_collection_threshold: Option<f64>,
    /// Whether segments can grow.
    pub expandable_segments: Option<bool>,
    /// Divisions of powers of two, by the size in MiB from which they hold; none where it is off.
    pub roundup_power2_divisions: Vec<(String, u64)>,
}

/// What two events have in common, so that each needs it once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Lane {
    stream: Option<i64>,
    pool: Option<PrivatePoolId>,
    compile_context: Option<NameId>,
    user_metadata: Option<NameId>,
}

/// A snapshot.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Segments of all cards.
    pub segments: Vec<SegmentInfo>,
    /// Segments of pinned host memory (2.15).
    pub host_segments: Vec<SegmentInfo>,
    /// Blocks of all segments.
    pub blocks: Vec<BlockInfo>,
    /// Entries of all traces.
    pub events: Vec<TraceEntry>,
    /// Traces of the cards, by their numbers.
    pub traces: Vec<Trace>,
    /// Traces of pinned host memory (2.15).
    pub host_traces: Vec<Trace>,
    /// Annotations in the order of the file.
    pub annotations: Vec<Annotation>,
    /// Settings; absent in old files.
    pub settings: Option<RecordedSettings>,
    /// A release that the writer is not older than, by fields that came with it; absent: none of
    /// these is there.
    pub writer_since: Option<(u32, u32)>,
    names: Vec<Box<str>>,
    frames: Vec<stacks::FrameIds>,
    stacks: Vec<Box<[u32]>>,
    lanes: Vec<Lane>,
}

/// A frame of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackFrame<'s> {
    /// File, as the interpreter or the debug information names it.
    pub filename: &'s str,
    /// Function.
    pub name: &'s str,
    /// Line; absent where PyTorch wrote 0.
    pub line: Option<u32>,
}

impl Snapshot {
    /// How many different stacks there are; their numbers go from 0, which is the empty one.
    #[must_use]
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// Frames of a stack, the innermost first.
    pub fn stack_frames(
        &self,
        stack: StackId,
    ) -> impl DoubleEndedIterator<Item = StackFrame<'_>> + Clone {
        let numbers = self.stacks.get(stack.0 as usize);
        let numbers = numbers.map_or(&[][..], |numbers| numbers);
        numbers.iter().filter_map(|&number| {
            let frame = self.frames.get(number as usize)?;
            Some(StackFrame {
                filename: self.name(frame.filename),
                name: self.name(frame.name),
                line: (frame.line > 0).then_some(frame.line),
            })
        })
    }

    /// A text by its number.
    #[must_use]
    pub fn name(&self, name: NameId) -> &str {
        self.names.get(name as usize).map_or("", |name| name)
    }

    /// Handle of the stream that an event was on.
    #[must_use]
    pub fn stream_of(&self, event: &TraceEntry) -> Option<i64> {
        self.lanes.get(event.lane_index())?.stream
    }

    /// Private pool of an event; absent too for the default one.
    #[must_use]
    pub fn pool_of(&self, event: &TraceEntry) -> Option<PrivatePoolId> {
        self.lanes.get(event.lane_index())?.pool
    }

    /// Which part of a compiled program an event came from (2.7 and newer).
    #[must_use]
    pub fn compile_context(&self, event: &TraceEntry) -> Option<&str> {
        let name = self.lanes.get(event.lane_index())?.compile_context?;
        Some(self.name(name))
    }

    /// What the program had said of itself with `torch.cuda.memory._set_memory_metadata`.
    #[must_use]
    pub fn user_metadata(&self, event: &TraceEntry) -> Option<&str> {
        let name = self.lanes.get(event.lane_index())?.user_metadata?;
        Some(self.name(name))
    }

    /// Numbers of the cards that anything is said of.
    #[must_use]
    pub fn device_numbers(&self) -> Vec<u64> {
        let traced = (0u64..).zip(&self.traces);
        let traced = traced.filter(|(_, trace)| !trace.is_empty());
        let mut devices: Vec<u64> = traced.map(|(number, _)| number).collect();
        devices.extend(self.segments.iter().map(|one| one.device.unwrap_or(0)));
        devices.sort_unstable();
        devices.dedup();
        devices
    }

    /// Entries of a card's trace, the oldest first.
    #[must_use]
    pub fn trace_entries(&self, device: u64) -> &[TraceEntry] {
        let trace = usize::try_from(device).ok();
        let trace = trace.and_then(|number| self.traces.get(number));
        trace
            .and_then(|trace| self.events.get(trace.clone()))
            .unwrap_or_default()
    }

    /// A card's segments, each with its blocks.
    pub fn segments_of(&self, device: u64) -> impl Iterator<Item = (&SegmentInfo, &[BlockInfo])> {
        let of_it = move |one: &&SegmentInfo| one.device.unwrap_or(0) == device;
        self.segments.iter().filter(of_it).map(|segment| {
            let blocks = self.blocks.get(segment.blocks.clone());
            (segment, blocks.unwrap_or_default())
        })
    }
}

/// Why a snapshot was not read.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Its pickle was not read.
    #[error("the snapshot cannot be read")]
    Pickle(#[from] PickleError),
    /// The pickle is something else.
    #[error("the pickle is no snapshot of the allocator: {what}")]
    NoSnapshot {
        /// What is missing, or in its place.
        what: &'static str,
    },
}

impl Hint for SnapshotError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Pickle(error) => error.hint(),
            Self::NoSnapshot { .. } => {
                Some("torch.cuda.memory._dump_snapshot(FILE) writes one".to_owned())
            }
        }
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Reads a snapshot.
///
/// # Errors
/// [`SnapshotError`] where it is no pickle of plain data, holds more than a limit, or is none of the
/// allocator.
pub fn read(source: impl Read, limits: &SnapshotLimits) -> Result<Snapshot, SnapshotError> {
    let mut builder = build::SnapshotBuilder::new(limits);
    let top = pickle::read(source, &mut builder, &limits.pickle)?;
    builder.finish(top)
}

#[cfg(test)]
mod tests;
