//! The decision, played through: steps are taken on an Agent, a history and AgentReleases in memory, until there is
//! nothing to do. Each story is also played with an end of the process after every single write, and with its last
//! words lost.

mod cluster;
mod gate;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use slipway_api::labels;
use slipway_release::Status;

use super::draft::By;
use super::history::AgentHistory;
use super::name::{Name, ReferenceKind};
use super::plan::effective;
use super::seen::Patience;
use super::step::{Step, Wait};
use cluster::Cluster;

/// An agent with versions 1 to `count`, each another prompt.
fn with_versions(count: usize) -> Cluster {
    let mut cluster = Cluster::new("systemPrompt: p1");
    assert_eq!(cluster.settle(), Wait::Done);
    for at in 2..=count {
        cluster.prompt(&format!("p{at}"));
        cluster.settle();
    }
    assert_eq!(cluster.active(), Some(count as u64));
    cluster.check();
    cluster
}

#[test]
fn a_change_of_what_runs_is_a_version_and_nothing_else_is() {
    let mut cluster = with_versions(1);
    for (edit, version) in [
        (json!({"spec": {"replicas": 3}}), 1),
        (json!({"spec": {"name": "Other", "description": "d"}}), 1),
        (json!({"spec": {"modelType": "openai", "modelId": "m"}}), 2),
        (json!({"spec": {"modelType": "openai", "modelId": "m"}}), 2),
        (json!({"spec": {"suspend": true, "systemPrompt": "x"}}), 2),
        (json!({"spec": {"suspend": false}}), 3),
    ] {
        cluster.edit(&edit);
        cluster.settle();
        assert_eq!(cluster.active(), Some(version), "{edit}");
        cluster.check();
    }
    let said = |version: u64| cluster.artifacts[&version].metadata.changelog.as_str();
    assert_eq!((said(1), said(2)), ("first release", "changed agent.model.id, agent.model.provider"));
    assert_eq!(cluster.told.len(), 3, "{:?}", cluster.told);
}

#[test]
fn a_tool_that_is_edited_is_a_version_and_who_edited_it_is_its_author() {
    let mut cluster = Cluster::new("tools: [lookup, other]");
    assert_eq!(cluster.settle(), Wait::Unable, "its tools are not there");
    cluster.tool("lookup", Some("1"));
    cluster.tool("other", Some("off"));
    cluster.settle();
    assert_eq!(cluster.active(), Some(1));
    cluster.tool("lookup", Some("2"));
    let Step::Record(draft) = cluster.next(Patience::OVER) else { panic!("no record") };
    assert_eq!(
        (&draft.by, draft.artifact.metadata.changelog.as_str()),
        (&By::Named(Name::new(ReferenceKind::Tool, "lookup")), "edited tool lookup")
    );
    cluster.settle();
    assert_eq!(cluster.active(), Some(2));
    cluster.tool("other", Some("9"));
    cluster.settle();
    assert_eq!(cluster.active(), Some(3), "one that is switched on");
    cluster.tool("lookup", None);
    assert_eq!(cluster.settle(), Wait::Unable);
    cluster.tool("lookup", Some("1"));
    cluster.tool("other", Some("off"));
    cluster.settle();
    assert_eq!(cluster.active(), Some(4), "the same as v1 once more, at the same generation");
    cluster.check();
}

#[test]
fn another_server_of_an_agents_models_is_a_version() {
    let mut cluster = Cluster::new("modelType: openai, modelId: m, modelIntegration: in_llm");
    assert_eq!(cluster.settle(), Wait::Unable, "its integration is not there");
    cluster.integration("llm", Some("1"));
    cluster.integration("other", Some("7"));
    cluster.settle();
    assert_eq!(cluster.active(), Some(1));
    assert_eq!(cluster.artifacts[&1].resolved.integrations, BTreeMap::from([("llm".to_owned(), "1".to_owned())]));
    cluster.integration("other", Some("8"));
    assert_eq!((cluster.settle(), cluster.active()), (Wait::Done, Some(1)), "it is another agent's");
    cluster.integration("llm", Some("2"));
    let Step::Record(draft) = cluster.next(Patience::OVER) else { panic!("no record") };
    let by = By::Named(Name::new(ReferenceKind::Integration, "llm"));
    assert_eq!((&draft.by, draft.artifact.metadata.changelog.as_str()), (&by, "edited integration llm"));
    cluster.settle();
    cluster.integration("llm", None);
    assert_eq!((cluster.settle(), cluster.active()), (Wait::Unable, Some(2)), "what ran goes on");
    cluster.integration("llm", Some("2"));
    cluster.edit(&json!({"spec": {"modelIntegration": "other"}}));
    cluster.settle();
    assert_eq!(cluster.artifacts[&3].metadata.changelog, "changed agent.model.integration");
    cluster.check();
}

