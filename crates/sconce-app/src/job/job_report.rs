//! How a job is, in one set of words: by its own files, by its scheduler, or by what its elements come to.

use sconce_report::describe_signal;
use sconce_schema::exit;
use sconce_submit::{JobExit, JobState, JobStatus, Scheduler, StateReason};
use serde::{Deserialize, Serialize};

use super::fault::{JobFault, ask_for_memory};
use super::job_dir::JobDir;
use super::lookup::KnownJob;

/// The state of a job whose environment is made by another one.
const PREPARING: &str = "preparing";

/// What the kernel ends a process with for want of memory, signal(7).
const SIGKILL: i32 = 9;

/// The state of a job of which its scheduler says nothing.
pub(super) const UNANSWERED: &str = "not known";
/// The state of a job whose script a dry run printed, and that nobody has handed over.
pub(super) const NOT_HANDED_OVER: &str = "not handed over";

/// How a job is, by its own files or by its scheduler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobReport {
    /// In one word.
    pub state: String,
    /// Why it waits or ended so, in plain words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Its nodes, in the scheduler's notation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<String>,
    /// Whether nothing of it runs or will run.
    pub is_final: bool,
    /// With what it ended, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<u8>,
}

impl JobReport {
    pub(super) fn waiting() -> Self {
        Self {
            state: JobState::Waiting.name().to_owned(),
            reason: None,
            hint: None,
            nodes: None,
            is_final: false,
            exit: None,
        }
    }

    /// Whether it did not end well, by its state alone: one that never began has no exit code.
    pub(super) fn is_bad_end(&self) -> bool {
        let bad = [
            JobState::Failed,
            JobState::Cancelled,
            JobState::TimedOut,
            JobState::OutOfMemory,
            JobState::NodeFailed,
        ];
        self.is_final && bad.iter().any(|state| state.name() == self.state)
    }

    /// Whether its scheduler does not have it, which may have it later.
    pub(super) fn is_absent(&self) -> bool {
        self.is_final && [UNANSWERED, NOT_HANDED_OVER].contains(&&*self.state)
    }

    /// Of a job whose script a dry run printed, and which its scheduler does not know.
    pub(super) fn not_handed_over(dir: &JobDir) -> Self {
        Self {
            state: NOT_HANDED_OVER.to_owned(),
            reason: Some(
                "its script was printed by `--dry-run`, and its scheduler has no such job"
                    .to_owned(),
            ),
            hint: Some(format!(
                "`sbatch {}` hands it over",
                dir.path().join("submission.sh").display()
            )),
            is_final: true,
            ..Self::waiting()
        }
    }

    /// Of a job to which its scheduler gave no answer, and which it does not know.
    pub(super) fn unanswered() -> Self {
        Self {
            state: "not known".to_owned(),
            reason: Some(
                "its scheduler gave no answer when it was handed over, and does not know it"
                    .to_owned(),
            ),
            // Nobody waits for it; it is asked for again all the same.
            is_final: true,
            ..Self::waiting()
        }
    }
}

/// How a job is by its scheduler; why it ended, by its tasks or, where these could say nothing, by what the scheduler
/// wrote into its logs.
pub(super) fn report_of(
    status: &JobStatus,
    job: &KnownJob,
    scheduler: &dyn Scheduler,
) -> JobReport {
    let mut status = status.clone();
    // Its own files say more than a scheduler that has forgotten it.
    if status.state == JobState::Forgotten {
        let has_failed = job.has_failed_itself();
        if has_failed {
            status.state = JobState::Failed;
        } else if job.dir.is_cancelled() {
            status.state = JobState::Cancelled;
        }
        if has_failed || job.dir.is_cancelled() {
            status.reason = None;
        }
    }
    let (fault, fault_exit) = match status.state {
        JobState::Failed | JobState::OutOfMemory | JobState::Forgotten => {
            find_fault(job, scheduler)
        }
        _ => (None, None),
    };
    if fault.as_ref().is_some_and(|fault| fault.out_of_memory) {
        status.state = JobState::OutOfMemory;
    }
    // A task that failed says with what; the scheduler, how the others were ended because of it.
    let of_task = job.task_exit().filter(|exit| *exit != exit::OK);
    let exit = match (&status.state, status.exit) {
        (state, _) if !state.is_final() => None,
        (JobState::Succeeded, _) => Some(exit::OK),
        (JobState::OutOfMemory, _) => of_task.or(Some(exit::code_for_signal(SIGKILL))),
        // What ended the others, or what they waited for, is not why.
        _ if fault_exit.is_some() => fault_exit,
        (JobState::Failed | JobState::Forgotten, _) if of_task.is_some() => of_task,
        (_, Some(JobExit::Code(code))) if code != 0 => {
            Some(u8::try_from(code).unwrap_or(exit::RUN))
        }
        (_, Some(JobExit::Signal(signal))) => Some(exit::code_for_signal(
            i32::try_from(signal).unwrap_or_default(),
        )),
        (_, _) => job.task_exit(),
    };
    JobReport {
        state: status.state.name().to_owned(),
        is_final: status.state.is_final(),
        hint: match (&fault, &status.state) {
            (Some(fault), _) => fault.hint.clone(),
            (None, JobState::OutOfMemory) => Some(ask_for_memory(job.request.run.memory)),
            (None, _) => None,
        },
        reason: match fault {
            Some(fault) => Some(fault.why),
            None => describe_reason(status.reason, exit),
        },
        nodes: status.nodes,
        exit,
    }
}

