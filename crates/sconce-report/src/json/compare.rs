//! Two runs side by side.

use sconce_schema::Bytes;
use serde::Serialize;

use super::training::VerdictShape;
use super::{EndShape, FORMAT, seconds, text};
use crate::compare::{Comparison, SettingChange, StepTimeComparison};
use crate::model::RunReport;
use crate::verdict::Verdict;

#[derive(Serialize)]
struct Shape<'a> {
    format: u32,
    before: RunShape<'a>,
    after: RunShape<'a>,
    changed: Vec<ChangeShape<'a>>,
    /// Told of one run alone: null is "not known".
    not_known: Vec<ChangeShape<'a>>,
    /// Null where one of the locks was not found.
    packages: Option<Vec<ChangeShape<'a>>>,
    /// Null where one of the runs has too few steps.
    step_time: Option<ShiftShape>,
    phases: Vec<PairShape>,
    throughput: Vec<PairShape>,
    memory: Vec<BytesShape>,
    verdicts_gone: Vec<VerdictShape<'a>>,
    verdicts_stayed: Vec<VerdictShape<'a>>,
    verdicts_new: Vec<VerdictShape<'a>>,
    verdicts_not_judged: Vec<NotJudgedShape<'a>>,
}

/// A verdict of one run that cannot be judged of the other, `not_judged_of`.
#[derive(Serialize)]
struct NotJudgedShape<'a> {
    not_judged_of: &'static str,
    why: &'a str,
    verdict: VerdictShape<'a>,
}

#[derive(Serialize)]
struct RunShape<'a> {
    id: &'a str,
    started_unix_ms: u64,
    wall_seconds: f64,
    end: EndShape,
    median_step_seconds: Option<f64>,
    lower_quartile_step_seconds: Option<f64>,
    upper_quartile_step_seconds: Option<f64>,
}

#[derive(Serialize)]
struct ChangeShape<'a> {
    what: &'a str,
    before: Option<&'a str>,
    after: Option<&'a str>,
}

/// By which share the second run's steps are longer.
#[derive(Serialize)]
struct ShiftShape {
    longer_share: f64,
    longer_share_low: f64,
    longer_share_high: f64,
    real: bool,
    blocks_before: usize,
    blocks_after: usize,
    steps_per_block_before: usize,
    steps_per_block_after: usize,
}

/// Phases in seconds of a mean step; throughput in what its name says.
#[derive(Serialize)]
struct PairShape {
    what: &'static str,
    before: Option<f64>,
    after: Option<f64>,
}

#[derive(Serialize)]
struct BytesShape {
    what: &'static str,
    before_bytes: Option<Bytes>,
    after_bytes: Option<Bytes>,
}

/// What was changed between two runs, and what came of it.
///
/// # Panics
/// Never: a comparison is plain data.
#[must_use]
pub fn render_comparison(comparison: &Comparison<'_>) -> String {
    let pair = |scale: f64| {
        move |(what, before, after): &(&'static str, Option<f64>, Option<f64>)| PairShape {
            what,
            before: before.map(|value| value * scale),
            after: after.map(|value| value * scale),
        }
    };
    let step_time = match comparison.step_time {
        StepTimeComparison::TooFew => None,
        StepTimeComparison::Compared(shift) => Some(ShiftShape {
            longer_share: shift.share,
            longer_share_low: shift.low,
            longer_share_high: shift.high,
            real: shift.is_real(),
            blocks_before: shift.blocks.0,
            blocks_after: shift.blocks.1,
            steps_per_block_before: shift.block_steps.0,
            steps_per_block_after: shift.block_steps.1,
        }),
    };
    text(&Shape {
        format: FORMAT,
        before: run(comparison.before),
        after: run(comparison.after),
        changed: changes(&comparison.changed),
        not_known: changes(&comparison.not_known),
        packages: comparison.packages.as_deref().map(changes),
        step_time,
        phases: comparison.phases.iter().map(pair(1e-6)).collect(),
        throughput: comparison.throughput.iter().map(pair(1.0)).collect(),
        memory: (comparison.memory.iter())
            .map(|(what, before, after)| BytesShape {
                what,
                before_bytes: *before,
                after_bytes: *after,
            })
            .collect(),
        verdicts_gone: verdicts(&comparison.gone),
        verdicts_stayed: verdicts(&comparison.stayed),
        verdicts_new: verdicts(&comparison.new),
        verdicts_not_judged: (comparison.not_judged.iter())
            .map(|one| NotJudgedShape {
                not_judged_of: if one.of_after { "after" } else { "before" },
                why: &one.why,
                verdict: VerdictShape::from_verdict(one.verdict),
            })
            .collect(),
    })
}

fn run(report: &RunReport) -> RunShape<'_> {
    let times = report.training.first().and_then(|rank| rank.step_times);
    RunShape {
        id: &report.started.id,
        started_unix_ms: report.started.unix_ms,
        wall_seconds: seconds(report.wall_us),
        end: report.end.into(),
        median_step_seconds: times.map(|times| times.median_us / 1e6),
        lower_quartile_step_seconds: times.map(|times| times.lower_quartile_us / 1e6),
        upper_quartile_step_seconds: times.map(|times| times.upper_quartile_us / 1e6),
    }
}

fn changes(changes: &[SettingChange]) -> Vec<ChangeShape<'_>> {
    (changes.iter())
        .map(|change| ChangeShape {
            what: &change.what,
            before: change.before.as_deref(),
            after: change.after.as_deref(),
        })
        .collect()
}

fn verdicts<'a>(verdicts: &[&'a Verdict]) -> Vec<VerdictShape<'a>> {
    verdicts
        .iter()
        .map(|verdict| VerdictShape::from_verdict(verdict))
        .collect()
}
