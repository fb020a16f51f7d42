//! The release history in Git: a bare repository per namespace, in one folder that one process owns.
//!
//! What stands in a repository is told in docs/releases.md. All functions block, as disks do: call them from
//! `spawn_blocking`. They may be called from many threads at once; those that write to one namespace at the same time
//! share the sync of the disk. What a function has reported survives a loss of power, and everything may be repeated:
//! a release is known by its name. There is no clock here; times are arguments.

mod branch;
mod change;
mod delta;
mod disk;
mod fault;
mod lanes;
mod message;
mod names;
mod pack;
mod press;
mod register;
mod repository;
mod source;
mod standings;
mod tidy;
mod tip;
mod tree;
mod view;
mod writer;

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use jiff::Timestamp;
use slipway_release::{Artifact, Current, Status};

use change::{Change, Deed, Outcome};
pub use fault::Fault;
use repository::{Repository, locked};
pub use standings::Standing;
pub use view::{Row, Told};

/// Folders and files of a repository.
const AGENTS: &str = "agents";
const RELEASES: &str = "releases";
const CURRENT: &str = "current.yaml";
const STATUS: &str = "status.yaml";
const DEPLOY: &str = "deploy";
const KUSTOMIZATION: &str = "kustomization.yaml";
/// The file by which a second process notices the first.
const OWNED: &str = ".owned";
/// The longest page of a list.
const PAGE_MAX: usize = 10_000;

/// Who makes a change, as Git writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    pub name: String,
    /// An e-mail address, or whatever else names the author among others.
    pub email: String,
}

/// A release that is to be recorded.
#[derive(Debug, Clone)]
pub struct Draft {
    /// The release's own name. Recording the same name again answers the same version.
    pub name: String,
    /// `metadata` says agent, author, time, changelog and status; version, previous and checksum are set here. With
    /// status `active` the release becomes the active one in the same commit.
    pub artifact: Artifact,
    pub author: Author,
    /// The plain manifest for `deploy/`, as YAML, if the release becomes active.
    pub manifest: Option<String>,
}

/// A change of where a version stands.
#[derive(Debug, Clone)]
pub struct Step {
    pub agent: String,
    pub version: u64,
    pub author: Author,
    pub when: Timestamp,
    /// Why, or what else is to be remembered of it. It stands beside the status.
    pub reason: Option<String>,
}

/// Something that is in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// 0 for what is about no version.
    pub version: u64,
    /// The commit, in hex. Empty when there is nothing in the repository.
    pub commit: String,
    /// Whether this call has made it.
    pub is_new: bool,
}

/// A part of a list, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Where the next page begins: pass it as `before`. None at the end.
    pub next: Option<u64>,
}

/// All repositories below one folder.
pub struct History {
    root: PathBuf,
    repositories: Mutex<HashMap<String, Arc<Repository>>>,
    /// Held for as long as this lives.
    _owned: File,
}

