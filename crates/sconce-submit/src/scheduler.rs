//! The seam: what every scheduler does for Sconce, and what it is given.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use sconce_schema::job::{JobArray, JobLayout};
use sconce_schema::request::Mount;
use sconce_schema::spec::TargetSpec;
use sconce_schema::units::Bytes;

use crate::dependency::JobDependency;
use crate::error::SubmitError;
use crate::job_id::SchedulerJobId;
use crate::status::{JobQueue, JobStatus, QueuedJob, StepFault, StepLog};

/// A scheduler that jobs are handed to.
pub trait Scheduler {
    /// Renders what is handed over, whole, as a person may read it, keep it and run it by hand.
    ///
    /// # Errors
    /// A value cannot stand in a script, or an option of the target contradicts what Sconce says itself.
    fn render(&self, job: &JobScript<'_>) -> Result<String, SubmitError>;

    /// Renders one script of shell that hands both over by hand: what makes a job's environment, and the job, which waits
    /// for it and for `after`. Each script stands in it whole.
    ///
    /// # Errors
    /// A script cannot stand in another one.
    fn render_both(
        &self,
        preparation: &str,
        job: &str,
        after: &[JobDependency],
    ) -> Result<String, SubmitError>;

    /// Hands a rendered script over, once. It waits for `after`, where there are some, in the place of the jobs that the
    /// script names. Where no answer comes, the job is looked for by its token before this
    /// returns: what was taken is found, and nothing is handed over a second time. A controller may take a job long
    /// after whoever handed it over was ended (Slurm 22.05, tried).
    ///
    /// # Errors
    /// The scheduler refused it, or it cannot be reached. After [`SubmitError::Unanswered`] the job may be there all
    /// the same: whoever tries again does so by [`Scheduler::submit_unless_found`].
    fn submit(
        &self,
        script: &str,
        token: &str,
        after: &[JobDependency],
    ) -> Result<SchedulerJobId, SubmitError>;

    /// Looks for the job with this token, among those that wait and run and, where the scheduler keeps them, those
    /// that ended.
    ///
    /// # Errors
    /// The scheduler cannot be asked, or its answer is none: that is no "no".
    fn find(&self, token: &str) -> Result<Option<SchedulerJobId>, SubmitError>;

    /// Lists the user's jobs that wait, run, or ended a short time ago, by one question for all of them.
    ///
    /// # Errors
    /// The scheduler cannot be asked.
    fn list_queue(&self) -> Result<JobQueue, SubmitError>;

    /// Asks how jobs ended that are not in the queue any more. The answers come in the order of `jobs`, one each; one
    /// that nobody knows is [`JobState::Forgotten`](crate::JobState).
    ///
    /// # Errors
    /// What keeps this does not answer, or takes too long.
    fn past_states(&self, jobs: &[SchedulerJobId]) -> Result<Vec<JobStatus>, SubmitError>;

    /// Asks for the states of jobs, by one question for all of them, and another for those that are not in the queue.
    /// The answers come in the order of `jobs`, one each.
    ///
    /// # Errors
    /// The scheduler cannot be asked. A job that it no longer knows is [`JobState::Forgotten`](crate::JobState), one of which it cannot
    /// say it now [`JobState::Unknown`](crate::JobState).
    fn states(&self, jobs: &[SchedulerJobId]) -> Result<Vec<JobStatus>, SubmitError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let mut known = self.list_queue()?;
        let missing = jobs.iter().filter(|job| known.status(job).is_none());
        let mut missing: Vec<SchedulerJobId> = missing.cloned().collect();
        missing.sort_unstable();
        missing.dedup();
        if !missing.is_empty() {
            let past = self.past_states(&missing).unwrap_or_else(|error| {
                // It may say more when it is asked again: nothing is forgotten yet.
                tracing::info!(%error, "the accounting cannot be read");
                let why = error.to_string();
                let unanswered = |job: SchedulerJobId| JobStatus::unanswered(job, &why);
                missing.into_iter().map(unanswered).collect()
            });
            let past = past.into_iter();
            known.0.extend(past.map(|status| QueuedJob {
                status,
                token: None,
            }));
        }
        let status = |job: &SchedulerJobId| {
            let known = known.status(job).cloned();
            known.unwrap_or_else(|| JobStatus::forgotten(job.clone()))
        };
        Ok(jobs.iter().map(status).collect())
    }

