//! Many releases at once, and very many in all.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;

use proptest::prelude::*;
use slipway_release::Status;

use super::super::tidy::STAY;
use super::super::{History, Step, view};
use super::{author, draft, fsck, git, pending, step, when};

#[test]
fn two_hundred_releases_of_ten_agents_by_twenty_threads_are_all_there() {
    let root = tempfile::tempdir().unwrap();
    let history = History::open(root.path()).unwrap();
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
        let active = rows.iter().filter(|row| row.standing.as_ref().unwrap().status == Status::Active).count();
        assert_eq!((rows.len(), active), (20, 1));
    }
    history.settle();
    let path = history.path("team-a").unwrap();
    fsck(&path);
    assert_eq!(git(&path, &["rev-list", "--count", "main"]).trim(), "200");
    git(root.path(), &["clone", "--quiet", &path.to_string_lossy(), "clone"]);
    assert_eq!(std::fs::read_dir(root.path().join("clone/agents/agent-3/releases")).unwrap().count(), 20);
}

#[test]
fn packs_are_put_together_and_nothing_is_lost_by_it() {
    let root = tempfile::tempdir().unwrap();
    let history = History::open(root.path()).unwrap();
    for at in 0..150 {
        history.record("team-a", draft(["a", "b"][at % 2], &format!("r-{at}"))).unwrap();
    }
    history.settle();
    let path = history.path("team-a").unwrap();
    let packs = |path: &std::path::Path| std::fs::read_dir(path.join("objects/pack")).unwrap().count() / 2;
    fsck(&path);
    // Those that were joined stay for readers that are about to open them, and then go.
    thread::sleep(STAY);
    history.record("team-a", draft("b", "r-149")).unwrap();
    assert!(packs(&path) < 60, "{} packs", packs(&path));
    for version in 1..=75 {
        assert_eq!(history.release("team-a", "a", version).unwrap().metadata.version, version);
    }
    drop(history);
    // After a restart what was retired is put together with the rest.
    let history = History::open(root.path()).unwrap();
    for at in 150..200 {
        history.record("team-a", draft("a", &format!("r-{at}"))).unwrap();
    }
    history.settle();
    fsck(&path);
    assert_eq!(git(&path, &["rev-list", "--count", "main"]).trim(), "200");
    thread::sleep(STAY);
    assert_eq!(history.record("team-a", draft("a", "r-0")).unwrap().version, 1);
    assert!(packs(&path) < 60, "{} packs", packs(&path));
}

#[test]
fn pages_follow_each_other_without_a_gap() {
    let root = tempfile::tempdir().unwrap();
    let history = History::open(root.path()).unwrap();
    for at in 0..23 {
        history.record("team-a", draft("a", &format!("r-{at}"))).unwrap();
    }
    let (mut before, mut seen) = (None, Vec::new());
    loop {
        let page = history.list("team-a", "a", before, 5).unwrap();
        seen.extend(page.rows.iter().map(|row| row.version));
        assert!(page.rows.iter().all(|row| row.told.is_ok()));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    assert_eq!(seen, (1..=23).rev().collect::<Vec<_>>());
}

/// What somebody does to the history.
#[derive(Debug, Clone)]
enum Deed {
    Record(u8, bool),
    Activate(u8, u64),
    Reject(u8, u64),
    Bury(u8),
    Restart,
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let agent = 0..3u8;
    let deed = prop_oneof![
        4 => (agent.clone(), any::<bool>()).prop_map(|(agent, active)| Deed::Record(agent, active)),
        2 => (agent.clone(), 1..8u64).prop_map(|(agent, version)| Deed::Activate(agent, version)),
        1 => (agent.clone(), 1..8u64).prop_map(|(agent, version)| Deed::Reject(agent, version)),
        1 => agent.prop_map(Deed::Bury),
        1 => Just(Deed::Restart),
    ];
    prop::collection::vec(deed, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn what_is_kept_in_memory_is_what_reading_everything_gives(deeds in deeds()) {
        let root = tempfile::tempdir().unwrap();
        let mut history = History::open(root.path()).unwrap();
        let name = |agent: u8| format!("agent-{agent}");
        for (at, deed) in deeds.iter().enumerate() {
            let release = format!("r-{at}");
            match deed {
                Deed::Record(agent, true) => drop(history.record("team-a", draft(&name(*agent), &release)).unwrap()),
                Deed::Record(agent, false) => drop(history.record("team-a", pending(&name(*agent), &release)).unwrap()),
                Deed::Activate(agent, version) => drop(history.activate("team-a", step(&name(*agent), *version), None)),
                Deed::Reject(agent, version) => {
                    drop(history.mark("team-a", Step { reason: Some(release), ..step(&name(*agent), *version) }, Status::Rejected));
                }
                Deed::Bury(agent) => drop(history.bury("team-a", &name(*agent), author(), when(0)).unwrap()),
                Deed::Restart => {
                    drop(history);
                    history = History::open(root.path()).unwrap();
                }
            }
            // Looked at now and then, so that memory is begun at any point.
            if at % 3 == 0 {
                history.list("team-a", &name(0), None, 3).unwrap();
            }
        }
        let Some(repository) = history.repository("team-a", false).unwrap() else { return Ok(()) };
        let source = repository.source().unwrap();
        for agent in 0..3 {
            let agent = name(agent);
            let rows = history.list("team-a", &agent, None, 100).unwrap().rows;
            let read = view::load(source.head().unwrap(), &agent, &source).unwrap();
            prop_assert_eq!(rows.iter().rev().map(|row| row.version).collect::<Vec<_>>(), read.versions.keys().copied().collect::<Vec<_>>());
            prop_assert_eq!(rows.len(), rows.first().map_or(0, |row| usize::try_from(row.version).unwrap()), "no gap");
            for row in &rows {
                prop_assert_eq!(row.standing.as_ref(), read.standings.get(&row.version));
                let artifact = history.release("team-a", &agent, row.version).unwrap();
                prop_assert_eq!(&row.told.as_ref().unwrap().checksum, &artifact.metadata.checksum);
            }
            let active = read.standings.values().filter(|standing| standing.status == Status::Active).count();
            prop_assert!(active <= 1);
            let waiting: Vec<_> = read.standings.iter().filter(|(_, standing)| standing.status == Status::PendingEval).collect();
            prop_assert!(waiting.len() <= 1, "{waiting:?}");
        }
        // Git's check takes it amiss when packs are put together meanwhile.
        history.settle();
        fsck(repository.path());
    }
}
