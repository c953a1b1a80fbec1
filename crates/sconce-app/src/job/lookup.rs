//! Jobs that were handed over: found by what a person calls them, and asked how they are.
//!
//! A scheduler is a service of many users, and slow to answer: all verbs of a user together ask it at most once in
//! thirty seconds, or what `scheduler-interval` of config.toml says. What it said is kept in a file of the folder of jobs, with the time; who needs something newer
//! takes the file's lock, and asks for every job that has not ended.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use sconce_schema::job::JobRequest;
use sconce_schema::spec::SchedulerKind;
use sconce_schema::{Hint, exit};
use sconce_submit::{JobState, SchedulerJobId};
use serde::{Deserialize, Serialize};

use super::fault::JobFault;
use super::job_dir::{JobDir, SubmittedJob};
pub use super::job_report::JobReport;
use super::job_report::{NOT_HANDED_OVER, UNANSWERED, report_of, report_of_preparation, sum_up};
use super::schedulers::scheduler_of;
use super::submit::preparation_layout;
use super::task_run::{TaskRun, first_exit, first_failed, first_fault};
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::file_action::FileAction;
use crate::reporter::AppEvent;
use crate::run_id::unix_ms;

/// What a scheduler last said.
const ANSWERS: &str = "answers.json";

/// A job that was handed over, or an element of one that is an array.
#[derive(Debug, Clone)]
pub struct KnownJob {
    /// Its folder.
    pub dir: JobDir,
    /// What was handed over; of an element, with its own token and command.
    pub request: JobRequest,
    /// To whom, and what that calls it.
    pub submitted: SubmittedJob,
}

/// Why no job is meant.
#[derive(Debug, thiserror::Error)]
pub enum JobLookupError {
    /// The beginning of several tokens.
    #[error("several jobs are meant: {}", .0.join(", "))]
    Several(Vec<String>),
    /// One run is wanted, and it is an array of them.
    #[error("job {0} is an array: it has a run for each of its elements")]
    Array(String),
    /// It never began, since its environment could not be made.
    #[error("job {job} has not begun, and will not: {why}")]
    NotPrepared {
        /// The job.
        job: String,
        /// How making its environment ended.
        why: String,
    },
    /// A dry run printed its script, and nobody has handed that over.
    #[error("job {job} is not in its scheduler's queue: its script was printed by `--dry-run`")]
    NotHandedOver {
        /// The job.
        job: String,
        /// The script.
        script: PathBuf,
    },
    /// It has no log of this name.
    #[error("job {job} has no log `{name}`")]
    NoLog {
        /// The job.
        job: String,
        /// The name.
        name: String,
    },
    /// None of its tasks has a run that was recorded here.
    #[error("there is no record of a run of {}", .0.join(", "))]
    NoRecord(Vec<String>),
    /// The scheduler has forgotten how it ended, and its nodes did not say.
    #[error(
        "how job {0} ended is not known: its scheduler has forgotten it, and its nodes did not say"
    )]
    Forgotten(String),
}

impl Hint for JobLookupError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Several(_) => "name one of them, or enough of the beginning".to_owned(),
            Self::Array(token) => {
                format!("`{token}_0` is one of them; `sconce compare {token}` shows all")
            }
            Self::NoLog { .. } => {
                "`--task 1` shows one task's; `preparation` is there where another job makes its environment before"
                    .to_owned()
            }
            Self::NotHandedOver { script, .. } => {
                format!("`sbatch {}` hands it over", script.display())
            }
            Self::NotPrepared { job, .. } => {
                format!("`sconce logs {job} preparation` has what was printed meanwhile")
            }
            Self::NoRecord(tokens) => {
                let job = tokens.first().map_or("JOB", String::as_str);
                format!(
                    "`sconce ps` says whether it has begun, `sconce logs {job}` what was printed"
                )
            }
            Self::Forgotten(token) => format!("`sconce logs {token}` has what was printed"),
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// The jobs that were handed over, newest first.
pub fn list_jobs(places: &SconceDirs) -> Vec<KnownJob> {
    let entries = std::fs::read_dir(&places.jobs)
        .into_iter()
        .flatten()
        .flatten();
    let mut jobs: Vec<KnownJob> = entries
        .filter_map(|entry| open_job(JobDir::at(&entry.path())))
        .collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(job.request.unix_ms));
    jobs
}

