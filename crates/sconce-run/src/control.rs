//! How a run is spoken to while it goes on: through a socket in its folder that only its user can
//! reach. One JSON value a message.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use sconce_schema::event::{ExitStatus, ServiceState};
use sconce_schema::request::PublishedPort;
use serde::{Deserialize, Serialize};

use crate::init_config::RestartBackoff;
use crate::output_tail::OutputTail;
use crate::protocol::{receive_value, send_value};
use crate::pty::Relay;
use crate::sys::signals::Catcher;

/// The socket's name in a run's folder.
const SOCKET: &str = "control";

/// A longer message is not sent; the largest honest one is a command with its arguments.
const MAX_MESSAGE_BYTES: usize = 48 << 10;

/// Where a run is spoken to, and what is kept of what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlOptions {
    /// The run's own folder, for its user alone. It need not exist before [`RunObserver::started`]
    /// was called.
    ///
    /// [`RunObserver::started`]: crate::RunObserver::started
    pub folder: PathBuf,
    /// Whether what the command writes goes into a log too, in place of the caller's standard
    /// output and error.
    pub log_command: bool,
    /// How patient it is with services that end.
    pub restarts: RestartBackoff,
}

/// What a run is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlRequest {
    /// What it is doing.
    State,
    /// End.
    Stop {
        /// Instead of each service's own, seconds; for a command, 10 where it is absent.
        grace_s: Option<u32>,
    },
    /// Stop services and start them again.
    Restart {
        /// All of them where it is absent.
        service: Option<String>,
    },
    /// Start another command in it. Brings its standard input, output and error, unless it gets a
    /// terminal.
    Command(ExecRequest),
    /// Signal the command that this caller asked for.
    Signal(i32),
}

/// Another command in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ExecRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// `NAME=value`, beside the run's.
    pub env: Vec<String>,
    /// The run's where it is absent.
    pub workdir: Option<PathBuf>,
    /// Whether it gets a terminal of its own, joined to the caller's.
    pub terminal: bool,
}

/// What a run answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlResponse {
    /// To [`ControlRequest::State`].
    State(RunStatus),
    /// It was passed on.
    Done,
    /// It cannot be done, and why.
    Refused(String),
    /// The command was started; brings its terminal.
    Started,
    /// It cannot be started: why, the hint, and the exit code for it.
    CannotStart(String, Option<String>, u8),
    /// It has ended.
    Ended(ExitStatus),
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunStatus {
    /// Its id.
    pub id: String,
    /// Whether it has a command, and so ends with it.
    pub command: bool,
    /// Whether it was asked to end.
    pub stopping: bool,
    /// Its services, in their order.
    pub services: Vec<ServiceStatus>,
    /// Ports of the machine that lead inside.
    pub ports: Vec<PublishedPort>,
}

/// Where a service stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ServiceStatus {
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: ServiceState,
    /// For how long it has been doing that since its last start, milliseconds; absent in the answer
    /// of an older program.
    #[serde(default)]
    pub state_ms: Option<u64>,
    /// How often it was started.
    pub starts: u32,
    /// How it ended last.
    pub exit: Option<ExitStatus>,
    /// Why it is so, where there is more to say.
    pub why: Option<String>,
    /// Where it listens.
    pub ports: Vec<PublishedPort>,
    /// What a person opens or types to use it; a token may be in it.
    pub links: Vec<String>,
}

/// Why a run could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// Nobody listens: the run has ended, or its Sconce was killed.
    #[error("the run does not go on any more")]
    Gone,
    /// The caller may not, or the kernel refused.
    #[error("cannot speak to the run")]
    Io(#[source] io::Error),
    /// It said something else.
    #[error("the run gave an answer that is not understood")]
    Answer,
    /// The question is longer than a message.
    #[error("the command is longer than {MAX_MESSAGE_BYTES} bytes")]
    TooLong,
}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::BrokenPipe => Self::Gone,
            io::ErrorKind::InvalidData => Self::Answer,
            _ => Self::Io(error),
        }
    }
}

/// Asks the run whose folder this is, and gives its answer.
///
/// # Errors
/// [`ControlError::Gone`] when nobody listens there.
pub fn send_request(folder: &Path, ask: &ControlRequest) -> Result<ControlResponse, ControlError> {
    let socket = connect(folder)?;
    put(&socket, ask, &[])?;
    Ok(answer(&socket)?.0)
}

