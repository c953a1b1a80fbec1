//! Devices by which processes of several machines reach each other's memory: InfiniBand, RoCE and EFA (all of them
//! libibverbs' `/dev/infiniband`), GDRCopy, and NVIDIA's channels of an NVLink domain (IMEX).

use std::path::{Path, PathBuf};

use sconce_schema::request::{ContainerEdits, DeviceNode};

use crate::nvidia::CharacterDevice;
use crate::roots::Roots;

/// Directories of which every device counts.
const DIRECTORIES: [&str; 2] = ["infiniband", "nvidia-caps-imex-channels"];
/// Devices beside them.
const DEVICES: [&str; 1] = ["gdrdrv"];

/// The devices of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FabricDevices {
    /// What brings those that the caller may use into a container.
    pub edits: ContainerEdits,
    /// Those that the caller may not use.
    pub closed: Vec<PathBuf>,
    /// Ports by which other machines are reached now: `mlx5_0/1`.
    pub active_ports: Vec<String>,
    /// Devices of EFA, which NCCL cannot use without a plugin: `rdmap0s6`.
    pub efa_devices: Vec<String>,
}

impl FabricDevices {
    /// Reads which there are.
    #[must_use]
    pub fn read(roots: &Roots) -> Self {
        let in_directories = DIRECTORIES.into_iter().flat_map(|directory| {
            let entries = std::fs::read_dir(roots.dev.join(directory)).into_iter();
            let names = entries.flatten().flatten().map(|entry| entry.file_name());
            let mut names: Vec<String> = names
                .filter_map(|name| Some(format!("{directory}/{}", name.to_str()?)))
                .collect();
            names.sort();
            names
        });
        let names = in_directories.chain(DEVICES.into_iter().map(str::to_owned));
        let mut devices = Self::default();
        for device in names.filter_map(|name| CharacterDevice::read(roots, &name)) {
            match device.usable {
                true => devices.edits.device_nodes.push(device_node(&device)),
                false => devices.closed.push(device.path),
            }
        }
        devices.active_ports = read_active_ports(roots);
        devices.efa_devices = list_efa_devices(roots);
        devices
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.edits.device_nodes.is_empty() && self.closed.is_empty()
    }
}

/// The ports that are up (`/sys/class/infiniband/DEVICE/ports/N/state`, of the kernel's
/// Documentation/ABI/stable/sysfs-class-infiniband: `4: ACTIVE`).
fn read_active_ports(roots: &Roots) -> Vec<String> {
    let class = roots.sys.join("class/infiniband");
    let mut active = Vec::new();
    for device in list_names(&class) {
        let ports = class.join(&device).join("ports");
        for port in list_names(&ports) {
            let state =
                std::fs::read_to_string(ports.join(&port).join("state")).unwrap_or_default();
            if state.trim().ends_with(": ACTIVE") {
                active.push(format!("{device}/{port}"));
            }
        }
    }
    active
}

/// The devices whose driver is `efa` (the link `device/driver` of the kernel's driver model).
fn list_efa_devices(roots: &Roots) -> Vec<String> {
    let class = roots.sys.join("class/infiniband");
    let is_efa = |name: &String| {
        let driver = std::fs::read_link(class.join(name).join("device/driver"));
        driver.is_ok_and(|driver| driver.ends_with("efa"))
    };
    list_names(&class).into_iter().filter(is_efa).collect()
}

fn list_names(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn device_node(device: &CharacterDevice) -> DeviceNode {
    DeviceNode {
        path: device.path.to_string_lossy().into_owned(),
        host_path: device.host_path.to_string_lossy().into_owned(),
        r#type: "c".to_owned(),
        major: device.major,
        minor: device.minor,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn devices_of_several_machines_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let dev = dir.path().join("dev");
        for folder in ["infiniband/by-path", "nvidia-caps-imex-channels"] {
            std::fs::create_dir_all(dev.join(folder)).unwrap();
        }
        std::fs::write(dev.join("infiniband/README"), "").unwrap();
        for name in [
            "infiniband/uverbs1",
            "infiniband/rdma_cm",
            "nvidia-caps-imex-channels/channel0",
            "gdrdrv",
        ] {
            symlink("/dev/null", dev.join(name)).unwrap();
        }
        for (port, state) in [("1", "4: ACTIVE\n"), ("2", "1: DOWN\n")] {
            let port = dir
                .path()
                .join("sys/class/infiniband/mlx5_0/ports")
                .join(port);
            std::fs::create_dir_all(&port).unwrap();
            std::fs::write(port.join("state"), state).unwrap();
        }
        for (device, driver) in [("mlx5_0", "mlx5_core"), ("rdmap0s6", "efa")] {
            let device = dir.path().join("sys/class/infiniband").join(device);
            std::fs::create_dir_all(device.join("device")).unwrap();
            let driver = format!("../../../bus/pci/drivers/{driver}");
            symlink(driver, device.join("device/driver")).unwrap();
        }
        let devices = FabricDevices::read(&Roots::from_dir(dir.path()));
        assert_eq!(devices.efa_devices, ["rdmap0s6"]);
        assert_eq!(devices.active_ports, ["mlx5_0/1"]);
        let paths: Vec<&str> = devices
            .edits
            .device_nodes
            .iter()
            .map(|node| &*node.path)
            .collect();
        assert_eq!(
            paths,
            [
                "/dev/infiniband/rdma_cm",
                "/dev/infiniband/uverbs1",
                "/dev/nvidia-caps-imex-channels/channel0",
                "/dev/gdrdrv"
            ]
        );
        assert!(devices.closed.is_empty() && !devices.is_empty());
        assert!(FabricDevices::read(&Roots::from_dir("/nowhere")).is_empty());
    }
}
