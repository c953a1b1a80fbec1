//! What processes that train told, into their part of the view model.

use std::collections::BTreeSet;

use sconce_schema::Bytes;
use sconce_schema::event::Sample;
use sconce_schema::training::{
    CollectiveTimes, PhaseTimes, TrainingSample, TrainingSetup, TrainingStep,
};

use super::MAX_REPORT_ITEMS;
use crate::stats::growth::compute_trend;
use crate::stats::{quantile, sort_finite};
use crate::step_sampling::StepSampling;
use crate::training::{GrowthMetric, GrowthReport, RankReport, SteadyPhases, StepTimeStats};

/// Steps at the beginning that are not like the others: caches are cold, libraries choose kernels.
pub(crate) const WARM_UP_STEPS: u64 = 10;
/// Processes without a place that are counted.
const MAX_REFUSED_PROCESSES: usize = 1 << 20;
/// Steps that a steady part has at least.
const MIN_STEADY_STEPS: u64 = 20;

/// A process, and in a notebook the cell.
type TrainingProcessKey = (u32, Option<u32>);

#[derive(Debug, Clone, Default)]
pub(super) struct TrainingFold {
    ranks: Vec<RankFold>,
    /// Processes for which there is no room here.
    refused: BTreeSet<TrainingProcessKey>,
    /// Those that the reader had no room for, as last told.
    left_out: Option<u32>,
}

#[derive(Debug, Clone)]
struct RankFold {
    rank: RankReport,
    /// The first reading after the warm-up.
    warm: Option<(u64, PhaseTimes, Option<CollectiveTimes>)>,
    series: StepSampling,
    /// Steps with a reading of the resident set, of the heap and of the card's memory: where only some have
    /// one, steps that were chosen for their time would lose most readings.
    resident: StepSampling,
    heap: StepSampling<(u64, Bytes)>,
    on_card: StepSampling,
}

impl TrainingFold {
    pub(super) fn apply_setup(&mut self, setup: TrainingSetup) {
        if let Some(fold) = self.of((setup.pid, setup.cell)) {
            fold.rank.rank = setup.rank.or(fold.rank.rank);
            fold.rank.setup = Some(setup);
        }
    }

    pub(super) fn add_sample(&mut self, sample: &Sample) {
        self.left_out = sample.training_left_out;
        for training in &sample.training {
            if let Some(fold) = self.of((training.pid, training.cell)) {
                fold.reading(training);
                fold.context(sample);
            }
        }
    }

    /// The process's; `None` when there are too many.
    fn of(&mut self, which: TrainingProcessKey) -> Option<&mut RankFold> {
        let (pid, cell) = which;
        let is_it = |fold: &RankFold| (fold.rank.pid, fold.rank.cell) == which;
        let at = match self.ranks.iter().position(is_it) {
            Some(at) => at,
            None if self.ranks.len() < MAX_REPORT_ITEMS => {
                let training = TrainingSample {
                    pid,
                    cell,
                    ..TrainingSample::default()
                };
                self.ranks.push(RankFold {
                    rank: RankReport::new(&training),
                    warm: None,
                    series: StepSampling::default(),
                    resident: StepSampling::default(),
                    heap: StepSampling::default(),
                    on_card: StepSampling::default(),
                });
                self.ranks.len() - 1
            }
            None => {
                if self.refused.len() < MAX_REFUSED_PROCESSES {
                    self.refused.insert(which);
                }
                return None;
            }
        };
        self.ranks.get_mut(at)
    }

    /// Processes that are not among the ranks.
    pub(super) fn left_out(&self) -> Option<u32> {
        let refused = u32::try_from(self.refused.len()).unwrap_or(u32::MAX);
        let all = self.left_out.unwrap_or_default().saturating_add(refused);
        (all > 0).then_some(all)
    }

    /// By rank; of a process that did not even read a batch there is nothing to tell.
    pub(super) fn finish(self) -> Vec<RankReport> {
        let mut ranks: Vec<RankReport> = (self.ranks.into_iter())
            .map(RankFold::finish)
            .filter(|rank| {
                let read = rank.loader.is_some_and(|loader| loader.batches > 0);
                rank.steps > 0 || rank.evaluation.is_some() || rank.setup.is_some() || read
            })
            .collect();
        ranks.sort_by_key(|rank| {
            // Cells of one notebook stay together, in their order.
            let group = rank.group.filter(|_| rank.cell.is_none());
            (group, rank.rank.unwrap_or(u32::MAX), rank.pid, rank.cell)
        });
        ranks
    }
}

