//! Runs that Sconce holds itself: in a container around its own first process, or without one. With an
//! engine, that process starts the engine in the container, which then starts the command.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};
use sconce_host::{Cgroups, Roots, SampleScope, UsernsObstacle, disks};
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::{DeviceNode, NetworkMode, PublishedPort, RunRequest, RunRoot};
use sconce_schema::runtime::RuntimeSummary;
use tracing::{debug, info};

use super::{Execution, Executor, Job, RunEnd, RunEvent};
use crate::cgroup::{self, Cgroup, CgroupRequest, Placement};
use crate::error::{InvalidRequest, RunError};
use crate::init_config::InitConfig;
use crate::launch::{self, FirstProcess, Namespaces};
use crate::output_tail::{ErrorRelay, LossCounter, OutputTail, WriteFailure};
use crate::ports::{Forwarder, PortListeners};
use crate::protocol::{self, InitFailure, InitReport, SupervisorRequest};
use crate::pty::Relay;
use crate::sys::socket;
use crate::usernet::{NetnsTarget, UserModeNetwork};
use crate::{ContainerEngine, RunObserver, RunOptions, engine};
use crate::{prepare, rlimits};

/// Sconce itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Native;

impl Executor for Native {
    fn summary(&self) -> Option<RuntimeSummary> {
        None
    }

    fn check(&self, request: &RunRequest, options: &RunOptions<'_>) -> Result<(), RunError> {
        check_user_namespaces(request, options)
    }

    fn prepare<'a>(&'a self, job: Job<'a, '_>) -> Result<Box<dyn Execution + 'a>, RunError> {
        Ok(Box::new(NativeExecution::prepare(job, None)?))
    }
}

impl Executor for ContainerEngine {
    fn summary(&self) -> Option<RuntimeSummary> {
        Some(RuntimeSummary {
            name: self.runtime(),
            version: self.version().to_owned(),
        })
    }

    fn check(&self, request: &RunRequest, options: &RunOptions<'_>) -> Result<(), RunError> {
        engine::validate_request(self, request, options.keep.is_some())?;
        check_user_namespaces(request, options)
    }

    fn prepare<'a>(&'a self, job: Job<'a, '_>) -> Result<Box<dyn Execution + 'a>, RunError> {
        Ok(Box::new(NativeExecution::prepare(job, Some(self))?))
    }
}

fn is_contained(request: &RunRequest) -> bool {
    matches!(request.root, RunRoot::Image(_))
}

fn check_user_namespaces(request: &RunRequest, options: &RunOptions<'_>) -> Result<(), RunError> {
    match options.host.user_namespaces {
        Err(barrier) if is_contained(request) && !prepare::is_machine_root() => {
            Err(RunError::UserNamespaces(barrier))
        }
        _ => Ok(()),
    }
}

/// The ports of the run, and, where it has a network of its own, of its services.
fn published(request: &RunRequest) -> Vec<PublishedPort> {
    let services = request.services.iter().flat_map(|service| &service.ports);
    let services = services.filter(|_| request.network != NetworkMode::Host);
    request.ports.iter().chain(services).copied().collect()
}

/// On the machine's own network a service finds only too late that somebody has its port, and a
/// check of its health would be answered by that somebody.
fn check_service_ports(request: &RunRequest) -> Result<(), RunError> {
    if request.network != NetworkMode::Host {
        return Ok(());
    }
    for service in &request.services {
        if let Some(port) = service.ports.iter().find(|p| p.host != p.container) {
            return Err(RunError::Request(InvalidRequest::ServicePort {
                name: service.name.clone(),
                container: port.container,
                host: port.host,
            }));
        }
        PortListeners::try_on(&service.ports)?;
    }
    Ok(())
}

