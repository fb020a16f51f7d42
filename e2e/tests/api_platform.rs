//! The platform's configuration over REST: what is kept, what agents are told of it, and what a test of it finds.

use serde_json::{Value, json};
use slipway_e2e::{Api, Kubectl, State, Team, alone, kubectl, platform, poll};

const NAMESPACE: &str = "slipway-system";

/// Empties ConfigMap and Secret, before and after.
struct Clean;

/// The chart makes them, and nobody else can.
fn empty(kind: &str) -> Kubectl {
    kubectl(format!("-n {NAMESPACE} patch {kind} slipway-platform --type=merge -p")).arg(json!({"data": null}))
}

impl Clean {
    fn now() -> Self {
        for kind in ["configmap", "secret"] {
            empty(kind).ok();
        }
        Self
    }
}

impl Drop for Clean {
    fn drop(&mut self) {
        for kind in ["configmap", "secret"] {
            let _ = empty(kind).run();
        }
    }
}

/// What is answered where nothing is configured.
fn nothing() -> Value {
    json!({"mlflow_uri": null, "prometheus_url": null, "state_repo": null, "state_branch": null, "state_known_hosts": null, "state_ca": null, "state_token": null,
        "state_ssh_key": null, "git_status": "not_configured", "git_message": null})
}

#[test]
fn a_token_is_kept_in_the_secret_and_never_shown() {
    let team = Team::within(alone("changes where the history of all teams is mirrored"), "api-platform-git", &json!({}));
    let _clean = Clean::now();
    let api = Api::of(&team);
    let put = |body: Value| api.call("PUT", "/platform/config").json(&body);
    // A host name that does not exist: the mirror finds nothing to push to.
    let repo = "https://git.invalid/agents/{team}.git";
    let kept = put(json!({"state_repo": repo, "state_branch": "live", "state_token": "hunter2"})).expect(200)["data"].clone();
    assert_eq!((&kept["state_repo"], &kept["state_token"]), (&json!(repo), &json!("********")), "{kept}");
    assert_ne!(kept["git_status"], "not_configured", "{kept}");
    let secret = || kubectl(format!("-n {NAMESPACE} get secret slipway-platform")).json()["data"].clone();
    let map = || kubectl(format!("-n {NAMESPACE} get configmap slipway-platform")).json()["data"].clone();
    assert_eq!(secret(), json!({"state_token": "aHVudGVyMg=="}));
    assert_eq!(map(), json!({"state_repo": repo, "state_branch": "live"}));

    // What was shown can be sent back, and the token stays.
    let sent_back: Value =
        ["state_repo", "state_branch", "state_token"].into_iter().map(|name| (name.to_owned(), kept[name].clone())).collect();
    put(sent_back).expect(200);
    assert_eq!(secret(), json!({"state_token": "aHVudGVyMg=="}));
    // It goes to no other host.
    let elsewhere = put(json!({"state_repo": "https://elsewhere.invalid/x/{team}.git"})).send();
    let message = elsewhere.json()["message"].as_str().unwrap().to_owned();
    assert!(elsewhere.status == 400 && message.starts_with("state_token: must be given anew"), "{elsewhere:?}");
    put(json!({"state_repo": "https://elsewhere.invalid/x/{team}.git", "state_token": "other"})).expect(200);
    assert_eq!(secret(), json!({"state_token": "b3RoZXI="}));
    let gone = put(json!({"state_repo": null, "state_branch": null, "state_token": null})).expect(200);
    assert_eq!(gone["data"], nothing());
    assert!(secret().as_object().is_none_or(serde_json::Map::is_empty), "{}", secret());
    assert!(!api.log().contains("hunter2"), "{}", api.log());
}

#[test]
fn what_is_configured_reaches_agents() {
    let team = Team::within(alone("changes what all agents are told, so that they restart"), "api-platform", &json!({}));
    let _clean = Clean::now();
    let api = Api::of(&team);
    assert_eq!(api.call("GET", "/platform/config").expect(200)["data"], nothing());
    let agent = team.agent("hello", &json!({"suspend": true}));
    let told = |wanted: Value| {
        poll(30, || {
            let found = agent.config()["data"]["RUNTIME_MLFLOW_URI"].clone();
            if found == wanted { Ok(()) } else { Err(format!("the agent is told {found} and not {wanted}")) }
        });
    };
    agent.until("told", 20, |agent| agent["status"]["phase"] == "Terminated");
    told(Value::Null);

    let put = |body: Value| api.call("PUT", "/platform/config").json(&body);
    assert_eq!(put(json!({"mlflow_uri": "https://mlflow.example.com"})).expect(200)["data"]["mlflow_uri"], "https://mlflow.example.com");
    told(json!("https://mlflow.example.com"));
    assert_eq!(put(json!({})).expect(200)["data"]["mlflow_uri"], "https://mlflow.example.com", "what is not given stays");
    for (body, says) in [
        (json!({"mlflow_uri": "https://me:hunter2@mlflow"}), "mlflow_uri: it must hold no user and password"),
        (json!({"mlflow_uri": "mlflow"}), "mlflow_uri: it is no URL"),
        (json!({"prometheus_url": "https://me:hunter2@prometheus"}), "prometheus_url: it must hold no user and password"),
        (json!({"grafana_url": "http://x"}), "unknown field `grafana_url`"),
        (json!({"state_repo": "https://me:hunter2@git.example.com/x"}), "state_repo: the URL must hold no password"),
    ] {
        let reply = put(body.clone()).send();
        let message = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && message.contains(says) && !message.contains("hunter2"), "{body}: {reply:?}");
    }
    assert_eq!(put(json!({"prometheus_url": "http://prometheus:9090"})).expect(200)["data"]["prometheus_url"], "http://prometheus:9090");
    assert_eq!(put(json!({"mlflow_uri": null, "prometheus_url": null})).expect(200)["data"], nothing());
    told(Value::Null);
}

