//! The radar, alerts and scorecards: what was measured is shown, and nothing else; of these agents, and of no earlier ones.

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use slipway_database::{
    AgentKey, Options, PodRun, RaisedAlert, ReadinessSample, SampledScore, SampledTurn, Store, Tenants, UsageMinute, migrate,
};
use slipway_peers::Postgres;
use slipway_rest::{Authentication, PlatformSettings, RestSettings};

use crate::{Api, ApiAnswer, settings};

const KINDS: &str = "/apis/agents.slipway.dev/v1/namespaces/team-a";
const ADA: [(&str, &str); 2] = [("authorization", "Bearer ada@example.com"), ("x-team", "a")];

async fn with(postgres: &Postgres) -> Api {
    migrate(&postgres.url(), None, None).await.unwrap();
    let platform = PlatformSettings::new(None, Some(&postgres.url()));
    Api::start(RestSettings { platform, ..settings() }, Authentication::Off).await
}

async fn get(api: &Api, path: &str) -> ApiAnswer {
    api.call(Method::GET, path, &[], None).await
}

/// Makes an agent with this status; its id.
async fn agent(api: &Api, name: &str, spec: Value, status: Value) -> String {
    let mut body = json!({"name": name, "framework": "custom", "suspend": false});
    body.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let made = api.call(Method::POST, "/agents", &[], Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.body);
    let data = &made.body["data"];
    api.cluster.set(&format!("{KINDS}/agents/{}", data["slug"].as_str().unwrap()), json!({ "status": status }));
    data["id"].as_str().unwrap().to_owned()
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-02T00:00:00Z"})
}

fn ready(replicas: u32) -> Value {
    let is_ready = if replicas > 0 { "True" } else { "False" };
    json!({"replicas": replicas, "firstDeployedAt": "2026-01-01T00:00:00Z", "conditions": [condition("Available", is_ready, "DeploymentReady", "")]})
}

fn store(postgres: &Postgres, team: &str, agent: &str, track: &str) -> Store {
    let run = PodRun { track: track.to_owned(), hash: format!("hash-{track}") };
    let (url, team, agent_id) = (postgres.url(), team.to_owned(), agent.to_owned());
    Store::open(&Options { url, password: None, sslmode: None, team, agent_id, migrate: false, prepared_statements: false, run }).unwrap()
}

/// Requests of this many milliseconds, of which the first `errors` failed.
fn used(requests: i64, errors: i64, milliseconds: i64) -> UsageMinute {
    let empty = UsageMinute::empty(Timestamp::now(), "stub", "stub-echo");
    let mut used = UsageMinute {
        requests,
        errors,
        input_tokens: requests * 700,
        output_tokens: requests * 300,
        cost_micros: requests * 20_000,
        latency_ms: requests * milliseconds,
        audited: requests - errors,
        ..empty
    };
    used.latency_histogram[UsageMinute::bucket(milliseconds)] = requests;
    used
}

fn key(api: &Api, name: &str, id: &str) -> AgentKey {
    let found = api.cluster.objects(&format!("/team-a/agents/{name}")).remove(0);
    AgentKey { team: "tk_a".to_owned(), agent_id: id.to_owned(), uid: found["metadata"]["uid"].as_str().unwrap().to_owned() }
}

fn metric<'a>(dimension: &'a Value, name: &str) -> &'a Value {
    dimension["metrics"].as_array().unwrap().iter().find(|metric| metric["name"] == name).expect("each metric is named, measured or not")
}

