//! What of a run was not watched, as far as what was seen tells: batches of other shapes, and an evaluation
//! that comes after the last watched step.

use super::NotJudged;
use super::seen::{Batches, Ended, Seen};

/// Steps differ where one asks the allocator for so much more than another, in hundredths.
const DIFFERENT: u64 = 2;

/// What was not watched. Nothing where the program was watched to its end.
#[must_use]
pub fn unwatched(seen: &Seen) -> Vec<NotJudged> {
    if seen.ended == Ended::Exit {
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
        found.push(NotJudged::Later { lines });
    }
    found
}

/// Batches of several shapes: whether the largest was among them nobody knows.
fn shapes(seen: &Seen) -> Option<NotJudged> {
    let mut varied = seen.batches.iter().filter(|one| is_varied(one));
    let one = varied.next()?;
    let elements = |batch: &&Vec<Vec<u64>>| -> u128 {
        let of = |shape: &Vec<u64>| shape.iter().map(|&size| u128::from(size)).product::<u128>();
        batch.iter().map(of).sum()
    };
    let largest = one.shapes.iter().max_by_key(elements)?;
    Some(NotJudged::Shapes {
        largest: largest.clone(),
        shapes: one.shapes.clone(),
    })
}

/// Several shapes, and not only as an epoch's last batch has fewer elements.
fn is_varied(one: &Batches) -> bool {
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

/// Steps after the first, of one optimizer, that ask for different amounts. What is compiled asks for others
/// in its first steps than later.
fn sizes(seen: &Seen) -> Option<NotJudged> {
    if seen.compiled {
        return None;
    }
    let total = |at: usize| -> Option<u64> {
        let devices = &seen.steps.get(at)?.devices;
        devices.iter().map(|device| device.requested_bytes).sum()
    };
    for optimizer in 0..seen.optimizers {
        let steps = 1..seen.steps.len();
        let own = steps.filter(|&at| seen.steps[at].optimizer == optimizer);
        // Its first step makes the state of optimizers.
        let own: Vec<usize> = own.collect();
        let skip = usize::from(
            seen.steps
                .first()
                .is_some_and(|first| first.optimizer != optimizer),
        );
        let asked = own.iter().skip(skip);
        let asked = asked.map(|&at| Some(total(at)?.saturating_sub(total(at - 1)?)));
        let asked: Vec<u64> = asked.collect::<Option<_>>()?;
        let (Some(&least), Some(&most)) = (asked.iter().min(), asked.iter().max()) else {
            continue;
        };
        if u128::from(most - least) * 100 > u128::from(most) * u128::from(DIFFERENT) {
            return Some(NotJudged::Sizes {
                least_bytes: least,
                most_bytes: most,
            });
        }
    }
    None
}

#[cfg(test)]
mod tests;
