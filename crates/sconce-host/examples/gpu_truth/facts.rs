//! Facts and edits.

use std::error::Error;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sconce_host::{
    GpuDevice, GpuMonitor, HostProfile, NvmlMonitor, Roots, cdi, edits_for, select_gpus,
    visible_devices,
};
use sconce_schema::request::{ContainerEdits, DeviceNode};
use sconce_schema::spec;
use serde_json::{Value, json};

use crate::{leave_out, tell};

/// This machine, as far as the kernel module's files tell.
fn host() -> HostProfile {
    HostProfile::read(&Roots::default())
}

fn cards(host: &HostProfile) -> Vec<&GpuDevice> {
    host.nvidia
        .iter()
        .flat_map(|nvidia| &nvidia.cards)
        .collect()
}

/// The machine, its cards with and without NVML, and the edits that give a run all of them.
pub(crate) fn as_json() -> Value {
    let plain = host();
    let mut whole = plain.clone();
    let nvml = NvmlMonitor::load();
    if let (Some(nvidia), Some(nvml)) = (&mut whole.nvidia, &nvml) {
        nvidia.fill_from_nvml(nvml);
    }
    let describe = |card: &&GpuDevice| {
        json!({
            "index": card.index,
            "uuid": card.uuid,
            "name": card.name,
            "bus_id": card.bus_id,
            "minor": card.minor,
            "memory_bytes": card.memory.map(|bytes| bytes.0),
            "node": card.node.as_ref().map(|node| node.path.clone()),
        })
    };
    let each = |host: &HostProfile| cards(host).iter().map(describe).collect::<Vec<_>>();
    let instances = nvml
        .as_ref()
        .map(NvmlMonitor::mig_instances)
        .unwrap_or_default();
    json!({
        "kernel": plain.kernel,
        "cpus": plain.cpus,
        "cpu_model": plain.cpu_model,
        "memory_bytes": plain.memory.map(|bytes| bytes.0),
        "user_namespaces": plain.user_namespaces.err().map(|barrier| barrier.to_string()),
        "cgroups": plain.cgroups.as_ref().map(|cgroups| format!("{:?}", cgroups.mode)),
        "driver": plain.nvidia.as_ref().and_then(|nvidia| nvidia.driver.clone()),
        "open_module": plain.nvidia.as_ref().and_then(|nvidia| nvidia.open_module),
        "nvml": nvml.is_some(),
        "nvml_driver": nvml.as_ref().and_then(GpuMonitor::driver),
        "cards_of_the_kernel_module": each(&plain),
        "cards": each(&whole),
        "visible_devices": visible_devices(&cards(&whole)),
        "cdi": match cdi::build_spec(&whole, &instances, cdi::NVIDIA, &Roots::default()) {
            Ok(file) => file,
            Err(error) => json!(error.to_string()),
        },
    })
}

/// One line of `nvidia-smi
/// --query-gpu=index,uuid,name,memory.total,driver_version,pci.bus_id --format=csv,noheader,nounits`.
struct Theirs<'a> {
    index: &'a str,
    uuid: &'a str,
    name: &'a str,
    memory_mib: &'a str,
    driver: &'a str,
    bus_id: &'a str,
}

impl<'a> Theirs<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let [index, uuid, name, memory_mib, driver, bus_id] = fields[..] else {
            return None;
        };
        Some(Self {
            index,
            uuid,
            name,
            memory_mib,
            driver,
            bus_id,
        })
    }
}

/// Compares the facts, completed by NVML, with nvidia-smi's list.
pub(crate) fn compare(listed: &str) {
    let mut host = host();
    let plain = host.clone();
    let nvml = NvmlMonitor::load();
    tell(
        nvml.is_some(),
        "NVML loads by its name",
        "libnvidia-ml.so.1 through the loader's own paths",
    );
    if let (Some(nvidia), Some(nvml)) = (&mut host.nvidia, &nvml) {
        nvidia.fill_from_nvml(nvml);
    }
    let theirs: Vec<Theirs<'_>> = listed.lines().filter_map(Theirs::parse).collect();
    let ours = cards(&host);
    let counts = format!("{} here, {} in nvidia-smi", ours.len(), theirs.len());
    let same = ours.len() == theirs.len() && !ours.is_empty();
    tell(same, "number of cards", &counts);
    let driver = host.nvidia.as_ref().and_then(|n| n.driver.as_deref());
    for other in &theirs {
        let named = |what: &str| format!("card {}: {what}", other.index);
        let equal = |what: &str, ours: Option<String>, theirs: &str| {
            let ours = ours.unwrap_or_else(|| "unknown".to_owned());
            let seen = format!("{ours}; nvidia-smi says {theirs}");
            tell(ours == theirs, &named(what), &seen);
        };
        equal("driver", driver.map(str::to_owned), other.driver);
        let found = ours
            .iter()
            .find(|card| card.index.to_string() == other.index);
        let Some(card) = found else {
            tell(false, &named("is known"), "there is no card of that index");
            continue;
        };
        equal("UUID", card.uuid.clone(), other.uuid);
        equal("name", card.name.clone(), other.name);
        let mib = card.memory.map(|bytes| (bytes.0 >> 20).to_string());
        equal("memory, MiB", mib, other.memory_mib);
        equal(
            "PCI address",
            card.bus_id.as_deref().map(short_address),
            &short_address(other.bus_id),
        );
        let node = card.node.as_ref();
        let seen = node.map(|node| node.path.display().to_string());
        tell(
            node.is_some_and(|node| node.usable),
            &named("its device node can be opened"),
            &seen.unwrap_or_else(|| "no node".to_owned()),
        );
        let before = cards(&plain);
        let known = before.iter().any(|card| {
            card.uuid.as_deref() == Some(other.uuid) && card.name.as_deref() == Some(other.name)
        });
        if known {
            tell(true, &named("is known without NVML"), "its UUID and name");
        } else {
            leave_out(
                &named("is known without NVML"),
                "the kernel module's files do not tell its UUID and name here",
            );
        }
    }
}

