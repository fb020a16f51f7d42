//! Alerts that faults raise, and that end by themselves once these are over: an agent whose pod is gone and cannot come back, and a model
//! that answers slowly. Each is looked for where people look: over REST, in Events, and in the Agent's condition. A budget that is spent is
//! part of the story (`tests/story/money.rs`). It takes some 15 minutes, most of which it waits: a latency has to stand for five minutes
//! before there is an alert, and to be calm for five before it ends.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team, condition, fresh, long, platform, poll};
use slipway_peers::skip;

/// An agent is down for two minutes before there is an alert, and a pass a minute looks at it.
const DOWN: u64 = 300;
/// A minute of usage is written when it is over, a pass finds it, and a latency has to stand for five minutes.
const SLOW: u64 = 600;
/// The same until all is calm, and it has to be so for five minutes.
const CALM: u64 = 600;
/// The fewest answers that have a 95th percentile.
const SLOW_ANSWERS: u32 = 20;
/// Of these and of the slow ones less than a twentieth is slow, with room for a busy machine.
const QUICK_ANSWERS: u32 = 600;

#[track_caller]
fn answers(agent: &Agent, script: &str, times: u32) {
    let call = agent.chat_call(script);
    for _ in 0..times {
        call.expect(200);
    }
}

/// Whether there is an Event on the agent about the alert.
#[track_caller]
fn is_told(agent: &Agent, reason: &str, alert: &Value) -> bool {
    let id = alert["id"].as_str().unwrap_or_else(|| panic!("an alert has an id: {alert:#}"));
    let list = agent.team.kubectl("get events.events.k8s.io").json();
    list["items"].as_array().into_iter().flatten().any(|event| {
        let payload = event["metadata"]["annotations"]["agents.slipway.dev/payload"].as_str();
        event["reason"] == reason
            && event["regarding"]["name"].as_str() == Some(agent.name.as_str())
            && payload.is_some_and(|payload| payload.contains(id))
    })
}

/// Over REST, as a viewer of the team.
struct Radar<'a> {
    api: &'a Api,
    viewer: String,
}

impl Radar<'_> {
    /// The agent's alert about this, if it is open.
    #[track_caller]
    fn alert(&self, agent: &Agent, metric: &str) -> Option<Value> {
        let path = format!("/radar/{}/alerts", agent.name);
        let open = self.api.call("GET", &path).token(&self.viewer).expect(200)["data"].clone();
        open.as_array().into_iter().flatten().find(|alert| alert["metric"] == metric).cloned()
    }

    #[track_caller]
    fn raised(&self, agent: &Agent, metric: &str, seconds: u64) -> Value {
        let alert = poll(seconds, || self.alert(agent, metric).ok_or_else(|| format!("{} should have an alert: {metric}", agent.name)));
        agent.until("alerting", 60, |agent| condition(agent, "Alerting")["status"] == "True");
        poll(30, || if is_told(agent, "AlertRaised", &alert) { Ok(()) } else { Err(format!("an Event should tell of {alert:#}")) });
        alert
    }

    #[track_caller]
    fn ended(&self, agent: &Agent, alert: &Value) {
        let metric = alert["metric"].as_str().unwrap_or_default();
        poll(CALM, || self.alert(agent, metric).map_or(Ok(()), |alert| Err(format!("{} should be calm: {alert:#}", agent.name))));
        poll(
            30,
            || if is_told(agent, "AlertResolved", alert) { Ok(()) } else { Err(format!("an Event should tell of its end: {alert:#}")) },
        );
    }
}

#[test]
fn faults_raise_alerts_that_end_when_they_are_over() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let Some(api) = Api::installed() else { return };
    let team = Team::within(long(), &fresh("faulty"), &json!({}));
    let rule = json!({"type": "max_latency", "operator": "lt", "value": "500"});
    let policy = json!({"name": "Quick", "severity": "warning", "rules": [rule]});
    team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": {"name": "quick"}, "spec": policy}));
    poll(60, || {
        let file = team.get("configmap/slipway-policies")["data"]["policies.json"].clone();
        if file.as_str().is_some_and(|file| file.contains("gp_quick")) { Ok(()) } else { Err(format!("pods should be told of it: {file}")) }
    });
    let gone = team.agent("gone", &json!({}));
    let governed = json!({"modelId": "stub-script", "storage": "postgresql", "governance": {"policies": ["quick"]}});
    let slow = team.agent("slow", &governed);
    gone.ready();
    slow.ready();
    let radar = Radar { api: &api, viewer: team.token("viewer") };

    answers(&slow, "sleep 800\ntext late", SLOW_ANSWERS);
    team.kubectl("create quota none --hard=pods=0").ok();
    team.kubectl("delete pods -l agents.slipway.dev/agent=gone").ok();
    let down = radar.raised(&gone, "minutes_down", DOWN);
    assert_eq!((&down["severity"], &down["threshold"]), (&json!("critical"), &json!(2.0)), "{down:#}");
    assert!(down["value"].as_f64().is_some_and(|minutes| minutes >= 2.0), "{down:#}");
    team.kubectl("delete quota none").ok();
    // The ReplicaSet's controller tries again in its own time; another wish is granted now.
    gone.patch(&json!({"systemPrompt": "back"}));
    gone.ready();

    let late = radar.raised(&slow, "p95_latency_ms", SLOW);
    assert_eq!((&late["severity"], &late["threshold"]), (&json!("warning"), &json!(500.0)), "{late:#}");
    assert!(late["trace_ids"][0].as_str().is_some_and(|trace| trace.starts_with("tr_")), "{late:#}");
    answers(&slow, "text now", QUICK_ANSWERS);
    radar.ended(&gone, &down);
    radar.ended(&slow, &late);
}
