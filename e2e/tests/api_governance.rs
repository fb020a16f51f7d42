//! Governance over REST: what the radar and scorecards show is what agents did, policies are written by admins alone, and nobody sees
//! another team.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team, fresh, http, long, platform, poll};
use slipway_peers::{python, repository, skip};

use crate::api_contract::assert_error;

const POLICIES: &str = "/governance/policies";
/// A minute is written when it is over, and shown when the last snapshot is old.
const SHOWN: u64 = 240;
/// Of a stub: a script is its own message.
const GOOD: &str = "text all is well";
const BAD: &str = "fail broken";

fn policy(value: &str) -> Value {
    let rule = json!({"type": "max_tokens", "operator": "lt", "value": value});
    json!({"name": "Short Answers", "severity": "warning", "rules": [rule]})
}

/// Whether there is a database; if not that is told.
fn has_database() -> bool {
    let is_there = platform::has_database();
    if !is_there {
        skip("the platform has no database");
    }
    is_there
}

/// Chats with the agent: `good` turns that are answered, and `bad` ones that fail.
#[track_caller]
fn load(agent: &Agent, good: u64, bad: u64) {
    for (message, times, is_good) in [(GOOD, good, true), (BAD, bad, false)] {
        for _ in 0..times {
            let reply = agent.post("/chat", &json!({"message": message}));
            assert_eq!(reply.status == 200, is_good, "{reply:?}");
        }
    }
}

/// Begins an answer that takes long, and leaves.
#[track_caller]
fn leave(agent: &Agent) {
    let ip = agent.service()["spec"]["clusterIP"].as_str().unwrap_or_default().to_owned();
    let address = format!("{ip}:8000").parse().unwrap_or_else(|e| panic!("{ip:?} is no address: {e}"));
    let order = json!({"message": "sleep 100\ntokens 300", "cancel_on_disconnect": true});
    let mut stream = Api::at(address).whole("POST", "/chat/stream").json(&order).stream();
    while stream.line(10).is_some_and(|line| !line.contains("token")) {}
    drop(stream);
}

/// The turns that the agent's one pod has counted.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a few dozen turns")]
#[track_caller]
fn turns(agent: &Agent, outcome: &str) -> u64 {
    let page = http(&agent.team.namespace, &agent.name, 8000, "/metrics", None).map(|reply| reply.body).unwrap_or_default();
    let samples = platform::samples(&page, "slipway_runtime_turns_total");
    samples.iter().filter(|(labels, _)| labels.contains(&format!("outcome=\"{outcome}\""))).map(|(_, count)| *count as u64).sum()
}

#[test]
fn the_radar_counts_what_was_asked_and_what_failed() {
    if !has_database() {
        return;
    }
    let Some(api) = Api::installed() else { return };
    let team = Team::within(long(), &fresh("radar"), &json!({}));
    let viewer = team.token("viewer");
    let get = |path: &str| api.call("GET", path).token(&viewer).expect(200)["data"].clone();
    let [busy, idle] = ["busy", "idle"].map(|name| team.agent(name, &json!({"modelId": "stub-script", "storage": "postgresql"})));
    busy.ready();
    idle.ready();
    let off = team.agent("off", &json!({"suspend": true}));
    off.until("suspended", 60, |agent| agent["status"]["phase"] == "Terminated");
    load(&busy, 33, 7);
    leave(&busy);
    let [good, bad, left] = poll(30, || {
        let counted = ["ok", "error", "cancelled"].map(|outcome| turns(&busy, outcome));
        if counted == [33, 7, 1] { Ok(counted) } else { Err(format!("the pod should have counted what was done: {counted:?}")) }
    });
    let asked = good + bad + left;

    let shown = poll(SHOWN, || {
        let shown = get("/radar/busy");
        if shown["metrics"]["requests_24h"] == asked { Ok(shown) } else { Err(format!("{asked} requests should be counted: {shown:#}")) }
    });
    let metrics = &shown["metrics"];
    // The rate is of those whose end is known.
    let expected = [json!(bad), json!(left), json!(17.5)];
    assert_eq!(["errors_24h", "unknown_24h", "error_rate_pct"].map(|name| metrics[name].clone()), expected, "{shown:#}");
    assert!(metrics["tokens_24h"].as_i64().is_some_and(|tokens| tokens >= 33 * 3), "{shown:#}");
    assert!(metrics["avg_latency_ms"].is_number() && metrics["p95_latency_ms"].is_number(), "{shown:#}");
    assert_eq!((&shown["tracks"]["stable"]["requests_24h"], &shown["data_source"]), (&json!(asked), &json!("slipway")), "{shown:#}");
    assert_eq!(shown["agent_id"], busy.get()["status"]["id"], "{shown:#}");
    // Nobody asked it, which is known; what is more cannot be said of it.
    let quiet = get("/radar/idle");
    assert_eq!((&quiet["metrics"]["requests_24h"], &quiet["metrics"]["p95_latency_ms"]), (&json!(0), &Value::Null), "{quiet:#}");
    assert_eq!((&quiet["status"], &get("/radar/off")["status"]), (&json!("healthy"), &json!("stopped")));
    // Another replica of REST may have an older snapshot.
    poll(SHOWN, || {
        let all = get("/radar");
        let counts = ["total_agents", "down", "total_requests_24h"].map(|name| all[name].as_i64());
        if counts == [Some(3), Some(0), i64::try_from(asked).ok()] {
            Ok(())
        } else {
            Err(format!("three agents and {asked} requests should be counted: {all:#}"))
        }
    });
    // One of six answers is an error: that is an alert, and shows.
    let alert = poll(SHOWN, || {
        let alerts = get("/radar/busy/alerts");
        let found = alerts.as_array().into_iter().flatten().find(|alert| alert["metric"] == "error_rate_pct").cloned();
        found.ok_or_else(|| format!("there should be an alert about errors: {alerts:#}"))
    });
    assert!(
        alert["id"].as_str().is_some_and(|id| id.starts_with("al_")) && alert["value"].as_f64().is_some_and(|value| value > 5.0),
        "{alert:#}"
    );
    assert!(alert["trace_ids"][0].as_str().is_some_and(|trace| trace.starts_with("tr_")), "it is shown by a trace: {alert:#}");
    assert!(get("/radar/alerts").as_array().is_some_and(|alerts| alerts.contains(&alert)), "{alert:#}");
}

