//! The names of a server's tools: `{tool}_{server's tool}`, with the characters and length that models accept. They depend on
//! the configuration and the server's own list only, not on the state of other servers.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

/// The longest name that models accept. A server's tool with a name of this length may be one whose own was cut.
pub(crate) const MAX_NAME_BYTES: usize = 64;

/// Names that the configuration already uses.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReservedNames {
    /// The names of tools that are not servers.
    pub(crate) names: BTreeSet<String>,
    /// The prefixes of the names of all servers' tools.
    pub(crate) prefixes: BTreeSet<String>,
}

impl ReservedNames {
    fn holds(&self, name: &str, own: &str) -> bool {
        self.names.contains(name) || self.prefixes.iter().any(|prefix| prefix.len() > own.len() && name.starts_with(prefix.as_str()))
    }
}

pub(crate) fn prefix(server: &str) -> String {
    format!("{server}_")
}

/// One name for each of the server's tools, in their order.
pub(super) fn assign(server: &str, tools: &[&str], reserved: &ReservedNames) -> Vec<String> {
    let own = prefix(server);
    let plain: Vec<String> = tools.iter().map(|tool| format!("{own}{}", letters(tool))).collect();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &plain {
        *count.entry(name).or_default() += 1;
    }
    let name = |(name, tool): (&String, &&str)| {
        if name.len() <= MAX_NAME_BYTES && count[name.as_str()] == 1 && !reserved.holds(name, &own) {
            return name.clone();
        }
        // The digest of the original names distinguishes tools whose cut or escaped names are equal.
        let digest = hex::encode(&Sha256::digest(format!("{server}\n{tool}").as_bytes())[..5]);
        format!("{}_{digest}", &name[..name.len().min(MAX_NAME_BYTES - digest.len() - 1)])
    };
    plain.iter().zip(tools).map(name).collect()
}

fn letters(name: &str) -> String {
    name.chars().map(|char| if char.is_ascii_alphanumeric() || matches!(char, '_' | '-') { char } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_consist_of_server_and_tool() {
        let reserved = ReservedNames { names: ["time_now".to_owned()].into(), prefixes: ["time_zone_".to_owned(), "t_".to_owned()].into() };
        let names = assign("time", &["get", "a.b", "a/b", "now", "zone_x", "ünï", &"x".repeat(80)], &reserved);
        assert_eq!(names[0], "time_get");
        assert!(names[1].starts_with("time_a_b_") && names[1].len() == 19, "{names:?}");
        assert!(names[2].starts_with("time_a_b_") && names[1] != names[2], "{names:?}");
        assert!(names[3].starts_with("time_now_"), "{names:?}");
        assert!(names[4].starts_with("time_zone_x_"), "{names:?}");
        assert_eq!(names[5], "time__n_");
        assert_eq!(names[6].len(), 64);
    }

    proptest! {
        #[test]
        fn names_are_short_valid_unique_and_stable(server in "[A-Za-z0-9_-]{1,64}", tools in prop::collection::btree_set(".{1,70}", 0..12)) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let names = assign(&server, &tools, &ReservedNames::default());
            prop_assert!(names.iter().all(|name| name.len() <= 64 && name.chars().all(|char| char.is_ascii_alphanumeric() || "_-".contains(char))));
            prop_assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
            let backwards: Vec<&str> = tools.iter().rev().copied().collect();
            let mut again = assign(&server, &backwards, &ReservedNames::default());
            again.reverse();
            prop_assert_eq!(names, again);
        }
    }
}
