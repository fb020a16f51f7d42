//! The team's file of guardrail policies, as agents' pods find it: which of a namespace's policies are in it, and its text. Pure.
//!
//! The Team controller makes the file, and passes the result for each policy to the policy controller by
//! [`TeamPolicies`](crate::caches::guardrail_policy::TeamPolicies).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slipway_api::contract::policies::{FILE_BYTES_MAX, PolicyFile};
use slipway_api::guardrail_policy::{DEFAULT, DEFAULT_NAMES};
use slipway_api::{TeamSpec, ids};

use crate::caches::guardrail_policy::{CachedPolicy, LeftOut, Policies};

/// What the file has beside its policies: two lists of ids, each of which has at most 66 bytes.
const FRAME_BYTES: usize = 4 * 1024;

/// The policies that a Team requires, by name.
pub(crate) fn required(team: &TeamSpec) -> BTreeSet<String> {
    team.required_policies.iter().map(|reference| ids::guardrail_policy_name(reference)).collect()
}

/// Why each of these is left out that is.
pub(crate) fn left_out(policies: &Policies, required: &BTreeSet<String>) -> BTreeMap<String, LeftOut> {
    let mut left = BTreeMap::new();
    let mut order: Vec<(&String, &Arc<CachedPolicy>)> = policies.iter().filter(|(_, policy)| policy.is_there()).collect();
    order.sort_by_key(|(name, _)| (!required.contains(*name), !is_default(name)));
    let mut room = FILE_BYTES_MAX - FRAME_BYTES;
    for (name, policy) in order {
        // With the comma.
        match (policy.invalid(), room.checked_sub(policy.bytes.saturating_add(1))) {
            (Some(why), _) => drop(left.insert(name.clone(), LeftOut::Invalid(why))),
            (None, Some(rest)) => room = rest,
            (None, None) => drop(left.insert(name.clone(), LeftOut::NoRoom)),
        }
    }
    left
}

/// The file's text, the same for the same policies.
pub(crate) fn text(policies: &Policies, required: &BTreeSet<String>, left_out: &BTreeMap<String, LeftOut>) -> String {
    let given = || policies.iter().filter(|(name, _)| !left_out.contains_key(*name));
    let given: BTreeMap<&String, _> = given().filter_map(|(name, policy)| Some((name, policy.config(name)?))).collect();
    let ids = |names: &mut dyn Iterator<Item = &String>| names.map(|name| ids::guardrail_policy(name)).collect();
    let file = PolicyFile {
        default: ids(&mut given.keys().copied().filter(|name| is_default(name))),
        required: ids(&mut given.keys().copied().filter(|name| required.contains(*name))),
        policies: given.into_values().collect(),
    };
    // Texts, numbers and flags: there is nothing in them that could fail.
    serde_json::to_string(&file).unwrap_or_default()
}

/// How many agents are held to each policy. `agents` has of each agent what it names.
pub(crate) fn agents<'a>(
    policies: &Policies,
    required: &BTreeSet<String>,
    agents: impl Iterator<Item = &'a [Box<str>]>,
) -> BTreeMap<String, usize> {
    let (mut all, mut by_default, mut named) = (0, 0, BTreeMap::<String, usize>::new());
    for references in agents {
        all += 1;
        let has_default = references.is_empty() || references.iter().any(|reference| &**reference == DEFAULT);
        by_default += usize::from(has_default);
        let all: BTreeSet<String> = references.iter().map(|reference| ids::guardrail_policy_name(reference)).collect();
        // One that names a default besides the word for all of them is held to it once.
        for name in all.into_iter().filter(|name| name != DEFAULT && !(has_default && is_default(name))) {
            *named.entry(name).or_default() += 1;
        }
    }
    let held = |name: &String| {
        if required.contains(name) {
            return all;
        }
        named.get(name).copied().unwrap_or(0) + if is_default(name) { by_default } else { 0 }
    };
    policies.keys().map(|name| (name.clone(), held(name))).collect()
}

