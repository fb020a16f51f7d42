//! Release index: a file beside the objects with a line for each release, which has its name, commit and summary. The
//! repository has all of it too, spread over as many commits and blobs as there are releases. The file is a cache: it is
//! not synced, damaged lines are dropped, and what is missing is read from the commits.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, BufReader};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use flate2::Crc;
use gix::ObjectId;

use super::cache::{Location, ReleaseSummary};
use super::objects::ObjectReader;
use super::{HistoryFault, disk};

/// The file's name in the repository.
pub(super) const FILE: &str = "slipway-releases";
/// An absent field.
const NONE: &str = "-";
/// Lines of a page are read at once if the span that holds them has at most this many bytes for each.
const MAX_SPAN_PER_LINE: u64 = 2048;

/// A line: a recorded release, the summary of an artifact, or the commit up to which the index is complete.
#[derive(Default)]
struct Line<'a> {
    commit: Option<&'a str>,
    agent: &'a str,
    version: u64,
    blob: Option<&'a str>,
    name: Option<&'a str>,
    summary: Option<&'a str>,
}

/// A recorded release.
pub(super) struct Entry<'a> {
    pub name: &'a str,
    pub location: &'a Location,
    /// With the artifact's blob.
    pub summary: Option<(ObjectId, &'a ReleaseSummary)>,
}

/// Position of a line in the file.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: u64,
    length: u32,
}

/// Numbers of the lines of one version.
#[derive(Debug, Clone, Copy)]
struct VersionLines {
    version: u64,
    recorded: Option<u32>,
    summary: Option<u32>,
}

/// What the index has of one version.
pub(super) struct IndexedVersion {
    pub recorded: Option<(String, ObjectId)>,
    pub summary: Option<(ObjectId, ReleaseSummary)>,
}

pub(super) struct ReleaseIndex {
    path: PathBuf,
    file: Option<File>,
    /// Bytes that are in the file.
    written: u64,
    /// Lines that could not be written yet.
    unwritten: Vec<u8>,
    spans: Vec<Span>,
    hasher: RandomState,
    /// Number of the line by the hash of the release's name.
    names: HashMap<u64, u32>,
    /// By agent, in order of versions.
    agents: HashMap<String, Vec<VersionLines>>,
    /// The commit up to which the index is complete.
    covers: Option<ObjectId>,
}

impl ReleaseIndex {
    /// Reads the file of a repository.
    pub(super) fn open(repository: &Path) -> Self {
        let path = repository.join(FILE);
        let mut index = Self::empty(path);
        if let Err(error) = index.load() {
            tracing::warn!(file = %index.path.display(), "the release index is unreadable and is built again from the commits: {error}");
            index = Self::empty(index.path);
        }
        index
    }

    fn empty(path: PathBuf) -> Self {
        Self {
            path,
            file: None,
            written: 0,
            unwritten: Vec::new(),
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
            let Some(line) = parse(&bytes) else { break };
            self.add(&line, length);
        }
        drop(reader);
        // Cuts off a line that a killed process did not finish.
        file.set_len(self.end())?;
        (self.written, self.file) = (self.end(), Some(file));
        Ok(())
    }

    fn end(&self) -> u64 {
        self.spans.last().map_or(0, |span| span.at + u64::from(span.length))
    }

