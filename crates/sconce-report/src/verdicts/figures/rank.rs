//! Figures of a process that trains, and of what may grow in it.

use sconce_schema::Bytes;

use super::{FigureSet, RuleSubject, kept, of, run};
use crate::collectives::{
    CollectiveWaits, a_step, fsdp_counters, missing_rank_count, others_waited_us, own_of,
};
use crate::model::{GpuReport, RunReport};
use crate::stats::median;
use crate::training::{GrowthMetric, RankReport};

pub(super) fn compute_figures(run: &FigureSet, rank: &RankReport, report: &RunReport) -> FigureSet {
    let mut figures = run.under(RuleSubject::Rank, Some(rank.name()));
    let it = &mut figures;
    let times = rank.step_times;
    it.count("steps", Some(rank.steps as f64));
    let evaluated = rank.evaluation.map_or(0, |evaluation| evaluation.batches);
    it.count("evaluated", Some(evaluated as f64));
    it.time(
        "step-mean",
        times
            .map(|times| times.mean_us)
            .or_else(|| rank.mean_step()),
    );
    it.time("step-median", times.map(|times| times.median_us));
    it.time("step-p95", times.map(|times| times.p95_us));
    phases(it, rank);
    loader(it, rank);
    settings(it, rank);
    card(it, rank, report);
    exchange(it, rank, &report.training);
    behind(it, rank, &report.training);
    late(it, rank, &report.training);
    figures
}

fn phases(it: &mut FigureSet, rank: &RankReport) {
    let Some(step) = rank.mean_step() else {
        return;
    };
    let share = |name: &str| rank.mean_phase(name).and_then(|us| of(us, step));
    // The share and the mean are of the same steps.
    let data = rank.data_share.or_else(|| share("data"));
    let mean = it.get("step-mean").and_then(super::FigureValue::as_number);
    it.share("data-share", data);
    it.time(
        "data-time",
        data.zip(mean).map(|(share, mean)| share * mean),
    );
    it.share("copy-share", share("copy"));
    it.time("copy-time", rank.mean_phase("copy"));
    it.share("forward-share", share("forward"));
    it.share("backward-share", share("backward"));
    it.share("optimizer-share", share("optimizer"));
    it.share("other-share", share("other"));
    let compute = ["forward", "backward", "optimizer"].map(|name| share(name).unwrap_or(0.0));
    it.share("compute-share", Some(compute.iter().sum()));
    let (Some(card), Some(steps)) = (rank.on_card, rank.on_card_steps.filter(|steps| *steps > 0))
    else {
        return;
    };
    let per_step = |us: u64| us as f64 / steps as f64;
    let host = rank
        .mean_phase("forward")
        .zip(rank.mean_phase("backward"))
        .map(|(f, b)| f + b);
    let device = per_step(card.forward_us.saturating_add(card.backward_us));
    it.share("host-over-card", host.and_then(|host| of(host, device)));
    it.share("copy-on-card-share", of(per_step(card.copy_us), step));
}

