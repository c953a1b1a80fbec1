//! What the probe saw of one process: `fit.json`, which `python/sconce_probe/fit.py` writes.

use std::collections::BTreeMap;

use sconce_schema::{Hint, exit};
use serde::{Deserialize, Serialize};

use super::work::WorkItem;
use crate::analysis::ForwardFunction;
use crate::analysis::purpose::{LiveStorage, OptimizerStep, Purpose};

/// The format that is known.
pub const FORMAT: u32 = 1;

/// What ended the watching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObservationEnd {
    /// The optimizer took its steps.
    Steps,
    /// The program ended.
    Exit,
    /// The time was up.
    Time,
}

/// The error that ended a program.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProgramError {
    /// Python's name of it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its text.
    pub message: String,
    /// Whether it is the card's memory that ran out.
    pub out_of_memory: bool,
}

/// A card, as the process had it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObservedGpu {
    /// Its name.
    pub name: String,
    /// Bytes of it.
    pub total_bytes: u64,
    /// Bytes that are neither free nor PyTorch's: the context, buffers of libraries.
    pub outside_bytes: i64,
    /// NCCL's communicators with other ranks.
    #[serde(default)]
    pub communicators: u64,
    /// What of the bytes outside was taken for their buffers.
    #[serde(default)]
    pub nccl_bytes: u64,
    /// `torch.cuda.memory_stats`.
    pub stats: BTreeMap<String, i64>,
}

impl ObservedGpu {
    /// A counter; absent where this version of PyTorch has none of that name.
    #[must_use]
    pub fn stat_value(&self, name: &str) -> Option<u64> {
        self.stats
            .get(name)
            .and_then(|&value| value.try_into().ok())
    }
}

/// One step of an optimizer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObservedStep {
    /// Number of the optimizer, from 0.
    pub optimizer: usize,
    /// When it was at work.
    #[serde(flatten)]
    pub step: OptimizerStep,
    /// The cards at its end.
    #[serde(default)]
    pub devices: Vec<ObservedStepGpu>,
}

/// A card at the end of a step.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObservedStepGpu {
    /// All that was asked for until then, bytes.
    pub requested_bytes: Option<u64>,
    /// What tensors have then, bytes.
    #[serde(default)]
    pub allocated_bytes: Option<u64>,
    /// The most that they had until then, bytes.
    #[serde(default)]
    pub allocated_peak_bytes: Option<u64>,
}

/// What a loader gave.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ObservedBatches {
    /// Elements of a batch, as it was made; absent where something else decides.
    pub batch_size: Option<u64>,
    /// How many it gave.
    pub batches: u64,
    /// The different shapes of the tensors of a batch.
    pub shapes: Vec<Vec<Vec<u64>>>,
}

/// A line that evaluates and was not reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct UnreachedEvaluation {
    /// Where.
    #[serde(flatten)]
    pub at: SourceLine,
    /// Whether it records no gradients, keeps nothing, and has batches that are no larger.
    pub bounded: bool,
    /// Its text.
    pub code: String,
}

/// What became of other values than zeros.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SubstitutionReport {
    /// Lines that went on to ask, in a loop.
    pub endless: Vec<SourceLine>,
    /// The line that was last told something else than zero.
    pub last: Option<SourceLine>,
}

/// What a line does with a value of the card that it reads, as far as its syntax tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ValueUse {
    /// A tensor is as large as values say, or taken by an index.
    Size,
    /// What runs next hangs on it.
    Branch,
    /// Not known: it may be printed alone.
    Value,
}

/// A line of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct SourceLine {
    /// File, as the interpreter names it.
    pub file: String,
    /// Number, from 1.
    pub line: u32,
}

/// A line that read what a real card would have computed: zeros here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ValueRead {
    /// Where.
    #[serde(flatten)]
    pub at: SourceLine,
    /// What is done with it.
    #[serde(rename = "use")]
    pub done: ValueUse,
    /// How often it read.
    pub times: u64,
    /// The script's own line that called it, where it is of a library.
    pub by: Option<SourceLine>,
    /// Its text; empty where that is not known.
    pub code: String,
    /// It is written down and nothing else: in a call of `print` or a logger.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shown: bool,
    /// What reads, as far as that is known: `nonzero`, `unique`, `bool`, `number`, `copy`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub operation: String,
}

