//! What became of a job's tasks, and with what the job ended by them.

use std::collections::BTreeMap;

use sconce_schema::exit;
use serde::{Deserialize, Serialize};

use super::fault::JobFault;

/// A task's run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct TaskRun {
    /// The node's name.
    pub node: String,
    /// The id of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The id by which its scheduler knows the job that the task is in: of an array's element its own, which no verb
    /// shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_job: Option<String>,
    /// Whether its end was asked for: by its scheduler, which may start the job again, or because another task failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked_to_end: bool,
    /// Its exit code, once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
    /// When it ended, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_unix_ms: Option<u64>,
    /// What went wrong beside what its command did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<JobFault>,
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

/// What went wrong: with the task that failed first, else with any. Who only heard of another's fault knows no mend.
pub(super) fn first_fault(tasks: &BTreeMap<u32, TaskRun>) -> Option<&JobFault> {
    let of_first = first_failed(tasks).and_then(|task| task.fault.as_ref());
    let all = of_first.into_iter();
    let mut all = all.chain(tasks.values().filter_map(|task| task.fault.as_ref()));
    let with_mend = all.clone().find(|fault| fault.hint.is_some());
    with_mend.or_else(|| all.next())
}

/// With what tasks ended, as far as they said so.
pub(super) fn first_exit(tasks: &BTreeMap<u32, TaskRun>) -> Option<u8> {
    first_failed(tasks)?.exit
}

impl TaskRun {
    /// Whether somebody else ended it: it does not know who, and whether the job is started again.
    pub(super) fn was_ended(&self) -> bool {
        // A kill for want of memory is its own.
        let is_own = self.fault.as_ref().is_some_and(|fault| fault.out_of_memory);
        self.asked_to_end || !is_own && self.exit.is_some_and(is_signal)
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
            scheduler_job: None,
            asked_to_end,
            exit: Some(exit),
            ended_unix_ms: Some(at),
            fault: None,
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

    #[test]
    fn the_fault_of_the_first_with_a_mend_is_told() {
        let fault = |why: &str, hint: Option<&str>| JobFault {
            why: why.to_owned(),
            hint: hint.map(str::to_owned),
            out_of_memory: false,
        };
        let task = |at, fault| TaskRun {
            node: "n2".into(),
            run: None,
            scheduler_job: None,
            asked_to_end: false,
            exit: Some(5),
            ended_unix_ms: Some(at),
            fault,
        };
        let told = |first, second| {
            let tasks = [(0, task(1, first)), (1, task(2, second))].into();
            first_fault(&tasks).map(|fault| fault.why.clone())
        };
        let heard = || Some(fault("n10 cannot start", None));
        let own = || Some(fault("the store lacks it", Some("look")));
        assert_eq!(told(heard(), own()).unwrap(), "the store lacks it");
        assert_eq!(told(own(), heard()).unwrap(), "the store lacks it");
        assert_eq!(told(heard(), None).unwrap(), "n10 cannot start");
        assert_eq!(told(None, heard()).unwrap(), "n10 cannot start");
        assert_eq!(told(None, None), None);
    }
}
