//! Violations, readiness and alerts: kept, read by who may, of the Agent alone that asks, and gone when they are old or their agent is.

use jiff::Timestamp;
use slipway_database::{
    AgentKey, AlertStage, Fault, KeptAlert, MAX_CONVERSATIONS, NewDelivery, Options, PodRun, PolicyConversations, RaisedAlert, Reader,
    ReadinessSample, Retention, Stage, Store, UsageMinute, ViolationMinute,
};

use crate::spans::key;
use crate::{Database, Raw, SERVER, options};

fn minutes_ago(minutes: i64) -> Timestamp {
    Timestamp::from_second((Timestamp::now().as_second() / 60 - minutes) * 60).unwrap()
}

fn violation(minutes: i64, policy: &str, conversations: &[i64]) -> ViolationMinute {
    ViolationMinute {
        minute: minutes_ago(minutes),
        policy: policy.into(),
        rule: "blocked_topics".into(),
        stage: Stage::Output,
        blocked: true,
        count: 2,
        conversations: conversations.to_vec(),
        last_trace: Some(format!("tr_{minutes}")),
    }
}

fn alert(agent: AgentKey, metric: &str, value: f64) -> RaisedAlert {
    RaisedAlert {
        agent,
        metric: metric.into(),
        policy: String::new(),
        severity: "warning".into(),
        message: format!("{metric} is {value}"),
        value: Some(value),
        threshold: Some(1.0),
        traces: vec!["tr_1".into()],
    }
}

#[tokio::test]
async fn violations_add_up_over_replicas_and_batches() {
    let database = Database::migrated().await;
    let url = database.url_of(&database.login("a").await);
    let pod = |hash: &str| {
        let run = PodRun { track: "stable".into(), hash: hash.into() };
        Store::open(&Options { run, ..options(&url, "a", "ag_1") }).unwrap()
    };
    let (one, two) = (pod("one"), pod("two"));
    let many: Vec<i64> = (0..100).collect();
    let batches = [
        (&one, vec![violation(3, "gp_1", &[1, 2, 2]), violation(3, "gp_1", &[3]), violation(2, "gp_1", &[1])]),
        (&one, vec![violation(3, "gp_1", &[3, 4]), violation(5, "gp_2", &many)]),
        (&one, vec![violation(5, "gp_2", &many[50..]), violation(2, "gp_1", &[])]),
        (&two, vec![ViolationMinute { blocked: false, last_trace: None, ..violation(2, "gp_1", &[-9]) }]),
    ];
    let writes = futures::future::join_all(batches.iter().map(|(pod, batch)| pod.record_violations(batch))).await;
    assert!(writes.iter().all(Result::is_ok), "{writes:?}");
    one.record_violations(&[]).await.unwrap();
    // What a runtime should not have sent is cut off, and nothing else is lost by it.
    two.record_violations(&[violation(1, &"ü".repeat(100), &[1])]).await.unwrap();
    let reader = Reader::open(&database.url, None, None).unwrap();
    let keys = [key("a", "ag_none", "u"), key("a", "ag_1", "u")];
    let found = reader.readings().violations(&keys, minutes_ago(10)).await.unwrap();
    let row = |place: usize| {
        let v = &found[place];
        assert_eq!((v.agent, v.track.as_str(), v.stage, v.rule.as_str()), (1, "stable", Stage::Output, "blocked_topics"));
        (v.run_hash.as_str(), v.policy.as_str(), v.blocked, v.count, v.last_minute, v.last_trace.as_deref())
    };
    assert_eq!(row(0), ("one", "gp_1", true, 10, minutes_ago(2), Some("tr_2")));
    assert_eq!(row(1), ("one", "gp_2", true, 4, minutes_ago(5), Some("tr_5")));
    assert_eq!(row(2), ("two", "gp_1", false, 2, minutes_ago(2), None));
    assert!(found[3].policy.len() <= 128 && found.len() == 4 && found.iter().all(|row| !row.partial), "{found:?}");
    let mut admin = database.raw(&database.url).await;
    let sums = admin.one("select sum(count)::text from slipway.violation_hours").await;
    assert_eq!(sums, admin.one("select sum(count)::text from slipway.policy_violations").await);
    // Whole hours are read by the hour.
    let day = reader.readings().violations(&keys, minutes_ago(1440)).await.unwrap();
    assert_eq!(day, found);
    let late = reader.readings().violations(&keys, minutes_ago(2)).await.unwrap();
    assert_eq!(late.iter().map(|v| v.count).collect::<Vec<_>>(), [4, 2, 2]);
    assert_eq!(database.tenants().readings().violations(&keys, minutes_ago(10)).await.unwrap(), found);

    let (tenants, policies) = (database.tenants(), ["gp_1".to_owned(), "gp_2".to_owned(), "gp_none".to_owned()]);
    let by_run = tenants.readings().violations_by_run(&keys, &policies, minutes_ago(60)).await.unwrap();
    let by_run: Vec<_> = by_run.iter().map(|v| (v.agent, v.run_hash.as_str(), v.policy.as_str(), v.count, v.partial)).collect();
    assert_eq!(by_run, [(1, "one", "gp_1", 10, false), (1, "one", "gp_2", 4, false), (1, "two", "gp_1", 2, false)]);
    let conversations = tenants.readings().violating_conversations(&keys[1], "one", &policies, minutes_ago(60)).await.unwrap();
    let of = |policy: &str, conversations| PolicyConversations { policy: policy.to_owned(), conversations };
    assert_eq!(conversations, [of("gp_1", 4), of("gp_2", i64::try_from(MAX_CONVERSATIONS).unwrap())]);
}

