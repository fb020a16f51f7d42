//! The changes that the history knows, and what each does to the folders of a repository.

use gix::ObjectId;
use gix::objs::Kind;
use jiff::Timestamp;
use slipway_api::names::AgentName;
use slipway_release::{Artifact, Current, LONGEST, Status, Tombstone};

use super::message::About;
use super::pack::Batch;
use super::source::Source;
use super::standings::{REJECTED_BEFORE, Sheet, Standing};
use super::tip::Folder;
use super::view::{self, Effect, Told};
use super::writer::Tip;
use super::{AGENTS, Author, CURRENT, DEPLOY, Fault, KUSTOMIZATION, RELEASES, STATUS, lanes};

/// One change of one agent's history: one commit.
#[derive(Debug)]
pub(super) struct Change {
    pub namespace: String,
    pub agent: String,
    pub author: Author,
    pub when: Timestamp,
    /// What the commit says.
    pub text: String,
    pub deed: Deed,
}

#[derive(Debug)]
pub(super) enum Deed {
    /// A new release; active at once if its artifact says so.
    Record { name: String, artifact: Box<Artifact>, manifest: Option<String> },
    /// A release that was recorded becomes the active one.
    Activate { version: u64, manifest: Option<String>, reason: Option<String> },
    /// A release stands elsewhere now.
    Mark { version: u64, status: Status, reason: Option<String> },
    /// The agent is deleted.
    Bury,
}

/// What a change came to.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    /// 0 when it is about no version.
    pub version: u64,
    /// The commit that has it. None in a repository without commits.
    pub commit: Option<ObjectId>,
    /// Whether there is a commit that was not there before.
    pub is_new: bool,
}

impl Change {
    pub(super) fn release(&self) -> Option<&str> {
        match &self.deed {
            Deed::Record { name, .. } => Some(name),
            _ => None,
        }
    }

    pub(super) fn about(&self, version: u64) -> About {
        About { agent: self.agent.clone(), version, release: self.release().map(str::to_owned) }
    }
}

impl Tip {
    /// Makes the change in memory. No effect means that all is so already.
    pub(super) fn apply(&mut self, change: &Change, source: &Source, batch: &mut Batch) -> Result<(Outcome, Option<Effect>), Fault> {
        // What can be refused is refused before anything is changed.
        self.is_torn = false;
        let mut work = Work { tip: self, change, source, batch, effect: Effect { agent: change.agent.clone(), ..Effect::default() } };
        let version = match &change.deed {
            Deed::Record { artifact, manifest, .. } => Some(work.record(artifact, manifest.as_deref())?),
            Deed::Activate { version, manifest, reason } => {
                work.activate(*version, manifest.as_deref(), reason.as_deref())?.then_some(*version)
            }
            Deed::Mark { version, status, reason } => work.mark(*version, *status, reason.as_deref())?.then_some(*version),
            Deed::Bury => work.bury()?.then_some(0),
        };
        let effect = work.effect;
        self.is_torn = false;
        Ok(match (version, &change.deed) {
            (Some(version), _) => (Outcome { version, commit: None, is_new: true }, Some(effect)),
            (None, Deed::Activate { version, .. } | Deed::Mark { version, .. }) => {
                (Outcome { version: *version, commit: None, is_new: false }, None)
            }
            (None, _) => (Outcome { version: 0, commit: None, is_new: false }, None),
        })
    }
}

struct Work<'a> {
    tip: &'a mut Tip,
    change: &'a Change,
    source: &'a Source,
    batch: &'a mut Batch,
    effect: Effect,
}

