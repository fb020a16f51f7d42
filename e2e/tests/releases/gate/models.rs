//! The server of an agent's models is held as its Tools are.

use serde_json::{Value, json};
use slipway_e2e::platform::on_the_node;
use slipway_e2e::{condition, poll};
use slipway_peers::{mock_llm_at, skip};

use super::{Ground, gate, runs, stable_pods, waits};

/// The server that the pods of a workload are told.
fn server(ground: &Ground, workload: &str) -> String {
    let found = ground.team.kubectl(format!("get configmaps --field-selector metadata.name={workload}-config")).json();
    found["items"][0]["data"]["RUNTIME_MODEL_BASE_URL"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn another_server_of_its_models_serves_nobody_until_a_release_with_it_has_passed() {
    let (Some(one), Some(two)) = (on_the_node(), on_the_node()) else {
        skip("pods reach a server of this test only where the node is this machine");
        return;
    };
    // What it answers by itself repeats the question, and is no JSON where that has quotation marks.
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": "Fine."}, "finish_reason": "stop"});
    let whole = json!({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).to_string();
    let rule = json!({"path": "/v1/chat/completions", "match": "@", "response": {"status": 200, "content": whole}});
    let rules = json!({"streaming": {"chunkSize": 1000, "chunkIntervalMs": 1}, "rules": [rule]}).to_string();
    let (first, second) = (mock_llm_at(one, &rules), mock_llm_at(two, &rules));
    let [first, second] = [&first, &second].map(|server| format!("{}/v1", server.url()));
    let ground = Ground::gated("gate-models");
    let name_server = |url: &str| {
        ground.team.apply(&json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "metadata": {"name": "llm"},
            "spec": {"name": "LLM", "openai": {"baseUrl": url}},
        }));
    };
    name_server(&first);
    let mut spec = gate(1);
    let models = json!({"modelType": "openai", "modelId": "m", "modelIntegration": "in_llm"});
    spec.as_object_mut().unwrap().extend(models.as_object().unwrap().clone());
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    let release = ground.release("helper", 1)["metadata"]["name"].as_str().unwrap().to_owned();
    let kept = ground.team.get(&format!("configmap/{release}-tools"));
    let kept: Value = serde_json::from_str(kept["data"]["in_llm"].as_str().unwrap_or_default()).unwrap();
    assert_eq!(kept, json!({"baseUrl": first}));
    // Its candidate finds no room, so that it waits.
    agent.patch(&json!({"resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}));
    waits(&agent, 2);
    name_server(&second);
    waits(&agent, 3);
    poll(180, || match server(&ground, "helper-candidate") {
        found if found == second => Ok(()),
        found => Err(format!("the candidate should ask the other server, and asks {found}")),
    });
    let said = agent.until("told of the server", 90, |found| condition(found, "ToolsAsReleased")["status"] == "True");
    assert_eq!(condition(&said, "ToolsAsReleased")["reason"], "IntegrationChanged", "{said:#}");
    assert_eq!((server(&ground, "helper"), stable_pods(&agent)), (first, before.clone()));
    agent.patch(&json!({"resources": null}));
    runs(&agent, 4);
    poll(180, || match server(&ground, "helper") {
        found if found == second => Ok(()),
        found => Err(format!("the server that has passed should be asked, and {found} is")),
    });
    agent.until("with new pods", 120, |found| condition(found, "Reconciling")["status"] == "False");
    assert_ne!(stable_pods(&agent), before);
}
