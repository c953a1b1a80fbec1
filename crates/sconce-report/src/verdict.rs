//! What a report says is wrong with a run, in plain words, and what to change.

/// One thing that takes time, memory or a card away.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The rule that gave it, such as `starved-by-data`.
    pub rule: String,
    /// How much it matters.
    pub weight: VerdictSeverity,
    /// One sentence with the figure.
    pub title: String,
    /// The figures that it stands on, one each, the threshold among them.
    pub evidence: Vec<String>,
    /// What mending it is thought to give, and how sure that is; absent where nobody can tell.
    pub gain: Option<String>,
    /// The share of the run's time that mending it would give back at most, 0 to 1.
    pub gain_share: Option<f64>,
    /// What to change, best first.
    pub mends: Vec<String>,
}

/// A rule that cannot be judged of a run: that there is no such verdict says nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedRule {
    /// The rule.
    pub rule: String,
    /// Why.
    pub why: String,
    /// There was too little of the run for it; else something was not measured.
    pub too_little: bool,
}

/// Rules that wait for more of a run, and for what; of more than two how many, and what most of them wait
/// for. `None` where none does.
#[must_use]
pub fn not_judged_yet(unjudged: &[SkippedRule]) -> Option<String> {
    let waiting: Vec<&SkippedRule> = unjudged.iter().filter(|one| one.too_little).collect();
    let many = |why: &str| waiting.iter().filter(|one| one.why == why).count();
    // Of as many, the first.
    let most = waiting.iter().rev().max_by_key(|one| many(&one.why))?;
    let all_same = many(&most.why) == waiting.len();
    Some(match (&waiting[..], all_same) {
        ([one], _) => format!("{}: {}", one.rule, one.why),
        ([one, other], true) => format!("{} and {}: {}", one.rule, other.rule, one.why),
        ([one, other], false) => {
            format!("{}: {}; {}: {}", one.rule, one.why, other.rule, other.why)
        }
        (several, same) => {
            let mostly = if same { "" } else { ", mostly" };
            let all = crate::verdicts::rule_count();
            format!("{} of {all} rules{mostly}: {}", several.len(), most.why)
        }
    })
}

/// How much a verdict matters; the heavier first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VerdictSeverity {
    /// The run ended of it, or will.
    Fatal,
    /// It costs a good part of the time, the memory or the card.
    Costly,
    /// Worth knowing.
    Note,
}

impl VerdictSeverity {
    /// The word for programs.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Fatal => "fatal",
            Self::Costly => "costly",
            Self::Note => "note",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rules_wait_for_is_said_of_those_that_do() {
        let said = |whys: &[&str]| {
            let rules = ["a", "b", "c"].iter().zip(whys);
            let unjudged = rules.map(|(rule, why)| SkippedRule {
                rule: (*rule).to_owned(),
                why: (*why).to_owned(),
                too_little: *why != "no probe",
            });
            not_judged_yet(&unjudged.collect::<Vec<_>>())
        };
        assert_eq!(said(&["no probe"]), None);
        assert_eq!(said(&["no probe", "short"]).unwrap(), "b: short");
        assert_eq!(said(&["short", "short"]).unwrap(), "a and b: short");
        assert_eq!(said(&["short", "few"]).unwrap(), "a: short; b: few");
        let all = crate::verdicts::rule_count();
        assert_eq!(
            said(&["short", "few", "short"]).unwrap(),
            format!("3 of {all} rules, mostly: short")
        );
        assert_eq!(
            said(&["few", "few", "few"]).unwrap(),
            format!("3 of {all} rules: few")
        );
    }
}
