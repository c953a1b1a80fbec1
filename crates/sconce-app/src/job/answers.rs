//! What schedulers said of a user's jobs, and when.
//!
//! A scheduler is a service of many users, and slow to answer: all verbs of a user together ask it at most once in
//! thirty seconds, or what `scheduler-interval` of config.toml says. What it said is kept in a file of the folder of
//! jobs, with the time, and so is that it gave no answer. Who needs something newer takes the file's lock, and asks for
//! every job that has not ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sconce_schema::spec::SchedulerKind;
use sconce_schema::{Hint, exit};
use sconce_submit::{JobQueue, JobStatus, Scheduler, SchedulerJobId, StateReason, SubmitError};
use serde::{Deserialize, Serialize};

use super::job_report::{JobReport, report_of};
use super::lookup::{KnownJob, list_jobs};
use super::schedulers::scheduler_of;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;
use crate::run_id::unix_ms;

/// The file.
const ANSWERS: &str = "answers.json";

/// How long the accounting is not asked again for a job: it is another service than the queue, and slower.
const ACCOUNTING_PAUSE: Duration = Duration::from_secs(600);

/// So many intervals old may be what is read while another process asks.
const MAX_AGE_INTERVALS: u32 = 4;

/// What a scheduler said, and when.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Answers {
    /// When it had answered, or had given no answer.
    unix_ms: u64,
    /// How jobs are, by their tokens. Without an answer, those that had ended before.
    pub(super) jobs: BTreeMap<String, JobReport>,
    /// Why there was no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) silence: Option<Silence>,
    /// When the accounting was asked for a job and did not say how it ended, by its token.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    accounted_unix_ms: BTreeMap<String, u64>,
}

/// Why a scheduler gave no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[error("{said}")]
pub(super) struct Silence {
    /// What went wrong.
    said: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// The exit code of that.
    exit: u8,
}

impl Hint for Silence {
    fn hint(&self) -> Option<String> {
        self.hint.clone()
    }

    fn exit_code(&self) -> u8 {
        self.exit
    }
}

impl Silence {
    fn of(failure: &Failure) -> Self {
        Self {
            said: failure.message(),
            hint: failure.hint(),
            exit: failure.exit_code(),
        }
    }

    /// The same, with how long ago that was.
    pub(super) fn with_age(self, age_s: u64) -> Self {
        match age_s {
            0 => self,
            _ => Self {
                said: format!("{} ({age_s} s ago)", self.said),
                ..self
            },
        }
    }

    /// Whether the scheduler is away, and not only unreadable.
    pub(super) fn is_away(&self) -> bool {
        self.exit == exit::FETCH
    }
}

impl Answers {
    /// Whether nothing has to be asked to say how the jobs are.
    fn suffice_for(&self, wanted: &[&KnownJob], interval: Duration) -> bool {
        let is_known = |job: &&KnownJob| self.find_end(job).is_some();
        self.is_younger_than(interval) || wanted.iter().all(is_known)
    }

    /// How old it is, in seconds.
    pub(super) fn age_s(&self) -> u64 {
        unix_ms().saturating_sub(self.unix_ms) / 1_000
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        // A clock that was set back makes nothing young.
        let own = unix_ms().checked_sub(self.unix_ms);
        own.is_some_and(|own| Duration::from_millis(own) < age)
    }

    /// How a job has ended, where that was said. One that was not there may be found since.
    fn find_end(&self, job: &KnownJob) -> Option<&JobReport> {
        let report = self.jobs.get(&job.request.token)?;
        let is_end = report.is_final && !report.is_absent() && job.submitted.id.is_some();
        let may_be_asked = self.accounted_unix_ms.contains_key(&job.request.token)
            && !self.does_accounting_rest(job);
        (is_end && !may_be_asked).then_some(report)
    }

    /// What an older answer keeps of it.
    fn keep_ends(mut self) -> Self {
        self.jobs
            .retain(|_, report| report.is_final && !report.is_absent());
        self
    }

    /// Whether the accounting has been asked for a job a short time ago, without an end.
    fn does_accounting_rest(&self, job: &KnownJob) -> bool {
        let at = self.accounted_unix_ms.get(&job.request.token);
        at.is_some_and(|at| is_resting(*at))
    }
}