    /// Ends a job, or takes it from the queue. One that has ended already is no error.
    ///
    /// # Errors
    /// The scheduler cannot be asked, or it is somebody else's job.
    fn cancel(&self, job: &SchedulerJobId) -> Result<(), SubmitError>;

    /// The architectures of nodes that a job of `target` may be started on, as the kernel names them (`x86_64`); none
    /// where the scheduler does not say.
    ///
    /// # Errors
    /// The scheduler cannot be asked.
    fn architectures(&self, target: &TargetSpec) -> Result<BTreeSet<String>, SubmitError>;

    /// The words of a command that starts `step` within a job that is running, in the foreground of whoever runs it.
    ///
    /// # Errors
    /// A value cannot be an argument, or an option of the target contradicts what Sconce says itself.
    fn render_step(&self, step: &JobStep<'_>) -> Result<Vec<String>, SubmitError>;

    /// Finds what went wrong with a job in its logs, where the scheduler wrote that there; `None` where it did not.
    fn find_step_fault(&self, logs: &[StepLog]) -> Option<StepFault>;

    /// Hands a script over unless there is a job with this token: for a second try.
    ///
    /// # Errors
    /// As of [`Scheduler::find`] and [`Scheduler::submit`].
    fn submit_unless_found(
        &self,
        script: &str,
        token: &str,
        after: &[JobDependency],
    ) -> Result<SchedulerJobId, SubmitError> {
        match self.find(token)? {
            Some(job) => Ok(job),
            None => self.submit(script, token, after),
        }
    }
}

/// A container of the scheduler's own.
#[derive(Debug, Clone, Copy)]
pub enum StepContainer<'a> {
    /// An OCI bundle's directory, which the site's OCI runtime starts.
    Bundle(&'a Path),
    /// A squashfs file, which enroot starts by pyxis.
    Squashfs {
        /// The file.
        image: &'a Path,
        /// What of the machine is in it, in their order.
        mounts: &'a [Mount],
    },
}

/// What a script starts Sconce for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWork {
    /// Its part of the job, on every node.
    Run,
    /// The environment of the job, before it begins.
    Preparation,
}

/// What a script is made of. It holds no variables: what a job's processes get travels in the job's directory.
#[derive(Debug, Clone, Copy)]
pub struct JobScript<'a> {
    /// The name that queues show; one line.
    pub name: &'a str,
    /// Unique in the world: letters, digits, `-`, `_` and `.`.
    pub token: &'a str,
    /// What its processes do.
    pub work: NodeWork,
    /// Nodes, cards, and who starts the ranks.
    pub layout: JobLayout,
    /// Its elements, where it is an array.
    pub array: Option<&'a JobArray>,
    /// CPUs of each process that the scheduler starts, where that is known.
    pub cpus_per_task: Option<u32>,
    /// Memory of each node, where that is known.
    pub memory_per_node: Option<Bytes>,
    /// The longest that it may take, where that is known.
    pub time_limit: Option<Duration>,
    /// Jobs that have to end before it starts; where one ends otherwise than it has to, it is taken from the queue.
    pub after: &'a [JobDependency],
    /// Whether it waits for a preparation beside, which is handed over just before it and has no id yet.
    pub is_prepared: bool,
    /// Whether limits of the process that hands it over (setrlimit(2)) stay there: schedulers give them to jobs, and
    /// where they end long work they would end the job.
    pub leaves_limits: bool,
    /// This program as nodes find it; absolute.
    pub program: &'a Path,
    /// The job's directory, which nodes see; absolute. The scheduler's own log goes there.
    pub job_dir: &'a Path,
    /// Where the script begins; absolute.
    pub work_dir: &'a Path,
    /// The container that the scheduler starts this program in; absent where it starts none.
    pub container: Option<StepContainer<'a>>,
    /// Where it is handed over.
    pub target: &'a TargetSpec,
}

/// Processes within a job that is running.
#[derive(Debug, Clone, Copy)]
pub struct JobStep<'a> {
    /// The job.
    pub job: &'a SchedulerJobId,
    /// On how many nodes.
    pub nodes: u32,
    /// How many on each.
    pub tasks_per_node: u32,
    /// CPUs of each, where that is known.
    pub cpus_per_task: Option<u32>,
    /// On this node alone; absent where the scheduler chooses.
    pub node: Option<&'a str>,
    /// Whether the one process has the caller's terminal.
    pub has_terminal: bool,
    /// Where it begins; absolute.
    pub work_dir: &'a Path,
    /// Options of the target for it.
    pub options: &'a [String],
    /// What is started.
    pub command: &'a [String],
}
