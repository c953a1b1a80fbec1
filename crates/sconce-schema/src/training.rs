//! What a training process does, step by step, as the probe inside it tells.
//!
//! A step ends where an optimizer's step ended and the next batch, forward pass or step begins; what
//! lies between two ends belongs to the later step. Times are the host's unless said otherwise: work on
//! a card goes on while the host is further on.

use serde::{Deserialize, Serialize, Serializer};

use crate::units::Bytes;

/// What one process did so far. Counters are cumulative since the process began; what was not seen is
/// absent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct TrainingSample {
    /// The process, in the host's numbering.
    pub pid: u32,
    /// Its rank among all that train together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Which of several groups of ranks it belongs to, from 2; absent in the first. Two processes of one
    /// time never have the same rank (or none) and group: two launchers in one run each have a rank 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// In a notebook: the cell that trained, by the number beside it. Each cell's counters are its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// Steps that ended.
    pub steps: u64,
    /// Their time, µs: from the end of the step before to their own.
    pub wall_us: u64,
    /// Where it went; sums to [`TrainingSample::wall_us`].
    pub phases: PhaseTimes,
    /// The phases of [`TrainingSample::on_card_steps`] steps on the card, by CUDA events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_card: Option<PhaseTimes>,
    /// Steps whose events were all there when they were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_card_steps: Option<u64>,
    /// Rows of the batches of these steps, where batches have a first dimension in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Elements of integer inputs of two dimensions (token ids).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Floating point operations of one of these steps, where they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_step: Option<u64>,
    /// The process's loader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loader: Option<DataLoaderCounters>,
    /// Batches under `no_grad` without an optimizer step after them, and their time; not in
    /// [`TrainingSample::wall_us`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub evaluation: Option<EvaluationCounters>,
    /// PyTorch's allocator on the process's current card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_memory: Option<GpuAllocatorCounters>,
    /// What ranks exchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange: Option<CollectiveTimes>,
    /// The phase in which the process was at the reading, as in [`PhaseTimes::by_name`]; after its end, that in
    /// which it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Some of the steps since the last reading, oldest first: all of a process's first 2048 steps, then
    /// fewer and fewer, and four of each reading at least.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<TrainingStep>,
    /// Of those in [`TrainingSample::recent`], where it was read: the step's number, and what malloc had given out
    /// and not got back at its end.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heap: Vec<(u64, Bytes)>,
}

impl TrainingSample {
    /// What it is called: see [`format_process_label`].
    #[must_use]
    pub fn process_label(&self) -> String {
        format_process_label(self.rank, self.group, self.pid, self.cell)
    }
}

/// `rank 3`, `rank 3 of group 2`, or `process 4123` where it has no rank, `process 4123, cell 5` in a
/// notebook.
#[must_use]
pub fn format_process_label(
    rank: Option<u32>,
    group: Option<u32>,
    pid: u32,
    cell: Option<u32>,
) -> String {
    match (rank, group, cell) {
        (Some(rank), None, _) => format!("rank {rank}"),
        (Some(rank), Some(group), _) => format!("rank {rank} of group {group}"),
        (None, _, None) => format!("process {pid}"),
        (None, _, Some(cell)) => format!("process {pid}, cell {cell}"),
    }
}

/// Time by phase, µs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct PhaseTimes {
    /// Waiting for the loader's next batch.
    pub data_us: u64,
    /// Sending batches to a card, where that is seen; 0 where it is not.
    pub copy_us: u64,
    /// Outermost modules' forward passes.
    pub forward_us: u64,
    /// `backward`, `autograd.grad`.
    pub backward_us: u64,
    /// Optimizers' steps.
    pub optimizer_us: u64,
    /// Everything else of a step.
    pub other_us: u64,
}

impl PhaseTimes {
    /// All of it, µs.
    #[must_use]
    pub fn sum_us(&self) -> u64 {
        self.by_name()
            .iter()
            .fold(0, |sum: u64, (_, us)| sum.saturating_add(*us))
    }

    /// As [`PhaseTimes::by_name`], without what was not seen: no copies were found is not that there were none.
    pub fn measured_phases(&self) -> impl Iterator<Item = (&'static str, u64)> {
        (self.by_name().into_iter()).filter(|(name, us)| *name != "copy" || *us > 0)
    }

    /// Each phase with its name.
    #[must_use]
    pub fn by_name(&self) -> [(&'static str, u64); 6] {
        [
            ("data", self.data_us),
            ("copy", self.copy_us),
            ("forward", self.forward_us),
            ("backward", self.backward_us),
            ("optimizer", self.optimizer_us),
            ("other", self.other_us),
        ]
    }
}

/// A loader with workers, or without.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct DataLoaderCounters {
    /// Batches taken.
    pub batches: u64,
    /// Batches for which none stood ready when they were asked for; of a loader with workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub empty: Option<u64>,
    /// Batches that stood ready at the last one's taking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<u32>,
}

