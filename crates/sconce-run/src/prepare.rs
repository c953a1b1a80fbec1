//! From a request to a plan: everything that can be checked before anything is started is checked
//! here, and everything is decided.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use rustix::thread::CapabilitySet;
use sconce_base::Env;
use sconce_host::HostProfile;
use sconce_schema::event::UnenforcedLimit;
use sconce_schema::request::{
    ContainerEdits, ContainerUser, NetworkMode, RunLimits, RunRequest, RunRoot,
};
use sconce_schema::service::{HealthTest, RunService};
use sconce_schema::units::Bytes;

use crate::capabilities;
use crate::engine;
use crate::error::{InvalidRequest, RunError};
use crate::idmap::IdMapping;
use crate::init_config::{ContainerConfig, Credentials, InitConfig, InitMount, InitService};
use crate::launch::Namespaces;
use crate::rlimits::{CpuPlacement, HardLimits, ProcessLimits};
use crate::sys::mount::{NODEV, NOEXEC, NOSUID, RDONLY};
use crate::{ContainerEngine, RunOptions};

/// The overlay file system's own limit (`OVL_MAX_STACK`), less the run's own layer.
pub(crate) const MAX_LAYERS: usize = 499;

/// So many that what is told of them fits into a message.
const MAX_SERVICES: usize = 64;

/// uid and gid of [`ContainerUser::Plain`].
const PLAIN: u32 = 1000;

