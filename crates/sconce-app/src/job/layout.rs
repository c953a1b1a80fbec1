//! On what a job is started, and who starts its ranks: what its caller, its target, its lock and its command say,
//! where these agree.

use std::path::{Path, PathBuf};

use sconce_schema::job::JobLayout;
use sconce_schema::lock::Lock;
use sconce_schema::request::NetworkMode;
use sconce_schema::spec::{GpuRequest, JobContainment, LaunchMode, TargetSpec, WORKSPACE};
use sconce_schema::{Hint, exit};

use super::submit::JobOptions;
use crate::input;
use crate::launcher::{Launcher, RankStarter, find_rank_starter};
use crate::run_options::ResolvedRunOptions;

/// Wishes of a job that do not agree.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// The spec's cards are those of the machine where it stands.
    #[error("`[run] gpus = {}` says nothing of how many cards a node has", serde_json::to_string(.0).unwrap_or_default())]
    GpusOfThisMachine(GpuRequest),
    /// One task a card, and no card.
    #[error("`task-per-gpu` without a number of cards or ranks a node")]
    NoGpus,
    /// A kind of card, and nobody says how many.
    #[error(
        "target `{target}` has `gpu-type = \"{kind}\"`, and nothing says how many cards a node has"
    )]
    KindWithoutGpus {
        /// The target.
        target: String,
        /// The kind.
        kind: String,
    },
    /// Each rank would start as many.
    #[error(
        "`task-per-gpu` starts one process a rank, and `{launcher}` in the command starts ranks itself"
    )]
    RanksTwice {
        /// The program that the command names.
        launcher: String,
    },
    /// Nodes that would not know each other.
    #[error(
        "the job has {nodes} nodes, and `{launcher} {option}` starts a world of its own on each"
    )]
    WorldOfEachNode {
        /// The job's nodes.
        nodes: u32,
        /// The program that the command names.
        launcher: String,
        /// Its option.
        option: String,
    },
    /// torchrun is a part of PyTorch.
    #[error("`launch` is torchrun, and the lock has no torch")]
    NoTorchrun,
    /// Ranks that nobody would start.
    #[error(
        "{ranks} ranks a node, and nothing starts them: the lock has no torch, whose torchrun would"
    )]
    NobodyStartsRanks {
        /// How many.
        ranks: u32,
    },
    /// Processes that have to reach each other, each in a network of its own.
    #[error(
        "`network` is {network}, and the job has {processes} containers, which have to reach each other"
    )]
    OwnNetwork {
        /// As the spec says it.
        network: &'static str,
        /// How many there are.
        processes: u32,
    },
}

impl Hint for LayoutError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::GpusOfThisMachine(_) => {
                "say how many it shall have: `--gpus-per-node 8`, or `gpus-per-node` in the target; 0 for none"
                    .to_owned()
            }
            Self::NoGpus => "say how many: `--gpus-per-node 8`, or `--ranks-per-node` without cards".to_owned(),
            Self::KindWithoutGpus { .. } => {
                "say how many: `--gpus-per-node 8`, or `gpus-per-node` in the target; 0 for none".to_owned()
            }
            Self::RanksTwice { .. } => {
                "leave one out: `--launch node` starts the command once a node; or give `task-per-gpu` the program that \
                 each rank is"
                    .to_owned()
            }
            Self::WorldOfEachNode { .. } => {
                "leave it out of the command: torchrun is told the nodes and the leader's address by its variables (PET_…)"
                    .to_owned()
            }
            Self::NoTorchrun => {
                "`--launch task-per-gpu` has the scheduler start one process a rank, `--launch node` one a node; or \
                 add torch to the spec's packages"
                    .to_owned()
            }
            Self::NobodyStartsRanks { .. } => {
                "`--launch task-per-gpu` has the scheduler start them; `--launch node` starts the command once a node, \
                 which may start them itself"
                    .to_owned()
            }
            Self::OwnNetwork { .. } => {
                "take `network` out of `[run]`, or ask for one node (`--nodes 1`)".to_owned()
            }
        })
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}

/// What decides on a layout.
pub(super) struct LayoutWishes<'a> {
    pub(super) job: &'a JobOptions,
    pub(super) target: &'a TargetSpec,
    /// Cards of the spec's `[run]`.
    pub(super) spec_gpus: Option<&'a GpuRequest>,
    pub(super) options: &'a ResolvedRunOptions,
    pub(super) containment: JobContainment,
    /// Absent where a dry run finds none.
    pub(super) lock: Option<&'a Lock>,
    /// Where the project lies.
    pub(super) folder: &'a Path,
}

/// A layout, and what was found of the command.
#[derive(Debug)]
pub(super) struct ChosenLayout {
    pub(super) layout: JobLayout,
    /// Whether the command starts its ranks itself.
    pub(super) starts_own_ranks: bool,
    /// What was assumed of the command, or seen in a text that not everybody reads.
    pub(super) remark: Option<String>,
}

