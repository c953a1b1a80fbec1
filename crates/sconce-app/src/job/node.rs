//! A node's part of a job: what the scheduler starts on each node, by the job's script.

mod meet;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Resource, getrlimit};
use sconce_base::Env;
use sconce_host::addresses::{is_reachable, list_addresses};
use sconce_host::fabric::FabricDevices;
use sconce_host::fabric_plugins::list_plugins;
use sconce_host::{HostProfile, Roots, facts};
use sconce_run::{ContainerObstacle, check_container_support};
use sconce_schema::job::{JobRequest, LocalStoreRequest};
use sconce_schema::lock::Lock;
use sconce_schema::request::ContainerEdits;
use sconce_schema::spec::{GpuRequest, ServicesSpec};
use sconce_schema::{Hint, exit};
use sha2::Digest as _;

use super::allocation::{Allocation, AllocationError};
use super::claim::claim_job;
use super::fast_network::{describe_missing_plugin, describe_obstacles};
use super::fault::{JobFault, is_log_full};
use super::job_dir::JobDir;
use super::launch::{rank_variables, wrap_command};
use super::local_store::open_local_store;
use super::meeting::{MeetingError, MeetingPoint, NodeFailure};
use super::prepare::STORE;
use super::task_run::TaskRun;
use crate::context::AppContext;
use crate::dirs::SconceDirs;
use crate::environment_builder::debian_architecture;
use crate::failure::{AppError, Failure, Result};
use crate::inspect::precheck;
use crate::job_gpus::choose_gpus;
use crate::node_network::{JobNetwork, select_plugins};
use crate::project::Project;
use crate::reporter::AppEvent;
use crate::run::ProjectRun;
use crate::run::node_part::{NodePartEnd, NodeWorld};
use crate::run_id::unix_ms;
use crate::run_options::{ResolvedRunOptions, RunOverrides};
use crate::sources::{LockUse, PackageSources};
use crate::worker::current_exe;
use meet::Meeting;

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
    /// What makes its environment has not ended well: somebody started it by hand.
    #[error("the environment of job {job} has not been made: {} is not there", path.display())]
    NotPrepared {
        /// The job.
        job: String,
        /// The file that says what was made.
        path: PathBuf,
    },
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
            Self::NotPrepared { path, .. } => format!(
                "start {} before, and wait until it has ended",
                path.with_file_name("preparation.sh").display()
            ),
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
            Self::Element(_) | Self::NotPrepared { .. } => exit::BAD_INPUT,
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
    dir.note_start_by_hand(&allocation.scheduler_id)?;
    let node = allocation.node_of(allocation.place.task).to_owned();
    let id = run_id(&job, &allocation);
    let mut task = TaskRun {
        node: node.clone(),
        run: Some(id.clone()),
        scheduler_job: Some(allocation.job.to_string()),
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
            JobFault::of_end(&node, *code, &end, job.run.memory).or_else(of_log)
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
pub(super) fn as_submitted(job: &JobRequest, context: &AppContext) -> AppContext {
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

/// The job's lock, which is the one that was handed over.
///
/// # Errors
/// It is another one, or cannot be read.
pub(super) fn read_job_lock(dir: &JobDir, job: &JobRequest) -> Result<Lock> {
    let path = dir.lock();
    let text = crate::input::read_text(&path).map_err(AppError::unreadable(&path))?;
    if sha2::Sha256::digest(text.as_bytes())[..] != job.lock.0 {
        return Err(NodeError::OtherLock { path }.into());
    }
    crate::project::read_lock(&path)
}

/// Refuses a node with other processors than the lock is for.
///
/// # Errors
/// [`NodeError::Architecture`].
pub(super) fn check_architecture(job: &JobRequest, node: &str) -> Result<(), NodeError> {
    match debian_architecture() {
        here if here == job.architecture => Ok(()),
        here => Err(NodeError::Architecture {
            lock: job.architecture.clone(),
            node: node.to_owned(),
            here: here.to_owned(),
        }),
    }
}

/// What each node unpacks to a disk of its own: as the job was handed over, or as its preparation made it.
fn find_local_store(dir: &JobDir, job: &JobRequest) -> Result<Option<LocalStoreRequest>> {
    if job.preparation.is_none() {
        return Ok(job.local_store.clone());
    }
    let prepared = dir.read_prepared()?.ok_or_else(|| NodeError::NotPrepared {
        job: job.token.clone(),
        path: dir.prepared_file(),
    })?;
    Ok(prepared.local_store)
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
        let lock = read_job_lock(self.dir, self.job)?;
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

    fn run_met(&self, lock: &Lock, id: String, meeting: &RefCell<Option<Meeting>>) -> Result<u8> {
        let gpus = self.judge(lock)?;
        let (edits, network) = self.read_network(lock)?;
        let job = self.job;
        let local_store = match find_local_store(self.dir, job)? {
            Some(request) => open_local_store(&request, self.node, self.context)?,
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
                edits,
                network,
                command: match job.starts_own_ranks {
                    true => command.clone(),
                    false => wrap_command(&job.layout, place, point, &command),
                },
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

    /// The devices by which nodes reach each other's memory and what is known of the network, with a word where that will
    /// not work.
    ///
    /// # Errors
    /// The job wants no start without its nodes' fast network, and it will not be used.
    fn read_network(&self, lock: &Lock) -> Result<(ContainerEdits, JobNetwork)> {
        let fabric = FabricDevices::read(&Roots::default());
        let job = self.job;
        let layout = &job.layout;
        let mut plugins = Vec::new();
        if layout.nodes > 1 {
            let found = list_plugins(&Roots::default());
            plugins = select_plugins(found, job.host_plugins);
            if let (false, Some(plugin)) = (job.containment.is_own(), plugins.first()) {
                let (node, kind) = (self.node, job.containment.name());
                self.context.report(&AppEvent::JobRemark(&format!(
                    "node {node}: {} in {} does not come with `containment = \"{kind}\"`",
                    plugin.name,
                    plugin
                        .directories
                        .first()
                        .map_or(Path::new(""), |first| first)
                        .display(),
                )));
                plugins.clear();
            }
        }
        let packages: Vec<&str> = lock.debs.iter().map(|deb| deb.name.as_str()).collect();
        let limit = getrlimit(Resource::Memlock);
        let mut obstacles = describe_obstacles(&fabric, &packages, limit, self.node);
        if job.strict && !obstacles.is_empty() {
            return Err(NodeError::SlowNetwork(obstacles.swap_remove(0)).into());
        }
        // An environment may have one of its own, so that a strict job waits for what NCCL says.
        if layout.nodes > 1 && plugins.is_empty() {
            obstacles.extend(describe_missing_plugin(&fabric, self.node));
        }
        for obstacle in &obstacles {
            self.context.report(&AppEvent::JobRemark(obstacle));
        }
        let network = JobNetwork {
            node: self.node.to_owned(),
            nodes: layout.nodes,
            joins_ranks: layout.nodes > 1 || layout.gpus_per_node.is_some_and(|count| count > 1),
            strict: job.strict,
            active_ports: fabric.active_ports,
            plugins,
            obstacle: obstacles.into_iter().next(),
        };
        Ok((fabric.edits, network))
    }

    /// Judges the environment by this node, before anything is unpacked; gives the job's cards.
    fn judge(&self, lock: &Lock) -> Result<GpuRequest> {
        check_architecture(self.job, self.node)?;
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
}

/// What a user's own variable may not say otherwise: ranks would not find each other.
fn is_ours(name: &str) -> bool {
    ["_SOCKET_IFNAME", "OMP_NUM_THREADS"]
        .iter()
        .all(|own| !name.ends_with(own))
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
    fn a_user_says_which_interface_and_not_which_rank() {
        assert!(!is_ours("NCCL_SOCKET_IFNAME") && !is_ours("OMP_NUM_THREADS"));
        assert!(is_ours("MASTER_ADDR") && is_ours("RANK"));
    }
}
