//! Usage of all writers adds up.

use jiff::Timestamp;
use slipway_database::{AgentTraces, LATENCY_BUCKETS, Options, PodRun, Store, UsageMinute, migrate, migrate_up_to};

use crate::spans::key;
use crate::{Database, options};

#[tokio::test]
async fn minutes_add_up_over_replicas_and_batches() {
    let database = Database::migrated().await;
    let stores = [database.tenant("a", "ag_1").await, database.tenant("a", "ag_1").await];
    let at = |second: i64| UsageMinute::empty(Timestamp::from_second(1_800_000_000 + second).unwrap(), "openai", "m");
    let used = |second, milliseconds| {
        let mut row = UsageMinute {
            requests: 1,
            errors: 2,
            input_tokens: 3,
            output_tokens: 4,
            cost_micros: 5,
            guard_blocks: 6,
            pii: 7,
            injections: 8,
            violations: 9,
            unpriced: 10,
            cancelled: 11,
            ..at(second)
        };
        row.latency_histogram[UsageMinute::bucket(milliseconds)] += 1;
        row
    };
    let batch = [used(0, 30), used(59, 30), used(60, 999_999)];
    let writes = futures::future::join_all((0..10).map(|n| stores[n % 2].record_usage(&batch))).await;
    assert!(writes.iter().all(Result::is_ok), "{writes:?}");
    stores[0].record_usage(&[]).await.unwrap();
    let rows = database
        .raw(&database.url)
        .await
        .ask(
            "select extract(epoch from minute)::bigint, requests, errors, input_tokens, output_tokens, cost_micros,
                    guard_blocks, pii, injections, violations, unpriced, cancelled, array_to_string(latency, ',')
             from slipway.usage_by_run where team = 'a' and agent_id = 'ag_1' order by minute",
        )
        .await
        .unwrap();
    let histogram = |bucket: usize, count: i64| {
        (0..LATENCY_BUCKETS).map(|n| if n == bucket { count } else { 0 }.to_string()).collect::<Vec<_>>().join(",")
    };
    let expected = |minute: i64, times: i64, histogram: String| {
        let mut row = vec![Some(minute.to_string())];
        row.extend((1..=11).map(|n| Some((n * times).to_string())));
        row.push(Some(histogram));
        row
    };
    assert_eq!(rows, [expected(1_800_000_000, 20, histogram(2, 20)), expected(1_800_000_060, 10, histogram(15, 10))]);
    for (start, spent) in [(1_800_000_000, 150), (1_800_000_060, 50), (1_800_000_061, 0)] {
        assert_eq!(stores[0].spent_since(Timestamp::from_second(start).unwrap()).await, Ok(spent), "from {start}");
    }
    let other = database.tenant("a", "ag_2").await;
    assert_eq!(other.spent_since(Timestamp::UNIX_EPOCH).await, Ok(0), "another agent's spending is its own");
}

#[tokio::test]
async fn what_ran_is_told_apart_and_all_that_was_spent_counts() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    let before = "insert into slipway.usage_minutes select 'a', 'ag_1', 'epoch', 'p', 'm', 1, 0, 0, 0, 100, 0, 0, 0, 0, '{}'";
    admin.ask(before).await.unwrap();
    let used = UsageMinute { requests: 1, cost_micros: 10, ..UsageMinute::empty(Timestamp::UNIX_EPOCH, "p", "m") };
    for (track, hash) in [("stable", "one"), ("stable", "two"), ("canary", "two"), ("stable", "one")] {
        let run = PodRun { track: track.to_owned(), hash: hash.to_owned() };
        let store = Store::open(&Options { run, ..options(&database.url, "a", "ag_1") }).unwrap();
        store.record_usage(std::slice::from_ref(&used)).await.unwrap();
    }
    let rows = admin.ask("select track, run_hash, requests from slipway.usage_by_run order by 1, 2").await.unwrap();
    let expected = [["canary", "two", "1"], ["stable", "one", "2"], ["stable", "two", "1"]];
    assert_eq!(rows, expected.map(|row| row.map(|cell| Some(cell.to_owned())).to_vec()));
    let spent = database.store("a", "ag_1").spent_since(Timestamp::UNIX_EPOCH).await;
    assert_eq!(spent, Ok(140), "with what a runtime of an earlier version wrote");
}

#[tokio::test]
async fn a_large_batch_is_written_at_once() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let rows: Vec<_> =
        (0..2_500).map(|n| UsageMinute { requests: 1, ..UsageMinute::empty(Timestamp::from_second(n * 60).unwrap(), "p", "m") }).collect();
    store.record_usage(&rows).await.unwrap();
    assert_eq!(database.raw(&database.url).await.one("select sum(requests)::text from slipway.usage_by_run").await, "2500");
}

#[tokio::test]
async fn the_newest_traces_of_errors_and_attempts_are_read() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let start = Timestamp::from_second(1_800_000_000).unwrap();
    let used = |second: i64, failed: Option<&str>, injection: Option<&str>| UsageMinute {
        requests: 1,
        last_failed_trace: failed.map(str::to_owned),
        last_injection_trace: injection.map(str::to_owned),
        ..UsageMinute::empty(Timestamp::from_second(1_800_000_000 + second).unwrap(), "p", "m")
    };
    store.record_usage(&[used(0, Some("tr_0"), None), used(1, Some("tr_1"), None), used(60, None, Some("tr_2"))]).await.unwrap();
    store.record_usage(&[used(2, None, None), used(61, None, Some(&"ü".repeat(100)))]).await.unwrap();
    store.record_usage(&(2..9).map(|minute| used(60 * minute, Some(&format!("tr_m{minute}")), None)).collect::<Vec<_>>()).await.unwrap();
    database.tenant("a", "ag_2").await.record_usage(&[used(0, None, None)]).await.unwrap();
    let keys = [key("a", "ag_none", "u"), key("a", "ag_1", "u"), key("a", "ag_2", "u")];
    let tenants = database.tenants();
    let found = tenants.readings().traces(&keys, start).await.unwrap();
    let traces = |agent, failed: &[&str], injections: &[&str]| {
        let owned = |traces: &[&str]| traces.iter().map(|trace| (*trace).to_owned()).collect();
        AgentTraces { agent, failed: owned(failed), injections: owned(injections) }
    };
    let cut = "ü".repeat(64);
    assert_eq!(found, [traces(1, &["tr_m8", "tr_m7", "tr_m6", "tr_m5", "tr_m4"], &[&cut]), traces(2, &[], &[])]);
    let one = "select last_failed_trace || ' ' || requests from slipway.usage_by_run where agent_id = 'ag_1' order by minute limit 1";
    assert_eq!(database.raw(&database.url).await.one(one).await, "tr_1 3", "of a minute the last one");
}

#[tokio::test]
async fn usage_is_written_before_and_after_there_are_traces() {
    let database = Database::empty();
    migrate_up_to(&database.url, 15).await.unwrap();
    let store = database.store("a", "ag_1");
    let used =
        UsageMinute { requests: 1, last_failed_trace: Some("tr_1".to_owned()), ..UsageMinute::empty(Timestamp::UNIX_EPOCH, "p", "m") };
    store.record_usage(std::slice::from_ref(&used)).await.unwrap();
    migrate(&database.url, None, None).await.unwrap();
    store.record_usage(std::slice::from_ref(&used)).await.unwrap();
    let row = database.raw(&database.url).await.one("select requests || ' ' || last_failed_trace from slipway.usage_by_run").await;
    assert_eq!(row, "2 tr_1", "the same store, without a restart");
}