/// The configuration lies in the team's own namespace, so that the platform's says nothing.
#[test]
fn a_test_really_connects() {
    let team = Team::new("api-platform-test");
    let namespace = team.namespace.as_str();
    platform::keep_configuration_in(namespace);
    let open = [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", namespace), ("SLIPWAY_PLATFORM_NAMESPACE", namespace)];
    let (postgres, mlflow) = (slipway_peers::Postgres::start(), slipway_peers::mlflow());
    let prometheus = slipway_peers::Prometheus::start(&[], &[]);
    let (database, prometheus_url) = (postgres.url_of("postgres", "hunter2", "postgres"), prometheus.url());
    let servers =
        [("SLIPWAY_DATABASE_URL", &*database), ("SLIPWAY_MLFLOW_URI", mlflow.url()), ("SLIPWAY_PROMETHEUS_URL", &*prometheus_url)];
    let api = Api::start(&[&open[..], &servers].concat());
    let found = api.call("POST", "/platform/config/test").expect(200);
    let status = |part: &str| found["data"][part]["status"].as_str().unwrap_or_default().to_owned();
    assert_eq!(["mlflow", "prometheus", "cluster", "database"].map(status), ["ok", "ok", "ok", "error"].map(str::to_owned), "{found}");
    assert!(!found.to_string().contains("hunter2"), "{found}");
    let none = Api::start(&open).call("POST", "/platform/config/test").expect(200);
    let parts = ["git", "mlflow", "prometheus", "database", "knowledge"];
    assert_eq!(parts.map(|part| none["data"][part]["status"].as_str()), [Some("not_configured"); 5]);
}

/// The configuration lies in the team's own namespace, so that nobody else's repositories hear of it.
#[test]
fn what_would_be_is_tested_before_it_is_stored() {
    let team = Team::new("api-platform-wanted");
    let folder = tempfile::tempdir().unwrap();
    let remote = slipway_peers::GitHttp::start();
    for repository in ["agents.git", "others.git"] {
        remote.repository(repository, &[]);
    }
    let namespace = team.namespace.as_str();
    platform::keep_configuration_in(namespace);
    let place = ("SLIPWAY_PLATFORM_NAMESPACE", namespace);
    let state = State::with(&team, folder.path(), namespace, &[place, ("SLIPWAY_MIRROR_ALLOW", "127.0.0.0/8")]);
    let open = [("AUTH_ENABLED", "false"), ("SLIPWAY_DEFAULT_NAMESPACE", namespace), place];
    let api = Api::start(&[&state.environment()[..], &open].concat());
    let test = |body: &Value| api.call("POST", "/platform/config/test").json(body).expect(200)["data"].clone();
    let wanted = json!({"state_repo": remote.url("agents.git"), "state_ca": remote.authority(), "state_token": remote.token()});
    let found = test(&wanted);
    assert_eq!((&found["git"]["status"], &found["state"]["status"]), (&json!("ok"), &json!("ok")), "{found}");
    let mut wrong = wanted.clone();
    wrong["state_token"] = json!("hunter2");
    let found = test(&wrong);
    assert!(found["git"]["message"].as_str().is_some_and(|says| says.contains("does not take our credentials")), "{found}");
    assert!(!found.to_string().contains("hunter2") && !api.log().contains("hunter2"), "{found}");
    assert_eq!(api.call("GET", "/platform/config").expect(200)["data"], nothing(), "nothing is stored");

    // The stored token is used for another repository of the host that it is for, and no other.
    api.call("PUT", "/platform/config").json(&wanted).expect(200);
    let other = json!({"state_repo": remote.url("others.git"), "state_token": "********"});
    poll(20, || match test(&other) {
        found if found["git"]["status"] == "ok" => Ok(()),
        found => Err(format!("the state role should have heard of the token: {found}")),
    });
    let elsewhere = json!({"state_repo": "https://elsewhere.invalid/x.git", "state_token": "********"});
    let refused = api.call("POST", "/platform/config/test").json(&elsewhere).send();
    assert!(refused.status == 400 && refused.body.contains("must be given anew"), "{refused:?}");
    let missing = test(&json!({"state_repo": remote.url("nothing.git")}));
    assert_eq!(missing["git"]["status"], "error", "{missing}");
    assert_eq!(api.call("GET", "/platform/config").expect(200)["data"]["state_repo"], remote.url("agents.git"));
    assert_eq!(test(&json!({"state_repo": null}))["git"]["status"], "not_configured");
}
