//! A cluster in memory: an Agent, its history and its AgentReleases, on which steps are taken.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use slipway_api::{Agent, AgentRelease, AgentStatus, EvaluationRun, labels};
use slipway_release::{Artifact, Status};
use slipway_state::history::VersionStatus;

use crate::draft::By;
use crate::evaluated::Evaluated;
use crate::git::deployable;
use crate::history::{Active, AgentHistory, Pending, Version};
use crate::name::{Name, ReferenceKind};
use crate::note::Note;
use crate::plan::{asked, effective, next, version};
use crate::projection;
use crate::references::{ReferenceState, References, names};
use crate::run::ReleaseRun;
use crate::seen::{Patience, RequestedRelease, Seen};
use crate::shown::Shown;
use crate::step::{Step, Wait};

/// Everything that outlives a process.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) agent: Agent,
    pub(super) releases: BTreeMap<String, AgentRelease>,
    pub(super) past: AgentHistory,
    pub(super) artifacts: BTreeMap<u64, Artifact>,
    pub(super) keys: BTreeMap<String, u64>,
    pub(super) things: BTreeMap<Name, ReferenceState>,
    pub(super) image: Option<String>,
    pub(super) runs: BTreeMap<String, EvaluationRun>,
    pub(super) allow_heuristic: bool,
    pub(super) owner: Option<String>,
    pub(super) clock: i64,
    pub(super) told: Vec<String>,
    /// When a version was last asked for.
    pub(super) asked_at: Option<Timestamp>,
    /// What was told of: twice is once.
    news: Vec<(u64, Timestamp)>,
}

