//! What releases say of themselves, in a file beside the objects: which commit recorded a release, under which name, and
//! what its artifact tells in a list. All of it is in the repository too, spread over as many commits and files as there
//! are releases; nobody has to walk through these to show a page, nor to know a name again. The file is never needed:
//! it is neither synced nor believed further than its lines are whole, and what it lacks is read from the commits.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flate2::Crc;
use gix::ObjectId;

use super::source::Source;
use super::view::{Place, Told};
use super::{Fault, disk};

/// The file's name in the repository.
pub(super) const FILE: &str = "slipway-releases";
/// What stands for nothing.
const NONE: &str = "-";
/// Lines that lie so close, a line, are read together.
const CLOSE: u64 = 2048;

/// One line: a release as it was recorded, what its artifact tells, or how far the commits were looked at.
#[derive(Default)]
struct Line<'a> {
    commit: Option<&'a str>,
    agent: &'a str,
    version: u64,
    blob: Option<&'a str>,
    name: Option<&'a str>,
    told: Option<&'a str>,
}

/// A commit that recorded a release, and what is known of that.
pub(super) struct Entry<'a> {
    pub name: &'a str,
    pub place: &'a Place,
    pub told: Option<(ObjectId, &'a Told)>,
}

/// Where a line stands.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: u64,
    length: u32,
}

/// By number of the line, where a version was recorded and where it tells of itself.
#[derive(Debug, Clone, Copy)]
struct Lines {
    version: u64,
    recorded: Option<u32>,
    told: Option<u32>,
}

/// What is known of one version.
pub(super) struct Known {
    pub recorded: Option<(String, ObjectId)>,
    pub told: Option<(ObjectId, Told)>,
}

pub(super) struct Register {
    path: PathBuf,
    file: Option<File>,
    /// How much of it is in the file; the rest could not be written yet.
    written: u64,
    rest: Vec<u8>,
    spans: Vec<Span>,
    hasher: RandomState,
    names: HashMap<u64, u32>,
    agents: HashMap<String, Vec<Lines>>,
    /// Every release that this commit leads to is known.
    covers: Option<ObjectId>,
}

impl Register {
    /// What the repository's file knows.
    pub(super) fn open(repository: &Path) -> Self {
        let path = repository.join(FILE);
        let mut register = Self::empty(path);
        if let Err(error) = register.load() {
            tracing::warn!(file = %register.path.display(), "what is known of releases is read from their commits: {error}");
            register = Self::empty(register.path);
        }
        register
    }

