//! What is written of snapshots, forecasts and allocator programs, and what is read of a probe, as bytes that
//! a rename or a move must not change.
//!
//! The files are written by hand and have every field and every variant. Held elsewhere: what is read of
//! PyTorch's pickles by `src/snapshot/tests.rs` and the fixtures; texts of errors by
//! `src/allocator/error.rs`; the names of statistics by `tests/it/allocator.rs`.

mod probe;
mod program;

use sconce_memory::analysis::{Diff, Report};
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
    ("analysis/diff::Figures", DIFF),
    ("analysis/diff::Change", DIFF),
    ("analysis/diff::DeviceDiff", DIFF),
    ("analysis/diff::Diff", DIFF),
    ("analysis/filled::PlaceGroup", REPORT),
    ("analysis/filled::ModuleGroup", REPORT),
    ("analysis/filled::CategoryGroup", REPORT),
    ("analysis/filled::Filled", REPORT),
    ("analysis/fragments::Pin", REPORT),
    ("analysis/fragments::Pinned", REPORT),
    ("analysis/fragments::Fragments", REPORT),
    ("analysis/leaks::Unit", REPORT),
    ("analysis/leaks::Leak", REPORT),
    ("analysis/leaks::Leaks", REPORT),
    ("analysis/mod::Peak", REPORT),
    ("analysis/mod::Traced", REPORT),
    ("analysis/mod::DeviceReport", REPORT),
    ("analysis/mod::Report", REPORT),
    ("analysis/oom::Reason", REPORT),
    ("analysis/oom::Oom", REPORT),
    ("analysis/places::Category", REPORT),
    ("analysis/places::Place", REPORT),
    ("analysis/places::Forward", PROBE),
    ("analysis/purpose::Purpose", FORECASTS),
    ("analysis/purpose::Step", PROBE),
    ("analysis/purpose::Phase", FORECASTS),
    ("analysis/purpose::PurposeGroup", FORECASTS),
    ("analysis/purpose::Moment", FORECASTS),
    ("forecast/mod::Verdict", FORECASTS),
    ("forecast/mod::NotJudged", FORECASTS),
    ("forecast/mod::CardForecast", FORECASTS),
    ("forecast/mod::Nccl", FORECASTS),
    ("forecast/mod::Varied", FORECASTS),
    ("forecast/mod::Made", FORECASTS),
    ("forecast/mod::Doubt", FORECASTS),
    ("forecast/mod::Forecast", FORECASTS),
    ("forecast/seen::Evaluation", FORECASTS),
    ("forecast/seen::Use", FORECASTS),
    ("forecast/seen::Line", FORECASTS),
    ("forecast/seen::Read", FORECASTS),
    ("forecast/table::Fits", FORECASTS),
    ("forecast/table::CardFits", FORECASTS),
    ("forecast/table::PlanRow", FORECASTS),
    ("forecast/table::PlanTable", FORECASTS),
    ("forecast/values::Share", FORECASTS),
    ("forecast/values::Answers", FORECASTS),
    ("forecast/values::WithValues", FORECASTS),
    ("forecast/values::Unbounded", FORECASTS),
    ("program/answer::Error", ANSWERS),
    ("program/op::Pool", PROGRAM),
    ("program/op::Op", PROGRAM),
    ("replay/mod::RoomSource", WHAT_IF),
    ("replay/mod::Room", WHAT_IF),
    ("replay/mod::Outcome", WHAT_IF),
    ("replay/mod::AsItWas", WHAT_IF),
    ("replay/mod::DeviceWhatIf", WHAT_IF),
    ("replay/mod::WhatIf", WHAT_IF),
    ("snapshot/mod::Settings", REPORT),
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
    let text = goldens().text(name);
    let value: T = serde_json::from_str(&text).expect("an older program's file is read");
    let mut written = serde_json::to_string_pretty(&value).expect("plain data is JSON");
    written.push('\n');
    goldens().assert_same(name, written);
}

#[test]
fn snapshot_report_is_read_and_written_as_before() {
    assert_read_and_written_as_before::<Report>("snapshot-report.json");
}

#[test]
fn snapshot_diff_is_read_and_written_as_before() {
    assert_read_and_written_as_before::<Diff>("snapshot-diff.json");
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