/// A rule that is broken in every minute of a week is many rows of minutes: none hides another, and what is left out is told.
#[tokio::test]
async fn what_is_broken_each_minute_is_counted_whole_and_hides_nothing() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    // As runtimes write it: three rules by the minute for two days; and long before, another release that broke another policy.
    admin
        .ask(
            "insert into slipway.policy_violations (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked, count, conversations)
             select 'a', 'ag_1', date_trunc('minute', now()) - m * interval '1 minute', 'stable', 'new', 'gp_slow', 'rule ' || r, 'output', false, 1,
                    array[m / 10]
             from generate_series(0, 2879) m, generate_series(1, 3) r;
             insert into slipway.policy_violations (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked, count, conversations)
             select 'a', 'ag_1', date_trunc('minute', now()) - (8640 + m) * interval '1 minute', track, 'old', 'gp_guns', 'r', stage, true, 7,
                    array[m]
             from generate_series(0, 9) m, unnest('{stable,canary}'::text[]) track, unnest('{output,input}'::text[]) stage;
             insert into slipway.violation_hours (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked, count, last_minute)
             select team, agent_id, date_trunc('hour', minute, 'UTC'), track, run_hash, policy, rule, stage, blocked, sum(count), max(minute)
             from slipway.policy_violations group by 1, 2, 3, 4, 5, 6, 7, 8, 9",
        )
        .await
        .unwrap();
    let (tenants, keys) = (database.tenants(), [key("a", "ag_1", "u"), key("a", "ag_2", "u")]);
    let two_days = tenants.readings().violations(&keys, minutes_ago(3 * 1440)).await.unwrap();
    let counts: Vec<_> = two_days.iter().map(|row| (row.rule.as_str(), row.count, row.partial)).collect();
    assert_eq!(counts, [("rule 1", 2880, false), ("rule 2", 2880, false), ("rule 3", 2880, false)]);
    let week = |policies: &[&str]| {
        let policies: Vec<String> = policies.iter().map(|&policy| policy.to_owned()).collect();
        let (tenants, keys) = (&tenants, &keys);
        async move {
            let found = tenants.readings().violations_by_run(keys, &policies, minutes_ago(7 * 1440)).await.unwrap();
            found.into_iter().map(|row| (row.run_hash, row.policy, row.count, row.partial)).collect::<Vec<_>>()
        }
    };
    let row = |run: &str, policy: &str, count: i64, partial: bool| (run.to_owned(), policy.to_owned(), count, partial);
    assert_eq!(week(&["gp_guns"]).await, [row("old", "gp_guns", 70, false)], "answers on the stable track alone");
    assert_eq!(week(&["gp_guns", "gp_slow"]).await, [row("new", "gp_slow", 8640, false), row("old", "gp_guns", 70, false)]);
    let slow = ["gp_slow".to_owned()];
    let told_apart = tenants.readings().violating_conversations(&keys[0], "new", &slow, minutes_ago(7 * 1440)).await.unwrap();
    assert_eq!(told_apart, [PolicyConversations { policy: "gp_slow".to_owned(), conversations: 288 }], "in whichever rule");

    // More rules than are read, each broken in every hour: that is told, of this agent alone.
    admin
        .ask(
            "insert into slipway.violation_hours (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked, count, last_minute)
             select 'a', agent, date_trunc('hour', now(), 'UTC') - h * interval '1 hour', 'stable', 'new', 'gp_many', 'rule ' || r, 'output', false, 1,
                    date_trunc('hour', now(), 'UTC') - h * interval '1 hour'
             from (values ('ag_2', 90), ('ag_3', 1)) as a (agent, rules), generate_series(0, 167) h, generate_series(1, rules) r",
        )
        .await
        .unwrap();
    let keys = [key("a", "ag_2", "u"), key("a", "ag_3", "u")];
    let day = tenants.readings().violations(&keys, minutes_ago(1440)).await.unwrap();
    assert!(day.iter().any(|row| row.agent == 0) && day.iter().all(|row| row.partial == (row.agent == 0)), "{day:?}");
    let week = tenants.readings().violations_by_run(&keys, &["gp_many".to_owned()], minutes_ago(7 * 1440)).await.unwrap();
    let told: Vec<_> = week.iter().map(|row| (row.agent, row.partial)).collect();
    assert_eq!(told, [(0, true), (1, false)]);
    // A question is of many statements.
    let many: Vec<AgentKey> = (0..600).map(|n| key("a", if n == 599 { "ag_3" } else { "ag_none" }, "u")).collect();
    let found = tenants.readings().violations(&many, minutes_ago(1440)).await.unwrap();
    assert_eq!(found.iter().map(|row| row.agent).collect::<Vec<_>>(), [599]);
    let too_many = vec![key("a", "ag_none", "u"); slipway_database::MAX_AGENTS + 1];
    assert!(matches!(tenants.readings().violations(&too_many, minutes_ago(1440)).await, Err(Fault::Refused(_))));
}

