//! Budgets that an agent's replicas share: each leases a slice of what is left of the day's money and of the minute's requests, and asks
//! again when that is used up or has run out. The database's clock alone decides; a replica counts from before it asked.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{ask, in_time};
use crate::{Fault, Store, id};

/// How long a slice of the day's budget may be spent. It counts as spent until then, unless its holder says less.
pub const SPENDING_LEASE: Duration = Duration::from_mins(1);
/// How long requests that were leased may begin.
pub const REQUESTS_LEASE: Duration = Duration::from_secs(5);
const REQUESTS_LEASE_SECONDS: i32 = 5;
/// A thousand million dollars.
const MAX_MICROS: i64 = 1_000_000_000_000_000;

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
        // The limits are set where the team comes from, so that they are set first.
        const LEASE: &str = "
            SELECT l.* FROM (SELECT $1 AS team, pg_catalog.set_config('synchronous_commit', 'off', true),
                                    pg_catalog.set_config('lock_timeout', '2s', true)) AS first,
                 LATERAL slipway.lease_budget(first.team, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) AS l";
        let BudgetRequest { holder, spending, requests } = request;
        id::check("holder", holder)?;
        let question = || {
            ask(LEASE)
                .bind(&self.team)
                .bind(&self.agent)
                .bind(holder)
                .bind(spending.and_then(|spending| spending.day))
                .bind(spending.map(|spending| spending.spent_micros.clamp(0, MAX_MICROS)))
                .bind(spending.map(|spending| spending.most_micros.clamp(0, MAX_MICROS)))
                .bind(spending.map(|spending| spending.want_micros.clamp(0, MAX_MICROS)))
                .bind(SPENDING_LEASE.as_secs_f64())
                .bind(requests.map(|requests| i64::from(requests.most)))
                .bind(requests.map(|requests| i64::from(requests.want)))
                .bind(REQUESTS_LEASE_SECONDS)
        };
        let take = |answer: &mut Option<BudgetLease>, row: PgRow| {
            *answer = Some(BudgetLease {
                spending: spending.map(|_| spending_lease(&row)).transpose()?,
                requests: requests.map(|_| rate_lease(&row)).transpose()?,
            });
            Ok(())
        };
        in_time(async {
            self.check_schema().await?;
            let lease = self.door.one(question, || None, take).await?;
            lease.ok_or_else(|| Fault::Broken("a lease was expected and none came".to_owned()))
        })
        .await
    }
}

fn spending_lease(row: &PgRow) -> Result<SpendingLease, Fault> {
    Ok(SpendingLease {
        day: row.try_get("day")?,
        may_spend_micros: row.try_get("may_spend")?,
        spent_micros: row.try_get("spent")?,
        day_ends_in: seconds(row.try_get("day_left")?),
    })
}

fn rate_lease(row: &PgRow) -> Result<RateLease, Fault> {
    let requests: i64 = row.try_get("requests")?;
    Ok(RateLease { requests: u32::try_from(requests).unwrap_or_default(), retry_after: seconds(row.try_get("retry_after")?) })
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
