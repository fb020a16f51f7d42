//! When an alert begins and ends. It begins when a value has stood at a level for a while, and ends when it has been well below the
//! lowest level for a while, so that a value that wavers makes one alert and not many. While it is open its severity only rises.
//!
//! What has to be known after a restart is in the alert's row; `since`, the time from which an alert that has not begun yet is due,
//! may be forgotten: it then begins a little later.

use jiff::{SignedDuration, Timestamp};

use super::{Level, Limit, Reading, Severity, Topic};

/// How long a value has to be calm.
pub const RESOLVE_AFTER: SignedDuration = SignedDuration::from_mins(5);

/// An alert that has begun and not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Open {
    pub severity: Severity,
    pub threshold: f64,
    /// When its value was last not calm.
    pub last_seen: Timestamp,
}

#[derive(Debug, Clone, PartialEq)]
pub enum AlertStep {
    /// There is no alert and no cause for one.
    Rest,
    /// Should the value stay, there will be an alert: it has been due since then.
    Wait {
        since: Timestamp,
    },
    Raise {
        value: f64,
        level: Level,
    },
    /// The alert stays as it is, because its time to end has not come.
    Keep,
    /// The value is not calm: it is noted with the level of the alert, which may have risen.
    Renew {
        value: f64,
        level: Level,
        has_risen: bool,
    },
    Resolve,
}

impl Limit {
    /// How long a value has to stand before there is an alert. Counts and sums do not waver.
    fn raise_after(&self) -> SignedDuration {
        match self.topic {
            Topic::ErrorRate => SignedDuration::from_mins(2),
            Topic::P95Latency => SignedDuration::from_mins(5),
            Topic::Down | Topic::DailyCost | Topic::Violations | Topic::Injections => SignedDuration::ZERO,
        }
    }
}

/// What follows from a reading. `since` is that of the last `Wait`, if the step before was one.
pub fn judge(limit: &Limit, reading: Reading, open: Option<&Open>, since: Option<Timestamp>, now: Timestamp) -> AlertStep {
    let Some(open) = open else { return closed(limit, reading, since, now) };
    match reading {
        Reading::Value(value) if value >= limit.calm_below() => {
            let former = Level { at: open.threshold, severity: open.severity };
            let level = limit
                .reached(value)
                .filter(|level| level.severity > former.severity || level.at > former.at && level.severity == former.severity);
            AlertStep::Renew {
                value,
                level: level.unwrap_or(former),
                has_risen: level.is_some_and(|level| level.severity > former.severity),
            }
        }
        Reading::Nothing | Reading::Value(_) if now.duration_since(open.last_seen) >= RESOLVE_AFTER => AlertStep::Resolve,
        Reading::Nothing | Reading::Value(_) => AlertStep::Keep,
    }
}

fn closed(limit: &Limit, reading: Reading, since: Option<Timestamp>, now: Timestamp) -> AlertStep {
    let reached = match reading {
        Reading::Value(value) => limit.reached(value).map(|level| (value, level)),
        Reading::Nothing => None,
    };
    let Some((value, level)) = reached else { return AlertStep::Rest };
    let since = since.unwrap_or(now);
    if now.duration_since(since) >= limit.raise_after() { AlertStep::Raise { value, level } } else { AlertStep::Wait { since } }
}

#[cfg(test)]
mod tests;
