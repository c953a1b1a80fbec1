//! What a rule can look up about a machine and an environment.
//!
//! A condition that cannot be judged, because nothing is known, neither holds nor fails: what speaks
//! against a cause is a condition of its own.

use std::collections::BTreeMap;

use sconce_schema::facts::{FabricState, GpuFacts, HostFacts, RlimitPair};
use sconce_schema::{Bytes, ComputeCapability, CudaVersion};
use serde::{Deserialize, Serialize};

use super::oom::OomClass;

/// What is known of the environment that wrote a log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LogEnvironment {
    /// CUDA that its torch was built with.
    pub torch_cuda: Option<CudaVersion>,
    /// Its torch is a CPU build.
    pub cpu_torch: bool,
    /// Versions by package name.
    pub packages: BTreeMap<String, String>,
    /// Whether it has a compiler, and why not, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiler: Option<CompilerState>,
    /// The project whose command wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<ProjectContents>,
}

/// What the folder of a project says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct ProjectContents {
    /// Its extras, by the top-level modules that they bring. Those that are installed already are left out.
    pub extras: BTreeMap<String, String>,
    /// The folders that its own top-level modules lie in, as a run sees them: `/workspace/src`.
    pub modules: BTreeMap<String, String>,
    /// The day of its newest commit, `2021-03-25`, where that is long ago and its spec takes today's versions.
    pub old_commit_day: Option<String>,
}

/// Whether an environment of Sconce's has a compiler for what compiles when a script runs, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CompilerState {
    /// The lock has one.
    Locked,
    /// Its spec wants none.
    Excluded,
    /// Its spec asks for none, and it has no package that brings one.
    NotRequested,
    /// It would have one if it were locked now.
    NotLocked,
}

/// Everything that is known besides the log.
pub(crate) struct RuleContext<'a> {
    pub(crate) host: Option<&'a HostFacts>,
    pub(crate) environment: &'a LogEnvironment,
    pub(crate) captures: &'a BTreeMap<String, String>,
    pub(crate) oom: Option<OomClass>,
}