#[tokio::test]
async fn a_sample_a_minute_counts_and_no_second_one() {
    let database = Database::migrated().await;
    let (tenants, agents) = (database.tenants(), [key("a", "ag_1", "u1"), key("a", "ag_2", "u2"), key("b", "ag_1", "u3")]);
    let samples = |ready: [bool; 3]| {
        agents.iter().zip(ready).map(|(agent, ready)| ReadinessSample { agent: agent.clone(), ready }).collect::<Vec<_>>()
    };
    let mut admin = database.raw(&database.url).await;
    let minutes = [[true, true, false], [false, true, false]];
    for ready in minutes {
        tenants.record_readiness(&samples(ready)).await.unwrap();
        // As if the minute were over; whichever manager comes next in the same one is not counted.
        admin.ask("update slipway.readiness_hours set last_minute = last_minute - interval '1 minute', last_ready = last_ready - interval '1 minute'").await.unwrap();
    }
    tenants.record_readiness(&samples([true, false, false])).await.unwrap();
    tenants.record_readiness(&samples([true, true, true])).await.unwrap();
    let read = async |since| tenants.readings().readiness(&agents, since).await.unwrap();
    let found: Vec<_> = read(minutes_ago(0)).await.iter().map(|r| (r.agent, r.samples, r.ready, r.last_ready.is_some())).collect();
    // A new hour may have begun in between.
    let all: Vec<_> = read(minutes_ago(60)).await.iter().map(|r| (r.agent, r.samples, r.ready, r.last_ready.is_some())).collect();
    assert_eq!(all, [(0, 3, 2, true), (1, 3, 2, true), (2, 3, 0, false)]);
    assert!(found.iter().zip(&all).all(|(one, other)| one.1 <= other.1));
    let other = tenants.readings().readiness(&[key("a", "ag_1", "another")], minutes_ago(60)).await.unwrap();
    assert_eq!(other, [], "a later Agent of that name has none");
}

