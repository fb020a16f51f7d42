//! Tools: their phase, and how they reach the agents that name them.

use std::fs;

use serde_json::{Value, json};
pub(crate) use slipway_e2e::platform::on_the_node;
use slipway_e2e::{Agent, ROOT, Team, alone, condition, kubectl, poll, until};
use slipway_peers::skip;

/// Waits until `RUNTIME_TOOLS` is this.
#[track_caller]
fn tools_become(agent: &Agent, expected: &Value) {
    until(&format!("configmaps -n {} --field-selector metadata.name={}-config", agent.team.namespace, agent.name), 10, |objects| {
        let text = objects.first().and_then(|config| config["data"]["RUNTIME_TOOLS"].as_str()).unwrap_or("null");
        let tools: Value = serde_json::from_str(text).map_err(|e| format!("{text} should be JSON: {e}"))?;
        if tools == *expected { Ok(()) } else { Err(format!("RUNTIME_TOOLS should be {expected:#}\ngot {tools:#}")) }
    });
}

#[test]
fn they_are_resolved_in_order_with_all_their_fields() {
    let team = Team::new("tools");
    team.secret("token", &json!({"authorization": "Bearer x"}));
    let city = json!({"name": "city", "type": "string", "description": "A city.", "required": true});
    team.tool(
        "weather",
        &json!({"name": "get_weather", "type": "http", "category": "data", "description": "The weather.", "endpoint": "https://api.example.com/{city}",
            "method": "GET", "headers": {"Accept": "text/plain"}, "parameters": [city, {"name": "days", "type": "integer"}], "timeout": 7}),
    );
    team.tool("disk", &json!({"type": "cli", "binary": "/bin/df", "allowedCommands": ["-h"]}));
    let headers = json!([{"name": "Authorization", "secret": "token", "key": "authorization"}]);
    team.tool("tickets", &json!({"type": "mcp", "mcpEndpoint": "https://mcp.example.com", "headersFrom": headers}));
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    team.tool("time", &json!({"type": "cli", "binary": "/opt/server", "allowedCommands": ["--zone=UTC"], "protocol": "mcp"}));
    team.tool("off", &json!({"type": "builtin", "enabled": false}));
    // Suspended, since its image has neither of the programs.
    let agent = team.agent("hello", &json!({"tools": ["tickets", "off", "weather", "clock", "disk", "time"], "suspend": true}));
    agent.until("suspended", 20, |agent| condition(agent, "Ready")["reason"] == "Suspended");

    let deployment = agent.deployment();
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let variable =
        container["env"].as_array().and_then(|env| env.iter().find(|variable| variable["valueFrom"]["secretKeyRef"]["name"] == "token"));
    let variable = variable.unwrap_or_else(|| panic!("a variable should come from Secret token: {container:#}"));
    assert_eq!(variable["valueFrom"]["secretKeyRef"]["key"], "authorization");
    let expected = json!([
        {"name": "tickets", "type": "mcp", "category": "general", "mcpEndpoint": "https://mcp.example.com",
         "headersFrom": {"Authorization": variable["name"]}, "parameters": [], "timeout": 30},
        {"name": "get_weather", "type": "http", "category": "data", "description": "The weather.", "endpoint": "https://api.example.com/{city}",
         "method": "GET", "headers": {"Accept": "text/plain"}, "timeout": 7,
         "parameters": [city, {"name": "days", "type": "integer", "required": false}]},
        {"name": "datetime", "type": "builtin", "category": "general", "parameters": [], "timeout": 30},
        {"name": "disk", "type": "cli", "category": "general", "binary": "/bin/df", "allowedCommands": ["-h"], "parameters": [], "timeout": 30},
        {"name": "time", "type": "cli", "category": "general", "binary": "/opt/server", "allowedCommands": ["--zone=UTC"], "protocol": "mcp",
         "parameters": [], "timeout": 30},
    ]);
    tools_become(&agent, &expected);
}

