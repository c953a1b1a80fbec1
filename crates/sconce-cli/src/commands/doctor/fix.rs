//! `sconce doctor --fix`: what can be undone and stops nothing is offered, one command at a time.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::Command;

use sconce_schema::Finding;
use sconce_schema::finding::FixAction;

use crate::findings::with_sudo;
use crate::output;
use sconce_app::failure::Result;

/// Shows each safe command, asks, and runs what is wanted. Without a terminal nothing is run.
pub(super) fn offer_fixes(found: &[Finding]) -> Result<()> {
    let mut seen: Vec<String> = Vec::new();
    for (finding, line, root) in found.iter().flat_map(safe) {
        let line = match root && !rustix::process::geteuid().is_root() {
            true => with_sudo(line),
            false => line.to_owned(),
        };
        if seen.contains(&line) {
            continue;
        }
        output::print_message(&format!("\n{}\n    {line}", finding.what));
        seen.push(line.clone());
        if !std::io::stdin().is_terminal() {
            output::print_message("not run: there is no terminal to ask on");
            continue;
        }
        if !wanted()? {
            output::print_message("left as it is");
            continue;
        }
        match Command::new("sh").args(["-c", &line]).status() {
            Ok(status) if status.success() => {
                output::print_message("done; run `sconce doctor` again")
            }
            Ok(status) => output::print_message(&format!("it failed: {status}")),
            Err(error) => output::print_message(&format!("it could not be run: {error}")),
        }
    }
    if seen.is_empty() {
        output::print_message("nothing here can be mended safely by a command");
    }
    Ok(())
}

/// The commands of a finding that can be offered.
fn safe(finding: &Finding) -> impl Iterator<Item = (&Finding, &str, bool)> {
    finding
        .mends
        .iter()
        .filter_map(move |mend| match &mend.action {
            Some(FixAction::Command {
                line,
                root,
                safe: true,
            }) => Some((finding, line.as_str(), *root)),
            _ => None,
        })
}

fn wanted() -> Result<bool> {
    let mut answer = String::new();
    let _ = write!(std::io::stderr(), "run it? [y/N] ");
    // Nothing that can be read is a no.
    let _ = std::io::stdin().lock().read_line(&mut answer);
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::finding::{Certainty, Severity};

    #[test]
    fn only_safe_commands_are_offered() {
        let command = |line: &str, safe| {
            Some(FixAction::Command {
                line: line.to_owned(),
                root: true,
                safe,
            })
        };
        let finding = Finding::new("x", Severity::Fails, Certainty::Certain, "x")
            .with_fix("a", command("reboot", false))
            .with_fix("b", command("modprobe nvidia_uvm", true))
            .with_fix("c", None);
        let offered: Vec<_> = safe(&finding).map(|(_, line, root)| (line, root)).collect();
        assert_eq!(offered, [("modprobe nvidia_uvm", true)]);
    }
}
