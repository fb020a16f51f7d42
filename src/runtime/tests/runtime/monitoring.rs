//! A real Prometheus, which loads the rules of `config/monitoring` and scrapes this runtime: what rules and dashboards ask for
//! can be asked, and what they are to show of a load of known shape is what comes back.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use slipway_peers::{Prometheus, Target, monitoring, panels};

use crate::support::{Runtime, model, within};

/// What a pod's discovery adds.
const POD: [(&str, &str); 4] = [("namespace", "team-research"), ("agent", "helper"), ("track", "stable"), ("pod", "helper-1")];

fn number(sample: &Value) -> f64 {
    sample["value"][1].as_str().and_then(|value| value.parse().ok()).unwrap_or(f64::NAN)
}

#[test]
fn prometheus_takes_all_that_rules_and_dashboards_ask_for() {
    let model = model((64, 0), &[("", "The station is to the left.")]);
    let url = format!("{}/v1", model.url());
    let guards = r#"["pii-detection", "secrets-scanner"]"#;
    let rule = json!({"type": "blocked_topics", "operator": "contains", "value": "ferry"});
    let policies = json!([{"id": "gp_ferry", "name": "Ferry", "severity": "warning", "rules": [rule]}]).to_string();
    let runtime = Runtime::with(&[
        ("RUNTIME_MODEL_TYPE", "openai"),
        ("RUNTIME_MODEL_ID", "gpt-4o-mini"),
        ("OPENAI_API_KEY", "sk-none"),
        ("OPENAI_BASE_URL", &url),
        ("RUNTIME_GUARDS", guards),
        ("RUNTIME_POLICIES", &policies),
    ]);
    let said = json!({"message": "My address is ada@example.com. How do I get to the station?"});
    // It breaks the policy, and is answered.
    let forbidden = json!({"message": "When does the ferry leave?"});
    // Rates need a sample of before.
    runtime.chat(&said);
    runtime.chat(&forbidden);
    let address = format!("127.0.0.1:{}", runtime.port());
    let folder = tempfile::tempdir().unwrap();
    // As often as is scraped.
    let rules = fs::read_to_string(monitoring().join("rules.yaml")).unwrap().replace("interval: 5m", "interval: 1s");
    fs::write(folder.path().join("rules.yaml"), &rules).unwrap();
    let target = Target { address: &address, labels: &POD };
    let prometheus = Prometheus::start(&[target], &[&folder.path().join("rules.yaml")]);
    prometheus.until("slipway_runtime_turns_total", |found| found.iter().map(number).sum::<f64>() >= 2.0);
    for _ in 0..8 {
        runtime.chat(&said);
    }
    runtime.chat(&forbidden);
    prometheus.until("slipway_runtime_turns_total", |found| found.iter().map(number).sum::<f64>() >= 11.0);

    // What is on the page is in Prometheus, under its names.
    let (_, page) = runtime.send("GET /metrics", "", "");
    let known = prometheus.get("/api/v1/label/__name__/values").unwrap();
    let known: BTreeSet<&str> = known.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(known.contains(name), "Prometheus has no {name}, which the page has; it has {known:?}");
    }
    let samples = page.lines().filter(|line| !line.starts_with('#')).count().to_string();
    prometheus.until("sum(scrape_samples_scraped)", |found| found.iter().any(|sample| sample["value"][1] == *samples));

    // Every rule is evaluated, and what is recorded is what was done.
    let evaluated = within(Duration::from_mins(1), "an evaluation of every rule", || {
        let rules = prometheus.get("/api/v1/rules").unwrap();
        let rules: Vec<Value> = rules["groups"].as_array()?.iter().flat_map(|group| group["rules"].as_array().unwrap()).cloned().collect();
        rules.iter().all(|rule| rule["health"] != "unknown").then_some(rules)
    });
    assert_eq!(evaluated.len(), rules.matches("expr:").count());
    for rule in evaluated {
        assert_eq!(rule["health"], "ok", "{rule:#}");
        assert_ne!(rule["state"], "firing", "{rule:#}");
    }
    let turns = r#"{namespace="team-research", agent="helper"}"#;
    for recorded in [
        "namespace_agent:slipway_runtime_turns:rate5m",
        "namespace_agent:slipway_runtime_turn_seconds:p95_rate5m",
        "namespace_agent:slipway_runtime_cost_usd:rate5m",
        "namespace_agent:slipway_runtime_cost_usd:increase1d",
        "namespace_agent_direction:slipway_runtime_tokens:rate5m",
    ] {
        prometheus.until(&format!("{recorded}{turns}"), |found| found.iter().any(|sample| number(sample) > 0.0));
    }
    let errors = format!("namespace_agent:slipway_runtime_turn_errors:ratio_rate5m{turns}");
    prometheus.until(&errors, |found| found.iter().any(|sample| number(sample).abs() < 1e-9));

    // Every expression of every dashboard can be evaluated, and what was asked of the agent shows.
    let mut shown = BTreeSet::new();
    for panel in panels() {
        let found = prometheus.query(&panel.expression).unwrap_or_else(|why| panic!("{}: {why}", panel.place));
        if found.iter().any(|sample| number(sample) > 0.0) {
            shown.insert(panel.place);
        }
    }
    for place in [
        "overview.json, Agents that answer",
        "overview.json, Turns in a day",
        "overview.json, Cost in a day",
        "agent.json, Turns per second, by track and pod",
        "agent.json, 95th percentile of a turn, in a day",
        "agent.json, Requests per second, by status",
        "agent.json, 95th percentile of a model call",
        "agent.json, Cost per hour",
        "governance.json, Personal data found, per hour",
        "governance.json, What guards found, in a day",
        "governance.json, Who violated what, in a day",
        "governance.json, Tokens of a turn, on average",
    ] {
        assert!(shown.contains(place), "{place} shows nothing; these do: {shown:#?}");
    }
}
