//! Usage summed up: true whatever is written, by any writer, exact for a day that begins at any minute, of the Agent alone that asks,
//! and out of the reach of teams.

use jiff::Timestamp;
use slipway_database::{
    AgentKey, AgentUsage, Claim, Fault, Holder, LATENCY_BUCKETS, MAX_AGENTS, Options, PodRun, Reader, Store, UsageMinute, Used, migrate,
    migrate_up_to,
};

use crate::{Database, Raw, home, options};

/// 2027-01-15 08:00 UTC.
const START: i64 = 1_800_000_000;

/// Numbers that look random and are the same each time.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % most
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(crate) fn key(team: &str, agent: &str, uid: &str) -> AgentKey {
    AgentKey { team: team.into(), agent_id: agent.into(), uid: uid.into() }
}

fn pod(url: &str, team: &str, agent: &str, hash: &str) -> Store {
    let run = PodRun { track: "stable".into(), hash: hash.into() };
    Store::open(&Options { run, ..options(url, team, agent) }).unwrap()
}

fn used(numbers: &mut Numbers, minute: i64) -> UsageMinute {
    let model = ["m1", "m2"][usize::try_from(numbers.below(2)).unwrap()];
    let mut row = UsageMinute::empty(at(minute), "p", model);
    row.requests = 1 + numbers.below(5);
    row.latency_histogram[usize::try_from(numbers.below(16)).unwrap()] += row.requests;
    for count in [
        &mut row.errors,
        &mut row.input_tokens,
        &mut row.output_tokens,
        &mut row.cost_micros,
        &mut row.guard_blocks,
        &mut row.pii,
        &mut row.injections,
        &mut row.violations,
        &mut row.latency_ms,
        &mut row.audited,
        &mut row.retrieved,
        &mut row.cited,
        &mut row.unpriced,
        &mut row.cancelled,
    ] {
        *count = numbers.below(1_000);
    }
    row.last_failed_trace = (numbers.below(3) == 0).then(|| "tr_1".to_owned());
    row
}

/// As runtimes of two earlier versions write.
fn by_an_older_runtime(numbers: &mut Numbers, team: &str, agent: &str, minute: i64) -> String {
    let counts = (0..8).map(|_| numbers.below(1_000).to_string()).collect::<Vec<_>>().join(", ");
    let bucket = numbers.below(16);
    let histogram = (0..16).map(|n| i64::from(n == bucket).to_string()).collect::<Vec<_>>().join(",");
    let (table, run) = if numbers.below(2) == 0 { ("usage_minutes", "") } else { ("usage_by_run", "'stable', 'old', ") };
    let of = if run.is_empty() { "" } else { ", track, run_hash" };
    format!(
        "insert into slipway.{table} as u values ('{team}', '{agent}', to_timestamp({minute}), {run}'p', 'm1', 1, {counts}, '{{{histogram}}}')
         on conflict (team, agent_id, minute{of}, provider, model) do update set requests = u.requests + 1, errors = u.errors + excluded.errors,
             input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens,
             cost_micros = u.cost_micros + excluded.cost_micros, guard_blocks = u.guard_blocks + excluded.guard_blocks,
             pii = u.pii + excluded.pii, injections = u.injections + excluded.injections, violations = u.violations + excluded.violations,
             latency = (select array_agg(coalesce(a, 0) + coalesce(b, 0) order by i)
                        from unnest(u.latency, excluded.latency) with ordinality as l (a, b, i))"
    )
}

const COUNTERS: [&str; 16] = [
    "requests",
    "errors",
    "input_tokens",
    "output_tokens",
    "cost_micros",
    "guard_blocks",
    "pii",
    "injections",
    "violations",
    "measured",
    "latency_ms",
    "audited",
    "retrieved",
    "cited",
    "unpriced",
    "cancelled",
];

/// All minutes of both tables, with the columns of `usage_spans`.
fn minutes() -> String {
    let older = COUNTERS[..9].join(", ");
    let all = COUNTERS.map(|counter| format!("coalesce({counter}, 0) as {counter}")).join(", ");
    format!(
        "(select team, agent_id, minute, track, run_hash, {all}, latency from slipway.usage_by_run
          union all select team, agent_id, minute, '', '', {older}, 0, 0, 0, 0, 0, 0, 0, latency from slipway.usage_minutes)"
    )
}

