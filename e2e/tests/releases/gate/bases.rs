//! What an agent's knowledge bases say of themselves is held as its Tools are.

use serde_json::{Value, json};
use slipway_e2e::{condition, platform, poll};
use slipway_peers::skip;

use super::{Ground, gate, runs, stable_pods, waits};

/// What the pods of a workload are told of the knowledge base.
fn described(ground: &Ground, workload: &str) -> String {
    let found = ground.team.kubectl(format!("get configmaps --field-selector metadata.name={workload}-config")).json();
    let bases: Value = serde_json::from_str(found["items"][0]["data"]["RUNTIME_KNOWLEDGE_BASES"].as_str().unwrap_or("[]")).unwrap();
    bases[0]["description"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_edited_knowledge_base_serves_nobody_before_a_release_passes() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let ground = Ground::gated("gate-bases");
    let describe = |description: &str| {
        ground.team.apply(&json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "KnowledgeBase", "metadata": {"name": "docs"},
            "spec": {"name": "Docs", "description": description},
        }));
    };
    describe("one");
    let mut spec = gate(1);
    spec["knowledgeBases"] = json!(["docs"]);
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    assert_eq!((described(&ground, "helper"), before.len()), ("one".to_owned(), 1));
    let release = ground.release("helper", 1)["metadata"]["name"].as_str().unwrap().to_owned();
    let kept = ground.team.get(&format!("configmap/{release}-tools"));
    let kept: Value = serde_json::from_str(kept["data"]["kb_docs"].as_str().unwrap_or_default()).unwrap();
    assert_eq!(kept["description"], "one", "{kept:#}");
    // Its candidate finds no room, so that it waits, and will be rejected for its score.
    agent.patch(
        &json!({"governance": {"minQualityScore": 100}, "resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}),
    );
    waits(&agent, 2);
    describe("two");
    waits(&agent, 3);
    poll(180, || match described(&ground, "helper-candidate") {
        found if found == "two" => Ok(()),
        found => Err(format!("the candidate should have the edited KnowledgeBase, and has {found}")),
    });
    let said = agent.until("told of the KnowledgeBase", 90, |found| condition(found, "ToolsAsReleased")["status"] == "True");
    assert_eq!(condition(&said, "ToolsAsReleased")["reason"], "KnowledgeBasesChanged", "{said:#}");
    assert_eq!((described(&ground, "helper"), stable_pods(&agent)), ("one".to_owned(), before.clone()));
    agent.patch(&json!({"resources": null}));
    poll(180, || match ground.release("helper", 4)["status"]["phase"].as_str() {
        Some("rejected") => Ok(()),
        phase => Err(format!("v4 should be rejected, and is {phase:?}")),
    });
    // A release of the old spec with the edited KnowledgeBase is next, and may have passed by now.
    let now = (described(&ground, "helper"), stable_pods(&agent));
    if agent.get()["status"]["activeRelease"] == 1 {
        assert_eq!(now, ("one".to_owned(), before), "what was rejected has touched no pod");
    }
}