fn open_job(dir: JobDir) -> Option<KnownJob> {
    let submitted = dir.read_submitted().ok()??;
    open_job_as(dir, submitted)
}

/// The job of a dry run, which its owner may have handed over by hand: nobody knows before it has begun, or its
/// scheduler is asked.
fn open_by_hand(dir: JobDir) -> Option<KnownJob> {
    let submitted = dir.read_by_hand().ok()??;
    open_job_as(dir, submitted)
}

fn open_job_as(dir: JobDir, submitted: SubmittedJob) -> Option<KnownJob> {
    Some(KnownJob {
        request: dir.read_job().ok()?,
        submitted,
        dir,
    })
}

/// The job that is called `which`: its token, or the beginning of it; `None` where there is none. One of a dry run that
/// has not begun is found by its whole token alone.
///
/// # Errors
/// Several are.
pub fn find_job(places: &SconceDirs, which: &str) -> Result<Option<KnownJob>> {
    if which.is_empty() || which.contains('/') {
        return Ok(None);
    }
    let dir = JobDir::of(places, which);
    if let Some(job) = open_job(dir.clone()).or_else(|| open_by_hand(dir)) {
        return Ok(Some(job));
    }
    // `TOKEN_3`, or `beginning_3`.
    if let Some((job, index)) = which.rsplit_once('_')
        && let Ok(index) = index.parse()
        && let Some(element) = find_job(places, job)?.and_then(|job| job.element(index))
    {
        return Ok(Some(element));
    }
    let mut jobs = list_jobs(places);
    jobs.retain(|job| job.request.token.starts_with(which));
    match jobs.len() {
        0 | 1 => Ok(jobs.pop()),
        _ => {
            let tokens = jobs.into_iter().map(|job| job.request.token);
            Err(JobLookupError::Several(tokens.collect()).into())
        }
    }
}

impl KnownJob {
    /// An element of it, where it is an array that has this one.
    #[must_use]
    pub fn element(&self, index: u32) -> Option<Self> {
        let id = self.scheduler_id().map(|id| id.element(index).to_string());
        Some(Self {
            dir: self.dir.element(index),
            request: self.request.element(index)?,
            submitted: SubmittedJob {
                id,
                ..self.submitted.clone()
            },
        })
    }

    /// The job that makes its environment before it begins, where one does: a job of one task.
    #[must_use]
    pub fn preparation(&self) -> Option<Self> {
        let preparation = self.request.preparation.as_ref()?;
        Some(Self {
            dir: self.dir.preparation(),
            request: JobRequest {
                token: preparation.token.clone(),
                layout: preparation_layout(),
                array: None,
                preparation: None,
                ..self.request.clone()
            },
            submitted: SubmittedJob {
                target: preparation.target.clone(),
                id: self.submitted.preparation.clone(),
                preparation: None,
                after: Vec::new(),
            },
        })
    }

    /// What its scheduler may be asked for: its elements, and what makes its environment.
    fn scheduled_jobs(&self) -> Vec<Self> {
        let mut jobs = self.elements();
        jobs.extend(self.preparation());
        jobs
    }

    /// Its elements, by their indices; of a job that is no array, itself alone.
    #[must_use]
    pub fn elements(&self) -> Vec<Self> {
        match &self.request.array {
            Some(array) => array
                .indices
                .iter()
                .filter_map(|index| self.element(*index))
                .collect(),
            None => vec![self.clone()],
        }
    }

    /// What its scheduler calls it, once that is known.
    pub(super) fn scheduler_id(&self) -> Option<SchedulerJobId> {
        SchedulerJobId::parse(self.submitted.id.as_deref()?)
    }

    /// As it is once its scheduler has been asked for a job to which it gave no answer.
    pub(super) fn with_id(mut self, context: &AppContext) -> Result<Self> {
        if self.submitted.id.is_none()
            && let Some(index) = self.dir.index()
        {
            // The scheduler knows all elements by the token of the whole.
            let whole = open_job_as(JobDir::at(self.dir.path()), self.submitted.clone());
            let whole = whole.map(|whole| whole.with_id(context)).transpose()?;
            return Ok(whole.and_then(|whole| whole.element(index)).unwrap_or(self));
        }
        if self.submitted.id.is_none()
            && let Some(id) =
                scheduler_of(self.request.engine, context).find(&self.request.token)?
        {
            self.submitted.id = Some(id.to_string());
            self.dir.write_submitted(&self.submitted)?;
        }
        if self.submitted.preparation.is_none()
            && let Some(preparation) = self.preparation()
            && let Some(id) =
                scheduler_of(self.request.engine, context).find(&preparation.request.token)?
        {
            self.submitted.preparation = Some(id.to_string());
            self.dir.write_submitted(&self.submitted)?;
        }
        Ok(self)
    }

