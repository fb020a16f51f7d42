//! Alerts: what is wrong now, page by page, from the database.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use sha2::{Digest, Sha256};
use slipway_database::{AgentKey, Alert, MAX_AGENTS, MOST_LISTED, Page};
use slipway_governance::alert::{Severity, Topic};
use slipway_http::{Error, Reply};

use super::{find, key_of};
use crate::agents::{AgentState, Alerting};
use crate::answer::{Answer, versioned};
use crate::call::Call;
use crate::list_cache::ListEntry;
use crate::page::{self, Selected};
use crate::relay::from_database;
use crate::route::Parameter;

const LIMIT_MAX: u32 = 500;
/// Memory charged for each agent that the database is asked about.
const KEY_BYTES: u64 = 512;

pub(crate) const PAGED: &[Parameter; 2] = &[
    Parameter { name: "limit", about: "How many at most, 1 to 500; a page has no more than 200. Default 100.", kind: "integer" },
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
    pub last_seen: Option<String>,
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
            last_seen: Some(alert.last_seen.to_string()),
        }
    }

    /// What the agent's condition says, where nothing else keeps alerts, or it cannot be read: all of them as one. Without a database there
    /// are none but of agents that are down.
    pub(super) fn told(item: &ListEntry<AgentState>) -> Option<Self> {
        let Alerting { is_critical, message, since } = item.data.alerting.as_deref()?;
        // It begins with the first one's.
        let metric = message.split(' ').next().and_then(Topic::parse).unwrap_or(Topic::Down);
        // The same as long as the condition stands.
        let id = hex::encode(Sha256::digest(format!("{}/{since}", item.data.uid)));
        Some(Self {
            id: format!("al_{}", &id[..26]),
            agent_id: item.id.clone(),
            severity: if *is_critical { Severity::Critical } else { Severity::Warning }.as_str().to_owned(),
            message: message.to_string(),
            metric: metric.as_str().to_owned(),
            policy: None,
            value: None,
            threshold: None,
            trace_ids: Vec::new(),
            created_at: since.to_string(),
            last_seen: None,
        })
    }
}

/// Whether the agent's condition names an alert about errors or latency. It names the first few.
pub(super) fn is_told_in_trouble(state: &AgentState) -> bool {
    let named = state.alerting.as_deref().into_iter().flat_map(|alerting| alerting.message.split("; "));
    named.filter_map(|alert| Topic::parse(alert.split(' ').next()?)).any(Topic::degrades)
}

/// A page of alerts.
#[derive(Debug, Serialize)]
pub(crate) struct Alerts {
    data: Vec<AlertView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// The version of the agents.
    #[serde(skip)]
    version: u64,
}

impl Answer for Alerts {
    fn form(generator: &mut SchemaGenerator) -> Schema {
        page::form::<AlertView>(generator)
    }

    fn reply(self) -> Result<Reply, Error> {
        versioned(Reply::json(&self)?, Some(self.version.to_string()))
    }
}

/// The open alerts of the team's agents, or of all teams'.
pub(crate) async fn open(mut call: Call) -> Result<Alerts, Error> {
    let namespace = page::scope(&mut call)?;
    let context = call.context.clone();
    let agents = &context.caches.agents;
    if context.database.is_none() {
        let Selected { items, next, version } =
            page::select(&mut call, agents, namespace.as_deref(), |_, item| item.data.alerting.is_some()).await?;
        return Ok(Alerts { data: items.iter().filter_map(|item| AlertView::told(item)).collect(), next_cursor: next, version });
    }
    let version = page::wait_for_caller_version(&call, agents).await?;
    let keys = agents.collect(namespace.as_deref(), |namespace, _, item| Some(key_of(namespace, item)));
    list(call, keys, version).await
}

