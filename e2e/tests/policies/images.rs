//! Threat: any image. With `policies.allowedImagePrefixes` agents run what comes from there, however it is spelled, and
//! Slipway's own; the list is the chart's, applied here to the namespace of the test alone.

use serde_json::{Value, json};
use slipway_e2e::{Team, condition, platform};

use super::chart::Policies;
use super::{HEEDED, Try, judge};

const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// As a value of Helm's `--set`.
const LIST: &str = "registry.example.com/agents,registry.example.com:5000,harbor.example.com/,docker.io/library,trusted/team";
const WORDS: &[&str] =
    &["spec.image: ", "is not from an allowed registry or repository: registry.example.com/agents, registry.example.com:5000"];
const CANARYS: &[&str] =
    &["spec.canary.image: ", "is not from an allowed registry or repository: registry.example.com/agents, registry.example.com:5000"];

fn policies(team: &Team, list: &str) -> Policies {
    let list = format!("policies.allowedImagePrefixes={{{list}}}");
    let runtime = platform::runtime_image();
    let repository = runtime.split('@').next().unwrap_or_default();
    let repository = match repository.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => name,
        _ => repository,
    };
    let runtime = format!("runtime.image.repository={repository}");
    Policies::apply(
        &format!("{}-images", team.slug),
        &[&list, &runtime],
        &["-images", "-images-canary", "-images-run"],
        Some(&team.namespace),
    )
}

fn agent(name: &str, image: &str) -> Value {
    let mut agent = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": name},
        "spec": {"name": "Probe", "framework": "custom", "suspend": true, "image": image},
    });
    if image.is_empty() {
        agent["spec"].as_object_mut().unwrap().remove("image");
    }
    agent
}

/// A Deployment as the manager makes it, as far as the policy looks.
fn deployment(name: &str, label: &str, images: &[&str], first: &[&str]) -> Value {
    let containers = |prefix: &str, images: &[&str]| -> Vec<Value> {
        images.iter().enumerate().map(|(n, image)| json!({"name": format!("{prefix}{n}"), "image": image})).collect()
    };
    let labels = json!({label: name});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": containers("c", images), "initContainers": containers("i", first)}},
        },
    })
}

#[test]
fn images_come_from_where_the_list_says_however_they_are_spelled() {
    let team = Team::new("policy-images");
    let before = team.agent("before", &json!({"suspend": true, "image": "evil.example.com/agents/a:1"}));
    before.deployment_until("been made", 20, |_| true);
    let here = &team.namespace;
    // Somebody's own, and one that was there before the list.
    team.apply(&deployment("old", "agents.slipway.dev/agent", &["evil.example.com/a:1"], &["evil.example.com/i:1"]));
    let _policies = policies(&team, LIST);
    let runtime = platform::runtime_image();
    let mut tries = Vec::new();
    let create = format!("-n {here} create --dry-run=server -f -");
    let allowed = [
        "",
        &runtime,
        "registry.example.com/agents",
        "registry.example.com/agents:1",
        "registry.example.com/agents/a",
        "registry.example.com/agents/deep/er:1",
        &format!("registry.example.com/agents/a@{DIGEST}"),
        &format!("registry.example.com/agents/a:1@{DIGEST}"),
        "registry.example.com:5000/anything/at-all:1",
        "registry.example.com:5000/a",
        "harbor.example.com/a/b:1",
        "python",
        "python:3.13-slim",
        &format!("python@{DIGEST}"),
        "library/python:3",
        "docker.io/python",
        "docker.io/library/python:3",
        "index.docker.io/python",
        "index.docker.io/library/python:3",
        "trusted/team",
        "trusted/team:1",
        "docker.io/trusted/team/a:1",
        "index.docker.io/trusted/team",
    ];
    tries.extend(allowed.iter().map(|image| Try::with(&*create, agent("probe", image), &[])));
    let refused = [
        "evil.example.com/a:1",
        // Not that registry, nor that repository.
        "registry.example.com/agents-of-others:1",
        "registry.example.com/agent",
        "registry.example.com/others/registry.example.com/agents/a",
        "registry.example.com/other",
        "registry.example.com:443/agents/a",
        "registry.example.com:50000/a",
        "registry.example.com.evil.example/agents/a",
        "evil.example/registry.example.com/agents/a",
        "xregistry.example.com/agents/a",
        "REGISTRY.example.com/agents/a",
        "harbor.example.com:8443/a",
        "harbor.example.community/a",
        // Not how names are written, whatever a registry would make of it.
        "registry.example.com/agents/../others/a",
        "registry.example.com/agents/./a",
        "registry.example.com/agents//a",
        "registry.example.com/agents/%2e%2e/others",
        "registry.example.com/agents/A",
        "registry.example.com/agents/",
        "/registry.example.com/agents/a",
        "https://registry.example.com/agents/a",
        "registry.example.com/agents/a?x=/b",
        "registry.example.com/agents:x/../../others",
        "user@registry.example.com/agents/a",
        "evil.example.com@registry.example.com/agents/a",
        // Of Docker Hub, but not of those.
        "someone/python",
        "docker.io/someone/python",
        "index.docker.io/someone/python",
        "registry-1.docker.io/library/python",
        "docker.io:443/library/python",
        "DOCKER.IO/library/python",
        "librarian/python",
        "trusted/teams",
        "localhost/python",
        "localhost:5000/python",
        "library.example/python",
        "Library/python",
    ];
    tries.extend(refused.iter().map(|image| Try::with(&*create, agent("probe", image), WORDS)));
    let mut none = agent("probe", "");
    none["spec"]["image"] = Value::Null;
    tries.push(Try::with(&*create, none, &[]));
    tries.push(Try::with(
        &*create,
        agent("probe", "someone/python"),
        &["spec.image: someone/python (docker.io/someone/python)", "Slipway's own"],
    ));

    // Who was there before may change, but not to another of that kind.
    let patch = |object: &str, patch: Value| format!("-n {here} patch {object} --type=merge --dry-run=server -p {patch}");
    tries.push(Try::new(patch("agent/before", json!({"spec": {"description": "Still here."}})), &[]));
    tries.push(Try::new(patch("agent/before", json!({"spec": {"image": null}})), &[]));
    tries.push(Try::new(patch("agent/before", json!({"spec": {"image": "evil.example.com/agents/a:2"}})), WORDS));
    canaries(&team, &runtime, &mut tries);
    workloads(&team, &runtime, &mut tries);
    judge(&tries);

    // The same for what the manager makes: told to the user as any other refusal.
    let deployment = before.deployment();
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "evil.example.com/agents/a:1", "it was there before");
    team.kubectl("delete deployment before --wait=false").ok();
    before.until("told why its Deployment cannot be made again", HEEDED, |agent| {
        let ready = condition(agent, "Ready");
        ready["message"].as_str().is_some_and(|message| message.contains("evil.example.com/agents/a") && message.contains("allowed"))
    });
}

