//! What users do with kubectl beside apply: server-side apply, diff, wait, explain, get.

use serde_json::json;
use slipway_e2e::{Agent, Team, kubectl, poll};

#[test]
fn diff_is_empty_after_apply() {
    let team = Team::new("diff");
    let spec = json!({"systemPrompt": "hi", "resources": {"requests": {"cpu": "10m"}}, "envSecrets": ["agent-env"], "suspend": true});
    let agent = Agent { team: &team, name: "client".to_owned() };
    let manifest = agent.manifest(&spec);
    team.kubectl("apply -f -").input(&manifest).ok();
    // A status written between the two looks of a diff would show in it.
    let settled = |agent: &Agent| agent.kubectl("wait").arg("--for=condition=Ready").arg("--timeout=30s").ok();
    settled(&agent);
    team.kubectl("diff -f -").input(&manifest).ok();

    let second = Agent { team: &team, name: "server".to_owned() };
    let server = second.manifest(&spec);
    team.kubectl("apply --server-side -f -").input(&server).ok();
    settled(&second);
    team.kubectl("apply --server-side -f -").input(&server).ok();
    team.kubectl("diff --server-side -f -").input(&server).ok();

    let mut changed = manifest;
    changed["spec"]["systemPrompt"] = json!("ho");
    let outcome = team.kubectl("diff -f -").input(&changed).run();
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.stdout.contains("+  systemPrompt: ho"), "{outcome:?}");
}

/// The operator's status must not get in the way of those who own the spec.
#[test]
fn two_appliers_keep_each_others_fields() {
    let team = Team::new("appliers");
    let agent = team.agent("hello", &json!({"suspend": true}));
    let mut part = agent.manifest(&json!({}));
    part["spec"] = json!({"description": "Says hello."});
    team.kubectl("apply --server-side --field-manager=editor -f -").input(&part).ok();
    part["spec"] = json!({"replicas": 3});
    team.kubectl("apply --server-side --field-manager=autoscaler --force-conflicts -f -").input(&part).ok();
    let spec = agent.get()["spec"].clone();
    assert_eq!((&spec["description"], &spec["replicas"], &spec["suspend"]), (&json!("Says hello."), &json!(3), &json!(true)));
}

#[test]
fn wait_and_get() {
    let team = Team::new("wait");
    let agent = team.agent("hello", &json!({"suspend": true}));
    team.tool("clock", &json!({"type": "builtin"}));
    agent.kubectl("wait").arg("--for=condition=Ready").arg("--timeout=30s").ok();
    agent.kubectl("wait").arg("--for=jsonpath={.status.phase}=Terminated").arg("--timeout=30s").ok();
    agent.patch(&json!({"suspend": false}));
    agent.kubectl("wait").arg("--for=condition=Available").arg("--timeout=60s").ok();

    let table = team.kubectl("get ag").ok();
    let header: Vec<_> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "PHASE", "READY", "REASON", "REPLICAS", "ENDPOINT", "AGE"], "{table}");
    assert!(table.contains("Running") && table.contains(":8000"), "{table}");
    let table = team.kubectl("get tl").ok();
    let header: Vec<_> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(header, ["NAME", "NAME", "TYPE", "CATEGORY", "PHASE", "AGE"], "{table}");
    let all = team.kubectl("get slipway -o name").ok();
    assert!(all.contains("agent.agents.slipway.dev/hello") && all.contains("tool.agents.slipway.dev/clock"), "{all}");
    for selector in ["spec.modelType=stub", "spec.framework=custom", "spec.suspend=false"] {
        let found = team.kubectl(format!("get agents -o name --field-selector {selector}")).ok();
        assert!(found.contains("hello"), "{selector}: {found}");
    }
    let described = team.kubectl("describe agent hello").ok();
    assert!(described.contains("DeploymentReady"), "{described}");
}

/// The condition Ready has the words and the Event repeats them once; nothing else does.
#[test]
fn describe_does_not_say_a_thing_three_times() {
    let team = Team::new("described");
    let agent = team.agent("hello", &json!({"tools": ["nowhere"]}));
    let message = agent.stalled(&["ToolNotFound"], 10);
    let described = poll(30, || {
        let described = agent.kubectl("describe").ok();
        if described.contains("Warning") { Ok(described) } else { Err(format!("there should be an Event: {described}")) }
    });
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(words(&described).matches(&words(&message)).count(), 2, "{described}");
}

#[test]
fn explain_documents_every_kind() {
    let cases = [
        ("agent.spec.replicas", "0 to 10"),
        ("agent.spec.systemPrompt", "instructions"),
        ("agent.spec.envSecrets", "agents.slipway.dev/agent-readable=true"),
        ("agent.spec.podTemplate.nodeSelector", "node"),
        ("agent.status.phase", "Terminated"),
        ("agent.spec.knowledgeBases", "searches"),
        ("agent.spec.governance.policies", "default-tokens"),
        ("guardrailpolicy.spec.rules.operator", "allowed_models"),
        ("guardrailpolicy.spec.severity", "refuses"),
        ("guardrailpolicy.status.violations", "24 hours"),
        ("team.spec.requiredPolicies", "leave them out"),
        ("integration.spec.credentialsSecret", "agents.slipway.dev/agent-readable=true"),
        ("integration.spec.alerts.resolved", "Default true"),
        ("integration.status.lastTest.latencyMs", "milliseconds"),
        ("tool.spec.integration", "in_..."),
        ("agent.spec.modelIntegration", "openai or anthropic"),
        ("agent.spec.governance.limits.prices", "SpendingCounted"),
        ("tool.spec.timeout", "seconds"),
        ("tool.spec.protocol", "Model Context Protocol"),
        ("tool.spec.parameters.required", "Default false"),
        ("team.spec.quota", "ResourceQuota"),
        ("knowledgebase.spec.chunkSize", "tokens"),
        ("knowledgebase.spec.sources.schedule", "cron"),
        ("knowledgebase.spec.sources.s3.bucket", "bucket"),
        ("ingestion.spec.sourceName", "spec.sources"),
        ("ingestion.status.documents.removed", "no more"),
        ("team.spec.knowledgeVolume", "PersistentVolumeClaim"),
    ];
    for (field, words) in cases {
        let text = kubectl(format!("explain {field}")).ok();
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{field} should tell of {words:?}: {text}");
    }
}