pub(crate) fn is_default(name: &str) -> bool {
    DEFAULT_NAMES.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use slipway_api::GuardrailPolicy;
    use slipway_cluster::Guarded;

    use super::*;

    fn policy(name: &str, rules: &Value, more: &Value) -> (String, Arc<CachedPolicy>) {
        let mut whole = json!({"metadata": {"name": name, "namespace": "team-a", "uid": name},
            "spec": {"name": format!("The {name}"), "description": "d", "severity": "critical", "rules": rules}});
        for (key, value) in more.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let object: Guarded<GuardrailPolicy> = serde_json::from_value(whole).unwrap();
        (name.to_owned(), Arc::new(CachedPolicy::from(object)))
    }

    fn topics(name: &str, value: &str) -> (String, Arc<CachedPolicy>) {
        policy(name, &json!([{"type": "blocked_topics", "operator": "contains", "value": value}]), &json!({}))
    }

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_file_has_what_is_valid_in_the_order_of_names() {
        let late = json!({"metadata": {"name": "late", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [super::super::caches::guardrail_policy::UNRECORDED]}});
        let all: Policies = [
            topics("weapons", "guns"),
            topics("default-topics", "violence"),
            policy("wrong", &json!([{"type": "max_tokens", "operator": "contains", "value": "1"}]), &json!({})),
            policy("broken", &json!("x"), &json!({})),
            policy("late", &json!([{"type": "max_tokens", "operator": "lt", "value": "1"}]), &late),
        ]
        .into();
        let required = names(&["weapons", "nope", "wrong"]);
        let left = left_out(&all, &required);
        assert_eq!(left.keys().collect::<Vec<_>>(), ["broken", "wrong"]);
        assert!(left["wrong"].message().starts_with("spec.rules[0].operator: "), "{:?}", left["wrong"]);
        let expected = r#"{"policies":[{"id":"gp_default_topics","name":"The default-topics","severity":"critical","enabled":true,"rules":[{"type":"blocked_topics","operator":"contains","value":"violence"}],"rollback":false,"hold_answers":true},{"id":"gp_weapons","name":"The weapons","severity":"critical","enabled":true,"rules":[{"type":"blocked_topics","operator":"contains","value":"guns"}],"rollback":false,"hold_answers":true}],"default":["gp_default_topics"],"required":["gp_weapons"]}"#;
        assert_eq!(text(&all, &required, &left), expected);
        assert_eq!(text(&Policies::new(), &required, &BTreeMap::new()), r#"{"policies":[],"default":[],"required":[]}"#);
    }

    #[test]
    fn what_fills_the_file_leaves_out_those_that_matter_least() {
        let rules: Vec<Value> =
            (0..16).map(|_| json!({"type": "blocked_topics", "operator": "contains", "value": "x".repeat(2048)})).collect();
        let mut all: Policies = (0..64).map(|at| policy(&format!("p{at:02}"), &json!(rules), &json!({}))).collect();
        all.extend([topics("default-topics", "violence"), topics("zz", "small")]);
        let required = names(&["p63"]);
        let left = left_out(&all, &required);
        assert!(!left.contains_key("p63") && !left.contains_key("default-topics") && !left.contains_key("p00"), "{left:?}");
        assert_eq!(left.get("p62"), Some(&LeftOut::NoRoom));
        let text = text(&all, &required, &left);
        assert!(text.len() <= FILE_BYTES_MAX && text.len() > FILE_BYTES_MAX - 40 * 1024, "{}", text.len());
        let file: PolicyFile = serde_json::from_str(&text).unwrap();
        assert_eq!(file.policies.len(), all.len() - left.len());
    }

    #[test]
    fn agents_are_counted_once_for_each_policy_that_holds_them() {
        let all: Policies = [topics("default-topics", "a"), topics("mine", "b"), topics("must", "c")].into();
        let given: [&[&str]; 4] = [&[], &["default", "gp_default_topics"], &["gp_mine", "mine"], &["default_topics", "default-topics"]];
        let given: Vec<Vec<Box<str>>> = given.iter().map(|list| list.iter().map(|name| Box::from(*name)).collect()).collect();
        let held = agents(&all, &names(&["must"]), given.iter().map(Vec::as_slice));
        assert_eq!(held, [("default-topics".to_owned(), 3), ("mine".to_owned(), 1), ("must".to_owned(), 4)].into());
    }
}