/// NVML writes eight digits of domain in capitals, the kernel module four in small letters.
fn short_address(id: &str) -> String {
    let id = id.to_ascii_lowercase();
    match id.split_once(':') {
        Some((domain, rest)) => format!(
            "{}:{rest}",
            domain
                .strip_prefix("0000")
                .filter(|rest| rest.len() == 4)
                .unwrap_or(domain)
        ),
        None => id,
    }
}

fn edits_of(gpus: &str, scratch: &Path) -> Result<Vec<ContainerEdits>, Box<dyn Error>> {
    let host = host();
    let wanted: spec::GpuRequest = gpus.parse()?;
    let all = host.nvidia.as_ref().map_or(&[][..], |nvidia| &nvidia.cards);
    let chosen = select_gpus(all, &wanted)?;
    Ok(edits_for(&host, &chosen, &Roots::default(), scratch)?)
}

/// Whether everything that the edits for all cards name is there.
pub(crate) fn edits_exist(scratch: &Path) -> Result<(), Box<dyn Error>> {
    let edits = edits_of("all", scratch)?;
    let nodes: Vec<&DeviceNode> = edits.iter().flat_map(|e| &e.device_nodes).collect();
    let wrong: Vec<&str> = nodes
        .iter()
        .filter(|node| !is_that_node(node))
        .map(|node| node.path.as_str())
        .collect();
    verdict("device nodes of the edits", nodes.len(), &wrong);
    let mounts: Vec<_> = edits.iter().flat_map(|e| &e.mounts).collect();
    let absent: Vec<&str> = mounts
        .iter()
        .filter(|mount| !Path::new(&mount.host_path).exists())
        .map(|mount| mount.host_path.as_str())
        .collect();
    verdict("files of the edits", mounts.len(), &absent);
    let links: Vec<_> = edits.iter().flat_map(|e| &e.links).collect();
    // A link leads to a mounted file of the same folder, or to another link there.
    let leads = |target: &str, link: &str| {
        let end = Path::new(link).with_file_name(target);
        mounts.iter().any(|m| Path::new(&m.container_path) == end)
            || links.iter().any(|(_, other)| Path::new(other) == end)
    };
    let nowhere: Vec<&str> = links
        .iter()
        .filter(|(target, link)| !leads(target, link))
        .map(|(_, link)| link.as_str())
        .collect();
    verdict("links of the edits", links.len(), &nowhere);
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        let found = links.iter().find(|(_, link)| link.ends_with(library));
        let seen = found.map_or("no such link".to_owned(), |(to, _)| format!("-> {to}"));
        tell(
            found.is_some(),
            &format!("the edits bring {library}"),
            &seen,
        );
    }
    Ok(())
}

fn verdict(what: &str, count: usize, wrong: &[&str]) {
    let seen = match wrong.is_empty() {
        true => format!("{count}, each there"),
        false => format!("not there: {}", wrong.join(", ")),
    };
    tell(wrong.is_empty() && count > 0, what, &seen);
}

fn is_that_node(node: &DeviceNode) -> bool {
    std::fs::metadata(&node.host_path).is_ok_and(|metadata| {
        metadata.file_type().is_char_device()
            && rustix::fs::major(metadata.rdev()) == node.major
            && rustix::fs::minor(metadata.rdev()) == node.minor
    })
}

/// Prints the nodes that a run with these cards is to see, one a line, sorted.
#[expect(clippy::print_stdout, reason = "its output is its purpose")]
pub(crate) fn nodes(gpus: &str, scratch: &Path) -> Result<(), Box<dyn Error>> {
    let edits = edits_of(gpus, scratch)?;
    let mut paths: Vec<PathBuf> = edits
        .iter()
        .flat_map(|edits| &edits.device_nodes)
        .map(|node| PathBuf::from(&node.path))
        .collect();
    paths.sort();
    for path in paths {
        println!("{}", path.display());
    }
    Ok(())
}
