//! What is different of a run that is one node's part of a job.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use sconce_run::LostOutput;
use sconce_schema::event::OomKill;
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
    /// Written when the run has ended.
    pub(crate) end: Arc<Mutex<NodePartEnd>>,
    /// The address by which other nodes reach this one; absent where there are none.
    pub(crate) address: Option<IpAddr>,
}

/// What is known of the end of a node's part beside its command's exit code.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodePartEnd {
    /// Whether somebody asked for it.
    pub(crate) asked_to_end: bool,
    /// Processes that the kernel killed for want of memory.
    pub(crate) out_of_memory: Option<OomKill>,
    /// What of its output the job's log did not take.
    pub(crate) lost_output: Option<LostOutput>,
}
