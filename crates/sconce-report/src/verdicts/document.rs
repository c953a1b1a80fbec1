//! The rules as a page of documentation.

use std::fmt::Write as _;

use super::condition::FigureCondition;
use super::figures::{FIGURES, RuleSubject};
use super::rules;
use super::value::FigureUnit;

/// The text of `docs/verdicts.md`: every rule, and every figure that a rule may name.
#[must_use]
pub fn render_docs_page() -> String {
    let mut text = HEAD.to_owned();
    for rule in rules() {
        let _ = write!(text, "\n### {}\n\n{}\n\n", rule.code, rule.title);
        line(&mut text, "enough evidence", &rule.needs);
        line(&mut text, "given when", &rule.when);
        line(&mut text, "and one of", &rule.any);
        line(&mut text, "not when one of", &rule.unless);
        let mut weight = rule.weight.label().to_owned();
        for (word, when) in [("costly", &rule.costly_when), ("fatal", &rule.fatal_when)] {
            if !when.is_empty() {
                let _ = write!(weight, ", {word} when {}", list(when));
            }
        }
        let _ = writeln!(text, "- weight: {weight}");
        if let Some(gain) = &rule.gain {
            let _ = writeln!(text, "- what mending gives: {gain}");
        }
        let _ = writeln!(text, "\n{}\n", rule.why);
        for mend in &rule.mends {
            let when = match mend.when.as_slice() {
                [] => String::new(),
                when => format!(" ({})", list(when)),
            };
            let _ = writeln!(text, "- {}{when}", mend.what);
        }
    }
    text += FIGURES_HEAD;
    for (name, unit, about, what) in FIGURES {
        let unit = match unit {
            FigureUnit::Share => "share",
            FigureUnit::Bytes => "bytes",
            FigureUnit::Time => "time",
            FigureUnit::Count => "number",
            FigureUnit::Text => "text",
            FigureUnit::Flag => "yes or no",
        };
        let _ = writeln!(
            text,
            "| `{name}` | {} | {unit} | {what} |",
            RuleSubject::label(*about)
        );
    }
    text
}

fn line(text: &mut String, what: &str, conditions: &[FigureCondition]) {
    if !conditions.is_empty() {
        let _ = writeln!(text, "- {what}: {}", list(conditions));
    }
}

fn list(conditions: &[FigureCondition]) -> String {
    let texts: Vec<String> = conditions
        .iter()
        .map(|one| format!("`{}`", one.text))
        .collect();
    texts.join(", ")
}

const HEAD: &str = "# Verdicts

What a report says is wrong with a run, and what to change. Each verdict is a rule of
`crates/sconce-report/rules/` over figures of the record: the same record gives the same verdicts, this
year and next. This page is written from the rules by a test.

A verdict has a weight (`fatal`: the run ended of it, or will; `costly`; `note`), one sentence with its
figure, the figures it stands on with the threshold, what mending it is thought to give and how sure that
is, and what to change, the best first. Gains are of the time of a step and are not to be added up. A
figure that was not measured gives no verdict. Of several ranks or cards the worst is told, with how many
are the same.

## Rules
";

const FIGURES_HEAD: &str = "
## Figures

A rule about a rank knows the run's figures too, one about a growing figure also the rank's.

| name | of | is | |
|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_what_the_rules_say() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verdicts.md");
        if std::env::var_os("SCONCE_WRITE_DOCS").is_some() {
            std::fs::write(&path, render_docs_page()).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap();
        assert!(
            there == render_docs_page(),
            "docs/verdicts.md is not what the rules say: run the tests with SCONCE_WRITE_DOCS=1"
        );
    }
}