#[test]
fn a_change_waits_until_it_stands_still_and_a_first_one_for_its_image() {
    let mut cluster = Cluster::new("replicas: 1");
    let waiting = |content, image| Patience { content, image };
    assert_eq!(cluster.next(waiting(true, false)), Step::Wait(Wait::Image));
    let Step::Wait(Wait::Change(first)) = cluster.next(waiting(false, true)) else { panic!("no wait") };
    cluster.prompt("x");
    let Step::Wait(Wait::Change(second)) = cluster.next(waiting(false, true)) else { panic!("no wait") };
    assert_ne!(first, second);
    let digest = format!("sha256:{}", "a".repeat(64));
    cluster.image = Some(digest.clone());
    let Step::Wait(Wait::Change(third)) = cluster.next(waiting(false, false)) else { panic!("no wait") };
    assert_eq!(second, third, "an image that is found is no change");
    cluster.settle();
    assert_eq!(cluster.artifacts[&1].resolved.image.as_ref(), Some(&digest));
    cluster.image = None;
    assert_eq!(cluster.settle(), Wait::Done, "not known is equal to any");
    cluster.image = Some(format!("sha256:{}", "b".repeat(64)));
    cluster.settle();
    assert_eq!((cluster.active(), cluster.artifacts[&2].metadata.changelog.as_str()), (Some(2), "the image of this name is another one"));
}

#[test]
fn a_release_names_what_its_pods_run() {
    let mut cluster = with_versions(1);
    let named = |cluster: &Cluster, version: i64| {
        let statuses = cluster.releases.values().filter_map(|release| release.status.clone());
        statuses.filter(|status| status.version == Some(version)).find_map(|status| status.run_hash).unwrap_or_default()
    };
    let runs = |cluster: &mut Cluster, hash: &str| {
        let generation = cluster.agent.metadata.generation;
        cluster.edit(&json!({"status": {"runHash": hash, "observedGeneration": generation}}));
        cluster.settle();
    };
    runs(&mut cluster, "one");
    assert_eq!(named(&cluster, 1), "one");
    cluster.prompt("p2");
    cluster.settle();
    assert_eq!((named(&cluster, 1).as_str(), named(&cluster, 2).as_str()), ("one", ""), "the operator has not seen the change yet");
    runs(&mut cluster, "two");
    assert_eq!((named(&cluster, 1).as_str(), named(&cluster, 2).as_str()), ("one", "two"));
    runs(&mut cluster, "three");
    assert_eq!((named(&cluster, 1).as_str(), named(&cluster, 2).as_str()), ("one", "three"), "the platform makes something else of it");
    cluster.check();
}

#[test]
fn a_release_of_what_has_not_changed_is_skipped_and_names_the_version_that_stands() {
    let mut cluster = with_versions(1);
    cluster.ask("mine", "as agreed");
    assert!(cluster.next(Patience::OVER).is_skip(), "it is said of the Agent as it is, and not as it was last heard of");
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest), (Some(1), 1));
    let status = |cluster: &Cluster, name: &str| {
        let status = cluster.releases[name].status.clone().unwrap();
        (status.version, status.phase, status.conditions[0].reason.clone())
    };
    assert_eq!(status(&cluster, "mine"), (Some(1), Some(Status::Skipped), "Skipped".to_owned()));
    cluster.check();
    // It is none that waits: what changes later is not its.
    cluster.prompt("p2");
    cluster.settle();
    assert_eq!(cluster.artifacts[&2].metadata.changelog, "changed agent.system_prompt");
    assert_eq!(status(&cluster, "mine").1, Some(Status::Skipped));
    cluster.prompt("p3");
    cluster.ask("yours", "as agreed");
    cluster.settle();
    let data = &cluster.artifacts[&3].metadata;
    assert_eq!((data.author.as_str(), data.changelog.as_str()), ("manager:kubectl-create", "as agreed"));
    assert_eq!(status(&cluster, "yours").0, Some(3));
    cluster.check();
    // Only the last ones stay.
    for at in 0..5 {
        cluster.clock += 10;
        cluster.ask(&format!("again-{at}"), "c");
        cluster.settle();
    }
    let skipped: Vec<_> = cluster
        .releases
        .iter()
        .filter(|(_, it)| it.status.as_ref().unwrap().phase == Some(Status::Skipped))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!((skipped, cluster.past.highest), (vec!["again-2", "again-3", "again-4"], 3));
}

