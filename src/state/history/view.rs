//! What readers ask for, in memory as far as somebody asked lately: versions by agent. It belongs to one commit. Our own
//! writes carry it on; when another hand moves the branch, it begins anew. What releases say and are called is in the
//! register beside it.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::PathBuf;

use gix::ObjectId;
use gix::objs::Kind;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use slipway_release::Artifact;

use super::pack::Closed;
use super::register::{Entry, Register};
use super::source::Source;
use super::standings::{self, Standing};
use super::{CURRENT, Fault, RELEASES, STATUS, agents_path, tree};

/// So many agents are kept, and so many versions of all of them; they are read again when they are asked for.
const AGENTS_MAX: usize = 512;
const VERSIONS_MAX: usize = 100_000;

/// One line of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub version: u64,
    /// Where it stands. None when nobody has written it down.
    pub standing: Option<Standing>,
    /// The release that it was recorded as, and the commit, in hex. None of versions that another hand brought in.
    pub recorded: Option<(String, String)>,
    /// What its artifact says, or why it is not believed.
    pub told: Result<Told, String>,
}

/// What an artifact says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Told {
    pub previous: u64,
    pub author: String,
    pub timestamp: Timestamp,
    pub changelog: String,
    pub checksum: String,
}

impl Told {
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

/// One agent's releases.
#[derive(Default)]
pub(super) struct Agent {
    pub versions: BTreeMap<u64, ObjectId>,
    pub standings: BTreeMap<u64, Standing>,
    pub current: Option<ObjectId>,
}

/// Where a release was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub agent: String,
    pub version: u64,
    pub commit: ObjectId,
}

/// What one commit changed.
#[derive(Debug, Clone, Default)]
pub(super) struct Effect {
    pub agent: String,
    pub name: Option<(String, Place)>,
    pub version: Option<(u64, ObjectId, Told)>,
    pub standings: Vec<(u64, Standing)>,
    pub current: Option<ObjectId>,
}

impl Effect {
    fn entry(&self) -> Option<Entry<'_>> {
        let (name, place) = self.name.as_ref()?;
        Some(Entry { name, place, told: self.version.as_ref().map(|(_, blob, told)| (*blob, told)) })
    }

    /// Puts ids where open ones stand.
    pub(super) fn close(&mut self, closed: &Closed) {
        if let Some((_, place)) = &mut self.name {
            place.commit = closed.id(place.commit);
        }
    }
}

pub(super) struct View {
    repository: PathBuf,
    head: Option<ObjectId>,
    agents: HashMap<String, Agent>,
    /// Opened when it is asked for the first time.
    register: Option<Register>,
}

impl View {
    pub(super) fn new(repository: PathBuf) -> Self {
        Self { repository, head: None, agents: HashMap::new(), register: None }
    }

    /// Makes it that of the commit.
    pub(super) fn sync(&mut self, head: Option<ObjectId>) {
        if self.head != head {
            self.head = head;
            self.agents.clear();
        }
    }

    /// Carries it on to a commit of ours.
    pub(super) fn advance(&mut self, from: Option<ObjectId>, to: ObjectId, effects: Vec<Effect>) {
        if let Some(register) = &mut self.register {
            register.advance(from, to, effects.iter().filter_map(Effect::entry));
        }
        if self.head != from {
            return self.sync(Some(to));
        }
        self.head = Some(to);
        for effect in effects {
            let Some(agent) = self.agents.get_mut(&effect.agent) else { continue };
            if let Some((version, id, _)) = effect.version {
                agent.versions.insert(version, id);
            }
            agent.standings.extend(effect.standings);
            agent.current = effect.current.or(agent.current);
        }
    }

    pub(super) fn agent(&mut self, name: &str, source: &Source) -> Result<&Agent, Fault> {
        if !self.agents.contains_key(name) {
            let agent = load(self.head, name, source)?;
            let versions: usize = self.agents.values().map(|agent| agent.versions.len()).sum();
            if self.agents.len() >= AGENTS_MAX || versions + agent.versions.len() > VERSIONS_MAX {
                self.agents.clear();
            }
            self.agents.insert(name.to_owned(), agent);
        }
        Ok(self.agents.entry(name.to_owned()).or_default())
    }

    fn register(&mut self, source: &Source) -> Result<&mut Register, Fault> {
        let register = self.register.get_or_insert_with(|| Register::open(&self.repository));
        register.catch_up(self.head, source)?;
        Ok(register)
    }

    /// Where the release of this name was recorded.
    pub(super) fn named(&mut self, name: &str, source: &Source) -> Result<Option<Place>, Fault> {
        if self.head.is_none() { Ok(None) } else { self.register(source)?.named(name) }
    }

    /// Adds to lines as what they were recorded, and what is known that their artifacts say.
    pub(super) fn tell(&mut self, agent: &str, lines: &mut [(Row, ObjectId)], source: &Source) -> Result<(), Fault> {
        let versions: Vec<u64> = lines.iter().map(|(row, _)| row.version).collect();
        let known = self.register(source)?.known(agent, &versions);
        for ((row, blob), known) in lines.iter_mut().zip(known) {
            row.recorded = known.recorded.map(|(name, commit)| (name, commit.to_string()));
            if let Some((_, told)) = known.told.filter(|(read, _)| read == blob) {
                row.told = Ok(told);
            }
        }
        Ok(())
    }

    /// Remembers what was read of artifacts.
    pub(super) fn learn<'a>(&mut self, agent: &str, told: impl Iterator<Item = (u64, ObjectId, &'a Told)>) {
        if let Some(register) = &mut self.register {
            register.learn(agent, told);
        }
    }
}

impl Agent {
    /// The lines of a page with the artifacts they tell of, newest first, and whether there are more. What was not read
    /// yet is an empty error.
    pub(super) fn page(&self, before: Option<u64>, limit: usize) -> (Vec<(Row, ObjectId)>, bool) {
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let line = |(version, id): (&u64, &ObjectId)| {
            let standing = self.standings.get(version).cloned();
            (Row { version: *version, standing, recorded: None, told: Err(String::new()) }, *id)
        };
        let mut versions = self.versions.range((Bound::Unbounded, end)).rev();
        let page = versions.by_ref().take(limit).map(line).collect();
        (page, versions.next().is_some())
    }
}

/// Reads an agent's folder as the commit has it.
pub(super) fn load(head: Option<ObjectId>, name: &str, source: &Source) -> Result<Agent, Fault> {
    let mut agent = Agent::default();
    let Some(head) = head else { return Ok(agent) };
    let Some(folder) = source.at(source.root(head)?, &agents_path(name))? else { return Ok(agent) };
    if let Some(releases) = source.at(folder, &[RELEASES])? {
        for entry in tree::entries(&source.read(releases, Kind::Tree)?) {
            let entry = entry?;
            if let Some(version) = version(entry.name).filter(|_| !entry.is_folder) {
                agent.versions.insert(version, entry.id);
            }
        }
    }
    if let Some(status) = source.at(folder, &[STATUS])? {
        agent.standings = standings::read(&source.text(status, STATUS)?)?;
    }
    agent.current = source.at(folder, &[CURRENT])?;
    Ok(agent)
}

/// The version that a file's name stands for.
pub(super) fn version(file: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(file).ok()?.strip_prefix('v')?.strip_suffix(".yaml")?;
    let version: u64 = digits.parse().ok()?;
    // One name a version: no v01, no v+1.
    (version > 0 && version.to_string() == digits).then_some(version)
}
