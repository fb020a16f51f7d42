//! What tests of several modules share: settings, and a context without a cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Client;
use kube::client::Body;
use serde_json::json;
use slipway_api::team::AllowedPodSettings;
use slipway_cluster::event::Events;
use slipway_cluster::{Key, Tasks};
use slipway_mlflow::trace_id;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::caches::guardrail_policy::TeamPolicies;
use crate::context::Context;
use crate::database::DatabaseUrl;
use crate::metrics::Metrics;
use crate::settings::{AgentDefaults, PlatformInfo, RetentionDays, Settings, TeamNetwork, WorkerSettings};
use crate::tenancy::Tenancy;

pub(crate) fn settings(database: Option<&str>) -> Settings {
    Settings {
        platform_namespace: "slipway-system".to_owned(),
        service_account: "slipway-manager".to_owned(),
        rest_account: None,
        cluster_domain: "cluster.local".to_owned(),
        watch_namespaces: Vec::new(),
        runtime_image: "slipway.dev/slipway-runtime:1".to_owned(),
        agent_defaults: AgentDefaults::default(),
        team_network: TeamNetwork::default(),
        worker: WorkerSettings { image: "slipway.dev/slipway-worker:1".to_owned(), ..WorkerSettings::default() },
        allowed_pod_settings: AllowedPodSettings::default(),
        team_quota: BTreeMap::new(),
        database: database.map(|url| DatabaseUrl::parse(url).unwrap()),
        feedback_days: 90,
        integration_test_interval: None,
        retention: RetentionDays::default(),
        ollama_base_url: None,
        platform: PlatformInfo::default(),
        mlflow_login: None,
        max_concurrent_reconciles: 1,
        max_concurrent_rollouts: 1,
        allow_heuristic_gate: false,
        secrets_hash_key: b"a key for tests".to_vec(),
        callback_key: None,
        gateway: None,
    }
}

/// A context whose cluster answers every request with an error.
pub(crate) fn context() -> Arc<Context> {
    let nobody =
        tower::service_fn(async |_: http::Request<Body>| Err::<http::Response<Body>, _>(std::io::Error::other("there is no cluster")));
    let client = Client::new(nobody, "default");
    context_of(client)
}

/// With another cluster to ask.
pub(crate) fn context_of(client: Client) -> Arc<Context> {
    context_with(client, None)
}

/// With a database besides.
pub(crate) fn context_with(client: Client, tenancy: Option<Tenancy>) -> Arc<Context> {
    let events = Events::new(client.clone(), None);
    Arc::new(Context::new(client, settings(None), tenancy, Metrics::default(), events, Tasks::default()))
}

/// Makes it known that the Team has its file of policies, with these.
pub(crate) fn give_policies(context: &Context, team: &str, names: &[&str]) {
    let given = Some(names.iter().map(|name| (*name).to_owned()).collect());
    context.caches.team_policies.insert(Key::new("", team), TeamPolicies { given, ..TeamPolicies::default() });
}

/// Spans of traces, as the pods of an agent send them to MLflow.
pub(crate) async fn send_spans(address: &str, experiment: &str, agent_id: &str, traces: &[&str]) {
    for own in traces {
        let tag = json!({"key": "mlflow.traceTag.slipway.agent_id", "value": {"stringValue": agent_id}});
        let span = json!({"attributes": [tag], "traceId": trace_id(own).unwrap().trim_start_matches("tr-"), "spanId": "00f067aa0ba902b7",
            "name": "invoke_agent", "kind": 1, "startTimeUnixNano": "1795625611000000000", "endTimeUnixNano": "1795625612000000000"});
        let body = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string();
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nx-mlflow-experiment-id: {experiment}\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
