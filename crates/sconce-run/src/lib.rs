//! An image and a run request to a contained process tree and its events.
//!
//! ```text
//!  run() ── clone ──▶ init (Sconce again, sealed) ── fork ──▶ command
//!    │   plan ──▶       mounts, pivot_root                     own user, no capabilities,
//!    │   ◀── prepared   reaps, passes signals on               no_new_privs, seccomp, cgroup
//!    │   go ──▶         ends everything when the command ends
//!    └ cgroups, terminal, ports, samples, the end
//! ```
//!
//! So it is where Sconce holds the container itself ([`Native`]). Whatever else holds it is another
//! [`Executor`], under the same supervisor.
//!
//! As root there is no user namespace: the command becomes uid 1000, and mounted folders show
//! their owner as that user ([`idmap`]). As a plain user everything happens in a user namespace
//! in which the caller is uid 1000 (or 0, for a run as root inside).

mod capabilities;
mod cgroup;
mod container_support;
pub mod control;
mod control_server;
mod descriptor;
pub mod docker;
mod engine;
mod error;
mod etc_files;
mod executor;
mod foreground;
#[cfg(test)]
mod golden;
mod idmap;
mod init;
mod init_config;
mod launch;
pub mod logs;
mod output_tail;
mod ports;
mod prepare;
mod protocol;
mod pty;
mod rlimits;
mod scratch;
mod seccomp;
mod supervise;
mod sys;
mod tun_access;
mod usernet;

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use sconce_base::Env;
use sconce_host::{HostProfile, SampleScope};
use sconce_schema::RunRequest;
use sconce_schema::event::{ExitStatus, OomKill, ServiceEvent, UnenforcedLimit};
use sconce_schema::units::Bytes;
use serde::{Deserialize, Serialize};

pub use container_support::{ContainerObstacle, check_container_support};
pub use control::ControlOptions;
pub use descriptor::duplicate_inherited_fd;
pub use docker::{DockerClient, DockerContainer};
pub use engine::ContainerEngine;
pub use error::{InvalidRequest, RunError};
pub use etc_files::is_machinery;
pub use executor::{Executor, Native};
pub use foreground::run_in_foreground;
pub use init_config::RestartBackoff;
pub use output_tail::LostOutput;
pub use prepare::is_machine_root;
pub use usernet::HELPERS as WAYS_OUT;

/// The host name inside of a run whose writable layer is kept.
pub const KEPT_NAME: &str = "build";

/// How a run is to be held, beside what it is.
#[derive(Debug, Clone)]
pub struct RunOptions<'a> {
    /// The program that calls [`init_main`] first of all: this one, as `current_exe` names it.
    pub program: PathBuf,
    /// Folder for the writable layers of runs, one below it for each; emptied at their end. On a
    /// file system that cannot be overlayfs's upper layer, they are held in memory, which is said.
    pub state_dir: PathBuf,
    /// An empty folder on the state folder's file system, which becomes the run's writable layer
    /// when the run has ended: overlayfs's upper layer as the kernel leaves it, with what
    /// [`is_machinery`] names in it. Absent: the layer is thrown away. A layer in memory cannot be
    /// kept, so that a disk that cannot hold one is an error; and inside the host name is
    /// [`KEPT_NAME`], so that what is written does not tell which run wrote it. Without a container
    /// there is no such layer, and the folder stays empty.
    pub keep: Option<PathBuf>,
    /// Where processes of the run, whoever they are, see a folder that they may write to and that
    /// [`RunObserver::shared`] is given. It lies in memory, which counts as theirs, and goes with the run.
    /// Absent: there is none, and neither is there one without a container or in one of Docker's.
    pub shared: Option<PathBuf>,
    /// Time between two calls of [`RunObserver::tick`].
    pub sample_every: Duration,
    /// How long after a first SIGINT or SIGTERM a second one kills everything.
    pub grace: Duration,
    /// Make a limit that cannot be enforced an error.
    pub strict: bool,
    /// The machine.
    pub host: &'a HostProfile,
    /// Programs of [`WAYS_OUT`] that this machine has, each of which gives a network of its own a way
    /// out: the first that works is taken.
    pub ways_out: Vec<PathBuf>,
    /// The caller's variables, for a run without a container; absent, it has the request's alone.
    pub environment: Option<&'a Env>,
    /// Where it can be spoken to while it goes on, and where what it says is kept; absent for a run
    /// that nobody but its caller has to do with, which then cannot have services.
    pub control: Option<ControlOptions>,
    /// Whether the run is a part of a scheduler's job, which holds it to the job's limits: then it gets no
    /// cgroup of its own, and limits of the request are said not to be enforced.
    pub in_job: bool,
    /// Whether the command goes on where what it writes is not taken, as by a full disk, and what is missing is counted
    /// ([`RunOutcome::lost_output`]). Else its next write fails, as if it had written there itself.
    pub survives_lost_output: bool,
    /// The process that waits until the run has begun: of a run in the background the `sconce` that
    /// was called. Where it sits in the same delegated cgroup, it steps aside into a leaf with this
    /// process, so that the run's own cgroup can be made there.
    pub waiting: Option<u32>,
}

