//! Training and verdicts.

use sconce_schema::Bytes;
use sconce_schema::training::{GpuAllocatorCounters, GpuOutOfMemory, PhaseTimes, TrainingSetup};
use serde::Serialize;

use super::seconds;
use crate::collectives::CollectiveWaits;
use crate::training::{GrowthReport, RankReport, StepTimeStats};
use crate::verdict::Verdict;

#[derive(Serialize)]
pub(super) struct RankShape<'a> {
    pid: u32,
    rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<u32>,
    setup: Option<SetupShape<'a>>,
    steps: u64,
    wall_seconds: f64,
    phases: PhasesShape,
    on_card: Option<PhasesShape>,
    on_card_steps: Option<u64>,
    step_time: Option<StepTimeShape>,
    data_share: Option<f64>,
    steps_per_second: Option<f64>,
    samples_per_step: Option<f64>,
    samples_per_second: Option<f64>,
    tokens_per_second: Option<f64>,
    flops_per_second: Option<f64>,
    model_flops_utilization: Option<f64>,
    loader: Option<LoaderShape>,
    evaluation: Option<EvaluationShape>,
    card_memory: Option<CardMemoryShape>,
    context_memory_bytes: Option<Bytes>,
    exchange: Option<ExchangeShape>,
    growth: Vec<GrowthShape>,
}

#[derive(Serialize)]
struct SetupShape<'a> {
    python: &'a str,
    torch: &'a str,
    card: Option<&'a str>,
    model: Option<&'a str>,
    modules: Option<u64>,
    parameters: Option<u64>,
    optimizers: &'a [String],
    world_size: Option<u32>,
    backend: Option<&'a str>,
    autocast: Option<&'a str>,
    dtype: Option<&'a str>,
    compiled: Option<bool>,
    cudnn_benchmark: Option<bool>,
    convolutions: Option<bool>,
    fixed_shapes: Option<bool>,
    flops_per_step: Option<u64>,
    flops: Option<FlopsShape>,
    flops_without: &'a [String],
    no_flops: Option<&'a str>,
    peak: Option<PeakShape<'a>>,
    allocator: Option<&'a str>,
    workers: Option<u32>,
    prefetch: Option<u32>,
    pinned: Option<bool>,
    persistent: Option<bool>,
    batch: Option<u64>,
}

#[derive(Serialize)]
struct FlopsShape {
    half: u64,
    tf32: u64,
    single: u64,
    other: u64,
}

#[derive(Serialize)]
struct PeakShape<'a> {
    card: &'a str,
    half_per_second: f64,
    tf32_per_second: f64,
    single_per_second: f64,
}

#[derive(Serialize)]
struct PhasesShape {
    data_seconds: f64,
    copy_seconds: Option<f64>,
    forward_seconds: f64,
    backward_seconds: f64,
    optimizer_seconds: f64,
    other_seconds: f64,
}

#[derive(Serialize)]
struct StepTimeShape {
    mean_seconds: f64,
    median_seconds: f64,
    lower_quartile_seconds: f64,
    upper_quartile_seconds: f64,
    p95_seconds: f64,
    sampled_steps: usize,
}

#[derive(Serialize)]
struct LoaderShape {
    batches: u64,
    empty: Option<u64>,
    ready: Option<u32>,
}

#[derive(Serialize)]
struct EvaluationShape {
    batches: u64,
    wall_seconds: f64,
}

#[derive(Serialize)]
struct CardMemoryShape {
    device: u32,
    allocated_bytes: Bytes,
    allocated_peak_bytes: Bytes,
    reserved_bytes: Bytes,
    reserved_peak_bytes: Bytes,
    inactive_split_bytes: Bytes,
    blocks: u64,
    allocations: u64,
    retries: u64,
    ooms: u64,
}

#[derive(Serialize)]
struct ExchangeShape {
    communication_seconds_per_step: Option<f64>,
    exposed_seconds_per_step: Option<f64>,
    /// What nothing hid in all of a mean step, FSDP's with it: these two add up to it.
    waited_for_ranks_seconds_per_step: Option<f64>,
    waited_for_exchange_seconds_per_step: Option<f64>,
    sharded_steps: Option<u64>,
    all_gather_seconds: Option<f64>,
    all_gather_exposed_seconds: Option<f64>,
    reduce_scatter_seconds: Option<f64>,
    reduce_scatter_exposed_seconds: Option<f64>,
}

