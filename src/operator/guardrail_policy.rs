//! The guardrail policy controller: says of each GuardrailPolicy whether agents are held to it, how many, and how often it was
//! broken. It makes nothing: the file in which agents' pods find policies is the team's (`policy_file`).

use std::sync::Arc;

use jiff::Timestamp;
use kube::Resource;
use slipway_api::condition::{self, Finding, READY, STALLED};
use slipway_api::guardrail_policy::VIOLATORS_MAX;
use slipway_api::{GuardrailPolicy, GuardrailPolicyStatus, ids};
use slipway_cluster::controller::{Next, Phase, RESYNC, Requests};
use slipway_cluster::event::EventSpec;
use slipway_cluster::{Key, write};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::caches::Violations;
use crate::caches::guardrail_policy::{CachedPolicy, TeamPolicies};
use crate::context::Context;
use crate::fault::ConditionFault;
use crate::registry::{Change, Registered};

/// The field manager of everything that this controller writes.
const MANAGER: &str = "slipway/guardrail-policy";
/// How many are reconciled at once.
const CONCURRENCY: usize = 2;

pub(crate) struct Controller {
    context: Arc<Context>,
    requests: Requests,
}

impl Controller {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, requests: Requests::default() }
    }

    fn request_namespace(&self, namespace: &str) {
        self.requests.add_all(self.context.caches.guardrail_policies.in_namespace(namespace).into_iter().map(|(key, _)| key));
    }
}

impl Registered for Controller {
    fn changed(&self, change: &Change) {
        if let Some(key) = change.of::<GuardrailPolicy>() {
            self.requests.add(key.clone());
        }
        match change {
            Change::TeamPolicies(team) => self.request_namespace(&format!("team-{}", team.name)),
            Change::Namespace(namespace) => self.request_namespace(namespace),
            Change::Violations(key) => self.requests.add(key.clone()),
            _ => {}
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let (context, requests) = (self.context.clone(), self.requests.clone());
        vec![context.start::<GuardrailPolicy, _>(phase, ("guardrail-policy", CONCURRENCY, &requests), move |key| {
            let context = self.context.clone();
            async move { reconcile(&context, &key).await }
        })]
    }

    fn request_all(&self) {
        self.requests.add_all(self.context.caches.guardrail_policies.keys());
    }
}

async fn reconcile(context: &Context, key: &Key) -> Next<write::Error> {
    let Some(object) = context.caches.guardrail_policies.get(key) else {
        context.untroubled("GuardrailPolicy", key);
        return Ok(None);
    };
    let policy = match object.policy() {
        Ok(policy) if policy.meta().deletion_timestamp.is_some() => return Ok(None),
        Ok(policy) => policy,
        Err(invalid) => {
            context.malformed::<GuardrailPolicy>(key, invalid, None::<()>, &[(READY, false), (STALLED, true)]).await?;
            return Ok(Some(RESYNC));
        }
    };
    let mut before = policy.status.clone().unwrap_or_default();
    before.conditions = condition::ours(before.conditions);
    let team = context.caches.team_of(&key.namespace);
    let told = team.as_ref().and_then(|slug| context.caches.team_policies.get(&Key::new("", slug)));
    if team.is_some() && told.is_none() {
        // The Team is looked at first, and tells when it has been.
        return Ok(Some(RESYNC));
    }
    let facts = Facts {
        fault: fault(key, &object, told.as_deref()),
        enabled: policy.spec.enabled,
        agents: told.as_ref().and_then(|told| told.agents.get(&key.name).copied()),
        violations: context.caches.violations.of(key),
    };
    let status = status(key, &facts, &before, policy.meta().generation, Timestamp::now());
    if status != before {
        context.write_status(policy, &status, MANAGER).await?;
    }
    let trouble =
        facts.fault.map(|fault| EventSpec { warning: true, reason: fault.reason.to_owned(), action: "Check", note: fault.message });
    let said =
        |status: &GuardrailPolicyStatus| status.conditions.first().map(|condition| (condition.reason.clone(), condition.message.clone()));
    let due = context.warn("GuardrailPolicy", key, &policy.object_ref(&()), trouble, said(&status) != said(&before)).await;
    Ok(Some(due.map_or(RESYNC, |due| due.min(RESYNC))))
}

/// What keeps agents from being held to it.
fn fault(key: &Key, policy: &CachedPolicy, told: Option<&TeamPolicies>) -> Option<ConditionFault> {
    let Some(told) = told else {
        let message = format!(
            "namespace {} belongs to no Team; agents, and what they use, are in namespaces named team-<slug> (kubectl get teams)",
            key.namespace
        );
        return Some(ConditionFault { reason: "NotATeamNamespace", message });
    };
    if let Some(message) = policy.invalid() {
        return Some(ConditionFault { reason: "FieldInvalid", message });
    }
    told.left_out.get(&key.name).map(|why| ConditionFault { reason: why.reason(), message: why.message() })
}

/// All that a status is made from.
struct Facts {
    fault: Option<ConditionFault>,
    enabled: bool,
    /// None while nobody has counted them.
    agents: Option<usize>,
    /// None while nobody has looked; what was said before stands then.
    #[expect(clippy::option_option, reason = "nobody has looked, nothing was found, and what was found")]
    violations: Option<Option<Violations>>,
}

fn status(key: &Key, facts: &Facts, before: &GuardrailPolicyStatus, generation: Option<i64>, now: Timestamp) -> GuardrailPolicyStatus {
    const SEE_READY: &str = "see the condition Ready";
    let findings = match (&facts.fault, facts.enabled) {
        (Some(fault), _) => {
            vec![Finding::new(READY, false, fault.reason, &*fault.message), Finding::new(STALLED, true, fault.reason, SEE_READY)]
        }
        (None, enabled) => {
            let (reason, message) = if enabled {
                ("Given", "agents are given this policy; pods that run follow a change within about a minute")
            } else {
                ("Disabled", "spec.enabled is false; agents are given this policy and are not held to it")
            };
            vec![Finding::new(READY, true, reason, message), Finding::new(STALLED, false, "NotStalled", "")]
        }
    };
    let held = facts.agents.map(|agents| if facts.enabled && facts.fault.is_none() { agents } else { 0 });
    let (violations, violators) = match &facts.violations {
        None => (before.violations, before.violators.clone()),
        Some(None) => (Some(slipway_api::guardrail_policy::PolicyViolations::default()), Vec::new()),
        Some(Some(found)) => (Some(found.total), found.violators.iter().take(VIOLATORS_MAX).cloned().collect()),
    };
    GuardrailPolicyStatus {
        id: Some(ids::guardrail_policy(&key.name)),
        agents: held.map(|agents| i32::try_from(agents).unwrap_or(i32::MAX)).or(before.agents),
        violations,
        violators,
        observed_generation: generation,
        conditions: condition::conditions(findings, &before.conditions, generation, now),
    }
}

#[cfg(test)]
mod tests {
    use slipway_api::guardrail_policy::{PolicyViolations, RuleType, Violator};
    use slipway_cluster::Guarded;

