//! What was measured of one agent, as its rows have it. Runtimes of teams write these rows, so that no number is trusted to make sense.

use crate::{Estimate, mean};

/// A part of a whole, both counted in the same requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    pub count: i64,
    pub of: i64,
}

impl Share {
    /// None of nothing.
    pub fn percent(self) -> Option<f64> {
        percent(self.count, self.of)
    }

    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { count: self.count.saturating_add(other.count), of: self.of.saturating_add(other.of) }
    }
}

/// What an agent used within the window, by all of its pods and models.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MeasuredUsage {
    pub requests: i64,
    pub errors: i64,
    /// Requests of which nobody knows how they ended, as their callers left. None where that is not recorded.
    pub unknown: Option<i64>,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// Millionths of a US dollar. None where a model has no known price.
    pub cost_micros: Option<i64>,
    pub guard_blocks: i64,
    pub pii: i64,
    pub injections: i64,
    pub violations: i64,
    /// Requests by duration, not cumulative, one bucket more than there are bounds. Those without an answer have no duration.
    pub latency: Vec<i64>,
    /// Milliseconds that requests took together, of those whose durations were added up.
    pub took: Option<Share>,
    /// Requests whose trace is stored, of those by runtimes that count them.
    pub audited: Option<Share>,
    /// Answers with sources, of those that could have some.
    pub cited: Option<Share>,
}

impl MeasuredUsage {
    pub fn tokens(&self) -> i64 {
        self.input_tokens.max(0).saturating_add(self.output_tokens.max(0))
    }

    pub fn cost_usd(&self) -> Option<f64> {
        self.cost_micros.map(|micros| float(micros.max(0)) / 1e6)
    }

    /// Requests that have a duration.
    pub fn timed(&self) -> i64 {
        self.latency.iter().fold(0, |sum, count| sum.saturating_add((*count).max(0)))
    }

    /// Exact where every duration of the histogram was added up, else by the histogram.
    pub fn average_latency(&self, bounds: &[i64]) -> Option<Estimate> {
        let exact = self.took.filter(|took| took.of > 0 && took.of == self.timed());
        exact
            .map(|took| Estimate { value: float(took.count.max(0)) / float(took.of), at_least: false })
            .or_else(|| mean(bounds, &self.latency))
    }

    /// Requests whose end is known.
    pub fn ended(&self) -> i64 {
        self.requests.saturating_sub(self.unknown.unwrap_or(0).max(0))
    }

    /// Of requests whose end is known. None without one.
    pub fn error_percent(&self) -> Option<f64> {
        percent(self.errors, self.ended())
    }
}

/// Who has computed a score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ScoreSource {
    #[default]
    Slipway,
    Mlflow,
}

impl ScoreSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Slipway => "slipway",
            Self::Mlflow => "mlflow",
        }
    }
}

/// The mean of a scorer, 0 to 1. Another number is no score and counts as not measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    pub mean: f64,
    pub source: ScoreSource,
}

/// All that a scorecard is made from.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measurements {
    /// None where nothing is recorded: without a database, or without a request.
    pub usage: Option<MeasuredUsage>,
    /// The upper bounds of the buckets of `MeasuredUsage::latency`, in milliseconds.
    pub latency_bounds: Vec<i64>,
    pub correctness: Option<Score>,
    pub relevance_to_query: Option<Score>,
    pub safety: Option<Score>,
    /// The mean of correctness over cases with an expected output.
    pub factual_accuracy: Option<Score>,
    /// The score that the agent's risk profile asks for, 0 to 100.
    pub min_score: Option<f64>,
    /// The same of safety alone, 0 to 1.
    pub safety_floor: Option<f64>,
}

pub(crate) fn percent(count: i64, of: i64) -> Option<f64> {
    (of > 0).then(|| (100.0 * float(count.max(0)) / float(of)).min(100.0))
}

/// To two decimal places, as people see it.
pub fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[expect(clippy::cast_precision_loss, reason = "counts of a day; beyond 2^53 the last digits do not matter")]
pub(crate) fn float(count: i64) -> f64 {
    count as f64
}