#[test]
fn deploying_what_runs_already_is_told_and_noted() {
    for owner in [None, Some("Kustomization flux-system/apps".to_owned())] {
        let mut cluster = with_versions(2);
        cluster.owner = owner;
        let before = cluster.told.len();
        for _ in 0..2 {
            cluster.deploy("2");
            cluster.settle();
            cluster.check();
        }
        assert_eq!((cluster.active(), cluster.past.highest), (Some(2), 2));
        assert_eq!(cluster.told[before..], ["deployed v2 by ann@example.com", "deployed v2 by ann@example.com"]);
        assert_eq!(cluster.past.versions[&2].reason.as_deref(), Some("deployed again; by ann@example.com"));
    }
}

#[test]
fn a_release_of_what_cannot_run_says_why_and_is_made_when_it_can() {
    let mut cluster = Cluster::new("suspend: true");
    cluster.ask("mine", "c");
    cluster.settle();
    let reason = |cluster: &Cluster| cluster.releases["mine"].status.as_ref().unwrap().conditions[0].reason.clone();
    assert_eq!((cluster.active(), reason(&cluster).as_str()), (None, "NotDeployed"));
    cluster.edit(&json!({"spec": {"suspend": false, "tools": ["t"]}}));
    cluster.settle();
    assert_eq!((cluster.active(), reason(&cluster).as_str()), (None, "Unresolved"));
    cluster.tool("t", Some("1"));
    cluster.settle();
    assert_eq!((cluster.active(), reason(&cluster).as_str()), (Some(1), "Active"));
    cluster.check();
}

#[test]
fn the_cluster_keeps_what_is_active_and_the_last_three() {
    let mut cluster = with_versions(6);
    assert_eq!(cluster.phases(), [(4, "archived", false), (5, "archived", false), (6, "active", true)]);
    cluster.deploy("2");
    cluster.settle();
    assert_eq!(cluster.phases(), [(2, "active", true), (4, "archived", false), (5, "archived", false), (6, "archived", false)]);
    cluster.check();
    // One that is deleted by hand is shown anew.
    let gone = cluster.releases.keys().next().unwrap().clone();
    cluster.releases.remove(&gone);
    cluster.settle();
    assert!(cluster.releases.contains_key(&gone));
}

#[test]
fn what_git_cannot_read_any_more_is_not_taken_for_old() {
    let mut cluster = with_versions(3);
    cluster.past.versions.remove(&3);
    cluster.past.versions.remove(&1);
    assert_eq!(cluster.settle(), Wait::Done);
    assert_eq!(cluster.releases.len(), 3, "{:?}", cluster.releases.keys());
}

#[test]
fn one_that_is_held_up_on_its_way_out_holds_up_nothing_else() {
    let mut cluster = with_versions(2);
    let name = cluster.releases.keys().next().unwrap().clone();
    cluster.releases.get_mut(&name).unwrap().metadata.deletion_timestamp = Some(serde_json::from_value(json!(cluster.now())).unwrap());
    cluster.prompt("p3");
    cluster.settle();
    cluster.check();
    assert_eq!(cluster.active(), Some(3));
    cluster.releases.remove(&name);
    cluster.settle();
    assert_eq!(cluster.phases(), [(1, "archived", false), (2, "archived", false), (3, "active", true)]);
}

#[test]
fn one_of_ours_that_git_knows_by_no_name_is_known_by_its_own() {
    let mut cluster = with_versions(2);
    cluster.keys.clear();
    cluster.releases.clear();
    cluster.past.versions.values_mut().for_each(|line| line.name = None);
    cluster.settle();
    for release in cluster.releases.values_mut() {
        release.metadata.labels = Some([(labels::RELEASE.to_owned(), "9".to_owned())].into());
    }
    assert_eq!(cluster.settle(), Wait::Done);
    cluster.check();
}

