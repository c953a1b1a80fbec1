//! What was found about an environment, a machine, or both together.
//!
//! A finding stands on evidence that can be looked up, says how sure it is, and how to mend it.

use serde::{Deserialize, Serialize};

/// One thing that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Finding {
    /// Its name for programs, in kebab-case and never changed: `driver-too-old`.
    pub code: String,
    /// What it means for a run.
    pub weight: Severity,
    /// How sure it is.
    pub certainty: Certainty,
    /// What is the matter, in one sentence with its figures.
    pub what: String,
    /// What it is about, where there are several: a card, a library, a package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it stands on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<Evidence>,
    /// The text of the error that a run would have ended with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_text: Option<String>,
    /// Ways to mend it, the best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mends: Vec<Fix>,
}

/// What a finding means for a run. The heaviest orders first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// It will not run.
    Fails,
    /// It runs, and something of it will fail, be slow, or be wrong.
    Warns,
    /// Good to know.
    Notes,
}

/// How sure a finding is. The surest orders first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// It follows from what was read.
    Certain,
    /// It follows from what was read and a rule that has exceptions.
    Likely,
    /// One of several explanations.
    Possible,
}

/// A fact that a finding stands on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Evidence {
    /// The file, package, variable or table that it was read from.
    pub source: String,
    /// Where in it: a section, a field, a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// What stands there.
    pub value: String,
}

/// A way to mend what was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Fix {
    /// What it does, as an imperative sentence.
    pub what: String,
    /// How.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<FixAction>,
}

/// How something is mended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FixAction {
    /// Type this on the machine.
    Command {
        /// For a shell.
        line: String,
        /// Whether it must be typed as root.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        root: bool,
        /// Whether it can be undone and stops nothing that is at work: only such a one is offered
        /// to be done for somebody.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        safe: bool,
    },
    /// Change the spec.
    Spec {
        /// The table and key, `python.packages`.
        key: String,
        /// What it should say, as TOML.
        value: String,
    },
    /// Set or remove a variable of the run.
    Variable {
        /// Its name.
        name: String,
        /// What it should be; absent: unset it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        value: Option<String>,
    },
}

impl Finding {
    /// A finding without evidence or mends yet.
    #[must_use]
    pub fn new(
        code: &str,
        weight: Severity,
        certainty: Certainty,
        what: impl Into<String>,
    ) -> Self {
        Self {
            code: code.to_owned(),
            weight,
            certainty,
            what: what.into(),
            subject: None,
            evidence: Vec::new(),
            error_text: None,
            mends: Vec::new(),
        }
    }

    /// About this card, library or package.
    #[must_use]
    pub fn with_subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// With one more fact that it stands on.
    #[must_use]
    pub fn with_evidence(
        mut self,
        source: impl Into<String>,
        place: Option<&str>,
        value: impl Into<String>,
    ) -> Self {
        self.evidence.push(Evidence {
            source: source.into(),
            place: place.map(str::to_owned),
            value: value.into(),
        });
        self
    }

    /// With the error that a run would have ended with.
    #[must_use]
    pub fn would_say(mut self, text: impl Into<String>) -> Self {
        self.error_text = Some(text.into());
        self
    }

    /// With one more way to mend it.
    #[must_use]
    pub fn with_fix(mut self, what: impl Into<String>, action: Option<FixAction>) -> Self {
        self.mends.push(Fix {
            what: what.into(),
            action,
        });
        self
    }
}

/// Puts the heaviest first, of those the surest; what weighs the same stays in order.
pub fn sort_by_severity(findings: &mut [Finding]) {
    findings.sort_by_key(|finding| (finding.weight, finding.certainty));
}
