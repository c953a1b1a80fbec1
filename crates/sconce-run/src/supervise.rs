//! The supervisor: from a request to the end of its last process.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use sconce_host::{Cgroups, Roots, SampleTarget, disks};
use sconce_schema::Runtime;
use sconce_schema::event::{Exit, Unenforced};
use sconce_schema::request::{DeviceNode, Network, Port, Root, RunRequest};
use tracing::{debug, info};

use crate::cgroup::{self, Asked, Cgroup, Placement};
use crate::desk::Desk;
use crate::engine;
use crate::error::{RunError, Wrong};
use crate::launch::{self, Launched};
use crate::logs::Logs;
use crate::plan::Plan;
use crate::ports::{Forwarder, Listening};
use crate::prepare;
use crate::protocol::{self, Failure, Order, Report, Which};
use crate::pty::Relay;
use crate::state::{self, Scratch};
use crate::sys::signals::{Catcher, Caught};
use crate::sys::socket;
use crate::way_out::{Inside, WayOut};
use crate::{Engine, Outcome, RunOptions, Used, Watcher};

/// Runs a request to its end.
pub(crate) fn run(
    request: &RunRequest,
    options: &RunOptions<'_>,
    watcher: &mut dyn Watcher,
) -> Result<Outcome, RunError> {
    prepare::check(request, options.host)?;
    if let Some(engine) = &options.engine {
        engine::check(engine, request, options.keep.is_some())?;
    }
    let contained = matches!(request.root, Root::Image(_));
    let root = prepare::is_machine_root();
    let engine = options
        .engine
        .as_ref()
        .map_or(Runtime::Sconce, Engine::runtime);
    let is_root = root;
    info!(id = request.id, %engine, contained, is_root, "a run begins");
    debug!(
        limits = serde_json::to_string(&request.limits).ok(),
        "limits asked for"
    );
    if let (true, false, Err(barrier)) = (contained, root, options.host.user_namespaces) {
        return Err(RunError::UserNamespaces(barrier));
    }
    free_ports(request)?;
    let listening = Listening::on(&published(request))?;
    state::sweep(&options.state_dir, &cgroup::Kernel);
    let mut scratch = scratch(request, options)?;
    let done = in_scratch(request, options, watcher, &mut scratch, listening, root);
    let done = done.and_then(|outcome| keep(options, &scratch, contained).map(|()| outcome));
    let removed = scratch.remove();
    let mut outcome = done?;
    outcome
        .left_behind
        .extend(removed.err().map(|(path, _)| path));
    Ok(outcome)
}

/// The ports of the run, and, where it has a network of its own, of its services.
fn published(request: &RunRequest) -> Vec<Port> {
    let services = request.services.iter().flat_map(|service| &service.ports);
    let services = services.filter(|_| request.network != Network::Host);
    request.ports.iter().chain(services).copied().collect()
}

/// On the machine's own network a service finds only too late that somebody has its port, and a
/// check of its health would be answered by that somebody.
fn free_ports(request: &RunRequest) -> Result<(), RunError> {
    if request.network != Network::Host {
        return Ok(());
    }
    for service in &request.services {
        if let Some(port) = service.ports.iter().find(|p| p.host != p.container) {
            return Err(RunError::Request(Wrong::ServicePort {
                name: service.name.clone(),
                container: port.container,
                host: port.host,
            }));
        }
        Listening::try_on(&service.ports)?;
    }
    Ok(())
}

/// Moves the writable layer to where it is wanted.
fn keep(options: &RunOptions<'_>, scratch: &Scratch, contained: bool) -> Result<(), RunError> {
    let Some(folder) = options.keep.as_ref().filter(|_| contained) else {
        return Ok(());
    };
    // A folder may be renamed over an empty one, rename(2).
    std::fs::rename(scratch.folder.join("upper"), folder).map_err(|source| RunError::State {
        path: folder.clone(),
        source,
    })
}

pub(crate) fn scratch(request: &RunRequest, options: &RunOptions<'_>) -> Result<Scratch, RunError> {
    Scratch::create(&options.state_dir, &request.id).map_err(|(path, source)| {
        if source.kind() == std::io::ErrorKind::WouldBlock {
            RunError::Running(request.id.clone())
        } else {
            RunError::State { path, source }
        }
    })
}

