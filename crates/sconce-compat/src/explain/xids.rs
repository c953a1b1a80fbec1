//! One rule for each Xid of NVIDIA's catalogue, made of its table: what to do differs from number to
//! number, and a log has several.

use std::collections::BTreeMap;

use sconce_schema::finding::{Certainty, Fix, Severity};

use super::rule::{ConditionalFix, ExplainRule, RuleSet};
use crate::tables::{self, XidEntry, XidResolution};

/// The rule whose patterns find all of them.
const FOUND_BY: &str = "xid";
/// A number whose cause has a name of its own.
const OFF_THE_BUS: (u32, &str) = (79, "card-lost");

impl RuleSet {
    /// Adds the rules of the catalogue's numbers to those that find them.
    pub(super) fn with_xids(mut self) -> Self {
        let found_by = self.rules.iter().position(|rule| rule.code == FOUND_BY);
        if let Some(found_by) = found_by {
            let sources = self.rules[found_by].sources.clone();
            self.xids.found_by = Some(found_by);
            for row in tables::xid_entries() {
                self.xids.rules.insert(row.code, self.rules.len());
                self.rules.push(rule(row, sources.clone()));
            }
        }
        self
    }

    /// Whether a rule's lines name the card that has the fault.
    pub(super) fn is_card_fault(&self, rule: usize) -> bool {
        let code = &self.rules[rule].code;
        code == OFF_THE_BUS.1 || code == FOUND_BY || code.starts_with("xid-")
    }

    /// Whether a rule is that of the numbers which the catalogue does not have.
    pub(super) fn is_unlisted_xid(&self, rule: usize) -> bool {
        self.xids.found_by == Some(rule)
    }

    /// The rule that a place is of: its pattern's, or that of the number that was captured. `None` where it is no
    /// fault: a metric of none has the number 0.
    pub(super) fn rule_for_match(
        &self,
        rule: usize,
        captures: &[(String, String)],
    ) -> Option<usize> {
        if self.xids.found_by != Some(rule) {
            return Some(rule);
        }
        let number = captures.iter().find(|(name, _)| name == "xid");
        match number.and_then(|(_, digits)| digits.parse::<u32>().ok()) {
            Some(0) => None,
            number => {
                let own = number.and_then(|number| self.xids.rules.get(&number));
                Some(own.copied().unwrap_or(rule))
            }
        }
    }
}

/// Which rules are those of numbers.
#[derive(Debug, Default)]
pub(super) struct XidRules {
    found_by: Option<usize>,
    rules: BTreeMap<u32, usize>,
}

fn rule(row: &XidEntry, sources: Vec<String>) -> ExplainRule {
    let number = row.code;
    let code = match OFF_THE_BUS {
        (own, code) if own == number => code.to_owned(),
        _ => format!("xid-{number}"),
    };
    // The driver's words for what the program's own error says better.
    let yields_to = match row.investigate {
        "WORKFLOW_XID_13" | "WORKFLOW_XID_31" => vec!["illegal-memory-access".to_owned()],
        _ => Vec::new(),
    };
    let bucket = match row.bucket {
        XidResolution::Unused | XidResolution::None => "",
        _ => " What to do is what NVIDIA's catalogue says for it.",
    };
    ExplainRule {
        code,
        title: format!("The driver reported Xid {number}: {}", row.meaning),
        certainty: match row.bucket {
            XidResolution::Unused => Certainty::Possible,
            _ => Certainty::Likely,
        },
        weight: match row.fault_severity() {
            Severity::Fails => 80,
            Severity::Warns => 60,
            Severity::Notes => 40,
        },
        consequence: row.follows_others(),
        yields_to,
        patterns: Vec::new(),
        weak: Vec::new(),
        beside_gpu: Vec::new(),
        cause: format!("Xid {number} in the kernel log: {}.{bucket}", row.meaning),
        checks: Vec::new(),
        mends: row.catalog_fixes().into_iter().map(ended).collect(),
        sources,
        examples: vec![format!(
            "NVRM: Xid (PCI:0000:65:00): {number}, pid=4242, name=python"
        )],
    }
}

/// A mend as rules have it, a whole sentence.
fn ended(mend: Fix) -> ConditionalFix {
    let end = if mend.what.ends_with([':', '.']) {
        ""
    } else {
        "."
    };
    let what = format!("{}{end}", mend.what);
    ConditionalFix {
        when: None,
        mend: Fix { what, ..mend },
    }
}
