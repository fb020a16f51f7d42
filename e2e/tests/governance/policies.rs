//! Guardrail policies: a team begins with four, agents that run follow a change without a restart, and what a team requires
//! nobody leaves out. A chat is refused if the stub does not get to echo it.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, alone, condition, fresh, kubectl, long, platform, poll, until};

const DEFAULTS: [&str; 4] = ["default-cost", "default-latency", "default-tokens", "default-topics"];
/// kubelet renews a mounted ConfigMap within about a minute, and looks at it in its own time.
const REACHES: u64 = 150;
/// A topic that nobody minds but for a policy of these tests.
const TOPIC: &str = "zeppelins";

fn topics(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "GuardrailPolicy", "metadata": {"name": name},
        "spec": {"name": "Topics", "severity": "critical", "rules": [rule(value)]},
    })
}

fn rule(value: &str) -> Value {
    json!({"type": "blocked_topics", "operator": "contains", "value": value})
}

#[track_caller]
fn patch(team: &Team, name: &str, spec: &Value) {
    team.kubectl(format!("patch guardrailpolicy {name} --type=merge -p")).arg(json!({"spec": spec})).ok();
}

/// The team's policies, once they are these and each speaks of its present spec.
#[track_caller]
fn policies(team: &Team, names: &[&str]) -> Vec<Value> {
    until(&format!("guardrailpolicies -n {}", team.namespace), 60, |policies| {
        let mut found: Vec<_> = policies.iter().filter_map(|policy| policy["metadata"]["name"].as_str()).collect();
        found.sort_unstable();
        let is_seen = |policy: &Value| policy["status"]["observedGeneration"] == policy["metadata"]["generation"];
        if found == names && policies.iter().all(is_seen) {
            Ok(policies.to_vec())
        } else {
            Err(format!("there should be {names:?}, each with a status of its own: {found:?}"))
        }
    })
}

/// The file that agents' pods mount.
#[track_caller]
fn file(team: &Team) -> Value {
    let map = team.get("configmap/slipway-policies");
    let text = map["data"]["policies.json"].as_str().unwrap_or_else(|| panic!("there should be a file: {map:#}"));
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// Whether the agent answers such a message, which the stub echoes.
#[track_caller]
fn speaks_of(agent: &Agent, topic: &str) -> bool {
    let message = format!("What do you think of {topic}?");
    let reply = agent.post("/chat", &json!({"message": message}));
    assert!(reply.status < 500, "{reply:?}");
    reply.status == 200 && reply.body.contains(&message)
}

#[track_caller]
fn until_it_speaks(agent: &Agent, topic: &str, speaks: bool) {
    poll(REACHES, || {
        if speaks_of(agent, topic) == speaks { Ok(()) } else { Err(format!("{} should answer about {topic}: {speaks}", agent.name)) }
    });
}

/// What a restart would change.
#[track_caller]
fn standing(agent: &Agent) -> Value {
    let pods: Vec<Value> =
        agent.pods().iter().map(|pod| json!([pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]])).collect();
    json!([pods, agent.deployment()["metadata"]["generation"], agent.config()["metadata"]["resourceVersion"]])
}

#[test]
fn a_team_begins_with_four_policies_and_what_it_deletes_stays_so() {
    let team = Team::within(alone("restarts the installed manager"), &fresh("defaults"), &json!({}));
    let made = policies(&team, &DEFAULTS);
    let spec = |name: &str| made.iter().find(|policy| policy["metadata"]["name"] == name).map(|policy| policy["spec"].clone());
    let latency = spec("default-latency").unwrap_or_default();
    assert_eq!((&latency["name"], &latency["severity"]), (&json!("Latency SLA"), &json!("critical")));
    assert_eq!(latency["rules"], json!([{"type": "max_latency", "operator": "lt", "value": "2000"}]));
    for policy in &made {
        assert_eq!(condition(policy, "Ready")["status"], "True", "{policy:#}");
        assert!(policy["metadata"]["ownerReferences"].is_null(), "it is the admins': {policy:#}");
    }
    let recorded = until(&format!("teams --field-selector metadata.name={}", team.slug), 20, |teams| {
        let names = &teams[0]["status"]["defaultPolicies"];
        if names.as_array().is_some_and(|names| names.len() == 4) { Ok(names.clone()) } else { Err(format!("recorded: {names}")) }
    });
    assert_eq!(recorded.as_array().map(Vec::len), Some(4), "{recorded}");
    assert_eq!(file(&team)["default"], json!(["gp_default_cost", "gp_default_latency", "gp_default_tokens", "gp_default_topics"]));

    // Whatever keeps one from going, it is not for long.
    team.kubectl("delete guardrailpolicy default-cost --timeout=30s").ok();
    patch(&team, "default-tokens", &json!({"severity": "critical", "rules": [{"type": "max_tokens", "operator": "lte", "value": "99"}]}));
    kubectl(format!("rollout restart deployment {} -n {}", platform::MANAGER, platform::NAMESPACE)).ok();
    kubectl(format!("rollout status deployment {} -n {} --timeout=90s", platform::MANAGER, platform::NAMESPACE)).ok();
    // A change that the new leader makes shows that it has read everything, and looked at this team.
    let agent = team.agent("seen", &json!({"suspend": true}));
    agent.until("suspended", 60, |agent| agent["status"]["phase"] == "Terminated");
    kubectl(format!("patch team {} --type=merge -p", team.slug)).arg(json!({"spec": {"description": "Seen?"}})).ok();
    until(&format!("teams --field-selector metadata.name={}", team.slug), 60, |teams| {
        let (team, status) = (&teams[0], &teams[0]["status"]);
        if status["observedGeneration"] == team["metadata"]["generation"] { Ok(()) } else { Err(format!("{status}")) }
    });
    let left = policies(&team, &DEFAULTS[1..]);
    let tokens = left.iter().find(|policy| policy["metadata"]["name"] == "default-tokens").unwrap();
    assert_eq!((&tokens["spec"]["severity"], &tokens["spec"]["rules"][0]["value"]), (&json!("critical"), &json!("99")));
    assert_eq!(file(&team)["default"], json!(["gp_default_latency", "gp_default_tokens", "gp_default_topics"]));
}

