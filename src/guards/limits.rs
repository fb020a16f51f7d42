//! Limits of tokens, requests, cost and latency. Clock and amounts are arguments. Memory is constant: a minute is sixty-one
//! buckets of one second, a day is one sum. What was counted outlives the limits, which policies may change at any time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::finding::{Action, Block, GuardName};
use crate::rule::PolicyRule;

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
}

impl Ledger {
    /// A poisoned lock is used: a panic cannot leave the numbers inconsistent.
    fn lock(&self) -> MutexGuard<'_, Amounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds cost of the day of `at` outside of this process's turns. Cost of an earlier day is ignored.
    pub(crate) fn spent_today(&self, at: SystemTime, usd: f64) {
        let at = seconds(at);
        let day = &mut self.lock().day;
        day.advance_to(at);
        if day.number == at / Day::SECONDS {
            day.add(usd);
        }
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
        let mut turn = TurnCheck::default();
        for limit in &self.0 {
            let (seen, broken) = match limit.guard {
                GuardName::MaxTokens => (amount(budget.tokens_in_prompt), limit.broken_by(amount(budget.tokens_in_prompt))),
                GuardName::RateLimit => {
                    let with_this = amount(amounts.minute.requests() + 1);
                    (with_this, limit.broken_by(with_this))
                }
                GuardName::SpendLimit => (amounts.day.usd, is_spent(limit, &amounts.day, budget)),
                _ => continue,
            };
            if broken {
                turn.breaches.push(limit.breach(seen, limit.action));
                if limit.action == Action::Block && turn.blocked.is_none() {
                    turn.blocked = Some(match budget.unpriced.filter(|_| limit.guard == GuardName::SpendLimit) {
                        Some(model) => uncounted(limit, model),
                        None => amounts.refusal(limit, seen, now),
                    });
                }
            }
        }
        if turn.blocked.is_none() {
            amounts.minute.count();
            if self.0.iter().any(|limit| limit.guard == GuardName::SpendLimit && limit.action == Action::Block) {
                let usd = if amounts.day.dearest > 0.0 { amounts.day.dearest } else { budget.expected_usd.max(0.0) };
                amounts.day.held += usd;
                turn.hold = Hold(Some((ledger.clone(), usd)));
            }
        }
        turn
    }

    /// Records the usage of a turn. Exceeded limits are warnings, as the turn has ended; the next turn may be refused.
    pub(crate) fn after(&self, ledger: &Ledger, spent: &Spent) -> Vec<Breach> {
        let now = seconds(spent.now);
        let day = &mut ledger.lock().day;
        day.advance_to(now);
        day.add(spent.usd);
        if spent.usd.is_finite() {
            day.dearest = day.dearest.max(spent.usd);
        }
        let seen = |limit: &Limit| match limit.guard {
            // What the prompt alone was too much for has been told before.
            GuardName::MaxTokens => Some(amount(spent.tokens)).filter(|_| !limit.broken_by(amount(spent.tokens_in_prompt))),
            GuardName::SpendLimit => Some(day.usd),
            GuardName::Latency => Some(spent.latency.as_secs_f64() * 1000.0),
            _ => None,
        };
        let broken = |limit: &Limit| seen(limit).filter(|seen| limit.broken_by(*seen)).map(|seen| limit.breach(seen, Action::Warn));
        self.0.iter().filter_map(broken).collect()
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

/// The cost of this turn is not known yet, so the budget must not be used up before it, nor by the turns under way. Who only wants to be told
/// is told after it. A model without a price is refused: its cost would never be known. A policy that warns has nothing to say of it.
fn is_spent(limit: &Limit, day: &Day, budget: &Budget) -> bool {
    match limit.action {
        Action::Block => day.usd + day.held >= limit.most || budget.unpriced.is_some(),
        _ => budget.unpriced.is_some() && limit.policy.is_none(),
    }
}

impl Amounts {
    fn refusal(&self, limit: &Limit, seen: f64, now: u64) -> Block {
        let (guard, by) = (limit.guard, by(limit));
        let (message, retry_after) = match guard {
            GuardName::RateLimit => {
                let wait = self.minute.wait_for(limit);
                (format!("refused by {by}: {} requests a minute are allowed; try again in {wait} s", limit.most), Some(wait))
            }
            GuardName::SpendLimit if self.day.usd < limit.most => {
                (format!("refused by {by}: the turns under way may use up its {} USD of today; try again when one has ended", limit.most), Some(1))
            }
            GuardName::SpendLimit => {
                let wait = Day::SECONDS - now % Day::SECONDS;
                (format!("refused by {by}: this agent has used up its {} USD of today; the next day begins at 00:00 UTC", limit.most), Some(wait))
            }
            _ => (format!("refused by {by}: the prompt has {seen} tokens, {} are the limit; send less text", limit.most), None),
        };
        Block { guard, message, retry_after: retry_after.map(Duration::from_secs), policy: limit.policy.clone() }
    }
}

/// The guard, and the policy that has it.
fn by(limit: &Limit) -> String {
    limit.policy.as_ref().map_or_else(|| limit.guard.to_string(), |asker| format!("{} (policy {})", limit.guard, asker.policy))
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
    /// The cost of the dearest turn.
    dearest: f64,
}

impl Day {
    const SECONDS: u64 = 86_400;

    fn advance_to(&mut self, now: u64) {
        let today = now / Self::SECONDS;
        if today > self.number {
            *self = Self { number: today, usd: 0.0, held: self.held, dearest: 0.0 };
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
    use super::*;

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

    fn budget(second: u64) -> Budget<'static> {
        Budget { now: at(second), tokens_in_prompt: 10, unpriced: None, expected_usd: 0.0 }
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
}
