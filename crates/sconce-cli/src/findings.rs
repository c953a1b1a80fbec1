//! Findings for people: the heaviest first, each with what it stands on and how to mend it.

use std::fmt::Write as _;

use sconce_base::text::to_printable;
use sconce_schema::Finding;
use sconce_schema::finding::{Certainty, Evidence, Fix, FixAction, Severity};

use crate::text_layout::TextLayout;

/// Longer texts are cut: they hold bytes of libraries and logs.
const MAX_TEXT_CHARS: usize = 400;
/// Evidence that is shown of one finding; the rest is counted.
const MAX_LISTED_EVIDENCE: usize = 4;

/// Where the sentence of a finding begins, and where what is said of it begins.
const SENTENCE: usize = 7;
const DETAIL: usize = 16;

/// One finding in several lines.
pub(crate) fn render_findings(findings: &[Finding], page: &TextLayout) -> String {
    let blocks: Vec<String> = findings.iter().map(|one| block(one, page)).collect();
    blocks.join("\n")
}

fn block(finding: &Finding, page: &TextLayout) -> String {
    let style = &page.style;
    let word = match finding.weight {
        Severity::Fails => style.error("fails"),
        Severity::Warns => style.warn("warns"),
        Severity::Notes => style.dim("notes"),
    };
    let sure = match finding.certainty {
        Certainty::Certain => "",
        Certainty::Likely => " (likely)",
        Certainty::Possible => " (possibly)",
    };
    let what = format!("{}{sure}", shown(&finding.what));
    let mut text = format!(
        "{word}  {}\n",
        format_title(&what, &finding.code, SENTENCE, page)
    );
    let mut line = |name: &str, said: &str| {
        let _ = writeln!(text, "         {}  {said}", style.dim(&format!("{name:5}")));
    };
    for evidence in finding.evidence.iter().take(MAX_LISTED_EVIDENCE) {
        line("seen", &page.wrap_text(&seen(evidence), DETAIL, DETAIL));
    }
    let left = finding.evidence.len().saturating_sub(MAX_LISTED_EVIDENCE);
    if left > 0 {
        line("", &format!("and {left} more: --json shows them"));
    }
    if let Some(error) = &finding.error_text {
        line("error", &page.wrap_text(&shown(error), DETAIL, DETAIL));
    }
    for mend in &finding.mends {
        line("mend", &style.hint(&format_fix(mend, DETAIL, page)));
    }
    text
}

