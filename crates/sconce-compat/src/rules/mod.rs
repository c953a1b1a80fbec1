//! What is wrong with an environment on a machine, by rules.
//!
//! Each rule is a small pure function of a [`CheckInput`] and lies in the file of its theme. A fact that is
//! absent is not judged: no rule takes "unknown" for "no".

mod code_reach;
mod containers;
mod device_code;
mod device_nodes;
mod driver;
mod environment;
mod features;
mod gpu_modes;
mod gpus;
mod health;
mod libraries;
mod limits;
mod topology;
mod versions;
mod wheels;

use sconce_schema::facts::{DriverFlavour, GpuFacts};
use sconce_schema::finding::{self, Finding, FixAction, Severity};
use sconce_schema::{ComputeCapability, DriverVersion, HostFacts};

use crate::library::GpuCode;
use crate::tables;

pub(crate) use code_reach::driver_cuda;
pub use code_reach::{RunnableCode, runnable_code};
pub use device_code::NOT_JUDGED;
pub(crate) use device_code::is_unknown;
pub use device_nodes::char_links;
pub use environment::{EnvironmentVersions, InstalledPackage, TorchBackend};
pub(crate) use environment::{format_capabilities, local_cuda, parse_release};

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct CheckInput<'a> {
    /// The machine.
    pub host: &'a HostFacts,
    /// The environment; absent where the machine alone is judged.
    pub environment: Option<&'a EnvironmentVersions>,
    /// Device code of the environment's libraries by their path, as far as it was read. Without
    /// torch's own library the tables tell what torch has code for.
    pub files: &'a [(&'a str, &'a GpuCode)],
}

type Rule = fn(&CheckInput<'_>) -> Vec<Finding>;

/// Rules about a machine.
const MACHINE: &[Rule] = &[
    driver::check_driver_missing,
    driver::check_nouveau,
    driver::check_driver_mismatch,
    driver::forward_compatible,
    driver::check_wsl,
    gpus::unknown_to_driver,
    health::check_lost_gpus,
    device_nodes::check_missing_nodes,
    device_nodes::check_uvm_node,
    device_nodes::check_node_access,
    device_nodes::check_char_links,
    gpu_modes::check_fabric_state,
    gpu_modes::check_mig_instances,
    gpu_modes::check_compute_mode,
    gpu_modes::check_visible_devices,
    gpu_modes::check_persistence_mode,
    health::memory_errors,
    health::check_xids,
    health::check_throttling,
    health::check_memory_in_use,
    limits::check_shared_memory,
    limits::open_files,
    limits::locked_memory,
    limits::check_cgroup,
    limits::check_user_namespaces,
    limits::check_disk_space,
    containers::check_docker_runtime,
    containers::stale_cdi,
    topology::check_peer_access,
    // Last: it says what CUDA itself said, where no rule before it found out why.
    driver::check_cuda_init,
];

/// Rules about an environment, and about both together.
const ENVIRONMENT: &[Rule] = &[
    versions::cpu_build,
    driver::too_old,
    device_code::check_torch_code,
    libraries::check_nvidia_libraries,
    libraries::check_extensions,
    versions::check_torchvision,
    versions::check_torchaudio,
    versions::check_cudnn,
    versions::check_nccl,
    versions::check_triton,
    versions::jit_link,
    wheels::check_python_tags,
    wheels::check_architecture,
    wheels::check_glibc,
    features::check_torch_compile,
    features::check_ptxas,
    features::check_flash_attention,
    features::check_reduced_precision,
    features::check_gpu_memory,
];

/// Everything that is found, the heaviest first.
#[must_use]
pub fn check_all(case: &CheckInput<'_>) -> Vec<Finding> {
    let mut findings = check_host(case.host);
    findings.extend(check_environment(case));
    // An environment that asks for no card is not the worse for having none.
    let without_cards = case.environment.is_some_and(|environment| {
        environment.version("torch").is_none()
            || environment.torch_backend() == Some(TorchBackend::Cpu)
    });
    if without_cards {
        for found in &mut findings {
            if found.code == "no-driver" {
                found.weight = Severity::Notes;
            }
        }
    }
    finding::sort_by_severity(&mut findings);
    findings
}

/// What is wrong with a machine by itself, the heaviest first.
#[must_use]
pub fn check_host(host: &HostFacts) -> Vec<Finding> {
    let case = CheckInput {
        host,
        environment: None,
        files: &[],
    };
    let mut findings = run(MACHINE, &case);
    merge(&mut findings);
    finding::sort_by_severity(&mut findings);
    findings
}

/// What is wrong with an environment on a machine, without what is wrong with the machine itself.
#[must_use]
pub fn check_environment(case: &CheckInput<'_>) -> Vec<Finding> {
    let mut findings = match case.environment {
        Some(_) => run(ENVIRONMENT, case),
        None => Vec::new(),
    };
    finding::sort_by_severity(&mut findings);
    findings
}

fn run(rules: &[Rule], case: &CheckInput<'_>) -> Vec<Finding> {
    let mut findings: Vec<Finding> = rules.iter().flat_map(|rule| rule(case)).collect();
    if is_described(case.host) {
        findings.iter_mut().for_each(of_description);
    }
    findings
}

/// Whether a machine was only described, by its cards and perhaps its driver: nothing was read there.
fn is_described(host: &HostFacts) -> bool {
    host.driver.is_some()
        && host.kernel.is_none()
        && host.nvml.is_none()
        && host.nodes.is_none()
        && host.limits.is_none()
}

/// Says where evidence of a machine that was only described comes from.
fn of_description(finding: &mut Finding) {
    for evidence in &mut finding.evidence {
        match evidence.source.as_str() {
            "NVML" => evidence.source = "the card that was named".to_owned(),
            "/proc/driver/nvidia/version" => {
                evidence.source = "the driver that was named".to_owned()
            }
            _ => {}
        }
    }
}

/// What CUDA itself said is evidence of a cause that another rule named already, not one more
/// finding.
fn merge(findings: &mut Vec<Finding>) {
    let Some(at) = findings.iter().position(driver::from_init) else {
        return;
    };
    let said = findings.remove(at);
    match findings.iter_mut().find(|other| other.code == said.code) {
        Some(cause) => cause.evidence.extend(said.evidence),
        None => findings.insert(at, said),
    }
}

/// Cards of the same name and capability.
pub(crate) struct SameGpus<'a> {
    pub(crate) capability: ComputeCapability,
    pub(crate) cards: Vec<&'a GpuFacts>,
}

