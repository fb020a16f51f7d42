//! Releases that are deployed again.

use serde_json::{Value, json};
use slipway_e2e::{condition, poll};

use super::{Ground, deploy, runs};

#[test]
fn everything_comes_back_and_no_version_is_made() {
    let ground = Ground::new("releases-back");
    ground.team.tool("lookup", &json!({"type": "builtin", "description": "one"}));
    let agent = ground.agent("helper", &json!({"tools": ["lookup"], "systemPrompt": "one", "replicas": 0}));
    runs(&agent, 1);
    agent.patch(&json!({"tools": null, "systemPrompt": null, "replicas": 1}));
    runs(&agent, 2);
    for at in 3..=5 {
        agent.patch(&json!({"systemPrompt": format!("p{at}")}));
        runs(&agent, at);
    }
    deploy(&agent, 3);
    let now = runs(&agent, 3);
    assert_eq!(now["spec"]["systemPrompt"], "p3");
    ground.stays("helper", 5);
    deploy(&agent, 1);
    let now = runs(&agent, 1);
    assert_eq!(
        (&now["spec"]["tools"], &now["spec"]["systemPrompt"], &now["spec"]["replicas"]),
        (&json!(["lookup"]), &json!("one"), &json!(0))
    );
    deploy(&agent, 2);
    let now = runs(&agent, 2);
    assert_eq!(
        (now["spec"]["tools"].as_array().map_or(0, Vec::len), &now["spec"]["systemPrompt"], &now["spec"]["replicas"]),
        (0, &Value::Null, &json!(1))
    );
    ground.stays("helper", 5);
    let told = ground.team.kubectl("describe agent helper").ok();
    assert!(told.contains("ReleaseDeployed") && told.contains("release v3 was deployed again, by manager:kubectl-annotate"), "{told}");
    let manager = now["metadata"]["managedFields"].as_array().map_or(0, Vec::len);
    assert!(manager == 0 || now.to_string().contains("slipway-release"), "the rollback is under the controller's own name");
}

#[test]
fn a_tool_edited_since_is_said_and_runs_as_it_is() {
    let ground = Ground::new("releases-edited");
    ground.team.tool("lookup", &json!({"type": "builtin", "description": "one"}));
    let agent = ground.agent("helper", &json!({"tools": ["lookup"]}));
    runs(&agent, 1);
    ground.team.tool("lookup", &json!({"type": "builtin", "description": "two"}));
    runs(&agent, 2);
    deploy(&agent, 1);
    runs(&agent, 1);
    ground.stays("helper", 2);
    let reason = ground.history("helper")[1]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason.contains("edited since: tools/lookup="), "{reason}");
    let list = ground.team.kubectl("get agentreleases").json();
    let first = list["items"].as_array().unwrap().iter().find(|release| release["status"]["version"] == 1).cloned().unwrap();
    let message = condition(&first, "Ready")["message"].as_str().unwrap_or_default().to_owned();
    assert!(message.contains("tool lookup"), "{message}");
    ground.team.tool("lookup", &json!({"type": "builtin", "description": "three"}));
    runs(&agent, 3);
}

#[test]
fn what_cannot_be_deployed_is_refused_and_changes_nothing() {
    let ground = Ground::new("releases-refused");
    let agent = ground.agent("helper", &json!({"systemPrompt": "one"}));
    let before = runs(&agent, 1)["spec"].clone();
    for asked in ["7", "x"] {
        agent.kubectl("annotate").arg(format!("agents.slipway.dev/deploy-release={asked}")).ok();
        let now = runs(&agent, 1);
        assert_eq!(now["spec"], before);
    }
    let told = poll(20, || {
        let told = ground.team.kubectl("describe agent helper").ok();
        if told.contains("release 7 is not deployed") && told.contains("release x is not deployed") { Ok(told) } else { Err(told) }
    });
    assert!(told.contains("ReleaseRefused"), "{told}");
}

#[test]
fn an_agent_that_gitops_owns_is_pinned_until_its_content_changes() {
    let ground = Ground::new("releases-pinned");
    let manifest = |prompt: &str| {
        json!({
            "apiVersion": "agents.slipway.dev/v1", "kind": "Agent",
            "metadata": {"name": "helper", "labels": {"kustomize.toolkit.fluxcd.io/name": "bots", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"}},
            "spec": {"name": "H", "framework": "custom", "storage": "memory", "systemPrompt": prompt},
        })
    };
    let apply =
        |prompt: &str| ground.team.kubectl("apply --server-side --field-manager=kustomize-controller -f -").input(manifest(prompt)).ok();
    apply("one");
    let agent = slipway_e2e::Agent { team: &ground.team, name: "helper".to_owned() };
    runs(&agent, 1);
    apply("two");
    let generation = runs(&agent, 2)["metadata"]["generation"].clone();
    deploy(&agent, 1);
    let now = runs(&agent, 1);
    assert_eq!((condition(&now, "Pinned")["status"].as_str(), &now["spec"]["systemPrompt"]), (Some("True"), &json!("two")));
    assert_eq!(now["metadata"]["generation"], generation, "the spec is left alone");
    poll(30, || match agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"].clone() {
        prompt if prompt == "one" => Ok(()),
        prompt => Err(format!("what runs should be v1, and its prompt is {prompt}")),
    });
    // The tool applies what it has, again and again.
    apply("two");
    ground.stays("helper", 2);
    assert_eq!(agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"], "one");
    apply("three");
    let now = runs(&agent, 3);
    assert!(condition(&now, "Pinned").is_null() && now["status"]["pinnedContent"].is_null());
    poll(30, || match agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"].clone() {
        prompt if prompt == "three" => Ok(()),
        prompt => Err(format!("what runs should be v3, and its prompt is {prompt}")),
    });
}
