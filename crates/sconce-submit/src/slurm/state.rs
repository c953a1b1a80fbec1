//! What squeue and sacct say of jobs: pure parsers of their text.
//!
//! Fields are separated by the character that ASCII has for it (unit separator), and squeue's rows end with its record
//! separator: names, comments and reasons may hold spaces, bars and line ends, and no site writes those two.

use crate::error::SubmitError;
use crate::job_id::SchedulerJobId;
use crate::slurm::node_list::expand_node_list;
use crate::slurm::reason::explain_reason;
use crate::status::{JobExit, JobState, JobStatus, StateReason};
use sconce_base::text::to_printable;

/// Between two fields.
const FIELD_END: char = '\u{1f}';

/// At the end of a row of squeue.
const ROW_END: char = '\u{1e}';

/// squeue's names of the fields, in the order of [`parse_squeue`] (squeue(1), `--Format`).
const SQUEUE_FIELDS: [&str; 9] = [
    // `4711`, and `4711_3` of an element of an array.
    "JobArrayID",
    "State",
    "Reason",
    "NodeList",
    "exit_code",
    "StartTime",
    "EndTime",
    "RestartCnt",
    "Comment",
];

/// sacct's names of the fields, in the order of [`parse_sacct`] (sacct(1), "Job Accounting Fields").
const SACCT_FIELDS: &str = "JobID,State,NodeList,ExitCode,Start,End,Comment";

/// Why a job is cancelled by Slurm itself (`--kill-on-invalid-dep` of sbatch(1)), and not by a person.
const NEVER_STARTS: &str = "DependencyNeverSatisfied";

/// The longest text of a field that is kept, characters.
const MAX_FIELD_CHARS: usize = 4096;

/// A job as squeue or sacct knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRow {
    /// How it is.
    pub status: JobStatus,
    /// Its comment, as it may be shown.
    pub comment: String,
}

/// Returns the arguments of squeue that ask for all jobs of a user, those that ended a short time ago too (`MinJobAge`
/// of slurm.conf(5), five minutes).
pub(super) fn squeue_args(user_id: u32) -> Vec<String> {
    // Without a size and with a suffix, fields have the length of what is in them (22.05, tried).
    let last = SQUEUE_FIELDS.len() - 1;
    let fields = SQUEUE_FIELDS.iter().enumerate().map(|(at, name)| {
        let end = if at == last { ROW_END } else { FIELD_END };
        format!("{name}:{end}")
    });
    let format: Vec<String> = fields.collect();
    vec![
        "--noheader".to_owned(),
        // Elements that wait are one row each.
        "--array".to_owned(),
        "--states=all".to_owned(),
        format!("--user={user_id}"),
        format!("--Format={}", format.join(",")),
    ]
}

/// Returns the arguments of sacct that ask for jobs, one row each; `which` says for which ones.
pub(super) fn sacct_args(which: &[String]) -> Vec<String> {
    let mut args = vec![
        "--noheader".to_owned(),
        "--parsable2".to_owned(),
        "--allocations".to_owned(),
        format!("--delimiter={FIELD_END}"),
        format!("--format={SACCT_FIELDS}"),
    ];
    args.extend_from_slice(which);
    args
}

