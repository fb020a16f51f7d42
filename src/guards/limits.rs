//! Limits of tokens, requests, cost and latency. Clock and amounts are arguments. Memory is constant: a minute is sixty-one
//! buckets of one second, a day is one sum.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::finding::{Action, Block, GuardName};

/// One limit. `reached`: the limit itself is already too much (`lt`).
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Limit {
    pub(crate) guard: GuardName,
    pub(crate) most: f64,
    pub(crate) reached: bool,
    pub(crate) action: Action,
    /// The id of its policy; `None` for an entry of `RUNTIME_GUARDS`.
    pub(crate) policy: Option<String>,
}

impl Limit {
    fn broken_by(&self, seen: f64) -> bool {
        if self.reached { seen >= self.most } else { seen > self.most }
    }

    fn breach(&self, seen: f64, action: Action) -> Breach {
        Breach { guard: self.guard, policy: self.policy.clone(), limit: self.most, seen, action }
    }
}

/// The values to check before a model call.
#[derive(Debug, Clone, Copy)]
pub struct Budget<'a> {
    pub now: SystemTime,
    pub tokens_in_prompt: u64,
    /// A model of the agent without a known price.
    pub unpriced: Option<&'a str>,
}

/// The usage of a turn.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    pub now: SystemTime,
    /// Tokens of the prompt and of the answer.
    pub tokens: u64,
    pub usd: f64,
    pub latency: Duration,
}

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Breach {
    pub guard: GuardName,
    /// The id of the policy with the limit; `None` for an entry of `RUNTIME_GUARDS`.
    pub policy: Option<String>,
    /// Tokens, requests per minute, US dollars per day, or milliseconds.
    pub limit: f64,
    pub seen: f64,
    /// `Block` or `Warn`.
    pub action: Action,
}

/// The result of the check before a turn.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnCheck {
    pub breaches: Vec<Breach>,
    pub blocked: Option<Block>,
}

/// The state of all limits of one agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct LimitState {
    all: Vec<Limit>,
    minute: Minute,
    day: Day,
}

