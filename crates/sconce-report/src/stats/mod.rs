//! Statistics that do not trust their data: medians, ranks and order statistics.

pub(crate) mod growth;
pub(crate) mod shift;

/// The value below which a `share` (0 to 1) of sorted values lies, between neighbours where it falls
/// between them; `None` without values.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let at = share.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (at - at.floor()))
}

/// Sorted, without what is no number.
pub(crate) fn sort_finite(mut values: Vec<f64>) -> Vec<f64> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    values
}

/// The middle of values in any order.
pub(crate) fn median(values: Vec<f64>) -> Option<f64> {
    quantile(&sort_finite(values), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        assert_eq!(median(vec![3.0, 1.0, f64::NAN, 2.0]), Some(2.0));
        assert_eq!(median(vec![1.0, 2.0]), Some(1.5));
        assert_eq!(median(vec![]), None);
        let values: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.95), Some(95.0));
    }
}
