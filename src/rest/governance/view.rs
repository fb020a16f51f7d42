//! A guardrail policy as REST shows it.

use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use slipway_api::guardrail_policy::{Operator, RuleType, Severity};
use slipway_api::{GuardrailPolicy, condition, ids};

use crate::list_cache::{self, ListEntry};

/// A guardrail policy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GuardrailPolicy")]
pub(crate) struct View {
    pub id: String,
    /// The resource's name, which agents and paths may use instead of the id.
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    /// `critical` refuses what breaks the policy, `warning` reports it.
    pub severity: Severity,
    pub enabled: bool,
    pub rules: Vec<Rule>,
    /// Whether a release may be taken back because its answers break the policy.
    pub rollback: bool,
    /// Whether a streamed answer is held back until all of it was judged.
    pub hold_answers: bool,
    /// How many agents are held to it. Null until it is known.
    pub agents: Option<i32>,
    /// What broke it in the last 24 hours. Null while nobody counts.
    pub violations: Option<Violations>,
    /// Whose violations these were, the most frequent first, at most 20. A list leaves them out.
    pub violators: Vec<Violator>,
    /// Why agents are not given it, if that is so.
    pub message: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

/// A rule of a policy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "GuardrailRule")]
pub(crate) struct Rule {
    #[serde(rename = "type")]
    pub kind: RuleType,
    pub operator: Operator,
    pub value: String,
}

/// How often a policy was broken in the last 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PolicyViolations")]
pub(crate) struct Violations {
    pub total: i64,
    /// How many of these were refused.
    pub blocked: i64,
}

/// An agent that broke a rule of a policy in the last 24 hours.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PolicyViolator")]
pub(crate) struct Violator {
    pub agent_id: String,
    /// The agent's slug.
    pub agent: String,
    /// The type of the rule.
    pub rule: RuleType,
    pub count: i64,
    /// How many of these were refused.
    pub blocked: i64,
    pub last_seen: Option<String>,
    /// The trace of the last one.
    pub trace_id: Option<String>,
}

impl View {
    pub(super) fn of(policy: &GuardrailPolicy) -> Self {
        let (spec, name, namespace) = (&policy.spec, policy.name_any(), policy.namespace().unwrap_or_default());
        let status = policy.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
        let violators = status.violators.into_iter().map(|violator| Violator {
            agent_id: ids::agent(&namespace, &violator.agent),
            agent: violator.agent,
            rule: violator.rule,
            count: violator.count,
            blocked: violator.blocked,
            last_seen: violator.last_seen.map(|time| time.0.to_string()),
            trace_id: violator.last_trace,
        });
        let rules = spec.rules.iter();
        Self {
            id: ids::guardrail_policy(&name),
            name: spec.name.clone(),
            description: spec.description.clone(),
            severity: spec.severity,
            enabled: spec.enabled,
            rules: rules.map(|rule| Rule { kind: rule.type_, operator: rule.operator, value: rule.value.clone() }).collect(),
            rollback: spec.rollback,
            hold_answers: spec.hold_answers,
            agents: status.agents,
            violations: status.violations.map(|found| Violations { total: found.total, blocked: found.blocked }),
            violators: violators.collect(),
            message: ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone()),
            resource_version: policy.resource_version(),
            created_at: crate::agents::time(policy.creation_timestamp().map(|time| time.0)),
            slug: name,
        }
    }
}

pub(crate) fn item(policy: &GuardrailPolicy) -> Option<ListEntry> {
    let mut view = View::of(policy);
    view.message = list_cache::truncate(view.message);
    view.violators = Vec::new();
    let description = view.description.as_deref().unwrap_or_default();
    Some(ListEntry {
        id: view.id.clone(),
        created: policy.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {} {description}", view.slug, view.name, view.severity.as_str()).to_lowercase().into(),
        json: serde_json::to_string(&view).ok()?.into(),
        ..ListEntry::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(status: &Value) -> GuardrailPolicy {
        let metadata =
            json!({"name": "no-advice", "namespace": "team-a", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let rule = json!({"type": "blocked_topics", "operator": "contains", "value": "dosage"});
        let spec = json!({"name": "No Advice", "severity": "critical", "rules": [rule]});
        serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_policy_that_nobody_has_looked_at_counts_nothing() {
        let view = serde_json::to_value(View::of(&policy(&Value::Null))).unwrap();
        assert_eq!((&view["id"], &view["slug"], &view["enabled"]), (&json!("gp_no_advice"), &json!("no-advice"), &json!(true)));
        assert_eq!(view["rules"], json!([{"type": "blocked_topics", "operator": "contains", "value": "dosage"}]));
        assert_eq!((&view["agents"], &view["violations"], &view["violators"]), (&Value::Null, &Value::Null, &json!([])));
    }

    #[test]
    fn a_policy_shows_who_broke_it_and_its_list_does_not() {
        let violator = json!({"agent": "helper", "rule": "blocked_topics", "count": 3, "blocked": 2, "lastSeen": "2026-01-02T00:00:00Z", "lastTrace": "tr_1"});
        let policy = policy(&json!({"agents": 4, "violations": {"total": 3, "blocked": 2}, "violators": [violator]}));
        let view = serde_json::to_value(View::of(&policy)).unwrap();
        let agent_id = ids::agent("team-a", "helper");
        let expected = json!([{"agent_id": agent_id, "agent": "helper", "rule": "blocked_topics", "count": 3, "blocked": 2, "last_seen": "2026-01-02T00:00:00Z", "trace_id": "tr_1"}]);
        assert_eq!((&view["agents"], &view["violations"], &view["violators"]), (&json!(4), &json!({"total": 3, "blocked": 2}), &expected));
        let listed: Value = serde_json::from_str(&item(&policy).unwrap().json).unwrap();
        assert_eq!((&listed["violations"]["total"], &listed["violators"]), (&json!(3), &json!([])));
    }
}
