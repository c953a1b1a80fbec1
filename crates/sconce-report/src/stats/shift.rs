//! Do the steps of one run take longer than those of another?
//!
//! Neighbouring steps are alike (a slow minute of the disk, a warm card), so steps are not independent
//! values: steps are first joined to blocks so long that neighbouring blocks are no longer alike, each
//! with its median. Between the two runs' blocks: the median of all differences of logarithms (Hodges and
//! Lehmann), with the interval that belongs to Mann and Whitney's test. Medians and ranks, because one
//! step in a thousand takes a hundred times as long; logarithms, because a difference is told in percent.

use super::{median, quantile, sort_finite};

/// Blocks that are needed of each run.
pub(crate) const MIN_BLOCKS: usize = 8;
/// Blocks of more are joined further.
const MAX_BLOCKS: usize = 200;
/// Neighbours that correlate less than this are taken as independent.
const MAX_INDEPENDENT_CORRELATION: f64 = 0.1;

/// By how much the second run's steps are longer, as a share: −0.2 is a fifth shorter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepTimeShift {
    /// The median of all differences.
    pub share: f64,
    /// The lower end of its interval (95 %).
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// Steps in a block, of either run.
    pub block_steps: (usize, usize),
    /// Blocks of either run.
    pub blocks: (usize, usize),
}

impl StepTimeShift {
    /// Whether the interval leaves zero out.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// From the times of steps in their order, any unit; `None` where one of them has too few.
pub(crate) fn compute_shift(before: &[f64], after: &[f64]) -> Option<StepTimeShift> {
    let (before, after) = (blocks(before)?, blocks(after)?);
    let (n, m) = (before.1.len(), after.1.len());
    let alike = before.2.max(after.2);
    let differences = sort_finite(
        (after.1.iter())
            .flat_map(|b| before.1.iter().map(move |a| b - a))
            .collect(),
    );
    let (nf, mf) = (n as f64, m as f64);
    let reach = 1.96 * (nf * mf * (nf + mf + 1.0) / 12.0).sqrt() / (nf * mf);
    // Blocks that are still alike count for fewer (Bartlett, of a chain that forgets by `alike` a block).
    let reach = (reach * ((1.0 + alike) / (1.0 - alike)).sqrt()).min(0.5);
    let at = |share: f64| quantile(&differences, share).map(f64::exp_m1);
    Some(StepTimeShift {
        share: at(0.5)?,
        low: at(0.5 - reach)?,
        high: at(0.5 + reach)?,
        block_steps: (before.0, after.0),
        blocks: (n, m),
    })
}

/// Steps in a block, the logarithm of each block's median, and how alike neighbouring blocks are (0 to 0.9).
fn blocks(times: &[f64]) -> Option<(usize, Vec<f64>, f64)> {
    let logs: Vec<f64> = (times.iter())
        .filter(|time| time.is_finite() && **time > 0.0)
        .map(|time| time.ln())
        .collect();
    let mut length = (logs.len() / MAX_BLOCKS).max(4);
    loop {
        let blocks: Vec<f64> = (logs.chunks_exact(length))
            .filter_map(|block| median(block.to_vec()))
            .collect();
        if blocks.len() < MIN_BLOCKS {
            return None;
        }
        // With few blocks chance alone correlates them by 1/√n; and the fewest are never joined again.
        let chance = 1.0 / (blocks.len() as f64).sqrt();
        let alike = correlation(&blocks);
        if alike < MAX_INDEPENDENT_CORRELATION.max(chance) || blocks.len() < 2 * MIN_BLOCKS {
            return Some((length, blocks, alike.clamp(0.0, 0.9)));
        }
        length *= 2;
    }
}

/// Of neighbours, by their ranks: one outlier must not hide that the others are alike.
fn correlation(values: &[f64]) -> f64 {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    for (rank, at) in order.into_iter().enumerate() {
        ranks[at] = rank as f64;
    }
    let mean = (ranks.len() as f64 - 1.0) / 2.0;
    let all: f64 = ranks.iter().map(|rank| (rank - mean).powi(2)).sum();
    let neighbours: f64 = ranks
        .windows(2)
        .map(|two| (two[0] - mean) * (two[1] - mean))
        .sum();
    neighbours / all.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64, n: usize, alike: f64) -> Vec<f64> {
        let mut state = seed.wrapping_mul(2).wrapping_add(1);
        let mut at = 0.0;
        (0..n)
            .map(|_| {
                let mut sum = -6.0;
                for _ in 0..12 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    sum += ((state >> 33) as f64) / f64::from(1_u32 << 31);
                }
                at = alike * at + sum;
                100.0 * (at * 0.03).exp()
            })
            .collect()
    }

    #[test]
    fn a_difference_is_found_with_its_size() {
        let before = noise(1, 600, 0.5);
        let after: Vec<f64> = noise(2, 600, 0.5).iter().map(|time| time * 0.8).collect();
        let found = compute_shift(&before, &after).unwrap();
        assert!(
            found.is_real() && found.low < -0.2 && found.high > -0.2,
            "{found:?}"
        );
        assert!((found.share + 0.2).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn the_same_is_mostly_the_same_however_alike_neighbours_are() {
        for alike in [0.0, 0.5, 0.9, 0.97] {
            let wrong = (0..100)
                .filter_map(|seed| {
                    compute_shift(&noise(seed, 1000, alike), &noise(seed + 9_000, 1000, alike))
                })
                .filter(StepTimeShift::is_real)
                .count();
            assert!(wrong <= 12, "{wrong} of 100 at {alike}");
        }
    }

    #[test]
    fn too_little_is_no_difference() {
        assert_eq!(compute_shift(&[], &[]), None);
        assert_eq!(compute_shift(&[1.0; 31], &[2.0; 500]), None);
        assert!(compute_shift(&[1.0; 32], &[2.0; 500]).unwrap().is_real());
        assert_eq!(compute_shift(&[f64::NAN; 500], &[-1.0; 500]), None);
    }
}
