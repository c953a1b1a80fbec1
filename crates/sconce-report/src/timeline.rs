//! A figure over time in constant memory.

/// Readings nearer to each other than this are not compared for a rate, µs.
pub(crate) const MIN_RATE_INTERVAL_US: u64 = 200_000;
/// How many buckets a timeline has at most.
const MAX_BUCKETS: usize = 240;

/// A figure over time: up to 240 buckets of equal width, each with the mean and the peak of its
/// readings. When the run outgrows them, neighbours are joined and the width doubles.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    bucket_us: u64,
    buckets: Vec<Bucket>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Bucket {
    sum: f64,
    readings: u64,
    peak: f64,
}

impl Bucket {
    fn join(self, other: Self) -> Self {
        Self {
            sum: self.sum + other.sum,
            readings: self.readings + other.readings,
            peak: self.peak.max(other.peak),
        }
    }
}

impl Default for Timeline {
    fn default() -> Self {
        Self {
            bucket_us: 50_000,
            buckets: Vec::new(),
        }
    }
}

impl Timeline {
    /// Adds a reading, `t_us` microseconds after the run began. Negative ones and those that are
    /// no number are not kept: no figure of ours can be either.
    pub(crate) fn add(&mut self, t_us: u64, value: f64) {
        if !(value.is_finite() && value >= 0.0) {
            return;
        }
        // A reading stands for the time before it, so one at the very end of a bucket is in it.
        let t_us = t_us.saturating_sub(1);
        while t_us / self.bucket_us >= MAX_BUCKETS as u64 {
            self.buckets = (self.buckets.chunks(2))
                .map(|pair| pair.iter().copied().fold(Bucket::default(), Bucket::join))
                .collect();
            self.bucket_us = self.bucket_us.saturating_mul(2);
        }
        let at = (t_us / self.bucket_us) as usize;
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, Bucket::default());
        }
        self.buckets[at] = self.buckets[at].join(Bucket {
            sum: value,
            readings: 1,
            peak: value,
        });
    }

    /// How many readings it holds.
    #[must_use]
    pub fn readings(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.readings).sum()
    }

    /// The mean of each of `columns` equal parts of the first `span_us` microseconds. A part
    /// without a reading has the one before it, as a step line would; the parts before the first
    /// reading have that one. Without any reading there is nothing.
    #[must_use]
    pub fn column_means(&self, columns: usize, span_us: u64) -> Vec<f64> {
        // What was read after the span is left out.
        let count =
            (span_us.saturating_sub(1) / self.bucket_us).min(MAX_BUCKETS as u64 - 1) as usize + 1;
        let mean = |part: &[Bucket]| {
            let part = (part.iter().copied()).fold(Bucket::default(), Bucket::join);
            (part.readings > 0).then(|| part.sum / part.readings as f64)
        };
        let Some(mut value) = (self.buckets.iter()).find_map(|bucket| mean(&[*bucket])) else {
            return Vec::new();
        };
        (0..columns)
            .map(|column| {
                let from = column * count / columns;
                let to = ((column + 1) * count / columns).max(from + 1);
                let to = to.min(self.buckets.len());
                value = (self.buckets.get(from..to).and_then(mean)).unwrap_or(value);
                value
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_run_fits() {
        let mut timeline = Timeline::default();
        for second in 0..86_400_u64 {
            timeline.add(second * 1_000_000, if second < 43_200 { 1.0 } else { 3.0 });
        }
        assert_eq!(timeline.readings(), 86_400);
        assert!(timeline.buckets.len() <= MAX_BUCKETS);
        let columns = timeline.column_means(4, 86_400_000_000);
        assert_eq!((columns[0], columns[3]), (1.0, 3.0));
    }

    #[test]
    fn gaps_are_filled() {
        let mut timeline = Timeline::default();
        timeline.add(100_000, 1.0);
        timeline.add(200_000, 2.0);
        timeline.add(170_000, f64::NAN);
        assert_eq!(timeline.column_means(4, 200_000), [1.0, 1.0, 1.0, 2.0]);
        assert_eq!(
            timeline.column_means(6, 300_000),
            [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]
        );
        assert_eq!(timeline.column_means(8, 200_000).len(), 8);
        assert!(timeline.column_means(0, 200_000).is_empty());
        assert!(Timeline::default().column_means(3, 1).is_empty());
    }

    proptest! {
        #[test]
        fn no_reading_panics_or_is_lost(
            readings in proptest::collection::vec((any::<u64>(), 0.0..1e18), 0..50),
            columns in 0_usize..500,
            span_us: u64,
        ) {
            let mut timeline = Timeline::default();
            for (t_us, value) in &readings {
                timeline.add(*t_us, *value);
            }
            prop_assert_eq!(timeline.readings(), readings.len() as u64);
            prop_assert!(timeline.buckets.len() <= MAX_BUCKETS);
            let expected = if readings.is_empty() { 0 } else { columns };
            prop_assert_eq!(timeline.column_means(columns, span_us).len(), expected);
        }
    }
}
