//! From the first start to the end of everything: the loop in which init lives.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PipeFlags;
use rustix::process::Pid;
use sconce_schema::event::Exit;
use sconce_schema::exit;
use sconce_schema::service::Check;

use super::command::{self, Job, Join, Streams, Told, What};
use super::end::{self, Reach};
use super::services::{Hands, Services, Started};
use crate::plan::{Plan, PlannedService};
use crate::protocol::{self, Change, Command, Failure, Order, Report, Which};
use crate::sys::signals;

/// What init needs to start a process.
pub(super) struct Starter<'a> {
    pub(super) plan: &'a Plan,
    pub(super) control: &'a OwnedFd,
    pub(super) join: Join,
    /// Where services write, in their order.
    pub(super) outputs: Vec<Option<OwnedFd>>,
}

impl Starter<'_> {
    /// Starts the command. `fails` is as in [`Job`].
    fn command(&self, streams: Streams<'_>, fails: Option<BorrowedFd<'_>>) -> Result<Pid, Failure> {
        let terminal = matches!(streams, Streams::Terminal(_));
        let output = matches!(streams, Streams::Output(_));
        let container = self.plan.container.as_ref();
        if let Some(engine) = container.and_then(|c| c.held.as_ref()) {
            let job = Job {
                what: What::Program(&engine.command),
                env: &engine.env,
                workdir: Path::new("/"),
                // It gives them to the command.
                credentials: None,
                own: &self.plan.own,
                streams,
                new_session: true,
                told: Told::Command,
                fails,
            };
            return command::start(&job, self.control, &self.join);
        }
        let job = Job {
            what: What::Program(&self.plan.command),
            env: &self.plan.env,
            workdir: &self.plan.workdir,
            credentials: container.map(|c| &c.credentials),
            own: &self.plan.own,
            streams,
            new_session: container.is_some() || terminal || output,
            told: Told::Command,
            fails,
        };
        command::start(&job, self.control, &self.join)
    }

    fn service(&self, number: usize) -> Option<(&PlannedService, Streams<'_>)> {
        let service = self.plan.services.get(number)?;
        let output = self.outputs.get(number)?.as_ref();
        let streams = output.map_or(Streams::Nothing, |fd| Streams::Output(fd.as_fd()));
        Some((service, streams))
    }

    /// Starts another command; gives its terminal where it has one.
    fn other(&self, asked: &Command, fds: Vec<OwnedFd>) -> Result<(Pid, Option<OwnedFd>), Failure> {
        let credentials = self.plan.container.as_ref().map(|c| &c.credentials);
        let terminal = crate::pty::open_if(asked.terminal, credentials)?;
        let three = <[OwnedFd; 3]>::try_from(fds).ok();
        let streams = match (&terminal, &three) {
            (Some(terminal), _) => Streams::Terminal(terminal.slave.as_fd()),
            (None, Some(three)) => Streams::Three(three),
            (None, None) => Streams::Nothing,
        };
        let name = |variable: &std::ffi::OsString| {
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(variable.as_os_str());
            bytes.split(|b| *b == b'=').next().map(<[u8]>::to_vec)
        };
        let replaced: Vec<_> = asked.env.iter().map(name).collect();
        let mut env = self.plan.env.clone();
        env.retain(|variable| !replaced.contains(&name(variable)));
        env.extend(asked.env.iter().cloned());
        let job = Job {
            what: What::Program(&asked.command),
            env: &env,
            workdir: asked.workdir.as_ref().unwrap_or(&self.plan.workdir),
            credentials,
            own: &self.plan.own,
            streams,
            new_session: true,
            told: Told::Other(Which::Command(asked.number)),
            fails: None,
        };
        let pid = command::start(&job, self.control, &self.join)?;
        Ok((pid, terminal.map(|terminal| terminal.master)))
    }
}

impl Hands for &Starter<'_> {
    fn start(&mut self, number: usize) -> Option<Started> {
        let (service, streams) = self.service(number)?;
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        let job = Job {
            what: What::Program(&service.command),
            env: &service.env,
            workdir: &service.workdir,
            credentials: service.credentials.as_ref(),
            own: &self.plan.own,
            streams,
            new_session: true,
            told: Told::Other(Which::Service(number)),
            fails: Some(write.as_fd()),
        };
        let pid = command::start(&job, self.control, &self.join).ok()?;
        drop(write);
        Some(match has_failed(&read) {
            true => Started::Ending(pid),
            false => Started::Executed(pid),
        })
    }

    fn check(&mut self, number: usize) -> Option<Pid> {
        let (service, _) = self.service(number)?;
        let words: Vec<std::ffi::OsString>;
        let what = match &service.health.as_ref()?.check {
            Check::Command(command) => {
                words = command.iter().map(Into::into).collect();
                What::Program(&words)
            }
            Check::Tcp(port) => What::Port(*port),
            Check::Http { port, path } => What::Http(*port, path),
        };
        let job = Job {
            what,
            env: &service.env,
            workdir: &service.workdir,
            credentials: service.credentials.as_ref(),
            own: &self.plan.own,
            streams: Streams::Nothing,
            new_session: true,
            told: Told::Nobody,
            fails: None,
        };
        command::start(&job, self.control, &self.join).ok()
    }

    fn signal(&mut self, leader: Pid, signal: i32) {
        end::signal_group(leader, signal);
    }

    fn end_group(&mut self, leader: Pid) {
        end::kill_group(leader);
    }

    fn tell(&mut self, change: Change) {
        let _ = protocol::send(self.control, &Report::Service(change), &[]);
    }
}

