//! All nodes of a job meet before any of them fetches, unpacks or starts ranks, and start together.
//!
//! The job's first node listens, the others come to it. Each proves that it has the job's key, without sending it. A
//! node that has met says every two seconds that it lives; one that is silent for a minute is named. When all are
//! ready, the first gives the port at which the ranks meet.

mod follower;
mod leader;
mod wire;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sconce_schema::{Hint, exit};

pub(super) use follower::Follower;
pub(super) use leader::Leader;
pub(super) use wire::{JobKey, NodeFailure};

/// Time between two signs of life.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// A node, as others are told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeIdentity {
    /// Its place in the job, from 0.
    pub(super) index: u32,
    /// Its name.
    pub(super) name: String,
    /// Digest of the lock that it has.
    pub(super) lock: String,
}

/// How long is waited for what.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeetingLimits {
    /// Until all nodes have come.
    pub(super) arrival: Duration,
    /// Until a node that says nothing counts as gone.
    pub(super) silence: Duration,
}

/// What keeps nodes from starting together.
#[derive(Debug, thiserror::Error)]
pub(super) enum MeetingError {
    /// Nodes that never came.
    #[error("after {} s {} of {nodes} nodes had not come: {}", within.as_secs(), names.len(), names.join(", "))]
    Missing {
        /// Their names.
        names: Vec<String>,
        /// All nodes of the job.
        nodes: u32,
        /// How long was waited.
        within: Duration,
    },
    /// The first node is not found.
    #[error("node {name} does not reach the job's first node {leader} within {} s; tried: {}", within.as_secs(), tried.join(", "))]
    NoLeader {
        /// The node that says so.
        name: String,
        /// The first node.
        leader: String,
        /// The addresses.
        tried: Vec<String>,
        /// How long was tried.
        within: Duration,
    },
    /// Two nodes have different locks.
    #[error("node {name} has another lock than {leader}: {other} and {lock}")]
    OtherLock {
        /// The node.
        name: String,
        /// The job's first node.
        leader: String,
        /// The node's digest.
        other: String,
        /// That of the first.
        lock: String,
    },
    /// Two processes are the same node.
    #[error("node {index} has come twice: {first} and {second}")]
    Twice {
        /// The place.
        index: u32,
        /// The name of one.
        first: String,
        /// And of the other.
        second: String,
    },
    /// A node could not prepare its part.
    #[error("node {name} cannot start: {}", failure.why)]
    NodeFailed {
        /// The node.
        name: String,
        /// What it said.
        failure: NodeFailure,
    },
    /// A node that was there says nothing any more.
    #[error("node {name} has said nothing for {} s", silence.as_secs())]
    Silent {
        /// The node.
        name: String,
        /// The limit.
        silence: Duration,
    },
    /// The connection to a node has ended.
    #[error("node {name} is gone")]
    Gone {
        /// The node.
        name: String,
    },
    /// The first node ended it, and said why.
    #[error("{}", .0.why)]
    Stopped(NodeFailure),
    /// No address that others reach.
    #[error("node {name} has no address that other nodes reach")]
    NoAddress {
        /// The node.
        name: String,
    },
    /// The system refused a socket or a thread.
    #[error("cannot {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Hint for MeetingError {
    fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => {
                "`srun` starts one process a node: the scheduler's log says why one has none; \
                 `[target] meet-within` waits longer"
            }
            Self::NoLeader { .. } => {
                "nodes must reach each other by TCP on unprivileged ports; `scontrol show node` says which address \
                 Slurm has for it"
            }
            Self::OtherLock { .. } => "submit it again: the job's folder was changed",
            Self::Twice { .. } => {
                "an earlier start of the job has not ended: try again when it has"
            }
            Self::Silent { .. } | Self::Gone { .. } => "look at that node: it may be down",
            Self::NoAddress { .. } => "its interfaces have loopback or link-local addresses alone",
            Self::NodeFailed { .. } | Self::Stopped(_) | Self::System { .. } => return None,
        };
        Some(text.to_owned())
    }

    fn exit_code(&self) -> u8 {
        match self {
            Self::NodeFailed { failure, .. } | Self::Stopped(failure) => failure.exit,
            Self::Missing { .. }
            | Self::NoLeader { .. }
            | Self::OtherLock { .. }
            | Self::Twice { .. }
            | Self::Silent { .. }
            | Self::Gone { .. }
            | Self::NoAddress { .. }
            | Self::System { .. } => exit::RUN,
        }
    }
}

/// Where the ranks meet, as this node has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MeetingPoint {
    /// The first node's address and a port that was free there.
    pub(super) master: SocketAddr,
    /// The address by which others reach this node.
    pub(super) own: IpAddr,
}

fn system(action: &'static str) -> impl FnOnce(std::io::Error) -> MeetingError {
    move |source| MeetingError::System { action, source }
}

#[cfg(test)]
mod tests;
