//! Findings for people: the heaviest first, each with what it stands on and how to mend it.

use std::fmt::Write as _;

use sconce_resolve::upkeep::printable;
use sconce_schema::Finding;
use sconce_schema::finding::{Action, Certainty, Evidence, Mend, Weight};

use crate::style::Style;

/// Longer texts are cut: they hold bytes of libraries and logs.
const WIDEST: usize = 400;
/// Evidence that is shown of one finding; the rest is counted.
const MOST_EVIDENCE: usize = 4;

/// One finding in several lines.
pub(crate) fn listing(findings: &[Finding], style: &Style) -> String {
    let blocks: Vec<String> = findings.iter().map(|one| block(one, style)).collect();
    blocks.join("\n")
}

fn block(finding: &Finding, style: &Style) -> String {
    let word = match finding.weight {
        Weight::Fails => style.error("fails"),
        Weight::Warns => style.warn("warns"),
        Weight::Notes => style.dim("notes"),
    };
    let sure = match finding.certainty {
        Certainty::Certain => "",
        Certainty::Likely => " (likely)",
        Certainty::Possible => " (possibly)",
    };
    let what = shown(&finding.what);
    let code = style.dim(&format!("[{}]", finding.code));
    let mut text = format!("{word}  {what}{sure} {code}\n");
    let mut line = |name: &str, said: &str| {
        let _ = writeln!(text, "         {}  {said}", style.dim(&format!("{name:5}")));
    };
    for evidence in finding.evidence.iter().take(MOST_EVIDENCE) {
        line("seen", &seen(evidence));
    }
    let left = finding.evidence.len().saturating_sub(MOST_EVIDENCE);
    if left > 0 {
        line("", &format!("and {left} more: --json shows them"));
    }
    if let Some(error) = &finding.error_text {
        line("error", &shown(error));
    }
    for mend in &finding.mends {
        line("mend", &style.hint(&mended(mend)));
    }
    text
}

fn seen(evidence: &Evidence) -> String {
    let place = evidence
        .place
        .as_ref()
        .map(|place| format!(", {}", shown(place)));
    let source = shown(&evidence.source);
    format!(
        "{source}{}: {}",
        place.unwrap_or_default(),
        shown(&evidence.value)
    )
}

/// A mend in one line.
pub(crate) fn mended(mend: &Mend) -> String {
    let what = shown(&mend.what);
    // What to type follows a sentence.
    let what = what.trim_end_matches('.').to_owned();
    match &mend.action {
        None => what,
        Some(Action::Command { line, root, .. }) => {
            let sudo = if *root { "sudo " } else { "" };
            format!("{what}: `{sudo}{}`", shown(line))
        }
        Some(Action::Spec { key, value }) => {
            format!("{what}: in sconce.toml, {} = {}", shown(key), shown(value))
        }
        Some(Action::Variable { name, value }) => match value {
            Some(value) => format!("{what}: `export {}={}`", shown(name), shown(value)),
            None => format!("{what}: `unset {}`", shown(name)),
        },
    }
}

/// How many there are of each weight, in words: `2 failures, 1 warning`.
pub(crate) fn counted(findings: &[Finding]) -> String {
    let count = |weight| findings.iter().filter(|one| one.weight == weight).count();
    let words = [
        (count(Weight::Fails), "failure", "failures"),
        (count(Weight::Warns), "warning", "warnings"),
        (count(Weight::Notes), "note", "notes"),
    ];
    let said = words.iter().filter(|(count, ..)| *count > 0);
    let said = said.map(|(count, one, more)| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {more}"),
    });
    let said: Vec<String> = said.collect();
    match said.is_empty() {
        true => "nothing was found".to_owned(),
        false => said.join(", "),
    }
}

fn shown(text: &str) -> String {
    printable(text, WIDEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_it_stands_on_and_how_to_mend_it() {
        let command = Action::Command {
            line: "modprobe nvidia_uvm".to_owned(),
            root: true,
            safe: true,
        };
        let variable = Action::Variable {
            name: "LD_LIBRARY_PATH".to_owned(),
            value: None,
        };
        let mut finding = Finding::new("x-y", Weight::Fails, Certainty::Likely, "It will not run.")
            .would_say("CUDA error: x\x1b[2J")
            .mend("Load the module", Some(command))
            .mend("Forget it", Some(variable));
        for number in 0..6 {
            finding = finding.seen("lib.so", Some(".nv_fatbin"), number.to_string());
        }
        let note = Finding::new("z", Weight::Notes, Certainty::Certain, "Good to know.");
        let text = listing(&[finding.clone(), note.clone()], &Style { color: false });
        assert_eq!(
            text,
            "\
fails  It will not run. (likely) [x-y]
         seen   lib.so, .nv_fatbin: 0
         seen   lib.so, .nv_fatbin: 1
         seen   lib.so, .nv_fatbin: 2
         seen   lib.so, .nv_fatbin: 3
                and 2 more: --json shows them
         error  CUDA error: x [2J
         mend   Load the module: `sudo modprobe nvidia_uvm`
         mend   Forget it: `unset LD_LIBRARY_PATH`

notes  Good to know. [z]
"
        );
        assert_eq!(
            counted(&[finding.clone(), finding, note]),
            "2 failures, 1 note"
        );
        assert_eq!(counted(&[]), "nothing was found");
    }
}