/// A sentence and its code, for programs, behind it.
pub(crate) fn format_title(what: &str, code: &str, begin: usize, page: &TextLayout) -> String {
    let code = format!("[{code}]");
    let text = page.wrap_text(&format!("{what} {code}"), begin, begin);
    match text.strip_suffix(&code) {
        Some(before) => format!("{before}{}", page.style.dim(&code)),
        None => text,
    }
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

/// A mend that begins in a column: in one line where it fits, else with what is to be typed in a line
/// by itself.
pub(crate) fn format_fix(mend: &Fix, begin: usize, page: &TextLayout) -> String {
    let what = shown(&mend.what);
    // What to type follows a sentence.
    let what = what.trim_end_matches('.');
    let (before, typed) = match &mend.action {
        None => return page.wrap_text(what, begin, begin),
        Some(FixAction::Command { line, root, .. }) => {
            let line = shown(line);
            let needs_sudo = *root && !page.root;
            ("", if needs_sudo { with_sudo(&line) } else { line })
        }
        Some(FixAction::Spec { key, value }) => (
            // The spec may have more in a list.
            match value.starts_with('[') {
                true => "in sconce.toml, beside what else is there, ",
                false => "in sconce.toml, ",
            },
            format!("{} = {}", shown(key), shown(value)),
        ),
        Some(FixAction::Variable { name, value }) => match value {
            Some(value) => ("", format!("export {}={}", shown(name), shown(value))),
            None => ("", format!("unset {}", shown(name))),
        },
    };
    let quote = if before.is_empty() { "`" } else { "" };
    let one = format!("{what}: {before}{quote}{typed}{quote}");
    if page.fits(begin, &one) {
        return one;
    }
    let before = before.trim_end_matches(", ");
    let gap = if before.is_empty() { "" } else { " " };
    let sentence = page.wrap_text(&format!("{what}:{gap}{before}"), begin, begin);
    // Never broken: it is copied.
    format!("{sentence}\n{:begin$}{typed}", "")
}

/// A line that another user than root types. A redirection belongs to the shell, so that it needs one
/// of root's.
pub(crate) fn with_sudo(line: &str) -> String {
    let quoted = line.contains(['\'', '"']);
    let several = [" && ", "; "].into_iter().find(|mark| line.contains(mark));
    match several {
        _ if line.contains('>') => in_shell(line),
        Some(_) if quoted => in_shell(line),
        Some(mark) => {
            let lines: Vec<String> = line.split(mark).map(|one| format!("sudo {one}")).collect();
            lines.join(mark)
        }
        None => format!("sudo {line}"),
    }
}

fn in_shell(line: &str) -> String {
    format!("sudo sh -c '{}'", line.replace('\'', r"'\''"))
}

/// How many there are of each weight, in words: `2 failures, 1 warning`.
pub(crate) fn format_severity_counts(findings: &[Finding]) -> String {
    let count = |weight| findings.iter().filter(|one| one.weight == weight).count();
    let words = [
        (count(Severity::Fails), "failure", "failures"),
        (count(Severity::Warns), "warning", "warnings"),
        (count(Severity::Notes), "note", "notes"),
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
    to_printable(text, MAX_TEXT_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_it_stands_on_and_how_to_mend_it() {
        let command = FixAction::Command {
            line: "modprobe nvidia_uvm".to_owned(),
            root: true,
            safe: true,
        };
        let variable = FixAction::Variable {
            name: "LD_LIBRARY_PATH".to_owned(),
            value: None,
        };
        let mut finding = Finding::new(
            "x-y",
            Severity::Fails,
            Certainty::Likely,
            "It will not run.",
        )
        .would_say("CUDA error: x\x1b[2J")
        .with_fix("Load the module", Some(command))
        .with_fix("Forget it", Some(variable));
        for number in 0..6 {
            finding = finding.with_evidence("lib.so", Some(".nv_fatbin"), number.to_string());
        }
        let note = Finding::new("z", Severity::Notes, Certainty::Certain, "Good to know.");
        let text = render_findings(&[finding.clone(), note.clone()], &TextLayout::for_file());
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
            format_severity_counts(&[finding.clone(), finding, note]),
            "2 failures, 1 note"
        );
        assert_eq!(format_severity_counts(&[]), "nothing was found");
    }

    #[test]
    fn on_a_narrow_terminal_a_command_stays_whole() {
        let page = TextLayout {
            columns: Some(60),
            root: true,
            ..TextLayout::for_file()
        };
        let command = |line: &str| {
            Some(FixAction::Command {
                line: line.to_owned(),
                root: true,
                safe: false,
            })
        };
        let spec = FixAction::Spec {
            key: "python.packages".to_owned(),
            value: "[\"torch==2.8.0\"]".to_owned(),
        };
        let finding = Finding::new(
            "x-y",
            Severity::Warns,
            Certainty::Certain,
            "a faulty row in the memory of card 0 waits for a reset to be replaced",
        )
        .with_fix("Reset it", command("nvidia-smi --gpu-reset"))
        .with_fix(
            "Stop what runs on it and reset it",
            command("nvidia-smi --gpu-reset -i 0"),
        )
        .with_fix("Take the newest that runs on this machine", Some(spec));
        assert_eq!(
            render_findings(&[finding], &page),
            "\
warns  a faulty row in the memory of card 0 waits for a
       reset to be replaced [x-y]
         mend   Reset it: `nvidia-smi --gpu-reset`
         mend   Stop what runs on it and reset it:
                nvidia-smi --gpu-reset -i 0
         mend   Take the newest that runs on this machine:
                in sconce.toml, beside what else is there
                python.packages = [\"torch==2.8.0\"]
"
        );
    }

    #[test]
    fn every_part_of_a_line_is_roots() {
        for (line, typed) in [
            ("modprobe nvidia", "sudo modprobe nvidia"),
            ("rmmod a && modprobe a", "sudo rmmod a && sudo modprobe a"),
            (
                "modprobe -r a; modprobe a",
                "sudo modprobe -r a; sudo modprobe a",
            ),
            ("dmesg -T | grep -i xid", "sudo dmesg -T | grep -i xid"),
            (
                "usermod -aG video \"$USER\"",
                "sudo usermod -aG video \"$USER\"",
            ),
            (
                "printf 'a\\n' > /etc/b && c",
                r"sudo sh -c 'printf '\''a\n'\'' > /etc/b && c'",
            ),
        ] {
            assert_eq!(with_sudo(line), typed);
        }
    }
}
