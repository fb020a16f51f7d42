//! Steps 26 and 27: the other team has an agent by REST alone: from its creation to a canary that is promoted.

use serde_json::{Value, json};
use slipway_e2e::condition;

use crate::history::releases;
use crate::outside::secret;
use crate::stage::{BROKER, Stage, until};

#[track_caller]
fn shown(stage: &Stage, path: &str) -> Value {
    stage.get("bob", "depot", &format!("/agents/{BROKER}{path}"))
}

pub(crate) fn the_other_team(stage: &mut Stage) {
    stage.play("The other team");
    let secret = secret(stage, "depot-hook.json");
    stage.facts.insert("secret of depot", json!(secret));
    let agent = shown(stage, "");
    assert_eq!((&agent["status"], &agent["active_release"]), (&json!("deployed"), &json!(1)), "{agent:#}");
    let config = &agent["config"];
    assert_eq!((&config["model_integration"], &config["governance"]["policies"]), (&json!("llm"), &json!(["cap"])), "{config:#}");
    // What the integration gives is in variables of its own, and the key in no ConfigMap.
    assert!(!stage.broker().config().to_string().contains(crate::model::KEY));
    assert_eq!(stage.get("bob", "depot", "/agents").as_array().map(Vec::len), Some(1));
    assert_eq!(stage.call("bob", "harbor", "GET", "/agents/harbor-guide").send().status, 403);
}

pub(crate) fn a_days_work(stage: &mut Stage) {
    let path = format!("/agents/{BROKER}/events");
    stage.play("A day's work");
    // What has happened is told from its beginning, and from where a listener has left.
    let mut events = stage.call("bob", "depot", "GET", &path).stream();
    let heard: Vec<_> = (0..3).filter_map(|_| events.event(20)).collect();
    assert_eq!(heard.len(), 3, "an agent that was deployed has events");
    let mut resumed = stage.call("bob", "depot", "GET", &path).header("Last-Event-ID", heard[0].id.clone()).stream();
    let next: Vec<_> = (0..2).filter_map(|_| resumed.event(20)).map(|event| event.id).collect();
    assert_eq!(next, [heard[1].id.clone(), heard[2].id.clone()], "a listener that comes back misses nothing");
    until("it is deployed with its skill", 90, || {
        let agent = shown(stage, "");
        if agent["status"] == "deployed" && agent["config"]["skills"] == json!(["selling"]) { Ok(()) } else { Err(agent) }
    });
    until("skills are a release", 90, || {
        let found = releases(stage, "depot", "bob", BROKER);
        if found == [(1, "archived".to_owned()), (2, "active".to_owned())] { Ok(()) } else { Err(json!(found)) }
    });
    stage.broker().ready();
}

pub(crate) fn its_canaries(stage: &mut Stage) {
    stage.play("Its canaries");
    let found =
        stage.broker().until("without a canary", 120, |found| found["status"]["canary"].is_null() && found["spec"]["canary"].is_null());
    assert_eq!((&found["spec"]["systemPrompt"], &condition(&found, "Ready")["status"]), (&json!("Be quick."), &json!("True")), "{found:#}");
    until("the promoted canary is a release", 90, || {
        let found = releases(stage, "depot", "bob", BROKER);
        if found.last() == Some(&(3, "active".to_owned())) { Ok(()) } else { Err(json!(found)) }
    });
    let list = stage.depot.kubectl("get events.events.k8s.io").json();
    let count = |reason: &str| list["items"].as_array().into_iter().flatten().filter(|event| event["reason"] == reason).count();
    assert_eq!(["AgentCanaryStarted", "AgentCanaryRolledBack", "AgentCanaryPromoted"].map(count), [2, 1, 1], "each is told once");
    let left = stage.depot.kubectl(format!("get deployment/{BROKER}-canary service/{BROKER}-canary --ignore-not-found -o name")).ok();
    assert_eq!(left, "", "nothing is left of a canary");
}