#[test]
fn changes_reach_the_agents_that_name_them() {
    let team = Team::new("toolchange");
    team.tool("one", &json!({"name": "datetime", "type": "builtin"}));
    team.tool("two", &json!({"name": "calculator", "type": "builtin"}));
    let agent = team.agent("hello", &json!({"tools": ["one", "two"]}));
    let other = team.agent("other", &json!({"suspend": true}));
    agent.ready();
    other.until("suspended", 20, |agent| condition(agent, "Ready")["reason"] == "Suspended");
    let untouched = other.deployment()["metadata"]["generation"].clone();
    let hash = |deployment: &Value| deployment["spec"]["template"]["metadata"]["annotations"]["agents.slipway.dev/config-hash"].clone();
    let before = hash(&agent.deployment());
    let tool =
        |name: &str, timeout: u64| json!({"name": name, "type": "builtin", "category": "general", "parameters": [], "timeout": timeout});

    team.kubectl("patch tool one --type=merge -p").arg(json!({"spec": {"timeout": 99}})).ok();
    tools_become(&agent, &json!([tool("datetime", 99), tool("calculator", 30)]));
    let both = hash(&agent.deployment_until("another config-hash", 10, |deployment| hash(deployment) != before));

    team.kubectl("patch tool one --type=merge -p").arg(json!({"spec": {"enabled": false}})).ok();
    tools_become(&agent, &json!([tool("calculator", 30)]));
    let alone = hash(&agent.deployment_until("another config-hash", 10, |deployment| hash(deployment) != both));
    team.kubectl("patch tool two --type=merge -p").arg(json!({"spec": {"enabled": false}})).ok();
    tools_become(&agent, &json!([]));
    agent.deployment_until("another config-hash", 10, |deployment| hash(deployment) != alone);
    team.kubectl("patch tool two --type=merge -p").arg(json!({"spec": {"enabled": true}})).ok();
    tools_become(&agent, &json!([tool("calculator", 30)]));
    agent.deployment_until("the same config-hash again", 10, |deployment| hash(deployment) == alone);
    agent.ready();

    let generation = agent.deployment()["metadata"]["generation"].clone();
    team.kubectl("delete tool two").ok();
    let message = agent.stalled(&["ToolNotFound"], 10);
    assert!(message.contains("two"), "{message}");
    assert_eq!(agent.deployment()["metadata"]["generation"], generation, "what runs is left alone");
    team.tool("two", &json!({"name": "calculator", "type": "builtin"}));
    agent.ready();
    assert_eq!(other.deployment()["metadata"]["generation"], untouched, "agents that do not name a tool are not touched");
}

#[test]
fn a_good_tool_is_available() {
    let team = Team::new("toolphase");
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    team.kubectl("wait tool/clock --for=condition=Ready --timeout=10s").ok();
    let tool = team.get("tool/clock");
    assert_eq!((&tool["status"]["phase"], &tool["status"]["observedGeneration"]), (&json!("Available"), &json!(1)));
}

/// Available means that agents can use it now: what it names is there, where it goes is allowed, somebody has answered.
#[test]
fn a_tool_that_agents_cannot_use_is_not_available() {
    let team = Team::new("tooluse");
    let headers = json!([{"name": "Authorization", "secret": "late", "key": "KEY"}]);
    team.tool("guarded", &json!({"type": "http", "endpoint": "https://api.example.com", "headersFrom": headers}));
    team.tool("unknown", &json!({"type": "builtin"}));
    team.tool("inside", &json!({"type": "http", "endpoint": "http://169.254.169.254/latest"}));
    team.tool("silent", &json!({"type": "mcp", "mcpEndpoint": "https://mcp.example.com/mcp"}));
    team.tool("off", &json!({"name": "datetime", "type": "builtin", "enabled": false}));
    let becomes = |name: &str, phase: &str, reason: &str| {
        until(&format!("tools -n {} --field-selector metadata.name={name}", team.namespace), 15, |tools| {
            let is = |tool: &&Value| tool["status"]["phase"] == phase && condition(tool, "Ready")["reason"] == reason;
            tools.iter().find(is).map(|_| ()).ok_or(format!("tool {name} should be {phase} because of {reason}"))
        });
    };
    for (name, phase, reason) in [
        ("guarded", "Error", "SecretMissing"),
        ("unknown", "Error", "BuiltinUnknown"),
        ("inside", "Error", "AddressNotAllowed"),
        ("silent", "Unknown", "NotAnswered"),
        ("off", "Disabled", "Disabled"),
    ] {
        becomes(name, phase, reason);
    }
    team.secret("late", &json!({"KEY": "value"}));
    becomes("guarded", "Available", "Valid");
    team.kubectl("delete secret late").ok();
    becomes("guarded", "Error", "SecretMissing");
}

#[track_caller]
fn tool_becomes(team: &Team, what: &str, want: impl Fn(&Value) -> bool) -> Value {
    until(&format!("tools -n {} --field-selector metadata.name=changing", team.namespace), 240, |objects| {
        let tool = objects.iter().find(|tool| tool["status"]["observedGeneration"] == tool["metadata"]["generation"] && want(tool));
        tool.map(|tool| tool["status"].clone()).ok_or_else(|| format!("the tool should be {what}"))
    })
}

