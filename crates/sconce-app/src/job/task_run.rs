//! What became of a job's tasks, and with what the job ended by them.

use std::collections::BTreeMap;

use sconce_schema::exit;
use serde::{Deserialize, Serialize};

/// A task's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TaskRun {
    /// The node's name.
    pub node: String,
    /// The id of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Whether its end was asked for: by its scheduler, which may start the job again, or because another task failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_to_end: bool,
    /// Its exit code, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
    /// Why it failed, of a task that runs no command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Whether an exit code is that of a command which a signal ended.
pub(super) fn is_signal(exit: u8) -> bool {
    exit > exit::code_for_signal(0)
}

/// The task that failed first, of those that have ended: the others are ended because of it.
pub(super) fn first_failed(tasks: &BTreeMap<u32, TaskRun>) -> Option<&TaskRun> {
    let ended = tasks.values().filter(|task| task.exit.is_some());
    ended.min_by_key(|task| {
        let is_good = task.exit == Some(exit::OK) && !task.asked_to_end;
        (is_good, task.was_ended(), task.ended_unix_ms)
    })
}

/// With what tasks ended, as far as they said so.
pub(super) fn first_exit(tasks: &BTreeMap<u32, TaskRun>) -> Option<u8> {
    first_failed(tasks)?.exit
}

impl TaskRun {
    /// Whether somebody else ended it: it does not know who, and whether the job is started again.
    pub(super) fn was_ended(&self) -> bool {
        self.asked_to_end || self.exit.is_some_and(is_signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_task_that_failed_first_decides() {
        let task = |exit, asked_to_end, at| TaskRun {
            node: "n2".into(),
            run: None,
            asked_to_end,
            exit: Some(exit),
            ended_unix_ms: Some(at),
            failure: None,
        };
        let first = |tasks: &[TaskRun]| {
            let tasks = (0..).zip(tasks.iter().cloned()).collect();
            let first = first_failed(&tasks).unwrap().clone();
            (first.exit.unwrap(), first.was_ended())
        };
        // One fails, and the other ends as it is asked to, by a signal or with a code of its own.
        assert_eq!(first(&[task(143, true, 1), task(9, false, 2)]), (9, false));
        assert_eq!(first(&[task(1, true, 1), task(9, false, 2)]), (9, false));
        // All are asked: nobody here knows whether the job is over.
        assert_eq!(first(&[task(1, true, 1), task(0, true, 2)]), (1, true));
        assert_eq!(first(&[task(0, true, 1), task(0, false, 2)]), (0, true));
        assert_eq!(first(&[task(0, false, 1), task(0, false, 2)]), (0, false));
    }
}
