//! Changes of alerts, from the readings and from the alerts that are open. Pure.

use std::collections::HashMap;

use jiff::Timestamp;
use slipway_database::{Alert, RaisedAlert};
use slipway_governance::alert::{AlertStep, Limit, Open, Severity, Topic, judge};

use super::Watch;
use super::fleet::Watched;
use super::readings::AgentReadings;

/// The open alerts of all agents.
pub(super) struct OpenAlerts(HashMap<(String, String, String), Vec<Alert>>);

pub(super) fn by_agent(alerts: Vec<Alert>) -> OpenAlerts {
    let mut by_agent: HashMap<_, Vec<Alert>> = HashMap::new();
    for alert in alerts {
        let key = (alert.agent.team.clone(), alert.agent.agent_id.clone(), alert.agent.uid.clone());
        by_agent.entry(key).or_default().push(alert);
    }
    OpenAlerts(by_agent)
}

impl OpenAlerts {
    pub(super) fn of(&self, agent: &Watched) -> &[Alert] {
        let key = (agent.row.team.clone(), agent.row.agent_id.clone(), agent.row.uid.clone());
        self.0.get(&key).map_or(&[], Vec::as_slice)
    }
}

/// What is known of an agent.
pub(super) struct AlertInput<'a> {
    pub agent: &'a Watched,
    pub found: &'a AgentReadings,
    pub minutes_down: f64,
    pub open: &'a [Alert],
}

/// An alert that begins or goes on.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OngoingAlert<'a> {
    pub agent: &'a Watched,
    pub alert: RaisedAlert,
    /// The row that it has already.
    pub row: Option<Alert>,
    /// Its row is to be written.
    pub is_written: bool,
    /// It has become more severe.
    pub has_risen: bool,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct AlertChanges<'a> {
    pub standing: Vec<OngoingAlert<'a>>,
    pub resolved: Vec<(&'a Watched, Alert)>,
}

impl<'a> AlertChanges<'a> {
    /// `since` says since when alerts that have not begun are due, `waits` gets the same for the next pass.
    pub(super) fn decide(
        &mut self,
        seen: &AlertInput<'a>,
        since: &HashMap<Watch, Timestamp>,
        waits: &mut HashMap<Watch, Timestamp>,
        now: Timestamp,
    ) {
        let limits: Vec<Limit> = seen.agent.limits().collect();
        for limit in &limits {
            let watch = (seen.agent.key.clone(), limit.topic, limit.policy.clone());
            let row = seen.open.iter().find(|alert| is_about(alert, limit));
            let (reading, traces) = seen.found.reading(limit, seen.agent, seen.minutes_down);
            match judge(limit, reading, row.and_then(open).as_ref(), since.get(&watch).copied(), now) {
                AlertStep::Rest => {}
                AlertStep::Wait { since } => drop(waits.insert(watch, since)),
                AlertStep::Raise { value, level } => self.stand(seen.agent, limit, (value, level), traces, row, false),
                AlertStep::Renew { value, level, has_risen } => self.stand(seen.agent, limit, (value, level), traces, row, has_risen),
                AlertStep::Keep => self.keep(seen.agent, row),
                AlertStep::Resolve => self.resolved.extend(row.map(|row| (seen.agent, row.clone()))),
            }
        }
        // Nobody holds the agent to it any more. What a later version alerts about is left to it.
        let is_over = |alert: &&Alert| Topic::parse(&alert.metric).is_some() && !limits.iter().any(|limit| is_about(alert, limit));
        self.resolved.extend(seen.open.iter().filter(is_over).map(|row| (seen.agent, row.clone())));
    }

    fn keep(&mut self, agent: &'a Watched, row: Option<&Alert>) {
        let standing =
            row.map(|row| OngoingAlert { agent, alert: raised(row), row: Some(row.clone()), is_written: false, has_risen: false });
        self.standing.extend(standing);
    }

    fn stand(
        &mut self,
        agent: &'a Watched,
        limit: &Limit,
        (value, level): (f64, slipway_governance::alert::Level),
        traces: Vec<String>,
        row: Option<&Alert>,
        has_risen: bool,
    ) {
        let alert = RaisedAlert {
            agent: agent.row.clone(),
            metric: limit.topic.as_str().to_owned(),
            policy: limit.policy.clone(),
            severity: level.severity.as_str().to_owned(),
            message: limit.message(value, &level),
            value: Some(value),
            threshold: Some(level.at),
            traces,
        };
        self.standing.push(OngoingAlert { agent, alert, row: row.cloned(), is_written: true, has_risen });
    }
}

fn is_about(alert: &Alert, limit: &Limit) -> bool {
    alert.metric == limit.topic.as_str() && alert.policy == limit.policy
}

fn open(row: &Alert) -> Option<Open> {
    let severity = Severity::parse(&row.severity)?;
    Some(Open { severity, threshold: row.threshold.unwrap_or(0.0), last_seen: row.last_seen })
}

/// What a row says of its alert.
pub(super) fn raised(row: &Alert) -> RaisedAlert {
    let Alert { agent, metric, policy, severity, message, value, threshold, traces, .. } = row.clone();
    RaisedAlert { agent, metric, policy, severity, message, value, threshold, traces }
}