#[test]
fn what_gitops_would_make_anew_is_not_deleted() {
    let mut cluster = with_versions(1);
    cluster.prompt("p2");
    cluster.ask("kept", "c");
    cluster.releases.get_mut("kept").unwrap().metadata.labels =
        Some([("argocd.argoproj.io/instance".to_owned(), "bots".to_owned())].into());
    cluster.settle();
    for at in 3..=6 {
        cluster.prompt(&format!("p{at}"));
        cluster.settle();
    }
    assert_eq!(cluster.phases(), [(2, "archived", false), (4, "archived", false), (5, "archived", false), (6, "active", true)]);
}

#[test]
fn rolling_back_brings_the_content_back_and_makes_no_version() {
    let mut cluster = Cluster::new("systemPrompt: p1, tools: [t], replicas: 0");
    cluster.tool("t", Some("1"));
    cluster.settle();
    cluster.edit(&json!({"spec": {"tools": [], "systemPrompt": null, "replicas": 2}}));
    cluster.settle();
    cluster.prompt("p3");
    cluster.settle();
    cluster.deploy("1");
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest), (Some(1), 3));
    assert_eq!((cluster.agent.spec.tools.clone(), cluster.agent.spec.replicas), (vec!["t".to_owned()], 0));
    cluster.check();
    cluster.deploy("v2");
    cluster.settle();
    assert_eq!((cluster.agent.spec.tools.len(), cluster.agent.spec.system_prompt.clone(), cluster.agent.spec.replicas), (0, None, 2));
    assert_eq!((cluster.active(), cluster.past.highest), (Some(2), 3));
    cluster.check();
    assert_eq!(cluster.told[3..], ["deployed v1 by ann@example.com", "deployed v2 by ann@example.com"]);
    cluster.prompt("p4");
    cluster.settle();
    assert_eq!(cluster.active(), Some(4), "what is changed then is a version again");
}

#[test]
fn a_tool_edited_since_runs_as_it_is_now_and_is_no_version_until_it_changes_again() {
    let mut cluster = Cluster::new("systemPrompt: p1, tools: [t]");
    cluster.tool("t", Some("1"));
    cluster.settle();
    cluster.tool("t", Some("2"));
    cluster.settle();
    cluster.prompt("p3");
    cluster.settle();
    cluster.deploy("1");
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest), (Some(1), 3));
    let shown = cluster.releases.values().find(|release| release.status.as_ref().unwrap().version == Some(1)).unwrap();
    let message = &shown.status.as_ref().unwrap().conditions[0].message;
    assert!(message.ends_with("edited since: tool t"), "{message}");
    cluster.tool("t", Some("3"));
    cluster.settle();
    assert_eq!(cluster.active(), Some(4), "it changed again");
    cluster.check();
}

#[test]
fn what_strangers_say_of_a_release_is_put_right() {
    let mut cluster = Cluster::new("systemPrompt: p1");
    cluster.settle();
    cluster.prompt("p2");
    cluster.ask("mine", "by hand");
    cluster.settle();
    cluster.prompt("p3");
    cluster.settle();
    let right = serde_json::to_value(&cluster.releases).unwrap();
    let said = [None, Some(0), Some(-1), Some(1), Some(2), Some(3), Some(4), Some(i64::MAX)];
    for (name, version) in
        cluster.releases.keys().cloned().collect::<Vec<_>>().into_iter().flat_map(|name| said.map(|version| (name.clone(), version)))
    {
        let status = &mut cluster.releases.get_mut(&name).unwrap().status;
        status.as_mut().unwrap().version = version;
        cluster.settle();
        assert_eq!(serde_json::to_value(&cluster.releases).unwrap(), right, "{name} as {version:?}");
        cluster.releases.get_mut(&name).unwrap().status = None;
        cluster.settle();
        assert_eq!(serde_json::to_value(&cluster.releases).unwrap(), right, "{name} without a status");
    }
    cluster.releases.values_mut().for_each(|release| release.metadata.managed_fields = None);
    cluster.settle();
    cluster.releases.values_mut().for_each(|release| release.status = None);
    cluster.settle();
    let said = |releases: &Value| releases.as_object().unwrap().values().map(|release| release["status"].clone()).collect::<Vec<_>>();
    let now = serde_json::to_value(&cluster.releases).unwrap();
    assert_eq!((said(&now), cluster.past.highest), (said(&right), 3), "though by whom it was made is forgotten");
}