/// Slurm's word for an end that only its exit code says something of.
const ONLY_AN_EXIT_CODE: &str = "NonZeroExitCode";

/// Why a job waits or ended so; of a job that ended by itself, with what.
fn describe_reason(reason: Option<StateReason>, exit: Option<u8>) -> Option<String> {
    let reason = reason?;
    let exit = exit.filter(|exit| *exit != exit::OK && reason.raw == ONLY_AN_EXIT_CODE);
    Some(exit.map_or(reason.text, describe_exit))
}

/// An exit code, with the signal that it stands for.
pub(super) fn describe_exit(exit: u8) -> String {
    let signal = exit.checked_sub(exit::code_for_signal(0));
    match signal.filter(|signal| (1..=64).contains(signal)) {
        Some(signal) => {
            let (name, meaning) = describe_signal(signal.into());
            format!("exit code {exit}: {meaning} ({name})")
        }
        None => format!("exit code {exit}"),
    }
}

/// How a job is whose environment another one makes, `report` being how that is and `elements` how its own elements are;
/// `None` once it has been made, and where the job has ended without it.
pub(super) fn report_of_preparation(
    report: &JobReport,
    preparation: &KnownJob,
    elements: &[JobReport],
) -> Option<JobReport> {
    let (engine, target) = (
        preparation.request.engine.name(),
        &preparation.submitted.target,
    );
    let id = preparation.submitted.id.as_deref().unwrap_or("–");
    let task = preparation.dir.read_tasks().remove(&0);
    let fault = task.and_then(|task| task.fault);
    let why = fault.as_ref().map(|fault| &fault.why);
    let reason = why.or(report.reason.as_ref());
    let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
    let state = &report.state;
    let has_ended = |report: &JobReport| report.is_final;
    match (report.is_final, report.exit) {
        (true, Some(exit::OK)) => None,
        // Whoever has forgotten it says how the job is.
        (true, None) if *state == JobState::Forgotten.name() => None,
        (true, _) => Some(JobReport {
            state: state.clone(),
            reason: Some(format!(
                "its environment was not made on {target} ({engine} {id} {state}){reason}"
            )),
            hint: fault.and_then(|fault| fault.hint).or(report.hint.clone()),
            nodes: None,
            is_final: true,
            exit: report.exit,
        }),
        (false, _) if !elements.is_empty() && elements.iter().all(has_ended) => None,
        (false, _) => Some(JobReport {
            state: PREPARING.to_owned(),
            reason: Some(format!(
                "its environment is made on {target} ({engine} {id} {state}){reason}"
            )),
            ..JobReport::waiting()
        }),
    }
}

/// What went wrong, and the exit code of that where tasks have no better one.
fn find_fault(job: &KnownJob, scheduler: &dyn Scheduler) -> (Option<JobFault>, Option<u8>) {
    let of_logs = || {
        let fault = scheduler.find_step_fault(&job.dir.read_log_ends())?;
        Some(JobFault::of_step(&fault, job.request.run.memory))
    };
    // Tasks that could say something know only that one is missing which could not.
    let is_one_missing = !job.has_every_task_begun();
    let of_task = job.task_fault().map(|fault| (fault, None));
    let found = match is_one_missing {
        true => of_logs().or(of_task),
        false => of_task.or_else(of_logs),
    };
    found.map_or((None, None), |(fault, exit)| (Some(fault), exit))
}

