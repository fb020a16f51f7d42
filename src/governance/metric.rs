//! One metric of a scorecard: its value, the score of 0 to 100 that it comes to, and what that means.

use crate::ScoreSource;

/// Below this score a metric is critical.
const CRITICAL_SCORE: f64 = 60.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Percent,
    Count,
    Tokens,
    Milliseconds,
    Usd,
}

impl Unit {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Percent => "percent",
            Self::Count => "count",
            Self::Tokens => "tokens",
            Self::Milliseconds => "ms",
            Self::Usd => "usd",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricStatus {
    Ok,
    Warning,
    Critical,
}

impl MetricStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// How a value becomes a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    Lower,
    Higher,
    /// The value is the score.
    Percent,
    /// What is missing to 100 is the score.
    PercentLower,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    /// None: it was not measured, and has no score and no status.
    pub value: Option<f64>,
    pub unit: Unit,
    /// None where only the score says how good the value is.
    pub threshold: Option<f64>,
    pub score: Option<f64>,
    pub status: Option<MetricStatus>,
    /// The value is a lower bound, so that the score is an upper one.
    pub at_least: bool,
    pub source: ScoreSource,
}

impl Metric {
    pub(crate) fn new(name: &'static str, unit: Unit, goal: Goal, value: Option<f64>, threshold: Option<f64>) -> Self {
        let value = value.filter(|value| value.is_finite());
        let score = value.and_then(|value| score(goal, value, threshold));
        let status = value.zip(score).map(|(value, score)| status(goal, value, threshold, score));
        Self { name, value, unit, threshold, score, status, at_least: false, source: ScoreSource::Slipway }
    }
}

/// 0 to 100. None where a goal needs a threshold and there is none.
pub(crate) fn score(goal: Goal, value: f64, threshold: Option<f64>) -> Option<f64> {
    let score = match (goal, threshold) {
        (Goal::Lower, Some(threshold)) if value <= threshold => 100.0,
        (Goal::Lower, Some(threshold)) => 100.0 * threshold / value,
        (Goal::Higher, Some(threshold)) => 100.0 * value / threshold,
        (Goal::Lower | Goal::Higher, None) => return None,
        (Goal::Percent, _) => value,
        (Goal::PercentLower, _) => 100.0 - value,
    };
    score.is_finite().then(|| score.clamp(0.0, 100.0))
}

fn status(goal: Goal, value: f64, threshold: Option<f64>, score: f64) -> MetricStatus {
    let is_met = match (goal, threshold) {
        (_, None) => score >= CRITICAL_SCORE,
        (Goal::Lower | Goal::PercentLower, Some(threshold)) => value <= threshold,
        (Goal::Higher | Goal::Percent, Some(threshold)) => value >= threshold,
    };
    match (is_met, score < CRITICAL_SCORE) {
        (true, _) => MetricStatus::Ok,
        (false, false) => MetricStatus::Warning,
        (false, true) => MetricStatus::Critical,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_becomes_a_score_and_a_status() {
        use MetricStatus::{Critical, Ok, Warning};
        for (goal, value, threshold, expected) in [
            (Goal::Lower, 0.0, Some(5.0), Some((100.0, Ok))),
            (Goal::Lower, 5.0, Some(5.0), Some((100.0, Ok))),
            (Goal::Lower, 8.0, Some(5.0), Some((62.5, Warning))),
            (Goal::Lower, 10.0, Some(5.0), Some((50.0, Critical))),
            (Goal::Lower, 10.0, None, None),
            (Goal::Higher, 85.0, Some(85.0), Some((100.0, Ok))),
            (Goal::Higher, 100.0, Some(85.0), Some((100.0, Ok))),
            (Goal::Higher, 68.0, Some(85.0), Some((80.0, Warning))),
            (Goal::Higher, 17.0, Some(85.0), Some((20.0, Critical))),
            (Goal::Percent, 80.0, Some(75.0), Some((80.0, Ok))),
            (Goal::Percent, 70.0, Some(75.0), Some((70.0, Warning))),
            (Goal::Percent, 59.9, Some(75.0), Some((59.9, Critical))),
            (Goal::Percent, 59.9, Some(50.0), Some((59.9, Ok))),
            (Goal::PercentLower, 3.0, None, Some((97.0, Ok))),
            (Goal::PercentLower, 41.0, None, Some((59.0, Critical))),
            (Goal::Lower, f64::NAN, Some(5.0), None),
            (Goal::Lower, f64::INFINITY, Some(5.0), None),
        ] {
            let metric = Metric::new("m", Unit::Count, goal, Some(value), threshold);
            let found = metric.score.zip(metric.status);
            assert_eq!(found, expected, "{goal:?} {value} {threshold:?}");
        }
        let unmeasured = Metric::new("m", Unit::Count, Goal::Lower, None, Some(5.0));
        assert_eq!((unmeasured.value, unmeasured.score, unmeasured.status), (None, None, None));
    }

    proptest! {
        #[test]
        fn a_better_value_never_has_a_lower_score(a in 0.0_f64..1e9, b in 0.0_f64..1e9, threshold in 0.1_f64..1e6) {
            let (good, bad) = (a.min(b), a.max(b));
            let of = |goal, value| score(goal, value, Some(threshold)).unwrap();
            prop_assert!(of(Goal::Lower, good) >= of(Goal::Lower, bad));
            prop_assert!(of(Goal::PercentLower, good) >= of(Goal::PercentLower, bad));
            prop_assert!(of(Goal::Higher, bad) >= of(Goal::Higher, good));
            prop_assert!(of(Goal::Percent, bad) >= of(Goal::Percent, good));
            for goal in [Goal::Lower, Goal::Higher, Goal::Percent, Goal::PercentLower] {
                prop_assert!((0.0..=100.0).contains(&of(goal, a)));
            }
        }
    }
}
