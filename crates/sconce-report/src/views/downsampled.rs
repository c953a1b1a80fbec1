//! A figure over time with a bounded number of points.

/// A figure over time: parts of equal width, each with the least, the most and the mean of its
/// readings, so that no peak is lost. When the readings outgrow them, neighbours are joined and the
/// width doubles.
#[derive(Debug, Clone, PartialEq)]
pub struct DownsampledSeries {
    from_us: u64,
    width_us: u64,
    most: usize,
    parts: Vec<SeriesBucket>,
}

/// What one part of the time had.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeriesBucket {
    /// How many readings; without one the other fields mean nothing.
    pub readings: u64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// Their sum.
    sum: f64,
}

impl SeriesBucket {
    const NONE: Self = Self {
        readings: 0,
        least: f64::INFINITY,
        most: f64::NEG_INFINITY,
        sum: 0.0,
    };

    /// The mean; `None` without a reading.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.readings > 0).then(|| self.sum / self.readings as f64)
    }

    fn join(self, other: Self) -> Self {
        Self {
            readings: self.readings + other.readings,
            least: self.least.min(other.least),
            most: self.most.max(other.most),
            sum: self.sum + other.sum,
        }
    }
}

impl DownsampledSeries {
    /// Parts from `from_us` on; `most` (2 at least) is how many there may be. `width_us` is how wide they
    /// are in the beginning.
    #[must_use]
    pub fn new(from_us: u64, width_us: u64, most: usize) -> Self {
        Self {
            from_us,
            width_us: width_us.max(1),
            most: most.max(2),
            parts: Vec::new(),
        }
    }

    /// Adds a reading. One from before the first part, or that is no number, is not kept.
    pub fn add(&mut self, t_us: u64, value: f64) {
        if t_us < self.from_us || !value.is_finite() {
            return;
        }
        // A reading stands for the time before it: one at the very end of a part is in it.
        let after_us = (t_us - self.from_us).saturating_sub(1);
        while after_us / self.width_us >= self.most as u64 {
            self.parts = (self.parts.chunks(2))
                .map(|pair| {
                    pair.iter()
                        .copied()
                        .fold(SeriesBucket::NONE, SeriesBucket::join)
                })
                .collect();
            self.width_us = self.width_us.saturating_mul(2);
        }
        let at = (after_us / self.width_us) as usize;
        if self.parts.len() <= at {
            self.parts.resize(at + 1, SeriesBucket::NONE);
        }
        self.parts[at] = self.parts[at].join(SeriesBucket {
            readings: 1,
            least: value,
            most: value,
            sum: value,
        });
    }

    /// How wide a part is, µs.
    #[must_use]
    pub fn width_us(&self) -> u64 {
        self.width_us
    }

    /// `count` equal parts of the time from `from_us` to `to_us`. What lies across an edge is in the part
    /// in which its middle is.
    #[must_use]
    pub fn buckets_in_range(&self, from_us: u64, to_us: u64, count: usize) -> Vec<SeriesBucket> {
        let span_us = to_us.saturating_sub(from_us);
        let mut window = vec![SeriesBucket::NONE; count];
        if span_us == 0 || count == 0 {
            return window;
        }
        // Only those that can lie in it are looked at.
        let first = from_us.saturating_sub(self.from_us) / self.width_us;
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        for (at, part) in self.parts.iter().enumerate().skip(first) {
            let middle_us = (self.from_us)
                .saturating_add((at as u64).saturating_mul(self.width_us))
                .saturating_add(self.width_us / 2);
            if middle_us >= to_us {
                break;
            }
            if part.readings == 0 || middle_us < from_us {
                continue;
            }
            let place = u128::from(middle_us - from_us) * count as u128 / u128::from(span_us);
            let place = usize::try_from(place).unwrap_or(usize::MAX).min(count - 1);
            window[place] = window[place].join(*part);
        }
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_peak_is_lost() {
        let mut thinned = DownsampledSeries::new(0, 1_000, 500);
        for second in 1..=86_400_u64 {
            let value = if second == 40_000 { 9.0 } else { 1.0 };
            thinned.add(second * 1_000_000, value);
        }
        assert!(thinned.parts.len() <= 500);
        let window = thinned.buckets_in_range(0, 86_400_000_000, 100);
        let peaks = window.iter().filter(|part| part.most == 9.0);
        assert_eq!(peaks.count(), 1);
        assert!(window.iter().all(|part| part.least == 1.0));
        let near = thinned.buckets_in_range(39_000_000_000, 41_000_000_000, 10);
        assert!(near.iter().any(|part| part.most == 9.0));
    }

    #[test]
    fn times_without_a_reading_have_none() {
        let mut thinned = DownsampledSeries::new(5_000_000, 1_000_000, 100);
        thinned.add(1_000_000, 1.0);
        thinned.add(6_000_000, 2.0);
        thinned.add(9_000_000, f64::NAN);
        thinned.add(9_000_000, 4.0);
        let means: Vec<_> = thinned
            .buckets_in_range(5_000_000, 10_000_000, 5)
            .iter()
            .map(SeriesBucket::mean)
            .collect();
        assert_eq!(means, [Some(2.0), None, None, Some(4.0), None]);
        assert_eq!(thinned.buckets_in_range(5, 5, 3).len(), 3);
        assert!(thinned.buckets_in_range(0, 9, 0).is_empty());
    }

    proptest! {
        #[test]
        fn no_reading_panics_or_is_lost(
            readings in proptest::collection::vec((any::<u64>(), -1e18..1e18), 0..60),
            most in 0_usize..300,
            from_us: u64,
            to_us: u64,
            count in 0_usize..300,
        ) {
            let mut thinned = DownsampledSeries::new(0, 1, most);
            for (t_us, value) in &readings {
                thinned.add(*t_us, *value);
            }
            prop_assert!(thinned.parts.len() <= most.max(2));
            let whole = thinned.buckets_in_range(0, u64::MAX, 7);
            prop_assert_eq!(whole.iter().map(|part| part.readings).sum::<u64>(), readings.len() as u64);
            let least = readings.iter().map(|reading| reading.1).fold(f64::INFINITY, f64::min);
            prop_assert_eq!(whole.iter().map(|part| part.least).fold(f64::INFINITY, f64::min), least);
            prop_assert_eq!(thinned.buckets_in_range(from_us, to_us, count).len(), count);
        }
    }
}
