//! The same edits as a CDI file, for engines that read those.

use std::collections::BTreeMap;
use std::path::Path;

use sconce_schema::request::{ContainerEdits, DeviceNode, EditMount};
use serde_json::{Value, json};

use super::driver_files::container_folder;
use super::spec::CdiSpec;
use super::{CdiError, base, device_node};
use crate::host_profile::HostProfile;
use crate::nvidia::{CharacterDevice, GpuDevice};
use crate::nvml::MigInstance;
use crate::roots::Roots;
use crate::small_files;

/// What NVIDIA's own tools call the cards, and what engines' manuals show.
pub const NVIDIA: &str = "nvidia.com/gpu";

/// Where the loader of Red Hat's and SUSE's images looks by itself, beside [`container_folder`],
/// which is Debian's and Ubuntu's.
const OTHER_FOLDER: &str = "/usr/lib64";

/// The CDI specification of every card of `machine`, as devices of `kind`: by index, by UUID and as
/// `all`. A divided card is given with all of its `instances`, and each of them is a device too, by
/// `CARD:INSTANCE` and by UUID.
///
/// It is meant to last: nodes have no numbers, which engines look up when a container starts;
/// sockets of daemons, which may not run then, are left out. It needs no hook: CDI has no edit for a
/// link, so that a link is told as one more mount of the file it leads to, and libraries are mounted
/// where the loaders of the known systems look without an index. Engines refuse mounts below /proc,
/// so that the driver's parameters are not masked.
///
/// # Errors
/// As [`super::edits_for`]; [`CdiError::NoCard`] where there is none.
pub fn build_spec(
    machine: &HostProfile,
    instances: &[MigInstance],
    kind: &str,
    roots: &Roots,
) -> Result<Value, CdiError> {
    let nvidia = machine.nvidia.as_ref().ok_or(CdiError::NoDriver)?;
    let cards: Vec<&GpuDevice> = nvidia.cards.iter().collect();
    let (edits, files) = base(machine, &cards, roots)?;
    let Some((common, each)) = edits.split_first() else {
        return Err(CdiError::NoCard);
    };
    let mut common = common.clone();
    files.without_sockets().into_edits(&mut common);

    let mut devices = Vec::new();
    let mut all: Vec<DeviceNode> = Vec::new();
    for (card, edits) in cards.iter().zip(each) {
        let mut whole = edits.device_nodes.clone();
        for instance in instances.iter().filter(|one| one.card == card.index) {
            let parts = capabilities(card, instance, roots)?;
            let nodes: Vec<_> = edits.device_nodes.iter().chain(&parts).cloned().collect();
            let number = format!("{}:{}", card.index, instance.index);
            for name in [number, instance.uuid.clone()] {
                devices.push(device(&name, &nodes));
            }
            for node in parts {
                if !whole.contains(&node) {
                    whole.push(node);
                }
            }
        }
        let names = [Some(card.index.to_string()), card.uuid.clone()];
        for name in names.into_iter().flatten() {
            devices.push(device(&name, &whole));
        }
        all.extend(whole);
    }
    devices.push(device("all", &all));
    let mut file = json!({
        "cdiVersion": "",
        "kind": kind,
        "devices": devices,
        "containerEdits": {
            "env": common.env,
            "deviceNodes": nodes(&common.device_nodes),
            "mounts": mounts(common),
        },
    });
    file["cdiVersion"] = CdiSpec::from_value(&file).needs.into();
    Ok(file)
}

fn device(name: &str, given: &[DeviceNode]) -> Value {
    json!({ "name": name, "containerEdits": { "deviceNodes": nodes(given) } })
}

fn nodes(given: &[DeviceNode]) -> Vec<Value> {
    let node = |node: &DeviceNode| match node.path == node.host_path {
        true => json!({ "path": node.path }),
        false => json!({ "path": node.path, "hostPath": node.host_path }),
    };
    given.iter().map(node).collect()
}

/// The nodes that let a container use one instance of a divided card, and no other: those of its
/// part of the card and of its part of that ("Device Nodes" in NVIDIA's MIG user guide).
fn capabilities(
    card: &GpuDevice,
    instance: &MigInstance,
    roots: &Roots,
) -> Result<Vec<DeviceNode>, CdiError> {
    let minor = card.minor.unwrap_or(card.index);
    let gpu = format!(
        "/proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{}",
        instance.gpu_instance
    );
    let compute = format!("{gpu}/ci{}", instance.compute_instance);
    [gpu, compute]
        .iter()
        .map(|folder| {
            let access = Path::new(folder).join("access");
            let text = small_files::read_text(&roots.locate(&access)).unwrap_or_default();
            let minor: Option<u32> =
                small_files::find_field(&text, "DeviceFileMinor").and_then(|n| n.parse().ok());
            let minor = minor.ok_or(CdiError::NoCapability {
                uuid: instance.uuid.clone(),
                path: access,
            })?;
            let name = format!("nvidia-caps/nvidia-cap{minor}");
            let node =
                CharacterDevice::read(roots, &name).ok_or_else(|| CdiError::NodeMissing {
                    path: format!("/dev/{name}").into(),
                })?;
            // Root alone may open some of them; engines that run as root do.
            Ok(device_node(&node))
        })
        .collect()
}

/// The mounts with links told as mounts, libraries in both folders.
fn mounts(mut edits: ContainerEdits) -> Vec<EditMount> {
    let mut files: BTreeMap<String, EditMount> = edits
        .mounts
        .iter()
        .map(|mount| (mount.container_path.clone(), mount.clone()))
        .collect();
    // A link to a link comes after the link it leads to.
    for (target, link) in std::mem::take(&mut edits.links) {
        let Some((folder, _)) = link.rsplit_once('/') else {
            continue;
        };
        if let Some(file) = files.get(&format!("{folder}/{target}")) {
            let mount = EditMount {
                container_path: link.clone(),
                ..file.clone()
            };
            edits.mounts.push(mount.clone());
            files.insert(link, mount);
        }
    }
    let folder = format!("{}/", container_folder());
    let again = |mount: &EditMount| {
        let name = mount.container_path.strip_prefix(&folder)?;
        Some(EditMount {
            container_path: format!("{OTHER_FOLDER}/{name}"),
            ..mount.clone()
        })
    };
    let more: Vec<_> = edits.mounts.iter().filter_map(again).collect();
    edits.mounts.extend(more);
    edits.mounts
}
