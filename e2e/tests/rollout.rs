//! The platform changes what pods are made from: a limited number of agents at once get new ones, and the others keep theirs until it
//! is their turn. On an API server without a node, where the test says when pods are ready.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use slipway_e2e::{Api, Second, condition, platform, poll};
use slipway_peers::Server;

const TEAM: &str = "team-rollout";
const AGENTS: [&str; 5] = ["a", "b", "c", "d", "e"];
const AT_ONCE: usize = 2;

#[test]
fn so_many_agents_at_once_get_the_pods_that_the_platform_wants_otherwise_and_authors_do_not_wait() {
    let (cluster, first) = settled();
    drop(first);

    let mut second = Manager::start(&cluster, 2);
    let mut new = poll(30, || second.waiting(AGENTS.len() - AT_ONCE).and_then(|()| some(&cluster, AT_ONCE)));
    let mut old = AGENTS.into_iter().filter(|name| !new.iter().any(|it| it == name));
    let mut next = || old.next().unwrap().to_owned();
    let (edited, stopped, last) = (next(), next(), next());
    poll(20, || say_that_they_wait(&cluster, &[&edited, &stopped, &last]));
    let configs = |cluster: &Second| cluster.kubectl(&format!("get configmaps -n {TEAM}")).json()["items"].clone();
    let before = configs(&cluster);
    // What its author changes, an agent gets at once, and all else that is new with it.
    let prompt = json!({"spec": {"systemPrompt": "Be kind."}});
    cluster.kubectl(&format!("patch agent {edited} -n {TEAM} --type=merge -p")).arg(prompt).ok();
    new.push(edited);
    poll(20, || have(&cluster, 2, &new));
    assert_ne!(configs(&cluster), before);
    // The manager after one that was killed goes on where that was.
    drop(second);
    second = Manager::start(&cluster, 2);
    poll(30, || second.waiting(2));
    have(&cluster, 2, &new).unwrap();
    // Nor does stopping an agent wait.
    cluster.kubectl(&format!("annotate agent {stopped} -n {TEAM} agents.slipway.dev/suspend=true")).ok();
    let with_stopped = [&new[..], std::slice::from_ref(&stopped)].concat();
    poll(20, || have(&cluster, 2, &with_stopped));
    assert_eq!(cluster.kubectl(&format!("get deployment {stopped} -n {TEAM}")).json()["spec"]["replicas"], 0);

    for name in &new {
        settle(&cluster, name);
    }
    poll(20, || have(&cluster, 2, &AGENTS));
    settle(&cluster, &last);
    poll(20, || second.waiting(0).and_then(|()| second.counts("slipway_rollouts", 0)));
    poll(20, || say_that_they_wait(&cluster, &[]));
}

#[test]
fn an_agent_whose_new_pods_are_refused_holds_nobody_up() {
    let (cluster, first) = settled();
    let deny = "!(object.metadata.name in ['a', 'b']) || !object.spec.template.spec.containers[0].image.endsWith(':2')";
    let policy = json!({
        "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "no-two"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["*"], "operations": ["*"], "resources": ["deployments"]}]},
            "validations": [{"expression": deny, "message": "not this one"}],
        },
    });
    let binding = json!({
        "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "no-two"},
        "spec": {"policyName": "no-two", "validationActions": ["Deny"]},
    });
    for object in [policy, binding] {
        cluster.apply_as("admissionregistration.k8s.io/v1", &object);
    }
    let forbidden = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image(2)}]);
    poll(30, || {
        let tried = cluster.kubectl(&format!("patch deployment a -n {TEAM} --dry-run=server --type=json -p")).arg(&forbidden).run();
        if tried.stderr.contains("not this one") { Ok(()) } else { Err(format!("the policy should count: {}", tried.stderr)) }
    });
    drop(first);

    let second = Manager::start(&cluster, 2);
    // Those that are refused wait or have been tried, as who is first is nobody's business.
    let new = poll(30, || some(&cluster, AT_ONCE));
    poll(20, || second.counts("slipway_rollouts", AT_ONCE).and_then(|()| some(&cluster, AT_ONCE)));
    for name in &new {
        settle(&cluster, name);
    }
    poll(20, || have(&cluster, 2, &["c", "d", "e"]));
    for name in ["c", "d", "e"] {
        settle(&cluster, name);
    }
    poll(20, || second.waiting(0).and_then(|()| second.counts("slipway_rollouts", 0)));
}

