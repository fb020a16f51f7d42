//! Not REST but rest: with nothing to do, the manager looks at its agents every 30 s and sends nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;
use slipway_e2e::{Team, alone, kubectl, platform, poll};

/// Two of the periodic looks, and some.
const WATCHED: Duration = Duration::from_secs(65);

#[test]
fn at_rest_nothing_is_sent() {
    let team = Team::within(
        alone("counts what the manager sends while there is nothing to do"),
        "rest",
        &json!({"quota": {"pods": 10}, "containerLimits": {"default": {"memory": "64Mi"}}}),
    );
    team.secret("keys", &json!({"KEY": "value"}));
    team.tool("clock", &json!({"name": "datetime", "type": "builtin"}));
    // One that runs, one that is suspended and one at fault: all are looked at, none needs anything.
    team.agent("runs", &json!({"tools": ["clock"], "envSecrets": ["keys", "agent-env"]})).ready();
    team.agent("suspended", &json!({"suspend": true})).until("suspended", 20, |agent| agent["status"]["phase"] == "Terminated");
    team.agent("stalled", &json!({"tools": ["nowhere"]})).stalled(&["ToolNotFound"], 10);
    kubectl(format!("wait team/{} --for=jsonpath={{.status.agents}}=3 --timeout=10s", team.slug)).ok();
    // Once a minute it is looked how often policies were broken, for the first time within a minute.
    team.kubectl("wait guardrailpolicies --all --for=jsonpath={.status.violations.total}=0 --timeout=120s").ok();
    settle();

    let before = Counters::read();
    let begin = Instant::now();
    poll(WATCHED.as_secs() + 5, || if begin.elapsed() < WATCHED { Err("time should pass".to_owned()) } else { Ok(()) });
    let after = Counters::read();

    let reconciles = after.reconciles - before.reconciles;
    assert!(reconciles >= 6.0, "three agents and a tool should have been looked at twice, there were {reconciles} reconciles");
    let sent = grown(&before.requests, &after.requests);
    assert!(sent.is_empty(), "the manager sent, by its own count: {sent:#?}");
    let received = grown(&before.received, &after.received);
    assert!(received.is_empty(), "the API server received: {received:#?}");
}

/// Waits until the teams of earlier tests are gone and the manager has sent nothing for a while.
fn settle() {
    poll(120, || {
        let leaving = kubectl("get teams,namespaces -o jsonpath={.items[?(@.metadata.deletionTimestamp)].metadata.name}").ok();
        if leaving.trim().is_empty() { Ok(()) } else { Err(format!("these should be gone: {leaving}")) }
    });
    let mut last = Counters::read().requests;
    let mut since = Instant::now();
    poll(60, || {
        let now = Counters::read().requests;
        if now != last {
            last = now;
            since = Instant::now();
        }
        if since.elapsed() > Duration::from_secs(5) { Ok(()) } else { Err("the manager should come to rest".to_owned()) }
    });
}

/// What has been counted so far.
struct Counters {
    reconciles: f64,
    /// What the manager's pods say that they sent, watches and the lease left out.
    requests: BTreeMap<String, f64>,
    /// What the API server says that it received of patches to objects that only the manager patches.
    received: BTreeMap<String, f64>,
}

impl Counters {
    fn read() -> Self {
        let mut counters = Self { reconciles: 0.0, requests: BTreeMap::new(), received: BTreeMap::new() };
        for pod in platform::pods() {
            let text = platform::ask(&pod, "/metrics").stdout;
            counters.reconciles += platform::samples(&text, "slipway_reconciles_total").iter().map(|(_, value)| value).sum::<f64>();
            let requests = platform::samples(&text, "slipway_api_requests_total");
            assert!(!requests.is_empty(), "{pod} should count its requests: {text}");
            for (labels, value) in
                requests.into_iter().filter(|(labels, _)| !labels.contains("verb=\"WATCH\"") && !labels.contains("leases"))
            {
                counters.requests.insert(format!("{pod}{labels}"), value);
            }
        }
        let text = kubectl("get --raw /metrics").ok();
        for (labels, value) in platform::samples(&text, "apiserver_request_total") {
            let has = |name: &str, values: &[&str]| values.iter().any(|value| labels.contains(&format!("{name}=\"{value}\"")));
            let ours = has("group", &["agents.slipway.dev"])
                || has(
                    "resource",
                    &["configmaps", "deployments", "services", "networkpolicies", "resourcequotas", "limitranges", "rolebindings"],
                );
            // Other tests send dry runs in the meantime, and the cluster's own controllers use PUT.
            if ours && has("verb", &["APPLY", "PATCH"]) && has("dry_run", &[""]) {
                counters.received.insert(labels, value);
            }
        }
        counters
    }
}

fn grown(before: &BTreeMap<String, f64>, after: &BTreeMap<String, f64>) -> Vec<String> {
    let grown = after.iter().map(|(key, now)| (key, now - before.get(key).unwrap_or(&0.0)));
    grown.filter(|(_, by)| *by > 0.0).map(|(key, by)| format!("{key} +{by}")).collect()
}
