//! Alerts: what is wrong now, page by page, from the database.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use slipway_database::{AgentKey, Alert, Listed, MAX_AGENTS, MOST_LISTED, Page};
use slipway_http::{Error, Reply};

use super::{find, key_of};
use crate::answer::Answer;
use crate::call::Call;
use crate::page;
use crate::relay::from_database;
use crate::route::Parameter;

/// Memory charged for each agent that the database is asked about.
const KEY_BYTES: u64 = 512;

pub(crate) const PAGED: &[Parameter; 2] = &[
    Parameter { name: "limit", about: "How many at most, 1 to 200. Default 100.", kind: "integer" },
    Parameter { name: "cursor", about: "Where to go on: next_cursor of the page before.", kind: "string" },
];
pub(crate) const SCOPED: &[Parameter; 3] = &[PAGED[0], PAGED[1], page::SCOPED[3]];

/// What is wrong with an agent.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Alert")]
pub(crate) struct AlertView {
    pub id: String,
    pub agent_id: String,
    #[schemars(extend("enum" = ["warning", "critical"]))]
    pub severity: String,
    pub message: String,
    /// What it is about: `minutes_down`, `error_rate_pct`, `p95_latency_ms`, `daily_cost_usd`, `policy_violation_count` or
    /// `injection_attempt_count`.
    pub metric: String,
    /// The policy that was broken (gp_…), if it is one's.
    pub policy: Option<String>,
    /// The last value that was too high.
    pub value: Option<f64>,
    pub threshold: Option<f64>,
    /// Traces that show it, at most 10.
    pub trace_ids: Vec<String>,
    pub created_at: String,
    /// When it was last so.
    pub last_seen: String,
}

impl AlertView {
    pub(super) fn of(alert: &Alert) -> Self {
        Self {
            id: alert.id.clone(),
            agent_id: alert.agent.agent_id.clone(),
            severity: alert.severity.clone(),
            message: alert.message.clone(),
            metric: alert.metric.clone(),
            policy: Some(alert.policy.clone()).filter(|policy| !policy.is_empty()),
            value: alert.value,
            threshold: alert.threshold,
            trace_ids: alert.traces.clone(),
            created_at: alert.created_at.to_string(),
            last_seen: alert.last_seen.to_string(),
        }
    }
}

/// A page of alerts.
pub(crate) struct Alerts(Listed<AlertView>);

impl Answer for Alerts {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        page::form::<AlertView>(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        Reply::json(&self.0)
    }
}

/// The open alerts of the team's agents, or of all teams'.
pub(crate) async fn open(mut call: Call) -> Result<Alerts, Error> {
    let namespace = page::scope(&mut call)?;
    let agents = &call.context.caches.agents;
    let mut keys = agents.collect(namespace.as_deref(), |namespace, _, item| Some(key_of(namespace, item)));
    keys.truncate(MAX_AGENTS);
    list(call, keys).await
}

/// The open alerts of one agent.
pub(crate) async fn of_agent(call: Call) -> Result<Alerts, Error> {
    let (key, item) = find(&call).await?;
    list(call, vec![key_of(&key.namespace, &item)]).await
}

async fn list(mut call: Call, keys: Vec<AgentKey>) -> Result<Alerts, Error> {
    let limit = call.query.number("limit", 100, 1..=MOST_LISTED)?;
    let cursor = call.query.text("cursor");
    std::mem::take(&mut call.query).end()?;
    let Some(reader) = &call.context.database else {
        return Err(Error::unavailable("this API has no connection to the database, without which no alerts are kept"));
    };
    call.slot.charge(KEY_BYTES * keys.len() as u64)?;
    let page = reader.readings().alerts(&keys, true, limit, cursor.as_deref()).await.map_err(from_database)?;
    let data = page.items.iter().map(AlertView::of).collect();
    Ok(Alerts(Page { items: data, next_cursor: page.next_cursor }.into()))
}
