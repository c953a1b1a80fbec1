//! Whether a training run fits on a card: a few of its steps, carried out on a virtual one, and what
//! is said of them.

pub mod inconclusive;
pub mod probe_report;
pub mod search;
pub mod table;
pub mod training_plan;
pub mod values;
pub mod work;

use serde::{Deserialize, Serialize};

use crate::analysis::purpose::{PeakInstant, at_peak};
use crate::snapshot::Snapshot;
use probe_report::{
    ObservationEnd, ObservedGpu, ProbeReport, UnreachedEvaluation, ValueRead, ValueUse,
};
use table::PlanTable;
use values::{SubstituteValues, UnboundedReason, ValueTrial};

/// Version of the written forecast.
pub const VERSION: u32 = 1;
/// The counter of `torch.cuda.memory_stats` that has what tensors had at most.
pub const ALLOCATED: &str = "allocated_bytes.all.peak";
/// The counter that has what the allocator had at most.
pub const RESERVED: &str = "reserved_bytes.all.peak";

/// A card that is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuBudget {
    /// Its name.
    pub name: String,
    /// What CUDA reports as its total.
    pub total_bytes: u64,
    /// What a context takes, at most or as reported.
    pub context_bytes: u64,
    /// Whether that was reported for this card; otherwise it is the most that was of any.
    pub context_reported: bool,
    /// What NCCL's buffers of one communicator take, at the least.
    pub nccl_least_bytes: u64,
}

/// Whether it fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FitOutcome {
    /// All steps ran.
    Fits,
    /// All steps ran, but PyTorch had to give cached memory back in between, or requests failed and
    /// the program went on.
    Tight,
    /// The card's memory ran out.
    DoesNotFit,
    /// What was watched fits, or may; whether the run does cannot be known from it.
    NotKnown,
}

/// Why whether a run fits cannot be known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum InconclusiveReason {
    /// What it takes of memory hangs on values of the card.
    Values {
        /// Why no bounds are known.
        #[serde(flatten)]
        why: UnboundedReason,
        /// The lines that it hangs on.
        lines: Vec<ValueRead>,
        /// What was tried.
        with: Vec<ValueTrial>,
    },
    /// Batches have several shapes: whether the largest was watched is not known.
    Shapes {
        /// The shapes of the tensors of the largest batch that was watched.
        largest: Vec<Vec<u64>>,
        /// All that were.
        shapes: Vec<Vec<Vec<u64>>>,
    },
    /// Steps ask for different amounts.
    #[serde(rename_all = "kebab-case")]
    Sizes {
        /// The least in a step, bytes.
        least_bytes: u64,
        /// The most.
        most_bytes: u64,
    },
    /// What the run has of the card grows with each step that was watched.
    #[serde(rename_all = "kebab-case")]
    Growth {
        /// By how much a step, bytes.
        step_bytes: u64,
        /// After about how many more steps the card is full.
        steps_left: u64,
    },
    /// Code that evaluates, or computes otherwise, comes after the last watched step.
    Later {
        /// The lines that begin it.
        lines: Vec<UnreachedEvaluation>,
    },
}

/// What is said of one card.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GpuForecast {
    /// Its name.
    pub card: String,
    /// What CUDA reports as its total.
    pub total_bytes: u64,
    /// Whether it fits.
    pub verdict: FitOutcome,
    /// The most that tensors had, as PyTorch counts it. Where the card ran out of memory, as a card
    /// without end would have it; absent where that was not tried or came to nothing.
    pub allocated_bytes: Option<u64>,
    /// The most that PyTorch's allocator had of the card, likewise.
    pub reserved_bytes: Option<u64>,
    /// What the CUDA context takes, modelled.
    pub context_bytes: u64,
    /// Whether that was reported for this card; otherwise it is the most that was of any.
    pub context_reported: bool,
    /// What NCCL's buffers take; absent where there was no communicator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nccl: Option<NcclBuffers>,
    /// What else is taken outside of PyTorch's allocator.
    pub libraries_bytes: u64,
    /// Reserved, context, NCCL's buffers and libraries.
    pub on_card_bytes: Option<u64>,
    /// What is left of the card; below 0 what is missing.
    pub margin_bytes: Option<i64>,
    /// How often the allocator had to give its cache back and try again.
    pub retries: u64,
    /// Requests that failed.
    pub failed_requests: u64,
    /// The flag whose largest value that fits was looked for; all figures are those with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub varied: Option<FlagSearchResult>,
    /// The values that figures are with, where they are not zeros: those that take the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<SubstituteValues>,
    /// Why it is not known, where that is the verdict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_judged: Vec<InconclusiveReason>,
}

