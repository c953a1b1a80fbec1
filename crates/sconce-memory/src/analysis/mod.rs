//! What a snapshot says: what filled the peak, what is fragmented, what leaks, why a request failed.

mod breakdown;
mod diff;
mod fragmentation;
mod leaks;
mod oom;
pub mod purpose;
mod replay;
mod source_locations;
mod timeline;
mod trend;

use serde::{Deserialize, Serialize};

pub use breakdown::{CategoryGroup, LocationGroup, MemoryBreakdown, ModuleGroup};
pub use diff::{DeviceDiff, FunctionChange, MemoryTotals, ReportDiff, diff_reports};
pub use fragmentation::{FragmentationReport, FragmentedSegment, RetainingBlock};
pub use leaks::{Leak, LeakReport, TrendUnit};
pub(crate) use oom::first_ranges;
pub use oom::{FailedRequest, OomReason};
pub use source_locations::{ForwardFunction, MemoryCategory, SourceLocation};
pub use timeline::{EntryKind, MemoryTimeline, TimelineEntry, TimelineGroup, build_timeline};

use crate::snapshot::{BlockUsage, RecordedSettings, Snapshot, StackId, TraceEntry};
use replay::LiveBlock;
use source_locations::StackIndex;

/// Version of the written report.
pub const VERSION: u32 = 1;
/// Frames that are listed of a stack.
const MAX_FRAMES: usize = 64;

/// The most that was live at once in a card's trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TracePeak {
    /// Entries of the trace until then.
    pub entry: usize,
    /// Microseconds after the first entry.
    pub after_us: Option<i64>,
    /// What filled it.
    pub filled: MemoryBreakdown,
}

/// A card's trace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TraceSummary {
    /// Entries.
    pub entries: usize,
    /// Microseconds from the first to the last.
    pub spans_us: Option<i64>,
    /// Bytes that were live before the first entry: above 0 where the ring had overwritten older
    /// entries, or recording began within the run.
    pub live_before_bytes: u64,
    /// Frees of what was not live, and allocations of what was: the trace has gaps.
    pub unmatched: u64,
    /// The most that was reserved.
    pub peak_reserved_bytes: u64,
    /// The most that was live.
    pub peak: TracePeak,
    /// What grows from step to step; absent where there are too few steps to tell.
    pub leaks: Option<LeakReport>,
    /// How many requests failed.
    pub oom_count: usize,
    /// The last of them.
    pub ooms: Vec<FailedRequest>,
}

/// What is said of one card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DeviceReport {
    /// Its number in the process.
    pub device: u64,
    /// What filled it when the snapshot was taken.
    pub now: MemoryBreakdown,
    /// What of the reserved memory was used then.
    pub fragments: FragmentationReport,
    /// What its trace says; absent where no history was recorded.
    pub traced: Option<TraceSummary>,
}

/// What a snapshot says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SnapshotReport {
    /// [`VERSION`].
    pub version: u32,
    /// Settings of the allocator; absent in files of old versions.
    pub settings: Option<RecordedSettings>,
    /// One for each card that anything is said of.
    pub devices: Vec<DeviceReport>,
    /// Bytes of pinned host memory (2.15 and newer).
    pub pinned_host_bytes: Option<u64>,
}

/// What a snapshot says.
#[must_use]
pub fn analyze_snapshot(snapshot: &Snapshot) -> SnapshotReport {
    let places = StackIndex::from_snapshot(snapshot, &[]);
    let devices = snapshot.device_numbers().into_iter();
    let devices = devices.map(|device| DeviceReport {
        device,
        now: now(snapshot, &places, device),
        fragments: fragmentation::compute_fragmentation(snapshot, &places, device),
        traced: traced(snapshot, &places, device),
    });
    let devices = devices.collect();
    let host = snapshot
        .host_segments
        .iter()
        .filter_map(|one| one.total_size);
    let host = host.fold(0u64, u64::saturating_add);
    SnapshotReport {
        version: VERSION,
        settings: snapshot.settings.clone(),
        devices,
        pinned_host_bytes: (!snapshot.host_segments.is_empty()).then_some(host),
    }
}

fn now(snapshot: &Snapshot, places: &StackIndex, device: u64) -> MemoryBreakdown {
    let blocks = snapshot.segments_of(device).flat_map(|(_, blocks)| blocks);
    let used = blocks.filter(|block| block.state != BlockUsage::Inactive);
    let used = used.map(|block| LiveBlock {
        size: block.requested_size.unwrap_or(block.size),
        stack: block.stack,
    });
    breakdown::filled_by(snapshot, places, used)
}

fn traced(snapshot: &Snapshot, places: &StackIndex, device: u64) -> Option<TraceSummary> {
    let trace = snapshot.trace_entries(device);
    let last = trace.last()?;
    let is_optimizer = |stack: Option<StackId>| {
        let category = places.stack_summary(stack).category.0;
        matches!(
            category,
            MemoryCategory::OptimizerState | MemoryCategory::OptimizerWork
        )
    };
    let outline = replay::outline_trace(snapshot, device, &is_optimizer);
    let mut at_peak = MemoryBreakdown::default();
    replay::replay_trace(trace, &outline.initial, &[outline.peak_at], |_, live| {
        at_peak = breakdown::compute_breakdown(snapshot, places, live);
    });
    let at_peak_event = trace.get(outline.peak_at.saturating_sub(1)).unwrap_or(last);
    let before = outline.initial.values().map(|block| block.size);
    Some(TraceSummary {
        entries: trace.len(),
        spans_us: after_us(trace, last),
        live_before_bytes: before.fold(0, u64::saturating_add),
        unmatched: outline.unmatched,
        peak_reserved_bytes: outline.peak_reserved,
        peak: TracePeak {
            entry: outline.peak_at,
            after_us: after_us(trace, at_peak_event),
            filled: at_peak,
        },
        leaks: leaks::find_leaks(snapshot, places, device, &outline),
        oom_count: outline.ooms.len(),
        ooms: oom::explain_ooms(snapshot, places, device, &outline),
    })
}

/// Microseconds from the first entry to this one.
fn after_us(trace: &[TraceEntry], event: &TraceEntry) -> Option<i64> {
    event.time_us()?.checked_sub(trace.first()?.time_us()?)
}

/// Whether a function of C++ only records the stack, or belongs to the allocator itself.
fn reaches(name: &str) -> bool {
    let parts = [
        "torch::CapturedTraceback::",
        "c10::cuda::CUDACachingAllocator::",
    ];
    parts.iter().any(|part| name.starts_with(part))
}

/// A stack as text, the innermost frame first: `train.py:33 step`, with the whole path. Frames of
/// C++ only where there are no others: they say how the allocator was reached.
fn stack_lines(snapshot: &Snapshot, stack: Option<StackId>) -> Vec<String> {
    let Some(stack) = stack else {
        return Vec::new();
    };
    let has_python = snapshot
        .stack_frames(stack)
        .any(|frame| source_locations::is_python(&frame));
    let frames = snapshot.stack_frames(stack);
    let frames = frames.filter(|frame| !has_python || source_locations::is_python(frame));
    let frames: Vec<_> = frames.take(MAX_FRAMES).collect();
    let begins = frames.iter().rposition(|frame| reaches(frame.name));
    let frames = frames.into_iter().skip(begins.map_or(0, |at| at + 1));
    let lines = frames.map(|frame| match frame.line {
        Some(line) => format!("{}:{line} {}", frame.filename, frame.name),
        None => format!("{} {}", frame.filename, frame.name),
    });
    lines.collect()
}

#[cfg(test)]
mod tests;