impl Work<'_> {
    fn folder(&mut self) -> Result<&mut Folder, Fault> {
        self.tip.root.folder(AGENTS, self.source)?.folder(&self.change.agent, self.source)
    }

    /// Where the agent's versions stand.
    fn sheet(&mut self) -> Result<&mut Sheet, Fault> {
        let agent = &self.change.agent;
        if !self.tip.sheets.contains_key(agent) {
            let text = match self.folder()?.file(STATUS)? {
                Some(id) => self.source.text(id, STATUS)?,
                None => String::new(),
            };
            self.tip.sheets.insert(agent.clone(), Sheet::new(text)?);
        }
        // Just put there if it was not.
        Ok(self.tip.sheets.entry(agent.clone()).or_default())
    }

    fn record(&mut self, draft: &Artifact, manifest: Option<&str>) -> Result<u64, Fault> {
        fits(manifest)?;
        let highest = self.highest()?;
        let mut artifact = draft.clone();
        artifact.metadata.version = highest + 1;
        artifact.metadata.previous = highest;
        let artifact = artifact.sealed().map_err(|fault| Fault::Refused(format!("the artifact: {fault}")))?;
        let version = artifact.metadata.version;
        let status = artifact.metadata.status;
        self.tip.is_torn = true;
        let blob = self.batch.text(artifact.to_yaml().into_bytes())?;
        let source = self.source;
        self.folder()?.folder(RELEASES, source)?.put(&file(version), blob)?;
        self.tip.highest.insert(self.change.agent.clone(), version);
        self.effect.version = Some((version, blob, Told::of(&artifact)));
        if status == Status::Active {
            self.make_active(version, blob, manifest, None)?;
        } else {
            // One waits at a time: the newest.
            let mut changes = self.superseded(Status::PendingEval, version)?;
            changes.push((version, status, None));
            self.stand(&changes)?;
        }
        Ok(version)
    }

    /// The highest version there ever was, 0 if there is none.
    fn highest(&mut self) -> Result<u64, Fault> {
        if let Some(highest) = self.tip.highest.get(&self.change.agent) {
            return Ok(*highest);
        }
        let source = self.source;
        // Files may have been removed by hand; what was said of them stays.
        let mut highest = self.sheet()?.highest();
        let folder = self.folder()?;
        for entry in folder.folder(RELEASES, source)?.entries() {
            highest = highest.max(view::version(entry?.name).unwrap_or(0));
        }
        self.tip.highest.insert(self.change.agent.clone(), highest);
        Ok(highest)
    }

    fn activate(&mut self, version: u64, manifest: Option<&str>, reason: Option<&str>) -> Result<bool, Fault> {
        fits(manifest)?;
        let source = self.source;
        let agent = self.change.agent.clone();
        let folder = self.folder()?;
        let Some(recorded) = folder.folder(RELEASES, source)?.file(&file(version))? else {
            return Err(missing(&agent, version));
        };
        let current = folder.file(CURRENT)?;
        let standing = self.sheet()?.one(version)?;
        if standing.as_ref().is_some_and(Standing::was_rejected) {
            return Err(Fault::Refused(format!("version {version} of agent {agent} was rejected; deploy one that passed")));
        }
        let artifact = artifact(source, recorded, &self.change.namespace, &agent, version)?;
        let active = artifact.marked(Status::Active).map_err(|fault| Fault::Refused(format!("the artifact: {fault}")))?;
        let bytes = active.to_yaml().into_bytes();
        let blob = lanes::id((Kind::Blob, &bytes))?;
        // What is asked for again later is written down again: who asked, and when.
        let when = self.change.when;
        let is_so = |standing: Standing| standing.status == Status::Active && standing.reason.as_deref() == reason && standing.when >= when;
        if current == Some(blob) && standing.is_some_and(is_so) && self.deploys(manifest)? {
            return Ok(false);
        }
        self.tip.is_torn = true;
        if blob != recorded {
            self.batch.text(bytes)?;
        }
        self.make_active(version, blob, manifest, reason)?;
        Ok(true)
    }

    /// Whether the manifest is the one that stands there.
    fn deploys(&mut self, manifest: Option<&str>) -> Result<bool, Fault> {
        let Some(manifest) = manifest else { return Ok(true) };
        let blob = lanes::id((Kind::Blob, manifest.as_bytes()))?;
        let found = self.tip.root.folder(DEPLOY, self.source)?.file(&format!("{}.yaml", self.change.agent))?;
        Ok(found == Some(blob))
    }

    fn make_active(&mut self, version: u64, blob: ObjectId, manifest: Option<&str>, reason: Option<&str>) -> Result<(), Fault> {
        let source = self.source;
        self.folder()?.put(CURRENT, blob)?;
        let mut changes: Vec<(u64, Status, Option<String>)> =
            self.sheet()?.all(Status::Active).filter(|active| *active != version).map(|active| (active, Status::Archived, None)).collect();
        changes.extend(self.superseded(Status::PendingEval, version)?);
        changes.push((version, Status::Active, reason.map(str::to_owned)));
        self.stand(&changes)?;
        self.effect.current = Some(blob);
        let Some(manifest) = manifest else { return Ok(()) };
        let name = format!("{}.yaml", self.change.agent);
        let blob = self.batch.text(manifest.as_bytes().to_vec())?;
        let deploy = self.tip.root.folder(DEPLOY, source)?;
        let is_new = deploy.file(&name)?.is_none();
        deploy.put(&name, blob)?;
        if is_new { self.kustomize() } else { Ok(()) }
    }

    fn mark(&mut self, version: u64, status: Status, reason: Option<&str>) -> Result<bool, Fault> {
        let (agent, source) = (self.change.agent.clone(), self.source);
        match status {
            Status::Active => return Err(Fault::Refused(format!("version {version} of agent {agent} becomes active by being activated"))),
            Status::PendingEval => {
                return Err(Fault::Refused(format!(
                    "version {version} of agent {agent} waits for an evaluation only from when it is recorded on; record it anew"
                )));
            }
            Status::Rejected | Status::Archived | Status::Deleted | Status::Skipped => {}
        }
        let folder = self.folder()?;
        if folder.folder(RELEASES, source)?.file(&file(version))?.is_none() {
            return Err(missing(&agent, version));
        }
        let before = self.sheet()?.one(version)?;
        if before.is_some_and(|before| before.status == status && before.reason.as_deref() == reason) {
            return Ok(false);
        }
        self.tip.is_torn = true;
        self.stand(&[(version, status, reason.map(str::to_owned))])?;
        Ok(true)
    }

    fn bury(&mut self) -> Result<bool, Fault> {
        let (agent, source) = (self.change.agent.clone(), self.source);
        let folder = self.folder()?;
        let changelog = match folder.file(CURRENT)? {
            // What cannot be read must not keep an agent from being deleted.
            Some(id) => match source.text(id, CURRENT).map(|text| Current::from_yaml(&text)) {
                Ok(Ok(Current::Gone(_))) => return Ok(false),
                Ok(Ok(Current::Release(artifact))) => artifact.metadata.changelog,
                Ok(Err(_)) | Err(_) => String::new(),
            },
            None if folder.folder(RELEASES, source)?.entries().next().is_none() => return Ok(false),
            None => String::new(),
        };
        let sheet = self.sheet()?;
        let rejected = |standing: &Standing| {
            let why = standing.reason.as_deref().unwrap_or_default();
            (standing.status == Status::Rejected).then(|| format!("{REJECTED_BEFORE}{why}"))
        };
        let standings = sheet.standings()?;
        let standing = standings.iter().filter(|(_, standing)| standing.status != Status::Deleted);
        let ended: Vec<_> = standing.map(|(version, standing)| (*version, Status::Deleted, rejected(standing))).collect();
        self.tip.is_torn = true;
        let tombstone = Tombstone::new(&agent, &changelog, self.change.when).to_yaml();
        let blob = self.batch.text(tombstone.into_bytes())?;
        self.folder()?.put(CURRENT, blob)?;
        self.stand(&ended)?;
        self.effect.current = Some(blob);
        let deploy = self.tip.root.folder(DEPLOY, source)?;
        let name = format!("{agent}.yaml");
        if deploy.file(&name)?.is_some() {
            deploy.remove(&name)?;
            self.kustomize()?;
        }
        Ok(true)
    }

    /// Versions that stand so, and end as this one takes their place.
    fn superseded(&mut self, status: Status, by: u64) -> Result<Vec<(u64, Status, Option<String>)>, Fault> {
        let older = self.sheet()?.all(status).filter(|version| *version < by);
        Ok(older.map(|version| (version, Status::Archived, Some(format!("superseded by v{by}")))).collect())
    }

    /// Writes down where versions stand from now on.
    fn stand(&mut self, changes: &[(u64, Status, Option<String>)]) -> Result<(), Fault> {
        let when = self.change.when;
        let path = format!("/{AGENTS}/{}/{STATUS}", self.change.agent);
        let sheet = self.sheet()?;
        let mut standings = Vec::new();
        for (version, status, reason) in changes {
            let standing = Standing { status: *status, reason: reason.clone(), when };
            sheet.set(*version, &standing)?;
            standings.push((*version, standing));
        }
        let bytes = sheet.text().as_bytes().to_vec();
        let blob = self.batch.growing(Kind::Blob, bytes, &path, &[]);
        self.folder()?.put(STATUS, blob)?;
        self.effect.standings.extend(standings);
        Ok(())
    }

    /// Lists what is deployed, for those who apply the folder as a whole.
    fn kustomize(&mut self) -> Result<(), Fault> {
        let deploy = self.tip.root.folder(DEPLOY, self.source)?;
        let mut resources = Vec::new();
        for entry in deploy.entries() {
            let entry = entry?;
            let name = String::from_utf8_lossy(entry.name).into_owned();
            let path = std::path::Path::new(&name);
            if !entry.is_folder && name != KUSTOMIZATION && path.extension().is_some_and(|end| end == "yaml") {
                resources.push(name);
            }
        }
        resources.sort_unstable();
        let text = slipway_release::yaml(&serde_json::json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources
        }));
        let blob = self.batch.growing(Kind::Blob, text.into_bytes(), &format!("/{DEPLOY}/{KUSTOMIZATION}"), &[]);
        self.tip.root.folder(DEPLOY, self.source)?.put(KUSTOMIZATION, blob)
    }
}

