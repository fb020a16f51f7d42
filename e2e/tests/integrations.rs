//! Integrations: tested from the team's worker, named by sources, Tools and models, and sent alerts. Their servers are other people's,
//! on the node.

mod alerts;
mod bridge;
mod kills;
mod probing;
mod receiver;
mod uses;

use serde_json::{Value, json};
use slipway_e2e::{Team, condition, until};

/// How long the first test of a team may take: its worker begins meanwhile.
const SECONDS: u64 = 120;

/// An Integration with `spec` beside its name, applied.
#[track_caller]
fn integration(team: &Team, name: &str, spec: &Value) {
    let mut whole = json!({
        "apiVersion": "agents.slipway.dev/v1", "kind": "Integration", "metadata": {"name": name}, "spec": {"name": name},
    });
    whole["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    team.apply(&whole);
}

/// A merge patch of an Integration's spec.
#[track_caller]
fn patch(team: &Team, name: &str, spec: &Value) {
    team.kubectl(format!("patch integration {name} --type=merge -p")).arg(json!({"spec": spec})).ok();
}

/// The login of an integration, as people write it: no label opens it to agents.
#[track_caller]
fn login(team: &Team, name: &str, data: &Value) {
    team.apply(&json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("in-{name}")}, "stringData": data}));
}

/// Waits until an Integration is as wanted and its status speaks of the present spec.
#[track_caller]
fn becomes(team: &Team, name: &str, what: &str, want: impl Fn(&Value) -> bool) -> Value {
    until(&format!("integrations -n {} --field-selector metadata.name={name}", team.namespace), SECONDS, |found| {
        let is_it = |of: &&Value| of["status"]["observedGeneration"] == of["metadata"]["generation"] && want(of);
        found.iter().find(is_it).cloned().ok_or_else(|| format!("integration {name} should be {what}"))
    })
}

#[track_caller]
fn connected(team: &Team, name: &str) -> Value {
    becomes(team, name, "connected", |of| of["status"]["phase"] == "Connected" && reason(of) == "Connected")
}

/// Waits until it is at fault for this reason; the message.
#[track_caller]
fn failed(team: &Team, name: &str, why: &str) -> String {
    let found = becomes(team, name, &format!("at fault: {why}"), |of| of["status"]["phase"] != "Connected" && reason(of) == why);
    condition(&found, "Ready")["message"].as_str().unwrap_or_default().to_owned()
}

/// Asks for a test as everybody with kubectl can, and waits for what came of it.
#[track_caller]
fn tested(team: &Team, name: &str, id: &str) -> Value {
    team.kubectl(format!("annotate integration {name} --overwrite")).arg(format!("agents.slipway.dev/test={id}")).ok();
    becomes(team, name, &format!("tested for {id}"), |of| of["status"]["lastTest"]["id"] == id)["status"]["lastTest"].clone()
}

fn reason(integration: &Value) -> &str {
    condition(integration, "Ready")["reason"].as_str().unwrap_or_default()
}
