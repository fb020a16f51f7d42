//! Several agents and namespaces.

use super::{draft, fsck, open, show};

#[test]
fn agents_are_listed_and_deployed_in_order_and_namespaces_know_nothing_of_each_other() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    for agent in ["b", "a-b", "a", "ab"] {
        history.record("team-a", draft(agent, &format!("{agent}-1"))).unwrap();
    }
    let mut other = draft("a", "a-1");
    other.artifact.deployment.namespace = "team-b".to_owned();
    history.record("team-b", other).unwrap();
    assert_eq!(history.agents("team-a").unwrap(), ["a", "a-b", "ab", "b"]);
    assert_eq!(history.agents("team-b").unwrap(), ["a"]);
    assert_eq!(history.agents("team-c").unwrap(), Vec::<String>::new());
    assert_eq!(history.namespaces().unwrap(), ["team-a", "team-b"]);
    let listed = show(&history, "deploy/kustomization.yaml");
    assert!(listed.ends_with("resources:\n  - a-b.yaml\n  - a.yaml\n  - ab.yaml\n  - b.yaml\n"), "{listed}");
    for namespace in ["team-a", "team-b"] {
        fsck(&history.path(namespace).unwrap());
    }
}
