//! Budgets that replicas share: nobody is given more than there is, a dead replica's slice comes back, and the database's clock decides.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use jiff::Timestamp;
use slipway_database::{
    BudgetRequest, Fault, Options, REQUESTS_LEASE, RateLease, RateRequest, SpendingLease, SpendingRequest, Store, UsageMinute,
    migrate_up_to,
};
use slipway_peers::PgBouncer;

use crate::{Database, Raw, SERVER, options, talk};

const CENT: i64 = 10_000;

async fn spend(store: &Store, holder: &str, last: Option<SpendingLease>, spent: i64, most: i64, want: i64) -> Result<SpendingLease, Fault> {
    let spending = SpendingRequest { day: last.map(|lease| lease.day), spent_micros: spent, most_micros: most, want_micros: want };
    let request = BudgetRequest { holder: holder.into(), spending: Some(spending), requests: None };
    Ok(store.lease_budget(&request).await?.spending.unwrap())
}

async fn begin(store: &Store, most: u32, want: u32) -> RateLease {
    let request = BudgetRequest { holder: "h".into(), spending: None, requests: Some(RateRequest { most, want }) };
    store.lease_budget(&request).await.unwrap().requests.unwrap()
}

/// One replica as a runtime would be: turns at once, each admitted while the slice is not used up with what is under way.
async fn replica(store: Store, name: &str, most: i64, turn: i64, spent_by_all: &AtomicI64) -> i64 {
    let (mut spent, mut lease): (i64, Option<SpendingLease>) = (0, None);
    loop {
        let may = lease.map_or(0, |lease| lease.may_spend_micros);
        if may <= spent {
            let next = spend(&store, name, lease, spent, most, 10 * turn).await.unwrap();
            if next.may_spend_micros <= spent {
                return spent;
            }
            lease = Some(next);
            continue;
        }
        // As many at once as the slice pays for, and one at least.
        let at_once = ((may - spent) / turn).max(1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        spent += at_once * turn;
        spent_by_all.fetch_add(at_once * turn, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn replicas_together_spend_one_turn_each_too_much_at_most() {
    for replicas in [1, 2, 8] {
        let database = Database::migrated().await;
        let spent = AtomicI64::new(0);
        let (most, turn) = (100 * CENT, 3 * CENT);
        let mut work = Vec::new();
        for n in 0..replicas {
            work.push((database.tenant("a", "ag_1").await, format!("replica_{n}")));
        }
        let spent_each = join_all(work.into_iter().map(|(store, name)| {
            let spent = &spent;
            async move { replica(store, &name, most, turn, spent).await }
        }))
        .await;
        let all = spent.load(Ordering::Relaxed);
        assert!(all >= most - turn, "{replicas} leave nothing over: {all} of {most}, {spent_each:?}");
        assert!(all < most + turn * i64::from(replicas), "{replicas}: {all} of {most}, {spent_each:?}");
    }
}

#[tokio::test]
async fn slices_given_at_once_are_never_more_than_is_left() {
    let database = Database::migrated().await;
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(database.tenant("a", "ag_1").await);
    }
    let leases = join_all(stores.iter().enumerate().map(async |(n, store)| {
        let mut may = 0;
        for _ in 0..5 {
            may = spend(store, &format!("h{n}"), None, 0, 100 * CENT, 40 * CENT).await.unwrap().may_spend_micros;
        }
        may
    }))
    .await;
    let given: i64 = leases.iter().sum();
    assert!((70 * CENT..=100 * CENT).contains(&given), "{leases:?}");
    let other = database.tenant("a", "ag_2").await;
    assert_eq!(
        spend(&other, "h0", None, 0, 100 * CENT, 40 * CENT).await.unwrap().may_spend_micros,
        40 * CENT,
        "another agent's is its own"
    );
}

#[tokio::test]
async fn a_dead_replicas_slice_comes_back_and_what_it_spent_does_not() {
    let database = Database::migrated().await;
    let (one, two) = (database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await);
    let most = 100 * CENT;
    let first = spend(&one, "one", None, 0, most, 40 * CENT).await.unwrap();
    spend(&one, "one", Some(first), 10 * CENT, most, 40 * CENT).await.unwrap();
    let lease = spend(&two, "two", None, 0, most, most).await.unwrap();
    assert_eq!((lease.may_spend_micros, lease.spent_micros), (25 * CENT, 10 * CENT), "half of 100 without 10 spent and 40 promised");
    let mut admin = database.raw(&database.url).await;
    admin.ask("update slipway.budget_leases set until = now() - interval '1 second' where holder = 'one'").await.unwrap();
    let lease = spend(&two, "two", Some(lease), 20 * CENT, most, most).await.unwrap();
    assert_eq!(lease.may_spend_micros, (20 + 35) * CENT, "half of 100 without 10 and 20");
    // It was only slow: what it has spent meanwhile counts, and twice told counts once.
    for _ in 0..2 {
        spend(&one, "one", Some(first), 30 * CENT, most, 0).await.unwrap();
    }
    let lease = spend(&two, "two", Some(lease), 20 * CENT, most, most).await.unwrap();
    assert_eq!((lease.may_spend_micros, lease.spent_micros), ((20 + 35) * CENT, 50 * CENT), "it keeps what it had: half would be 25");
    assert!(lease.day_ends_in <= Duration::from_hours(24));
}

#[tokio::test]
async fn a_renewal_takes_nothing_from_turns_under_way() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let most = 100 * CENT;
    let first = spend(&store, "one", None, 0, most, 40 * CENT).await.unwrap();
    for (holder, given) in [("two", 30), ("three", 15)] {
        assert_eq!(spend(&store, holder, None, 0, most, most).await.unwrap().may_spend_micros, given * CENT);
    }
    // Turns under way may need all 40, and half of the 55 that are left is less.
    let renewed = spend(&store, "one", Some(first), 0, most, 45 * CENT).await.unwrap();
    assert_eq!(renewed.may_spend_micros, 40 * CENT);
    let renewed = spend(&store, "one", Some(renewed), 10 * CENT, most, 45 * CENT).await.unwrap();
    assert_eq!(renewed.may_spend_micros, 40 * CENT, "what is spent of it is not given again");
    assert_eq!(spend(&store, "four", None, 0, most, most).await.unwrap().may_spend_micros, 15 * CENT / 2, "all together have the limit");
    let renewed = spend(&store, "one", Some(renewed), 10 * CENT, 65 * CENT, 45 * CENT).await.unwrap();
    assert_eq!(renewed.may_spend_micros, (10 + 2) * CENT + CENT / 2, "a limit that was lowered leaves what the others do not have");
    let renewed = spend(&store, "one", Some(renewed), 10 * CENT, most, 0).await.unwrap();
    assert_eq!(renewed.may_spend_micros, 10 * CENT, "it is given back");
    let gone = "update slipway.budget_leases set until = now() - interval '1 second' where holder = 'two'";
    database.raw(&database.url).await.ask(gone).await.unwrap();
    assert_eq!(spend(&store, "two", None, 0, 50 * CENT, most).await.unwrap().may_spend_micros, 175_000 / 2, "what ran out is not kept");
}

#[tokio::test]
async fn a_day_begins_with_nothing_spent() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let lease = spend(&store, "one", None, 0, 10 * CENT, 10 * CENT).await.unwrap();
    let yesterday = SpendingLease { day: lease.day - 1, ..lease };
    let lease = spend(&store, "one", Some(yesterday), 10 * CENT, 10 * CENT, 4 * CENT).await.unwrap();
    assert_eq!((lease.day, lease.may_spend_micros, lease.spent_micros), (yesterday.day + 1, 4 * CENT, 0));
    assert_eq!(spend(&store, "one", Some(lease), 10 * CENT, 10 * CENT, 4 * CENT).await.unwrap().may_spend_micros, 10 * CENT);
}

#[tokio::test]
async fn what_other_runtimes_have_written_down_counts() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let now = Timestamp::now();
    let used = UsageMinute { requests: 1, cost_micros: 60 * CENT, ..UsageMinute::empty(now, "p", "m") };
    store.record_usage(std::slice::from_ref(&used)).await.unwrap();
    let lease = spend(&store, "one", None, 0, 100 * CENT, 100 * CENT).await.unwrap();
    assert_eq!((lease.may_spend_micros, lease.spent_micros), (20 * CENT, 60 * CENT));
    // This replica's own spending is in there already, or will be.
    let lease = spend(&store, "one", Some(lease), 20 * CENT, 100 * CENT, 100 * CENT).await.unwrap();
    assert_eq!(lease.spent_micros, 60 * CENT);
    // While usage is not summed up yet, too.
    let mut admin = database.raw(&database.url).await;
    admin.ask("delete from slipway.usage_spans; insert into slipway.usage_backfill values ('a', 'ag_1')").await.unwrap();
    assert_eq!(spend(&store, "one", Some(lease), 20 * CENT, 100 * CENT, 0).await.unwrap().spent_micros, 60 * CENT);
}

