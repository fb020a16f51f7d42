//! The folders of an agent's skills are held as its Tools are.

use serde_json::{Value, json};
use slipway_e2e::{Agent, condition, poll};

use super::{Ground, dataset, gate, runs, stable_pods, waits};

/// What a pod that serves reads of the skill.
fn read(agent: &Agent) -> String {
    agent.chat("call load_skill {\"name\": \"forms\"}\n\ntext {results}")
}

/// The ConfigMap that the pods of the stable track mount for the skill.
fn mounted(agent: &Agent) -> String {
    let deployment = agent.deployment();
    let volumes = deployment["spec"]["template"]["spec"]["volumes"].as_array().unwrap();
    let skills = volumes.iter().find(|volume| volume["name"] == "skills").unwrap_or_else(|| panic!("no skills: {deployment:#}"));
    skills["projected"]["sources"][0]["configMap"]["name"].as_str().unwrap().to_owned()
}

fn skills_changed(agent: &Agent, what: &str) -> Value {
    let said = agent.until(&format!("told that the Skill was {what}"), 90, |found| condition(found, "ToolsAsReleased")["status"] == "True");
    let told = condition(&said, "ToolsAsReleased");
    assert_eq!(
        (&told["reason"], told["message"].as_str().unwrap_or_default().contains("forms")),
        (&json!("SkillsChanged"), true),
        "{told:#}"
    );
    said
}

#[test]
fn an_edited_skill_serves_nobody_until_a_release_with_it_passes() {
    let ground = Ground::gated("gate-skills");
    let skill = |instructions: &str| ground.team.skill("forms", &json!({"instructions": instructions}));
    skill("Ask for the number.");
    // Its model plays what it is asked, and no score of these is 0 or 100.
    let cases = json!([
        {"input": "text Paris is the capital of France", "expectedOutput": "Paris is the capital of France"},
        {"input": "text Paris is large", "expectedOutput": "Paris is the capital of France"},
    ]);
    dataset(&ground.team, "scripted", &cases);
    let mut spec = gate(1);
    spec["governance"]["evalDataset"] = json!("scripted");
    let own = json!({"modelId": "stub-script", "strategy": "agent-react", "skills": ["sk_forms"]});
    spec.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
    let agent = ground.agent("helper", &spec);
    runs(&agent, 1);
    agent.ready();
    let before = stable_pods(&agent);
    assert!(read(&agent).contains("Ask for the number."));
    let (first, held) = (ground.release("helper", 1)["metadata"]["name"].clone(), mounted(&agent));
    assert!(held.starts_with("skill-"), "{held}");
    let kept = ground.team.get(&format!("configmap/{held}"));
    assert_eq!((&kept["immutable"], &kept["metadata"]["ownerReferences"][0]["name"]), (&json!(true), &first), "{kept:#}");
    // Its candidate finds no room, so that it waits, and will be rejected for its score.
    agent.patch(
        &json!({"governance": {"minQualityScore": 100}, "resources": {"requests": {"memory": "900Ti"}, "limits": {"memory": "900Ti"}}}),
    );
    waits(&agent, 2);
    skill("Ask for the password.");
    waits(&agent, 3);
    skills_changed(&agent, "edited");
    assert_eq!((mounted(&agent), stable_pods(&agent)), (held.clone(), before.clone()));
    // A pod that starts now reads what was approved as well.
    ground.team.kubectl("delete pods -l agents.slipway.dev/agent=helper,agents.slipway.dev/track=stable").ok();
    let before = poll(120, || match stable_pods(&agent) {
        now if now.len() == 1 && now != before => Ok(now),
        now => Err(format!("there should be another pod that serves: {now:?}")),
    });
    agent.deployment_until("a pod that is ready", 120, |found| found["status"]["availableReplicas"] == 1);
    assert!(read(&agent).contains("Ask for the number."));
    agent.patch(&json!({"resources": null}));
    poll(180, || match ground.release("helper", 4)["status"]["phase"].as_str() {
        Some("rejected") => Ok(()),
        phase => Err(format!("v4 should be rejected, and is {phase:?}")),
    });
    // The Skill stays as it was edited, so that a release of the old spec with it is next, and passes.
    let (now, version) = (stable_pods(&agent), agent.get()["status"]["activeRelease"].clone());
    if version == 1 {
        assert_eq!(now, before, "what was rejected has touched no pod");
    }
    runs(&agent, 5);
    poll(180, || match mounted(&agent) {
        now if now != held => Ok(()),
        now => Err(format!("pods should mount the folder that has passed, and mount {now}")),
    });
    agent.until("with new pods", 120, |found| condition(found, "Reconciling")["status"] == "False");
    assert!(read(&agent).contains("Ask for the password."));
    // What has gone is there for whom it was approved.
    let now = stable_pods(&agent);
    ground.team.kubectl("delete skill forms").ok();
    let said = skills_changed(&agent, "deleted");
    assert_eq!((condition(&said, "Ready")["status"].as_str(), stable_pods(&agent)), (Some("True"), now));
    assert!(read(&agent).contains("Ask for the password."));
}
