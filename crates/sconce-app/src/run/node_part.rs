//! What is different of a run that is one node's part of a job.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sconce_schema::request::ContainerEdits;

use crate::failure::Result;
use crate::node_network::JobNetwork;

/// Waits, when all that the run stands on is there, until that is so on every node.
pub(crate) type JoinNodes<'a> = Box<dyn FnOnce() -> Result<NodeWorld> + 'a>;

/// What only all nodes together know.
#[derive(Debug, Clone)]
pub(crate) struct NodeWorld {
    /// What is run on this node: the job's command, or what starts its ranks.
    pub(crate) command: Vec<String>,
    /// Variables beside those of the job's run.
    pub(crate) env: BTreeMap<String, String>,
    /// Devices by which nodes reach each other's memory.
    pub(crate) edits: ContainerEdits,
    /// What is known of the network, and is to be known of it.
    pub(crate) network: JobNetwork,
    /// Set where the run's end is asked for.
    pub(crate) asked_to_end: Arc<AtomicBool>,
    /// The address by which other nodes reach this one; absent where there are none.
    pub(crate) address: Option<IpAddr>,
}
