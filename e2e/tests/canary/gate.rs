//! Canaries of an agent with an evaluation gate: they serve nobody before their run has passed, one that fails is rolled back, and one
//! that has passed becomes a release without a second evaluation. Another party's model server judges, and says the same of all answers.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Call, State, Team, fresh, poll};
use slipway_peers::{Server, mock_llm_at, skip};

use super::{ended, events, payload, serves, standing};
use crate::evaluations::dataset;
use crate::evaluations::own_image::OWN_IMAGE;
use crate::releases::gate::stable_pods;
use crate::releases::runs;
use crate::tools::on_the_node;

/// Between these scores lies that of any answer: it is safe, and half to the point.
const REACHED: i32 = 60;
const MISSED: i32 = 90;

#[test]
fn a_gate_lets_a_canary_serve_once_its_run_has_passed() {
    let team = Team::new(&fresh("canary-gate"));
    let Some(_judge) = judge(&team) else { return };
    let folder = tempfile::tempdir().unwrap();
    let _state = State::of(&team, folder.path());
    // Both stubs can answer this.
    dataset(&team, "scripts", &json!([{"input": "text hello"}]));
    let governance = |score: i32| json!({"minQualityScore": score, "riskProfile": "low", "evalDataset": "scripts"});
    let agent = team.agent(
        "helper",
        &json!({"storage": "memory", "systemPrompt": "one", "judgeModel": "openai:/judge", "governance": governance(REACHED)}),
    );
    runs(&agent, 1);
    agent.ready();
    let api = Api::of(&team);
    let chat = api.call("POST", "/agents/helper/chat").json(&json!({"message": "text hello"}));
    let (before, candidates) = (stable_pods(&agent), candidates(&agent));

    // All would go to a canary that asks too much of itself.
    let canary = json!({"enabled": true, "weight": 100, "modelId": "stub-script"});
    let mut strict = canary.clone();
    strict["overrides"] = json!({"governance": governance(MISSED)});
    agent.patch(&json!({"canary": strict}));
    let run = evaluated(&agent, &chat, |now| standing(now).is_null() && now["spec"]["canary"].is_null());
    assert_eq!((&run["status"]["phase"], &run["status"]["passed"]), (&json!("Completed"), &json!(false)), "{run:#}");
    let now = ended(&agent);
    assert_eq!((&now["status"]["activeRelease"], &now["status"]["pendingRelease"]), (&json!(1), &Value::Null), "{now:#}");
    assert_eq!(now["spec"]["governance"]["minQualityScore"], REACHED, "its demands went with it");
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
    let releases = team.kubectl("get agentreleases --field-selector spec.agent=helper").json();
    let second = releases["items"].as_array().into_iter().flatten().find(|release| release["status"]["version"] == 2);
    let evaluation = second.map(|release| release["status"]["evaluation"].clone()).unwrap_or_default();
    assert_eq!((&evaluation["run"], &evaluation["passed"]), (&run["metadata"]["name"], &json!(true)), "{evaluation}");
    assert_eq!(events(&agent, "AgentCanaryPromoted").len(), 1);
}

#[test]
fn a_canary_with_an_image_of_its_own_serves_once_its_run_has_passed() {
    let team = Team::new(&fresh("canary-own-image"));
    let Some(_judge) = judge(&team) else { return };
    let folder = tempfile::tempdir().unwrap();
    let _state = State::of(&team, folder.path());
    dataset(&team, "scripts", &json!([{"input": "text hello"}]));
    let governance = json!({"minQualityScore": REACHED, "riskProfile": "low", "evalDataset": "scripts"});
    let agent = team.agent("helper", &json!({"storage": "memory", "judgeModel": "openai:/judge", "governance": governance}));
    runs(&agent, 1);
    agent.ready();
    let api = Api::of(&team);
    let chat = api.call("POST", "/agents/helper/chat").json(&json!({"message": "text hello"}));
    agent.patch(&json!({"canary": {"enabled": true, "weight": 100, "modelId": "stub-script", "image": OWN_IMAGE}}));
    let run = evaluated(&agent, &chat, |now| standing(now)["weight"] == 100);
    assert_eq!((&run["status"]["phase"], &run["status"]["passed"]), (&json!("Completed"), &json!(true)), "{run:#}");
    serves(&agent, 100);
    answers(&chat, "hello");
}

/// A server whose model judges the answers of the team's agents. None where pods do not reach it.
#[track_caller]
fn judge(team: &Team) -> Option<Server> {
    let Some(address) = on_the_node() else {
        skip("pods reach a server of this test only where the node is this machine");
        return None;
    };
    // The last rule that fits counts. Where an answer can be half as good as it might be, that is offered to the judge.
    let rules: Vec<Value> = [("@", "yes"), ("contains(body.messages[0].content, 'partly')", "partly")]
        .map(|(fits, verdict)| {
            let answer = json!({"verdict": verdict, "reason": "So says the server."}).to_string();
            let choice = json!({"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"});
            let whole = json!({"id": "1", "object": "chat.completion", "model": "judge", "choices": [choice]}).to_string();
            json!({"path": "/v1/chat/completions", "match": fits, "response": {"status": 200, "content": whole}})
        })
        .into();
    let server = mock_llm_at(address, &json!({"streaming": {"chunkSize": 1000, "chunkIntervalMs": 1}, "rules": rules}).to_string());
    team.secret("agent-env", &json!({"OPENAI_BASE_URL": format!("{}/v1", server.url()), "OPENAI_API_KEY": "sk-none"}));
    Some(server)
}

/// Looks on until it is over, while chats are answered by the stable track as long as the canary has no weight, and returns the run
/// that was made of the canary.
#[track_caller]
fn evaluated(agent: &Agent, chat: &Call, is_over: impl Fn(&Value) -> bool) -> Value {
    let mut run = String::new();
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
        if is_over(&now) { Ok(()) } else { Err(format!("the canary's evaluation should come to an end: {canary:#}")) }
    });
    assert!(!run.is_empty(), "the status should say which evaluation decides");
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