    /// Adds the last line, which has this length.
    fn add(&mut self, line: &Line, length: usize) {
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
            versions.insert(at, VersionLines { version: line.version, recorded: None, summary: None });
            at
        });
        if let Some(name) = line.name {
            versions[at].recorded = Some(number);
            // Of two commits with one name the older counts.
            self.names.entry(self.hasher.hash_one(name)).or_insert(number);
        }
        if line.summary.is_some() {
            versions[at].summary = Some(number);
        }
    }

    /// Adds the releases of newer commits, up to this one.
    pub(super) fn catch_up(&mut self, head: Option<ObjectId>, objects: &ObjectReader) -> Result<(), HistoryFault> {
        let Some(head) = head.filter(|head| Some(*head) != self.covers) else { return Ok(()) };
        let found = if let Some(found) = self.releases_since(head, objects)? {
            found
        } else {
            // The branch was replaced or has merges.
            let file = self.file.take();
            *self = Self::empty(std::mem::take(&mut self.path));
            self.file = file.filter(|file| file.set_len(0).is_ok());
            all_releases(head, objects)?
        };
        for (name, location) in found.iter().rev() {
            self.push(&Entry { name, location, summary: None });
        }
        self.set_covered(head);
        self.flush();
        Ok(())
    }

    /// Releases since the commit up to which the index is complete, newest first. None if it is no linear ancestor.
    fn releases_since(&self, head: ObjectId, objects: &ObjectReader) -> Result<Option<Vec<(String, Location)>>, HistoryFault> {
        let Some(covers) = self.covers else { return Ok(None) };
        let (mut found, mut next) = (Vec::new(), head);
        while next != covers {
            let (parents, about) = objects.commit(next)?;
            let [parent] = parents.as_slice() else { return Ok(None) };
            found.extend(recorded(next, about));
            next = *parent;
        }
        Ok(Some(found))
    }

    /// Adds releases that were committed here, if the index is complete up to `from`.
    pub(super) fn advance<'a>(&mut self, from: Option<ObjectId>, to: ObjectId, entries: impl Iterator<Item = Entry<'a>>) {
        if self.covers == from {
            for entry in entries {
                self.push(&entry);
            }
            self.set_covered(to);
            self.flush();
        }
    }

    /// Adds summaries that were read from artifacts.
    pub(super) fn add_summaries<'a>(&mut self, agent: &str, summaries: impl Iterator<Item = (u64, ObjectId, &'a ReleaseSummary)>) {
        for (version, blob, summary) in summaries {
            let (blob, summary) = (blob.to_string(), json(summary));
            self.write(&Line { agent, version, blob: Some(&blob), summary: summary.as_deref(), ..Line::default() });
        }
        self.flush();
    }

    fn push(&mut self, entry: &Entry) {
        let location = entry.location;
        let (commit, blob) = (location.commit.to_string(), entry.summary.map(|(blob, _)| blob.to_string()));
        let summary = entry.summary.and_then(|(_, summary)| json(summary));
        self.write(&Line {
            commit: Some(&commit),
            agent: &location.agent,
            version: location.version,
            blob: blob.as_deref(),
            name: Some(entry.name),
            summary: summary.as_deref(),
        });
    }

    /// Notes the commit up to which the index is complete.
    fn set_covered(&mut self, commit: ObjectId) {
        if self.covers != Some(commit) {
            let commit = commit.to_string();
            self.write(&Line { commit: Some(&commit), agent: NONE, ..Line::default() });
        }
    }

    fn write(&mut self, line: &Line) {
        let bytes = line.bytes();
        self.unwritten.extend_from_slice(&bytes);
        self.add(line, bytes.len());
    }

    /// Lines that cannot be written now are written with the next.
    fn flush(&mut self) {
        let Some(file) = &mut self.file else { return };
        if disk::write_at(file, &self.unwritten, self.written).is_ok() {
            self.written += self.unwritten.len() as u64;
            self.unwritten = Vec::new();
        }
    }

    /// The bytes of lines that lie between two locations.
    fn read(&self, from: u64, to: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        let in_file = usize::try_from(self.written.clamp(from, to) - from).map_err(io::Error::other)?;
        if let Some(file) = &self.file {
            file.read_exact_at(&mut bytes[..in_file], from)?;
        }
        let begin = usize::try_from(from.max(self.written) - self.written).map_err(io::Error::other)?;
        let rest = bytes.len() - in_file;
        bytes[in_file..].copy_from_slice(&self.unwritten[begin..begin + rest]);
        Ok(bytes)
    }

    /// The location of the release with this name.
    pub(super) fn named(&self, name: &str) -> Result<Option<Location>, HistoryFault> {
        let Some(number) = self.names.get(&self.hasher.hash_one(name)) else { return Ok(None) };
        let span = self.spans[*number as usize];
        let bytes = self.read(span.at, span.at + u64::from(span.length)).map_err(|error| HistoryFault::disk("read", &self.path, error))?;
        let line = parse(&bytes).ok_or_else(|| HistoryFault::disk("read", &self.path, io::ErrorKind::InvalidData.into()))?;
        let commit = line.commit.and_then(|commit| ObjectId::from_hex(commit.as_bytes()).ok());
        let location = commit.map(|commit| Location { agent: line.agent.to_owned(), version: line.version, commit });
        Ok(location.filter(|_| line.name == Some(name)))
    }

    /// What the index has of these versions, in their order.
    pub(super) fn versions(&self, agent: &str, versions: &[u64]) -> Vec<IndexedVersion> {
        let lines = self.agents.get(agent).map(Vec::as_slice).unwrap_or_default();
        let found: Vec<Option<VersionLines>> =
            versions.iter().map(|version| Some(lines[lines.binary_search_by_key(version, |lines| lines.version).ok()?])).collect();
        let wanted =
            || found.iter().flatten().flat_map(|lines| [lines.recorded, lines.summary]).flatten().map(|number| self.spans[number as usize]);
        let from = wanted().map(|span| span.at).min().unwrap_or(0);
        let to = wanted().map(|span| span.at + u64::from(span.length)).max().unwrap_or(0);
        let close = (to - from < MAX_SPAN_PER_LINE * versions.len() as u64).then(|| self.read(from, to).ok()).flatten();
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
        let summary = |line: &Line| Some((id(line.blob?)?, serde_json::from_str(line.summary?).ok()?));
        let known = |lines: Option<VersionLines>| {
            let first = lines.and_then(|lines| bytes(lines.recorded?));
            let line = first.as_deref().and_then(parse);
            // Nearly always one line has both.
            let second = lines.filter(|lines| lines.summary != lines.recorded).and_then(|lines| bytes(lines.summary?));
            let other = second.as_deref().and_then(parse);
            IndexedVersion { recorded: line.as_ref().and_then(recorded), summary: other.as_ref().or(line.as_ref()).and_then(summary) }
        };
        found.into_iter().map(known).collect()
    }
}

