//! Means and quantiles of a histogram. Within a bucket durations are taken to be spread evenly; of the last, which has no upper bound,
//! only the lower bound can be said.

use crate::measurements::float;

/// What a histogram says of a duration, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    pub value: f64,
    /// The value is a lower bound: durations beyond the last bound are in it.
    pub at_least: bool,
}

/// The buckets as lower bound, upper bound and count.
fn buckets<'a>(bounds: &'a [i64], counts: &'a [i64]) -> impl Iterator<Item = (f64, Option<f64>, f64)> + 'a {
    counts.iter().take(bounds.len() + 1).enumerate().map(|(place, count)| {
        let lower = place.checked_sub(1).and_then(|before| bounds.get(before)).map_or(0.0, |bound| float(*bound));
        (lower, bounds.get(place).map(|bound| float(*bound)), float((*count).max(0)))
    })
}

/// None if nothing was counted.
pub fn mean(bounds: &[i64], counts: &[i64]) -> Option<Estimate> {
    let (mut sum, mut total, mut at_least) = (0.0, 0.0, false);
    for (lower, upper, count) in buckets(bounds, counts) {
        sum += count * upper.map_or(lower, |upper| f64::midpoint(lower, upper));
        total += count;
        at_least |= upper.is_none() && count > 0.0;
    }
    (total > 0.0).then(|| Estimate { value: sum / total, at_least })
}

/// The duration that a share `q` of all, 0 to 1, does not exceed. None if nothing was counted.
pub fn quantile(bounds: &[i64], counts: &[i64], q: f64) -> Option<Estimate> {
    let total: f64 = buckets(bounds, counts).map(|(_, _, count)| count).sum();
    let rank = q.clamp(0.0, 1.0) * total;
    let mut below = 0.0;
    for (lower, upper, count) in buckets(bounds, counts).filter(|(_, _, count)| *count > 0.0) {
        if below + count >= rank {
            return Some(match upper {
                Some(upper) => Estimate { value: lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0), at_least: false },
                None => Estimate { value: lower, at_least: true },
            });
        }
        below += count;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: [i64; 3] = [10, 100, 1000];

    #[test]
    fn what_a_histogram_says() {
        for (counts, median, p95, average) in [
            ([0, 0, 0, 0], None, None, None),
            ([10, 0, 0, 0], Some((5.0, false)), Some((9.5, false)), Some((5.0, false))),
            ([50, 50, 0, 0], Some((10.0, false)), Some((91.0, false)), Some((30.0, false))),
            ([90, 0, 0, 10], Some((50.0 / 9.0, false)), Some((1000.0, true)), Some((104.5, true))),
            ([0, 0, 0, 7], Some((1000.0, true)), Some((1000.0, true)), Some((1000.0, true))),
            ([-5, 0, 4, 0], Some((550.0, false)), Some((955.0, false)), Some((550.0, false))),
        ] {
            let said = |estimate: Option<Estimate>| estimate.map(|estimate| (estimate.value, estimate.at_least));
            let close = |one: Option<(f64, bool)>, other: Option<(f64, bool)>| match (one, other) {
                (Some(one), Some(other)) => (one.0 - other.0).abs() < 1e-9 && one.1 == other.1,
                (one, other) => one == other,
            };
            let found = [quantile(&BOUNDS, &counts, 0.5), quantile(&BOUNDS, &counts, 0.95), mean(&BOUNDS, &counts)].map(said);
            assert!([median, p95, average].iter().zip(found).all(|(one, other)| close(*one, other)), "{counts:?}: {found:?}");
        }
        assert_eq!(
            quantile(&BOUNDS, &[1, 1], 1.0).map(|estimate| estimate.value),
            Some(100.0),
            "a shorter histogram is one without the rest"
        );
    }

    proptest! {
        #[test]
        fn a_quantile_is_in_the_bucket_of_its_request(durations in prop::collection::vec(0_i64..3000, 1..200), q in 0.01_f64..1.0) {
            let mut counts = [0; 4];
            for duration in &durations {
                counts[BOUNDS.partition_point(|bound| bound < duration)] += 1;
            }
            let mut sorted = durations;
            sorted.sort_unstable();
            #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
            let exact = sorted[((q * sorted.len() as f64).ceil() as usize).clamp(1, sorted.len()) - 1];
            let place = BOUNDS.partition_point(|bound| *bound < exact);
            let estimate = quantile(&BOUNDS, &counts, q).unwrap();
            let lower = if place == 0 { 0.0 } else { float(BOUNDS[place - 1]) };
            prop_assert_eq!(estimate.at_least, place == 3);
            prop_assert!(estimate.value >= lower && BOUNDS.get(place).is_none_or(|bound| estimate.value <= float(*bound)), "{estimate:?} {exact}");
        }
    }
}
