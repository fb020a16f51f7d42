//! Thousands of faults in one object, each of which the API server would compare with all others.

use std::time::{Duration, Instant};

use serde_json::json;
use slipway_e2e::attack::Installation;

/// A developer sends lists of 20,000 wrong items by every route that writes one of our kinds. REST says what is wrong of the
/// first few at once, and the API server never sees them.
#[test]
fn twenty_thousand_wrong_items_cost_nothing() {
    let slipway = Installation::shared();
    let namespace = slipway.team("errors");
    let developer = slipway.member("errors-developer", "slipway-developer", &namespace);
    let rest = slipway.rest(&[]);
    let call = |method: &str, path: &str| rest.call(method, path).header("X-Team", "errors").token(&developer.token);
    call("POST", "/agents").json(&json!({"name": "helper", "framework": "custom"})).expect(201);
    let wrong: Vec<_> = (0..20_000).collect();
    let empty = vec![""; 20_000];
    let affinity = json!({"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wrong}});
    let begun = Instant::now();
    for (method, path, body, says) in [
        (
            "POST",
            "/agents",
            json!({"name": "a", "framework": "custom", "tools": wrong}),
            "tools: must have at most 64 items, and has 20000",
        ),
        ("POST", "/agents", json!({"name": "a", "framework": "custom", "tools": empty}), "tools: must have at most 64 items"),
        (
            "POST",
            "/agents",
            json!({"name": "a", "framework": "custom", "pod_template": {"affinity": affinity}}),
            "must have at most 64 items",
        ),
        ("PATCH", "/agents/helper/config", json!({"knowledge_bases": wrong}), "knowledge_bases: must have at most 32 items"),
        ("PUT", "/agents/helper/skills", json!({"skills": empty}), "skills: must have at most 32 items"),
        (
            "POST",
            "/tools",
            json!({"name": "t", "type": "cli", "binary": "/bin/df", "allowed_commands": wrong}),
            "allowed_commands: must have at most 128 items",
        ),
        ("POST", "/tools", json!({"name": "t", "type": "http", "parameters": wrong}), "parameters: must have at most 64 items"),
        (
            "POST",
            "/skills",
            json!({"name": "s", "description": "d", "instructions": "i", "tools": wrong}),
            "tools: must have at most 64 items",
        ),
    ] {
        let error = call(method, path).json(&body).expect(400);
        assert!(error.to_string().contains(says), "{method} {path}: {error}");
    }
    let took = begun.elapsed();
    // One list alone takes the API server minutes, see docs/limits.md; REST takes milliseconds, and more on a busy machine.
    assert!(took < Duration::from_mins(1), "eight refusals took {took:?}");
    let left = slipway.kubectl(format!("get agents,tools,skills -n {namespace} -o name")).ok();
    assert_eq!(left.trim(), "agent.agents.slipway.dev/helper");
}
