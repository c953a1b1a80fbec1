//! The schedulers that there are, each behind the same seam.

use sconce_schema::spec::SchedulerKind;
use sconce_submit::{DEFAULT_COMMAND_TIMEOUT, Scheduler, SlurmScheduler, SlurmSettings};

use crate::context::AppContext;

/// The programs of a scheduler, as this user calls them.
pub(super) fn scheduler_of(kind: SchedulerKind, context: &AppContext) -> Box<dyn Scheduler> {
    match kind {
        SchedulerKind::Slurm => Box::new(SlurmScheduler::new(SlurmSettings {
            env: context.env.clone(),
            user_id: rustix::process::geteuid().as_raw(),
            command_timeout: DEFAULT_COMMAND_TIMEOUT,
        })),
    }
}
