//! What an Agent's author can mend is told in the status at once, and stops nothing that runs.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, condition, essence, kubectl, platform, poll, together};

/// Seconds until a fault must be told.
const TOLD: u64 = 10;

fn unlabelled_secret(team: &Team, name: &str) {
    team.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"KEY": "value", "username": "u", "password": "p"}}));
}

#[test]
fn each_fault_has_its_reason_and_says_what_would_be_right() {
    let team = Team::new("faults");
    unlabelled_secret(&team, "closed");
    team.secret("nameless", &json!({"password": "p"}));
    let headers = json!([{"name": "Authorization", "secret": "closed", "key": "KEY"}]);
    team.tool("guarded", &json!({"type": "http", "endpoint": "https://api.example.com", "headersFrom": headers}));
    let headers = json!([{"name": "Authorization", "secret": "nameless", "key": "KEY"}]);
    team.tool("keyless", &json!({"type": "http", "endpoint": "https://api.example.com", "headersFrom": headers}));
    team.tool("clock", &json!({"type": "builtin"}));
    team.tool("inside", &json!({"type": "mcp", "mcpEndpoint": "http://localhost:8080/mcp"}));
    let headers: serde_json::Map<String, Value> = (0..32).map(|at| (format!("X-{at}"), json!("x".repeat(2048)))).collect();
    for name in ["long", "longer"] {
        team.tool(name, &json!({"name": name, "type": "http", "endpoint": "https://api.example.com", "headers": headers}));
    }
    for name in ["hours", "minutes"] {
        team.tool(name, &json!({"name": "datetime", "type": "builtin"}));
    }
    let label = "agents.slipway.dev/agent-readable=true";
    let database = "postgres://db/agents";
    let mut cases = vec![
        ("no-tool", json!({"tools": ["nowhere"]}), "ToolNotFound", vec!["spec.tools", "nowhere"]),
        (
            "no-builtin",
            json!({"tools": ["clock"]}),
            "ToolInvalid",
            vec!["spec.tools[0]", "Tool clock", "spec.name", "calculator", "datetime"],
        ),
        ("no-way", json!({"tools": ["inside"]}), "ToolInvalid", vec!["spec.tools[0]", "Tool inside", "mcpEndpoint", "agents.egressAllow"]),
        ("one-name", json!({"tools": ["hours", "minutes"]}), "ToolInvalid", vec!["spec.tools[1]", "Tool minutes", "datetime"]),
        ("no-model", json!({"modelId": "gpt-5"}), "InvalidModel", vec!["spec.modelId", "gpt-5", "stub-echo", "spec.modelType"]),
        ("no-skill", json!({"skills": ["sk_no_where"]}), "SkillNotFound", vec!["spec.skills", "no-where"]),
        ("no-kb", json!({"knowledgeBases": ["kb_no_where"]}), "KnowledgeBaseNotFound", vec!["spec.knowledgeBases", "no-where"]),
        ("closed-env", json!({"envSecrets": ["agent-env", "closed"]}), "SecretNotAllowed", vec!["spec.envSecrets", "closed", label]),
        ("closed-file", json!({"credentialSecret": "closed"}), "SecretNotAllowed", vec!["spec.credentialSecret", "closed", label]),
        (
            "closed-login",
            json!({"databaseUrl": database, "databaseCredentialsSecret": "closed"}),
            "SecretNotAllowed",
            vec!["spec.databaseCredentialsSecret", "closed", label],
        ),
        ("closed-header", json!({"tools": ["guarded"]}), "SecretNotAllowed", vec!["guarded", "closed", label]),
        ("no-key", json!({"tools": ["keyless"]}), "SecretKeyMissing", vec!["keyless", "nameless", "KEY"]),
        (
            "no-user",
            json!({"databaseUrl": database, "databaseCredentialsSecret": "nameless"}),
            "SecretKeyMissing",
            vec!["spec.databaseCredentialsSecret", "nameless", "username"],
        ),
        ("no-secret", json!({"envSecrets": ["nowhere"]}), "SecretMissing", vec!["spec.envSecrets", "nowhere"]),
        ("no-file", json!({"credentialSecret": "nowhere"}), "SecretMissing", vec!["spec.credentialSecret", "nowhere"]),
        ("long-tools", json!({"tools": ["long", "longer"]}), "ConfigTooLarge", vec!["RUNTIME_TOOLS", "spec.tools"]),
        (
            "not-json",
            json!({"suggestionsProvider": "static", "suggestions": "What?"}),
            "InvalidSuggestions",
            vec!["spec.suggestions", "array"],
        ),
        (
            "not-array",
            json!({"suggestionsProvider": "static", "suggestions": "{\"a\": 1}"}),
            "InvalidSuggestions",
            vec!["spec.suggestions"],
        ),
        ("not-strings", json!({"suggestionsProvider": "static", "suggestions": "[1]"}), "InvalidSuggestions", vec!["spec.suggestions"]),
        (
            "no-identity",
            json!({"gcpServiceAccount": "root@project.example"}),
            "ServiceAccountNotAllowed",
            vec!["spec.gcpServiceAccount", "root@project.example", &team.slug],
        ),
    ];
    if !platform::has_database() {
        team.apply(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "KnowledgeBase", "metadata": {"name": "docs"}, "spec": {"name": "Docs"}}));
        cases.push(("no-database", json!({"storage": "postgresql"}), "DatabaseRequired", vec!["spec.storage", "databaseUrl"]));
        cases.push(("kb-by-name", json!({"knowledgeBases": ["docs"]}), "DatabaseRequired", vec!["spec.knowledgeBases"]));
        cases.push(("kb-by-id", json!({"knowledgeBases": ["kb_docs"]}), "DatabaseRequired", vec!["spec.knowledgeBases"]));
    }
    if platform::setting("SLIPWAY_SEARCH_URL").is_none() {
        team.tool("search", &json!({"type": "builtin"}));
        cases.push(("no-search", json!({"tools": ["search"]}), "ToolInvalid", vec!["Tool search", "agents.searchUrl"]));
    }
    let agents: Vec<Agent> = cases.iter().map(|(name, spec, ..)| team.agent(name, spec)).collect();
    for (agent, (_, _, reason, words)) in agents.iter().zip(&cases) {
        let message = agent.stalled(&[reason], TOLD);
        for word in words {
            assert!(message.contains(word), "{}: the message should speak of {word:?}: {message}", agent.name);
        }
        assert_eq!(agent.get()["status"]["phase"], "Failed", "{}", agent.name);
        assert_eq!(agent.deployment(), Value::Null, "{} should have no Deployment", agent.name);
    }
    // A fault is an Event too, once it has stood for a while.
    poll(30, || {
        let events = team.kubectl("events --for agent/no-tool").ok();
        if events.contains("ToolNotFound") { Ok(()) } else { Err(format!("there should be an Event: {events}")) }
    });
}

