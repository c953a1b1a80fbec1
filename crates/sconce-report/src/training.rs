//! The part of the view model that is about training: what each process that trains did.

use sconce_schema::Bytes;
use sconce_schema::training::{
    CollectiveTimes, DataLoaderCounters, EvaluationCounters, GpuAllocatorCounters, PhaseTimes,
    TrainingSample, TrainingSetup, TrainingStep,
};

use crate::stats::growth::Trend;

/// One process that trains. `None` is "not measured" everywhere.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RankReport {
    /// The process, in the host's numbering.
    pub pid: u32,
    /// Its rank among all that train together.
    pub rank: Option<u32>,
    /// Which of several groups of ranks it belongs to, from 2; absent in the first.
    pub group: Option<u32>,
    /// In a notebook: the cell that trained, by the number beside it.
    pub cell: Option<u32>,
    /// What it is made of, as last told.
    pub setup: Option<TrainingSetup>,
    /// Steps that ended.
    pub steps: u64,
    /// Their time, µs.
    pub wall_us: u64,
    /// Where that time went.
    pub phases: PhaseTimes,
    /// The same without the beginning (the first reading with 10 steps or more), where at least 20
    /// steps came after it.
    pub steady: Option<SteadyPhases>,
    /// Time by phase on the card, of [`RankReport::on_card_steps`] steps.
    pub on_card: Option<PhaseTimes>,
    /// Steps that were timed on the card.
    pub on_card_steps: Option<u64>,
    /// Rows of batches.
    pub samples: Option<u64>,
    /// Token ids.
    pub tokens: Option<u64>,
    /// The loader, as last told.
    pub loader: Option<DataLoaderCounters>,
    /// Loops that train nothing.
    pub evaluation: Option<EvaluationCounters>,
    /// The allocator, as last told; its peaks are the highest that were told.
    pub card_memory: Option<GpuAllocatorCounters>,
    /// What NVML counts for the process beyond what the allocator reserved: the CUDA context, and what
    /// libraries take by themselves; of the last reading with both.
    pub context_memory: Option<Bytes>,
    /// What ranks exchanged, as last told.
    pub exchange: Option<CollectiveTimes>,
    /// How long steps took.
    pub step_times: Option<StepTimeStats>,
    /// The share of a mean step that waited for data, 0 to 1: of [`RankReport::steady`]; in a run too short for
    /// that, of [`RankReport::sampled`] without the first ten steps.
    pub data_share: Option<f64>,
    /// Up to 2048 steps, evenly over the run, oldest first.
    pub sampled: Vec<TrainingStep>,
    /// Figures that may grow from step to step, where there are enough steps.
    pub growth: Vec<GrowthReport>,
}

/// Time by phase of a part of the steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteadyPhases {
    /// How many steps.
    pub steps: u64,
    /// Their time by phase.
    pub phases: PhaseTimes,
    /// FSDP's exchange in those of them that were timed. DDP's figures are means of all steps, and not here.
    pub exchange: Option<CollectiveTimes>,
}

/// How long steps took: of [`RankReport::sampled`] without the first ten steps, where there are more than
/// twenty. The mean is of [`RankReport::steady`] where that is there, which has every step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimeStats {
    /// Without the beginning of the run, µs.
    pub mean_us: f64,
    /// µs.
    pub median_us: f64,
    /// A quarter of the steps took less, µs.
    pub lower_quartile_us: f64,
    /// A quarter of the steps took more, µs.
    pub upper_quartile_us: f64,
    /// One step of twenty took more, µs.
    pub p95_us: f64,
    /// From how many steps the middle and the edges are.
    pub of: usize,
}

/// A figure that may grow from step to step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GrowthReport {
    /// Which.
    pub of: GrowthMetric,
    /// How it went, bytes (or blocks) a step.
    pub trend: Trend,
    /// What it was last.
    pub last: f64,
}

/// What may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrowthMetric {
    /// The process's resident set.
    Rss,
    /// What malloc has given out and not got back: tensors on the CPU among it.
    Heap,
    /// Allocated memory of the card.
    Allocated,
    /// Reserved memory of the card.
    Reserved,
    /// Blocks in use on the card.
    Blocks,
}

impl GrowthMetric {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Rss,
        Self::Heap,
        Self::Allocated,
        Self::Reserved,
        Self::Blocks,
    ];

    /// The name for programs.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::Heap => "heap",
            Self::Allocated => "allocated",
            Self::Reserved => "reserved",
            Self::Blocks => "blocks",
        }
    }
}

impl RankReport {
    pub(crate) fn new(training: &TrainingSample) -> Self {
        Self {
            pid: training.pid,
            cell: training.cell,
            ..Self::default()
        }
    }

    /// As [`sconce_schema::training::format_process_label`].
    #[must_use]
    pub fn name(&self) -> String {
        sconce_schema::training::format_process_label(self.rank, self.group, self.pid, self.cell)
    }

    /// Each phase and its share of a mean step's time, 0 to 1, in the order of a step: of
    /// [`RankReport::mean_phases`]. Empty where no time was told.
    #[must_use]
    pub fn phase_shares(&self) -> Vec<(&'static str, f64)> {
        compute_phase_shares(&self.steady.map_or(self.phases, |steady| steady.phases))
    }

    /// Time of steps that no phase accounts for (or, negative, that phases have too much), as a share of
    /// [`RankReport::wall_us`].
    #[must_use]
    pub fn unaccounted_share(&self) -> Option<f64> {
        let wall_us = self.wall_us as f64;
        (self.wall_us > 0).then(|| (wall_us - self.phases.sum_us() as f64) / wall_us)
    }

    /// Steps a second.
    #[must_use]
    pub fn steps_per_s(&self) -> Option<f64> {
        self.per_s(Some(self.steps))
    }