/// The open alerts of one agent.
pub(crate) async fn of_agent(mut call: Call) -> Result<Alerts, Error> {
    let version = page::wait_for_caller_version(&call, &call.context.caches.agents).await?;
    let (key, item) = find(&call).await?;
    if call.context.database.is_none() {
        let _ = limits(&mut call)?;
        return Ok(Alerts { data: AlertView::told(&item).into_iter().collect(), next_cursor: None, version });
    }
    list(call, vec![key_of(&key.namespace, &item)], version).await
}

/// The length of a page, and where it begins. Takes the query.
fn limits(call: &mut Call) -> Result<(u32, Option<String>), Error> {
    let limit = call.query.number("limit", 100, 1..=LIMIT_MAX)?.min(MOST_LISTED);
    let cursor = call.query.text("cursor");
    std::mem::take(&mut call.query).end()?;
    Ok((limit, cursor))
}

async fn list(mut call: Call, keys: Vec<AgentKey>, version: u64) -> Result<Alerts, Error> {
    let (limit, cursor) = limits(&mut call)?;
    let Some(reader) = &call.context.database else {
        return Err(Error::unavailable("this API has no connection to the database, without which no alerts are kept"));
    };
    call.slot.charge(KEY_BYTES * keys.len() as u64)?;
    let mut pages = Vec::new();
    for part in keys.chunks(MAX_AGENTS) {
        pages.push(reader.readings().alerts(part, true, limit, cursor.as_deref()).await.map_err(from_database)?);
    }
    let Page { items, next_cursor } = merged(pages, limit);
    Ok(Alerts { data: items.iter().map(AlertView::of).collect(), next_cursor, version })
}

/// One page of several, each of which begins with its newest.
fn merged(mut pages: Vec<Page<Alert>>, limit: u32) -> Page<Alert> {
    if pages.len() == 1 {
        return pages.remove(0);
    }
    let limit = limit as usize;
    let more = pages.iter().any(|page| page.next_cursor.is_some());
    let mut items: Vec<Alert> = pages.into_iter().flat_map(|page| page.items).collect();
    items.sort_by(|one, other| other.id.cmp(&one.id));
    let more = more || items.len() > limit;
    items.truncate(limit);
    let next_cursor = items.last().filter(|_| more).map(|alert| alert.id.clone());
    Page { items, next_cursor }
}

/// An open alert, for tests.
#[cfg(test)]
pub(super) fn example(id: &str, agent_id: &str, topic: Topic) -> Alert {
    Alert {
        id: id.to_owned(),
        agent: AgentKey { team: "tk_a".to_owned(), agent_id: agent_id.to_owned(), uid: "u".to_owned() },
        metric: topic.as_str().to_owned(),
        policy: String::new(),
        severity: Severity::Critical.as_str().to_owned(),
        message: String::new(),
        value: None,
        threshold: None,
        traces: Vec::new(),
        created_at: jiff::Timestamp::UNIX_EPOCH,
        last_seen: jiff::Timestamp::UNIX_EPOCH,
        resolved_at: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ids: &[&str], next: Option<&str>) -> Page<Alert> {
        let items = ids.iter().map(|id| example(id, "ag_1", Topic::Down)).collect();
        Page { items, next_cursor: next.map(str::to_owned) }
    }

    #[test]
    fn pages_of_many_agents_are_one_page() {
        for (pages, ids, next) in [
            (vec![page(&["al_9", "al_7"], Some("al_7")), page(&["al_8", "al_1"], None)], &["al_9", "al_8"][..], Some("al_8")),
            (vec![page(&["al_2"], None), page(&["al_3"], None)], &["al_3", "al_2"][..], None),
            (vec![page(&["al_2", "al_1"], Some("al_1")), page(&[], None)], &["al_2", "al_1"][..], Some("al_1")),
            (vec![page(&["al_2", "al_1"], Some("al_1"))], &["al_2", "al_1"][..], Some("al_1")),
            (Vec::new(), &[][..], None),
        ] {
            let merged = merged(pages, 2);
            assert_eq!(merged.items.iter().map(|alert| alert.id.as_str()).collect::<Vec<_>>(), ids);
            assert_eq!(merged.next_cursor.as_deref(), next);
        }
    }
}
