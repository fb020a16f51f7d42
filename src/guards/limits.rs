//! Limits of tokens, requests, cost and latency. Clock and amounts are arguments. Memory is constant: a minute is sixty-one
//! buckets of one second, a day is one sum. What was counted outlives the limits, which policies may change at any time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::finding::{Action, Block, GuardName};
use crate::rule::PolicyRule;
use crate::share::{Asker, Lease, Room, Share, Wish};

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
pub(crate) struct Limits(pub(crate) Vec<Limit>);

impl Limits {
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
        let spending = self.counts_spending().then(|| share.spending.wish(most, held, next));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float turned into an integer saturates")]
        let requests = rate.and_then(|most| share.requests.wish(most as u32, asker, now));
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

impl Amounts {
    fn refusal(&self, limit: &Limit, seen: f64, now: u64) -> Block {
        let (guard, by) = (limit.guard, by(limit));
        let (message, retry_after) = match guard {
            GuardName::RateLimit => return too_often(limit, self.minute.wait_for(limit)),
            GuardName::SpendLimit if self.day.usd < limit.most => (
                format!("refused by {by}: the turns under way may use up its {} USD of today; try again when one has ended", limit.most),
                Some(1),
            ),
            GuardName::SpendLimit => return used_up(limit, Day::SECONDS - now % Day::SECONDS),
            _ => (format!("refused by {by}: the prompt has {seen} tokens, {} are the limit; send less text", limit.most), None),
        };
        Block { guard, message, retry_after: retry_after.map(Duration::from_secs), policy: limit.policy.clone() }
    }
}

/// The guard, and the policy that has it.
fn by(limit: &Limit) -> String {
    limit.policy.as_ref().map_or_else(|| limit.guard.to_string(), |asker| format!("{} (policy {})", limit.guard, asker.policy))
}

fn too_often(limit: &Limit, wait: u64) -> Block {
    let message = format!("refused by {}: {} requests a minute are allowed; try again in {wait} s", by(limit), limit.most);
    Block { guard: limit.guard, message, retry_after: Some(Duration::from_secs(wait)), policy: limit.policy.clone() }
}

fn used_up(limit: &Limit, wait: u64) -> Block {
    let message =
        format!("refused by {}: this agent has used up its {} USD of today; the next day begins at 00:00 UTC", by(limit), limit.most);
    Block { guard: limit.guard, message, retry_after: Some(Duration::from_secs(wait)), policy: limit.policy.clone() }
}

fn unknown(limit: &Limit) -> Block {
    let message = format!("refused by {}: nobody knows what is left of it while the database is away; try again later", by(limit));
    Block { guard: limit.guard, message, retry_after: Some(Duration::from_secs(2)), policy: limit.policy.clone() }
}

/// The other replicas have the rest of the day's budget, or it is used up.
fn no_share(limit: &Limit, share: &Share, wait: Duration, now: Instant) -> Block {
    if share.spending.everyone() >= limit.most {
        return used_up(limit, share.spending.day_ends_in(now).as_secs().max(1));
    }
    let message = format!(
        "refused by {}: the turns under way, in all pods of this agent, may use up its {} USD of today; try again when some have ended",
        by(limit),
        limit.most
    );
    Block { guard: limit.guard, message, retry_after: Some(wait.max(Duration::from_secs(1))), policy: limit.policy.clone() }
}

/// The refusal of a model without a price.
fn uncounted(limit: &Limit, model: &str) -> Block {
    let message = format!(
        "refused by {}: nobody knows what {model} costs, so that its limit would never be reached; give the price in the agent's \
         governance.limits.prices, or take the guard out",
        by(limit)
    );
    Block { guard: limit.guard, message, retry_after: None, policy: limit.policy.clone() }
}

/// Requests of the last sixty seconds and of the current one, so that no period of sixty seconds exceeds the limit.
#[derive(Debug, Clone)]
struct Minute {
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
    fn advance_to(&mut self, now: u64) {
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

    fn requests(&self) -> u64 {
        self.buckets.iter().map(|count| u64::from(*count)).sum()
    }

    fn count(&mut self) {
        let bucket = self.bucket(self.now);
        self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
    }

    /// The seconds until one more request is allowed.
    fn wait_for(&self, limit: &Limit) -> u64 {
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
struct Day {
    number: u64,
    usd: f64,
    /// What turns under way may need.
    held: f64,
    /// The cost of the dearest turn, of earlier days too.
    dearest: f64,
}

impl Day {
    const SECONDS: u64 = 86_400;

    /// What a turn may cost: as much as the dearest one.
    fn next(&self, expected: f64) -> f64 {
        if self.dearest > 0.0 { self.dearest } else { expected.max(0.0) }
    }

    fn advance_to(&mut self, now: u64) {
        let today = now / Self::SECONDS;
        if today > self.number {
            // What a turn may cost is no matter of the day.
            *self = Self { number: today, usd: 0.0, held: self.held, dearest: self.dearest };
        }
    }

    /// Ignores amounts that are not finite or negative, which would restore budget.
    fn add(&mut self, usd: f64) {
        if usd.is_finite() && usd > 0.0 {
            self.usd += usd;
        }
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::share::{RequestsLease, RequestsWish, SpendingLease};

    fn limit(guard: GuardName, most: f64, action: Action) -> Limit {
        Limit { guard, most, reached: false, action, policy: None }
    }

    /// Limits, and what was counted.
    struct LimitState(Limits, Ledger);

    impl LimitState {
        fn new(limits: Vec<Limit>) -> Self {
            Self(Limits(limits), Ledger::default())
        }

        fn before_turn(&self, budget: &Budget) -> TurnCheck {
            self.0.before_turn(&self.1, budget)
        }

        fn after(&self, spent: &Spent) -> Vec<Breach> {
            self.0.after(&self.1, spent)
        }

        /// What is done to it leaves this one as it is.
        fn apart(&self) -> Self {
            Self(self.0.clone(), Ledger(Arc::new(Mutex::new(self.1.lock().clone()))))
        }
    }

    fn spent(second: u64, usd: f64) -> Spent {
        Spent { now: at(second), tokens_in_prompt: 1, tokens: 1, usd, latency: Duration::ZERO }
    }

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(20_000 * Day::SECONDS + second)
    }

    fn tick(second: u64) -> Instant {
        static START: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
        *START + Duration::from_secs(second)
    }

    fn budget(second: u64) -> Budget<'static> {
        Budget { now: at(second), tokens_in_prompt: 10, unpriced: None, expected_usd: 0.0, tick: tick(second), lease: Asked::NotYet }
    }

    #[test]
    fn a_model_without_a_price_is_refused() {
        let unpriced = Budget { unpriced: Some("openai:of-my-own"), ..budget(0) };
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        let block = limits.before_turn(&unpriced).blocked.unwrap();
        assert!(block.message.contains("openai:of-my-own") && block.message.contains("governance.limits.prices"), "{}", block.message);
        assert_eq!(block.retry_after, None);
        assert!(limits.before_turn(&budget(0)).blocked.is_none());
        let warning = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Warn)]);
        let turn = warning.before_turn(&unpriced);
        assert_eq!((turn.blocked, turn.breaches.len()), (None, 1), "who only wants to be told is told");
        let others = LimitState::new(vec![limit(GuardName::RateLimit, 1.0, Action::Block)]);
        assert!(others.before_turn(&unpriced).blocked.is_none(), "other limits need no price");
    }

