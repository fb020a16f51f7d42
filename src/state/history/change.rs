//! The operations of the history, and what each changes in the files of a repository.

use std::path::Path;

use gix::ObjectId;
use gix::objs::Kind;
use jiff::Timestamp;
use slipway_api::names::AgentName;
use slipway_release::{Artifact, Current, LONGEST, Status, Tombstone};

use super::cache::{self, CommitEffect, ReleaseSummary};
use super::message::About;
use super::objects::ObjectReader;
use super::pack::{ObjectBatch, object_id};
use super::status::{REJECTED_BEFORE, SUPERSEDED, StatusFile, VersionStatus};
use super::worktree::Directory;
use super::writer::Head;
use super::{AGENTS, Author, CURRENT, DEPLOY, HistoryFault, KUSTOMIZATION, RELEASES, STATUS};

/// A change of one agent's history, which becomes one commit.
#[derive(Debug)]
pub(super) struct HistoryChange {
    pub namespace: String,
    pub agent: String,
    pub author: Author,
    pub when: Timestamp,
    /// The commit message.
    pub text: String,
    pub operation: Operation,
}

#[derive(Debug)]
pub(super) enum Operation {
    /// Adds a release, active if its artifact says so.
    Record { name: String, artifact: Box<Artifact>, manifest: Option<String> },
    /// Makes a recorded release the active one.
    Activate { version: u64, manifest: Option<String>, reason: Option<String> },
    /// Sets the status of a release.
    SetStatus { version: u64, status: Status, reason: Option<String> },
    /// Replaces the active release of a deleted agent by a tombstone.
    Tombstone,
}

/// The result of a change.
#[derive(Debug, Clone)]
pub(super) struct ChangeOutcome {
    /// 0 if the change is of no version.
    pub version: u64,
    /// The commit that has the change. None in a repository without commits.
    pub commit: Option<ObjectId>,
    /// False if the change was committed before.
    pub is_new: bool,
}

impl HistoryChange {
    pub(super) fn release(&self) -> Option<&str> {
        match &self.operation {
            Operation::Record { name, .. } => Some(name),
            _ => None,
        }
    }

    pub(super) fn about(&self, version: u64) -> About {
        About { agent: self.agent.clone(), version, release: self.release().map(str::to_owned) }
    }
}

impl Head {
    /// Makes the change in memory. Without an effect there was nothing to change.
    pub(super) fn apply(
        &mut self,
        change: &HistoryChange,
        objects: &ObjectReader,
        batch: &mut ObjectBatch,
    ) -> Result<(ChangeOutcome, Option<CommitEffect>), HistoryFault> {
        // Set once files are edited: every check comes before.
        self.is_inconsistent = false;
        let effect = CommitEffect { agent: change.agent.clone(), ..CommitEffect::default() };
        let mut edit = Edit { head: self, change, objects, batch, effect };
        let (version, is_new) = match &change.operation {
            Operation::Record { artifact, manifest, .. } => (edit.record(artifact, manifest.as_deref())?, true),
            Operation::Activate { version, manifest, reason } => {
                (*version, edit.activate(*version, manifest.as_deref(), reason.as_deref())?)
            }
            Operation::SetStatus { version, status, reason } => (*version, edit.set_status(*version, *status, reason.as_deref())?),
            Operation::Tombstone => (0, edit.tombstone()?),
        };
        let effect = edit.effect;
        self.is_inconsistent = false;
        Ok((ChangeOutcome { version, commit: None, is_new }, is_new.then_some(effect)))
    }
}

struct Edit<'a> {
    head: &'a mut Head,
    change: &'a HistoryChange,
    objects: &'a ObjectReader,
    batch: &'a mut ObjectBatch,
    effect: CommitEffect,
}