impl LimitState {
    pub(crate) fn new(limits: Vec<Limit>) -> Self {
        Self { all: limits, minute: Minute::default(), day: Day::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A turn that is blocked counts neither as a request nor as spent.
    pub(crate) fn before_turn(&mut self, budget: &Budget) -> TurnCheck {
        let now = seconds(budget.now);
        self.minute.advance_to(now);
        self.day.advance_to(now);
        let mut turn = TurnCheck::default();
        for limit in &self.all {
            let (seen, broken) = match limit.guard {
                GuardName::MaxTokens => (amount(budget.tokens_in_prompt), limit.broken_by(amount(budget.tokens_in_prompt))),
                GuardName::RateLimit => {
                    let with_this = amount(self.minute.requests() + 1);
                    (with_this, limit.broken_by(with_this))
                }
                // The cost of this turn is not known yet, so the budget must not be used up before it. A model without a
                // price is refused.
                GuardName::SpendLimit => (self.day.usd, self.day.usd >= limit.most || budget.unpriced.is_some()),
                _ => continue,
            };
            if broken {
                turn.breaches.push(limit.breach(seen, limit.action));
                if limit.action == Action::Block && turn.blocked.is_none() {
                    turn.blocked = Some(match budget.unpriced.filter(|_| limit.guard == GuardName::SpendLimit) {
                        Some(model) => uncounted(model),
                        None => self.refusal(limit, seen, now),
                    });
                }
            }
        }
        if turn.blocked.is_none() {
            self.minute.count();
        }
        turn
    }

    /// Records the usage of a turn. Exceeded limits are warnings, as the turn has ended; the next turn may be refused.
    pub(crate) fn after(&mut self, spent: &Spent) -> Vec<Breach> {
        let now = seconds(spent.now);
        self.day.advance_to(now);
        self.day.add(spent.usd);
        let seen = |limit: &Limit| match limit.guard {
            GuardName::MaxTokens => Some(amount(spent.tokens)),
            GuardName::SpendLimit => Some(self.day.usd),
            GuardName::Latency => Some(spent.latency.as_secs_f64() * 1000.0),
            _ => None,
        };
        let broken = |limit: &Limit| seen(limit).filter(|seen| limit.broken_by(*seen)).map(|seen| limit.breach(seen, Action::Warn));
        self.all.iter().filter_map(broken).collect()
    }

    pub(crate) fn counts_spending(&self) -> bool {
        self.all.iter().any(|limit| limit.guard == GuardName::SpendLimit)
    }

    /// Adds cost of the day of `at` outside of this process's turns. Cost of an earlier day is ignored.
    pub(crate) fn spent_today(&mut self, at: SystemTime, usd: f64) {
        let at = seconds(at);
        self.day.advance_to(at);
        if self.day.number == at / Day::SECONDS {
            self.day.add(usd);
        }
    }

    /// The most tokens of an answer to a prompt of this size; `None` without a limit.
    pub(crate) fn tokens_left(&self, tokens_in_prompt: u64) -> Option<u64> {
        let blocking = self.all.iter().filter(|limit| limit.guard == GuardName::MaxTokens && limit.action == Action::Block);
        let most = blocking.map(|limit| if limit.reached { limit.most - 1.0 } else { limit.most }).reduce(f64::min)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float turned into an integer saturates")]
        Some((most.floor() as u64).saturating_sub(tokens_in_prompt))
    }

    fn refusal(&self, limit: &Limit, seen: f64, now: u64) -> Block {
        let guard = limit.guard;
        let (message, retry_after) = match guard {
            GuardName::RateLimit => {
                let wait = self.minute.wait_for(limit);
                (format!("refused by {guard}: {} requests a minute are allowed; try again in {wait} s", limit.most), Some(wait))
            }
            GuardName::SpendLimit => {
                let wait = Day::SECONDS - now % Day::SECONDS;
                (
                    format!("refused by {guard}: this agent has used up its {} USD of today; the next day begins at 00:00 UTC", limit.most),
                    Some(wait),
                )
            }
            _ => (format!("refused by {guard}: the prompt has {seen} tokens, {} are the limit; send less text", limit.most), None),
        };
        Block { guard, message, retry_after: retry_after.map(Duration::from_secs) }
    }
}

/// The refusal of a model without a price.
fn uncounted(model: &str) -> Block {
    let guard = GuardName::SpendLimit;
    let message = format!(
        "refused by {guard}: nobody knows what {model} costs, so that its limit would never be reached; give the price in the agent's \
         governance.limits.prices, or take the guard out"
    );
    Block { guard, message, retry_after: None }
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
}

impl Day {
    const SECONDS: u64 = 86_400;

    fn advance_to(&mut self, now: u64) {
        let today = now / Self::SECONDS;
        if today > self.number {
            *self = Self { number: today, usd: 0.0 };
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

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(20_000 * Day::SECONDS + second)
    }

    fn budget(second: u64) -> Budget<'static> {
        Budget { now: at(second), tokens_in_prompt: 10, unpriced: None }
    }

    #[test]
    fn a_model_without_a_price_is_refused() {
        let unpriced = Budget { unpriced: Some("openai:of-my-own"), ..budget(0) };
        let mut limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        let block = limits.before_turn(&unpriced).blocked.unwrap();
        assert!(block.message.contains("openai:of-my-own") && block.message.contains("governance.limits.prices"), "{}", block.message);
        assert_eq!(block.retry_after, None);
        assert!(limits.before_turn(&budget(0)).blocked.is_none());
        let mut warning = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Warn)]);
        let turn = warning.before_turn(&unpriced);
        assert_eq!((turn.blocked, turn.breaches.len()), (None, 1), "who only wants to be told is told");
        let mut others = LimitState::new(vec![limit(GuardName::RateLimit, 1.0, Action::Block)]);
        assert!(others.before_turn(&unpriced).blocked.is_none(), "other limits need no price");
    }

    #[test]
    fn no_sixty_seconds_exceed_the_limit_and_retry_after_is_exact() {
        let mut limits = LimitState::new(vec![limit(GuardName::RateLimit, 3.0, Action::Block)]);
        let mut admitted = Vec::new();
        let mut second = 0;
        while second < 600 {
            match limits.before_turn(&budget(second)).blocked {
                None => admitted.push(second),
                Some(block) => {
                    let wait = block.retry_after.unwrap().as_secs();
                    assert!(limits.clone().before_turn(&budget(second + wait)).blocked.is_none(), "waiting {wait} s was not enough");
                    assert!(limits.clone().before_turn(&budget(second + wait - 1)).blocked.is_some(), "{wait} s is longer than needed");
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
        let mut limits = LimitState::new(vec![limit(GuardName::RateLimit, 1.0, Action::Block)]);
        assert!(limits.before_turn(&budget(100)).blocked.is_none());
        assert!(limits.before_turn(&budget(10)).blocked.is_some());
        assert!(limits.before_turn(&budget(161)).blocked.is_none());
    }

    #[test]
    fn a_day_that_is_used_up_ends_at_midnight() {
        let mut limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        let spent = |second, usd| Spent { now: at(second), tokens: 1, usd, latency: Duration::ZERO };
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
            let mut limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
            assert!(limits.counts_spending());
            // Recorded shortly before midnight, added after it.
            limits.before_turn(&budget(second));
            limits.spent_today(at(100), 1.0);
            assert_eq!(limits.before_turn(&budget(second)).blocked.is_some(), refused, "at {second} s");
        }
        assert!(!LimitState::new(vec![limit(GuardName::MaxTokens, 1.0, Action::Block)]).counts_spending());
    }

    #[test]
    fn invalid_amounts_restore_no_budget() {
        let mut limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
        limits.spent_today(at(0), 1.0);
        for usd in [f64::NAN, f64::NEG_INFINITY, -5.0] {
            limits.after(&Spent { now: at(1), tokens: 1, usd, latency: Duration::ZERO });
            assert!(limits.before_turn(&budget(2)).blocked.is_some(), "{usd}");
        }
    }

    #[test]
    fn less_than_refuses_the_limit_itself() {
        for (reached, tokens, refused) in [(true, 4095, false), (true, 4096, true), (false, 4096, false), (false, 4097, true)] {
            let mut limits = LimitState::new(vec![Limit { reached, ..limit(GuardName::MaxTokens, 4096.0, Action::Block) }]);
            let turn = limits.before_turn(&Budget { now: at(0), tokens_in_prompt: tokens, unpriced: None });
            assert_eq!(turn.blocked.is_some(), refused, "{tokens} tokens, reached: {reached}");
            assert_eq!(limits.tokens_left(4000), Some(if reached { 95 } else { 96 }));
        }
    }

    #[test]
    fn a_warning_does_not_block() {
        let mut limits =
            LimitState::new(vec![limit(GuardName::MaxTokens, 5.0, Action::Warn), limit(GuardName::Latency, 2000.0, Action::Block)]);
        let turn = limits.before_turn(&budget(0));
        assert!(turn.blocked.is_none());
        assert_eq!((turn.breaches.len(), turn.breaches[0].seen), (1, 10.0));
        assert_eq!(limits.tokens_left(1), None, "a warning cuts no answer short");
        let told = limits.after(&Spent { now: at(1), tokens: 2, usd: 0.0, latency: Duration::from_millis(2001) });
        assert_eq!((told[0].guard, told[0].seen, told[0].action), (GuardName::Latency, 2001.0, Action::Warn));
    }
}
