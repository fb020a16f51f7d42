//! Identifiers: opaque to clients, derived from names, so that they survive backup and re-creation.

use sha2::{Digest, Sha256};

/// The slug of the team that an id without one speaks of.
pub const DEFAULT_TEAM: &str = "default";

const ULID_DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// `ag_` and the first 20 hex digits of SHA-256 over `namespace/name`.
pub fn agent(namespace: &str, name: &str) -> String {
    let digest = Sha256::digest(format!("{namespace}/{name}"));
    format!("ag_{}", &hex::encode(digest)[..20])
}

/// `kb_` and the resource's name with `_` for `-`, so that it can be named before it exists.
pub fn knowledge_base(name: &str) -> String {
    format!("kb_{}", name.replace('-', "_"))
}

/// The resource's name, given either its id or its name.
pub fn knowledge_base_name(reference: &str) -> String {
    match reference.strip_prefix("kb_") {
        Some(rest) => rest.replace('_', "-"),
        None => reference.to_owned(),
    }
}

/// `sk_` and the resource's name with `_` for `-`.
pub fn skill(name: &str) -> String {
    format!("sk_{}", name.replace('-', "_"))
}

/// The resource's name, given either its id or its name.
pub fn skill_name(reference: &str) -> String {
    match reference.strip_prefix("sk_") {
        Some(rest) => rest.replace('_', "-"),
        None => reference.to_owned(),
    }
}

/// `ds_` and the resource's name with `_` for `-`.
pub fn dataset(name: &str) -> String {
    format!("ds_{}", name.replace('-', "_"))
}

/// The resource's name, given either its id or its name.
pub fn dataset_name(reference: &str) -> String {
    match reference.strip_prefix("ds_") {
        Some(rest) => rest.replace('_', "-"),
        None => reference.to_owned(),
    }
}

/// `gp_` and the resource's name with `_` for `-`.
pub fn guardrail_policy(name: &str) -> String {
    format!("gp_{}", name.replace('-', "_"))
}

/// The resource's name, given either its id or its name.
pub fn guardrail_policy_name(reference: &str) -> String {
    match reference.strip_prefix("gp_") {
        Some(rest) => rest.replace('_', "-"),
        None => reference.to_owned(),
    }
}

/// `in_` and the resource's name with `_` for `-`.
pub fn integration(name: &str) -> String {
    format!("in_{}", name.replace('-', "_"))
}

/// The resource's name, given either its id or its name.
pub fn integration_name(reference: &str) -> String {
    match reference.strip_prefix("in_") {
        Some(rest) => rest.replace('_', "-"),
        None => reference.to_owned(),
    }
}

/// `ev_` and what follows the prefix in the resource's name; of one that a person named, the whole name.
pub fn evaluation_run(name: &str) -> String {
    format!("ev_{}", name.strip_prefix("ev-").unwrap_or(name).replace('-', "_"))
}

/// The id by which runtimes know a run, and under which its results lie in the database: `ev_` and 26 characters. It is that of a
/// resource named `ev-<ulid>`, and is derived from the UID of any other, and of one that is repeated because its judge failed.
pub fn evaluation_results(name: &str, uid: &str, is_repetition: bool) -> String {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'z') && !b"ilou".contains(&byte);
    let own = name.strip_prefix("ev-").filter(|rest| rest.len() == 26 && rest.bytes().all(is_digit));
    if let Some(rest) = own.filter(|_| !is_repetition) {
        return format!("ev_{rest}");
    }
    let digest = Sha256::digest(format!("{uid}/{name}/{is_repetition}"));
    // The first digit of a ULID has three bits.
    let digits = digest.iter().take(26).enumerate().map(|(at, byte)| usize::from(*byte) % if at == 0 { 8 } else { 32 });
    format!("ev_{}", digits.map(|digit| char::from(ULID_DIGITS[digit])).collect::<String>())
}