#[tokio::test]
async fn without_a_database_only_the_cluster_is_known() {
    let api = Api::open().await;
    agent(&api, "Fine", json!({}), ready(1)).await;
    agent(&api, "Half", json!({"replicas": 2}), ready(1)).await;
    let mut alerting = ready(0);
    let told = condition("Alerting", "True", "CriticalAlerts", "minutes_down from 1 on (critical)");
    alerting["conditions"].as_array_mut().unwrap().push(told);
    let down = agent(&api, "Down", json!({}), alerting).await;
    agent(&api, "New", json!({}), Value::Null).await;
    agent(&api, "Idle", json!({"suspend": true}), ready(0)).await;
    let listed = api.agent("Last", &[]).await;
    let version = listed.headers["x-resource-version"].to_str().unwrap();
    let radar = api.call(Method::GET, "/radar?limit=2", &[("x-resource-version", version)], None).await;
    let data = &radar.body["data"];
    let counts = ["total_agents", "healthy", "degraded", "down"].map(|name| data[name].as_u64());
    assert_eq!((radar.status.as_u16(), counts), (200, [Some(6), Some(1), Some(1), Some(1)]), "{}", radar.body);
    assert_eq!((&data["total_requests_24h"], &data["total_cost_24h_usd"], &data["message"]), (&Value::Null, &Value::Null, &Value::Null));
    assert_eq!((&data["data_source"], data["agents"].as_array().unwrap().len()), (&json!("cluster"), 2));
    let rest = get(&api, &format!("/radar?cursor={}", radar.body["next_cursor"].as_str().unwrap())).await.body;
    assert_eq!((rest["data"]["agents"].as_array().unwrap().len(), rest.get("next_cursor")), (4, None), "{rest}");

    for (name, status) in [("fine", "healthy"), ("half", "degraded"), ("down", "down"), ("new", "unknown"), ("idle", "stopped")] {
        let one = get(&api, &format!("/radar/{name}")).await.body["data"].clone();
        assert_eq!(one["status"], status, "{name}: {one}");
        let metrics = one["metrics"].as_object().unwrap();
        assert!(metrics.iter().all(|(name, value)| value.is_null() || name == "at_least"), "{name}: {one}");
        let missing = one["not_measured"].as_array().unwrap();
        assert!(["requests_24h", "estimated_cost_usd", "uptime_pct"].iter().all(|name| missing.contains(&json!(name))), "{name}: {one}");
        assert_eq!((one["last_seen"].is_string(), &one["tracks"]), (matches!(status, "healthy" | "degraded"), &Value::Null), "{one}");
    }
    let alerts = get(&api, "/radar/alerts").await.body["data"].clone();
    assert_eq!((alerts.as_array().unwrap().len(), &alerts[0]["agent_id"], &alerts[0]["severity"]), (1, &json!(down), &json!("critical")));
    assert_eq!(
        (&alerts[0]["metric"], &alerts[0]["value"], &alerts[0]["created_at"]),
        (&json!("minutes_down"), &Value::Null, &json!("2026-01-02T00:00:00Z"))
    );
    assert_eq!(get(&api, "/radar/down/alerts").await.body["data"], alerts);
    assert_eq!(get(&api, "/radar/fine/alerts").await.body["data"], json!([]));
    assert_eq!(get(&api, "/radar/down").await.body["data"]["alerts"], alerts);

    let card = get(&api, "/governance/scorecards/fine").await.body["data"].clone();
    assert_eq!(
        (&card["overall"], &card["grade"], &card["coverage"], &card["data_source"]),
        (&Value::Null, &Value::Null, &json!(0.0), &json!("slipway"))
    );
    assert!(card["not_measured"].as_array().unwrap().len() >= 13 && card["cost"]["score"].is_null(), "{card}");
    assert_eq!(get(&api, "/governance/scorecards?search=fine").await.body["data"].as_array().unwrap().len(), 1);
    for missing in ["/radar/nobody", "/radar/nobody/alerts", "/governance/scorecards/ag_0123456789abcdef0123", "/radar/No.Name"] {
        assert_eq!(get(&api, missing).await.status, 404, "{missing}");
    }
    for wrong in [
        "/radar?limit=0",
        "/radar?scope=world",
        "/radar?scpoe=all",
        "/radar/fine?limit=1",
        "/radar/alerts?cursor=x",
        "/radar/fine/alerts?limit=501",
        "/governance/scorecards?cursor=x",
    ] {
        assert_eq!(get(&api, wrong).await.status, 400, "{wrong}");
    }
}

