//! Steps 11 and 12: the agent's history in Git, and a commit that is its next release.

use serde_json::{Value, json};
use slipway_e2e::git;
use slipway_e2e::gitops::AGENT;

use crate::project::read;
use crate::stage::{GUIDE, Stage, until};
use crate::sums::checksum;

/// The agent's releases by version, oldest first: version and status.
#[track_caller]
pub(crate) fn releases(stage: &Stage, team: &str, person: &str, agent: &str) -> Vec<(u64, String)> {
    let list = stage.get(person, team, &format!("/agents/{agent}/releases?limit=500"));
    let line = |release: &Value| (release["version"].as_u64().unwrap_or(0), release["status"].as_str().unwrap_or_default().to_owned());
    let mut found: Vec<_> = list.as_array().into_iter().flatten().map(line).collect();
    found.sort();
    found
}

/// Waits until the guide's releases stand so, from the first on.
#[track_caller]
pub(crate) fn stand(stage: &Stage, expected: &[&str]) {
    let expected: Vec<(u64, String)> = (1..).zip(expected.iter().map(|status| (*status).to_owned())).collect();
    until(&format!("releases should stand as {expected:?}"), 90, || {
        let found = releases(stage, "harbor", "vic", GUIDE);
        if found == expected { Ok(()) } else { Err(json!(found)) }
    });
}

/// The clone that the page has made, brought up to date.
#[track_caller]
pub(crate) fn pulled(stage: &Stage) -> std::path::PathBuf {
    let clone = stage.path("history");
    let pulled = git(&clone, &["pull", "--quiet", "--ff-only"]);
    assert!(pulled.status.success(), "the history should be pulled: {}", pulled.status);
    clone
}

#[track_caller]
fn yaml(text: &str) -> Value {
    serde_yaml::from_str(text).unwrap_or_else(|error| panic!("a release should be YAML: {error}\n{text}"))
}

pub(crate) fn its_history(stage: &mut Stage) {
    stage.play("Its history");
    let found = releases(stage, "harbor", "vic", GUIDE);
    assert_eq!(found, [(1, "active".to_owned())], "a story begins on a cluster that has not heard it: hack/down, then hack/test story");
    let newest = stage.get("vic", "harbor", &format!("/agents/{GUIDE}/releases"))[0].clone();
    assert_eq!((&newest["previous"], &newest["author"]), (&json!(0), &json!(format!("manager:{AGENT}"))), "{newest:#}");

    let clone = pulled(stage);
    let file = read(&clone, "releases/v1.yaml");
    let (first, mut current) = (yaml(&file), yaml(&read(&clone, "current.yaml")));
    assert_eq!((&first["metadata"]["checksum"], &newest["checksum"]), (&json!(checksum(&file)), &json!(checksum(&file))), "{file}");
    assert_eq!(current["metadata"]["status"], "active", "{current:#}");
    for field in ["status", "checksum"] {
        current["metadata"][field] = first["metadata"][field].clone();
    }
    assert_eq!(current, first, "current.yaml is the active release");
    for (path, expected) in [
        ("/metadata/name", json!(GUIDE)),
        ("/metadata/version", json!(1)),
        ("/metadata/previous", json!(0)),
        ("/deployment/namespace", json!("team-harbor")),
        ("/agent/model/provider", json!("openai")),
        ("/agent/model/id", json!("guide")),
        ("/agent/tools", json!(["tide", "calculator"])),
        ("/governance/eval_dataset", json!(GUIDE)),
        ("/runtime/channel", json!("rest")),
    ] {
        assert_eq!(first.pointer(path), Some(&expected), "{path}: {first:#}");
    }
    assert!(!git(&clone, &["push", "origin", "HEAD:main"]).status.success(), "nothing can be pushed");
}

/// How often the agent's pods were made anew.
#[track_caller]
fn replica_sets(stage: &Stage) -> usize {
    let list = stage.harbor.kubectl(format!("get replicasets -l agents.slipway.dev/agent={GUIDE}")).json();
    list["items"].as_array().map_or(0, Vec::len)
}

pub(crate) fn it_reads_the_handbook(stage: &mut Stage) {
    let before = replica_sets(stage);
    stage.play("It reads the handbook");
    stand(stage, &["archived", "active"]);
    stage.guide().ready();
    assert_eq!(replica_sets(stage), before + 1, "the pods are replaced once");
    let changes = stage.get("vic", "harbor", &format!("/agents/{GUIDE}/releases/diff?from=1&to=2"));
    // What names stood for, and whose turn it was, is told beside it.
    let is_content =
        |change: &&Value| !["resolved", "metadata"].iter().any(|block| change["path"].as_str().is_some_and(|path| path.starts_with(block)));
    let content: Vec<&Value> = changes.as_array().into_iter().flatten().filter(is_content).collect();
    assert_eq!(content, [&json!({"path": "agent.knowledge_bases", "from": [], "to": ["handbook"]})], "{changes:#}");
    let bases: Value =
        serde_json::from_str(stage.guide().config()["data"]["RUNTIME_KNOWLEDGE_BASES"].as_str().unwrap_or_default()).unwrap();
    assert_eq!((&bases[0]["kb_id"], &bases[0]["store"]), (&json!("kb_handbook"), &json!("pgvector")), "one base should be given");
    let url = bases[0]["connection_url"].as_str().unwrap_or_default();
    assert!(url.starts_with("postgresql://") && url.contains("_knowledge") && !url.contains("sslmode"), "it has another form: {url}");
}
