//! What grows from step to step.
//!
//! Within a step memory rises and falls; what leaks shows in the troughs. A step ends where the
//! optimizer begins; where no optimizer allocates, the trace is cut into windows of as many entries.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::replay::{StepMinimum, TraceOutline, replay_trace};
use super::source_locations::{SourceLocation, StackIndex};
use super::stack_lines;
use super::trend::compute_trend;
use crate::snapshot::{Snapshot, StackId};

/// Troughs that are looked at; more steps are taken together.
const MAX_SAMPLES: usize = 64;
/// With fewer steps nothing is said.
const MIN_SAMPLES: usize = 5;
/// Share of the pairs of troughs that must rise.
const MIN_RISING_SHARE: f64 = 0.8;
/// Growth over the whole trace below which nothing is said, in bytes and as a share of the peak.
const MIN_GROWTH_BYTES: f64 = 1_048_576.0;
const MIN_GROWTH_SHARE: f64 = 0.01;
/// Lines that are listed.
const MAX_PLACES: usize = 20;

/// What a trend is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrendUnit {
    /// Steps of an optimizer.
    Step,
    /// Windows of as many entries.
    Window,
}

/// A line whose memory grows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Leak {
    /// The line; absent where nothing was recorded.
    pub place: Option<SourceLocation>,
    /// Bytes that it grows by in each step or window.
    pub bytes_per_unit: i64,
    /// Its bytes in the first trough and in the last.
    pub first_bytes: u64,
    /// See `first_bytes`.
    pub last_bytes: u64,
    /// Of 100 pairs of troughs those that rise: 100 where it always grows.
    pub rising_percent: u8,
    /// The newest stack of it, the innermost frame first.
    pub stack: Vec<String>,
}

/// Whether memory grows from step to step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LeakReport {
    /// What is counted.
    pub unit: TrendUnit,
    /// How many were looked at.
    pub units: usize,
    /// Growth of the whole in each, by the median of slopes.
    pub bytes_per_unit: i64,
    /// Lines that grow, the fastest first; empty where nothing does.
    pub places: Vec<Leak>,
}

/// What is live at one trough, by line.
type StepSizes = HashMap<Option<usize>, (u64, Option<StackId>)>;

pub(super) fn find_leaks(
    snapshot: &Snapshot,
    places: &StackIndex,
    device: u64,
    outline: &TraceOutline,
) -> Option<LeakReport> {
    let trace = snapshot.trace_entries(device);
    // The first step makes the optimizer's state, and the last one is not over.
    let whole_steps = 2..outline.troughs.len().saturating_sub(1);
    let steps = outline.troughs.get(whole_steps).unwrap_or_default();
    let (unit, troughs, each) = if steps.len() >= MIN_SAMPLES {
        let each = steps.len().div_ceil(MAX_SAMPLES);
        let lowest = |some: &[StepMinimum]| some.iter().copied().min_by_key(|trough| trough.bytes);
        let chunks = steps.chunks_exact(each);
        (TrendUnit::Step, chunks.filter_map(lowest).collect(), each)
    } else {
        (TrendUnit::Window, windows(snapshot, device, outline), 1)
    };
    let totals: Vec<u64> = troughs.iter().map(|trough| trough.bytes).collect();
    if totals.len() < MIN_SAMPLES {
        return None;
    }
    let whole = compute_trend(&totals)?;
    let stops: Vec<usize> = troughs.iter().map(|trough| trough.at).collect();
    let mut samples: Vec<StepSizes> = Vec::new();
    replay_trace(trace, &outline.initial, &stops, |_, live| {
        let mut sample = StepSizes::new();
        for block in live.values() {
            let place = places.stack_summary(block.stack).place;
            let entry = sample.entry(place).or_insert((0, block.stack));
            entry.0 = entry.0.saturating_add(block.size);
            entry.1 = entry.1.max(block.stack);
        }
        samples.push(sample);
    });
    let last = samples.last()?;
    let least = MIN_GROWTH_BYTES.max(outline.peak_bytes as f64 * MIN_GROWTH_SHARE);
    let grown = last.iter().filter_map(|(place, (last_bytes, stack))| {
        let series = samples
            .iter()
            .map(|one| one.get(place).map_or(0, |(bytes, _)| *bytes));
        let series: Vec<u64> = series.collect();
        let trend = compute_trend(&series)?;
        let growth = trend.slope * (series.len() - 1) as f64;
        // What nothing was recorded of only shrinks: its allocations are before the trace.
        let grows = trend.rising >= MIN_RISING_SHARE && growth >= least && stack.is_some();
        grows.then(|| Leak {
            place: place.and_then(|place| places.places.get(place).cloned()),
            bytes_per_unit: whole_bytes(trend.slope / each as f64),
            first_bytes: series[0],
            last_bytes: *last_bytes,
            rising_percent: (trend.rising * 100.0).round() as u8,
            stack: stack_lines(snapshot, *stack),
        })
    });
    let mut grown: Vec<Leak> = grown.collect();
    grown.sort_by(|a, b| {
        let faster = b.bytes_per_unit.cmp(&a.bytes_per_unit);
        faster.then_with(|| a.place.cmp(&b.place))
    });
    grown.truncate(MAX_PLACES);
    Some(LeakReport {
        unit,
        units: totals.len() * each,
        bytes_per_unit: whole_bytes(whole.slope / each as f64),
        places: grown,
    })
}

/// Numbers with a point do not come back from JSON as they were.
fn whole_bytes(slope: f64) -> i64 {
    slope.round() as i64
}

/// Troughs of windows of as many entries, the first quarter left out: programs begin there.
fn windows(snapshot: &Snapshot, device: u64, outline: &TraceOutline) -> Vec<StepMinimum> {
    const WINDOWS: usize = 24;
    let len = snapshot.trace_entries(device).len();
    let wide = len / WINDOWS;
    // Of windows with a few entries each, troughs say nothing.
    if wide < 50 {
        return Vec::new();
    }
    let mut troughs = Vec::new();
    let mut live = outline
        .initial
        .values()
        .map(|block| i128::from(block.size))
        .sum::<i128>();
    let mut lowest: Option<(usize, i128)> = None;
    let mut sizes: HashMap<u64, u64> = HashMap::new();
    sizes.extend(
        outline
            .initial
            .iter()
            .map(|(addr, block)| (*addr, block.size)),
    );
    for (at, event) in snapshot.trace_entries(device).iter().enumerate() {
        use crate::snapshot::TraceAction;
        match (event.action(), event.addr()) {
            (TraceAction::Alloc, Some(addr)) => {
                let size = event.size().unwrap_or(0);
                live += i128::from(size) - i128::from(sizes.insert(addr, size).unwrap_or(0));
            }
            (TraceAction::FreeCompleted, Some(addr)) => {
                live -= i128::from(sizes.remove(&addr).unwrap_or(0));
            }
            _ => {}
        }
        if lowest.is_none_or(|(_, least)| live < least) {
            lowest = Some((at + 1, live));
        }
        if (at + 1) % wide == 0 {
            troughs.extend(lowest.take());
        }
    }
    let later = troughs.into_iter().take(WINDOWS).skip(WINDOWS / 4);
    let later = later.map(|(at, bytes)| StepMinimum {
        at,
        bytes: u64::try_from(bytes.max(0)).unwrap_or(u64::MAX),
    });
    later.collect()
}
