//! Alerts on their way to their receivers: signed, in order, and again until they have arrived.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, condition, fresh, long, platform, poll};
use slipway_peers::skip;

use super::receiver::{HOOK, Heard, Receiver, SLACK, signing_secret};
use super::{becomes, connected, integration, login};

/// How long an alert may take: its usage is written, a pass a minute looks at it, and the first attempt is refused.
const RAISED: u64 = 240;
/// Violations are told to their policies every five minutes.
const TOLD: u64 = 420;
/// How long the end of one may take, which the next pass finds.
const RESOLVED: u64 = 150;
const TOPIC: &str = "zeppelins";

/// Messages that tell of alerts, and no tests of the integration.
fn alerts(heard: &[Heard]) -> Vec<&Heard> {
    heard.iter().filter(|heard| heard.json()["type"].as_str().is_some_and(|kind| kind.starts_with("alert."))).collect()
}

fn arrived<'a>(heard: &[&'a Heard], kind: &str) -> Vec<&'a Heard> {
    heard.iter().copied().filter(|heard| heard.is_taken() && heard.json()["type"] == kind).collect()
}

#[test]
fn alerts_reach_a_receiver_once_each_and_in_order() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let (Some(receiver), Some(slack), Some(other)) = (Receiver::start(), Receiver::start(), Receiver::start()) else { return };
    let team = Team::within(long(), &fresh("alerted"), &json!({}));
    let rule = json!({"type": "blocked_topics", "operator": "contains", "value": TOPIC});
    let policy = json!({"name": "Topics", "severity": "critical", "rules": [rule]});
    team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": {"name": "topics"}, "spec": policy}));
    integration(&team, "hook", &json!({"webhook": {"url": receiver.url(HOOK)}, "alerts": {}}));
    integration(&team, "chat", &json!({"slack": {}, "alerts": {"severities": ["critical"], "resolved": false}}));
    integration(&team, "quiet", &json!({"webhook": {"url": other.url(HOOK)}, "alerts": {"agents": ["another"]}}));
    login(&team, "hook", &json!({"signing_secret": signing_secret()}));
    login(&team, "chat", &json!({"webhook_url": slack.url(SLACK)}));
    login(&team, "quiet", &json!({"signing_secret": signing_secret()}));
    for name in ["hook", "chat", "quiet"] {
        let delivering = condition(&connected(&team, name), "Delivering").clone();
        assert_eq!((&delivering["status"], &delivering["reason"]), (&json!("Unknown"), &json!("NothingYet")), "{delivering:#}");
    }
    let (posted, quiet) = (slack.heard(SLACK).len(), other.heard(HOOK).len());
    let agent = team.agent("helper", &json!({"storage": "postgresql", "governance": {"policies": ["topics"]}}));
    agent.ready();
    receiver.refuse_one(503);
    for _ in 0..4 {
        let reply = agent.post("/chat", &json!({"message": format!("What do you think of {TOPIC}?")}));
        assert!(reply.status < 500 && !reply.body.contains("What do you think"), "a policy forbids it: {reply:?}");
    }

    // Again, under the same id, until it is taken.
    let heard = receiver.until(HOOK, RAISED, "an alert that it takes", |heard| !arrived(&alerts(heard), "alert.raised").is_empty());
    let heard = alerts(&heard);
    assert_eq!(heard.iter().map(|heard| heard.is_taken()).collect::<Vec<_>>(), [false, true], "{heard:#?}");
    assert!(heard[0].id() == heard[1].id() && heard[0].id().starts_with("msg_"), "{heard:#?}");
    for message in &heard {
        assert!(message.is_good(), "{message:?}");
    }
    let raised = heard[1].json()["data"].clone();
    let id = agent.get()["status"]["id"].clone();
    assert_eq!(
        (&raised["agent"], &raised["agent_id"], &raised["metric"]),
        (&json!("helper"), &id, &json!("policy_violation_count")),
        "{raised:#}"
    );
    assert_eq!((&raised["severity"], &raised["resolved_at"]), (&json!("critical"), &Value::Null), "{raised:#}");
    let posted_line = slack.until(SLACK, 60, "a line", |heard| heard.len() > posted).pop().unwrap();
    let line = posted_line.json()["text"].clone();
    assert!(
        posted_line.is_good() && line.as_str().is_some_and(|line| line.contains("critical") && line.contains("policy_violation_count")),
        "{line}"
    );

    // The policy says who broke it, and how often.
    poll(TOLD, || {
        let described = team.kubectl("describe guardrailpolicy topics").ok();
        let words = described.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.contains("Violations: Blocked: 4 Total: 4 Violators: Agent: helper Blocked: 4 Count: 4") {
            Ok(())
        } else {
            Err(format!("four violations of helper should be told: {described}"))
        }
    });

    // A policy that is switched off ends its alerts at the next look.
    team.kubectl("patch guardrailpolicy topics --type=merge -p").arg(json!({"spec": {"enabled": false}})).ok();
    let heard = receiver.until(HOOK, RESOLVED, "the end", |heard| !arrived(&alerts(heard), "alert.resolved").is_empty());
    let heard = alerts(&heard);
    let end = arrived(&heard, "alert.resolved")[0];
    assert_eq!(end.json()["data"]["id"], raised["id"], "it is the end of that one");
    assert!(end.json()["data"]["resolved_at"].is_string() && end.id() != heard[0].id() && end.is_good(), "{end:?}");
    let found = becomes(&team, "hook", "a place where alerts arrive", |of| condition(of, "Delivering")["reason"] == "Delivered");
    assert_eq!(found["status"]["delivery"]["waiting"].as_i64().unwrap_or(0), 0, "{found:#}");

    // Each was taken once, the beginning before the end, and a receiver that asked for less got less.
    let order: Vec<Value> = heard.iter().filter(|heard| heard.is_taken()).map(|heard| heard.json()["type"].clone()).collect();
    assert_eq!(order, ["alert.raised", "alert.resolved"]);
    let mut taken = BTreeMap::new();
    for heard in heard.iter().filter(|heard| heard.is_taken()) {
        *taken.entry(heard.id()).or_insert(0) += 1;
    }
    assert!(taken.values().all(|times| *times == 1), "{taken:?}");
    assert_eq!((slack.heard(SLACK).len(), other.heard(HOOK).len()), (posted + 1, quiet));
    let Some(api) = Api::installed() else { return };
    let shown = api.call("GET", "/integrations/in_hook").token(&team.token("viewer")).expect(200)["data"].clone();
    assert!(shown["alerts"].is_object() && shown["delivery"]["waiting"].as_i64().unwrap_or(0) == 0, "{shown:#}");
}