/// One fact that a rule asks for. Texts may have `{name}` of what the log's text captured.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FactCondition {
    /// Whether an NVIDIA driver is loaded.
    Driver(bool),
    /// The driver is older than what this CUDA version needs; empty: the CUDA of torch.
    DriverTooOldFor(String),
    /// The driver serves this CUDA version; empty: the CUDA of torch.
    DriverServes(String),
    /// This kernel module is not loaded.
    NoModule(String),
    /// The kernel's own driver has the cards.
    Nouveau(bool),
    /// Whether there are NVIDIA devices on the PCI bus.
    PciCards(bool),
    /// Whether the driver shows cards.
    Cards(bool),
    /// The driver shows fewer cards than this.
    FewerCardsThan(u32),
    /// This device node does not exist.
    NoNode(String),
    /// A device node that the reader may not open.
    NodeRefused(bool),
    /// The driver's library of this name is not of the loaded driver's version.
    LibraryDiffers(String),
    /// Whether the loader takes a forward-compatibility library.
    CompatLibrary(bool),
    /// Whether all cards are for data centres.
    DataCentre(bool),
    /// Whether a card's fabric is ready.
    FabricReady(bool),
    /// This service is not active.
    ServiceDown(String),
    /// `cuInit` ends with this result.
    CudaInit(i32),
    /// NVML does not start, with this in its words.
    NvmlError(String),
    /// Whether it is a container; or a name, `wsl`, `kubernetes`.
    Container(bool),
    /// It runs in this, `wsl`, `kubernetes`, `docker`.
    Inside(String),
    /// Whether the NVIDIA container toolkit is installed.
    Toolkit(bool),
    /// Docker has no runtime of NVIDIA's and there is no CDI file.
    EngineUnprepared(bool),
    /// A CDI file is of another driver or names files that are not there.
    CdiStale(bool),
    /// /dev/shm is smaller than this.
    ShmBelow(String),
    /// /dev/shm is at least this large.
    ShmAtLeast(String),
    /// Fewer open files are allowed than this.
    OpenFilesBelow(u64),
    /// A cgroup limits main memory.
    MemoryLimited(bool),
    /// The kernel has killed processes of this cgroup for memory.
    OomKills(bool),
    /// The file system of the store has less free than this.
    DiskBelow(String),
    /// This variable is set.
    VariableSet(String),
    /// This variable is not set.
    VariableUnset(String),
    /// `NAME=text`: the variable is set and has this text.
    VariableHas(String),
    /// CUDA_VISIBLE_DEVICES hides every card.
    CardsHidden(bool),
    /// Multi-instance mode of a card is on.
    Mig(bool),
    /// A card's compute mode is not the default.
    ComputeModeSet(bool),
    /// On every card, less memory than this is used now.
    MemoryFree(String),
    /// On some card, more memory than this is used now.
    MemoryHeld(String),
    /// On some card, more than this is used that no listed process has.
    MemoryOrphaned(String),
    /// The kernel log has one of these faults.
    Xid(Vec<u32>),
    /// A card is lost, has uncorrected errors, or waits for a repair of its memory.
    CardHurt(bool),
    /// The IOMMU is in use, or PCI bridges redirect peer-to-peer requests.
    PeerRisk(bool),
    /// Network interfaces that lead nowhere are up beside others (docker0, veth…, virbr…).
    VirtualInterfaces(bool),
    /// The interface that NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME names is not there.
    InterfaceMissing(bool),
    /// The machine's C library is older than this.
    GlibcBelow(String),
    /// The machine's C++ library is older than this.
    GlibcxxBelow(String),
    /// Some card's compute capability is below this.
    CapabilityBelow(String),
    /// All cards' compute capabilities are at least this.
    CapabilityAtLeast(String),
    /// Some card has this compute capability.
    CapabilityIs(String),
    /// Whether MPS's control daemon runs.
    Mps(bool),
    /// Whether torch is a CPU build.
    CpuTorch(bool),
    /// The CUDA of torch has this major version.
    TorchCudaMajor(String),
    /// The CUDA of torch has another major version than this.
    TorchCudaMajorNot(String),
    /// Whether the package is installed.
    Package(String),
    /// The environment's compiler is in this state.
    Compiler(CompilerState),
    /// Whether nothing is known of the environment's compiler.
    CompilerUnknown(bool),
    /// Out of memory in this way.
    Oom(OomClass),
    /// The installed package, with its version, that has this module.
    PackageOfModule(String),
    /// The usual project of the index that has this module, with the versions that have it (`setuptools<81`), where none that has it is installed; an unknown one is
    /// never guessed.
    ProjectOfModule(String),
    /// No project is known to have this module, and it is none of the project's own.
    ModuleUnknown(String),
    /// The extra of the project that brings this module.
    ExtraOfModule(String),
    /// The folder of the project that has this module, of those that Python did not look into.
    FolderOfModule(String),
    /// The package of the project that lacks this module: Python found the package.
    PackageOfProject(String),
    /// The Debian package that has this program.
    DebianPackageOf(String),
    /// The day of the project's newest commit, where it is old and its spec takes today's versions.
    OldCommitDay(bool),
}

