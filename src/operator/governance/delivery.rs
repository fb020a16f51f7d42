//! Decisions about alerts are written to the database, announced by Events and to integrations, and passed to the agent
//! controller for its status.
//!
//! Rows come before Events where an alert begins, as its id is the row's; Events come before rows where it ends. A manager that
//! begins to lead announces once more what has begun of late. All Events are named after the alert, so that none is there twice.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;

use futures::stream::{self, StreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use serde_json::{Value, json};
use slipway_api::Agent;
use slipway_api::condition::{ALERTING, CRITICAL_ALERTS, Finding};
use slipway_cluster::Key;
use slipway_cluster::event::{EventSpec, Events};
use slipway_database::{AlertStage, RaisedAlert};
use slipway_governance::alert::Severity;

use super::Memory;
use super::alerts::{AlertChanges, OngoingAlert, raised};
use super::fleet::Watched;
use super::readings::PART;
use crate::alert_delivery::AlertTurn;
use crate::context::Context;
use crate::metrics::BySeverity;
use crate::registry::Change;
use crate::tenancy::Tenancy;

/// How many Events are published in a pass at most, and how many at once. Others wait for the next pass.
const EVENTS_PER_PASS: usize = 500;
const AT_ONCE: usize = 8;
/// How many Events wait at most.
const MAX_WAITING: usize = 20_000;
/// Alerts that began within this time a new leader announces once more.
const OF_LATE: SignedDuration = SignedDuration::from_mins(10);
/// How many alerts of an agent its condition names.
const MAX_NAMED: usize = 4;

/// An Event that is to be published.
pub(super) struct Announcement {
    about: ObjectReference,
    event_spec: EventSpec,
    payload: Value,
    which: Vec<String>,
}

#[derive(Default)]
pub(super) struct Announcements(VecDeque<Announcement>);

impl Announcements {
    pub(super) fn raised(&mut self, agent: &Watched, id: &str, alert: &RaisedAlert) {
        let note = format!("{} alert: {}", alert.severity, alert.message);
        let event_spec = EventSpec { warning: true, reason: "AlertRaised".to_owned(), action: "Alert", note };
        self.add(agent, event_spec, alert, vec![id.to_owned(), "raised".to_owned(), alert.severity.clone()]);
    }

    pub(super) fn resolved(&mut self, agent: &Watched, id: &str, alert: &RaisedAlert) {
        let note = format!("resolved: {}", alert.message);
        let event_spec = EventSpec { warning: false, reason: "AlertResolved".to_owned(), action: "Alert", note };
        self.add(agent, event_spec, alert, vec![id.to_owned(), "resolved".to_owned()]);
    }

    fn add(&mut self, agent: &Watched, event_spec: EventSpec, alert: &RaisedAlert, which: Vec<String>) {
        if self.0.len() >= MAX_WAITING {
            return;
        }
        let payload = json!({"alert_id": which.first(), "metric": alert.metric, "policy": alert.policy, "severity": alert.severity,
            "value": alert.value, "threshold": alert.threshold, "traces": alert.traces});
        self.0.push_back(Announcement { about: reference(&agent.key, &agent.row.uid), event_spec, payload, which });
    }

    pub(super) async fn publish(&mut self, events: &Events) {
        let due = self.0.drain(..self.0.len().min(EVENTS_PER_PASS));
        let publish = async |Announcement { about, event_spec, payload, which }: Announcement| {
            let which: Vec<&str> = which.iter().map(String::as_str).collect();
            events.publish_once(&about, event_spec, &payload, &which).await;
        };
        stream::iter(due.map(publish)).for_each_concurrent(AT_ONCE, |published| published).await;
    }
}

pub(super) fn reference(key: &Key, uid: &str) -> ObjectReference {
    ObjectReference {
        api_version: Some(Agent::api_version(&()).into_owned()),
        kind: Some(Agent::kind(&()).into_owned()),
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        uid: Some(uid.to_owned()),
        ..ObjectReference::default()
    }
}

/// Writes what has changed. Where nothing was written before, the leader before may have been killed between a row and its Event.
pub(super) async fn apply(
    context: &Context,
    tenancy: &Tenancy,
    memory: &mut Memory,
    changes: AlertChanges<'_>,
    now: Timestamp,
) -> Result<(), String> {
    let Memory { announcements, outbox, has_begun, .. } = memory;
    let AlertChanges { mut standing, resolved } = changes;
    // What an earlier pass has left goes first: while it cannot be queued nothing is added to it, and an end comes after its beginning.
    outbox.queue(context, tenancy).await?;
    let (written, kept): (Vec<_>, Vec<_>) = standing.drain(..).partition(|standing| standing.is_written);
    for OngoingAlert { agent, alert, row, has_risen, .. } in &written {
        if let (Some(row), true) = (row, *has_risen) {
            outbox.add(agent, &AlertTurn { stage: AlertStage::Risen, id: &row.id, alert, created_at: row.created_at, now });
            outbox.queue_many(context, tenancy).await?;
        }
    }
    outbox.queue(context, tenancy).await?;
    for part in written.chunks(PART) {
        let alerts: Vec<RaisedAlert> = part.iter().map(|standing| standing.alert.clone()).collect();
        let rows = tenancy.raise_alerts(&alerts).await?;
        let mut queued = Ok(());
        for (OngoingAlert { agent, alert, has_risen, .. }, row) in part.iter().zip(&rows) {
            if row.is_new || *has_risen {
                announcements.raised(agent, &row.id, alert);
            }
            if row.is_new {
                outbox.add(agent, &AlertTurn { stage: AlertStage::Raised, id: &row.id, alert, created_at: row.created_at, now });
                // Their rows are there: should it fail, the others of this part are kept for the next pass, too.
                if queued.is_ok() {
                    queued = outbox.queue_many(context, tenancy).await;
                }
            }
        }
        queued?;
    }
    for OngoingAlert { agent, alert, row, .. } in written.iter().chain(&kept) {
        let is_of_late = |at| !*has_begun && now.duration_since(at) <= OF_LATE;
        let Some(row) = row.as_ref().filter(|row| is_of_late(row.created_at)) else { continue };
        announcements.raised(agent, &row.id, alert);
        outbox.add(agent, &AlertTurn { stage: AlertStage::Raised, id: &row.id, alert, created_at: row.created_at, now });
        outbox.queue_many(context, tenancy).await?;
    }
    outbox.queue(context, tenancy).await?;
    for (agent, row) in &resolved {
        outbox.add(agent, &AlertTurn { stage: AlertStage::Resolved, id: &row.id, alert: &raised(row), created_at: row.created_at, now });
        outbox.queue_many(context, tenancy).await?;
    }
    outbox.queue(context, tenancy).await?;
    // Before the rows: who is killed in between resolves them again, and announces nothing twice.
    for part in resolved.chunks(EVENTS_PER_PASS / 2) {
        for (agent, row) in part {
            announcements.resolved(agent, &row.id, &raised(row));
        }
        announcements.publish(&context.events).await;
        tenancy.resolve_alerts(&part.iter().map(|(_, row)| row.id.clone()).collect::<Vec<_>>()).await?;
    }
    tell(context, written.into_iter().chain(kept).map(|standing| (standing.agent.key.clone(), standing.alert)).collect());
    Ok(())
}

/// Tells the agent controller which alerts stand, and counts them.
pub(super) fn tell(context: &Context, standing: Vec<(Key, RaisedAlert)>) {
    for severity in Severity::ALL {
        let count = standing.iter().filter(|(_, alert)| alert.severity == severity.as_str()).count();
        let gauge = context.metrics.alerts.get_or_create(&BySeverity { severity: severity.as_str() });
        gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
    let mut by_agent: HashMap<Key, Vec<RaisedAlert>> = HashMap::new();
    for (key, alert) in standing {
        by_agent.entry(key).or_default().push(alert);
    }
    let findings = by_agent.into_iter().map(|(key, alerts)| (key, finding(alerts))).collect();
    for key in context.caches.alerting.set(findings) {
        context.registry.publish(&Change::Alerting(key));
    }
}

/// Without values, which change with each pass: a status is written when something turns.
fn finding(mut alerts: Vec<RaisedAlert>) -> Finding {
    alerts.sort_by(|one, other| (&one.severity, &one.metric, &one.policy).cmp(&(&other.severity, &other.metric, &other.policy)));
    let is_critical = alerts.iter().any(|alert| alert.severity == Severity::Critical.as_str());
    let named = alerts.iter().take(MAX_NAMED).map(|alert| {
        let policy = if alert.policy.is_empty() { String::new() } else { format!(", policy {}", alert.policy) };
        let threshold = alert.threshold.map(|threshold| format!(" from {threshold} on")).unwrap_or_default();
        format!("{}{threshold} ({}{policy})", alert.metric, alert.severity)
    });
    let mut message = named.collect::<Vec<_>>().join("; ");
    if let Some(more @ 1..) = alerts.len().checked_sub(MAX_NAMED) {
        let _ = write!(message, "; and {more} more");
    }
    Finding::new(ALERTING, true, if is_critical { CRITICAL_ALERTS } else { "Alerts" }, message)
}

#[cfg(test)]
mod tests {
    use slipway_database::AgentKey;

    use super::*;

    #[test]
    fn a_condition_names_alerts_and_no_values() {
        let key = AgentKey { team: "tk_a".to_owned(), agent_id: "ag_1".to_owned(), uid: "u".to_owned() };
        let alert = |metric: &str, severity: &str, value| RaisedAlert {
            agent: key.clone(),
            metric: metric.to_owned(),
            policy: if metric == "daily_cost_usd" { "gp_cap".to_owned() } else { String::new() },
            severity: severity.to_owned(),
            message: String::new(),
            value: Some(value),
            threshold: Some(5.0),
            traces: Vec::new(),
        };
        let found = finding(vec![alert("error_rate_pct", "warning", 6.0), alert("daily_cost_usd", "critical", 7.0)]);
        assert_eq!((found.reason.as_str(), found.holds), ("CriticalAlerts", Some(true)));
        assert_eq!(found.message, "daily_cost_usd from 5 on (critical, policy gp_cap); error_rate_pct from 5 on (warning)");
        assert_eq!(finding(vec![alert("error_rate_pct", "warning", 9.0)]), finding(vec![alert("error_rate_pct", "warning", 6.0)]));
        assert_eq!(finding(vec![alert("error_rate_pct", "warning", 9.0); 6]).message.matches("error_rate_pct").count(), MAX_NAMED);
    }
}