    /// Whether it is its owner who hands it over.
    fn is_by_hand(&self) -> bool {
        matches!(self.dir.read_by_hand(), Ok(Some(_)))
    }

    /// How it ended, by its own files: every task has said so.
    fn own_report(&self) -> Option<JobReport> {
        let layout = &self.request.layout;
        let tasks = self.dir.read_tasks();
        let wanted = layout.nodes * layout.tasks_per_node();
        let ended = tasks.values().filter(|task| task.exit.is_some()).count();
        if u32::try_from(ended) != Ok(wanted) {
            return None;
        }
        let first = first_failed(&tasks).filter(|task| !task.was_ended())?;
        let exit = first.exit?;
        let fault = first_fault(&tasks);
        let state = match exit {
            exit::OK => JobState::Succeeded,
            _ if fault.is_some_and(|fault| fault.out_of_memory) => JobState::OutOfMemory,
            _ => JobState::Failed,
        };
        Some(JobReport {
            state: state.name().to_owned(),
            reason: fault.map(|fault| fault.why.clone()),
            hint: fault.and_then(|fault| fault.hint.clone()),
            nodes: None,
            is_final: true,
            exit: Some(exit),
        })
    }

    /// With what its tasks ended, as far as they said so: the one that failed first, of which the others are ended by
    /// signals.
    pub(super) fn task_exit(&self) -> Option<u8> {
        first_exit(&self.dir.read_tasks())
    }

    /// Whether each of its tasks has written that it began.
    pub(super) fn has_every_task_begun(&self) -> bool {
        let layout = &self.request.layout;
        let wanted = layout.nodes * layout.tasks_per_node();
        u32::try_from(self.dir.read_tasks().len()) == Ok(wanted)
    }

    /// What went wrong with its tasks, as far as they said so.
    pub(super) fn task_fault(&self) -> Option<JobFault> {
        first_fault(&self.dir.read_tasks()).cloned()
    }

    /// Takes it from its scheduler, with what makes its environment; other elements of an array still need that.
    pub fn cancel(&self, context: &AppContext) -> Result<()> {
        let job = self.clone().with_id(context)?;
        let scheduler = scheduler_of(self.request.engine, context);
        if job.submitted.id.is_none() && job.is_by_hand() {
            return Err(JobLookupError::NotHandedOver {
                job: job.request.token,
                script: job.dir.path().join("submission.sh"),
            }
            .into());
        }
        if let Some(id) = job.scheduler_id() {
            scheduler.cancel(&id)?;
            for element in job.elements() {
                element.dir.mark_cancelled()?;
            }
        }
        let preparation = job.preparation().filter(|_| job.dir.index().is_none());
        if let Some(preparation) = preparation
            && let Some(id) = preparation.scheduler_id()
            && preparation.own_report().is_none()
        {
            scheduler.cancel(&id)?;
            preparation.dir.mark_cancelled()?;
        }
        Ok(())
    }

    /// Why it never begins: its environment could not be made, as the files of that say.
    #[must_use]
    pub fn find_preparation_failure(&self) -> Option<JobLookupError> {
        let preparation = self.preparation()?;
        let report = preparation.own_report()?;
        let failed = report_of_preparation(&report, &preparation, &[])?;
        let why = match (failed.reason, failed.exit) {
            (Some(reason), Some(exit)) => format!("{reason} (exit code {exit})"),
            (reason, _) => reason.unwrap_or_default(),
        };
        Some(JobLookupError::NotPrepared {
            job: self.request.token.clone(),
            why,
        })
    }

    /// What became of its tasks, by their numbers; an array has none.
    pub fn tasks(&self) -> BTreeMap<u32, TaskRun> {
        self.dir.read_tasks()
    }

    /// The id of its first task's run, once that has begun; an array has none.
    pub fn first_run(&self) -> Option<String> {
        self.dir.read_tasks().remove(&0)?.run
    }
}

/// What the scheduler said, and when.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Answers {
    unix_ms: u64,
    jobs: BTreeMap<String, JobReport>,
}