/// Loops that train nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct EvaluationCounters {
    /// Forward passes.
    pub batches: u64,
    /// Their time and that of what lies between them, µs.
    pub wall_us: u64,
}

/// PyTorch's counters of one card's memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GpuAllocatorCounters {
    /// The card's index among those that the process sees.
    pub device: u32,
    /// `allocated_bytes.all.current`.
    pub allocated: Bytes,
    /// `allocated_bytes.all.peak`.
    pub allocated_peak: Bytes,
    /// `reserved_bytes.all.current`.
    pub reserved: Bytes,
    /// `reserved_bytes.all.peak`.
    pub reserved_peak: Bytes,
    /// `inactive_split_bytes.all.current`.
    pub inactive_split: Bytes,
    /// `allocation.all.current`: tensors' blocks that are in use.
    pub blocks: u64,
    /// `allocation.all.allocated`: calls so far.
    pub allocations: u64,
    /// `num_alloc_retries`.
    pub retries: u64,
    /// `num_ooms`.
    pub ooms: u64,
}

/// What ranks exchange in DDP and FSDP. DDP measures some of its iterations: the figures are of those.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct CollectiveTimes {
    /// Of a mean measured iteration of DDP: communication, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communication_us: Option<u64>,
    /// The part of it that nothing else hid, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exposed_us: Option<u64>,
    /// Steps that the following figures of FSDP are of: all with an exchange on the host, some on a card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sharded_steps: Option<u64>,
    /// FSDP's all-gathers in these steps, µs: on the host, or on a card by CUDA events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_gather_us: Option<u64>,
    /// The part of them that no computation hid, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_gather_exposed_us: Option<u64>,
    /// FSDP's reduce-scatters in these steps, µs, as the all-gathers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduce_scatter_us: Option<u64>,
    /// The part of them that no computation hid, µs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reduce_scatter_exposed_us: Option<u64>,
}

/// One step. It is written as a list of these figures in this order, `null` for what is not known, because
/// a record holds a great many; an object is read as well.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct TrainingStep {
    /// Its number, from 1.
    pub step: u64,
    /// When it ended, µs since the run began.
    pub t_us: u64,
    /// Its time, µs.
    pub wall_us: u64,
    /// Of it, waiting for data, µs.
    pub data_us: u64,
    /// The process's resident set at its end.
    pub rss: Option<Bytes>,
    /// Allocated on the card at its end.
    pub allocated: Option<Bytes>,
    /// Reserved on the card at its end.
    pub reserved: Option<Bytes>,
    /// Blocks in use on the card at its end.
    pub blocks: Option<u64>,
}

impl Serialize for TrainingStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self {
            step,
            t_us,
            wall_us,
            data_us,
            rss,
            allocated,
            reserved,
            blocks,
        } = *self;
        (
            step, t_us, wall_us, data_us, rss, allocated, reserved, blocks,
        )
            .serialize(serializer)
    }
}

/// What a training process is made of; told once there is a first step, and again when it changes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct TrainingSetup {
    /// The process, in the host's numbering.
    pub pid: u32,
    /// As [`TrainingSample::cell`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cell: Option<u32>,
    /// Its rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// How many ranks there are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// What they exchange with, as PyTorch names it: `nccl`, `gloo`, `cpu:gloo,cuda:nccl`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Python's version.
    pub python: String,
    /// PyTorch's version.
    pub torch: String,
    /// The UUID of the card that it uses first, where it uses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// The outermost module's class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Its modules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<u64>,
    /// Its parameters' elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<u64>,
    /// Classes of the optimizers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optimizers: Vec<String>,
    /// The loader's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loader: Option<DataLoaderSetup>,
    /// The dtype of autocast in the forward pass; absent without autocast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub autocast: Option<String>,
    /// The dtype of the parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dtype: Option<String>,
    /// Whether `torch.compile` made the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compiled: Option<bool>,
    /// `torch.backends.cudnn.benchmark`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cudnn_benchmark: Option<bool>,
    /// Whether the model has convolutions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convolutions: Option<bool>,
    /// Whether every batch so far had the same shapes, but for a shorter one in eight at most, as the last of
    /// an epoch is; and what modules were called with in the first steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed_shapes: Option<bool>,
    /// Floating point operations of one step, by PyTorch's own formulas, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops_per_step: Option<u64>,
    /// The same by what they were made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flops: Option<Operations>,
    /// Calls that may be products and have no formula: operations are at least so many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flops_without: Vec<String>,
    /// Why operations that were asked for were not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_flops: Option<String>,
    /// What the card could do, where the program that recorded the run knew it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak: Option<RatedThroughput>,
    /// `PYTORCH_ALLOC_CONF` or its older name, as it was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocator: Option<String>,
    /// What the program keeps more and more of, where that was asked for and found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<LeakCandidate>,
}