impl LayoutWishes<'_> {
    /// One rank a card by torchrun, where there is more than one and PyTorch to start it.
    ///
    /// # Errors
    /// The wishes do not agree.
    pub(super) fn choose(&self) -> Result<ChosenLayout, LayoutError> {
        let (job, target) = (self.job, self.target);
        let nodes = job.nodes.or(target.nodes).unwrap_or(1);
        let gpus_per_node = self.find_gpus()?;
        let ranks = job.ranks_per_node.or(gpus_per_node);
        let starter = find_rank_starter(&self.options.command, &|name| self.read_script(name));
        let said = job.launch.or(target.launch);
        if !matches!(starter, RankStarter::Command(_)) {
            self.refuse_without_torch(said)?;
        }
        let has_ranks = nodes > 1 || ranks.is_some_and(|ranks| ranks > 1);
        let usual = match self.has_torch() && has_ranks {
            true => LaunchMode::Torchrun,
            false => LaunchMode::Node,
        };
        let launch = said.unwrap_or(usual);
        if launch == LaunchMode::TaskPerGpu && ranks.is_none_or(|ranks| ranks == 0) {
            return Err(LayoutError::NoGpus);
        }
        let layout = JobLayout {
            nodes,
            gpus_per_node,
            ranks_per_node: job.ranks_per_node,
            launch,
        };
        if let RankStarter::Command(launcher) = &starter {
            refuse_other_worlds(&layout, launcher)?;
        }
        self.refuse_own_network(&layout)?;
        Ok(ChosenLayout {
            remark: self.describe_starter(&starter, launch),
            starts_own_ranks: matches!(starter, RankStarter::Command(_)),
            layout,
        })
    }

    /// Cards of each node.
    fn find_gpus(&self) -> Result<Option<u32>, LayoutError> {
        let said = self.job.gpus_per_node.or(self.target.gpus_per_node);
        match (said, self.spec_gpus) {
            (Some(count), _) => Ok(Some(count)),
            (None, Some(GpuRequest::Count(count))) => Ok(Some(*count).filter(|count| *count > 0)),
            (None, Some(other)) => Err(LayoutError::GpusOfThisMachine(other.clone())),
            (None, None) => match &self.target.gpu_type {
                Some(kind) => Err(LayoutError::KindWithoutGpus {
                    target: self.job.target.clone(),
                    kind: kind.clone(),
                }),
                None => Ok(None),
            },
        }
    }

    /// Before there is a lock, it may have it.
    fn has_torch(&self) -> bool {
        let is_torch = |lock: &Lock| lock.wheels.iter().any(|wheel| wheel.name == "torch");
        self.lock.is_none_or(is_torch)
    }

    fn refuse_without_torch(&self, said: Option<LaunchMode>) -> Result<(), LayoutError> {
        if self.has_torch() {
            return Ok(());
        }
        match (said, self.job.ranks_per_node) {
            (Some(LaunchMode::Torchrun), _) => Err(LayoutError::NoTorchrun),
            (None, Some(ranks @ 2..)) => Err(LayoutError::NobodyStartsRanks { ranks }),
            _ => Ok(()),
        }
    }

    /// Containers of others than Sconce have the node's network: what they do not hold is said elsewhere.
    fn refuse_own_network(&self, layout: &JobLayout) -> Result<(), LayoutError> {
        let network = match self.options.network {
            NetworkMode::Host => return Ok(()),
            NetworkMode::Own => "own",
            NetworkMode::None => "none",
        };
        let processes = layout.nodes.saturating_mul(layout.tasks_per_node());
        match self.containment.is_own() && processes > 1 {
            true => Err(LayoutError::OwnNetwork { network, processes }),
            false => Ok(()),
        }
    }

    /// A file of the project that the command names, as text.
    fn read_script(&self, name: &str) -> Option<String> {
        let inside = self.options.workdir.join(name);
        let path: PathBuf = match inside.strip_prefix(WORKSPACE) {
            Ok(below) => self.folder.join(below),
            Err(_) if inside.starts_with(self.folder) => inside,
            Err(_) => return None,
        };
        input::read_text(&path).ok()
    }

    fn describe_starter(&self, starter: &RankStarter, launch: LaunchMode) -> Option<String> {
        match (starter, launch) {
            (RankStarter::Command(launcher), LaunchMode::Torchrun) => {
                let name = launcher.name.split(' ').next()?;
                let is_seen = self.options.command.iter().any(|word| word == name);
                (!is_seen).then(|| {
                    format!(
                        "`{}` in the command's text starts the ranks: the command is started once a node",
                        launcher.name
                    )
                })
            }
            (RankStarter::Unknown(part), LaunchMode::Torchrun | LaunchMode::TaskPerGpu) => {
                let by = match launch {
                    LaunchMode::Torchrun => "torchrun starts the command once a rank",
                    LaunchMode::TaskPerGpu | LaunchMode::Node => {
                        "the scheduler starts the command once a rank"
                    }
                };
                Some(format!(
                    "whether `{part}` starts ranks itself cannot be told: {by}; with `--launch node` it is started once a node"
                ))
            }
            _ => None,
        }
    }
}

/// Refuses worlds beside each other.
fn refuse_other_worlds(layout: &JobLayout, launcher: &Launcher) -> Result<(), LayoutError> {
    let name = launcher.name.clone();
    if layout.launch == LaunchMode::TaskPerGpu {
        return Err(LayoutError::RanksTwice { launcher: name });
    }
    match launcher.find_own_world().filter(|_| layout.nodes > 1) {
        Some(option) => Err(LayoutError::WorldOfEachNode {
            nodes: layout.nodes,
            launcher: name,
            option,
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
