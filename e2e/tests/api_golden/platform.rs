//! The platform's configuration, whether what it names is there, and bringing cluster and repositories to the same.

use serde_json::{Value, json};
use slipway_e2e::{Api, Golden, State, Team, condition, fresh, platform, poll};

/// The configuration lies in the team's own namespace, so that nobody else's agents and repositories hear of it.
#[test]
fn configuration_answers_as_written_down() {
    let team = Team::new("golden-config");
    let folder = tempfile::tempdir().unwrap();
    let (mlflow, remote) = (slipway_peers::mlflow(), slipway_peers::sshd());
    remote.repository("agents.git", &[]);
    let namespace = team.namespace.as_str();
    platform::keep_configuration_in(namespace);
    let place = ("SLIPWAY_PLATFORM_NAMESPACE", namespace);
    let state = State::with(&team, folder.path(), namespace, &[place, ("SLIPWAY_MIRROR_ALLOW", "127.0.0.0/8")]);
    // Whose workers are asked is who is looked at.
    let here = [("SLIPWAY_DEFAULT_NAMESPACE", namespace), ("SLIPWAY_WATCH_NAMESPACES", namespace)];
    let open = [("AUTH_ENABLED", "false"), place];
    let api = Api::start(&[&state.environment()[..], &open, &here].concat());
    let call = |method: &str, path: &str| api.call(method, &format!("/platform{path}"));
    let put = |body: Value| call("PUT", "/config").json(&body).send();
    let mut golden = Golden::of("api_golden/config.json");
    golden.name(mlflow.url(), "<mlflow>");
    golden.name(remote.url("agents.git"), "<remote>");
    golden.name(remote.host_key(), "<host key>");

    golden.keep("GET /platform/config where nothing is configured", &call("GET", "/config").send());
    golden.keep("PUT /platform/config", &put(json!({"mlflow_uri": mlflow.url()})));
    let mirror = json!({"state_repo": remote.url("agents.git"), "state_known_hosts": remote.host_key(), "state_ssh_key": remote.key()});
    // The state role may have heard of it by then, or not.
    golden.keep_but("PUT /platform/config with a mirror", &put(mirror), &["git_status", "git_message"]);
    let mirrored = poll(20, || {
        let reply = call("GET", "/config").send();
        if reply.json()["data"]["git_status"] == "ok" { Ok(reply) } else { Err(format!("there should be a mirror: {reply:?}")) }
    });
    golden.keep("GET /platform/config", &mirrored);
    let tested = call("POST", "/config/test").send();
    let says = tested.json()["data"]["mlflow"]["message"].as_str().unwrap_or_default().to_owned();
    let version = says.split(' ').find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    golden.name(version.unwrap_or_else(|| panic!("no version of MLflow: {tested:?}")), "<version>");
    golden.keep("POST /platform/config/test", &tested);
    let without = json!({"mlflow_uri": null, "state_repo": null, "state_known_hosts": null, "state_ssh_key": null});
    golden.keep("POST /platform/config/test of what would be", &call("POST", "/config/test").json(&without).send());
    let wrong = json!({"state_repo": "ssh://git@elsewhere.example.com/x.git"});
    golden.keep("POST /platform/config/test with a key for another host", &call("POST", "/config/test").json(&wrong).send());
    let nothing = json!({"mlflow_uri": null, "state_repo": null, "state_known_hosts": null, "state_ssh_key": null});
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
        // Its release is active before its pods are all ready, and runs after.
        let runs = |agent: &Value| {
            let conditions = ["Ready", "Reconciling"].map(|kind| condition(agent, kind)["status"].clone());
            agent["status"]["activeRelease"] == 1 && conditions == ["True", "False"]
        };
        let seen = agent.until("looked at", 60, |agent| spec["suspend"] == true || runs(agent));
        golden.name(seen["status"]["id"].as_str().unwrap_or_default(), if name == "helper" { "<helper>" } else { "<resting>" });
        golden.name(&agent.name, name);
    }
    golden.keep("POST /platform/sync", &api.call("POST", "/platform/sync").send());
    golden.compare();
}