fn canaries(team: &Team, runtime: &str, tries: &mut Vec<Try>) {
    let create = format!("-n {} create --dry-run=server -f -", team.namespace);
    for (image, says) in [
        ("evil.example.com/a:1", CANARYS),
        ("registry.example.com/agents/../others/a", CANARYS),
        ("registry.example.com/agents/a:1", &[]),
        (runtime, &[]),
    ] {
        let mut whole = agent("probe", "registry.example.com/agents/a:1");
        whole["spec"]["canary"] = json!({"enabled": true, "weight": 10, "image": image});
        tries.push(Try::with(&*create, whole, says));
    }
    // One without an image has the agent's; what that had before the list is new to a canary.
    let patch = |canary: Value| {
        let change = json!({"spec": {"canary": canary}});
        format!("-n {} patch agent/before --type=merge --dry-run=server -p {change}", team.namespace)
    };
    tries.push(Try::new(patch(json!({"enabled": true, "weight": 10})), &[]));
    tries.push(Try::new(patch(json!({"enabled": true, "weight": 10, "image": "evil.example.com/agents/a:1"})), CANARYS));
}

fn workloads(team: &Team, runtime: &str, tries: &mut Vec<Try>) {
    const WORDS: &[&str] =
        &["spec.template.spec: an agent may not run evil.example.com/a", "allowed registry or repository: registry.example.com/agents"];
    const OF_AGENT: &str = "agents.slipway.dev/agent";
    let create = format!("-n {} create --dry-run=server -f -", team.namespace);
    let good = "registry.example.com/agents/a:1";
    let evil = "evil.example.com/a:1";
    for (images, first, says) in [
        (vec![evil], vec![], WORDS),
        (vec![good, evil], vec![], WORDS),
        (vec![good], vec![evil], WORDS),
        (vec![good], vec![good], &[]),
        (vec![runtime], vec![], &[]),
    ] {
        tries.push(Try::with(&*create, deployment("probe", OF_AGENT, &images, &first), says));
    }
    tries.push(Try::with(&*create, deployment("probe", "app", &[evil], &[]), &[]));
    let apply = format!("-n {} apply --dry-run=server -f -", team.namespace);
    let old = |images: &[&str], first: &[&str]| deployment("old", OF_AGENT, images, first);
    tries.push(Try::with(&*apply, old(&["evil.example.com/a:2"], &["evil.example.com/i:1"]), WORDS));
    tries.push(Try::with(&*apply, old(&["evil.example.com/i:1"], &["evil.example.com/a:1"]), &[]));
    tries.push(Try::with(&*apply, old(&["evil.example.com/a:1"], &[]), &[]));
    tries.push(Try::with(&*apply, old(&[good], &[]), &[]));
}
