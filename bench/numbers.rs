//! Medians, percentiles and growth.

/// The middle one; of an even number, the lower of the two in the middle.
pub(crate) fn median(values: &[f64]) -> f64 {
    percentile(values, 50)
}

/// The value that `percent` of all do not exceed.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// The exponent e of value ~ size^e between the first and the last point: 1 is linear.
pub(crate) fn exponent(points: &[(u32, f64)]) -> Option<f64> {
    let ((small, first), (large, last)) = (points.first()?, points.last()?);
    let exponent = (last / first).ln() / (f64::from(*large) / f64::from(*small)).ln();
    exponent.is_finite().then_some(exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-9
    }

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert!(near(median(&values), 100.0) && near(percentile(&values, 99), 198.0));
        assert!(near(median(&[3.0, 1.0, 2.0]), 2.0) && near(percentile(&[7.0], 99), 7.0));
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn growth_of_a_square_is_two() {
        assert!(exponent(&[(10, 5.0), (100, 500.0)]).is_some_and(|exponent| near(exponent, 2.0)));
        assert!(exponent(&[(10, 5.0)]).is_none() && exponent(&[(10, 0.0), (100, 0.0)]).is_none());
    }
}
