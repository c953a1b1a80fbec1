//! Which rules an unknown text is most like, by its words.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::rule::{ExplainRule, RuleSet};
use super::template::Template;

/// The most rules that are named.
const MAX_NAMED_RULES: usize = 3;

/// Below this a text is like nothing, percent.
const MIN_LIKENESS_PERCENT: u32 = 12;

/// A rule whose texts have words in common with an unknown one. It is not the cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SimilarRule {
    /// The rule's code.
    pub code: String,
    /// Its title.
    pub title: String,
    /// How much they have in common, percent; rare words count more.
    pub likeness: u32,
}

/// The rules that are most like a text, the likest first.
pub(crate) fn rank_similar_rules(rules: &RuleSet, text: &str) -> Vec<SimilarRule> {
    // Rules without patterns of their own are found by those of another one.
    let own = rules.words.get_or_init(|| {
        rules
            .rules
            .iter()
            .take_while(|rule| !rule.patterns.is_empty())
            .map(own_words)
            .collect()
    });
    let mut known: BTreeMap<&str, u32> = BTreeMap::new();
    for word in own.iter().flatten() {
        *known.entry(word).or_default() += 1;
    }
    // A word that stands in few rules says more than one that stands in many.
    let count = own.len() as f64;
    let weight = |word: &str| match known.get(word) {
        Some(&rules) => (1.0 + count / f64::from(rules)).ln(),
        None => (1.0 + count).ln(),
    };
    let asked = words(text);
    let all: f64 = asked.iter().map(|word| weight(word).powi(2)).sum();
    let mut found: Vec<(u32, usize)> = own
        .iter()
        .enumerate()
        .filter_map(|(index, own)| {
            // One word in common is chance: `KeyError` alone is like nothing.
            if asked.intersection(own).count() < 2 {
                return None;
            }
            let common: f64 = asked
                .intersection(own)
                .map(|word| weight(word).powi(2))
                .sum();
            // A rule with many examples has many words; its own length counts by its root alone.
            let length = (own.len().max(8) as f64 / 8.0).sqrt().sqrt();
            let likeness = (100.0 * common / (all * length)).round();
            (likeness >= f64::from(MIN_LIKENESS_PERCENT))
                .then_some((likeness.min(99.0) as u32, index))
        })
        .collect();
    found.sort_by_key(|&(likeness, index)| (std::cmp::Reverse(likeness), index));
    let mut codes = BTreeSet::new();
    found
        .into_iter()
        .map(|(likeness, index)| (likeness, &rules.rules[index]))
        .filter(|(_, rule)| codes.insert(rule.code.clone()))
        .take(MAX_NAMED_RULES)
        .map(|(likeness, rule)| SimilarRule {
            code: rule.code.clone(),
            title: rule.title.clone(),
            likeness,
        })
        .collect()
}

/// The words of a rule's patterns and examples.
fn own_words(rule: &ExplainRule) -> BTreeSet<String> {
    let patterns = rule.patterns.iter().chain(&rule.weak);
    let texts = patterns.map(|text| Template::literal_text(text));
    let texts = texts.chain(rule.examples.iter().cloned());
    texts.flat_map(|text| words(&text)).collect()
}

/// Words of three letters and more, lower case; numbers and what is in every error say nothing.
fn words(text: &str) -> BTreeSet<String> {
    const EMPTY: [&str; 18] = [
        "error",
        "runtimeerror",
        "exception",
        "the",
        "and",
        "for",
        "not",
        "you",
        "with",
        "from",
        "that",
        "this",
        "file",
        "line",
        "most",
        "recent",
        "call",
        "last",
    ];
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.len() > 2 && word.bytes().any(|byte| byte.is_ascii_alphabetic()))
        .take(400)
        .map(str::to_ascii_lowercase)
        .filter(|word| !EMPTY.contains(&word.as_str()))
        .collect()
}
