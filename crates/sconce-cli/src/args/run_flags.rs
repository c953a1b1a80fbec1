//! The flags of a run, as clap knows them.

use clap::{ArgAction, Args};
use sconce_memory::forecast::training_plan::TrainingPlans;
use sconce_schema::request::{NetworkMode, RunLimits};
use sconce_schema::spec::{GpuRequest, IO_WEIGHTS, MountSpec, NumaPolicy, PortSpec};
use sconce_schema::units::LockedMemory;
use sconce_schema::{Bytes, Hint, Millicores, NumberSet, Runtime};

use crate::number::{some_size, whole_number_parser};
use sconce_app::accounting::AccountingOverrides;
use sconce_app::run_options::RunOverrides;
use sconce_app::sources::{LockUse, PackageSources};

/// What a run may use; each overrides the spec.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct RunFlags {
    /// Cards: a number, `all`, or `device=0,2` or UUIDs.
    #[arg(long, value_name = "GPUS")]
    pub(crate) gpus: Option<GpuRequest>,
    /// Play a card that is not here, such as h100 or "RTX 3070", once for each: PyTorch allocates as on
    /// it, kernels do nothing, values are zeros.
    #[arg(long, value_name = "CARD", conflicts_with = "gpus")]
    pub(crate) virtual_gpu: Vec<String>,
    /// CPU limit in cores.
    #[arg(long, value_name = "CORES")]
    pub(crate) cpus: Option<Millicores>,
    /// Memory limit, such as 4GiB.
    #[arg(long, short, value_name = "SIZE", value_parser = some_size)]
    pub(crate) memory: Option<Bytes>,
    /// Size of /dev/shm.
    #[arg(long, value_name = "SIZE", value_parser = some_size)]
    pub(crate) shm_size: Option<Bytes>,
    /// Limit of processes and threads.
    #[arg(long, value_name = "N", value_parser = whole_number_parser::<u64>(1, u64::MAX))]
    pub(crate) pids: Option<u64>,
    /// Readings a second for the record, 1 to 10 [default: 1].
    #[arg(long, value_name = "HZ", value_parser = whole_number_parser::<u32>(1, 10))]
    pub(crate) sample_hz: Option<u32>,
    /// Mount a host folder or file: SOURCE:TARGET[:ro].
    #[arg(long = "volume", short = 'v', value_name = "MOUNT")]
    pub(crate) volumes: Vec<MountSpec>,
    /// Set a variable: NAME=VALUE, or NAME to pass this shell's.
    #[arg(long = "env", short = 'e', value_name = "VAR")]
    pub(crate) env: Vec<String>,
    /// Working directory; inside, one that is not absolute is below /workspace.
    #[arg(long, short, value_name = "DIR")]
    pub(crate) workdir: Option<String>,
    /// Publish a port: [IP:]HOST:CONTAINER (with --network own or none).
    #[arg(long = "publish", short, value_name = "PORT")]
    pub(crate) ports: Vec<PortSpec>,
    /// `host`; `own`, which leads out by slirp4netns or pasta; or `none` [default: host].
    #[arg(long, value_name = "NETWORK", value_parser = network)]
    pub(crate) network: Option<NetworkMode>,
    /// What sets the container up.
    #[arg(
        long,
        value_name = "RUNTIME",
        value_parser = sconce_app::executor::parse_runtime,
        help = sconce_app::executor::runtime_help()
    )]
    pub(crate) runtime: Option<Runtime>,
    /// Be root inside.
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) root: bool,
    /// A limit that this machine cannot enforce is an error, and of a job a fast network that its ranks do not use.
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) account: AccountFlags,
    #[command(flatten)]
    pub(crate) limits: LimitFlags,
    #[command(flatten)]
    pub(crate) plan: TrainingPlanFlags,
    #[command(flatten)]
    pub(crate) ranks: RankFlags,
    #[command(flatten)]
    pub(crate) sources: SourceFlags,
    #[command(flatten)]
    pub(crate) lock: LockFlags,
}

impl RunFlags {
    /// Returns what they say of a run, for the application.
    pub(crate) fn to_overrides(&self) -> RunOverrides {
        RunOverrides {
            gpus: self.gpus.clone(),
            virtual_gpus: self.virtual_gpu.clone(),
            limits: RunLimits {
                cpus: self.cpus,
                memory: self.memory,
                shm: self.shm_size,
                pids: self.pids,
                cpuset: self.limits.cpuset,
                memory_swap: self.limits.memory_swap,
                io_weight: self.limits.io_weight,
                hugepages: self.limits.hugepages,
                nofile: self.limits.nofile,
                memlock: self.limits.memlock,
            },
            numa: self.limits.numa,
            sample_hz: self.sample_hz,
            mounts: self.volumes.clone(),
            env: self.env.clone(),
            workdir: self.workdir.clone(),
            ports: self.ports.clone(),
            network: self.network,
            runtime: self.runtime,
            root: self.root,
            strict: self.strict,
            accounting: AccountingOverrides {
                no_probe: self.account.no_probe,
                flops: self.account.flops,
                leak_stacks: self.account.leak_stacks,
            },
            plans: self.plan.plan.clone(),
            ranks: self.ranks.ranks,
            sources: self.sources.to_sources(self.lock.to_lock_use()),
        }
    }
}

