//! What the database says about all agents: asked for in parts, so that a statement is short and its answer small.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use slipway_api::guardrail_policy::RuleType;
use slipway_database::{AgentKey, AgentTraces, AgentUsage, AgentViolations, LATENCY_BOUNDS_MS, ReadinessSample};
use slipway_governance::alert::{Limit, Reading, Topic};
use slipway_governance::{MeasuredUsage, quantile};

use super::fleet::{Watched, is_of_answers};
use crate::tenancy::Tenancy;

/// The span of time that errors, latency and attempts are looked at in.
const RECENT: SignedDuration = SignedDuration::from_mins(15);
/// Of how many agents one statement is.
pub(super) const PART: usize = 1_000;
/// With fewer requests a rate or a quantile says little.
const MIN_REQUESTS: i64 = 20;
/// The most traces of one alert.
const MAX_TRACES: usize = 5;

/// What was measured of one agent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct AgentReadings {
    pub recent: MeasuredUsage,
    /// Since the day of UTC began, in US dollars.
    pub spent_today: f64,
    /// Traces of recent requests that failed, and of attempts at injection.
    pub failed: Vec<String>,
    pub injections: Vec<String>,
    /// Recent violations by policy and type of rule.
    pub violations: BTreeMap<(String, String), Broken>,
}

/// How often a rule was broken.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Broken {
    pub count: i64,
    pub traces: Vec<String>,
}

/// Adds a sample of every agent that is wanted.
pub(super) async fn sample(tenancy: &Tenancy, fleet: &[Watched]) -> Result<(), String> {
    let wanted = fleet.iter().filter(|agent| !agent.is_suspended());
    let samples: Vec<_> = wanted.map(|agent| ReadinessSample { agent: agent.row.clone(), ready: !agent.is_down() }).collect();
    for part in samples.chunks(PART) {
        tenancy.record_readiness(part).await?;
    }
    Ok(())
}

/// As many as there are agents, in their order.
pub(super) async fn read(tenancy: &Tenancy, fleet: &[Watched], now: Timestamp) -> Result<Vec<AgentReadings>, String> {
    let (recent, today) = (now - RECENT, start_of_day(now));
    let mut all = Vec::with_capacity(fleet.len());
    for part in fleet.chunks(PART) {
        let rows = rows(part);
        let mut found = vec![AgentReadings::default(); part.len()];
        for AgentUsage { agent, used, .. } in tenancy.usage(&rows, recent).await? {
            at(&mut found, agent, |found| found.recent = MeasuredUsage::from(&used));
        }
        let traced = |found: &AgentReadings| found.recent.errors > 0 || found.recent.injections > 0;
        let (places, keys): (Vec<_>, Vec<_>) = rows
            .iter()
            .enumerate()
            .filter(|(place, _)| found.get(*place).is_some_and(traced))
            .map(|(place, key)| (place, key.clone()))
            .unzip();
        for AgentTraces { agent, failed, injections } in tenancy.traces(&keys, recent).await? {
            if let Some(place) = places.get(agent) {
                at(&mut found, *place, |found| (found.failed, found.injections) = (failed, injections));
            }
        }
        for AgentUsage { agent, used, .. } in tenancy.usage(&rows, today).await? {
            at(&mut found, agent, |found| found.spent_today = used.spent_usd());
        }
        for row in tenancy.violations(&rows, recent).await? {
            at(&mut found, row.agent, |found| found.note(&row));
        }
        all.append(&mut found);
    }
    Ok(all)
}

pub(super) fn rows(agents: &[Watched]) -> Vec<AgentKey> {
    agents.iter().map(|agent| agent.row.clone()).collect()
}

fn at(found: &mut [AgentReadings], place: usize, note: impl FnOnce(&mut AgentReadings)) {
    if let Some(found) = found.get_mut(place) {
        note(found);
    }
}

/// The day of UTC, as budgets have it.
fn start_of_day(now: Timestamp) -> Timestamp {
    let second = now.as_second();
    Timestamp::from_second(second - second.rem_euclid(86_400)).unwrap_or(now)
}

impl AgentReadings {
    fn note(&mut self, row: &AgentViolations) {
        let broken = self.violations.entry((row.policy.clone(), row.rule.clone())).or_default();
        broken.count = broken.count.saturating_add(row.count.max(0));
        broken.traces.extend(row.last_trace.clone().filter(|_| broken.traces.len() < MAX_TRACES));
    }

    fn of_policy(&self, policy: &str, wanted: impl Fn(&str) -> bool) -> Vec<&Broken> {
        self.violations.iter().filter(|((of, rule), _)| of == policy && wanted(rule)).map(|(_, broken)| broken).collect()
    }

    /// What a limit is held against, and traces in which it can be seen.
    pub(super) fn reading(&self, limit: &Limit, agent: &Watched, minutes_down: f64) -> (Reading, Vec<String>) {
        let has_enough = |count: i64| count >= MIN_REQUESTS;
        let traces = |broken: Vec<&Broken>| broken.into_iter().flat_map(|broken| broken.traces.clone()).take(MAX_TRACES).collect();
        let of_rule = |of: RuleType| traces(self.of_policy(&limit.policy, |rule| rule == of.as_str()));
        match limit.topic {
            Topic::Down if agent.is_suspended() => (Reading::Nothing, Vec::new()),
            Topic::Down => (Reading::Value(minutes_down), Vec::new()),
            Topic::ErrorRate => (Reading::of(self.recent.error_percent().filter(|_| has_enough(self.recent.ended()))), self.failed.clone()),
            Topic::P95Latency => {
                let p95 = quantile(&LATENCY_BOUNDS_MS, &self.recent.latency, 0.95).filter(|_| has_enough(self.recent.timed()));
                (Reading::of(p95.map(|p95| p95.value)), of_rule(RuleType::MaxLatency))
            }
            Topic::DailyCost => (Reading::Value(self.spent_today), of_rule(RuleType::MaxCostPerDay)),
            Topic::Injections => (Reading::of(Some(number(self.recent.injections))), self.injections.clone()),
            Topic::Violations => {
                let broken = self.of_policy(&limit.policy, |rule| !is_of_answers(rule));
                let count = broken.iter().fold(0_i64, |sum, broken| sum.saturating_add(broken.count));
                (Reading::of(Some(number(count))), traces(broken))
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a quarter of an hour")]
fn number(count: i64) -> f64 {
    count.max(0) as f64
}
