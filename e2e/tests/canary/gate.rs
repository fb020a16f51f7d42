//! Canaries of an agent with an evaluation gate: they serve nobody before their run has passed, one that fails is rolled back, and one
//! that has passed becomes a release without a second evaluation. A comparison of words judges, as in `releases::gate`.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Call, condition, poll};

use super::{ended, events, payload, serves, standing};
use crate::evaluations::dataset;
use crate::releases::gate::stable_pods;
use crate::releases::{Ground, runs};

#[test]
fn a_gate_lets_a_canary_serve_once_its_run_has_passed() {
    let ground = Ground::gated("canary-gate");
    // Both stubs can answer this, and neither as expected to the word.
    dataset(&ground.team, "scripts", &json!([{"input": "text hello", "expectedOutput": "good day to you"}]));
    let governance = |score: i32| json!({"minQualityScore": score, "riskProfile": "low", "evalDataset": "scripts"});
    let agent = ground.agent("helper", &json!({"replicas": 1, "systemPrompt": "one", "governance": governance(1)}));
    runs(&agent, 1);
    agent.ready();
    let api = Api::of(&ground.team);
    let chat = api.call("POST", "/agents/helper/chat").json(&json!({"message": "text hello"}));
    let (before, candidates) = (stable_pods(&agent), candidates(&agent));

    // All would go to a canary that asks too much of itself.
    let canary = json!({"enabled": true, "weight": 100, "modelId": "stub-script"});
    let mut strict = canary.clone();
    strict["overrides"] = json!({"governance": governance(100)});
    agent.patch(&json!({"canary": strict}));
    let run = evaluated(&agent, &chat, |now| standing(now).is_null() && now["spec"]["canary"].is_null());
    assert_eq!((&run["status"]["phase"], &run["status"]["passed"]), (&json!("Completed"), &json!(false)), "{run:#}");
    let now = ended(&agent);
    assert_eq!((&now["status"]["activeRelease"], &now["status"]["pendingRelease"]), (&json!(1), &Value::Null), "{now:#}");
    assert_eq!(now["spec"]["governance"]["minQualityScore"], 1, "its demands went with it");
    assert_eq!(stable_pods(&agent), before, "the pods that serve were never touched");
    let told = events(&agent, "AgentCanaryRolledBack");
    assert_eq!((told.len(), &told[0]["type"]), (1, &json!("Warning")), "{told:#?}");
    assert!(payload(&told[0])["why"].as_str().is_some_and(|why| why.contains("FAILED")), "{told:#?}");

    // One that passes has them all, but not before.
    agent.patch(&json!({"canary": canary}));
    let run = evaluated(&agent, &chat, |now| standing(now)["weight"] == 100);
    assert_eq!((&run["status"]["phase"], &run["status"]["passed"]), (&json!("Completed"), &json!(true)), "{run:#}");
    serves(&agent, 100);
    answers(&chat, "hello");

    // What it ran is a release, which nobody evaluates again.
    agent.kubectl("annotate").arg("agents.slipway.dev/canary-action=promote").ok();
    let promoted = agent.until("at v2", 90, |now| now["status"]["activeRelease"] == 2);
    assert_eq!(promoted["spec"]["modelId"], "stub-script", "{promoted:#}");
    ended(&agent);
    answers(&chat, "hello");
    assert_eq!(self::candidates(&agent), candidates, "no pod of a candidate was made");
    let evaluation = ground.release("helper", 2)["status"]["evaluation"].clone();
    assert_eq!((&evaluation["run"], &evaluation["passed"]), (&run["metadata"]["name"], &json!(true)), "{evaluation}");
    assert_eq!(events(&agent, "AgentCanaryPromoted").len(), 1);
}

/// Looks on until it is over, while chats are answered by the stable track as long as the canary has no weight, and returns the run
/// that was made of the canary.
#[track_caller]
fn evaluated(agent: &Agent, chat: &Call, is_over: impl Fn(&Value) -> bool) -> Value {
    let (mut run, mut has_waited) = (String::new(), false);
    poll(180, || {
        let reply = chat.send();
        let now = agent.get();
        let canary = standing(&now);
        assert_eq!(reply.status, 200, "{reply:?}");
        // It had none before either, as it only rises.
        if canary["weight"].as_i64().unwrap_or(0) == 0 {
            assert_eq!(reply.json()["data"]["output"], "Echo: text hello", "a canary answers that has not passed: {now:#}");
        }
        if let Some(name) = canary["evaluation"].as_str() {
            name.clone_into(&mut run);
        }
        has_waited |= condition(&now, "CanaryReady")["reason"] == "AwaitingEvaluation";
        if is_over(&now) { Ok(()) } else { Err(format!("the canary's evaluation should come to an end: {canary:#}")) }
    });
    assert!(has_waited && !run.is_empty(), "the status should say that an evaluation is waited for, and which");
    let run = agent.team.get(&format!("evaluationrun/{run}"));
    assert_eq!((&run["spec"]["track"], &run["spec"]["agent"]), (&json!("canary"), &json!(agent.name)), "{run:#}");
    assert_eq!(run["metadata"]["ownerReferences"][0]["kind"], "Agent", "{run:#}");
    run
}

/// Waits until chats are answered so.
#[track_caller]
fn answers(chat: &Call, expected: &str) {
    poll(20, || {
        let reply = chat.send();
        let is_so = reply.status == 200 && reply.json()["data"]["output"] == expected;
        if is_so { Ok(()) } else { Err(format!("{expected:?} should be answered: {reply:?}")) }
    });
}

/// How often pods were made for a candidate.
#[track_caller]
fn candidates(agent: &Agent) -> usize {
    let line = format!("get events --field-selector involvedObject.name={}-candidate,reason=ScalingReplicaSet", agent.name);
    let list = agent.team.kubectl(line).json();
    let is_up = |event: &&Value| event["message"].as_str().unwrap_or_default().contains(" up ");
    list["items"].as_array().into_iter().flatten().filter(is_up).count()
}
