//! The specification's table of canaries, row by row, by REST. Its last two rows, what a progressive-delivery controller makes of the
//! webhook's answers, are in `flagger`.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Api, Team, fresh};

use super::{ended, events, serves};
use crate::releases::gate::stable_pods;

const CHILDREN: [&str; 3] = ["deployment/helper-canary", "service/helper-canary", "configmap/helper-canary-config"];

#[test]
fn the_table_of_the_specification_stands_row_by_row() {
    let team = Team::new(&fresh("canary-table"));
    let api = Api::of(&team);
    let agent = team.agent("helper", &json!({"storage": "memory", "systemPrompt": "one"}));
    let id = agent.ready()["status"]["id"].clone();
    let before = stable_pods(&agent);
    let call = |method: &str, path: &str| api.call(method, &format!("/agents/helper/canary{path}"));
    for (path, prompt, status, event, after) in [
        ("/rollback", "worse", "rolled_back", "AgentCanaryRolledBack", "one"),
        ("/promote", "two", "promoted", "AgentCanaryPromoted", "two"),
    ] {
        let none = call("GET", "").expect(200)["data"].clone();
        assert_eq!((&none["enabled"], &none["config"]), (&json!(false), &json!({})), "{none}");

        let begun = call("POST", "").json(&json!({"config": {"system_prompt": prompt, "weight": 20}})).expect(201)["data"].clone();
        assert_eq!((&begun["enabled"], &begun["config"]["weight"]), (&json!(true), &json!(20)), "{begun}");
        let active = serves(&agent, 20);
        assert_eq!(active["spec"]["canary"], json!({"enabled": true, "weight": 20, "systemPrompt": prompt}));
        is_told_by_kubectl(&agent, 20);
        for child in CHILDREN {
            let found = team.get(child);
            assert_eq!(found["metadata"]["labels"]["version"], "canary", "{child}: {found:#}");
            assert_eq!(found["metadata"]["ownerReferences"][0]["uid"], active["metadata"]["uid"], "{child}: {found:#}");
        }

        assert_eq!(call("POST", path).expect(200), json!({"status": status, "agent_id": id}));
        // Neither spec nor children are left.
        let found = ended(&agent);
        assert_eq!(found["spec"]["systemPrompt"], after, "{found:#}");
        assert_eq!(events(&agent, event).len(), 1, "{event} is emitted once");
        assert_eq!(stable_pods(&agent) == before, prompt != after, "{path} replaces the pods that serve, or leaves them");
        assert_eq!(call("GET", "").expect(200)["data"]["canary_version"], Value::from(""));
    }
}

/// `kubectl describe` tells how the canary began and stands, and the wide columns have its weight and phase.
#[track_caller]
fn is_told_by_kubectl(agent: &Agent, weight: u32) {
    let described = agent.kubectl("describe").ok();
    for words in ["AgentCanaryStarted", "CanaryReady"] {
        assert!(described.contains(words), "{words} should be told: {described}");
    }
    let (_, status) = described.split_once("\nStatus:").unwrap_or_else(|| panic!("there should be a status: {described}"));
    let status = status.split_whitespace().collect::<Vec<_>>().join(" ");
    // The weight that is wanted, and the one that is in force.
    assert_eq!(status.matches(&format!("Weight: {weight} ")).count(), 2, "{described}");
    let table = agent.kubectl("get --output=wide").ok();
    let (header, row) = table.split_once('\n').unwrap_or_else(|| panic!("there should be a row: {table}"));
    let at = header.find("CANARY").unwrap_or_else(|| panic!("there should be a column: {table}"));
    let columns: Vec<_> = row.get(at..).unwrap_or_default().split_whitespace().take(2).collect();
    assert_eq!(columns, [weight.to_string().as_str(), "Serving"], "{table}");
}
