//! Names that become paths. All names from outside are checked here, so that no path leads out of its folder.

use super::HistoryFault;

/// The limit of AgentName.
const MAX_AGENT_BYTES: usize = 52;
/// The limit of a DNS label.
const MAX_NAMESPACE_BYTES: usize = 63;
/// The limit of a DNS subdomain.
const MAX_RELEASE_BYTES: usize = 253;

pub(super) fn namespace(name: &str) -> Result<(), HistoryFault> {
    label("namespace", name, MAX_NAMESPACE_BYTES, |first| first.is_ascii_lowercase() || first.is_ascii_digit())
}

pub(super) fn agent(name: &str) -> Result<(), HistoryFault> {
    label("agent", name, MAX_AGENT_BYTES, |first| first.is_ascii_lowercase())
}

/// The name of a release is a trailer of its commit.
pub(super) fn release(name: &str) -> Result<(), HistoryFault> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
    if !name.is_empty() && name.len() <= MAX_RELEASE_BYTES && name.bytes().all(fits) {
        return Ok(());
    }
    Err(refused("release", name, &format!("1 to {MAX_RELEASE_BYTES} of a-z, 0-9, - and .")))
}

fn label(what: &str, name: &str, most: usize, begins: impl Fn(u8) -> bool) -> Result<(), HistoryFault> {
    let bytes = name.as_bytes();
    let fits = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    let ends = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if bytes.len() <= most && bytes.first().copied().is_some_and(begins) && bytes.last().is_some_and(ends) && bytes.iter().all(fits) {
        return Ok(());
    }
    Err(refused(what, name, &format!("1 to {most} of a-z, 0-9 and -, beginning and ending with a letter or digit")))
}

fn refused(what: &str, name: &str, right: &str) -> HistoryFault {
    let shown: String = name.chars().take(64).collect();
    HistoryFault::Refused(format!("{what}: {shown:?} is no name for the history; it takes {right}"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn no_name_leads_out_of_its_folder() {
        let long = "a".repeat(300);
        for bad in ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "a\0", "a\n", "A", "a.git", "ä", "-a", "a-", "a b", long.as_str()] {
            assert!(namespace(bad).is_err(), "namespace {bad:?}");
            assert!(agent(bad).is_err(), "agent {bad:?}");
        }
        for bad in ["", "a/b", "a\nRelease: b", "A", "a b", "ä", long.as_str()] {
            assert!(release(bad).is_err(), "release {bad:?}");
        }
        assert!(agent("1a").is_err());
        for good in ["a", "team-a", "a1", &"a".repeat(52)] {
            assert!(namespace(good).is_ok() && agent(good).is_ok() && release(good).is_ok(), "{good:?}");
        }
        assert!(namespace("1a").is_ok() && release("hello-1.2").is_ok());
    }

    #[test]
    fn a_refused_name_is_shown_but_not_at_length() {
        let said = agent(&"x/".repeat(5000)).unwrap_err().to_string();
        assert!(said.len() < 300 && said.contains("agent:"), "{said}");
    }

    proptest! {
        #[test]
        fn what_the_cluster_calls_an_agent_or_a_team_is_a_name_here(name in "[a-z]([-a-z0-9]{0,50}[a-z0-9])?|[a-z0-9./_-]{0,6}|\\PC{0,6}") {
            if let Ok(name) = slipway_api::names::AgentName::new(&*name) {
                prop_assert!(agent(name.as_str()).is_ok());
            }
            let place = |namespace: &str| crate::git::repository(Path::new("/state"), namespace);
            if let Ok(slug) = slipway_api::names::TeamSlug::new(&*name) {
                prop_assert!(namespace(&slug.namespace()).is_ok() && place(&slug.namespace()).is_some());
            }
            // Both checks of a namespace agree.
            prop_assert_eq!(namespace(&name).is_ok(), place(&name).is_some(), "{:?}", name);
            for is_name in [namespace(&name).is_ok(), agent(&name).is_ok()] {
                prop_assert!(!is_name || Path::new(&name).components().count() == 1 && !name.contains('.'));
            }
        }
    }
}
