//! Rules: what an error's text means, as data. One file a rule, in `crates/sconce-compat/rules/`.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use sconce_schema::finding::{Certainty, Fix};
use serde::{Deserialize, Serialize};

use super::condition::FactCondition;
use super::files::FILES;
use super::template::{Template, TemplateError};
use super::xids::XidRules;

/// The largest rule file, in bytes.
pub const MAX_RULE_BYTES: usize = 64 << 10;

/// A rule as its file has it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ExplainRule {
    /// The cause's name for programs, `no-kernel-image`; several rules may find the same cause.
    pub code: String,
    /// The cause in a few words.
    pub title: String,
    /// How surely the text alone means this cause.
    pub certainty: Certainty,
    /// How much the text says: about 80 where it names the cause, 50 by default, 20 where it can
    /// have many.
    #[serde(default = "middle")]
    pub weight: i32,
    /// It is what the other processes see when one has failed: never first beside another cause.
    #[serde(default)]
    pub consequence: bool,
    /// Causes that explain this text where they are found too.
    #[serde(default)]
    pub yields_to: Vec<String>,
    /// Texts that mean this cause ([`Template`]).
    pub patterns: Vec<String>,
    /// Texts that may mean it.
    #[serde(default)]
    pub weak: Vec<String>,
    /// Texts that mean it where what stands around speaks of a GPU: other programs have them too.
    #[serde(default)]
    pub beside_gpu: Vec<String>,
    /// The cause in one or two sentences.
    pub cause: String,
    /// What to look up on the machine.
    #[serde(default)]
    pub checks: Vec<FactCheck>,
    /// How to mend it, the best first.
    #[serde(default)]
    pub mends: Vec<ConditionalFix>,
    /// Public threads and documentation.
    pub sources: Vec<String>,
    /// Texts that this rule explains; the tests read them.
    pub examples: Vec<String>,
}

const fn middle() -> i32 {
    50
}

/// A fact of the machine that speaks for or against a cause.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FactCheck {
    /// The fact.
    pub when: FactCondition,
    /// What it does to the cause's likelihood.
    #[serde(default)]
    pub then: LikelihoodEffect,
    /// What was seen, for people; `{seen}` is the fact's own words.
    pub say: String,
}

/// What a fact does to a cause's likelihood.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LikelihoodEffect {
    /// It speaks for the cause.
    #[default]
    Raise,
    /// It speaks against the cause.
    Lower,
    /// It changes nothing and is good to know.
    Tell,
}

/// A mend, and when it is one.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConditionalFix {
    /// Only where this is so; where nothing is known of it, the mend is left out too.
    #[serde(default)]
    pub when: Option<FactCondition>,
    /// The mend; its texts may have `{name}` of what was captured, and `{seen}`, the fact's own words.
    #[serde(flatten)]
    pub mend: Fix,
}

/// Why a rule cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RuleError {
    /// Not TOML, or not a rule.
    #[error("{file} is not a rule")]
    Toml {
        /// The rule file.
        file: String,
        /// Where and why.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// A pattern that cannot be used.
    #[error("{file} has a pattern that cannot be used")]
    Pattern {
        /// The rule file.
        file: String,
        /// Why.
        #[source]
        source: TemplateError,
    },
    /// Too large.
    #[error("{file} has {size} bytes; a rule has at most {MAX_RULE_BYTES}")]
    Large {
        /// The rule file.
        file: String,
        /// Its size in bytes.
        size: usize,
    },
    /// The search for all patterns together cannot be built.
    #[error("the patterns cannot be searched for together")]
    Search(#[from] aho_corasick::BuildError),
}

impl sconce_schema::Hint for RuleError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Toml { .. } | Self::Pattern { .. } | Self::Large { .. } => {
                Some("a rule is written as crates/sconce-compat/rules/README.md says".to_owned())
            }
            Self::Search(_) => None,
        }
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::Search(_) => sconce_schema::exit::BUG,
            Self::Toml { .. } | Self::Pattern { .. } | Self::Large { .. } => {
                sconce_schema::exit::BAD_INPUT
            }
        }
    }
}

/// A pattern of a rule.
#[derive(Debug)]
pub(crate) struct Pattern {
    pub(crate) rule: usize,
    pub(crate) template: Template,
    pub(crate) weak: bool,
    /// It counts only where what stands around speaks of a GPU.
    pub(crate) beside_gpu: bool,
}

/// Rules that can be looked for together.
#[derive(Debug)]
pub struct RuleSet {
    /// The rules, in the order of their files.
    pub rules: Vec<ExplainRule>,
    pub(crate) patterns: Vec<Pattern>,
    pub(crate) search: aho_corasick::AhoCorasick,
    /// The words of each rule, for [`super::similar_rules`]; made when first asked for.
    pub(crate) words: OnceLock<Vec<BTreeSet<String>>>,
    /// Those of the numbers that the driver reports.
    pub(super) xids: XidRules,
}

impl RuleSet {
    /// Reads rules, each from a file's name and text.
    ///
    /// # Errors
    /// [`RuleError`], for the first file that is no rule.
    pub fn parse(files: &[(&str, &str)]) -> Result<Self, RuleError> {
        let mut rules = Vec::with_capacity(files.len());
        let mut patterns = Vec::new();
        for (file, text) in files {
            if text.len() > MAX_RULE_BYTES {
                return Err(RuleError::Large {
                    file: (*file).to_owned(),
                    size: text.len(),
                });
            }
            let rule: ExplainRule = toml::from_str(text).map_err(|source| RuleError::Toml {
                file: (*file).to_owned(),
                source: Box::new(source),
            })?;
            for (texts, weak, beside_gpu) in [
                (&rule.patterns, false, false),
                (&rule.weak, true, false),
                (&rule.beside_gpu, false, true),
            ] {
                for text in texts {
                    let template = Template::parse(text).map_err(|source| RuleError::Pattern {
                        file: (*file).to_owned(),
                        source,
                    })?;
                    patterns.push(Pattern {
                        rule: rules.len(),
                        template,
                        weak,
                        beside_gpu,
                    });
                }
            }
            rules.push(rule);
        }
        let anchors = patterns.iter().map(|pattern| pattern.template.anchor());
        // Built in a millisecond, where a full table takes ten times that.
        let search = aho_corasick::AhoCorasick::builder()
            .kind(Some(aho_corasick::AhoCorasickKind::ContiguousNFA))
            .build(anchors)?;
        Ok(Self {
            rules,
            patterns,
            search,
            words: OnceLock::new(),
            xids: XidRules::default(),
        })
    }

    /// Sconce's own rules, read once.
    #[must_use]
    pub fn builtin_rules() -> &'static Self {
        static BUILT_IN_RULES: OnceLock<RuleSet> = OnceLock::new();
        BUILT_IN_RULES.get_or_init(|| {
            let own = Self::parse(&FILES).expect("a test reads every rule");
            own.with_xids()
        })
    }
}

/// Puts what was captured into a text of a rule. A `{name}` that was not captured becomes `…`: what
/// to type there is for the reader to say. Other braces stay as they are.
pub(crate) fn fill_placeholders<'a>(text: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let of_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, hole)) = rest.split_once('{') {
        out.push_str(before);
        match hole.split_once('}') {
            Some((name, after)) if !name.is_empty() && name.chars().all(of_name) => {
                out.push_str(value(name).unwrap_or("…"));
                rest = after;
            }
            _ => {
                out.push('{');
                rest = hole;
            }
        }
    }
    out.push_str(rest);
    out
}
