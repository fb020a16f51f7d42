//! Steps 28 to 31: a budget of a day that warns, then refuses; the alert, as REST, Events and the team's webhook tell of it; what
//! radar and scorecard make of it; and its end, of which a receiver hears that was away.

use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_e2e::platform;

use crate::receiver::Message;
use crate::stage::{BROKER, Stage, until};
use crate::sums::{WEIGHTS, agent_id, assert_close, grade, less_is_better, overall};

/// What a turn costs by the list price: 1,000 tokens in at 15 dollars a million, 1,000 out at 120.
const TURN_USD: f64 = 1_000.0 * 15.0 / 1e6 + 1_000.0 * 120.0 / 1e6;
const TURN_TOKENS: f64 = 2_000.0;
/// What the page allows a day, and from which part of it on there is a warning.
const CAP_USD: f64 = 1.0;
const WARNS_AT: f64 = 0.8;
/// Refused turns of the page.
const REFUSED: u32 = 3;
/// So little of a day must not be left: a budget begins anew at midnight, UTC.
const REST_OF_DAY: i64 = 20 * 60;
const DAY: i64 = 24 * 60 * 60;

/// How many turns bring so much money.
fn turns_to(usd: f64) -> u32 {
    (1..10_000).find(|turns| f64::from(*turns) * TURN_USD >= usd - 1e-9).unwrap_or_default()
}

/// Waits for midnight where it is near.
fn a_day_is_left() {
    let left = DAY - jiff::Timestamp::now().as_second().rem_euclid(DAY);
    if left < REST_OF_DAY {
        sleep(Duration::from_secs(left.unsigned_abs() + 5));
    }
}

/// What the team's webhook was sent of this kind, and has taken.
#[track_caller]
fn taken(stage: &Stage, kind: &str) -> Vec<Message> {
    stage.hook.messages("/depot").into_iter().filter(|message| message.taken && message.body["type"] == kind).collect()
}

/// Waits until the webhook has one message of this kind about the budget, and compares it.
#[track_caller]
fn delivered(stage: &Stage, kind: &str, severity: &str, value: Option<f64>) -> Value {
    let secret = stage.fact("secret of depot").as_str().unwrap_or_default().to_owned();
    until(&format!("the receiver has {kind}"), 400, || if taken(stage, kind).is_empty() { Err(json!(kind)) } else { Ok(()) });
    let messages = taken(stage, kind);
    assert_eq!(messages.len(), 1, "{kind} should be taken once");
    let message = &messages[0];
    assert!(message.id.starts_with("msg_"), "{}", message.id);
    assert_eq!(message.fault(&secret), None, "{kind}");
    let data = &message.body["data"];
    let id = agent_id("team-depot", BROKER);
    assert_eq!(
        (&data["metric"], &data["policy"], &data["severity"], &data["agent_id"]),
        (&json!("daily_cost_usd"), &json!("gp_cap"), &json!(severity), &json!(id)),
        "{data:#}"
    );
    if let Some(value) = value {
        assert_close(kind, &data["value"], value, 1e-6);
    }
    data.clone()
}

/// The one alert that is open, as REST has it.
#[track_caller]
fn alert(stage: &Stage, severity: &str, value: f64, threshold: f64) -> Value {
    let open = stage.get("bob", "depot", "/radar/alerts");
    assert_eq!(open.as_array().map(Vec::len), Some(1), "{open:#}");
    let alert = &open[0];
    let id = agent_id("team-depot", BROKER);
    assert_eq!(
        (&alert["metric"], &alert["severity"], &alert["agent_id"]),
        (&json!("daily_cost_usd"), &json!(severity), &json!(id)),
        "{open:#}"
    );
    assert_close("value", &alert["value"], value, 1e-6);
    assert_close("threshold", &alert["threshold"], threshold, 1e-9);
    alert.clone()
}

#[track_caller]
fn told(stage: &Stage, reason: &str) -> usize {
    let list = stage.depot.kubectl("get events.events.k8s.io").json();
    list["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason).count()
}

#[track_caller]
fn pods(stage: &Stage) -> Vec<Value> {
    stage.broker().pods().iter().map(|pod| json!([pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]])).collect()
}

/// Before the other team's first chat.
pub(crate) fn begins() {
    a_day_is_left();
}

pub(crate) fn money(stage: &mut Stage) {
    let before = pods(stage);
    stage.play("Money");
    let warned = turns_to(WARNS_AT * CAP_USD);
    let spent = f64::from(warned) * TURN_USD;
    let raised = alert(stage, "warning", spent, WARNS_AT * CAP_USD);
    let data = delivered(stage, "alert.raised", "warning", Some(spent));
    assert_eq!((&data["id"], &data["threshold"]), (&raised["id"], &raised["threshold"]), "{data:#}");
    assert_eq!(told(stage, "AlertRaised"), 1);

    stage.play("The end of the budget");
    // It was not used up before the last turn that was answered.
    let answered = turns_to(CAP_USD);
    let codes = stage.file("codes.txt");
    let count = |code: &str| u32::try_from(codes.lines().filter(|line| *line == code).count()).unwrap();
    assert_eq!((count("200"), count("429")), (answered - warned, REFUSED), "{codes}");
    let refused: Value = serde_json::from_str(&stage.file("refused.json")).unwrap();
    assert!(refused["message"].as_str().is_some_and(|words| words.contains("gp_cap")), "the policy should be named: {refused}");
    let spent = f64::from(answered) * TURN_USD;
    let risen = alert(stage, "critical", spent, CAP_USD);
    assert_eq!(risen["id"], raised["id"], "it is the same alert");
    delivered(stage, "alert.risen", "critical", Some(spent));
    assert_eq!(pods(stage), before, "nobody touches pods for a budget");
    figures(stage, answered, spent);
}

