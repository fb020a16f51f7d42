//! Tests of integrations: by themselves after a change, by kubectl and by REST, and what stands in their way.

use std::net::SocketAddr;
use std::thread;

use serde_json::{Value, json};
use slipway_e2e::{Api, Fence, Team, condition, fresh, poll};
use slipway_peers::{Prometheus, Server, changing_server_with_token, mlflow_with_login, mock_llm_at, moto, skip};

use super::bridge::Bridge;
use super::receiver::{HOOK, Receiver, SLACK, signing_secret};
use super::{connected, failed, integration, login, patch, reason, tested};
use crate::knowledge::Volume;
use crate::tools::on_the_node;

/// Whom Moto takes for the owner of a bucket; it does not look at the signature.
const OWNER: &str = "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x";
/// Of MLflow's and of the MCP server.
const PASSWORD: &str = "planted-password-1";
/// How long an Event about a fault may take: it has to stand for a while.
const TOLD: u64 = 30;

/// The login of a user.
pub(super) fn by_password(user: &str, password: &str) -> Value {
    json!({"username": user, "password": password})
}

/// Moto with a bucket `docs` that holds these files.
pub(super) fn bucket(files: &[(&str, &str)]) -> Server {
    let moto = moto();
    let address: SocketAddr = moto.url().trim_start_matches("http://").parse().unwrap();
    for (path, content) in [("/docs".to_owned(), "")].into_iter().chain(files.iter().map(|(name, text)| (format!("/docs/{name}"), *text))) {
        let call = Api::at(address).whole("PUT", &path).header("Authorization", OWNER).body("text/plain", content);
        assert_eq!(call.send().status, 200, "PUT {path}");
    }
    moto
}

/// The reasons of the Events about an Integration.
#[track_caller]
fn told(team: &Team, name: &str) -> Vec<String> {
    let line = format!("get events --field-selector involvedObject.kind=Integration,involvedObject.name={name}");
    let list = team.kubectl(line).json();
    let reasons = list["items"].as_array().into_iter().flatten().filter_map(|event| event["reason"].as_str());
    reasons.map(str::to_owned).collect()
}