impl FactCondition {
    /// The fact in words, where the condition holds.
    pub(crate) fn describe_if_true(&self, known: &RuleContext) -> Option<String> {
        let text = |text: &str| {
            super::rule::fill_placeholders(text, |name| {
                known.captures.get(name).map(String::as_str)
            })
        };
        match self {
            Self::CpuTorch(is) => (known.environment.cpu_torch == *is
                && (*is || known.environment.torch_cuda.is_some()))
            .then(|| {
                if *is {
                    "torch is a CPU build"
                } else {
                    "torch is a CUDA build"
                }
                .to_owned()
            }),
            Self::TorchCudaMajor(major) | Self::TorchCudaMajorNot(major) => {
                let cuda = known.environment.torch_cuda?;
                let major: u32 = text(major).split('.').next()?.parse().ok()?;
                let same = cuda.major == major;
                (same == matches!(self, Self::TorchCudaMajor(_)))
                    .then(|| format!("torch was built with CUDA {cuda}"))
            }
            Self::Package(name) => {
                let version = known.environment.packages.get(&text(name))?;
                Some(format!("{} {version}", text(name)))
            }
            Self::Compiler(state) => (known.environment.compiler == Some(*state))
                .then(|| describe_compiler(*state).to_owned()),
            Self::CompilerUnknown(is) => (known.environment.compiler.is_none() == *is)
                .then(|| "of the environment's compiler nothing is known".to_owned()),
            Self::Oom(class) => (known.oom == Some(*class)).then(String::new),
            Self::PackageOfModule(module) => {
                let packages = &known.environment.packages;
                let mut names = projects_of(&text(module));
                let name = names.find(|name| packages.contains_key(name))?;
                Some(format!("{name} {}", packages[&name]))
            }
            Self::ProjectOfModule(module) => {
                let packages = &known.environment.packages;
                let module = text(module);
                let is_there = projects_of(&module).any(|name| packages.contains_key(&name));
                let first = sconce_formats::find_providers(&module)?.next()?;
                (!is_there).then(|| first.to_owned())
            }
            Self::ModuleUnknown(module) => {
                let module = text(module);
                let top = top_level(&module);
                let project = known.environment.project.as_ref();
                let is_own = project.is_some_and(|project| {
                    project.modules.contains_key(top) || project.extras.contains_key(top)
                });
                let unknown = !is_own && projects_of(&module).next().is_none();
                unknown.then(|| "no project is known to have it".to_owned())
            }
            Self::ExtraOfModule(module) => {
                let extras = &known.environment.project.as_ref()?.extras;
                extras.get(top_level(&text(module))).cloned()
            }
            Self::FolderOfModule(module) | Self::PackageOfProject(module) => {
                let modules = &known.environment.project.as_ref()?.modules;
                let module = text(module);
                let folder = modules.get(top_level(&module))?;
                match (self, module.contains('.')) {
                    (Self::FolderOfModule(_), false) => Some(folder.clone()),
                    (Self::PackageOfProject(_), true) => Some(top_level(&module).to_owned()),
                    _ => None,
                }
            }
            Self::DebianPackageOf(program) => {
                let program = text(program);
                let name = program.rsplit('/').next().unwrap_or_default();
                sconce_formats::debian_package_of_program(name).map(str::to_owned)
            }
            Self::OldCommitDay(is) => {
                let project = known.environment.project.as_ref()?;
                let day = project.old_commit_day.as_ref();
                (day.is_some() == *is).then(|| day.cloned().unwrap_or_default())
            }
            _ => of_host(self, known.host?, known.environment, &text),
        }
    }
}

/// The projects that have a module, the usual one first.
fn projects_of(module: &str) -> impl Iterator<Item = String> + use<> {
    let known = sconce_formats::find_providers(module).into_iter().flatten();
    known.filter_map(|name| name.split('<').next().map(str::to_owned))
}

fn top_level(module: &str) -> &str {
    module.split('.').next().unwrap_or_default()
}

fn describe_compiler(state: CompilerState) -> &'static str {
    match state {
        CompilerState::Locked => "the lock has a compiler",
        CompilerState::Excluded => "the spec leaves the compiler out",
        CompilerState::NotRequested => "the spec asks for no compiler",
        CompilerState::NotLocked => "the lock has no compiler yet",
    }
}