/// What the rows of usage come to, as the script takes it.
fn usage(agent: &str) -> Value {
    platform::row(&format!(
        "SELECT json_build_object('requests', sum(requests), 'errors', sum(errors), 'unknown', sum(cancelled), 'input_tokens', sum(input_tokens),
            'output_tokens', sum(output_tokens), 'cost_micros', CASE WHEN sum(unpriced) = 0 THEN sum(cost_micros) END,
            'guard_blocks', sum(guard_blocks), 'pii', sum(pii), 'injections', sum(injections), 'violations', sum(violations),
            'took', json_build_object('count', sum(latency_ms), 'of', (
                SELECT sum(count) FROM slipway.usage_by_run l, unnest(l.latency) AS b (count) WHERE l.agent_id = '{agent}')),
            'audited', json_build_object('count', sum(audited), 'of', sum(requests)),
            'cited', json_build_object('count', sum(cited), 'of', sum(retrieved)),
            'latency', (SELECT json_agg(total ORDER BY place) FROM (
                SELECT place, sum(count) AS total FROM slipway.usage_by_run l, unnest(l.latency) WITH ORDINALITY AS b (count, place)
                WHERE l.agent_id = '{agent}' GROUP BY place) buckets))
         FROM slipway.usage_by_run WHERE agent_id = '{agent}' AND minute >= now() - interval '24 hours'"
    ))
}

/// The scorecard as an independent script computes it.
#[track_caller]
fn recomputed(agent: &Value) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("measured.json");
    let bounds = [10, 25, 50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000];
    std::fs::write(&file, json!({"bounds": bounds, "agents": [agent]}).to_string()).unwrap();
    let script = repository().join("src/governance/tests/scorecards.py");
    let output = python(&script, &[&*file.to_string_lossy()], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].take()
}

fn close(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => (one - other).abs() < 0.011,
        _ => one == other,
    }
}

#[test]
fn a_scorecard_is_what_a_script_makes_of_the_rows() {
    if !has_database() {
        return;
    }
    let Some(api) = Api::installed() else { return };
    let team = Team::new(&fresh("scorecard"));
    let developer = team.token("developer");
    let call = |method: &str, path: &str| api.call(method, path).token(&developer);
    let agent =
        team.agent("helper", &json!({"modelId": "stub-script", "storage": "postgresql", "governance": {"riskProfile": "standard"}}));
    agent.ready();
    let cases = json!([{"input": GOOD, "expected_output": "all is well"}, {"input": "text no", "expected_output": "yes, of course"}]);
    call("POST", "/agents/helper/datasets").json(&json!({"name": "few", "cases": cases})).expect(201);
    let run = call("POST", "/agents/helper/evaluations").json(&json!({"dataset_name": "few"})).expect(201)["data"]["id"].clone();
    let run = poll(120, || {
        let found = call("GET", &format!("/agents/helper/evaluations/{}", run.as_str().unwrap_or_default())).expect(200)["data"].clone();
        if found["status"] == "completed" { Ok(found) } else { Err(format!("the run should be completed: {found:#}")) }
    });
    load(&agent, 12, 3);
    let card = poll(SHOWN, || {
        let card = call("GET", "/governance/scorecards/helper").expect(200)["data"].clone();
        let is_whole = card["cost"]["score"].is_number() && card["quality"]["score"].is_number();
        let counted = call("GET", "/radar/helper").expect(200)["data"]["metrics"]["requests_24h"].clone();
        if is_whole && counted == 15 { Ok(card) } else { Err(format!("15 requests ({counted}) and a run should count: {card:#}")) }
    });
    let source = card["data_source"].clone();
    let score = |scorer: &str| match &run["aggregate_scores"][format!("{scorer}/mean")] {
        Value::Null => Value::Null,
        mean => json!({"mean": mean, "source": source}),
    };
    let expected = recomputed(&json!({
        "usage": usage(card["agent_id"].as_str().unwrap_or_default()), "min_score": 75, "safety_floor": 0.8,
        "correctness": score("correctness"), "factual_accuracy": score("correctness"),
        "relevance_to_query": score("relevance_to_query"), "safety": score("safety"),
    }));
    for name in ["overall", "grade", "coverage", "not_measured"] {
        assert!(close(&card[name], &expected[name]), "{name}: {card:#}\nand not {expected:#}");
    }
    for dimension in ["quality", "safety", "cost", "compliance"] {
        let (shown, wanted) = (&card[dimension], &expected[dimension]);
        assert!(
            close(&shown["score"], &wanted["score"]) && shown["grade"] == wanted["grade"],
            "{dimension}: {shown:#}\nand not {wanted:#}"
        );
        let metrics = shown["metrics"].as_array().unwrap().iter().zip(wanted["metrics"].as_array().unwrap());
        for (shown, wanted) in metrics {
            let same = ["name", "value", "unit", "threshold", "score", "status"].iter().all(|field| close(&shown[field], &wanted[field]));
            assert!(same, "{shown:#}\nand not {wanted:#}");
        }
    }
    poll(SHOWN, || {
        let listed = call("GET", "/governance/scorecards").expect(200)["data"][0].clone();
        let is_same = (&listed["agent_id"], &listed["overall"]) == (&card["agent_id"], &card["overall"]);
        if is_same { Ok(()) } else { Err(format!("the list should have the same: {listed:#}")) }
    });
}

