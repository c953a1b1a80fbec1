//! From the first start to the end of everything: the loop in which init lives.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use sconce_schema::event::ExitStatus;
use sconce_schema::exit;
use sconce_schema::service::HealthTest;

use super::command::{
    self, InheritedCgroupJoin, ProcessSpec, ProcessTask, StartNotification, StdioSetup,
};
use super::first_process::FirstProcessWatch;
use super::services::{ServiceActions, ServiceSupervisor, StartOutcome};
use super::shutdown::{self, KillScope};
use crate::init_config::{InitConfig, InitService};
use crate::protocol::{
    self, ExecTask, InitFailure, InitReport, ProcessKey, ServiceChange, SupervisorRequest,
};
use crate::sys::signals;

/// What init needs to start a process.
pub(super) struct ProcessStarter<'a> {
    pub(super) plan: &'a InitConfig,
    pub(super) control: &'a OwnedFd,
    pub(super) join: InheritedCgroupJoin,
    /// Where services write, in their order.
    pub(super) outputs: Vec<Option<OwnedFd>>,
}

impl ProcessStarter<'_> {
    /// Starts the command. `fails` is as in [`ProcessSpec`].
    fn command(
        &self,
        streams: StdioSetup<'_>,
        fails: Option<BorrowedFd<'_>>,
    ) -> Result<Pid, InitFailure> {
        let terminal = matches!(streams, StdioSetup::Terminal(_));
        let output = matches!(streams, StdioSetup::Output(_));
        let container = self.plan.container.as_ref();
        if let Some(engine) = container.and_then(|c| c.held.as_ref()) {
            let job = ProcessSpec {
                what: ProcessTask::Program(&engine.command),
                env: &engine.env,
                workdir: Path::new("/"),
                // It gives them to the command.
                credentials: None,
                own: &self.plan.own,
                streams,
                new_session: true,
                told: StartNotification::Command,
                fails,
            };
            return command::start_process(&job, self.control, &self.join);
        }
        let job = ProcessSpec {
            what: ProcessTask::Program(&self.plan.command),
            env: &self.plan.env,
            workdir: &self.plan.workdir,
            credentials: container.map(|c| &c.credentials),
            own: &self.plan.own,
            streams,
            new_session: container.is_some() || terminal || output,
            told: StartNotification::Command,
            fails,
        };
        command::start_process(&job, self.control, &self.join)
    }

    fn service(&self, number: usize) -> Option<(&InitService, StdioSetup<'_>)> {
        let service = self.plan.services.get(number)?;
        let output = self.outputs.get(number)?.as_ref();
        let streams = output.map_or(StdioSetup::Nothing, |fd| StdioSetup::Output(fd.as_fd()));
        Some((service, streams))
    }

    /// Starts another command; gives its terminal where it has one.
    fn other(
        &self,
        asked: &ExecTask,
        fds: Vec<OwnedFd>,
    ) -> Result<(Pid, Option<OwnedFd>), InitFailure> {
        let credentials = self.plan.container.as_ref().map(|c| &c.credentials);
        let terminal = crate::pty::open_if(asked.terminal, credentials)?;
        let three = <[OwnedFd; 3]>::try_from(fds).ok();
        let streams = match (&terminal, &three) {
            (Some(terminal), _) => StdioSetup::Terminal(terminal.slave.as_fd()),
            (None, Some(three)) => StdioSetup::Three(three),
            (None, None) => StdioSetup::Nothing,
        };
        let name = |variable: &std::ffi::OsString| {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(variable.as_os_str());
            bytes.split(|b| *b == b'=').next().map(<[u8]>::to_vec)
        };
        let replaced: Vec<_> = asked.env.iter().map(name).collect();
        let mut env = self.plan.env.clone();
        env.retain(|variable| !replaced.contains(&name(variable)));
        env.extend(asked.env.iter().cloned());
        let job = ProcessSpec {
            what: ProcessTask::Program(&asked.command),
            env: &env,
            workdir: asked.workdir.as_ref().unwrap_or(&self.plan.workdir),
            credentials,
            own: &self.plan.own,
            streams,
            new_session: true,
            told: StartNotification::Other(ProcessKey::Command(asked.number)),
            fails: None,
        };
        let pid = command::start_process(&job, self.control, &self.join)?;
        Ok((pid, terminal.map(|terminal| terminal.master)))
    }
}

