//! What Tools that name an Integration cost the operator beside Tools that do not: the time that it computes from its start until it has
//! looked at all agents, which are as they should be, without what it computes where there are none.

use kube::api::Api;
use serde_json::{Value, json};
use slipway_api::Tool;

use super::{ALLOWING, Integrations};
use crate::cluster::{Cluster, OPERATED};
use crate::manager::Manager;
use crate::numbers::median;
use crate::observe::complete;
use crate::table;

const AGENTS: u32 = 300;
const TOOLS: usize = 16;
const SERVER: &str = "https://metrics.example.com";

pub(super) async fn measure(cluster: &Cluster, runs: u32) -> anyhow::Result<()> {
    Integrations(cluster).apply("metrics", &json!({"prometheus": {"url": SERVER}}), None).await?;
    let named = json!({"integration": "metrics", "endpoint": "/api/v1/query"});
    let plain = json!({"endpoint": format!("{SERVER}/api/v1/query")});
    let (named, plain) = (tools(cluster, "named", &named).await?, tools(cluster, "plain", &plain).await?);
    let none = computed(runs).await?;
    let mut found = Vec::new();
    for tools in [&named, &plain] {
        let manager = Manager::ready_with(&ALLOWING).await?;
        tokio::try_join!(cluster.create_agents_with(OPERATED, AGENTS, tools), complete(cluster, OPERATED, AGENTS))?;
        manager.settle().await?;
        drop(manager);
        found.push(computed(runs).await? - none);
        cluster.clear().await?;
    }
    let (measured, floor) = (found[0], found[1]);
    table::part(&format!("Integrations: the operator's processor time for a look at {AGENTS} agents with {TOOLS} Tools each"));
    table::beside("Tools of one Integration", (&table::seconds(measured), measured), (&table::seconds(floor), floor), "<= 1.20 x");
    table::remark(&format!(
        "the floor is as many Tools with the server's URL in them; medians of {runs}; it computes {} without agents",
        table::seconds(none)
    ));
    Ok(())
}

/// The names of Tools that have `how` in common.
async fn tools(cluster: &Cluster, prefix: &str, how: &Value) -> anyhow::Result<Vec<String>> {
    let api: Api<Tool> = Api::namespaced(cluster.client(), OPERATED);
    let names: Vec<String> = (0..TOOLS).map(|nth| format!("{prefix}-{nth:02}")).collect();
    for name in &names {
        let mut spec = how.clone();
        spec["name"] = json!(name);
        spec["type"] = json!("http");
        spec["description"] = json!("Asks the server for a measurement.");
        spec["parameters"] = json!([{"name": "query", "type": "string", "description": "What is asked.", "required": true}]);
        let tool = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Tool", "metadata": {"name": name}, "spec": spec});
        cluster.apply_one(&api, name, &tool).await?;
    }
    Ok(names)
}

/// The seconds that an operator computes until it has come to rest.
async fn computed(runs: u32) -> anyhow::Result<f64> {
    let mut all = Vec::new();
    for _ in 0..runs {
        let manager = Manager::ready_with(&ALLOWING).await?;
        manager.settle().await?;
        all.push(manager.processor_time()?);
    }
    Ok(median(&all))
}
