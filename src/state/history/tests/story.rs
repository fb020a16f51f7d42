//! What happens to one agent in its life, and what a reader of the repository finds.

use slipway_release::{Current, Status};

use super::super::{History, HistoryFault, Row, Transition};
use super::{artifact, author, draft, fsck, git, open, pending, show, transition, when};

fn statuses(rows: &[Row]) -> Vec<(u64, Status)> {
    rows.iter().map(|row| (row.version, row.status.as_ref().unwrap().status)).collect()
}

#[test]
fn the_life_of_an_agent_is_what_git_shows() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    let first = history.record("team-a", draft("hello", "hello-1")).unwrap();
    assert_eq!((first.version, first.is_new), (1, true));
    assert_eq!(history.record("team-a", draft("hello", "hello-2")).unwrap().version, 2);
    // A gated one waits, is rejected, and does not disturb the active one.
    assert_eq!(history.record("team-a", pending("hello", "hello-3")).unwrap().version, 3);
    let verdict = Transition { reason: Some("41 < 75".to_owned()), ..transition("hello", 3) };
    history.set_status("team-a", verdict, Status::Rejected).unwrap();
    let path = history.path("team-a").unwrap();
    let files = git(&path, &["ls-tree", "-r", "--name-only", "main"]);
    let expected = [
        "agents/hello/current.yaml",
        "agents/hello/releases/v1.yaml",
        "agents/hello/releases/v2.yaml",
        "agents/hello/releases/v3.yaml",
        "agents/hello/status.yaml",
        "deploy/hello.yaml",
        "deploy/kustomization.yaml",
    ];
    assert_eq!(files.lines().collect::<Vec<_>>(), expected);
    let said = git(&path, &["log", "--format=%an <%ae> | %cn | %s | %(trailers:only,separator=%x2C)", "main"]);
    let said: Vec<&str> = said.lines().collect();
    assert_eq!(said[0], "Ada Lovelace <ada@example.com> | slipway | hello v3: rejected: 41 < 75 | Agent: hello,Version: 3");
    assert_eq!(said[3], "Ada Lovelace <ada@example.com> | slipway | hello v1: Change hello-1 | Agent: hello,Version: 1,Release: hello-1");
    assert_eq!(said.len(), 4);
    let page = history.list("team-a", "hello", None, 100).unwrap();
    assert_eq!(statuses(&page.rows), [(3, Status::Rejected), (2, Status::Active), (1, Status::Archived)]);
    assert_eq!(page.rows[0].status.as_ref().unwrap().reason.as_deref(), Some("41 < 75"));
    assert_eq!(page.rows.iter().map(|row| row.summary.as_ref().unwrap().previous).collect::<Vec<_>>(), [2, 1, 0]);
    // The active one is the release's own bytes.
    assert_eq!(show(&history, "agents/hello/current.yaml"), show(&history, "agents/hello/releases/v2.yaml"));
    assert!(
        matches!(history.activate("team-a", transition("hello", 3), None), Err(HistoryFault::Refused(said)) if said.contains("rejected"))
    );
    // Back to the first.
    let back = history.activate("team-a", transition("hello", 1), Some("# back\n".to_owned())).unwrap();
    assert!(back.is_new);
    assert_eq!(show(&history, "deploy/hello.yaml"), "# back\n");
    assert!(!history.activate("team-a", transition("hello", 1), Some("# back\n".to_owned())).unwrap().is_new);
    // Why is remembered beside it, and can change while it stays active.
    let why = |words: &str| Transition { reason: Some(words.to_owned()), ..transition("hello", 1) };
    assert!(history.activate("team-a", why("because"), None).unwrap().is_new);
    assert!(!history.activate("team-a", why("because"), None).unwrap().is_new);
    assert_eq!(history.status("team-a", "hello", 1).unwrap().unwrap().reason.as_deref(), Some("because"));
    // What a version was recorded as is known by its commit.
    let page = history.list("team-a", "hello", None, 1).unwrap();
    let (name, commit) = page.rows[0].recorded.clone().unwrap();
    assert_eq!(name, "hello-3");
    assert_eq!(git(&path, &["log", "-1", "--format=%s", &commit]).trim(), "hello v3: Change hello-3");
    let Some(Current::Release(current)) = history.current("team-a", "hello").unwrap() else { panic!("no release") };
    assert_eq!((current.metadata.version, current.metadata.status), (1, Status::Active));
    // Deleted, and born again: versions go on.
    let buried = history.tombstone("team-a", "hello", author(), when(100)).unwrap();
    assert!(buried.is_new && !history.tombstone("team-a", "hello", author(), when(101)).unwrap().is_new);
    let Some(Current::Gone(tombstone)) = history.current("team-a", "hello").unwrap() else { panic!("no tombstone") };
    assert_eq!((tombstone.changelog(), tombstone.deleted_at()), ("[DELETED] Change hello-1", when(100)));
    let files = git(&path, &["ls-tree", "-r", "--name-only", "main"]);
    assert!(!files.contains("deploy/hello.yaml") && files.contains("releases/v1.yaml"), "{files}");
    assert_eq!(
        show(&history, "deploy/kustomization.yaml"),
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: []\n"
    );
    let again = history.record("team-a", draft("hello", "hello-4")).unwrap();
    let born = history.release("team-a", "hello", again.version).unwrap();
    assert_eq!((born.metadata.version, born.metadata.previous), (4, 3));
    let page = history.list("team-a", "hello", None, 100).unwrap();
    assert_eq!(statuses(&page.rows), [(4, Status::Active), (3, Status::Deleted), (2, Status::Deleted), (1, Status::Deleted)]);
    // A name that is taken up again is no way around an evaluation.
    assert_eq!(page.rows[1].status.as_ref().unwrap().reason.as_deref(), Some("rejected before its agent was deleted: 41 < 75"));
    assert!(
        matches!(history.activate("team-a", transition("hello", 3), None), Err(HistoryFault::Refused(said)) if said.contains("rejected"))
    );
    fsck(&path);
    // What another process would see is the same.
    drop(history);
    let history = open(root.path()).unwrap();
    assert_eq!(history.list("team-a", "hello", None, 100).unwrap(), page);
    let clone = root.path().join("clone");
    git(root.path(), &["clone", "--quiet", &path.to_string_lossy(), "clone"]);
    assert_eq!(std::fs::read_to_string(clone.join("agents/hello/current.yaml")).unwrap(), born.to_yaml());
}