/// The scheduler's answers, no older than the interval where one of `wanted` has not ended.
///
/// # Errors
/// The scheduler's programs are not here, or the answers cannot be kept.
pub(super) fn ask(
    wanted: &[&KnownJob],
    places: &SconceDirs,
    context: &AppContext,
) -> Result<Answers> {
    let interval = places.config.ask_interval();
    let mut file = AnswersFile::open(&places.jobs)?;
    if !file.try_lock() {
        let kept = file.read();
        if kept.is_younger_than(interval * MAX_AGE_INTERVALS) {
            return Ok(kept);
        }
        file.lock();
    }
    let kept = file.read();
    if kept.suffice_for(wanted, interval) {
        return Ok(kept);
    }
    let answers = match ask_all(&kept, wanted, places, context) {
        Ok(answers) => answers,
        Err(failure) if costs_nothing(&failure) => return Err(failure),
        Err(failure) => Answers {
            silence: Some(Silence::of(&failure)),
            ..kept.keep_ends()
        },
    };
    let answers = Answers {
        // A program that took its time has been asked until now.
        unix_ms: unix_ms(),
        ..answers
    };
    file.write(&answers)?;
    Ok(answers)
}

fn is_resting(asked_unix_ms: u64) -> bool {
    let age = unix_ms().checked_sub(asked_unix_ms);
    age.is_some_and(|age| Duration::from_millis(age) < ACCOUNTING_PAUSE)
}

/// Whether nobody was asked: a program is not here, and may be a moment later (`module load slurm`).
fn costs_nothing(failure: &Failure) -> bool {
    matches!(
        failure.find::<SubmitError>(),
        Some(SubmitError::NoProgram { .. } | SubmitError::Start { .. })
    )
}

/// Asks every scheduler for all jobs that have not ended, by one question; of those that somebody may have handed over by
/// hand, for the ones that are wanted.
fn ask_all(
    kept: &Answers,
    wanted: &[&KnownJob],
    places: &SconceDirs,
    context: &AppContext,
) -> Result<Answers> {
    let mut answers = Answers::default();
    let accounted = kept.accounted_unix_ms.clone().into_iter();
    answers.accounted_unix_ms = accounted.filter(|(_, at)| is_resting(*at)).collect();
    // Of several elements of an array, the whole once.
    let by_hand = wanted.iter().filter_map(|job| job.whole_by_hand());
    let by_hand: BTreeMap<String, KnownJob> = by_hand
        .map(|job| (job.request.token.clone(), job))
        .collect();
    for kind in [SchedulerKind::Slurm] {
        let listed = list_jobs(places).into_iter();
        let of_kind = listed
            .chain(by_hand.values().cloned())
            .filter(|job| job.request.engine == kind);
        let open: Vec<KnownJob> = of_kind
            .filter(|job| is_open(job, kept, &mut answers))
            .collect();
        if open.is_empty() {
            continue;
        }
        let scheduler = scheduler_of(kind, context);
        let queue = scheduler.list_queue()?;
        let open = open.into_iter().map(|job| job.found_in(&queue));
        let open = open.collect::<Result<Vec<_>>>()?;
        let parts: Vec<KnownJob> = open.iter().flat_map(KnownJob::scheduled_jobs).collect();
        answer_for(&parts, &queue, scheduler.as_ref(), kept, &mut answers);
    }
    Ok(answers)
}

/// Whether a part of a job has not ended, as far as is known; what is known of the others is kept.
fn is_open(job: &KnownJob, kept: &Answers, answers: &mut Answers) -> bool {
    let mut is_open = false;
    for part in job.scheduled_jobs() {
        if let Some(end) = kept.find_end(&part) {
            answers.jobs.insert(part.request.token, end.clone());
        } else {
            is_open |= part.own_report().is_none();
        }
    }
    is_open
}

