//! Two runs side by side: what was changed, and what came of it.

mod settings;

use sconce_schema::Bytes;

use crate::fold::warm;
use crate::model::Report;
use crate::stats::shift::{Shift, shift};
use crate::training::Rank;
use crate::verdict::Verdict;
use crate::verdicts::unjudged;

/// What is different between two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison<'a> {
    /// The one that is compared with.
    pub before: &'a Report,
    /// The one that is looked at.
    pub after: &'a Report,
    /// What was set or given otherwise: command, environment, machine, limits, model, loader. Of both runs
    /// it is known.
    pub changed: Vec<Change>,
    /// What only one of the runs tells: whether it was changed nobody knows.
    pub not_known: Vec<Change>,
    /// Packages that the locks have otherwise, where both were found; put in by who can read locks.
    pub packages: Option<Vec<Change>>,
    /// How much longer steps take. Of several ranks, the first one's.
    pub step_time: StepTime,
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
    pub not_judged: Vec<NotJudged<'a>>,
}

/// A verdict of one run, of which nobody can tell whether the other should have it too.
#[derive(Debug, Clone, PartialEq)]
pub struct NotJudged<'a> {
    /// As the one run has it.
    pub verdict: &'a Verdict,
    /// The run that it cannot be judged of is the second one.
    pub of_after: bool,
    /// Why.
    pub why: String,
}

/// A setting in both runs. `None` is "not known", or "not there" for a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What it is.
    pub what: String,
    /// In the first run.
    pub before: Option<String>,
    /// In the second run.
    pub after: Option<String>,
}

/// Step times of two runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StepTime {
    /// They were compared.
    Compared(Shift),
    /// One of the runs has too few steps for that, or none.
    TooFew,
}

impl<'a> Comparison<'a> {
    /// Of two reports.
    #[must_use]
    pub fn of(before: &'a Report, after: &'a Report) -> Self {
        let first = |report: &'a Report| report.training.first();
        let has = |report: &Report, rule: &str| report.verdicts.iter().any(|one| one.rule == rule);
        let only = |of: &'a Report, other: &Report, of_after: bool| {
            let alone = || (of.verdicts.iter()).filter(|one| !has(other, &one.rule));
            let mut why = unjudged(other, alone().map(|one| one.rule.as_str()));
            let (mut told, mut not_judged) = (Vec::new(), Vec::new());
            for verdict in alone() {
                match why.remove(verdict.rule.as_str()) {
                    None => told.push(verdict),
                    Some(why) => not_judged.push(NotJudged {
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
        let (changed, not_known) = settings::changed(before, after);
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

fn step_time(before: Option<&Rank>, after: Option<&Rank>) -> StepTime {
    let times = |rank: &Rank| -> Vec<f64> {
        warm(&rank.sampled)
            .iter()
            .map(|step| step.wall_us as f64)
            .collect()
    };
    (before.zip(after))
        .and_then(|(before, after)| shift(&times(before), &times(after)))
        .map_or(StepTime::TooFew, StepTime::Compared)
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

fn phases(before: Option<&Rank>, after: Option<&Rank>) -> Vec<Pair<f64>> {
    let of = |rank: Option<&Rank>| rank.map(Rank::seen_phases).unwrap_or_default();
    let (before, after) = (of(before), of(after));
    let find = |phases: &[(&str, f64)], name: &str| {
        phases.iter().find(|one| one.0 == name).map(|one| one.1)
    };
    known(
        ["data", "copy", "forward", "backward", "optimizer", "other"]
            .map(|name| (name, find(&before, name), find(&after, name))),
    )
}

fn throughput(before: &Report, after: &Report) -> Vec<Pair<f64>> {
    // Ranks step together; their samples add up.
    let steps = |report: &Report| report.training.first().and_then(Rank::steps_per_s);
    let sum = |report: &Report, of: fn(&Rank) -> Option<f64>| {
        report.training.iter().filter_map(of).reduce(|a, b| a + b)
    };
    let samples: fn(&Rank) -> Option<f64> = Rank::samples_per_s;
    let tokens: fn(&Rank) -> Option<f64> = Rank::tokens_per_s;
    known([
        ("steps/s", steps(before), steps(after)),
        ("samples/s", sum(before, samples), sum(after, samples)),
        ("tokens/s", sum(before, tokens), sum(after, tokens)),
    ])
}

fn memory(before: &Report, after: &Report) -> Vec<Pair<Bytes>> {
    let card = |report: &Report, of: fn(&Rank) -> Option<Bytes>| {
        report.training.iter().filter_map(of).max()
    };
    let allocated: fn(&Rank) -> Option<Bytes> = |rank| Some(rank.card_memory?.allocated_peak);
    let reserved: fn(&Rank) -> Option<Bytes> = |rank| Some(rank.card_memory?.reserved_peak);
    let held = |report: &Report| {
        let peaks = report.cards.iter().filter_map(|card| card.memory_peak_run);
        peaks.map(|peak| peak.value).max()
    };
    let (main, pss, rss, swap) = (
        |report: &Report| report.memory.peak.map(|peak| peak.value),
        |report: &Report| report.memory.pss_peak,
        |report: &Report| report.memory.rss_peak,
        |report: &Report| report.load.swap_peak,
    );
    known([
        ("charged to the run", main(before), main(after)),
        ("PSS", pss(before), pss(after)),
        ("RSS", rss(before), rss(after)),
        ("swap", swap(before), swap(after)),
        (
            "allocated on a card",
            card(before, allocated),
            card(after, allocated),
        ),
        (
            "reserved on a card",
            card(before, reserved),
            card(after, reserved),
        ),
        ("held on a card", held(before), held(after)),
    ])
}
