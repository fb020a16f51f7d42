//! The platform's configuration, whether what it names is there, and bringing cluster and repositories to the same.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, State, Team, fresh};

/// The configuration lies in the team's own namespace, so that nobody else's agents hear of it, and REST knows no state
/// role, which would tell of the mirror of all.
#[test]
fn configuration_answers_as_written_down() {
    let team = Team::new("golden-config");
    let mlflow = slipway_peers::mlflow();
    let namespace = team.namespace.as_str();
    let here = [("SLIPWAY_DEFAULT_NAMESPACE", namespace), ("SLIPWAY_PLATFORM_NAMESPACE", namespace)];
    let api = Api::start(&[&[("AUTH_ENABLED", "false")], &here[..]].concat());
    let call = |method: &str, path: &str| api.call(method, &format!("/platform{path}"));
    let put = |body: Value| call("PUT", "/config").json(&body).send();
    let mut golden = Golden::of("api_golden/config.json");
    golden.name(mlflow.url(), "<mlflow>");

    golden.keep("GET /platform/config where nothing is configured", &call("GET", "/config").send());
    golden.keep("PUT /platform/config", &put(json!({"mlflow_uri": mlflow.url()})));
    let tested = call("POST", "/config/test").send();
    let says = tested.json()["data"]["mlflow"]["message"].as_str().unwrap_or_default().to_owned();
    let version = says.split(' ').find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    golden.name(version.unwrap_or_else(|| panic!("no version of MLflow: {tested:?}")), "<version>");
    golden.keep("POST /platform/config/test", &tested);
    let mirror = json!({"state_repo": "https://git.invalid/agents/{team}.git", "state_branch": "live", "state_token": "hunter2"});
    golden.keep("PUT /platform/config with a mirror", &put(mirror));
    golden.keep("GET /platform/config", &call("GET", "/config").send());
    let nothing = json!({"mlflow_uri": null, "state_repo": null, "state_branch": null, "state_token": null});
    golden.keep("PUT /platform/config with nothing", &put(nothing));
    golden.compare();
}

#[test]
fn a_sync_answers_as_written_down() {
    let team = Team::new("golden-sync");
    let folder = tempfile::tempdir().unwrap();
    let state = State::of(&team, folder.path());
    let namespace = team.namespace.as_str();
    // A sync is about what REST looks at.
    let here = [("SLIPWAY_DEFAULT_NAMESPACE", namespace), ("SLIPWAY_WATCH_NAMESPACES", namespace)];
    let api = Api::start(&[&state.environment()[..], &[("AUTH_ENABLED", "false")], &here].concat());
    let mut golden = Golden::of("api_golden/sync.json");
    let agents = [("helper", json!({})), ("resting", json!({"suspend": true}))];
    for (name, spec) in agents {
        let agent = team.agent(&fresh(name), &spec);
        let seen = agent.until("looked at", 60, |agent| spec["suspend"] == true || agent["status"]["activeRelease"] == 1);
        golden.name(seen["status"]["id"].as_str().unwrap_or_default(), if name == "helper" { "<helper>" } else { "<resting>" });
        golden.name(&agent.name, name);
    }
    golden.keep("POST /platform/sync", &api.call("POST", "/platform/sync").send());
    golden.compare();
}
