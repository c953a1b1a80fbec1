//! What ranks waited for when they exchanged gradients or parameters: the exchange itself, and slower
//! ranks. One definition for the report, pages, programs and verdicts.

use sconce_schema::training::CollectiveTimes;

use crate::stats::median;
use crate::training::RankReport;

/// Steps that FSDP's exchange was timed of, for its mean to be told.
const MIN_TIMED_STEPS: u64 = 10;
/// Steps of a rank after which its mean step is compared with others'.
const MIN_COMPARED_STEPS: u64 = 50;

/// The exchange of a mean step, µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CollectiveWaits {
    /// All of it.
    pub communication_us: Option<f64>,
    /// What of it no computation hid: waited for.
    pub exposed_us: Option<f64>,
    /// What of that was waiting for a slower rank, as far as the ranks' own times tell it; `None` where
    /// no other rank has told enough steps.
    pub for_ranks_us: Option<f64>,
}

impl CollectiveWaits {
    /// Of a rank among all that the run has; `None` where it exchanged nothing.
    #[must_use]
    pub fn for_rank(rank: &RankReport, all: &[RankReport]) -> Option<Self> {
        let exchange = rank.exchange?;
        let sharded = fsdp_counters(rank).unwrap_or_default();
        let exposed_us = exposed(rank);
        Some(Self {
            communication_us: sum([
                exchange.communication_us.map(|us| us as f64),
                a_step(&sharded, sharded.all_gather_us),
                a_step(&sharded, sharded.reduce_scatter_us),
            ]),
            exposed_us,
            for_ranks_us: exposed_us.and_then(|exposed| {
                let late = [slower(rank, all), beyond_the_least(rank, all)];
                let late = late.into_iter().flatten().reduce(f64::max)?;
                Some(late.min(exposed))
            }),
        })
    }

    /// What was waited for the exchange itself.
    #[must_use]
    pub fn itself_us(&self) -> Option<f64> {
        Some((self.exposed_us? - self.for_ranks_us.unwrap_or(0.0)).max(0.0))
    }
}

/// What of a mean step was waited for at exchanges, as no computation hid it, µs.
fn exposed(rank: &RankReport) -> Option<f64> {
    let exchange = rank.exchange?;
    let sharded = fsdp_counters(rank).unwrap_or_default();
    sum([
        exchange.exposed_us.map(|us| us as f64),
        a_step(&sharded, sharded.all_gather_exposed_us),
        a_step(&sharded, sharded.reduce_scatter_exposed_us),
    ])
}

/// The ranks that a rank exchanges with, as far as they have told enough steps.
fn others<'a>(rank: &'a RankReport, all: &'a [RankReport]) -> impl Iterator<Item = &'a RankReport> {
    all.iter().filter(|other| {
        let another = (other.pid, other.cell) != (rank.pid, rank.cell);
        another
            && other.rank.is_some()
            && other.group == rank.group
            && other.steps >= MIN_COMPARED_STEPS
    })
}

/// How many ranks of its world the record does not have, or not for enough steps: those of other machines. `None`
/// where it has all, or the size of the world is not known.
pub(crate) fn missing_rank_count(rank: &RankReport, all: &[RankReport]) -> Option<u64> {
    let world = u64::from(rank.setup.as_ref()?.world_size?);
    let told = 1 + others(rank, all).count() as u64;
    world.checked_sub(told).filter(|unseen| *unseen > 0)
}

/// By how much the slowest rank's own part of a step is longer than this one's, µs.
fn slower(rank: &RankReport, all: &[RankReport]) -> Option<f64> {
    let own = own_of(rank);
    let slowest = others(rank, all).filter_map(own).reduce(f64::max)?;
    Some((slowest - own(rank)?).max(0.0))
}

/// By how much this rank waited longer than the one that waited least, µs. An exchange ends for all
/// ranks at once: whoever came last waited for the transfer alone, and the others for it too. This
/// finds a rank that is late in its backward pass, in which no other figure tells whose time is whose.
fn beyond_the_least(rank: &RankReport, all: &[RankReport]) -> Option<f64> {
    let least = others(rank, all).filter_map(exposed).reduce(f64::min)?;
    Some((exposed(rank)? - least).max(0.0))
}

/// What the other ranks waited at exchanges, in the middle of them, µs. By what this rank waited less, it came
/// later to them.
pub(crate) fn others_waited_us(rank: &RankReport, all: &[RankReport]) -> Option<f64> {
    median(others(rank, all).filter_map(exposed).collect())
}

/// FSDP's counters: without the run's beginning, as the mean step is, where enough of the rest was timed.
/// `None` where too few steps were.
pub(crate) fn fsdp_counters(rank: &RankReport) -> Option<CollectiveTimes> {
    let enough = |of: &CollectiveTimes| {
        of.sharded_steps
            .is_some_and(|steps| steps >= MIN_TIMED_STEPS)
    };
    let steady = rank.steady.and_then(|steady| steady.exchange);
    steady.filter(enough).or(rank.exchange.filter(enough))
}

/// FSDP's time in a mean step that was timed, µs.
pub(crate) fn a_step(exchange: &CollectiveTimes, us: Option<u64>) -> Option<f64> {
    Some(us? as f64 / exchange.sharded_steps.filter(|steps| *steps > 0)? as f64)
}

/// What is known of them; `None` where nothing is.
fn sum<const N: usize>(parts: [Option<f64>; N]) -> Option<f64> {
    parts.into_iter().flatten().reduce(|a, b| a + b)
}

/// What no computation hid of FSDP's exchange in a mean step, µs.
fn exposed_by_sharding(rank: &RankReport) -> Option<f64> {
    let sharded = fsdp_counters(rank)?;
    sum([
        a_step(&sharded, sharded.all_gather_exposed_us),
        a_step(&sharded, sharded.reduce_scatter_exposed_us),
    ])
}

/// What of a mean step is a rank's own, µs, told of it and of others in the same way.
pub(crate) fn own_of(rank: &RankReport) -> fn(&RankReport) -> Option<f64> {
    match exposed_by_sharding(rank) {
        Some(_) => own_of_sharded,
        None => own,
    }
}

/// A sharded rank waits for others in every pass, wherever it exchanges something.
fn own_of_sharded(rank: &RankReport) -> Option<f64> {
    Some(rank.mean_step()? - exposed_by_sharding(rank)?)
}

/// Without FSDP others are waited for in the backward pass, whose end the gradients' exchange is.
fn own(rank: &RankReport) -> Option<f64> {
    Some(rank.mean_step()? - rank.mean_phase("backward")?)
}