/// Parses what squeue wrote for the fields that it is asked for, rows that end with their own character.
///
/// # Errors
/// A row is none: nothing of the text counts then, since a job that is not seen would be handed over again.
pub fn parse_squeue(text: &str) -> Result<Vec<JobRow>, SubmitError> {
    let mut rows = Vec::new();
    let mut rest = text;
    while !rest.trim().is_empty() {
        let (row, after) = rest
            .split_once(ROW_END)
            .ok_or_else(|| unreadable("squeue", rest))?;
        rest = after.strip_prefix('\n').unwrap_or(after);
        let mut fields = row.splitn(SQUEUE_FIELDS.len(), FIELD_END).map(str::trim);
        let mut field = || fields.next().ok_or_else(|| unreadable("squeue", row));
        let id = field()?;
        let status = JobStatus {
            id: SchedulerJobId::parse(id).ok_or_else(|| unreadable("squeue", row))?,
            state: parse_state(field()?),
            reason: parse_reason(field()?),
            nodes: parse_text(field()?),
            exit: parse_exit(field()?),
            start_s: field()?.parse().ok(),
            end_s: field()?.parse().ok(),
            restarts: field()?.parse().ok(),
        };
        let comment = to_printable(field()?, MAX_FIELD_CHARS);
        rows.push(JobRow {
            status: without_stale_parts(status),
            comment,
        });
    }
    Ok(rows)
}

/// Parses what sacct wrote for the fields that it is asked for. A comment may have line ends, and sacct ends rows with nothing else:
/// a line that begins no row goes on with the comment before it.
///
/// # Errors
/// A line is neither.
pub fn parse_sacct(text: &str) -> Result<Vec<JobRow>, SubmitError> {
    let mut rows: Vec<JobRow> = Vec::new();
    let field_count = SACCT_FIELDS.split(',').count();
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(field_count, FIELD_END).map(str::trim).collect();
        let ids = fields.first().map_or_else(Vec::new, |id| parse_ids(id));
        if let (Some(first), &[_, state, nodes, exit, start, end, comment]) =
            (ids.first(), &fields[..])
        {
            let status = JobStatus {
                id: first.clone(),
                state: parse_state(state),
                // The last reason for which it waited (sacct(1)), and none for how it ended.
                reason: None,
                nodes: parse_text(nodes),
                exit: parse_exit_pair(exit),
                start_s: start.parse().ok(),
                end_s: end.parse().ok(),
                restarts: None,
            };
            let status = without_stale_parts(status);
            rows.extend(ids.into_iter().map(|id| JobRow {
                status: JobStatus {
                    id,
                    ..status.clone()
                },
                comment: to_printable(comment, MAX_FIELD_CHARS),
            }));
        } else if let Some(row) = rows.last_mut() {
            row.comment = to_printable(&format!("{} {line}", row.comment), MAX_FIELD_CHARS);
        } else if !line.trim().is_empty() {
            return Err(unreadable("sacct", line));
        }
    }
    Ok(rows)
}

/// Reads sacct's id, which is that of several elements of an array where they are alike: `4711_[3-7,9%2]`.
fn parse_ids(text: &str) -> Vec<SchedulerJobId> {
    let Some((elements, _)) = text.split_once('%').or(text.split_once(']')) else {
        return SchedulerJobId::parse(text).into_iter().collect();
    };
    let ids = expand_node_list(&format!("{elements}]")).unwrap_or_default();
    ids.iter()
        .filter_map(|id| SchedulerJobId::parse(id))
        .collect()
}

/// Reads a state, long or compact: squeue(1) and sacct(1), "JOB STATE CODES", and `job_state_string` of Slurm's
/// `slurm_protocol_defs.c` for newer ones. sacct adds who cancelled it: `CANCELLED by 1000`; a `+` says that a word was
/// cut.
fn parse_state(text: &str) -> JobState {
    let word = text.split([' ', '+']).next().unwrap_or_default();
    match word.to_ascii_uppercase().as_str() {
        "PENDING" | "PD" | "REQUEUED" | "RQ" | "REQUEUE_HOLD" | "RH" | "REQUEUE_FED" | "RF"
        | "RESV_DEL_HOLD" | "RD" | "SPECIAL_EXIT" | "SE" => JobState::Waiting,
        "CONFIGURING" | "CF" | "POWER_UP_NODE" | "PU" => JobState::Starting,
        "RUNNING" | "R" | "RESIZING" | "RS" | "SIGNALING" | "SI" => JobState::Running,
        "SUSPENDED" | "S" | "STOPPED" | "ST" => JobState::Suspended,
        "COMPLETING" | "CG" | "STAGE_OUT" | "SO" | "UPDATE_DB" | "UD" => JobState::Ending,
        "COMPLETED" | "CD" => JobState::Succeeded,
        "FAILED" | "F" => JobState::Failed,
        // A federation's other cluster has it; nothing of it runs here.
        "CANCELLED" | "CA" | "REVOKED" | "RV" => JobState::Cancelled,
        "TIMEOUT" | "TO" | "DEADLINE" | "DL" => JobState::TimedOut,
        "OUT_OF_MEMORY" | "OUT_OF_ME" | "OOM" => JobState::OutOfMemory,
        "NODE_FAIL" | "NF" | "BOOT_FAIL" | "BF" | "LAUNCH_FAILED" | "LF" | "RECONFIG_FAIL"
        | "RG" => JobState::NodeFailed,
        "PREEMPTED" | "PR" => JobState::Preempted,
        _ => JobState::Unknown(to_printable(text, 64)),
    }
}

