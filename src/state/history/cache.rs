//! Read cache: versions, statuses and the active release of recently read agents, as of one commit. Commits made here
//! carry it forward; when another program moves the branch it starts empty. Names and summaries of releases are in the
//! index.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::PathBuf;

use gix::ObjectId;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_release::Artifact;

use super::index::{Entry, ReleaseIndex};
use super::objects::ObjectReader;
use super::status::{self, VersionStatus};
use super::{AGENTS, CURRENT, HistoryFault, RELEASES, STATUS};

/// Agents in the cache, and versions of all of them. Beyond that the cache is cleared.
const MAX_AGENTS: usize = 512;
const MAX_VERSIONS: usize = 100_000;

/// A version in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub version: u64,
    /// None if status.yaml does not have the version.
    pub status: Option<VersionStatus>,
    /// The release's name and its commit, in hex. None for versions that were committed by hand.
    pub recorded: Option<(String, String)>,
    /// Metadata of the artifact, or why the artifact is invalid.
    pub summary: Result<ReleaseSummary, String>,
}

/// Metadata of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReleaseSummary {
    pub previous: u64,
    pub author: String,
    pub timestamp: Timestamp,
    pub changelog: String,
    pub checksum: String,
}

impl ReleaseSummary {
    pub(super) fn of(artifact: &Artifact) -> Self {
        let data = &artifact.metadata;
        Self {
            previous: data.previous,
            author: data.author.clone(),
            timestamp: data.timestamp,
            changelog: data.changelog.clone(),
            checksum: data.checksum.clone(),
        }
    }
}

/// The releases of one agent.
#[derive(Default)]
pub(super) struct AgentReleases {
    /// The artifact's blob by version.
    pub versions: BTreeMap<u64, ObjectId>,
    pub statuses: BTreeMap<u64, VersionStatus>,
    /// The blob of current.yaml.
    pub current: Option<ObjectId>,
}

/// The version and commit that a release was recorded as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub agent: String,
    pub version: u64,
    pub commit: ObjectId,
}

/// What one commit changed.
#[derive(Debug, Clone, Default)]
pub(super) struct CommitEffect {
    pub agent: String,
    pub name: Option<(String, Location)>,
    pub version: Option<(u64, ObjectId, ReleaseSummary)>,
    pub statuses: Vec<(u64, VersionStatus)>,
    pub current: Option<ObjectId>,
}

impl CommitEffect {
    fn entry(&self) -> Option<Entry<'_>> {
        let (name, location) = self.name.as_ref()?;
        Some(Entry { name, location, summary: self.version.as_ref().map(|(_, blob, summary)| (*blob, summary)) })
    }
}

pub(super) struct Cache {
    repository: PathBuf,
    head: Option<ObjectId>,
    agents: HashMap<String, AgentReleases>,
    /// Opened by the first read that needs it.
    index: Option<ReleaseIndex>,
}

impl Cache {
    pub(super) fn new(repository: PathBuf) -> Self {
        Self { repository, head: None, agents: HashMap::new(), index: None }
    }

    /// Clears the cache unless it is of this commit.
    pub(super) fn move_to(&mut self, head: Option<ObjectId>) {
        if self.head != head {
            self.head = head;
            self.agents.clear();
        }
    }

    /// Applies commits made here.
    pub(super) fn advance(&mut self, from: Option<ObjectId>, to: ObjectId, effects: Vec<CommitEffect>) {
        if let Some(index) = &mut self.index {
            index.advance(from, to, effects.iter().filter_map(CommitEffect::entry));
        }
        if self.head != from {
            return self.move_to(Some(to));
        }
        self.head = Some(to);
        for effect in effects {
            let Some(agent) = self.agents.get_mut(&effect.agent) else { continue };
            if let Some((version, id, _)) = effect.version {
                agent.versions.insert(version, id);
            }
            agent.statuses.extend(effect.statuses);
            agent.current = effect.current.or(agent.current);
        }
    }

