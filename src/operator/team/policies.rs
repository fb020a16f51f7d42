//! A team's guardrail policies: those that its agents are given, and the reasons for the rest.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource;
use slipway_api::Team;
use slipway_api::condition::{Finding, POLICIES_IN_FORCE};
use slipway_cluster::Key;
use slipway_cluster::event::EventSpec;

use super::namespace;
use crate::caches::guardrail_policy::{LeftOut, Policies, TeamPolicies};
use crate::context::Context;
use crate::policy_file;
use crate::registry::Change;

/// How many policies a message names.
const MAX_NAMES: usize = 5;

/// The policies of a team's namespace, and which of them agents are not given.
pub(super) struct PolicySelection {
    policies: Policies,
    required: BTreeSet<String>,
    left_out: BTreeMap<String, LeftOut>,
}

impl PolicySelection {
    pub(super) fn of(context: &Context, team: &Team) -> Self {
        let (policies, required) = (context.caches.policies_of(&namespace(team)), policy_file::required(&team.spec));
        let left_out = policy_file::left_out(&policies, &required);
        Self { policies, required, left_out }
    }

    /// The text of the file that agents' pods mount.
    pub(super) fn text(&self) -> String {
        policy_file::text(&self.policies, &self.required, &self.left_out)
    }

    /// Tells the controllers of policies and agents what came of each. `has_file` says whether the file was written.
    pub(super) fn publish(&self, context: &Context, team: &Team, has_file: bool) {
        let (key, agents) = (Key::of(team), context.caches.agents.in_namespace(&namespace(team)));
        let agents = policy_file::agents(&self.policies, &self.required, agents.iter().map(|(_, agent)| &*agent.policies));
        let given = || self.policies.keys().filter(|name| !self.left_out.contains_key(*name)).cloned().collect();
        let now = TeamPolicies { left_out: self.left_out.clone(), agents, given: has_file.then(given) };
        let is_same = context.caches.team_policies.get(&key).is_some_and(|before| *before == now);
        if !is_same {
            context.caches.team_policies.insert(key.clone(), now);
            context.registry.publish(&Change::TeamPolicies(key));
        }
    }

    /// What a Team says of its policies, if there is anything to say.
    pub(super) fn finding(&self) -> Option<Finding> {
        let of = |reason: &str, message: String| Some(Finding::new(POLICIES_IN_FORCE, false, reason, message));
        let missing: Vec<&str> = self.required.iter().filter(|name| !self.policies.contains_key(*name)).map(String::as_str).collect();
        if !missing.is_empty() {
            let message = format!(
                "spec.requiredPolicies: there is no GuardrailPolicy {} in the team's namespace; until there is, nobody is held to it",
                listed(&missing)
            );
            return of("PolicyNotFound", message);
        }
        // The required ones first.
        let mut left: Vec<_> = self.left_out.iter().collect();
        left.sort_by_key(|(name, _)| !self.required.contains(*name));
        if let Some((name, why)) = left.first() {
            let others = if left.len() > 1 { format!("; {} more are not given to agents either", left.len() - 1) } else { String::new() };
            return of(why.reason(), format!("GuardrailPolicy {name} is not given to agents: {}{others}", why.message()));
        }
        let is_off = |name: &&String| {
            let policy = self.policies.get(*name).and_then(|policy| policy.policy().ok());
            policy.is_some_and(|policy| !policy.spec.enabled)
        };
        let off: Vec<&str> = self.required.iter().filter(is_off).map(String::as_str).collect();
        if !off.is_empty() {
            let message = format!("spec.requiredPolicies: {} is switched off (spec.enabled); nobody is held to it", listed(&off));
            return of("PolicyDisabled", message);
        }
        (!self.required.is_empty()).then(|| {
            let message = "every agent of the team is held to the policies of spec.requiredPolicies, whatever it names";
            Finding::new(POLICIES_IN_FORCE, true, "Required", message)
        })
    }
}

/// A Warning about policies that are not in force, once that has stood for a while.
pub(super) async fn warn(context: &Context, team: &Team, finding: Option<&Finding>) -> Option<std::time::Duration> {
    let trouble = finding.filter(|finding| finding.holds == Some(false));
    let before = team.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == POLICIES_IN_FORCE);
    let is_news = trouble.is_some_and(|now| before.is_none_or(|old| (&old.reason, &old.message) != (&now.reason, &now.message)));
    let event = trouble.map(|now| EventSpec { warning: true, reason: now.reason.clone(), action: "Report", note: now.message.clone() });
    context.warn("TeamPolicies", &Key::of(team), &team.object_ref(&()), event, is_news).await
}

fn listed(names: &[&str]) -> String {
    let more = names.len().saturating_sub(MAX_NAMES);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", names.iter().take(MAX_NAMES).copied().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_cluster::Guarded;

    use super::*;
    use crate::testing::context;

    #[tokio::test]
    async fn a_team_says_which_policies_are_not_in_force() {
        let context = context();
        let rule = |value: &str| json!([{"type": "max_tokens", "operator": "lt", "value": value}]);
        let put = |name: &str, spec: Value| {
            let mut whole =
                json!({"metadata": {"name": name, "namespace": "team-a", "uid": name}, "spec": {"name": "P", "severity": "warning"}});
            for (key, value) in spec.as_object().unwrap() {
                whole["spec"][key] = value.clone();
            }
            let object: Guarded<_> = serde_json::from_value(whole).unwrap();
            context.caches.guardrail_policies.insert(Key::new("team-a", name), object.into());
        };
        let said = |required: &[&str]| {
            let team = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"name": "A", "requiredPolicies": required}});
            let finding = PolicySelection::of(&context, &serde_json::from_value(team).unwrap()).finding();
            finding.map(|found| (found.holds, found.reason, found.message))
        };
        assert_eq!(said(&[]), None);
        put("good", json!({"rules": rule("9")}));
        put("off", json!({"rules": rule("9"), "enabled": false}));
        assert_eq!(said(&[]), None);
        for (required, holds, reason, says) in [
            (&["gp_good"][..], true, "Required", ""),
            (&["good", "gp_no_pe"], false, "PolicyNotFound", "no GuardrailPolicy no-pe"),
            (&["good", "off"], false, "PolicyDisabled", "off is switched off"),
        ] {
            let (found, word, message) = said(required).unwrap();
            assert_eq!((found, word.as_str()), (Some(holds), reason), "{message}");
            assert!(message.contains(says), "{message}");
        }
        put("bad", json!({"rules": rule("none")}));
        put("worse", json!({"rules": rule("no")}));
        let (holds, reason, message) = said(&["worse"]).unwrap();
        assert_eq!((holds, reason.as_str()), (Some(false), "PolicyInvalid"));
        assert!(message.starts_with("GuardrailPolicy worse is not given to agents: spec.rules[0].value: "), "{message}");
        assert!(message.ends_with("; 1 more are not given to agents either"), "{message}");
        assert_eq!(said(&[]).map(|(_, reason, _)| reason).as_deref(), Some("PolicyInvalid"));
    }

    #[test]
    fn many_names_are_cut() {
        assert_eq!(listed(&["a", "b"]), "a, b");
        assert_eq!(listed(&["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