impl SourceFlags {
    /// Returns what they say, for the application.
    pub(crate) fn to_sources(&self, lock_use: LockUse) -> PackageSources {
        PackageSources {
            lock_use,
            index: self.index.clone(),
            extra_index: self.extra_index.clone(),
            mirror: self.mirror.clone(),
        }
    }
}

/// Whether a lock may be made by a verb that needs one.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct LockFlags {
    /// Make no lock: it is an error if there is none, or if the spec has changed since.
    #[arg(long, help_heading = "Sources", conflicts_with = "frozen")]
    pub(crate) locked: bool,
    /// Make no lock: take the one that is there, whatever the spec says by now.
    #[arg(long, help_heading = "Sources")]
    pub(crate) frozen: bool,
}

impl LockFlags {
    /// Returns what they say, for the application.
    pub(crate) fn to_lock_use(&self) -> LockUse {
        match (self.locked, self.frozen) {
            (true, _) => LockUse::Locked,
            (false, true) => LockUse::Frozen,
            (false, false) => LockUse::Update,
        }
    }
}

fn network(text: &str) -> Result<NetworkMode, String> {
    match text {
        "host" => Ok(NetworkMode::Host),
        "none" => Ok(NetworkMode::None),
        "own" => Ok(NetworkMode::Own),
        _ => Err("`host`, `own` or `none`".to_owned()),
    }
}

/// Where packages come from, instead of this machine's own configuration.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct SourceFlags {
    /// Python package index to use.
    #[arg(long, value_name = "URL", help_heading = "Sources")]
    pub(crate) index: Option<String>,
    /// Python package index to use beside it.
    #[arg(long, value_name = "URL", help_heading = "Sources")]
    pub(crate) extra_index: Vec<String>,
    /// Debian mirror to use.
    #[arg(long, value_name = "URL", help_heading = "Sources")]
    pub(crate) mirror: Option<String>,
}

/// Whether and how a run is accounted from inside.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AccountFlags {
    /// Bring nothing into the program that accounts for its steps.
    #[arg(long)]
    pub(crate) no_probe: bool,
    /// Count the floating point operations of one step, the fifth; that step is slower than others.
    #[arg(long, conflicts_with = "no_probe")]
    pub(crate) flops: bool,
    /// Look a few times, between two steps, which of the program's lists, dicts and graphs grow: where memory
    /// grows, the report names them and the lines that add to them.
    #[arg(long, conflicts_with = "no_probe")]
    pub(crate) leak_stacks: bool,
}

/// Limits that few need; each overrides the spec.
#[derive(Debug, Args, Clone, Default)]
pub(crate) struct LimitFlags {
    /// CPUs that it may run on, such as 0-3,8.
    #[arg(long, value_name = "CPUS", help_heading = "More limits")]
    pub(crate) cpuset: Option<NumberSet>,
    /// Limit of memory and swap together (with --memory) [default: no swap].
    #[arg(long, value_name = "SIZE", help_heading = "More limits")]
    pub(crate) memory_swap: Option<Bytes>,
    /// Share of a busy disk, 1 to 1000; others have 100.
    #[arg(
        long,
        value_name = "N",
        value_parser = whole_number_parser::<u32>(u64::from(*IO_WEIGHTS.start()), u64::from(*IO_WEIGHTS.end())),
        help_heading = "More limits"
    )]
    pub(crate) io_weight: Option<u32>,
    /// Limit of memory in huge pages, of each size.
    #[arg(long, value_name = "SIZE", help_heading = "More limits")]
    pub(crate) hugepages: Option<Bytes>,
    /// Open files of each process.
    #[arg(long, value_name = "N", value_parser = whole_number_parser::<u64>(1, u64::MAX), help_heading = "More limits")]
    pub(crate) nofile: Option<u64>,
    /// Memory that each process may lock: a size, or `unlimited` for RDMA.
    #[arg(long, value_name = "SIZE", help_heading = "More limits")]
    pub(crate) memlock: Option<LockedMemory>,
    /// `auto`: on the CPUs and memory next to its cards; `off`: where the kernel likes [default: auto].
    #[arg(long, value_name = "NUMA", help_heading = "More limits")]
    pub(crate) numa: Option<NumaPolicy>,
}

#[derive(Debug, Args, Clone, Default)]
pub(crate) struct RankFlags {
    /// Be the first of N ranks, as torchrun would start it: the others are not there, what they send is
    /// what this one sends. A single card stands for a machine with 8.
    #[arg(long, value_name = "N", value_parser = crate::number::whole_number_parser::<u32>(2, 1024))]
    pub(crate) ranks: Option<u32>,
}

#[derive(Debug, Args, Clone, Default)]
pub(crate) struct TrainingPlanFlags {
    /// Train with a plan, or several with + between them, such as bf16+checkpoint: see `sconce fit`.
    #[arg(long, value_name = "PLAN", value_parser = plans)]
    pub(crate) plan: Option<TrainingPlans>,
}

fn plans(text: &str) -> Result<TrainingPlans, String> {
    text.parse::<TrainingPlans>()
        .map_err(|error| match error.hint() {
            Some(hint) => format!("{error}; {hint}"),
            None => error.to_string(),
        })
}
