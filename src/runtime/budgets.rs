//! The agent's budgets, which its replicas share by leases from the database. A turn asks for a lease only where the present one
//! has no room left; a task renews them ahead of that. Without a database a budget is this process's own, and the log and a
//! metric say so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use slipway_database::{BudgetLease, BudgetRequest, RateRequest, SpendingRequest};
use slipway_guards::{Asked, Asker, Budget, Guards, Lease, RequestsLease, SpendingLease, TurnCheck, Wish};
use tokio::sync::{Mutex, Notify};
use tokio::time::{interval, timeout};
use tracing::{info, warn};

use crate::ids;
use crate::policies::Policies;
use crate::record::Recorder;
use crate::store::Store;
use crate::telemetry::metrics::Meters;

/// How often others learn of what was spent.
const REPORT_INTERVAL: Duration = Duration::from_secs(20);
/// After a question that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// A turn waits no longer for a database that is down.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Budgets {
    store: Arc<Store>,
    policies: Arc<Policies>,
    meters: Meters,
    /// This process, as the database knows it.
    holder: String,
    /// One question at a time; when the last one failed.
    asking: Mutex<Option<Instant>>,
    wake: Notify,
    failing: AtomicBool,
}

impl Budgets {
    /// Without a database there is nothing to share.
    pub(crate) fn open(store: &Arc<Store>, policies: &Arc<Policies>, recorder: &Recorder) -> Arc<Self> {
        let meters = recorder.meters();
        let holder = ids::make("holder").unwrap_or_default();
        let is_shared = store.persists() && !holder.is_empty();
        if is_shared {
            policies.own().share();
        } else if policies.current().has_budgets() {
            info!("RUNTIME_STORAGE is memory: budgets of requests and cost are this process's own, and begin anew with it");
        }
        meters.budget_is_shared(is_shared);
        Arc::new(Self {
            store: Arc::clone(store),
            policies: Arc::clone(policies),
            meters,
            holder,
            asking: Mutex::default(),
            wake: Notify::new(),
            failing: AtomicBool::new(false),
        })
    }

    /// Checks the limits before a turn, with a lease that is asked for if there is none.
    pub(crate) async fn before_turn(&self, guards: &Guards, mut budget: Budget<'_>) -> TurnCheck {
        let mut check = guards.before_turn(&budget);
        if check.lacks_lease {
            // What one question brings may do for all who wait.
            let mut failed = self.asking.lock().await;
            budget.tick = Instant::now();
            check = guards.before_turn(&budget);
            if check.lacks_lease {
                // Those who waited for an answer in vain do not ask again, one after the other.
                let is_answered = failed.is_none_or(|at| at.elapsed() >= RETRY_PAUSE) && self.ask(guards, Asker::Turn).await;
                if is_answered {
                    *failed = None;
                } else if failed.is_none_or(|at| at.elapsed() >= RETRY_PAUSE) {
                    *failed = Some(Instant::now());
                }
                budget.lease = if is_answered { Asked::Answered } else { Asked::Failed };
                budget.tick = Instant::now();
                check = guards.before_turn(&budget);
            }
        }
        if check.lease_is_low {
            self.wake.notify_one();
        }
        check
    }

    /// Asks ahead of turns, and tells the others what was spent.
    pub(crate) async fn keep(self: Arc<Self>) {
        let mut ticks = interval(REPORT_INTERVAL);
        loop {
            let asker = tokio::select! {
                () = self.wake.notified() => Asker::Keeper,
                _ = ticks.tick() => if self.policies.current().has_news() { Asker::Reporter } else { continue },
            };
            let _asking = self.asking.lock().await;
            self.ask(&self.policies.current(), asker).await;
        }
    }

    /// The process ends: what it has not spent is for the others.
    pub(crate) async fn give_back(&self) {
        let _asking = self.asking.lock().await;
        let Some(Wish { spending: Some(spending), .. }) = self.policies.current().wish(Asker::Reporter, Instant::now()) else { return };
        let spending = Some(SpendingRequest { want_micros: 0, ..asked(&spending) });
        let request = BudgetRequest { holder: self.holder.clone(), spending, requests: None };
        if !matches!(timeout(TIMEOUT, self.store.lease_budget(&request)).await, Ok(Ok(_))) {
            warn!("what is left of this process's share of the day's budget ends by itself, in a minute at most");
        }
    }

    async fn ask(&self, guards: &Guards, asker: Asker) -> bool {
        let Some(wish) = guards.wish(asker, Instant::now()) else { return true };
        let spending = wish.spending.as_ref().map(asked);
        let requests = wish.requests.map(|wish| RateRequest { most: wish.most, want: wish.want });
        let request = BudgetRequest { holder: self.holder.clone(), spending, requests };
        let answered = timeout(TIMEOUT, self.store.lease_budget(&request)).await;
        let is_answered = match answered {
            Ok(Ok(lease)) => {
                guards.leased(&wish, &lease_of(lease));
                true
            }
            Ok(Err(fault)) => self.failed(&fault.to_string()),
            Err(_) => self.failed("the database takes too long"),
        };
        if is_answered && self.failing.swap(false, Ordering::Relaxed) {
            info!("the agent's budgets are shared again");
        }
        self.meters.lease_asked(is_answered);
        is_answered
    }

    /// Said once, until it works again.
    fn failed(&self, fault: &str) -> bool {
        if !self.failing.swap(true, Ordering::Relaxed) {
            warn!(fault, "the agent's budgets cannot be asked for; where a limit blocks, turns are refused once the last lease has ended");
        }
        false
    }
}

fn asked(wish: &slipway_guards::SpendingWish) -> SpendingRequest {
    SpendingRequest {
        day: wish.day,
        spent_micros: micros(wish.spent_usd),
        most_micros: micros(wish.most_usd),
        // Rounded up: who asks for less than a millionth asks for something.
        want_micros: micros((wish.want_usd * 1e6).ceil() / 1e6),
    }
}

fn lease_of(lease: BudgetLease) -> Lease {
    let spending = lease.spending.map(|spending| SpendingLease {
        day: spending.day,
        may_spend_usd: usd(spending.may_spend_micros),
        spent_usd: usd(spending.spent_micros),
        day_ends_in: spending.day_ends_in,
    });
    let requests = lease.requests.map(|requests| RequestsLease { requests: requests.requests, retry_after: requests.retry_after });
    Lease { spending, requests }
}

/// Millionths of a dollar.
#[expect(clippy::cast_possible_truncation, reason = "a float turned into an integer saturates")]
fn micros(usd: f64) -> i64 {
    (usd * 1e6).round() as i64
}

#[expect(clippy::cast_precision_loss, reason = "a day costs less than 2^52 millionths")]
fn usd(micros: i64) -> f64 {
    micros as f64 / 1e6
}
