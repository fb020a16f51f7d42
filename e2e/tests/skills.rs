//! Skills: their phase, their folder, and how they and their changes reach the agents that name them.

use serde_json::{Value, json};
use slipway_e2e::{Team, condition, until};

fn phase(team: &Team, name: &str, wanted: &str) -> Value {
    until(&format!("skills -n {} --field-selector metadata.name={name}", team.namespace), 10, |skills| {
        let found = skills
            .iter()
            .find(|skill| skill["status"]["phase"] == wanted && skill["status"]["observedGeneration"] == skill["metadata"]["generation"]);
        found.cloned().ok_or(format!("skill {name} should be {wanted}"))
    })
}

#[test]
fn their_folder_reaches_the_pod() {
    let team = Team::new("skills");
    team.skill(
        "fill-forms",
        &json!({"name": "forms", "instructions": "Read references/a_b.md.", "files": {"references/a_b.md": "# Fields\n"}}),
    );
    team.skill("brief", &json!({}));
    let agent = team.agent("hello", &json!({"skills": ["sk_fill_forms", "brief"]}));
    agent.ready();
    let text = agent.config()["data"]["RUNTIME_SKILLS"].as_str().unwrap().to_owned();
    let told: Value = serde_json::from_str(&text).unwrap();
    let names: Vec<_> = told.as_array().unwrap().iter().map(|skill| (skill["name"].clone(), skill["path"].clone())).collect();
    let at = |name: &str| (json!(name), json!(format!("/var/run/slipway/skills/{name}")));
    assert_eq!(names, [at("forms"), at("brief")]);
    assert_eq!(told[0]["digest"], phase(&team, "fill-forms", "Available")["status"]["digest"]);

    let config = team.get("configmap/fill-forms-skill");
    assert_eq!(config["metadata"]["ownerReferences"][0]["kind"], "Skill");
    let pod = &agent.deployment()["spec"]["template"]["spec"];
    let volume = pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == "skills").unwrap();
    let items = volume["projected"]["sources"][0]["configMap"]["items"].as_array().unwrap().clone();
    for item in items {
        let path = item["path"].as_str().unwrap();
        let content = config["data"][item["key"].as_str().unwrap()].as_str().unwrap_or_else(|| panic!("no key for {path}: {config:#}"));
        match path {
            "forms/SKILL.md" => assert!(content.starts_with("---\nname: forms\n") && content.ends_with("Read references/a_b.md.")),
            "forms/references/a_b.md" => assert_eq!(content, "# Fields\n"),
            other => panic!("{other} should not be there"),
        }
    }
    let mount = pod["containers"][0]["volumeMounts"].as_array().unwrap().iter().find(|mount| mount["name"] == "skills").unwrap();
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!("/var/run/slipway/skills"), &json!(true)));
}

#[test]
fn changes_reach_the_agents_that_name_them() {
    let team = Team::new("skillchange");
    team.skill("one", &json!({}));
    let agent = team.agent("hello", &json!({"skills": ["one"]}));
    let other = team.agent("other", &json!({"suspend": true}));
    agent.ready();
    other.until("suspended", 20, |agent| condition(agent, "Ready")["reason"] == "Suspended");
    let untouched = other.deployment()["metadata"]["generation"].clone();
    let hash = |deployment: &Value| deployment["spec"]["template"]["metadata"]["annotations"]["agents.slipway.dev/config-hash"].clone();
    let before = agent.deployment();
    team.kubectl("patch skill one --type=merge -p").arg(json!({"spec": {"instructions": "Do it well."}})).ok();
    let after = agent.deployment_until("another config-hash", 10, |deployment| hash(deployment) != hash(&before));
    let generations = [&before, &after].map(|deployment| deployment["metadata"]["generation"].as_u64().unwrap());
    assert_eq!(generations[1], generations[0] + 1, "one change, one rollout");
    assert!(team.get("configmap/one-skill")["data"]["SKILL.md"].as_str().unwrap().ends_with("Do it well."));
    assert_eq!(other.deployment()["metadata"]["generation"], untouched);
    agent.ready();

    // One that cannot be used stalls its agents, and stops nothing that runs.
    team.kubectl("patch skill one --type=merge -p").arg(json!({"spec": {"files": {"a": "x", "a/b": "y"}}})).ok();
    let skill = phase(&team, "one", "Error");
    assert!(condition(&skill, "Ready")["message"].as_str().unwrap().contains("a is a file and a folder at once"), "{skill:#}");
    let message = agent.stalled(&["SkillInvalid"], 10);
    assert!(message.contains("spec.skills[0]") && message.contains("a is a file and a folder at once"), "{message}");
    assert_eq!(agent.get()["status"]["phase"], "Running");
    assert_eq!(agent.chat("still here"), "Echo: still here");
    team.kubectl("patch skill one --type=merge -p").arg(json!({"spec": {"files": null}})).ok();
    agent.ready();

    team.kubectl("delete skill one").ok();
    agent.stalled(&["SkillNotFound"], 10);
    team.skill("one", &json!({}));
    agent.ready();
}

#[test]
fn their_folder_is_put_back_and_never_taken_over() {
    let team = Team::new("skilldrift");
    team.apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "taken-skill"}, "data": {"theirs": "1"}}));
    team.skill("taken", &json!({}));
    let skill = phase(&team, "taken", "Error");
    assert_eq!(condition(&skill, "Ready")["reason"], "NameTaken");
    assert_eq!(team.get("configmap/taken-skill")["data"], json!({"theirs": "1"}));

    team.skill("mine", &json!({}));
    phase(&team, "mine", "Available");
    let before = team.get("configmap/mine-skill")["data"].clone();
    let restored = |after: &str| {
        until(&format!("configmaps -n {} --field-selector metadata.name=mine-skill", team.namespace), 10, |objects| {
            let now = objects.first().map(|config| config["data"].clone());
            if now.as_ref() == Some(&before) { Ok(()) } else { Err(format!("the folder should be back {after}: {now:?}")) }
        });
    };
    team.kubectl("patch configmap mine-skill --type=merge -p").arg(json!({"data": {"SKILL.md": "do harm", "more": "x"}})).ok();
    restored("after a change");
    team.kubectl("delete configmap mine-skill").ok();
    restored("after being deleted");
    team.kubectl("delete skill mine").ok();
    team.kubectl("wait configmap/mine-skill --for=delete --timeout=30s").ok();
}
