//! From the places of rules in a log to causes in order.
//!
//! What counts, in points: how much the text says (the rule's own weight, the length of its pattern),
//! where it stands (in an exception, in the last one, in one that was the cause of another, in the
//! first of several ranks; less in a warning), and what is known of the machine. What another cause
//! explains comes after that cause.

use std::collections::{BTreeMap, BTreeSet};

use sconce_schema::finding::{Certainty, Fix, FixAction};

use super::cards::{CardName, may_explain};
use super::condition::{LogEnvironment, RuleContext};
use super::oom::{self, OomMessage};
use super::rule::{ExplainRule, LikelihoodEffect, RuleSet, fill_placeholders};
use super::scan::{PatternMatch, RuleMatches, ScanSummary};
use super::{Cause, FactEvidence, MatchedLine};
use sconce_schema::HostFacts;

/// The most causes that are named.
const MAX_CAUSES: usize = 12;

/// What a fact for or against a cause counts.
const FACT_SCORE: i32 = 14;

struct CauseScore {
    cause: Cause,
    score: i32,
    rule: usize,
    /// Rules with the same code that were found too.
    others: Vec<usize>,
    /// The cards that it speaks of, where it is a fault of cards.
    cards: BTreeSet<CardName>,
    /// An error, not only a warning.
    error: bool,
    /// A text that means it stands in an exception.
    raised_by: bool,
    /// It stands on more than a text that may mean it.
    firm: bool,
}

/// The causes, the likeliest first, and whether an exception of the log says one of them.
pub(crate) fn rank_causes(
    rules: &RuleSet,
    noted: &ScanSummary,
    host: Option<&HostFacts>,
    environment: &LogEnvironment,
) -> (Vec<Cause>, bool) {
    let mut ranked: Vec<CauseScore> = noted
        .hits
        .iter()
        .filter_map(|(&rule, hits)| judge(rules, noted, rule, hits, host, environment))
        .collect();
    ranked.sort_by_key(|one| (std::cmp::Reverse(one.score), one.rule));
    let mut merged: Vec<CauseScore> = Vec::new();
    for one in ranked {
        match merged
            .iter_mut()
            .find(|known| known.cause.code == one.cause.code)
        {
            Some(known) => merge(known, one),
            None => merged.push(one),
        }
    }
    let explained: Vec<Option<String>> = (0..merged.len())
        .map(|at| find_explanation(rules, &merged, at))
        .collect();
    let circle = explained.iter().all(Option::is_some);
    for (at, (one, by)) in merged.iter_mut().zip(explained).enumerate() {
        if by.is_some() && !(circle && at == 0) {
            one.cause.consequence_of = by;
            one.cause.certainty = Certainty::Possible;
        }
    }
    merged.sort_by_key(|one| (one.cause.consequence_of.is_some(), !one.error));
    let raised = merged.iter().any(|one| one.raised_by);
    merged.truncate(MAX_CAUSES);
    (merged.into_iter().map(|one| one.cause).collect(), raised)
}

/// The code of what explains a cause. What several cards have is explained where each of them has its own reason.
fn find_explanation(rules: &RuleSet, merged: &[CauseScore], at: usize) -> Option<String> {
    let cause = &merged[at];
    let by: Vec<&CauseScore> = (0..merged.len())
        .filter(|&other| {
            // Of two that explain each other the likelier one is the cause.
            explains(rules, &merged[other], cause)
                && (other < at || !explains(rules, cause, &merged[other]))
        })
        .map(|other| &merged[other])
        .collect();
    let has_reason = |&card: &CardName| by.iter().any(|one| may_explain(&one.cards, card));
    let first = by.first()?;
    cause
        .cards
        .iter()
        .all(has_reason)
        .then(|| first.cause.code.clone())
}

/// Whether `one` is why a log has `other` too.
fn explains(rules: &RuleSet, one: &CauseScore, other: &CauseScore) -> bool {
    let of_other_cards = !other.cards.is_empty()
        && !other
            .cards
            .iter()
            .any(|&card| may_explain(&one.cards, card));
    let yields = |rule: &usize| rules.rules[*rule].yields_to.contains(&one.cause.code);
    // What two rules say, one of which does not yield, stands by that one.
    let all_yield = yields(&other.rule) && other.others.iter().all(yields);
    let (one_rule, other_rule) = (&rules.rules[one.rule], &rules.rules[other.rule]);
    one.firm
        && one_rule.code != other_rule.code
        && !of_other_cards
        && (all_yield || (other_rule.consequence && !one_rule.consequence))
}

/// Another rule for the same cause adds its lines.
fn merge(known: &mut CauseScore, other: CauseScore) {
    known.others.push(other.rule);
    known.cards.extend(other.cards);
    known.error |= other.error;
    known.raised_by |= other.raised_by;
    known.firm |= other.firm;
    known.cause.count += other.cause.count;
    for line in other.cause.lines {
        if !known
            .cause
            .lines
            .iter()
            .any(|have| have.number == line.number)
        {
            known.cause.lines.push(line);
        }
    }
    known.cause.lines.sort_by_key(|line| line.number);
    for (name, value) in other.cause.captures {
        known.cause.captures.entry(name).or_insert(value);
    }
}

