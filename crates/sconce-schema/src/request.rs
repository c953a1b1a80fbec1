//! What a run is asked to be. Every field has been decided: defaults, spec and flags are merged
//! by the program before a request is made.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::environment_layers::EnvironmentLayers;
use crate::number_set::NumberSet;
use crate::service::RunService;
use crate::units::{Bytes, LockedMemory, Millicores};

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunRequest {
    /// Unique on this machine; also the host name inside.
    pub id: String,
    /// Program and arguments. Empty for a run of services alone, which lives until it is stopped
    /// or none of them can run any more.
    pub command: Vec<String>,
    /// The root file system, or the machine's own.
    pub root: RunRoot,
    /// Working directory inside.
    pub workdir: PathBuf,
    /// The complete environment of the command (for [`RunRoot::Host`]: additions to the caller's).
    pub env: BTreeMap<String, String>,
    /// What it may use.
    pub limits: RunLimits,
    /// Host folders and files inside, in the order they are mounted.
    pub mounts: Vec<Mount>,
    /// What it sees of the network.
    pub network: NetworkMode,
    /// The address by which others reach it, to which its own name leads; a loopback address where it is
    /// absent. With [`NetworkMode::Host`] alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<std::net::IpAddr>,
    /// Ports of the host that lead inside. Not with [`NetworkMode::Host`].
    pub ports: Vec<PublishedPort>,
    /// Where on the machine it is best off: a wish, from which a program may depart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near: Option<NumaPlacement>,
    /// Who it is inside.
    pub user: ContainerUser,
    /// Devices and driver files, as CDI container edits.
    pub edits: Vec<ContainerEdits>,
    /// Give the command a terminal of its own, joined to the caller's.
    pub terminal: bool,
    /// Programs that run beside the command for as long as it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<RunService>,
}

impl RunRequest {
    /// `command` over `root` and nothing more: in `/`, as a plain user, with no network, no limits and
    /// no cards.
    pub fn new(id: impl Into<String>, root: RunRoot, command: Vec<String>) -> Self {
        Self {
            id: id.into(),
            command,
            root,
            workdir: PathBuf::from("/"),
            env: BTreeMap::new(),
            limits: RunLimits::default(),
            mounts: Vec::new(),
            network: NetworkMode::None,
            address: None,
            ports: Vec::new(),
            near: None,
            user: ContainerUser::Plain,
            edits: Vec::new(),
            terminal: false,
            services: Vec::new(),
        }
    }
}

/// Where the command's files come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunRoot {
    /// An assembled image, with a writable layer that is thrown away.
    Image(EnvironmentLayers),
    /// No container: the machine's own file system and Python.
    Host,
}

/// Limits. An absent one is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunLimits {
    /// CPU time per time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Millicores>,
    /// Memory of all processes together, page cache included; swap is not added to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Size of /dev/shm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shm: Option<Bytes>,
    /// Processes and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// The CPUs that it may run on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<NumberSet>,
    /// Memory and swap together, at least [`RunLimits::memory`]; where it is absent and memory is
    /// limited, nothing of the run is swapped out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<Bytes>,
    /// Its share of a busy disk beside others, 1 to 1,000; others have 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_weight: Option<u32>,
    /// Memory in huge pages, of each size that the machine has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Bytes>,
    /// Open files of each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nofile: Option<u64>,
    /// Memory that each process may lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memlock: Option<LockedMemory>,
}

impl RunLimits {
    /// Returns these limits, and those of `other` where these say nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            cpus: self.cpus.or(other.cpus),
            memory: self.memory.or(other.memory),
            shm: self.shm.or(other.shm),
            pids: self.pids.or(other.pids),
            cpuset: self.cpuset.or(other.cpuset),
            memory_swap: self.memory_swap.or(other.memory_swap),
            io_weight: self.io_weight.or(other.io_weight),
            hugepages: self.hugepages.or(other.hugepages),
            nofile: self.nofile.or(other.nofile),
            memlock: self.memlock.or(other.memlock),
        }
    }
}

/// The part of the machine that a run is placed in, next to its cards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NumaPlacement {
    /// The memory nodes that its memory comes from as long as they have some.
    pub nodes: NumberSet,
    /// The CPUs that it starts on; absent where they are left as they were, because more were
    /// asked for than are there or because others were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<NumberSet>,
}

/// A bind mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Mount {
    /// On the host, absolute.
    pub source: PathBuf,
    /// Inside, absolute.
    pub target: PathBuf,
    /// Whether the command can write there.
    pub read_only: bool,
}

/// What a run sees of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// The host's.
    Host,
    /// A loopback interface of its own and nothing else.
    None,
    /// One of its own, with a way out where a helper for that is on the machine.
    Own,
}

/// A published TCP port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PublishedPort {
    /// Address on the host; loopback unless asked otherwise.
    pub host_ip: std::net::IpAddr,
    /// Port on the host.
    pub host: u16,
    /// Port inside.
    pub container: u16,
}

/// Who the command is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerUser {
    /// uid and gid 1000 inside, `sconce`; files it writes under mounts belong to the caller.
    Plain,
    /// uid 0 inside, with the capabilities that container engines give by default.
    Root,
}

/// What a device needs inside a container: a subset of the container edits of the Container
/// Device Interface specification, section "OCI Edits".
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerEdits {
    /// `NAME=value`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Device nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub device_nodes: Vec<DeviceNode>,
    /// Files and folders of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<EditMount>,
    /// Symbolic links to make inside, as (target, path of the link). CDI has no such edit; a CDI
    /// file says it as one more mount.
    #[serde(skip)]
    pub links: Vec<(String, String)>,
}

/// A device node to expose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceNode {
    /// Path inside.
    pub path: String,
    /// Path on the host.
    pub host_path: String,
    /// `c` or `b`.
    pub r#type: String,
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// A file or folder of the host that a device needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EditMount {
    /// Path on the host.
    pub host_path: String,
    /// Path inside.
    pub container_path: String,
    /// Mount options (`ro`, `nosuid`, `nodev`, `bind`).
    pub options: Vec<String>,
}
