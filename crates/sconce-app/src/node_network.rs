//! The network between the nodes of a job, as one node's run has it: which plugins of the node come into its container
//! ([`plugins`]), and which network NCCL then takes ([`watch`]).

mod plugins;
mod watch;

pub(crate) use plugins::select_plugins;
pub(crate) use watch::{NetworkWatch, SocketsChosen};

use sconce_host::fabric_plugins::FabricPlugin;

/// What a node's run is told of the network, before it starts.
#[derive(Debug, Clone)]
pub(crate) struct JobNetwork {
    /// The node's name.
    pub(crate) node: String,
    /// Nodes of the job.
    pub(crate) nodes: u32,
    /// Whether the job has more than one rank that NCCL may join.
    pub(crate) joins_ranks: bool,
    /// Whether it ends where its ranks take TCP although a port is up.
    pub(crate) strict: bool,
    /// Ports of the node that are up.
    pub(crate) active_ports: Vec<String>,
    /// Plugins that are to come into the container.
    pub(crate) plugins: Vec<FabricPlugin>,
    /// The first thing that was found to keep ranks from the fabric, with its mend.
    pub(crate) obstacle: Option<String>,
}