#[tokio::test]
async fn one_alert_is_open_for_an_agent_and_a_metric() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let (one, two) = (key("a", "ag_1", "u1"), key("b", "ag_1", "u2"));
    let raised = [alert(one.clone(), "error_rate", 2.0), alert(two.clone(), "error_rate", 3.0), alert(one.clone(), "latency", 4.0)];
    let first = tenants.raise_alerts(&raised).await.unwrap();
    assert!(first.iter().all(|kept| kept.is_new && kept.id.starts_with("al_")), "{first:?}");
    let again = [RaisedAlert { severity: "critical".into(), traces: Vec::new(), ..alert(one.clone(), "error_rate", 5.0) }];
    // Of two managers at once neither makes a second one.
    let (kept, other) = tokio::join!(tenants.raise_alerts(&again), tenants.raise_alerts(&again));
    assert_eq!(
        (kept.unwrap(), other.unwrap()),
        (vec![KeptAlert { is_new: false, ..first[0].clone() }], vec![KeptAlert { is_new: false, ..first[0].clone() }])
    );
    assert_eq!(tenants.open_alerts().await.unwrap().len(), 3);

    let reader = Reader::open(&database.url, None, None).unwrap();
    let all = reader.readings().alerts(std::slice::from_ref(&one), true, 10, None).await.unwrap();
    assert_eq!(all.items.iter().map(|alert| alert.metric.as_str()).collect::<Vec<_>>(), ["latency", "error_rate"], "newest first");
    let changed = &all.items[1];
    assert_eq!((changed.severity.as_str(), changed.value, &*changed.traces), ("critical", Some(5.0), &["tr_1".to_owned()][..]));
    assert!(changed.last_seen > changed.created_at && changed.resolved_at.is_none());
    assert_eq!(reader.readings().alerts(&[key("a", "ag_1", "later")], false, 10, None).await.unwrap().items, []);

    assert_eq!(tenants.resolve_alerts(&[first[0].id.clone(), "al_none".into()]).await, Ok(1));
    assert_eq!(tenants.resolve_alerts(&[first[0].id.clone()]).await, Ok(0));
    let new = tenants.raise_alerts(&again).await.unwrap();
    assert!(new[0].is_new && new[0].id != first[0].id, "what comes again is another alert");
    // Pages, of several agents.
    let (agents, mut ids, mut cursor) = ([one, two], Vec::new(), None);
    loop {
        let page = reader.readings().alerts(&agents, false, 1, cursor.as_deref()).await.unwrap();
        ids.extend(page.items.into_iter().map(|alert| alert.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(ids, [&new[0].id, &first[2].id, &first[1].id, &first[0].id].map(Clone::clone));
    assert_eq!(reader.readings().alerts(&agents, true, 10, None).await.unwrap().items.len(), 3);
    assert!(matches!(reader.readings().alerts(&agents, true, 0, None).await, Err(Fault::Refused(_))));
    assert!(matches!(reader.readings().alerts(&agents, true, 5, Some("'; drop")).await, Err(Fault::Refused(_))));
    // What is too long is cut off.
    let long =
        RaisedAlert { message: "x".repeat(5_000), traces: vec!["t".repeat(500); 50], ..alert(agents[0].clone(), "long", f64::INFINITY) };
    assert!(tenants.raise_alerts(&[long]).await.unwrap()[0].is_new);
}

#[tokio::test]
async fn what_is_old_goes_in_batches_and_nothing_else() {
    let database = Database::migrated().await;
    let tenants = database.tenants();
    let mut admin = database.raw(&database.url).await;
    let fill = |team: &str, agent: &str| {
        format!(
            "insert into slipway.usage_by_run select '{team}', '{agent}', now() - n * interval '7 minutes', 't', 'h', 'p', 'm', 1, 0, 0, 0, 0, 0, 0, 0, 0, '{{}}' from generate_series(0, 8000) n;
             insert into slipway.usage_minutes select '{team}', '{agent}', now() - n * interval '1 hour', 'p', 'm', 1, 0, 0, 0, 0, 0, 0, 0, 0, '{{}}' from generate_series(0, 1000) n;
             insert into slipway.policy_violations select '{team}', '{agent}', now() - n * interval '1 hour', 't', 'h', 'gp', 'r', 'input', false, 1, '{{}}' from generate_series(0, 1000) n;
             insert into slipway.violation_hours select '{team}', '{agent}', now() - n * interval '1 hour', 't', 'h', 'gp', 'r', 'input', false, 1, now() from generate_series(0, 1000) n;
             insert into slipway.readiness_hours select '{team}', '{agent}', now() - n * interval '1 hour', 'u', 60, 60, now() from generate_series(0, 1000) n;
             insert into slipway.alerts select '{team}', '{agent}', '{team}{agent}' || n, 'u', 'm', n::text, 'warning', 'x', 1, 1, '{{}}', now(), now() - n * interval '1 hour' from generate_series(0, 1000) n;
             insert into slipway.alert_deliveries select '{team}', '{agent}', 'i', n::text, 'raised', 'msg', '{{}}', now() - n * interval '1 hour', now(), 1, null, now(), null, now() from generate_series(0, 1000) n;
             insert into slipway.budget_leases select '{team}', '{agent}', n, 'h', 1, 1, now() - n * interval '1 day' from generate_series(0, 9) n"
        )
    };
    for (team, agent) in [("a", "ag_1"), ("a", "ag_2"), ("b", "ag_1")] {
        admin.ask(&fill(team, agent)).await.unwrap();
    }
    // In days: what is kept, by table and column.
    let kept = [
        ("usage_by_run", "minute", 32),
        ("usage_minutes", "minute", 32),
        ("policy_violations", "minute", 20),
        ("violation_hours", "hour", 20),
        ("readiness_hours", "hour", 35),
        ("alerts", "last_seen", 25),
        ("alert_deliveries", "created_at", 25),
        ("budget_leases", "until", 2),
    ];
    let count = |table: &str, column: &str, days: i32| {
        format!("select count(*)::text from slipway.{table} where {column} >= date_trunc('hour', now() - interval '{days} days')")
    };
    let mut expected = Vec::new();
    for (table, column, days) in kept {
        expected.push(admin.one(&count(table, column, days)).await);
    }
    let hours =
        "select sum(requests)::text from slipway.usage_spans where span = 60 and start >= date_trunc('hour', now() - interval '35 days')";
    let requests = admin.one(hours).await;
    let retention = Retention { usage_minutes: 32, usage_hours: 35, violations: 20, alerts: 25 };
    assert!(tenants.delete_old_governance(&retention).await.unwrap() > 9_000);
    assert_eq!(tenants.delete_old_governance(&retention).await.unwrap(), 0);
    for ((table, column, _), expected) in kept.into_iter().zip(expected) {
        assert_eq!(admin.one(&count(table, column, 40_000)).await, expected, "{table}");
    }
    assert_eq!(admin.one(hours).await, requests, "sums stay when their minutes go");
    assert_eq!(
        admin.one("select count(*)::text from slipway.usage_spans where span = 60 and start < now() - interval '36 days'").await,
        "0"
    );
    assert_eq!(
        admin.one("select count(*)::text from slipway.usage_spans where span <> 60 and start < now() - interval '9 days'").await,
        "0"
    );
}

/// Rows of all kinds for an agent.
async fn live(database: &Database, team: &str, agent: &str) {
    let store = database.tenant(team, agent).await;
    store.record_usage(&[UsageMinute { requests: 1, ..UsageMinute::empty(minutes_ago(5), "p", "m") }]).await.unwrap();
    store.record_violations(&[violation(5, "gp_1", &[1])]).await.unwrap();
    let spending = slipway_database::SpendingRequest { day: None, spent_micros: 0, most_micros: 10, want_micros: 1 };
    let request = slipway_database::BudgetRequest { holder: "h".into(), spending: Some(spending), requests: None };
    store.lease_budget(&request).await.unwrap();
    let (tenants, key) = (database.tenants(), key(team, agent, "u"));
    tenants.record_readiness(&[ReadinessSample { agent: key.clone(), ready: true }]).await.unwrap();
    let raised = tenants.raise_alerts(&[alert(key, "m", 1.0)]).await.unwrap();
    let message = NewDelivery {
        team: team.into(),
        agent_id: agent.into(),
        integration: "i".into(),
        alert_id: raised[0].id.clone(),
        stage: AlertStage::Raised,
        message_id: "msg_1".into(),
        payload: "{}".into(),
        most: 100,
    };
    tenants.deliveries().enqueue(&[message]).await.unwrap();
}

const TABLES: [&str; 9] = [
    "usage_by_run",
    "usage_spans",
    "policy_violations",
    "violation_hours",
    "readiness_hours",
    "alerts",
    "alert_deliveries",
    "budgets",
    "budget_leases",
];

async fn tables_of(admin: &mut Raw, team: &str, agent: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for table in TABLES {
        if admin.one(&format!("select count(*)::text from slipway.{table} where team = '{team}' and agent_id = '{agent}'")).await != "0" {
            found.push(table);
        }
    }
    found
}

#[tokio::test]
async fn nothing_is_left_of_an_agent_or_a_team_that_goes() {
    let database = Database::migrated().await;
    let mut admin = database.raw(&database.url).await;
    for (team, agent) in [("a", "ag_1"), ("a", "ag_2"), ("b", "ag_1")] {
        live(&database, team, agent).await;
        assert_eq!(tables_of(&mut admin, team, agent).await, TABLES);
    }
    let tenants = database.tenants();
    assert!(tenants.delete_agent("a", "ag_1").await.unwrap() > 0);
    assert_eq!(tables_of(&mut admin, "a", "ag_1").await, [""; 0]);
    assert_eq!(tables_of(&mut admin, "a", "ag_2").await, TABLES);
    // An agent that is left in one table alone is found.
    for table in TABLES {
        live(&database, "a", "ag_3").await;
        for other in TABLES.iter().filter(|other| **other != table) {
            admin.ask(&format!("delete from slipway.{other} where agent_id = 'ag_3'")).await.unwrap();
        }
        let strangers = tenants.strangers(&crate::home("a"), &["ag_2".to_owned()]).await.unwrap();
        assert_eq!(strangers.iter().map(|stranger| stranger.agent_id.as_str()).collect::<Vec<_>>(), ["ag_3"], "{table}");
        tenants.delete_agent("a", "ag_3").await.unwrap();
    }
    tenants.remove("a").await.unwrap();
    assert_eq!(tables_of(&mut admin, "a", "ag_2").await, [""; 0]);
    assert_eq!(tables_of(&mut admin, "b", "ag_1").await, TABLES);
}

#[tokio::test]
async fn usage_that_is_set_aside_and_handed_over_is_counted_once() {
    let database = Database::migrated().await;
    live(&database, "a", "ag_1").await;
    let mut admin = database.raw(&database.url).await;
    // Older than what there is of minutes.
    admin.ask("insert into slipway.usage_spans select team, agent_id, span, start - interval '100 days', track, run_hash, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, latency, last_minute from slipway.usage_spans where span = 60").await.unwrap();
    let (tenants, sums) = (
        database.tenants(),
        "select team || ' ' || agent_id, span::text, sum(requests)::text from slipway.usage_spans group by 1, span, 2 order by span",
    );
    let before = admin.ask(sums).await.unwrap();
    let (uid, _) = tenants.set_aside("a", "ag_1").await.unwrap();
    assert_eq!(tables_of(&mut admin, "a", "ag_1").await, [""; 0]);
    tenants.bring_back(&uid, &crate::home("a"), "ag_1").await.unwrap();
    assert_eq!(admin.ask(sums).await.unwrap(), before);
    assert_eq!(tables_of(&mut admin, "a", "ag_1").await, ["usage_by_run", "usage_spans", "policy_violations", "violation_hours"]);
    assert_eq!(admin.one("select count(*)::text from slipway.usage_spans where team = 'aside'").await, "0");
}

#[tokio::test]
async fn a_teams_login_reads_and_writes_its_own_rows_and_no_alerts() {
    let database = Database::migrated().await;
    for team in ["a", "b"] {
        live(&database, team, "ag_1").await;
    }
    let url = database.url_of(&database.login("a").await);
    let mut admin = database.raw(&database.url).await;
    let all = async |admin: &mut Raw, team: &str| {
        let mut rows = String::new();
        for table in TABLES {
            rows +=
                &admin.one(&format!("select string_agg(t::text, ';' order by t::text) from slipway.{table} t where team = '{team}'")).await;
        }
        rows
    };
    let before = [all(&mut admin, "a").await, all(&mut admin, "b").await];
    let denied = "42501";
    let mut raw = Raw::connect(&url).await;
    for table in TABLES {
        let readable = !["readiness_hours", "alerts", "alert_deliveries"].contains(&table);
        let read = raw.ask(&format!("select distinct team from slipway.{table}")).await;
        if readable {
            assert_eq!(read.unwrap(), [[Some("a".to_owned())]], "{table}");
        } else {
            assert!(read.unwrap_err().starts_with(denied), "{table}");
        }
        let mut attacks = vec![
            format!("truncate slipway.{table}"),
            format!("create trigger t after insert on slipway.{table} execute function slipway.usage_by_run_added()"),
        ];
        attacks.push(format!("insert into slipway.{table} select (jsonb_populate_record(null::slipway.{table}, '{{\"team\": \"b\"}}')).*"));
        if !readable || table == "usage_spans" {
            for verb in [
                "update slipway.TABLE set agent_id = 'ag_1'",
                "delete from slipway.TABLE",
                "insert into slipway.TABLE select * from slipway.TABLE",
            ] {
                attacks.push(verb.replace("TABLE", table));
            }
        } else {
            let other = raw.ask(&format!("update slipway.{table} set agent_id = 'x' where team = 'b' returning 1")).await.unwrap();
            assert_eq!(other, [[None; 0]; 0], "{table}");
            assert_eq!(
                raw.ask(&format!("delete from slipway.{table} where team <> 'a' returning 1")).await.unwrap(),
                [[None; 0]; 0],
                "{table}"
            );
            attacks.push(format!("update slipway.{table} set team = 'b'"));
        }
        for attack in attacks {
            let error = raw.ask(&attack).await.expect_err(&attack);
            assert!(error.starts_with(denied), "{attack}: {error}");
        }
    }
    let since = "'{b}', '{ag_1}', '{u}', '-infinity'";
    for call in [
        format!("select * from slipway.usage_since({since}, false)"),
        format!("select * from slipway.violations_since({since})"),
        format!("select * from slipway.traces_since({since})"),
        "select * from slipway.violations_by_run('{b}', '{ag_1}', '{u}', '{gp_1}', '-infinity')".to_owned(),
        "select * from slipway.violating_conversations('{b}', '{ag_1}', '{u}', 'h', '{gp_1}', '-infinity')".to_owned(),
        format!("select * from slipway.readiness_since({since})"),
        "select * from slipway.alerts_of('{a}', '{ag_1}', '{u}', false, null, 10)".to_owned(),
        "select slipway.sum_usage('a', 'ag_1')".to_owned(),
        "select slipway.usage_by_run_added()".to_owned(),
        "select * from slipway.lease_budget('b', 'ag_1', 'h', null, 0, 100, 100, 60, 10, 10, 3)".to_owned(),
        "select * from slipway.lease_budget('b', 'ag_9', 'h', null, 0, 100, 100, 60, 10, 10, 3)".to_owned(),
        "insert into slipway.usage_backfill values ('a', 'ag_1')".to_owned(),
    ] {
        let error = raw.ask(&call).await.expect_err(&call);
        assert!(error.starts_with(denied), "{call}: {error}");
    }
    assert_eq!([all(&mut admin, "a").await, all(&mut admin, "b").await], before, "nothing has changed");
}

/// A manager of the version before takes what it does not know for tables that teams may write.
#[tokio::test]
async fn rights_that_an_older_manager_gave_are_taken_back() {
    let database = Database::migrated().await;
    live(&database, "a", "ag_1").await;
    let mut admin = database.raw(&database.url).await;
    let group = admin.one("select string_agg(r.rolname, ',') from pg_auth_members m join pg_roles r on r.oid = m.roleid join slipway.tenants t on t.role::text = (select rolname from pg_roles where oid = m.member)").await;
    let privileged = ["alerts", "alert_deliveries", "readiness_hours", "usage_spans"];
    for table in privileged {
        admin.ask(&format!("grant select, insert, update, delete on slipway.{table} to {group}")).await.unwrap();
    }
    let url = database.url_of(&database.login("a").await);
    let mut raw = Raw::connect(&url).await;
    for table in privileged {
        assert!(raw.ask(&format!("delete from slipway.{table}")).await.is_err(), "{table}");
    }
}

/// The login of docs/rest.md.
#[tokio::test]
async fn a_login_that_only_reads_is_enough_for_rest() {
    let database = Database::migrated().await;
    live(&database, "a", "ag_1").await;
    let role = format!("rest_{}", database.name);
    SERVER.psql(&format!("create role {role} login password 'rest-rest-rest-rest-rest'"));
    let mut admin = database.raw(&database.url).await;
    admin.ask(&format!("grant usage on schema slipway to {role}")).await.unwrap();
    let reader = Reader::open(&SERVER.url_of(&role, "rest-rest-rest-rest-rest", &database.name), None, None).unwrap();
    let keys = [key("a", "ag_1", "u")];
    let fault = reader.readings().usage(&keys, minutes_ago(60)).await.unwrap_err();
    assert!(matches!(&fault, Fault::Broken(words) if words.contains("docs/rest.md")), "{fault}");
    admin
        .ask(&format!(
            "grant execute on function slipway.usage_since, slipway.violations_since, slipway.readiness_since, slipway.alerts_of to {role}"
        ))
        .await
        .unwrap();
    assert_eq!(reader.readings().usage(&keys, minutes_ago(60)).await.unwrap().len(), 1);
    assert_eq!(reader.readings().violations(&keys, minutes_ago(60)).await.unwrap().len(), 1);
    assert_eq!(reader.readings().readiness(&keys, minutes_ago(60)).await.unwrap().len(), 1);
    assert_eq!(reader.readings().alerts(&keys, true, 5, None).await.unwrap().items.len(), 1);
}
