//! What Slurm writes into a job's logs where its processes could not start or were killed. Its states say less: a step
//! that failed is the script's exit code, and without an accounting it is all that is left.

use sconce_base::text::to_printable;

use super::script::SETUP_FAILED;
use crate::status::{StepFault, StepLog};

/// The longest path or cause that is kept, characters.
const MAX_PART_CHARS: usize = 400;

/// Finds what went wrong in a job's logs, by `slurmstepd`'s and `srun`'s lines in what a command wrote; the first that
/// explains an end counts.
///
/// From Slurm's sources, the same from 22.05 to 26.05 but for the second and for what stands before them: `slurmd/slurmstepd/task.c` ("execve()"),
/// `plugins/task/cgroup/task_cgroup_memory.c` ("oom-kill event", since 23.02 "oom_kill event"), `srun/launch.c`
/// ("Out Of Memory"), `slurmd/slurmstepd/io.c` ("Could not open stdout file").
pub(super) fn find_step_fault(logs: &[StepLog]) -> Option<StepFault> {
    let mut faults = logs.iter().filter_map(|log| {
        let fault = log.text.lines().find_map(parse_line)?;
        Some((log.task, fault))
    });
    let Some((task, mut fault)) = faults.next() else {
        return find_kill(logs);
    };
    let node = match &mut fault {
        StepFault::OutOfMemory { node }
        | StepFault::NoProgram { node, .. }
        | StepFault::NoLog { node, .. } => node,
        StepFault::Killed { .. } | StepFault::Setup { .. } => return Some(fault),
    };
    if let (None, Some(task)) = (&node, task) {
        let mut lines = logs.iter().flat_map(|log| log.text.lines());
        *node = lines.find_map(|line| parse_node_of_task(line, task));
    }
    Some(fault)
}

/// What signals are called by strsignal(3) of glibc, by which srun names them, and their numbers, signal(7).
const SIGNALS: [(&str, i32); 9] = [
    ("Hangup", 1),
    ("Quit", 3),
    ("Illegal instruction", 4),
    ("Aborted", 6),
    ("Bus error", 7),
    ("Floating point exception", 8),
    ("Killed", 9),
    ("Segmentation fault", 11),
    ("Terminated", 15),
];

/// Finds the task that a signal ended, where that is the first end of which srun says something: with it srun ends the
/// others (`--kill-on-bad-exit`), by signals too, and so does whoever cancels the step. A command that a signal ends is
/// an exit code of Sconce's.
fn find_kill(logs: &[StepLog]) -> Option<StepFault> {
    let own = logs.iter().filter(|log| log.task.is_none());
    let mut lines = own.flat_map(|log| log.text.lines());
    let first = lines.find(|line| {
        let is_end = line.starts_with("srun: error: ") && line.contains(": task");
        is_end || line.contains(" CANCELLED AT ")
    })?;
    let (node, rest) = first.strip_prefix("srun: error: ")?.split_once(": task")?;
    let (_, said) = rest.split_once(": ")?;
    let said = said.trim_end_matches(" (core dumped)");
    let (signal, number) = SIGNALS.into_iter().find(|(name, _)| *name == said)?;
    Some(StepFault::Killed {
        node: to_printable(node, MAX_PART_CHARS),
        signal: signal.to_owned(),
        number: Some(number),
    })
}

/// Reads on which node a task was, where srun says how that ended: `srun: error: n10: task 1: Exited with exit code 2`.
fn parse_node_of_task(line: &str, task: u32) -> Option<String> {
    let (node, rest) = line.strip_prefix("srun: error: ")?.split_once(": task ")?;
    let (number, _) = rest.split_once(": ")?;
    (number.parse() == Ok(task)).then(|| to_printable(node, MAX_PART_CHARS))
}