    fn empty(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            written: 0,
            rest: Vec::new(),
            spans: Vec::new(),
            hasher: RandomState::new(),
            names: HashMap::new(),
            agents: HashMap::new(),
            covers: None,
        }
    }

    fn load(&mut self) -> io::Result<()> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.path)?;
        let mut reader = BufReader::with_capacity(1 << 18, &file);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let length = reader.read_until(b'\n', &mut bytes)?;
            let Some(line) = whole(&bytes) else { break };
            self.take(&line, length);
        }
        drop(reader);
        // What a killed process has left of a line is in the way of the next.
        file.set_len(self.end())?;
        (self.written, self.file) = (self.end(), Some(file));
        Ok(())
    }

    fn end(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.at + u64::from(span.length))
    }

    /// Takes in a line of that length, the last.
    fn take(&mut self, line: &Line, length: usize) {
        let number = u32::try_from(self.spans.len()).unwrap_or(u32::MAX);
        self.spans.push(Span { at: self.end(), length: u32::try_from(length).unwrap_or(u32::MAX) });
        if let Some(commit) = line.commit.and_then(|commit| ObjectId::from_hex(commit.as_bytes()).ok()) {
            self.covers = Some(commit);
        }
        if line.version == 0 {
            return;
        }
        if !self.agents.contains_key(line.agent) {
            self.agents.insert(line.agent.to_owned(), Vec::with_capacity(1));
        }
        let versions = self.agents.entry(line.agent.to_owned()).or_default();
        let at = versions.binary_search_by_key(&line.version, |lines| lines.version).unwrap_or_else(|at| {
            versions.insert(at, Lines { version: line.version, recorded: None, told: None });
            at
        });
        if let Some(name) = line.name {
            versions[at].recorded = Some(number);
            // Should two commits claim one name, the older counts.
            self.names.entry(self.hasher.hash_one(name)).or_insert(number);
        }
        if line.told.is_some() {
            versions[at].told = Some(number);
        }
    }

    /// Looks at what came since, up to the commit.
    pub(super) fn catch_up(&mut self, head: Option<ObjectId>, source: &Source) -> Result<(), Fault> {
        let Some(head) = head.filter(|head| Some(*head) != self.covers) else { return Ok(()) };
        let found = if let Some(found) = self.since(head, source)? {
            found
        } else {
            // Another history, or one that was joined from several.
            let file = self.file.take();
            *self = Self::empty(std::mem::take(&mut self.path));
            self.file = file.filter(|file| file.set_len(0).is_ok());
            everything(head, source)?
        };
        for (name, place) in found.iter().rev() {
            self.push(&Entry { name, place, told: None });
        }
        self.cover(head);
        self.flush();
        Ok(())
    }

    /// Releases that were recorded since the commit that all is known of, the newest first. None if the way does not lead
    /// there, or not there alone.
    fn since(&self, head: ObjectId, source: &Source) -> Result<Option<Vec<(String, Place)>>, Fault> {
        let Some(covers) = self.covers else { return Ok(None) };
        let (mut found, mut next) = (Vec::new(), head);
        while next != covers {
            let (parents, about) = source.commit(next)?;
            let [parent] = parents.as_slice() else { return Ok(None) };
            found.extend(recorded(next, about));
            next = *parent;
        }
        Ok(Some(found))
    }

    /// Carries it on to a commit of ours, and what was recorded on the way. Nothing is taken if it is not known from where.
    pub(super) fn advance<'a>(&mut self, from: Option<ObjectId>, to: ObjectId, entries: impl Iterator<Item = Entry<'a>>) {
        if self.covers == from {
            for entry in entries {
                self.push(&entry);
            }
            self.cover(to);
            self.flush();
        }
    }

    /// Remembers what artifacts told that were read.
    pub(super) fn learn<'a>(&mut self, agent: &str, told: impl Iterator<Item = (u64, ObjectId, &'a Told)>) {
        for (version, blob, told) in told {
            let (blob, told) = (blob.to_string(), json(told));
            self.write(&Line { agent, version, blob: Some(&blob), told: told.as_deref(), ..Line::default() });
        }
        self.flush();
    }

    fn push(&mut self, entry: &Entry) {
        let place = entry.place;
        let (commit, blob) = (place.commit.to_string(), entry.told.map(|(blob, _)| blob.to_string()));
        let told = entry.told.and_then(|(_, told)| json(told));
        self.write(&Line {
            commit: Some(&commit),
            agent: &place.agent,
            version: place.version,
            blob: blob.as_deref(),
            name: Some(entry.name),
            told: told.as_deref(),
        });
    }

    /// Notes that all is known up to the commit.
    fn cover(&mut self, commit: ObjectId) {
        if self.covers != Some(commit) {
            let commit = commit.to_string();
            self.write(&Line { commit: Some(&commit), agent: NONE, ..Line::default() });
        }
    }

    fn write(&mut self, line: &Line) {
        let bytes = line.bytes();
        self.rest.extend_from_slice(&bytes);
        self.take(line, bytes.len());
    }

    /// What cannot be written now is kept, and written with what comes next.
    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if disk::write_at(file, &self.rest, self.written).is_ok() {
            self.written += self.rest.len() as u64;
            self.rest = Vec::new();
        }
    }

    /// The bytes of lines that lie between two places.
    fn read(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        let in_file = usize::try_from(self.written.clamp(from, to) - from).map_err(io::Error::other)?;
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes[..in_file], from)?;
        }
        let begin = usize::try_from(from.max(self.written) - self.written).map_err(io::Error::other)?;
        let rest = bytes.len() - in_file;
        bytes[in_file..].copy_from_slice(&self.rest[begin..begin + rest]);
        Ok(bytes)
    }

    /// Where the release of this name was recorded.
    pub(super) fn named(&self, name: &str) -> Result<Option<Place>, Fault> {
        let Some(number) = self.names.get(&self.hasher.hash_one(name)) else { return Ok(None) };
        let span = self.spans[*number as usize];
        let bytes = self.read(span.at, span.at + u64::from(span.length)).map_err(|error| Fault::disk("read", &self.path, error))?;
        let line = whole(&bytes).ok_or_else(|| Fault::disk("read", &self.path, io::ErrorKind::InvalidData.into()))?;
        let commit = line.commit.and_then(|commit| ObjectId::from_hex(commit.as_bytes()).ok());
        let place = commit.map(|commit| Place { agent: line.agent.to_owned(), version: line.version, commit });
        Ok(place.filter(|_| line.name == Some(name)))
    }

    /// What is known of these versions, in their order.
    pub(super) fn known(&self, agent: &str, versions: &[u64]) -> Vec<Known> {
        let lines = self.agents.get(agent).map(Vec::as_slice).unwrap_or_default();
        let found: Vec<Option<Lines>> =
            versions.iter().map(|version| Some(lines[lines.binary_search_by_key(version, |lines| lines.version).ok()?])).collect();
        let wanted =
            || found.iter().flatten().flat_map(|lines| [lines.recorded, lines.told]).flatten().map(|number| self.spans[number as usize]);
        let from = wanted().map(|span| span.at).min().unwrap_or(0);
        let to = wanted().map(|span| span.at + u64::from(span.length)).max().unwrap_or(0);
        let close = (to - from < CLOSE * versions.len() as u64).then(|| self.read(from, to).ok()).flatten();
        let bytes = |number: u32| {
            let span = self.spans[number as usize];
            let Some(bytes) = &close else {
                return self.read(span.at, span.at + u64::from(span.length)).ok().map(Cow::Owned);
            };
            let at = usize::try_from(span.at - from).ok()?;
            bytes.get(at..at + span.length as usize).map(Cow::Borrowed)
        };
        let id = |hex: &str| ObjectId::from_hex(hex.as_bytes()).ok();
        let recorded = |line: &Line| Some((line.name?.to_owned(), id(line.commit?)?));
        let told = |line: &Line| Some((id(line.blob?)?, serde_json::from_str(line.told?).ok()?));
        let known = |lines: Option<Lines>| {
            let first = lines.and_then(|lines| bytes(lines.recorded?));
            let line = first.as_deref().and_then(whole);
            // Nearly always one line says both.
            let second = lines.filter(|lines| lines.told != lines.recorded).and_then(|lines| bytes(lines.told?));
            let other = second.as_deref().and_then(whole);
            Known { recorded: line.as_ref().and_then(recorded), told: other.as_ref().or(line.as_ref()).and_then(told) }
        };
        found.into_iter().map(known).collect()
    }
}

