//! Integrations: made with a login, which is in no answer, tested, and deleted with it.

use serde_json::json;
use slipway_e2e::{Api, Golden, Reply, Team, poll};

/// Who tests it, when, and what came of it are the manager's.
const OF_THE_MANAGER: [&str; 6] = ["status", "message", "credential_keys", "last_test", "latency_ms", "delivery"];
const PLANTED: &str = "hunter2";

#[test]
fn integrations_answer_as_written_down() {
    let team = Team::new("golden-integrations");
    let api = Api::of(&team);
    let mut golden = Golden::of("api_golden/integrations.json").hiding(&["signing_secret"]).uncertain(&OF_THE_MANAGER);
    let mut keep = |call: &str, reply: &Reply| {
        assert!(!reply.body.contains(PLANTED), "{call}: {reply:?}");
        golden.keep(call, reply);
    };
    keep("GET /integrations/types", &api.call("GET", "/integrations/types").send());
    let metrics = json!({
        "name": "Metrics", "type": "prometheus", "config": {"url": "https://metrics.invalid"},
        "credentials": {"username": "slipway", "password": PLANTED},
    });
    keep("POST /integrations", &api.call("POST", "/integrations").json(&metrics).send());
    let secret = team.kubectl("get secret in-metrics").json();
    assert_eq!((&secret["type"], &secret["data"]["password"]), (&json!("Opaque"), &json!("aHVudGVyMg==")));
    assert_eq!(secret["metadata"]["ownerReferences"][0]["kind"], "Integration");
    let alerts = json!({
        "name": "Alerts", "description": "Who is on call.", "type": "webhook", "config": {"url": "https://hooks.invalid/slipway"},
        "alerts": {"severities": ["critical"]},
    });
    let made = api.call("POST", "/integrations").json(&alerts).send();
    keep("POST /integrations of a webhook", &made);
    let shown = made.json()["data"]["generated"]["signing_secret"].as_str().unwrap_or_default().to_owned();
    assert!(shown.starts_with("whsec_"), "the webhook's secret is shown: {made:?}");
    keep("GET /integrations/{id}", &api.call("GET", "/integrations/in_alerts").send());
    let listed = api.call("GET", "/integrations?type=webhook").header("X-Resource-Version", made.header("x-resource-version")).send();
    assert!(!listed.body.contains(&shown), "it is shown once: {listed:?}");
    keep("GET /integrations?type=webhook", &listed);
    let renamed = json!({"name": "Our Metrics", "type": "prometheus", "config": {"url": "https://metrics.invalid/api"}});
    keep("PUT /integrations/{id}", &api.call("PUT", "/integrations/metrics").json(&renamed).send());
    // The team's worker may be on its way, and a change is tested by itself.
    let tested = poll(180, || match api.call("POST", "/integrations/metrics/test").send() {
        reply if matches!(reply.status, 429 | 503 | 504) => Err(format!("it should be tested: {reply:?}")),
        reply => Ok(reply),
    });
    assert_eq!(tested.json()["data"]["status"], "error", "nobody is there: {tested:?}");
    keep("POST /integrations/{id}/test", &tested);
    keep("DELETE /integrations/{id}", &api.call("DELETE", "/integrations/metrics").send());
    poll(60, || match team.kubectl("get secret in-metrics --ignore-not-found -o name").ok() {
        gone if gone.is_empty() => Ok(()),
        there => Err(format!("the login should go with the integration: {there}")),
    });
    golden.compare();
}