/// Waits until a run does not go on any more; at once where it does not.
///
/// # Errors
/// [`ControlError::Io`].
pub fn wait_for_end(folder: &Path) -> Result<(), ControlError> {
    let socket = match connect(folder) {
        Err(ControlError::Gone) => return Ok(()),
        connected => connected?,
    };
    loop {
        match answer(&socket) {
            Ok(_) => {}
            Err(ControlError::Gone) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Runs another command in the run whose folder this is, with the caller's standard streams or,
/// where that is asked for, the caller's terminal; gives the last answer: [`ControlResponse::Ended`],
/// [`ControlResponse::CannotStart`] or [`ControlResponse::Refused`]. While it runs, signals to this process are
/// passed on to it.
///
/// # Errors
/// As [`send_request`]; [`ControlError::Gone`] also when the run ends meanwhile.
pub fn exec_command(folder: &Path, command: &ExecRequest) -> Result<ControlResponse, ControlError> {
    let signals = Catcher::new().map_err(ControlError::Io)?;
    let socket = connect(folder)?;
    let streams = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    let streams = match command.terminal {
        true => &[][..],
        false => &streams[..],
    };
    put(&socket, &ControlRequest::Command(command.clone()), streams)?;
    let mut relay = None;
    loop {
        let mut fds = [
            PollFd::new(&socket, PollFlags::IN),
            PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN),
        ];
        let _ = poll(&mut fds, None);
        let answered = !fds[0].revents().is_empty();
        while let Some(caught) = signals.next() {
            match (&relay, caught.signal) {
                (Some(relay), libc::SIGWINCH) => Relay::copy_size(relay),
                (None, libc::SIGWINCH) => {}
                (_, signal) => put(&socket, &ControlRequest::Signal(signal), &[])?,
            }
        }
        if !answered {
            continue;
        }
        match answer(&socket)? {
            (ControlResponse::Started, fds) => {
                if let Some(master) = fds.into_iter().next() {
                    relay = Some(
                        Relay::start(master, OutputTail::default()).map_err(ControlError::Io)?,
                    );
                }
            }
            (ControlResponse::Done, _) => {}
            // The terminal is given back before anything is said.
            (last, _) => {
                drop(relay);
                return Ok(last);
            }
        }
    }
}

fn put(socket: &OwnedFd, ask: &ControlRequest, fds: &[BorrowedFd<'_>]) -> Result<(), ControlError> {
    let length = serde_json::to_vec(ask).map_or(0, |text| text.len());
    if length > MAX_MESSAGE_BYTES {
        return Err(ControlError::TooLong);
    }
    Ok(send_value(socket, ask, fds)?)
}

fn answer(socket: &OwnedFd) -> Result<(ControlResponse, Vec<OwnedFd>), ControlError> {
    let (answer, message) = receive_value(socket)?.ok_or(ControlError::Gone)?;
    Ok((answer, message.fds))
}

fn new_socket() -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// The socket's address. The kernel takes 107 bytes, which a path in a home can exceed: it is named
/// by way of its open folder.
fn address(folder: &Path) -> io::Result<(OwnedFd, SocketAddrUnix)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
    let address = SocketAddrUnix::new(format!("/proc/self/fd/{number}/{SOCKET}"))?;
    Ok((folder, address))
}

fn connect(folder: &Path) -> Result<OwnedFd, ControlError> {
    let socket = new_socket()?;
    let (_folder, address) = address(folder)?;
    rustix::net::connect(&socket, &address).map_err(io::Error::from)?;
    Ok(socket)
}

/// Listens in a run's folder, which is made for this user alone where it is not there.
pub(crate) fn listen(folder: &Path) -> io::Result<OwnedFd> {
    use std::os::unix::fs::DirBuilderExt;
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    remove_socket(folder);
    let socket = new_socket()?;
    let (folder, address) = address(folder)?;
    rustix::net::bind(&socket, &address)?;
    rustix::fs::chmodat(
        folder.as_fd(),
        SOCKET,
        Mode::from_raw_mode(0o600),
        rustix::fs::AtFlags::empty(),
    )?;
    rustix::net::listen(&socket, 16)?;
    Ok(socket)
}

/// Takes the socket's name away.
pub(crate) fn remove_socket(folder: &Path) {
    let _ = std::fs::remove_file(folder.join(SOCKET));
}