/// Reads the reason; `None` is Slurm's word for none.
fn parse_reason(text: &str) -> Option<StateReason> {
    let raw = parse_text(text).filter(|raw| raw != "None")?;
    let explained = explain_reason(&raw).map(str::to_owned);
    let text = explained.or_else(|| explain_signal(&raw));
    let text = text.unwrap_or_else(|| raw.clone());
    Some(StateReason { raw, text })
}

/// Reads a text; Slurm's programs have several words for none.
fn parse_text(text: &str) -> Option<String> {
    let is_none = matches!(text, "" | "(null)" | "N/A" | "None assigned" | "n/a");
    (!is_none).then(|| to_printable(text, MAX_FIELD_CHARS))
}

/// Reads squeue's `exit_code`: `3:0` as of 24.11, wait(2)'s number before (tried with 22.05, 24.11 and 26.05).
fn parse_exit(text: &str) -> Option<JobExit> {
    let of_number = || text.parse().ok().map(exit_of_wait_status);
    parse_exit_pair(text).or_else(of_number)
}

/// Reads wait(2)'s number: 768 is exit code 3.
fn exit_of_wait_status(status: u32) -> JobExit {
    match status & 0x7f {
        0 => JobExit::Code(status >> 8 & 0xff),
        signal => JobExit::Signal(signal),
    }
}

/// Reads sacct's `code:signal`.
fn parse_exit_pair(text: &str) -> Option<JobExit> {
    let (code, signal) = text.split_once(':')?;
    match signal.parse().ok()? {
        0 => Some(JobExit::Code(code.parse().ok()?)),
        signal => Some(JobExit::Signal(signal)),
    }
}

/// Names the signal of `RaisedSignal:9(Killed)`.
fn explain_signal(raw: &str) -> Option<String> {
    let (number, name) = raw.strip_prefix("RaisedSignal:")?.split_once('(')?;
    let name = name.strip_suffix(')')?;
    Some(format!("signal {number} ({name}) ended it"))
}

/// Takes away what both programs show without its being so: exit code 0 of a job that goes on, that was cancelled or
/// ended by something else than its script; and why a job waited that was cancelled or is through.
fn without_stale_parts(mut status: JobStatus) -> JobStatus {
    let is_through = status.state == JobState::Succeeded;
    if !is_through && (!status.state.is_final() || status.exit == Some(JobExit::Code(0))) {
        status.exit = None;
    }
    let never_starts = |reason: &StateReason| reason.raw == NEVER_STARTS;
    let was_waiting = status.state == JobState::Cancelled;
    if is_through || was_waiting && !status.reason.as_ref().is_some_and(never_starts) {
        status.reason = None;
    }
    status
}

fn unreadable(program: &'static str, text: &str) -> SubmitError {
    SubmitError::Unreadable {
        program,
        said: to_printable(text.trim(), 200),
    }
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
