//! What of a run was not watched, as far as what was seen tells: batches of other shapes, memory that grows from
//! step to step, and code that comes after the last watched step.

use super::probe_report::{ObservationEnd, ObservedBatches, ObservedStepGpu, ProbeReport};
use super::{GpuForecast, InconclusiveReason};

/// Steps differ where one asks the allocator for so much more than another, in hundredths.
const DIFFERENT: u64 = 2;

/// Steps after the first in which what is compiled may still be compiled anew; the probe runs as many more
/// (`COMPILING` of `fit.py`).
const COMPILING: usize = 2;

/// Steps to come after which no training goes on: what has not filled the card by then never does.
const MAX_STEPS_LEFT: u64 = 1_000_000;

/// What was not watched. Nothing where the program was watched to its end.
#[must_use]
pub fn inconclusive_reasons(seen: &ProbeReport) -> Vec<InconclusiveReason> {
    if seen.ended == ObservationEnd::Exit {
        return Vec::new();
    }
    let mut found = Vec::new();
    found.extend(shapes(seen).or_else(|| sizes(seen)));
    let lines: Vec<_> = seen
        .later
        .iter()
        .filter(|line| !line.bounded)
        .cloned()
        .collect();
    if !lines.is_empty() {
        found.push(InconclusiveReason::Later { lines });
    }
    found
}

/// Batches of several shapes: whether the largest was among them nobody knows.
fn shapes(seen: &ProbeReport) -> Option<InconclusiveReason> {
    let mut varied = seen.batches.iter().filter(|one| is_varied(one));
    let one = varied.next()?;
    let elements = |batch: &&Vec<Vec<u64>>| -> u128 {
        let of = |shape: &Vec<u64>| shape.iter().map(|&size| u128::from(size)).product::<u128>();
        batch.iter().map(of).sum()
    };
    let largest = one.shapes.iter().max_by_key(elements)?;
    Some(InconclusiveReason::Shapes {
        largest: largest.clone(),
        shapes: one.shapes.clone(),
    })
}

/// Several shapes, and not only as an epoch's last batch has fewer elements.
fn is_varied(one: &ObservedBatches) -> bool {
    let Some(first) = one.shapes.first() else {
        return false;
    };
    let full = one.batch_size;
    let is_shorter = |batch: &Vec<Vec<u64>>| {
        batch.len() == first.len()
            && batch.iter().zip(first).all(|(shape, whole)| {
                let fewer = shape.first() < whole.first() && whole.first().copied() == full;
                shape == whole || (fewer && shape.get(1..) == whole.get(1..))
            })
    };
    one.shapes.iter().skip(1).any(|batch| !is_shorter(batch))
}

/// Steps after the first, of one optimizer, that ask for different amounts.
fn sizes(seen: &ProbeReport) -> Option<InconclusiveReason> {
    for asked in compared(seen) {
        let (Some(&least), Some(&most)) = (asked.iter().min(), asked.iter().max()) else {
            continue;
        };
        if u128::from(most - least) * 100 > u128::from(most) * u128::from(DIFFERENT) {
            return Some(InconclusiveReason::Sizes {
                least_bytes: least,
                most_bytes: most,
            });
        }
    }
    None
}

/// Differences between steps from which growth is told: once there is more as another optimizer makes its state, or as
/// something is written down. The probe runs as many steps more for it (`GROWING` of `fit.py`).
const MIN_DIFFERENCES: usize = 2;

/// Memory that grows with each step that was watched, where it fills the card before any training ends. Where
/// batches differ in shape one step's figures say nothing about the next one's.
#[must_use]
pub fn growth_reason(card: &GpuForecast, seen: &ProbeReport) -> Option<InconclusiveReason> {
    if seen.ended != ObservationEnd::Steps || shapes(seen).is_some() {
        return None;
    }
    let step_bytes = growth(seen, mean_growth)?;
    let steps_left = steps_left(card, step_bytes)?;
    Some(InconclusiveReason::Growth {
        step_bytes,
        steps_left,
    })
}

/// Steps after which a trial with other values than zeros is told the same again (`STEPS_IN_PATTERN` of `substitute_values.py`).
const STEPS_IN_PATTERN: usize = 3;

/// Steps from which growth is told where values decide which of them leave more: three times that pattern.
pub(super) const PATTERN_STEPS: u32 = 9;