/// Agents of the first version that serve, and their operator.
#[track_caller]
fn settled() -> (Second, Manager) {
    let cluster = Second::start();
    let first = Manager::start(&cluster, 1);
    cluster.team("rollout");
    for name in AGENTS {
        let agent = json!({"kind": "Agent", "metadata": {"name": name, "namespace": TEAM}, "spec": {"name": name, "framework": "custom"}});
        cluster.apply(&agent);
    }
    poll(30, || have(&cluster, 1, &AGENTS));
    for name in AGENTS {
        settle(&cluster, name);
    }
    (cluster, first)
}

/// These, and no others, have the runtime of that version.
fn have(cluster: &Second, version: u32, agents: &[impl ToString]) -> Result<(), String> {
    let mut agents: Vec<_> = agents.iter().map(ToString::to_string).collect();
    agents.sort();
    let names = of_version(cluster, version);
    if names == agents { Ok(()) } else { Err(format!("{agents:?} should have version {version}, and these have: {names:?}")) }
}

/// The agents that have the second version, if their number is this. Which of them is first does not matter.
fn some(cluster: &Second, count: usize) -> Result<Vec<String>, String> {
    let names = of_version(cluster, 2);
    if names.len() == count { Ok(names) } else { Err(format!("{count} should have version 2, and these have: {names:?}")) }
}

fn of_version(cluster: &Second, version: u32) -> Vec<String> {
    let list = cluster.kubectl(&format!("get deployments -n {TEAM}")).json();
    let has_it = |deployment: &&Value| deployment["spec"]["template"]["spec"]["containers"][0]["image"] == image(version);
    let found = list["items"].as_array().into_iter().flatten().filter(has_it);
    found.filter_map(|it| it["metadata"]["name"].as_str()).map(str::to_owned).collect()
}

/// These, and no others, say of themselves that they have the platform's new version later.
fn say_that_they_wait(cluster: &Second, agents: &[&str]) -> Result<(), String> {
    let list = cluster.kubectl(&format!("get agents -n {TEAM}")).json();
    let says_so = |agent: &&Value| condition(agent, "Ready")["message"].as_str().is_some_and(|it| it.contains("rollout.maxConcurrent"));
    let found = list["items"].as_array().into_iter().flatten().filter(says_so);
    let names: BTreeSet<_> = found.filter_map(|it| it["metadata"]["name"].as_str()).collect();
    if names == agents.iter().copied().collect() { Ok(()) } else { Err(format!("{agents:?} should say that they wait, not {names:?}")) }
}

/// Says of a Deployment what its controller would say once all its pods are new and ready.
#[track_caller]
fn settle(cluster: &Second, name: &str) {
    let generation = cluster.kubectl(&format!("get deployment {name} -n {TEAM}")).json()["metadata"]["generation"].clone();
    let status = json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1});
    cluster.kubectl(&format!("patch deployment {name} -n {TEAM} --subresource=status --type=merge -p")).arg(json!({"status": status})).ok();
}

fn image(version: u32) -> String {
    format!("registry.example.com/runtime:{version}")
}

/// An operator whose agents run that version of the runtime.
struct Manager {
    _server: Server,
    metrics: Api,
}

impl Manager {
    #[track_caller]
    fn start(cluster: &Second, version: u32) -> Self {
        let at_once = AT_ONCE.to_string();
        let environment = [("SLIPWAY_RUNTIME_IMAGE", &*image(version)), ("SLIPWAY_MAX_CONCURRENT_ROLLOUTS", &at_once)];
        let (server, metrics) = cluster.operator(&environment);
        Self { _server: server, metrics }
    }

    fn waiting(&self, agents: usize) -> Result<(), String> {
        self.counts("slipway_rollouts_waiting", agents)
    }

    /// Metrics are numbers of small things here.
    fn counts(&self, metric: &str, agents: usize) -> Result<(), String> {
        let text = self.metrics.metrics();
        let counted = platform::samples(&text, metric).first().map(|(_, value)| value.round().to_string());
        if counted.as_deref() == Some(&*agents.to_string()) { Ok(()) } else { Err(format!("{metric} should be {agents}, not {counted:?}")) }
    }
}