/// A run around Sconce's own first process ("init").
struct NativeExecution<'a> {
    options: &'a RunOptions<'a>,
    first: FirstProcessGuard,
    /// To init, and from it.
    control: OwnedFd,
    /// Those of the run; made while init mounts.
    cgroup: Cgroup<'static>,
    /// The cgroup that an engine makes.
    engine_cgroup: Option<PathBuf>,
    /// Carries connections to ports of the run.
    forwarder: Option<Forwarder>,
    /// The command's terminal, until it is joined with the caller's.
    terminal: Option<OwnedFd>,
    relay: Option<Relay>,
    /// Carries its standard error, where it has no terminal.
    error_relay: Option<ErrorRelay>,
    /// The end of what either carried.
    tail: OutputTail,
    /// What of it was not taken.
    loss: LossCounter,
    is_contained: bool,
    has_user_namespace: bool,
    /// Whether its network is to have a way out, and that.
    has_own_network: bool,
    way_out: Option<UserModeNetwork>,
    /// Whether init brings a folder that the run's processes may write to.
    has_shared_folder: bool,
    /// Whether the command has left the caller's session, so that the terminal's signals reach it only
    /// through Sconce.
    has_own_session: bool,
    /// What was found before anything was started.
    unenforced: Vec<UnenforcedLimit>,
    /// Whether each process carries the limit of processes, so that it holds without a cgroup.
    carries_process_limit: bool,
    /// Why the command could not be executed, until init has ended what there is.
    failure: Option<RunError>,
}

