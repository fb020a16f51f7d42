//! `RUNTIME_POLICIES`: the guardrail policies that an Agent names, by id. What they say is in the file of the team, which pods read
//! while they run; so that no change of a policy restarts an agent.

use std::collections::{BTreeMap, BTreeSet};

use slipway_api::agent::AgentSpec;
use slipway_api::guardrail_policy::DEFAULT;
use slipway_api::{contract, ids};

use super::{Stop, fault, json};
use crate::agent::gather::Seen;
use crate::caches::guardrail_policy::LeftOut;

/// An Agent that names none, or the word for the defaults alone, is told nothing: the file says which these are. So it does where the
/// word stands beside others.
pub(super) fn policies(spec: &AgentSpec, seen: &Seen, variables: &mut BTreeMap<&'static str, String>) -> Result<(), Stop> {
    let named = spec.governance.as_ref().map(|governance| governance.policies.as_slice()).unwrap_or_default();
    for (name, policy) in &seen.policies {
        let at = named.iter().position(|reference| ids::guardrail_policy_name(reference) == *name).unwrap_or_default();
        let field = format!("spec.governance.policies[{at}]");
        let Some(policy) = policy.as_ref().filter(|policy| policy.is_there()) else {
            let message = format!(
                "{field}: there is no GuardrailPolicy {name} in this namespace (kubectl get guardrailpolicies); pods that run stay as they are"
            );
            return Err(fault("PolicyNotFound", message));
        };
        let left_out = seen.team_policies.as_ref().and_then(|team| team.left_out.get(name)).map(LeftOut::message);
        if let Some(why) = policy.invalid().or(left_out) {
            return Err(fault("PolicyInvalid", format!("{field}: GuardrailPolicy {name}: {why}")));
        }
    }
    if seen.policies.is_empty() {
        return Ok(());
    }
    let mut told = BTreeSet::new();
    let id = |reference: &String| match reference.as_str() {
        DEFAULT => DEFAULT.to_owned(),
        _ => ids::guardrail_policy(&ids::guardrail_policy_name(reference)),
    };
    let all: Vec<String> = named.iter().map(id).filter(|id| told.insert(id.clone())).collect();
    variables.insert(contract::POLICIES, json(&all));
    Ok(())
}
