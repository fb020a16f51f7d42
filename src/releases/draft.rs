//! A release that is to be recorded: what it holds, under which name, and in which words.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;
use sha2::{Digest, Sha256};
use slipway_api::Agent;
use slipway_release::{Artifact, Metadata, Resolved, diff};
use slipway_release::{blank, content_of as content};

use super::history::AgentHistory;
use super::name::Name;
use super::references::Differs;
use super::shown::{MAX_NAME_CHARS, ReleaseRequest, Shown};

/// The longest changelog; an AgentRelease takes as much.
const CHANGELOG_MAX: usize = 4096;
/// How many things a changelog names.
const NAMED: usize = 8;

/// A release that is to be recorded.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Draft {
    /// By which it is found again, whatever happens.
    pub key: String,
    /// Its author is empty where that is found out last.
    pub artifact: Artifact,
    pub by: By,
}

/// Whose change it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    Known(String),
    /// The last writer of the Agent's spec.
    Spec,
    /// The last writer of this.
    Named(Name),
    /// Nobody: the image's tag was moved.
    Nobody,
}

/// A person's release.
pub(super) fn requested(
    agent: &Agent,
    past: &AgentHistory,
    resolved: Resolved,
    shown: &Shown,
    request: &ReleaseRequest,
    now: Timestamp,
) -> Draft {
    let words = request.changelog.clone().filter(|words| !words.trim().is_empty());
    let changelog = words.unwrap_or_else(|| changelog(agent, past, &resolved, &Differs::default()));
    Draft {
        key: shown.key(),
        artifact: Artifact::of(agent, resolved, metadata(agent, &changelog, &request.author, now)),
        by: By::Known(request.author.clone()),
    }
}

/// A release that nobody asked for.
pub(super) fn automatic(agent: &Agent, past: &AgentHistory, resolved: Resolved, differs: &Differs, now: Timestamp) -> Draft {
    let is_spec = past.active.as_ref().is_none_or(|active| !content(agent).same_content(&active.artifact));
    let by = match differs.names.first() {
        _ if is_spec => By::Spec,
        Some(name) => By::Named(name.clone()),
        None => By::Nobody,
    };
    let changelog = changelog(agent, past, &resolved, differs);
    let key = key(agent, past, &resolved);
    Draft { key, artifact: Artifact::of(agent, resolved, metadata(agent, &changelog, "", now)), by }
}

fn metadata(agent: &Agent, changelog: &str, author: &str, now: Timestamp) -> Metadata {
    let changelog = changelog[..changelog.floor_char_boundary(CHANGELOG_MAX)].to_owned();
    Metadata { changelog, author: author.to_owned(), timestamp: now, ..blank(agent) }
}

/// The same for the same change, so that a change is recorded once: agent, content, generation. What was active before
/// counts too, because the same content may come back.
fn key(agent: &Agent, past: &AgentHistory, resolved: &Resolved) -> String {
    let before = past.active.as_ref().map(|active| active.version);
    let told = json!([agent.name_any(), agent.uid(), content(agent).content_hash(), resolved, before, past.highest]);
    let hash = hex::encode(Sha256::digest(told.to_string()));
    let end = format!("-{}-{}", &hash[..10], agent.metadata.generation.unwrap_or_default());
    let name = agent.name_any();
    let room = MAX_NAME_CHARS - end.len();
    format!("{}{end}", name[..name.floor_char_boundary(room)].trim_end_matches('-'))
}

/// What changed, in few words.
fn changelog(agent: &Agent, past: &AgentHistory, resolved: &Resolved, differs: &Differs) -> String {
    let Some(active) = &past.active else { return "first release".to_owned() };
    let present = Artifact::of(agent, resolved.clone(), active.artifact.metadata.clone());
    let paths: Vec<String> = diff(&active.artifact, &present)
        .into_iter()
        .map(|change| change.path)
        .filter(|path| !path.starts_with("resolved") && !path.starts_with("metadata") && path != "runtime.replicas")
        .collect();
    let mut said = Vec::new();
    if !paths.is_empty() {
        said.push(format!("changed {}", some(&paths)));
    }
    // Names that came or went with a list have been said.
    let edited: Vec<String> =
        differs.names.iter().filter(|name| is_in_both(&active.artifact, &present, name)).map(ToString::to_string).collect();
    if !edited.is_empty() {
        said.push(format!("edited {}", some(&edited)));
    }
    if differs.image && !paths.iter().any(|path| path == "runtime.image") {
        said.push("the image of this name is another one".to_owned());
    }
    if said.is_empty() { "nothing changed".to_owned() } else { said.join("; ") }
}

fn is_in_both(before: &Artifact, now: &Artifact, name: &Name) -> bool {
    use super::name::ReferenceKind;
    let names = |artifact: &Artifact| {
        let list = match name.kind {
            ReferenceKind::Tool => artifact.agent.tools.clone(),
            ReferenceKind::Skill => artifact.agent.skills.iter().map(|skill| slipway_api::ids::skill_name(skill)).collect(),
            ReferenceKind::KnowledgeBase => {
                artifact.agent.knowledge_bases.iter().map(|base| slipway_api::ids::knowledge_base_name(base)).collect()
            }
            ReferenceKind::Integration => {
                artifact.agent.model.integration.iter().map(|name| slipway_api::ids::integration_name(name)).collect()
            }
        };
        list.contains(&name.name)
    };
    names(before) && names(now)
}

fn some(words: &[String]) -> String {
    let shown = words.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if words.len() > NAMED { format!("{shown} and {} more", words.len() - NAMED) } else { shown }
}