    #[test]
    fn no_sixty_seconds_exceed_the_limit_and_retry_after_is_exact() {
        let limits = LimitState::new(vec![limit(GuardName::RateLimit, 3.0, Action::Block)]);
        let mut admitted = Vec::new();
        let mut second = 0;
        while second < 600 {
            match limits.before_turn(&budget(second)).blocked {
                None => admitted.push(second),
                Some(block) => {
                    let wait = block.retry_after.unwrap().as_secs();
                    assert!(limits.apart().before_turn(&budget(second + wait)).blocked.is_none(), "waiting {wait} s was not enough");
                    assert!(limits.apart().before_turn(&budget(second + wait - 1)).blocked.is_some(), "{wait} s is longer than needed");
                }
            }
            second += 7;
        }
        for from in &admitted {
            let within = admitted.iter().filter(|at| (*from..*from + 60).contains(*at)).count();
            assert!(within <= 3, "{within} requests within the minute from {from}");
        }
        assert!(admitted.len() > 20, "only {} requests in ten minutes", admitted.len());
    }

    #[test]
    fn a_clock_that_goes_back_allows_no_more_requests() {
        let limits = LimitState::new(vec![limit(GuardName::RateLimit, 1.0, Action::Block)]);
        assert!(limits.before_turn(&budget(100)).blocked.is_none());
        assert!(limits.before_turn(&budget(10)).blocked.is_some());
        assert!(limits.before_turn(&budget(161)).blocked.is_none());
    }