fn in_scratch(
    request: &RunRequest,
    options: &RunOptions<'_>,
    watcher: &mut dyn Watcher,
    scratch: &mut Scratch,
    listening: Listening,
    root: bool,
) -> Result<Outcome, RunError> {
    let devices: Vec<DeviceNode> = request
        .edits
        .iter()
        .flat_map(|e| e.device_nodes.clone())
        .collect();
    let cgroups = options.host.cgroups.as_ref();
    let contained = matches!(request.root, Root::Image(_));
    let engines = options.engine.is_some() && engine::holds_devices(cgroups, root);
    let asked = Asked {
        id: &request.id,
        limits: &request.limits,
        disks_weighed: request.limits.io_weight.is_some() && {
            let top = cgroups.and_then(Cgroups::v2);
            disks::weighed(&Roots::default(), top.map(|v2| v2.mount.as_path()))
        },
        devices: (contained && root && !engines).then_some(devices.as_slice()),
        privileged: root,
        waiting: options.waiting,
    };
    let placement = Placement::choose(&cgroup::Kernel, cgroups, asked);
    for folder in placement.folders() {
        debug!(folder = %folder.display(), "a cgroup of the run");
    }
    let v2 = placement.v2_folder();
    let prepared = prepare::prepare(request, options, &scratch.folder, root, v2)?;
    let mut plan = prepared.plan;
    for mount in plan
        .container
        .iter()
        .flat_map(|container| &container.mounts)
    {
        let (source, target) = (mount.source.display(), mount.target.display());
        debug!(%source, %target, "a mount");
    }
    let held = (plan.container.as_ref()).and_then(|container| container.held.as_ref());
    let engine_folder = held.and_then(|held| held.cgroup.clone());
    // The inner ones first.
    let noted = engine_folder.iter().map(std::path::PathBuf::as_path);
    let noted = scratch.note_cgroups(noted.chain(placement.folders()));
    noted.map_err(|source| RunError::State {
        path: scratch.folder.clone(),
        source,
    })?;
    let all = engine_folder.iter().map(std::path::PathBuf::as_path);
    let mut beside: Vec<_> = all
        .filter(|folder| !folder.ends_with(cgroup::ENGINE))
        .chain(placement.folders())
        .filter_map(|folder| folder.parent().map(std::path::Path::to_owned))
        .collect();
    beside.dedup();
    let signals = Catcher::new().map_err(RunError::setup("catch signals"))?;
    let (control, control_inside) = socket::pair().map_err(RunError::setup("make a socket"))?;
    let mut inherited: Vec<BorrowedFd<'_>> = prepared.owners.iter().map(AsFd::as_fd).collect();
    let sockets = match listening.is_empty() {
        true => None,
        false => Some(socket::pair().map_err(RunError::setup("make a socket"))?),
    };
    if let Some((_, inside)) = &sockets {
        plan.sockets = Some(std::os::fd::AsRawFd::as_raw_fd(inside));
        inherited.push(inside.as_fd());
    }
    let (mut logs, mut outputs) = (Logs::default(), Vec::new());
    if let Some(control) = &options.control {
        let mut pipe = |name: &str| {
            let writer = logs.add(name).map_err(RunError::setup("make a pipe"))?;
            let number = std::os::fd::AsRawFd::as_raw_fd(&writer);
            outputs.push(writer);
            Ok::<_, RunError>(Some(number))
        };
        for service in &mut plan.services {
            service.output = pipe(&service.name)?;
        }
        if control.log_command && !plan.command.is_empty() {
            plan.output = pipe("run")?;
        }
    }
    inherited.extend(outputs.iter().map(AsFd::as_fd));
    let plan_file = written(&plan).map_err(RunError::setup("write the plan"))?;
    let launched = launch::launch(
        &options.program,
        prepared.namespaces,
        plan_file.as_fd(),
        control_inside.as_fd(),
        &inherited,
    );
    let by_user = contained_by_user(&prepared.namespaces);
    let launched = launched.map_err(|error| no_clone(error, by_user))?;
    debug!(pid = launched.pid, "the first process is started");
    drop((control_inside, plan_file, inherited));
    drop(outputs);
    let mut run = Run {
        first: First(Some(launched)),
        control,
        signals,
        options,
        relay: None,
        contained: prepared.namespaces.is_some(),
        by_user,
        unenforced: prepared.unenforced,
        own_network: request.network == Network::Own,
        shared: (plan.container.as_ref()).is_some_and(|container| container.shared.is_some()),
        way_out: None,
        // A command whose output goes into a log is in a session of its own as well.
        alone: prepared.namespaces.is_some() || plan.output.is_some() || plan.command.is_empty(),
        desk: Desk::new(request, options.engine.as_ref().map(Engine::runtime)),
        logs,
    };
    // Init mounts while the cgroups are made.
    let cgroup = Cgroup::create(&cgroup::Kernel, placement, asked);
    cgroup::sweep(&cgroup::Kernel, &beside);
    let forwarder = match sockets {
        Some((outside, inside)) => {
            drop(inside);
            Some(Forwarder::start(listening, outside).map_err(RunError::setup("carry ports"))?)
        }
        None => None,
    };
    let exit = run.until_the_end(&cgroup, watcher);
    drop(forwarder);
    // The last reading needs the cgroup; removing it needs every process gone.
    let ended = exit.map(|(exit, used)| {
        let out_of_memory = cgroup.out_of_memory();
        if let Some(used) = used {
            watcher.used(used);
        }
        watcher.logs_lost(run.logs.lost());
        watcher.ended(exit, out_of_memory);
        Outcome {
            exit,
            out_of_memory,
            used,
            left_behind: Vec::new(),
        }
    });
    match &ended {
        Ok(_) => run.first.wait(),
        Err(_) => run.give_up(),
    }
    // Nobody has the pipes open any more.
    run.logs.finish();
    let engines = engine_folder
        .filter(|folder| folder.exists())
        .map_or(Ok(()), |folder| {
            cgroup::remove_all(&cgroup::Kernel, &folder)
        });
    let left = engines.and(cgroup.remove()).err().map(|(path, _)| path);
    let mut outcome = ended?;
    outcome.left_behind.extend(left);
    Ok(outcome)
}