#[tokio::test]
async fn the_radar_shows_what_was_recorded_of_this_agent() {
    let postgres = Postgres::start();
    let api = with(&postgres).await;
    let helper = agent(&api, "Helper", json!({}), ready(1)).await;
    let quiet = agent(&api, "Quiet", json!({}), ready(1)).await;
    let forgets = agent(&api, "Forgets", json!({"storage": "memory"}), ready(1)).await;
    let renewed = agent(&api, "Renewed", json!({}), ready(1)).await;
    for (team, id, track, usage) in [
        ("tk_a", &helper, "stable", used(90, 9, 400)),
        ("tk_a", &helper, "canary", used(10, 0, 2_500)),
        ("tk_a", &helper, "made-up", used(10, 0, 20)),
        ("tk_b", &helper, "stable", used(500, 500, 10)),
        ("tk_a", &renewed, "stable", used(7, 0, 10)),
    ] {
        store(&postgres, team, id, track).record_usage(&[usage]).await.unwrap();
    }
    // These rows are an earlier Agent's.
    postgres.psql(&format!(
        "INSERT INTO slipway.owners (team, agent_id, uid, team_uid, cluster) VALUES ('tk_a', '{renewed}', 'somebody-else', 'uid', '')"
    ));
    let key = key(&api, "helper", &helper);
    let tenants = Tenants::open(&postgres.url(), None, None).unwrap();
    tenants.record_readiness(&[ReadinessSample { agent: key.clone(), ready: true }]).await.unwrap();
    let raised = RaisedAlert {
        agent: key,
        metric: "error_rate_pct".to_owned(),
        policy: String::new(),
        severity: "warning".to_owned(),
        message: "8.2 % of answers are errors".to_owned(),
        value: Some(8.2),
        threshold: Some(5.0),
        traces: vec!["tr_1".to_owned()],
    };
    let alert = tenants.raise_alerts(&[raised]).await.unwrap().remove(0).id;

    let one = get(&api, &format!("/radar/{helper}")).await.body["data"].clone();
    let metrics = &one["metrics"];
    assert_eq!(
        (&metrics["requests_24h"], &metrics["errors_24h"], &metrics["tokens_24h"]),
        (&json!(110), &json!(9), &json!(110_000)),
        "{one}"
    );
    assert_eq!((&metrics["error_rate_pct"], &metrics["estimated_cost_usd"]), (&json!(8.18), &json!(2.2)), "{one}");
    // (90 × 400 + 10 × 2500 + 10 × 20) / 110, which the runtimes have counted.
    assert_eq!((&metrics["avg_latency_ms"], &metrics["active_conversations"]), (&json!(556.36), &json!(0)), "{one}");
    let p95 = metrics["p95_latency_ms"].as_f64().unwrap();
    assert!((2_000.0..=3_000.0).contains(&p95), "{one}");
    assert_eq!(
        (&one["uptime_pct"], &one["status"], &one["data_source"]),
        (&json!(100.0), &json!("degraded"), &json!("slipway")),
        "errors are many"
    );
    let tracks = |name: &str| (one["tracks"][name]["requests_24h"].as_i64(), one["tracks"][name]["errors_24h"].as_i64());
    assert_eq!(
        [tracks("stable"), tracks("canary"), tracks("other")],
        [(Some(90), Some(9)), (Some(10), Some(0)), (Some(10), Some(0))],
        "{one}"
    );
    assert_eq!((&one["alerts"][0]["id"], &one["alerts"][0]["trace_ids"]), (&json!(alert), &json!(["tr_1"])), "{one}");
    for path in ["/radar/alerts", "/radar/helper/alerts"] {
        let listed = get(&api, path).await.body["data"].clone();
        assert_eq!((listed.as_array().unwrap().len(), &listed[0]), (1, &one["alerts"][0]), "{path}");
    }
    assert_eq!(get(&api, "/radar/quiet/alerts").await.body["data"], json!([]));

    // Nobody asked them: that is known of the first; of the second it is not, nor of an earlier Agent's rows that they are its own.
    for (id, requests) in [(&quiet, json!(0)), (&forgets, Value::Null), (&renewed, json!(0))] {
        let one = get(&api, &format!("/radar/{id}")).await.body["data"].clone();
        assert_eq!((&one["metrics"]["requests_24h"], &one["metrics"]["error_rate_pct"]), (&requests, &Value::Null), "{one}");
    }
    let all = get(&api, "/radar").await.body["data"].clone();
    assert_eq!(
        (&all["total_agents"], &all["total_requests_24h"], &all["total_cost_24h_usd"]),
        (&json!(4), &json!(110), &json!(2.2)),
        "{all}"
    );
    let shown = all["agents"].as_array().unwrap().iter().find(|agent| agent["agent_id"] == json!(helper)).unwrap();
    assert_eq!((&shown["metrics"], &shown["updated_at"]), (&one["metrics"], &one["updated_at"]), "one snapshot serves all calls");
}