/// What runs.
pub(super) struct Running<'a> {
    starter: &'a Starter<'a>,
    services: Services,
    /// Absent where there are services alone.
    command: Option<Pid>,
    /// Tells whether the command was executed, where somebody waits for that.
    executing: Option<OwnedFd>,
    /// When the command is killed.
    kill_at: Option<Instant>,
    /// How the command ended.
    ended: Option<Exit>,
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

impl<'a> Running<'a> {
    /// Starts the command, where there is one; the services are started in the first turn.
    pub(super) fn begin(
        starter: &'a Starter<'a>,
        terminal: Option<BorrowedFd<'_>>,
        output: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Failure> {
        let plan = starter.plan;
        let now = Instant::now();
        let mut executing = None;
        let command = if plan.command.is_empty() {
            protocol::send(starter.control, &Report::Serving, &[]).map_err(Failure::step::<
                std::io::Error,
            >(
                "speak to the supervisor",
            ))?;
            None
        } else {
            let streams = terminal
                .map(Streams::Terminal)
                .or(output.map(Streams::Output))
                .unwrap_or(Streams::Inherited);
            // Without a terminal that shows its end, whoever started it is told of its beginning.
            let pipe = output.map(|_| rustix::pipe::pipe_with(PipeFlags::CLOEXEC));
            let pipe = pipe.transpose().map_err(Failure::step("make a pipe"))?;
            let fails = pipe.as_ref().map(|(_, write)| write.as_fd());
            let command = starter.command(streams, fails)?;
            executing = pipe.map(|(read, _)| read);
            Some(command)
        };
        Ok(Self {
            starter,
            services: Services::new(plan.services.clone(), plan.restarts, now),
            command,
            executing,
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
        reach: Reach,
    ) -> Option<Exit> {
        let mut hands = self.starter;
        loop {
            self.reap();
            if self.ended.is_some() {
                self.services.stop(None);
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
                    let ended = end::kill_everything(self.command, reach);
                    return self.ended.or(ended).or(Some(Exit::Signal(libc::SIGKILL)));
                }
                Turn::Alone => {
                    end::kill_everything(self.command, reach);
                    return None;
                }
            }
        }
        self.tell_executed();
        // The terminal's output is complete once nobody holds it.
        end::kill_everything(self.command, reach);
        Some(
            self.ended
                .unwrap_or(Exit::Code(match self.services.any_failed() {
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
            let _ = protocol::send(self.starter.control, &Report::Executed, &[]);
        }
    }

    /// Takes every child that has ended.
    fn reap(&mut self) {
        let mut hands = self.starter;
        while let Some((pid, exit)) = end::reap() {
            if Some(pid) == self.command {
                self.ended = Some(exit);
                self.kill_at = None;
            } else if let Some(number) = self.others.remove(&pid.as_raw_nonzero().get()) {
                let ended = Report::CommandEnded(number, exit);
                let _ = protocol::send(self.starter.control, &ended, &[]);
            } else {
                (self.services).exited(pid, exit, Instant::now(), &mut hands);
            }
        }
    }

    /// Until something happens or is due.
    fn wait(&mut self, children: &OwnedFd, sockets: &mut Option<OwnedFd>) -> Turn {
        let due = self.services.due().into_iter().chain(self.kill_at).min();
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
        match protocol::receive::<Order>(control) {
            Ok(Some((order, message))) => self.obey(order, message.fds),
            Ok(None) | Err(_) => Turn::Alone,
        }
    }

    fn obey(&mut self, order: Order, fds: Vec<OwnedFd>) -> Turn {
        match order {
            Order::Go { .. } => {}
            Order::Kill => return Turn::Kill,
            Order::Signal(signal) if self.command.is_some() => self.signal(signal),
            Order::Signal(libc::SIGUSR1 | libc::SIGUSR2) => {}
            Order::Signal(_) => self.services.stop(None),
            Order::Stop { grace } => match self.command {
                Some(_) => {
                    self.signal(libc::SIGTERM);
                    // Services follow when the command has ended.
                    self.kill_at = Some(Instant::now() + grace.unwrap_or(Duration::from_secs(10)));
                }
                None => self.services.stop(grace),
            },
            Order::Restart(service) => self.services.restart(service, &mut { self.starter }),
            Order::Command(asked) => self.start(&asked, fds),
            Order::SignalCommand(number, signal) => {
                let asked = (self.others.iter()).find(|(_, asked)| **asked == number);
                if let Some(pid) = asked.and_then(|(pid, _)| Pid::from_raw(*pid)) {
                    end::signal_group(pid, signal);
                }
            }
        }
        Turn::On
    }

    fn start(&mut self, asked: &Command, fds: Vec<OwnedFd>) {
        let number = asked.number;
        let (report, terminal) = match self.starter.other(asked, fds) {
            Ok((pid, terminal)) => {
                self.others.insert(pid.as_raw_nonzero().get(), number);
                (Report::CommandStarted(number), terminal)
            }
            Err(failure) => (Report::CannotStart(Which::Command(number), failure), None),
        };
        let terminal: Vec<_> = terminal.iter().map(AsFd::as_fd).collect();
        let _ = protocol::send(self.starter.control, &report, &terminal);
    }

    /// Signals the command, as long as it has not ended.
    fn signal(&self, signal: i32) {
        if let (Some(command), None) = (self.command, self.ended) {
            end::signal(command, signal);
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
pub(super) fn outputs(plan: &Plan) -> Vec<Option<OwnedFd>> {
    let take = |service: &PlannedService| {
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