impl ServiceActions for &ProcessStarter<'_> {
    fn start(&mut self, number: usize) -> Option<StartOutcome> {
        let (service, streams) = self.service(number)?;
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        let job = ProcessSpec {
            what: ProcessTask::Program(&service.command),
            env: &service.env,
            workdir: &service.workdir,
            credentials: service.credentials.as_ref(),
            own: &self.plan.own,
            streams,
            new_session: true,
            told: StartNotification::Other(ProcessKey::Service(number)),
            fails: Some(write.as_fd()),
        };
        let pid = command::start_process(&job, self.control, &self.join).ok()?;
        drop(write);
        Some(match has_failed(&read) {
            true => StartOutcome::Ending(pid),
            false => StartOutcome::Executed(pid),
        })
    }

    fn check(&mut self, number: usize) -> Option<Pid> {
        let (service, _) = self.service(number)?;
        let words: Vec<std::ffi::OsString>;
        let what = match &service.health.as_ref()?.check {
            HealthTest::Command(command) => {
                words = command.iter().map(Into::into).collect();
                ProcessTask::Program(&words)
            }
            HealthTest::Tcp(port) => ProcessTask::Port(*port),
            HealthTest::Http { port, path } => ProcessTask::Http(*port, path),
        };
        let job = ProcessSpec {
            what,
            env: &service.env,
            workdir: &service.workdir,
            credentials: service.credentials.as_ref(),
            own: &self.plan.own,
            streams: StdioSetup::Nothing,
            new_session: true,
            told: StartNotification::Nobody,
            fails: None,
        };
        command::start_process(&job, self.control, &self.join).ok()
    }

    fn signal(&mut self, leader: Pid, signal: i32) {
        shutdown::signal_group(leader, signal);
    }

    fn end_group(&mut self, leader: Pid) {
        shutdown::kill_group(leader);
    }

    fn tell(&mut self, change: ServiceChange) {
        let _ = protocol::send_value(self.control, &InitReport::Service(change), &[]);
    }
}

/// What runs.
pub(super) struct InitLoop<'a> {
    starter: &'a ProcessStarter<'a>,
    services: ServiceSupervisor,
    /// Absent where there are services alone.
    command: Option<Pid>,
    /// Where `command` is an engine.
    first_process: Option<FirstProcessWatch<'a>>,
    /// Tells whether the command was executed, where somebody waits for that.
    executing: Option<OwnedFd>,
    /// The last signal that the command was sent.
    passed_signal: Option<i32>,
    /// When the command is killed.
    kill_at: Option<Instant>,
    /// How the command ended.
    ended: Option<ExitStatus>,
    /// Commands that were asked for, and by which number.
    others: BTreeMap<i32, u64>,
}

/// What came of one turn.
enum Turn {
    On,
    /// Everything is to be killed at once.
    Kill,
    /// The supervisor is gone.
    Alone,
}

impl<'a> InitLoop<'a> {
    /// Starts the command, where there is one; the services are started in the first turn.
    pub(super) fn start_command(
        starter: &'a ProcessStarter<'a>,
        terminal: Option<BorrowedFd<'_>>,
        output: Option<BorrowedFd<'_>>,
    ) -> Result<Self, InitFailure> {
        let plan = starter.plan;
        let now = Instant::now();
        let mut executing = None;
        let command = if plan.command.is_empty() {
            protocol::send_value(starter.control, &InitReport::Serving, &[]).map_err(
                InitFailure::at_step::<std::io::Error>("speak to the supervisor"),
            )?;
            None
        } else {
            let streams = terminal
                .map(StdioSetup::Terminal)
                .or(output.map(StdioSetup::Output))
                .unwrap_or(StdioSetup::Inherited);
            // Without a terminal that shows its end, whoever started it is told of its beginning.
            let pipe = output.map(|_| rustix::pipe::pipe_with(PipeFlags::CLOEXEC));
            let pipe = pipe
                .transpose()
                .map_err(InitFailure::at_step("make a pipe"))?;
            let fails = pipe.as_ref().map(|(_, write)| write.as_fd());
            let command = starter.command(streams, fails)?;
            executing = pipe.map(|(read, _)| read);
            Some(command)
        };
        let engine = plan.container.as_ref().and_then(|c| c.held.as_ref());
        let first_process = (command.zip(engine))
            .map(|(pid, engine)| FirstProcessWatch::new(pid, engine.is_parent, &engine.pid_file));
        Ok(Self {
            starter,
            services: ServiceSupervisor::new(plan.services.clone(), plan.restarts, now),
            command,
            first_process,
            executing,
            passed_signal: None,
            kill_at: None,
            ended: None,
            others: BTreeMap::new(),
        })
    }

