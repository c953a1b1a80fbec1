//! Jobs handed to a cluster's scheduler: the script that is handed over, the hand-over itself, and what became of it.
//!
//! ```text
//!  JobScript ──render──▶ script ──submit──▶ SchedulerJobId ──states──▶ JobStatus
//! ```
//!
//! [`Scheduler`] is the seam, [`SlurmScheduler`] stands behind it for Slurm. Nothing here prints or reads variables and
//! flags of the process: programs, variables and times are given.
#![forbid(unsafe_code)]

mod dependency;
mod error;
mod job_id;
mod scheduler;
mod slurm;
mod status;

pub use dependency::{DependencyKind, JobDependency};
pub use error::{RejectionCause, SubmitError};
pub use job_id::SchedulerJobId;
pub use scheduler::{JobScript, JobStep, NodeWork, Scheduler, StepContainer};
pub use slurm::node_list::{MAX_NODES, NodeListError, expand_node_list};
pub use slurm::script::{ARRAY_DIR, LOG_NAME, PREPARATION_DIR};
pub use slurm::state::{JobRow, parse_sacct, parse_squeue};
pub use slurm::{DEFAULT_COMMAND_TIMEOUT, SlurmScheduler, SlurmSettings, find_oci_conf};
pub use status::{
    JobExit, JobQueue, JobState, JobStatus, QueuedJob, StateReason, StepFault, StepLog,
};