/// What NCCL's buffers take of a card, modelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct NcclBuffers {
    /// Communicators with other ranks.
    pub communicators: u64,
    /// What was taken for them, the most that is to be expected: it is in `on_card_bytes`.
    pub bytes: u64,
    /// The least that is to be expected.
    pub least_bytes: u64,
}

impl Forecast {
    /// Of the lines that read values those that let something hang on them.
    pub fn deciding_reads(&self) -> impl Iterator<Item = &ValueRead> {
        self.reads
            .iter()
            .filter(|read| read.done != ValueUse::Value)
    }
}

impl GpuForecast {
    /// Takes a yes back where something was not judged. What ran out of memory does not fit whatever else
    /// comes, unless it is values that are in doubt.
    pub fn apply_inconclusive_reasons(&mut self, not_judged: Vec<InconclusiveReason>) {
        let values = |one: &InconclusiveReason| matches!(one, InconclusiveReason::Values { .. });
        if self.verdict == FitOutcome::DoesNotFit && !not_judged.iter().any(values) {
            return;
        }
        if !not_judged.is_empty() {
            self.verdict = FitOutcome::NotKnown;
            self.not_judged = not_judged;
        }
    }

    /// Whether it is only as NCCL's buffers are taken at their most that it does not fit.
    #[must_use]
    pub fn hangs_on_nccl(&self) -> bool {
        let (Some(nccl), Some(margin)) = (&self.nccl, self.margin_bytes) else {
            return false;
        };
        let spare = nccl.bytes.saturating_sub(nccl.least_bytes);
        let spare = i64::try_from(spare).unwrap_or(i64::MAX);
        self.verdict == FitOutcome::DoesNotFit && margin.saturating_add(spare) >= 0
    }
}

/// A flag of the command, and the largest value of it that fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FlagSearchResult {
    /// Its name.
    pub flag: String,
    /// The largest value that fits; absent where the least does not: then figures are those of the
    /// least.
    pub largest: Option<u64>,
    /// The least value that was allowed.
    pub least: u64,
    /// The largest value that was allowed.
    pub most: u64,
}

/// What the peak of one card is made of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PeakBreakdown {
    /// The card.
    pub card: String,
    /// The card's number in the process.
    pub device: usize,
    /// What tensors had at most, with blocks rounded up.
    pub allocated_bytes: u64,
    /// What the allocator had of the card at most.
    pub reserved_bytes: u64,
    /// The moment at which the most was asked for.
    pub moment: PeakInstant,
}

/// What keeps the figures from being certain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "what")]
pub enum ForecastCaveat {
    /// Convolutions or attention of cuDNN took place: their workspaces are what cuDNN itself answered
    /// without a card, or are modelled.
    #[serde(rename_all = "kebab-case")]
    Workspaces {
        /// The largest, in bytes.
        largest_bytes: u64,
        /// Some of them are modelled.
        modelled: bool,
    },
    /// Recurrent layers of cuDNN took place, whose reserve and workspace are modelled.
    Recurrent,
    /// A context's memory is not known of this card, or of these cards.
    Context,
    /// Values are zeros: what the program decides by them is decided by zeros.
    Values,
    /// Entry points were asked that the virtual card does not know.
    Unknown {
        /// Their names.
        names: Vec<String>,
    },
    /// An evaluation comes that was not watched, and by its code needs no more than a step.
    Evaluation {
        /// The lines that begin it.
        lines: Vec<UnreachedEvaluation>,
    },
    /// Fewer steps were seen than were waited for: memory may grow after them.
    FewSteps {
        /// How many were.
        seen: usize,
    },
    /// Too few steps were run to compare any two of them: whether later ones take more was not seen.
    NothingCompared,
    /// Later steps are taken to be like those that were watched.
    LaterSteps {
        /// How many were.
        watched: usize,
    },
    /// It was one rank of a world whose other ranks were not there.
    Ranks {
        /// How many there are.
        ranks: u32,
        /// Whether single ranks were sent to, for which NCCL takes more than is in the figures.
        pairs: bool,
    },
    /// A release of PyTorch that nobody tried on the virtual card.
    Release {
        /// The release.
        torch: String,
    },
    /// Several processes used cards; this is of the one that had the most.
    Processes {
        /// How many did.
        count: usize,
    },
}