#[test]
fn a_version_is_shown_by_its_number_where_its_name_is_taken() {
    let mut cluster = Cluster::new("systemPrompt: p1");
    cluster.settle();
    let name = cluster.releases.keys().next().unwrap().clone();
    cluster.releases.clear();
    cluster.prompt("p2");
    cluster.ask(&name, "somebody's own");
    cluster.settle();
    let versions: BTreeMap<&str, _> =
        cluster.releases.iter().map(|(name, release)| (name.as_str(), release.status.as_ref().unwrap().version)).collect();
    assert_eq!(versions, [("helper-v1", Some(1)), (&*name, Some(2))].into());
}

#[test]
fn the_first_image_that_is_found_after_a_rollback_is_accepted_and_the_next_is_not() {
    let digest = |letter: &str| Some(format!("sha256:{}", letter.repeat(64)));
    let mut cluster = Cluster::new("image: r/x:1");
    cluster.image = digest("a");
    cluster.settle();
    cluster.prompt("p2");
    cluster.settle();
    cluster.image = None;
    cluster.deploy("1");
    cluster.settle();
    cluster.image = digest("b");
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest), (Some(1), 2));
    cluster.image = digest("a");
    cluster.settle();
    assert_eq!(cluster.past.highest, 2, "as it was released is right as well");
    cluster.image = digest("c");
    cluster.settle();
    assert_eq!(cluster.active(), Some(3));
}

#[test]
fn what_cannot_be_deployed_is_refused_in_words_and_changes_nothing() {
    for (asked, says) in [("9", "no release v9"), ("x", "no version"), ("0", "no version"), ("-1", "no version"), ("2", "rejected")] {
        let mut cluster = with_versions(3);
        cluster.past.versions.get_mut(&2).unwrap().status = Status::Rejected;
        let before = cluster.agent.spec.clone();
        cluster.settle();
        cluster.deploy(asked);
        cluster.settle();
        assert_eq!((cluster.active(), &cluster.agent.spec), (Some(3), &before), "{asked}");
        assert!(cluster.told.last().unwrap().contains(says), "{asked}: {:?}", cluster.told);
    }
}

#[test]
fn a_spec_that_gitops_owns_is_pinned_until_its_content_changes() {
    let mut cluster = with_versions(3);
    cluster.owner = Some("Argo CD application bots".to_owned());
    cluster.deploy("1");
    cluster.settle();
    let pinned = |cluster: &Cluster| cluster.agent.status.as_ref().unwrap().pinned_content.is_some();
    assert!(pinned(&cluster) && cluster.active() == Some(1));
    assert_eq!(cluster.agent.spec.system_prompt.as_deref(), Some("p3"), "the spec is left alone");
    assert_eq!(effective(&cluster.agent, &cluster.past).spec.system_prompt.as_deref(), Some("p1"));
    cluster.check();
    cluster.edit(&json!({"spec": {"replicas": 4, "description": "d"}}));
    cluster.settle();
    assert!(pinned(&cluster), "that is no content");
    cluster.ask("mine", "of what runs");
    cluster.settle();
    assert_eq!((cluster.active(), cluster.past.highest), (Some(1), 3), "nothing has changed of it");
    assert!(pinned(&cluster));
    cluster.prompt("p5");
    cluster.settle();
    assert_eq!((cluster.active(), pinned(&cluster)), (Some(4), false));
    assert_eq!(cluster.artifacts[&4].agent.system_prompt.as_deref(), Some("p5"));
    cluster.check();
    cluster.deploy("4");
    cluster.settle();
    assert!(!pinned(&cluster), "what the spec says needs no pin");
}

#[test]
fn a_history_that_was_lost_is_not_begun_anew_and_nothing_is_deleted() {
    let mut cluster = with_versions(3);
    cluster.past = AgentHistory::default();
    cluster.prompt("p4");
    cluster.settle();
    assert_eq!((cluster.past.highest, cluster.releases.len()), (0, 3));
    let condition = &cluster.agent.status.as_ref().unwrap().conditions[0];
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "HistoryLost"));
    assert_eq!(cluster.agent.status.as_ref().unwrap().active_release, Some(3));
}

