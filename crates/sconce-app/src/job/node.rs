//! A node's part of a job: what the scheduler starts on each node, by the job's script.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use sconce_base::Env;
use sconce_host::addresses::{is_reachable, list_addresses};
use sconce_host::fabric::FabricDevices;
use sconce_host::{HostProfile, Roots, facts};
use sconce_run::{ContainerObstacle, check_container_support};
use sconce_schema::job::JobRequest;
use sconce_schema::lock::Lock;
use sconce_schema::spec::LaunchMode;
use sconce_schema::spec::{GpuRequest, ServicesSpec};
use sconce_schema::{Hint, exit};
use sha2::Digest as _;

use super::allocation::{Allocation, AllocationError};
use super::claim::claim_job;
use super::fast_network::describe_obstacles;
use super::fault::{JobFault, is_log_full};
use super::job_dir::{JobDir, TaskRun};
use super::launch::{rank_variables, wrap_command};
use super::local_store::open_local_store;
use super::meeting::{
    Follower, JobKey, Leader, MeetingError, MeetingLimits, MeetingPoint, NodeFailure, NodeIdentity,
};
use super::prepare::STORE;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::failure::{AppError, Failure, Result};
use crate::inspect::precheck;
use crate::job_gpus::choose_gpus;
use crate::project::Project;
use crate::reporter::AppEvent;
use crate::run::ProjectRun;
use crate::run::node_part::{NodePartEnd, NodeWorld};
use crate::run_id::unix_ms;
use crate::run_options::{ResolvedRunOptions, RunOverrides};
use crate::sources::{LockUse, PackageSources};
use crate::worker::current_exe;

/// How long a node that has met the others may say nothing.
const SILENCE: Duration = Duration::from_secs(60);
/// The ports at which first nodes listen: of each job a few, so that others find it where no file tells.
const FIRST_PORT: u16 = 21_000;
/// How many there are, of all jobs.
const PORTS: u32 = 8_000;
/// How many a job tries.
const PORTS_OF_A_JOB: u32 = 8;

/// The variable that tells a command which element of an array it is.
const ELEMENT: &str = "SCONCE_ARRAY_INDEX";

/// Why a node cannot run its part of a job.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The lock is another than was handed over.
    #[error("{} is not the lock that the job was handed over with", path.display())]
    OtherLock {
        /// The file.
        path: std::path::PathBuf,
    },
    /// An element that the job does not have, or none of an array.
    #[error("the scheduler started {}, and the job's elements are others", .0.map_or("no element of an array".to_owned(), |index| format!("element {index} of an array")))]
    Element(Option<u32>),
    /// Ranks would not use the node's fast network.
    #[error("{0}")]
    SlowNetwork(String),
    /// The processors are others than the lock is for.
    #[error("the lock is for {lock}, and node {node} is {here}")]
    Architecture {
        /// Debian's name of the lock's.
        lock: String,
        /// The node.
        node: String,
        /// Debian's name of the node's.
        here: String,
    },
    /// A part of the environment is not there, and could not be fetched: nodes seldom have a way out.
    #[error("the store {} of node {node} lacks a part of the environment, which cannot be fetched there: {why}", store.display())]
    NotInStore {
        /// The node.
        node: String,
        /// Its store.
        store: PathBuf,
        /// What kept it away.
        why: String,
    },
    /// Sconce cannot make a container here.
    #[error("node {node} cannot hold a container")]
    NoContainer {
        /// The node.
        node: String,
        /// Why.
        source: ContainerObstacle,
    },
    /// The environment cannot work on this node's cards.
    #[error("the environment does not work on node {node}: {why}")]
    Unfit {
        /// The node.
        node: String,
        /// What was found.
        why: String,
    },
}

