//! Steps 4 and 5: servers outside of the platform, which a team names and tests, and what the platform itself connects to.

use serde_json::{Value, json};
use slipway_e2e::{condition, kubectl, platform};

use crate::model::KEY;
use crate::stage::{Stage, until};

/// What the specification's API has keys for.
const TYPES: [&str; 13] = [
    "local",
    "google-drive",
    "s3",
    "confluence",
    "jira",
    "databricks",
    "mlflow",
    "prometheus",
    "webhook",
    "slack",
    "openai",
    "anthropic",
    "mcp",
];
const CONNECTIONS: [&str; 8] = ["cluster", "database", "git", "knowledge", "mlflow", "prometheus", "state", "workers"];
/// What the page calls its mirror's token.
pub(crate) const STATE_TOKEN: &str = "planted-state-token-77ab";

pub(crate) fn integrations(stage: &mut Stage) {
    stage.play("What lies outside");
    let types = stage.get("vic", "harbor", "/integrations/types");
    let mut found: Vec<&str> = types.as_array().into_iter().flatten().filter_map(|one| one["type"].as_str()).collect();
    let mut expected = TYPES.to_vec();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);

    // Of its new key it may be heard after the test that the page asked for.
    until("it is connected as it is now", 60, || {
        let model = stage.get("vic", "harbor", "/integrations/llm");
        if model["status"] == "connected" { Ok(()) } else { Err(model) }
    });
    let model = stage.get("vic", "harbor", "/integrations/llm");
    assert_eq!((&model["id"], &model["type"]), (&json!("in_llm"), &json!("openai")), "{model:#}");
    assert_eq!(model["credential_keys"], json!(["api_key"]), "{model:#}");
    assert!(model["last_test"]["latency_ms"].as_i64().is_some_and(|latency| latency >= 0), "{model:#}");
    assert!(!model.to_string().contains(KEY), "a login is never shown");
    let object = stage.harbor.get("integration/llm");
    assert_eq!(
        (&object["status"]["phase"], &condition(&object, "Ready")["reason"]),
        (&json!("Connected"), &json!("Connected")),
        "{object:#}"
    );
    until("an address that nobody may reach is refused", 60, || {
        let inside = stage.get("vic", "harbor", "/integrations/inside");
        let names_it = inside["message"].as_str().is_some_and(|words| words.contains("agents.egressAllow"));
        if inside["status"] == "error" && names_it { Ok(()) } else { Err(inside) }
    });
    // Kubectl asks for a test as REST does.
    stage.harbor.kubectl("annotate integration llm --overwrite agents.slipway.dev/test=by-kubectl").ok();
    until("a test that kubectl asked for", 60, || {
        let object = stage.harbor.get("integration/llm");
        let test = &object["status"]["lastTest"];
        if test["id"] == "by-kubectl" && test["succeeded"] == true { Ok(()) } else { Err(object["status"].clone()) }
    });
    assert_eq!(stage.call("vic", "harbor", "POST", "/integrations/llm/test").send().status, 403, "viewers connect nothing");
    assert_eq!(stage.call("bob", "depot", "GET", "/integrations/llm").send().status, 404, "it is the harbor's");

    let secret = secret(stage, "hook.json");
    let tests: Vec<_> = stage.hook.messages("/harbor").into_iter().filter(|message| message.body["type"] == "test").collect();
    assert!(!tests.is_empty(), "the receiver should have had a test");
    for message in tests {
        assert_eq!(message.fault(&secret), None);
    }
    let again = stage.get("dev", "harbor", "/integrations/hook");
    assert!(!again.to_string().contains(&secret), "what was made up is shown once");
    stage.facts.insert("secret of harbor", json!(secret));
}

/// What REST has made up for a webhook, as the page has kept the answer.
#[track_caller]
pub(crate) fn secret(stage: &Stage, file: &str) -> String {
    let made: Value = serde_json::from_str(&stage.file(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let secret = made["data"]["generated"]["signing_secret"].as_str().or(made["generated"]["signing_secret"].as_str());
    let secret = secret.unwrap_or_else(|| panic!("a signing secret should have been made: {made:#}"));
    assert!(secret.starts_with("whsec_"), "it has another form");
    secret.to_owned()
}

pub(crate) fn the_platforms_own(stage: &mut Stage) {
    stage.play("The platform's own connections");
    let tested = stage.call("root", "harbor", "POST", "/platform/config/test").expect(200)["data"].clone();
    let found: Vec<&String> = tested.as_object().into_iter().flatten().map(|(name, _)| name).collect();
    assert_eq!(found, CONNECTIONS, "{tested:#}");
    for name in ["cluster", "database", "knowledge", "state"] {
        assert_eq!(tested[name]["status"], "ok", "{name}: {tested:#}");
    }
    assert_eq!(tested["git"]["status"], "not_configured", "the page has taken its mirror away: {tested:#}");
    for person in ["ann", "dev", "vic"] {
        assert_eq!(stage.call(person, "harbor", "POST", "/platform/config/test").send().status, 403, "{person}");
    }
    let kept = kubectl(format!("-n {} get configmap slipway-platform", platform::NAMESPACE)).json();
    assert!(!kept.to_string().contains(STATE_TOKEN), "a token stands in no ConfigMap");
}
