//! Runs of Sconce's own, which have no record: steps of a build, bytecode.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sconce_host::{HostProfile, Roots};
use sconce_run::{Native, RunObserver, RunOptions};
use sconce_schema::event::ExitStatus;
use sconce_schema::request::{Mount, RunRequest, RunRoot};

use crate::failure::Result;
use crate::run_id::chore_id;
use crate::worker::current_exe;

/// A request for work of Sconce's own in `root`: no network, no limits, no cards.
pub(crate) fn internal_run_request(
    root: RunRoot,
    name: &str,
    command: Vec<String>,
    mounts: Vec<Mount>,
) -> RunRequest {
    RunRequest {
        mounts,
        ..RunRequest::new(chore_id(name), root, command)
    }
}

/// What internal runs differ in, beside their requests.
pub(crate) struct InternalRun<'a> {
    /// Where runs work ([`crate::dirs::SconceDirs`]).
    pub(crate) scratch: &'a Path,
    /// An empty directory that keeps what the run changed.
    pub(crate) keep: Option<PathBuf>,
    /// Whether this process is in a scheduler's job, whose cgroups nobody else makes some in.
    pub(crate) in_job: bool,
    /// How often the observer is called.
    pub(crate) sample_every: Duration,
    /// How long after a first Ctrl-C a second one kills.
    pub(crate) grace: Duration,
}

impl InternalRun<'_> {
    /// Executes a request to its end. What its root stands on is held by the caller.
    pub(crate) fn execute(
        self,
        request: &RunRequest,
        observer: &mut dyn RunObserver,
    ) -> Result<ExitStatus> {
        let host = HostProfile::read(&Roots::default());
        let options = RunOptions {
            program: current_exe()?,
            state_dir: self.scratch.to_owned(),
            shared: None,
            keep: self.keep,
            sample_every: self.sample_every,
            grace: self.grace,
            strict: false,
            host: &host,
            ways_out: Vec::new(),
            environment: None,
            control: None,
            in_job: self.in_job,
            survives_lost_output: false,
            waiting: None,
        };
        Ok(sconce_run::run(request, &Native, &options, observer)?.exit)
    }
}
