//! What limits let through, over a made-up clock and a made-up bank of leases.

use std::collections::BTreeMap;

use super::*;
use crate::share::{RequestsLease, RequestsWish, SpendingLease};

fn limit(guard: GuardName, most: f64, action: Action) -> Limit {
    Limit { guard, most, reached: false, action, policy: None }
}

/// Limits, and what was counted.
struct LimitState(GuardLimits, Ledger);

impl LimitState {
    fn new(limits: Vec<Limit>) -> Self {
        Self(GuardLimits(limits), Ledger::default())
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
    assert!(!GuardLimits(vec![limit(GuardName::MaxTokens, 1.0, Action::Block)]).counts_spending());
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
    let limits = LimitState::new(vec![limit(GuardName::MaxTokens, 5.0, Action::Warn), limit(GuardName::Latency, 2000.0, Action::Block)]);
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

/// The turn that found little room asked ahead, and had ended before the answer came.
#[test]
fn an_answer_that_is_overtaken_makes_nobody_wait() {
    let limits = LimitState::new(vec![limit(GuardName::SpendLimit, 1.0, Action::Block)]);
    limits.1.share();
    let leased = |wish: &Wish, may_spend_usd, spent_usd| {
        let spending = SpendingLease { day: 1, may_spend_usd, spent_usd, day_ends_in: Duration::from_secs(80_000) };
        limits.1.leased(wish, &Lease { spending: Some(spending), requests: None });
    };
    let wish = |asker| limits.0.wish(&limits.1, asker, tick(0)).unwrap();
    leased(&wish(Asker::Turn), 0.9, 0.0);
    limits.after(&spent(0, 0.81));
    let asked_ahead = wish(Asker::Keeper);
    limits.after(&spent(0, 0.135));
    leased(&asked_ahead, 0.905, 0.81);
    assert!(limits.before_turn(&budget(0)).lacks_lease, "0.055 USD are left, and are asked for");
    leased(&wish(Asker::Turn), 0.9725, 0.945);
    assert!(limits.before_turn(&budget(0)).blocked.is_none());
    limits.after(&spent(0, 0.135));
    leased(&wish(Asker::Turn), 1.08, 1.08);
    let turn = limits.before_turn(&budget(0));
    assert!(turn.blocked.is_some() && !turn.lacks_lease, "nothing was given, and nobody asks again at once");
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
    let lease =
        |requests, seconds| Lease { spending: None, requests: Some(RequestsLease { requests, retry_after: Duration::from_secs(seconds) }) };
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
    for asker in [Asker::Keeper, Asker::Reporter] {
        assert_eq!(wished(asker, 0), Some((None, true)), "no turn waits for one");
    }
    let wish = limits.0.wish(&limits.1, Asker::Turn, tick(0)).unwrap();
    assert_eq!(wish.requests, Some(RequestsWish { most: 60, want: 1 }));
    limits.1.leased(&wish, &lease(3));
    let mut low = Vec::new();
    for _ in 0..3 {
        assert_eq!(wished(Asker::Turn, 1), Some((None, true)), "a turn that lacks money alone has a request");
        low.push(limits.before_turn(&budget(1)).lease_is_low);
    }
    assert_eq!(low, [false, false, true]);
    assert_eq!(wished(Asker::Keeper, 1), Some((Some(RequestsWish { most: 60, want: 3 }), false)), "more are likely to come; money lasts");
    assert_eq!(wished(Asker::Reporter, 1), Some((None, true)), "what was spent is told, and what is left given back");
    assert_eq!(wished(Asker::Keeper, 20), Some((None, true)), "nobody has come since");
}

#[test]
fn requests_asked_ahead_renew_money_that_runs_out() {
    let policy = Some(PolicyRule { policy: "gp_rate".into(), rule: crate::RuleType::MaxRequestsPerMinute });
    let rate = Limit { policy, ..limit(GuardName::RateLimit, 60.0, Action::Block) };
    let limits = LimitState::new(vec![rate, limit(GuardName::SpendLimit, 1.0, Action::Block)]);
    limits.1.share();
    let lease = Lease {
        spending: Some(SpendingLease { day: 20_000, may_spend_usd: 0.5, spent_usd: 0.0, day_ends_in: Duration::from_secs(80_000) }),
        requests: Some(RequestsLease { requests: 3, retry_after: Duration::ZERO }),
    };
    let wish = limits.0.wish(&limits.1, Asker::Turn, tick(0)).unwrap();
    limits.1.leased(&wish, &lease);
    // (second, what is spent then, whether money is asked for): the lease lasts 60 s and has 0.5 USD.
    for (second, usd, is_asked) in [(39, 0.1, false), (40, 0.0, true), (41, 0.15, true)] {
        limits.1.leased(&Wish { at: tick(second), spending: None, ..wish }, &Lease { spending: None, ..lease });
        limits.after(&spent(second, usd));
        for _ in 0..3 {
            assert!(!limits.before_turn(&budget(second)).lacks_lease, "after {second} s");
        }
        let wished = limits.0.wish(&limits.1, Asker::Keeper, tick(second)).unwrap();
        assert_eq!((wished.requests.is_some(), wished.spending.is_some()), (true, is_asked), "after {second} s");
    }
}

/// What a replica wishes for after a number of turns within four seconds.
fn wished_after(turns: u32, most: f64) -> u32 {
    let policy = Some(PolicyRule { policy: "gp_rate".into(), rule: crate::RuleType::MaxRequestsPerMinute });
    let limits = LimitState::new(vec![Limit { policy, ..limit(GuardName::RateLimit, most, Action::Block) }]);
    limits.1.share();
    let mut largest = 0;
    for turn in 0..turns {
        let now = Budget { tick: tick(0) + Duration::from_secs(4) * turn / turns, ..budget(0) };
        if limits.before_turn(&now).lacks_lease {
            let wish = limits.0.wish(&limits.1, Asker::Turn, now.tick).unwrap();
            let requests = wish.requests.unwrap().want;
            largest = largest.max(requests);
            let lease = Lease { spending: None, requests: Some(RequestsLease { requests, retry_after: Duration::ZERO }) };
            limits.1.leased(&wish, &lease);
            assert!(!limits.before_turn(&now).lacks_lease, "turn {turn} of {turns}");
        }
    }
    largest
}

#[test]
fn a_slice_of_requests_grows_with_the_load_and_the_limit() {
    assert!(wished_after(2_000, 1_000_000.0) > 1_000);
    assert_eq!(wished_after(2_000, 4_096.0), 64);
    assert_eq!(wished_after(2_000, 60.0), 15);
    assert_eq!(wished_after(50_000, 1_000_000.0), 2_048, "no more than is remembered");
}
