//! The network of a job's ranks.

use std::collections::BTreeMap;

use sconce_schema::network::{HostPlugin, NcclNetwork};
use serde::Serialize;

use crate::model::RunReport;

#[derive(Serialize)]
pub(super) struct NetworkShape<'a> {
    /// Nodes of the job.
    nodes: Option<u32>,
    /// Ports of the node's fabric that were up; null where they were not looked at.
    active_ports: Option<&'a [String]>,
    /// Plugins that came from the node, and are not of the lock.
    host_plugins: Vec<PluginShape<'a>>,
    /// What NCCL chose in each process that said so.
    nccl: Vec<NcclShape<'a>>,
}

#[derive(Serialize)]
struct PluginShape<'a> {
    name: &'a str,
    directory: &'a str,
    obstacle: Option<&'a str>,
}

#[derive(Serialize)]
struct NcclShape<'a> {
    /// In the run's own numbering.
    pid: u32,
    rank: Option<u32>,
    ranks: Option<u32>,
    version: Option<&'a str>,
    network: &'a str,
    devices: &'a [String],
    gpu_direct: Option<bool>,
    multi_node_nvlink: Option<bool>,
    settings: &'a BTreeMap<String, String>,
}

impl<'a> NetworkShape<'a> {
    /// Absent where nothing is known of it.
    pub(super) fn from_report(report: &'a RunReport) -> Option<Self> {
        let node = report.started.node_network.as_ref();
        if node.is_none() && report.nccl.is_empty() {
            return None;
        }
        let plugins = node.map_or(&[][..], |node| &node.host_plugins);
        Some(Self {
            nodes: node.map(|node| node.nodes),
            active_ports: node.map(|node| &*node.active_ports),
            host_plugins: plugins.iter().map(plugin).collect(),
            nccl: report.nccl.iter().map(nccl).collect(),
        })
    }
}

fn plugin(plugin: &HostPlugin) -> PluginShape<'_> {
    PluginShape {
        name: &plugin.name,
        directory: &plugin.directory,
        obstacle: plugin.obstacle.as_deref(),
    }
}

fn nccl(network: &NcclNetwork) -> NcclShape<'_> {
    NcclShape {
        pid: network.inner_pid,
        rank: network.rank,
        ranks: network.ranks,
        version: network.version.as_deref(),
        network: &network.network,
        devices: &network.devices,
        gpu_direct: network.gpu_direct,
        multi_node_nvlink: network.multi_node_nvlink,
        settings: &network.settings,
    }
}
