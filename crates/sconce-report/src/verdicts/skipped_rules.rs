//! Why a rule could not be judged of a run: what it needs was not measured, or is too little. That a run
//! does not have a verdict says nothing then.

use super::condition::{FigureCondition, Truth};
use super::figures::{FIGURES, FigureSet, RuleSubject};
use super::rule::VerdictRule;
use super::value::{FigureUnit, format_number, format_precise_duration};
use crate::model::RunReport;
use crate::stats::growth::MIN_STEPS;
use crate::training::GrowthMetric;
use crate::verdict::SkippedRule;

/// Figures of which there may be too few for a rule: less of them is no answer.
const AMOUNTS: [&str; 4] = ["steps", "watched", "wall", "readings"];

/// Why `rule` cannot be judged of a run; `None` where it can.
pub(super) fn skipped_rule(
    rule: &VerdictRule,
    report: &RunReport,
    all: &[FigureSet],
) -> Option<SkippedRule> {
    let why = why_not(rule, report, all)?;
    Some(SkippedRule {
        rule: rule.code.clone(),
        too_little: matches!(why, SkipReason::TooLittle(_)),
        why: match why {
            SkipReason::TooLittle(why) | SkipReason::NotMeasured(why) => why,
        },
    })
}

/// Whether waiting would help.
enum SkipReason {
    /// There was too little of the run.
    TooLittle(String),
    NotMeasured(String),
}

fn why_not(rule: &VerdictRule, report: &RunReport, all: &[FigureSet]) -> Option<SkipReason> {
    let growing = rule.when.iter().find(|one| one.figure == "growing");
    let subjects: Vec<&FigureSet> = (all.iter())
        .filter(|figures| figures.about == rule.about)
        // A rule about one growing figure says nothing of the others.
        .filter(|figures| growing.is_none_or(|growing| growing.is_true(figures)))
        .collect();
    if subjects.is_empty() {
        return without_subject(rule, report, all);
    }
    subjects.into_iter().find_map(|figures| why(rule, figures))
}

/// A rule's subject is not there: no process that trains, no figure that was watched.
fn without_subject(
    rule: &VerdictRule,
    report: &RunReport,
    all: &[FigureSet],
) -> Option<SkipReason> {
    let accounted = !report.training.is_empty();
    match rule.about {
        // A run has always one; a run without cards leaves none idle.
        RuleSubject::Run | RuleSubject::Card => None,
        RuleSubject::CardOom if accounted => None,
        RuleSubject::Growth if accounted => {
            let of_card = rule.when.iter().any(|one| {
                let figures = [
                    GrowthMetric::Allocated,
                    GrowthMetric::Reserved,
                    GrowthMetric::Blocks,
                ];
                (figures.iter()).any(|of| one.text == format!("growing is {}", of.label()))
            });
            let on_card = all.iter().any(|figures| {
                figures.about == RuleSubject::Rank
                    && figures.get("on-card") == Some(&super::figures::FigureValue::Flag(true))
            });
            // What runs on the CPU fills no card.
            if of_card && !on_card {
                return None;
            }
            let steps = report.training.iter().map(|rank| rank.steps).max()?;
            // The first fifth is not looked at.
            let least = MIN_STEPS * 5 / 4;
            let [steps_told, least_told] = [steps, least].map(|steps| format_number(steps as f64));
            Some(SkipReason::TooLittle(match steps < least {
                true => format!("too few steps: {steps_told}, where it takes {least_told}"),
                false => format!("too few readings to watch it grow, of {steps_told} steps"),
            }))
        }
        RuleSubject::Rank | RuleSubject::Growth | RuleSubject::CardOom => {
            Some(SkipReason::NotMeasured(
                "no step of its training is on record (`--no-probe`, or nothing trained)"
                    .to_owned(),
            ))
        }
    }
}

/// Why a rule cannot be judged of one subject. What is known to be otherwise is an answer, unless there
/// was too little of the run for it.
fn why(rule: &VerdictRule, figures: &FigureSet) -> Option<SkipReason> {
    // What is about a card says nothing of training on the CPU, however short it was.
    let on_card = rule.needs.iter().find(|one| one.figure == "on-card");
    if on_card.is_some_and(|one| one.evaluate(figures) == Truth::No) {
        return None;
    }
    let short = |condition: &&FigureCondition| {
        AMOUNTS.contains(&condition.figure.as_str()) && condition.evaluate(figures) == Truth::No
    };
    if let Some(condition) = rule.needs.iter().find(short) {
        return Some(SkipReason::TooLittle(too_little(condition, figures)));
    }
    let all = rule.needs.iter().chain(&rule.when);
    let any = rule.any.iter();
    let answered = all.clone().any(|one| one.evaluate(figures) == Truth::No)
        || (!rule.any.is_empty() && any.clone().all(|one| one.evaluate(figures) == Truth::No))
        || rule
            .unless
            .iter()
            .any(|one| one.evaluate(figures) == Truth::Yes);
    if answered {
        return None;
    }
    let missing = all
        .chain(any)
        .find(|one| one.evaluate(figures) == Truth::NotMeasured)?;
    let about = FIGURES.iter().find(|figure| figure.0 == missing.figure)?.3;
    let about = about.split([';', ':']).next().unwrap_or(about);
    Some(SkipReason::NotMeasured(format!("not measured: {about}")))
}

fn too_little(condition: &FigureCondition, figures: &FigureSet) -> String {
    let told = |value: f64| match condition.figure.as_str() {
        "wall" => format_precise_duration(value),
        _ => format_number(value),
    };
    let has = figures.get(&condition.figure).and_then(|v| v.as_number());
    let (has, least) = (has.unwrap_or(0.0), condition.number().unwrap_or(0.0));
    let what = match condition.figure.as_str() {
        "steps" => "too few steps",
        "watched" => "too few steps after its beginning",
        "readings" => "too few readings",
        _ => "too short",
    };
    debug_assert!(
        super::figures::unit_of(&condition.figure)
            .is_some_and(|unit| matches!(unit, FigureUnit::Count | FigureUnit::Time))
    );
    format!("{what}: {}, where it takes {}", told(has), told(least))
}