#[test]
fn each_type_is_tested_from_the_teams_worker() {
    let Some(receiver) = Receiver::start() else { return };
    let team = Team::with(&fresh("integrated"), &json!({"knowledgeVolume": "handbook"}));
    let Some(volume) = Volume::of(&team) else { return };
    volume.write("leave.md", "# Leave\n");
    let servers = [(|| mlflow_with_login(PASSWORD)) as fn() -> Server, || bucket(&[])].map(thread::spawn);
    let metrics = Prometheus::with_login();
    let (Some(at), Some(metrics)) = (on_the_node(), Bridge::to(&metrics.url()).zip(Some(metrics))) else { return };
    let tools = changing_server_with_token(at, PASSWORD);
    let Some(at) = on_the_node() else { return };
    let models = mock_llm_at(at, "{}");
    let [runs, files] = servers.map(|server| server.join().unwrap());
    let (Some(runs_at), Some(files_at)) = (Bridge::to(runs.url()), Bridge::to(files.url())) else { return };

    let types = [
        ("metrics", "prometheus", json!({"prometheus": {"url": metrics.0.url()}}), by_password(Prometheus::USER, Prometheus::PASSWORD)),
        ("runs", "mlflow", json!({"mlflow": {"url": runs_at.url()}}), by_password("admin", PASSWORD)),
        (
            "files",
            "s3",
            json!({"s3": {"endpoint": files_at.url(), "bucket": "docs"}}),
            json!({"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}),
        ),
        ("models", "openai", json!({"openai": {"baseUrl": format!("{}/v1", models.url()), "model": "m"}}), json!({"api_key": "sk-none"})),
        ("tools", "mcp", json!({"mcp": {"url": tools.url()}}), json!({"token": PASSWORD})),
        ("hook", "webhook", json!({"webhook": {"url": receiver.url(HOOK)}}), json!({"signing_secret": signing_secret(), "token": "t-1"})),
        ("chat", "slack", json!({"slack": {"channel": "#alerts"}}), json!({"webhook_url": receiver.url(SLACK)})),
        ("share", "local", json!({"local": {}}), json!({})),
    ];
    for (name, _, spec, secret) in &types {
        integration(&team, name, spec);
        if secret.as_object().is_some_and(|secret| !secret.is_empty()) {
            login(&team, name, secret);
        }
    }
    for (name, kind, _, secret) in &types {
        let found = connected(&team, name);
        let (status, test) = (&found["status"], &found["status"]["lastTest"]);
        assert_eq!((&status["type"], &status["id"]), (&json!(kind), &json!(format!("in_{name}"))), "{found:#}");
        assert_eq!((&test["id"], &test["succeeded"]), (&json!("change"), &json!(true)), "{found:#}");
        assert!(test["latencyMs"].as_i64().is_some_and(|took| (0..10_000).contains(&took)), "{found:#}");
        let keys: Vec<&String> = secret.as_object().into_iter().flatten().map(|(key, _)| key).collect();
        assert_eq!(status["credentialKeys"].as_array().map_or(0, Vec::len), keys.len(), "{keys:?}: {found:#}");
    }
    let table = team.kubectl("get integrations").ok();
    for word in ["TYPE", "STATUS", "LATENCY-MS", "REASON"] {
        assert!(table.lines().next().is_some_and(|head| head.contains(word)), "{word} should be in {table}");
    }
    for (name, kind, ..) in &types {
        let row = table.lines().find(|line| line.split_whitespace().next() == Some(*name)).unwrap_or_default();
        assert!(row.contains(kind) && row.contains("Connected"), "{name} should be connected in {table}");
    }
    // A receiver knows whose test it is.
    let hook = receiver.heard(HOOK).pop().unwrap();
    assert!(hook.json()["type"] == "test" && hook.is_good() && hook.token() == "t-1", "{hook:?}");
    assert!(receiver.heard(SLACK).iter().any(|heard| heard.json()["text"].is_string() && heard.is_good()), "a line is posted");
    told_alike_and_found_out(&team, &receiver);
}

/// What kubectl and REST say of a test is the same, and so it is when the test fails.
#[track_caller]
fn told_alike_and_found_out(team: &Team, receiver: &Receiver) {
    let Some(api) = Api::installed() else { return };
    let developer = team.token("developer");
    let asked = |name: &str| api.call("POST", &format!("/integrations/{name}/test")).token(&developer).expect(200)["data"].clone();
    let shown = |name: &str| api.call("GET", &format!("/integrations/{name}")).token(&developer).expect(200)["data"].clone();
    let by_kubectl = tested(team, "metrics", "by-hand");
    let by_rest = asked("in_metrics");
    assert_eq!((&by_rest["status"], &by_rest["message"]), (&json!("connected"), &by_kubectl["message"]), "{by_kubectl:#}");
    let view = shown("metrics");
    assert_eq!((&view["status"], &view["last_test"]["message"]), (&json!("connected"), &by_kubectl["message"]), "{view:#}");

    receiver.refuse_one(401);
    let refused = tested(team, "hook", "refused");
    let says = refused["message"].as_str().unwrap_or_default();
    assert!(refused["reason"] == "Unauthorized" && says.contains("401") && !says.contains("t-1"), "{refused:#}");
    assert_eq!(failed(team, "hook", "Unauthorized"), says);
    assert_eq!(tested(team, "hook", "again")["succeeded"], true);
    login(team, "metrics", &by_password(Prometheus::USER, "hunter3-is-wrong"));
    let message = failed(team, "metrics", "Unauthorized");
    assert!(!message.contains("hunter"), "{message}");
    login(team, "metrics", &by_password(Prometheus::USER, Prometheus::PASSWORD));
    connected(team, "metrics");

    // Nobody is there.
    let Some(nowhere) = on_the_node() else { return };
    integration(team, "plain", &json!({"prometheus": {"url": format!("http://{nowhere}")}}));
    let message = failed(team, "plain", "Unreachable");
    assert!(message.contains(&nowhere.to_string()), "{message}");
    let by_rest = asked("in_plain");
    assert_eq!(
        (&by_rest["status"], &by_rest["message"]),
        (&json!("error"), &json!(message)),
        "it is the test's answer, and no error of REST's"
    );
    patch(team, "plain", &json!({"prometheus": {"url": "http://10.255.255.1:9090"}}));
    let message = failed(team, "plain", "AddressNotAllowed");
    assert!(message.contains("agents.egressAllow"), "{message}");
    assert_eq!(asked("in_plain")["status"], "error");
    poll(TOLD, || {
        let (good, bad) = (told(team, "metrics"), told(team, "plain"));
        let is_told = good.iter().any(|reason| reason == "IntegrationConnected") && bad.iter().any(|reason| reason == "IntegrationFailed");
        if is_told { Ok(()) } else { Err(format!("both should be told: {good:?}, {bad:?}")) }
    });
    assert_eq!(shown("plain")["status"], "error");
}

/// The local cluster's network heeds no policies by itself, so that the way is shown to be open first.
#[test]
fn the_workers_network_policy_is_what_a_test_meets() {
    if !Fence::is_possible() {
        skip("NetworkPolicies are put in force where the node is this machine");
        return;
    }
    let Some(receiver) = Receiver::start() else { return };
    let team = Team::new(&fresh("confined"));
    integration(&team, "hook", &json!({"webhook": {"url": receiver.url(HOOK)}}));
    login(&team, "hook", &json!({"signing_secret": signing_secret()}));
    connected(&team, "hook");
    let before = receiver.heard(HOOK).len();
    let mut fence = Fence::around("worker", &[&team.namespace]);
    let closed = tested(&team, "hook", "fenced");
    // Some networks drop what a policy forbids, some refuse it.
    let (reason, message) = (&closed["reason"], closed["message"].as_str().unwrap_or_default());
    assert!((reason == "TimedOut" || reason == "Unreachable") && message.contains("worker.egress"), "{closed:#}");
    assert_eq!(receiver.heard(HOOK).len(), before, "nothing got through");

    // As the chart's value would have it.
    let address = receiver.place().parse::<SocketAddr>().unwrap().ip();
    team.apply(&json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "receiver"},
        "spec": {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "slipway-worker"}}, "policyTypes": ["Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": format!("{address}/32")}}]}]},
    }));
    fence.renew();
    assert_eq!(tested(&team, "hook", "opened")["succeeded"], true);
    assert_eq!(receiver.heard(HOOK).len(), before + 1);
}

