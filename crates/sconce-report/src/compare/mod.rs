//! Runs side by side: what was changed, and what came of it.

mod settings;
mod table;

pub use table::{RunTable, RunTableRow, SettingRow};

use sconce_schema::Bytes;

use crate::fold::steps_after_warm_up;
use crate::model::RunReport;
use crate::stats::shift::{StepTimeShift, compute_shift};
use crate::training::RankReport;
use crate::verdict::Verdict;
use crate::verdicts::skip_reasons;

/// What is different between two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison<'a> {
    /// The one that is compared with.
    pub before: &'a RunReport,
    /// The one that is looked at.
    pub after: &'a RunReport,
    /// What was set or given otherwise: command, environment, machine, limits, model, loader. Of both runs
    /// it is known.
    pub changed: Vec<SettingChange>,
    /// What only one of the runs tells: whether it was changed nobody knows.
    pub not_known: Vec<SettingChange>,
    /// Packages that the locks have otherwise, where both were found; put in by who can read locks.
    pub packages: Option<Vec<SettingChange>>,
    /// How much longer steps take. Of several ranks, the first one's.
    pub step_time: StepTimeComparison,
    /// Time of a mean step by phase, µs, before and after, without the runs' beginnings.
    pub phases: Vec<(&'static str, Option<f64>, Option<f64>)>,
    /// Steps, samples and tokens a second, of all ranks together.
    pub throughput: Vec<(&'static str, Option<f64>, Option<f64>)>,
    /// The most memory of each kind.
    pub memory: Vec<(&'static str, Option<Bytes>, Option<Bytes>)>,
    /// Verdicts that only the first run has.
    pub gone: Vec<&'a Verdict>,
    /// Verdicts that both have: the second run's.
    pub stayed: Vec<&'a Verdict>,
    /// Verdicts that only the second run has.
    pub new: Vec<&'a Verdict>,
    /// Verdicts of one run that cannot be judged of the other.
    pub not_judged: Vec<OneSidedVerdict<'a>>,
}

/// A verdict of one run, of which nobody can tell whether the other should have it too.
#[derive(Debug, Clone, PartialEq)]
pub struct OneSidedVerdict<'a> {
    /// As the one run has it.
    pub verdict: &'a Verdict,
    /// The run that it cannot be judged of is the second one.
    pub of_after: bool,
    /// Why.
    pub why: String,
}

/// A setting in both runs. `None` is "not known", or "not there" for a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingChange {
    /// What it is.
    pub what: String,
    /// In the first run.
    pub before: Option<String>,
    /// In the second run.
    pub after: Option<String>,
}

/// Step times of two runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepTimeComparison {
    /// They were compared.
    Compared(StepTimeShift),
    /// One of the runs has too few steps for that, or none.
    TooFew,
}

impl<'a> Comparison<'a> {
    /// Of two reports.
    #[must_use]
    pub fn from_reports(before: &'a RunReport, after: &'a RunReport) -> Self {
        let first = |report: &'a RunReport| report.training.first();
        let has =
            |report: &RunReport, rule: &str| report.verdicts.iter().any(|one| one.rule == rule);
        let only = |of: &'a RunReport, other: &RunReport, of_after: bool| {
            let alone = || (of.verdicts.iter()).filter(|one| !has(other, &one.rule));
            let mut why = skip_reasons(other, alone().map(|one| one.rule.as_str()));
            let (mut told, mut not_judged) = (Vec::new(), Vec::new());
            for verdict in alone() {
                match why.remove(verdict.rule.as_str()) {
                    None => told.push(verdict),
                    Some(why) => not_judged.push(OneSidedVerdict {
                        verdict,
                        of_after,
                        why,
                    }),
                }
            }
            (told, not_judged)
        };
        let (gone, mut not_judged) = only(before, after, true);
        let (new, of_before) = only(after, before, false);
        not_judged.extend(of_before);
        let (changed, not_known) = settings::diff_settings(before, after);
        Self {
            before,
            after,
            changed,
            not_known,
            packages: None,
            step_time: step_time(first(before), first(after)),
            phases: phases(first(before), first(after)),
            throughput: throughput(before, after),
            memory: memory(before, after),
            gone,
            stayed: (after.verdicts.iter())
                .filter(|one| has(before, &one.rule))
                .collect(),
            new,
            not_judged,
        }
    }
}