/// Memory that grows from one pattern of values to the next, where it fills the card before any training ends: how
/// much of it a step is in the mean, bytes, and how many steps are left. What is kept once, and what takes the place
/// of what was kept before, does not grow any more then.
pub(super) fn growth_of_patterns(card: &GpuForecast, seen: &ProbeReport) -> Option<(u64, u64)> {
    if seen.ended != ObservationEnd::Steps {
        return None;
    }
    let step_bytes = growth(seen, mean_growth_of_patterns)?;
    Some((step_bytes, steps_left(card, step_bytes)?))
}

/// After how many steps the card is full that each leave so much more; nothing where no training goes on so long.
fn steps_left(card: &GpuForecast, step_bytes: u64) -> Option<u64> {
    let cached = card.reserved_bytes?.saturating_sub(card.allocated_bytes?);
    let room = u64::try_from(card.margin_bytes?)
        .unwrap_or(0)
        .saturating_add(cached);
    Some(room.checked_div(step_bytes)?).filter(|&left| left <= MAX_STEPS_LEFT)
}

/// How much more there is with each step, bytes: at its end, or at most. `of_steps` tells it of one optimizer's.
fn growth(seen: &ProbeReport, of_steps: fn(&[u64]) -> Option<u64>) -> Option<u64> {
    let (device, _) = seen.fullest_gpu()?;
    let of = |figure: fn(&ObservedStepGpu) -> Option<u64>| {
        let series = (0..seen.optimizers).map(|optimizer| -> Option<u64> {
            let figures: Option<Vec<u64>> = compared_steps(seen, optimizer)
                .map(|at| figure(seen.steps.get(at)?.devices.get(device)?))
                .collect();
            of_steps(&figures?)
        });
        series.flatten().max()
    };
    of(|device| device.allocated_bytes).max(of(|device| device.allocated_peak_bytes))
}

/// The same where only some steps leave more: the most of each pattern, the last step being the end of one, is more
/// than that of the one before.
fn mean_growth_of_patterns(figures: &[u64]) -> Option<u64> {
    let most: Vec<u64> = figures
        .rchunks(STEPS_IN_PATTERN)
        .filter_map(|steps| steps.iter().max().copied())
        .collect();
    let of_pattern = mean_growth(&most.into_iter().rev().collect::<Vec<_>>())?;
    Some(of_pattern.div_ceil(STEPS_IN_PATTERN as u64))
}

/// The mean of the differences, rounded up, where each is more than nothing.
fn mean_growth(figures: &[u64]) -> Option<u64> {
    let differences = figures.len().checked_sub(1)?;
    let grows = figures.windows(2).all(|pair| pair[0] < pair[1]);
    let whole = figures.last()?.checked_sub(*figures.first()?)?;
    let count = u64::try_from(differences).ok()?;
    (grows && differences >= MIN_DIFFERENCES).then(|| whole.div_ceil(count))
}

/// Whether any two steps of one optimizer were compared.
pub(super) fn compares_steps(seen: &ProbeReport) -> bool {
    compared(seen).iter().any(|asked| asked.len() > 1)
}

/// What was asked for in each step that is compared, by optimizer, bytes. An optimizer's first step makes its state,
/// and what is compiled asks for more while it is.
fn compared(seen: &ProbeReport) -> Vec<Vec<u64>> {
    let total = |at: usize| -> Option<u64> {
        let devices = &seen.steps.get(at)?.devices;
        devices.iter().map(|device| device.requested_bytes).sum()
    };
    let of = |optimizer: usize| -> Option<Vec<u64>> {
        compared_steps(seen, optimizer)
            .map(|at| Some(total(at)?.saturating_sub(total(at - 1)?)))
            .collect()
    };
    (0..seen.optimizers).filter_map(of).collect()
}

/// The steps of an optimizer that are compared, by their numbers among all.
fn compared_steps(seen: &ProbeReport, optimizer: usize) -> impl Iterator<Item = usize> {
    let compiling = if seen.compiled { COMPILING } else { 0 };
    let own = (0..seen.steps.len()).filter(move |&at| seen.steps[at].optimizer == optimizer);
    own.skip(1 + compiling)
}

#[cfg(test)]
mod tests;