/// Something that grew from step to step: a container of the program's, a graph behind a variable, or blocks
/// on the card by the frames that asked for them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct LeakCandidate {
    /// The variable or attribute that it is; absent where none was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The function, module or class whose that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// The lines that add to it, `FILE:LINE TEXT`; of blocks the frames, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub adds: Vec<String>,
    /// What most of its elements are: `float32[8, 4]`, `dict`.
    pub holds: String,
    /// Elements that it had more at last than when it was first seen; 0 of blocks.
    pub grown: u64,
    /// Steps between.
    pub steps: u64,
    /// About the bytes of these elements, without what hangs on them by a graph.
    pub bytes: Bytes,
    /// Whether a tensor in it hangs on a graph, which then stays with all that it needs.
    pub graph: bool,
}

/// Floating point operations by what they are made with; a product of two numbers and its sum are two.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Operations {
    /// fp16 and bf16.
    pub half: u64,
    /// fp32, where the program allows tf32; cards without it take [`Operations::single`]'s rate.
    pub tf32: u64,
    /// fp32.
    pub single: u64,
    /// What no rate is known of: fp64, fp8, complex numbers.
    pub other: u64,
}

/// The most operations a second that a card can do, by the data sheet, without sparsity.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct RatedThroughput {
    /// The card whose figures these are, with its form where forms differ.
    pub card: String,
    /// fp16 and bf16 with sums in fp32, operations a second.
    pub half_per_s: f64,
    /// tf32, operations a second.
    pub tf32_per_s: f64,
    /// fp32, operations a second.
    pub single_per_s: f64,
}

impl RatedThroughput {
    /// The time that `operations` would take at these rates, seconds. `None` where a rate is not known
    /// or no time at all.
    #[must_use]
    pub fn time_s(&self, operations: &Operations) -> Option<f64> {
        let Operations {
            half,
            tf32,
            single,
            other,
        } = *operations;
        if other > 0 {
            return None;
        }
        let parts = [
            (half, self.half_per_s),
            (tf32, self.tf32_per_s),
            (single, self.single_per_s),
        ];
        let time = (parts.into_iter())
            .filter(|(count, _)| *count > 0)
            .map(|(count, rate)| count as f64 / rate)
            .sum::<f64>();
        (time.is_finite() && time > 0.0).then_some(time)
    }
}

/// How a loader was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct DataLoaderSetup {
    /// `num_workers`.
    pub workers: u32,
    /// `prefetch_factor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<u32>,
    /// `pin_memory`.
    pub pinned: bool,
    /// `persistent_workers`.
    pub persistent: bool,
    /// `batch_size`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<u64>,
}

/// A card's memory ran out, as PyTorch told the process.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct GpuOutOfMemory {
    /// The process, in the host's numbering.
    pub pid: u32,
    /// Its rank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// The card's index among those that the process sees.
    pub device: u32,
    /// The step in which it was, from 1.
    pub step: u64,
    /// The phase in which it was, as in [`PhaseTimes::by_name`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<Bytes>,
    /// What the card had left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<Bytes>,
    /// The card's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Bytes>,
    /// The allocator then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<GpuAllocatorCounters>,
    /// PyTorch's text, cut at 4 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where the asking was: the program's frames, innermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// Who held the most, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holders: Vec<MemoryHolder>,
    /// PyTorch's snapshot, a file in the record's folder, for `sconce memory report`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    /// Why there is no snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_snapshot: Option<String>,
}

/// Blocks that came from one place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct MemoryHolder {
    /// Their bytes.
    pub bytes: Bytes,
    /// How many.
    pub blocks: u64,
    /// The program's frames, innermost first: `train.py:12 forward`. Empty where no history was recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<String>,
    /// Shape and dtype where no frame is known: `float32[64, 3, 224, 224]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_list_and_may_be_an_object() {
        let step = TrainingStep {
            step: 3,
            t_us: 9,
            wall_us: 5,
            data_us: 1,
            rss: None,
            allocated: Some(Bytes(7)),
            reserved: None,
            blocks: Some(2),
        };
        let text = serde_json::to_string(&step).unwrap();
        assert_eq!(text, "[3,9,5,1,null,7,null,2]");
        assert_eq!(serde_json::from_str::<TrainingStep>(&text).unwrap(), step);
        let object = r#"{"step":3,"t-us":9,"wall-us":5,"data-us":1,"allocated":7,"blocks":2}"#;
        assert_eq!(serde_json::from_str::<TrainingStep>(object).unwrap(), step);
    }

    #[test]
    fn a_peak_gives_the_least_time_of_operations() {
        let peak = RatedThroughput {
            card: "H100".to_owned(),
            half_per_s: 1000.0,
            tf32_per_s: 500.0,
            single_per_s: 0.0,
        };
        let mut operations = Operations {
            half: 2000,
            tf32: 500,
            ..Operations::default()
        };
        assert_eq!(peak.time_s(&operations), Some(3.0));
        assert_eq!(peak.time_s(&Operations::default()), None);
        // A rate that is not one, and a kind without any.
        operations.single = 1;
        assert_eq!(peak.time_s(&operations), None);
        operations.single = 0;
        operations.other = 1;
        assert_eq!(peak.time_s(&operations), None);
    }
}
