//! What a card's memory is for at the peak of a training run whose live objects and steps are known.

use std::collections::HashMap;

use sconce_schema::finding::Certainty;
use serde::{Deserialize, Serialize};

use super::breakdown::{MemoryBreakdown, compute_breakdown};
use super::replay::{self, LiveBlock, LiveBlocks};
use super::source_locations::{ForwardFunction, MemoryCategory, StackIndex};
use crate::snapshot::{Snapshot, StackId, TraceAction, TraceEntry};

/// What memory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Purpose {
    /// Weights.
    Parameters,
    /// What modules keep beside them.
    Buffers,
    /// Gradients of parameters.
    Gradients,
    /// What optimizers keep from step to step.
    OptimizerState,
    /// What the forward pass makes.
    Activations,
    /// What the backward pass and optimizers need on their way.
    Temporary,
    /// Buffers of collectives and of sharding.
    Communication,
    /// Workspaces of CUDA libraries that PyTorch's allocator gave.
    Workspace,
    /// Nothing is known of it: batches, mostly.
    Other,
}

/// A storage of a live object, as the program had it when the trace ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveStorage {
    /// What the object is.
    pub purpose: Purpose,
    /// Its address on the card.
    pub address: u64,
}

/// When an optimizer was at work: microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct OptimizerStep {
    /// It began.
    pub begin_us: i64,
    /// It had ended.
    pub end_us: i64,
}

/// Where in a step a moment lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepPhase {
    /// In the forward pass.
    Forward,
    /// In the backward pass.
    Backward,
    /// In the optimizer.
    Optimizer,
    /// Somewhere else.
    Other,
}

/// Blocks of one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PurposeGroup {
    /// The purpose.
    pub purpose: Purpose,
    /// How sure that is: of live objects it is certain.
    pub certainty: Certainty,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Blocks.
    pub blocks: u64,
}

/// The moment with the most live bytes; of equal ones the last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PeakInstant {
    /// In which step it lies, from 1; absent where no step or no time was recorded.
    pub step: Option<usize>,
    /// Where in the step.
    pub phase: StepPhase,
    /// What the memory is for, the largest first.
    pub purposes: Vec<PurposeGroup>,
    /// What filled it, by stacks.
    pub filled: MemoryBreakdown,
}

/// What PyTorch keeps for cuBLAS on each handle and stream up to 2.14: `:4096:2:16:8`, and `:4096:8` on
/// compute capability 9.0 (ATen/cuda/CublasHandlePool.cpp).
const CUBLAS_BYTES: [u64; 2] = [2 * (4096 << 10) + 8 * (16 << 10), 8 * (4096 << 10)];

/// A block that is live at the moment.
#[derive(Debug, Clone, Copy)]
struct BlockLifetime {
    live: LiveBlock,
    /// When it was allocated; absent where the trace does not say.
    born_us: Option<i64>,
    /// When it was given back; absent where it still was there at the end.
    died_us: Option<i64>,
    stayed: bool,
}

/// What fills a card at the peak; modules are named by `forwards`. `None` where nothing was recorded.
#[must_use]
pub fn at_peak(
    snapshot: &Snapshot,
    device: u64,
    holds: &[LiveStorage],
    steps: &[OptimizerStep],
    forwards: &[ForwardFunction],
) -> Option<PeakInstant> {
    let trace = snapshot.trace_entries(device);
    let initial = replay::outline_trace(snapshot, device, &|_| false).initial;
    let at = last_peak(trace, &initial);
    let event = trace.get(at.checked_sub(1)?)?;
    let places = StackIndex::from_snapshot(snapshot, forwards);
    let held: HashMap<u64, Purpose> = holds.iter().map(|one| (one.address, one.purpose)).collect();
    let mut sums: HashMap<(Purpose, Certainty), (u64, u64)> = HashMap::new();
    let lived = lived(trace, &initial, at);
    for (address, block) in &lived {
        let known = held.get(address).filter(|_| block.stayed);
        let purpose = match known {
            Some(&purpose) => (purpose, Certainty::Certain),
            None => guess(
                places.stack_summary(block.live.stack).category.0,
                block,
                event.time_us(),
                steps,
            ),
        };
        let sum = sums.entry(purpose).or_default();
        *sum = (sum.0.saturating_add(block.live.size), sum.1 + 1);
    }
    let groups = sums.into_iter();
    let groups = groups.map(|((purpose, certainty), (bytes, blocks))| PurposeGroup {
        purpose,
        certainty,
        bytes,
        blocks,
    });
    let mut purposes: Vec<PurposeGroup> = groups.collect();
    purposes.sort_by_key(|one| (std::cmp::Reverse(one.bytes), one.purpose, one.certainty));
    let blocks: LiveBlocks = lived.iter().map(|(&at, one)| (at, one.live)).collect();
    let category = places.stack_summary(event.stack_id()).category.0;
    Some(PeakInstant {
        step: step_of(event.time_us(), steps),
        phase: phase(snapshot, event, category, steps),
        purposes,
        filled: compute_breakdown(snapshot, &places, &blocks),
    })
}

