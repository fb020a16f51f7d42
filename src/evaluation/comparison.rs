//! Two runs beside each other.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::summary::ROUNDING;

/// How far apart two means may be and still be a tie.
const TIE: f64 = 0.005;

/// Which run is better.
#[derive(Serialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Winner {
    A,
    B,
    Tie,
}

/// One metric of both runs.
#[derive(Serialize, Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    pub a: Option<f64>,
    pub b: Option<f64>,
    /// How much higher `b` is than `a`.
    pub diff: Option<f64>,
    pub winner: Winner,
}

/// All metrics of both runs.
#[derive(Serialize, Debug, Clone, PartialEq)]
pub struct Comparison {
    pub metrics: BTreeMap<String, Metric>,
    pub winner: Winner,
}

/// Compares two runs by their means (`<scorer>/mean`). A metric that only one run has is a tie, and does not count for the
/// winner of all; a value that is no mean (outside 0 to 1) is as if it were not there.
pub fn compare(a: &BTreeMap<String, f64>, b: &BTreeMap<String, f64>) -> Comparison {
    let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let mut metrics = BTreeMap::new();
    let mut differences = Vec::new();
    for name in names {
        let (a, b) = (mean(a, name), mean(b, name));
        if a.is_none() && b.is_none() {
            continue;
        }
        let diff = a.zip(b).map(|(a, b)| rounded(b - a));
        differences.extend(diff);
        metrics.insert(name.clone(), Metric { a, b, diff, winner: diff.map_or(Winner::Tie, winner) });
    }
    let shared = u32::try_from(differences.len()).map_or(1.0, f64::from).max(1.0);
    Comparison { metrics, winner: winner(differences.iter().sum::<f64>() / shared) }
}

fn mean(means: &BTreeMap<String, f64>, name: &str) -> Option<f64> {
    means.get(name).copied().filter(|mean| (0.0..=1.0).contains(mean))
}

fn winner(diff: f64) -> Winner {
    if diff.abs() <= TIE + ROUNDING {
        Winner::Tie
    } else if diff > 0.0 {
        Winner::B
    } else {
        Winner::A
    }
}

/// Without the noise of floating point, as it is shown.
fn rounded(diff: f64) -> f64 {
    (diff * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn means(values: &[(&str, f64)]) -> BTreeMap<String, f64> {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn metrics_are_compared_one_by_one_and_together() {
        let a = means(&[("correctness/mean", 0.7), ("fluency/mean", 0.9), ("safety/mean", 1.0), ("summarization/mean", 7.0)]);
        let b = means(&[("correctness/mean", 0.8), ("completeness/mean", 0.2), ("safety/mean", 0.995)]);
        let Comparison { metrics, winner } = compare(&a, &b);
        let shown = serde_json::to_string(&metrics).unwrap();
        assert_eq!(
            shown,
            concat!(
                r#"{"completeness/mean":{"a":null,"b":0.2,"diff":null,"winner":"tie"},"#,
                r#""correctness/mean":{"a":0.7,"b":0.8,"diff":0.1,"winner":"b"},"#,
                r#""fluency/mean":{"a":0.9,"b":null,"diff":null,"winner":"tie"},"#,
                r#""safety/mean":{"a":1.0,"b":0.995,"diff":-0.005,"winner":"tie"}}"#
            )
        );
        assert_eq!(winner, Winner::B);
        assert_eq!(compare(&b, &a).winner, Winner::A);
        assert_eq!(compare(&a, &a).winner, Winner::Tie);
        assert_eq!(compare(&means(&[]), &a).winner, Winner::Tie, "nothing is shared");
    }

    proptest! {
        #[test]
        fn sides_can_be_exchanged(values in proptest::collection::vec((0_u8..6, 0.0..1.0, 0.0..1.0), 0..8)) {
            let a: BTreeMap<String, f64> = values.iter().map(|(name, a, _)| (format!("m{name}"), *a)).collect();
            let b: BTreeMap<String, f64> = values.iter().map(|(name, _, b)| (format!("m{name}"), *b)).collect();
            let (there, back) = (compare(&a, &b).winner, compare(&b, &a).winner);
            let expected = match there { Winner::A => Winner::B, Winner::B => Winner::A, Winner::Tie => Winner::Tie };
            prop_assert_eq!(back, expected);
        }
    }
}
