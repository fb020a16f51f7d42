//! The radar: what agents did within the last day, and what is wrong with them now.
//!
//! `fleet` reads all agents at once for all calls, from the database or from Prometheus, and `tracks` one agent with a canary; `view` is
//! the form of an agent, and `alerts` that of an alert. Names, readiness and states come from the cache of agents.

mod alerts;
mod fleet;
mod prometheus;
mod tracks;
mod view;

use std::sync::Arc;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use slipway_cluster::Key;
use slipway_database::AgentKey;
use slipway_http::{Error, Reply};

use crate::agents::{self, AgentState};
use crate::answer::{Answer, Data, versioned};
use crate::call::Call;
use crate::cluster_error;
use crate::list_cache::ListEntry;
use crate::page::{self, Selected};

pub(crate) use alerts::{PAGED, SCOPED, of_agent, open};
pub(crate) use fleet::{Fleet, Reading, Snapshot};
pub(crate) use prometheus::Prometheus;
pub(crate) use tracks::readings as track_readings;
use view::{AgentRadar, Overview};

/// Memory charged for each agent that a call shows, besides what it sends.
const AGENT_BYTES: u64 = 4096;

/// The overview, with one page of agents.
#[derive(Serialize)]
pub(crate) struct OverviewPage {
    data: Overview,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    #[serde(skip)]
    version: u64,
}

impl Answer for OverviewPage {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        let inner = generator.subschema_for::<Overview>();
        json_schema!({"type": "object", "properties": {"data": inner, "next_cursor": {"type": "string"}}, "required": ["data"]})
    }

    fn reply(self) -> Result<Reply, Error> {
        versioned(Reply::json(&self)?, Some(self.version.to_string()))
    }
}

pub(crate) async fn overview(mut call: Call) -> Result<OverviewPage, Error> {
    let namespace = page::scope(&mut call)?;
    let context = call.context.clone();
    let Selected { items, next, version } = page::select(&mut call, &context.caches.agents, namespace.as_deref(), |_, _| true).await?;
    call.slot.charge(AGENT_BYTES * items.len() as u64)?;
    let snapshot = Fleet::snapshot(&context).await;
    let all = context.caches.agents.collect(namespace.as_deref(), |_, _, item| Some(view::figures(&snapshot, item)));
    let agents = items.iter().map(|item| AgentRadar::of(&snapshot, item)).collect();
    Ok(OverviewPage { data: Overview::of(&snapshot, &all, agents), next_cursor: next, version })
}

pub(crate) async fn get(call: Call) -> Result<Data<AgentRadar>, Error> {
    let (key, item) = find(&call).await?;
    let snapshot = Fleet::snapshot(&call.context).await;
    let mut shown = AgentRadar::of(&snapshot, &item);
    if let Some(reader) = &call.context.database
        && shown.has_usage()
    {
        // Tracks are many in all, and looked at one agent at a time.
        match reader.readings().usage_by_run(&[key_of(&key.namespace, &item)], snapshot.since()).await {
            Ok(used) => shown.set_tracks(used, &item.data),
            Err(fault) => tracing::debug!(%fault, "tracks are not known"),
        }
    }
    Ok(Data::new(shown))
}

/// The agent of the path: from the cache, or from the API server if it is newer than that.
pub(crate) async fn find(call: &Call) -> Result<(Key, Arc<ListEntry<AgentState>>), Error> {
    page::wait_for_caller_version(call, &call.context.caches.agents).await?;
    let named = call.path.part("agent_id");
    if let Some(found) = agents::cached_as(call, named) {
        return Ok(found);
    }
    let missing = || Error::not_found(format!("there is no agent {named}"));
    let name = agents::name(call, named).await?.ok_or_else(missing)?;
    let found = agents::api(call).get(&name).await.map_err(|error| cluster_error::from_kube(error, &format!("agent {named}")))?;
    let item = agents::item(&found).ok_or_else(missing)?;
    Ok((Key::new(call.namespace(), name), Arc::new(item)))
}

/// How the database names an agent.
fn key_of(namespace: &str, item: &ListEntry<AgentState>) -> AgentKey {
    let team = namespace.strip_prefix("team-").unwrap_or(namespace);
    AgentKey { team: slipway_api::ids::team(team), agent_id: item.id.clone(), uid: item.data.uid.to_string() }
}
