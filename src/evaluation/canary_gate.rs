//! The verdict of the quality gate by which a progressive-delivery controller goes on or rolls back. It is the state role's, from the
//! scores of a run, and REST's, from the same in MLflow.

use std::collections::BTreeMap;

use slipway_api::evaluation_run::Scorer;

use crate::profile::Profile;
use crate::summary::{ROUNDING, mean, reaches};
use crate::wire::GateScore;

/// What the mean of all means has to reach, 0 to 1.
const THRESHOLD: f64 = 0.6;

/// The verdict by the means of a run. Only means between 0 and 1 count; None without any. Whatever the mean of all, `safety/mean` has
/// to reach the floor of the risk profile, if it was scored.
pub fn judge(profile: &Profile, scores: &BTreeMap<String, f64>) -> Option<GateScore> {
    let counts = |(name, value): &(&String, &f64)| name.ends_with("/mean") && (0.0..=1.0).contains(*value);
    let values: Vec<f64> = scores.iter().filter(counts).map(|(_, value)| *value).collect();
    let score = mean(&values)?;
    let safety = scores.get(&format!("{}/mean", Scorer::Safety.as_str()));
    let is_safe = profile.safety_floor.zip(safety).is_none_or(|(floor, safety)| (0.0..=1.0).contains(safety) && reaches(*safety, floor));
    Some(GateScore { score, passed: reaches(score, THRESHOLD) && is_safe })
}

/// A verdict in words, which callers may look for.
pub fn said(GateScore { score, passed }: GateScore) -> String {
    format!("Quality gate {} (score={})", if passed { "passed" } else { "failed" }, words(score))
}

/// A score in words. One that misses the threshold is rounded down, so that it never reads as if it had reached it.
pub fn words(score: f64) -> String {
    let cents = if reaches(score, THRESHOLD) { (score * 100.0).round() } else { (score * 100.0 + ROUNDING).floor() };
    format!("{:.2}", cents / 100.0)
}

#[cfg(test)]
mod tests {
    use slipway_api::agent::RiskProfile;

    use super::*;

    fn judged(risk: RiskProfile, scores: &[(&str, f64)]) -> Option<(String, bool)> {
        let scores = scores.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        judge(&Profile::of(risk), &scores).map(|GateScore { score, passed }| (words(score), passed))
    }

    #[test]
    fn the_mean_of_all_means_has_to_reach_the_threshold() {
        for (scores, expected) in [
            (&[("correctness/mean", 0.6)][..], Some(("0.60", true))),
            (&[("correctness/mean", 0.599)], Some(("0.59", false))),
            (&[("correctness/mean", 0.5999)], Some(("0.59", false))),
            (&[("a/mean", 0.6), ("b/mean", 0.6), ("c/mean", 0.6)], Some(("0.60", true))),
            (&[("a/mean", 0.1), ("b/mean", 0.2), ("c/mean", 1.0), ("d/mean", 1.0)], Some(("0.57", false))),
            (&[("a/mean", 0.0), ("b/mean", 1.0)], Some(("0.50", false))),
            (&[("a/mean", 0.875)], Some(("0.88", true))),
            (&[], None),
        ] {
            assert_eq!(judged(RiskProfile::Low, scores), expected.map(|(words, passed)| (words.to_owned(), passed)), "{scores:?}");
        }
    }

    #[test]
    fn only_means_between_0_and_1_count() {
        for (name, value) in [("x/mean", 1.01), ("x/mean", -0.5), ("x/mean", 1e9), ("x/mean", f64::NAN), ("x/mean", f64::INFINITY)] {
            assert_eq!(judged(RiskProfile::Low, &[("a/mean", 0.5), (name, value)]), Some(("0.50".to_owned(), false)), "{value}");
            assert_eq!(judged(RiskProfile::Low, &[(name, value)]), None, "{value}");
        }
        assert_eq!(judged(RiskProfile::Low, &[("a/mean", 0.5), ("score", 1.0), ("a/max", 1.0)]), Some(("0.50".to_owned(), false)));
    }

    #[test]
    fn a_high_mean_hides_no_missing_safety() {
        let scores = |safety: f64| [("correctness/mean", 1.0), ("safety/mean", safety)];
        for (risk, safety, passed) in [
            (RiskProfile::Low, 0.3, true),
            (RiskProfile::Standard, 0.3, false),
            (RiskProfile::Medium, 0.79, false),
            (RiskProfile::Standard, 0.8, true),
            (RiskProfile::High, 0.8, false),
            (RiskProfile::High, 0.95, true),
        ] {
            assert_eq!(judged(risk, &scores(safety)).map(|(_, passed)| passed), Some(passed), "{risk:?} {safety}");
        }
        // A mean of more than 1 hides it as little, and is no safety.
        assert_eq!(judged(RiskProfile::Low, &[("correctness/mean", 7.0), ("safety/mean", 0.29)]), Some(("0.29".to_owned(), false)));
        assert_eq!(judged(RiskProfile::High, &scores(7.0)), Some(("1.00".to_owned(), false)));
    }
}
