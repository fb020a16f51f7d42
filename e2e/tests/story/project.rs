//! Steps 8 to 10: a project of `POST /scaffold`, its repository, which a GitOps controller follows, and the agent that comes of it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use slipway_e2e::gitops::AGENT;
use slipway_e2e::kubectl;

use crate::follower::Follower;
use crate::stage::{GUIDE, Stage};
use crate::sums::{agent_id, sha256};

/// What the project has, as docs/scaffold.md tells.
const FILES: [&str; 16] = [
    "README.md",
    "Containerfile",
    "agent.py",
    "slipway_contract.py",
    "project.json",
    "requirements.txt",
    "tests/test_agent.py",
    "tests/test_contract.py",
    "build.sh",
    "ci.sh",
    ".github/workflows/ci.yaml",
    "deploy/base/agent.yaml",
    "deploy/base/tool-tide.yaml",
    "deploy/base/dataset.yaml",
    "deploy/base/policy.yaml",
    "deploy/evaluation/run.yaml",
];

pub(crate) fn a_project(stage: &mut Stage) {
    stage.play("A project");
    let wanted: Value = serde_json::from_str(&stage.file("wanted.json")).unwrap();
    let again = stage.call("dev", "harbor", "POST", "/scaffold").json(&wanted).send();
    assert_eq!(again.header("content-type"), "application/zip");
    assert_eq!(fs::read(stage.path("harbor-guide.zip")).unwrap(), again.bytes, "the same request is the same bytes");
    let project = stage.path(GUIDE);
    for file in FILES {
        assert!(project.join(file).is_file(), "the project should have {file}");
    }
    assert_eq!(stage.call("vic", "harbor", "POST", "/scaffold").json(&wanted).send().status, 403, "viewers make no agents");
    assert_eq!(kubectl("get agents -n team-harbor -o name").ok(), "", "nothing was made in the cluster");
}

pub(crate) fn its_repository(stage: &mut Stage) {
    stage.play("Its repository");
    let follower = Follower::of(&stage.path("desk.git"), stage.path("clone"), "team-harbor");
    stage.follower = Some(follower);
    stage.play("It runs");
    let (agent, name) = (stage.guide(), GUIDE);
    let found = agent.get();
    let (id, uid) = (agent_id("team-harbor", name), found["metadata"]["uid"].clone());
    assert_eq!((&found["status"]["id"], &found["status"]["phase"]), (&json!(id), &json!("Running")), "{:#}", found["status"]);

    // The variables of the specification, and the hash of all.
    let data = agent.config()["data"].clone();
    let spec = &found["spec"];
    for (variable, expected) in [
        ("RUNTIME_CHANNEL", "rest"),
        ("RUNTIME_STRATEGY", "agent-react"),
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "guide"),
        ("RUNTIME_BACKGROUND_MODEL", "stub:stub-echo"),
        ("RUNTIME_SYSTEM_PROMPT", spec["systemPrompt"].as_str().unwrap_or_default()),
        ("RUNTIME_STORAGE", "postgresql"),
    ] {
        assert_eq!(data[variable], expected, "{variable}");
    }
    let tools: Value = serde_json::from_str(data["RUNTIME_TOOLS"].as_str().unwrap_or_default()).unwrap();
    let mut names: Vec<&str> = tools.as_array().into_iter().flatten().filter_map(|tool| tool["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!((names, &data["RUNTIME_KNOWLEDGE_BASES"]), (vec!["calculator", "tide"], &Value::Null));
    let deployment = agent.deployment();
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"]["agents.slipway.dev/config-hash"], sha256(&data.to_string()));

    let container = &template["spec"]["containers"][0];
    let probe = |name: &str, field: &str| container[name][field].clone();
    assert_eq!((probe("livenessProbe", "initialDelaySeconds"), probe("livenessProbe", "periodSeconds")), (json!(5), json!(10)));
    assert_eq!((probe("readinessProbe", "initialDelaySeconds"), probe("readinessProbe", "periodSeconds")), (json!(3), json!(5)));
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    for label in ["app.kubernetes.io/name", "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by", "agents.slipway.dev/agent"] {
        assert!(deployment["metadata"]["labels"][label].is_string(), "{label}: {:#}", deployment["metadata"]["labels"]);
    }
    let service = agent.service();
    let ports: Vec<&Value> = service["spec"]["ports"].as_array().into_iter().flatten().map(|port| &port["port"]).collect();
    assert!(ports.contains(&&json!(8000)), "{ports:?}");
    for child in [&deployment, &service, &agent.config()] {
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], uid, "{:#}", child["metadata"]);
    }
    stays(stage);
    shown(stage, &id);
}

/// Round after round the engine finds all as it has written it.
#[track_caller]
fn stays(stage: &Stage) {
    let Some(Follower { controller, .. }) = &stage.follower else { return };
    controller.round();
    let last = controller.rounds().pop().unwrap_or_default();
    assert!(!last.is_empty() && last.iter().all(|line| line.ends_with(" unchanged")), "{last:#?}\n{}", controller.faults());
    assert_eq!(controller.faults(), "");
}

/// REST shows the agent to whom it is theirs, and leaves its spec to the repository.
#[track_caller]
fn shown(stage: &Stage, id: &str) {
    let list = stage.get("vic", "harbor", "/agents");
    let slugs: Vec<&Value> = list.as_array().into_iter().flatten().map(|agent| &agent["slug"]).collect();
    assert_eq!(slugs, [&json!(GUIDE)], "{list:#}");
    let one = stage.get("vic", "harbor", &format!("/agents/{id}"));
    assert_eq!((&one["slug"], &one["status"], &one["framework"]), (&json!(GUIDE), &json!("deployed"), &json!("custom")), "{one:#}");
    assert_eq!(stage.call("dev", "harbor", "GET", "/admin/agents").send().status, 403);
    let all = stage.get("root", "harbor", "/admin/agents?limit=500");
    let in_cluster = kubectl("get agents -A").json()["items"].as_array().map(Vec::len);
    assert_eq!(all.as_array().map(Vec::len), in_cluster, "a platform admin sees the agents of all teams");
    let refused =
        stage.call("dev", "harbor", "PATCH", &format!("/agents/{GUIDE}/config")).json(&json!({"description": "mine"})).expect(409);
    assert!(refused["message"].as_str().is_some_and(|words| words.contains(AGENT)), "the owner should be named: {refused}");
}

/// The file of a clone of the team's history.
#[track_caller]
pub(crate) fn read(clone: &Path, file: &str) -> String {
    let path = clone.join(format!("agents/{GUIDE}/{file}"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
