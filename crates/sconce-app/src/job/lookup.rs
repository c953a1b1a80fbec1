//! Jobs that were handed over: found by what a person calls them, and what their own files say of them. Their scheduler
//! is asked in [`query`](super::query).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sconce_schema::job::JobRequest;
use sconce_schema::{Hint, exit};
use sconce_submit::{JobQueue, JobState, SchedulerJobId};

use super::fault::JobFault;
use super::job_dir::{JobDir, SubmittedJob};
pub use super::job_report::JobReport;
use super::job_report::{describe_exit, report_of_preparation};
use super::schedulers::scheduler_of;
use super::submit::preparation_layout;
use super::task_run::{TaskRun, first_exit, first_failed, first_fault};
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;
use crate::project::find_spec_above;

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
    /// It has no such element.
    #[error("job {job} has no element {index}{}", describe_elements(.known))]
    NoElement {
        /// The job.
        job: String,
        /// The element's index.
        index: u32,
        /// Those that it has; none where it is no array.
        known: Vec<u32>,
    },
    /// It has no such task.
    #[error("job {job} has no task {number}: {known}")]
    NoTask {
        /// The job.
        job: String,
        /// The task's number.
        number: u32,
        /// Those that it has.
        known: String,
    },
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
        "how job {0} ended is not known: it is not in its scheduler's queue any more, no accounting says it, and its nodes did not"
    )]
    Forgotten(String),
}

/// What there is in the place of an element that is not.
fn describe_elements(known: &[u32]) -> String {
    match known.is_empty() {
        true => ": it is no array".to_owned(),
        false => format!(": it has {}", list_numbers(known)),
    }
}

/// Numbers in their order, runs of them by their ends: `0, 1, 3 to 7`.
fn list_numbers(numbers: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *number == last.wrapping_add(1) => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let words = ranges.into_iter().map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first} to {last}"),
    });
    words.collect::<Vec<_>>().join(", ")
}

impl Hint for JobLookupError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Several(_) => "name one of them, or enough of the beginning".to_owned(),
            Self::NoElement { .. } | Self::NoTask { .. } => return None,
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

/// The job that is called `which`: its token, the beginning of it, or what its scheduler calls it (`4711`, `4711_3`);
/// `None` where there is none. One of a dry run that has not begun is found by its whole token alone.
///
/// # Errors
/// Several are, or it has no such element.
pub fn find_job(places: &SconceDirs, which: &str) -> Result<Option<KnownJob>> {
    if which.is_empty() || which.contains('/') {
        return Ok(None);
    }
    let dir = JobDir::of(places, which);
    if let Some(job) = open_job(dir.clone()).or_else(|| open_by_hand(dir)) {
        return Ok(Some(job));
    }
    // `TOKEN_3`, or `beginning_3`.
    let mut without_element = None;
    if let Some((name, index)) = which.rsplit_once('_')
        && let Ok(index) = index.parse()
        && let Some(job) = find_job(places, name)?
    {
        match job.element(index) {
            Some(element) => return Ok(Some(element)),
            None if job.is_called(name) => without_element = Some((job, index)),
            // The beginning of a token says nothing of `net_3`, which may be a run.
            None => {}
        }
    }
    let all = list_jobs(places);
    let only = |jobs: Vec<KnownJob>| match jobs.len() {
        0 | 1 => Ok(jobs.into_iter().next()),
        _ => {
            let tokens = jobs.into_iter().map(|job| job.request.token);
            Err(JobLookupError::Several(tokens.collect()))
        }
    };
    let of_scheduler = |job: &&KnownJob| job.submitted.id.as_deref() == Some(which);
    let by_id: Vec<KnownJob> = all.iter().filter(of_scheduler).cloned().collect();
    let begins = |job: &KnownJob| job.request.token.starts_with(which);
    if let Some(job) = only(all.into_iter().filter(begins).collect())? {
        return Ok(Some(job));
    }
    if let Some(job) = only(by_id)? {
        return Ok(Some(job));
    }
    match without_element {
        None => Ok(None),
        Some((job, index)) => Err(JobLookupError::NoElement {
            index,
            known: job.request.array.map_or(Vec::new(), |array| array.indices),
            job: job.request.token,
        }
        .into()),
    }
}