/// Points for where a place stands.
fn points(rules: &RuleSet, noted: &ScanSummary, rule: &ExplainRule, hit: &PatternMatch) -> i32 {
    let pattern = &rules.patterns[hit.pattern];
    let length = i32::try_from(pattern.template.literal_len() / 4)
        .unwrap_or(15)
        .min(15);
    // What may mean a cause says little, however much the rule's own texts say.
    let weight = if pattern.weak {
        rule.weight.min(50) - 25
    } else {
        rule.weight
    };
    let mut points = weight + length;
    if hit.warning {
        points -= 15;
    }
    if hit.exception > 0 {
        points += 10;
        let several = noted.ranks.len() > 1;
        if noted.causes.contains(&hit.exception) {
            points += 10;
        }
        // Of several ranks the first error is the cause; of one process the last.
        let counts = if several { 1 } else { noted.exceptions };
        if hit.exception == counts {
            points += 14;
        }
    }
    points
}

fn judge(
    rules: &RuleSet,
    noted: &ScanSummary,
    index: usize,
    hits: &RuleMatches,
    host: Option<&HostFacts>,
    environment: &LogEnvironment,
) -> Option<CauseScore> {
    let rule = &rules.rules[index];
    let best = hits.iter().max_by_key(|hit| {
        let line = i64::try_from(hit.line).unwrap_or(i64::MAX);
        (points(rules, noted, rule, hit), -line)
    })?;
    let mut score = points(rules, noted, rule, best);
    let mut captures: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in best
        .captures
        .iter()
        .chain(hits.iter().flat_map(|hit| &hit.captures))
    {
        captures
            .entry(name.clone())
            .or_insert_with(|| value.clone());
    }
    let oom = oom_of(hits, noted).and_then(|oom| oom.class);
    let known = RuleContext {
        host,
        environment,
        captures: &captures,
        oom,
    };
    let value = |name: &str| captures.get(name).map(String::as_str);
    let mut certainty = match rules.patterns[best.pattern].weak {
        true => Certainty::Possible,
        false => rule.certainty,
    };
    let mut seen = Vec::new();
    let mut raised = false;
    for check in &rule.checks {
        let Some(fact) = check.when.describe_if_true(&known) else {
            continue;
        };
        match check.then {
            LikelihoodEffect::Raise => {
                score += FACT_SCORE;
                raised = true;
                certainty = match certainty {
                    Certainty::Possible => Certainty::Likely,
                    _ => Certainty::Certain,
                };
            }
            LikelihoodEffect::Lower => {
                score -= FACT_SCORE;
                certainty = match certainty {
                    Certainty::Certain => Certainty::Likely,
                    _ => Certainty::Possible,
                };
            }
            LikelihoodEffect::Tell => {}
        }
        seen.push(FactEvidence {
            what: fill_placeholders(&check.say.replace("{seen}", &fact), value),
            speaks: check.then,
        });
    }
    let mends = rule
        .mends
        .iter()
        .filter_map(|mend| {
            let fact = match &mend.when {
                Some(when) => when.describe_if_true(&known)?,
                None => String::new(),
            };
            let value = |name: &str| match name {
                "seen" => Some(fact.as_str()),
                name => value(name),
            };
            Some(filled(&mend.mend, &value))
        })
        .collect();
    let mut lines: Vec<MatchedLine> = hits
        .iter()
        .map(|hit| MatchedLine {
            number: hit.line,
            rank: hit.rank,
            text: hit.text.clone(),
        })
        .collect();
    lines.dedup_by_key(|line| line.number);
    Some(CauseScore {
        score,
        rule: index,
        others: Vec::new(),
        cards: hits.cards.clone(),
        firm: !rules.patterns[best.pattern].weak || raised,
        error: hits.iter().any(|hit| !hit.warning),
        raised_by: hits
            .iter()
            .any(|hit| hit.exception > 0 && !hit.warning && !rules.patterns[hit.pattern].weak),
        cause: Cause {
            code: rule.code.clone(),
            title: fill_placeholders(&rule.title, value),
            why: fill_placeholders(&rule.cause, value),
            certainty,
            consequence_of: None,
            points: score,
            count: hits.count,
            lines,
            seen,
            mends,
            sources: rule.sources.clone(),
            captures,
        },
    })
}

/// The out-of-memory message that counts: the first of several ranks, or the last.
pub(crate) fn oom_of(hits: &RuleMatches, noted: &ScanSummary) -> Option<OomMessage> {
    let mut read = hits.iter().filter_map(|hit| oom::parse(&hit.message));
    match noted.ranks.len() > 1 {
        true => read.next(),
        false => read.last(),
    }
}

/// A mend with what was captured.
fn filled<'a>(mend: &Fix, value: &dyn Fn(&str) -> Option<&'a str>) -> Fix {
    let text = |text: &str| fill_placeholders(text, value);
    let action = mend.action.as_ref().map(|action| match action {
        FixAction::Command { line, root, safe } => FixAction::Command {
            line: command(line, value),
            root: *root,
            safe: *safe,
        },
        FixAction::Spec { key, value: to } => FixAction::Spec {
            key: text(key),
            value: text(to),
        },
        FixAction::Variable { name, value: to } => FixAction::Variable {
            name: text(name),
            value: to.as_deref().map(text),
        },
    });
    Fix {
        what: text(&mend.what),
        action,
    }
}

/// A command gets nothing of a log that a shell would act on.
fn command<'a>(line: &str, value: &dyn Fn(&str) -> Option<&'a str>) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "._-+:/".contains(c);
    fill_placeholders(line, |name| {
        value(name).filter(|text| text.chars().all(harmless) && !text.starts_with('-'))
    })
}
