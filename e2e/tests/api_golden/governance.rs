//! Guardrail policies, scorecards and the radar, of an agent that nobody has asked anything, where there is no database.

use serde_json::json;
use slipway_e2e::{Api, Golden, Team, fresh};

#[test]
fn governance_answers_as_written_down() {
    // Others have policies of their own, which the team begins with.
    let team = Team::new(&fresh("golden-governance"));
    let api = Api::start(&[("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", &team.namespace), ("SLIPWAY_DATABASE_URL", "")]);
    let agent = team.agent("resting", &json!({"suspend": true}));
    let seen = agent.until("suspended", 60, |agent| agent["status"]["phase"] == "Terminated");
    let version = seen["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let get = |path: &str| api.call("GET", path).header("X-Resource-Version", &version).send();
    let mut golden = Golden::of("api_golden/governance.json").uncertain(&["message"]);
    golden.name(seen["status"]["id"].as_str().unwrap_or_default(), "<agent>");

    let rule = json!({"type": "blocked_topics", "operator": "contains", "value": "dosage"});
    let body = json!({"name": "No Advice", "description": "We are no doctors.", "severity": "critical", "rules": [rule]});
    let held = ["agents", "violations"];
    golden.keep_but("POST /governance/policies", &api.call("POST", "/governance/policies").json(&body).send(), &held);
    golden.keep_but("GET /governance/policies/{id}", &api.call("GET", "/governance/policies/gp_no_advice").send(), &held);
    let replaced = json!({"name": "No Advice", "severity": "warning", "enabled": false, "rules": [rule]});
    let replaced = api.call("PUT", "/governance/policies/no-advice").json(&replaced).send();
    golden.keep_but("PUT /governance/policies/{id}", &replaced, &held);
    let listed = api.call("GET", "/governance/policies?search=advice").header("X-Resource-Version", replaced.header("x-resource-version"));
    golden.keep_but("GET /governance/policies", &listed.send(), &held);
    golden.keep("DELETE /governance/policies/{id}", &api.call("DELETE", "/governance/policies/no-advice").send());

    golden.keep("GET /governance/scorecards", &get("/governance/scorecards"));
    golden.keep("GET /governance/scorecards/{agent_id}", &get("/governance/scorecards/resting"));
    golden.keep("GET /radar", &get("/radar"));
    golden.keep("GET /radar/alerts", &get("/radar/alerts"));
    golden.keep("GET /radar/{agent_id}", &get("/radar/resting"));
    golden.keep("GET /radar/{agent_id}/alerts", &get("/radar/resting/alerts"));
    golden.compare();
}
