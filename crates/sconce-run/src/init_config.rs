//! What init is told to do: a request in which nothing is left to decide. It travels as JSON in an
//! anonymous file that init inherits.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::Duration;

use sconce_schema::request::NetworkMode;
use sconce_schema::service::{HealthCheck, RestartPolicy};

use crate::rlimits::{CpuPlacement, ProcessLimits};
use serde::{Deserialize, Serialize};

/// Everything that init needs.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitConfig {
    /// Absent without a container.
    pub(crate) container: Option<ContainerConfig>,
    /// Program and arguments; empty where there are services alone.
    pub(crate) command: Vec<OsString>,
    /// `NAME=value`, complete.
    pub(crate) env: Vec<OsString>,
    pub(crate) workdir: PathBuf,
    /// Whether the command gets a terminal of its own.
    pub(crate) terminal: bool,
    /// Limits that the command carries itself.
    pub(crate) own: ProcessLimits,
    /// Where it runs.
    pub(crate) place: CpuPlacement,
    /// Where sockets of the container's network are asked for, one for each message.
    pub(crate) sockets: Option<RawFd>,
    /// Where the command writes, in place of the caller's standard output and error; with it, init
    /// itself keeps nothing of the caller's open.
    pub(crate) output: Option<RawFd>,
    /// Where the command writes in place of the caller's standard error, and whether in place of its
    /// standard output too.
    pub(crate) relayed: Option<(RawFd, bool)>,
    /// What runs beside the command.
    pub(crate) services: Vec<InitService>,
    /// When a service that ends soon after its start is tried again.
    pub(crate) restarts: RestartBackoff,
    /// Whether other commands may be asked for while it runs.
    pub(crate) controlled: bool,
}

/// One service, with nothing left to decide.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitService {
    pub(crate) name: String,
    pub(crate) command: Vec<OsString>,
    /// `NAME=value`, complete.
    pub(crate) env: Vec<OsString>,
    pub(crate) workdir: PathBuf,
    /// Absent without a container.
    pub(crate) credentials: Option<Credentials>,
    pub(crate) restart: RestartPolicy,
    pub(crate) grace: Duration,
    pub(crate) stop_signal: i32,
    pub(crate) health: Option<HealthCheck>,
    pub(crate) after: Vec<String>,
    /// Where it writes.
    pub(crate) output: Option<RawFd>,
}

impl InitService {
    pub(crate) fn check_timeout(&self) -> Duration {
        let health = self.health.as_ref();
        health.map_or(Duration::ZERO, |health| {
            Duration::from_millis(health.timeout_ms)
        })
    }
}

#[cfg(test)]
impl Default for InitService {
    fn default() -> Self {
        Self {
            name: String::new(),
            command: Vec::new(),
            env: Vec::new(),
            workdir: PathBuf::new(),
            credentials: None,
            restart: RestartPolicy::default(),
            grace: Duration::from_secs(10),
            stop_signal: libc::SIGTERM,
            health: None,
            after: Vec::new(),
            output: None,
        }
    }
}

/// How patient init is with services that end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartBackoff {
    /// Time until the first new start, milliseconds; each later one takes twice as long.
    pub first_ms: u64,
    /// The longest such time, milliseconds.
    pub most_ms: u64,
    /// How long a service has to have run for this to begin anew, milliseconds.
    pub reset_ms: u64,
    /// How many ends one after the other it takes to give a service up.
    pub tries: u32,
}

impl Default for RestartBackoff {
    fn default() -> Self {
        Self {
            first_ms: 1_000,
            most_ms: 60_000,
            reset_ms: 60_000,
            tries: 5,
        }
    }
}

impl RestartBackoff {
    pub(crate) fn reset_period(&self) -> Duration {
        Duration::from_millis(self.reset_ms)
    }

    /// Time until the start after `ends` ends in a row.
    pub(crate) fn delay_after(&self, ends: u32) -> Duration {
        let doublings = ends.saturating_sub(1).min(32);
        let delay = self.first_ms.saturating_mul(1 << doublings);
        Duration::from_millis(delay.min(self.most_ms))
    }
}

/// The container around the command.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerConfig {
    pub(crate) hostname: String,
    /// Trees of the image, lowest first.
    pub(crate) layers: Vec<PathBuf>,
    /// Folder with `upper`, `work` and `root`.
    pub(crate) scratch: PathBuf,
    /// Whether `upper` is kept after the run.
    pub(crate) kept: bool,
    pub(crate) shm_bytes: u64,
    pub(crate) network: NetworkMode,
    /// Where its own name leads; a loopback address where it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) address: Option<IpAddr>,
    /// The name of the user's folder in /home, where its home is there.
    pub(crate) home: Option<String>,
    /// Where the folder is seen that the run's processes and the supervisor share; see
    /// [`RunOptions::shared`](crate::RunOptions::shared).
    pub(crate) shared: Option<PathBuf>,
    pub(crate) mounts: Vec<InitMount>,
    /// (target, path of the link).
    pub(crate) links: Vec<(String, PathBuf)>,
    pub(crate) credentials: Credentials,
    /// The program that starts the command in the root, where that is not init.
    pub(crate) held: Option<DelegatedRuntime>,
    /// User namespaces that map owners of mounted files, as init inherits them.
    pub(crate) owners: Vec<RawFd>,
}

/// How another program is started to start the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DelegatedRuntime {
    pub(crate) name: String,
    /// Its own program and arguments.
    pub(crate) command: Vec<OsString>,
    /// `NAME=value`, its own.
    pub(crate) env: Vec<OsString>,
    /// It writes this file when it has made the container, and not before.
    pub(crate) pid_file: PathBuf,
    /// Whether the process in that file is its child.
    pub(crate) is_parent: bool,
    /// Where it says what goes wrong.
    pub(crate) log: PathBuf,
    pub(crate) shown: CgroupVisibility,
    /// The cgroup that it makes.
    pub(crate) cgroup: Option<PathBuf>,
    /// A folder that is made, and where it is seen by a shorter name.
    pub(crate) short: Option<(PathBuf, PathBuf)>,
    /// Whether it mounts /proc, /sys and /dev itself, and what is to be in them.
    pub(crate) mounts_system: bool,
}

/// Which cgroup file systems it sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CgroupVisibility {
    /// All that are mounted.
    Everything,
    /// The one that is mounted here.
    One(PathBuf),
    Nothing,
}

/// Who the command becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Credentials {
    /// Inside.
    pub(crate) uid: u32,
    /// Inside.
    pub(crate) gid: u32,
    /// Whether init is the machine's root and must change to them; in a user namespace it has
    /// them already.
    pub(crate) change: bool,
    /// Capabilities kept, as bits.
    pub(crate) capabilities: u64,
}

/// One bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InitMount {
    /// On the host.
    pub(crate) source: PathBuf,
    /// Inside.
    pub(crate) target: PathBuf,
    /// Attributes of mount_setattr(2).
    pub(crate) attributes: u64,
    /// Which of [`ContainerConfig::owners`] maps the owners of the files, if they are to be mapped.
    pub(crate) owners: Option<usize>,
}
