//! Violations of policies by minute, with the usage on their way to the database. What cannot be written is kept within a bound, and the oldest
//! goes first.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use slipway_database::ViolationMinute;

/// Of all minutes together: about 2.5 MiB.
const MAX_ROWS: usize = 4096;

#[derive(Default)]
pub(crate) struct Violations {
    /// By the minute's number since 1970.
    minutes: Mutex<BTreeMap<i64, Vec<ViolationMinute>>>,
}

impl Violations {
    /// Adds one, or what could not be written. Returns how many were dropped for it.
    pub(crate) fn add(&self, violation: ViolationMinute) -> u64 {
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = minutes.entry(number(violation.minute)).or_default();
        if let Some(row) = rows.iter_mut().find(|row| row.same_key(&violation)) {
            row.add(&violation);
            return 0;
        }
        rows.push(violation);
        let mut dropped = 0;
        while minutes.values().map(Vec::len).sum::<usize>() > MAX_ROWS {
            let oldest = minutes.pop_first().map(|(_, rows)| rows).unwrap_or_default();
            dropped += oldest.iter().map(|row| row.count.unsigned_abs()).sum::<u64>();
        }
        dropped
    }

    /// Takes out the finished minutes, oldest first.
    pub(crate) fn take_finished(&self, now: Timestamp) -> Vec<ViolationMinute> {
        let mut minutes = self.minutes.lock().unwrap_or_else(PoisonError::into_inner);
        let under_way = minutes.split_off(&number(now));
        std::mem::replace(&mut *minutes, under_way).into_values().flatten().collect()
    }

    /// Takes out all: before the process ends.
    pub(crate) fn take_all(&self) -> Vec<ViolationMinute> {
        std::mem::take(&mut *self.minutes.lock().unwrap_or_else(PoisonError::into_inner)).into_values().flatten().collect()
    }
}

fn number(at: Timestamp) -> i64 {
    at.as_second().div_euclid(60)
}

/// The beginning of a minute.
pub(crate) fn minute(at: Timestamp) -> Timestamp {
    Timestamp::UNIX_EPOCH.saturating_add(SignedDuration::from_secs(number(at) * 60)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use slipway_database::{MAX_CONVERSATIONS, Stage};

    use super::*;

    fn violation(second: i64, policy: &str, conversation: i64) -> ViolationMinute {
        ViolationMinute {
            minute: minute(Timestamp::from_second(second).unwrap()),
            policy: policy.to_owned(),
            rule: "blocked_topics".to_owned(),
            stage: Stage::Output,
            blocked: true,
            count: 1,
            conversations: vec![conversation],
            last_trace: Some(format!("tr_{second}")),
        }
    }

    #[test]
    fn what_breaks_the_same_rule_in_a_minute_is_one_row() {
        let violations = Violations::default();
        for (second, policy, conversation) in [(60, "gp_a", 1), (119, "gp_a", 2), (100, "gp_a", 1), (61, "gp_b", 1), (120, "gp_a", 1)] {
            violations.add(violation(second, policy, conversation));
        }
        let taken = violations.take_finished(Timestamp::from_second(121).unwrap());
        let shown: Vec<_> = taken.iter().map(|row| (row.policy.as_str(), row.count, row.conversations.as_slice())).collect();
        assert_eq!(shown, [("gp_a", 3, &[1, 2][..]), ("gp_b", 1, &[1])]);
        assert_eq!(taken[0].last_trace.as_deref(), Some("tr_100"));
        assert_eq!((violations.take_all().len(), violations.take_all().len()), (1, 0));
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let violations = Violations::default();
        let mut dropped = 0;
        for number in 0..10_000 {
            for conversation in 0..100 {
                dropped += violations.add(violation(number * 60, "gp_a", conversation));
            }
        }
        let taken = violations.take_all();
        assert_eq!((taken.len(), dropped), (MAX_ROWS, (10_000 - MAX_ROWS as u64) * 100));
        assert!(taken.iter().all(|row| row.conversations.len() == MAX_CONVERSATIONS && row.count == 100));
        assert_eq!(taken[0].minute.as_second(), (10_000 - i64::try_from(MAX_ROWS).unwrap()) * 60);
    }
}
