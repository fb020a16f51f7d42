//! Tests of the history. The git program is the oracle.

mod agents;
pub(super) mod crash;
mod damage;
mod full;
mod kill;
mod many;
mod story;

use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use slipway_release::{Artifact, Metadata, Resolved, Status};

use super::{Author, Draft, History, HistoryFault, Transition};
use crate::git::Git;

/// Opens a history. Its folder has the temporary files of git too.
fn open(root: &Path) -> Result<History, HistoryFault> {
    std::fs::create_dir_all(root).unwrap();
    History::open(root, Git::new("git", root, std::env::vars_os()).unwrap())
}

/// Runs git and returns its output. Panics if it fails.
fn git(folder: &Path, arguments: &[&str]) -> String {
    let (code, out) = git_tried(folder, arguments);
    assert!(code, "git {arguments:?} in {}: {out}", folder.display());
    out
}

fn git_tried(folder: &Path, arguments: &[&str]) -> (bool, String) {
    let identity = ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"];
    let mut command = Command::new("git");
    command.current_dir(folder).args(arguments).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    for name in identity {
        command.env(name, "Hand");
    }
    let output = command.output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

/// Checks a repository with `git fsck`. Unreachable objects are allowed.
fn fsck(repository: &Path) {
    let said = git(repository, &["fsck", "--strict", "--full", "--no-dangling"]);
    assert!(!said.contains("error") && !said.contains("warning") && !said.contains("missing"), "{said}");
}

fn author() -> Author {
    Author { name: "Ada Lovelace".to_owned(), email: "ada@example.com".to_owned() }
}

fn when(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn artifact(namespace: &str, agent: &str, changelog: &str, status: Status) -> Artifact {
    let metadata = Metadata {
        name: agent.to_owned(),
        version: 0,
        previous: 0,
        author: "Ada Lovelace".to_owned(),
        timestamp: when(0),
        changelog: changelog.to_owned(),
        checksum: String::new(),
        status,
        deleted_at: None,
    };
    let mut artifact = Artifact {
        api_version: slipway_release::API_VERSION.to_owned(),
        kind: slipway_release::KIND.to_owned(),
        metadata,
        runtime: slipway_release::Runtime::default(),
        agent: slipway_release::AgentBlock::default(),
        governance: slipway_release::Governance::default(),
        deployment: slipway_release::Deployment::default(),
        resolved: Resolved::default(),
    };
    artifact.runtime.channel = "rest".to_owned();
    artifact.runtime.strategy = "agent-react".to_owned();
    artifact.agent.system_prompt = Some(format!("You are {agent}. This is about: {changelog}."));
    artifact.deployment.namespace = namespace.to_owned();
    artifact
}

/// A release that becomes active. Its manifest is that of others too.
fn draft(agent: &str, name: &str) -> Draft {
    let artifact = artifact("team-a", agent, &format!("Change {name}"), Status::Active);
    Draft { name: name.to_owned(), artifact, author: author(), manifest: Some("kind: Agent\n".to_owned()) }
}

fn pending(agent: &str, name: &str) -> Draft {
    let artifact = artifact("team-a", agent, &format!("Change {name}"), Status::PendingEval);
    Draft { name: name.to_owned(), artifact, author: author(), manifest: None }
}

fn transition(agent: &str, version: u64) -> Transition {
    Transition { agent: agent.to_owned(), version, author: author(), when: when(60), reason: None }
}

/// A file as the branch has it.
fn show(history: &History, path: &str) -> String {
    git(&history.path("team-a").unwrap(), &["show", &format!("main:{path}")])
}