fn contained_by_user(namespaces: &Option<launch::Namespaces>) -> bool {
    namespaces.is_some_and(|n| n.user.is_some())
}

/// The kernel refused new namespaces. What its settings forbid was found before; an EPERM now is
/// the doing of a filter of system calls or of a security module.
fn no_clone(error: std::io::Error, by_user: bool) -> RunError {
    use sconce_host::UsernsBarrier;
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RunError::Namespaces(error),
        Some(libc::ENOSPC | libc::EUSERS) => RunError::UserNamespaces(UsernsBarrier::MaxIsZero),
        Some(libc::EINVAL) if by_user => RunError::UserNamespaces(UsernsBarrier::NotBuilt),
        _ => RunError::setup("start the first process")(error),
    }
}

/// The plan in an anonymous file, ready to be read.
fn written(plan: &Plan) -> std::io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"sconce-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(plan)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// The first process, which is killed and waited for whatever happens.
struct First(Option<Launched>);

impl First {
    fn pid(&self) -> u32 {
        self.0.as_ref().map_or(0, |first| first.pid as u32)
    }

    /// Ends it and, in a container, with it everything.
    fn kill(&mut self) {
        if let Some(first) = &self.0 {
            let _ = pidfd_send_signal(&first.pidfd, Signal::KILL);
        }
        self.wait();
    }