/// Is told how a run goes. Called on the thread that called [`run`].
pub trait RunObserver {
    /// Limits and wishes that this machine cannot honour, before the command starts; not called
    /// when there are none.
    fn unenforced(&mut self, _what: &[UnenforcedLimit]) {}
    /// The folder of [`RunOptions::shared`], before the command starts. What is in it can be read through
    /// this when the run has ended, too.
    fn shared(&mut self, _folder: OwnedFd) {}
    /// What gives the run's own network a way out, by its name in [`WAYS_OUT`]; before the command
    /// starts, and not called where nothing does.
    fn way_out(&mut self, _name: &str) {}
    /// The command is about to be executed. What to read of it: processes are in their cgroups
    /// already.
    fn started(&mut self, _target: &SampleScope) {}
    /// It goes on without its caller from here: its command was executed, or it has services alone.
    /// Not called where the command's output is the caller's.
    fn goes_on(&mut self) {}
    /// A service has changed.
    fn service(&mut self, _what: &ServiceEvent) {}
    /// Time for a reading.
    fn tick(&mut self) {}
    /// Whether the run is to end, asked after each reading: then it gets SIGTERM, and what has not ended within the grace
    /// is killed.
    fn must_end(&self) -> bool {
        false
    }
    /// What the run used, told before [`RunObserver::ended`]; see [`RunOutcome::used`].
    fn used(&mut self, _used: ResourceUsage) {}
    /// How many bytes of the run's logs the disk did not take, told before [`RunObserver::ended`].
    fn logs_lost(&mut self, _bytes: u64) {}
    /// Every process is gone; the cgroups are still there to be read.
    fn ended(&mut self, _exit: ExitStatus, _out_of_memory: Option<OomKill>) {}
}

/// What the processes of a run used, as the kernel counts it for the parent of each (getrusage(2),
/// `RUSAGE_CHILDREN` of the run's first process). Sconce's own processes are not in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUsage {
    /// CPU time in programs, µs.
    pub user_us: u64,
    /// CPU time in the kernel for them, µs.
    pub system_us: u64,
    /// The largest resident set that one process had (not the sum of several).
    pub max_rss: Bytes,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunOutcome {
    /// How the command ended.
    pub exit: ExitStatus,
    /// Whether somebody asked for its end before, by SIGINT or SIGTERM: what it ended with may be its answer.
    pub asked_to_end: bool,
    /// Set when the kernel killed a process of the run for want of memory.
    pub out_of_memory: Option<OomKill>,
    /// What its processes used: all that were ever started in it, however short it was and whether
    /// or not it had a cgroup.
    pub used: Option<ResourceUsage>,
    /// The end of what the command wrote to its terminal, or to its standard error where that is no
    /// terminal, at most 64 KiB. Empty where Sconce does not carry it.
    pub last_output: Vec<u8>,
    /// What of its output was not taken, with [`RunOptions::survives_lost_output`].
    pub lost_output: Option<LostOutput>,
    /// Folders that could not be removed; a later run tries again.
    pub left_behind: Vec<PathBuf>,
}

/// Runs a request in whatever `executor` makes for it, and returns when its last process is gone.
///
/// While it runs, this process's handlers for SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2
/// and SIGWINCH are Sconce's; one run at a time in a process gets the signals.
///
/// # Errors
/// Whatever kept the command from running. See [`RunError`].
pub fn run(
    request: &RunRequest,
    executor: &dyn Executor,
    options: &RunOptions<'_>,
    watcher: &mut dyn RunObserver,
) -> Result<RunOutcome, RunError> {
    supervise::run(request, executor, options, watcher)
}

/// Gives the calling thread, and every process it starts from now on, only processor time that
/// nobody else wants (SCHED_IDLE, sched(7)): for work that may never slow down a run.
///
/// # Errors
/// The kernel's refusal.
pub fn only_when_idle() -> std::io::Result<()> {
    sys::priority::only_when_idle()
}

/// Whether a program that was started with this `argv[0]` is to call [`init_main`] and nothing
/// else.
#[must_use]
pub fn is_init(argv0: &OsStr) -> bool {
    launch::is_init(argv0)
}

/// Holds a container, as its first process. `args` are the program's arguments without the first.
/// Gives the exit code.
#[must_use]
pub fn init_main(args: impl Iterator<Item = OsString>) -> u8 {
    init::main(args)
}