fn sums() -> String {
    let mut sums = COUNTERS.map(|counter| format!("sum({counter})::bigint")).to_vec();
    sums.extend((1..=LATENCY_BUCKETS).map(|n| format!("coalesce(sum(latency[{n}]), 0)::bigint")));
    sums.join(", ")
}

/// The sums that differ from those of minutes, of every width.
async fn differences(admin: &mut Raw) -> Vec<Vec<Option<String>>> {
    let (sums, minutes) = (sums(), minutes());
    let recomputed = format!(
        "select team, agent_id, span, date_bin(span * interval '1 minute', minute, '2000-01-01 00:00Z') as start, track, run_hash, {sums},
                max(minute) as last from {minutes} m, (values (10), (60), (360)) as w (span) group by 1, 2, 3, 4, 5, 6"
    );
    let kept = format!(
        "select team, agent_id, span, start, track, run_hash, {sums}, max(last_minute) from slipway.usage_spans group by 1, 2, 3, 4, 5, 6"
    );
    admin.ask(&format!("(({recomputed}) except ({kept})) union all (({kept}) except ({recomputed}))")).await.unwrap()
}

async fn recomputed(admin: &mut Raw, filter: &str) -> Used {
    let row = admin.ask(&format!("select {} from {} m where {filter}", sums(), minutes())).await.unwrap();
    let n: Vec<i64> = row[0].iter().map(|cell| cell.as_deref().unwrap_or("0").parse().unwrap()).collect();
    Used {
        requests: n[0],
        errors: n[1],
        input_tokens: n[2],
        output_tokens: n[3],
        cost_micros: n[4],
        guard_blocks: n[5],
        pii: n[6],
        injections: n[7],
        violations: n[8],
        measured: n[9],
        latency_ms: n[10],
        audited: n[11],
        retrieved: n[12],
        cited: n[13],
        unpriced: n[14],
        cancelled: n[15],
        latency: n[16..].to_vec().try_into().unwrap(),
    }
}

