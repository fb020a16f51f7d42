//! Limits of tokens, requests, cost and latency. Clock and amounts are arguments. What was counted outlives the limits, which policies
//! may change at any time.

mod counted;
mod refusal;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::finding::{Action, Block, GuardName};
use crate::rule::PolicyRule;
use crate::share::{Asker, Lease, Room, Share, Wish};
use counted::{Day, Minute};
use refusal::{no_share, too_often, uncounted, unknown};

/// One limit. `reached`: the limit itself is already too much (`lt`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limit {
    pub(crate) guard: GuardName,
    pub(crate) most: f64,
    pub(crate) reached: bool,
    pub(crate) action: Action,
    /// The policy that has it; `None` for an entry of `RUNTIME_GUARDS`.
    pub(crate) policy: Option<PolicyRule>,
}

impl Limit {
    fn broken_by(&self, seen: f64) -> bool {
        if self.reached { seen >= self.most } else { seen > self.most }
    }

    fn breach(&self, seen: f64, action: Action) -> Breach {
        Breach { guard: self.guard, policy: self.policy.clone(), limit: self.most, seen, action }
    }

    /// The largest number that keeps within it.
    fn allowed(&self) -> f64 {
        if self.reached { (self.most - 1.0).ceil() } else { self.most.floor() }
    }
}

/// The values to check before a model call.
#[derive(Debug, Clone, Copy)]
pub struct Budget<'a> {
    pub now: SystemTime,
    pub tokens_in_prompt: u64,
    /// A model of the agent without a known price.
    pub unpriced: Option<&'a str>,
    /// What the turn may cost, as long as no turn of the day is known.
    pub expected_usd: f64,
    /// For leases, which no change of the clock makes longer.
    pub tick: Instant,
    pub lease: Asked,
}

/// Whether a lease of the agent's budgets was asked for just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    NotYet,
    Answered,
    /// Nobody knows what is left.
    Failed,
}

/// The usage of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub now: SystemTime,
    /// What was judged before the turn.
    pub tokens_in_prompt: u64,
    /// Tokens of the prompt and of the answer.
    pub tokens: u64,
    pub usd: f64,
    pub latency: Duration,
}

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq)]
pub struct Breach {
    pub guard: GuardName,
    /// The policy with the limit; `None` for an entry of `RUNTIME_GUARDS`.
    pub policy: Option<PolicyRule>,
    /// Tokens, requests per minute, US dollars per day, or milliseconds.
    pub limit: f64,
    pub seen: f64,
    /// `Block` or `Warn`.
    pub action: Action,
}

/// The result of the check before a turn.
#[derive(Debug, Default)]
pub struct TurnCheck {
    pub breaches: Vec<Breach>,
    pub blocked: Option<Block>,
    /// To be kept until the turn's cost is counted.
    pub hold: Hold,
    /// The lease has no room: it is to be asked for, and this to be checked again. Nothing was counted. With `blocked`: nobody knows what is
    /// left, and a limit that blocks cannot be kept.
    pub lacks_lease: bool,
    /// Little is left of the lease: it had better be asked for soon.
    pub lease_is_low: bool,
}

/// A part of the day's budget that a turn under way may need. It is free again when this is dropped.
#[derive(Debug, Default)]
pub struct Hold(Option<(Ledger, f64)>);

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((ledger, usd)) = self.0.take() {
            let mut amounts = ledger.lock();
            amounts.day.held = (amounts.day.held - usd).max(0.0);
        }
    }
}

/// What was counted of one agent, whichever limits are in force. Cheap to clone; clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Amounts>>);

#[derive(Debug, Clone, Default)]
struct Amounts {
    minute: Minute,
    day: Day,
    /// Where budgets are the agent's and not this replica's own.
    share: Option<Share>,
}

impl Ledger {
    /// A poisoned lock is used: a panic cannot leave the numbers inconsistent.
    fn lock(&self) -> MutexGuard<'_, Amounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds cost of the day of `at` outside of this process's turns. Cost of an earlier day is ignored.
    pub(crate) fn spent_today(&self, at: SystemTime, usd: f64) {
        let at = seconds(at);
        let amounts = &mut *self.lock();
        amounts.day.advance_to(at);
        if amounts.day.number == at / Day::SECONDS {
            amounts.day.add(usd);
        }
    }

    /// Adds cost of this process outside of turns.
    pub(crate) fn spent_aside(&self, at: SystemTime, usd: f64) {
        self.spent_today(at, usd);
        if let Some(share) = &mut self.lock().share {
            share.spending.add(usd);
        }
    }