fn loader(it: &mut FigureSet, rank: &RankReport) {
    if let Some(loader) = rank.loader {
        it.count("batches", Some(loader.batches as f64));
        let empty = loader
            .empty
            .and_then(|empty| of(empty as f64, loader.batches as f64));
        it.share("empty-share", empty);
        let per_step = of(loader.batches as f64, rank.steps as f64);
        let data = it.get("data-time").and_then(super::FigureValue::as_number);
        it.time(
            "batch-time",
            data.zip(per_step).and_then(|(data, n)| of(data, n)),
        );
    }
    it.flag("quick-to-load", is_quick_to_load(it));
    let setup = rank.setup.as_ref().and_then(|setup| setup.loader.as_ref());
    it.text("wait", Some(wait(it, setup.map(|loader| loader.workers))));
    if let Some(loader) = setup {
        let workers = f64::from(loader.workers);
        it.count("workers", Some(workers));
        it.count("prefetch", loader.prefetch.map(f64::from));
        it.flag("pinned", Some(loader.pinned));
        it.flag("persistent", Some(loader.persistent));
        // The free CPUs are those of all ranks.
        let number =
            |it: &FigureSet, name: &str| it.get(name).and_then(super::FigureValue::as_number);
        let free = number(it, "cores-free").zip(number(it, "ranks"));
        let more = free
            .and_then(|(free, ranks)| of(free.floor(), ranks))
            .map(f64::floor);
        it.count(
            "workers-more",
            more.filter(|more| *more >= 1.0).map(|more| workers + more),
        );
        // All of the run used less than half of what the workers alone could: they mostly wait.
        let used = number(it, "cores-used").zip(number(it, "ranks"));
        let waiting = used.is_some_and(|(used, ranks)| used < workers * ranks / 2.0);
        it.flag("workers-wait", (workers >= 1.0).then_some(waiting));
        it.count(
            "workers-double",
            (waiting && workers <= 64.0).then_some(workers * 2.0),
        );
    }
}

/// What a batch costs the process that trains when a worker hands it over, at most, µs. Measured with
/// batches of 16 rows on two cores: 1.4 to 2.2 ms (decision 061). What takes less to load gains
/// nothing from workers.
const HANDED_OVER_US: f64 = 2_000.0;

/// What a wait for data is: more workers shorten the wait for what is loaded, and lengthen the wait for
/// what stands ready, as every batch is handed over by them.
///
/// Workers that cannot keep up end their batches in bursts, one burst a round: of N of them the first alone is waited
/// for, and N - 1 batches in N stand ready when they are asked for. So what was not ready counts N times.
fn wait(it: &FigureSet, workers: Option<u32>) -> &'static str {
    let less = |name: &str, than: f64| {
        let number = it.get(name).and_then(super::FigureValue::as_number);
        number.is_some_and(|number| number < than)
    };
    match workers {
        Some(0) if less("batch-time", HANDED_OVER_US) => "quick",
        Some(workers @ 1..) if less("empty-share", 0.5 / f64::from(workers)) => "handing over",
        _ => "loading",
    }
}

/// A batch that takes less to be taken from a worker is a small one, however many CPUs the run uses, µs.
const SMALL_BATCH_US: f64 = 5_000.0;

/// Whether the process that trains would load a batch in less time than it takes to take one from a worker.
///
/// What the run computes beyond one CPU a process that trains is its workers' work, packing included. Where that
/// is a smaller share of the time than the wait is, loading is; on a busy machine the wait may then be
/// of any length. What workers spend waiting for a disk is no work, and the process would wait for it itself.
fn is_quick_to_load(it: &FigureSet) -> Option<bool> {
    let number = |name: &str| it.get(name).and_then(super::FigureValue::as_number);
    let per_rank = number("cores-used")
        .zip(number("ranks"))
        .and_then(|(cores, ranks)| of(cores, ranks));
    let little_work = per_rank
        .zip(number("data-share"))
        .map(|(cores, waited)| cores - 1.0 < waited);
    let reads = number("io-stall-share").is_some_and(|share| share >= 0.1);
    let small = number("batch-time").map(|time| time < SMALL_BATCH_US);
    match (small, little_work) {
        (Some(true), _) => Some(true),
        (_, Some(little)) => Some(little && !reads),
        (small, None) => small,
    }
}

fn settings(it: &mut FigureSet, rank: &RankReport) {
    let Some(setup) = &rank.setup else {
        return;
    };
    it.text("autocast", setup.autocast.as_deref());
    it.text("dtype", setup.dtype.as_deref());
    it.text("allocator", setup.allocator.as_deref());
    it.flag("compiled", setup.compiled);
    it.flag("cudnn-benchmark", setup.cudnn_benchmark);
    it.flag("convolutions", setup.convolutions);
    it.flag("fixed-shapes", setup.fixed_shapes);
    // What is not distributed tells no number of ranks.
    it.count("world-size", Some(f64::from(setup.world_size.unwrap_or(1))));
}

