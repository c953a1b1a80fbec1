//! What Slurm writes into a job's logs where its processes could not start or were killed. Its states say less: a step
//! that failed is the script's exit code, and without an accounting it is all that is left.

use sconce_base::text::to_printable;

use crate::status::StepFault;

/// The longest path or cause that is kept, characters.
const MAX_PART_CHARS: usize = 400;

/// Finds what went wrong in the text of a log, `slurmstepd`'s and `srun`'s lines in what a command wrote; the first
/// that explains an end counts.
///
/// From Slurm's sources, the same from 22.05 to 26.05 but for the second: `slurmd/slurmstepd/task.c` ("execve()"),
/// `plugins/task/cgroup/task_cgroup_memory.c` ("oom-kill event", since 23.02 "oom_kill event"), `srun/launch.c`
/// ("Out Of Memory"), `slurmd/slurmstepd/io.c` ("Could not open stdout file").
pub(super) fn find_step_fault(log: &str) -> Option<StepFault> {
    log.lines().find_map(parse_line)
}

fn parse_line(line: &str) -> Option<StepFault> {
    if let Some((node, said)) = split_slurmstepd(line) {
        if let Some(rest) = said.strip_prefix("execve(): ") {
            let (program, why) = split_cause(rest)?;
            return Some(StepFault::NoProgram { node, program, why });
        }
        if let Some((_, rest)) = said.split_once("Could not open stdout file ") {
            let (file, why) = split_cause(rest)?;
            return Some(StepFault::NoLog { node, file, why });
        }
        let is_killed = said.starts_with("Detected ")
            && (said.contains(" oom-kill event") || said.contains(" oom_kill event"));
        return is_killed.then_some(StepFault::OutOfMemory { node });
    }
    // `srun: error: n2: task 0: Out Of Memory`, of several `n[2,10]: tasks 0-1: Out Of Memory`.
    let rest = line.strip_prefix("srun: error: ")?;
    let (nodes, task) = rest.strip_suffix(": Out Of Memory")?.split_once(": task")?;
    let is_task = task
        .trim_start_matches('s')
        .trim_start()
        .starts_with(|c: char| c.is_ascii_digit());
    is_task.then(|| StepFault::OutOfMemory {
        node: Some(to_printable(nodes, MAX_PART_CHARS)),
    })
}

/// Splits a line of slurmstepd's into its node, which some say, and what it says: `slurmstepd-n2: error: …`.
fn split_slurmstepd(line: &str) -> Option<(Option<String>, &str)> {
    let (name, said) = line.split_once(": error: ")?;
    let node = name.strip_prefix("slurmstepd")?;
    match node.strip_prefix('-') {
        Some(node) => Some((Some(to_printable(node, MAX_PART_CHARS)), said)),
        None => node.is_empty().then_some((None, said)),
    }
}

/// Splits `PATH: cause`, or `'PATH': 'cause'`, of which the path may hold colons.
fn split_cause(text: &str) -> Option<(String, String)> {
    let (path, cause) = text.rsplit_once(": ")?;
    let part = |text: &str| to_printable(text.trim_matches('\''), MAX_PART_CHARS);
    Some((part(path), part(cause)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fault(log: &str) -> Option<StepFault> {
        find_step_fault(log)
    }

    /// Captured with 22.05 and 24.11 on a cluster of two nodes.
    #[test]
    fn words_of_slurm_are_told_from_those_of_the_command() {
        let node = Some("n10".to_owned());
        let program = "/home/rig/.local/share/sconce/programs/b1c5f80/sconce".to_owned();
        let why = "No such file or directory".to_owned();
        assert_eq!(
            fault(&format!(
                "n10 is here\nslurmstepd-n10: error: execve(): {program}: {why}\n"
            )),
            Some(StepFault::NoProgram {
                node: node.clone(),
                program,
                why: why.clone()
            })
        );
        for line in [
            "slurmstepd-n10: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been killed by the cgroup out-of-memory handler.",
            "slurmstepd-n10: error: Detected 3 oom_kill events in StepId=4.0. Some of the step tasks have been OOM Killed.",
            "srun: error: n10: task 0: Out Of Memory",
            "srun: error: n10: tasks 0-1: Out Of Memory",
        ] {
            let expected = StepFault::OutOfMemory { node: node.clone() };
            assert_eq!(fault(line), Some(expected), "{line}");
        }
        assert_eq!(
            fault(
                "slurmstepd: error: Could not open stdout file /a: b/task-1.log: No such file or directory"
            ),
            Some(StepFault::NoLog {
                node: None,
                file: "/a: b/task-1.log".to_owned(),
                why
            })
        );
    }

    #[test]
    fn other_lines_are_no_fault() {
        for line in [
            "",
            "torch.OutOfMemoryError: CUDA out of memory",
            "  slurmstepd-n10: error: execve(): a: b",
            "slurmstepd-n10: error: execve(): a",
            "slurmstepdx: error: execve(): a: b",
            "slurmstepd-n2: error: *** STEP 3.0 ON n2 CANCELLED AT 2026-11-28T05:52:06 ***",
            "srun: error: n10: task 1: Exited with exit code 2",
            "srun: error: : Out Of Memory",
            "srun: error: n10: taskforce: Out Of Memory",
            "error: execve(): a: b",
        ] {
            assert_eq!(fault(line), None, "{line}");
        }
    }

    #[test]
    fn parts_may_be_shown() {
        let long = format!(
            "slurmstepd-\u{1b}[31m: error: execve(): {}: \u{1b}[0m",
            "x".repeat(9999)
        );
        let Some(StepFault::NoProgram { node, program, why }) = fault(&long) else {
            panic!("{long}");
        };
        assert_eq!(program.chars().count(), MAX_PART_CHARS);
        assert!(!node.unwrap().contains('\u{1b}') && !why.contains('\u{1b}'));
    }

    proptest! {
        #[test]
        fn anything_is_read_without_an_end(text in "(slurmstepd(-n2)?: error: |srun: error: )?(execve\\(\\): |Detected |n2: task )?.*") {
            let _ = fault(&text);
        }
    }
}