impl RankFold {
    fn reading(&mut self, now: &TrainingSample) {
        for step in &now.recent {
            self.series.add(step);
            if step.rss.is_some() {
                self.resident.add(step);
            }
            if step.allocated.is_some() {
                self.on_card.add(step);
            }
        }
        for one in &now.heap {
            self.heap.add(one);
        }
        let rank = &mut self.rank;
        // Counters only grow: an older reading, told again, has nothing new.
        if now.steps < rank.steps {
            return;
        }
        rank.rank = now.rank.or(rank.rank);
        rank.group = now.group;
        rank.steps = now.steps;
        rank.wall_us = now.wall_us;
        rank.phases = now.phases;
        rank.on_card = now.on_card.or(rank.on_card);
        rank.on_card_steps = now.on_card_steps.or(rank.on_card_steps);
        rank.samples = now.samples.or(rank.samples);
        rank.tokens = now.tokens.or(rank.tokens);
        rank.loader = now.loader.or(rank.loader);
        rank.evaluation = now.evaluation.or(rank.evaluation);
        rank.exchange = now.exchange.or(rank.exchange);
        if let Some(mut memory) = now.card_memory {
            if let Some(before) = rank.card_memory {
                memory.allocated_peak = memory.allocated_peak.max(before.allocated_peak);
                memory.reserved_peak = memory.reserved_peak.max(before.reserved_peak);
            }
            rank.card_memory = Some(memory);
        }
        if self.warm.is_none() && now.steps >= WARM_UP_STEPS {
            self.warm = Some((now.steps, now.phases, rank.exchange));
        }
    }

    /// NVML's figure of the process less the allocator's, where the process is on one card: the two
    /// number cards differently.
    fn context(&mut self, sample: &Sample) {
        let pid = self.rank.pid;
        let mut cards = (sample.gpus.iter()).filter_map(|card| card.memory_by_pid.get(&pid));
        if let (Some(used), None, Some(memory)) =
            (cards.next(), cards.next(), self.rank.card_memory)
            && let Some(more) = used.0.checked_sub(memory.reserved.0)
        {
            self.rank.context_memory = Some(Bytes(more));
        }
    }

    fn finish(self) -> RankReport {
        let mut rank = self.rank;
        rank.steady = self.warm.and_then(|(steps, phases, first)| {
            let steps = rank
                .steps
                .checked_sub(steps)
                .filter(|steps| *steps >= MIN_STEADY_STEPS)?;
            let phases = without(&rank.phases, &phases)?;
            let all = rank.exchange;
            let exchange = all.map(|all| sharded_since(&all, &first.unwrap_or_default()));
            Some(SteadyPhases {
                steps,
                phases,
                exchange,
            })
        });
        rank.sampled = self.series.into_steps();
        rank.step_times = step_times(&rank);
        rank.data_share = data_share(&rank);
        let (resident, on_card) = (self.resident.into_steps(), self.on_card.into_steps());
        rank.growth = growth(&resident, &self.heap.into_steps(), &on_card);
        rank
    }
}

fn without(all: &PhaseTimes, first: &PhaseTimes) -> Option<PhaseTimes> {
    Some(PhaseTimes {
        data_us: all.data_us.checked_sub(first.data_us)?,
        copy_us: all.copy_us.checked_sub(first.copy_us)?,
        forward_us: all.forward_us.checked_sub(first.forward_us)?,
        backward_us: all.backward_us.checked_sub(first.backward_us)?,
        optimizer_us: all.optimizer_us.checked_sub(first.optimizer_us)?,
        other_us: all.other_us.checked_sub(first.other_us)?,
    })
}

/// FSDP's counters since then.
fn sharded_since(all: &CollectiveTimes, first: &CollectiveTimes) -> CollectiveTimes {
    let since = |all: Option<u64>, first: Option<u64>| all?.checked_sub(first.unwrap_or(0));
    CollectiveTimes {
        sharded_steps: since(all.sharded_steps, first.sharded_steps),
        all_gather_us: since(all.all_gather_us, first.all_gather_us),
        all_gather_exposed_us: since(all.all_gather_exposed_us, first.all_gather_exposed_us),
        reduce_scatter_us: since(all.reduce_scatter_us, first.reduce_scatter_us),
        reduce_scatter_exposed_us: since(
            all.reduce_scatter_exposed_us,
            first.reduce_scatter_exposed_us,
        ),
        ..CollectiveTimes::default()
    }
}

/// Steps after the warm-up; all of them where there are few.
pub(crate) fn steps_after_warm_up(sampled: &[TrainingStep]) -> &[TrainingStep] {
    if sampled.len() <= 2 * WARM_UP_STEPS as usize {
        return sampled;
    }
    &sampled[sampled.partition_point(|step| step.step <= WARM_UP_STEPS)..]
}

fn step_times(rank: &RankReport) -> Option<StepTimeStats> {
    let steps = steps_after_warm_up(&rank.sampled);
    let times = sort_finite(steps.iter().map(|step| step.wall_us as f64).collect());
    let at = |share: f64| quantile(&times, share);
    Some(StepTimeStats {
        mean_us: mean_us(rank, &times)?,
        median_us: at(0.5)?,
        lower_quartile_us: at(0.25)?,
        upper_quartile_us: at(0.75)?,
        p95_us: at(0.95)?,
        of: times.len(),
    })
}