/// Radar and scorecard, from what the page has asked.
#[track_caller]
fn figures(stage: &mut Stage, answered: u32, spent: f64) {
    let requests = f64::from(answered + REFUSED);
    stage.play("Radar and scorecard");
    until("the radar counts all requests", 240, || {
        let shown = stage.get("bob", "depot", &format!("/radar/{BROKER}"));
        if shown["metrics"]["requests_24h"].as_f64() == Some(requests) { Ok(()) } else { Err(shown) }
    });
    let shown = stage.get("bob", "depot", &format!("/radar/{BROKER}"));
    let metrics = &shown["metrics"];
    assert_close("cost", &metrics["estimated_cost_usd"], spent, 1e-6);
    assert_close("tokens", &metrics["tokens_24h"], f64::from(answered) * TURN_TOKENS, 0.5);
    assert_eq!((&shown["data_source"], &shown["agent_id"]), (&json!("slipway"), &json!(agent_id("team-depot", BROKER))), "{shown:#}");
    until("the overview has the same", 120, || {
        let all = stage.get("bob", "depot", "/radar");
        let is_same = all["total_agents"] == 1 && all["total_requests_24h"].as_f64() == Some(requests);
        if is_same { Ok(()) } else { Err(all) }
    });
    // What the database has, asked past all that is ours.
    let id = agent_id("team-depot", BROKER);
    let rows = platform::row(&format!(
        "SELECT json_build_object('requests', sum(requests), 'micros', sum(cost_micros)) FROM slipway.usage_by_run WHERE agent_id = '{id}'"
    ));
    assert_close("requests in the database", &rows["requests"], requests, 0.0);
    assert_close("micros in the database", &rows["micros"], spent * 1e6, 0.5);

    let tokens = f64::from(answered) * TURN_TOKENS / requests;
    until("the scorecard counts them", 120, || {
        let card = stage.get("bob", "depot", &format!("/governance/scorecards/{BROKER}"));
        let found = metric(&card, "cost", "avg_tokens_per_request")["value"].as_f64();
        if found.is_some_and(|found| (found - tokens).abs() < 0.011) { Ok(()) } else { Err(card) }
    });
    let card = stage.get("bob", "depot", &format!("/governance/scorecards/{BROKER}"));
    for (name, threshold) in [("avg_tokens_per_request", 1500.0), ("avg_latency_ms", 1000.0), ("estimated_daily_cost_usd", 5.0)] {
        let metric = metric(&card, "cost", name);
        let value = metric["value"].as_f64().unwrap_or_else(|| panic!("{name} should be measured: {card:#}"));
        assert_close(name, &metric["score"], less_is_better(value, threshold), 0.011);
        assert_close(name, &metric["threshold"], threshold, 1e-9);
    }
    assert_close("cost of the day", &metric(&card, "cost", "estimated_daily_cost_usd")["value"], spent, 0.011);
    for (dimension, weight) in WEIGHTS {
        assert_close(dimension, &card[dimension]["weight"], weight, 1e-9);
        if let Some(score) = card[dimension]["score"].as_f64() {
            assert_eq!(card[dimension]["grade"], grade(score), "{dimension}: {card:#}");
        }
    }
    let expected = overall(&card).unwrap_or_else(|| panic!("something was measured: {card:#}"));
    assert_close("overall", &card["overall"], expected, 0.011);
    assert_eq!(card["grade"], grade(card["overall"].as_f64().unwrap_or_default()), "{card:#}");
    // Nobody has evaluated it, and nothing is made up.
    assert_eq!((&card["quality"]["score"], &card["data_source"]), (&Value::Null, &json!("slipway")), "{card:#}");
}

fn metric(card: &Value, dimension: &str, name: &str) -> Value {
    let metrics = card[dimension]["metrics"].as_array();
    metrics.into_iter().flatten().find(|metric| metric["name"] == name).cloned().unwrap_or_default()
}

/// What was sent of the alert's end, and not taken.
fn refused(stage: &Stage) -> Vec<Message> {
    let messages = stage.hook.messages("/depot");
    messages.into_iter().filter(|message| !message.taken && message.body["type"] == "alert.resolved").collect()
}

pub(crate) fn it_ends(stage: &mut Stage) {
    stage.hook.close();
    stage.play("A larger budget");
    assert_eq!(told(stage, "AlertResolved"), 1);
    until("a message that nobody takes is sent again", 180, || {
        let tries = refused(stage).len();
        if tries >= 2 { Ok(()) } else { Err(json!(tries)) }
    });
    stage.hook.open();
    let data = delivered(stage, "alert.resolved", "critical", None);
    assert!(data["resolved_at"].is_string(), "{data:#}");
    let id = taken(stage, "alert.resolved")[0].id.clone();
    assert!(refused(stage).iter().all(|message| message.id == id), "each attempt has the same id");
    let kinds = ["alert.raised", "alert.risen", "alert.resolved"].map(|kind| taken(stage, kind).remove(0).id);
    assert!(kinds[0] != kinds[1] && kinds[1] != kinds[2], "each message has an id of its own: {kinds:?}");
}