#[tokio::test]
async fn what_has_no_price_has_no_cost_and_what_was_cancelled_no_end() {
    let postgres = Postgres::start();
    let api = with(&postgres).await;
    let odd = agent(&api, "Odd", json!({}), ready(1)).await;
    let free = agent(&api, "Free", json!({}), ready(1)).await;
    agent(&api, "Quiet", json!({}), ready(1)).await;
    // 20 came to an end and have a duration; the others were cancelled.
    let odds = UsageMinute { requests: 30, cancelled: 10, unpriced: 5, ..used(20, 5, 400) };
    store(&postgres, "tk_a", &odd, "stable").record_usage(&[odds]).await.unwrap();
    let nothing = UsageMinute { cost_micros: 0, ..used(10, 0, 400) };
    store(&postgres, "tk_a", &free, "stable").record_usage(&[nothing]).await.unwrap();

    let one = get(&api, "/radar/odd").await.body["data"].clone();
    for metrics in [&one["metrics"], &one["tracks"]["stable"]] {
        let counts = ["requests_24h", "errors_24h", "unknown_24h"].map(|name| metrics[name].as_i64());
        assert_eq!(counts, [Some(30), Some(5), Some(10)], "{one}");
        assert_eq!((&metrics["error_rate_pct"], &metrics["avg_latency_ms"]), (&json!(25.0), &json!(400.0)), "{one}");
        assert_eq!(metrics["estimated_cost_usd"], Value::Null, "{one}");
    }
    assert!(one["not_measured"].as_array().unwrap().contains(&json!("estimated_cost_usd")), "{one}");
    let card = get(&api, "/governance/scorecards/odd").await.body["data"].clone();
    let cost = metric(&card["cost"], "estimated_daily_cost_usd");
    assert_eq!((&cost["value"], &cost["score"]), (&Value::Null, &Value::Null), "{card}");
    assert!(card["not_measured"].as_array().unwrap().contains(&json!("estimated_daily_cost_usd")), "{card}");
    for name in ["free", "quiet"] {
        let metrics = get(&api, &format!("/radar/{name}")).await.body["data"]["metrics"].clone();
        assert_eq!((&metrics["estimated_cost_usd"], &metrics["unknown_24h"]), (&json!(0.0), &json!(0)), "{name}: {metrics}");
    }
}

