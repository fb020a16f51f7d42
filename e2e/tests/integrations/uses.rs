//! What names an integration has its server and its login, and nobody else has the login.

use serde_json::{Value, json};
use slipway_e2e::{Agent, Team, condition, fresh, platform, poll, until};
use slipway_peers::{Prometheus, mock_llm_at, skip};

use super::bridge::Bridge;
use super::probing::{bucket, by_password};
use super::receiver::{HOOK, Heard, Receiver, signing_secret};
use super::{connected, failed, integration, login, patch, tested};
use crate::secrets::appear_nowhere;
use crate::tools::on_the_node;

/// How long an ingestion of one file may take, the start of its pod included.
const INGESTED: u64 = 120;

fn planted(what: &str) -> String {
    format!("planted-{what}-5d20e7")
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "agents.slipway.dev/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})
}

/// An agent of the stub that has one Tool, and calls it as it is told to.
#[track_caller]
fn caller<'a>(team: &'a Team, tool: &str) -> Agent<'a> {
    team.agent("caller", &json!({"modelId": "stub-script", "strategy": "agent-react", "tools": [tool], "storage": "memory"}))
}

#[test]
fn a_source_a_tool_and_a_model_use_one() {
    if !platform::has_database() {
        skip("the platform has no database");
        return;
    }
    let Some(at) = on_the_node() else {
        skip("pods reach a server of this test only where the node is this machine");
        return;
    };
    let models = mock_llm_at(at, "{}");
    let metrics = Prometheus::with_login();
    let files = bucket(&[("leave.md", "# Leave\n\nEvery employee has thirty days of paid holiday a year.\n")]);
    let (Some(metrics_at), Some(files_at)) = (Bridge::to(&metrics.url()), Bridge::to(files.url())) else { return };
    let team = Team::new(&fresh("uses"));
    integration(&team, "llm", &json!({"openai": {"baseUrl": format!("{}/v1", models.url()), "model": "m"}}));
    integration(&team, "metrics", &json!({"prometheus": {"url": metrics_at.url()}}));
    integration(&team, "files", &json!({"s3": {"endpoint": files_at.url()}}));
    login(&team, "llm", &json!({"api_key": planted("model")}));
    login(&team, "metrics", &by_password(Prometheus::USER, Prometheus::PASSWORD));
    login(&team, "files", &json!({"access_key_id": "AKIAIOSFODNN7EXAMPLE", "secret_access_key": planted("source")}));
    for name in ["llm", "metrics", "files"] {
        connected(&team, name);
    }

    // A source, whose bucket is in the test's reach and not in its integration's spec.
    team.apply(&object(
        "KnowledgeBase",
        "docs",
        &json!({"name": "docs", "sources": [{"name": "bucket", "s3": {"bucket": "docs"}, "integration": "files"}]}),
    ));
    team.apply(&object("Ingestion", "first", &json!({"knowledgeBase": "docs", "sourceName": "bucket"})));
    // A Tool, whose login comes with the server: user and password, which that asks for.
    let query = json!([{"name": "query", "type": "string", "required": true}]);
    team.tool(
        "load",
        &json!({"type": "http", "method": "GET", "endpoint": "/api/v1/query", "integration": "in_metrics", "parameters": query}),
    );
    team.kubectl("wait tool/load --for=condition=Ready --timeout=20s").ok();
    let asks = caller(&team, "load");
    // A model, for which no Secret of the agent has a key.
    let talks = team.agent("talks", &json!({"modelType": "openai", "modelId": "m", "modelIntegration": "in_llm", "storage": "memory"}));
    asks.ready();
    let ready = talks.ready();
    assert!(condition(&ready, "ModelConfigured").is_null(), "its key is there: {ready:#}");
    let answer = asks.chat("call load {\"query\": \"vector(42)\"}\n\ntext {results}");
    assert!(answer.contains("\"success\"") && answer.contains("42"), "{answer}");
    assert!(talks.chat("hello to all of you").contains("hello to all of you"), "so says a server that repeats what it hears");
    assert_eq!(talks.config()["data"]["RUNTIME_MODEL_BASE_URL"], format!("{}/v1", models.url()));
    let ingested = until(&format!("ingestions -n {} --field-selector metadata.name=first", team.namespace), INGESTED, |found| {
        let status = found.first().map(|found| found["status"].clone()).unwrap_or_default();
        match status["phase"].as_str() {
            Some("Completed" | "Failed" | "Cancelled") => Ok(status),
            _ => Err(format!("it should end: {status:#}")),
        }
    });
    assert_eq!((&ingested["phase"], &ingested["documents"]["changed"]), (&json!("Completed"), &json!(1)), "{ingested:#}");
    let pods = ["agents.slipway.dev/agent=caller", "agents.slipway.dev/agent=talks", "app.kubernetes.io/name=slipway-worker"];
    appear_nowhere(&team, &[planted("model"), planted("source"), Prometheus::PASSWORD.to_owned()], &pods.map(str::to_owned));
}