fn parse_line(line: &str) -> Option<StepFault> {
    if let Some(exit) = line.strip_prefix(SETUP_FAILED) {
        let exit = exit.trim_end().parse().ok()?;
        return Some(StepFault::Setup { exit });
    }
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

/// Splits a line of slurmstepd's into its node, which some say, and what it says: `slurmstepd-n2: error: …`, and in
/// 26.05 `[2026-11-28T06:37:54.100] error: …`.
fn split_slurmstepd(line: &str) -> Option<(Option<String>, &str)> {
    if let Some((time, said)) = line.split_once("] error: ") {
        let is_time = |c: char| c.is_ascii_digit() || "-:.T".contains(c);
        let time = time.strip_prefix('[')?;
        let is_slurms = time.starts_with("20") && time.chars().all(is_time);
        return is_slurms.then_some((None, said));
    }
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

    fn log(task: Option<u32>, text: &str) -> StepLog {
        let text = text.to_owned();
        StepLog { task, text }
    }

    fn fault(text: &str) -> Option<StepFault> {
        find_step_fault(&[log(Some(1), text)])
    }

    /// Captured with 26.05 on a cluster of two nodes.
    #[test]
    fn a_line_without_its_node_is_of_the_tasks_node() {
        let line =
            "[2026-11-28T06:37:54.100] error: execve(): /s/sconce: No such file or directory\n";
        let srun = "srun: error: n10: task 1: Exited with exit code 2\nsrun: Terminating StepId=1.0\n\
                    srun: error: n2: task 0: Exited with exit code 125\n";
        for (task, expected) in [(1, Some("n10")), (0, Some("n2")), (7, None)] {
            let logs = [log(None, srun), log(Some(task), line)];
            let Some(StepFault::NoProgram { node, .. }) = find_step_fault(&logs) else {
                panic!("no fault");
            };
            assert_eq!(node.as_deref(), expected);
        }
        for line in [
            "[2026-11-28] error: something else",
            "[rank 0] error: execve(): a: b",
            "[] error: execve(): a: b",
        ] {
            assert_eq!(fault(line), None, "{line}");
        }
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

    /// Captured with 22.05 on a cluster of two nodes: Sconce itself was killed on one of them.
    #[test]
    fn the_node_whose_sconce_was_killed_is_named() {
        let killed = |text: &str| match find_step_fault(&[log(None, text)]) {
            Some(StepFault::Killed { node, number, .. }) => Some((node, number)),
            _ => None,
        };
        let said = "srun: error: n10: task 1: Killed\nsrun: Terminating StepId=7.0\n\
                    slurmstepd-n2: error: *** STEP 7.0 ON n2 CANCELLED AT 2026-11-28T05:52:06 ***\n\
                    srun: error: n2: task 0: Terminated\n";
        assert_eq!(killed(said), Some(("n10".to_owned(), Some(9))));
        let dumped = "srun: error: n2: task 0: Segmentation fault (core dumped)\n";
        assert_eq!(killed(dumped), Some(("n2".to_owned(), Some(11))));
        // Ended because of another, or with the step.
        for said in [
            "srun: error: n10: task 1: Exited with exit code 2\nsrun: error: n2: task 0: Killed\n",
            "slurmstepd-n2: error: *** STEP 3.0 ON n2 CANCELLED AT 2026-11-28T05:52:06 DUE TO TIME LIMIT ***\n\
             srun: error: n2: task 0: Killed\n",
            "srun: error: n2: task 0: Kill\n",
        ] {
            assert_eq!(killed(said), None, "{said}");
        }
        let of_memory = "srun: error: n10: task 1: Killed\n\
            slurmstepd-n10: error: Detected 1 oom-kill event(s) in StepId=1.0.\n";
        assert!(matches!(
            fault(of_memory),
            Some(StepFault::OutOfMemory { .. })
        ));
    }

    #[test]
    fn a_line_of_setup_that_failed_is_told() {
        let text = "/var/spool/job/slurm_script: 9: module: not found\n\
                    sconce: a line of setup failed with exit code 127\n";
        assert_eq!(fault(text), Some(StepFault::Setup { exit: 127 }));
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
        fn anything_is_read_without_an_end(text in "(slurmstepd(-n2)?: error: |\\[20[0-9:.T-]*\\] error: |srun: error: )?(execve\\(\\): |Detected |n2: task )?.*") {
            let _ = fault(&text);
        }
    }
}