/// Entries until the most was live, the last time that it was as much.
fn last_peak(trace: &[TraceEntry], initial: &LiveBlocks) -> usize {
    let mut live: HashMap<u64, u64> = initial.iter().map(|(&at, one)| (at, one.size)).collect();
    let mut now: u128 = live.values().copied().map(u128::from).sum();
    let (mut most, mut at) = (now, 0);
    for (number, event) in trace.iter().enumerate() {
        match (event.action(), event.addr()) {
            (TraceAction::Alloc, Some(address)) => {
                let size = event.size().unwrap_or(0);
                let lost = live.insert(address, size).unwrap_or(0);
                now = (now + u128::from(size)).saturating_sub(lost.into());
                if now >= most {
                    (most, at) = (now, number + 1);
                }
            }
            (TraceAction::FreeCompleted, Some(address)) => {
                let size = live.remove(&address).unwrap_or(0);
                now = now.saturating_sub(size.into());
            }
            _ => {}
        }
    }
    at
}

fn lived(trace: &[TraceEntry], initial: &LiveBlocks, at: usize) -> HashMap<u64, BlockLifetime> {
    let of = |live, born_us| BlockLifetime {
        live,
        born_us,
        died_us: None,
        stayed: true,
    };
    let mut lived: HashMap<u64, BlockLifetime> = initial
        .iter()
        .map(|(&address, &live)| (address, of(live, None)))
        .collect();
    let (before, after) = trace.split_at(at.min(trace.len()));
    for event in before {
        match (event.action(), event.addr()) {
            (TraceAction::Alloc, Some(address)) => {
                let live = LiveBlock {
                    size: event.size().unwrap_or(0),
                    stack: event.stack_id(),
                };
                lived.insert(address, of(live, event.time_us()));
            }
            (TraceAction::FreeCompleted, Some(address)) => {
                lived.remove(&address);
            }
            _ => {}
        }
    }
    for event in after {
        if let (TraceAction::FreeRequested | TraceAction::FreeCompleted, Some(address)) =
            (event.action(), event.addr())
            && let Some(block) = lived.get_mut(&address).filter(|block| block.stayed)
        {
            block.stayed = false;
            block.died_us = event.time_us();
        }
    }
    lived
}

/// What no live object at the end tells follows from the stack, and from how long the block lived:
/// what the backward pass made and the optimizer still finds is a gradient.
fn guess(
    category: MemoryCategory,
    block: &BlockLifetime,
    peak_us: Option<i64>,
    steps: &[OptimizerStep],
) -> (Purpose, Certainty) {
    let next = peak_us.and_then(|now| steps.iter().find(|step| step.end_us >= now));
    let reaches_the_optimizer = match (block.died_us, next) {
        _ if block.stayed => Some(true),
        (Some(died), Some(step)) => Some(died >= step.begin_us),
        _ => None,
    };
    let born_in_this_step = match (block.born_us, peak_us) {
        (Some(born), Some(now)) => steps
            .iter()
            .rfind(|step| step.end_us < now)
            .is_none_or(|step| born > step.end_us),
        _ => false,
    };
    let computes = matches!(
        category,
        MemoryCategory::Activations | MemoryCategory::Backward | MemoryCategory::Other
    );
    if computes && block.stayed && CUBLAS_BYTES.contains(&block.live.size) {
        return (Purpose::Workspace, Certainty::Likely);
    }
    match category {
        MemoryCategory::Parameters => (Purpose::Parameters, Certainty::Likely),
        MemoryCategory::OptimizerState => (Purpose::OptimizerState, Certainty::Likely),
        MemoryCategory::OptimizerWork => (Purpose::Temporary, Certainty::Likely),
        MemoryCategory::Activations => (Purpose::Activations, Certainty::Likely),
        MemoryCategory::Communication => (Purpose::Communication, Certainty::Likely),
        MemoryCategory::Workspace => (Purpose::Workspace, Certainty::Likely),
        MemoryCategory::Backward => match reaches_the_optimizer {
            Some(true) => (Purpose::Gradients, Certainty::Likely),
            Some(false) => (Purpose::Temporary, Certainty::Likely),
            None => (Purpose::Temporary, Certainty::Possible),
        },
        // What was made outside of modules in this step, and is gone before the optimizer: losses and
        // what they keep for the backward pass.
        MemoryCategory::Other if born_in_this_step && reaches_the_optimizer == Some(false) => {
            (Purpose::Activations, Certainty::Possible)
        }
        MemoryCategory::Other => (Purpose::Other, Certainty::Certain),
    }
}