#[test]
fn a_changed_policy_reaches_an_agent_that_talks() {
    let team = Team::within(long(), "policy-changes", &json!({}));
    team.apply(&topics("topics", "submarines"));
    let agent = team.agent("hello", &json!({"governance": {"policies": ["gp_topics", "default"]}}));
    agent.ready();
    assert_eq!(agent.config()["data"]["RUNTIME_POLICIES"], r#"["gp_topics","default"]"#, "and nothing of what it says");
    let before = standing(&agent);
    assert!(!speaks_of(&agent, "submarines"), "what it names holds from its first answer");
    assert!(speaks_of(&agent, TOPIC));

    patch(&team, "topics", &json!({"rules": [rule(&format!("submarines, {TOPIC}"))]}));
    until_it_speaks(&agent, TOPIC, false);
    patch(&team, "topics", &json!({"enabled": false}));
    until_it_speaks(&agent, TOPIC, true);
    assert_eq!(standing(&agent), before, "the same pod, from the same template");
    assert_eq!(condition(&agent.get(), "Ready")["status"], "True");
}

#[test]
fn a_default_that_is_changed_and_deleted_is_followed() {
    let team = Team::within(long(), "policy-defaults", &json!({}));
    let agent = team.agent("hello", &json!({}));
    agent.ready();
    let before = standing(&agent);
    assert!(agent.config()["data"]["RUNTIME_POLICIES"].is_null(), "it names none");
    assert!(speaks_of(&agent, TOPIC));
    patch(&team, "default-topics", &json!({"rules": [rule(TOPIC)]}));
    until_it_speaks(&agent, TOPIC, false);
    team.kubectl("delete guardrailpolicy default-topics --timeout=30s").ok();
    until_it_speaks(&agent, TOPIC, true);
    assert_eq!(standing(&agent), before, "the same pod, from the same template");
}

#[test]
fn a_policy_that_does_not_exist_stalls_who_names_it() {
    let team = Team::new("policy-missing");
    let agent = team.agent("hello", &json!({}));
    agent.ready();
    let before = standing(&agent);
    agent.patch(&json!({"governance": {"policies": ["default", "no-such"]}}));
    let message = agent.stalled(&["PolicyNotFound"], 20);
    assert!(message.starts_with("spec.governance.policies[1]: there is no GuardrailPolicy no-such"), "{message}");
    assert_eq!(standing(&agent), before, "what runs stays as it is");
    assert!(speaks_of(&agent, TOPIC), "and answers");
    team.apply(&topics("no-such", TOPIC));
    until_it_speaks(&agent, TOPIC, false);
    agent.ready();
    let policy = until(&format!("guardrailpolicies -n {} --field-selector metadata.name=no-such", team.namespace), 60, |policies| {
        let policy = policies.first().ok_or("it is there")?;
        if policy["status"]["agents"] == 1 { Ok(policy.clone()) } else { Err(format!("one agent names it: {}", policy["status"])) }
    });
    assert_eq!(policy["status"]["id"], "gp_no_such");
    let said = kubectl(format!("get guardrailpolicies -n {}", team.namespace)).ok();
    assert!(said.lines().next().unwrap_or_default().contains("VIOLATIONS") && said.contains("no-such"), "{said}");
}

#[test]
fn what_a_team_requires_no_agent_leaves_out() {
    let team = Team::with("policy-required", &json!({"requiredPolicies": ["gp_must"]}));
    let in_force = |status: &str, reason: &str| {
        until(&format!("teams --field-selector metadata.name={}", team.slug), 30, |teams| {
            let found = condition(&teams[0], "PoliciesInForce");
            if found["status"] == status && found["reason"] == reason { Ok(found["message"].clone()) } else { Err(found.to_string()) }
        })
    };
    let message = in_force("False", "PolicyNotFound").to_string();
    assert!(message.contains("there is no GuardrailPolicy must"), "{message}");
    team.apply(&topics("must", TOPIC));
    team.apply(&topics("mine", "submarines"));
    in_force("True", "Required");
    let agent = team.agent("hello", &json!({"governance": {"policies": ["mine"]}}));
    agent.ready();
    assert!(!speaks_of(&agent, TOPIC) && !speaks_of(&agent, "submarines"));
    assert_eq!(agent.config()["data"]["RUNTIME_POLICIES"], r#"["gp_mine"]"#, "it does not even know");
    patch(&team, "must", &json!({"enabled": false}));
    in_force("False", "PolicyDisabled");
}