impl Hint for NodeError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::OtherLock { .. } => "submit it again".to_owned(),
            Self::SlowNetwork(_) => "without `--strict` of `sconce submit` it starts all the same".to_owned(),
            Self::Element(_) => "start it by the job's script, which has `--array`".to_owned(),
            Self::Architecture { .. } => {
                "lock it on a machine of that kind, or name nodes of the lock's by `constraint` or `partition`".to_owned()
            }
            Self::NoContainer { .. } => {
                "`containment` of the target names what holds jobs there instead: `apptainer`, `slurm`, `pyxis` or `none` \
                 (docs/jobs.md, \"Nodes that cannot contain\"); other nodes are asked for by `constraint`"
                    .to_owned()
            }
            Self::NotInStore { store, .. } => format!(
                "nodes have to see the store as the machine does that submits: compare `ls {}/items` on both; \
                 `local-store` of the target unpacks the environment on each node instead",
                store.display()
            ),
            Self::Unfit { .. } => {
                "`sconce check` says more; other nodes are asked for by `constraint`".to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::OtherLock { .. } => exit::VERIFY,
            Self::NotInStore { .. } => exit::FETCH,
            Self::Element(_) => exit::BAD_INPUT,
            Self::SlowNetwork(_) => exit::NODE,
            Self::Architecture { .. } | Self::NoContainer { .. } | Self::Unfit { .. } => exit::NODE,
        }
    }
}

/// Runs this node's part of the job in `folder`.
///
/// # Errors
/// Whatever keeps it from running, on this node or on another.
pub fn run_node(folder: &Path, context: &AppContext) -> Result<u8> {
    let dir = JobDir::at(folder);
    let job = dir.read_job()?;
    let context = &as_submitted(&job, context);
    let allocation = Allocation::from_env(
        &context.env,
        &rustix::system::uname().nodename().to_string_lossy(),
    )?;
    let (dir, job) = own_element(dir, job, &allocation)?;
    check_size(&job, &allocation)?;
    claim_job(&dir, &job, &allocation.scheduler_id, context)?;
    let node = allocation.node_of(allocation.place.task).to_owned();
    let id = run_id(&job, &allocation);
    let mut task = TaskRun {
        node: node.clone(),
        run: Some(id.clone()),
        asked_to_end: false,
        exit: None,
        ended_unix_ms: None,
        fault: None,
    };
    dir.write_task(allocation.place.task, &task)?;
    let part = NodePart {
        dir: &dir,
        job: &job,
        allocation: &allocation,
        node: &node,
        end: Arc::default(),
        context,
    };
    let done = part.run(id);
    let exit = match &done {
        Ok(code) => *code,
        Err(failure) => failure.exit_code(),
    };
    let end = *part.end.lock().unwrap_or_else(PoisonError::into_inner);
    (task.exit, task.ended_unix_ms) = (Some(exit), Some(unix_ms()));
    task.asked_to_end = end.asked_to_end;
    task.fault = match &done {
        Err(failure) => Some(JobFault::of_failure(&node, failure)),
        Ok(code) => {
            let is_unsaid = *code != exit::OK && is_log_full();
            let of_log = || is_unsaid.then(|| JobFault::of_full_log(&node));
            JobFault::of_end(&node, *code, &end).or_else(of_log)
        }
    };
    // A full disk takes nothing from what the command did.
    if let Err(failure) = dir.write_task(allocation.place.task, &task) {
        context.report(&AppEvent::JobRemark(&failure.message()));
    }
    // What somebody ended may be started again; other elements of an array need them too.
    if allocation.place.task == 0 && allocation.element.is_none() && !task.was_ended() {
        dir.remove_variables();
    }
    done
}

/// What of the job this start is: of an array, one element.
fn own_element(
    dir: JobDir,
    job: JobRequest,
    allocation: &Allocation,
) -> Result<(JobDir, JobRequest), NodeError> {
    match (&job.array, allocation.element) {
        (None, None) => Ok((dir, job)),
        (Some(_), Some(index)) => {
            let element = job.element(index).ok_or(NodeError::Element(Some(index)))?;
            Ok((dir.element(index), element))
        }
        (_, element) => Err(NodeError::Element(element)),
    }
}

/// The folders are those of whoever handed it over: a scheduler that starts no login leaves `HOME` out.
fn as_submitted(job: &JobRequest, context: &AppContext) -> AppContext {
    let own = context
        .env
        .iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let given = job
        .directories
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
    let mut variables: BTreeMap<OsString, OsString> = own.collect();
    variables.extend(given);
    let store = variables.get(OsStr::new(STORE)).map(PathBuf::from);
    AppContext {
        store: store.or_else(|| context.store.clone()),
        env: Env::from_variables(variables),
        ..context.clone()
    }
}

/// The job's token and the task's number; another start of the job has another.
fn run_id(job: &JobRequest, allocation: &Allocation) -> String {
    let task = allocation.place.task;
    match allocation.restarts {
        0 => format!("{}-{task}", job.token),
        restarts => format!("{}-{task}-r{restarts}", job.token),
    }
}

