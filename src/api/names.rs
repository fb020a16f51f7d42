//! Names that must not be mixed up, each with its rules: DNS-1035 labels, as Services demand.

use std::fmt;

use thiserror::Error;

/// The longest name of any resource of ours.
const NAME_MAX: usize = 63;
/// A Service name is at most 63 characters; this leaves room for `-candidate` and the like.
pub const AGENT_NAME_MAX: usize = 52;
/// A namespace is `team-{slug}` within 63 characters.
pub const TEAM_SLUG_MAX: usize = 58;
/// Endings that the workloads of other tracks use.
pub const RESERVED_ENDINGS: [&str; 3] = ["-canary", "-candidate", "-primary"];

#[derive(Debug, Error, PartialEq, Eq)]
pub enum NameError {
    #[error("a name is needed; {0:?} leaves none once only letters, digits and hyphens are kept")]
    Empty(String),
    #[error("{name:?} is longer than {most} characters")]
    TooLong { name: String, most: usize },
    #[error("{0:?} must begin with a lower-case letter, end with a letter or digit, and have only lower-case letters, digits and hyphens")]
    Malformed(String),
    #[error("{name:?} must not end with {ending:?}, which another track of an agent uses")]
    Reserved { name: String, ending: &'static str },
}

/// The name of an Agent and of its workload.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentName(String);

impl AgentName {
    pub fn new(name: impl Into<String>) -> Result<Self, NameError> {
        let name = label(name.into(), AGENT_NAME_MAX)?;
        match RESERVED_ENDINGS.into_iter().find(|ending| name.ends_with(ending)) {
            Some(ending) => Err(NameError::Reserved { name, ending }),
            None => Ok(Self(name)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The slug of a team, which is the name of its Team resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TeamSlug(String);

impl TeamSlug {
    pub fn new(slug: impl Into<String>) -> Result<Self, NameError> {
        label(slug.into(), TEAM_SLUG_MAX).map(Self)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The namespace that the team owns.
    pub fn namespace(&self) -> String {
        format!("team-{}", self.0)
    }
}

impl fmt::Display for AgentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for TeamSlug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A resource's name out of a name for people: `Support Bot (v2)` becomes `support-bot-v2`.
pub fn slugify(name: &str) -> Result<String, NameError> {
    let mut slug = String::new();
    for letter in name.chars() {
        match letter.to_ascii_lowercase() {
            letter @ ('a'..='z' | '0'..='9') => slug.push(letter),
            _ if slug.is_empty() || slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    // A name begins with a letter, whatever people begin with.
    let slug = slug.trim_start_matches(|letter: char| !letter.is_ascii_lowercase()).trim_end_matches('-');
    if slug.is_empty() { Err(NameError::Empty(name.to_owned())) } else { Ok(slug.to_owned()) }
}

/// Whether a Tool, Skill or KnowledgeBase can have this name. Every name that [`slugify`] makes is one, and not the other way
/// round: `a--b` is a name.
pub fn is_name(name: &str) -> bool {
    label(name.to_owned(), NAME_MAX).is_ok()
}

fn label(name: String, most: usize) -> Result<String, NameError> {
    if name.is_empty() {
        return Err(NameError::Empty(name));
    }
    if name.len() > most {
        return Err(NameError::TooLong { name, most });
    }
    let bytes = name.as_bytes();
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let well_formed = bytes[0].is_ascii_lowercase() && bytes[bytes.len() - 1] != b'-' && bytes.iter().all(inner);
    if well_formed { Ok(name) } else { Err(NameError::Malformed(name)) }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn agent_names() {
        let fifty_two = "a".repeat(52);
        for good in ["a", "helper", "h-1", fifty_two.as_str(), "canary"] {
            assert!(AgentName::new(good).is_ok(), "{good} should be accepted");
        }
        let long = "a".repeat(53);
        for bad in ["", "-a", "a-", "1a", "A", "a.b", "a_b", "a/../b", long.as_str(), "x-canary", "x-candidate", "x-primary"] {
            assert!(AgentName::new(bad).is_err(), "{bad} should be refused");
        }
    }

    #[test]
    fn names_of_resources() {
        for good in ["a", "a--b", "x1", &"a".repeat(63)] {
            assert!(is_name(good), "{good} should be a name");
        }
        for bad in ["", "-a", "a-", "1a", "A", "a.b", "a_b", "../a", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad} should be no name");
        }
    }

    #[test]
    fn names_for_people_become_slugs() {
        for (name, slug) in
            [("Support Bot (v2)", "support-bot-v2"), ("  HR--Helper! ", "hr-helper"), ("Überblick", "berblick"), ("2nd line", "nd-line")]
        {
            assert_eq!(slugify(name).as_deref(), Ok(slug), "{name}");
            assert_eq!(slugify(slug).as_deref(), Ok(slug), "a slug is its own slug");
        }
        for nothing in ["", "!!!", "123", "日本語"] {
            assert!(slugify(nothing).is_err(), "{nothing}");
        }
    }

    #[test]
    fn a_team_owns_the_namespace_of_its_slug() {
        assert_eq!(TeamSlug::new("default").unwrap().namespace(), "team-default");
        assert_eq!(TeamSlug::new("a".repeat(58)).unwrap().namespace().len(), 63);
        assert!(TeamSlug::new("a".repeat(59)).is_err());
    }

    static RULES: LazyLock<[(&str, regex::Regex, usize); 2]> = LazyLock::new(|| {
        ["Agent", "Team"].map(|kind| {
            let (pattern, most) = rule(kind);
            (kind, regex::Regex::new(&pattern).unwrap(), most)
        })
    });

    /// The rule of a kind's CRD for its name, and how long one may be (the API server's own limit where the rule has none).
    fn rule(kind: &str) -> (String, usize) {
        let crd = crate::crd::all().into_iter().find(|crd| crd.spec.names.kind == kind).unwrap();
        let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
        let rules = schema["openAPIV3Schema"]["x-kubernetes-validations"].as_array().unwrap();
        let rules: Vec<&str> = rules.iter().filter_map(|rule| rule["rule"].as_str()).collect();
        let number = |text: &str| text.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|digits| digits.parse().ok());
        let most = rules.iter().find_map(|rule| number(rule.split_once("self.metadata.name.size() <= ")?.1)).unwrap_or(253);
        let pattern = rules.iter().find_map(|rule| rule.split_once("self.metadata.name.matches('")?.1.split_once('\'')).unwrap().0;
        (pattern.to_owned(), most)
    }

    proptest! {
        #[test]
        fn names_that_the_api_takes_are_names_here_and_the_other_way_round(
            name in prop_oneof!["[a-z]([-a-z0-9]{0,62}[a-z0-9])?", "[a-zA-Z0-9._/-]{0,6}", "[a-z]{1,5}-(canary|candidate|primary)", "\\PC{0,5}|[a-z]\n"],
        ) {
            for (kind, pattern, most) in &*RULES {
                let matches = pattern.is_match(&name) && name.chars().count() <= *most;
                if *kind == "Team" {
                    prop_assert_eq!(TeamSlug::new(&*name).is_ok(), matches, "{:?}", name);
                } else {
                    let reserved = RESERVED_ENDINGS.iter().any(|ending| name.ends_with(ending));
                    prop_assert_eq!(AgentName::new(&*name).is_ok(), matches && !reserved, "{:?}", name);
                }
            }
        }

        #[test]
        fn a_slug_is_a_name_and_its_own_slug(name in "\\PC{0,40}|[ A-Za-z0-9_.-]{0,40}") {
            match slugify(&name) {
                Ok(slug) => {
                    prop_assert!(label(slug.clone(), usize::MAX).is_ok() && !slug.contains("--"), "{slug}");
                    prop_assert_eq!(slugify(&slug), Ok(slug));
                }
                Err(_) => prop_assert!(!name.chars().any(|letter| letter.is_ascii_alphabetic()), "{name:?}"),
            }
        }
    }
}