/// The first 15 bytes of the UUID that a virtual card tells PyTorch; the last is its index.
const VIRTUAL: &str = "73636f6e-6365-2076-6972-7475616c20";

/// Whether a record's card is the one of that UUID. Records call virtual cards `virtual-0` and so on.
fn is(card: &str, uuid: &str) -> bool {
    // PyTorch leaves the `GPU-` out.
    let uuid = uuid.trim_start_matches("GPU-");
    match card.strip_prefix("virtual-") {
        Some(index) => {
            let of = uuid.strip_prefix(VIRTUAL);
            of.and_then(|last| u8::from_str_radix(last, 16).ok())
                .is_some_and(|last| index.parse() == Ok(last))
        }
        None => card.trim_start_matches("GPU-") == uuid,
    }
}

/// The card that it uses: the one that it named, or the only one.
fn card_of<'a>(rank: &RankReport, report: &'a RunReport) -> Option<&'a GpuReport> {
    let uuid = rank.setup.as_ref().and_then(|setup| setup.card.as_deref());
    match (uuid, report.cards.as_slice()) {
        (Some(uuid), cards) => cards.iter().find(|card| is(&card.summary.uuid, uuid)),
        (None, [card]) if rank.card_memory.is_some() => Some(card),
        _ => None,
    }
}

/// What gradients are exchanged with: of `cpu:gloo,cuda:nccl` the one for where they are.
fn backend_of(all: &str, on_card: bool) -> &str {
    let device = if on_card { "cuda" } else { "cpu" };
    let mut pairs = all.split(',').filter_map(|one| one.split_once(':'));
    pairs
        .find(|pair| pair.0 == device)
        .map_or(all, |pair| pair.1)
}

fn card(it: &mut FigureSet, rank: &RankReport, report: &RunReport) {
    let float = |bytes: Bytes| bytes.0 as f64;
    let named = rank
        .setup
        .as_ref()
        .is_some_and(|setup| setup.card.is_some());
    let on_card = named || rank.card_memory.is_some();
    it.flag("on-card", Some(on_card));
    let backend = rank
        .setup
        .as_ref()
        .and_then(|setup| setup.backend.as_deref());
    it.text("backend", backend.map(|all| backend_of(all, on_card)));
    let card = card_of(rank, report);
    let total = card.and_then(|card| card.summary.memory).map(float);
    it.text("card-name", card.map(|card| card.summary.name.as_str()));
    it.share(
        "card-utilisation",
        card.and_then(|card| card.utilisation_mean),
    );
    it.share(
        "card-not-busy",
        card.and_then(|card| card.utilisation_mean)
            .map(|busy| 1.0 - busy),
    );
    it.bytes("card-total", total);
    it.bytes("context-memory", rank.context_memory.map(float));
    let Some(memory) = rank.card_memory else {
        return;
    };
    let (allocated, reserved) = (float(memory.allocated_peak), float(memory.reserved_peak));
    it.bytes("allocated-peak", Some(allocated));
    it.bytes("reserved-peak", Some(reserved));
    it.share(
        "reserved-card-share",
        total.and_then(|total| of(reserved, total)),
    );
    it.bytes("unused", Some((reserved - allocated).max(0.0)));
    it.share(
        "unused-share",
        of((reserved - allocated).max(0.0), reserved),
    );
    it.bytes("inactive-split", Some(float(memory.inactive_split)));
    it.count("retries", Some(memory.retries as f64));
}