/// Conditions on the machine.
fn of_host(
    condition: &FactCondition,
    host: &HostFacts,
    environment: &LogEnvironment,
    text: &dyn Fn(&str) -> String,
) -> Option<String> {
    use FactCondition as C;
    let cuda_of = |cuda: &str| match cuda {
        "" => environment.torch_cuda,
        cuda => text(cuda).parse::<CudaVersion>().ok(),
    };
    match condition {
        C::Driver(is) => (host.driver.is_some() == *is).then(|| match &host.driver {
            Some(driver) => match driver.version {
                Some(version) => format!("driver {version} is loaded"),
                None => "a driver is loaded".to_owned(),
            },
            None => "no NVIDIA driver is loaded".to_owned(),
        }),
        C::DriverTooOldFor(cuda) | C::DriverServes(cuda) => {
            let cuda = cuda_of(cuda)?;
            let needs = cuda.lowest_driver()?;
            let has = host.driver.as_ref()?.version?;
            ((has < needs) == matches!(condition, C::DriverTooOldFor(_)))
                .then(|| format!("driver {has}; CUDA {cuda} needs {needs} or newer"))
        }
        C::NoModule(name) => {
            let modules = host.driver.as_ref()?.modules.as_ref()?;
            (!modules.contains(name)).then(|| format!("the kernel module {name} is not loaded"))
        }
        C::Nouveau(is) => {
            let cards = host.pci_cards.as_ref()?;
            let nouveau =
                |card: &sconce_schema::facts::PciGpu| card.driver.as_deref() == Some("nouveau");
            (cards.iter().any(nouveau) == *is).then(|| "nouveau has the cards".to_owned())
        }
        C::PciCards(is) => {
            let count = host.pci_cards.as_ref()?.len();
            ((count > 0) == *is).then(|| match count {
                0 => "there is no NVIDIA device on the PCI bus".to_owned(),
                count => format!("{count} NVIDIA devices on the PCI bus"),
            })
        }
        C::Cards(is) => {
            let count = host.cards.len();
            ((count > 0) == *is && (count > 0 || host.nvml.is_some())).then(|| match count {
                0 => "the driver shows no card".to_owned(),
                1 => "the driver shows 1 card".to_owned(),
                count => format!("the driver shows {count} cards"),
            })
        }
        C::FewerCardsThan(least) => {
            let count = host.cards.len() as u32;
            (count > 0 && count < *least).then(|| format!("cards: {count}"))
        }
        C::NoNode(path) => {
            let nodes = host.nodes.as_ref()?;
            (!nodes.iter().any(|node| node.path == *path)).then(|| format!("there is no {path}"))
        }
        C::NodeRefused(_) => {
            let refused = |node: &&sconce_schema::facts::DeviceNodeFacts| {
                !node.usable || node.open_error.is_some()
            };
            let node = host.nodes.as_ref()?.iter().find(refused)?;
            Some(match &node.open_error {
                Some(error) => format!("{} cannot be opened: {error}", node.path),
                None => format!("{} has permissions {:o}", node.path, node.mode & 0o7777),
            })
        }
        C::LibraryDiffers(name) => {
            let driver = host.driver.as_ref()?;
            let loaded = driver.version?;
            let library = driver.libraries.iter().find(|library| {
                library.name == *name
                    && library.wins
                    && library.version.is_some_and(|v| v != loaded)
            })?;
            Some(format!(
                "{} is of {}, the kernel module of {loaded}",
                library.path, library.version?
            ))
        }
        C::CompatLibrary(is) => {
            let driver = host.driver.as_ref()?;
            let compat = driver
                .libraries
                .iter()
                .find(|library| library.wins && library.compat);
            match (compat, is) {
                (Some(library), true) => Some(format!("the loader takes {}", library.path)),
                (None, false) => Some("no cuda-compat library is taken".to_owned()),
                _ => None,
            }
        }
        C::DataCentre(is) => {
            let all = |card: &GpuFacts| card.data_centre == Some(*is);
            let some = host.cards.first()?;
            host.cards.iter().all(all).then(|| name(some))
        }
        C::FabricReady(is) => {
            let state = host.cards.iter().find_map(|card| {
                card.fabric
                    .filter(|state| *state != FabricState::NotSupported)
            })?;
            ((state == FabricState::Completed) == *is).then(|| format!("fabric state: {state:?}"))
        }
        C::ServiceDown(unit) => {
            let state = host.services.get(unit)?;
            (state != "active").then(|| format!("{unit} is {state}"))
        }
        C::CudaInit(code) => {
            let result = host.cuda_init.as_ref()?.result?;
            (result == *code).then(|| format!("cuInit ends with {result} here"))
        }
        C::NvmlError(part) => {
            let error = host.nvml.as_ref()?.error.as_ref()?;
            let has = error.to_lowercase().contains(&part.to_lowercase());
            has.then(|| format!("NVML here: {error}"))
        }
        C::Container(is) => (host.container.is_some() == *is).then(|| match &host.container {
            Some(kind) => format!("this is a container ({kind})"),
            None => "this is no container".to_owned(),
        }),
        C::Inside(kind) => {
            (host.container.as_ref() == Some(kind)).then(|| format!("this is {kind}"))
        }
        C::Toolkit(is) => (host.toolkit.is_some() == *is).then(|| match &host.toolkit {
            Some(toolkit) => format!(
                "NVIDIA container toolkit {}",
                toolkit.version.as_deref().unwrap_or("of unknown version")
            ),
            None => "the NVIDIA container toolkit is not installed".to_owned(),
        }),
        C::EngineUnprepared(is) => {
            let toolkit = host.toolkit.as_ref()?;
            let runtimes = toolkit.docker_runtimes.as_deref().unwrap_or_default();
            let bare = toolkit.cdi.is_empty() && !runtimes.iter().any(|name| name == "nvidia");
            (bare == *is)
                .then(|| "daemon.json names no nvidia runtime, and there is no CDI file".to_owned())
        }
        C::CdiStale(is) => {
            let loaded = host.driver.as_ref().and_then(|driver| driver.version);
            let stale = |file: &&sconce_schema::facts::CdiFileFacts| {
                !file.missing.is_empty()
                    || file
                        .driver
                        .is_some_and(|version| loaded.is_some_and(|now| now != version))
            };
            let file = host.toolkit.as_ref()?.cdi.iter().find(stale);
            (file.is_some() == *is).then(|| match file {
                Some(file) => format!("{} is not of this driver", file.path),
                None => String::new(),
            })
        }
        C::OomKills(is) => {
            let kills = host.cgroup.as_ref()?.oom_kills?;
            ((kills > 0) == *is).then(|| match kills {
                0 => "the kernel has killed nothing of this cgroup for memory".to_owned(),
                1 => "the kernel killed a process of this cgroup for memory".to_owned(),
                _ => format!("the kernel killed for memory {kills} times in this cgroup"),
            })
        }
        C::MemoryLimited(is) => {
            let limit = host.cgroup.as_ref()?.memory;
            (limit.is_some() == *is).then(|| match limit {
                Some(limit) => format!("main memory is limited to {limit}"),
                None => "no cgroup limits main memory".to_owned(),
            })
        }
        C::Xid(codes) => {
            let xids = host.xids.as_ref()?;
            let xid = xids.iter().rev().find(|xid| codes.contains(&xid.code))?;
            Some(format!("Xid {} in the kernel log", xid.code))
        }
        C::Mps(is) => {
            let mps = host.mps.as_ref()?;
            (mps.running == *is).then(|| match is {
                true => "MPS's control daemon runs".to_owned(),
                false => "MPS's control daemon does not run".to_owned(),
            })
        }
        C::PeerRisk(is) => {
            let iommu = host.iommu.as_ref()?;
            let bridges = iommu.acs_bridges.as_ref().map_or(0, Vec::len);
            let risk = iommu.active == Some(true) || bridges > 0;
            (risk == *is).then(|| match (bridges, iommu.active) {
                (0, Some(true)) => "the IOMMU is in use".to_owned(),
                (0, _) => "no IOMMU is in use".to_owned(),
                (bridges, _) => {
                    format!("{bridges} PCI bridges redirect peer-to-peer requests (ACS)")
                }
            })
        }
        _ => limits(condition, host, text).or_else(|| cards(condition, host, text)),
    }
}

