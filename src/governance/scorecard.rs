//! Metrics become four dimensions, and these one mark. A dimension is the mean of what was measured of it; a dimension of which nothing
//! was measured leaves its weight to the others. What was not measured is named, and lowers the coverage.

use std::iter;

use jiff::Timestamp;

use crate::measurements::{Score, Share, float, percent};
use crate::metric::Goal;
use crate::{MeasuredUsage, Measurements, Metric, ScoreSource, Unit};

const PII_THRESHOLD: f64 = 5.0;
const INJECTION_THRESHOLD: f64 = 2.0;
const TOKENS_THRESHOLD: f64 = 1500.0;
const LATENCY_THRESHOLD_MS: f64 = 1000.0;
const DAILY_COST_THRESHOLD_USD: f64 = 5.0;
const VIOLATION_THRESHOLD: f64 = 2.0;
const AUDIT_THRESHOLD_PERCENT: f64 = 85.0;
/// How much a floating point number may fall short of the half that it stands for.
const ROUNDING: f64 = 1e-7;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    A,
    B,
    C,
    D,
    F,
}

impl Grade {
    pub fn of(score: f64) -> Self {
        match score {
            _ if score >= 90.0 => Self::A,
            _ if score >= 80.0 => Self::B,
            _ if score >= 70.0 => Self::C,
            _ if score >= 60.0 => Self::D,
            _ => Self::F,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
            Self::D => "D",
            Self::F => "F",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DimensionName {
    Quality,
    Safety,
    Cost,
    Compliance,
}

impl DimensionName {
    pub const ALL: [Self; 4] = [Self::Quality, Self::Safety, Self::Cost, Self::Compliance];

    pub fn weight(self) -> f64 {
        match self {
            Self::Quality => 0.35,
            Self::Safety => 0.30,
            Self::Cost => 0.20,
            Self::Compliance => 0.15,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Dimension {
    /// 0 to 100. None if nothing of it was measured.
    pub score: Option<f64>,
    pub grade: Option<Grade>,
    pub metrics: Vec<Metric>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scorecard {
    /// 0 to 100. None if nothing was measured.
    pub overall: Option<f64>,
    pub grade: Option<Grade>,
    pub quality: Dimension,
    pub safety: Dimension,
    pub cost: Dimension,
    pub compliance: Dimension,
    /// How much of all was measured, by weight, 0 to 1.
    pub coverage: f64,
    /// The names of the metrics that have no value.
    pub not_measured: Vec<&'static str>,
    /// MLflow if a score of its is among the metrics.
    pub source: ScoreSource,
    pub updated_at: Timestamp,
}

impl Scorecard {
    pub fn dimension(&self, name: DimensionName) -> &Dimension {
        match name {
            DimensionName::Quality => &self.quality,
            DimensionName::Safety => &self.safety,
            DimensionName::Cost => &self.cost,
            DimensionName::Compliance => &self.compliance,
        }
    }
}

/// What is counted as one: a metric, or several whose mean counts.
type Group = Vec<Metric>;

pub fn scorecard(measured: &Measurements, now: Timestamp) -> Scorecard {
    let groups = [quality(measured), safety(measured), cost(measured), compliance(measured)];
    let scores: Vec<Option<f64>> = groups.iter().map(|groups| mean(groups.iter().filter_map(group_score))).collect();
    let weights = DimensionName::ALL.map(DimensionName::weight);
    let known = || iter::zip(&scores, weights).filter_map(|(score, weight)| Some(((*score)?, weight)));
    let measured_weight: f64 = known().map(|(_, weight)| weight).sum();
    let overall = (measured_weight > 0.0).then(|| rounded(known().map(|(score, weight)| score * weight).sum::<f64>() / measured_weight));
    let coverage = iter::zip(&groups, weights).map(|(groups, weight)| weight * coverage(groups)).sum();
    let metrics = || groups.iter().flatten().flatten();
    let not_measured = metrics().filter(|metric| metric.value.is_none()).map(|metric| metric.name).collect();
    let source = metrics().filter(|metric| metric.value.is_some()).map(|metric| metric.source).max().unwrap_or_default();
    let dimensions = iter::zip(groups, scores).map(|(groups, score)| {
        let score = score.map(rounded);
        Dimension { score, grade: score.map(Grade::of), metrics: groups.into_iter().flatten().collect() }
    });
    let mut dimensions = dimensions.collect::<Vec<_>>().into_iter();
    let mut next = || dimensions.next().unwrap_or(Dimension { score: None, grade: None, metrics: Vec::new() });
    Scorecard {
        overall,
        grade: overall.map(Grade::of),
        quality: next(),
        safety: next(),
        cost: next(),
        compliance: next(),
        coverage: rounded(coverage),
        not_measured,
        source,
        updated_at: now,
    }
}

/// The specification averages two scorers, which therefore count as one.
fn quality(measured: &Measurements) -> Vec<Group> {
    let scorer = |name, score| of_score(name, score, measured.min_score);
    let cited = answered(measured).and_then(|usage| usage.cited).and_then(Share::percent);
    vec![
        vec![scorer("correctness/mean", measured.correctness), scorer("relevance_to_query/mean", measured.relevance_to_query)],
        vec![Metric::new("source_citation_rate", Unit::Percent, Goal::Percent, cited, measured.min_score)],
        vec![scorer("factual_accuracy", measured.factual_accuracy)],
    ]
}

fn safety(measured: &Measurements) -> Vec<Group> {
    let usage = answered(measured);
    let blocked = usage.and_then(|usage| percent(usage.guard_blocks, usage.requests));
    let floor = measured.safety_floor.map(|floor| floor * 100.0);
    let count = |name, value: Option<i64>, threshold| Metric::new(name, Unit::Count, Goal::Lower, value.map(counted), Some(threshold));
    vec![
        vec![of_score("safety/mean", measured.safety, floor)],
        vec![Metric::new("guard_block_rate", Unit::Percent, Goal::PercentLower, blocked, None)],
        vec![count("pii_detection_count", usage.map(|usage| usage.pii), PII_THRESHOLD)],
        vec![count("injection_attempt_count", usage.map(|usage| usage.injections), INJECTION_THRESHOLD)],
    ]
}

fn cost(measured: &Measurements) -> Vec<Group> {
    let usage = answered(measured);
    let tokens = usage.map(|usage| float(usage.tokens()) / float(usage.requests));
    let average = usage.and_then(|usage| usage.average_latency(&measured.latency_bounds));
    // Background work has its price without a request.
    let spent = measured.usage.as_ref().filter(|usage| usage.requests > 0 || usage.tokens() > 0).and_then(MeasuredUsage::cost_usd);
    let lower = |name, unit, value, threshold| Metric::new(name, unit, Goal::Lower, value, Some(threshold));
    let latency = lower("avg_latency_ms", Unit::Milliseconds, average.map(|average| average.value), LATENCY_THRESHOLD_MS);
    vec![
        vec![lower("avg_tokens_per_request", Unit::Tokens, tokens, TOKENS_THRESHOLD)],
        vec![Metric { at_least: average.is_some_and(|average| average.at_least), ..latency }],
        vec![lower("estimated_daily_cost_usd", Unit::Usd, spent, DAILY_COST_THRESHOLD_USD)],
    ]
}

fn compliance(measured: &Measurements) -> Vec<Group> {
    let usage = answered(measured);
    let violations = usage.map(|usage| counted(usage.violations));
    let audited = usage.and_then(|usage| usage.audited).and_then(Share::percent);
    vec![
        vec![Metric::new("policy_violation_count", Unit::Count, Goal::Lower, violations, Some(VIOLATION_THRESHOLD))],
        vec![Metric::new("audit_coverage_pct", Unit::Percent, Goal::Higher, audited, Some(AUDIT_THRESHOLD_PERCENT))],
    ]
}

/// Where nothing was asked, nothing was found, and that is no merit.
fn answered(measured: &Measurements) -> Option<&MeasuredUsage> {
    measured.usage.as_ref().filter(|usage| usage.requests > 0)
}

fn of_score(name: &'static str, score: Option<Score>, threshold: Option<f64>) -> Metric {
    let score = score.filter(|score| (0.0..=1.0).contains(&score.mean));
    let metric = Metric::new(name, Unit::Percent, Goal::Percent, score.map(|score| score.mean * 100.0), threshold);
    Metric { source: score.map_or(ScoreSource::Slipway, |score| score.source), ..metric }
}

fn counted(count: i64) -> f64 {
    float(count.max(0))
}

fn group_score(group: &Group) -> Option<f64> {
    mean(group.iter().filter_map(|metric| metric.score))
}

fn coverage(groups: &[Group]) -> f64 {
    let share = |group: &Group| mean(group.iter().map(|metric| if metric.score.is_some() { 1.0 } else { 0.0 }));
    mean(groups.iter().filter_map(share)).unwrap_or(0.0)
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

/// To two digits, so that a grade is that of the number shown.
fn rounded(value: f64) -> f64 {
    (value * 100.0 + ROUNDING).round() / 100.0
}

#[cfg(test)]
mod tests;
