//! Canaries: what the choice of a track adds to a chat through REST, and how long a promotion takes beside a restart of the same pods.

mod promotion;

use std::path::Path;
use std::time::Instant;

use anyhow::bail;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, Patch, PatchParams};
use serde_json::json;
use slipway_api::{Agent, Track, contract, labels};
use tokio::task::block_in_place;

use crate::callers::Callers;
use crate::cluster::{Cluster, OPERATED, agent_name};
use crate::http::Connection;
use crate::manager::Manager;
use crate::numbers::percentile;
use crate::observe::complete;
use crate::rest::Rest;
use crate::start::cores;
use crate::{http, runtime, table};

/// At each of two agents in turn.
const CHATS: u32 = 20_000;
const WARM: u32 = 500;
/// The agent without a canary, and the one that has one.
const PLAIN: u32 = 0;
const CANARY: u32 = 1;

/// `nodes` is the kubeconfig of another cluster, which has nodes and Slipway.
pub(crate) async fn measure(cluster: &Cluster, nodes: Option<&Path>) -> anyhow::Result<()> {
    let (core, other) = cores()?;
    cluster.clear().await?;
    let manager = Manager::ready().await?;
    let (uids, ()) = tokio::try_join!(cluster.create_agents(OPERATED, 2), complete(cluster, OPERATED, 2))?;
    // From here on nobody says that the canary has no pods.
    drop(manager);
    begin(cluster, &uids[CANARY as usize]).await?;
    let callers = Callers::prepare(cluster).await?;
    let port = http::free_port()?;
    let _agent = runtime::serve(port, &other, &[("RUNTIME_MODEL_ID", "stub-echo")])?;
    runtime::wait(port, Instant::now())?;
    let rest = Rest::start(&core, port, Some(&callers)).await?;
    block_in_place(|| chats(&rest, &callers))?;
    table::part("Canary: promotion, from the request to the last new pod that is ready");
    if let Some(nodes) = nodes {
        return promotion::measure(nodes).await;
    }
    table::alone("promotion", "not measured", "<= 1.20 x a restart");
    table::remark("it takes a cluster with nodes and Slipway on it, such as that of hack/up: --nodes <kubeconfig>");
    Ok(())
}

/// What there is of a canary that serves half of all conversations, as the operator writes it.
async fn begin(cluster: &Cluster, uid: &str) -> anyhow::Result<()> {
    let name = agent_name(CANARY);
    let services: Api<Service> = Api::namespaced(cluster.client(), OPERATED);
    for (service, track) in [(Track::primary(&name), Track::Stable), (Track::Canary.workload(&name), Track::Canary)] {
        let owner = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "name": name, "uid": uid, "controller": true});
        let selector = json!({labels::NAME: track.workload(&name), labels::AGENT: name, labels::TRACK: track.as_str()});
        let body = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": service, "labels": {labels::AGENT: name, labels::TRACK: track.as_str()}, "ownerReferences": [owner]},
            "spec": {"type": "ClusterIP", "selector": selector, "ports": [{"name": "http", "port": contract::PORT}]},
        });
        cluster.apply_one(&services, &service, &body).await?;
    }
    let agents: Api<Agent> = Api::namespaced(cluster.client(), OPERATED);
    let spec = json!({"spec": {"canary": {"enabled": true, "weight": 50}}});
    agents.patch(&name, &PatchParams::default(), &Patch::Merge(&spec)).await?;
    let status = json!({"status": {"canary": {"phase": "Serving", "weight": 50, "desiredWeight": 50}}});
    agents.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

/// Both agents are asked in turn, so that what the machine does meanwhile meets both.
fn chats(rest: &Rest, callers: &Callers) -> anyhow::Result<()> {
    table::part(&format!(
        "Canary: a chat of 1 KiB through REST to an agent with an active canary, and to one without; one connection, {CHATS} chats each; a token of the cluster, reviews, limits, REST on one core"
    ));
    let header = callers.account.replace('\n', "\r\n");
    let told = http::call(rest.port, "GET", &format!("{}/canary", path(CANARY)), &header, None, 200)?;
    if !told.contains("\"weight\":50") {
        bail!("the canary's weight is not in force: {told}");
    }
    let body = message();
    let mut connection = Connection::open(rest.port, &header)?;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for nth in 0..WARM + CHATS {
        let plain = connection.post(&format!("{}/chat", path(PLAIN)), &body)?;
        let canary = connection.post(&format!("{}/chat", path(CANARY)), &body)?;
        if nth >= WARM {
            without.push(plain);
            with.push(canary);
        }
    }
    for percent in [50, 95] {
        let (measured, floor) = (percentile(&with, percent), percentile(&without, percent));
        let what = format!("p{percent}");
        table::beside(&what, (&table::milliseconds(measured), measured), (&table::milliseconds(floor), floor), "none");
        table::alone(&format!("{what}, added by the choice"), &format!("{:.1} µs", (measured - floor) * 1e6), "<= 20 µs");
    }
    table::remark("no chat names a conversation, so that REST makes an id for each that goes to the agent with a canary");
    Ok(())
}

fn path(agent: u32) -> String {
    format!("/api/v1/agents/{}", agent_name(agent))
}

fn message() -> String {
    json!({"message": "The train to the coast leaves at nine, and nobody knows why it is late. ".repeat(16)[..1000]}).to_string()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_has_a_kibibyte() {
        let message = super::message();
        assert!(message.len() > 1000 && message.len() <= 1024);
    }
}