impl Edit<'_> {
    /// The directory of the agent.
    fn directory(&mut self) -> Result<&mut Directory, HistoryFault> {
        self.head.root.subdirectory(AGENTS, self.objects)?.subdirectory(&self.change.agent, self.objects)
    }

    fn status_file(&mut self) -> Result<&mut StatusFile, HistoryFault> {
        let agent = &self.change.agent;
        if !self.head.status_files.contains_key(agent) {
            let text = match self.directory()?.file(STATUS) {
                Some(id) => self.objects.text(id, STATUS)?,
                None => String::new(),
            };
            self.head.status_files.insert(agent.clone(), StatusFile::new(text)?);
        }
        // Present, or just inserted.
        Ok(self.head.status_files.entry(agent.clone()).or_default())
    }

    fn record(&mut self, draft: &Artifact, manifest: Option<&str>) -> Result<u64, HistoryFault> {
        check_size(manifest)?;
        let highest = self.highest()?;
        let mut artifact = draft.clone();
        artifact.metadata.version = highest + 1;
        artifact.metadata.previous = highest;
        let artifact = artifact.sealed().map_err(|fault| HistoryFault::Refused(format!("the artifact: {fault}")))?;
        let version = artifact.metadata.version;
        let status = artifact.metadata.status;
        self.head.is_inconsistent = true;
        let blob = self.batch.insert(Kind::Blob, artifact.to_yaml().into_bytes())?;
        let objects = self.objects;
        self.directory()?.subdirectory(RELEASES, objects)?.put(&file_name(version), blob);
        self.head.highest.insert(self.change.agent.clone(), version);
        self.effect.version = Some((version, blob, ReleaseSummary::of(&artifact)));
        if status == Status::Active {
            self.make_active(version, blob, manifest, None)?;
        } else {
            // Only the newest pending release is evaluated.
            let mut changes = self.superseded(Status::PendingEval, version)?;
            changes.push((version, status, None));
            self.write_statuses(&changes)?;
        }
        Ok(version)
    }

    /// The highest version there ever was, 0 without one.
    fn highest(&mut self) -> Result<u64, HistoryFault> {
        if let Some(highest) = self.head.highest.get(&self.change.agent) {
            return Ok(*highest);
        }
        let objects = self.objects;
        // A version whose file was removed by hand is still in the status file.
        let in_status_file = self.status_file()?.highest();
        let releases = self.directory()?.subdirectory(RELEASES, objects)?.entries().iter();
        let highest = releases.filter_map(|entry| cache::version(&entry.filename)).max().unwrap_or(0).max(in_status_file);
        self.head.highest.insert(self.change.agent.clone(), highest);
        Ok(highest)
    }

    fn activate(&mut self, version: u64, manifest: Option<&str>, reason: Option<&str>) -> Result<bool, HistoryFault> {
        check_size(manifest)?;
        let objects = self.objects;
        let agent = self.change.agent.clone();
        let directory = self.directory()?;
        let Some(recorded) = directory.subdirectory(RELEASES, objects)?.file(&file_name(version)) else {
            return Err(missing(&agent, version));
        };
        let current = directory.file(CURRENT);
        let status = self.status_file()?.get(version)?;
        if status.as_ref().is_some_and(VersionStatus::was_rejected) {
            return Err(HistoryFault::Refused(format!("version {version} of agent {agent} was rejected; deploy one that passed")));
        }
        if status.as_ref().is_some_and(VersionStatus::was_superseded) {
            return Err(HistoryFault::Refused(format!(
                "version {version} of agent {agent} was superseded before it was evaluated; apply what it says to have it evaluated"
            )));
        }
        let artifact = artifact(objects, recorded, &self.change.namespace, &agent, version)?;
        let active = artifact.marked(Status::Active).map_err(|fault| HistoryFault::Refused(format!("the artifact: {fault}")))?;
        let bytes = active.to_yaml().into_bytes();
        let blob = object_id(Kind::Blob, &bytes)?;
        // A later request for the same is recorded again, with its author and time.
        let when = self.change.when;
        let is_same = |status: VersionStatus| status.status == Status::Active && status.reason.as_deref() == reason && status.when >= when;
        if current == Some(blob) && status.is_some_and(is_same) && self.is_deployed(manifest)? {
            return Ok(false);
        }
        self.head.is_inconsistent = true;
        if blob != recorded {
            self.batch.insert(Kind::Blob, bytes)?;
        }
        self.make_active(version, blob, manifest, reason)?;
        Ok(true)
    }

    /// Whether the manifest in `deploy/` is this one.
    fn is_deployed(&mut self, manifest: Option<&str>) -> Result<bool, HistoryFault> {
        let Some(manifest) = manifest else { return Ok(true) };
        let blob = object_id(Kind::Blob, manifest.as_bytes())?;
        let found = self.head.root.subdirectory(DEPLOY, self.objects)?.file(&format!("{}.yaml", self.change.agent));
        Ok(found == Some(blob))
    }

    fn make_active(&mut self, version: u64, blob: ObjectId, manifest: Option<&str>, reason: Option<&str>) -> Result<(), HistoryFault> {
        let objects = self.objects;
        self.directory()?.put(CURRENT, blob);
        let mut changes: Vec<(u64, Status, Option<String>)> = self
            .status_file()?
            .with_status(Status::Active)
            .filter(|active| *active != version)
            .map(|active| (active, Status::Archived, None))
            .collect();
        changes.extend(self.superseded(Status::PendingEval, version)?);
        changes.push((version, Status::Active, reason.map(str::to_owned)));
        self.write_statuses(&changes)?;
        self.effect.current = Some(blob);
        let Some(manifest) = manifest else { return Ok(()) };
        let name = format!("{}.yaml", self.change.agent);
        let blob = self.batch.insert(Kind::Blob, manifest.as_bytes().to_vec())?;
        let deploy = self.head.root.subdirectory(DEPLOY, objects)?;
        let is_new = deploy.file(&name).is_none();
        deploy.put(&name, blob);
        if is_new { self.kustomize() } else { Ok(()) }
    }

    fn set_status(&mut self, version: u64, status: Status, reason: Option<&str>) -> Result<bool, HistoryFault> {
        let (agent, objects) = (self.change.agent.clone(), self.objects);
        match status {
            Status::Active => {
                return Err(HistoryFault::Refused(format!("version {version} of agent {agent} becomes active by being activated")));
            }
            Status::PendingEval => {
                return Err(HistoryFault::Refused(format!(
                    "version {version} of agent {agent} can wait for an evaluation only from its start; record it again"
                )));
            }
            Status::Rejected | Status::Archived | Status::Deleted | Status::Skipped => {}
        }
        let directory = self.directory()?;
        if directory.subdirectory(RELEASES, objects)?.file(&file_name(version)).is_none() {
            return Err(missing(&agent, version));
        }
        let before = self.status_file()?.get(version)?;
        if before.is_some_and(|before| before.status == status && before.reason.as_deref() == reason) {
            return Ok(false);
        }
        self.head.is_inconsistent = true;
        self.write_statuses(&[(version, status, reason.map(str::to_owned))])?;
        Ok(true)
    }

    fn tombstone(&mut self) -> Result<bool, HistoryFault> {
        let (agent, objects) = (self.change.agent.clone(), self.objects);
        let directory = self.directory()?;
        let changelog = match directory.file(CURRENT) {
            // A damaged file must not prevent deletion.
            Some(id) => match objects.text(id, CURRENT).map(|text| Current::from_yaml(&text)) {
                Ok(Ok(Current::Gone(_))) => return Ok(false),
                Ok(Ok(Current::Release(artifact))) => artifact.metadata.changelog,
                Ok(Err(_)) | Err(_) => String::new(),
            },
            None if directory.subdirectory(RELEASES, objects)?.entries().is_empty() => return Ok(false),
            None => String::new(),
        };
        // A name that is taken up again is no way around an evaluation.
        let reason = |status: &VersionStatus| match status.status {
            Status::Rejected => Some(format!("{REJECTED_BEFORE}{}", status.reason.as_deref().unwrap_or_default())),
            Status::PendingEval => Some(format!("{SUPERSEDED}the end of its agent")),
            _ => status.reason.clone().filter(|_| status.was_superseded()),
        };
        let statuses = self.status_file()?.all()?;
        let remaining = statuses.iter().filter(|(_, status)| status.status != Status::Deleted);
        let ended: Vec<_> = remaining.map(|(version, status)| (*version, Status::Deleted, reason(status))).collect();
        self.head.is_inconsistent = true;
        let tombstone = Tombstone::new(&agent, &changelog, self.change.when).to_yaml();
        let blob = self.batch.insert(Kind::Blob, tombstone.into_bytes())?;
        self.directory()?.put(CURRENT, blob);
        self.write_statuses(&ended)?;
        self.effect.current = Some(blob);
        let deploy = self.head.root.subdirectory(DEPLOY, objects)?;
        let name = format!("{agent}.yaml");
        if deploy.file(&name).is_some() {
            deploy.remove(&name);
            self.kustomize()?;
        }
        Ok(true)
    }

    /// Older versions with this status, archived because this version takes their place.
    fn superseded(&mut self, status: Status, by: u64) -> Result<Vec<(u64, Status, Option<String>)>, HistoryFault> {
        let older = self.status_file()?.with_status(status).filter(|version| *version < by);
        Ok(older.map(|version| (version, Status::Archived, Some(format!("{SUPERSEDED}v{by}")))).collect())
    }

    fn write_statuses(&mut self, changes: &[(u64, Status, Option<String>)]) -> Result<(), HistoryFault> {
        let when = self.change.when;
        let file = self.status_file()?;
        let mut statuses = Vec::new();
        for (version, status, reason) in changes {
            let status = VersionStatus { status: *status, reason: reason.clone(), when };
            file.set(*version, &status)?;
            statuses.push((*version, status));
        }
        let bytes = file.text().as_bytes().to_vec();
        let blob = self.batch.insert(Kind::Blob, bytes)?;
        self.directory()?.put(STATUS, blob);
        self.effect.statuses.extend(statuses);
        Ok(())
    }

    /// Lists the manifests in `deploy/` for `kubectl apply -k`.
    fn kustomize(&mut self) -> Result<(), HistoryFault> {
        let deploy = self.head.root.subdirectory(DEPLOY, self.objects)?;
        let mut resources = Vec::new();
        for entry in deploy.entries() {
            let name = entry.filename.to_string();
            if !entry.mode.is_tree() && name != KUSTOMIZATION && Path::new(&name).extension().is_some_and(|end| end == "yaml") {
                resources.push(name);
            }
        }
        resources.sort_unstable();
        let text = slipway_release::yaml(&serde_json::json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources
        }));
        let blob = self.batch.insert(Kind::Blob, text.into_bytes())?;
        deploy.put(KUSTOMIZATION, blob);
        Ok(())
    }
}