/// A user who may write an Integration cannot have any Secret of the team sent to a server of theirs.
#[test]
fn a_login_is_the_integrations_own_or_one_that_is_labelled() {
    let Some(receiver) = Receiver::start() else { return };
    let team = Team::new(&fresh("logins"));
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"signing_secret": signing_secret()}});
    let hook = |secret: &str| json!({"webhook": {"url": receiver.url(HOOK)}, "credentialsSecret": secret});
    integration(&team, "hook", &json!({"webhook": {"url": receiver.url(HOOK)}}));
    let message = failed(&team, "hook", "SecretMissing");
    assert!(message.contains("in-hook"), "{message}");
    team.apply(&secret("theirs"));
    integration(&team, "hook", &hook("theirs"));
    let message = failed(&team, "hook", "SecretNotAllowed");
    assert!(message.contains("agents.slipway.dev/agent-readable=true"), "{message}");
    integration(&team, "other", &json!({"webhook": {"url": receiver.url("/other")}}));
    login(&team, "other", &json!({"signing_secret": "whsec_"}));
    integration(&team, "hook", &hook("in-other"));
    failed(&team, "hook", "SecretNotAllowed");
    // A Secret that says its host is for no other from the first look on.
    let mut given = secret("in-given");
    given["metadata"]["annotations"] = json!({"agents.slipway.dev/origin": "https://elsewhere.example.com"});
    team.apply(&given);
    integration(&team, "given", &json!({"webhook": {"url": receiver.url(HOOK)}}));
    let message = failed(&team, "given", "CredentialsForAnotherHost");
    assert!(message.contains("was written for https://elsewhere.example.com"), "{message}");
    assert!(receiver.heard(HOOK).is_empty(), "nothing was sent");
    team.secret("shared", &json!({"signing_secret": signing_secret()}));
    integration(&team, "hook", &hook("shared"));
    connected(&team, "hook");
    team.kubectl("delete secret shared").ok();
    let found = super::becomes(&team, "hook", "without its login", |of| reason(of) == "SecretMissing");
    assert_eq!(
        (&found["status"]["phase"], condition(&found, "Stalled")["status"].as_str()),
        (&json!("Disconnected"), Some("True")),
        "{found:#}"
    );
}
