//! Does a figure grow from step to step?
//!
//! Memory over steps is a staircase with noise, and each value is near the one before: tests for
//! independent values find growth everywhere. So the run without its first fifth is cut into 24 blocks of
//! equal length, each with the median of its values, and growth must be seen by three that fail in
//! different ways:
//!
//! 1. Mann–Kendall over the blocks: they rise one after another (p < 0.0005).
//! 2. Student's t over the differences of neighbouring pairs of blocks: a walk that goes up and down by
//!    chance has differences around zero; a leak has not (p < 0.001). A few large jumps do not pass.
//! 3. The last third grows, at 0.65 of the whole's pace and half of the first third's at least: a cache
//!    that is full has stopped, and the largest batch so far grows slower and slower.
//!
//! The rate is Theil and Sen's: the median of the slopes between all pairs of blocks, with Sen's interval
//! from Kendall's statistic (P. K. Sen, J. Am. Stat. Assoc. 63, 1968). The cost does not grow with the run.

use super::{median, quantile, sort_finite};

/// Blocks that the steps are cut into.
const BLOCK_COUNT: usize = 24;
/// Of them, how many need values.
const MIN_BLOCKS: usize = 18;
/// Steps that are needed after the warm-up.
pub(crate) const MIN_STEPS: u64 = 200;
/// Values that are needed after the warm-up.
const MIN_VALUES: usize = 96;
/// Kendall's z, one-sided p = 0.0005.
const MIN_KENDALL_Z: f64 = 3.29;
/// Student's t, one-sided p = 0.001 with 10 degrees of freedom.
const MIN_STUDENT_T: f64 = 4.14;
/// The pace of the last third in shares of the whole's.
const MIN_LAST_TO_WHOLE_PACE: f64 = 0.65;
/// The same in shares of the first third's.
const MIN_LAST_TO_FIRST_PACE: f64 = 0.5;

/// How a figure went from step to step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// Theil and Sen's slope, a step.
    pub slope: f64,
    /// The lower end of its interval (95 %).
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The first step after the warm-up that was looked at.
    pub from_step: u64,
    /// The last step.
    pub to_step: u64,
    /// Whether it grows, and goes on to.
    pub grows: bool,
}

impl Trend {
    /// Steps that were looked at.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.to_step - self.from_step
    }

    /// How much it grew over these steps.
    #[must_use]
    pub fn total_growth(&self) -> f64 {
        self.slope * self.steps() as f64
    }
}

/// The trend of values at steps, which must be in order; `None` with too few.
pub(crate) fn compute_trend(values: &[(u64, f64)]) -> Option<Trend> {
    let (first, last) = (values.first()?.0, values.last()?.0);
    let from = first + (last - first) / 5;
    let values = &values[values.partition_point(|(step, _)| *step < from)..];
    if last - from < MIN_STEPS || values.len() < MIN_VALUES {
        return None;
    }
    let blocks = blocks(values, from, last);
    if blocks.len() < MIN_BLOCKS {
        return None;
    }
    let slopes = slopes(&blocks);
    let slope = quantile(&slopes, 0.5)?;
    let (low, high) = interval(&slopes, blocks.len());
    let third = |n: usize| {
        let (from, to) = (n * blocks.len() / 3, (n + 1) * blocks.len() / 3);
        quantile(&self::slopes(&blocks[from..to]), 0.5)
    };
    let (first, middle, end) = (third(0)?, third(1)?, third(2)?);
    let goes_on = first > 0.0
        && middle > 0.0
        && end >= MIN_LAST_TO_WHOLE_PACE * slope
        && end >= MIN_LAST_TO_FIRST_PACE * first;
    let grows = slope > 0.0 && low > 0.0 && goes_on && rises(&blocks) && drifts(&blocks);
    Some(Trend {
        slope,
        low,
        high,
        from_step: from,
        to_step: last,
        grows,
    })
}

/// The middle step and the median value of each block that has values.
fn blocks(values: &[(u64, f64)], from: u64, last: u64) -> Vec<(f64, f64)> {
    let span = (last - from) as f64 + 1.0;
    let block = |step: u64| ((step - from) as f64 / span * BLOCK_COUNT as f64) as usize;
    (values.chunk_by(|a, b| block(a.0) == block(b.0)))
        .filter_map(|part| {
            let step = median(part.iter().map(|(step, _)| *step as f64).collect())?;
            Some((
                step,
                median(part.iter().map(|(_, value)| *value).collect())?,
            ))
        })
        .collect()
}

/// Slopes between all pairs, sorted.
fn slopes(blocks: &[(f64, f64)]) -> Vec<f64> {
    let pairs = blocks
        .iter()
        .enumerate()
        .flat_map(|(n, a)| (blocks[n + 1..].iter()).map(move |b| (b.1 - a.1) / (b.0 - a.0)));
    sort_finite(pairs.collect())
}

/// Sen's interval, 95 %.
fn interval(slopes: &[f64], n: usize) -> (f64, f64) {
    let reach = 1.96 * variance(n).sqrt() / slopes.len() as f64;
    let end = |share: f64| quantile(slopes, share).unwrap_or(f64::NAN);
    (end((1.0 - reach) / 2.0), end(f64::midpoint(1.0, reach)))
}

/// The variance of Kendall's S for `n` values without ties.
fn variance(n: usize) -> f64 {
    let n = n as f64;
    n * (n - 1.0) * (2.0 * n + 5.0) / 18.0
}