/// What is applied together comes one after the other; nobody needs a Warning of that.
#[test]
fn what_heals_by_itself_is_no_warning() {
    let team = Team::new("healing");
    let agent = team.agent("hello", &json!({"tools": ["late"], "envSecrets": ["late"]}));
    // At once: a warning is held back for seconds only.
    let labels = json!({"agents.slipway.dev/agent-readable": "true"});
    let missing = json!([
        {"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": {"name": "late"}, "spec": {"name": "datetime", "type": "builtin"}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late", "labels": labels}, "stringData": {"KEY": "value"}},
    ]);
    agent.stalled(&["ToolNotFound", "SecretMissing"], TOLD);
    team.apply(&json!({"apiVersion": "v1", "kind": "List", "items": missing}));
    agent.ready();
    let events = team.kubectl("get events.events.k8s.io --field-selector type=Warning").json();
    let ours = events["items"].as_array().into_iter().flatten().filter(|event| event["regarding"]["kind"] == "Agent");
    assert_eq!(ours.count(), 0, "{events:#}");
}

#[test]
fn what_has_no_effect_is_said_and_stops_nothing() {
    let team = Team::new("no-effect");
    let agent = team.agent("hello", &json!({"governance": {"policies": ["default"]}, "tools": ["clock"]}));
    agent.stalled(&["ToolNotFound"], TOLD);
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    let seen = agent.ready();
    assert_eq!(condition(&seen, "ToolsUnused")["status"], "True", "strategy simple calls no tools: {seen:#}");
    agent.patch(&json!({"strategy": "agent-react"}));
    agent.until("without warnings", 60, |agent| condition(agent, "ToolsUnused").is_null());
}

/// Nobody knows what a model of one's own costs: the agent runs, refuses to spend, and says so until it is told.
#[test]
fn a_limit_that_could_never_be_reached_is_refused() {
    let team = Team::new("unpriced");
    team.secret("agent-env", &json!({"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": "http://127.0.0.1:1/v1"}));
    let spec = json!({"modelType": "openai", "modelId": "of-my-own", "governance": {"guards": ["spend-limit"]}});
    let agent = team.agent("hello", &spec);
    let seen = agent.ready();
    let said = condition(&seen, "SpendingCounted");
    assert_eq!((&said["status"], &said["reason"]), (&json!("False"), &json!("PriceUnknown")), "{seen:#}");
    let reply = agent.post("/chat", &json!({"message": "hello"}));
    assert_eq!(reply.status, 503, "{reply:?}");
    assert!(reply.body.contains("of-my-own") && reply.body.contains("governance.limits.prices"), "{reply:?}");

    agent.patch(&json!({"governance": {"limits": {"prices": [{"model": "of-my-own", "inputUsd": 0, "outputUsd": "0.5"}]}}}));
    agent.until("counting", 60, |agent| {
        condition(agent, "SpendingCounted").is_null() && condition(agent, "Ready")["reason"] == "DeploymentReady"
    });
    let reply = poll(30, || {
        let reply = agent.post("/chat", &json!({"message": "hello"}));
        if reply.body.contains("spend-limit") { Err(format!("an old pod answers: {reply:?}")) } else { Ok(reply) }
    });
    assert_ne!(reply.status, 200, "the model is not there, which is another matter: {reply:?}");
}

/// Each fault goes as soon as what it speaks of is there.
#[test]
fn a_fault_goes_when_its_cause_does() {
    let team = Team::new("mended");
    let suspended = |spec: Value| {
        let mut spec = spec;
        spec["suspend"] = json!(true);
        spec
    };
    unlabelled_secret(&team, "closed");
    let tool = team.agent("tool", &suspended(json!({"tools": ["late"]})));
    let missing = team.agent("missing", &suspended(json!({"envSecrets": ["late"]})));
    let closed = team.agent("closed", &suspended(json!({"envSecrets": ["closed"]})));
    let identity = team.agent("identity", &suspended(json!({"gcpServiceAccount": "late@project.example"})));
    tool.stalled(&["ToolNotFound"], TOLD);
    missing.stalled(&["SecretMissing"], TOLD);
    closed.stalled(&["SecretNotAllowed"], TOLD);
    identity.stalled(&["ServiceAccountNotAllowed"], TOLD);

    team.tool("late", &json!({"name": "datetime", "type": "builtin"}));
    team.secret("late", &json!({"KEY": "value"}));
    team.kubectl("label secret closed agents.slipway.dev/agent-readable=true").ok();
    team.apply_spec(&json!({"gcpServiceAccounts": ["late@project.example"]}));
    for agent in [tool, missing, closed, identity] {
        agent.until("suspended and well", TOLD, |agent| condition(agent, "Ready")["reason"] == "Suspended");
    }
}

#[test]
fn what_runs_goes_on_running() {
    let team = Team::new("untouched");
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    team.tool("unknown", &json!({"type": "builtin"}));
    let agent = team.agent("hello", &json!({"tools": ["clock"], "systemPrompt": "first"}));
    agent.ready();
    let children = || [agent.deployment(), agent.config(), agent.service()].map(|child| child["metadata"]["generation"].clone());
    let state = || (children(), agent.config()["data"].clone(), agent.pods()[0]["metadata"]["uid"].clone());
    let before = state();

    for (spec, reason) in [
        (json!({"tools": ["clock", "nowhere"], "systemPrompt": "second"}), "ToolNotFound"),
        (json!({"tools": ["clock", "unknown"]}), "ToolInvalid"),
        (json!({"tools": ["clock"], "knowledgeBases": ["nowhere"]}), "KnowledgeBaseNotFound"),
        (json!({"knowledgeBases": null, "envSecrets": ["nowhere"]}), "SecretMissing"),
    ] {
        agent.patch(&spec);
        agent.stalled(&[reason], TOLD);
        assert_eq!(state(), before, "{reason} should leave what runs alone");
        let seen = agent.get();
        assert_eq!((&seen["status"]["phase"], &condition(&seen, "Available")["status"]), (&json!("Running"), &json!("True")), "{reason}");
    }
    assert!(agent.chat("still there?").contains("still there?"));

    agent.patch(&json!({"envSecrets": null}));
    agent.until("changed", TOLD, |_| agent.config()["data"]["RUNTIME_SYSTEM_PROMPT"] == "second");
    agent.ready();
}

#[test]
fn names_that_are_taken() {
    let team = Team::with("taken", &json!({"gcpServiceAccounts": ["hello@project.example"]}));
    let foreign = |kind: &str, version: &str, name: &str, body: Value| {
        let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name, "labels": {"owner": "somebody"}}});
        object.as_object_mut().unwrap().extend(body.as_object().cloned().unwrap());
        team.apply(&object);
    };
    foreign("ConfigMap", "v1", "one-config", json!({"data": {"KEEP": "1"}}));
    foreign("Service", "v1", "two", json!({"spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}}));
    let pod = json!({"containers": [{"name": "main", "image": "example.com/none:1"}]});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": pod});
    foreign(
        "Deployment",
        "apps/v1",
        "three",
        json!({"spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}}),
    );
    foreign("ServiceAccount", "v1", "four", json!({}));
    let cases = [("one", "configmap/one-config"), ("two", "service/two"), ("three", "deployment/three"), ("four", "serviceaccount/four")];
    let content = |object: &str| {
        let mut content = essence(&team.get(object));
        content.as_object_mut().unwrap().remove("status");
        content
    };
    let before = cases.map(|(_, object)| content(object));
    let agents = cases.map(|(name, _)| {
        let spec = if name == "four" { json!({"gcpServiceAccount": "hello@project.example"}) } else { json!({}) };
        team.agent(name, &spec)
    });
    for ((agent, (_, object)), before) in agents.iter().zip(cases).zip(before) {
        let message = agent.stalled(&["NameTaken"], TOLD);
        let name = object.split_once('/').unwrap().1;
        assert!(message.contains(name), "the message should name {object}: {message}");
        assert_eq!(content(object), before, "{object} is not ours");
    }
    // Nobody is sent to a Service that only has the agent's name.
    let seen = agents[1].get();
    assert_eq!((&condition(&seen, "Available")["status"], &seen["status"]["endpoint"]), (&json!("False"), &Value::Null), "{seen:#}");

    // Deleting the Agent leaves it, deleting it makes way for the Agent.
    agents[1].kubectl("delete").ok();
    assert_eq!(team.get("service/two")["metadata"]["labels"]["owner"], "somebody");
    team.kubectl("delete configmap one-config").ok();
    agents[0].until("no longer in anybody's way", 90, |agent| condition(agent, "Ready")["reason"] == "DeploymentReady");
}

#[test]
fn outside_of_a_team() {
    let _turn = together();
    let home = Plain::new("e2e-plain");
    let manifest = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "stray"}, "spec": {"name": "Stray", "framework": "custom"}});
    home.kubectl("apply -f -").input(&manifest).ok();
    home.kubectl("wait agent/stray --for=condition=Stalled --timeout=10s").ok();
    let agent = home.kubectl("get agent stray").json();
    let ready = condition(&agent, "Ready");
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("NotATeamNamespace")), "{agent:#}");
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("e2e-plain") && message.contains("Team"), "{message}");
    let children = home.kubectl("get deployments,services,configmaps -l agents.slipway.dev/agent -o name").ok();
    assert_eq!(children.trim(), "", "nothing should be made outside of a team");
}

/// A namespace that belongs to no team.
struct Plain(&'static str);

impl Plain {
    fn new(name: &'static str) -> Self {
        kubectl(format!("delete namespace {name} --ignore-not-found --timeout=60s")).ok();
        kubectl(format!("create namespace {name}")).ok();
        Self(name)
    }

    fn kubectl(&self, line: &str) -> slipway_e2e::Kubectl {
        kubectl(format!("-n {} {line}", self.0))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        kubectl(format!("delete namespace {} --wait=false", self.0)).run();
    }
}
