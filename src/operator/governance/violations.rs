//! The number of times that policies were broken in the last day, for their statuses.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use slipway_api::guardrail_policy::{PolicyViolations, RuleType, VIOLATORS_MAX, Violator};
use slipway_api::ids;
use slipway_cluster::Key;
use slipway_database::AgentViolations;
use slipway_governance::WINDOW;

use super::fleet::Watched;
use super::readings::{PART, rows};
use crate::caches::Violations;
use crate::context::Context;
use crate::registry::Change;
use crate::tenancy::Tenancy;

/// The longest trace of a status.
const MAX_TRACE_BYTES: usize = 64;

pub(super) async fn tell(context: &Context, tenancy: &Tenancy, fleet: &[Watched], now: Timestamp) -> Result<(), String> {
    let (mut found, mut cut_off) = (Counted::default(), BTreeSet::new());
    for part in fleet.chunks(PART) {
        for row in tenancy.violations(&rows(part), now - WINDOW).await? {
            if let Some(agent) = part.get(row.agent) {
                found.add(&agent.key, &row);
                if row.partial {
                    cut_off.insert(&agent.key);
                }
            }
        }
    }
    if let Some(first) = cut_off.first() {
        tracing::warn!(agents = cut_off.len(), %first, "agents break more rules than are read of one; their policies' counts are too low");
    }
    for key in context.caches.violations.set(found.by_policy()) {
        context.registry.publish(&Change::Violations(key));
    }
    Ok(())
}

/// By policy, agent and type of rule.
#[derive(Default)]
struct Counted(HashMap<(Key, String, RuleType), Violator>);

impl Counted {
    /// What was written under a policy or a rule that nobody knows is not counted.
    fn add(&mut self, agent: &Key, row: &AgentViolations) {
        let Some(rule) = RuleType::ALL.iter().copied().find(|rule| rule.as_str() == row.rule) else { return };
        let policy = Key::new(&agent.namespace, ids::guardrail_policy_name(&row.policy));
        let violator = self.0.entry((policy, agent.name.clone(), rule)).or_default();
        let count = row.count.max(0);
        (violator.agent, violator.rule) = (agent.name.clone(), rule);
        violator.count = violator.count.saturating_add(count);
        violator.blocked = violator.blocked.saturating_add(if row.blocked { count } else { 0 });
        let seen = Some(Time(row.last_minute));
        if violator.last_seen.as_ref().map(|time| time.0) <= Some(row.last_minute) {
            violator.last_seen = seen;
            violator.last_trace = row.last_trace.clone().filter(|trace| trace.len() <= MAX_TRACE_BYTES);
        }
    }

    fn by_policy(self) -> HashMap<Key, Violations> {
        let mut all: HashMap<Key, Violations> = HashMap::new();
        for ((policy, ..), violator) in self.0 {
            let violations = all.entry(policy).or_default();
            let PolicyViolations { total, blocked } = &mut violations.total;
            *total = total.saturating_add(violator.count);
            *blocked = blocked.saturating_add(violator.blocked);
            violations.violators.push(violator);
        }
        for violations in all.values_mut() {
            violations.violators.sort_by(|one, other| (other.count, &one.agent, one.rule).cmp(&(one.count, &other.agent, other.rule)));
            violations.violators.truncate(VIOLATORS_MAX);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use slipway_database::Stage;

    use super::*;

    #[test]
    fn violations_are_counted_by_policy_and_violator() {
        let minute = |number: i64| Timestamp::from_second(number * 60).unwrap();
        let row = |policy: &str, rule: &str, blocked, count, at| AgentViolations {
            agent: 0,
            track: "stable".to_owned(),
            run_hash: String::new(),
            policy: policy.to_owned(),
            rule: rule.to_owned(),
            stage: Stage::Input,
            blocked,
            count,
            last_minute: minute(at),
            last_trace: Some(format!("tr_{at}")),
            partial: false,
        };
        let mut counted = Counted::default();
        let (one, two) = (Key::new("team-a", "one"), Key::new("team-a", "two"));
        counted.add(&one, &row("gp_no_guns", "blocked_topics", true, 3, 5));
        counted.add(&one, &row("gp_no_guns", "blocked_topics", false, 1, 4));
        counted.add(&two, &row("gp_no_guns", "blocked_topics", true, 9, 1));
        counted.add(&two, &row("gp_no_guns", "a rule of tomorrow", true, 9, 1));
        counted.add(&two, &row("gp_other", "max_tokens", false, -5, 1));
        let found = counted.by_policy();
        let guns = &found[&Key::new("team-a", "no-guns")];
        assert_eq!(guns.total, PolicyViolations { total: 13, blocked: 12 });
        let seen: Vec<_> = guns.violators.iter().map(|it| (&*it.agent, it.count, it.blocked, it.last_trace.as_deref())).collect();
        assert_eq!(seen, [("two", 9, 9, Some("tr_1")), ("one", 4, 3, Some("tr_5"))]);
        assert_eq!(found[&Key::new("team-a", "other")].total, PolicyViolations::default());
    }
}
