//! [`HostFacts`] of this machine, or of a recorded one.
//!
//! Each fact has one order in which it is looked for, written where it is read; the first that
//! answers wins, and what none answers is absent. Reading and parsing are apart: the parsers take
//! text. No program is run, no CUDA context is made, no right of root is needed, and nothing is
//! changed. NVIDIA's libraries are only loaded where [`FactsOptions`] says so: loading NVML where nothing
//! keeps the cards awake takes seconds, and on a machine whose card is stuck in the kernel it may
//! never return, so a program should let a [`driver_query::QueryProcess`] do it.
//!
//! What was read can be overridden by hand ([`overrides`]).

mod cgroup;
mod containers;
mod driver;
mod fabric;
mod gpus;
mod kernel_log;
mod libraries;
pub(crate) use libraries::version_in_name;
pub mod driver_query;
mod limits;
mod mounts;
mod network;
pub mod nodes;
pub mod nvml;
mod other_drivers;
pub mod overrides;
mod pci;
mod processor;
mod toolkit;
mod variables;

use std::collections::BTreeMap;
use std::path::PathBuf;

use sconce_schema::HostFacts;
use sconce_schema::facts::Driver;
use tracing::debug;

use crate::host_profile::HostProfile;
use crate::nvml::NvmlLibrary;
use crate::roots::Roots;
use crate::small_files;
pub use libraries::LibrarySearch;

pub use overrides::{OverrideError, merge_patch, set_fact};

/// What a library cannot know or must not decide by itself.
#[derive(Debug, Clone, Default)]
pub struct FactsOptions {
    /// The environment of the run, or of the program: `LD_LIBRARY_PATH` tells which libraries win,
    /// `CUDA_MPS_PIPE_DIRECTORY` where to look for the multi-process service, and those that
    /// change what CUDA does become facts, secrets masked.
    pub variables: BTreeMap<String, String>,
    /// A folder of the store; it need not exist yet.
    pub store: Option<PathBuf>,
    /// Where NVML's answers come from.
    pub nvml: NvmlSource,
    /// Who calls `cuInit`; nobody where absent. Nobody is asked where no `libcuda.so.1` was found.
    pub cuda_init: Option<driver_query::QueryProcess>,
    /// Open the control nodes, which finds what permissions do not tell (see [`nodes`]).
    ///
    /// [`nodes`]: sconce_schema::facts::DeviceNodeFacts
    pub open_nodes: bool,
}

/// Where NVML's answers come from.
#[derive(Debug, Clone, Default)]
pub enum NvmlSource {
    /// It is left alone, as for a recorded machine.
    #[default]
    No,
    /// This process loads it.
    Here(NvmlLibrary),
    /// A child process loads it, within a time limit.
    Child(driver_query::QueryProcess),
}

