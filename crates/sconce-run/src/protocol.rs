//! What the supervisor and the container's init say to each other: one JSON value a message.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use sconce_schema::event::{ExitStatus, ServiceState, UnenforcedLimit};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::ResourceUsage;
use crate::sys::socket;

/// From inside to the supervisor.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum InitReport {
    /// Everything is mounted; waiting for [`SupervisorRequest::Go`]. Brings the terminal's descriptor when one
    /// was asked for, and then the shared folder's, likewise.
    Prepared(Vec<UnenforcedLimit>),
    /// The sender is about to become the command.
    Executing,
    /// The command was executed; told of one whose output goes into a log alone.
    Executed,
    /// It failed; nothing or nobody is left inside.
    Failed(InitFailure),
    /// There is no command; the services are about to be started.
    Serving,
    /// A service has changed.
    Service(ServiceChange),
    /// A service's program, or a command that was asked for, cannot be executed.
    CannotStart(ProcessKey, InitFailure),
    /// A command that was asked for was started. Brings its terminal's descriptor when one was
    /// wanted.
    CommandStarted(u64),
    /// It has ended.
    CommandEnded(u64, ExitStatus),
    /// The command has ended, and every other process was ended too; what all of them used.
    Exited(ExitStatus, Option<ResourceUsage>),
}

/// From the supervisor to init.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SupervisorRequest {
    /// Start the command. Brings the descriptors through which it joins its cgroups: `tasks` v1
    /// files, then one v2 folder if `folder`.
    Go {
        /// How many v1 `tasks` files come.
        tasks: usize,
        /// Whether a v2 folder comes.
        folder: bool,
    },
    /// Pass this signal to the command.
    Signal(i32),
    /// Ask the command and the services to end, and kill what does not within this time; services
    /// have their own where none is given.
    Stop { grace: Option<Duration> },
    /// Stop a service and start it again.
    Restart(usize),
    /// Start another command in the run. Brings its standard input, output and error, unless it
    /// gets a terminal of its own.
    Command(Box<ExecTask>),
    /// Signal a command that was asked for.
    SignalCommand(u64, i32),
    /// Kill everything.
    Kill,
}

/// A service that has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceChange {
    pub(crate) service: usize,
    pub(crate) state: ServiceState,
    /// In the run's numbering.
    pub(crate) pid: Option<i32>,
    pub(crate) starts: u32,
    pub(crate) exit: Option<ExitStatus>,
    pub(crate) why: Option<String>,
    pub(crate) again_ms: Option<u64>,
}

/// Something other than the run's own command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKey {
    Service(usize),
    Command(u64),
}

/// Another command in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTask {
    /// By which answers name it.
    pub(crate) number: u64,
    pub(crate) command: Vec<OsString>,
    /// `NAME=value`, beside the run's.
    pub(crate) env: Vec<OsString>,
    /// The run's where it is absent.
    pub(crate) workdir: Option<PathBuf>,
    pub(crate) terminal: bool,
}

/// What failed inside; each is described by its `RunError`. `errno` is the kernel's error number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitFailure {
    Step {
        doing: String,
        errno: i32,
    },
    Overlay {
        layers: usize,
        scratch: PathBuf,
        errno: i32,
    },
    Source {
        path: PathBuf,
        errno: i32,
    },
    Target {
        path: PathBuf,
        errno: i32,
    },
    Layer {
        path: PathBuf,
        errno: i32,
    },
    Workdir {
        path: PathBuf,
        errno: i32,
    },
    NotFound {
        command: String,
        searched: Option<String>,
    },
    NotExecutable {
        path: PathBuf,
        errno: i32,
    },
    /// What has the name of one of the kernel's devices on this machine is another file.
    Device {
        path: PathBuf,
        major: u32,
        minor: u32,
    },
    Engine {
        name: String,
        said: Option<String>,
    },
}

impl InitFailure {
    /// For `map_err` of a step without a path.
    pub(crate) fn at_step<E: Into<io::Error>>(doing: &str) -> impl FnOnce(E) -> Self {
        move |error| Self::Step {
            doing: doing.to_owned(),
            errno: errno(error),
        }
    }
}

/// The kernel's number of an error.
pub(crate) fn errno(error: impl Into<io::Error>) -> i32 {
    error.into().raw_os_error().unwrap_or(libc::EINVAL)
}

/// Sends one value.
///
/// # Errors
/// The kernel's: `EPIPE` when the other end is gone.
pub(crate) fn send_value(
    socket: impl AsFd,
    value: &impl Serialize,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    socket::send_message(socket, &serde_json::to_vec(value)?, fds)
}

/// Waits for one value; `None` when the other end is gone.
///
/// # Errors
/// The kernel's, or a message that is not a `T`.
pub(crate) fn receive_value<T: DeserializeOwned>(
    socket: impl AsFd,
) -> io::Result<Option<(T, socket::SocketMessage)>> {
    let Some(message) = socket::receive_message(socket)? else {
        return Ok(None);
    };
    Ok(Some((serde_json::from_slice(&message.bytes)?, message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    #[test]
    fn values_descriptors_and_the_sender_arrive() {
        let (ours, theirs) = socket::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let report = InitReport::Failed(InitFailure::NotFound {
            command: "ls".to_owned(),
            searched: Some("/bin".to_owned()),
        });
        send_value(&theirs, &report, &[file.as_fd()]).unwrap();
        let (received, message) = receive_value::<InitReport>(&ours).unwrap().unwrap();
        assert_eq!(received, report);
        assert_eq!(message.fds.len(), 1);
        assert_ne!(message.fds[0].as_raw_fd(), file.as_raw_fd());
        assert_eq!(message.sender, Some(std::process::id() as i32));
        send_value(&theirs, &"nonsense", &[]).unwrap();
        assert!(receive_value::<InitReport>(&ours).is_err());
        drop(theirs);
        assert!(receive_value::<InitReport>(&ours).unwrap().is_none());
    }

    #[test]
    fn the_last_word_arrives_although_nobody_read_the_answer() {
        let (ours, theirs) = socket::pair().unwrap();
        send_value(&theirs, &InitReport::Serving, &[]).unwrap();
        send_value(&ours, &SupervisorRequest::Kill, &[]).unwrap();
        drop(theirs);
        let (last, _) = receive_value::<InitReport>(&ours).unwrap().unwrap();
        assert_eq!(last, InitReport::Serving);
        assert!(receive_value::<InitReport>(&ours).unwrap().is_none());
    }
}
