//! The network that ranks used, in words.

use sconce_schema::event::RunStarted;
use sconce_schema::network::NcclNetwork;

/// Processes that chose alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NetworkGroup<'a> {
    /// The first of them.
    pub(crate) first: &'a NcclNetwork,
    /// How many they are.
    pub(crate) processes: usize,
}

/// Groups processes by the network, devices and GPU Direct RDMA that they have.
pub(crate) fn group_networks(nccl: &[NcclNetwork]) -> Vec<NetworkGroup<'_>> {
    let mut groups: Vec<NetworkGroup<'_>> = Vec::new();
    let kind = |one: &NcclNetwork| (one.label(), one.gpu_direct, one.uses_sockets());
    for network in nccl {
        match groups
            .iter_mut()
            .find(|group| kind(group.first) == kind(network))
        {
            Some(group) => group.processes += 1,
            None => groups.push(NetworkGroup {
                first: network,
                processes: 1,
            }),
        }
    }
    groups
}

/// Returns the processes whose ranks send to other nodes by TCP although a port of the node's fabric was up.
pub(crate) fn slow_processes<'a>(
    started: &RunStarted,
    nccl: &'a [NcclNetwork],
) -> impl Iterator<Item = &'a NcclNetwork> {
    let node = started.node_network.as_ref();
    let has_fabric = node.is_some_and(|node| node.nodes > 1 && !node.active_ports.is_empty());
    let all = nccl.iter().filter(move |_| has_fabric);
    all.filter(|network| network.uses_sockets())
}
