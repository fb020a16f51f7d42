//! The server and the key that an integration gives an agent's own models: who is asked there, and with what. Judges are not.

use std::collections::BTreeSet;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use serde_json::json;
use slipway_peers::Postgres;

use crate::evaluation::{Platform, request, score};
use crate::support::{Runtime, eventually, guarded_model};

/// Of a judge, and of what else asks a model.
const VERDICT: &str = r#"{"verdict": "yes", "reason": "It is to the point."}"#;
const OWN: &str = "bearer sk-own";
const OTHER: &str = "bearer sk-other";

/// The integration's server, and that of the agent's Secrets.
struct Servers {
    own: String,
    other: String,
    asked_own: Receiver<(String, String)>,
    asked_other: Receiver<(String, String)>,
}

impl Servers {
    fn start() -> Self {
        let ((own, asked_own), (other, asked_other)) = (guarded_model("To be, or not."), guarded_model(VERDICT));
        Self { own, other, asked_own, asked_other }
    }

    fn variables(&self) -> Vec<(&str, &str)> {
        [self.integration(), self.secrets()].concat()
    }

    fn integration(&self) -> Vec<(&str, &str)> {
        vec![
            ("RUNTIME_MODEL_TYPE", "openai"),
            ("RUNTIME_MODEL_ID", "main"),
            ("RUNTIME_MODEL_BASE_URL", self.own.as_str()),
            ("RUNTIME_MODEL_API_KEY", "sk-own"),
        ]
    }

    fn secrets(&self) -> Vec<(&str, &str)> {
        vec![("OPENAI_BASE_URL", self.other.as_str()), ("OPENAI_API_KEY", "sk-other")]
    }

    /// What a server has been asked: login and model, each once.
    fn asked(server: &Receiver<(String, String)>) -> BTreeSet<(String, String)> {
        server.try_iter().collect()
    }

    /// The next that a server is asked.
    fn next(server: &Receiver<(String, String)>) -> (String, String) {
        server.recv_timeout(Duration::from_secs(20)).expect("a request")
    }
}

fn call(login: &str, model: &str) -> (String, String) {
    (login.to_owned(), model.to_owned())
}

#[test]
fn an_integration_gives_the_agents_own_models_server_and_key() {
    let servers = Servers::start();
    let more = [("RUNTIME_BACKGROUND_MODEL", "openai:small"), ("RUNTIME_SUGGESTIONS_PROVIDER", "llm")];
    let runtime = Runtime::with(&[&servers.variables()[..], &more].concat());
    let events = runtime.stream(&json!({"message": "hello"}));
    assert_eq!(events.last().unwrap()["content"], "To be, or not.", "{events:?}");
    assert_eq!([Servers::next(&servers.asked_own), Servers::next(&servers.asked_own)], [call(OWN, "main"), call(OWN, "small")]);
    assert!(Servers::asked(&servers.asked_other).is_empty());
}

#[test]
fn a_model_of_another_provider_keeps_to_the_agents_secrets() {
    let servers = Servers::start();
    let more = [
        ("RUNTIME_MODEL_TYPE", "stub"),
        ("RUNTIME_MODEL_ID", "stub-script"),
        ("RUNTIME_BACKGROUND_MODEL", "openai:small"),
        ("RUNTIME_SUGGESTIONS_PROVIDER", "llm"),
    ];
    let runtime = Runtime::with(&[&servers.variables()[..], &more].concat());
    runtime.stream(&json!({"message": "text well"}));
    assert_eq!(Servers::next(&servers.asked_other), call(OTHER, "small"));
    assert!(Servers::asked(&servers.asked_own).is_empty());
}

#[test]
fn no_key_of_the_agents_secrets_goes_to_an_integration() {
    let servers = Servers::start();
    let runtime = Runtime::with(&[&servers.variables()[..], &[("RUNTIME_MODEL_API_KEY", "")]].concat());
    assert_eq!(runtime.chat(&json!({"message": "hello"}))["output"], "To be, or not.");
    assert_eq!(Servers::next(&servers.asked_own), call("", "main"));
    assert!(Servers::asked(&servers.asked_own).iter().all(|(login, _)| login.is_empty()));
}

#[test]
fn an_integration_that_lacks_its_key_is_said_with_what_to_do() {
    let given = [
        ("RUNTIME_MODEL_TYPE", "anthropic"),
        ("RUNTIME_MODEL_ID", "claude-sonnet-4-5"),
        ("RUNTIME_MODEL_BASE_URL", "http://127.0.0.1:9"),
        ("ANTHROPIC_API_KEY", "sk-other"),
    ];
    let (head, body) = Runtime::with(&given).post("/chat", r#"{"message": "hello"}"#);
    assert!(head.starts_with("http/1.1 502") && body.contains("RUNTIME_MODEL_API_KEY") && body.contains("integration"), "{head}{body}");
}

#[test]
fn a_judge_of_an_evaluation_knows_no_integration() {
    let servers = Servers::start();
    let mut body = request(1, &json!(["relevance_to_query"]), &json!([{"input": "What is the question?"}]));
    body["judge_model"] = json!("openai:/gpt-4o");
    let report = Platform::agent(&servers.variables()).run(&body);
    assert_eq!(score(&report, 0, "relevance_to_query")["value"], 1.0, "{report}");
    assert_eq!(Servers::asked(&servers.asked_own), BTreeSet::from([call(OWN, "main")]));
    assert_eq!(Servers::asked(&servers.asked_other), BTreeSet::from([call(OTHER, "gpt-4o")]));

    // Without a key in the agent's Secrets there is no judge, and the integration's is not tried.
    let report = Platform::agent(&servers.integration()).run(&body);
    let missing = score(&report, 0, "relevance_to_query");
    assert!(missing["state"] == "error" && missing["reason"].as_str().unwrap().contains("OPENAI_API_KEY"), "{report}");
    assert_eq!(Servers::asked(&servers.asked_own), BTreeSet::from([call(OWN, "main")]));
}

#[test]
fn a_judge_of_sampled_answers_knows_no_integration() {
    let (servers, postgres) = (Servers::start(), Postgres::start());
    let url = postgres.url();
    let more = [
        ("RUNTIME_STORAGE", "postgresql"),
        ("RUNTIME_DATABASE_URL", url.as_str()),
        ("RUNTIME_DATABASE_MIGRATE", "true"),
        ("RUNTIME_EVAL_SAMPLE_RATE", "100"),
        ("RUNTIME_JUDGE_MODEL", "openai:/gpt-4o"),
    ];
    let runtime = Runtime::with(&[&servers.variables()[..], &more].concat());
    runtime.chat(&json!({"message": "What is the question?"}));
    eventually("a score", || runtime.metric(r#"sampled_turns_total{outcome="scored"}"#));
    assert_eq!(Servers::asked(&servers.asked_other), BTreeSet::from([call(OTHER, "gpt-4o")]));
    assert_eq!(Servers::asked(&servers.asked_own), BTreeSet::from([call(OWN, "main")]));
}
