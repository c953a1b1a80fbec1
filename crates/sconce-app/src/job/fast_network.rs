//! What keeps a job's ranks off the network that its nodes have for them: RDMA by libibverbs, which NCCL opens at its
//! start (`ibvwrap.cc` of NCCL) and without which it takes TCP and says so to nobody.

use rustix::process::Rlimit;
use sconce_host::fabric::FabricDevices;
use sconce_schema::Bytes;

/// What queue pairs and buffers of a few ranks take at least.
const LEAST_LOCKED_BYTES: u64 = 1 << 30;

/// Debian's packages of libibverbs, and of its drivers for cards.
const PACKAGES: [&str; 2] = ["libibverbs1", "ibverbs-providers"];

/// Describes each thing that keeps ranks on `node` from its fast network, with its mend; nothing where the node has no
/// such network. `packages` are the environment's of Debian; `locked` is how much memory a process may lock, in bytes,
/// and how much a user may make of that; absent where there is no limit.
pub(super) fn describe_obstacles(
    fabric: &FabricDevices,
    packages: &[&str],
    locked: Rlimit,
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
    let is_enough = |bytes: Option<u64>| bytes.is_none_or(|bytes| bytes >= LEAST_LOCKED_BYTES);
    if let Some(bytes) = locked.current.filter(|_| !is_enough(locked.current)) {
        let limit = Bytes(bytes);
        // A job has the limits of whoever handed it over (slurm.conf(5), PropagateResourceLimits).
        let mend = match (is_enough(locked.maximum), locked.maximum) {
            (true, None) => "`setup = [\"ulimit -l unlimited\"]` in the target".to_owned(),
            (true, Some(most)) => format!("`setup = [\"ulimit -l {}\"]` in the target", most >> 10),
            (false, _) => "a user cannot raise it; whoever runs the cluster sets \
                           `PropagateResourceLimitsExcept=MEMLOCK` in slurm.conf and `LimitMEMLOCK=infinity` for slurmd"
                .to_owned(),
        };
        obstacles.push(format!(
            "node {node}: a process may lock {limit} of memory, and RDMA needs far more: {mend}"
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
        let describe = |fabric: &FabricDevices, packages, current| {
            let maximum = current;
            describe_obstacles(fabric, packages, Rlimit { current, maximum }, "n2")
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
        let locked = |maximum| {
            let current = Some(64 << 10);
            describe_obstacles(&up, ready, Rlimit { current, maximum }, "n2").swap_remove(0)
        };
        assert!(locked(None).ends_with("`setup = [\"ulimit -l unlimited\"]` in the target"));
        // In KiB (ulimit of dash and bash).
        assert!(locked(Some(2 << 30)).contains("ulimit -l 2097152"));
        assert!(locked(Some(8 << 20)).contains("a user cannot raise it"));
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