    pub(super) fn agent(&mut self, name: &str, objects: &ObjectReader) -> Result<&AgentReleases, HistoryFault> {
        if !self.agents.contains_key(name) {
            let agent = load(self.head, name, objects)?;
            let versions: usize = self.agents.values().map(|agent| agent.versions.len()).sum();
            if self.agents.len() >= MAX_AGENTS || versions + agent.versions.len() > MAX_VERSIONS {
                self.agents.clear();
            }
            self.agents.insert(name.to_owned(), agent);
        }
        Ok(self.agents.entry(name.to_owned()).or_default())
    }

    fn index(&mut self, objects: &ObjectReader) -> Result<&mut ReleaseIndex, HistoryFault> {
        let index = self.index.get_or_insert_with(|| ReleaseIndex::open(&self.repository));
        index.catch_up(self.head, objects)?;
        Ok(index)
    }

    /// The location of the release with this name.
    pub(super) fn named(&mut self, name: &str, objects: &ObjectReader) -> Result<Option<Location>, HistoryFault> {
        if self.head.is_none() { Ok(None) } else { self.index(objects)?.named(name) }
    }

    /// Adds names, commits and known summaries to rows.
    pub(super) fn describe(&mut self, agent: &str, rows: &mut [(Row, ObjectId)], objects: &ObjectReader) -> Result<(), HistoryFault> {
        let versions: Vec<u64> = rows.iter().map(|(row, _)| row.version).collect();
        let known = self.index(objects)?.versions(agent, &versions);
        for ((row, blob), known) in rows.iter_mut().zip(known) {
            row.recorded = known.recorded.map(|(name, commit)| (name, commit.to_string()));
            if let Some((_, summary)) = known.summary.filter(|(read, _)| read == blob) {
                row.summary = Ok(summary);
            }
        }
        Ok(())
    }

    /// Adds summaries that were read from artifacts.
    pub(super) fn add_summaries<'a>(&mut self, agent: &str, summaries: impl Iterator<Item = (u64, ObjectId, &'a ReleaseSummary)>) {
        if let Some(index) = &mut self.index {
            index.add_summaries(agent, summaries);
        }
    }
}

impl AgentReleases {
    /// The rows of a page with the blobs of their artifacts, newest first, and whether there are more. Summaries are
    /// missing yet: they are empty errors.
    pub(super) fn page(&self, before: Option<u64>, limit: usize) -> (Vec<(Row, ObjectId)>, bool) {
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let row = |(version, id): (&u64, &ObjectId)| {
            let status = self.statuses.get(version).cloned();
            (Row { version: *version, status, recorded: None, summary: Err(String::new()) }, *id)
        };
        let mut versions = self.versions.range((Bound::Unbounded, end)).rev();
        let page = versions.by_ref().take(limit).map(row).collect();
        (page, versions.next().is_some())
    }
}

/// Reads an agent's releases from a commit.
pub(super) fn load(head: Option<ObjectId>, name: &str, objects: &ObjectReader) -> Result<AgentReleases, HistoryFault> {
    let mut agent = AgentReleases::default();
    let Some(head) = head else { return Ok(agent) };
    let Some(folder) = objects.at(objects.root(head)?, &[AGENTS, name])? else { return Ok(agent) };
    if let Some(releases) = objects.at(folder, &[RELEASES])? {
        for entry in objects.tree(releases)?.entries {
            if let Some(version) = version(&entry.filename).filter(|_| !entry.mode.is_tree()) {
                agent.versions.insert(version, entry.oid);
            }
        }
    }
    if let Some(file) = objects.at(folder, &[STATUS])? {
        agent.statuses = status::read(&objects.text(file, STATUS)?)?;
    }
    agent.current = objects.at(folder, &[CURRENT])?;
    Ok(agent)
}

/// The version in the name of an artifact's file.
pub(super) fn version(file: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(file).ok()?.strip_prefix('v')?.strip_suffix(".yaml")?;
    let version: u64 = digits.parse().ok()?;
    // Only the canonical name: not v01, not v+1.
    (version > 0 && version.to_string() == digits).then_some(version)
}
