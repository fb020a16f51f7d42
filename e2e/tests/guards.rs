//! Governance: which guards an agent's runtime is told of, and with which limits.

use serde_json::{Value, json};
use slipway_e2e::Team;

#[test]
fn guards_come_with_their_limits() {
    let team = Team::new("guards");
    let spec = json!({"suspend": true, "governance": {
        "guards": ["secrets-scanner", "rate-limit", "spend-limit", "blocked-topics", "max-tokens"],
        "limits": {"requestsPerMinute": 60, "dailyCostUsd": "2.50", "blockedTopics": ["weapons"]},
    }});
    let agent = team.agent("hello", &spec);
    agent.deployment_until("been made", 20, |_| true);
    let guards = |text: &Value| serde_json::from_str::<Value>(text.as_str().unwrap_or("null")).unwrap();
    let expected = json!([
        "secrets-scanner", {"name": "rate-limit", "requests": 60}, {"name": "spend-limit", "usd": 2.5},
        {"name": "blocked-topics", "topics": ["weapons"]}, "max-tokens",
    ]);
    assert_eq!(guards(&agent.config()["data"]["RUNTIME_GUARDS"]), expected);
    agent.patch(&json!({"governance": null}));
    agent.until("seen again", 10, |_| agent.config()["data"]["RUNTIME_GUARDS"].is_null());
}