impl History {
    /// Opens the folder, which is made if it is not there. Only one process can have it open.
    pub fn open(root: &Path) -> Result<Self, Fault> {
        disk::folder(root)?;
        let path = root.join(OWNED);
        let owned = File::create(&path).map_err(|error| Fault::disk("write", &path, error))?;
        // A process that this one is starting holds what is open here until it runs its program.
        let mut tries = 0..100;
        loop {
            match owned.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) if tries.next().is_some() => sleep(Duration::from_millis(10)),
                Err(TryLockError::WouldBlock) => {
                    return Err(Fault::Busy(format!("{} is open in another process; the history has one writer", root.display())));
                }
                Err(TryLockError::Error(error)) => return Err(Fault::disk("lock", &path, error)),
            }
        }
        Ok(Self { root: root.to_owned(), repositories: Mutex::default(), _owned: owned })
    }

    /// Records a release, and activates it if its artifact says so.
    pub fn record(&self, namespace: &str, draft: Draft) -> Result<Recorded, Fault> {
        names::release(&draft.name)?;
        let data = &draft.artifact.metadata;
        if !matches!(data.status, Status::Active | Status::PendingEval) {
            return Err(Fault::Refused(format!("a release begins as active or pending_eval, not as {}", data.status.as_str())));
        }
        if draft.artifact.deployment.namespace != namespace {
            let theirs = &draft.artifact.deployment.namespace;
            return Err(Fault::Refused(format!("the artifact is of namespace {theirs}; it cannot be recorded in {namespace}")));
        }
        let change = Change {
            namespace: namespace.to_owned(),
            agent: data.name.clone(),
            author: draft.author,
            when: data.timestamp,
            text: data.changelog.clone(),
            deed: Deed::Record { name: draft.name, artifact: Box::new(draft.artifact), manifest: draft.manifest },
        };
        self.submit(namespace, change)
    }

    /// Makes a version the active one; the one that was is archived. `manifest` is as in [`Draft`]. The active one can be
    /// given another reason.
    pub fn activate(&self, namespace: &str, step: Step, manifest: Option<String>) -> Result<Recorded, Fault> {
        let deed = Deed::Activate { version: step.version, manifest, reason: step.reason.clone() };
        self.submit(namespace, change(namespace, step, "active".to_owned(), deed))
    }

    /// Writes down that a version stands elsewhere: `rejected`, with the reason, for instance.
    pub fn mark(&self, namespace: &str, step: Step, status: Status) -> Result<Recorded, Fault> {
        let reason = step.reason.clone();
        let text = reason.as_ref().map_or_else(|| status.as_str().to_owned(), |reason| format!("{}: {reason}", status.as_str()));
        let deed = Deed::Mark { version: step.version, status, reason };
        self.submit(namespace, change(namespace, step, text, deed))
    }

    /// Puts a tombstone in place of what is active, and takes the agent out of `deploy/`. Its releases stay.
    pub fn bury(&self, namespace: &str, agent: &str, author: Author, when: Timestamp) -> Result<Recorded, Fault> {
        let step = Step { agent: agent.to_owned(), version: 0, author, when, reason: None };
        self.submit(namespace, change(namespace, step, "deleted".to_owned(), Deed::Bury))
    }

    /// An agent's releases, newest first: those before the version `before`, or from the newest on.
    pub fn list(&self, namespace: &str, agent: &str, before: Option<u64>, limit: usize) -> Result<Page, Fault> {
        names::agent(agent)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(Page { rows: Vec::new(), next: None }) };
        let source = repository.source()?;
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut lines, more) = {
            let mut view = locked(&repository.view);
            view.sync(source.head()?);
            let (mut lines, more) = view.agent(agent, &source)?.page(before, limit);
            if !lines.is_empty() {
                view.tell(agent, &mut lines, &source)?;
            }
            (lines, more)
        };
        // What was not read before is read without holding up whoever comes meanwhile: artifacts never change.
        let mut read = Vec::new();
        for (row, id) in &mut lines {
            if row.told.is_err() {
                let artifact = change::artifact(&source, *id, namespace, agent, row.version);
                row.told = artifact.map(|artifact| Told::of(&artifact)).map_err(|fault| fault.to_string());
                // What is not believed may be mended, and is looked at again.
                read.extend(row.told.clone().ok().map(|told| (row.version, *id, told)));
            }
        }
        if !read.is_empty() {
            locked(&repository.view).learn(agent, read.iter().map(|(version, id, told)| (*version, *id, told)));
        }
        let rows: Vec<_> = lines.into_iter().map(|(row, _)| row).collect();
        let next = rows.last().map(|row| row.version).filter(|_| more);
        Ok(Page { rows, next })
    }

    /// The artifact of one version, if it is what was written.
    pub fn release(&self, namespace: &str, agent: &str, version: u64) -> Result<Artifact, Fault> {
        let found = self.look(namespace, agent, |known| known.versions.get(&version).copied())?;
        match found {
            Some((source, Some(id))) => change::artifact(&source, id, namespace, agent, version),
            _ => Err(change::missing(agent, version)),
        }
    }

    /// Where one version stands.
    pub fn standing(&self, namespace: &str, agent: &str, version: u64) -> Result<Option<Standing>, Fault> {
        Ok(self.look(namespace, agent, |known| known.standings.get(&version).cloned())?.and_then(|(_, standing)| standing))
    }

    /// What is active, or the tombstone. None for an agent that never had a release active.
    pub fn current(&self, namespace: &str, agent: &str) -> Result<Option<Current>, Fault> {
        let Some((source, Some(id))) = self.look(namespace, agent, |known| known.current)? else { return Ok(None) };
        let damaged =
            |why: &dyn std::fmt::Display| Fault::damaged(format!("what is active of agent {agent} is not what was written: {why}"));
        let text = source.text(id, CURRENT).map_err(|fault| damaged(&fault))?;
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
    pub fn manifest(&self, namespace: &str, agent: &str) -> Result<Option<String>, Fault> {
        names::agent(agent)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        let source = repository.source()?;
        let Some(head) = source.head()? else { return Ok(None) };
        let file = format!("{agent}.yaml");
        source.at(source.root(head)?, &[DEPLOY, &file])?.map(|id| source.text(id, &file)).transpose()
    }

    /// All agents that have a history, deleted ones too, in order.
    pub fn agents(&self, namespace: &str) -> Result<Vec<String>, Fault> {
        let Some(repository) = self.repository(namespace, false)? else { return Ok(Vec::new()) };
        let source = repository.source()?;
        let Some(head) = source.head()? else { return Ok(Vec::new()) };
        let Some(folder) = source.at(source.root(head)?, &[AGENTS])? else { return Ok(Vec::new()) };
        let mut agents = Vec::new();
        for entry in tree::entries(&source.read(folder, gix::objs::Kind::Tree)?) {
            let entry = entry?;
            let name = std::str::from_utf8(entry.name).ok().filter(|name| entry.is_folder && names::agent(name).is_ok());
            agents.extend(name.map(str::to_owned));
        }
        agents.sort_unstable();
        Ok(agents)
    }

    /// Whether a release of this name was recorded, and as what: the agent, and where.
    pub fn named(&self, namespace: &str, release: &str) -> Result<Option<(String, Recorded)>, Fault> {
        names::release(release)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        let source = repository.source()?;
        let mut view = locked(&repository.view);
        view.sync(source.head()?);
        Ok(view
            .named(release, &source)?
            .map(|place| (place.agent, Recorded { version: place.version, commit: place.commit.to_string(), is_new: false })))
    }

    /// The commit that a namespace's history stands on, in hex. None before there is one.
    pub fn head(&self, namespace: &str) -> Result<Option<String>, Fault> {
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        Ok(repository.source()?.head()?.map(|head| head.to_string()))
    }

    /// All namespaces that have a repository, in order.
    pub fn namespaces(&self) -> Result<Vec<String>, Fault> {
        let mut found = disk::names(&self.root)?;
        found.retain(|name| self.root.join(name).is_dir());
        Ok(found
            .iter()
            .filter_map(|name| name.strip_suffix(".git"))
            .filter(|name| names::namespace(name).is_ok())
            .map(str::to_owned)
            .collect())
    }

    /// Where a namespace's repository lies, whether it is there or not.
    pub fn path(&self, namespace: &str) -> Result<PathBuf, Fault> {
        names::namespace(namespace)?;
        Ok(self.root.join(format!("{namespace}.git")))
    }

    /// Waits until packs that are being put together in the background are so.
    pub fn settle(&self) {
        let all: Vec<_> = locked(&self.repositories).values().cloned().collect();
        for repository in all {
            repository.tidy.wait();
        }
    }

    fn submit(&self, namespace: &str, change: Change) -> Result<Recorded, Fault> {
        names::agent(&change.agent)?;
        let makes = matches!(change.deed, Deed::Record { .. });
        match self.repository(namespace, makes)? {
            Some(repository) => repository.submit(change).map(|outcome| recorded(&outcome)),
            // Nothing was ever recorded, so that there is nothing to bury either.
            None if matches!(change.deed, Deed::Bury) => Ok(recorded(&Outcome { version: 0, commit: None, is_new: false })),
            None => Err(Fault::Missing(format!("namespace {namespace} has no release history yet"))),
        }
    }

    /// What one agent's index says, with a reader of the commit that it belongs to.
    fn look<T>(&self, namespace: &str, agent: &str, ask: impl Fn(&view::Agent) -> T) -> Result<Option<(source::Source, T)>, Fault> {
        names::agent(agent)?;
        let Some(repository) = self.repository(namespace, false)? else { return Ok(None) };
        let source = repository.source()?;
        let mut view = locked(&repository.view);
        view.sync(source.head()?);
        let answer = ask(view.agent(agent, &source)?);
        drop(view);
        Ok(Some((source, answer)))
    }

    fn repository(&self, namespace: &str, makes: bool) -> Result<Option<Arc<Repository>>, Fault> {
        names::namespace(namespace)?;
        let mut repositories = locked(&self.repositories);
        if let Some(repository) = repositories.get(namespace) {
            return Ok(Some(repository.clone()));
        }
        let Some(repository) = Repository::open(&self.root, namespace, makes)? else { return Ok(None) };
        let repository = Arc::new(repository);
        repositories.insert(namespace.to_owned(), repository.clone());
        Ok(Some(repository))
    }
}

fn agents_path(agent: &str) -> [&str; 2] {
    [AGENTS, agent]
}

fn change(namespace: &str, step: Step, text: String, deed: Deed) -> Change {
    Change { namespace: namespace.to_owned(), agent: step.agent, author: step.author, when: step.when, text, deed }
}

fn recorded(outcome: &Outcome) -> Recorded {
    let commit = outcome.commit.map(|commit| commit.to_string()).unwrap_or_default();
    Recorded { version: outcome.version, commit, is_new: outcome.is_new }
}

#[cfg(test)]
mod tests;
