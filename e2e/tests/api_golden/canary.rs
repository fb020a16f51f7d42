//! Canaries of agents.

use serde_json::json;
use slipway_e2e::{Api, Golden, Team, fresh, poll};

#[test]
fn canaries_answer_as_written_down() {
    let team = Team::new(&fresh("golden-canary"));
    let api = Api::of(&team);
    // Who else carries the weight depends on the kinds that other tests install.
    let mut golden = Golden::of("api_golden/canary.json").hiding(&["started_at", "traffic"]);
    let agent = team.agent("helper", &json!({"storage": "memory", "version": "1"}));
    golden.name(agent.ready()["status"]["id"].as_str().unwrap_or_default(), "<agent>");
    let call = |method: &str, path: &str| api.call(method, &format!("/agents/helper/canary{path}"));
    let start =
        |version: &str| call("POST", "").json(&json!({"config": {"weight": 10, "system_prompt": "Be brief.", "version": version}})).send();
    let stands = |phase: &str| {
        poll(120, || {
            let shown = call("GET", "").send();
            if shown.json()["data"]["phase"] == phase { Ok(shown) } else { Err(format!("the canary should be {phase}: {shown:?}")) }
        })
    };
    let ended = || {
        agent.until("without a canary", 120, |found| found["status"]["canary"].is_null() && found["spec"]["canary"].is_null());
    };

    golden.keep("POST /agents/{id}/canary", &start("2"));
    golden.keep("GET /agents/{id}/canary", &stands("serving"));
    golden.keep("PATCH /agents/{id}/canary", &call("PATCH", "").json(&json!({"weight": 20})).send());
    golden.keep("POST /agents/{id}/canary/promote", &call("POST", "/promote").send());
    ended();
    golden.keep("POST /agents/{id}/canary of the next one", &start("3"));
    stands("serving");
    golden.keep("POST /agents/{id}/canary/rollback", &call("POST", "/rollback").send());
    ended();
    golden.compare();
}
