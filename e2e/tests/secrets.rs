//! Secrets reach the pods, roll them when they change, and are found nowhere else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, kubectl, platform};

const HASH: &str = "/spec/template/metadata/annotations/agents.slipway.dev~1secrets-hash";

fn hash(deployment: &Value) -> Option<&str> {
    deployment.pointer(HASH).and_then(Value::as_str)
}

#[test]
fn they_come_before_the_config_map() {
    let team = Team::new("order");
    team.secret("more", &json!({"RUNTIME_MODEL_ID": "overridden", "KEY": "value"}));
    let agent = team.agent("hello", &json!({"envSecrets": ["more", "agent-env"]}));
    let deployment = agent.deployment_until("been made", 20, |_| true);
    // Of two sources with the same variable the last one wins: no Secret overrides the contract.
    let sources = &deployment["spec"]["template"]["spec"]["containers"][0]["envFrom"];
    let secret = |name| json!({"secretRef": {"name": name}});
    let expected =
        json!([secret("more"), {"secretRef": {"name": "agent-env", "optional": true}}, {"configMapRef": {"name": "hello-config"}}]);
    assert_eq!(sources, &expected);
    agent.ready();
}

#[test]
fn a_change_rolls_the_pods() {
    let team = Team::new("rolled");
    team.secret("keys", &json!({"KEY": "one"}));
    team.secret("unused", &json!({"KEY": "one"}));
    let agent = team.agent("hello", &json!({"envSecrets": ["keys", "agent-env"]}));
    agent.ready();
    let first = agent.deployment();
    let uid = |agent: &Agent| agent.pods().iter().map(|pod| pod["metadata"]["uid"].clone()).collect::<Vec<_>>();
    let pods = uid(&agent);

    team.secret("keys", &json!({"KEY": "two"}));
    let second = agent.deployment_until("another secrets-hash", 10, |deployment| hash(deployment) != hash(&first));
    agent.deployment_until("rolled", 60, |deployment| {
        deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
            && deployment["status"]["updatedReplicas"] == 1
            && deployment["status"]["replicas"] == 1
    });
    assert_ne!(uid(&agent), pods);

    // agent-env need not exist, and counts from the moment it does.
    let env = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "agent-env"}, "stringData": {"OPENAI_API_KEY": "one"}});
    team.apply(&env);
    let third = agent.deployment_until("another secrets-hash", 10, |deployment| hash(deployment) != hash(&second));
    team.kubectl("delete secret agent-env").ok();
    agent.deployment_until("the hash from before agent-env", 10, |deployment| hash(deployment) == hash(&second));
    team.apply(&env);
    agent.deployment_until("the hash of agent-env again", 10, |deployment| hash(deployment) == hash(&third));

    // Back to the first value, back to the first hash: it depends on content alone.
    team.secret("keys", &json!({"KEY": "one"}));
    team.kubectl("delete secret agent-env").ok();
    agent.deployment_until("the first hash", 10, |deployment| hash(deployment) == hash(&first));
    let generation = agent.deployment()["metadata"]["generation"].clone();
    team.secret("unused", &json!({"KEY": "two"}));
    team.secret("keys", &json!({"KEY": "three"}));
    let last = agent.deployment_until("one more generation", 10, |deployment| hash(deployment) != hash(&first));
    assert_eq!(last["metadata"]["generation"].as_u64().unwrap(), generation.as_u64().unwrap() + 1, "Secrets of nobody roll nothing");
}

#[test]
fn they_appear_nowhere_else() {
    let team = Team::new("leaks");
    let planted = |what: &str| format!("planted-{what}-8c1f0e");
    team.apply(
        &json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "agent-env"}, "stringData": {"OPENAI_API_KEY": planted("env")}}),
    );
    team.secret("login", &json!({"username": "reader", "password": planted("password")}));
    team.secret("cloud", &json!({"key.json": planted("file")}));
    team.secret("token", &json!({"authorization": planted("header")}));
    let headers = json!([{"name": "Authorization", "secret": "token", "key": "authorization"}]);
    team.tool("tickets", &json!({"type": "mcp", "mcpEndpoint": "https://mcp.example.com", "headersFrom": headers}));
    let spec = json!({
        "envSecrets": ["agent-env"], "credentialSecret": "cloud", "databaseUrl": "postgres://db.example.com/agents",
        "databaseCredentialsSecret": "login", "storage": "memory", "tools": ["tickets"],
    });
    let agent = team.agent("hello", &spec);
    agent.ready();
    // Faults and crashes are where secrets are told by mistake.
    team.tool("absent", &json!({"type": "cli", "binary": "/no/such/program", "allowedCommands": ["--version"]}));
    let mut crashing = spec.clone();
    crashing["tools"] = json!(["tickets", "absent"]);
    let crashing = team.agent("crashing", &crashing);
    let stalled = team.agent("stalled", &json!({"envSecrets": ["agent-env", "nowhere"], "credentialSecret": "cloud"}));
    stalled.stalled(&["SecretMissing"], 10);
    crashing.stalled(&["CrashLoopBackOff"], 60);
    agent.chat("hello");

    let agents = ["hello", "crashing"].map(|name| format!("agents.slipway.dev/agent={name}"));
    appear_nowhere(&team, &["env", "password", "file", "header"].map(planted), &agents);
}

/// What is in Secrets alone is in no object, Event, log or metric. The logs are the platform's, and those of the team's pods that have
/// these labels.
#[track_caller]
pub(crate) fn appear_nowhere(team: &Team, values: &[String], pods: &[String]) {
    let kinds = "agents,tools,teams,knowledgebases,ingestions,integrations,skills,datasets,evaluationruns,guardrailpolicies,deployments,jobs,replicasets,pods,services,configmaps,endpointslices,serviceaccounts,namespaces,leases";
    let mut places = vec![
        ("every object".to_owned(), kubectl(format!("get {kinds} -A -o json")).ok()),
        ("Events".to_owned(), kubectl("get events -A -o json").ok()),
        ("Events of the newer API".to_owned(), kubectl("get events.events.k8s.io -A -o json").ok()),
        ("the manager's log".to_owned(), platform::logs()),
    ];
    for pod in platform::pods() {
        places.push((format!("metrics of {pod}"), platform::ask(&pod, "/metrics").stdout));
    }
    for label in pods {
        places.push((format!("the log of {label}"), team.kubectl(format!("logs -l {label} --tail=-1")).ok()));
    }
    for (place, text) in &places {
        assert!(!text.is_empty(), "{place} should have been read");
        for value in values {
            for (form, form_name) in [(value.clone(), "plain"), (base64(value), "base64"), (hex::encode(value), "hex")] {
                let at = text.find(&form).map(|at| text[at.saturating_sub(300)..at].to_owned());
                assert!(at.is_none(), "{value} ({form_name}) is in {place}, after: {}", at.unwrap_or_default());
            }
        }
    }
}

/// Base 64 without the last group, whose letters depend on what follows.
fn base64(text: &str) -> String {
    STANDARD.encode(&text.as_bytes()[..text.len() / 3 * 3])
}
