//! What is written of snapshots, forecasts and allocator programs, and what is read of a probe, as bytes that
//! a rename or a move must not change.
//!
//! The files are written by hand and have every field and every variant. Held elsewhere: what is read of
//! PyTorch's pickles by `src/snapshot/tests.rs` and the fixtures; texts of errors by
//! `src/allocator/error.rs`; the names of statistics by `tests/it/allocator.rs`.

mod probe;
mod program;

use sconce_memory::analysis::{ReportDiff, SnapshotReport};
use sconce_memory::forecast::Forecast;
use sconce_memory::replay::WhatIf;
use sconce_testkit::golden_files::{Goldens, HeldBy};
use serde::Serialize;
use serde::de::DeserializeOwned;

const REPORT: HeldBy = HeldBy::Golden("snapshot-report.json");
const DIFF: HeldBy = HeldBy::Golden("snapshot-diff.json");
const WHAT_IF: HeldBy = HeldBy::Golden("what-if.json");
const FORECASTS: HeldBy = HeldBy::Golden("forecasts.json");
const PROBE: HeldBy = HeldBy::Golden("probe.json");
const PROGRAM: HeldBy = HeldBy::Golden("allocator-program.jsonl");
const ANSWERS: HeldBy = HeldBy::Golden("allocator-answers.jsonl");

const TYPES: &[(&str, HeldBy)] = &[
    ("analysis/diff::MemoryTotals", DIFF),
    ("analysis/diff::FunctionChange", DIFF),
    ("analysis/diff::DeviceDiff", DIFF),
    ("analysis/diff::ReportDiff", DIFF),
    ("analysis/breakdown::LocationGroup", REPORT),
    ("analysis/breakdown::ModuleGroup", REPORT),
    ("analysis/breakdown::CategoryGroup", REPORT),
    ("analysis/breakdown::MemoryBreakdown", REPORT),
    ("analysis/fragmentation::RetainingBlock", REPORT),
    ("analysis/fragmentation::FragmentedSegment", REPORT),
    ("analysis/fragmentation::FragmentationReport", REPORT),
    ("analysis/leaks::TrendUnit", REPORT),
    ("analysis/leaks::Leak", REPORT),
    ("analysis/leaks::LeakReport", REPORT),
    ("analysis/mod::TracePeak", REPORT),
    ("analysis/mod::TraceSummary", REPORT),
    ("analysis/mod::DeviceReport", REPORT),
    ("analysis/mod::SnapshotReport", REPORT),
    ("analysis/oom::OomReason", REPORT),
    ("analysis/oom::FailedRequest", REPORT),
    ("analysis/source_locations::MemoryCategory", REPORT),
    ("analysis/source_locations::SourceLocation", REPORT),
    ("analysis/source_locations::ForwardFunction", PROBE),
    ("analysis/purpose::Purpose", FORECASTS),
    ("analysis/purpose::OptimizerStep", PROBE),
    ("analysis/purpose::StepPhase", FORECASTS),
    ("analysis/purpose::PurposeGroup", FORECASTS),
    ("analysis/purpose::PeakInstant", FORECASTS),
    ("forecast/mod::FitOutcome", FORECASTS),
    ("forecast/mod::InconclusiveReason", FORECASTS),
    ("forecast/mod::GpuForecast", FORECASTS),
    ("forecast/mod::NcclBuffers", FORECASTS),
    ("forecast/mod::FlagSearchResult", FORECASTS),
    ("forecast/mod::PeakBreakdown", FORECASTS),
    ("forecast/mod::ForecastCaveat", FORECASTS),
    ("forecast/mod::Forecast", FORECASTS),
    ("forecast/probe_report::UnreachedEvaluation", FORECASTS),
    ("forecast/probe_report::ValueUse", FORECASTS),
    ("forecast/probe_report::SourceLine", FORECASTS),
    ("forecast/probe_report::ValueRead", FORECASTS),
    ("forecast/table::PlanFit", FORECASTS),
    ("forecast/table::GpuPlanFit", FORECASTS),
    ("forecast/table::PlanRow", FORECASTS),
    ("forecast/table::PlanTable", FORECASTS),
    ("forecast/values::SelectedShare", FORECASTS),
    ("forecast/values::SubstituteValues", FORECASTS),
    ("forecast/values::ValuePattern", FORECASTS),
    ("forecast/values::ValueTrial", FORECASTS),
    ("forecast/values::UnboundedReason", FORECASTS),
    ("program/call_result::Error", ANSWERS),
    ("program/allocator_call::PoolName", PROGRAM),
    ("program/allocator_call::AllocatorCall", PROGRAM),
    ("replay/mod::CapacitySource", WHAT_IF),
    ("replay/mod::UsableCapacity", WHAT_IF),
    ("replay/mod::ReplayOutcome", WHAT_IF),
    ("replay/mod::Baseline", WHAT_IF),
    ("replay/mod::DeviceWhatIf", WHAT_IF),
    ("replay/mod::WhatIf", WHAT_IF),
    ("snapshot/mod::RecordedSettings", REPORT),
];

fn goldens() -> Goldens {
    Goldens::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_written_type_is_held() {
    goldens().assert_every_type_is_held(TYPES);
}

/// Reads a golden file, and compares what is written of the value with the same file.
fn assert_read_and_written_as_before<T: Serialize + DeserializeOwned>(name: &str) {
    let text = goldens().read_text(name);
    let value: T = serde_json::from_str(&text).expect("an older program's file is read");
    let mut written = serde_json::to_string_pretty(&value).expect("plain data is JSON");
    written.push('\n');
    goldens().assert_same(name, written);
}

#[test]
fn snapshot_report_is_read_and_written_as_before() {
    assert_read_and_written_as_before::<SnapshotReport>("snapshot-report.json");
}

#[test]
fn snapshot_diff_is_read_and_written_as_before() {
    assert_read_and_written_as_before::<ReportDiff>("snapshot-diff.json");
}

#[test]
fn replay_with_other_settings_is_read_and_written_as_before() {
    assert_read_and_written_as_before::<WhatIf>("what-if.json");
}

/// Several, because a forecast has one phase at most.
#[test]
fn forecasts_are_read_and_written_as_before() {
    assert_read_and_written_as_before::<Vec<Forecast>>("forecasts.json");
}