/// Adds how each part of jobs is of which that is not known: by the queue or, of those that have left it, by the
/// accounting.
fn answer_for(
    parts: &[KnownJob],
    queue: &JobQueue,
    scheduler: &dyn Scheduler,
    kept: &Answers,
    answers: &mut Answers,
) {
    let mut gone: Vec<(&KnownJob, SchedulerJobId)> = Vec::new();
    for part in parts {
        let token = part.request.token.clone();
        if answers.jobs.contains_key(&token) || part.own_report().is_some() {
            continue;
        }
        let report = match part.scheduler_id() {
            None if part.is_by_hand() => JobReport::not_handed_over(&part.dir),
            None => JobReport::unanswered(),
            Some(id) => match queue.status(&id) {
                Some(status) => report_of(status, part, scheduler),
                None if kept.does_accounting_rest(part) => match kept.jobs.get(&token) {
                    Some(report) => report.clone(),
                    None => report_of(&JobStatus::forgotten(id), part, scheduler),
                },
                None => {
                    gone.push((part, id));
                    continue;
                }
            },
        };
        answers.jobs.insert(token, report);
    }
    if gone.is_empty() {
        return;
    }
    let ids: Vec<SchedulerJobId> = gone.iter().map(|(_, id)| id.clone()).collect();
    let states = scheduler.past_states(&ids);
    let is_silent = states.is_err();
    let states = states.unwrap_or_else(|error| {
        let text = format!("Slurm's accounting does not answer: {error}");
        let forgotten = |id: SchedulerJobId| JobStatus {
            reason: Some(StateReason {
                raw: String::new(),
                text: text.clone(),
            }),
            ..JobStatus::forgotten(id)
        };
        ids.into_iter().map(forgotten).collect()
    });
    for ((part, _), status) in gone.into_iter().zip(states) {
        let token = &part.request.token;
        let report = report_of(&status, part, scheduler);
        if is_silent || !report.is_final {
            answers.accounted_unix_ms.insert(token.clone(), unix_ms());
        }
        answers.jobs.insert(token.clone(), report);
    }
}

/// The file, which is this process's from its lock until it is closed. Where a file system has no locks, several may
/// ask.
struct AnswersFile {
    path: PathBuf,
    file: File,
}

impl AnswersFile {
    fn open(jobs: &Path) -> Result<Self> {
        let path = jobs.join(ANSWERS);
        let mut options = File::options();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        match options.open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(AppError::File {
                action: FileAction::Open,
                path,
                source,
            }
            .into()),
        }
    }

    /// `false` where another process has it, which asks.
    fn try_lock(&self) -> bool {
        let locked = flock(&self.file, FlockOperation::NonBlockingLockExclusive);
        locked != Err(Errno::WOULDBLOCK)
    }

    fn lock(&self) {
        let _ = flock(&self.file, FlockOperation::LockExclusive);
    }

    /// What is kept; nothing where another process is writing it.
    fn read(&mut self) -> Answers {
        let mut text = String::new();
        let read = self.file.rewind();
        let read = read.and_then(|()| self.file.read_to_string(&mut text));
        match read {
            Ok(_) => serde_json::from_str(&text).unwrap_or_default(),
            Err(_) => Answers::default(),
        }
    }

    fn write(&mut self, answers: &Answers) -> Result<()> {
        let text = serde_json::to_vec(answers).expect("plain data is JSON");
        let written = self.file.set_len(0);
        let written = written.and_then(|()| self.file.rewind());
        let written = written.and_then(|()| self.file.write_all(&text));
        written.map_err(|source| {
            AppError::File {
                action: FileAction::Write,
                path: self.path.clone(),
                source,
            }
            .into()
        })
    }
}

#[cfg(test)]
mod tests {
    use sconce_submit::JobState;

    use super::*;

    #[test]
    fn answers_are_written_as_before() {
        let report = JobReport {
            state: JobState::Waiting.name().to_owned(),
            reason: Some("other jobs come first".into()),
            hint: Some("wait".into()),
            nodes: Some("n[1-2]".into()),
            is_final: false,
            exit: Some(0),
        };
        let answers = Answers {
            unix_ms: 1_790_000_000_000,
            jobs: [("demo-1".to_owned(), report)].into(),
            silence: Some(Silence {
                said: "squeue gave no answer within 10 s".into(),
                hint: Some("try again later".into()),
                exit: exit::FETCH,
            }),
            accounted_unix_ms: [("demo-0".to_owned(), 1_790_000_000_000)].into(),
        };
        let text = serde_json::to_string_pretty(&answers).unwrap() + "\n";
        crate::golden::goldens().assert_same("job-answers.json", &text);
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_young() {
        let answers = |unix_ms| Answers {
            unix_ms,
            ..Answers::default()
        };
        let age = Duration::from_secs(30);
        assert!(answers(unix_ms()).is_younger_than(age));
        assert!(!answers(unix_ms() - 30_000).is_younger_than(age));
        assert!(!answers(unix_ms() + 3_600_000).is_younger_than(age));
        assert!(!Answers::default().is_younger_than(age));
    }
}