#[tokio::test]
async fn sums_are_those_of_minutes_by_any_writer() {
    let database = Database::migrated().await;
    let mut numbers = Numbers(7);
    let mut raws = Vec::new();
    let mut pods = Vec::new();
    for team in ["a", "b"] {
        let url = database.url_of(&database.login(team).await);
        raws.push((team, Raw::connect(&url).await));
        for agent in ["ag_1", "ag_2"] {
            pods.extend(["one", "two"].map(|hash| pod(&url, team, agent, hash)));
        }
    }
    for _ in 0..60 {
        // A day and a half, late minutes among them, in batches that have the same minute several times.
        let batches: Vec<Vec<UsageMinute>> = pods
            .iter()
            .map(|_| {
                (0..numbers.below(6))
                    .map(|_| {
                        let minute = START + 60 * numbers.below(2_160);
                        used(&mut numbers, minute)
                    })
                    .collect()
            })
            .collect();
        let writes = futures::future::join_all(pods.iter().zip(&batches).map(|(pod, batch)| pod.record_usage(batch))).await;
        assert!(writes.iter().all(Result::is_ok), "{writes:?}");
        for (team, raw) in &mut raws {
            let minute = START + 60 * numbers.below(2_160);
            let statement = by_an_older_runtime(&mut numbers, team, "ag_1", minute);
            raw.ask(&statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
    }
    let mut admin = database.raw(&database.url).await;
    assert_eq!(differences(&mut admin).await, [[None; 0]; 0]);

    // From any minute on, of all agents at once, and by what ran.
    let reader = Reader::open(&database.url, None, None).unwrap();
    let keys: Vec<_> =
        [("a", "ag_1"), ("b", "ag_2"), ("a", "ag_none"), ("a", "ag_2"), ("b", "ag_1")].map(|(team, agent)| key(team, agent, "u")).into();
    for _ in 0..40 {
        let since = START + numbers.below(2_160 * 60);
        let read = reader.readings().usage(&keys, at(since)).await.unwrap();
        let by_run = reader.readings().usage_by_run(&keys, at(since)).await.unwrap();
        for (place, AgentKey { team, agent_id, .. }) in keys.iter().enumerate() {
            let of = format!("team = '{team}' and agent_id = '{agent_id}' and minute >= to_timestamp({since} - {since} % 60)");
            let expected = recomputed(&mut admin, &of).await;
            let found = read.iter().find(|usage| usage.agent == place);
            assert_eq!(found.map(|usage| usage.used.clone()).unwrap_or_default(), expected, "{of}");
            assert!(found.is_none_or(|usage| !usage.partial && usage.track.is_empty()), "{found:?}");
            let mut together = Used::default();
            for AgentUsage { track, run_hash, used, .. } in by_run.iter().filter(|usage| usage.agent == place) {
                together.add(used);
                assert_eq!(*used, recomputed(&mut admin, &format!("{of} and track = '{track}' and run_hash = '{run_hash}'")).await);
            }
            assert_eq!(together, expected, "{of}");
        }
    }
}

#[tokio::test]
async fn the_last_minute_is_told() {
    let database = Database::migrated().await;
    let store = database.tenant("a", "ag_1").await;
    let now = Timestamp::now().as_second();
    for ago in [7 * 3600, 60, 2 * 3600] {
        store.record_usage(&[used(&mut Numbers(1), now - ago)]).await.unwrap();
    }
    let read = database.tenants().readings().usage(&[key("a", "ag_1", "u")], at(now - 86_400)).await.unwrap();
    assert_eq!(read[0].last_minute, at((now - 60) / 60 * 60));
    assert!(read[0].used.measured == read[0].used.requests && read[0].used.requests > 0);
}

#[tokio::test]
async fn what_was_used_before_the_step_is_summed_up() {
    let database = Database::empty();
    migrate_up_to(&database.url, 13).await.unwrap();
    let url = database.url.clone();
    let mut numbers = Numbers(3);
    let mut raw = Raw::connect(&url).await;
    let write = async |raw: &mut Raw, numbers: &mut Numbers, agent: &str| {
        let minute = Timestamp::now().as_second() / 60 * 60 - 60 * numbers.below(14_400);
        let usage = by_an_older_runtime(numbers, "a", agent, minute);
        // A runtime keeps what could not be written, and writes it again.
        while let Err(error) = raw.ask(&usage).await {
            assert!(error.starts_with("40P01"), "{error}");
        }
    };
    for n in 0..400 {
        write(&mut raw, &mut numbers, ["ag_1", "ag_2", "ag_3"][n % 3]).await;
    }
    // A store of this version that begins on the older schema.
    let store = pod(&url, "a", "ag_1", "new");
    store.record_usage(&[used(&mut numbers, Timestamp::now().as_second() - 600)]).await.unwrap();
    let (migrated, ()) = tokio::join!(migrate(&database.url, None, None), async {
        for n in 0..200 {
            write(&mut raw, &mut numbers, ["ag_1", "ag_2", "ag_3"][n % 3]).await;
        }
    });
    migrated.unwrap();
    let mut admin = database.raw(&database.url).await;
    assert_eq!(admin.one("select count(*)::text from slipway.usage_backfill").await, "0", "nothing is owed");
    // Sums by ten minutes and six hours are of the last eight days.
    let differing = differences(&mut admin).await;
    assert_eq!(differing.iter().find(|row| row[2].as_deref() == Some("60")), None);
    let missing = "select count(*)::text from (select distinct agent_id, span, start from slipway.usage_spans where span = 60) h
                   where start > now() - interval '7 days' and not exists (select from slipway.usage_spans s where s.agent_id = h.agent_id
                         and s.span = 10 and s.start >= h.start and s.start < h.start + interval '1 hour')";
    assert_eq!(admin.one(missing).await, "0");
    for since in [3_600, 86_400, 6 * 86_400] {
        let since = Timestamp::now().as_second() - since;
        let read = database.tenants().readings().usage(&[key("a", "ag_1", "u")], at(since)).await.unwrap();
        let expected = recomputed(&mut admin, &format!("agent_id = 'ag_1' and minute >= to_timestamp({since} - {since} % 60)")).await;
        assert_eq!(read.first().map(|usage| usage.used.clone()).unwrap_or_default(), expected);
    }
    // From now on the same store says what it has measured.
    store.record_usage(&[used(&mut numbers, Timestamp::now().as_second() - 600)]).await.unwrap();
    store.record_usage(&[used(&mut numbers, Timestamp::now().as_second() - 600)]).await.unwrap();
    assert!(admin.one("select sum(measured)::text from slipway.usage_by_run where run_hash = 'new'").await.parse::<i64>().unwrap() > 0);
}

#[tokio::test]
async fn nothing_is_told_of_usage_that_is_not_summed_up_yet() {
    let database = Database::migrated().await;
    database.tenant("a", "ag_1").await.record_usage(&[used(&mut Numbers(1), START)]).await.unwrap();
    let mut admin = database.raw(&database.url).await;
    admin.ask("delete from slipway.usage_spans; insert into slipway.usage_backfill values ('a', 'ag_1')").await.unwrap();
    let tenants = database.tenants();
    let fault = tenants.readings().usage(&[key("a", "ag_1", "u")], at(START)).await.unwrap_err();
    assert!(matches!(&fault, Fault::Unavailable(words) if words.contains("summed up")), "{fault}");
    assert_eq!(tenants.readings().usage(&[key("a", "ag_2", "u")], at(START)).await.unwrap(), [], "of others it is");
    // The next migration goes on where the last one was cut off.
    migrate(&database.url, None, None).await.unwrap();
    assert_eq!(tenants.readings().usage(&[key("a", "ag_1", "u")], at(START)).await.unwrap().len(), 1);
    assert_eq!(differences(&mut admin).await, [[None; 0]; 0]);
}

#[tokio::test]
async fn an_agent_of_an_old_name_is_shown_no_usage_of_the_earlier_one() {
    let database = Database::migrated().await;
    let holder = Holder { agent_id: "ag_1".into(), uid: "first".into(), created: 9_000_000_000, adopts: None, alone: true };
    assert_eq!(database.tenants().claim(&home("a"), &[holder]).await.unwrap(), [Claim::Held]);
    database.tenant("a", "ag_1").await.record_usage(&[used(&mut Numbers(1), START)]).await.unwrap();
    let reader = Reader::open(&database.url, None, None).unwrap();
    for (uid, seen) in [("first", 1), ("second", 0)] {
        assert_eq!(reader.readings().usage(&[key("a", "ag_1", uid)], at(START)).await.unwrap().len(), seen, "{uid}");
        assert_eq!(reader.readings().usage_by_run(&[key("a", "ag_1", uid)], at(START)).await.unwrap().len(), seen, "{uid}");
    }
    assert!(matches!(reader.readings().usage(&vec![key("a", "b", "c"); MAX_AGENTS + 1], at(START)).await, Err(Fault::Refused(_))));
}

/// What a team's login writes past its runtimes is its own loss.
#[tokio::test]
async fn what_one_team_writes_keeps_no_other_from_being_read() {
    let database = Database::migrated().await;
    database.tenant("b", "ag_1").await.record_usage(&[used(&mut Numbers(1), START)]).await.unwrap();
    let mut raw = Raw::connect(&database.url_of(&database.login("a").await)).await;
    let row = |minute: &str, hash: &str, count: &str| {
        format!(
            "insert into slipway.usage_by_run select 'a', 'ag_1', {minute}, 't', {hash}, 'p', 'm', {count}, 0, 0, 0, 0, 0, 0, 0, 0, '{{}}'
             from generate_series(1, 3000) n"
        )
    };
    let most = "9223372036854775807 / 3000";
    for statement in [
        row("to_timestamp(1800000000 + n * 60)", "'h'", most),
        row("to_timestamp(1800000000 + n * 60)", "repeat('h', 100000) || n", "1"),
        row("to_timestamp(1800000000)", "'h' || n", "-5"),
        row("'infinity'", "'i' || n", "1"),
        row("'200000-01-01'", "'j' || n", "1"),
        row("'-infinity'", "'k' || n", "1"),
    ] {
        // Whether it is let in does not matter.
        drop(raw.ask(&statement).await);
    }
    let keys = [key("a", "ag_1", "u"), key("b", "ag_1", "u")];
    let tenants = database.tenants();
    for since in [START, START + 61, START - 86_400] {
        let (read, by_run) =
            (tenants.readings().usage(&keys, at(since)).await.unwrap(), tenants.readings().usage_by_run(&keys, at(since)).await.unwrap());
        assert!(read[0].partial && by_run[0].partial, "it is told of too many rows");
        let bytes: usize = by_run.iter().map(|usage| usage.track.len() + usage.run_hash.len()).sum();
        assert!(bytes < 1_000_000, "{bytes}");
        assert_eq!(read.iter().filter(|usage| usage.agent == 1 && !usage.partial).count(), usize::from(since <= START));
    }
}
