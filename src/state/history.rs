//! Release history in Git: one bare repository per namespace, in a folder that one process owns.
//!
//! docs/releases.md describes a repository. All functions block; call them from `spawn_blocking`. They may be called from
//! many threads: writes to one namespace at the same time share a sync of the disk. What a function has returned survives a
//! power failure. Every write may be repeated: a release is identified by its name. Times are arguments.

mod branch;
mod cache;
mod change;
mod disk;
mod fault;
mod index;
mod message;
mod names;
mod objects;
mod pack;
mod repack;
mod repository;
mod status;
mod worktree;
mod writer;

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use jiff::Timestamp;
use slipway_release::{Artifact, Current, Status};

pub use cache::{ReleaseSummary, Row};
use change::{ChangeOutcome, HistoryChange, Operation};
pub use fault::HistoryFault;
use objects::ObjectReader;
use repack::Repacker;
use repository::{Repository, locked};
pub use status::{SUPERSEDED, VersionStatus};

use crate::git::Git;

// Directories and files of a repository.
const AGENTS: &str = "agents";
const RELEASES: &str = "releases";
const CURRENT: &str = "current.yaml";
const STATUS: &str = "status.yaml";
const DEPLOY: &str = "deploy";
const KUSTOMIZATION: &str = "kustomization.yaml";
/// The file that the owning process locks.
const LOCK_FILE: &str = ".owned";
/// Rows in one page of a list.
const MAX_PAGE: usize = 10_000;

/// The author of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    pub name: String,
    /// An e-mail address or another unique name.
    pub email: String,
}

/// A release to record.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The name of the release. Recording the same name again returns the same version.
    pub name: String,
    /// Version, previous and checksum of its metadata are set here. With status `active` the release becomes the active
    /// one in the same commit.
    pub artifact: Artifact,
    pub author: Author,
    /// The plain manifest for `deploy/`, as YAML, if the release becomes active.
    pub manifest: Option<String>,
}

/// A change of a version's status.
#[derive(Debug, Clone)]
pub struct Transition {
    pub agent: String,
    pub version: u64,
    pub author: Author,
    pub when: Timestamp,
    /// Kept beside the status.
    pub reason: Option<String>,
}

/// A change that is in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// 0 for a change of no version.
    pub version: u64,
    /// In hex. Empty in a repository without commits.
    pub commit: String,
    /// Whether this call made the change.
    pub is_new: bool,
}

/// A page of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryPage {
    pub rows: Vec<Row>,
    /// `before` of the next page. None at the end.
    pub next: Option<u64>,
}

/// All repositories below one folder.
pub struct History {
    root: PathBuf,
    repositories: Mutex<HashMap<String, Arc<Repository>>>,
    repacker: Arc<Repacker>,
    /// Locked while this lives.
    _lock: File,
}

