//! From which values on there is an alert about a topic, and the words for it.

use super::{Severity, Topic};

/// A value from which on an alert has this severity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    pub at: f64,
    pub severity: Severity,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    pub topic: Topic,
    /// The id of the policy that sets it; empty where the platform does.
    pub policy: String,
    /// What the policy allows, or the highest level.
    pub allowed: f64,
    levels: Vec<Level>,
}

impl Limit {
    /// Of no levels, or of one that is no positive number, there is no limit.
    fn new(topic: Topic, policy: &str, allowed: f64, mut levels: Vec<Level>) -> Option<Self> {
        levels.retain(|level| level.at.is_finite() && level.at > 0.0);
        levels.sort_by(|one, other| one.at.total_cmp(&other.at).then(one.severity.cmp(&other.severity)));
        (!levels.is_empty()).then(|| Self { topic, policy: policy.to_owned(), allowed, levels })
    }

    /// What the platform itself alerts about, whatever the policies.
    pub fn platform() -> Vec<Self> {
        let levels = |warning: f64, critical: Option<f64>| {
            let critical = critical.map(|at| Level { at, severity: Severity::Critical });
            [Level { at: warning, severity: Severity::Warning }].into_iter().chain(critical).collect()
        };
        let limit = |topic, allowed, levels| Self::new(topic, "", allowed, levels);
        let down = vec![Level { at: 2.0, severity: Severity::Critical }];
        [
            limit(Topic::Down, 2.0, down),
            limit(Topic::ErrorRate, 5.0, levels(5.0, Some(20.0))),
            // The specification's threshold is 2; more than that is too much.
            limit(Topic::Injections, 2.0, levels(3.0, Some(20.0))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Of a policy that bounds the latency of an answer, in milliseconds.
    pub fn latency(policy: &str, severity: Severity, milliseconds: f64) -> Option<Self> {
        Self::new(Topic::P95Latency, policy, milliseconds, vec![Level { at: milliseconds, severity }])
    }

    /// Of a policy that bounds the cost of a day: a warning before, and the policy's severity when it is spent.
    pub fn daily_cost(policy: &str, severity: Severity, usd: f64) -> Option<Self> {
        let levels = vec![Level { at: 0.8 * usd, severity: Severity::Warning }, Level { at: usd, severity }];
        Self::new(Topic::DailyCost, policy, usd, levels)
    }

    /// Of a policy that was broken more than twice within the window of a reading.
    pub fn violations(policy: &str, severity: Severity) -> Option<Self> {
        Self::new(Topic::Violations, policy, 2.0, vec![Level { at: 3.0, severity }])
    }

    /// The highest level that a value reaches.
    pub fn reached(&self, value: f64) -> Option<Level> {
        self.levels.iter().rev().find(|level| value >= level.at).copied()
    }

    /// Below this value an alert may end: well below its lowest level, so that a value that wavers about it does not end it.
    pub(super) fn calm_below(&self) -> f64 {
        0.9 * self.levels.first().map_or(f64::INFINITY, |level| level.at)
    }

    /// For people: the value, and what it is held against.
    pub fn message(&self, value: f64, level: &Level) -> String {
        let policy = if self.policy.is_empty() { String::new() } else { format!(" (policy {})", self.policy) };
        let (value, at, allowed) = (number(value), number(level.at), number(self.allowed));
        match self.topic {
            Topic::Down => format!("no replica has taken requests for {value} minutes; from {at} on that is an alert"),
            Topic::ErrorRate => format!("{value} % of requests ended in errors; from {at} % on that is an alert"),
            Topic::P95Latency => format!("one answer in twenty took {value} ms or longer; {allowed} ms are allowed{policy}"),
            Topic::DailyCost => format!("today has cost {value} USD; {allowed} USD a day are allowed{policy}"),
            Topic::Violations => format!("{value} violations within a quarter of an hour; {allowed} are no alert{policy}"),
            Topic::Injections => format!("{value} attempts at prompt injection within a quarter of an hour; {allowed} are no alert"),
        }
    }
}

/// At most two digits after the point.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reaches_the_highest_level_that_it_can() {
        let cost = |severity| Limit::daily_cost("gp_cap", severity, 10.0).unwrap();
        for (limit, value, expected) in [
            (cost(Severity::Critical), 7.99, None),
            (cost(Severity::Critical), 8.0, Some((8.0, Severity::Warning))),
            (cost(Severity::Critical), 10.0, Some((10.0, Severity::Critical))),
            (cost(Severity::Warning), 12.0, Some((10.0, Severity::Warning))),
            (Limit::violations("gp_topics", Severity::Critical).unwrap(), 2.0, None),
            (Limit::violations("gp_topics", Severity::Critical).unwrap(), 3.0, Some((3.0, Severity::Critical))),
            (Limit::platform()[0].clone(), 2.0, Some((2.0, Severity::Critical))),
            (Limit::platform()[1].clone(), 19.9, Some((5.0, Severity::Warning))),
        ] {
            assert_eq!(limit.reached(value).map(|level| (level.at, level.severity)), expected, "{limit:?} {value}");
        }
    }

    #[test]
    fn a_bound_that_is_no_positive_number_is_no_limit() {
        for bound in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Limit::latency("gp_x", Severity::Warning, bound), None, "{bound}");
            assert_eq!(Limit::daily_cost("gp_x", Severity::Warning, bound), None, "{bound}");
        }
    }

    #[test]
    fn a_message_has_the_value_and_what_is_allowed() {
        let limit = Limit::daily_cost("gp_cap", Severity::Critical, 10.0).unwrap();
        let message = limit.message(8.456, &limit.reached(8.456).unwrap());
        assert_eq!(message, "today has cost 8.46 USD; 10 USD a day are allowed (policy gp_cap)");
        let limit = &Limit::platform()[1];
        assert_eq!(
            limit.message(100.0, &limit.reached(100.0).unwrap()),
            "100 % of requests ended in errors; from 20 % on that is an alert"
        );
    }
}