/// How jobs are, in their order: by their own files where these say it, else by their scheduler. Of an array, what its
/// elements come to; of one whose environment is still made, or could not be, how that is.
///
/// # Errors
/// The scheduler cannot be asked.
pub fn query_jobs(
    jobs: &[KnownJob],
    places: &SconceDirs,
    context: &AppContext,
) -> Result<Vec<JobReport>> {
    let mut reports = KnownReports::read(jobs);
    if !reports.open.is_empty() {
        let open: Vec<&KnownJob> = reports.open.iter().collect();
        let by_hand = jobs.iter().filter(|job| job.submitted.id.is_none());
        let by_hand = by_hand.filter(|job| matches!(job.dir.read_submitted(), Ok(None)));
        // Of an element, the whole job: the scheduler knows them by one token.
        let by_hand = by_hand.filter_map(|job| open_by_hand(JobDir::at(job.dir.path())));
        reports.answers = ask(&open, by_hand.collect(), places, context)?.jobs;
    }
    let report = |job: &KnownJob| {
        let report = reports.of_job(job, &JobReport::waiting());
        if report.is_final && job.submitted.id.is_some() && job.dir.is_whole() {
            job.dir.remove_variables();
        }
        report
    };
    Ok(jobs.iter().map(report).collect())
}

/// How jobs are, by their tokens.
struct KnownReports {
    /// Of those whose own files say it.
    own: BTreeMap<String, JobReport>,
    /// Those of which the scheduler is to say it.
    open: Vec<KnownJob>,
    /// What it says.
    answers: BTreeMap<String, JobReport>,
}

impl KnownReports {
    fn read(jobs: &[KnownJob]) -> Self {
        let (mut own, mut open) = (BTreeMap::new(), Vec::new());
        for job in jobs {
            let preparation = job.preparation();
            let prepared = preparation.as_ref().and_then(KnownJob::own_report);
            let has_failed = |report: &JobReport| report.exit != Some(exit::OK);
            // What waits for one that has failed never begins.
            let elements = match prepared.as_ref().is_some_and(has_failed) {
                true => Vec::new(),
                false => job.elements(),
            };
            let open_before = open.len();
            for element in elements {
                match element.own_report() {
                    Some(report) => {
                        own.insert(element.request.token, report);
                    }
                    None => open.push(element),
                }
            }
            match (preparation, prepared) {
                (Some(preparation), Some(report)) => {
                    own.insert(preparation.request.token, report);
                }
                (Some(preparation), None) if open.len() > open_before => open.push(preparation),
                _ => {}
            }
        }
        Self {
            own,
            open,
            answers: BTreeMap::new(),
        }
    }

    fn find(&self, job: &KnownJob) -> Option<&JobReport> {
        let token = &job.request.token;
        self.own.get(token).or_else(|| self.answers.get(token))
    }

    /// How one is, where `unknown` is how those are of which nobody says anything.
    fn of_job(&self, job: &KnownJob, unknown: &JobReport) -> JobReport {
        let elements = job.elements();
        let reports = elements.iter().map(|element| self.find(element));
        let reports: Vec<JobReport> = reports
            .map(|known| known.unwrap_or(unknown).clone())
            .collect();
        if let Some(preparation) = job.preparation().filter(|_| job.submitted.id.is_some())
            && let Some(known) = self.find(&preparation)
            && let Some(report) = report_of_preparation(known, &preparation, &reports)
        {
            return report;
        }
        match &job.request.array {
            Some(array) => sum_up(&array.indices, &reports),
            None => reports
                .into_iter()
                .next()
                .unwrap_or_else(|| unknown.clone()),
        }
    }
}