impl<'a> NativeExecution<'a> {
    fn prepare(job: Job<'a, '_>, engine: Option<&ContainerEngine>) -> Result<Self, RunError> {
        let Job {
            request,
            options,
            scratch,
            logs,
        } = job;
        check_service_ports(request)?;
        let listening = PortListeners::bind_all(&published(request))?;
        let is_root = prepare::is_machine_root();
        let devices: Vec<DeviceNode> = request
            .edits
            .iter()
            .flat_map(|edits| edits.device_nodes.clone())
            .collect();
        let cgroups = options.host.cgroups.as_ref();
        let engine_holds_devices = engine.is_some() && engine::holds_devices(cgroups, is_root);
        let asked = CgroupRequest {
            id: &request.id,
            limits: &request.limits,
            disks_weighed: request.limits.io_weight.is_some() && {
                let top = cgroups.and_then(Cgroups::v2_hierarchy);
                disks::detect_io_weight_support(&Roots::default(), top.map(|v2| v2.mount.as_path()))
            },
            devices: (is_contained(request) && is_root && !engine_holds_devices && !options.in_job)
                .then_some(devices.as_slice()),
            privileged: is_root,
            waiting: options.waiting,
        };
        let placement = match options.in_job {
            true => Placement::in_job(&cgroup::KernelCgroupFs, cgroups, &asked),
            false => Placement::choose(&cgroup::KernelCgroupFs, cgroups, asked),
        };
        for folder in placement.cgroup_dirs() {
            debug!(folder = %folder.display(), "a cgroup of the run");
        }
        let v2 = placement.v2_folder();
        let prepared =
            prepare::prepare_run(request, options, engine, &scratch.folder, is_root, v2)?;
        let mut plan = prepared.plan;
        if has_user_namespace(&prepared.namespaces) && rlimits::counts_processes_by_namespace() {
            // The container's first process counts too, and is in no cgroup of the run.
            let processes = request.limits.pids.map(|pids| pids.saturating_add(1));
            plan.own.processes = processes;
        }
        let carries_process_limit = plan.own.processes.is_some();
        let container = plan.container.as_ref();
        for mount in container.iter().flat_map(|container| &container.mounts) {
            let (source, target) = (mount.source.display(), mount.target.display());
            debug!(%source, %target, "a mount");
        }
        let held = container.and_then(|container| container.held.as_ref());
        let engine_cgroup = held.and_then(|held| held.cgroup.clone());
        let has_shared_folder = container.is_some_and(|container| container.shared.is_some());
        // The inner ones first.
        let noted = engine_cgroup.iter().map(PathBuf::as_path);
        let noted = scratch.note_cgroups(noted.chain(placement.cgroup_dirs()));
        noted.map_err(|source| RunError::State {
            path: scratch.folder.clone(),
            source,
        })?;
        let parents = parents_of_cgroups(engine_cgroup.as_deref(), &placement);
        let (control, control_inside) =
            socket::pair().map_err(RunError::at_step("make a socket"))?;
        let mut inherited: Vec<BorrowedFd<'_>> = prepared.owners.iter().map(AsFd::as_fd).collect();
        let sockets = match listening.is_empty() {
            true => None,
            false => Some(socket::pair().map_err(RunError::at_step("make a socket"))?),
        };
        if let Some((_, inside)) = &sockets {
            plan.sockets = Some(inside.as_raw_fd());
            inherited.push(inside.as_fd());
        }
        let mut outputs = Vec::new();
        if let Some(control) = &options.control {
            let mut pipe = |name: &str| {
                let writer = logs
                    .add_service(name)
                    .map_err(RunError::at_step("make a pipe"))?;
                let number = writer.as_raw_fd();
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
        let tail = OutputTail::default();
        let loss = LossCounter::default();
        let on_write_failure = match options.survives_lost_output {
            true => WriteFailure::Count(loss.clone()),
            false => WriteFailure::PassOn,
        };
        let is_relayed = is_contained(request) && !plan.terminal && plan.output.is_none();
        let (error_relay, streams) = match is_relayed && !plan.command.is_empty() {
            true => ErrorRelay::start(tail.clone(), on_write_failure)
                .map_err(RunError::at_step("make a pipe"))?,
            false => None,
        }
        .unzip();
        if let Some(streams) = streams {
            plan.relayed = Some((streams.writer.as_raw_fd(), streams.both));
            outputs.push(streams.writer);
        }
        inherited.extend(outputs.iter().map(AsFd::as_fd));
        let plan_file = anonymous_file(&plan).map_err(RunError::at_step("write the plan"))?;
        let launched = launch::spawn_init(
            &options.program,
            prepared.namespaces,
            plan_file.as_fd(),
            control_inside.as_fd(),
            &inherited,
        );
        let has_user_namespace = has_user_namespace(&prepared.namespaces);
        let launched = launched.map_err(|error| describe_clone_error(error, has_user_namespace))?;
        let first = FirstProcessGuard(Some(launched));
        debug!(pid = first.pid(), "the first process is started");
        drop((control_inside, plan_file, inherited));
        drop(outputs);
        // Init mounts while the cgroups are made.
        let cgroup = Cgroup::create(&cgroup::KernelCgroupFs, placement, asked);
        cgroup::remove_stale_cgroups(&cgroup::KernelCgroupFs, &parents);
        let mut execution = Self {
            options,
            first,
            control,
            cgroup,
            engine_cgroup,
            forwarder: None,
            terminal: None,
            relay: None,
            error_relay,
            tail,
            loss,
            is_contained: prepared.namespaces.is_some(),
            has_user_namespace,
            has_own_network: request.network == NetworkMode::Own,
            way_out: None,
            has_shared_folder,
            // A command whose output goes into a log is in a session of its own as well.
            has_own_session: prepared.namespaces.is_some()
                || plan.output.is_some()
                || plan.command.is_empty(),
            unenforced: prepared.unenforced,
            carries_process_limit,
            failure: None,
        };
        if let Some((outside, inside)) = sockets {
            drop(inside);
            match Forwarder::start(listening, outside) {
                Ok(forwarder) => execution.forwarder = Some(forwarder),
                Err(error) => {
                    execution.end(true);
                    return Err(RunError::at_step("carry ports")(error));
                }
            }
        }
        Ok(execution)
    }

    fn receive_report(&self) -> Result<Option<(InitReport, socket::SocketMessage)>, RunError> {
        protocol::receive_value(&self.control)
            .map_err(RunError::at_step("understand the container's init"))
    }

    fn describe_failure(&self, failure: InitFailure) -> RunError {
        match failure {
            // AppArmor lets the namespace be made and takes its capabilities.
            InitFailure::Step {
                doing,
                errno: libc::EPERM | libc::EACCES,
            } if self.has_user_namespace && doing == launch::MAP_IDS => {
                RunError::UserNamespaces(UsernsObstacle::AppArmor)
            }
            failure => RunError::from_init_failure(failure),
        }
    }

    /// Init has gone without a word.
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

    fn start_way_out(&mut self, watcher: &mut dyn RunObserver) {
        let inside = NetnsTarget {
            first: self.first.pid(),
            by_user: self.has_user_namespace,
        };
        match UserModeNetwork::start(&self.options.ways_out, inside) {
            Ok((helper, name, fault)) => {
                info!(name, "the network's way out");
                watcher.way_out(&name);
                self.unenforced.extend(fault);
                self.way_out = Some(helper);
            }
            Err(unenforced) => self.unenforced.push(unenforced),
        }
    }

    fn sample_target(&self, command: Option<u32>) -> SampleScope {
        let init = self.first.pid();
        SampleScope {
            root_pid: command,
            reaper: Some(init),
            cgroups: self.cgroup.to_run_cgroups(),
            // Without a container /dev/shm is the whole machine's.
            shm: self
                .is_contained
                .then(|| format!("/proc/{init}/root/dev/shm").into()),
            ..SampleScope::default()
        }
    }

    fn remove_cgroups(&self) -> Option<PathBuf> {
        let engines = match &self.engine_cgroup {
            Some(folder) if folder.exists() => cgroup::remove_all(&cgroup::KernelCgroupFs, folder),
            _ => Ok(()),
        };
        engines
            .and(self.cgroup.remove())
            .err()
            .map(|(path, _)| path)
    }
}

impl Execution for NativeExecution<'_> {
    /// Waits until everything is mounted.
    fn wait_until_prepared(
        &mut self,
        watcher: &mut dyn RunObserver,
    ) -> Result<Vec<UnenforcedLimit>, RunError> {
        let (mut notices, mut fds) = match self.receive_report()? {
            Some((InitReport::Prepared(notices), message)) => (notices, message.fds),
            Some((InitReport::Failed(failure), _)) => return Err(self.describe_failure(failure)),
            _ => return Err(self.lost()),
        };
        debug!("the first process has mounted what it has to");
        if self.has_shared_folder {
            watcher.shared(fds.pop().ok_or_else(|| self.lost())?);
        }
        self.terminal = fds.into_iter().next();
        if self.has_own_network {
            self.start_way_out(watcher);
        }
        let by_cgroup = self.cgroup.unenforced_limits().iter();
        let mut all: Vec<UnenforcedLimit> = by_cgroup
            .filter(|limit| limit.what != "pids" || !self.carries_process_limit)
            .cloned()
            .collect();
        all.append(&mut self.unenforced);
        all.append(&mut notices);
        Ok(all)
    }

    fn start(&mut self) -> Result<Vec<RunEvent>, RunError> {
        let join = self.cgroup.open_join_handles();
        let join = join.map_err(RunError::at_step("open the cgroup"))?;
        let fds: Vec<_> = join
            .tasks
            .iter()
            .chain(&join.folder)
            .map(AsFd::as_fd)
            .collect();
        let go = SupervisorRequest::Go {
            tasks: join.tasks.len(),
            folder: join.folder.is_some(),
        };
        // The command's first look at its terminal shows the true size.
        if let Some(master) = self.terminal.take() {
            self.has_own_session = true;
            self.relay = Some(
                Relay::start(master, self.tail.clone())
                    .map_err(RunError::at_step("join the terminals"))?,
            );
        }
        protocol::send_value(&self.control, &go, &fds).map_err(|_| self.lost())?;
        Ok(Vec::new())
    }

    fn event_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.control.as_fd())
    }

    fn read_events(&mut self) -> Result<Vec<RunEvent>, RunError> {
        let Some((report, message)) = self.receive_report()? else {
            return Err(self.failure.take().unwrap_or_else(|| self.lost()));
        };
        Ok(vec![match report {
            InitReport::Executing => {
                let pid = message.sender.and_then(|pid| u32::try_from(pid).ok());
                debug!(pid, "the command is executed");
                RunEvent::Started(self.sample_target(pid))
            }
            InitReport::Executed => RunEvent::Detached,
            InitReport::Serving => {
                let started = RunEvent::Started(self.sample_target(None));
                return Ok(vec![started, RunEvent::Detached]);
            }
            InitReport::Service(change) => RunEvent::ServiceChanged(change),
            InitReport::CannotStart(which, why) => RunEvent::CannotStart(which, why),
            InitReport::CommandStarted(number) => RunEvent::CommandStarted(number, message.fds),
            InitReport::CommandEnded(number, exit) => RunEvent::CommandEnded(number, exit),
            InitReport::Failed(reason) => {
                self.failure = Some(self.describe_failure(reason));
                return Ok(Vec::new());
            }
            InitReport::Exited(exit, used) => {
                info!(?exit, "the command has ended");
                if let Some(failure) = self.failure.take() {
                    return Err(failure);
                }
                self.relay = None;
                self.error_relay = None;
                self.forwarder = None;
                RunEvent::Ended(RunEnd {
                    exit,
                    last_output: self.tail.to_bytes(),
                    lost_output: self.loss.lost_output(),
                    out_of_memory: self.cgroup.out_of_memory(),
                    used,
                })
            }
            InitReport::Prepared(_) => return Ok(Vec::new()),
        }])
    }

    fn deliver(&mut self, order: &SupervisorRequest, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        protocol::send_value(&self.control, order, fds)
    }

    fn copy_terminal_size(&self) {
        if let Some(relay) = &self.relay {
            relay.copy_size();
        }
    }

    fn is_in_foreground(&self) -> bool {
        !self.has_own_session
    }

    fn end(&mut self, has_failed: bool) -> Vec<PathBuf> {
        self.relay = None;
        self.error_relay = None;
        self.forwarder = None;
        if has_failed {
            // Init takes the silence as the word to end everything; where it is process 1, the kernel
            // does it for it.
            let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
            if self.is_contained {
                self.first.kill();
            }
        }
        self.first.wait();
        self.remove_cgroups().into_iter().collect()
    }
}

