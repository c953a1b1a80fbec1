//! What a report advises: for each limit that was in the way, the option that raises it.

use sconce_schema::exit;

use crate::format;
use crate::model::{RunEnd, RunReport};

/// From this share on, a limit was in the way (CPU) or as good as reached (/dev/shm).
const HELD_BACK: f64 = 0.25;
const FULL: f64 = 0.95;
const SIGBUS: i32 = 7;

impl RunReport {
    /// What could be done better, each in one or two sentences; the most important first. What a verdict
    /// says is not said again.
    #[must_use]
    pub fn hints(&self) -> Vec<String> {
        [
            self.memory_hint(),
            self.shm_hint(),
            self.pids_hint(),
            self.cpu_hint(),
            self.command_hint(),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn has_verdict(&self, rule: &str) -> bool {
        self.verdicts.iter().any(|verdict| verdict.rule == rule)
    }

    fn memory_hint(&self) -> Option<String> {
        let killed = self.out_of_memory?;
        if self.has_verdict("killed-for-memory") {
            return None;
        }
        Some(match killed.limit {
            Some(limit) => {
                let mut more = limit;
                more.0 = more.0.saturating_mul(2);
                let more = more.to_string().replace(' ', "");
                format!(
                    "give it more with `--memory {more}` (or `memory` under [run] in the spec), or let \
                     it need less: smaller batches, fewer DataLoader workers"
                )
            }
            None => {
                "the limit is not this run's own: the machine's memory ran out, or a cgroup above it, such as a \
                     job's (`--memory` of `sconce submit`, or `memory` under [run]); give it more, let the run \
                     need less, or end other programs"
                    .to_owned()
            }
        })
    }

    fn shm_hint(&self) -> Option<String> {
        let (peak, size) = (self.shm_peak?.value, self.started.limits.shm?);
        let bus_error = self.end == RunEnd::Signalled(SIGBUS)
            || self.end == RunEnd::Exited(exit::code_for_signal(SIGBUS));
        (size.0 > 0 && peak.0 as f64 >= FULL * size.0 as f64).then(|| {
            let so = if bus_error { ", which ends a program by a bus error" } else { "" };
            format!("/dev/shm was full{so}: DataLoader workers hand batches over in it; raise `--shm-size`")
        })
    }

    fn pids_hint(&self) -> Option<String> {
        self.tasks
            .pids_refused
            .filter(|refused| *refused > 0)
            .map(|_| {
                "processes or threads were refused: raise `--pids`, or start fewer workers"
                    .to_owned()
            })
    }

    fn cpu_hint(&self) -> Option<String> {
        self.started.limits.cpus?;
        self.cpu
            .throttled_share
            .filter(|share| *share >= HELD_BACK && !self.has_verdict("cpu-limit"))
            .map(|_| {
                "its CPU limit held it back: raise `--cpus`, or use fewer threads and workers"
                    .to_owned()
            })
    }

    fn command_hint(&self) -> Option<String> {
        let program = format::printable_text(self.started.command.first()?);
        match self.end {
            RunEnd::Exited(exit::NOT_FOUND) if is_shell(&program) => Some(format!(
                "code 127 is what a shell gives where a program that it starts is not there: what \
                 `{program}` wrote names it"
            )),
            RunEnd::Exited(exit::NOT_FOUND) => Some(format!(
                "code 127 is what a shell and Sconce give when a program is not there; is `{program}` \
                 in the environment?"
            )),
            RunEnd::Exited(exit::NOT_EXECUTABLE) => Some(format!(
                "code 126 means that `{program}` is there and cannot be executed"
            )),
            _ => None,
        }
    }
}
/// Whether a command is a shell that starts others.
fn is_shell(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    matches!(name, "sh" | "bash" | "dash" | "zsh")
}