impl SameGpus<'_> {
    /// `GeForce RTX 3070`.
    pub(crate) fn name(&self) -> String {
        let name = self.cards.first().map(|card| card_name(card));
        name.unwrap_or_default()
    }

    /// `GeForce RTX 3070`, `8 × NVIDIA H100`.
    pub(crate) fn name_with_count(&self) -> String {
        match self.cards.len() {
            1 => self.name(),
            count => format!("{count} × {}", self.name()),
        }
    }
}

/// The machine's cards whose capability is known, by name and capability, in the machine's order.
pub(crate) fn group_gpus(host: &HostFacts) -> Vec<SameGpus<'_>> {
    let mut kinds: Vec<SameGpus<'_>> = Vec::new();
    for card in &host.cards {
        let Some(capability) = gpu_capability(card) else {
            continue;
        };
        let same = |kind: &&mut SameGpus<'_>| {
            kind.capability == capability && kind.cards[0].name == card.name
        };
        match kinds.iter_mut().find(same) {
            Some(kind) => kind.cards.push(card),
            None => kinds.push(SameGpus {
                capability,
                cards: vec![card],
            }),
        }
    }
    kinds
}

/// A card's capability, as it says itself or by its name.
pub(crate) fn gpu_capability(card: &GpuFacts) -> Option<ComputeCapability> {
    let by_name = || {
        let found = tables::known_card(card.name.as_deref()?)?;
        Some(found.card.capability)
    };
    card.capability.or_else(by_name)
}

/// Whether forward-compatibility libraries work on a card, as it says itself or by its name.
pub(crate) fn forward_compatible(card: &GpuFacts) -> Option<bool> {
    let by_name = || {
        let found = tables::known_card(card.name.as_deref()?)?;
        found.card.forward_compatible()
    };
    card.data_centre.or_else(by_name)
}

/// A card, for people.
pub(crate) fn card_name(card: &GpuFacts) -> String {
    let name = card.name.as_deref();
    name.map_or_else(|| format!("card {}", card.index), str::to_owned)
}

/// A card among several, for people.
pub(crate) fn card_number(host: &HostFacts, card: &GpuFacts) -> String {
    match host.cards.len() {
        0 | 1 => card_name(card),
        _ if card.name.is_none() => card_name(card),
        _ => format!("card {} ({})", card.index, card_name(card)),
    }
}

/// The version of the kernel module.
pub(crate) fn kernel_driver(host: &HostFacts) -> Option<DriverVersion> {
    host.driver.as_ref()?.version
}

/// The version of the driver's library that programs get.
pub(crate) fn user_driver(host: &HostFacts) -> Option<DriverVersion> {
    let driver = host.driver.as_ref()?;
    // Under Windows' Linux the library has a number of its own.
    if is_wsl(host) {
        return driver.version;
    }
    let wins = |library: &&sconce_schema::facts::DriverLibrary| {
        library.wins && library.name.starts_with("libcuda.so")
    };
    let library = driver.libraries.iter().find(wins);
    library
        .and_then(|library| library.version)
        .or(driver.version)
}

/// Whether the machine is Windows' Linux.
pub(crate) fn is_wsl(host: &HostFacts) -> bool {
    let flavour = host.driver.as_ref().and_then(|driver| driver.flavour);
    flavour == Some(DriverFlavour::Wsl) || host.container.as_deref() == Some("wsl")
}

/// Type this on the machine, as root.
pub(crate) fn as_root(line: &str) -> Option<FixAction> {
    Some(FixAction::Command {
        line: line.to_owned(),
        root: true,
        safe: false,
    })
}

/// Type this on the machine, as root; it can be undone and stops nothing that is at work.
pub(crate) fn as_root_safely(line: &str) -> Option<FixAction> {
    Some(FixAction::Command {
        line: line.to_owned(),
        root: true,
        safe: true,
    })
}

/// Type this on the machine.
pub(crate) fn as_user(line: &str) -> Option<FixAction> {
    Some(FixAction::Command {
        line: line.to_owned(),
        root: false,
        safe: false,
    })
}

/// Change the spec.
pub(crate) fn in_spec(key: &str, value: &str) -> Option<FixAction> {
    Some(FixAction::Spec {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

/// Set a variable of the run, or unset it.
pub(crate) fn variable_action(name: &str, value: Option<&str>) -> Option<FixAction> {
    Some(FixAction::Variable {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    })
}

/// `1 card`, `3 cards`.
pub(crate) fn format_count(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        count => format!("{count} {thing}s"),
    }
}
