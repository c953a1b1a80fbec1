//! Texts, each kept once, and those that snapshots name their fields with.

use std::collections::HashMap;

use crate::pickle::PickleRejection;

/// A text of a snapshot.
pub type NameId = u32;

macro_rules! known {
    ($($constant:ident $text:literal)*) => {
        /// Texts with a fixed number.
        pub(super) mod key {
            known!(@number 0; $($constant)*);
        }
        const KNOWN: &[&str] = &[$($text),*];
    };
    (@number $number:expr; $constant:ident $($rest:ident)*) => {
        pub(crate) const $constant: u32 = $number;
        known!(@number $number + 1; $($rest)*);
    };
    (@number $number:expr;) => {};
}

// Field names and values of torch/csrc/cuda/Module.cpp (2.0 to 2.15).
known! {
    ACTION "action" ADDR "addr" SIZE "size" STREAM "stream" TIME_US "time_us" FRAMES "frames"
    DEVICE_FREE "device_free" POOL_ID "pool_id" COMPILE_CONTEXT "compile_context"
    USER_METADATA "user_metadata" FILENAME "filename" LINE "line" NAME "name" STATE "state"
    REQUESTED_SIZE "requested_size" ADDRESS "address" HISTORY "history" REAL_SIZE "real_size"
    TOTAL_SIZE "total_size" BLOCKS "blocks" DEVICE "device" ALLOCATED_SIZE "allocated_size"
    ACTIVE_SIZE "active_size" SEGMENT_TYPE "segment_type" SEGMENT_POOL_ID "segment_pool_id"
    IS_EXPANDABLE "is_expandable" STAGE "stage" SEGMENTS "segments" DEVICE_TRACES "device_traces"
    ALLOCATOR_SETTINGS "allocator_settings" EXTERNAL_ANNOTATIONS "external_annotations"
    HOST_SEGMENTS "host_segments" HOST_TRACES "host_traces" ALLOC "alloc"
    FREE_REQUESTED "free_requested" FREE_COMPLETED "free_completed" FREE "free"
    SEGMENT_ALLOC "segment_alloc" SEGMENT_FREE "segment_free" SEGMENT_MAP "segment_map"
    SEGMENT_UNMAP "segment_unmap" SNAPSHOT "snapshot" OOM "oom" ANNOTATE "annotate"
    ACTIVE_ALLOCATED "active_allocated" ACTIVE_PENDING_FREE "active_pending_free"
    ACTIVE_AWAITING_FREE "active_awaiting_free" SMALL "small" LARGE "large"
    NOTHING "N/A" EMPTY "" START "START" END "END"
}

/// Texts while they are gathered.
#[derive(Debug)]
pub(super) struct NameTable {
    numbers: HashMap<Box<str>, NameId>,
    bytes: u64,
    most_bytes: u64,
}

impl NameTable {
    pub(super) fn new(most_bytes: u64) -> Self {
        let numbers = (0..)
            .zip(KNOWN)
            .map(|(number, &text)| (text.into(), number));
        Self {
            numbers: numbers.collect(),
            bytes: 0,
            most_bytes,
        }
    }

    pub(super) fn intern_text(&mut self, text: &str) -> Result<NameId, PickleRejection> {
        if let Some(&number) = self.numbers.get(text) {
            return Ok(number);
        }
        // What a text costs beside its own bytes.
        self.bytes += text.len() as u64 + 48;
        let number = NameId::try_from(self.numbers.len()).unwrap_or(NameId::MAX);
        if self.bytes > self.most_bytes {
            return Err(PickleRejection::TooMany {
                what: "bytes of different texts",
                limit: self.most_bytes,
            });
        }
        self.numbers.insert(text.into(), number);
        Ok(number)
    }

    /// The texts by their numbers.
    pub(super) fn finish(self) -> Vec<Box<str>> {
        in_order(self.numbers)
    }
}

/// The keys by their numbers, which go from 0.
pub(super) fn in_order<K: Default + Clone>(numbers: HashMap<K, u32>) -> Vec<K> {
    let mut keys = vec![K::default(); numbers.len()];
    for (key, number) in numbers {
        keys[number as usize] = key;
    }
    keys
}