/// Conditions on limits, variables and libraries.
fn limits(
    condition: &FactCondition,
    host: &HostFacts,
    text: &dyn Fn(&str) -> String,
) -> Option<String> {
    use FactCondition as C;
    let variable = |name: &str| host.variables.get(name);
    match condition {
        C::ShmBelow(size) | C::ShmAtLeast(size) => {
            let limit: Bytes = text(size).parse().ok()?;
            let has = host.shm.as_ref()?.size?;
            ((has < limit) == matches!(condition, C::ShmBelow(_)))
                .then(|| format!("/dev/shm has {has}"))
        }
        C::OpenFilesBelow(least) => {
            let RlimitPair { soft, hard } = host.limits.as_ref()?.open_files?;
            let soft = soft.filter(|soft| soft < least)?;
            Some(match hard {
                Some(hard) => {
                    format!("{soft} open files are allowed, up to {hard} can be asked for")
                }
                None => format!("{soft} open files are allowed"),
            })
        }
        C::DiskBelow(size) => {
            let disk = host.store.as_ref()?;
            let free = disk
                .free
                .filter(|free| Some(*free) < text(size).parse().ok())?;
            Some(format!("{free} are free at {}", disk.path))
        }
        C::VariableSet(name) => {
            let value = variable(name)?;
            Some(format!("{name}={value}"))
        }
        C::VariableUnset(name) => (!host.variables.is_empty() && variable(name).is_none())
            .then(|| format!("{name} is not set")),
        C::VariableHas(pair) => {
            let (name, part) = pair.split_once('=')?;
            let value = variable(name).filter(|value| value.contains(part))?;
            Some(format!("{name}={value}"))
        }
        C::CardsHidden(is) => {
            let value = variable("CUDA_VISIBLE_DEVICES");
            let hidden = value.is_some_and(|value| matches!(value.trim(), "" | "-1" | "none"));
            (hidden == *is).then(|| match value {
                Some(value) => format!("CUDA_VISIBLE_DEVICES=\"{value}\""),
                None => "CUDA_VISIBLE_DEVICES is not set".to_owned(),
            })
        }
        C::VirtualInterfaces(is) => {
            let interfaces = host.interfaces.as_ref()?;
            let names = [
                "docker",
                "veth",
                "virbr",
                "br-",
                "cni",
                "flannel",
                "cali",
                "lxc",
                "tun",
                "tailscale",
            ];
            let found = interfaces
                .iter()
                .find(|interface| names.iter().any(|name| interface.starts_with(name)));
            (found.is_some() == *is).then(|| format!("interfaces: {}", interfaces.join(", ")))
        }
        C::InterfaceMissing(is) => {
            let interfaces = host.interfaces.as_ref()?;
            let (name, wanted) = ["NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"]
                .iter()
                .find_map(|name| variable(name).map(|value| (name, value)))?;
            let exact = wanted.trim_start_matches(['=', '^']);
            let there = wanted.starts_with('^')
                || exact
                    .split(',')
                    .any(|one| interfaces.iter().any(|i| i.starts_with(one)));
            (there != *is)
                .then(|| format!("{name}={wanted}; interfaces: {}", interfaces.join(", ")))
        }
        C::GlibcBelow(version) => older(&host.glibc, &text(version), "glibc"),
        C::GlibcxxBelow(version) => older(&host.glibcxx, &text(version), "GLIBCXX"),
        _ => None,
    }
}

