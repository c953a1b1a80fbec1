//! A job: a run that a scheduler starts on nodes that nobody knows yet. What was wished travels to them; each node
//! makes its own [`RunRequest`](crate::RunRequest) of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::spec::{LaunchMode, RunSpec, SchedulerKind};
use crate::units::Sha256;

/// The format that this program writes and reads.
pub const FORMAT: u32 = 1;

/// The name of the file in a job's folder.
pub const FILE_NAME: &str = "job.json";

/// What was handed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobRequest {
    /// Format of the file.
    pub format: u32,
    /// Unique in the world: by it the scheduler's job is found, and nodes know each other.
    pub token: String,
    /// The environment's name.
    pub name: String,
    /// The spec's file when the job was handed over, whose folder nodes mount; absolute.
    pub spec: PathBuf,
    /// `[run]` of the spec, with what the caller said laid over it: `command` is what is run.
    pub run: RunSpec,
    /// Variables of whoever handed it over that say where Sconce's folders are, which a node has in no login:
    /// `HOME`, `XDG_STATE_HOME`.
    pub directories: BTreeMap<String, String>,
    /// Digest of the lock's text.
    pub lock: Sha256,
    /// Debian's name of the processors that the lock is for, `amd64`.
    pub architecture: String,
    /// On what it is started.
    pub layout: JobLayout,
    /// To whom it was handed.
    pub engine: SchedulerKind,
    /// How long nodes wait for each other, in milliseconds.
    pub meet_within_ms: u64,
    /// That each node unpacks the environment to a disk of its own; absent where all read the one store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_store: Option<LocalStoreRequest>,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
}

/// An environment that nodes unpack to disks of their own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct LocalStoreRequest {
    /// Where, as the target says it, with variables of the node; absent where the node chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// What is unpacked.
    pub environment: ItemPack,
}

/// Items of a store in one file, which is read once from its beginning to its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ItemPack {
    /// The file, absolute.
    pub file: PathBuf,
    /// Digest of its bytes.
    pub sha256: Sha256,
    /// How many it has.
    pub size_bytes: u64,
    /// What is in it, sorted.
    pub items: Vec<PackedItem>,
}

/// An item of a store in a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PackedItem {
    /// Its kind, `wheel`.
    pub kind: String,
    /// Its key.
    pub key: String,
    /// What it takes on a disk that gives files blocks of 4 KiB.
    pub disk_bytes: u64,
}

/// The nodes of a job, and who starts its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct JobLayout {
    /// Nodes, at least 1.
    pub nodes: u32,
    /// Cards of each; absent where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus_per_node: Option<u32>,
    /// Ranks of each, where that is not one a card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks_per_node: Option<u32>,
    /// Who starts the ranks.
    pub launch: LaunchMode,
}

impl JobLayout {
    /// Ranks that are started on each node: one a card where nobody says how many, and one where there is no card.
    #[must_use]
    pub fn node_ranks(&self) -> u32 {
        match self.launch {
            LaunchMode::Node => 1,
            LaunchMode::Torchrun | LaunchMode::TaskPerGpu => self.wished_ranks(),
        }
    }

    /// As [`Self::node_ranks`], for a command that starts its ranks itself.
    #[must_use]
    pub fn wished_ranks(&self) -> u32 {
        self.ranks_per_node
            .or(self.gpus_per_node)
            .unwrap_or(1)
            .max(1)
    }

    /// Processes that the scheduler starts on each node.
    #[must_use]
    pub fn tasks_per_node(&self) -> u32 {
        match self.launch {
            LaunchMode::TaskPerGpu => self.node_ranks(),
            LaunchMode::Torchrun | LaunchMode::Node => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_rank_a_card_but_where_the_command_starts_its_own() {
        let layout = |launch, gpus_per_node| JobLayout {
            nodes: 2,
            gpus_per_node,
            ranks_per_node: None,
            launch,
        };
        for (launch, gpus, ranks, tasks) in [
            (LaunchMode::Torchrun, Some(8), 8, 1),
            (LaunchMode::Torchrun, None, 1, 1),
            (LaunchMode::TaskPerGpu, Some(4), 4, 4),
            (LaunchMode::TaskPerGpu, Some(0), 1, 1),
            (LaunchMode::Node, Some(8), 1, 1),
        ] {
            let layout = layout(launch, gpus);
            assert_eq!(
                (layout.node_ranks(), layout.tasks_per_node()),
                (ranks, tasks)
            );
        }
        let more = JobLayout {
            ranks_per_node: Some(16),
            ..layout(LaunchMode::TaskPerGpu, Some(8))
        };
        assert_eq!((more.node_ranks(), more.tasks_per_node()), (16, 16));
    }
}
