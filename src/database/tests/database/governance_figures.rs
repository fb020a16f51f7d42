//! What readings of many agents take, and what the upgrade of a table with many rows does to those who write; see docs/database.md.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use slipway_database::{AgentKey, Options, PodRun, Store, UsageMinute, migrate, migrate_up_to};

use crate::{Database, Raw, options};

const AGENTS: usize = 1_000;

/// A day of every agent, a minute after the other as runtimes write them; every second agent has two models. 2,160,000 rows.
async fn a_day_of_all(admin: &mut Raw) {
    for hour in 0..24 {
        admin
            .ask(&format!(
                "insert into slipway.usage_by_run (team, agent_id, minute, track, run_hash, provider, model, requests, errors, input_tokens, output_tokens,
                                                   cost_micros, guard_blocks, pii, injections, violations, latency)
                 select 'tk_' || a % 20, 'ag_' || a, date_trunc('minute', now()) - interval '1 day' + ({hour} * 60 + m) * interval '1 minute', 'stable',
                        md5(a::text), 'openai', 'gpt-' || k, 10, 1, 1000, 500, 1234, 1, 0, 0, 0, array[0,1,2,3,1,1,1,1,0,0,0,0,0,0,0,0]
                 from generate_series(0, 59) m, generate_series(1, {AGENTS}) a, generate_series(0, 1) k where k = 0 or a % 2 = 0"
            ))
            .await
            .unwrap();
    }
}

fn keys() -> Vec<AgentKey> {
    (1..=AGENTS).map(|a| AgentKey { team: format!("tk_{}", a % 20), agent_id: format!("ag_{a}"), uid: format!("u{a}") }).collect()
}

/// Processor time that the server's processes have taken for this connection, in milliseconds.
async fn spent(admin: &mut Raw, pid: &str) -> u64 {
    let stat = admin.one(&format!("select pg_read_file('/proc/{pid}/stat')")).await;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) * 10
}

/// Prints what docs/database.md tells; run it alone, with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn a_day_of_a_thousand_agents_is_read_and_an_upgrade_hinders_no_writer() {
    let database = Database::empty();
    migrate_up_to(&database.url, 13).await.unwrap();
    let mut admin = database.raw(&database.url).await;
    let began = Instant::now();
    a_day_of_all(&mut admin).await;
    println!("filled in {:?}", began.elapsed());
    let done = AtomicBool::new(false);
    let run = PodRun { track: "stable".into(), hash: "late".into() };
    let store = Store::open(&Options { run, ..options(&database.url, "tk_1", "ag_1") }).unwrap();
    let began = Instant::now();
    let (migrated, mut waits) = tokio::join!(
        async {
            let migrated = migrate(&database.url, None, None).await;
            done.store(true, Ordering::Relaxed);
            migrated
        },
        async {
            let mut waits = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let wrote = Instant::now();
                store.record_usage(&[UsageMinute { requests: 1, ..UsageMinute::empty(Timestamp::now(), "p", "m") }]).await.unwrap();
                waits.push(wrote.elapsed());
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            waits
        }
    );
    println!("migrated {:?} in {:?}", migrated.unwrap(), began.elapsed());
    waits.sort();
    println!("{} writes meanwhile: median {:?}, slowest {:?}", waits.len(), waits[waits.len() / 2], waits[waits.len() - 1]);
    admin.ask("vacuum slipway.usage_by_run").await.unwrap();
    admin.ask("vacuum slipway.usage_spans").await.unwrap();
    println!("{}", admin.one("select string_agg(relname || ' ' || pg_size_pretty(pg_total_relation_size(oid)), ', ') from pg_class where relnamespace = 'slipway'::regnamespace and relname in ('usage_by_run', 'usage_spans')").await);

    let (tenants, keys) = (database.tenants(), keys());
    let readings = tenants.readings();
    let now = Timestamp::now().as_second();
    let mut all = Vec::new();
    for minute in 0..60 {
        let since = Timestamp::from_second(now - 86_400 + minute * 60 * 7).unwrap();
        let began = Instant::now();
        assert_eq!(readings.usage(&keys, since).await.unwrap().len(), AGENTS);
        all.push(began.elapsed());
    }
    all.sort();
    println!("usage of {AGENTS} agents: fastest {:?}, median {:?}, slowest {:?}", all[0], all[30], all[59]);
    let pid = admin.one("select pid::text from pg_stat_activity where application_name = 'slipway' and query like '%COMMIT%' order by state_change desc limit 1").await;
    if !pid.is_empty() {
        let before = spent(&mut admin, &pid).await;
        for minute in 0..20 {
            let since = Timestamp::from_second(now - 86_400 + minute * 60 * 7).unwrap();
            readings.usage(&keys, since).await.unwrap();
        }
        println!("processor time of the server: {} ms a reading", (spent(&mut admin, &pid).await - before) / 20);
    }
    let began = Instant::now();
    for _ in 0..10 {
        readings.usage_by_run(&keys, Timestamp::from_second(now - 86_400).unwrap()).await.unwrap();
    }
    println!("the same by run: {:?}", began.elapsed() / 10);
    let began = Instant::now();
    for key in &keys[..100] {
        readings.usage(std::slice::from_ref(key), Timestamp::from_second(now - 86_400).unwrap()).await.unwrap();
    }
    println!("usage of one agent: {:?}", began.elapsed() / 100);
    // What the triggers cost: a minute of one model, as a runtime writes it.
    let store = Store::open(&Options { prepared_statements: true, ..options(&database.url, "tk_1", "ag_1") }).unwrap();
    for (what, off) in [("with sums", ""), ("without", "alter table slipway.usage_by_run disable trigger user")] {
        if !off.is_empty() {
            admin.ask(off).await.unwrap();
        }
        let mut writes = Vec::new();
        for n in 0..200 {
            let minute = Timestamp::from_second(now + n * 60).unwrap();
            let began = Instant::now();
            store.record_usage(&[UsageMinute { requests: 1, ..UsageMinute::empty(minute, what, "m") }]).await.unwrap();
            writes.push(began.elapsed());
        }
        writes.sort();
        println!("a write {what}: fastest {:?}, median {:?}", writes[0], writes[100]);
    }
}