fn rises(blocks: &[(f64, f64)]) -> bool {
    let mut s = 0.0;
    for (n, a) in blocks.iter().enumerate() {
        for b in &blocks[n + 1..] {
            s += (b.1 - a.1)
                .partial_cmp(&0.0)
                .map_or(0.0, |order| f64::from(order as i8));
        }
    }
    (s - 1.0) / variance(blocks.len()).sqrt() >= MIN_KENDALL_Z
}

fn drifts(blocks: &[(f64, f64)]) -> bool {
    let pairs: Vec<f64> = (blocks.chunks_exact(2))
        .map(|two| f64::midpoint(two[0].1, two[1].1))
        .collect();
    let steps: Vec<f64> = pairs.windows(2).map(|two| two[1] - two[0]).collect();
    let n = steps.len() as f64;
    let mean = steps.iter().sum::<f64>() / n;
    let squares: f64 = steps.iter().map(|step| (step - mean).powi(2)).sum();
    let error = (squares / (n - 1.0) / n).sqrt();
    // A figure that rises by exactly as much each time has no error.
    mean > 0.0 && mean >= MIN_STUDENT_T * error
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB: f64 = 1024.0;
    const MIB: f64 = 1024.0 * 1024.0;

    /// Numbers between 0 and 1 that look random (PCG's 64-bit step).
    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> f64 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) as f64) / f64::from(1_u32 << 31)
        }

        /// About normal, variance 1.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.next()).sum::<f64>() - 6.0
        }
    }

    fn made(steps: u64, mut value: impl FnMut(u64) -> f64) -> Option<Trend> {
        let values: Vec<(u64, f64)> = (1..=steps).map(|step| (step, value(step))).collect();
        compute_trend(&values)
    }

    #[test]
    fn too_little_is_no_trend() {
        assert_eq!(compute_trend(&[]), None);
        assert_eq!(made(240, |step| step as f64), None);
        assert!(made(260, |step| step as f64).is_some_and(|trend| trend.grows));
        let few: Vec<(u64, f64)> = (0..50).map(|n| (n * 100, n as f64)).collect();
        assert_eq!(compute_trend(&few), None);
    }

    #[test]
    fn flat_is_flat() {
        let flat = made(1000, |_| 500.0 * MIB).unwrap();
        assert!(!flat.grows && flat.slope == 0.0);
    }

    #[test]
    fn a_cache_that_grows_and_stops_is_no_leak() {
        for full in [100, 300, 500, 700] {
            let trend = made(1000, |step| {
                500.0 * MIB + step.min(full) as f64 * 256.0 * KIB
            })
            .unwrap();
            assert!(!trend.grows, "{full}");
        }
        // Longer and longer batches come: the largest so far grows as a logarithm.
        let trend = made(1000, |step| (step as f64).ln() * 50.0 * MIB).unwrap();
        assert!(!trend.grows);
        // Two jumps.
        let trend = made(300, |step| {
            if step < 120 {
                0.0
            } else if step < 250 {
                20.0 * MIB
            } else {
                40.0 * MIB
            }
        });
        assert!(!trend.unwrap().grows);
    }

    #[test]
    fn a_staircase_of_segments_is_a_leak() {
        // 64 KiB a step, in segments of 2 MiB as PyTorch reserves for small blocks.
        let trend = made(600, |step| {
            (step as f64 * 64.0 * KIB / (2.0 * MIB)).floor() * 2.0 * MIB
        })
        .unwrap();
        assert!(
            trend.grows && trend.low < 64.0 * KIB && trend.high > 64.0 * KIB,
            "{trend:?}"
        );
    }

    #[test]
    fn walks_by_chance_are_rarely_leaks() {
        let mut chance = Chance(1);
        let found = (0..2000)
            .filter(|_| {
                let mut at = 500.0 * MIB;
                made(1000, |_| {
                    at += chance.normal() * 100.0 * KIB;
                    at
                })
                .is_some_and(|trend| trend.grows)
            })
            .count();
        assert!(found <= 10, "{found} of 2000");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_leak_of_64_kib_is_found_within_300_steps(
            seed: u64,
            noise_kib in 0.0..1000.0,
            pages in prop::sample::select(vec![4.0, 132.0, 1024.0]),
        ) {
            let mut chance = Chance(seed);
            let trend = made(300, |step| {
                let exact: f64 = 500.0 * MIB + step as f64 * 64.0 * KIB + chance.normal() * noise_kib * KIB;
                (exact / (pages * KIB)).floor() * pages * KIB
            }).unwrap();
            prop_assert!(trend.grows, "{trend:?}");
            prop_assert!((trend.slope / (64.0 * KIB) - 1.0).abs() < 0.5, "{trend:?}");
        }

        #[test]
        fn noise_around_a_level_is_no_leak(seed: u64, noise_kib in 0.0..50_000.0, steps in 260_u64..1500) {
            let mut chance = Chance(seed);
            let trend = made(steps, |_| 500.0 * MIB + chance.normal() * noise_kib * KIB).unwrap();
            prop_assert!(!trend.grows, "{trend:?}");
        }

        #[test]
        fn nothing_panics(values in proptest::collection::vec((any::<u64>(), any::<f64>()), 0..400)) {
            let mut values = values;
            values.sort_by_key(|(step, _)| *step);
            let _ = compute_trend(&values);
        }
    }
}
