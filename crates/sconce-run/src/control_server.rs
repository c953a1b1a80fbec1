//! The supervisor's side of [`crate::control`]: who asks, what was asked, and what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::net::{SocketFlags, accept_with, sockopt::socket_peercred};
use sconce_schema::event::{ExitStatus, ServiceEvent, ServiceState};
use sconce_schema::request::RunRequest;
use sconce_schema::{Hint, Runtime};

use crate::control::{self, ControlRequest, ControlResponse, RunStatus, ServiceStatus};
use crate::error::RunError;
use crate::executor::Execution;
use crate::protocol::{self, InitFailure, ServiceChange, SupervisorRequest};

/// The most callers at a time; more are sent away.
const MAX_CALLERS: usize = 64;

/// Sent to a command whose caller is gone, as when its terminal had been closed.
const HANG_UP: i32 = libc::SIGHUP;

/// Everyone who speaks to the run.
pub(crate) struct ControlServer {
    folder: Option<PathBuf>,
    listener: Option<OwnedFd>,
    callers: BTreeMap<u64, OwnedFd>,
    next: u64,
    /// Those whose commands run.
    commands: BTreeSet<u64>,
    state: RunStatus,
    /// Since when each service is in its state.
    since: Vec<Instant>,
    /// Why services could not be executed, until their end is told.
    cannot: BTreeMap<usize, String>,
    /// Who started the command, where that was not Sconce.
    engine: Option<Runtime>,
}

impl ControlServer {
    /// Nobody is listened to before [`ControlServer::start_listening`].
    /// With an engine no other command can be started.
    pub(crate) fn new(request: &RunRequest, engine: Option<Runtime>) -> Self {
        let standing = |service: &sconce_schema::RunService| ServiceStatus {
            name: service.name.clone(),
            state: ServiceState::Waiting,
            state_ms: None,
            starts: 0,
            exit: None,
            why: None,
            ports: service.ports.clone(),
            links: service.links.clone(),
        };
        Self {
            folder: None,
            listener: None,
            callers: BTreeMap::new(),
            next: 1,
            commands: BTreeSet::new(),
            since: vec![Instant::now(); request.services.len()],
            cannot: BTreeMap::new(),
            engine,
            state: RunStatus {
                id: request.id.clone(),
                command: !request.command.is_empty(),
                stopping: false,
                services: request.services.iter().map(standing).collect(),
                ports: request.ports.clone(),
            },
        }
    }