fn step_of(at_us: Option<i64>, steps: &[OptimizerStep]) -> Option<usize> {
    let at_us = at_us.filter(|_| !steps.is_empty())?;
    Some(1 + steps.iter().filter(|step| step.end_us < at_us).count())
}

fn phase(
    snapshot: &Snapshot,
    event: &TraceEntry,
    category: MemoryCategory,
    steps: &[OptimizerStep],
) -> StepPhase {
    let in_backward = event
        .stack_id()
        .is_some_and(|stack| is_in_backward(snapshot, stack));
    match category {
        MemoryCategory::OptimizerState | MemoryCategory::OptimizerWork => StepPhase::Optimizer,
        MemoryCategory::Backward => StepPhase::Backward,
        // A forward pass that is done again there.
        _ if in_backward => StepPhase::Backward,
        MemoryCategory::Activations => StepPhase::Forward,
        _ => {
            let now = event.time_us();
            let inside = |step: &&OptimizerStep| {
                now.is_some_and(|now| (step.begin_us..=step.end_us).contains(&now))
            };
            match steps.iter().find(inside) {
                Some(_) => StepPhase::Optimizer,
                None => StepPhase::Other,
            }
        }
    }
}

fn is_in_backward(snapshot: &Snapshot, stack: StackId) -> bool {
    snapshot.stack_frames(stack).any(|frame| {
        let file = frame.filename;
        (frame.name == "backward" && file.ends_with("torch/_tensor.py"))
            || (frame.name.contains("backward") && file.contains("torch/autograd/"))
            || (frame.name == "unpack_hook" && file.ends_with("torch/utils/checkpoint.py"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::{SnapshotLimits, read};

    const NEW: &[u8] = include_bytes!("../../tests/fixtures/torch-2.9-protocol-5.pickle");
    const MIB: u64 = 1 << 20;

    fn moment(holds: &[LiveStorage], steps: &[OptimizerStep]) -> PeakInstant {
        let snapshot = read(NEW, &SnapshotLimits::default()).unwrap();
        at_peak(&snapshot, 0, holds, steps, &[]).unwrap()
    }

    fn sums(moment: &PeakInstant) -> Vec<(Purpose, Certainty, u64)> {
        let groups = moment.purposes.iter();
        groups
            .map(|one| (one.purpose, one.certainty, one.bytes))
            .collect()
    }

    #[test]
    fn without_objects_and_steps_the_stacks_tell() {
        let moment = moment(&[], &[]);
        let memory = 2 * MIB + 1000;
        assert_eq!((moment.step, moment.phase), (None, StepPhase::Backward));
        let sums = sums(&moment);
        let all: u64 = sums.iter().map(|(.., bytes)| bytes).sum();
        assert_eq!(all, moment.filled.bytes);
        assert_eq!(
            sums[0],
            (Purpose::OptimizerState, Certainty::Likely, 4 * memory)
        );
    }

    #[test]
    fn live_objects_are_certain_and_what_reaches_the_optimizer_is_a_gradient() {
        let snapshot = read(NEW, &SnapshotLimits::default()).unwrap();
        let trace = snapshot.trace_entries(0);
        let initial = replay::outline_trace(&snapshot, 0, &|_| false).initial;
        let at = last_peak(trace, &initial);
        let now = trace[at - 1].time_us().unwrap();
        let lived = lived(trace, &initial, at);
        let stays = lived
            .iter()
            .find(|(_, block)| block.stayed && block.live.size > MIB);
        let (&address, block) = stays.unwrap();
        let hold = LiveStorage {
            purpose: Purpose::Buffers,
            address,
        };
        let steps = [
            OptimizerStep {
                begin_us: now - 20,
                end_us: now - 10,
            },
            OptimizerStep {
                begin_us: now + 1,
                end_us: i64::MAX,
            },
        ];
        let moment = moment(&[hold], &steps);
        assert_eq!(moment.step, Some(2));
        let sums = sums(&moment);
        assert!(
            sums.contains(&(Purpose::Buffers, Certainty::Certain, block.live.size)),
            "{sums:?}"
        );
        assert!(
            sums.iter()
                .any(|(purpose, ..)| *purpose == Purpose::Gradients),
            "{sums:?}"
        );
    }

    #[test]
    fn what_cublas_keeps_is_a_workspace() {
        let mut block = BlockLifetime {
            live: LiveBlock {
                size: 8_519_680,
                stack: None,
            },
            born_us: None,
            died_us: None,
            stayed: true,
        };
        let of = |block: &BlockLifetime| guess(MemoryCategory::Backward, block, None, &[]).0;
        assert_eq!(of(&block), Purpose::Workspace);
        block.live.size += 512;
        assert_eq!(of(&block), Purpose::Gradients);
        block.stayed = false;
        assert_eq!(of(&block), Purpose::Temporary);
    }

    #[test]
    fn a_trace_without_anything_has_no_peak() {
        assert_eq!(at_peak(&Snapshot::default(), 0, &[], &[], &[]), None);
    }
}