/// Where the cgroups of runs are, those of this run among them.
fn parents_of_cgroups(engine_cgroup: Option<&Path>, placement: &Placement) -> Vec<PathBuf> {
    let mut parents: Vec<_> = engine_cgroup
        .into_iter()
        .filter(|folder| !folder.ends_with(cgroup::ENGINE))
        .chain(placement.cgroup_dirs())
        .filter_map(|folder| folder.parent().map(Path::to_owned))
        .collect();
    parents.dedup();
    parents
}

fn has_user_namespace(namespaces: &Option<Namespaces>) -> bool {
    namespaces.is_some_and(|namespaces| namespaces.user.is_some())
}

/// The kernel refused new namespaces. What its settings forbid was found before; an EPERM now is
/// the doing of a filter of system calls or of a security module.
fn describe_clone_error(error: io::Error, has_user_namespace: bool) -> RunError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => RunError::Namespaces(error),
        Some(libc::ENOSPC | libc::EUSERS) => RunError::UserNamespaces(UsernsObstacle::MaxIsZero),
        Some(libc::EINVAL) if has_user_namespace => {
            RunError::UserNamespaces(UsernsObstacle::NotBuilt)
        }
        _ => RunError::at_step("start the first process")(error),
    }
}

/// The plan in an anonymous file, ready to be read.
fn anonymous_file(plan: &InitConfig) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(c"sconce-plan", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(plan)?)?;
    file.rewind()?;
    Ok(file.into())
}

/// The first process, which is killed and waited for whatever happens.
struct FirstProcessGuard(Option<FirstProcess>);

impl FirstProcessGuard {
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

impl Drop for FirstProcessGuard {
    fn drop(&mut self) {
        self.kill();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::Hint;

    #[test]
    fn a_refused_clone_names_what_is_known_of_the_cause() {
        let refused =
            |errno, by_user| describe_clone_error(io::Error::from_raw_os_error(errno), by_user);
        for errno in [libc::ENOSPC, libc::EUSERS] {
            assert!(matches!(
                refused(errno, true),
                RunError::UserNamespaces(UsernsObstacle::MaxIsZero)
            ));
        }
        assert!(matches!(
            refused(libc::EINVAL, true),
            RunError::UserNamespaces(UsernsObstacle::NotBuilt)
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