/// Nothing falls back to a smaller world.
fn check_size(job: &JobRequest, allocation: &Allocation) -> Result<()> {
    let layout = &job.layout;
    let nodes = u32::try_from(allocation.nodes.len()).unwrap_or(u32::MAX);
    let asked = layout.nodes * layout.tasks_per_node();
    if nodes == layout.nodes && allocation.tasks == asked {
        return Ok(());
    }
    Err(AllocationError::OtherSize {
        asked,
        asked_nodes: layout.nodes,
        tasks: allocation.tasks,
        nodes,
    }
    .into())
}

struct NodePart<'a> {
    dir: &'a JobDir,
    job: &'a JobRequest,
    allocation: &'a Allocation,
    node: &'a str,
    /// What is known of the run's end, once it has ended.
    end: Arc<Mutex<NodePartEnd>>,
    context: &'a AppContext,
}

impl NodePart<'_> {
    fn run(&self, id: String) -> Result<u8> {
        let lock = self.read_lock()?;
        let meeting = RefCell::new(self.meet()?);
        let done = self.run_met(&lock, id, &meeting);
        if let (Err(failure), Some(meeting)) = (&done, meeting.take()) {
            meeting.fail(NodeFailure {
                why: failure.message(),
                exit: failure.exit_code(),
            });
        }
        done
    }

    /// The job's lock, which is the one that was handed over.
    fn read_lock(&self) -> Result<Lock> {
        let path = self.dir.lock();
        let text = crate::input::read_text(&path).map_err(AppError::unreadable(&path))?;
        if sha2::Sha256::digest(text.as_bytes())[..] != self.job.lock.0 {
            return Err(NodeError::OtherLock { path }.into());
        }
        crate::project::read_lock(&path)
    }

    fn run_met(&self, lock: &Lock, id: String, meeting: &RefCell<Option<Meeting>>) -> Result<u8> {
        let gpus = self.judge(lock)?;
        let fabric = self.read_fabric(lock)?;
        let job = self.job;
        let local_store = match &job.local_store {
            Some(request) => open_local_store(request, self.node, self.context)?,
            None => None,
        };
        let context = &AppContext {
            store: local_store.or_else(|| self.context.store.clone()),
            ..self.context.clone()
        };
        let project = Project::open_copy(&self.dir.spec(), &job.spec, &self.dir.lock())?;
        let overrides = RunOverrides {
            sources: PackageSources {
                lock_use: LockUse::Frozen,
                ..PackageSources::default()
            },
            ..RunOverrides::default()
        };
        let folder = &project.folder;
        let none = &[];
        let mut options =
            ResolvedRunOptions::merge(&job.run, folder, &overrides, folder, none, &context.env)?;
        options.gpus = gpus;
        options.env.extend(self.dir.read_variables()?);
        options.env.extend(self.allocation.shown.iter().cloned());
        options
            .env
            .insert("SCONCE_JOB".to_owned(), job.token.clone());
        if let Some(index) = self.allocation.element {
            options.env.insert(ELEMENT.to_owned(), index.to_string());
        }
        let (command, given) = (options.command.clone(), options.env.clone());
        let join = || {
            let point = meeting.take().map(Meeting::go).transpose()?;
            let point = point.as_ref();
            let place = self.allocation.place;
            let mut env = rank_variables(&job.layout, place, point, interface(point).as_deref());
            // What the user says counts.
            env.retain(|name, _| !given.contains_key(name) || is_ours(name));
            Ok(NodeWorld {
                edits: fabric.edits,
                command: wrap_command(&job.layout, place, point, &command),
                env,
                end: Arc::clone(&self.end),
                address: point
                    .map(|point| point.own)
                    .filter(|own| is_reachable(*own)),
            })
        };
        let run = ProjectRun {
            project,
            options,
            services: ServicesSpec::default(),
            trial: None,
            join: Some(Box::new(join)),
            id: Some(id),
            containment: job.containment,
        };
        let done = run.run(&overrides, None, context);
        done.map_err(|failure| match failure.exit_code() {
            // What another node says of itself is no fault of this one's store.
            exit::FETCH if !failure.is::<MeetingError>() => self.describe_missing(failure, context),
            _ => failure,
        })
    }

    /// Of an environment that is not whole here, and could not be brought.
    fn describe_missing(&self, failure: Failure, context: &AppContext) -> Failure {
        match SconceDirs::find(context) {
            Ok(places) => NodeError::NotInStore {
                node: self.node.to_owned(),
                store: places.store,
                why: failure.message(),
            }
            .into(),
            Err(_) => failure,
        }
    }

    /// The devices by which nodes reach each other's memory, with a word where that will not work.
    ///
    /// # Errors
    /// The job wants no start without its nodes' fast network, and it will not be used.
    fn read_fabric(&self, lock: &Lock) -> Result<FabricDevices> {
        let fabric = FabricDevices::read(&Roots::default());
        let packages: Vec<&str> = lock.debs.iter().map(|deb| deb.name.as_str()).collect();
        let limit = getrlimit(Resource::Memlock);
        let mut obstacles = describe_obstacles(&fabric, &packages, limit, self.node);
        if self.job.strict && !obstacles.is_empty() {
            return Err(NodeError::SlowNetwork(obstacles.swap_remove(0)).into());
        }
        for obstacle in &obstacles {
            self.context.report(&AppEvent::JobRemark(obstacle));
        }
        Ok(fabric)
    }

    /// Judges the environment by this node, before anything is unpacked; gives the job's cards.
    fn judge(&self, lock: &Lock) -> Result<GpuRequest> {
        let here = crate::environment_builder::debian_architecture();
        if here != self.job.architecture {
            return Err(NodeError::Architecture {
                lock: self.job.architecture.clone(),
                node: self.node.to_owned(),
                here: here.to_owned(),
            }
            .into());
        }
        let host = HostProfile::read(&Roots::default());
        if self.job.containment.is_own() {
            let can_contain = check_container_support(&host, &current_exe()?);
            can_contain.map_err(|source| NodeError::NoContainer {
                node: self.node.to_owned(),
                source,
            })?;
        }
        let cards = host.nvidia.as_ref().map_or(&[][..], |nvidia| &nvidia.cards);
        let gpus = choose_gpus(cards, self.job.layout.gpus_per_node, &self.context.env)?;
        if gpus != GpuRequest::Count(0) {
            let facts = facts::without_nvml(&host);
            let failures = precheck::find_failures(lock, facts.as_slice());
            if let Some(first) = failures.first() {
                return Err(NodeError::Unfit {
                    node: self.node.to_owned(),
                    why: first.what.clone(),
                }
                .into());
            }
        }
        Ok(gpus)
    }

    /// Meets the other tasks; `None` where this one is alone.
    fn meet(&self) -> Result<Option<Meeting>> {
        let allocation = self.allocation;
        if allocation.tasks == 1 {
            return Ok(None);
        }
        let me = NodeIdentity {
            index: allocation.place.task,
            name: self.task_name(allocation.place.task),
            lock: self.job.lock.to_string(),
        };
        let key = JobKey::new(&self.dir.read_key()?, &allocation.start);
        let limits = MeetingLimits {
            arrival: Duration::from_millis(self.job.meet_within_ms),
            silence: SILENCE,
        };
        let ports = ports_of(allocation.job);
        if me.index == 0 {
            let listener = listen(&ports)?;
            let names: Vec<String> = (0..allocation.tasks)
                .map(|task| self.task_name(task))
                .collect();
            if let Ok(address) = listener.local_addr() {
                self.publish(address.port())?;
            }
            let leader = Leader::gather(listener, &me, &names, &key, limits)?;
            for remark in &leader.remarks {
                self.context.report(&AppEvent::JobRemark(remark));
            }
            return Ok(Some(Meeting::Leader(leader)));
        }
        let leader = allocation.node_of(0).to_owned();
        let resolved = resolve(&leader, ports[0]);
        let addresses = || self.addresses(&ports, &resolved);
        let follower = Follower::join(&me, &leader, &key, limits, addresses)?;
        Ok(Some(Meeting::Follower(follower)))
    }

    fn task_name(&self, task: u32) -> String {
        let node = self.allocation.node_of(task);
        match self.job.layout.launch {
            LaunchMode::TaskPerGpu => format!("{node} (task {task})"),
            LaunchMode::Torchrun | LaunchMode::Node => node.to_owned(),
        }
    }

    /// Tells the others, by the job's folder, where this node listens.
    fn publish(&self, port: u16) -> Result<()> {
        let addresses = list_addresses().unwrap_or_default();
        let addresses = addresses
            .iter()
            .map(|one| SocketAddr::new(one.address, port));
        self.dir
            .write_leader(&self.allocation.start, &addresses.collect::<Vec<_>>())
    }

    /// Where the first node may be: by the job's folder, by its name, and where `srun` was called.
    fn addresses(&self, ports: &[u16], resolved: &Mutex<Vec<IpAddr>>) -> Vec<SocketAddr> {
        let is_one_machine = self.allocation.nodes.len() == 1;
        let mut addresses = self.dir.read_leader(&self.allocation.start);
        let resolved = resolved.lock().unwrap_or_else(PoisonError::into_inner);
        let named = resolved.iter().copied().chain(self.allocation.launcher);
        let mut named: Vec<IpAddr> = named.filter(|address| is_reachable(*address)).collect();
        if is_one_machine {
            named = vec![Ipv4Addr::LOCALHOST.into()];
        }
        for address in named {
            let at_ports = ports.iter().map(|port| SocketAddr::new(address, *port));
            addresses.extend(at_ports);
        }
        addresses
    }
}

