//! Alerts: which there are, from which values on, and what is said. `state` decides when one begins and ends.

mod limit;
mod state;

pub use limit::{Level, Limit};
pub use state::{AlertStep, Open, RESOLVE_AFTER, judge};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    Warning,
    Critical,
}

impl Severity {
    pub const ALL: [Self; 2] = [Self::Warning, Self::Critical];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text)
    }
}

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// Minutes without a replica that takes requests.
    Down,
    ErrorRate,
    P95Latency,
    DailyCost,
    Violations,
    Injections,
}

impl Topic {
    pub const ALL: [Self; 6] = [Self::Down, Self::ErrorRate, Self::P95Latency, Self::DailyCost, Self::Violations, Self::Injections];

    /// The alert's `metric`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Down => "minutes_down",
            Self::ErrorRate => "error_rate_pct",
            Self::P95Latency => "p95_latency_ms",
            Self::DailyCost => "daily_cost_usd",
            Self::Violations => "policy_violation_count",
            Self::Injections => "injection_attempt_count",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == text)
    }

    /// Whether an agent with such an alert, that is ready, is degraded.
    pub fn degrades(self) -> bool {
        matches!(self, Self::ErrorRate | Self::P95Latency)
    }
}

/// What a pass has found of a topic. A pass that cannot read ends before that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// It was read, and there is nothing to judge, as without requests there is no rate. All is calm.
    Nothing,
    Value(f64),
}

impl Reading {
    pub fn of(value: Option<f64>) -> Self {
        value.filter(|value| value.is_finite()).map_or(Self::Nothing, Self::Value)
    }
}
