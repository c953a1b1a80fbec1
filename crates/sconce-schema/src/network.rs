//! The network between the nodes of a job: what a node has of it, and what NCCL chose.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// NCCL's own name of its transport by TCP (`ncclNetSocket` of its net_socket.cc).
pub const SOCKET: &str = "Socket";

/// What a node has by which its ranks reach those of other nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NodeNetwork {
    /// Nodes of the job.
    pub nodes: u32,
    /// Ports of InfiniBand, RoCE and EFA that were up when the run began: `mlx5_0/1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub active_ports: Vec<String>,
    /// Directories of the node's own network plugins that came into the container: nothing of them is locked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_plugins: Vec<HostPlugin>,
}

/// A network plugin of a node, in the container beside what is locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HostPlugin {
    /// What it is: `aws-ofi-nccl`.
    pub name: String,
    /// Its directory on the node, which the container has at the same path.
    pub directory: String,
    /// What of it will not be loaded in this environment, in one sentence; absent where nothing is known to be in
    /// the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<String>,
}

/// The network that NCCL chose in a process, as its own log says it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NcclNetwork {
    /// The process, in the run's own numbering.
    pub inner_pid: u32,
    /// Its rank in its largest communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Ranks of that communicator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Whether NVLink joins its nodes (MNNVL), so that the network is not used between them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_node_nvlink: Option<bool>,
    /// NCCL's version, `2.27.7+cuda12.9`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// NCCL's name of the network: `IB`, `Socket`, or what a plugin calls itself, `AWS Libfabric`.
    pub network: String,
    /// Its devices: `mlx5_0:1/RoCE`, `eth0`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Whether a device reads and writes the memory of cards itself (GPU Direct RDMA).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_direct: Option<bool>,
    /// Settings of the network that NCCL found, in variables or in its own nccl.conf.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl NcclNetwork {
    /// Whether what its ranks send to other nodes goes by TCP.
    #[must_use]
    pub fn uses_sockets(&self) -> bool {
        self.network == SOCKET && self.multi_node_nvlink != Some(true)
    }

    /// The settings that keep it from a fabric, or may: `NCCL_IB_DISABLE=1`.
    #[must_use]
    pub fn refusing_settings(&self) -> Vec<String> {
        let is_refusing = |name: &str, value: &str| match name {
            "NCCL_IB_DISABLE" | "NCCL_IBEXT_DISABLE" => value != "0",
            "NCCL_NET" => value.eq_ignore_ascii_case(SOCKET),
            "NCCL_NET_PLUGIN" => value.eq_ignore_ascii_case("none"),
            "NCCL_IB_HCA" => true,
            _ => false,
        };
        let refusing = self
            .settings
            .iter()
            .filter(|(name, value)| is_refusing(name, value));
        refusing
            .map(|(name, value)| format!("{name}={value}"))
            .collect()
    }

    /// Its network and devices in a few words, `IB (mlx5_0:1/RoCE)`.
    #[must_use]
    pub fn label(&self) -> String {
        match self.devices.is_empty() {
            true => self.network.clone(),
            false => format!("{} ({})", self.network, self.devices.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_refuse_a_fabric_are_told_from_others() {
        let refusing = |name: &str, value: &str| {
            let network = NcclNetwork {
                settings: BTreeMap::from([(name.to_owned(), value.to_owned())]),
                ..NcclNetwork::default()
            };
            !network.refusing_settings().is_empty()
        };
        for (name, value) in [
            ("NCCL_IB_DISABLE", "1"),
            ("NCCL_NET", "socket"),
            ("NCCL_NET_PLUGIN", "none"),
            ("NCCL_IB_HCA", "mlx5_9"),
        ] {
            assert!(refusing(name, value), "{name}");
        }
        for (name, value) in [
            ("NCCL_IB_DISABLE", "0"),
            ("NCCL_NET", "AWS Libfabric"),
            ("NCCL_SOCKET_IFNAME", "eth0"),
        ] {
            assert!(!refusing(name, value), "{name}");
        }
    }
}
