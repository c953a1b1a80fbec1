//! `sconce.toml`: what a person asks for. Strict: a key that is not known is an error.
//!
//! [`Spec::parse`] is the only way in; it names the line of whatever is wrong.

mod build;
mod containment;
mod parse;
mod services;
mod target;
mod values;
mod write;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::number_set::NumberSet;
use crate::request::{ContainerUser, NetworkMode, RunLimits};
use crate::runtime::Runtime;
use crate::units::{Bytes, LockedMemory, Millicores};

pub use build::{BuildSpec, CopySpec, IMAGE, Removal, StageRequirements, StageSpec, Variant};
pub use containment::JobContainment;
pub use parse::{SpecError, is_date};
pub use services::{
    BuiltinService, CustomServiceSpec, HealthCheckSpec, Jupyter, ServicesSpec, Ssh, TensorBoard,
    on_loopback,
};
pub use target::{LaunchMode, SchedulerKind, TargetSpec};
pub use values::{GpuId, GpuRequest, IO_WEIGHTS, MountSpec, NumaPolicy, PortSpec};

/// The format that this program reads.
pub const FORMAT: u32 = 1;

/// The file name that is looked for in a folder.
pub const FILE_NAME: &str = "sconce.toml";

/// Where the spec's folder is mounted inside; also the working directory.
pub const WORKSPACE: &str = "/workspace";

/// The releases of Debian that environments are made from, by codename.
pub const RELEASES: [&str; 2] = ["bookworm", "trixie"];

/// A whole `sconce.toml`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Spec {
    /// Format of the file; [`FORMAT`] where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Name of the environment; its folder's name where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The interpreter and its packages.
    pub python: Python,
    /// The operating system's part.
    pub system: System,
    /// How it is run when nothing else is said.
    pub run: RunSpec,
    /// How its image is built.
    pub build: BuildSpec,
    /// Environments to build in, by name: `[stage.NAME]`. What they make gets into the image by
    /// `copy` alone.
    #[serde(rename = "stage", skip_serializing_if = "BTreeMap::is_empty")]
    pub stages: BTreeMap<String, StageSpec>,
    /// What runs beside the command, by name: `[services.NAME]`.
    #[serde(skip_serializing_if = "ServicesSpec::is_empty")]
    pub services: ServicesSpec,
    /// Where jobs may be handed over, by name: `[target.NAME]`.
    #[serde(rename = "target", skip_serializing_if = "BTreeMap::is_empty")]
    pub targets: BTreeMap<String, TargetSpec>,
}

/// `[python]`. At most one of `requirements`, `pyproject` and `lock` is given; `packages` come beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Python {
    /// `3.13`, or which ones are allowed, as specifiers of PEP 440: `<3.11`, `>=3.9,<3.12`. Where it is absent
    /// or several are allowed, the release's own, or the next lower one that all packages have wheels for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Requirements as in PEP 508, beside those of `requirements` or `pyproject`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// A requirements file, relative to the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requirements: Option<String>,
    /// A pyproject.toml whose dependencies are meant, relative to the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pyproject: Option<String>,
    /// The lock of another tool (`uv.lock`, `poetry.lock`, …), relative to the spec, whose versions and
    /// files are taken. `extras` and `groups` are those of its project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// Folders of Python projects, relative to the spec, that are installed as `pip install -e` does:
    /// with their dependencies and their entry points, and read from where they lie. `.`, `libs/mine[gpu]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub editable: Vec<String>,
    /// Extras of the project in the spec's folder, `[project.optional-dependencies]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extras: Vec<String>,
    /// Dependency groups of `pyproject` (PEP 735).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What indexes published after this day (`2021-03-25`, in UTC, the day included) does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub as_of: Option<String>,
    /// Whether packages that exist as sources alone may be built, which runs their code in a
    /// container without network; they may where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_sources: Option<bool>,
    /// Packages that are built from sources in sight of the environment's own, as with pip's
    /// `--no-build-isolation`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub no_build_isolation: Vec<String>,
    /// Modules that the project's code needs and that nothing brings: while it names some, there is no lock.
    /// `sconce init` writes it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// The index to use instead of the machine's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<String>,
    /// Indexes to use beside it; the first one that has a package is taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_index: Vec<String>,
}

/// `[system]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct System {
    /// `debian/trixie` or `debian/bookworm`.
    pub release: String,
    /// Debian packages beside those that every environment has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// Whether what torch.compile, Triton and C++ extensions compile with is there; where it is
    /// absent, it is in an environment that has PyTorch 2 or Triton.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiler: Option<bool>,
    /// The mirror to use instead of the machine's own apt sources.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mirror: Option<String>,
    /// The mirror for security updates, where it is not `mirror` with `-security` added.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_mirror: Option<String>,
}

impl Default for System {
    fn default() -> Self {
        Self {
            release: "debian/trixie".to_owned(),
            packages: Vec::new(),
            compiler: None,
            mirror: None,
            security_mirror: None,
        }
    }
}

/// `[run]`: defaults of `sconce run`, each with a flag that overrides it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct RunSpec {
    /// Program and arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Cards; all of the machine's where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuRequest>,
    /// CPU limit in cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Millicores>,
    /// Memory limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// Size of /dev/shm.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shm: Option<Bytes>,
    /// Limit of processes and threads, at least 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "values::at_least_one"
    )]
    pub pids: Option<u64>,
    /// Readings a second for the record, 1 to 10; 1 where it is absent.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "values::readings_a_second"
    )]
    pub sample_hz: Option<u32>,
    /// The CPUs that it may run on, such as `0-3,8`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<NumberSet>,
    /// Limit of memory and swap together; without it a run with a memory limit has no swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<Bytes>,
    /// Share of a busy disk, 1 to 1,000; what has none given has 100.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "values::io_weight"
    )]
    pub io_weight: Option<u32>,
    /// Limit of memory in huge pages, of each size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<Bytes>,
    /// Limit of open files of each process, at least 1.
    #[serde(
        skip_serializing_if = "Option::is_none",
        deserialize_with = "values::at_least_one"
    )]
    pub nofile: Option<u64>,
    /// Limit of memory that each process may lock, or `unlimited`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memlock: Option<LockedMemory>,
    /// Whether it is placed next to its cards; `auto` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaPolicy>,
    /// Host folders inside, `SOURCE:TARGET[:ro]`; a relative source is relative to the spec.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<MountSpec>,
    /// What it sees of the network; the host's where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkMode>,
    /// What sets its container up; Sconce itself where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// Published ports, `[IP:]HOST:CONTAINER`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortSpec>,
    /// Who it is inside; `plain` where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<ContainerUser>,
    /// Working directory inside, [`WORKSPACE`] where it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Whether what it trains is accounted from inside; it is where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe: Option<bool>,
    /// Whether kernels that it compiles are kept for its next run; they are where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_cache: Option<bool>,
    /// Whether the operations of one step are counted too; they are not where this is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<bool>,
    /// Environment variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl RunSpec {
    /// Returns its limits.
    #[must_use]
    pub fn limits(&self) -> RunLimits {
        RunLimits {
            cpus: self.cpus,
            memory: self.memory,
            shm: self.shm,
            pids: self.pids,
            cpuset: self.cpuset,
            memory_swap: self.memory_swap,
            io_weight: self.io_weight,
            hugepages: self.hugepages,
            nofile: self.nofile,
            memlock: self.memlock,
        }
    }
}
