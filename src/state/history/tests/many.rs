//! Many releases at once, and very many in all.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use proptest::prelude::*;
use slipway_release::Status;

use super::super::{Transition, cache};
use super::{author, draft, fsck, git, open, pending, transition, when};

#[test]
fn two_hundred_releases_of_ten_agents_by_twenty_threads_are_all_there() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    let recorded: Vec<(String, u64, String)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..20)
            .map(|thread| {
                let history = &history;
                scope.spawn(move || {
                    let one = |at: usize| {
                        let agent = format!("agent-{}", (thread + at) % 10);
                        let name = format!("{agent}-{thread}-{at}");
                        let recorded = history.record("team-a", draft(&agent, &name)).unwrap();
                        // Reported means that a reader finds it.
                        assert_eq!(
                            history.release("team-a", &agent, recorded.version).unwrap().metadata.changelog,
                            format!("Change {name}")
                        );
                        (agent, recorded.version, recorded.commit)
                    };
                    (0..10).map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let commits: BTreeSet<_> = recorded.iter().map(|(.., commit)| commit).collect();
    assert_eq!(commits.len(), 200, "each release has a commit of its own");
    let mut versions: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for (agent, version, _) in &recorded {
        assert!(versions.entry(agent).or_default().insert(*version), "{agent} v{version} twice");
    }
    assert_eq!(versions.len(), 10);
    for (agent, versions) in &versions {
        assert_eq!(versions.iter().copied().collect::<Vec<_>>(), (1..=20).collect::<Vec<_>>(), "{agent}");
        let rows = history.list("team-a", agent, None, 100).unwrap().rows;
        let active = rows.iter().filter(|row| row.status.as_ref().unwrap().status == Status::Active).count();
        assert_eq!((rows.len(), active), (20, 1));
    }
    history.wait_for_repacks();
    let path = history.path("team-a").unwrap();
    fsck(&path);
    assert_eq!(git(&path, &["rev-list", "--count", "main"]).trim(), "200");
    git(root.path(), &["clone", "--quiet", &path.to_string_lossy(), "clone"]);
    assert_eq!(std::fs::read_dir(root.path().join("clone/agents/agent-3/releases")).unwrap().count(), 20);
}

#[test]
fn repacks_keep_packs_few_and_lose_nothing() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    for at in 0..150 {
        history.record("team-a", draft(["a", "b"][at % 2], &format!("r-{at}"))).unwrap();
    }
    history.wait_for_repacks();
    let path = history.path("team-a").unwrap();
    let packs = |path: &std::path::Path| std::fs::read_dir(path.join("objects/pack")).unwrap().count() / 2;
    fsck(&path);
    assert!(packs(&path) < 60, "{} packs", packs(&path));
    for version in 1..=75 {
        assert_eq!(history.release("team-a", "a", version).unwrap().metadata.version, version);
    }
    drop(history);
    let history = open(root.path()).unwrap();
    for at in 150..200 {
        history.record("team-a", draft("a", &format!("r-{at}"))).unwrap();
    }
    history.wait_for_repacks();
    fsck(&path);
    assert_eq!(git(&path, &["rev-list", "--count", "main"]).trim(), "200");
    assert_eq!(history.record("team-a", draft("a", "r-0")).unwrap().version, 1);
    assert!(packs(&path) < 60, "{} packs", packs(&path));
}

#[test]
fn pages_follow_each_other_without_a_gap() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    for at in 0..23 {
        history.record("team-a", draft("a", &format!("r-{at}"))).unwrap();
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = history.list("team-a", "a", before, 5).unwrap();
        seen.extend(page.rows.iter().map(|row| row.version));
        assert!(page.rows.iter().all(|row| row.summary.is_ok()));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, (1..=23).rev().collect::<Vec<_>>());
}

/// A call of the history.
#[derive(Debug, Clone)]
enum Call {
    Record(u8, bool),
    Activate(u8, u64),
    Reject(u8, u64),
    Tombstone(u8),
    Restart,
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let agent = 0..3u8;
    let call = prop_oneof![
        4 => (agent.clone(), any::<bool>()).prop_map(|(agent, active)| Call::Record(agent, active)),
        2 => (agent.clone(), 1..8u64).prop_map(|(agent, version)| Call::Activate(agent, version)),
        1 => (agent.clone(), 1..8u64).prop_map(|(agent, version)| Call::Reject(agent, version)),
        1 => agent.prop_map(Call::Tombstone),
        1 => Just(Call::Restart),
    ];
    prop::collection::vec(call, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn the_cache_is_equal_to_reading_the_repository(calls in calls()) {
        let root = tempfile::tempdir().unwrap();
        let mut history = open(root.path()).unwrap();
        let name = |agent: u8| format!("agent-{agent}");
        for (at, call) in calls.iter().enumerate() {
            let release = format!("r-{at}");
            match call {
                Call::Record(agent, true) => drop(history.record("team-a", draft(&name(*agent), &release)).unwrap()),
                Call::Record(agent, false) => drop(history.record("team-a", pending(&name(*agent), &release)).unwrap()),
                Call::Activate(agent, version) => drop(history.activate("team-a", transition(&name(*agent), *version), None)),
                Call::Reject(agent, version) => {
                    drop(history.set_status("team-a", Transition { reason: Some(release), ..transition(&name(*agent), *version) }, Status::Rejected));
                }
                Call::Tombstone(agent) => drop(history.tombstone("team-a", &name(*agent), author(), when(0)).unwrap()),
                Call::Restart => {
                    drop(history);
                    history = open(root.path()).unwrap();
                }
            }
            // Looked at now and then, so that memory is begun at any point.
            if at % 3 == 0 {
                history.list("team-a", &name(0), None, 3).unwrap();
            }
        }
        let Some(repository) = history.repository("team-a", false).unwrap() else { return Ok(()) };
        let objects = repository.objects().unwrap();
        for agent in 0..3 {
            let agent = name(agent);
            let rows = history.list("team-a", &agent, None, 100).unwrap().rows;
            let read = cache::load(objects.head().unwrap(), &agent, &objects).unwrap();
            prop_assert_eq!(rows.iter().rev().map(|row| row.version).collect::<Vec<_>>(), read.versions.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(rows.len(), rows.first().map_or(0, |row| usize::try_from(row.version).unwrap()), "no gap");
            for row in &rows {
                prop_assert_eq!(row.status.as_ref(), read.statuses.get(&row.version));
                let artifact = history.release("team-a", &agent, row.version).unwrap();
                prop_assert_eq!(&row.summary.as_ref().unwrap().checksum, &artifact.metadata.checksum);
            }
            let active = read.statuses.values().filter(|status| status.status == Status::Active).count();
            prop_assert!(active <= 1);
            let waiting: Vec<_> = read.statuses.iter().filter(|(_, status)| status.status == Status::PendingEval).collect();
            prop_assert!(waiting.len() <= 1, "{waiting:?}");
        }
        // A repack in progress would confuse the check.
        history.wait_for_repacks();
        fsck(repository.path());
    }
}