    #[test]
    fn a_day_that_is_used_up_ends_at_midnight() {
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        assert_eq!(limits.after(&spent(10, 0.6)), vec![]);
        assert!(limits.before_turn(&budget(11)).blocked.is_none());
        let told = limits.after(&spent(12, 0.6));
        assert_eq!((told.len(), told[0].action), (1, Action::Warn));
        let refused = limits.before_turn(&budget(86_000)).blocked.unwrap();
        assert_eq!(refused.retry_after, Some(Duration::from_secs(400)));
        assert!(limits.before_turn(&budget(86_400)).blocked.is_none());
    }

    #[test]
    fn cost_outside_of_turns_counts_on_its_day() {
        for (second, refused) in [(100, true), (86_399, true), (86_400, false)] {
            let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
            assert!(limits.0.counts_spending());
            // Recorded shortly before midnight, added after it.
            limits.before_turn(&budget(second));
            limits.1.spent_today(at(100), 1.0);
            assert_eq!(limits.before_turn(&budget(second)).blocked.is_some(), refused, "at {second} s");
        }
        assert!(!Limits(vec![limit(GuardName::MaxTokens, 1.0, Action::Block)]).counts_spending());
    }

    #[test]
    fn invalid_amounts_restore_no_budget() {
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        limits.1.spent_today(at(0), 1.0);
        for usd in [f64::NAN, f64::NEG_INFINITY, -5.0] {
            limits.after(&spent(1, usd));
            assert!(limits.before_turn(&budget(2)).blocked.is_some(), "{usd}");
        }
    }

    #[test]
    fn less_than_refuses_the_limit_itself() {
        for (reached, tokens, refused) in [(true, 4095, false), (true, 4096, true), (false, 4096, false), (false, 4097, true)] {
            let limits = LimitState::new(vec![Limit { reached, ..limit(GuardName::MaxTokens, 4096.0, Action::Block) }]);
            let turn = limits.before_turn(&Budget { tokens_in_prompt: tokens, ..budget(0) });
            assert_eq!(turn.blocked.is_some(), refused, "{tokens} tokens, reached: {reached}");
            assert_eq!(limits.0.tokens_left(4000), Some(if reached { 95 } else { 96 }));
        }
    }

    #[test]
    fn a_warning_does_not_block() {
        let limits =
            LimitState::new(vec![limit(GuardName::MaxTokens, 5.0, Action::Warn), limit(GuardName::Latency, 2000.0, Action::Block)]);
        let turn = limits.before_turn(&budget(0));
        assert!(turn.blocked.is_none());
        assert_eq!((turn.breaches.len(), turn.breaches[0].seen), (1, 10.0));
        assert_eq!(limits.0.tokens_left(1), None, "a warning cuts no answer short");
        let told = limits.after(&Spent { latency: Duration::from_millis(2001), tokens_in_prompt: 10, tokens: 12, ..spent(1, 0.0) });
        assert_eq!((told.len(), told[0].guard, told[0].seen, told[0].action), (1, GuardName::Latency, 2001.0, Action::Warn));
        let told = limits.after(&Spent { tokens: 6, ..spent(1, 0.0) });
        assert_eq!((told.len(), told[0].guard, told[0].seen), (1, GuardName::MaxTokens, 6.0), "the answer made it too much");
    }

    #[test]
    fn turns_that_come_together_overshoot_by_one_at_most() {
        for (limit_usd, cost) in [(1.0, 0.3), (1.0, 0.25), (0.1, 0.3), (2.0, 0.07)] {
            let limits = LimitState::new(vec![limit(GuardName::SpendLimit, limit_usd, Action::Block)]);
            let (mut under_way, mut total, mut most_at_once) = (Vec::new(), 0.0, 0);
            for step in 0..400 {
                let turn = limits.before_turn(&Budget { expected_usd: cost, ..budget(step) });
                if turn.blocked.is_none() {
                    under_way.push(turn);
                }
                most_at_once = most_at_once.max(under_way.len());
                // One ends for three that come.
                if step % 3 == 0 && !under_way.is_empty() {
                    limits.after(&spent(step, cost));
                    total += cost;
                    drop(under_way.remove(0));
                }
            }
            assert!(total >= limit_usd && total < limit_usd + cost, "{total} of {limit_usd}, {cost} a turn");
            assert!(most_at_once > 1 || limit_usd < 2.0 * cost, "{most_at_once} at once");
        }
    }

