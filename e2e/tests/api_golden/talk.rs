//! Talking to an agent, what it remembers, and its figures.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, Sent, Team, poll};

#[test]
fn talking_answers_as_written_down() {
    let team = Team::new("golden-talk");
    let suggestions = json!(["What else?"]).to_string();
    let spec = json!({"modelId": "stub-echo", "storage": "memory", "suggestionsProvider": "static", "suggestions": suggestions});
    team.agent("helper", &spec).ready();
    let api = Api::of(&team);
    let call = |method: &str, path: &str| api.call(method, &format!("/agents/helper{path}"));
    let mut golden = Golden::of("api_golden/talk.json").hiding(&["relevance"]);
    // A Service may need a moment after its pod is ready.
    let status = poll(20, || {
        let reply = call("GET", "/memory/status").send();
        if reply.status == 200 { Ok(reply) } else { Err(format!("the agent should answer: {reply:?}")) }
    });
    golden.keep("GET /agents/{id}/memory/status", &status);

    let tea = json!({"content": "Ada likes green tea", "category": "preference", "source": "Ada"});
    let kept = call("POST", "/memory").json(&tea).send();
    golden.keep("POST /agents/{id}/memory", &kept);
    golden.keep("GET /agents/{id}/memory", &call("GET", "/memory").send());
    golden.keep("POST /agents/{id}/memory/search", &call("POST", "/memory/search").json(&json!({"query": "green tea"})).send());
    let memory = kept.json()["data"]["id"].as_str().unwrap_or_default().to_owned();
    golden.keep("DELETE /agents/{id}/memory/{mid}", &call("DELETE", &format!("/memory/{memory}")).send());
    assert_eq!(call("GET", "/memory").expect(200)["data"], json!([]), "it is forgotten");

    let said = call("POST", "/chat").json(&json!({"message": "Hello!"})).send();
    golden.keep("POST /agents/{id}/chat", &said);
    let id = said.json()["data"]["conversation_id"].as_str().unwrap_or_default().to_owned();
    let conversation = |rest: &str| call("GET", &format!("/conversations/{id}{rest}"));
    golden.keep("GET /agents/{id}/conversations/{cid}", &conversation("").send());
    let mut stream = call("POST", "/chat/stream").json(&json!({"message": "Hello again!", "conversation_id": id})).stream();
    let events: Vec<Sent> = std::iter::from_fn(|| stream.event(20)).collect();
    golden.keep_events("POST /agents/{id}/chat/stream", stream.status, &events);
    golden.keep("GET /agents/{id}/conversations", &call("GET", "/conversations").send());
    golden.keep("GET /agents/{id}/conversations/{cid}/status", &conversation("/status").send());
    golden.keep("GET /agents/{id}/suggestions", &call("GET", &format!("/suggestions?conversation_id={id}")).send());
    golden.keep("DELETE /agents/{id}/conversations/{cid}", &call("DELETE", &format!("/conversations/{id}")).send());
    conversation("").expect(404);
    assert_eq!(call("GET", "/conversations").expect(200)["data"], json!([]), "nothing is left of it");
    golden.compare();
}

/// Of all that is told of an agent that comes up, what the operator says of it each time.
#[test]
fn events_are_told_as_written_down() {
    let team = Team::new("golden-events");
    team.agent("helper", &json!({"storage": "memory"})).ready();
    let mut stream = Api::of(&team).call("GET", "/agents/helper/events").stream();
    let mut expected = vec!["DeploymentReady", "Created"];
    let mut events = Vec::new();
    while let Some(reason) = expected.last() {
        let sent = stream.event(20).unwrap();
        let data: Value = serde_json::from_str(&sent.data).unwrap();
        if data["reason"] == *reason && data["object"]["kind"] == "Agent" {
            expected.pop();
            events.push(sent);
        }
    }
    let mut golden = Golden::of("api_golden/events.json");
    golden.keep_events("GET /agents/{id}/events", stream.status, &events);
    golden.compare();
}
