//! What keeps a job's ranks off the network that its nodes have for them: RDMA by libibverbs, which NCCL opens at its
//! start (`ibvwrap.cc` of NCCL) and without which it takes TCP and says so to nobody.

use sconce_host::fabric::FabricDevices;
use sconce_schema::Bytes;

/// What queue pairs and buffers of a few ranks take at least.
const LEAST_LOCKED_BYTES: u64 = 1 << 30;

/// Debian's packages of libibverbs, and of its drivers for cards.
const PACKAGES: [&str; 2] = ["libibverbs1", "ibverbs-providers"];

/// Describes each thing that keeps ranks on `node` from its fast network, with its mend; nothing where the node has no
/// such network. `packages` are the environment's of Debian; `locked_bytes` is how much memory a process may lock, absent where there is no limit.
pub(super) fn describe_obstacles(
    fabric: &FabricDevices,
    packages: &[&str],
    locked_bytes: Option<u64>,
    node: &str,
) -> Vec<String> {
    let mut obstacles = Vec::new();
    if let Some(closed) = fabric.closed.first() {
        let closed = closed.display();
        obstacles.push(format!(
            "node {node}: {closed} may not be used by this user"
        ));
    }
    if fabric.is_empty() {
        if let [port, ..] = &*fabric.active_ports {
            obstacles.push(format!(
                "node {node}: port {port} is up, and there is no device of it in /dev/infiniband: NCCL takes TCP"
            ));
        }
        return obstacles;
    }
    if let Some(bytes) = locked_bytes.filter(|bytes| *bytes < LEAST_LOCKED_BYTES) {
        let limit = Bytes(bytes);
        obstacles.push(format!(
            "node {node}: a process may lock {limit} of memory, and RDMA needs far more: \
             `PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf, or `ulimit -l unlimited` as a line of `setup`"
        ));
    }
    let is_missing = |name: &&&str| !packages.contains(*name);
    let missing: Vec<String> = (PACKAGES.iter())
        .filter(is_missing)
        .map(|name| format!("\"{name}\""))
        .collect();
    if !fabric.active_ports.is_empty() && !missing.is_empty() {
        obstacles.push(format!(
            "node {node}: the environment has no libibverbs or no drivers of it, and NCCL takes TCP: \
             `packages = [{}]` in `[system]`",
            missing.join(", ")
        ));
    }
    obstacles
}

/// Describes EFA that nothing of the node lets NCCL use: its own transport by libibverbs knows no EFA.
pub(super) fn describe_missing_plugin(fabric: &FabricDevices, node: &str) -> Option<String> {
    let device = fabric.efa_devices.first()?;
    Some(format!(
        "node {node}: {device} is EFA, which NCCL uses by its plugin aws-ofi-nccl alone, and the node's own does not come \
         into the container: without one in the environment NCCL takes TCP. EFA's installer brings it \
         (/opt/amazon/ofi-nccl), and `host-plugins = false` of the target keeps it out"
    ))
}

#[cfg(test)]
mod tests {
    use sconce_schema::request::{ContainerEdits, DeviceNode};

    use super::*;

    fn fabric(devices: usize, ports: &[&str]) -> FabricDevices {
        let device = DeviceNode {
            path: "/dev/infiniband/uverbs0".into(),
            host_path: "/dev/infiniband/uverbs0".into(),
            r#type: "c".into(),
            major: 231,
            minor: 192,
        };
        FabricDevices {
            edits: ContainerEdits {
                device_nodes: vec![device; devices],
                ..ContainerEdits::default()
            },
            closed: Vec::new(),
            active_ports: ports.iter().map(|port| (*port).to_owned()).collect(),
            efa_devices: Vec::new(),
        }
    }

    #[test]
    fn what_makes_nccl_take_tcp_is_said() {
        let (none, ready): (&[&str], &[&str]) = (&[], &PACKAGES);
        let describe = |fabric: &FabricDevices, packages, bytes| {
            describe_obstacles(fabric, packages, bytes, "n2")
        };
        let up = fabric(1, &["mlx5_0/1"]);
        assert!(describe(&up, ready, None).is_empty());
        let [missing] = &*describe(&up, none, None) else {
            panic!("one obstacle");
        };
        assert!(
            missing.contains("packages = [\"libibverbs1\", \"ibverbs-providers\"]"),
            "{missing}"
        );
        // A card whose cable is out is nobody's network.
        assert!(describe(&fabric(1, &[]), none, None).is_empty());
        assert!(describe(&fabric(0, &["mlx5_0/1"]), ready, None)[0].contains("no device of it"));
        assert!(describe(&up, ready, Some(64 << 10))[0].contains("may lock 64 KiB"));
        assert!(describe(&fabric(0, &[]), none, Some(0)).is_empty());
    }

    #[test]
    fn efa_without_its_plugin_is_said() {
        let efa = FabricDevices {
            efa_devices: vec!["rdmap0s6".to_owned()],
            ..fabric(1, &["rdmap0s6/1"])
        };
        let said = describe_missing_plugin(&efa, "n2").unwrap();
        assert!(
            said.contains("rdmap0s6 is EFA") && said.contains("host-plugins"),
            "{said}"
        );
        assert_eq!(
            describe_missing_plugin(&fabric(1, &["mlx5_0/1"]), "n2"),
            None
        );
    }
}