/// The scheduler's answers, no older than the interval; those to jobs that were handed over, and to those `by_hand`.
fn ask(
    open: &[&KnownJob],
    by_hand: Vec<KnownJob>,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<Answers> {
    let path = places.jobs.join(ANSWERS);
    let mut file = open_answers(&path)?;
    let interval = places.config.ask_interval();
    let mut text = String::new();
    let _ = file.read_to_string(&mut text);
    let kept: Answers = serde_json::from_str(&text).unwrap_or_default();
    let age = unix_ms().saturating_sub(kept.unix_ms);
    let find_kept = |job: &KnownJob| {
        let report = kept.jobs.get(&job.request.token)?;
        // It has been found since.
        let was_unanswered =
            [UNANSWERED, NOT_HANDED_OVER].contains(&&*report.state) && report.is_final;
        (job.submitted.id.is_none() || !was_unanswered).then_some(report)
    };
    let knows_all = open.iter().all(|job| find_kept(job).is_some());
    if knows_all && Duration::from_millis(age) < interval {
        return Ok(kept);
    }
    let mut answers = Answers {
        unix_ms: unix_ms(),
        ..Answers::default()
    };
    for kind in [SchedulerKind::Slurm] {
        let listed = list_jobs(places).into_iter().chain(by_hand.iter().cloned());
        let of_kind = listed.filter(|job| job.request.engine == kind);
        let (mut asked, mut ids) = (Vec::new(), Vec::new());
        let of_kind = of_kind.map(|job| job.with_id(context));
        for job in of_kind
            .collect::<Result<Vec<_>>>()?
            .iter()
            .flat_map(KnownJob::scheduled_jobs)
        {
            let known = find_kept(&job);
            if let Some(known) = known.filter(|known| known.is_final)
                && job.submitted.id.is_some()
            {
                answers.jobs.insert(job.request.token, known.clone());
            } else if job.own_report().is_none() {
                match job.scheduler_id() {
                    Some(id) => {
                        asked.push(job);
                        ids.push(id);
                    }
                    None => {
                        let report = match job.is_by_hand() {
                            true => JobReport::not_handed_over(&job.dir),
                            false => JobReport::unanswered(),
                        };
                        answers.jobs.insert(job.request.token, report);
                    }
                }
            }
        }
        if ids.is_empty() {
            continue;
        }
        let scheduler = scheduler_of(kind, context);
        let states = scheduler.states(&ids)?;
        for (job, status) in asked.into_iter().zip(states) {
            let report = report_of(&status, &job, scheduler.as_ref());
            answers.jobs.insert(job.request.token, report);
        }
    }
    let mut write = || {
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(&serde_json::to_vec(&answers).expect("plain data is JSON"))
    };
    write().map_err(|source| AppError::File {
        action: FileAction::Write,
        path,
        source,
    })?;
    Ok(answers)
}

/// The file, which is this process's until it is closed. Where a file system has no locks, several may ask.
fn open_answers(path: &Path) -> Result<File> {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    let file = options.open(path).map_err(|source| AppError::File {
        action: FileAction::Open,
        path: path.to_owned(),
        source,
    })?;
    let _ = flock(&file, FlockOperation::LockExclusive);
    Ok(file)
}

/// As [`query_jobs`]; where the scheduler does not answer, what the jobs' own files say, and why no more.
pub fn query_jobs_despite_silence(
    jobs: &[KnownJob],
    places: &SconceDirs,
    context: &AppContext,
) -> Result<(Vec<JobReport>, Option<Failure>)> {
    let silent = match query_jobs(jobs, places, context) {
        Ok(reports) => return Ok((reports, None)),
        Err(failure) if failure.exit_code() == exit::FETCH => failure,
        Err(failure) => return Err(failure),
    };
    let unknown = JobReport {
        state: UNANSWERED.to_owned(),
        reason: Some("its scheduler does not answer".to_owned()),
        ..JobReport::waiting()
    };
    let known = KnownReports::read(jobs);
    let reports = jobs.iter().map(|job| known.of_job(job, &unknown));
    Ok((reports.collect(), Some(silent)))
}

/// Waits until a job has ended, and gives how. Its own files are looked at often, the scheduler is asked seldom; one that
/// does not answer for a while is said, and asked again.
///
/// # Errors
/// The scheduler cannot be asked.
pub fn until_job_ended(
    job: &KnownJob,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<JobReport> {
    const LOOK_INTERVAL: Duration = Duration::from_millis(500);
    let mut is_silent = false;
    loop {
        let job = std::slice::from_ref(job);
        let (reports, silent) = query_jobs_despite_silence(job, places, context)?;
        if let Some(report) = reports.into_iter().next().filter(|report| report.is_final) {
            return Ok(report);
        }
        if let Some(failure) = &silent
            && !is_silent
        {
            context.report(&AppEvent::JobRemark(&failure.message()));
        }
        is_silent = silent.is_some();
        let pause = match is_silent {
            true => places.config.ask_interval(),
            false => LOOK_INTERVAL,
        };
        std::thread::sleep(pause);
    }
}

#[cfg(test)]
mod tests {
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
        };
        let text = serde_json::to_string_pretty(&answers).unwrap() + "\n";
        crate::golden::goldens().assert_same("job-answers.json", &text);
    }
}