/// Whom a token is for that opens the control ports of an agent's evaluators. It is no agent's id: what the agent itself was sent
/// opens none of them.
pub fn evaluator(agent: &str) -> String {
    format!("{agent}/evaluator")
}

/// `tk_` and the slug.
pub fn team(slug: &str) -> String {
    format!("tk_{slug}")
}

/// The team's slug, given either its id or its slug. The id without a slug is the default team's.
pub fn team_slug(reference: &str) -> &str {
    match reference.strip_prefix("tk_") {
        Some("") => DEFAULT_TEAM,
        Some(slug) => slug,
        None => reference,
    }
}

/// `user_` and the first 16 hex digits of SHA-256 over the e-mail in lower case.
pub fn user(email: &str) -> String {
    let digest = Sha256::digest(email.to_lowercase());
    format!("user_{}", &hex::encode(digest)[..16])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_agents_id_depends_on_namespace_and_name_alone() {
        assert_eq!(agent("team-default", "helper"), agent("team-default", "helper"));
        assert_ne!(agent("team-default", "helper"), agent("team-other", "helper"));
        assert_eq!(agent("team-default", "helper").len(), 23);
    }

    #[test]
    fn a_knowledge_base_is_found_by_id_and_by_name() {
        assert_eq!(knowledge_base("product-docs"), "kb_product_docs");
        assert_eq!(knowledge_base_name("kb_product_docs"), "product-docs");
        assert_eq!(knowledge_base_name("product-docs"), "product-docs");
    }

    #[test]
    fn a_skill_is_found_by_id_and_by_name() {
        assert_eq!(skill("fill-forms"), "sk_fill_forms");
        assert_eq!(skill_name("sk_fill_forms"), "fill-forms");
        assert_eq!(skill_name("fill-forms"), "fill-forms");
    }

    #[test]
    fn a_policy_is_found_by_id_and_by_name() {
        assert_eq!(guardrail_policy("default-tokens"), "gp_default_tokens");
        assert_eq!(guardrail_policy_name("gp_default_tokens"), "default-tokens");
        assert_eq!(guardrail_policy_name("default-tokens"), "default-tokens");
    }

    #[test]
    fn results_have_an_id_of_their_own_for_each_run_and_repetition() {
        let ulid = "01jabcdefghjkmnpqrstvwxyz0";
        let (named, repeated) =
            (evaluation_results(&format!("ev-{ulid}"), "u", false), evaluation_results(&format!("ev-{ulid}"), "u", true));
        assert_eq!(named, format!("ev_{ulid}"));
        let all = [
            named,
            repeated,
            evaluation_results("mine", "u", false),
            evaluation_results("mine", "v", false),
            evaluation_results("mine", "u", true),
        ];
        assert!(all.iter().all(|id| id.len() == 29), "{all:?}");
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn an_empty_team_id_is_the_default_teams() {
        for (reference, slug) in [("tk_", "default"), ("tk_default", "default"), ("tk_a", "a"), ("a", "a"), ("", "")] {
            assert_eq!(team_slug(reference), slug, "{reference:?}");
        }
    }

    proptest! {
        #[test]
        fn every_name_comes_back_from_its_id_and_is_its_own(name in "[a-z]([-a-z0-9]{0,20}[a-z0-9])?", other in "[a-z]([-a-z0-9]{0,3}[a-z0-9])?") {
            let kinds = [
                (knowledge_base as fn(&str) -> String, knowledge_base_name as fn(&str) -> String),
                (skill, skill_name),
                (guardrail_policy, guardrail_policy_name),
                (integration, integration_name),
            ];
            for (id, back) in kinds {
                prop_assert_eq!(back(&id(&name)), name.clone());
                prop_assert_eq!(back(&name), name.clone());
                prop_assert_eq!(id(&name) == id(&other), name == other);
            }
            let id = team(&name);
            prop_assert_eq!(team_slug(&id), &*name);
            prop_assert_eq!(team_slug(&name), &*name);
            prop_assert_eq!(agent(&name, &other) == agent(&other, &name), name == other);
        }
    }
}