    /// From now on budgets are the agent's.
    pub(crate) fn share(&self) {
        self.lock().share.get_or_insert_default();
    }

    pub(crate) fn leased(&self, wish: &Wish, lease: &Lease) {
        let Some(share) = &mut self.lock().share else { return };
        if let (Some(wished), Some(lease)) = (&wish.spending, &lease.spending) {
            share.spending.leased(wish.at, wished, lease);
        }
        if let Some(lease) = &lease.requests {
            share.requests.leased(wish.at, lease);
        }
    }

    /// Whether something was spent that others do not know of, or may be by turns under way.
    pub(crate) fn is_stirred(&self) -> bool {
        let amounts = self.lock();
        amounts.share.as_ref().is_some_and(|share| share.spending.is_stirred() || amounts.day.held > 0.0)
    }
}

/// The limits in force.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuardLimits(pub(crate) Vec<Limit>);

impl GuardLimits {
    /// A turn that is blocked counts neither as a request nor as spent.
    pub(crate) fn before_turn(&self, ledger: &Ledger, budget: &Budget) -> TurnCheck {
        let now = seconds(budget.now);
        let amounts = &mut *ledger.lock();
        amounts.minute.advance_to(now);
        amounts.day.advance_to(now);
        let (shared_rate, shared_day) = (self.shared_rate(amounts), self.strictest(GuardName::SpendLimit, Action::Block));
        let next = amounts.day.next(budget.expected_usd);
        let mut turn = TurnCheck::default();
        for limit in &self.0 {
            let is_shared = |shared: Option<&Limit>| shared.is_some_and(|shared| std::ptr::eq(shared, limit));
            let (seen, refused) = match (limit.guard, &amounts.share) {
                (GuardName::MaxTokens, _) => {
                    let seen = amount(budget.tokens_in_prompt);
                    (seen, limit.broken_by(seen).then(|| amounts.refusal(limit, seen, now)))
                }
                (GuardName::SpendLimit, _) if budget.unpriced.is_some() => {
                    // Who only wants to be told has heard of it once; a policy that warns has nothing to say of what is not known.
                    let told = limit.action == Action::Block || limit.policy.is_none();
                    (amounts.day.usd, budget.unpriced.filter(|_| told).map(|model| uncounted(limit, model)))
                }
                (GuardName::SpendLimit, Some(share)) if is_shared(shared_day) => {
                    let room = share.spending.room(amounts.day.held, next, budget.tick);
                    (share.spending.everyone(), turn.look(room, limit, budget.lease).map(|wait| no_share(limit, share, wait, budget.tick)))
                }
                // The cost of this turn is not known yet, so the budget must not be used up before it, nor by the turns under way. Who only
                // wants to be told is told after it.
                (GuardName::SpendLimit, None) if limit.action == Action::Block => {
                    let day = &amounts.day;
                    (day.usd, (day.usd + day.held >= limit.most).then(|| amounts.refusal(limit, day.usd, now)))
                }
                (GuardName::RateLimit, Some(share)) if is_shared(shared_rate) => {
                    let room = share.requests.room(budget.tick);
                    (limit.most, turn.look(room, limit, budget.lease).map(|wait| too_often(limit, wait.as_secs().max(1))))
                }
                (GuardName::RateLimit, share) if share.is_none() || limit.policy.is_none() || limit.action != Action::Block => {
                    let seen = amount(amounts.minute.requests() + 1);
                    (seen, limit.broken_by(seen).then(|| amounts.refusal(limit, seen, now)))
                }
                // A stricter one of the agent holds.
                _ => continue,
            };
            if let Some(block) = refused {
                turn.breaches.push(limit.breach(seen, limit.action));
                if limit.action == Action::Block && turn.blocked.is_none() {
                    turn.blocked = Some(block);
                }
            }
        }
        if turn.blocked.is_some() {
            turn.lacks_lease &= budget.lease == Asked::Failed;
        } else if !turn.lacks_lease {
            amounts.minute.count();
            if let Some(share) = &mut amounts.share {
                share.requests.take(budget.tick);
            }
            if shared_day.is_some() {
                amounts.day.held += next;
                turn.hold = Hold(Some((ledger.clone(), next)));
            }
        }
        turn
    }