    /// Until it has ended; only then are its namespaces gone.
    fn wait(&mut self) {
        if let Some(first) = self.0.take() {
            let _ = waitid(WaitId::PidFd(first.pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

impl Drop for First {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Run<'a> {
    first: First,
    control: OwnedFd,
    signals: Catcher,
    options: &'a RunOptions<'a>,
    relay: Option<Relay>,
    contained: bool,
    by_user: bool,
    /// What was found before anything was started.
    unenforced: Vec<Unenforced>,
    /// Whether the command has left the caller's session, so that the terminal's signals reach
    /// it only through Sconce.
    alone: bool,
    /// Whether its network is to have a way out, and that.
    own_network: bool,
    /// Whether init brings a folder that the run's processes may write to.
    shared: bool,
    way_out: Option<WayOut>,
    desk: Desk,
    logs: Logs,
}

impl Run<'_> {
    /// Ends what was started of a run that fails. Init takes the silence as the word to end
    /// everything; where it is process 1, the kernel does it for it.
    fn give_up(&mut self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        if self.contained {
            self.first.kill();
        }
        self.first.wait();
    }

    fn until_the_end(
        &mut self,
        cgroup: &Cgroup<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<(Exit, Option<Used>), RunError> {
        let terminal = self.prepared(cgroup, watcher)?;
        let join = cgroup.join().map_err(RunError::setup("open the cgroup"))?;
        let fds: Vec<_> = join
            .tasks
            .iter()
            .chain(&join.folder)
            .map(AsFd::as_fd)
            .collect();
        let go = Order::Go {
            tasks: join.tasks.len(),
            folder: join.folder.is_some(),
        };
        // The command's first look at its terminal shows the true size.
        if let Some(master) = terminal {
            self.alone = true;
            self.relay = Some(Relay::start(master).map_err(RunError::setup("join the terminals"))?);
        }
        protocol::send(&self.control, &go, &fds).map_err(|_| self.lost())?;
        let exit = self.watch(cgroup, watcher);
        self.relay = None;
        exit
    }

    /// Waits until everything is mounted, and says what cannot be enforced.
    fn prepared(
        &mut self,
        cgroup: &Cgroup<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<Option<OwnedFd>, RunError> {
        let (mut notices, mut fds) = match self.report()? {
            Some((Report::Prepared(notices), message)) => (notices, message.fds),
            Some((Report::Failed(failure), _)) => return Err(self.failed(failure)),
            _ => return Err(self.lost()),
        };
        if self.shared {
            watcher.shared(fds.pop().ok_or_else(|| self.lost())?);
        }
        if self.own_network {
            let inside = Inside {
                first: self.first.pid(),
                by_user: self.by_user,
            };
            match WayOut::start(&self.options.ways_out, inside) {
                Ok((helper, name, fault)) => {
                    info!(name, "the network's way out");
                    watcher.way_out(&name);
                    self.unenforced.extend(fault);
                    self.way_out = Some(helper);
                }
                Err(unenforced) => self.unenforced.push(unenforced),
            }
        }
        let mut all: Vec<Unenforced> = cgroup.unenforced().to_vec();
        all.append(&mut self.unenforced);
        all.append(&mut notices);
        debug!("the first process has mounted what it has to");
        if !all.is_empty() {
            for one in &all {
                info!(what = one.what, why = one.why, "not enforced");
            }
            watcher.unenforced(&all);
            if self.options.strict {
                return Err(RunError::Unenforced(all));
            }
        }
        Ok(fds.into_iter().next())
    }

    fn report(&self) -> Result<Option<(Report, socket::Message)>, RunError> {
        protocol::receive(&self.control).map_err(RunError::setup("understand the container's init"))
    }

    fn failed(&self, failure: Failure) -> RunError {
        match failure {
            // AppArmor lets the namespace be made and takes its capabilities.
            Failure::Step {
                doing,
                errno: libc::EPERM | libc::EACCES,
            } if self.by_user && doing == launch::MAP_IDS => {
                RunError::UserNamespaces(sconce_host::UsernsBarrier::AppArmor)
            }
            failure => RunError::inside(failure),
        }
    }

    fn lost(&mut self) -> RunError {
        let Some(first) = self.first.0.take() else {
            return RunError::Lost("it is gone".to_owned());
        };
        let _ = pidfd_send_signal(&first.pidfd, Signal::KILL);
        let status = waitid(WaitId::PidFd(first.pidfd.as_fd()), WaitIdOptions::EXITED);
        RunError::Lost(match status {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exit code {code}"),
                (_, Some(signal)) => format!("signal {signal}"),
                _ => "no status".to_owned(),
            },
            _ => "no status".to_owned(),
        })
    }

    /// Until the command has ended: passes signals on, and has samples taken.
    fn watch(
        &mut self,
        cgroup: &Cgroup<'_>,
        watcher: &mut dyn Watcher,
    ) -> Result<(Exit, Option<Used>), RunError> {
        let mut next = None;
        let mut failure = None;
        let mut asked_to_end = None;
        loop {
            let timeout = next.map(|next: Instant| {
                let left = next.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: left.as_secs() as i64,
                    tv_nsec: i64::from(left.subsec_nanos()),
                }
            });
            let mut fds = vec![
                PollFd::new(&self.control, PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN),
            ];
            fds.extend(self.desk.watched());
            // An interruption is a signal, which is read below.
            let _ = poll(&mut fds, timeout.as_ref());
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(fds);
            let reported = ready[0];
            for (who, asks) in self.desk.numbers().into_iter().zip(&ready[2..]) {
                match who {
                    _ if !asks => {}
                    None => self.desk.accept(),
                    Some(number) => self.desk.hear(number, &self.control),
                }
            }
            while let Some(caught) = self.signals.next() {
                self.pass_on(caught, &mut asked_to_end);
            }
            if reported {
                match self.report()? {
                    Some((Report::Executing, message)) => {
                        let pid = message.sender.and_then(|pid| u32::try_from(pid).ok());
                        debug!(pid, "the command is executed");
                        watcher.started(&self.target(cgroup, pid));
                        self.open();
                        next = Some(Instant::now() + self.options.sample_every);
                    }
                    Some((Report::Executed, _)) => watcher.goes_on(),
                    Some((Report::Serving, _)) => {
                        watcher.started(&self.target(cgroup, None));
                        self.open();
                        watcher.goes_on();
                        next = Some(Instant::now() + self.options.sample_every);
                    }
                    Some((Report::Service(change), _)) => {
                        if let Some(event) = self.desk.changed(change) {
                            watcher.service(&event);
                        }
                    }
                    Some((Report::CannotStart(Which::Service(service), why), _)) => {
                        self.desk.cannot_start_service(service, why);
                    }
                    Some((Report::CannotStart(Which::Command(number), why), _)) => {
                        self.desk.cannot_start(number, why);
                    }
                    Some((Report::CommandStarted(number), message)) => {
                        self.desk.started(number, &message.fds);
                    }
                    Some((Report::CommandEnded(number, exit), _)) => {
                        self.desk.ended(number, exit);
                    }
                    Some((Report::Failed(reason), _)) => failure = Some(self.failed(reason)),
                    Some((Report::Exited(exit, used), _)) => {
                        info!(?exit, "the command has ended");
                        return failure.map_or(Ok((exit, used)), Err);
                    }
                    Some((Report::Prepared(_), _)) => {}
                    None => return Err(failure.unwrap_or_else(|| self.lost())),
                }
            }
            if let Some(due) = next.filter(|due| *due <= Instant::now()) {
                watcher.tick();
                // A slow reading shifts the next ones; it is not caught up with.
                next = Some((due + self.options.sample_every).max(Instant::now()));
            }
        }
    }

    /// From now on it is spoken to, and what it writes is kept. Where that cannot be, the run goes
    /// on without.
    fn open(&mut self) {
        if let Some(control) = &self.options.control {
            let _ = self.desk.open(&control.folder);
            let _ = self.logs.begin(&control.folder);
        }
    }

    fn target(&self, cgroup: &Cgroup<'_>, command: Option<u32>) -> SampleTarget {
        let init = self.first.pid();
        SampleTarget {
            root_pid: command,
            reaper: Some(init),
            cgroups: cgroup.sampled(),
            // Without a container /dev/shm is the whole machine's.
            shm: self
                .contained
                .then(|| format!("/proc/{init}/root/dev/shm").into()),
            ..SampleTarget::default()
        }
    }

    /// The command gets the signal; one that asks it to end a second time, when the grace is over,
    /// ends everything.
    fn pass_on(&self, caught: Caught, asked_to_end: &mut Option<Instant>) {
        if caught.signal == libc::SIGWINCH {
            if let Some(relay) = &self.relay {
                relay.copy_size();
            }
            return;
        }
        let ends = matches!(caught.signal, libc::SIGINT | libc::SIGTERM);
        let grace_is_over =
            asked_to_end.is_some_and(|asked: Instant| asked.elapsed() >= self.options.grace);
        let order = if ends && grace_is_over {
            Order::Kill
        } else if caught.by_terminal && !self.alone {
            // The terminal has sent it to the command as well.
            asked_to_end.get_or_insert_with(Instant::now);
            return;
        } else {
            Order::Signal(caught.signal)
        };
        debug!(signal = caught.signal, "passes a signal on");
        if ends {
            asked_to_end.get_or_insert_with(Instant::now);
        }
        let _ = protocol::send(&self.control, &order, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_host::UsernsBarrier;
    use sconce_schema::Hint;

    #[test]
    fn a_refused_clone_names_what_is_known_of_the_cause() {
        let refused = |errno, by_user| no_clone(std::io::Error::from_raw_os_error(errno), by_user);
        for errno in [libc::ENOSPC, libc::EUSERS] {
            assert!(matches!(
                refused(errno, true),
                RunError::UserNamespaces(UsernsBarrier::MaxIsZero)
            ));
        }
        assert!(matches!(
            refused(libc::EINVAL, true),
            RunError::UserNamespaces(UsernsBarrier::NotBuilt)
        ));
        let filtered = refused(libc::EPERM, true);
        assert!(matches!(filtered, RunError::Namespaces(_)));
        assert_eq!(filtered.exit_code(), sconce_schema::exit::RUN);
        assert!(filtered.hint().unwrap().contains("container engines"));
        assert!(matches!(
            refused(libc::ENOMEM, false),
            RunError::Setup { .. }
        ));
    }
}