/// Bytes a step, or blocks a step.
#[derive(Serialize)]
struct GrowthShape {
    of: &'static str,
    per_step: f64,
    per_step_low: f64,
    per_step_high: f64,
    watched_steps: u64,
    last: f64,
    grows: bool,
}

impl<'a> RankShape<'a> {
    pub(super) fn from_rank(rank: &'a RankReport, all: &[RankReport]) -> Self {
        let waits = CollectiveWaits::for_rank(rank, all);
        let waited = |of: fn(&CollectiveWaits) -> Option<f64>| Some(of(waits.as_ref()?)? / 1e6);
        Self {
            pid: rank.pid,
            rank: rank.rank,
            group: rank.group,
            cell: rank.cell,
            setup: rank.setup.as_ref().map(setup),
            steps: rank.steps,
            wall_seconds: seconds(rank.wall_us),
            phases: phases(&rank.phases),
            on_card: rank.on_card.as_ref().map(phases),
            on_card_steps: rank.on_card_steps,
            step_time: rank.step_times.as_ref().map(step_time),
            data_share: rank.data_share,
            steps_per_second: rank.steps_per_s(),
            samples_per_step: rank.samples_per_step(),
            samples_per_second: rank.samples_per_s(),
            tokens_per_second: rank.tokens_per_s(),
            flops_per_second: rank.flops_per_s(),
            model_flops_utilization: rank.utilization(),
            loader: rank.loader.map(|loader| LoaderShape {
                batches: loader.batches,
                empty: loader.empty,
                ready: loader.ready,
            }),
            evaluation: rank.evaluation.map(|evaluation| EvaluationShape {
                batches: evaluation.batches,
                wall_seconds: seconds(evaluation.wall_us),
            }),
            card_memory: rank.card_memory.as_ref().map(card_memory),
            context_memory_bytes: rank.context_memory,
            exchange: rank.exchange.map(|exchange| ExchangeShape {
                communication_seconds_per_step: exchange.communication_us.map(seconds),
                exposed_seconds_per_step: exchange.exposed_us.map(seconds),
                waited_for_ranks_seconds_per_step: waited(|waits| waits.for_ranks_us),
                waited_for_exchange_seconds_per_step: waited(CollectiveWaits::itself_us),
                sharded_steps: exchange.sharded_steps,
                all_gather_seconds: exchange.all_gather_us.map(seconds),
                all_gather_exposed_seconds: exchange.all_gather_exposed_us.map(seconds),
                reduce_scatter_seconds: exchange.reduce_scatter_us.map(seconds),
                reduce_scatter_exposed_seconds: exchange.reduce_scatter_exposed_us.map(seconds),
            }),
            growth: rank.growth.iter().map(growth).collect(),
        }
    }
}

fn setup(setup: &TrainingSetup) -> SetupShape<'_> {
    let loader = setup.loader.as_ref();
    SetupShape {
        python: &setup.python,
        torch: &setup.torch,
        card: setup.card.as_deref(),
        model: setup.model.as_deref(),
        modules: setup.modules,
        parameters: setup.parameters,
        optimizers: &setup.optimizers,
        world_size: setup.world_size,
        backend: setup.backend.as_deref(),
        autocast: setup.autocast.as_deref(),
        dtype: setup.dtype.as_deref(),
        compiled: setup.compiled,
        cudnn_benchmark: setup.cudnn_benchmark,
        convolutions: setup.convolutions,
        fixed_shapes: setup.fixed_shapes,
        flops_per_step: setup.flops_per_step,
        flops: setup.flops.map(|flops| FlopsShape {
            half: flops.half,
            tf32: flops.tf32,
            single: flops.single,
            other: flops.other,
        }),
        flops_without: &setup.flops_without,
        no_flops: setup.no_flops.as_deref(),
        peak: setup.peak.as_ref().map(|peak| PeakShape {
            card: &peak.card,
            half_per_second: peak.half_per_s,
            tf32_per_second: peak.tf32_per_s,
            single_per_second: peak.single_per_s,
        }),
        allocator: setup.allocator.as_deref(),
        workers: loader.map(|loader| loader.workers),
        prefetch: loader.and_then(|loader| loader.prefetch),
        pinned: loader.map(|loader| loader.pinned),
        persistent: loader.map(|loader| loader.persistent),
        batch: loader.and_then(|loader| loader.batch),
    }
}