impl Cluster {
    pub(super) fn new(spec: &str) -> Self {
        let yaml = format!(
            "{{metadata: {{name: helper, namespace: team-a, uid: u1, generation: 1, resourceVersion: '1'}}, spec: {{name: H, framework: custom, {spec}}}}}"
        );
        Self {
            agent: serde_yaml::from_str(&yaml).unwrap(),
            releases: BTreeMap::new(),
            past: AgentHistory::default(),
            artifacts: BTreeMap::new(),
            keys: BTreeMap::new(),
            things: BTreeMap::new(),
            image: None,
            runs: BTreeMap::new(),
            allow_heuristic: false,
            owner: None,
            clock: 1_000,
            told: Vec::new(),
            asked_at: None,
            news: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_second(self.clock).unwrap()
    }

    pub(super) fn tool(&mut self, name: &str, found: Option<&str>) {
        let found = found.map_or(ReferenceState::Missing, |digest| {
            if digest == "off" { ReferenceState::Off } else { ReferenceState::Digest(digest.to_owned()) }
        });
        self.things.insert(Name::new(ReferenceKind::Tool, name), found);
    }

    /// What the integration of the agent's models stands for.
    pub(super) fn integration(&mut self, name: &str, found: Option<&str>) {
        let found = found.map_or(ReferenceState::Missing, |digest| ReferenceState::Digest(digest.to_owned()));
        self.things.insert(Name::new(ReferenceKind::Integration, name), found);
    }

    pub(super) fn edit(&mut self, patch: &Value) {
        let mut whole = serde_json::to_value(&self.agent).unwrap();
        json_patch_merge(&mut whole, patch);
        self.agent = serde_json::from_value(whole).unwrap();
        let meta = &mut self.agent.metadata;
        meta.resource_version = Some((meta.resource_version.as_ref().unwrap().parse::<u64>().unwrap() + 1).to_string());
        if patch.get("spec").is_some() {
            meta.generation = meta.generation.map(|generation| generation + 1);
        }
    }

    pub(super) fn prompt(&mut self, prompt: &str) {
        self.edit(&json!({"spec": {"systemPrompt": prompt}}));
    }

    pub(super) fn deploy(&mut self, version: &str) {
        self.clock += 1;
        self.asked_at = Some(self.now());
        self.edit(&json!({"metadata": {"annotations": {labels::DEPLOY_RELEASE: version}}}));
    }

    fn tell(&mut self) {
        let active = self.past.active.as_ref().unwrap();
        let news = (active.version, active.since);
        if !self.news.contains(&news) {
            let kind = if active.is_again() {
                "deployed"
            } else if active.evaluated.is_some() {
                "approved"
            } else {
                "created"
            };
            self.told.push(format!("{kind} v{} by {}", active.version, active.author()));
            self.news.push(news);
        }
    }

    /// A person's AgentRelease.
    pub(super) fn ask(&mut self, name: &str, changelog: &str) {
        let whole = json!({
            "metadata": {"name": name, "namespace": "team-a", "uid": format!("{name}-0000-1111"), "creationTimestamp": self.now().to_string(),
                "managedFields": [{"manager": "kubectl-create", "operation": "Update", "fieldsV1": {"f:spec": {"f:agent": {}}}}]},
            "spec": {"agent": "helper", "changelog": changelog},
        });
        self.releases.insert(name.to_owned(), serde_json::from_value(whole).unwrap());
    }

    pub(super) fn shown(&self) -> Vec<Shown> {
        let mut all: Vec<Shown> = self.releases.values().map(Shown::of).collect();
        let recorded = |name: &str| self.keys.get(name).copied();
        for shown in &mut all {
            let made = || shown.is_made.then(|| recorded(&shown.name).or(shown.numbered)).flatten();
            shown.version = recorded(&shown.key()).or_else(made);
        }
        all
    }

    pub(super) fn next(&self, patience: Patience) -> Step {
        let asked = asked(&self.agent).and_then(version).map(|version| {
            let found = self.artifacts.get(&version).ok_or_else(|| format!("agent helper has no release v{version}"));
            let status = self.past.versions.get(&version).map(|line| {
                let Version { status, reason, when, .. } = line.clone();
                VersionStatus { status, reason, when }
            });
            RequestedRelease { version, found: found.and_then(|artifact| deployable(artifact.clone(), status)) }
        });
        let target = asked
            .as_ref()
            .and_then(|asked| asked.found.as_ref().ok())
            .and_then(|(artifact, _)| slipway_release::spec(artifact, &self.agent.spec).ok());
        let effective = effective(&self.agent, &self.past);
        let all = names(&effective.spec).into_iter().chain(target.iter().flat_map(names));
        let found = all.map(|name| (name.clone(), self.things.get(&name).cloned().unwrap_or(ReferenceState::Missing))).collect();
        next(&Seen {
            agent: &self.agent,
            past: &self.past,
            shown: &self.shown(),
            references: &References { found, image: self.image.clone() },
            runs: &self.runs.iter().filter_map(|(name, run)| Some((name.clone(), ReleaseRun::of(run)?))).collect(),
            allow_heuristic: self.allow_heuristic,
            asked: asked.as_ref(),
            owner: self.owner.as_deref(),
            by: "ann@example.com",
            asked_at: self.asked_at,
            patience,
            now: self.now(),
        })
    }

    pub(super) fn take(&mut self, step: Step) {
        self.clock += 1;
        match step {
            Step::Wait(_) => {}
            Step::Refuse { version, why } => {
                self.told.push(format!("refused {version}: {why}"));
                self.edit(&json!({"metadata": {"annotations": {labels::DEPLOY_RELEASE: null}}}));
            }
            Step::RemoveAnnotation { news } => {
                if news {
                    self.tell();
                }
                self.edit(&json!({"metadata": {"annotations": {labels::DEPLOY_RELEASE: null}}}));
            }
            Step::Activate { version, note } => self.activate(version, note.reason().as_deref(), self.now()),
            Step::Approve { version, evaluated } => {
                assert_eq!(self.past.versions[&version].status, Status::PendingEval);
                self.activate(version, Some(&evaluated.to_string()), self.now());
            }
            Step::Reject { version, evaluated } => {
                self.tell_once(format!("rejected v{version}"));
                self.withdraw(version, Status::Rejected, evaluated.to_string());
            }
            Step::Supersede { version, by } => self.withdraw(version, Status::Archived, format!("superseded by v{by}")),
            Step::Revert { patch, rejected } => {
                self.tell_once(format!("reverted v{rejected}"));
                assert_eq!(patch["metadata"]["resourceVersion"], self.agent.resource_version().unwrap());
                self.edit(&patch);
            }
            Step::Record(draft) => {
                assert!(!self.keys.contains_key(&draft.key), "{} was recorded before", draft.key);
                let mut artifact = draft.artifact;
                artifact.metadata.version = self.past.highest + 1;
                artifact.metadata.previous = self.past.highest;
                if let By::Known(by) = draft.by {
                    artifact.metadata.author = by;
                }
                let artifact = artifact.sealed().unwrap();
                let (version, data) = (artifact.metadata.version, artifact.metadata.clone());
                self.keys.insert(draft.key.clone(), version);
                self.past.highest = version;
                let line = Version {
                    name: Some(draft.key),
                    status: Status::Active,
                    reason: None,
                    when: data.timestamp,
                    previous: data.previous,
                    author: data.author,
                    timestamp: data.timestamp,
                    changelog: data.changelog,
                    checksum: data.checksum,
                    commit: Some("c0ffee".to_owned()),
                };
                self.past.versions.insert(version, line);
                self.artifacts.insert(version, artifact);
                if data.status == Status::Active {
                    self.activate(version, None, data.timestamp);
                } else {
                    self.supersede(version, data.timestamp);
                    self.past.versions.get_mut(&version).unwrap().status = Status::PendingEval;
                    self.look();
                }
            }
            Step::Patch { patch, news } => {
                if news {
                    self.tell();
                }
                assert_eq!(patch["metadata"]["resourceVersion"], self.agent.resource_version().unwrap());
                self.edit(&patch);
            }
            Step::CreateRelease { version } => {
                let line = &self.past.versions[&version];
                let free = projection::names(&self.agent, version, line).find(|name| !self.releases.contains_key(name));
                let mut body = projection::release(&self.agent, &free.expect("a name should be free"), version, line);
                body["metadata"]["managedFields"] =
                    json!([{"manager": "slipway/release", "operation": "Update", "fieldsV1": {"f:spec": {}}}]);
                body["metadata"]["uid"] = json!(format!("made-{version}"));
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                assert!(self.releases.insert(name.clone(), serde_json::from_value(body).unwrap()).is_none(), "{name} is there already");
            }
            Step::WriteReleaseStatus { name, status } => {
                let release = self.releases.get_mut(&name).unwrap();
                release.status = Some(*status);
                // What others have put into a status is taken out, and they with it out of the book.
                release.metadata.managed_fields.iter_mut().for_each(|book| book.retain(|entry| entry.subresource.is_none()));
            }
            Step::Prune { name } => drop(self.releases.remove(&name).unwrap()),
            Step::WriteAgentStatus { part, news } => {
                if news {
                    self.tell();
                }
                let status = self.agent.status.get_or_insert_with(AgentStatus::default);
                status.active_release = part.active_release;
                status.pending_release = part.pending_release;
                status.pending_evaluation = part.pending_evaluation;
                status.quality_gate = part.quality_gate;
                status.pinned_content = part.pinned_content;
                status.conditions = part.conditions;
            }
        }
    }

    fn tell_once(&mut self, words: String) {
        if !self.told.contains(&words) {
            self.told.push(words);
        }
    }

    fn withdraw(&mut self, version: u64, status: Status, reason: String) {
        let now = self.now();
        let line = self.past.versions.get_mut(&version).unwrap();
        assert_eq!(line.status, Status::PendingEval);
        (line.status, line.when, line.reason) = (status, now, Some(reason));
        self.look();
    }

    /// An older version that waits makes room.
    fn supersede(&mut self, by: u64, when: Timestamp) {
        for (_, line) in self.past.versions.iter_mut().filter(|(other, line)| **other < by && line.status == Status::PendingEval) {
            (line.status, line.when, line.reason) = (Status::Archived, when, Some(format!("superseded by v{by}")));
        }
    }

    /// What is read of the versions that are not active.
    fn look(&mut self) {
        let of = |status: Status| {
            let found = self.past.versions.iter().rev().filter(|(_, line)| line.status == status).map(|(version, _)| *version);
            found.map(|version| Pending { version, artifact: self.artifacts[&version].clone() }).collect::<Vec<_>>()
        };
        let (mut pending, rejected) = (of(Status::PendingEval), of(Status::Rejected));
        assert!(pending.len() <= 1, "one version waits at a time");
        (self.past.pending, self.past.rejected) = (pending.pop(), rejected);
    }

    pub(super) fn activate(&mut self, version: u64, reason: Option<&str>, when: Timestamp) {
        self.supersede(version, when);
        for (other, line) in &mut self.past.versions {
            if *other == version {
                (line.status, line.when, line.reason) = (Status::Active, when, reason.map(str::to_owned));
            } else if line.status == Status::Active {
                (line.status, line.when) = (Status::Archived, when);
            }
        }
        // It is read back as it was written.
        let (note, evaluated) = (Note::read(reason), Evaluated::read(reason, true));
        self.past.active = Some(Active { version, since: when, artifact: self.artifacts[&version].clone(), note, evaluated });
        self.look();
    }

    /// Takes this number of steps at most; says why there are no more.
    pub(super) fn steps(&mut self, most: usize) -> Option<Wait> {
        for _ in 0..most {
            match self.next(Patience::OVER) {
                Step::Wait(rest) => return Some(rest),
                step => self.take(step),
            }
        }
        None
    }

    pub(super) fn settle(&mut self) -> Wait {
        self.steps(100).expect("it should come to an end")
    }

    pub(super) fn active(&self) -> Option<u64> {
        self.past.active.as_ref().map(|active| active.version)
    }

    /// Version and phase of each AgentRelease, and whether it has the artifact.
    pub(super) fn phases(&self) -> Vec<(i64, &'static str, bool)> {
        let mut all: Vec<_> = self
            .releases
            .values()
            .filter_map(|release| release.status.as_ref())
            .filter(|status| status.phase != Some(Status::Skipped))
            .filter_map(|status| Some((status.version?, status.phase?.as_str(), status.artifact.is_some())))
            .collect();
        all.sort_unstable();
        all
    }

    /// What must hold whenever there is nothing to do.
    pub(super) fn check(&self) {
        let status = self.agent.status.clone().unwrap_or_default();
        assert_eq!(status.active_release, self.active().map(|version| i64::try_from(version).unwrap()));
        assert_eq!(asked(&self.agent), None);
        let pending = self.past.pending.as_ref().map(|pending| pending.version);
        assert_eq!(status.pending_release, pending.map(|version| i64::try_from(version).unwrap()));
        assert_eq!(status.pending_evaluation.is_some(), pending.is_some());
        assert!(self.phases().iter().all(|(_, phase, has)| *has == matches!(*phase, "active" | "pending_eval")));
        assert_eq!(self.past.highest, self.past.versions.len() as u64, "no gap");
        let Some(active) = &self.past.active else { return };
        let is_held = pending.is_some() || !self.past.rejected.is_empty();
        let present =
            Artifact::of(&effective(&self.agent, &self.past), slipway_release::Resolved::default(), active.artifact.metadata.clone());
        assert!(
            is_held || self.agent.stopped_by().is_some() || present.same_content(&active.artifact),
            "what runs is what the active release says"
        );
        assert_eq!(self.past.versions.values().filter(|line| line.status == Status::Active).count(), 1);
        assert_eq!(self.phases().iter().filter(|(_, phase, has)| *phase == "active" && *has).count(), 1);
    }
}

fn json_patch_merge(into: &mut Value, patch: &Value) {
    let (Some(map), Some(patch)) = (into.as_object_mut(), patch.as_object()) else {
        *into = patch.clone();
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            let slot = map.entry(key).or_insert_with(|| json!({}));
            if value.is_object() && !slot.is_object() {
                *slot = json!({});
            }
            json_patch_merge(slot, value);
        }
    }
}
