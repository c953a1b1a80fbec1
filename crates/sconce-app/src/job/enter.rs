//! A command inside a job that is running, in the container of one of its tasks.

use std::path::Path;

use sconce_schema::job::JobLayout;
use sconce_schema::spec::LaunchMode;
use sconce_schema::{Hint, exit};
use sconce_submit::{JobStep, SchedulerJobId};

use super::allocated_run::run_step;
use super::lookup::{JobLookupError, KnownJob};
use super::program::keep_program;
use super::task_run::TaskRun;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::Result;

/// Why nothing can be started inside a job.
#[derive(Debug, thiserror::Error)]
pub enum EnterJobError {
    /// Its task has not begun, or its node has not said so yet.
    #[error("rank {rank} of job {job} has not begun")]
    NotBegun {
        /// The job.
        job: String,
        /// The rank.
        rank: u32,
    },
    /// Its task has ended.
    #[error("rank {rank} of job {job} has ended")]
    Ended {
        /// The job.
        job: String,
        /// The rank.
        rank: u32,
    },
    /// The job has fewer.
    #[error("job {job} has no rank {rank}: it has {}", list_ranks(*.ranks))]
    NoRank {
        /// The job.
        job: String,
        /// The rank.
        rank: u32,
        /// How many it has.
        ranks: u32,
    },
}

fn list_ranks(ranks: u32) -> String {
    match ranks {
        0 | 1 => "0 alone".to_owned(),
        ranks => format!("0 to {}", ranks - 1),
    }
}

impl Hint for EnterJobError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NotBegun { .. } => "`sconce ps` says what it waits for".to_owned(),
            Self::Ended { job, .. } => format!("`sconce logs {job}` has what it printed"),
            Self::NoRank { .. } => return None,
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Runs `sconce exec` with `args` on the node of a rank, for the run of its task: the first rank where none is named.
/// Gives its exit code.
///
/// # Errors
/// The job has no such rank, it does not run, or the scheduler does not start it.
pub fn exec_in_job(
    job: &KnownJob,
    rank: Option<u32>,
    args: &[String],
    has_terminal: bool,
    places: &SconceDirs,
    context: &AppContext,
) -> Result<u8> {
    let token = job.request.token.clone();
    if job.request.array.is_some() {
        return Err(JobLookupError::Array(token).into());
    }
    let rank = rank.unwrap_or(0);
    let task = find_task_of_rank(job, rank)?;
    let mut tasks = job.dir.read_tasks();
    let task = tasks.remove(&task).filter(|task| task.run.is_some());
    let own_id = |task: &TaskRun| SchedulerJobId::parse(task.scheduler_job.as_deref()?);
    let id = task
        .as_ref()
        .and_then(own_id)
        .or_else(|| job.scheduler_id());
    let (Some(task), Some(id)) = (task, id) else {
        return Err(EnterJobError::NotBegun { job: token, rank }.into());
    };
    if task.exit.is_some() {
        return Err(EnterJobError::Ended { job: token, rank }.into());
    }
    let program = keep_program(places)?.to_string_lossy().into_owned();
    let mut command = vec![program, "exec".to_owned()];
    command.extend(task.run);
    command.extend(args.iter().cloned());
    let step = JobStep {
        job: &id,
        nodes: 1,
        tasks_per_node: 1,
        cpus_per_task: Some(1),
        node: Some(&task.node),
        has_terminal,
        work_dir: Path::new("/"),
        options: &[],
        command: &command,
    };
    run_step(&step, &job.request.directories, context)
}

/// The number of the task that a rank of a job is of: under torchrun one task has all of its node.
///
/// # Errors
/// The job has no such rank.
pub fn find_task_of_rank(job: &KnownJob, rank: u32) -> Result<u32, EnterJobError> {
    let layout = &job.request.layout;
    task_of_rank(layout, rank).ok_or_else(|| EnterJobError::NoRank {
        job: job.request.token.clone(),
        rank,
        ranks: count_ranks(layout),
    })
}

fn count_ranks(layout: &JobLayout) -> u32 {
    layout.nodes * layout.node_ranks()
}

/// The task that a rank is of: one of torchrun's has all of its node, and a command that starts its own ranks too.
fn task_of_rank(layout: &JobLayout, rank: u32) -> Option<u32> {
    let task = match layout.launch {
        LaunchMode::Torchrun => rank / layout.node_ranks(),
        LaunchMode::TaskPerGpu | LaunchMode::Node => rank,
    };
    (rank < count_ranks(layout)).then_some(task)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_of_a_task() {
        let task = |launch, rank| {
            let layout = JobLayout {
                nodes: 2,
                gpus_per_node: Some(4),
                ranks_per_node: None,
                launch,
            };
            task_of_rank(&layout, rank)
        };
        assert_eq!(
            [0, 3, 4, 7].map(|rank| task(LaunchMode::Torchrun, rank)),
            [0, 0, 1, 1].map(Some)
        );
        assert_eq!(task(LaunchMode::Torchrun, 8), None);
        assert_eq!(task(LaunchMode::TaskPerGpu, 7), Some(7));
        assert_eq!(
            [0, 1, 2].map(|rank| task(LaunchMode::Node, rank)),
            [Some(0), Some(1), None]
        );
    }
}
