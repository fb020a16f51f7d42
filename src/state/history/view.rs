//! What readers ask for, in memory as far as somebody asked: versions by agent, rows of lists, names of releases. It
//! belongs to one commit. Our own writes carry it on; when another hand moves the branch, it begins anew.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use gix::ObjectId;
use gix::objs::Kind;
use jiff::Timestamp;
use slipway_release::Artifact;

use super::source::Source;
use super::standings::{self, Standing};
use super::{CURRENT, Fault, RELEASES, STATUS, agents_path, tree};

/// So many rows are kept; they are read again when they are asked for.
const ROWS_MAX: usize = 100_000;

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
#[derive(Debug, Clone, PartialEq)]
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
    rows: HashMap<u64, (ObjectId, Told)>,
}

/// Where a release was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub agent: String,
    pub version: u64,
    pub commit: ObjectId,
}

/// Names of releases, and what was recorded under them.
#[derive(Default)]
struct Names {
    places: HashMap<String, Place>,
    /// By agent and version.
    versions: HashMap<String, BTreeMap<u64, String>>,
}

impl Names {
    /// Takes the place of what had the name.
    fn insert(&mut self, name: String, place: Place) {
        self.versions.entry(place.agent.clone()).or_default().insert(place.version, name.clone());
        self.places.insert(name, place);
    }
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

#[derive(Default)]
pub(super) struct View {
    head: Option<ObjectId>,
    agents: HashMap<String, Agent>,
    names: Option<Names>,
}

impl View {
    /// Makes it that of the commit.
    pub(super) fn sync(&mut self, head: Option<ObjectId>) {
        if self.head != head {
            *self = Self { head, ..Self::default() };
        }
    }

    /// Carries it on to a commit of ours.
    pub(super) fn advance(&mut self, from: Option<ObjectId>, to: ObjectId, effects: Vec<Effect>) {
        if self.head != from {
            return self.sync(Some(to));
        }
        self.head = Some(to);
        for effect in effects {
            if let (Some(names), Some((name, place))) = (&mut self.names, effect.name) {
                names.insert(name, place);
            }
            let Some(agent) = self.agents.get_mut(&effect.agent) else { continue };
            if let Some((version, id, told)) = effect.version {
                agent.versions.insert(version, id);
                agent.rows.insert(version, (id, told));
            }
            agent.standings.extend(effect.standings);
            agent.current = effect.current.or(agent.current);
        }
        self.bound("");
    }

    fn bound(&mut self, keep: &str) {
        if self.agents.values().map(|agent| agent.rows.len()).sum::<usize>() > ROWS_MAX {
            for (_, agent) in self.agents.iter_mut().filter(|(name, _)| *name != keep) {
                agent.rows = HashMap::new();
            }
        }
    }

    pub(super) fn agent(&mut self, name: &str, source: &Source) -> Result<&Agent, Fault> {
        if !self.agents.contains_key(name) {
            let agent = load(self.head, name, source)?;
            self.agents.insert(name.to_owned(), agent);
        }
        Ok(self.agents.entry(name.to_owned()).or_default())
    }

    pub(super) fn read(&mut self, name: &str, rows: impl IntoIterator<Item = (u64, ObjectId, Told)>) {
        if let Some(agent) = self.agents.get_mut(name) {
            agent.rows.extend(rows.into_iter().map(|(version, id, told)| (version, (id, told))));
        }
        self.bound(name);
    }

    /// Where the release of this name was recorded.
    pub(super) fn named(&mut self, name: &str, source: &Source) -> Result<Option<Place>, Fault> {
        if self.names.is_none() {
            self.names = Some(names(self.head, source)?);
        }
        Ok(self.names.as_ref().and_then(|names| names.places.get(name)).cloned())
    }

    /// Adds to rows as what they were recorded.
    pub(super) fn say_whence<'a>(&mut self, agent: &str, rows: impl Iterator<Item = &'a mut Row>, source: &Source) -> Result<(), Fault> {
        if self.names.is_none() {
            self.names = Some(names(self.head, source)?);
        }
        let Some(names) = &self.names else { return Ok(()) };
        let Some(versions) = names.versions.get(agent) else { return Ok(()) };
        for row in rows {
            let name = versions.get(&row.version);
            row.recorded = name.and_then(|name| Some((name.clone(), names.places.get(name)?.commit.to_string())));
        }
        Ok(())
    }
}

impl Agent {
    /// The lines of a page with the artifacts they tell of, newest first, and whether there are more. What was not read
    /// yet is an empty error.
    pub(super) fn page(&self, before: Option<u64>, limit: usize) -> (Vec<(Row, ObjectId)>, bool) {
        let end = before.map_or(Bound::Unbounded, Bound::Excluded);
        let line = |(version, id): (&u64, &ObjectId)| {
            let told = self.rows.get(version).filter(|(read, _)| read == id).map(|(_, told)| told.clone());
            let standing = self.standings.get(version).cloned();
            (Row { version: *version, standing, recorded: None, told: told.ok_or_else(String::new) }, *id)
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

/// Every release's name, from the commits that recorded them.
fn names(head: Option<ObjectId>, source: &Source) -> Result<Names, Fault> {
    let mut names = Names::default();
    let mut seen: HashSet<ObjectId> = head.into_iter().collect();
    let mut next: Vec<ObjectId> = head.into_iter().collect();
    while let Some(commit) = next.pop() {
        let (parents, about) = source.commit(commit)?;
        if let Some(about) = about
            && let Some(release) = about.release
        {
            // Should two commits claim one name, the older counts, and it is met later.
            names.insert(release, Place { agent: about.agent, version: about.version, commit });
        }
        next.extend(parents.into_iter().filter(|parent| seen.insert(*parent)));
    }
    Ok(names)
}
