//! The requests of a minute and the cost of a day. Memory is constant: a minute is sixty-one buckets of one second, a day is one sum.

use super::{Limit, amount};

/// Requests of the last sixty seconds and of the current one, so that no period of sixty seconds exceeds the limit.
#[derive(Debug, Clone)]
pub(super) struct Minute {
    buckets: [u32; Self::BUCKETS],
    now: u64,
}

impl Default for Minute {
    fn default() -> Self {
        Self { buckets: [0; Self::BUCKETS], now: 0 }
    }
}

impl Minute {
    const BUCKETS: usize = 61;

    /// A clock that goes back is treated as standing still.
    pub(super) fn advance_to(&mut self, now: u64) {
        let passed = now.saturating_sub(self.now);
        for second in 0..passed.min(Self::BUCKETS as u64) {
            let bucket = self.bucket(self.now + 1 + second);
            self.buckets[bucket] = 0;
        }
        self.now = self.now.max(now);
        if passed >= Self::BUCKETS as u64 {
            self.buckets = [0; Self::BUCKETS];
        }
    }

    fn bucket(&self, second: u64) -> usize {
        usize::try_from(second % self.buckets.len() as u64).unwrap_or_default()
    }

    pub(super) fn requests(&self) -> u64 {
        self.buckets.iter().map(|count| u64::from(*count)).sum()
    }

    pub(super) fn count(&mut self) {
        let bucket = self.bucket(self.now);
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }

    /// The seconds until one more request is allowed.
    pub(super) fn wait_for(&self, limit: &Limit) -> u64 {
        let mut kept = self.requests();
        for second in 1..=Self::BUCKETS as u64 {
            kept -= u64::from(self.buckets[self.bucket(self.now + second)]);
            if !limit.broken_by(amount(kept + 1)) {
                return second;
            }
        }
        Self::BUCKETS as u64
    }
}

/// The cost since midnight, UTC.
#[derive(Debug, Clone, Default)]
pub(super) struct Day {
    pub(super) number: u64,
    pub(super) usd: f64,
    /// What turns under way may need.
    pub(super) held: f64,
    /// The cost of the dearest turn, of earlier days too.
    pub(super) dearest: f64,
}

impl Day {
    pub(super) const SECONDS: u64 = 86_400;

    /// What a turn may cost: as much as the dearest one.
    pub(super) fn next(&self, expected: f64) -> f64 {
        if self.dearest > 0.0 { self.dearest } else { expected.max(0.0) }
    }

    pub(super) fn advance_to(&mut self, now: u64) {
        let today = now / Self::SECONDS;
        if today > self.number {
            // What a turn may cost is no matter of the day.
            *self = Self { number: today, usd: 0.0, held: self.held, dearest: self.dearest };
        }
    }

    /// Ignores amounts that are not finite or negative, which would restore budget.
    pub(super) fn add(&mut self, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.usd += usd;
        }
    }
}