/// Reads an artifact and believes it only if it is the one that belongs there.
pub(super) fn artifact(source: &Source, id: ObjectId, namespace: &str, agent: &str, version: u64) -> Result<Artifact, Fault> {
    let damaged = |why: &dyn std::fmt::Display| {
        Fault::damaged(format!(
            "version {version} of agent {agent} is not what was written: {why}; it is left as it is, and other versions can be read"
        ))
    };
    let text = source.text(id, &file(version)).map_err(|fault| damaged(&fault))?;
    let name = AgentName::new(agent).map_err(|error| Fault::Refused(error.to_string()))?;
    let artifact = Artifact::from_yaml(&text).and_then(|artifact| artifact.expected(&name, version)).map_err(|fault| damaged(&fault))?;
    if artifact.deployment.namespace != namespace {
        return Err(damaged(&format!("it is of namespace {}, and lies in the repository of {namespace}", artifact.deployment.namespace)));
    }
    Ok(artifact)
}

pub(super) fn file(version: u64) -> String {
    format!("v{version}.yaml")
}

pub(super) fn missing(agent: &str, version: u64) -> Fault {
    Fault::Missing(format!("agent {agent} has no version {version}"))
}

fn fits(manifest: Option<&str>) -> Result<(), Fault> {
    match manifest {
        Some(manifest) if manifest.len() > LONGEST => {
            Err(Fault::Refused(format!("the manifest has {} bytes; at most {LONGEST} are kept", manifest.len())))
        }
        _ => Ok(()),
    }
}