/// What the probe saw of one process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ProbeReport {
    format: u32,
    /// PyTorch's version.
    pub torch: String,
    /// The CUDA that it was built for.
    pub cuda: Option<String>,
    /// Python's version.
    pub python: String,
    /// What ended the watching.
    pub ended: ObservationEnd,
    /// Steps that were waited for.
    pub wanted_steps: usize,
    /// Steps that were taken.
    pub steps: Vec<ObservedStep>,
    /// How many optimizers took them.
    pub optimizers: usize,
    /// Whether the program used a card.
    pub used_cuda: bool,
    /// What ended the program.
    pub error: Option<ProgramError>,
    /// The cards.
    pub devices: Vec<ObservedGpu>,
    /// Live objects: what, card, address, bytes.
    holds: Vec<(Purpose, usize, u64, u64)>,
    /// Plans of cuDNN that were carried out: convolutions and attention.
    #[serde(default)]
    pub dnn_plans: u64,
    /// Of them, those whose workspace cuDNN itself could not be asked for.
    #[serde(default)]
    pub dnn_modelled: u64,
    /// The largest workspace of them, in bytes.
    #[serde(default)]
    pub dnn_workspace_bytes: u64,
    /// Times that recurrent networks of cuDNN were carried out, whose sizes are modelled.
    #[serde(default)]
    pub dnn_recurrent: u64,
    /// Sends, receives and all-to-alls of NCCL, whose buffers are not modelled.
    #[serde(default)]
    pub pairs: u64,
    /// What was asked of the virtual card that it does not know.
    #[serde(default)]
    pub unknown: Vec<String>,
    /// What became of the plans that were asked for.
    #[serde(default)]
    pub plan: Option<AppliedPlans>,
    /// Calls of one step.
    #[serde(default)]
    pub work: Vec<WorkItem>,
    /// Packages that some plans need and are there.
    #[serde(default)]
    pub installed: Vec<String>,
    /// Modules that may be imported before other trials of the program, in their order.
    #[serde(default)]
    pub imported: Vec<String>,
    /// The code of its modules' forward passes.
    #[serde(default)]
    pub forwards: Vec<ForwardFunction>,
    /// Lines that read values of the virtual card, those that do most with them first.
    #[serde(default)]
    pub reads: Vec<ValueRead>,
    /// Reads of values by threads that are not watched.
    #[serde(default)]
    pub reads_elsewhere: u64,
    /// What became of other values than zeros, in trials with some.
    #[serde(default)]
    pub answers: Option<SubstitutionReport>,
    /// What loaders gave.
    #[serde(default)]
    pub batches: Vec<ObservedBatches>,
    /// Lines that evaluate and were not reached.
    #[serde(default)]
    pub later: Vec<UnreachedEvaluation>,
    /// Whether something of it is compiled.
    #[serde(default)]
    pub compiled: bool,
}

/// What became of plans in a process.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AppliedPlans {
    /// Counts of what was changed: `blocks` is how many can be checkpointed.
    #[serde(default)]
    pub notes: BTreeMap<String, u32>,
    /// Plans that were not applied, and why.
    #[serde(default)]
    pub problems: Vec<(String, String)>,
}

impl ProbeReport {
    /// Reads what the probe wrote.
    ///
    /// # Errors
    /// [`ProbeReportError`]: it is something else, or of another version.
    pub fn parse(text: &str) -> Result<Self, ProbeReportError> {
        let seen: Self = serde_json::from_str(text)?;
        match seen.format {
            FORMAT => Ok(seen),
            format => Err(ProbeReportError::Format { format }),
        }
    }

    /// Live objects on a card.
    #[must_use]
    pub fn live_storages(&self, device: usize) -> Vec<LiveStorage> {
        let of_it = self.holds.iter().filter(|(_, on, ..)| *on == device);
        let holds = of_it.map(|&(purpose, _, address, _)| LiveStorage { purpose, address });
        holds.collect()
    }

    /// When the optimizers were at work, in order.
    #[must_use]
    pub fn optimizer_steps(&self) -> Vec<OptimizerStep> {
        self.steps.iter().map(|one| one.step).collect()
    }

    /// The card with the most of PyTorch's memory.
    #[must_use]
    pub fn fullest_gpu(&self) -> Option<(usize, &ObservedGpu)> {
        let devices = self.devices.iter().enumerate();
        // Of equal ones the first.
        devices
            .rev()
            .max_by_key(|(_, device)| device.stat_value(super::RESERVED))
    }

    /// Steps that the busiest optimizer took.
    #[must_use]
    pub fn step_count(&self) -> usize {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for step in &self.steps {
            *counts.entry(step.optimizer).or_default() += 1;
        }
        counts.into_values().max().unwrap_or(0)
    }
}

/// Why what the probe wrote was not read.
#[derive(Debug, thiserror::Error)]
pub enum ProbeReportError {
    /// It is no JSON of this kind.
    #[error("what the probe wrote is not understood")]
    Json(#[from] serde_json::Error),
    /// It is of another version.
    #[error("what the probe wrote has format {format}, and {FORMAT} is known")]
    Format {
        /// The version.
        format: u32,
    },
}

impl Hint for ProbeReportError {
    fn hint(&self) -> Option<String> {
        None
    }

    fn exit_code(&self) -> u8 {
        exit::BAD_INPUT
    }
}