/// The jobs of the project that a directory is in, newest first.
pub fn list_jobs_of_dir(places: &SconceDirs, dir: &Path) -> Vec<KnownJob> {
    let above = find_spec_above(dir);
    let project = above.as_deref().and_then(Path::parent).unwrap_or(dir);
    let is_here = |job: &KnownJob| job.request.spec.parent() == Some(project);
    list_jobs(places).into_iter().filter(is_here).collect()
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

    /// As its files are now: what its scheduler calls it may have been found since.
    #[must_use]
    pub fn read_again(self) -> Self {
        match self.dir.read_submitted() {
            Ok(Some(submitted)) if self.submitted.id.is_none() && self.dir.is_whole() => {
                Self { submitted, ..self }
            }
            _ => self,
        }
    }

    /// What its scheduler may be asked for: its elements, and what makes its environment.
    pub(super) fn scheduled_jobs(&self) -> Vec<Self> {
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

    /// Whether this is its whole name, its own or its scheduler's.
    fn is_called(&self, name: &str) -> bool {
        self.request.token == name || self.submitted.id.as_deref() == Some(name)
    }

    /// Refuses a task that it does not have.
    ///
    /// # Errors
    /// [`JobLookupError::NoTask`].
    pub fn check_task(&self, task: u32) -> Result<(), JobLookupError> {
        let layout = &self.request.layout;
        let tasks = layout.nodes * layout.tasks_per_node();
        if task < tasks {
            return Ok(());
        }
        let of_each = match self.request.array {
            Some(_) => "each of its elements has",
            None => "it has",
        };
        Err(JobLookupError::NoTask {
            job: self.request.token.clone(),
            number: task,
            known: format!(
                "{of_each} {}",
                list_numbers(&(0..tasks).collect::<Vec<_>>())
            ),
        })
    }

    /// What its scheduler calls it, once that is known.
    pub(super) fn scheduler_id(&self) -> Option<SchedulerJobId> {
        SchedulerJobId::parse(self.submitted.id.as_deref()?)
    }

    /// As it is once its scheduler has been asked for a job to which it gave no answer. What has left the queue has ended.
    fn with_id(self, context: &AppContext) -> Result<Self> {
        let lacks_preparation =
            self.request.preparation.is_some() && self.submitted.preparation.is_none();
        if self.submitted.id.is_some() && !lacks_preparation {
            return Ok(self);
        }
        let queue = scheduler_of(self.request.engine, context).list_queue()?;
        match self.dir.index() {
            None => self.found_in(&queue),
            // The scheduler knows all elements by the token of the whole.
            Some(index) => {
                let whole = open_job_as(JobDir::at(self.dir.path()), self.submitted.clone());
                let whole = whole.map(|whole| whole.found_in(&queue)).transpose()?;
                Ok(whole.and_then(|whole| whole.element(index)).unwrap_or(self))
            }
        }
    }

    /// With the ids that its scheduler did not answer, where they are in the queue by its token.
    pub(super) fn found_in(mut self, queue: &JobQueue) -> Result<Self> {
        let (known, preparation) = (self.submitted.clone(), self.preparation());
        let find = |token: &str| queue.find(token).map(|id| id.to_string());
        if known.id.is_none() {
            self.submitted.id = find(&self.request.token);
        }
        if let Some(preparation) = preparation.filter(|_| known.preparation.is_none()) {
            self.submitted.preparation = find(&preparation.request.token);
        }
        if self.submitted != known {
            self.dir.write_submitted(&self.submitted)?;
        }
        Ok(self)
    }

    /// The whole of it, where a dry run printed its script and nobody has said that it was handed over.
    pub(super) fn whole_by_hand(&self) -> Option<Self> {
        match self.dir.read_submitted() {
            Ok(None) => open_by_hand(JobDir::at(self.dir.path())),
            _ => None,
        }
    }

    /// Whether it is its owner who hands it over.
    pub(super) fn is_by_hand(&self) -> bool {
        matches!(self.dir.read_by_hand(), Ok(Some(_)))
    }

    /// How it ended, by its own files: every task has said so.
    pub(super) fn own_report(&self) -> Option<JobReport> {
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
            reason: match fault {
                Some(fault) => Some(fault.why.clone()),
                None => (exit != exit::OK).then(|| describe_exit(exit)),
            },
            hint: fault.and_then(|fault| fault.hint.clone()),
            nodes: None,
            is_final: true,
            exit: Some(exit),
        })
    }

    /// That it has begun, by its own files: a task has said so, and not how it ended.
    pub(super) fn begun_report(&self) -> Option<JobReport> {
        let tasks = self.dir.read_tasks();
        let goes_on = tasks.values().any(|task| task.exit.is_none());
        goes_on.then(|| JobReport {
            state: JobState::Running.name().to_owned(),
            ..JobReport::waiting()
        })
    }

    /// Whether its tasks failed by themselves, as far as they said so: nobody ended the one that failed first.
    pub(super) fn has_failed_itself(&self) -> bool {
        let tasks = self.dir.read_tasks();
        first_failed(&tasks).is_some_and(|task| task.exit != Some(exit::OK) && !task.was_ended())
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