    /// Until the command and the services have ended, and everything else too. `None` when the
    /// supervisor died.
    pub(super) fn until_the_end(
        mut self,
        children: &OwnedFd,
        mut sockets: Option<OwnedFd>,
        reach: KillScope,
    ) -> Option<ExitStatus> {
        let mut hands = self.starter;
        loop {
            self.reap();
            if let Some(first) = &mut self.first_process {
                first.advance();
            }
            if self.ended.is_some() {
                self.services.stop_all(None);
            }
            self.services.advance(Instant::now(), &mut hands);
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_at = None;
                self.signal(libc::SIGKILL);
            }
            let is_over = self.command.is_none() || self.ended.is_some();
            if is_over && self.services.are_over() {
                break;
            }
            match self.wait(children, &mut sockets) {
                Turn::On => {}
                Turn::Kill => {
                    let ended = shutdown::kill_everything(self.command, reach);
                    return self
                        .ended
                        .or(ended)
                        .or(Some(ExitStatus::Signal(libc::SIGKILL)));
                }
                Turn::Alone => {
                    shutdown::kill_everything(self.command, reach);
                    return None;
                }
            }
        }
        self.tell_executed();
        // The terminal's output is complete once nobody holds it.
        shutdown::kill_everything(self.command, reach);
        Some(
            self.ended
                .unwrap_or(ExitStatus::Code(match self.services.any_failed() {
                    true => exit::NO,
                    false => exit::OK,
                })),
        )
    }

    /// Says that the command was executed, unless it could not be, which it has said itself.
    fn tell_executed(&mut self) {
        if let Some(read) = self.executing.take()
            && !has_failed(&read)
        {
            let _ = protocol::send_value(self.starter.control, &InitReport::Executed, &[]);
        }
    }

    /// Takes every child that has ended.
    fn reap(&mut self) {
        let mut hands = self.starter;
        while let Some((pid, exit)) = shutdown::reap_child() {
            if Some(pid) == self.command {
                self.ended = Some(self.command_end(exit));
                self.kill_at = None;
            } else if let Some(number) = self.others.remove(&pid.as_raw_nonzero().get()) {
                let ended = InitReport::CommandEnded(number, exit);
                let _ = protocol::send_value(self.starter.control, &ended, &[]);
            } else {
                (self.services).handle_exit(pid, exit, Instant::now(), &mut hands);
            }
        }
    }

    /// How the command ended, by its own end or its engine's. An engine that ends before the command
    /// does, or asked to end before it began, has not said that: init ends the rest.
    fn command_end(&mut self, exit: ExitStatus) -> ExitStatus {
        let Some(mut first) = self.first_process.take() else {
            return exit;
        };
        let asked_before = self.passed_signal.filter(|_| !first.has_begun());
        match exit {
            ExitStatus::Code(_) if first.is_running() => {
                ExitStatus::Signal(self.passed_signal.unwrap_or(libc::SIGKILL))
            }
            ExitStatus::Code(_) => asked_before.map_or(exit, ExitStatus::Signal),
            ExitStatus::Signal(_) => exit,
        }
    }

    /// Until something happens or is due.
    fn wait(&mut self, children: &OwnedFd, sockets: &mut Option<OwnedFd>) -> Turn {
        let due = self
            .services
            .next_deadline()
            .into_iter()
            .chain(self.kill_at)
            .chain(
                self.first_process
                    .as_ref()
                    .and_then(FirstProcessWatch::next_look),
            )
            .min();
        let timeout = due.map(|due| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let control = self.starter.control;
        let mut fds = vec![
            PollFd::new(children, PollFlags::IN),
            PollFd::new(control, PollFlags::IN),
        ];
        if let Some(sockets) = &*sockets {
            fds.push(PollFd::new(sockets, PollFlags::IN));
        }
        let fixed = fds.len();
        if let Some(executing) = &self.executing {
            fds.push(PollFd::new(executing, PollFlags::IN));
        }
        // Last: it is looked at in the next turn.
        let first = self
            .first_process
            .as_ref()
            .and_then(FirstProcessWatch::event_fd);
        fds.extend(first.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let _ = poll(&mut fds, timeout.as_ref());
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        if ready[0] {
            signals::drain(children.as_fd());
        }
        if ready.get(fixed) == Some(&true) {
            self.tell_executed();
        }
        if sockets.is_some() && ready[2] && !sockets.as_ref().is_some_and(super::serve_socket) {
            *sockets = None;
        }
        if !ready[1] {
            return Turn::On;
        }
        match protocol::receive_value::<SupervisorRequest>(control) {
            Ok(Some((order, message))) => self.obey(order, message.fds),
            Ok(None) | Err(_) => Turn::Alone,
        }
    }

    fn obey(&mut self, order: SupervisorRequest, fds: Vec<OwnedFd>) -> Turn {
        match order {
            SupervisorRequest::Go { .. } => {}
            SupervisorRequest::Kill => return Turn::Kill,
            SupervisorRequest::Signal(signal) if self.command.is_some() => self.signal(signal),
            SupervisorRequest::Signal(libc::SIGUSR1 | libc::SIGUSR2) => {}
            SupervisorRequest::Signal(_) => self.services.stop_all(None),
            SupervisorRequest::Stop { grace } => match self.command {
                Some(_) => {
                    self.signal(libc::SIGTERM);
                    // Services follow when the command has ended.
                    self.kill_at = Some(Instant::now() + grace.unwrap_or(Duration::from_secs(10)));
                }
                None => self.services.stop_all(grace),
            },
            SupervisorRequest::Restart(service) => self
                .services
                .restart_service(service, &mut { self.starter }),
            SupervisorRequest::Command(asked) => self.start(&asked, fds),
            SupervisorRequest::SignalCommand(number, signal) => {
                let asked = (self.others.iter()).find(|(_, asked)| **asked == number);
                if let Some(pid) = asked.and_then(|(pid, _)| Pid::from_raw(*pid)) {
                    shutdown::signal_group(pid, signal);
                }
            }
        }
        Turn::On
    }

    fn start(&mut self, asked: &ExecTask, fds: Vec<OwnedFd>) {
        let number = asked.number;
        let (report, terminal) = match self.starter.other(asked, fds) {
            Ok((pid, terminal)) => {
                self.others.insert(pid.as_raw_nonzero().get(), number);
                (InitReport::CommandStarted(number), terminal)
            }
            Err(failure) => (
                InitReport::CannotStart(ProcessKey::Command(number), failure),
                None,
            ),
        };
        let terminal: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
        let _ = protocol::send_value(self.starter.control, &report, &terminal);
    }

    /// Signals the command, as long as it has not ended.
    fn signal(&mut self, signal: i32) {
        if let (Some(command), None) = (self.command, self.ended) {
            let first = self.first_process.as_mut();
            let first = first.filter(|_| signal != libc::SIGKILL);
            if !first.is_some_and(|first| first.signal(signal)) {
                shutdown::send_signal(command, signal);
            }
            self.passed_signal = Some(signal);
        }
    }
}

/// Waits until a service's process has become its program; true when it could not. A file system
/// that takes longer than a second does not hold the others up.
fn has_failed(read: &OwnedFd) -> bool {
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let _ = poll(&mut [PollFd::new(read, PollFlags::IN)], Some(&second));
    let _ = rustix::io::ioctl_fionbio(read, true);
    rustix::io::read(read, &mut [0]) == Ok(1)
}

/// Takes over the descriptors that services write to, and gives them to the services' users, who
/// may open them again by name (`/dev/stdout`).
pub(super) fn inherit_service_outputs(plan: &InitConfig) -> Vec<Option<OwnedFd>> {
    let take = |service: &InitService| {
        let fd = service.output.and_then(super::inherited)?;
        if let Some(credentials) = service.credentials.filter(|c| c.change) {
            let uid = rustix::fs::Uid::from_raw(credentials.uid);
            let gid = rustix::fs::Gid::from_raw(credentials.gid);
            let _ = rustix::fs::fchown(&fd, Some(uid), Some(gid));
        }
        Some(fd)
    };
    plan.services.iter().map(take).collect()
}