#[test]
fn one_version_is_active_one_waits_and_what_is_older_is_archived() {
    use Status::{Active, Archived, PendingEval};
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    let stand = |history: &History| statuses(&history.list("team-a", "hello", None, 100).unwrap().rows);
    history.record("team-a", draft("hello", "hello-1")).unwrap();
    history.record("team-a", pending("hello", "hello-2")).unwrap();
    history.record("team-a", pending("hello", "hello-3")).unwrap();
    assert_eq!(stand(&history), [(3, PendingEval), (2, Archived), (1, Active)]);
    let why = |history: &History, version| history.status("team-a", "hello", version).unwrap().unwrap().reason;
    assert_eq!(why(&history, 2).as_deref(), Some("superseded by v3"));
    // A rollback leaves what is newer waiting.
    history.activate("team-a", transition("hello", 1), None).unwrap();
    assert_eq!(stand(&history), [(3, PendingEval), (2, Archived), (1, Active)]);
    // An active one ends what waited before it.
    history.record("team-a", draft("hello", "hello-4")).unwrap();
    assert_eq!(stand(&history), [(4, Active), (3, Archived), (2, Archived), (1, Archived)]);
    assert_eq!((why(&history, 3).as_deref(), why(&history, 1)), (Some("superseded by v4"), None));
    history.record("team-a", pending("hello", "hello-5")).unwrap();
    history.record("team-a", draft("hello", "hello-6")).unwrap();
    history.record("team-a", pending("hello", "hello-7")).unwrap();
    history.activate("team-a", transition("hello", 7), None).unwrap();
    assert_eq!(stand(&history)[..3], [(7, Active), (6, Archived), (5, Archived)]);
    // What was put aside before it was evaluated is no way around that, whatever became of its agent.
    let refused = |history: &History, version| match history.activate("team-a", transition("hello", version), None) {
        Err(HistoryFault::Refused(said)) => said.contains("before it was evaluated"),
        _ => false,
    };
    assert!([2, 3, 5].into_iter().all(|version| refused(&history, version)));
    // Nothing is made to wait again.
    assert!(
        matches!(history.set_status("team-a", transition("hello", 6), PendingEval), Err(HistoryFault::Refused(said)) if said.contains("evaluation"))
    );
    drop(history);
    let history = open(root.path()).unwrap();
    assert_eq!(stand(&history)[..2], [(7, Active), (6, Archived)]);
    history.record("team-a", pending("hello", "hello-8")).unwrap();
    history.tombstone("team-a", "hello", author(), when(100)).unwrap();
    assert!([2, 3, 5, 8].into_iter().all(|version| refused(&history, version)));
    assert!([1, 4, 6, 7].into_iter().all(|version| history.activate("team-a", transition("hello", version), None).is_ok()));
    fsck(&history.path("team-a").unwrap());
}