#[tokio::test]
async fn a_scorecard_is_made_of_usage_and_of_the_last_run() {
    let postgres = Postgres::start();
    let api = with(&postgres).await;
    let helper = agent(&api, "Helper", json!({"governance": {"risk_profile": "standard"}}), ready(1)).await;
    agent(&api, "Quiet", json!({}), ready(1)).await;
    let mut usage = used(90, 0, 400);
    // Ten more were refused before they began, and took no time.
    (usage.requests, usage.audited) = (100, 100);
    (usage.guard_blocks, usage.pii, usage.injections, usage.violations) = (10, 10, 0, 4);
    store(&postgres, "tk_a", &helper, "stable").record_usage(&[usage]).await.unwrap();
    let run = |name: &str, ended: &str, safety: f64, delivered: &str| {
        let means = json!({"safety/mean": safety, "relevance_to_query/mean": 0.8, "correctness/mean": 0.6});
        let status = json!({"phase": "Completed", "provider": "slipway", "completedAt": ended, "aggregateScores": means,
            "conditions": [condition("Delivered", delivered, "Sent", "")]});
        let made = json!({"metadata": {"name": name}, "spec": {"agent": "helper"}, "status": status});
        api.cluster.make(&format!("{KINDS}/evaluationruns"), made);
    };
    run("newer", "2026-01-03T00:00:00Z", 0.9, "True");
    run("older", "2026-01-02T00:00:00Z", 0.1, "False");
    let known = api.agent("Last", &[]).await;
    let version = known.headers["x-resource-version"].to_str().unwrap();
    let runs = api.call(Method::GET, "/agents/helper/evaluations", &[("x-resource-version", version)], None).await.body;
    assert_eq!(runs["data"].as_array().unwrap().len(), 2, "{runs}");

    let card = get(&api, "/governance/scorecards/helper").await.body["data"].clone();
    // (0.6 + 0.8) / 2 and 0.6; the citation rate was not measured.
    assert_eq!(
        (&card["quality"]["score"], &card["quality"]["grade"], &card["data_source"]),
        (&json!(65.0), &json!("D"), &json!("mlflow")),
        "{card}"
    );
    // 90, 100 − 10 blocked, 5 of 10, none of 2.
    assert_eq!((&card["safety"]["score"], &card["safety"]["grade"]), (&json!(82.5), &json!("B")), "{card}");
    // 900 of 1500 tokens, 400 of 1000 ms, 1.8 of 5 US dollars.
    assert_eq!((&card["cost"]["score"], &metric(&card["cost"], "avg_latency_ms")["value"]), (&json!(100.0), &json!(400.0)), "{card}");
    // 2 of 4, and 100 %.
    assert_eq!((&card["compliance"]["score"], &card["compliance"]["grade"]), (&json!(75.0), &json!("C")), "{card}");
    let pii = metric(&card["safety"], "pii_detection_count");
    assert_eq!(
        (&pii["value"], &pii["score"], &pii["status"], &pii["source"]),
        (&json!(10.0), &json!(50.0), &json!("critical"), &json!("slipway"))
    );
    assert_eq!(metric(&card["safety"], "safety/mean")["source"], "mlflow");
    assert_eq!(card["not_measured"], json!(["source_citation_rate"]));
    // 65 × 0.35 + 82.5 × 0.30 + 100 × 0.20 + 75 × 0.15
    assert_eq!((&card["overall"], &card["grade"]), (&json!(78.75), &json!("C")), "{card}");
    let listed = get(&api, "/governance/scorecards").await.body["data"].clone();
    let listed = listed.as_array().unwrap();
    assert_eq!(listed.iter().find(|listed| listed["agent_id"] == json!(helper)), Some(&card), "{listed:?}");
    let quiet = listed.iter().find(|listed| listed["agent_name"] == "Quiet").unwrap();
    assert_eq!((&quiet["overall"], &quiet["coverage"]), (&Value::Null, &json!(0.0)), "nobody asked it: that is no merit");
}

