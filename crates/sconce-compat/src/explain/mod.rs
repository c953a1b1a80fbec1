//! What an error log means, and how to mend it.
//!
//! [`explain`] takes a whole log; [`Explainer`] takes it piece by piece, in memory that does not
//! grow with it. What is recognised is data ([`RuleSet`], one file a rule); here is only how texts are
//! found ([`template`]), how causes are put in order, and what out-of-memory messages say ([`oom`]).
//! Logs are hostile input: any bytes, lines of any length, nothing a terminal would obey comes out.

mod cards;
pub mod condition;
mod files;
mod folded_text;
mod line;
pub mod oom;
mod rank;
pub mod rule;
mod scan;
pub mod similar_rules;
mod surroundings;
pub mod template;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod xid_tests;
mod xids;

use std::collections::BTreeMap;

use sconce_schema::HostFacts;
use sconce_schema::finding::{Certainty, Fix};
use serde::{Deserialize, Serialize};

pub use condition::{CompilerState, LogEnvironment, ProjectContents};
pub use oom::{OomClass, OomMessage};
pub use rule::{ExplainRule, LikelihoodEffect, RuleError, RuleSet};
pub use similar_rules::SimilarRule;

/// Up to so many lines are what somebody asks about, whatever they say.
const MAX_QUESTION_LINES: u64 = 3;

/// What a log means.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Explanation {
    /// Causes, the likeliest first; what others explain comes last.
    pub causes: Vec<Cause>,
    /// The out-of-memory message, taken apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oom: Option<OomMessage>,
    /// The error that no rule knows, where that is what the log ends with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownError>,
    /// Lines that were read.
    pub lines: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Exceptions that were seen.
    pub exceptions: u64,
    /// Ranks that had one, where the log names ranks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<u32>,
}

/// A cause that the log's text means.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Cause {
    /// Its name for programs: `no-kernel-image`.
    pub code: String,
    /// It in a few words.
    pub title: String,
    /// It in one or two sentences.
    pub why: String,
    /// How sure it is, with what is known of the machine.
    pub certainty: Certainty,
    /// The code of a cause in the same log that explains this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consequence_of: Option<String>,
    /// What the order was made by; only to be compared within one log.
    pub points: i32,
    /// How many lines speak of it.
    pub count: u64,
    /// The first and last of them.
    pub lines: Vec<MatchedLine>,
    /// Values in the text, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub captures: BTreeMap<String, String>,
    /// What the machine or the environment says about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<FactEvidence>,
    /// How to mend it, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mends: Vec<Fix>,
    /// Where to read more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
}

/// A line that a rule found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct MatchedLine {
    /// Its number, from 1.
    pub number: u64,
    /// The rank that wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Its text, without control characters; cut where it is long.
    pub text: String,
}

/// A fact that speaks for or against a cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FactEvidence {
    /// The fact, as a sentence.
    pub what: String,
    /// Which way it speaks.
    pub speaks: LikelihoodEffect,
}

/// An error that no rule knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UnknownError {
    /// Its line, from 1.
    pub line: u64,
    /// Its text.
    pub text: String,
    /// Rules with similar words. None of them is the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<SimilarRule>,
}

/// Explains a whole log by Sconce's own rules.
#[must_use]
pub fn explain(log: &[u8], host: Option<&HostFacts>, environment: &LogEnvironment) -> Explanation {
    let mut explainer = Explainer::new(RuleSet::builtin_rules());
    explainer.push(log);
    explainer.finish(host, environment)
}

/// Explains a log that comes piece by piece.
#[derive(Debug)]
pub struct Explainer<'r> {
    rules: &'r RuleSet,
    scanner: scan::Scanner<'r>,
}

impl<'r> Explainer<'r> {
    /// With these rules.
    #[must_use]
    pub fn new(rules: &'r RuleSet) -> Self {
        Self {
            rules,
            scanner: scan::Scanner::new(rules),
        }
    }

    /// Takes the next bytes of the log, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.scanner.push(bytes);
    }

    /// Ends the log and judges it by what is known of the machine and the environment.
    #[must_use]
    pub fn finish(self, host: Option<&HostFacts>, environment: &LogEnvironment) -> Explanation {
        let noted = self.scanner.finish();
        let (causes, raised) = rank::rank_causes(self.rules, &noted, host, environment);
        let oom = noted
            .hits
            .values()
            .find_map(|hits| rank::oom_of(hits, &noted));
        let explained = |number: u64| {
            noted
                .hits
                .values()
                .flat_map(scan::RuleMatches::iter)
                .any(|hit| hit.exception == number)
        };
        let unknown = match &noted.last_exception {
            Some(last) if !explained(last.number) && !raised => {
                Some((last.line, last.text.clone()))
            }
            None if causes.is_empty() => {
                // A long log that speaks of no error has none; a line by itself is asked about.
                let only = noted
                    .last_line
                    .as_ref()
                    .filter(|_| noted.lines <= MAX_QUESTION_LINES);
                let last = noted.last_error.as_ref().or(only);
                last.map(|(line, text)| (*line, folded_text::printable_text(text.as_bytes())))
            }
            _ => None,
        };
        Explanation {
            unknown: unknown.map(|(line, text)| UnknownError {
                line,
                nearest: similar_rules::rank_similar_rules(self.rules, &text),
                text,
            }),
            causes,
            oom,
            lines: noted.lines,
            bytes: noted.bytes,
            exceptions: noted.exceptions,
            ranks: noted.ranks.into_iter().collect(),
        }
    }
}