/// Whether the caller is the machine's root, and not root of a user namespace that others made.
#[must_use]
pub fn is_machine_root() -> bool {
    rustix::process::geteuid().is_root()
        && capabilities::has_effective(
            CapabilitySet::SYS_ADMIN | CapabilitySet::SETUID | CapabilitySet::SETGID,
        )
        && std::fs::read_to_string("/proc/self/uid_map")
            .is_ok_and(|map| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// What there is to do.
#[derive(Debug)]
pub(crate) struct PreparedRun {
    pub(crate) plan: InitConfig,
    /// Absent without a container.
    pub(crate) namespaces: Option<Namespaces>,
    /// User namespaces that the plan's mounts name.
    pub(crate) owners: Vec<OwnedFd>,
    /// Wishes that cannot be granted.
    pub(crate) unenforced: Vec<UnenforcedLimit>,
}

/// Checks the parts that need no disk.
///
/// # Errors
/// [`RunError::Request`].
pub(crate) fn validate_request(request: &RunRequest, host: &HostProfile) -> Result<(), RunError> {
    let wrong = wrong(request).or_else(|| wrong_limit(&request.limits, host));
    wrong.map_or(Ok(()), |wrong| Err(RunError::Request(wrong)))
}

/// Limits that cannot be meant: nothing at all, more than there is, or one against another.
fn wrong_limit(limits: &RunLimits, host: &HostProfile) -> Option<InvalidRequest> {
    let nothing = [
        ("memory", limits.memory.is_some_and(|size| size.0 == 0)),
        ("shm", limits.shm.is_some_and(|size| size.0 == 0)),
        ("cpus", limits.cpus.is_some_and(|cpus| cpus.0 == 0)),
        ("pids", limits.pids == Some(0)),
        ("io-weight", limits.io_weight == Some(0)),
        ("nofile", limits.nofile == Some(0)),
        ("cpuset", limits.cpuset.is_some_and(|cpus| cpus.is_empty())),
    ];
    if let Some((what, _)) = nothing.iter().find(|(_, nothing)| *nothing) {
        return Some(InvalidRequest::Nothing(what));
    }
    if let (Some(asked), Some(cpus)) = (limits.cpus, host.cpus)
        && asked.as_cores() > f64::from(cpus)
    {
        return Some(InvalidRequest::Cpus { asked, cpus });
    }
    if let (Some(asked), Some(there)) = (limits.memory, host.memory)
        && asked > there
    {
        return Some(InvalidRequest::Memory { asked, there });
    }
    if let (Some(asked), Some(there)) = (limits.cpuset, host.allowed_cpus) {
        let missing = asked.difference(&there);
        if !missing.is_empty() {
            return Some(InvalidRequest::CpuSet {
                missing: Box::new(missing),
                there: Box::new(there),
            });
        }
    }
    match (limits.memory_swap, limits.memory) {
        (Some(_), None) => Some(InvalidRequest::SwapAlone),
        (Some(both), Some(memory)) if both < memory => Some(InvalidRequest::Swap { both, memory }),
        _ => None,
    }
}

fn wrong(request: &RunRequest) -> Option<InvalidRequest> {
    let id_fits = (1..=63).contains(&request.id.len())
        && !request.id.starts_with(['.', '-'])
        && request
            .id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    if !id_fits {
        return Some(InvalidRequest::Id(request.id.clone()));
    }
    let nothing = request.command.is_empty() && request.services.is_empty();
    if nothing || request.command.first().is_some_and(String::is_empty) {
        return Some(InvalidRequest::NoCommand);
    }
    if let Some(wrong) = request.services.iter().find_map(wrong_service) {
        return Some(wrong);
    }
    let order: Vec<(&str, &[String])> = (request.services.iter())
        .map(|service| (service.name.as_str(), service.after.as_slice()))
        .collect();
    let twice = |at: usize| order[..at].iter().any(|(name, _)| *name == order[at].0);
    if let Some(at) = (0..order.len()).find(|&at| twice(at)) {
        return Some(InvalidRequest::ServiceTwice(order[at].0.to_owned()));
    }
    if order.len() > MAX_SERVICES {
        return Some(InvalidRequest::TooManyServices(order.len()));
    }
    if let Some(name) = crate::init::out_of_order(&order) {
        return Some(InvalidRequest::ServiceOrder(name));
    }
    let other_user = |service: &&RunService| service.user.is_some_and(|user| user != request.user);
    let one_user = request.root == RunRoot::Host || !is_machine_root();
    if let Some(service) = request
        .services
        .iter()
        .find(other_user)
        .filter(|_| one_user)
    {
        return Some(InvalidRequest::ServiceUser(service.name.clone()));
    }
    let texts = request
        .command
        .iter()
        .chain(request.env.iter().flat_map(|(k, v)| [k, v]))
        .chain(request.services.iter().flat_map(|service| {
            let env = service.env.iter().flat_map(|(k, v)| [k, v]);
            service.command.iter().chain(env)
        }));
    if let Some(text) = texts.into_iter().find(|text| text.contains('\0')) {
        return Some(InvalidRequest::ZeroByte(text.replace('\0', "\\0")));
    }
    if !is_straight(&request.workdir) {
        return Some(InvalidRequest::Path(request.workdir.clone()));
    }
    match &request.root {
        RunRoot::Host if !request.mounts.is_empty() => return Some(InvalidRequest::HostMounts),
        RunRoot::Host if request.network != NetworkMode::Host => {
            return Some(InvalidRequest::HostNetwork);
        }
        RunRoot::Image(image) if image.layers.is_empty() => return Some(InvalidRequest::NoLayers),
        RunRoot::Image(image) if image.layers.len() > MAX_LAYERS => {
            return Some(InvalidRequest::TooManyLayers(image.layers.len()));
        }
        _ => {}
    }
    if request.network == NetworkMode::Host && !request.ports.is_empty() {
        return Some(InvalidRequest::Ports);
    }
    request.mounts.iter().find_map(|mount| {
        if !is_straight(&mount.target) {
            return Some(InvalidRequest::Path(mount.target.clone()));
        }
        if !mount.source.is_absolute() {
            return Some(InvalidRequest::Path(mount.source.clone()));
        }
        let taken = ["/", "/dev", "/sys"]
            .iter()
            .any(|own| mount.target == Path::new(own))
            || mount.target.starts_with("/proc");
        taken.then(|| InvalidRequest::Target(mount.target.clone()))
    })
}

/// What cannot be meant of one service.
fn wrong_service(service: &RunService) -> Option<InvalidRequest> {
    let name = || service.name.clone();
    if !sconce_schema::service::is_service_name(&service.name) {
        return Some(InvalidRequest::ServiceName(name()));
    }
    if service.command.first().is_none_or(String::is_empty) {
        return Some(InvalidRequest::ServiceCommand(name()));
    }
    if let Some(workdir) = service.workdir.as_ref().filter(|dir| !is_straight(dir)) {
        return Some(InvalidRequest::Path(workdir.clone()));
    }
    let check_fits = match service.health.as_ref().map(|health| &health.check) {
        None => true,
        Some(HealthTest::Command(command)) => command.first().is_some_and(|word| !word.is_empty()),
        Some(HealthTest::Tcp(port)) => *port != 0,
        // What would end the request line would begin another one.
        Some(HealthTest::Http { port, path }) => {
            *port != 0 && path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic())
        }
    };
    (!check_fits).then(|| InvalidRequest::ServiceCheck(name()))
}

fn is_straight(path: &Path) -> bool {
    path.is_absolute() && !path.components().any(|part| part == Component::ParentDir)
}

/// Decides everything. `v2` is the run's own folder of cgroup v2, where it has one.
///
/// # Errors
/// [`RunError::MountSource`], [`RunError::Request`], [`RunError::State`].
pub(crate) fn prepare_run(
    request: &RunRequest,
    options: &RunOptions<'_>,
    engine: Option<&ContainerEngine>,
    scratch: &Path,
    root: bool,
    v2: Option<&Path>,
) -> Result<PreparedRun, RunError> {
    let (own_limits, mut unenforced) = ProcessLimits::from_request(request, HardLimits::read());
    let mut plan = InitConfig {
        container: None,
        command: request.command.iter().map(OsString::from).collect(),
        env: build_env(request, options),
        workdir: request.workdir.clone(),
        terminal: request.terminal,
        own: own_limits,
        place: CpuPlacement::from_request(request),
        sockets: None,
        output: None,
        relayed: None,
        services: Vec::new(),
        restarts: options
            .control
            .as_ref()
            .map_or_else(Default::default, |c| c.restarts),
        controlled: options.control.is_some(),
    };
    plan.services = (request.services.iter())
        .map(|service| planned(service, request, &plan.env, root))
        .collect();
    let RunRoot::Image(image) = &request.root else {
        return Ok(PreparedRun {
            plan,
            namespaces: None,
            owners: Vec::new(),
            unenforced,
        });
    };
    let credentials = credentials(request.user, root);
    let id = credentials.uid;
    let mut owners = Owners {
        inside: (id, id),
        exchange: root,
        made: Vec::new(),
        unenforced: Vec::new(),
    };
    let mut mounts = Vec::new();
    for mount in &request.mounts {
        let read_only = if mount.read_only { RDONLY } else { 0 };
        mounts.push(InitMount {
            owners: owners.of(mount)?,
            source: mount.source.clone(),
            target: mount.target.clone(),
            attributes: NOSUID | NODEV | read_only,
        });
    }
    for edits in &request.edits {
        edit_mounts(edits, &mut mounts)?;
    }
    let own_network = request.network != NetworkMode::Host;
    let inside = match options.keep {
        Some(_) => crate::KEPT_NAME,
        None => &request.id,
    };
    let mut container = ContainerConfig {
        hostname: inside.to_owned(),
        held: None,
        layers: image
            .layers
            .iter()
            .map(|layer| layer.path.clone())
            .collect(),
        scratch: scratch.to_owned(),
        kept: options.keep.is_some(),
        shm_bytes: shared_memory(request, options),
        network: request.network,
        address: request.address,
        home: home(request),
        shared: options.shared.clone(),
        mounts,
        links: request
            .edits
            .iter()
            .flat_map(|edits| &edits.links)
            .map(|(target, path)| (target.clone(), PathBuf::from(path)))
            .collect(),
        credentials,
        owners: owners.made.iter().map(|(_, fd)| fd.as_raw_fd()).collect(),
    };
    writable_layer(scratch).map_err(|(path, source)| RunError::State { path, source })?;
    if let Some(engine) = engine {
        let (held, mut said) = engine::prepare_engine(&engine::EngineContext {
            engine,
            request,
            command: &plan.command,
            env: &plan.env,
            credentials,
            root,
            hostname: inside,
            shm_bytes: container.shm_bytes,
            mounts: &container.mounts,
            scratch,
            cgroups: options.host.cgroups.as_ref(),
            v2,
        })?;
        container.held = Some(held);
        // Init sees the machine's files, and so would another command that it starts.
        plan.controlled = false;
        unenforced.append(&mut said);
    }
    plan.container = Some(container);
    // An engine is uid 0 of its user namespace, and gives the command another uid.
    let mapped = if engine.is_some() { 0 } else { id };
    Ok(PreparedRun {
        plan,
        namespaces: Some(Namespaces {
            user: (!root).then_some((mapped, mapped)),
            network: own_network,
        }),
        owners: owners.made.into_iter().map(|(_, fd)| fd).collect(),
        unenforced: {
            unenforced.append(&mut owners.unenforced);
            unenforced
        },
    })
}

/// Who a user is inside.
fn credentials(user: ContainerUser, root: bool) -> Credentials {
    let (id, kept) = match user {
        ContainerUser::Plain => (PLAIN, CapabilitySet::empty()),
        ContainerUser::Root => (0, capabilities::ROOT_INSIDE),
    };
    Credentials {
        uid: id,
        gid: id,
        change: root,
        capabilities: kept.bits(),
    }
}

fn planned(
    service: &RunService,
    request: &RunRequest,
    env: &[OsString],
    root: bool,
) -> InitService {
    use std::os::unix::ffi::OsStrExt;
    let own = |variable: &&OsString| {
        let name = variable.as_bytes().split(|b| *b == b'=').next();
        let name = name.and_then(|name| std::str::from_utf8(name).ok());
        name.is_none_or(|name| !service.env.contains_key(name))
    };
    let added = (service.env.iter()).map(|(name, value)| OsString::from(format!("{name}={value}")));
    InitService {
        name: service.name.clone(),
        command: service.command.iter().map(OsString::from).collect(),
        env: env.iter().filter(own).cloned().chain(added).collect(),
        workdir: service
            .workdir
            .clone()
            .unwrap_or_else(|| request.workdir.clone()),
        credentials: match request.root {
            RunRoot::Image(_) => Some(credentials(service.user.unwrap_or(request.user), root)),
            RunRoot::Host => None,
        },
        restart: service.restart,
        grace: Duration::from_secs(u64::from(service.grace_s)),
        stop_signal: service.stop_signal.signal_number(),
        health: service.health.clone(),
        after: service.after.clone(),
        output: None,
    }
}

/// `NAME=value`: for a run without a container the caller's with the request's over it.
pub(crate) fn build_env(request: &RunRequest, options: &RunOptions<'_>) -> Vec<OsString> {
    let join = |name: &std::ffi::OsStr, value: &std::ffi::OsStr| {
        let mut text = name.to_owned();
        text.push("=");
        text.push(value);
        text
    };
    let edits = request.edits.iter().flat_map(|edits| &edits.env);
    let edited = |name: &std::ffi::OsStr| {
        edits
            .clone()
            .any(|edit| edit.split_once('=').is_some_and(|(edit, _)| name == edit))
    };
    let callers = match request.root {
        RunRoot::Host => options.environment,
        RunRoot::Image(_) => None,
    };
    let callers = callers
        .into_iter()
        .flat_map(Env::iter)
        .filter(|(name, _)| {
            name.to_str()
                .is_none_or(|name| !request.env.contains_key(name))
        })
        .filter(|(name, _)| !edited(name))
        .map(|(name, value)| join(name, value));
    let own = request
        .env
        .iter()
        .filter(|(name, _)| !edited(name.as_ref()))
        .map(|(name, value)| join(name.as_ref(), value.as_ref()));
    callers
        .chain(own)
        .chain(edits.clone().map(OsString::from))
        .collect()
}

/// The size of /dev/shm: as asked, or half of the memory that the run may use. (The 64 MiB of
/// other engines kill DataLoader workers; what is in /dev/shm counts against the memory limit
/// anyway.)
pub(crate) fn shared_memory(request: &RunRequest, options: &RunOptions<'_>) -> u64 {
    let machine = options.host.memory;
    let usable = match (request.limits.memory, machine) {
        (Some(limit), Some(machine)) => Some(limit.min(machine)),
        (limit, machine) => limit.or(machine),
    };
    let Bytes(size) = request.limits.shm.unwrap_or_else(|| match usable {
        Some(Bytes(bytes)) => Bytes(bytes / 2),
        None => Bytes::from_gib(1),
    });
    // 0 would mean "no limit" to the kernel.
    size.max(4096)
}

/// User namespaces that make a folder's owner the run's user.
struct Owners {
    inside: (u32, u32),
    /// Whether owners can and must be exchanged: only by the machine's root.
    exchange: bool,
    made: Vec<((u32, u32), OwnedFd)>,
    unenforced: Vec<UnenforcedLimit>,
}

impl Owners {
    /// The index of the one for a mount, where it needs one and the kernel grants it.
    fn of(&mut self, mount: &sconce_schema::request::Mount) -> Result<Option<usize>, RunError> {
        let metadata = std::fs::metadata(&mount.source).map_err(|error| RunError::MountSource {
            path: mount.source.clone(),
            source: error,
        })?;
        let exchange = IdMapping {
            outside: (metadata.uid(), metadata.gid()),
            inside: self.inside,
        };
        if !self.exchange || exchange.is_nothing() {
            return Ok(None);
        }
        let known = self
            .made
            .iter()
            .position(|(owner, _)| *owner == exchange.outside);
        if known.is_some() {
            return Ok(known);
        }
        match exchange.user_namespace() {
            Ok(made) => {
                self.made.push((exchange.outside, made));
                Ok(Some(self.made.len() - 1))
            }
            Err(error) => {
                self.unenforced.push(owner_stays(mount, &error));
                Ok(None)
            }
        }
    }
}

/// Says that a mount shows its owners as they are, because the kernel grants no user namespace.
fn owner_stays(mount: &sconce_schema::request::Mount, error: &io::Error) -> UnenforcedLimit {
    let max_is_zero = matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EUSERS));
    let because = if max_is_zero {
        "sysctl user.max_user_namespaces is 0 or used up".to_owned()
    } else {
        error.to_string()
    };
    UnenforcedLimit {
        what: format!("owner of {}", mount.target.display()),
        why: format!(
            "the kernel grants no user namespace ({because}), without which the files of {} cannot \
             be shown as the run's user's, so that what is private to their owner is closed to the \
             run",
            mount.source.display()
        ),
        hint: max_is_zero.then(|| "run `sysctl user.max_user_namespaces=15000`".to_owned()),
    }
}