    /// Records the usage of a turn. Exceeded limits are warnings, as the turn has ended; the next turn may be refused.
    pub(crate) fn after(&self, ledger: &Ledger, spent: &Spent) -> Vec<Breach> {
        let now = seconds(spent.now);
        let amounts = &mut *ledger.lock();
        let day = &mut amounts.day;
        day.advance_to(now);
        day.add(spent.usd);
        if spent.usd.is_finite() {
            day.dearest = day.dearest.max(spent.usd);
        }
        let mut today = day.usd;
        if let Some(share) = &mut amounts.share {
            share.spending.add(spent.usd);
            today = share.spending.everyone();
        }
        let seen = |limit: &Limit| match limit.guard {
            // What the prompt alone was too much for has been told before.
            GuardName::MaxTokens => Some(amount(spent.tokens)).filter(|_| !limit.broken_by(amount(spent.tokens_in_prompt))),
            GuardName::SpendLimit => Some(today),
            GuardName::Latency => Some(spent.latency.as_secs_f64() * 1000.0),
            _ => None,
        };
        let broken = |limit: &Limit| seen(limit).filter(|seen| limit.broken_by(*seen)).map(|seen| limit.breach(seen, Action::Warn));
        self.0.iter().filter_map(broken).collect()
    }

    /// What this replica wants of the agent's budgets; nothing where they are its own, or have no limit.
    pub(crate) fn wish(&self, ledger: &Ledger, asker: Asker, now: Instant) -> Option<Wish> {
        let amounts = &mut *ledger.lock();
        let rate = self.shared_rate(amounts).map(Limit::allowed);
        let most = self.strictest(GuardName::SpendLimit, Action::Block).map(|limit| limit.most);
        let (held, next) = (amounts.day.held, amounts.day.next(0.0));
        let share = amounts.share.as_mut()?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float turned into an integer saturates")]
        let requests = rate.and_then(|most| share.requests.wish(most as u32, asker, now));
        // Requests are used up many times while a lease of spending lasts.
        let is_spending_left = asker == Asker::Keeper && requests.is_some() && share.spending.lasts(held, next, now);
        let spending = (self.counts_spending() && !is_spending_left).then(|| share.spending.wish(most, held, next));
        (spending.is_some() || requests.is_some()).then_some(Wish { at: now, spending, requests })
    }

    /// The limit of requests that holds for all replicas together: the strictest of a policy; of those that block, if there are any.
    fn shared_rate(&self, amounts: &Amounts) -> Option<&Limit> {
        amounts.share.as_ref()?;
        let of = |action| {
            let limits = self.0.iter().filter(move |limit| limit.guard == GuardName::RateLimit && limit.action == action);
            limits.filter(|limit| limit.policy.is_some()).min_by(|one, other| one.allowed().total_cmp(&other.allowed()))
        };
        of(Action::Block).or_else(|| of(Action::Warn))
    }

    fn strictest(&self, guard: GuardName, action: Action) -> Option<&Limit> {
        let of = self.0.iter().filter(|limit| limit.guard == guard && limit.action == action);
        of.min_by(|one, other| one.most.total_cmp(&other.most))
    }

    pub(crate) fn has_budgets(&self) -> bool {
        self.0.iter().any(|limit| matches!(limit.guard, GuardName::SpendLimit | GuardName::RateLimit))
    }

    pub(crate) fn counts_spending(&self) -> bool {
        self.0.iter().any(|limit| limit.guard == GuardName::SpendLimit)
    }

    /// The most tokens of an answer to a prompt of this size; `None` without a limit.
    pub(crate) fn tokens_left(&self, tokens_in_prompt: u64) -> Option<u64> {
        let most = self.blocking(GuardName::MaxTokens).map(Limit::allowed).reduce(f64::min)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float turned into an integer saturates")]
        Some((most as u64).saturating_sub(tokens_in_prompt))
    }

    fn blocking(&self, guard: GuardName) -> impl Iterator<Item = &Limit> {
        self.0.iter().filter(move |limit| limit.guard == guard && limit.action == Action::Block)
    }
}

impl TurnCheck {
    /// How long to wait where the lease has no room; notes if it has to be asked for.
    fn look(&mut self, room: Room, limit: &Limit, lease: Asked) -> Option<Duration> {
        match (room, lease) {
            (Room::Low, _) => self.lease_is_low = true,
            (Room::No(wait), _) => return Some(wait),
            (Room::Unknown, Asked::NotYet) => self.lacks_lease = true,
            (Room::Unknown, Asked::Answered) => return Some(Duration::from_secs(1)),
            // Who only wants to be told is not told what nobody knows.
            (Room::Unknown, Asked::Failed) if limit.action == Action::Block => {
                self.lacks_lease = true;
                self.blocked.get_or_insert_with(|| unknown(limit));
            }
            (Room::Yes, _) | (Room::Unknown, Asked::Failed) => {}
        }
        None
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[expect(clippy::cast_precision_loss, reason = "counts of tokens and requests stay far below 2^52")]
fn amount(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