/// Reads the machine below `roots`. Nothing fails: what cannot be read is absent.
#[must_use]
pub fn read(roots: &Roots, ask: &FactsOptions) -> HostFacts {
    let machine = HostProfile::read(roots);
    let status = small_files::read_text(&roots.proc.join("self/status")).unwrap_or_default();
    let meminfo = small_files::read_text(&roots.proc.join("meminfo")).unwrap_or_default();
    let mounts = mounts::Mounts::read(roots);
    let loader = LibrarySearch::new(
        roots,
        ask.variables.get("LD_LIBRARY_PATH").map(String::as_str),
    );
    let libraries = loader.driver_libraries();
    let has = |name: &str| libraries.iter().any(|library| library.name == name);
    let (has_nvml, has_cuda) = (has("libnvidia-ml.so.1"), has("libcuda.so.1"));
    let pci_cards = pci::list_gpus(roots);
    let (driver, unloaded_libraries) = driver::read(
        roots,
        machine.nvidia.as_ref(),
        pci_cards.as_deref(),
        libraries,
    );
    let nodes = nodes::read(roots, ask.open_nodes);
    let mut facts = HostFacts {
        version: sconce_schema::facts::FORMAT,
        name: machine.hostname.clone(),
        system: containers::read_system_name(roots),
        architecture: containers::detect_architecture(roots),
        glibc: loader.glibc_version(),
        glibcxx: loader.glibcxx_version(),
        container: containers::detect_container(roots, machine.kernel.as_deref(), &ask.variables),
        root: limits::is_root(&status),
        cpus: machine.cpus,
        processor: processor::read(roots),
        system_cudnn: loader.cudnn_files(),
        other_drivers: other_drivers::read(roots),
        memory: machine.memory,
        memory_available: machine.memory_available,
        cards: gpus::of_kernel(machine.nvidia.as_ref()),
        nodes,
        cgroup: machine.cgroups.as_ref().map(cgroup::read_facts),
        user_namespaces_barrier: Some(match machine.user_namespaces {
            Ok(()) => String::new(),
            Err(barrier) => barrier.to_string(),
        }),
        seccomp: limits::parse_seccomp(&status),
        shm: mounts.read_shm(roots),
        limits: small_files::read_text(&roots.proc.join("self/limits"))
            .map(|text| limits::parse(&text)),
        hugepages: limits::read_hugepages(roots, &meminfo),
        store: ask
            .store
            .as_deref()
            .map(|path| mounts.read_disk(roots, path)),
        toolkit: toolkit::read(roots, machine.nvidia.as_ref()),
        mps: fabric::detect_mps(roots, ask.variables.get("CUDA_MPS_PIPE_DIRECTORY")),
        iommu: pci::read_iommu(roots, pci_cards.as_deref()),
        infiniband: network::list_infiniband_devices(roots),
        interfaces: network::list_active_interfaces(roots),
        xids: kernel_log::read_xids(roots),
        services: fabric::read_service_states(roots),
        variables: variables::select_variables(&ask.variables),
        kernel: machine.kernel,
        cpu_model: machine.cpu_model,
        driver,
        unloaded_libraries,
        pci_cards,
        ..HostFacts::default()
    };
    debug!(driver = ?facts.driver, has_nvml, has_cuda, "the driver's files");
    ask_driver(&mut facts, ask, has_nvml, has_cuda);
    facts
}

/// Returns what of the facts a profile has already: the driver's version and its cards. `None` where no driver is
/// loaded.
#[must_use]
pub fn without_nvml(machine: &HostProfile) -> Option<HostFacts> {
    let nvidia = machine.nvidia.as_ref()?;
    Some(HostFacts {
        driver: Some(Driver {
            version: nvidia.driver_version(),
            ..Driver::default()
        }),
        cards: gpus::of_kernel(Some(nvidia)),
        ..HostFacts::default()
    })
}

/// What only the driver's libraries tell. Both are asked at the same time.
fn ask_driver(facts: &mut HostFacts, ask: &FactsOptions, has_nvml: bool, has_cuda: bool) {
    let cuda_child = ask.cuda_init.as_ref().filter(|_| has_cuda);
    let (told, cuda_init) = std::thread::scope(|scope| {
        let cuda = cuda_child.map(|child| scope.spawn(|| driver_query::cuda_init(child)));
        let told = match &ask.nvml {
            NvmlSource::No => None,
            // A given file is tried although the loader does not know it.
            NvmlSource::Here(from @ NvmlLibrary::File(_)) => Some(nvml::read(from)),
            _ if !has_nvml => Some(nvml::NvmlReply::from_error(nvml::NOT_FOUND)),
            NvmlSource::Here(from) => Some(nvml::read(from)),
            NvmlSource::Child(child) => Some(driver_query::query_nvml(child)),
        };
        // A thread that panicked has found nothing.
        (told, cuda.and_then(|thread| thread.join().ok()))
    });
    if let Some(told) = told {
        gpus::merge_nvml_reply(facts, told);
    }
    debug!(
        ?cuda_init,
        cards = facts.cards.len(),
        "NVIDIA's libraries answered"
    );
    facts.cuda_init = cuda_init;
}