fn step_time(before: Option<&RankReport>, after: Option<&RankReport>) -> StepTimeComparison {
    let times = |rank: &RankReport| -> Vec<f64> {
        steps_after_warm_up(&rank.sampled)
            .iter()
            .map(|step| step.wall_us as f64)
            .collect()
    };
    (before.zip(after))
        .and_then(|(before, after)| compute_shift(&times(before), &times(after)))
        .map_or(StepTimeComparison::TooFew, StepTimeComparison::Compared)
}

/// Two runs' figures under one name.
type Pair<T> = (&'static str, Option<T>, Option<T>);

/// Without those that neither run has.
fn known<T: Copy>(pairs: impl IntoIterator<Item = Pair<T>>) -> Vec<Pair<T>> {
    pairs
        .into_iter()
        .filter(|(_, a, b)| a.is_some() || b.is_some())
        .collect()
}

fn phases(before: Option<&RankReport>, after: Option<&RankReport>) -> Vec<Pair<f64>> {
    let of = |rank: Option<&RankReport>| rank.map(RankReport::seen_phases).unwrap_or_default();
    let (before, after) = (of(before), of(after));
    let find = |phases: &[(&str, f64)], name: &str| {
        phases.iter().find(|one| one.0 == name).map(|one| one.1)
    };
    known(
        ["data", "copy", "forward", "backward", "optimizer", "other"]
            .map(|name| (name, find(&before, name), find(&after, name))),
    )
}

fn throughput(before: &RunReport, after: &RunReport) -> Vec<Pair<f64>> {
    // Ranks step together; their samples add up.
    let steps = |report: &RunReport| report.training.first().and_then(RankReport::steps_per_s);
    let (samples, tokens) = (samples_per_s, tokens_per_s);
    known([
        ("steps/s", steps(before), steps(after)),
        ("samples/s", samples(before), samples(after)),
        ("tokens/s", tokens(before), tokens(after)),
    ])
}

fn samples_per_s(report: &RunReport) -> Option<f64> {
    let ranks = report.training.iter();
    ranks
        .filter_map(RankReport::samples_per_s)
        .reduce(|a, b| a + b)
}

fn tokens_per_s(report: &RunReport) -> Option<f64> {
    let ranks = report.training.iter();
    ranks
        .filter_map(RankReport::tokens_per_s)
        .reduce(|a, b| a + b)
}

/// The most that tensors took on a card.
fn card_allocated(report: &RunReport) -> Option<Bytes> {
    let ranks = report.training.iter();
    ranks
        .filter_map(|rank| Some(rank.card_memory?.allocated_peak))
        .max()
}

fn memory(before: &RunReport, after: &RunReport) -> Vec<Pair<Bytes>> {
    let reserved = |report: &RunReport| {
        let ranks = report.training.iter();
        ranks
            .filter_map(|rank| Some(rank.card_memory?.reserved_peak))
            .max()
    };
    let held = |report: &RunReport| {
        let peaks = report.cards.iter().filter_map(|card| card.memory_peak_run);
        peaks.map(|peak| peak.value).max()
    };
    let (main, pss, rss, swap) = (
        |report: &RunReport| report.memory.peak.map(|peak| peak.value),
        |report: &RunReport| report.memory.pss_peak,
        |report: &RunReport| report.memory.rss_peak,
        |report: &RunReport| report.load.swap_peak,
    );
    known([
        ("charged to the run", main(before), main(after)),
        ("PSS", pss(before), pss(after)),
        ("RSS", rss(before), rss(after)),
        ("swap", swap(before), swap(after)),
        (
            "allocated on a card",
            card_allocated(before),
            card_allocated(after),
        ),
        ("reserved on a card", reserved(before), reserved(after)),
        ("held on a card", held(before), held(after)),
    ])
}