/// The forecast.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Forecast {
    /// [`VERSION`].
    pub version: u32,
    /// What was run.
    pub command: Vec<String>,
    /// PyTorch's version.
    pub torch: String,
    /// The CUDA that it was built for.
    pub cuda: Option<String>,
    /// Ranks of the world of which it was one; absent where the command was left to be its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ranks: Option<u32>,
    /// Steps that each optimizer took.
    pub steps: usize,
    /// One for each card that was asked about.
    pub cards: Vec<GpuForecast>,
    /// What the peak is made of, on one of them.
    pub made: Option<PeakBreakdown>,
    /// What keeps the figures from being certain.
    pub doubts: Vec<ForecastCaveat>,
    /// Lines that read values of the card, which are zeros here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ValueRead>,
    /// Plans that were tried, a table for each kind of card.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanTable>,
}

/// Of a trial's processes the one that tells most: most steps, then most memory.
#[must_use]
pub fn select_main_process(processes: Vec<ProbeReport>) -> Option<(usize, ProbeReport)> {
    let used = processes.iter().filter(|one| one.used_cuda).count();
    let reserved = |seen: &ProbeReport| {
        seen.fullest_gpu()
            .and_then(|(_, device)| device.stat_value(RESERVED))
    };
    let seen = processes
        .into_iter()
        .max_by_key(|seen| (seen.step_count(), seen.used_cuda, reserved(seen)))?;
    Some((used, seen))
}

/// Whether a program ended before its time as the card's memory had run out, whatever it made of the
/// error.
#[must_use]
pub fn ran_out(seen: &ProbeReport) -> bool {
    let device = seen.fullest_gpu().map(|(_, device)| device);
    let failed = device.and_then(|device| device.stat_value("num_ooms"));
    let is_it = seen.error.as_ref().is_some_and(|error| error.out_of_memory);
    seen.ended != ObservationEnd::Steps && (is_it || failed > Some(0))
}

/// Whether what a trial did fitted on its card.
#[must_use]
pub fn fit_outcome(seen: &ProbeReport) -> FitOutcome {
    let device = seen.fullest_gpu().map(|(_, device)| device);
    let count = |name: &str| {
        device
            .and_then(|device| device.stat_value(name))
            .unwrap_or(0)
    };
    if ran_out(seen) {
        FitOutcome::DoesNotFit
    } else if count("num_alloc_retries") > 0 || count("num_ooms") > 0 {
        FitOutcome::Tight
    } else {
        FitOutcome::Fits
    }
}

/// What is said of a card. `limited` is the trial on the card as it is; `unlimited` one on a card with
/// as much memory as it takes, where there was a need for it.
#[must_use]
pub fn of_card(
    card: &GpuBudget,
    limited: &ProbeReport,
    unlimited: Option<&ProbeReport>,
) -> GpuForecast {
    let on_card = limited.fullest_gpu().map(|(_, device)| device);
    let count = |name: &str| {
        on_card
            .and_then(|device| device.stat_value(name))
            .unwrap_or(0)
    };
    let (retries, failed_requests) = (count("num_alloc_retries"), count("num_ooms"));
    let verdict = fit_outcome(limited);
    // Figures of a trial that broke off are those of what came before.
    let whole = match verdict {
        FitOutcome::DoesNotFit => {
            let whole = unlimited.filter(|seen| seen.ended == ObservationEnd::Steps);
            whole
                .and_then(ProbeReport::fullest_gpu)
                .map(|(_, device)| device)
        }
        _ => on_card,
    };
    let figure = |name: &str| whole.and_then(|device| device.stat_value(name));
    let outside = |device: &ObservedGpu| u64::try_from(device.outside_bytes).unwrap_or(0);
    let outside = whole.or(on_card).map_or(card.context_bytes, outside);
    let begun = whole.or(on_card).filter(|device| device.communicators > 0);
    let nccl = begun.map(|device| NcclBuffers {
        communicators: device.communicators,
        bytes: device.nccl_bytes,
        least_bytes: card.nccl_least_bytes.saturating_mul(device.communicators),
    });
    let nccl_bytes = nccl.as_ref().map_or(0, |nccl| nccl.bytes);
    let libraries_bytes = outside
        .saturating_sub(card.context_bytes)
        .saturating_sub(nccl_bytes);
    let reserved_bytes = figure(RESERVED);
    let beside = card
        .context_bytes
        .saturating_add(nccl_bytes)
        .saturating_add(libraries_bytes);
    let on_card_bytes = reserved_bytes.map(|bytes| bytes.saturating_add(beside));
    let margin = on_card_bytes.map(|bytes| i128::from(card.total_bytes) - i128::from(bytes));
    GpuForecast {
        card: card.name.clone(),
        total_bytes: card.total_bytes,
        verdict,
        allocated_bytes: figure(ALLOCATED),
        reserved_bytes,
        context_bytes: card.context_bytes,
        context_reported: card.context_reported,
        nccl,
        libraries_bytes,
        on_card_bytes,
        margin_bytes: margin.and_then(|bytes| bytes.try_into().ok()),
        retries,
        failed_requests,
        varied: None,
        values: None,
        not_judged: Vec::new(),
    }
}

