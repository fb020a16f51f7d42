//! The ground on which all attacks take place.

use serde_json::json;
use slipway_e2e::attack::Installation;

/// Without this, an attack might fail because nothing works at all.
#[test]
fn a_developer_makes_an_agent_and_a_stranger_does_not() {
    let slipway = Installation::shared();
    let namespace = slipway.team("ground");
    let developer = slipway.member("ground-developer", "slipway-developer", &namespace);
    let stranger = slipway.person("ground-stranger");
    let rest = slipway.rest(&[]);
    let agent = json!({"name": "hello", "framework": "custom"});
    rest.call("POST", "/agents").header("X-Team", "ground").token(&stranger.token).json(&agent).expect(403);
    rest.call("POST", "/agents").header("X-Team", "ground").token(&developer.token).json(&agent).expect(201);
    let found = slipway.kubectl(format!("get agents -n {namespace} -o name")).ok();
    assert_eq!(found.trim(), "agent.agents.slipway.dev/hello");
}
