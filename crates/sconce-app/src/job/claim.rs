//! One start of a job at a time: its files are those of one start, whoever else the scheduler starts.
//!
//! A scheduler may take a job long after whoever handed it over was told nothing, and people run scripts of dry runs
//! more than once.

use std::path::PathBuf;

use sconce_schema::job::JobRequest;
use sconce_schema::{Hint, exit};
use sconce_submit::SchedulerJobId;

use super::job_dir::JobDir;
use super::schedulers::scheduler_of;
use crate::context::AppContext;
use crate::failure::Result;

/// Another start of the job has its files.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClaimError {
    /// It goes on.
    #[error("job {token} runs already, as {engine} {owner}")]
    Runs {
        token: String,
        engine: &'static str,
        owner: String,
    },
    /// It may go on.
    #[error(
        "job {token} was started as {engine} {owner}, and whether that goes on is not known: {why}"
    )]
    NotKnown {
        token: String,
        engine: &'static str,
        owner: String,
        /// What kept the scheduler from saying so.
        why: String,
        /// The file that says who has the others.
        claim: PathBuf,
    },
}

impl Hint for ClaimError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Runs { .. } => "each `sconce submit` makes a job of its own".to_owned(),
            Self::NotKnown { claim, .. } => {
                format!(
                    "where it has ended, remove {} and start this one again",
                    claim.display()
                )
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// Takes the job's files for the start that its scheduler calls `id`.
///
/// # Errors
/// Another start has them and goes on, or the scheduler does not say how that is.
pub(super) fn claim_job(
    dir: &JobDir,
    job: &JobRequest,
    id: &SchedulerJobId,
    context: &AppContext,
) -> Result<()> {
    let Some(owner) = dir.claim(id.as_str())? else {
        return Ok(());
    };
    let tasks = dir.read_tasks();
    let has_ended = !tasks.is_empty() && tasks.values().all(|task| task.exit.is_some());
    let owner_id = SchedulerJobId::parse(&owner);
    let (token, engine) = (job.token.clone(), job.engine.name());
    // Nodes need not have the scheduler's programs: it is asked only where a start left no word of its end.
    let states = match owner_id.filter(|_| !has_ended) {
        Some(owner) => scheduler_of(job.engine, context).states(&[owner]),
        None => Ok(Vec::new()),
    };
    match states {
        Ok(states) if states.iter().all(|status| status.state.is_final()) => {
            tracing::info!(owner, %id, "the job is started again");
            dir.take_over(id.as_str())
        }
        Ok(_) => Err(ClaimError::Runs {
            token,
            engine,
            owner,
        }
        .into()),
        Err(error) => Err(ClaimError::NotKnown {
            token,
            engine,
            owner,
            why: error.to_string(),
            claim: dir.claim_file(),
        }
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_it_is_said() {
        let error = ClaimError::Runs {
            token: "demo-1".into(),
            engine: "slurm",
            owner: "4711".into(),
        };
        assert_eq!(error.to_string(), "job demo-1 runs already, as slurm 4711");
        assert_eq!(error.exit_code(), exit::BAD_INPUT);
        let error = ClaimError::NotKnown {
            token: "demo-1".into(),
            engine: "slurm",
            owner: "4711".into(),
            why: "squeue is not in PATH".into(),
            claim: "/jobs/demo-1/claim".into(),
        };
        assert!(
            error
                .hint()
                .is_some_and(|hint| hint.contains("/jobs/demo-1/claim"))
        );
    }
}
