//! Measurements of a canary and of the stable track beside it, and whether they are evidence.

use jiff::{SignedDuration, Timestamp};
use slipway_api::CanaryStatus;
use slipway_database::Used;
use slipway_governance::MeasuredUsage;
use slipway_governance::canary::Evidence;

/// Up to this age a reading is evidence.
const MAX_AGE: SignedDuration = SignedDuration::from_mins(5);

/// What was measured of a canary.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    /// What is long past is no evidence.
    pub read_at: Timestamp,
    /// When the canary began of which this is.
    pub since: Timestamp,
    /// What its pods ran of which this is.
    pub run_hash: Option<String>,
    /// What pods of the stable track ran.
    pub stable_run_hash: Option<String>,
    pub canary: Measured,
    /// The stable track, since the canary began.
    pub stable: Measured,
}

/// What was measured of one track with what it runs now.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub requests: i64,
    pub evidence: Evidence,
    /// Not all of it was read, so that nothing follows from it.
    pub is_partial: bool,
}

/// Readings that say the same are equal, whenever they were read: nobody is told of them twice.
impl PartialEq for Reading {
    fn eq(&self, other: &Self) -> bool {
        let Self { read_at: _, since, run_hash, stable_run_hash, canary, stable } = self;
        let others = (&other.since, &other.run_hash, &other.stable_run_hash, &other.canary, &other.stable);
        (since, run_hash, stable_run_hash, canary, stable) == others
    }
}

impl Reading {
    /// Whether anything follows from it for this canary, beside a stable track that runs `stable`: it is not an earlier one's, nor of
    /// other pods of either track, not from long ago, and whole.
    pub(crate) fn is_evidence(&self, canary: &CanaryStatus, stable: Option<&str>, now: Timestamp) -> bool {
        let is_of_it = canary.started_at.as_ref().is_some_and(|started| started.0 == self.since) && canary.run_hash == self.run_hash;
        is_of_it
            && self.stable_run_hash.as_deref() == stable
            && now.duration_since(self.read_at) <= MAX_AGE
            && !self.canary.is_partial
            && !self.stable.is_partial
    }
}

impl Measured {
    pub(crate) fn of(used: &Used, score: Option<f64>, is_partial: bool) -> Self {
        let usage = MeasuredUsage::from(used);
        let evidence = Evidence { ended: usage.ended(), errors: usage.errors, latency: usage.latency, score };
        Self { requests: usage.requests, evidence, is_partial }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_stale_or_of_another_canary_is_no_evidence() {
        let at = |minutes: i64| Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap();
        let began = |minutes: i64| -> CanaryStatus { serde_json::from_value(json!({"startedAt": at(minutes).to_string()})).unwrap() };
        let measured = |is_partial| Measured::of(&Used::default(), None, is_partial);
        let reading = |is_partial| Reading {
            read_at: at(10),
            since: at(0),
            run_hash: None,
            stable_run_hash: None,
            canary: measured(false),
            stable: measured(is_partial),
        };
        for (reading, canary, now, expected) in [
            (reading(false), began(0), 10, true),
            (reading(false), began(0), 15, true),
            (reading(false), began(0), 16, false),
            (reading(false), began(1), 10, false),
            (reading(false), CanaryStatus { run_hash: Some("other".to_owned()), ..began(0) }, 10, false),
            (reading(false), CanaryStatus::default(), 10, false),
            (reading(true), began(0), 10, false),
        ] {
            assert_eq!(reading.is_evidence(&canary, None, at(now)), expected, "{canary:?} {now}");
        }
        assert!(!reading(false).is_evidence(&began(0), Some("other"), at(10)), "the stable track runs something else by now");
        assert_eq!(reading(false), Reading { read_at: at(11), ..reading(false) }, "it says the same");
        assert_ne!(reading(false), reading(true));
    }
}
