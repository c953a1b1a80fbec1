//! What went wrong with a job beside what its command did: by the word of a node, or by what its scheduler wrote into
//! the job's logs.

use rustix::fs::fstatvfs;
use rustix::io::Errno;
use rustix::stdio::stdout;
use sconce_run::LostOutput;
use sconce_schema::event::OomKill;
use sconce_schema::exit;
use sconce_schema::units::Bytes;
use sconce_submit::StepFault;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;
use crate::run::node_part::NodePartEnd;

/// What to do about a job that took more memory than it was given: `given` a node, where Sconce said how much.
pub(super) fn ask_for_memory(given: Option<Bytes>) -> String {
    let how = match given {
        Some(given) => {
            let more = Bytes(given.0.saturating_mul(2)).to_string().replace(' ', "");
            format!(
                "ask for more memory a node than {given} (`--memory {more}` of `sconce submit`, or `memory` under [run])"
            )
        }
        None => "ask for more memory a node (`--memory 64GiB` of `sconce submit`, or `memory` under [run]; `--mem` \
                 where the target's `sbatch` has that)"
            .to_owned(),
    };
    format!("{how}, or let it need less: smaller batches, fewer DataLoader workers")
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobFault {
    /// What it is, with its node; a sentence without its end.
    pub why: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether the kernel killed processes for want of memory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub out_of_memory: bool,
}

impl JobFault {
    /// Of a node that could not run its part.
    pub(super) fn of_failure(node: &str, failure: &Failure) -> Self {
        let message = failure.message();
        // Most name the node themselves, which may be another.
        let is_named = message.starts_with("node ") || message.contains(&format!("node {node}"));
        let why = match is_named {
            true => message,
            false => format!("node {node}: {message}"),
        };
        Self {
            why,
            hint: failure.hint(),
            out_of_memory: false,
        }
    }

    /// Of a node whose part has ended, with `exit`, in a job with so much memory a node; `None` where nothing went wrong beside the command.
    pub(super) fn of_end(
        node: &str,
        exit: u8,
        end: &NodePartEnd,
        memory: Option<Bytes>,
    ) -> Option<Self> {
        let by_memory = end
            .out_of_memory
            .map(|killed| Self::of_killed(node, exit, killed, memory));
        by_memory.or_else(|| end.lost_output.map(|lost| Self::of_lost(node, lost)))
    }

    fn of_killed(node: &str, exit: u8, killed: OomKill, memory: Option<Bytes>) -> Self {
        let processes = match killed.kills {
            1 => "a process".to_owned(),
            count => format!("{count} processes"),
        };
        Self {
            why: format!("the kernel killed {processes} for want of memory on node {node}"),
            hint: Some(ask_for_memory(memory)),
            // One that copes with that goes on, and ends well.
            out_of_memory: exit != exit::OK,
        }
    }

    fn of_lost(node: &str, lost: LostOutput) -> Self {
        let why = Errno::from_raw_os_error(lost.errno);
        let why = match why {
            Errno::NOSPC => "no space left".to_owned(),
            Errno::DQUOT => "the quota is used up".to_owned(),
            other => std::io::Error::from(other).to_string(),
        };
        let what = format!("{} of what it wrote", Bytes(lost.bytes));
        Self::of_unwritten(node, &what, &why)
    }

    /// Of a node whose command failed, and whose log has no room: the command's words are missing there.
    pub(super) fn of_full_log(node: &str) -> Self {
        Self::of_unwritten(node, "what it wrote last", "no space left")
    }

    fn of_unwritten(node: &str, what: &str, why: &str) -> Self {
        Self {
            why: format!("{what} on node {node} is not in the job's log: {why}"),
            hint: Some(
                "make room where the job's directory lies (`df`), before the next one starts"
                    .to_owned(),
            ),
            out_of_memory: false,
        }
    }

    /// Of what the scheduler wrote, with the exit code where the job's own says nothing.
    pub(super) fn of_step(fault: &StepFault, memory: Option<Bytes>) -> (Self, Option<u8>) {
        let of_node = |node: &Option<String>| match node {
            Some(node) => format!("node {node}"),
            None => "a node".to_owned(),
        };
        match fault {
            StepFault::OutOfMemory { node } => (
                Self {
                    why: format!(
                        "the job took more memory than it was given on {}",
                        of_node(node)
                    ),
                    hint: Some(ask_for_memory(memory)),
                    out_of_memory: true,
                },
                None,
            ),
            StepFault::NoProgram { node, program, why } => (
                Self {
                    why: format!("{} cannot start {program}: {why}", of_node(node)),
                    hint: Some(
                        "nodes have to see Sconce's store as the machine does that submits: look \
                         there on the node, or leave that node out (`sbatch = [\"--exclude=NODE\"]` \
                         of the target)"
                            .to_owned(),
                    ),
                    out_of_memory: false,
                },
                Some(exit::NODE),
            ),
            StepFault::Killed {
                node,
                signal,
                number,
            } => (
                Self {
                    why: format!("Sconce itself was ended on node {node} by a signal: {signal}"),
                    hint: Some(
                        "somebody on that node ended it, or the kernel did for want of memory (`dmesg` there says so)"
                            .to_owned(),
                    ),
                    out_of_memory: false,
                },
                number.map(exit::code_for_signal),
            ),
            StepFault::Setup { exit } => (
                Self {
                    why: format!("a line of the target's `setup` failed with exit code {exit}"),
                    hint: Some(
                        "the job's log has what it said; a line `set +e` before it lets the job go on all the same"
                            .to_owned(),
                    ),
                    out_of_memory: false,
                },
                Some(*exit),
            ),
            StepFault::NoLog { node, file, why } => (
                Self {
                    why: format!("{} cannot open the log {file}: {why}", of_node(node)),
                    hint: Some(
                        "nodes have to see the job's directory and write to it: look there on the node"
                            .to_owned(),
                    ),
                    out_of_memory: false,
                },
                Some(exit::NODE),
            ),
        }
    }
}

/// Whether what this process writes to has no room left: a command that writes there itself ends by it, and cannot say
/// so.
pub(super) fn is_log_full() -> bool {
    // Of a pipe or a terminal it says 0 blocks in all.
    fstatvfs(stdout()).is_ok_and(|stat| stat.f_blocks > 0 && stat.f_bavail == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::AppError;
    use crate::file_action::FileAction;

    fn end() -> NodePartEnd {
        NodePartEnd::default()
    }

    #[test]
    fn what_the_command_did_itself_is_no_fault() {
        assert_eq!(JobFault::of_end("n2", 0, &end(), None), None);
        assert_eq!(JobFault::of_end("n2", 137, &end(), None), None);
    }

    #[test]
    fn a_kill_for_want_of_memory_is_the_jobs_end_only_where_the_command_failed() {
        let end = NodePartEnd {
            out_of_memory: Some(OomKill {
                limit: None,
                kills: 3,
            }),
            ..end()
        };
        let fault = JobFault::of_end("n2", 137, &end, None).unwrap();
        assert!(fault.out_of_memory && fault.hint.is_some());
        assert_eq!(
            fault.why,
            "the kernel killed 3 processes for want of memory on node n2"
        );
        assert!(!JobFault::of_end("n2", 0, &end, None).unwrap().out_of_memory);
    }

    #[test]
    fn what_a_log_did_not_take_is_said_with_why() {
        for (errno, part) in [
            (Errno::NOSPC, "4 KiB of what it wrote on node n2"),
            (Errno::NOSPC, "no space left"),
            (Errno::DQUOT, "quota"),
            (Errno::IO, "nput/output error"),
        ] {
            let lost = LostOutput {
                bytes: 4096,
                errno: errno.raw_os_error(),
            };
            let end = NodePartEnd {
                lost_output: Some(lost),
                ..end()
            };
            let fault = JobFault::of_end("n2", 0, &end, None).unwrap();
            assert!(fault.why.contains(part), "{}", fault.why);
        }
    }

    #[test]
    fn a_failure_is_of_its_node() {
        let failure = |path: &str| {
            Failure::from(AppError::File {
                action: FileAction::Open,
                path: path.into(),
                source: std::io::ErrorKind::NotFound.into(),
            })
        };
        let why = |path| JobFault::of_failure("n2", &failure(path)).why;
        assert!(why("/a").starts_with("node n2: "), "{}", why("/a"));
        assert_eq!(why("/node n2").matches("node n2").count(), 1);
    }

    #[test]
    fn what_could_not_start_has_an_exit_code_of_its_own() {
        let (node, why) = (Some("n10".to_owned()), "No such file".to_owned());
        let (fault, code) = JobFault::of_step(
            &StepFault::NoProgram {
                node,
                program: "/s/sconce".to_owned(),
                why,
            },
            None,
        );
        assert_eq!(fault.why, "node n10 cannot start /s/sconce: No such file");
        assert_eq!(code, Some(exit::NODE));
        let (fault, code) = JobFault::of_step(
            &StepFault::OutOfMemory { node: None },
            Some(Bytes::from_mib(512)),
        );
        assert!(fault.out_of_memory && fault.why.ends_with("on a node"));
        let hint = fault.hint.unwrap();
        assert!(
            hint.contains("than 512 MiB") && hint.contains("--memory 1GiB"),
            "{hint}"
        );
        assert_eq!(code, None);
    }
}