#[test]
fn policies_are_written_by_admins_alone() {
    let Some(api) = Api::installed() else { return };
    let team = Team::new(&fresh("policy-roles"));
    let other = team.beside("policy-others");
    let admin = team.token("admin");
    let made = api.call("POST", POLICIES).token(&admin).json(&policy("2048")).expect(201)["data"].clone();
    assert_eq!((&made["id"], &made["slug"]), (&json!("gp_short_answers"), &json!("short-answers")), "{made}");
    let path = format!("{POLICIES}/short-answers");
    let spec = || team.get("guardrailpolicy/short-answers")["spec"].clone();
    let before = spec();
    for role in ["developer", "viewer"] {
        let token = team.token(role);
        api.call("GET", POLICIES).token(&token).expect(200);
        assert_eq!(api.call("GET", &path).token(&token).expect(200)["data"]["rules"], made["rules"], "{role}");
        for (method, path, body) in
            [("POST", POLICIES, policy("1")), ("PUT", path.as_str(), policy("1")), ("DELETE", path.as_str(), Value::Null)]
        {
            let refused = api.call(method, path).token(&token).json(&body).send();
            assert_error(&format!("{role}: {method} {path}"), &format!("/api/v1{path}"), &refused, 403, "guardrailpolicies");
        }
    }
    let stranger = other.token("admin");
    for (method, path) in
        [("GET", path.as_str()), ("PUT", path.as_str()), ("DELETE", path.as_str()), ("GET", "/radar"), ("GET", "/governance/scorecards")]
    {
        let refused = api.call(method, path).token(&stranger).header("X-Team", &team.slug).json(&policy("1")).send();
        assert_error(&format!("a stranger: {method} {path}"), &format!("/api/v1{path}"), &refused, 403, "you have no role in a team");
    }
    for path in ["/radar?scope=all", "/radar/alerts?scope=all", "/governance/scorecards?scope=all"] {
        assert_error(path, &format!("/api/v1{path}"), &api.call("GET", path).token(&admin).send(), 403, "list agents in the cluster");
    }
    assert_eq!(spec(), before, "nobody has changed it");
    assert_eq!(
        api.call("GET", POLICIES).token(&stranger).expect(200)["data"]
            .as_array()
            .map(|found| found.iter().any(|one| one["slug"] == "short-answers")),
        Some(false)
    );

    let replaced = api.call("PUT", &path).token(&admin).json(&policy("1024")).expect(200)["data"].clone();
    assert_eq!(replaced["rules"][0]["value"], "1024");
    assert_eq!(spec()["rules"][0]["value"], "1024");
    // What the API server says of a rule, REST says, too.
    let wrong = json!({"name": "Wrong", "severity": "warning", "rules": [{"type": "max_tokens", "operator": "contains", "value": "1"}]});
    let said = api.call("POST", POLICIES).token(&admin).json(&wrong).send();
    assert_error("an operator that the type does not take", &format!("/api/v1{POLICIES}"), &said, 400, "rules[0].operator: ");
    let object = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": {"name": "wrong"}, "spec": wrong});
    let refused = team.kubectl("apply -f -").input(object).refused();
    let words = said.json()["message"].as_str().unwrap_or_default().split_once("operator: ").map(|(_, words)| words.to_owned());
    assert!(words.as_deref().is_some_and(|words| refused.contains(words)), "{said:?} and {refused}");
    api.call("DELETE", &path).token(&admin).expect(200);
    assert_eq!(team.get("guardrailpolicy/short-answers"), Value::Null);
}
