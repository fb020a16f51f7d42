//! Argo CD's engine, the real one, at work with Slipway: on a person's repository of manifests in this cluster, and on the
//! repository that Slipway itself keeps, in another one. How ready things are is what kstatus says, by which Flux goes.
//!
//! `kept` has the person's repository, `served` the other.

mod kept;
mod served;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use slipway_e2e::gitops::Controller;
use slipway_e2e::{Agent, Team, poll};

/// For how long nobody may write anything: $SLIPWAY_E2E_QUIET seconds, else this many. The controller comes by every
/// other second, and Argo CD every three minutes: as often in 60 s as there in an hour.
const QUIET: u64 = 60;

pub(crate) fn quiet() -> Duration {
    Duration::from_secs(std::env::var("SLIPWAY_E2E_QUIET").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(QUIET))
}

/// The file of an Agent in a repository: one that takes little of a machine, with more in its spec.
pub(crate) fn agent(name: &str, spec: &Value) -> String {
    let mut whole = json!({"name": name, "framework": "custom", "storage": "memory"});
    whole.as_object_mut().unwrap().extend(spec.as_object().cloned().unwrap());
    manifest("Agent", name, &whole)
}

fn manifest(kind: &str, name: &str, spec: &Value) -> String {
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}).to_string()
}

/// A spec with something in every corner that two could quarrel about: defaults, spellings of quantities, lists that are
/// sets or maps to the API server, empty ones, text in several lines.
fn spec_in_full() -> Value {
    json!({
        "description": "Answers what guests ask most.", "version": "1.2", "strategy": "agent-react", "replicas": 0,
        "backgroundModel": "stub:stub-echo", "systemPrompt": "You are the concierge.\nAnswer briefly.\n",
        "tools": ["lookup"], "skills": ["forms"], "knowledgeBases": [], "environment": "staging",
        "governance": {"riskProfile": "low", "guards": ["rate-limit", "pii-detection"], "limits": {"requestsPerMinute": 600}},
        "resources": {"requests": {"cpu": "0.05", "memory": "32768Ki"}, "limits": {"cpu": 1, "memory": "0.25Gi"}},
        "suggestionsProvider": "static", "suggestions": "[\"When is breakfast?\"]",
        "podTemplate": {
            "labels": {"cost-center": "hospitality"}, "annotations": {"example.com/contact": "front-desk"},
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}],
        },
    })
}

fn lookup() -> String {
    manifest("Tool", "lookup", &json!({"name": "calculator", "type": "builtin", "description": "Does sums.", "parameters": []}))
}

fn forms() -> String {
    manifest("Skill", "forms", &json!({"name": "forms", "description": "Fills in forms.", "instructions": "Ask for each field.\n"}))
}

/// Waits until a version of the agent is the active one, and is what was asked for last.
#[track_caller]
fn runs(agent: &Agent, version: u64) -> Value {
    agent.until(&format!("at v{version}"), 90, |found| found["status"]["activeRelease"] == version)
}

/// Everything in a team's namespace, by kind and name, with the number that grows with every write to it.
#[track_caller]
fn versions(team: &Team) -> BTreeMap<String, String> {
    let kinds = "agents,tools,skills,agentreleases,evaluationruns,deployments,replicasets,pods,services,endpointslices,configmaps,secrets,\
                 serviceaccounts,rolebindings,networkpolicies,events.events.k8s.io";
    let list = team.kubectl(format!("get {kinds}")).json();
    // The kubelet's Events of pods are nobody's concern: a probe may be late.
    let counts = |item: &&Value| item["regarding"]["kind"] != "Pod";
    let items = list["items"].as_array().into_iter().flatten().filter(counts);
    let line = |item: &Value| {
        let name = format!("{} {}", item["kind"].as_str().unwrap_or_default(), item["metadata"]["name"].as_str().unwrap_or_default());
        (name, format!("{} of generation {}", item["metadata"]["resourceVersion"], item["metadata"]["generation"]))
    };
    items.map(line).collect()
}

/// Waits until nothing is written for a while.
#[track_caller]
fn settled(team: &Team) -> BTreeMap<String, String> {
    let mut before = versions(team);
    poll(120, || {
        std::thread::sleep(Duration::from_secs(6));
        let now = versions(team);
        let moved =
            now.iter().filter(|(name, version)| before.get(*name) != Some(version)).map(|(name, _)| name.clone()).collect::<Vec<_>>();
        before = now;
        if moved.is_empty() { Ok(()) } else { Err(format!("everything should come to rest, and these do not: {moved:?}")) }
    });
    before
}

/// Round after round of the engine, which keeps a number of objects, leaves all in the team's namespace as it is.
#[track_caller]
pub(crate) fn nobody_writes(team: &Team, controller: &Controller, objects: usize) {
    let quiet = quiet();
    let before = settled(team);
    let first = controller.rounds().len();
    let end = Instant::now() + quiet;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now())));
    }
    let rounds = controller.rounds().split_off(first);
    assert!(rounds.len() >= 4, "in {quiet:?} there were {} rounds: {}", rounds.len(), controller.faults());
    for round in &rounds {
        assert_eq!(round.len(), objects, "{round:?}");
        assert!(round.iter().all(|line| line.ends_with(" unchanged")), "the controller had something to put right: {round:#?}");
    }
    let after = versions(team);
    let moved: Vec<_> = before.keys().chain(after.keys()).filter(|name| before.get(*name) != after.get(*name)).collect();
    assert!(moved.is_empty(), "in {} rounds somebody wrote to {moved:?}\nbefore: {before:#?}\nafter: {after:#?}", rounds.len());
}
