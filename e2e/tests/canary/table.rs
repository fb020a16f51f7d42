//! The specification's table of canaries, row by row, by REST. Its last two rows, what a progressive-delivery controller makes of the
//! webhook's answers, are in `flagger`.

use serde_json::{Value, json};
use slipway_e2e::{Api, Team, fresh};

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