/// Users who may write Integrations and Tools may not read Secrets: so neither has a login of the platform's sent elsewhere.
#[test]
fn a_login_goes_to_another_host_only_once_it_is_written_anew() {
    let (Some(first), Some(second)) = (Receiver::start(), Receiver::start()) else { return };
    let team = Team::new(&fresh("moved"));
    let secret = |token: &str| json!({"signing_secret": signing_secret(), "token": token});
    integration(&team, "hook", &json!({"webhook": {"url": first.url(HOOK)}}));
    login(&team, "hook", &secret(&planted("first")));
    connected(&team, "hook");
    let bearer = |heard: &Heard| heard.token().to_owned();
    assert_eq!(first.heard(HOOK).iter().map(bearer).next_back(), Some(planted("first")));
    team.tool("send", &json!({"type": "http", "method": "POST", "endpoint": "/alert", "integration": "hook"}));
    let agent = caller(&team, "send");
    agent.ready();
    let send = || agent.chat("call send {}\n\ntext {results}");
    send();
    assert_eq!(first.heard("/hook/alert").iter().map(bearer).collect::<Vec<_>>(), [planted("first")]);

    patch(&team, "hook", &json!({"webhook": {"url": second.url(HOOK)}}));
    let message = failed(&team, "hook", "CredentialsForAnotherHost");
    assert!(message.contains(first.place()), "it says whose login it is: {message}");
    let message = agent.stalled(&["CredentialsForAnotherHost"], 30);
    assert!(message.contains("send"), "{message}");
    assert_eq!(tested(&team, "hook", "please")["reason"], "CredentialsForAnotherHost");
    // What ran goes on as it ran.
    send();
    assert_eq!(first.heard("/hook/alert").len(), 2);
    // Nor by a Tool that names the Secret, or by an agent that would read it.
    let headers = json!([{"name": "Authorization", "secret": "in-hook", "key": "token"}]);
    team.tool("mine", &json!({"type": "http", "endpoint": second.url("/mine"), "headersFrom": headers}));
    let thief = team.agent("thief", &json!({"modelId": "stub-script", "strategy": "agent-react", "tools": ["mine"]}));
    thief.stalled(&["SecretNotAllowed"], 30);
    thief.patch(&json!({"tools": [], "envSecrets": ["in-hook"]}));
    thief.stalled(&["SecretNotAllowed"], 30);
    assert!(second.heard(HOOK).is_empty() && second.heard("/hook/alert").is_empty() && second.heard("/mine").is_empty());

    login(&team, "hook", &secret(&planted("second")));
    connected(&team, "hook");
    agent.ready();
    // For a moment its Service may still lead to the pod from before.
    poll(20, || {
        send();
        if second.heard("/hook/alert").is_empty() { Err("the other host should be asked".to_owned()) } else { Ok(()) }
    });
    let heard = [second.heard(HOOK), second.heard("/hook/alert")].concat();
    assert!(heard.len() > 1 && heard.iter().map(bearer).all(|token| token == planted("second")), "{heard:?}");
}