#[test]
fn a_pending_release_becomes_active_with_a_checksum_of_its_own() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    history.record("team-a", pending("hello", "hello-1")).unwrap();
    assert_eq!(history.current("team-a", "hello").unwrap(), None);
    history.activate("team-a", transition("hello", 1), None).unwrap();
    let release = history.release("team-a", "hello", 1).unwrap();
    let Some(Current::Release(current)) = history.current("team-a", "hello").unwrap() else { panic!("no release") };
    assert_eq!((release.metadata.status, current.metadata.status), (Status::PendingEval, Status::Active));
    assert_ne!(release.metadata.checksum, current.metadata.checksum);
    assert!(release.same_content(&current));
    fsck(&history.path("team-a").unwrap());
}

#[test]
fn the_same_name_is_the_same_version_also_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let mut history = open(root.path()).unwrap();
    let first = history.record("team-a", draft("hello", "hello-x")).unwrap();
    history.record("team-a", draft("hello", "hello-y")).unwrap();
    for _ in 0..2 {
        let again = history.record("team-a", draft("hello", "hello-x")).unwrap();
        assert_eq!((again.version, &again.commit, again.is_new), (first.version, &first.commit, false));
        let (agent, named) = history.named("team-a", "hello-x").unwrap().unwrap();
        assert_eq!((agent.as_str(), named), ("hello", again));
        assert_eq!(history.named("team-a", "hello-z").unwrap(), None);
        let taken = history.record("team-a", draft("other", "hello-x")).unwrap_err();
        assert!(matches!(&taken, HistoryFault::Refused(said) if said.contains("hello")), "{taken}");
        drop(history);
        history = open(root.path()).unwrap();
    }
    assert_eq!(git(&history.path("team-a").unwrap(), &["rev-list", "--count", "main"]).trim(), "2");
}

#[test]
fn what_cannot_be_is_refused_and_leaves_nothing() {
    let root = tempfile::tempdir().unwrap();
    let history = open(&root.path().join("state")).unwrap();
    for namespace in ["..", "../out", "a/b", "", "A", "/tmp/x"] {
        let mut bad = draft("hello", "hello-1");
        bad.artifact.deployment.namespace = namespace.to_owned();
        assert!(matches!(history.record(namespace, bad), Err(HistoryFault::Refused(_))), "{namespace:?}");
        assert!(history.list(namespace, "hello", None, 10).is_err() && history.path(namespace).is_err());
    }
    for agent in ["..", "../../x", "a/b", ".git", "hello\n"] {
        assert!(matches!(history.record("team-a", draft(agent, "x")), Err(HistoryFault::Refused(_))), "{agent:?}");
        assert!(history.release("team-a", agent, 1).is_err() && history.current("team-a", agent).is_err());
        assert!(history.tombstone("team-a", agent, author(), when(0)).is_err());
    }
    let mut foreign = draft("hello", "hello-1");
    foreign.artifact = artifact("team-b", "hello", "", Status::Active);
    assert!(matches!(history.record("team-a", foreign), Err(HistoryFault::Refused(said)) if said.contains("team-b")));
    let mut ended = draft("hello", "hello-1");
    ended.artifact.metadata.status = Status::Archived;
    assert!(matches!(history.record("team-a", ended), Err(HistoryFault::Refused(_))));
    let mut long = draft("hello", "hello-1");
    long.artifact.agent.system_prompt = Some("x".repeat(2 * 1024 * 1024));
    assert!(matches!(history.record("team-a", long), Err(HistoryFault::Refused(_))));
    assert!(matches!(history.activate("team-a", transition("hello", 9), None), Err(HistoryFault::Missing(_))));
    assert!(matches!(history.release("team-a", "hello", 9), Err(HistoryFault::Missing(_))));
    assert!(!history.tombstone("team-a", "hello", author(), when(0)).unwrap().is_new);
    assert_eq!(history.agents("team-a").unwrap(), Vec::<String>::new());
    // What was refused did not take a version.
    assert_eq!(history.record("team-a", draft("hello", "hello-1")).unwrap().version, 1);
    let mut names: Vec<_> = std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["state"]);
}

#[test]
fn only_one_process_writes() {
    let root = tempfile::tempdir().unwrap();
    let history = open(root.path()).unwrap();
    assert!(matches!(open(root.path()), Err(HistoryFault::Busy(said)) if said.contains("another process")));
    drop(history);
    assert!(open(root.path()).is_ok());
}