impl History {
    /// Opens the folder, or creates it. Only one process can have it open. `git` repacks in the background.
    pub fn open(root: &Path, git: Git) -> Result<Self, HistoryFault> {
        disk::folder(root)?;
        let path = root.join(LOCK_FILE);
        let lock = File::create(&path).map_err(|error| HistoryFault::disk("write", &path, error))?;
        // A child process between fork and exec holds the lock of a history that was just closed.
        let mut tries = 0..100;
        loop {
            match lock.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries.next().is_some() => sleep(Duration::from_millis(10)),
                Err(TryLockError::WouldBlock) => {
                    return Err(HistoryFault::Busy(format!("{} is open in another process; the history has one writer", root.display())));
                }
                Err(TryLockError::Error(error)) => return Err(HistoryFault::disk("lock", &path, error)),
            }
        }
        let repacker = Repacker::new(git).map_err(|error| HistoryFault::disk("start a thread to repack", root, error))?;
        Ok(Self { root: root.to_owned(), repositories: Mutex::default(), repacker: Arc::new(repacker), _lock: lock })
    }

    /// Records a release, and activates it if its artifact is active.
    pub fn record(&self, namespace: &str, draft: Draft) -> Result<Recorded, HistoryFault> {
        names::release(&draft.name)?;
        let data = &draft.artifact.metadata;
        if !matches!(data.status, Status::Active | Status::PendingEval) {
            return Err(HistoryFault::Refused(format!("a release begins as active or pending_eval, not as {}", data.status.as_str())));
        }
        if draft.artifact.deployment.namespace != namespace {
            let theirs = &draft.artifact.deployment.namespace;
            return Err(HistoryFault::Refused(format!("the artifact is of namespace {theirs}; it cannot be recorded in {namespace}")));
        }
        let change = HistoryChange {
            namespace: namespace.to_owned(),
            agent: data.name.clone(),
            author: draft.author,
            when: data.timestamp,
            text: data.changelog.clone(),
            operation: Operation::Record { name: draft.name, artifact: Box::new(draft.artifact), manifest: draft.manifest },
        };
        self.submit(namespace, change)
    }

    /// Activates a version and archives the one before. `manifest` is as in [`Draft`]. Activating the active version can
    /// change its reason.
    pub fn activate(&self, namespace: &str, transition: Transition, manifest: Option<String>) -> Result<Recorded, HistoryFault> {
        let operation = Operation::Activate { version: transition.version, manifest, reason: transition.reason.clone() };
        self.submit(namespace, change(namespace, transition, "active".to_owned(), operation))
    }

    /// Sets the status of a version: `rejected` with a reason, for instance.
    pub fn set_status(&self, namespace: &str, transition: Transition, status: Status) -> Result<Recorded, HistoryFault> {
        let reason = transition.reason.clone();
        let text = reason.as_ref().map_or_else(|| status.as_str().to_owned(), |reason| format!("{}: {reason}", status.as_str()));
        let operation = Operation::SetStatus { version: transition.version, status, reason };
        self.submit(namespace, change(namespace, transition, text, operation))
    }

    /// Replaces the active release by a tombstone and removes the agent from `deploy/`. Its releases stay.
    pub fn tombstone(&self, namespace: &str, agent: &str, author: Author, when: Timestamp) -> Result<Recorded, HistoryFault> {
        let transition = Transition { agent: agent.to_owned(), version: 0, author, when, reason: None };
        self.submit(namespace, change(namespace, transition, "deleted".to_owned(), Operation::Tombstone))
    }

    /// An agent's releases, newest first: those before the version `before`, or from the newest on.
    pub fn list(&self, namespace: &str, agent: &str, before: Option<u64>, limit: usize) -> Result<HistoryPage, HistoryFault> {
        names::agent(agent)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(HistoryPage { rows: Vec::new(), next: None }) };
        let objects = repository.objects()?;
        let limit = limit.clamp(1, MAX_PAGE);
        let (mut rows, more) = {
            let mut cache = locked(&repository.cache);
            cache.move_to(objects.head()?);
            let (mut rows, more) = cache.agent(agent, &objects)?.page(before, limit);
            if !rows.is_empty() {
                cache.describe(agent, &mut rows, &objects)?;
            }
            (rows, more)
        };
        // Missing summaries are read without the lock: artifacts never change.
        let mut read = Vec::new();
        for (row, id) in &mut rows {
            if row.summary.is_err() {
                let artifact = change::artifact(&objects, *id, namespace, agent, row.version);
                row.summary = artifact.map(|artifact| ReleaseSummary::of(&artifact)).map_err(|fault| fault.to_string());
                // An invalid artifact is read again by the next list: it may have been repaired.
                read.extend(row.summary.clone().ok().map(|summary| (row.version, *id, summary)));
            }
        }
        if !read.is_empty() {
            locked(&repository.cache).add_summaries(agent, read.iter().map(|(version, id, summary)| (*version, *id, summary)));
        }
        let rows: Vec<_> = rows.into_iter().map(|(row, _)| row).collect();
        let next = rows.last().map(|row| row.version).filter(|_| more);
        Ok(HistoryPage { rows, next })
    }

    /// The artifact of one version. Fails if the file is not what was recorded.
    pub fn release(&self, namespace: &str, agent: &str, version: u64) -> Result<Artifact, HistoryFault> {
        let found = self.read(namespace, agent, |known| known.versions.get(&version).copied())?;
        match found {
            Some((objects, Some(id))) => change::artifact(&objects, id, namespace, agent, version),
            _ => Err(change::missing(agent, version)),
        }
    }

    /// The status of one version.
    pub fn status(&self, namespace: &str, agent: &str, version: u64) -> Result<Option<VersionStatus>, HistoryFault> {
        Ok(self.read(namespace, agent, |known| known.statuses.get(&version).cloned())?.and_then(|(_, status)| status))
    }

    /// The active release or the tombstone. None for an agent that never had an active release.
    pub fn current(&self, namespace: &str, agent: &str) -> Result<Option<Current>, HistoryFault> {
        let Some((objects, Some(id))) = self.read(namespace, agent, |known| known.current)? else { return Ok(None) };
        let damaged = |why: &dyn std::fmt::Display| {
            HistoryFault::damaged(format!("the active release of agent {agent} is not what was written: {why}"))
        };
        let text = objects.text(id, CURRENT).map_err(|fault| damaged(&fault))?;
        let current = Current::from_yaml(&text).map_err(|fault| damaged(&fault))?;
        let (name, theirs) = match &current {
            Current::Release(artifact) => (artifact.metadata.name.as_str(), artifact.deployment.namespace.as_str()),
            Current::Gone(tombstone) => (tombstone.name(), namespace),
        };
        if name != agent || theirs != namespace {
            return Err(damaged(&format!("it is of agent {name} in {theirs}")));
        }
        Ok(Some(current))
    }

    /// The plain manifest of an agent in `deploy/`, if it has one.
    pub fn manifest(&self, namespace: &str, agent: &str) -> Result<Option<String>, HistoryFault> {
        names::agent(agent)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        let objects = repository.objects()?;
        let Some(head) = objects.head()? else { return Ok(None) };
        let file = format!("{agent}.yaml");
        objects.at(objects.root(head)?, &[DEPLOY, &file])?.map(|id| objects.text(id, &file)).transpose()
    }

    /// All agents that have a history, deleted ones too, in order.
    pub fn agents(&self, namespace: &str) -> Result<Vec<String>, HistoryFault> {
        let Some(repository) = self.repository(namespace, false)? else { return Ok(Vec::new()) };
        let objects = repository.objects()?;
        let Some(head) = objects.head()? else { return Ok(Vec::new()) };
        let Some(folder) = objects.at(objects.root(head)?, &[AGENTS])? else { return Ok(Vec::new()) };
        let mut agents = Vec::new();
        for entry in objects.tree(folder)?.entries {
            let name = std::str::from_utf8(&entry.filename).ok();
            agents.extend(name.filter(|name| entry.mode.is_tree() && names::agent(name).is_ok()).map(str::to_owned));
        }
        agents.sort_unstable();
        Ok(agents)
    }

    /// The agent and version that a release of this name was recorded as.
    pub fn named(&self, namespace: &str, release: &str) -> Result<Option<(String, Recorded)>, HistoryFault> {
        names::release(release)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        let objects = repository.objects()?;
        let mut cache = locked(&repository.cache);
        cache.move_to(objects.head()?);
        let recorded = |found: cache::Location| Recorded { version: found.version, commit: found.commit.to_string(), is_new: false };
        Ok(cache.named(release, &objects)?.map(|found| (found.agent.clone(), recorded(found))))
    }

    /// The newest commit of a namespace, in hex.
    pub fn head(&self, namespace: &str) -> Result<Option<String>, HistoryFault> {
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        Ok(repository.objects()?.head()?.map(|head| head.to_string()))
    }

    /// All namespaces that have a repository, in order.
    pub fn namespaces(&self) -> Result<Vec<String>, HistoryFault> {
        let mut found = disk::names(&self.root)?;
        found.retain(|name| self.root.join(name).is_dir());
        Ok(found
            .iter()
            .filter_map(|name| name.strip_suffix(".git"))
            .filter(|name| names::namespace(name).is_ok())
            .map(str::to_owned)
            .collect())
    }

    /// The path of a namespace's repository, whether it exists or not.
    pub fn path(&self, namespace: &str) -> Result<PathBuf, HistoryFault> {
        names::namespace(namespace)?;
        Ok(self.root.join(format!("{namespace}.git")))
    }

    /// Waits for repacks that run or are scheduled.
    pub fn wait_for_repacks(&self) {
        let all: Vec<_> = locked(&self.repositories).values().cloned().collect();
        for repository in all {
            repository.repack.wait();
        }
    }

    fn submit(&self, namespace: &str, change: HistoryChange) -> Result<Recorded, HistoryFault> {
        names::agent(&change.agent)?;
        let create = matches!(change.operation, Operation::Record { .. });
        match self.repository(namespace, create)? {
            Some(repository) => repository.submit(change).map(|outcome| recorded(&outcome)),
            // No release, so no tombstone.
            None if matches!(change.operation, Operation::Tombstone) => {
                Ok(recorded(&ChangeOutcome { version: 0, commit: None, is_new: false }))
            }
            None => Err(HistoryFault::Missing(format!("namespace {namespace} has no release history yet"))),
        }
    }

    /// Reads from the cache, and returns the objects of the same commit.
    fn read<T>(
        &self,
        namespace: &str,
        agent: &str,
        read: impl Fn(&cache::AgentReleases) -> T,
    ) -> Result<Option<(ObjectReader, T)>, HistoryFault> {
        names::agent(agent)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        let objects = repository.objects()?;
        let mut cache = locked(&repository.cache);
        cache.move_to(objects.head()?);
        let found = read(cache.agent(agent, &objects)?);
        drop(cache);
        Ok(Some((objects, found)))
    }

    fn repository(&self, namespace: &str, create: bool) -> Result<Option<Arc<Repository>>, HistoryFault> {
        names::namespace(namespace)?;
        let mut repositories = locked(&self.repositories);
        if let Some(repository) = repositories.get(namespace) {
            return Ok(Some(repository.clone()));
        }
        let Some(repository) = Repository::open(&self.root, namespace, create, &self.repacker)? else { return Ok(None) };
        let repository = Arc::new(repository);
        repositories.insert(namespace.to_owned(), repository.clone());
        Ok(Some(repository))
    }
}

impl Drop for History {
    fn drop(&mut self) {
        self.repacker.shutdown();
    }
}

fn change(namespace: &str, transition: Transition, text: String, operation: Operation) -> HistoryChange {
    HistoryChange {
        namespace: namespace.to_owned(),
        agent: transition.agent,
        author: transition.author,
        when: transition.when,
        text,
        operation,
    }
}

fn recorded(outcome: &ChangeOutcome) -> Recorded {
    let commit = outcome.commit.map(|commit| commit.to_string()).unwrap_or_default();
    Recorded { version: outcome.version, commit, is_new: outcome.is_new }
}

#[cfg(test)]
mod tests;