#[tokio::test]
async fn requests_of_all_replicas_within_a_minute_are_no_more_than_the_limit() {
    for prepared in [false, true] {
        let database = Database::migrated().await;
        let url = database.url_of(&database.login("a").await);
        let stores: Vec<_> =
            (0..8).map(|_| Store::open(&Options { prepared_statements: prepared, ..options(&url, "a", "ag_1") }).unwrap()).collect();
        let given = join_all(stores.iter().map(async |store| {
            let mut given = 0;
            for _ in 0..10 {
                given += begin(store, 100, 3).await.requests;
            }
            given
        }))
        .await;
        assert_eq!(given.iter().sum::<u32>(), 100, "{given:?}");
        let refused = begin(&stores[0], 100, 1).await;
        let window = Duration::from_secs(61) + REQUESTS_LEASE;
        assert!(refused.requests == 0 && refused.retry_after <= window && refused.retry_after > Duration::from_secs(30), "{refused:?}");
        assert_eq!(begin(&stores[0], 120, 50).await.requests, 20, "a greater limit leaves room");
        // A minute later and the time that a lease may have waited.
        let mut admin = database.raw(&database.url).await;
        let later = |seconds: u64| format!("update slipway.budgets set newest = newest - {seconds}");
        admin.ask(&later(30)).await.unwrap();
        assert_eq!(begin(&stores[0], 120, 50).await.requests, 0);
        admin.ask(&later(window.as_secs() - 30)).await.unwrap();
        assert_eq!(begin(&stores[0], 120, 50).await.requests, 50);
        // A clock that was set back.
        admin.ask("update slipway.budgets set newest = newest + 3600").await.unwrap();
        assert_eq!(begin(&stores[0], 60, 50).await.requests, 10);
        assert_eq!(begin(&stores[0], 0, 1).await.requests, 0);
    }
}