/// Device nodes and driver files, in the order of the edits.
fn edit_mounts(edits: &ContainerEdits, mounts: &mut Vec<InitMount>) -> Result<(), RunError> {
    let nodes = edits.device_nodes.iter().map(|node| {
        let host = if node.host_path.is_empty() {
            &node.path
        } else {
            &node.host_path
        };
        (host, &node.path, NOSUID | NOEXEC)
    });
    let files = edits.mounts.iter().map(|mount| {
        let attributes = mount
            .options
            .iter()
            .fold(NOSUID | NODEV, |attributes, option| {
                attributes
                    | match option.as_str() {
                        "ro" => RDONLY,
                        "noexec" => NOEXEC,
                        _ => 0,
                    }
            });
        (&mount.host_path, &mount.container_path, attributes)
    });
    for (source, target, attributes) in nodes.chain(files) {
        let mount = InitMount {
            source: PathBuf::from(source),
            target: PathBuf::from(target),
            attributes,
            owners: None,
        };
        std::fs::metadata(&mount.source).map_err(|error| RunError::MountSource {
            path: mount.source.clone(),
            source: error,
        })?;
        if !is_straight(&mount.target) {
            return Err(RunError::Request(InvalidRequest::Path(mount.target)));
        }
        mounts.push(mount);
    }
    Ok(())
}

/// Makes `upper`, `work` and `root`, whatever the caller's file mode mask is. What every container has
/// is put beneath them by init.
fn writable_layer(scratch: &Path) -> Result<(), (PathBuf, io::Error)> {
    for (name, mode) in [("root", 0o700), ("work", 0o700), ("upper", 0o755)] {
        let path = scratch.join(name);
        std::fs::DirBuilder::new()
            .mode(mode)
            .create(&path)
            .and_then(|()| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)))
            .map_err(|error| (path, error))?;
    }
    Ok(())
}

/// The name of the user's folder, where `HOME` is one in /home.
fn home(request: &RunRequest) -> Option<String> {
    let name = request.env.get("HOME")?.strip_prefix("/home/")?;
    let plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    plain.then(|| name.to_owned())
}