    use super::*;

    fn of(facts: &Facts, before: &GuardrailPolicyStatus) -> GuardrailPolicyStatus {
        status(&Key::new("team-a", "no-guns"), facts, before, Some(2), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_status_says_who_is_held_and_what_keeps_them() {
        let said = |fault: Option<&'static str>, enabled| {
            let fault = fault.map(|reason| ConditionFault { reason, message: "m".to_owned() });
            let status = of(&Facts { fault, enabled, agents: Some(7), violations: None }, &GuardrailPolicyStatus::default());
            let [ready, stalled] = &status.conditions[..] else { panic!("{:?}", status.conditions) };
            (ready.status.clone(), ready.reason.clone(), stalled.status.clone(), status.agents, status.id.clone())
        };
        let expected = |ready: &str, reason: &str, stalled: &str, agents| {
            (ready.to_owned(), reason.to_owned(), stalled.to_owned(), Some(agents), Some("gp_no_guns".to_owned()))
        };
        assert_eq!(said(None, true), expected("True", "Given", "False", 7));
        assert_eq!(said(None, false), expected("True", "Disabled", "False", 0), "what is off on purpose is in order");
        assert_eq!(said(Some("FieldInvalid"), true), expected("False", "FieldInvalid", "True", 0));
    }

    #[test]
    fn what_was_counted_stands_while_nobody_counts() {
        let violator = |at: usize| Violator { agent: format!("a{at}"), rule: RuleType::BlockedTopics, count: 1, ..Violator::default() };
        let found = Violations { total: PolicyViolations { total: 30, blocked: 2 }, violators: (0..30).map(violator).collect() };
        let facts = |violations, agents| Facts { fault: None, enabled: true, agents, violations };
        let fresh = of(&facts(None, None), &GuardrailPolicyStatus::default());
        assert_eq!((fresh.violations, fresh.agents), (None, None), "nothing is invented");
        let known = of(&facts(Some(Some(found)), Some(3)), &GuardrailPolicyStatus::default());
        assert_eq!((known.violations, known.violators.len()), (Some(PolicyViolations { total: 30, blocked: 2 }), VIOLATORS_MAX));
        assert_eq!(of(&facts(None, None), &known), known);
        let none = of(&facts(Some(None), Some(3)), &known);
        assert_eq!((none.violations, none.violators.len()), (Some(PolicyViolations::default()), 0));
    }

    #[test]
    fn a_fault_of_the_policy_comes_before_what_became_of_it() {
        use crate::caches::guardrail_policy::LeftOut;
        let policy = |rule: &str| {
            let yaml =
                format!("{{metadata: {{name: p, namespace: team-a, uid: u}}, spec: {{name: P, severity: warning, rules: [{{{rule}}}]}}}}");
            let object: GuardrailPolicy = serde_yaml::from_str(&yaml).unwrap();
            CachedPolicy::from(Guarded(Ok(object)))
        };
        let key = Key::new("team-a", "p");
        let (good, bad) = (policy("type: max_tokens, operator: lt, value: '1'"), policy("type: max_tokens, operator: in, value: '1'"));
        let reason = |policy: &CachedPolicy, told: Option<&TeamPolicies>| fault(&key, policy, told).map(|fault| fault.reason);
        let full = TeamPolicies { left_out: [("p".to_owned(), LeftOut::NoRoom)].into(), ..TeamPolicies::default() };
        assert_eq!(reason(&good, None), Some("NotATeamNamespace"));
        assert_eq!(reason(&good, Some(&TeamPolicies::default())), None);
        assert_eq!(reason(&good, Some(&full)), Some("NoRoom"));
        assert_eq!(reason(&bad, Some(&full)), Some("FieldInvalid"));
    }
}
