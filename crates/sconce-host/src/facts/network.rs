//! What cards on several machines talk over.

use std::path::Path;

use sconce_schema::facts::InfiniBand;

use crate::roots::Roots;
use crate::small_files;

/// Devices below /sys/class/infiniband; `None` where the kernel has no such folder, which is also
/// where no driver of such a device is loaded.
pub(super) fn list_infiniband_devices(roots: &Roots) -> Option<Vec<InfiniBand>> {
    let folder = roots.sys.join("class/infiniband");
    let mut devices: Vec<InfiniBand> = names(&folder)?
        .into_iter()
        .map(|name| {
            let ports = folder.join(&name).join("ports");
            let mut numbers = names(&ports).unwrap_or_default();
            numbers.sort_by_key(|number| number.parse::<u32>().unwrap_or(u32::MAX));
            let port =
                |file: &str| small_files::read_line(&ports.join(numbers.first()?).join(file));
            InfiniBand {
                state: port("state").map(|state| word(&state)),
                layer: port("link_layer"),
                name,
            }
        })
        .collect();
    devices.sort_by(|a, b| a.name.cmp(&b.name));
    Some(devices)
}

/// `ACTIVE` of `4: ACTIVE`.
fn word(state: &str) -> String {
    let (_, word) = state.split_once(": ").unwrap_or(("", state));
    word.to_owned()
}

/// Interfaces that are up, without loopback (`operstate` and `flags` below /sys/class/net; the
/// kernel's `Documentation/networking/operstates.rst`).
pub(super) fn list_active_interfaces(roots: &Roots) -> Option<Vec<String>> {
    let folder = roots.sys.join("class/net");
    let is_up = |name: &String| {
        let line =
            |file: &str| small_files::read_line(&folder.join(name).join(file)).unwrap_or_default();
        up(&line("operstate"), &line("flags"))
    };
    let mut interfaces = names(&folder)?;
    interfaces.retain(is_up);
    interfaces.sort();
    Some(interfaces)
}

/// A driver that does not tell the state (a tunnel, InfiniBand over IP on old kernels) says
/// `unknown`; then the administrator's wish counts.
fn up(operstate: &str, flags: &str) -> bool {
    /// `IFF_UP` and `IFF_LOOPBACK` of netdevice(7).
    const UP: u32 = 1;
    const LOOPBACK: u32 = 1 << 3;
    let digits = flags.strip_prefix("0x").unwrap_or(flags);
    let flags = u32::from_str_radix(digits, 16).unwrap_or(0);
    let up = match operstate {
        "up" => true,
        "unknown" => flags & UP != 0,
        _ => false,
    };
    up && flags & LOOPBACK == 0
}

fn names(folder: &Path) -> Option<Vec<String>> {
    /// More than any machine has.
    const MAX_INTERFACES: usize = 4096;
    let entries = folder.read_dir().ok()?.flatten().take(MAX_INTERFACES);
    Some(
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Roots) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join("sys/class").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let roots = Roots::from_dir(folder.path());
        (folder, roots)
    }

    #[test]
    fn devices_of_a_fabric() {
        let (_folder, roots) = machine(&[
            ("infiniband/mlx5_1/ports/1/state", "1: DOWN\n"),
            ("infiniband/mlx5_1/ports/1/link_layer", "Ethernet\n"),
            ("infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n"),
            ("infiniband/mlx5_0/ports/2/state", "1: DOWN\n"),
            ("infiniband/rxe0/ports/1/x", ""),
        ]);
        let found: Vec<_> = list_infiniband_devices(&roots).unwrap();
        let told: Vec<_> = found
            .iter()
            .map(|d| (d.name.as_str(), d.state.as_deref(), d.layer.as_deref()))
            .collect();
        let expected = [
            ("mlx5_0", Some("ACTIVE"), Some("InfiniBand")),
            ("mlx5_1", Some("DOWN"), Some("Ethernet")),
            ("rxe0", None, None),
        ];
        assert_eq!(told, expected);
        assert_eq!(list_infiniband_devices(&Roots::from_dir("/nowhere")), None);
    }

    #[test]
    fn interfaces_that_are_up() {
        let (_folder, roots) = machine(&[
            ("net/lo/operstate", "unknown\n"),
            ("net/lo/flags", "0x9\n"),
            ("net/eth0/operstate", "up\n"),
            ("net/eth0/flags", "0x1003\n"),
            ("net/eth1/operstate", "down\n"),
            ("net/eth1/flags", "0x1003\n"),
            ("net/tun0/operstate", "unknown\n"),
            ("net/tun0/flags", "0x1091\n"),
            ("net/odd/x", ""),
        ]);
        assert_eq!(list_active_interfaces(&roots).unwrap(), ["eth0", "tun0"]);
    }
}