/// What the elements of an array come to: it runs as long as one of them does, and it failed where one did.
pub(super) fn sum_up(indices: &[u32], reports: &[JobReport]) -> JobReport {
    let is_good = |report: &&JobReport| report.exit == Some(exit::OK);
    let ended = reports.iter().filter(|report| report.is_final).count();
    let good = reports.iter().filter(is_good).count();
    let running = JobState::Running.name();
    let open = reports.iter().filter(|report| !report.is_final);
    let leading = (reports.iter().find(|report| report.state == running))
        .or_else(|| open.clone().next())
        .or_else(|| reports.iter().find(|report| !is_good(report)))
        .or_else(|| reports.first());
    let bad = indices
        .iter()
        .zip(reports)
        .filter(|(_, report)| report.is_final && !is_good(report));
    let bad: Vec<String> = bad
        .map(|(index, report)| format!("{index} {}", report.state))
        .collect();
    let mut parts = vec![format!("{good} of {} ended well", reports.len())];
    match bad.len() {
        0 => {}
        count @ 1..=8 => parts.push(format!("{count} did not: {}", bad.join(", "))),
        count => parts.push(format!("{count} did not: {} …", bad[..8].join(", "))),
    }
    let running = reports
        .iter()
        .filter(|report| report.state == running)
        .count();
    if running > 0 {
        parts.push(format!("{running} run"));
    }
    let mut waiting = open.filter_map(|report| report.reason.as_deref());
    parts.extend(waiting.next().map(str::to_owned));
    JobReport {
        state: leading.map_or_else(String::new, |report| report.state.clone()),
        reason: Some(parts.join("; ")),
        hint: None,
        nodes: None,
        is_final: ended == reports.len(),
        exit: match ended == reports.len() {
            true => leading.and_then(|report| report.exit),
            false => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::job_dir::{JobDir, SubmittedJob};

    #[test]
    fn a_job_is_as_what_makes_its_environment_until_that_has_been_made() {
        let above = tempfile::tempdir().unwrap();
        let job = crate::job::job_dir::tests::job();
        let preparation = KnownJob {
            dir: JobDir::at(above.path()).preparation(),
            request: job,
            submitted: SubmittedJob {
                target: "cpu".into(),
                id: Some("7".into()),
                preparation: None,
                after: Vec::new(),
            },
        };
        let report = |state: &JobState, exit| JobReport {
            state: state.name().to_owned(),
            reason: Some("why".into()),
            is_final: state.is_final(),
            exit,
            ..JobReport::waiting()
        };
        let (waiting, cancelled) = (JobReport::waiting(), report(&JobState::Cancelled, None));
        for (of_preparation, own, state, said) in [
            (
                report(&JobState::Running, None),
                &waiting,
                "preparing",
                "its environment is made on cpu (slurm 7 running): why",
            ),
            (
                report(&JobState::Failed, Some(6)),
                &waiting,
                "failed",
                "its environment was not made on cpu (slurm 7 failed): why",
            ),
            (
                report(&JobState::TimedOut, None),
                &cancelled,
                "timed out",
                "its environment was not made on cpu (slurm 7 timed out): why",
            ),
        ] {
            let own = std::slice::from_ref(own);
            let whole = report_of_preparation(&of_preparation, &preparation, own).unwrap();
            assert_eq!(
                (&*whole.state, whole.reason.as_deref()),
                (state, Some(said))
            );
            assert_eq!(whole.is_final, of_preparation.is_final);
            assert_eq!(whole.exit, of_preparation.exit);
        }
        for (of_preparation, own) in [
            (report(&JobState::Succeeded, Some(0)), &waiting),
            (report(&JobState::Forgotten, None), &waiting),
            (report(&JobState::Running, None), &cancelled),
        ] {
            let own = std::slice::from_ref(own);
            assert_eq!(
                report_of_preparation(&of_preparation, &preparation, own),
                None
            );
        }
    }

    #[test]
    fn an_end_by_a_signal_names_it() {
        for (exit, said) in [
            (9, "exit code 9"),
            (
                139,
                "exit code 139: ended by a segmentation fault (SIGSEGV)",
            ),
            (137, "exit code 137: killed (SIGKILL)"),
            (255, "exit code 255"),
        ] {
            assert_eq!(describe_exit(exit), said);
            let reason = |raw: &str| StateReason {
                raw: raw.to_owned(),
                text: "why".to_owned(),
            };
            let of_code = describe_reason(Some(reason("NonZeroExitCode")), Some(exit));
            assert_eq!(of_code.as_deref(), Some(said));
            let other = describe_reason(Some(reason("TimeLimit")), Some(exit));
            assert_eq!(other.as_deref(), Some("why"));
        }
    }

    #[test]
    fn an_array_is_what_its_elements_come_to() {
        let report = |state: &JobState, exit| JobReport {
            state: state.name().to_owned(),
            is_final: state.is_final(),
            exit,
            ..JobReport::waiting()
        };
        let good = report(&JobState::Succeeded, Some(0));
        let bad = report(&JobState::Failed, Some(3));
        let (waiting, running) = (JobReport::waiting(), report(&JobState::Running, None));
        for (reports, state, is_final, exit, reason) in [
            (
                &[&good, &good][..],
                "succeeded",
                true,
                Some(0),
                "2 of 2 ended well",
            ),
            (
                &[&good, &bad],
                "failed",
                true,
                Some(3),
                "1 of 2 ended well; 1 did not: 4 failed",
            ),
            (
                &[&bad, &running, &waiting],
                "running",
                false,
                None,
                "0 of 3 ended well; 1 did not: 2 failed; 1 run",
            ),
            (
                &[&good, &waiting],
                "waiting",
                false,
                None,
                "1 of 2 ended well",
            ),
        ] {
            let reports: Vec<JobReport> = reports.iter().map(|one| (*one).clone()).collect();
            let whole = sum_up(&[2, 4, 6], &reports);
            assert_eq!(
                (&*whole.state, whole.is_final, whole.exit),
                (state, is_final, exit)
            );
            assert_eq!(whole.reason.as_deref(), Some(reason));
        }
    }
}
