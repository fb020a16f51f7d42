//! The part of an agent's budgets that this replica may use: leases of the day's money and of the minute's requests, which another place
//! hands out to all replicas. Clock and answers are arguments. A lease counts from before it was asked for.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// For how long a lease may be used.
const SPENDING_LEASE: Duration = Duration::from_mins(1);
const REQUESTS_LEASE: Duration = Duration::from_secs(5);
/// A lease of spending that is asked for with requests ahead of turns has run down to this.
const SPENDING_RENEWAL: Duration = Duration::from_secs(20);
/// The most beginnings that a replica remembers, and so the most requests of a slice.
const MAX_BEGINNINGS: usize = 2_048;
/// The number of slices of what is left of a day that are handed out at once.
const SLICES: f64 = 16.0;
/// Nothing was left: it is not asked again before this.
const MIN_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(2);
/// Leases are whole millionths of a dollar, which sums of floats miss by less.
const HALF_A_MICRO: f64 = 0.5e-6;
/// Where a day has no limit that blocks.
const NO_LIMIT_USD: f64 = 1e9;

/// Who asks for leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A turn that waits for one.
    Turn,
    /// The task that asks ahead of turns.
    Keeper,
    /// The report of what was spent, which costs no request.
    Reporter,
}

/// What a replica wants of its agent's budgets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wish {
    /// When it is asked.
    pub at: Instant,
    pub spending: Option<SpendingWish>,
    pub requests: Option<RequestsWish>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpendingWish {
    /// The day that the last lease named.
    pub day: Option<i64>,
    /// What this replica has spent on it.
    pub spent_usd: f64,
    pub most_usd: f64,
    pub want_usd: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestsWish {
    pub most: u32,
    pub want: u32,
}

/// What it gets.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lease {
    pub spending: Option<SpendingLease>,
    pub requests: Option<RequestsLease>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpendingLease {
    pub day: i64,
    /// In all on that day, what it has spent included.
    pub may_spend_usd: f64,
    /// Of all replicas.
    pub spent_usd: f64,
    pub day_ends_in: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestsLease {
    pub requests: u32,
    pub retry_after: Duration,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Share {
    pub(crate) spending: SpendingShare,
    pub(crate) requests: RequestsShare,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct SpendingShare {
    day: Option<i64>,
    /// By this replica on that day, and of that since it was last asked.
    spent: f64,
    since_asked: f64,
    /// By the others, as far as is known.
    others: f64,
    may_spend: f64,
    until: Option<Instant>,
    day_ends: Option<Instant>,
    pause_until: Option<Instant>,
    /// Whether something was spent or refused since it was last asked.
    stirred: bool,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct RequestsShare {
    left: u32,
    until: Option<Instant>,
    pause_until: Option<Instant>,
    retry_at: Option<Instant>,
    /// When the last requests began, the oldest first.
    began: VecDeque<Instant>,
}

/// Whether a lease has room for one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Yes,
    /// Little is left behind it.
    Low,
    /// It has to be asked for.
    Unknown,
    /// It was asked for, and there is none for so long.
    No(Duration),
}

impl SpendingShare {
    pub(crate) fn add(&mut self, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.spent += usd;
            self.since_asked += usd;
            self.stirred = true;
        }
    }

    /// What the agent has spent today, as far as is known.
    pub(crate) fn everyone(&self) -> f64 {
        self.others + self.spent
    }

    /// `held` is what turns under way may need, `next` what the next one may.
    pub(crate) fn room(&self, held: f64, next: f64, now: Instant) -> Room {
        if self.until.is_some_and(|until| now < until) && self.spent + held + HALF_A_MICRO < self.may_spend {
            return if self.spent + held + 2.0 * next < self.may_spend { Room::Yes } else { Room::Low };
        }
        self.pause_until.filter(|until| now < *until).map_or(Room::Unknown, |until| Room::No(until - now))
    }

    /// Whether the lease has room and lasts, so that nobody needs another one soon.
    pub(crate) fn lasts(&self, held: f64, next: f64, now: Instant) -> bool {
        self.room(held, next, now) == Room::Yes && self.until.is_some_and(|until| now + SPENDING_RENEWAL < until)
    }

    /// When the next day begins.
    pub(crate) fn day_ends_in(&self, now: Instant) -> Duration {
        self.day_ends.map_or(MAX_PAUSE, |end| end.saturating_duration_since(now))
    }

    /// `most` is the limit that blocks; none where there are such that warn only.
    pub(crate) fn wish(&mut self, most: Option<f64>, held: f64, next: f64) -> SpendingWish {
        (self.since_asked, self.stirred) = (0.0, false);
        let want_usd = most.map_or(0.0, |most| held + next.max((most - self.everyone()) / SLICES));
        SpendingWish { day: self.day, spent_usd: self.spent, most_usd: most.unwrap_or(NO_LIMIT_USD), want_usd }
    }

    pub(crate) fn leased(&mut self, at: Instant, wish: &SpendingWish, lease: &SpendingLease) {
        if wish.day.is_some_and(|day| day != lease.day) {
            // A new day: what was spent before it is not of it.
            self.spent = self.since_asked;
        }
        self.day = Some(lease.day);
        let own = if wish.day == Some(lease.day) { wish.spent_usd } else { 0.0 };
        self.others = (lease.spent_usd - own).max(0.0);
        self.may_spend = lease.may_spend_usd;
        self.until = Some(at + SPENDING_LEASE.min(lease.day_ends_in));
        self.day_ends = Some(at + lease.day_ends_in);
        // What was spent while it was asked is no reason to wait: there may be more.
        let is_given = lease.may_spend_usd > own + HALF_A_MICRO;
        self.pause_until = (!is_given).then(|| at + if self.everyone() >= wish.most_usd { MAX_PAUSE } else { MIN_PAUSE });
    }

    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }
}

impl RequestsShare {
    pub(crate) fn room(&self, now: Instant) -> Room {
        if self.left > 0 && self.until.is_some_and(|until| now < until) {
            // Only where the next one is likely to come while what is asked for may be used.
            return if self.left == 1 && self.recent(now) > 1 { Room::Low } else { Room::Yes };
        }
        match self.pause_until.filter(|until| now < *until) {
            Some(_) => Room::No(self.retry_at.map_or(MIN_PAUSE, |at| at.saturating_duration_since(now))),
            None => Room::Unknown,
        }
    }

    pub(crate) fn take(&mut self, now: Instant) {
        self.left = self.left.saturating_sub(1);
        while self.began.len() >= MAX_BEGINNINGS || self.began.front().is_some_and(|at| is_old(*at, now)) {
            self.began.pop_front();
        }
        self.began.push_back(now);
    }

    fn recent(&self, now: Instant) -> u32 {
        let recent = self.began.len() - self.began.partition_point(|at| is_old(*at, now));
        u32::try_from(recent).unwrap_or(u32::MAX)
    }

    /// As many as began lately, as those that are not used are lost for a minute: a replica that stops loses a 64th of a large limit at
    /// most. Nothing where nobody waits for one: a report of what was spent costs no request.
    pub(crate) fn wish(&self, most: u32, asker: Asker, now: Instant) -> Option<RequestsWish> {
        let is_wanted = match asker {
            Asker::Turn => self.room(now) == Room::Unknown,
            Asker::Keeper => self.is_low(now),
            Asker::Reporter => false,
        };
        let slice = (most / 4).min((most / 64).max(64));
        is_wanted.then(|| RequestsWish { most, want: self.recent(now).min(slice).max(1) })
    }

    /// Whether requests come one after the other and use up the lease. The turn that found little room may have taken the last one since.
    fn is_low(&self, now: Instant) -> bool {
        let is_pausing = self.pause_until.is_some_and(|until| now < until);
        !is_pausing && self.until.is_some_and(|until| now < until) && self.left <= 1 && self.recent(now) + self.left > 2
    }

    pub(crate) fn leased(&mut self, at: Instant, lease: &RequestsLease) {
        let left = if self.until.is_some_and(|until| at < until) { self.left } else { 0 };
        if lease.requests > 0 || left == 0 {
            // What is left of the former one ends with it at the latest.
            self.until = Some(if left > 0 { self.until.unwrap_or(at) } else { at + REQUESTS_LEASE });
        }
        self.left = left.saturating_add(lease.requests);
        self.retry_at = Some(at + lease.retry_after);
        self.pause_until = (self.left == 0).then(|| at + lease.retry_after.clamp(MIN_PAUSE, MAX_PAUSE));
    }
}

/// Whether a request began so long ago that its lease has ended.
fn is_old(began: Instant, now: Instant) -> bool {
    now.saturating_duration_since(began) >= REQUESTS_LEASE
}