impl Line<'_> {
    fn bytes(&self) -> Vec<u8> {
        let given = |text: Option<&str>| text.unwrap_or(NONE).to_owned();
        let (commit, blob, name, told) = (given(self.commit), given(self.blob), given(self.name), given(self.told));
        let text = format!("{commit} {} {} {blob} {name} {told}", self.agent, self.version);
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        format!("{:08x} {text}\n", crc.sum()).into_bytes()
    }
}

/// A line, if it is as it was written.
fn whole(bytes: &[u8]) -> Option<Line<'_>> {
    let text = std::str::from_utf8(bytes.strip_suffix(b"\n")?).ok()?;
    let (sum, text) = text.split_once(' ')?;
    let mut crc = Crc::new();
    crc.update(text.as_bytes());
    if u32::from_str_radix(sum, 16).ok()? != crc.sum() {
        return None;
    }
    let mut parts = text.splitn(6, ' ');
    let mut next = || parts.next();
    let given = |part: &str| part != NONE;
    let (commit, agent, version, blob, name, told) = (next()?, next()?, next()?, next()?, next()?, next()?);
    Some(Line {
        commit: Some(commit).filter(|part| given(part)),
        agent,
        version: version.parse().ok()?,
        blob: Some(blob).filter(|part| given(part)),
        name: Some(name).filter(|part| given(part)),
        told: Some(told).filter(|part| given(part)),
    })
}

fn json(told: &Told) -> Option<String> {
    serde_json::to_string(told).ok()
}

fn recorded(commit: ObjectId, about: Option<super::message::About>) -> Option<(String, Place)> {
    let about = about?;
    Some((about.release?, Place { agent: about.agent, version: about.version, commit }))
}

/// All releases that were recorded, the newest first.
fn everything(head: ObjectId, source: &Source) -> Result<Vec<(String, Place)>, Fault> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([head]);
    let mut next = vec![head];
    while let Some(commit) = next.pop() {
        let (parents, about) = source.commit(commit)?;
        found.extend(recorded(commit, about));
        next.extend(parents.into_iter().filter(|parent| seen.insert(*parent)));
    }
    Ok(found)
}
