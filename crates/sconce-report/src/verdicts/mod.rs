//! Verdicts: the rules of `rules/`, read by a small engine that knows figures by name.

mod condition;
mod document;
mod figures;
mod files;
mod rule;
mod skipped_rules;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::sync::OnceLock;

pub use document::render_docs_page;

use self::figures::FigureSet;
use self::rule::VerdictRule;
use crate::model::RunReport;
use crate::verdict::{SkippedRule, Verdict};

/// The rules that the program carries.
fn rules() -> &'static [VerdictRule] {
    static RULES: OnceLock<Vec<VerdictRule>> = OnceLock::new();
    RULES.get_or_init(|| {
        // A test reads each of them: a rule that cannot be read does not leave the workshop.
        (files::FILES.iter())
            .filter_map(|(_, text)| VerdictRule::parse(text).ok())
            .collect()
    })
}

/// What is wrong with a run, the heaviest first; one of each rule.
pub(crate) fn evaluate_rules(report: &RunReport) -> Vec<Verdict> {
    let all = FigureSet::compute_all(report);
    let mut verdicts: Vec<Verdict> = (rules().iter())
        .filter_map(|rule| {
            let of: Vec<&FigureSet> = all
                .iter()
                .filter(|figures| figures.about == rule.about)
                .collect();
            let found = of
                .iter()
                .filter_map(|figures| Some((*figures, rule.evaluate(figures)?)));
            one(found.collect(), of.len())
        })
        .collect();
    verdicts.sort_by(|a, b| {
        order(a)
            .partial_cmp(&order(b))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    verdicts
}

/// Of rules by their code, those that cannot be judged of a run, with why.
pub(crate) fn skip_reasons<'a>(
    report: &RunReport,
    codes: impl Iterator<Item = &'a str>,
) -> BTreeMap<&'a str, String> {
    let all = FigureSet::compute_all(report);
    codes
        .filter_map(|code| {
            let rule = rules().iter().find(|rule| rule.code == code)?;
            Some((code, skipped_rules::skipped_rule(rule, report, &all)?.why))
        })
        .collect()
}

/// Every rule that cannot be judged of a run.
pub(crate) fn all_unjudged(report: &RunReport) -> Vec<SkippedRule> {
    let all = FigureSet::compute_all(report);
    (rules().iter())
        .filter_map(|rule| skipped_rules::skipped_rule(rule, report, &all))
        .collect()
}

/// How many rules there are.
pub(crate) fn rule_count() -> usize {
    rules().len()
}

/// The heavier first, then what gives the most.
fn order(verdict: &Verdict) -> (crate::verdict::VerdictSeverity, f64) {
    (verdict.weight, -verdict.gain_share.unwrap_or(0.0))
}

/// The worst of what one rule says of several ranks or cards, with how many it is said of.
fn one(mut found: Vec<(&FigureSet, Verdict)>, of: usize) -> Option<Verdict> {
    found.sort_by(|a, b| {
        order(&a.1)
            .partial_cmp(&order(&b.1))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    let many = found.len();
    let (figures, mut worst) = found.into_iter().next()?;
    if of > 1
        && let Some(kind) = figures.about.plural_label()
    {
        if let Some(name) = &figures.name {
            worst.title = format!("{name}: {}", worst.title);
        }
        if many > 1 {
            worst.evidence.push(format!(
                "the same of {many} of {of} {kind}; this is the worst"
            ));
        }
    }
    Some(worst)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_is_a_rule_and_every_rule_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
        let there: BTreeSet<String> = (std::fs::read_dir(folder).unwrap())
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".toml"))
            .collect();
        let listed: BTreeSet<String> = files::FILES
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .collect();
        assert_eq!(there, listed);
        for (name, text) in files::FILES {
            let rule = VerdictRule::parse(text)
                .unwrap_or_else(|error| panic!("{name}: {error}: {error:?}"));
            assert_eq!(format!("{}.toml", rule.code), *name);
            assert!(
                !rule.mends.is_empty() && !rule.evidence.is_empty(),
                "{name}"
            );
            for figure in rule.figure_names() {
                let of = figures::about_of(figure);
                let ok = of.is_some_and(|of| rule.about.has_figures_of(of));
                assert!(ok, "{name}: what it is about has no {figure}");
            }
            // What the title says is known where the rule applies.
            let known: BTreeSet<&str> = (rule.needs.iter().chain(&rule.when))
                .map(|condition| condition.figure.as_str())
                .collect();
            for blank in rule.title.split('{').skip(1) {
                let blank = blank.split('}').next().unwrap();
                assert!(
                    known.contains(blank),
                    "{name}: {blank} may be missing from the title"
                );
            }
        }
    }

    #[test]
    fn a_rule_that_is_wrong_is_refused() {
        let (_, good) = files::FILES[0];
        assert!(VerdictRule::parse(good).is_ok());
        for (from, to) in [
            ("weight = ", "weight = \"heavy\"\nweights = "),
            ("title = \"", "title = \"{nothing} "),
            ("about = ", "about = \"moon\" #"),
            ("when = [", "when = [\"data-share\", "),
        ] {
            assert!(
                VerdictRule::parse(&good.replacen(from, to, 1)).is_err(),
                "{to}"
            );
        }
    }
}