    #[test]
    fn a_turn_that_is_dropped_gives_back_what_it_held() {
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        let dear = Budget { expected_usd: 5.0, ..budget(0) };
        let first = limits.before_turn(&dear);
        let block = limits.before_turn(&dear).blocked.unwrap();
        assert_eq!(block.retry_after, Some(Duration::from_secs(1)), "{}", block.message);
        drop(first);
        assert!(limits.before_turn(&dear).blocked.is_none());
    }

    #[test]
    fn the_dearest_turn_is_remembered_over_midnight() {
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        limits.after(&spent(10, 0.6));
        let under_way = [86_400, 86_401].map(|second| limits.before_turn(&budget(second)));
        assert!(under_way.iter().all(|turn| turn.blocked.is_none()));
        assert!(limits.before_turn(&budget(86_402)).blocked.is_some(), "two such turns may use up the day");
    }

    /// A place that hands out what is left of a day to all who ask.
    #[derive(Default)]
    struct Bank {
        may_spend: BTreeMap<usize, f64>,
        spent: BTreeMap<usize, f64>,
    }

    impl Bank {
        fn lease(&mut self, replica: usize, wish: &Wish) -> Lease {
            let wanted = wish.spending.unwrap();
            let before = self.spent.get(&replica).copied().unwrap_or_default();
            let spent = if wanted.day.is_some() { wanted.spent_usd } else { before };
            self.spent.insert(replica, spent);
            let others: f64 =
                self.may_spend.iter().filter(|(other, _)| **other != replica).map(|(other, may)| may.max(self.spent[other])).sum();
            let may = spent + wanted.want_usd.min((wanted.most_usd - others - spent).max(0.0));
            self.may_spend.insert(replica, may);
            let all = self.spent.values().sum();
            let spending = SpendingLease { day: 20_000, may_spend_usd: may, spent_usd: all, day_ends_in: Duration::from_secs(80_000) };
            Lease { spending: Some(spending), requests: None }
        }
    }

    fn turn_with(limits: &LimitState, bank: &mut Bank, replica: usize, budget: Budget) -> TurnCheck {
        let turn = limits.before_turn(&budget);
        if !turn.lacks_lease {
            return turn;
        }
        let wish = limits.0.wish(&limits.1, Asker::Turn, budget.tick).unwrap();
        limits.1.leased(&wish, &bank.lease(replica, &wish));
        limits.before_turn(&Budget { lease: Asked::Answered, ..budget })
    }

    #[test]
    fn replicas_share_a_day_and_each_overshoots_by_a_turn_at_most() {
        let (limit_usd, cost) = (1.0, 0.03);
        let replicas: Vec<_> = (0..3).map(|_| LimitState::new(vec![limit(GuardName::SpendLimit, limit_usd, Action::Block)])).collect();
        let (mut bank, mut total, mut refusals) = (Bank::default(), 0.0, 0);
        for limits in &replicas {
            limits.1.share();
        }
        let mut under_way: Vec<Vec<TurnCheck>> = replicas.iter().map(|_| Vec::new()).collect();
        for step in 0..600_u64 {
            let at = usize::try_from(step * 7 % 3).unwrap();
            let turn = turn_with(&replicas[at], &mut bank, at, Budget { expected_usd: cost, ..budget(step / 8) });
            match turn.blocked {
                None => under_way[at].push(turn),
                Some(block) => {
                    refusals += 1;
                    assert!(block.retry_after.is_some(), "{}", block.message);
                }
            }
            if step % 2 == 0 && !under_way[at].is_empty() {
                replicas[at].after(&spent(step / 8, cost));
                total += cost;
                drop(under_way[at].remove(0));
            }
        }
        assert!(refusals > 100 && total > limit_usd * 0.9 && total <= limit_usd + 3.0 * cost, "{total} and {refusals} refusals");
    }