/// A task that has met the others.
enum Meeting {
    Leader(Leader),
    Follower(Follower),
}

impl Meeting {
    fn go(self) -> Result<MeetingPoint, MeetingError> {
        match self {
            Self::Leader(leader) => leader.go(),
            Self::Follower(follower) => follower.go(),
        }
    }

    fn fail(self, failure: NodeFailure) {
        match self {
            Self::Leader(leader) => leader.fail(failure),
            Self::Follower(follower) => follower.fail(failure),
        }
    }
}

/// What a user's own variable may not say otherwise: ranks would not find each other.
fn is_ours(name: &str) -> bool {
    ["_SOCKET_IFNAME", "OMP_NUM_THREADS"]
        .iter()
        .all(|own| !name.ends_with(own))
}

fn ports_of(job: u32) -> Vec<u16> {
    let first = job.wrapping_mul(PORTS_OF_A_JOB) % PORTS;
    let ports = (first..first + PORTS_OF_A_JOB).map(|port| port % PORTS);
    ports
        .map(|port| FIRST_PORT + u16::try_from(port).unwrap_or_default())
        .collect()
}

/// The first of `ports` that is free.
fn listen(ports: &[u16]) -> Result<TcpListener, MeetingError> {
    let mut failed = None;
    for port in ports {
        let any = [
            IpAddr::from(Ipv6Addr::UNSPECIFIED),
            Ipv4Addr::UNSPECIFIED.into(),
        ];
        for address in any {
            match TcpListener::bind((address, *port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => failed = Some(error),
            }
        }
    }
    Err(MeetingError::System {
        action: "listen for the job's other nodes",
        source: failed.unwrap_or_else(|| std::io::ErrorKind::AddrInUse.into()),
    })
}

/// Looks a name up, which may take long, beside everything else.
fn resolve(name: &str, port: u16) -> Arc<Mutex<Vec<IpAddr>>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let (kept, name) = (Arc::clone(&found), name.to_owned());
    std::thread::spawn(move || {
        if let Ok(addresses) = (name.as_str(), port).to_socket_addrs() {
            let addresses = addresses.map(|address| address.ip());
            *kept.lock().unwrap_or_else(PoisonError::into_inner) = addresses.collect();
        }
    });
    found
}

/// The interface that has this node's address.
fn interface(point: Option<&MeetingPoint>) -> Option<String> {
    let own = point?.own;
    let found = list_addresses()
        .ok()?
        .into_iter()
        .find(|one| one.address == own)?;
    Some(found.interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_next_to_each_other_have_other_ports() {
        let (one, next) = (ports_of(17), ports_of(18));
        assert_eq!(one.len(), 8);
        assert!(
            one.iter()
                .all(|port| !next.contains(port) && *port >= 21_000)
        );
        assert_eq!(ports_of(u32::MAX).len(), 8);
    }

    #[test]
    fn a_user_says_which_interface_and_not_which_rank() {
        assert!(!is_ours("NCCL_SOCKET_IFNAME") && !is_ours("OMP_NUM_THREADS"));
        assert!(is_ours("MASTER_ADDR") && is_ours("RANK"));
    }
}
