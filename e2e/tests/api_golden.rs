//! What every endpoint answers when all is well, written down: that no operation of the API's description is without such
//! an answer, and the answers themselves, but for those of agents and releases, which their own tests keep.

mod canary;
mod evaluations;
mod feedback;
mod governance;
mod integrations;
mod knowledge;
mod open;
mod platform;
mod stock;
mod talk;
mod teams;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use slipway_e2e::{Golden, ROOT};

/// The description that is committed.
fn document() -> Value {
    let path = Path::new(ROOT).join("docs/openapi.json");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Agents' pods and Flagger call these, with tokens and credentials that the operator alone makes. That they are heard is shown where
/// these call.
const OF_MACHINES: [&str; 4] = [
    "POST /agents/{id}/evaluations/{run_id}/result",
    "POST /agents/{id}/releases/{version}/eval-result",
    "POST /webhooks/canary-gate",
    "POST /webhooks/canary-gate/{credential}",
];

/// Asks nothing of the cluster.
#[test]
fn every_operation_has_a_good_answer_written_down_and_nothing_else_has() {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let described: BTreeSet<String> = paths
        .iter()
        .flat_map(|(path, operations)| operations.as_object().unwrap().keys().map(move |method| (method.to_uppercase(), path)))
        .map(|(method, path)| format!("{method} {path}"))
        .collect();
    let kept = Golden::operations();
    let missing: Vec<&String> =
        described.iter().filter(|operation| !kept.contains_key(*operation) && !OF_MACHINES.contains(&operation.as_str())).collect();
    let bad: Vec<&String> = kept.iter().filter(|(_, good)| !**good).map(|(operation, _)| operation).collect();
    let unknown: Vec<&String> = kept.keys().filter(|operation| !described.contains(*operation)).collect();
    assert!(
        missing.is_empty() && bad.is_empty() && unknown.is_empty(),
        "without an answer in e2e/tests/api_*/*.json: {missing:?}; with no good one: {bad:?}; not in docs/openapi.json: {unknown:?}"
    );
}
