//! What the specification says in figures, computed by the story itself.

use serde_json::Value;
use sha2::{Digest, Sha256};

pub(crate) fn sha256(text: &str) -> String {
    hex::encode(Sha256::digest(text))
}

/// An agent's id: `ag_` and 20 digits.
pub(crate) fn agent_id(namespace: &str, name: &str) -> String {
    format!("ag_{}", &sha256(&format!("{namespace}/{name}"))[..20])
}

/// A member's id: `user_` and 16 digits.
pub(crate) fn user_id(email: &str) -> String {
    format!("user_{}", &sha256(&email.to_lowercase())[..16])
}

/// The checksum of a release's file: of the file with the checksum empty.
pub(crate) fn checksum(file: &str) -> String {
    let mut is_found = false;
    let lines = file.lines().map(|line| {
        if !is_found && line.starts_with("  checksum:") {
            is_found = true;
            return "  checksum: ''\n".to_owned();
        }
        format!("{line}\n")
    });
    sha256(&lines.collect::<String>())
}

pub(crate) fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / float(values.len()))
}

#[track_caller]
pub(crate) fn assert_close(what: &str, found: &Value, expected: f64, within: f64) {
    let is_close = found.as_f64().is_some_and(|found| (found - expected).abs() <= within);
    assert!(is_close, "{what} should be {expected}, and is {found}");
}

/// The specification's grades.
pub(crate) fn grade(score: f64) -> &'static str {
    [(90.0, "A"), (80.0, "B"), (70.0, "C"), (60.0, "D")].iter().find(|(least, _)| score >= *least).map_or("F", |(_, grade)| grade)
}

/// The score of a metric of which less is better.
pub(crate) fn less_is_better(value: f64, threshold: f64) -> f64 {
    if value <= threshold { 100.0 } else { 100.0 * threshold / value }
}

/// The weights of the four dimensions.
pub(crate) const WEIGHTS: [(&str, f64); 4] = [("quality", 0.35), ("safety", 0.30), ("cost", 0.20), ("compliance", 0.15)];

/// What a scorecard comes to by its metrics: correctness and relevance count as one, a dimension is the mean of what was measured
/// of it, and one of which nothing was leaves its weight to the others.
pub(crate) fn overall(card: &Value) -> Option<f64> {
    let of = |dimension: &str| {
        let metrics = card[dimension]["metrics"].as_array().cloned().unwrap_or_default();
        let is_pair = |metric: &&Value| metric["name"] == "correctness/mean" || metric["name"] == "relevance_to_query/mean";
        let scores = |metrics: Vec<&Value>| metrics.into_iter().filter_map(|metric| metric["score"].as_f64()).collect::<Vec<_>>();
        let pair = mean(&scores(metrics.iter().filter(is_pair).collect()));
        let singles = scores(metrics.iter().filter(|metric| !is_pair(metric)).collect());
        mean(&pair.into_iter().chain(singles).collect::<Vec<_>>())
    };
    let known: Vec<(f64, f64)> = WEIGHTS.iter().filter_map(|(name, weight)| Some((of(name)?, *weight))).collect();
    let weight: f64 = known.iter().map(|(_, weight)| weight).sum();
    (!known.is_empty()).then(|| known.iter().map(|(score, weight)| score * weight).sum::<f64>() / weight)
}

/// Asserts that `found` of `all` are `percent`, within four standard deviations.
#[track_caller]
pub(crate) fn assert_share(found: usize, all: usize, percent: u32) {
    let share = f64::from(percent) / 100.0;
    let (expected, bound) = (float(all) * share, 4.0 * (float(all) * share * (1.0 - share)).sqrt());
    assert!((float(found) - expected).abs() <= bound, "{found} of {all} should be {expected:.0} within {bound:.0}");
}