    #[test]
    fn a_lease_ends_and_without_one_nothing_is_spent() {
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        limits.1.share();
        let mut bank = Bank::default();
        assert!(turn_with(&limits, &mut bank, 0, budget(0)).blocked.is_none());
        assert!(!limits.before_turn(&budget(59)).lacks_lease);
        let turn = limits.before_turn(&budget(60));
        assert!(turn.lacks_lease && turn.blocked.is_none());
        let turn = limits.before_turn(&Budget { lease: Asked::Failed, ..budget(60) });
        assert!(turn.lacks_lease && turn.breaches.is_empty(), "{:?}", turn.breaches);
        assert!(turn.blocked.unwrap().message.contains("database"));
        let warning = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Warn)]);
        warning.1.share();
        assert!(warning.before_turn(&budget(0)).blocked.is_none() && !warning.before_turn(&budget(0)).lacks_lease);
    }

    #[test]
    fn a_new_day_begins_with_what_was_spent_since_it_was_asked_about() {
        let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        limits.1.share();
        let lease = |day, may_spend_usd, spent_usd| Lease {
            spending: Some(SpendingLease { day, may_spend_usd, spent_usd, day_ends_in: Duration::from_secs(10) }),
            requests: None,
        };
        let wish = limits.0.wish(&limits.1, Asker::Turn, tick(0)).unwrap();
        limits.1.leased(&wish, &lease(1, 1.0, 0.0));
        limits.after(&spent(1, 0.7));
        let wish = limits.0.wish(&limits.1, Asker::Turn, tick(11)).unwrap();
        assert_eq!((wish.spending.unwrap().day, wish.spending.unwrap().spent_usd), (Some(1), 0.7));
        limits.after(&spent(11, 0.2));
        limits.1.leased(&wish, &lease(2, 0.5, 0.0));
        let wish = limits.0.wish(&limits.1, Asker::Turn, tick(12)).unwrap();
        assert_eq!((wish.spending.unwrap().day, wish.spending.unwrap().spent_usd), (Some(2), 0.2));
    }

    #[test]
    fn requests_are_leased_where_a_policy_limits_them() {
        let policy = Some(PolicyRule { policy: "gp_rate".into(), rule: crate::RuleType::MaxRequestsPerMinute });
        let limits = LimitState::new(vec![Limit { reached: true, policy, ..limit(GuardName::RateLimit, 5.0, Action::Block) }]);
        limits.1.share();
        assert!(limits.before_turn(&budget(0)).lacks_lease);
        let wish = limits.0.wish(&limits.1, Asker::Turn, tick(0)).unwrap();
        assert_eq!((wish.requests, wish.spending), (Some(RequestsWish { most: 4, want: 1 }), None));
        let lease = |requests, seconds| Lease {
            spending: None,
            requests: Some(RequestsLease { requests, retry_after: Duration::from_secs(seconds) }),
        };
        limits.1.leased(&wish, &lease(1, 0));
        assert!(limits.before_turn(&budget(1)).blocked.is_none());
        assert!(limits.before_turn(&budget(1)).lacks_lease, "it is used");
        let wish = limits.0.wish(&limits.1, Asker::Turn, tick(1)).unwrap();
        limits.1.leased(&wish, &lease(0, 30));
        let turn = limits.before_turn(&budget(2));
        let block = turn.blocked.unwrap();
        assert_eq!((block.retry_after, turn.breaches.len()), (Some(Duration::from_secs(29)), 1), "{}", block.message);
        assert!(limits.before_turn(&budget(4)).lacks_lease, "it may be asked for again");
    }

    #[test]
    fn a_report_of_spending_asks_for_no_request() {
        let policy = Some(PolicyRule { policy: "gp_rate".into(), rule: crate::RuleType::MaxRequestsPerMinute });
        let rate = Limit { policy, ..limit(GuardName::RateLimit, 60.0, Action::Block) };
        let limits = LimitState::new(vec![rate, limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        limits.1.share();
        let wished = |asker, second| limits.0.wish(&limits.1, asker, tick(second)).map(|wish| (wish.requests, wish.spending.is_some()));
        let lease = |requests| Lease {
            spending: Some(SpendingLease { day: 20_000, may_spend_usd: 0.5, spent_usd: 0.0, day_ends_in: Duration::from_secs(80_000) }),
            requests: Some(RequestsLease { requests, retry_after: Duration::ZERO }),
        };
        assert!(limits.before_turn(&budget(0)).lacks_lease);
        assert_eq!(wished(Asker::Keeper, 0), Some((None, true)), "no turn waits for one");
        let wish = limits.0.wish(&limits.1, Asker::Turn, tick(0)).unwrap();
        assert_eq!(wish.requests, Some(RequestsWish { most: 60, want: 1 }));
        limits.1.leased(&wish, &lease(3));
        let mut low = Vec::new();
        for _ in 0..3 {
            assert_eq!(wished(Asker::Turn, 1), Some((None, true)), "a turn that lacks money alone has a request");
            low.push(limits.before_turn(&budget(1)).lease_is_low);
        }
        assert_eq!(low, [false, false, true]);
        assert_eq!(wished(Asker::Keeper, 1), Some((Some(RequestsWish { most: 60, want: 3 }), true)), "more are likely to come");
        assert_eq!(wished(Asker::Keeper, 20), Some((None, true)), "nobody has come since");
    }
}
