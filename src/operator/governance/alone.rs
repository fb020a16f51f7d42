//! Alerts of a platform without a database: about readiness alone. Open alerts are in the agents' conditions, from which a new
//! leader takes them.

use std::collections::HashMap;

use jiff::Timestamp;
use slipway_api::condition::ALERTING;
use slipway_cluster::Key;
use slipway_database::{AlertStage, RaisedAlert};
use slipway_governance::alert::{AlertStep, Limit, Open, Severity, Topic, judge};

use super::delivery::Announcements;
use super::fleet::Watched;
use super::messages::Outbox;
use super::readings::AgentReadings;
use crate::alert_delivery::AlertTurn;
use crate::context::Context;

#[derive(Default)]
pub(super) struct Alerts {
    /// By agent, with the UID of the Agent. None before conditions have been looked at.
    open: Option<HashMap<Key, Standing>>,
}

struct Standing {
    uid: String,
    begun: Timestamp,
    open: Open,
    alert: RaisedAlert,
}

impl Standing {
    /// The same from each manager: the UID and the second in which it began.
    fn id(&self) -> String {
        format!("{}-{}", self.uid, self.begun.as_second())
    }

    fn turn<'a>(&'a self, stage: AlertStage, id: &'a str, now: Timestamp) -> AlertTurn<'a> {
        AlertTurn { stage, id, alert: &self.alert, created_at: self.begun, now }
    }
}

impl Alerts {
    /// Returns the alerts that stand.
    pub(super) fn pass(
        &mut self,
        context: &Context,
        fleet: &[Watched],
        down: &HashMap<Key, Timestamp>,
        (announcements, outbox): (&mut Announcements, &mut Outbox),
        now: Timestamp,
    ) -> Vec<(Key, RaisedAlert)> {
        let Some(limit) = Limit::platform().into_iter().find(|limit| limit.topic == Topic::Down) else { return Vec::new() };
        let open = self.open.get_or_insert_with(|| told(context, fleet, &limit, now));
        let mut still = HashMap::new();
        for agent in fleet {
            let before = open.remove(&agent.key).filter(|standing| standing.uid == agent.row.uid);
            let minutes = down.get(&agent.key).map_or(0.0, |since| now.duration_since(*since).as_secs_f64() / 60.0);
            let (reading, _) = AgentReadings::default().reading(&limit, agent, minutes);
            match (judge(&limit, reading, before.as_ref().map(|standing| &standing.open), None, now), before) {
                (AlertStep::Raise { value, level } | AlertStep::Renew { value, level, .. }, before) => {
                    let alert = alert(agent, &limit, value);
                    let is_new = before.is_none();
                    let begun = before.map_or(now, |before| before.begun);
                    let open = Open { severity: level.severity, threshold: level.at, last_seen: now };
                    let standing = Standing { uid: agent.row.uid.clone(), begun, open, alert };
                    if is_new {
                        let id = standing.id();
                        announcements.raised(agent, &id, &standing.alert);
                        outbox.add(agent, &standing.turn(AlertStage::Raised, &id, now));
                    }
                    still.insert(agent.key.clone(), standing);
                }
                (AlertStep::Resolve, Some(before)) => {
                    let id = before.id();
                    announcements.resolved(agent, &id, &before.alert);
                    outbox.add(agent, &before.turn(AlertStage::Resolved, &id, now));
                }
                (_, Some(before)) => drop(still.insert(agent.key.clone(), before)),
                (_, None) => {}
            }
        }
        *open = still;
        open.iter().map(|(key, standing)| (key.clone(), standing.alert.clone())).collect()
    }
}

/// What conditions say.
fn told(context: &Context, fleet: &[Watched], limit: &Limit, now: Timestamp) -> HashMap<Key, Standing> {
    let of = |agent: &Watched| {
        let object = context.caches.agents.get(&agent.key)?.agent().ok()?;
        let condition = object.status?.conditions.into_iter().find(|found| found.type_ == ALERTING && found.status == "True")?;
        let open = Open { severity: Severity::Critical, threshold: limit.allowed, last_seen: now };
        let alert = alert(agent, limit, limit.allowed);
        Some((agent.key.clone(), Standing { uid: agent.row.uid.clone(), begun: condition.last_transition_time.0, open, alert }))
    };
    fleet.iter().filter_map(of).collect()
}

fn alert(agent: &Watched, limit: &Limit, value: f64) -> RaisedAlert {
    let level = limit.reached(value.max(limit.allowed));
    RaisedAlert {
        agent: agent.row.clone(),
        metric: limit.topic.as_str().to_owned(),
        policy: String::new(),
        severity: level.map_or(Severity::Critical, |level| level.severity).as_str().to_owned(),
        message: level.map(|level| limit.message(value, &level)).unwrap_or_default(),
        value: Some(value),
        threshold: level.map(|level| level.at),
        traces: Vec::new(),
    }
}