    /// Begins to listen in a run's folder.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn start_listening(&mut self, folder: &std::path::Path) -> std::io::Result<()> {
        self.listener = Some(control::listen(folder)?);
        self.folder = Some(folder.to_owned());
        Ok(())
    }

    /// What to wait for: the listener, then the callers in their order.
    pub(crate) fn poll_fds(&self) -> impl Iterator<Item = PollFd<'_>> {
        let all = self.listener.iter().chain(self.callers.values());
        all.map(|fd| PollFd::new(fd, PollFlags::IN))
    }

    /// Whose descriptors [`ControlServer::poll_fds`] gave; absent for the listener.
    pub(crate) fn caller_ids(&self) -> Vec<Option<u64>> {
        let listener = self.listener.iter().map(|_| None);
        listener
            .chain(self.callers.keys().map(|n| Some(*n)))
            .collect()
    }

    /// Takes a new caller, if it is this user or root.
    pub(crate) fn accept_caller(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        // Not blocking: a caller that does not read holds up nobody.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(caller) = accept_with(listener, flags) else {
            return;
        };
        let own = rustix::process::geteuid();
        let known = socket_peercred(&caller).is_ok_and(|who| who.uid == own || who.uid.is_root());
        if known && self.callers.len() < MAX_CALLERS {
            self.callers.insert(self.next, caller);
            self.next += 1;
        }
    }

    /// Hears what a caller asks, and passes on what is for the run.
    pub(crate) fn handle_request(&mut self, number: u64, execution: &mut dyn Execution) {
        let Some(caller) = self.callers.get(&number) else {
            return;
        };
        let (ask, fds) = match protocol::receive_value::<ControlRequest>(caller) {
            Ok(Some((ask, message))) => (ask, message.fds),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Ok(None) | Err(_) => {
                self.callers.remove(&number);
                if self.commands.remove(&number) {
                    let order = SupervisorRequest::SignalCommand(number, HANG_UP);
                    let _ = execution.deliver(&order, &[]);
                }
                return;
            }
        };
        let answer = self.answer(number, ask, &fds, execution);
        if let Some(answer) = answer {
            self.tell(number, &answer, &[]);
        }
    }

    fn answer(
        &mut self,
        number: u64,
        ask: ControlRequest,
        fds: &[OwnedFd],
        execution: &mut dyn Execution,
    ) -> Option<ControlResponse> {
        let orders = match ask {
            ControlRequest::State => return Some(ControlResponse::State(self.state())),
            ControlRequest::Stop { grace_s } => {
                self.state.stopping = true;
                let grace = grace_s.map(|seconds| Duration::from_secs(u64::from(seconds)));
                vec![SupervisorRequest::Stop { grace }]
            }
            ControlRequest::Restart { service } => match self.named(service.as_deref()) {
                Ok(services) => services
                    .into_iter()
                    .map(SupervisorRequest::Restart)
                    .collect(),
                Err(why) => return Some(ControlResponse::Refused(why)),
            },
            ControlRequest::Signal(signal) if (1..=64).contains(&signal) => {
                vec![SupervisorRequest::SignalCommand(number, signal)]
            }
            ControlRequest::Signal(signal) => {
                return Some(ControlResponse::Refused(format!(
                    "there is no signal {signal}"
                )));
            }
            ControlRequest::Command(asked) => return self.start(number, asked, fds, execution),
        };
        let passed = orders
            .iter()
            .all(|order| execution.deliver(order, &[]).is_ok());
        Some(match passed {
            true => ControlResponse::Done,
            false => ControlResponse::Refused("the run is ending".to_owned()),
        })
    }

    fn state(&self) -> RunStatus {
        let mut state = self.state.clone();
        for (service, since) in state.services.iter_mut().zip(&self.since) {
            service.state_ms = u64::try_from(since.elapsed().as_millis()).ok();
        }
        state
    }

    fn start(
        &mut self,
        number: u64,
        asked: control::ExecRequest,
        fds: &[OwnedFd],
        execution: &mut dyn Execution,
    ) -> Option<ControlResponse> {
        let refused = |why: &str| Some(ControlResponse::Refused(why.to_owned()));
        if let Some(engine) = self.engine {
            return refused(&format!(
                "its command was started by {engine}; only a run that Sconce started itself takes another"
            ));
        }
        let mut texts = asked.command.iter().chain(&asked.env);
        if asked.command.first().is_none_or(String::is_empty) {
            return refused("it has no command");
        }
        if texts.any(|text| text.contains('\0')) {
            return refused("the command contains a zero byte");
        }
        if fds.len() != if asked.terminal { 0 } else { 3 } {
            return refused("the streams of the command are missing");
        }
        let strings = |list: Vec<String>| list.into_iter().map(OsString::from).collect();
        let order = SupervisorRequest::Command(Box::new(protocol::ExecTask {
            number,
            command: strings(asked.command),
            env: strings(asked.env),
            workdir: asked.workdir,
            terminal: asked.terminal,
        }));
        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
        match execution.deliver(&order, &fds) {
            // Init answers.
            Ok(()) => {
                self.commands.insert(number);
                None
            }
            Err(_) => refused("the run is ending"),
        }
    }

    /// The services that a name means.
    fn named(&self, name: Option<&str>) -> Result<Vec<usize>, String> {
        let services = &self.state.services;
        if services.is_empty() {
            return Err("it has no services".to_owned());
        }
        let Some(name) = name else {
            return Ok((0..services.len()).collect());
        };
        let found = services.iter().position(|service| service.name == name);
        found.map(|at| vec![at]).ok_or_else(|| {
            let names: Vec<_> = services.iter().map(|s| s.name.as_str()).collect();
            format!("it has no service `{name}`; it has {}", names.join(", "))
        })
    }

    fn tell(&mut self, number: u64, answer: &ControlResponse, fds: &[BorrowedFd<'_>]) {
        if let Some(caller) = self.callers.get(&number)
            && protocol::send_value(caller, answer, fds).is_err()
        {
            self.callers.remove(&number);
        }
    }

    /// A service has changed; gives it as it is recorded.
    pub(crate) fn apply_service_change(&mut self, change: ServiceChange) -> Option<ServiceEvent> {
        let standing = self.state.services.get_mut(change.service)?;
        if (standing.state, standing.starts) != (change.state, change.starts)
            && let Some(since) = self.since.get_mut(change.service)
        {
            *since = Instant::now();
        }
        standing.state = change.state;
        standing.starts = change.starts;
        standing.exit = change.exit.or(standing.exit);
        // What kept it from being executed is told by its child, before its end is.
        let cannot = match change.exit {
            Some(_) => self.cannot.remove(&change.service),
            None => None,
        };
        let why = change.why.or(cannot);
        standing.why.clone_from(&why);
        Some(ServiceEvent {
            name: standing.name.clone(),
            state: change.state,
            starts: change.starts,
            exit: change.exit,
            why,
            again_ms: change.again_ms,
            open: Vec::new(),
        })
    }

    /// A service's program cannot be executed.
    pub(crate) fn cannot_start_service(&mut self, service: usize, failure: InitFailure) {
        self.cannot
            .insert(service, text(&RunError::from_init_failure(failure)));
    }

    /// A command that was asked for was started.
    pub(crate) fn report_exec_started(&mut self, number: u64, terminal: &[OwnedFd]) {
        let fds: Vec<BorrowedFd<'_>> = terminal.iter().map(AsFd::as_fd).collect();
        self.tell(number, &ControlResponse::Started, &fds);
    }

    /// It has ended.
    pub(crate) fn report_exec_ended(&mut self, number: u64, exit: ExitStatus) {
        self.commands.remove(&number);
        self.tell(number, &ControlResponse::Ended(exit), &[]);
    }

    /// It cannot be started.
    pub(crate) fn cannot_start(&mut self, number: u64, failure: InitFailure) {
        self.commands.remove(&number);
        let error = RunError::from_init_failure(failure);
        let answer = ControlResponse::CannotStart(text(&error), error.hint(), error.exit_code());
        self.tell(number, &answer, &[]);
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            control::remove_socket(folder);
        }
    }
}

/// An error with its causes.
fn text(error: &RunError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