#[tokio::test]
async fn when_to_come_back_is_when_there_is_room() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let mut admin = database.raw(&database.url).await;
    let began = Instant::now();
    begin(&store, 5, 2).await;
    admin.ask("update slipway.budgets set newest = newest - 20").await.unwrap();
    begin(&store, 5, 3).await;
    let wait = begin(&store, 5, 1).await.retry_after;
    let (window, took) = (61 + REQUESTS_LEASE.as_secs(), began.elapsed().as_secs());
    assert!((window - 22 - took..=window - 20).contains(&wait.as_secs()), "{wait:?} after {took} s");
    admin.ask(&format!("update slipway.budgets set newest = newest - {}", wait.as_secs() + 1)).await.unwrap();
    assert_eq!(begin(&store, 5, 5).await.requests, 2, "the first two have gone");
}

#[tokio::test]
async fn turns_that_cost_nothing_do_not_wait_for_the_budget() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    spend(&store, "one", None, 0, CENT, CENT).await.unwrap();
    let mut admin = database.raw(&database.url).await;
    admin.ask("begin; select from slipway.budgets for update; select from slipway.budget_leases for update").await.unwrap();
    talk(&store, "conv_1", "q", "a").await.unwrap();
    let began = Instant::now();
    assert!(matches!(spend(&store, "one", None, 0, CENT, CENT).await, Err(Fault::Unavailable(_))), "who does need it is told in time");
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[tokio::test]
async fn on_an_older_schema_there_are_no_leases() {
    let database = Database::empty();
    migrate_up_to(&database.url, 13).await.unwrap();
    let fault = spend(&database.store("a", "ag_1"), "one", None, 0, CENT, CENT).await.unwrap_err();
    assert!(fault.is_passing(), "{fault}");
}

#[tokio::test]
async fn budgets_are_leased_through_a_pgbouncer() {
    let bouncer = PgBouncer::start(&SERVER);
    let database = Database::migrated().await;
    let login = database.login("a").await;
    let url = bouncer.url(&login.user, &login.password, &database.name);
    let stores: Vec<_> = (0..8).map(|_| Store::open(&options(&url, "a", "ag_1")).unwrap()).collect();
    let given = join_all(stores.iter().map(async |store| {
        let mut given = 0;
        for _ in 0..10 {
            given += begin(store, 50, 3).await.requests;
        }
        given
    }))
    .await;
    assert_eq!(given.iter().sum::<u32>(), 50, "{given:?}");
}

/// Prints what docs/database.md tells; run it alone, with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn leases_a_second() {
    let database = Database::migrated().await;
    let url = database.url_of(&database.login("a").await);
    let agents = 4;
    for (what, same) in [("one agent", true), ("an agent each", false)] {
        for replicas in [1, 2, 8] {
            let stores: Vec<_> = (0..replicas)
                .map(|n| {
                    let agent = if same { "ag_one".to_owned() } else { format!("ag_{}", n % agents) };
                    Store::open(&Options { prepared_statements: true, ..options(&url, "a", &agent) }).unwrap()
                })
                .collect();
            join_all(stores.iter().map(Store::ping)).await;
            let began = Instant::now();
            let asked = AtomicI64::new(0);
            join_all(stores.iter().enumerate().map(|(n, store)| {
                let asked = &asked;
                async move {
                    while began.elapsed() < Duration::from_secs(5) {
                        spend(store, &format!("h{n}"), None, 0, 1_000_000 * CENT, CENT).await.unwrap();
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }))
            .await;
            #[expect(clippy::cast_precision_loss, reason = "a figure to print")]
            let rate = asked.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
            println!("{replicas} replicas of {what}: {rate:.0} leases a second");
        }
    }
    drop(Raw::connect(&url).await);
}