#[test]
fn upon_what_is_damaged_nothing_is_recorded_but_a_good_version_can_be_deployed() {
    let mut cluster = with_versions(3);
    cluster.past.damaged = Some("it was changed".to_owned());
    cluster.past.active = None;
    cluster.prompt("p4");
    assert_eq!(cluster.settle(), Wait::Unable);
    let condition = cluster.agent.status.as_ref().unwrap().conditions[0].clone();
    assert_eq!((condition.status.as_str(), condition.reason.as_str()), ("False", "HistoryDamaged"));
    assert_eq!((cluster.past.highest, cluster.releases.len()), (3, 3), "nothing is recorded, and nothing deleted");
    cluster.deploy("2");
    let Step::Activate { version: 2, .. } = cluster.next(Patience::OVER) else { panic!("no way out") };
    cluster.past.damaged = None;
    cluster.settle();
    assert_eq!((cluster.active(), cluster.agent.spec.system_prompt.as_deref()), (Some(2), Some("p2")));
    cluster.check();
}

#[test]
fn an_agent_that_comes_back_goes_on_counting() {
    let mut cluster = with_versions(2);
    // Its end was written down, and its releases went with it.
    cluster.past.active = None;
    cluster.past.versions.get_mut(&2).unwrap().status = Status::Deleted;
    cluster.releases.clear();
    (cluster.agent.status, cluster.agent.metadata.uid, cluster.agent.metadata.generation) = (None, Some("u2".to_owned()), Some(1));
    cluster.settle();
    assert_eq!(cluster.active(), Some(3));
    cluster.check();
}

/// Every story, and what it leads to: the active version, the highest, and how many things were told.
fn stories() -> Vec<(&'static str, Cluster)> {
    let first = Cluster::new("systemPrompt: p1");
    let mut changed = with_versions(5);
    changed.prompt("p6");
    let mut asked = with_versions(3);
    asked.ask("mine", "c");
    let mut twice = asked.clone();
    twice.ask("other", "d");
    twice.prompt("p4");
    let mut back = with_versions(5);
    back.deploy("3");
    let mut far = with_versions(6);
    far.deploy("1");
    far.image = Some(format!("sha256:{}", "a".repeat(64)));
    let mut pinned = with_versions(5);
    pinned.owner = Some("Flux".to_owned());
    pinned.deploy("3");
    let mut unpinned = pinned.clone();
    unpinned.settle();
    unpinned.prompt("p9");
    let mut edited = Cluster::new("systemPrompt: p1, tools: [t]");
    edited.tool("t", Some("1"));
    edited.settle();
    edited.tool("t", Some("2"));
    edited.settle();
    edited.deploy("1");
    let mut refused = with_versions(2);
    refused.deploy("7");
    vec![
        ("first", first),
        ("changed", changed),
        ("asked", asked),
        ("twice", twice),
        ("back", back),
        ("far back", far),
        ("pinned", pinned),
        ("unpinned", unpinned),
        ("edited since", edited),
        ("refused", refused),
    ]
}

#[test]
fn wherever_the_process_ends_the_next_one_comes_to_the_same_end() {
    for (story, cluster) in stories() {
        let mut whole = cluster.clone();
        whole.settle();
        whole.check();
        let mut steps = 0;
        while cluster.clone().steps(steps + 1).is_none() {
            steps += 1;
            let mut killed = cluster.clone();
            killed.steps(steps);
            // Nothing but what outlives a process is in there; time has passed.
            killed.clock += 1_000;
            killed.settle();
            killed.check();
            assert_eq!((killed.active(), killed.past.highest), (whole.active(), whole.past.highest), "{story}, killed after write {steps}");
            assert_eq!(killed.agent.spec, whole.agent.spec, "{story}, killed after write {steps}");
            assert_eq!(killed.phases(), whole.phases(), "{story}, killed after write {steps}");
            assert_eq!(killed.told, whole.told, "{story}, killed after write {steps}");
        }
        assert!(steps > 0, "{story} has no writes");
    }
}

#[test]
fn at_rest_nothing_is_written() {
    for (story, mut cluster) in stories() {
        cluster.settle();
        for later in [1, 1_000, 1_000_000] {
            cluster.clock += later;
            assert!(matches!(cluster.next(Patience::OVER), Step::Wait(Wait::Done)), "{story}: {:?}", cluster.next(Patience::OVER));
        }
    }
}