/// Reads the artifact of a version and checks that it is the one that was recorded.
pub(super) fn artifact(objects: &ObjectReader, id: ObjectId, namespace: &str, agent: &str, version: u64) -> Result<Artifact, HistoryFault> {
    let damaged = |why: &dyn std::fmt::Display| {
        HistoryFault::damaged(format!(
            "version {version} of agent {agent} is not what was written: {why}; it is left as it is, and other versions can be read"
        ))
    };
    let text = objects.text(id, &file_name(version)).map_err(|fault| damaged(&fault))?;
    let name = AgentName::new(agent).map_err(|error| HistoryFault::Refused(error.to_string()))?;
    let artifact = Artifact::from_yaml(&text).and_then(|artifact| artifact.expected(&name, version)).map_err(|fault| damaged(&fault))?;
    if artifact.deployment.namespace != namespace {
        return Err(damaged(&format!("it is of namespace {}, and lies in the repository of {namespace}", artifact.deployment.namespace)));
    }
    Ok(artifact)
}

pub(super) fn file_name(version: u64) -> String {
    format!("v{version}.yaml")
}

pub(super) fn missing(agent: &str, version: u64) -> HistoryFault {
    HistoryFault::Missing(format!("agent {agent} has no version {version}"))
}

fn check_size(manifest: Option<&str>) -> Result<(), HistoryFault> {
    match manifest {
        Some(manifest) if manifest.len() > LONGEST => {
            Err(HistoryFault::Refused(format!("the manifest has {} bytes; at most {LONGEST} are kept", manifest.len())))
        }
        _ => Ok(()),
    }
}