/// What the peak is made of.
#[must_use]
pub fn peak_breakdown(
    card: &GpuBudget,
    seen: &ProbeReport,
    snapshot: &Snapshot,
) -> Option<PeakBreakdown> {
    let (device, figures) = seen.fullest_gpu()?;
    let moment = at_peak(
        snapshot,
        u64::try_from(device).ok()?,
        &seen.live_storages(device),
        &seen.optimizer_steps(),
        &seen.forwards,
    )?;
    Some(PeakBreakdown {
        card: card.name.clone(),
        device,
        allocated_bytes: figures.stat_value(ALLOCATED)?,
        reserved_bytes: figures.stat_value(RESERVED)?,
        moment,
    })
}

/// Whether a release of PyTorch is one of those that the virtual card is tested with.
fn is_tried(torch: &str) -> bool {
    let mut numbers = torch.split('.').map(|number| number.parse::<u32>().ok());
    let release = (numbers.next().flatten(), numbers.next().flatten());
    matches!(release, (Some(2), Some(6..=15)))
}

/// What keeps the figures of a trial from being certain; `processes` is how many used cards, `ranks` the
/// world of which it was one rank.
#[must_use]
pub fn list_caveats(
    cards: &[GpuForecast],
    seen: &ProbeReport,
    processes: usize,
    ranks: Option<u32>,
) -> Vec<ForecastCaveat> {
    let mut doubts = Vec::new();
    if let Some(ranks) = ranks {
        let pairs = seen.pairs > 0;
        doubts.push(ForecastCaveat::Ranks { ranks, pairs });
    }
    if seen.dnn_plans > 0 {
        doubts.push(ForecastCaveat::Workspaces {
            largest_bytes: seen.dnn_workspace_bytes,
            modelled: seen.dnn_modelled > 0,
        });
    }
    if seen.dnn_recurrent > 0 {
        doubts.push(ForecastCaveat::Recurrent);
    }
    if cards.iter().any(|card| !card.context_reported) {
        doubts.push(ForecastCaveat::Context);
    }
    if !seen.unknown.is_empty() {
        let names = seen.unknown.clone();
        doubts.push(ForecastCaveat::Unknown { names });
    }
    let bounded = seen.later.iter().filter(|line| line.bounded);
    let lines: Vec<UnreachedEvaluation> = bounded.cloned().collect();
    if !lines.is_empty() && seen.ended != ObservationEnd::Exit {
        doubts.push(ForecastCaveat::Evaluation { lines });
    }
    if seen.ended != ObservationEnd::Steps && !ran_out(seen) {
        let seen = seen.step_count();
        doubts.push(ForecastCaveat::FewSteps { seen });
    }
    if seen.ended == ObservationEnd::Steps && !inconclusive::compares_steps(seen) {
        doubts.push(ForecastCaveat::NothingCompared);
    }
    if seen.ended == ObservationEnd::Steps {
        let watched = seen.step_count();
        doubts.push(ForecastCaveat::LaterSteps { watched });
    }
    if !is_tried(&seen.torch) {
        let torch = seen.torch.clone();
        doubts.push(ForecastCaveat::Release { torch });
    }
    if processes > 1 {
        doubts.push(ForecastCaveat::Processes { count: processes });
    }
    doubts.push(ForecastCaveat::Values);
    doubts
}

#[cfg(test)]
mod tests;
