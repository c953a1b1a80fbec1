//! Lines through noisy figures, by the median of all slopes (Theil 1950, Sen 1968): a quarter of the
//! figures may be anything.

/// A trend of figures that are evenly spaced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LinearTrend {
    /// Growth from one figure to the next.
    pub(super) slope: f64,
    /// Share of the pairs of which the later one is larger: 1 where it always grows.
    pub(super) rising: f64,
}

/// The trend of up to some hundred figures; absent of less than three.
pub(super) fn compute_trend(figures: &[u64]) -> Option<LinearTrend> {
    if figures.len() < 3 {
        return None;
    }
    let mut slopes = Vec::with_capacity(figures.len() * (figures.len() - 1) / 2);
    let mut rising = 0usize;
    for (at, first) in figures.iter().enumerate() {
        for (step, second) in figures[at + 1..].iter().enumerate() {
            rising += usize::from(second > first);
            slopes.push((*second as f64 - *first as f64) / (step + 1) as f64);
        }
    }
    let count = slopes.len();
    let middle = count / 2;
    let (_, slope, _) = slopes.select_nth_unstable_by(middle, f64::total_cmp);
    Some(LinearTrend {
        slope: *slope,
        rising: rising as f64 / count as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outliers_do_not_bend_a_trend() {
        let steady = compute_trend(&[10, 12, 14, 16, 18]).unwrap();
        assert_eq!((steady.slope, steady.rising), (2.0, 1.0));
        let spoilt = compute_trend(&[10, 12, 1_000_000, 16, 18, 20, 22, 24]).unwrap();
        assert!((1.0..=3.0).contains(&spoilt.slope), "{spoilt:?}");
        assert_eq!(compute_trend(&[7, 7, 7]).unwrap().slope, 0.0);
        let falling = compute_trend(&[5, 4, 3, 2]).unwrap();
        assert_eq!((falling.slope, falling.rising), (-1.0, 0.0));
        let saw = compute_trend(&[1, 9, 1, 9, 1, 9, 1, 9]).unwrap();
        assert!(saw.rising < 0.8);
        assert_eq!(compute_trend(&[1, 2]), None);
        assert!(compute_trend(&[0, u64::MAX, 0]).is_some());
    }
}