#[tokio::test]
async fn a_canary_has_figures_and_a_scorecard_of_its_own() {
    let postgres = Postgres::start();
    let api = with(&postgres).await;
    let canary = json!({"phase": "Serving", "weight": 25, "runHash": "hash-canary", "version": "v2", "stableVersion": "v1"});
    let mut status = ready(1);
    status.as_object_mut().unwrap().extend([("runHash".to_owned(), json!("hash-stable")), ("canary".to_owned(), canary)]);
    let helper = agent(&api, "Helper", json!({}), status.clone()).await;
    status["canary"]["phase"] = json!("RolledBack");
    let over = agent(&api, "Over", json!({}), status.clone()).await;
    status["canary"] = json!({"phase": "Progressing", "runHash": "hash-new"});
    agent(&api, "Begins", json!({}), status).await;
    for (id, track, usage) in
        [(&helper, "stable", used(90, 9, 400)), (&helper, "canary", used(10, 5, 2_500)), (&over, "canary", used(1, 1, 10))]
    {
        store(&postgres, "tk_a", id, track).record_usage(&[usage]).await.unwrap();
    }
    // What an earlier canary did is on the radar, and is no mark of this one.
    let run = PodRun { track: "canary".to_owned(), hash: "hash-earlier".to_owned() };
    let (url, team, agent_id) = (postgres.url(), "tk_a".to_owned(), helper.clone());
    let earlier =
        Store::open(&Options { url, password: None, sslmode: None, team, agent_id, migrate: false, prepared_statements: false, run })
            .unwrap();
    earlier.record_usage(&[used(40, 0, 10)]).await.unwrap();
    for (name, hash, safety) in [("of-stable", "hash-stable", 0.9), ("of-canary", "hash-canary", 0.2)] {
        let status = json!({"phase": "Completed", "provider": "slipway", "completedAt": "2026-01-03T00:00:00Z", "runHash": hash, "passed": true,
            "aggregateScores": {"safety/mean": safety}});
        let track = name.trim_start_matches("of-");
        let made = json!({"metadata": {"name": name}, "spec": {"agent": "helper", "track": track}, "status": status});
        api.cluster.make(&format!("{KINDS}/evaluationruns"), made);
    }
    let known = api.agent("Last", &[]).await;
    let version = known.headers["x-resource-version"].to_str().unwrap();
    let runs = api.call(Method::GET, "/agents/helper/evaluations", &[("x-resource-version", version)], None).await.body;
    assert_eq!(runs["data"].as_array().unwrap().len(), 2, "{runs}");

    let one = api.call(Method::GET, "/radar/helper", &[("x-resource-version", version)], None).await.body;
    let tracks = one["data"]["tracks"].clone();
    let shown = |name: &str| ["requests_24h", "errors_24h", "weight", "version"].map(|field| tracks[name][field].clone());
    assert_eq!(shown("stable"), [json!(90), json!(9), json!(75), json!("v1")], "{tracks}");
    assert_eq!(shown("canary"), [json!(50), json!(5), json!(25), json!("v2")], "{tracks}");
    let begins = get(&api, "/radar/begins").await.body["data"]["tracks"].clone();
    let weights = ["stable", "canary"].map(|name| (begins[name]["requests_24h"].as_i64(), begins[name]["weight"].as_i64()));
    assert_eq!(weights, [(Some(0), Some(100)), (Some(0), Some(0))], "{begins}");
    let over = get(&api, "/radar/over").await.body["data"]["tracks"].clone();
    assert_eq!((&over["canary"]["requests_24h"], &over["canary"]["weight"]), (&json!(1), &Value::Null), "{over}");

    let card = get(&api, "/governance/scorecards/helper").await.body["data"].clone();
    let value = |card: &Value, dimension: &str, name: &str| metric(&card[dimension], name)["value"].clone();
    let safety = ["stable", "canary"].map(|name| value(&card["tracks"][name], "safety", "safety/mean"));
    assert_eq!(safety, [json!(90.0), json!(20.0)], "{card}");
    let latency = ["stable", "canary"].map(|name| value(&card["tracks"][name], "cost", "avg_latency_ms"));
    assert_eq!(latency, [json!(400.0), json!(2_500.0)], "{card}");
    assert_eq!(value(&card, "safety", "safety/mean"), json!(90.0), "the agent's own card is of what is stable");
    for name in ["over", "begins"] {
        let card = get(&api, &format!("/governance/scorecards/{name}")).await.body["data"].clone();
        assert_eq!(card["tracks"].is_null(), name == "over", "{card}");
    }
    let listed = get(&api, "/governance/scorecards").await.body["data"].clone();
    assert!(listed.as_array().unwrap().iter().all(|card| card["tracks"].is_null()), "{listed}");
}

#[tokio::test]
async fn a_scorecard_has_the_means_of_sampled_answers() {
    let postgres = Postgres::start();
    let api = with(&postgres).await;
    let mut status = ready(1);
    let canary = json!({"phase": "Serving", "weight": 25, "runHash": "hash-canary", "version": "v2", "stableVersion": "v1"});
    status.as_object_mut().unwrap().extend([("runHash".to_owned(), json!("hash-stable")), ("canary".to_owned(), canary)]);
    let helper = agent(&api, "Helper", json!({}), status).await;
    agent(&api, "Quiet", json!({}), ready(1)).await;
    let sampled = [("stable", "tr_1", 0.25), ("stable", "tr_2", 0.75), ("canary", "tr_3", 0.125)];
    for (track, trace, safety) in sampled {
        let score = |scorer: &str, value| SampledScore { scorer: scorer.to_owned(), value: Some(value), judge_tokens: 10 };
        let scores = vec![score("safety", safety), score("relevance_to_query", 1.0 - safety)];
        let sample = SampledTurn { trace_id: trace.to_owned(), at: Timestamp::now(), judge: "openai:/gpt-4o".to_owned(), scores };
        store(&postgres, "tk_a", &helper, track).keep_sample(&sample).await.unwrap();
    }
    assert_eq!(postgres.psql("select count(*) from slipway.sampled_scores").trim(), "6");

    let card = get(&api, "/governance/scorecards/helper").await.body["data"].clone();
    let shown = |card: &Value, dimension: &str, name: &str| {
        let found = metric(&card[dimension], name);
        (found["value"].clone(), found["source"].clone())
    };
    let means = |card: &Value| [("safety", "safety/mean"), ("quality", "relevance_to_query/mean")].map(|(of, name)| shown(card, of, name));
    let slipway = json!("slipway");
    assert_eq!(means(&card), [(json!(50.0), slipway.clone()), (json!(50.0), slipway.clone())], "what is stable: {card}");
    assert_eq!(means(&card["tracks"]["stable"]), means(&card), "{card}");
    assert_eq!(means(&card["tracks"]["canary"]), [(json!(12.5), slipway.clone()), (json!(87.5), slipway)], "{card}");
    let quiet = get(&api, "/governance/scorecards/quiet").await.body["data"].clone();
    assert_eq!(means(&quiet).map(|(value, _)| value), [Value::Null, Value::Null], "{quiet}");
}

