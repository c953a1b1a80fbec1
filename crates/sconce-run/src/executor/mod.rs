//! The seam between the supervisor and whatever holds a run's container.
//!
//! ```text
//!              Executor                       Execution
//!  supervise ── check, prepare ──▶ a container ── start, deliver, read_events, end
//! ```
//!
//! An [`Executor`] makes the container of a request, and everything that is known of a run before its
//! command starts is known then. The [`Execution`] that it gives is that one run while it lives. Signals,
//! callers of the control socket, samples and the order of all that are the supervisor's, the same for
//! every executor. A scheduler that starts Sconce on another machine is no executor: there Sconce runs,
//! with one of these.

mod native;

use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

use sconce_host::SampleScope;
use sconce_schema::event::{ExitStatus, OomKill, UnenforcedLimit};
use sconce_schema::request::RunRequest;
use sconce_schema::runtime::RuntimeSummary;

use crate::error::RunError;
use crate::logs::LogWriters;
use crate::output_tail::LostOutput;
use crate::protocol::{InitFailure, ProcessKey, ServiceChange, SupervisorRequest};
use crate::scratch::ScratchDirectory;
use crate::{ResourceUsage, RunObserver, RunOptions};

pub use native::Native;

/// What holds runs: Sconce itself ([`Native`]), a container engine that Sconce starts
/// ([`ContainerEngine`](crate::ContainerEngine)), or Docker's daemon ([`DockerContainer`](crate::docker::DockerContainer)).
pub trait Executor: fmt::Debug {
    /// The program that starts the command in Sconce's place, as a record names it; absent where that is
    /// Sconce.
    fn summary(&self) -> Option<RuntimeSummary>;

    /// Whether mounted files show their owner as the run's user. A daemon shows them as they are, so that
    /// the run may not be able to write there.
    fn maps_owners(&self) -> bool {
        true
    }

    /// Whether there can be a folder of [`RunOptions::shared`]. A daemon mounts what has a path on the machine.
    fn shares_memory(&self) -> bool {
        true
    }

    /// Refuses the kinds of runs that it cannot hold, before anything is made for them.
    ///
    /// # Errors
    /// [`RunError::Request`], and what this machine is known not to let anybody do.
    fn check(&self, request: &RunRequest, options: &RunOptions<'_>) -> Result<(), RunError>;

    /// Makes the container. The command does not run yet.
    ///
    /// # Errors
    /// Whatever kept the container from being made; nothing of it is left then.
    fn prepare<'a>(&'a self, job: Job<'a, '_>) -> Result<Box<dyn Execution + 'a>, RunError>;
}

/// A run that an executor is to hold.
pub struct Job<'a, 'p> {
    pub(crate) request: &'a RunRequest,
    pub(crate) options: &'a RunOptions<'a>,
    /// The folder of this run alone, which is gone when the run has ended.
    pub(crate) scratch: &'p mut ScratchDirectory,
    /// Where output goes that the caller does not get.
    pub(crate) logs: &'p mut LogWriters,
}

/// A run that an executor holds. Dropped, it leaves no process behind.
pub trait Execution {
    /// Waits until the container is ready, and gives what of the request does not hold in it.
    ///
    /// # Errors
    /// Whatever keeps the command from running.
    fn wait_until_prepared(
        &mut self,
        watcher: &mut dyn RunObserver,
    ) -> Result<Vec<UnenforcedLimit>, RunError>;

    /// Starts the command, and gives what is known of it by then.
    ///
    /// # Errors
    /// Whatever keeps the command from running.
    fn start(&mut self) -> Result<Vec<RunEvent>, RunError>;

    /// Readable when [`Execution::read_events`] has something to read; absent before the run is started.
    fn event_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Reads what happened, in its order. Blocks unless [`Execution::event_fd`] is readable.
    ///
    /// # Errors
    /// The run cannot be watched any more, or never began.
    fn read_events(&mut self) -> Result<Vec<RunEvent>, RunError>;

    /// Passes on what a caller or a signal asks of the run. What an executor has no way to do is
    /// refused beforehand, where the caller is answered.
    ///
    /// # Errors
    /// There is nobody left to pass it on to.
    fn deliver(&mut self, order: &SupervisorRequest, fds: &[BorrowedFd<'_>]) -> io::Result<()>;

    /// Tells the command's terminal the size of the caller's.
    fn copy_terminal_size(&self) {}

    /// Whether the command gets the signals of the caller's terminal from the terminal itself.
    fn is_in_foreground(&self) -> bool;

    /// When [`Execution::pass_deadline`] is to be called.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Does what was put off until the deadline.
    fn pass_deadline(&mut self) {}

    /// Waits until every process is gone, and removes what was made for the run; kills where the run
    /// `has_failed`. Gives the folders that could not be removed.
    fn end(&mut self, has_failed: bool) -> Vec<PathBuf>;
}

/// What happens to a run.
#[derive(Debug)]
pub enum RunEvent {
    /// The command is executed, or there are services alone; what to read samples of.
    Started(SampleScope),
    /// It goes on without its caller from here.
    Detached,
    /// More of the request does not hold than was known before.
    NotEnforced(UnenforcedLimit),
    /// A service has changed.
    ServiceChanged(ServiceChange),
    /// A service's program, or a command that was asked for, cannot be executed.
    CannotStart(ProcessKey, InitFailure),
    /// A command that was asked for was started, with its terminal if it was to have one.
    CommandStarted(u64, Vec<OwnedFd>),
    /// It has ended.
    CommandEnded(u64, ExitStatus),
    /// The run has ended. Its cgroups are still there.
    Ended(RunEnd),
}

/// How a run ended.
#[derive(Debug)]
pub struct RunEnd {
    pub(crate) exit: ExitStatus,
    pub(crate) out_of_memory: Option<OomKill>,
    /// Absent where the executor does not say.
    pub(crate) used: Option<ResourceUsage>,
    /// The end of what the command wrote, as far as Sconce carried it.
    pub(crate) last_output: Vec<u8>,
    /// What of it nobody took.
    pub(crate) lost_output: Option<LostOutput>,
}