fn exchange(it: &mut FigureSet, rank: &RankReport, all: &[RankReport]) {
    let (Some(exchange), Some(waits)) = (rank.exchange, CollectiveWaits::for_rank(rank, all))
    else {
        return;
    };
    it.count(
        "ranks-unseen",
        missing_rank_count(rank, all).map(|unseen| unseen as f64),
    );
    it.flag("sharded", Some(exchange.sharded_steps.is_some()));
    let sharded = fsdp_counters(rank).unwrap_or_default();
    let mean = |us: Option<u64>| a_step(&sharded, us);
    it.time("all-gather", mean(sharded.all_gather_us));
    it.time("all-gather-exposed", mean(sharded.all_gather_exposed_us));
    it.time("reduce-scatter", mean(sharded.reduce_scatter_us));
    it.time(
        "reduce-scatter-exposed",
        mean(sharded.reduce_scatter_exposed_us),
    );
    it.time("communication", waits.communication_us);
    it.time("exposed-all", waits.exposed_us);
    // The exchange waits for the slowest rank; that is another verdict's.
    it.time("rank-wait", waits.for_ranks_us.filter(|us| *us > 0.0));
    let exposed = waits.itself_us();
    it.time("exposed", exposed);
    let share = exposed
        .zip(rank.mean_step())
        .and_then(|(exposed, step)| of(exposed, step));
    it.share("exposed-share", share.map(|share| share.min(1.0)));
}

fn behind(it: &mut FigureSet, rank: &RankReport, all: &[RankReport]) {
    let others: Vec<&RankReport> = (all.iter())
        .filter(|other| other.pid != rank.pid && other.rank.is_some() && other.group == rank.group)
        .filter(|other| other.steps >= 50)
        .collect();
    if rank.rank.is_none() || others.is_empty() {
        return;
    }
    let middle = |of: &dyn Fn(&RankReport) -> Option<f64>| {
        median(others.iter().filter_map(|rank| of(rank)).collect())
    };
    let own = own_of(rank);
    let (Some(mine), Some(theirs), Some(step)) = (own(rank), middle(&own), rank.mean_step()) else {
        return;
    };
    let behind = (mine - theirs).max(0.0);
    it.time("behind", Some(behind));
    it.share("behind-share", of(behind, step));
    let longer = ["data", "copy", "forward", "optimizer", "other"].map(|name| {
        let others = middle(&|rank: &RankReport| rank.mean_phase(name)).unwrap_or(0.0);
        (name, rank.mean_phase(name).unwrap_or(0.0) - others)
    });
    // Sharded ranks wait for others in the forward pass too: there the slow one's is no longer than theirs.
    let most = longer.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    if let Some((name, us)) = most.filter(|(_, us)| *us >= behind / 2.0) {
        it.text(
            "behind-phase",
            Some(if name == "data" {
                "waiting for data"
            } else {
                name
            }),
        );
        it.time("behind-phase-time", Some(us.max(0.0)));
    }
}

/// What makes the others wait at exchanges and is in no phase but the backward pass, of which no figure tells
/// whose time is whose.
fn late(it: &mut FigureSet, rank: &RankReport, all: &[RankReport]) {
    let number = |it: &FigureSet, name: &str| it.get(name).and_then(super::FigureValue::as_number);
    let (Some(others), Some(own)) = (others_waited_us(rank, all), number(it, "exposed-all")) else {
        return;
    };
    let behind = number(it, "behind").unwrap_or(0.0);
    let late = (others - own - behind).max(0.0);
    it.time("others-wait", Some(others));
    it.time("late", Some(late));
    it.share("late-wait-share", of(late, others));
    let share = rank.mean_step().and_then(|step| of(late, step));
    it.share("late-share", share.map(|share| share.min(1.0)));
}