/// Conditions on cards.
fn cards(
    condition: &FactCondition,
    host: &HostFacts,
    text: &dyn Fn(&str) -> String,
) -> Option<String> {
    use FactCondition as C;
    let cards = &host.cards;
    match condition {
        C::Mig(is) => {
            let on = |card: &&GpuFacts| card.mig.as_ref().is_some_and(|mig| mig.enabled);
            let card = cards.iter().find(on);
            (card.is_some() == *is && !cards.is_empty()).then(|| match card {
                Some(card) => format!("MIG is on: {}", name(card)),
                None => "MIG is off".to_owned(),
            })
        }
        C::ComputeModeSet(is) => {
            let set = |card: &&GpuFacts| {
                card.compute_mode
                    .as_deref()
                    .is_some_and(|mode| mode != "default")
            };
            let card = cards.iter().find(set);
            (card.is_some() == *is && cards.iter().any(|card| card.compute_mode.is_some())).then(
                || match card {
                    Some(card) => format!(
                        "compute mode {}",
                        card.compute_mode.as_deref().unwrap_or("")
                    ),
                    None => "compute mode default".to_owned(),
                },
            )
        }
        C::MemoryFree(size) | C::MemoryHeld(size) => {
            let limit: Bytes = text(size).parse().ok()?;
            let most = cards
                .iter()
                .filter_map(|card| card.memory_used.map(|used| (used, card)));
            let (used, card) = most.max_by_key(|(used, _)| *used)?;
            ((used < limit) == matches!(condition, C::MemoryFree(_)))
                .then(|| format!("{used} used now on {}", name(card)))
        }
        C::MemoryOrphaned(size) => {
            let limit: Bytes = text(size).parse().ok()?;
            cards.iter().find_map(|card| {
                let listed: u64 = card
                    .memory_by_pid
                    .as_ref()?
                    .values()
                    .map(|bytes| bytes.0)
                    .sum();
                let orphaned = Bytes(card.memory_used?.0.saturating_sub(listed));
                (orphaned > limit)
                    .then(|| format!("{orphaned} on {} belong to no listed process", name(card)))
            })
        }
        C::CardHurt(is) => {
            let hurt = cards.iter().find_map(|card| {
                let what = if let Some(lost) = &card.lost {
                    lost.clone()
                } else if card.remap_failed == Some(true) {
                    "a row of its memory could not be replaced".to_owned()
                } else if card.remap_pending == Some(true) {
                    "a repair of its memory waits for a reset".to_owned()
                } else {
                    let errors = card.ecc_uncorrected.filter(|&errors| errors > 0)?;
                    format!("{errors} uncorrected memory errors")
                };
                Some(format!("{}: {what}", name(card)))
            });
            (hurt.is_some() == *is && !cards.is_empty()).then(|| hurt.unwrap_or_default())
        }
        C::CapabilityBelow(version) | C::CapabilityAtLeast(version) => {
            let least: ComputeCapability = text(version).parse().ok()?;
            let lowest = cards
                .iter()
                .filter_map(|card| card.capability.map(|own| (own, card)));
            let (own, card) = lowest.min_by_key(|(own, _)| *own)?;
            ((own < least) == matches!(condition, C::CapabilityBelow(_)))
                .then(|| format!("{} has compute capability {own}", name(card)))
        }
        C::CapabilityIs(version) => {
            let wanted: ComputeCapability = text(version).parse().ok()?;
            let card = cards.iter().find(|card| card.capability == Some(wanted))?;
            Some(format!("{} has compute capability {wanted}", name(card)))
        }
        _ => None,
    }
}

fn name(card: &GpuFacts) -> String {
    match &card.name {
        Some(name) => name.clone(),
        None => format!("card {}", card.index),
    }
}

/// Whether a version of numbers and dots is below another.
fn older(has: &Option<String>, wants: &str, what: &str) -> Option<String> {
    let numbers = |text: &str| -> Option<Vec<u32>> {
        text.split('.').map(|part| part.parse().ok()).collect()
    };
    let has = has.as_ref()?;
    (numbers(has)? < numbers(wants)?).then(|| format!("{what} {has} is here"))
}
