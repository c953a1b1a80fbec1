//! What of a run was not watched, as far as what was seen tells: batches of other shapes, and an evaluation
//! that comes after the last watched step.

use super::InconclusiveReason;
use super::seen::{ObservationEnd, ObservedBatches, ProbeReport};

/// Steps differ where one asks the allocator for so much more than another, in hundredths.
const DIFFERENT: u64 = 2;

/// Steps after the first in which what is compiled may still be compiled anew; the probe runs as many more
/// (`COMPILING` of `fit.py`).
const COMPILING: usize = 2;

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
    let compiling = if seen.compiled { COMPILING } else { 0 };
    let of = |optimizer: usize| -> Option<Vec<u64>> {
        let own = (0..seen.steps.len()).filter(|&at| seen.steps[at].optimizer == optimizer);
        let asked = own.skip(1 + compiling);
        asked
            .map(|at| Some(total(at)?.saturating_sub(total(at - 1)?)))
            .collect()
    };
    (0..seen.optimizers).filter_map(of).collect()
}

#[cfg(test)]
mod tests;