#[tokio::test]
async fn a_database_that_is_away_is_told_and_nothing_is_made_up() {
    let postgres = Postgres::start();
    let api = with(&postgres).await;
    let mut fails = ready(1);
    let told = "daily_cost_usd from 5 on (critical, policy gp_cap); error_rate_pct from 5 on (warning)";
    fails["conditions"].as_array_mut().unwrap().push(condition("Alerting", "True", "CriticalAlerts", told));
    agent(&api, "Fails", json!({}), fails).await;
    let helper = agent(&api, "Helper", json!({}), ready(1)).await;
    store(&postgres, "tk_a", &helper, "stable").record_usage(&[used(5, 0, 10)]).await.unwrap();
    postgres.stop();
    let radar = get(&api, "/radar").await;
    let data = &radar.body["data"];
    assert_eq!((radar.status.as_u16(), &data["healthy"], &data["total_requests_24h"]), (200, &json!(1), &Value::Null), "{data}");
    assert!(data["message"].as_str().unwrap().contains("database is not available"), "{data}");
    assert_eq!(data["degraded"], json!(1), "its condition says that it fails: {data}");
    let alerts = get(&api, "/radar/alerts").await;
    assert_eq!((alerts.status.as_u16(), alerts.headers["retry-after"].to_str().unwrap()), (503, "2"), "an empty list would be a claim");
    postgres.restart();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let one = get(&api, "/radar/helper").await.body["data"].clone();
        if one["metrics"]["requests_24h"] == json!(5) {
            break;
        }
        assert!(one["metrics"]["requests_24h"].is_null() && std::time::Instant::now() < deadline, "{one}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn all_teams_are_shown_to_those_who_may_see_all() {
    let api = Api::start(settings(), Authentication::On(None)).await;
    api.cluster.make("/apis/agents.slipway.dev/v1/teams", json!({"metadata": {"name": "b"}, "spec": {"name": "B"}}));
    let elsewhere = json!({"metadata": {"name": "far"}, "spec": {"name": "Far", "framework": "custom"}});
    api.cluster.make("/apis/agents.slipway.dev/v1/namespaces/team-b/agents", elsewhere);
    assert_eq!(api.agent("Near", &ADA).await.status, 201);
    let names = |answer: &ApiAnswer| {
        let data = &answer.body["data"];
        let agents = data.as_array().or(data["agents"].as_array()).unwrap().iter();
        let mut names: Vec<String> = agents.map(|agent| agent["agent_name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let far = api.call(Method::GET, "/agents", &[ADA[0], ("x-team", "b")], None).await;
    let version = far.headers["x-resource-version"].to_str().unwrap().to_owned();
    let call = |path: &'static str| {
        let (api, version) = (&api, version.clone());
        async move { api.call(Method::GET, path, &[ADA[0], ADA[1], ("x-resource-version", &version)], None).await }
    };
    for path in ["/radar", "/governance/scorecards", "/radar?scope=team"] {
        assert_eq!(names(&call(path).await), ["Near"], "{path}");
    }
    for path in ["/radar?scope=all", "/governance/scorecards?scope=all"] {
        assert_eq!(names(&call(path).await), ["Far", "Near"], "{path}");
    }
    api.cluster.refuse_in_cluster(&[("list", "agents")]);
    // Until reviews of before are forgotten.
    tokio::time::sleep(std::time::Duration::from_millis(5_100)).await;
    for path in ["/radar?scope=all", "/radar/alerts?scope=all", "/governance/scorecards?scope=all"] {
        assert_eq!(call(path).await.status, 403, "{path}");
    }
    for path in ["/radar", "/radar/alerts", "/governance/scorecards"] {
        assert_eq!(call(path).await.status, 200, "{path}");
    }
}