    /// Rows of batches a second of training steps.
    #[must_use]
    pub fn samples_per_s(&self) -> Option<f64> {
        self.per_s(self.samples)
    }

    /// Rows of batches in a mean step: all that were accumulated for it.
    #[must_use]
    pub fn samples_per_step(&self) -> Option<f64> {
        let samples = self.samples.filter(|_| self.steps > 0)?;
        Some(samples as f64 / self.steps as f64)
    }

    /// Token ids a second of training steps.
    #[must_use]
    pub fn tokens_per_s(&self) -> Option<f64> {
        self.per_s(self.tokens)
    }

    /// Floating point operations a second in the step in the middle; at least so many where calls
    /// without a formula were seen.
    #[must_use]
    pub fn flops_per_s(&self) -> Option<f64> {
        let flops = self.setup.as_ref()?.flops_per_step?;
        Some(flops as f64 / self.middle_s()?)
    }

    /// The share of the step in the middle that its operations would take at the card's peak rates,
    /// recomputed ones too. Above 1 it is no share, and not told.
    #[must_use]
    pub fn utilization(&self) -> Option<f64> {
        let setup = self.setup.as_ref()?;
        let least = setup.peak.as_ref()?.time_s(setup.flops.as_ref()?)?;
        Some(least / self.middle_s()?).filter(|share| *share <= 1.0)
    }

    fn middle_s(&self) -> Option<f64> {
        let middle = self.step_times?.median_us / 1e6;
        (middle > 0.0).then_some(middle)
    }

    fn per_s(&self, many: Option<u64>) -> Option<f64> {
        let many = many.filter(|_| self.wall_us > 0)?;
        Some(many as f64 * 1e6 / self.wall_us as f64)
    }

    /// A mean step without the beginning of the run, µs.
    pub(crate) fn mean_step(&self) -> Option<f64> {
        let sum: f64 = self.mean_phases().iter().map(|(_, us)| us).sum();
        Some(sum).filter(|sum| *sum > 0.0)
    }

    /// One phase of it, µs.
    pub(crate) fn mean_phase(&self, name: &str) -> Option<f64> {
        let phases = self.mean_phases();
        phases.iter().find(|it| it.0 == name).map(|it| it.1)
    }

    /// As [`RankReport::mean_phases`], without what was not seen: no copies were found is not that there were
    /// none.
    #[must_use]
    pub fn seen_phases(&self) -> Vec<(&'static str, f64)> {
        let mut phases = self.mean_phases();
        phases.retain(|(name, us)| *name != "copy" || *us > 0.0);
        phases
    }

    /// Time by phase of a mean step without the beginning of the run, µs; of all steps where the run was
    /// too short for that.
    #[must_use]
    pub fn mean_phases(&self) -> Vec<(&'static str, f64)> {
        let (steps, phases) = match self.steady {
            Some(steady) => (steady.steps, steady.phases),
            None => (self.steps, self.phases),
        };
        if steps == 0 {
            return Vec::new();
        }
        (phases.by_name().into_iter())
            .map(|(name, us)| (name, us as f64 / steps as f64))
            .collect()
    }
}

/// Each phase's share.
pub(crate) fn compute_phase_shares(phases: &PhaseTimes) -> Vec<(&'static str, f64)> {
    let sum = phases.sum_us() as f64;
    if sum <= 0.0 {
        return Vec::new();
    }
    (phases.by_name().into_iter())
        .map(|(name, us)| (name, us as f64 / sum))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sconce_schema::training::{Operations, RatedThroughput};

    fn rank(half: u64, single: u64, peak: Option<RatedThroughput>) -> RankReport {
        RankReport {
            setup: Some(TrainingSetup {
                flops_per_step: Some(half + single),
                flops: Some(Operations {
                    half,
                    single,
                    ..Operations::default()
                }),
                peak,
                ..TrainingSetup::default()
            }),
            step_times: Some(StepTimeStats {
                mean_us: 9e6,
                median_us: 2e6,
                lower_quartile_us: 2e6,
                upper_quartile_us: 2e6,
                p95_us: 2e6,
                of: 30,
            }),
            ..RankReport::default()
        }
    }

    #[test]
    fn a_share_of_the_peak_needs_a_peak_and_steps() {
        let peak = RatedThroughput {
            card: "A100".to_owned(),
            half_per_s: 1000.0,
            tf32_per_s: 500.0,
            single_per_s: 100.0,
        };
        // 0.5 s of half and 0.5 s of single in 2 s.
        let mixed = rank(500, 50, Some(peak.clone()));
        assert_eq!(mixed.flops_per_s(), Some(275.0));
        assert_eq!(mixed.utilization(), Some(0.5));
        // On a CPU.
        assert_eq!(rank(500, 50, None).flops_per_s(), Some(275.0));
        assert_eq!(rank(500, 50, None).utilization(), None);
        // More than all is no share.
        assert_eq!(rank(9000, 0, Some(peak.clone())).utilization(), None);
        let without_steps = RankReport {
            step_times: None,
            ..mixed
        };
        assert_eq!(without_steps.flops_per_s(), None);
        assert_eq!(without_steps.utilization(), None);
        assert_eq!(RankReport::default().flops_per_s(), None);
    }

    #[test]
    fn samples_of_a_step_are_all_that_were_accumulated() {
        let rank = |steps, samples| RankReport {
            steps,
            samples,
            ..RankReport::default()
        };
        assert_eq!(rank(4, Some(128)).samples_per_step(), Some(32.0));
        assert_eq!(rank(0, Some(128)).samples_per_step(), None);
        assert_eq!(rank(4, None).samples_per_step(), None);
    }
}