/// Of the steady part; in a run too short for one, of the sampled steps without the first ten.
fn mean_us(rank: &RankReport, sampled: &[f64]) -> Option<f64> {
    if let Some(steady) = rank.steady {
        return Some(steady.phases.sum_us() as f64 / steady.steps as f64);
    }
    (!sampled.is_empty()).then(|| sampled.iter().sum::<f64>() / sampled.len() as f64)
}

/// Of the same steps as [`mean_us`].
fn data_share(rank: &RankReport) -> Option<f64> {
    if let Some(steady) = rank.steady {
        let wall = steady.phases.sum_us();
        return (wall > 0).then(|| steady.phases.data_us as f64 / wall as f64);
    }
    let steps = steps_after_warm_up(&rank.sampled);
    let wall: f64 = steps.iter().map(|step| step.wall_us as f64).sum();
    let data: f64 = steps.iter().map(|step| step.data_us as f64).sum();
    (wall > 0.0).then(|| (data / wall).min(1.0))
}

fn growth(
    resident: &[TrainingStep],
    heap: &[(u64, Bytes)],
    on_card: &[TrainingStep],
) -> Vec<GrowthReport> {
    let bytes = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 as f64);
    let of_steps =
        |steps: &[TrainingStep], value: &dyn Fn(&TrainingStep) -> Option<f64>| -> Vec<(u64, f64)> {
            let each = steps.iter();
            each.filter_map(|step| Some((step.step, value(step)?)))
                .collect()
        };
    (GrowthMetric::ALL.into_iter())
        .filter_map(|of| {
            let values = match of {
                GrowthMetric::Rss => of_steps(resident, &|step| bytes(step.rss)),
                GrowthMetric::Heap => (heap.iter().map(|one| (one.0, one.1.0 as f64))).collect(),
                GrowthMetric::Allocated => of_steps(on_card, &|step| bytes(step.allocated)),
                GrowthMetric::Reserved => of_steps(on_card, &|step| bytes(step.reserved)),
                GrowthMetric::Blocks => of_steps(on_card, &|step| step.blocks.map(|it| it as f64)),
            };
            Some(GrowthReport {
                of,
                trend: compute_trend(&values)?,
                last: values.last()?.1,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_beginning_is_no_part_of_what_was_exchanged_since() {
        let at = |steps, gathered| CollectiveTimes {
            communication_us: Some(5),
            sharded_steps: Some(steps),
            all_gather_us: Some(gathered),
            ..CollectiveTimes::default()
        };
        let since = sharded_since(&at(60, 900_000), &at(10, 800_000));
        assert_eq!(since.sharded_steps, Some(50));
        assert_eq!(since.all_gather_us, Some(100_000));
        // DDP's means are of all steps, and what was never told is not 0.
        assert_eq!(
            (since.communication_us, since.reduce_scatter_us),
            (None, None)
        );
        // Nothing had been told before; and counters that went back tell nothing.
        let since = sharded_since(&at(60, 9), &CollectiveTimes::default());
        assert_eq!(
            (since.sharded_steps, since.all_gather_us),
            (Some(60), Some(9))
        );
        assert_eq!(sharded_since(&at(5, 9), &at(6, 9)).sharded_steps, None);
    }

    #[test]
    fn cells_of_one_process_are_not_mixed_up() {
        let told = |cell, steps, wall_us| TrainingSample {
            pid: 7,
            cell,
            group: cell,
            steps,
            wall_us,
            ..TrainingSample::default()
        };
        let setup = |cell, model: &str| TrainingSetup {
            pid: 7,
            cell,
            model: Some(model.to_owned()),
            ..TrainingSetup::default()
        };
        let mut fold = TrainingFold::default();
        let readings = [
            vec![told(Some(11), 40, 90)],
            vec![told(Some(3), 5, 10), told(Some(11), 40, 90)],
            vec![told(Some(3), 12, 30)],
        ];
        for training in readings {
            fold.add_sample(&Sample {
                training,
                ..Sample::default()
            });
        }
        fold.apply_setup(setup(Some(3), "A"));
        fold.apply_setup(setup(Some(11), "B"));
        let ranks = fold.finish();
        let found: Vec<_> = (ranks.iter())
            .map(|it| {
                let model = it.setup.as_ref().and_then(|it| it.model.clone());
                (it.name(), it.steps, it.wall_us, model.unwrap_or_default())
            })
            .collect();
        let of = |cell, steps, wall_us, model: &str| {
            (
                format!("process 7, cell {cell}"),
                steps,
                wall_us,
                model.to_owned(),
            )
        };
        assert_eq!(found, [of(3, 12, 30, "A"), of(11, 40, 90, "B")]);
    }
}