#[test]
fn a_secret_of_the_team_opens_no_way_that_the_platform_keeps_closed() {
    let team = Team::new("egress");
    let opened = json!({"RUNTIME_EGRESS_ALLOW": "0.0.0.0/0,kubernetes.default.svc:443", "RUNTIME_EGRESS_PROXY": "http://kubernetes.default.svc:443"});
    team.secret("agent-env", &opened);
    team.tool("inside", &json!({"type": "http", "endpoint": "https://kubernetes.default.svc/version"}));
    let spec = json!({"modelId": "stub-script", "strategy": "agent-react", "tools": ["inside"]});
    let agent = team.agent("helper", &spec);
    agent.ready();
    let answer = agent.chat("call inside {}\n\ntext {results}");
    assert!(answer.contains("not reachable for tools"), "{answer}");
}

#[test]
fn a_server_that_changes_its_tools_is_told_and_agents_keep_to_what_was_approved() {
    let Some(address) = on_the_node() else {
        skip("pods reach a server of this test only where the node is this machine");
        return;
    };
    let url = format!("http://{address}/mcp");
    let _server = slipway_peers::changing_server_at(address);
    let team = Team::new("mcpchange");
    team.tool("changing", &json!({"type": "mcp", "mcpEndpoint": url}));
    team.tool("calculator", &json!({"type": "builtin"}));
    let spec = json!({"modelId": "stub-script", "strategy": "agent-react", "tools": ["changing", "calculator"]});
    let agent = team.agent("helper", &spec);
    agent.ready();
    let generation = agent.deployment()["metadata"]["generation"].clone();
    let says = |call: &str, expected: &str| {
        poll(60, || {
            let answer = agent.chat(&format!("call {call}\n\ntext {{results}}"));
            if answer.contains(expected) { Ok(()) } else { Err(format!("{call} should be answered with {expected:?}, not {answer:?}")) }
        });
    };

    let seen = tool_becomes(&team, "seen", |tool| tool["status"]["toolsDigest"].is_string());
    assert_eq!((&seen["phase"], &seen["toolsServer"]), (&json!("Available"), &json!(url)));
    until(&format!("configmaps -n {} --field-selector metadata.name=helper-tool-digests", team.namespace), 10, |objects| {
        let digests = &objects.first().ok_or("there is none")?["data"]["RUNTIME_TOOL_DIGESTS"];
        let expected = json!({"changing": seen["toolsDigest"]}).to_string();
        if *digests == expected { Ok(()) } else { Err(format!("RUNTIME_TOOL_DIGESTS should be {expected}, not {digests}")) }
    });
    assert_eq!(agent.deployment()["metadata"]["generation"], generation, "that a list was seen restarts nobody");

    says(r#"changing_learn {"name": "trick"}"#, "learnt");
    says("changing_trick {}", "there is no tool 'changing_trick'");
    says(r#"changing_shout {"count": 3}"#, "xxx");

    // The next pod has never seen the list that was approved, and is asked as soon as it is ready.
    team.kubectl("delete pod -l agents.slipway.dev/agent=helper").ok();
    let changed = tool_becomes(&team, "in error", |tool| condition(tool, "Ready")["reason"] == "ToolsChanged");
    assert_eq!((&changed["phase"], &changed["toolsDigest"]), (&json!("Error"), &seen["toolsDigest"]));
    let told = team.get("tool/changing");
    let message = condition(&told, "Ready")["message"].as_str().unwrap();
    let observed = changed["observedDigest"].as_str().unwrap();
    assert!(message.contains("agent helper") && message.contains(observed), "{message}");
    assert!(message.contains("it offers now") && message.contains("trick"), "it should name the tools: {message}");
    poll(10, || {
        let events = team.kubectl("get events --field-selector reason=ToolsChanged,involvedObject.name=changing").json();
        if events["items"] == json!([]) { Err("an Event should tell of it".to_owned()) } else { Ok(()) }
    });
    says("changing_trick {}", "there is no tool 'changing_trick'");
    says(r#"calculator {"expression": "6*7"}"#, "42");
    assert_eq!(agent.deployment()["metadata"]["generation"], generation, "nor does a change restart anybody");
    agent.ready();

    team.kubectl("patch tool changing --type=merge -p").arg(json!({"spec": {"toolsDigest": observed}})).ok();
    let status = tool_becomes(&team, "available", |tool| tool["status"]["phase"] == "Available");
    assert_eq!((&status["toolsDigest"], &status["observedDigest"]), (&json!(observed), &Value::Null));
    agent.deployment_until("new pods", 20, |deployment| deployment["metadata"]["generation"] != generation);
    says("changing_trick {}", "this is trick");
}

/// The CRD of tools without its rules, until the test ends.
struct Relaxed {
    name: &'static str,
    file: &'static str,
}

impl Relaxed {
    /// `loosen` is given the schema of the spec.
    fn new(name: &'static str, file: &'static str, loosen: impl Fn(&mut Value)) -> Self {
        let mut crd: Value = serde_yaml::from_str(&fs::read_to_string(format!("{ROOT}/crds/{file}")).unwrap()).unwrap();
        loosen(&mut crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]);
        let guard = Self { name, file };
        guard.install(&crd.to_string());
        guard
    }

    fn install(&self, manifest: &str) {
        kubectl("apply --server-side --force-conflicts -f -").input(manifest).ok();
        kubectl(format!("wait crd/{} --for=condition=Established --timeout=20s", self.name)).ok();
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        self.install(&fs::read_to_string(format!("{ROOT}/crds/{}", self.file)).unwrap());
    }
}

/// Objects older than a rule, and objects that cannot be read at all, harm nobody but themselves.
#[test]
fn what_is_older_than_a_rule_is_told_and_stops_nobody() {
    let team = Team::within(alone("takes rules out of the cluster's definitions of Tools and Agents"), "oldtools", &json!({}));
    {
        let _tools = Relaxed::new("tools.agents.slipway.dev", "tools.yaml", |spec| {
            let fields = spec.as_object_mut().unwrap();
            fields.remove("x-kubernetes-validations");
            spec["properties"]["endpoint"].as_object_mut().unwrap().remove("x-kubernetes-validations");
            spec["properties"]["timeout"] = json!({"x-kubernetes-preserve-unknown-fields": true});
            spec["properties"]["type"].as_object_mut().unwrap().remove("enum");
        });
        let _agents = Relaxed::new("agents.agents.slipway.dev", "agents.yaml", |spec| {
            spec["properties"]["systemPrompt"] = json!({"x-kubernetes-preserve-unknown-fields": true});
            spec["properties"]["strategy"].as_object_mut().unwrap().remove("enum");
        });
        // A changed schema takes a moment to be in force.
        let old = |manifest: &Value| {
            slipway_e2e::poll(20, || {
                let outcome = team.kubectl("apply -f -").input(manifest).run();
                if outcome.code == Some(0) { Ok(()) } else { Err(outcome.stderr) }
            });
        };
        let tool = |name: &str, spec: Value| {
            let mut spec = spec;
            spec["name"] = json!(name);
            old(&json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": {"name": name}, "spec": spec}));
        };
        let agent = |name: &str, spec: &Value| old(&Agent { team: &team, name: name.to_owned() }.manifest(spec));
        tool("no-endpoint", json!({"type": "http"}));
        tool("no-binary", json!({"type": "cli"}));
        tool("no-server", json!({"type": "mcp"}));
        tool("undeclared", json!({"type": "http", "endpoint": "https://api.example.com/{city}"}));
        tool("malformed", json!({"type": "telepathy"}));
        agent("malformed", &json!({"strategy": "telepathy"}));
        let hurt = team.agent("hurt", &json!({"suspend": true}));
        hurt.until("be stopped", 20, |agent| agent["status"]["phase"] == "Terminated");
        agent("hurt", &json!({"suspend": true, "strategy": "telepathy"}));
        // Of these the API server itself can hardly make sense.
        tool("unreadable", json!({"type": "builtin", "timeout": "soon"}));
        agent("unreadable", &json!({"systemPrompt": 3}));
    }
    for (name, word) in
        [("no-endpoint", "endpoint"), ("no-binary", "binary"), ("no-server", "mcpEndpoint"), ("undeclared", "{city}"), ("malformed", "")]
    {
        let tool = until(&format!("tools -n {} --field-selector metadata.name={name}", team.namespace), 40, |objects| {
            let tool = objects.iter().find(|tool| tool["status"]["phase"] == "Error");
            tool.cloned().ok_or(format!("tool {name} should be in phase Error"))
        });
        let ready = condition(&tool, "Ready");
        let message = ready["message"].as_str().unwrap();
        assert!(ready["status"] == "False" && message.contains(word), "{name} should name {word:?}: {message}");
    }
    for name in ["malformed", "hurt"] {
        until(&format!("agents -n {} --field-selector metadata.name={name}", team.namespace), 40, |objects| {
            let told = objects.iter().any(|agent| condition(agent, "Stalled")["status"] == "True");
            if told { Ok(()) } else { Err(format!("agent {name} should be told that it is malformed")) }
        });
    }
    let status = team.get("agent/hurt")["status"].clone();
    assert!(status["endpoint"].is_string() && status["selector"].is_string(), "what was known of it is forgotten: {status}");
    // It is mended, and nothing of the complaint stays.
    let hurt = team.agent("hurt", &json!({"suspend": true}));
    hurt.until("be well again", 20, |agent| agent["status"]["phase"] == "Terminated" && condition(agent, "Stalled")["status"] == "False");

    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    let agent = team.agent("hello", &json!({"tools": ["clock"]}));
    agent.ready();
    for name in ["malformed", "no-endpoint"] {
        let stalled = team.agent(&format!("uses-{name}"), &json!({"tools": [name]}));
        let message = stalled.stalled(&["ToolInvalid"], 10);
        assert!(message.contains(name), "{message}");
    }
}