impl Line<'_> {
    fn bytes(&self) -> Vec<u8> {
        let given = |text: Option<&str>| text.unwrap_or(NONE).to_owned();
        let (commit, blob, name, summary) = (given(self.commit), given(self.blob), given(self.name), given(self.summary));
        let text = format!("{commit} {} {} {blob} {name} {summary}", self.agent, self.version);
        let mut crc = Crc::new();
        crc.update(text.as_bytes());
        format!("{:08x} {text}\n", crc.sum()).into_bytes()
    }
}

/// A line, if its checksum is right.
fn parse(bytes: &[u8]) -> Option<Line<'_>> {
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
    let (commit, agent, version, blob, name, summary) = (next()?, next()?, next()?, next()?, next()?, next()?);
    Some(Line {
        commit: Some(commit).filter(|part| given(part)),
        agent,
        version: version.parse().ok()?,
        blob: Some(blob).filter(|part| given(part)),
        name: Some(name).filter(|part| given(part)),
        summary: Some(summary).filter(|part| given(part)),
    })
}

fn json(summary: &ReleaseSummary) -> Option<String> {
    serde_json::to_string(summary).ok()
}

fn recorded(commit: ObjectId, about: Option<super::message::About>) -> Option<(String, Location)> {
    let about = about?;
    Some((about.release?, Location { agent: about.agent, version: about.version, commit }))
}

/// All releases, newest first.
fn all_releases(head: ObjectId, objects: &ObjectReader) -> Result<Vec<(String, Location)>, HistoryFault> {
    let mut found = Vec::new();
    let mut seen = HashSet::from([head]);
    let mut next = vec![head];
    while let Some(commit) = next.pop() {
        let (parents, about) = objects.commit(commit)?;
        found.extend(recorded(commit, about));
        next.extend(parents.into_iter().filter(|parent| seen.insert(*parent)));
    }
    Ok(found)
}