/// One subject for each figure that was watched.
pub(super) fn compute_growth_figures(
    of_rank: &FigureSet,
    rank: &RankReport,
    report: &RunReport,
) -> Vec<FigureSet> {
    let allocated = rank
        .growth
        .iter()
        .find(|growth| growth.of == GrowthMetric::Allocated);
    // A heap that grows is why the resident set does, and tells its rate better.
    let heap = (rank.growth.iter()).find(|it| it.of == GrowthMetric::Heap && it.trend.grows);
    let name = (report.training.len() > 1).then(|| rank.name());
    (rank.growth.iter())
        .map(|growth| {
            let mut figures = of_rank.under(RuleSubject::Growth, name.clone());
            let it = &mut figures;
            let trend = growth.trend;
            it.text("growing", Some(growth.of.label()));
            it.flag("grows", Some(trend.grows));
            it.count("watched", Some(trend.steps() as f64));
            it.flag(
                "allocated-grows",
                allocated.map(|growth| growth.trend.grows),
            );
            let grown = allocated.map(|growth| growth.trend);
            let grown = grown
                .filter(|trend| trend.grows)
                .map(|trend| trend.total_growth());
            it.bytes("allocated-grown", grown);
            if growth.of == GrowthMetric::Rss {
                it.bytes("heap-grown", heap.map(|heap| heap.trend.total_growth()));
            }
            let rate = (growth.of != GrowthMetric::Blocks).then_some(trend.slope);
            if let Some(setup) = &rank.setup
                && trend.grows
            {
                kept::add_figures(it, &setup.kept, rate);
            }
            if growth.of == GrowthMetric::Blocks {
                it.count("block-rate", Some(trend.slope));
                it.count("blocks-grown", Some(trend.total_growth()));
                return figures;
            }
            it.bytes("rate", Some(trend.slope));
            it.bytes("rate-low", Some(trend.low));
            it.bytes("rate-high", Some(trend.high));
            it.bytes("grown", Some(trend.total_growth()));
            it.share("grown-share", of(trend.total_growth(), growth.last));
            it.bytes("last", Some(growth.last));
            let (limit, used) = match growth.of {
                // Others of the run hold memory too: what is left is less than the limit without this one.
                GrowthMetric::Rss | GrowthMetric::Heap => {
                    let used = report
                        .memory
                        .peak
                        .map_or(growth.last, |peak| peak.value.0 as f64);
                    (run::memory_limit(report), used.max(growth.last))
                }
                _ => {
                    let card = card_of(rank, report);
                    let all = card
                        .and_then(|card| card.memory_peak_all)
                        .map(|peak| peak.value.0 as f64);
                    let reserved = rank
                        .card_memory
                        .map_or(0.0, |memory| memory.reserved.0 as f64);
                    // What the allocator reserved and does not use is left to it too.
                    let used =
                        all.map_or(growth.last, |all| growth.last + (all - reserved).max(0.0));
                    (
                        card.and_then(|card| card.summary.memory)
                            .map(|all| all.0 as f64),
                        used,
                    )
                }
            };
            it.bytes("limit", limit);
            let left = limit.map(|limit| (limit - used).max(0.0));
            let steps = left
                .and_then(|left| of(left, trend.slope))
                .filter(|steps| *steps >= 0.0);
            it.count("limit-steps", steps);
            let step = rank.step_times.map(|times| times.mean_us);
            it.time(
                "limit-time",
                steps.zip(step).map(|(steps, step)| steps * step),
            );
            figures
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{backend_of, is};

    #[test]
    fn a_virtual_card_is_known_by_its_index() {
        let uuid = "GPU-73636f6e-6365-2076-6972-7475616c200b";
        assert!(is("virtual-11", uuid) && is("GPU-0a1b", "0a1b"));
        assert!(!is("virtual-1", uuid) && !is("virtual-11", "GPU-0a1b"));
        assert!(!is("virtual-", "GPU-73636f6e-6365-2076-6972-7475616c20"));
        assert!(!is("GPU-0a1b", "GPU-0a1c"));
    }

    #[test]
    fn a_backend_is_that_of_the_device() {
        assert_eq!(backend_of("cpu:gloo,cuda:nccl", true), "nccl");
        assert_eq!(backend_of("cpu:gloo,cuda:nccl", false), "gloo");
        assert_eq!(backend_of("nccl", false), "nccl");
        assert_eq!(backend_of("cpu:gloo", true), "cpu:gloo");
    }
}