fn phases(phases: &PhaseTimes) -> PhasesShape {
    PhasesShape {
        data_seconds: seconds(phases.data_us),
        copy_seconds: (phases.copy_us > 0).then(|| seconds(phases.copy_us)),
        forward_seconds: seconds(phases.forward_us),
        backward_seconds: seconds(phases.backward_us),
        optimizer_seconds: seconds(phases.optimizer_us),
        other_seconds: seconds(phases.other_us),
    }
}

fn step_time(times: &StepTimeStats) -> StepTimeShape {
    StepTimeShape {
        mean_seconds: times.mean_us / 1e6,
        median_seconds: times.median_us / 1e6,
        lower_quartile_seconds: times.lower_quartile_us / 1e6,
        upper_quartile_seconds: times.upper_quartile_us / 1e6,
        p95_seconds: times.p95_us / 1e6,
        sampled_steps: times.of,
    }
}

fn card_memory(memory: &GpuAllocatorCounters) -> CardMemoryShape {
    CardMemoryShape {
        device: memory.device,
        allocated_bytes: memory.allocated,
        allocated_peak_bytes: memory.allocated_peak,
        reserved_bytes: memory.reserved,
        reserved_peak_bytes: memory.reserved_peak,
        inactive_split_bytes: memory.inactive_split,
        blocks: memory.blocks,
        allocations: memory.allocations,
        retries: memory.retries,
        ooms: memory.ooms,
    }
}

fn growth(growth: &GrowthReport) -> GrowthShape {
    GrowthShape {
        of: growth.of.label(),
        per_step: growth.trend.slope,
        per_step_low: growth.trend.low,
        per_step_high: growth.trend.high,
        watched_steps: growth.trend.steps(),
        last: growth.last,
        grows: growth.trend.grows,
    }
}

#[derive(Serialize)]
pub(super) struct GpuOutOfMemoryShape<'a> {
    pid: u32,
    rank: Option<u32>,
    device: u32,
    step: u64,
    phase: Option<&'a str>,
    asked_bytes: Option<Bytes>,
    free_bytes: Option<Bytes>,
    total_bytes: Option<Bytes>,
    memory: Option<CardMemoryShape>,
    message: Option<&'a str>,
    stack: &'a [String],
    holders: Vec<HolderShape<'a>>,
    snapshot: Option<&'a str>,
    no_snapshot: Option<&'a str>,
}

#[derive(Serialize)]
struct HolderShape<'a> {
    bytes: Bytes,
    blocks: u64,
    stack: &'a [String],
    tensor: Option<&'a str>,
}

impl<'a> GpuOutOfMemoryShape<'a> {
    pub(super) fn from_out_of_memory(told: &'a GpuOutOfMemory) -> Self {
        Self {
            pid: told.pid,
            rank: told.rank,
            device: told.device,
            step: told.step,
            phase: told.phase.as_deref(),
            asked_bytes: told.asked,
            free_bytes: told.free,
            total_bytes: told.total,
            memory: told.memory.as_ref().map(card_memory),
            message: told.message.as_deref(),
            stack: &told.stack,
            holders: (told.holders.iter())
                .map(|holder| HolderShape {
                    bytes: holder.bytes,
                    blocks: holder.blocks,
                    stack: &holder.stack,
                    tensor: holder.tensor.as_deref(),
                })
                .collect(),
            snapshot: told.snapshot.as_deref(),
            no_snapshot: told.no_snapshot.as_deref(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct VerdictShape<'a> {
    rule: &'a str,
    /// `fatal`, `costly` or `note`.
    weight: &'static str,
    title: &'a str,
    evidence: &'a [String],
    gain: Option<&'a str>,
    gain_share: Option<f64>,
    mends: &'a [String],
}

impl<'a> VerdictShape<'a> {
    pub(super) fn from_verdict(verdict: &'a Verdict) -> Self {
        Self {
            rule: &verdict.rule,
            weight: verdict.weight.label(),
            title: &verdict.title,
            evidence: &verdict.evidence,
            gain: verdict.gain.as_deref(),
            gain_share: verdict.gain_share,
            mends: &verdict.mends,
        }
    }
}
