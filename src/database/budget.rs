//! Budgets that an agent's replicas share: each leases a slice of what is left of the day's money and of the minute's requests, and asks
//! again when that is used up or has run out. The database's clock alone decides; a replica counts from before it asked.

use std::time::Duration;

use crate::{Fault, Store};

/// How long a slice of the day's budget may be spent. It counts as spent until then, unless its holder says less.
pub const SPENDING_LEASE: Duration = Duration::from_secs(60);
/// How long requests that were leased may begin.
pub const REQUESTS_LEASE: Duration = Duration::from_secs(5);

/// What a replica asks for, in one statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRequest {
    /// The replica: an id of its own for as long as its process lives.
    pub holder: String,
    pub spending: Option<SpendingRequest>,
    pub requests: Option<RateRequest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendingRequest {
    /// The day that the last lease named; none at first.
    pub day: Option<i64>,
    /// What this replica has spent on that day, in millionths of a US dollar. It is a sum, so that a question may be repeated.
    pub spent_micros: i64,
    /// The agent's limit for a day.
    pub most_micros: i64,
    /// How much is wanted; nothing gives the slice back.
    pub want_micros: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateRequest {
    /// The most requests that may begin within any 60 s.
    pub most: u32,
    /// How many are wanted now.
    pub want: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLease {
    pub spending: Option<SpendingLease>,
    pub requests: Option<RateLease>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpendingLease {
    /// The day of UTC, counted from 1970: where it is another than was asked about, the replica has spent nothing on it.
    pub day: i64,
    /// What this replica may spend on that day within [`SPENDING_LEASE`] from before it asked, what it has spent included.
    pub may_spend_micros: i64,
    /// What all replicas have spent on that day, as far as is known.
    pub spent_micros: i64,
    /// When the next day begins.
    pub day_ends_in: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLease {
    /// How many requests may begin within [`REQUESTS_LEASE`] from before it was asked.
    pub requests: u32,
    /// When one more may be had at the earliest, where fewer were given than wanted.
    pub retry_after: Duration,
}

impl Store {
    /// Leases slices of the agent's budgets. [`Fault::Unavailable`] where the schema is older than this: the budget is the replica's own then.
    pub async fn lease_budget(&self, request: &BudgetRequest) -> Result<BudgetLease, Fault> {
        let _ = request;
        Err(Fault::Unavailable("not yet".to_owned()))
    }
}
