//! The decision, pure: from an Agent, its history and what the cluster shows of it, to the one thing to do next.
//!
//! Every step is one write. After it the question is asked anew, so that a process may end anywhere: what was done is
//! seen, and what was not is done. Git comes first, and the cluster is brought to what Git says.

use std::borrow::Cow;

use kube::ResourceExt;
use serde_json::{Value, json};
use slipway_api::{Agent, labels};
use slipway_release::gate;
use slipway_release::lifecycle::{self, Event};
use slipway_release::{Resolved, Status, autoscaled, content_of as content, pinned_content};

use super::agent_status::{self, agent_release};
use super::candidate::{self, Candidate, Verdict};
use super::draft::{self, Draft};
use super::evaluated::Evaluated;
use super::history::{Active, AgentHistory, Pending};
use super::note::{Image, Note};
use super::projection;
use super::references::{differs, pinned_digest};
use super::seen::Seen;
use super::step::{Step, Wait};

pub(super) fn next(seen: &Seen) -> Step {
    let Seen { agent, past, .. } = *seen;
    if agent.metadata.deletion_timestamp.is_some() {
        return Step::Wait(Wait::Done);
    }
    if let Some(lost) = agent_status::lost(agent, past) {
        return match agent_status::differs(agent, &lost, seen.now) {
            Some(part) => Step::WriteAgentStatus { part, news: false },
            None => Step::Wait(Wait::Unable),
        };
    }
    if let Some(text) = asked(agent) {
        return rollback(seen, text);
    }
    if let Some(why) = &past.damaged {
        let damaged = agent_status::unavailable(agent, "HistoryDamaged", why);
        return match agent_status::differs(agent, &damaged, seen.now) {
            Some(part) => Step::WriteAgentStatus { part, news: false },
            None => Step::Wait(Wait::Unable),
        };
    }
    let candidate = candidate::of(past, seen.shown, seen.runs, seen.allow_heuristic);
    if let Some(step) = candidate.as_ref().and_then(|candidate| decide(seen, candidate)) {
        return step;
    }
    if let Some(step) = project(seen, pinned_content(agent)) {
        return step;
    }
    requests(seen).unwrap_or_else(|| automatic(seen))
}

/// The verdict on the release that waits, unless the Agent is back at the active one, so that nobody wants it any more. What has passed
/// as a canary need not pass again.
fn decide(seen: &Seen, candidate: &Candidate) -> Option<Step> {
    let Seen { agent, past, .. } = *seen;
    let pending = past.pending.as_ref()?;
    let (verdict, evaluation) = match candidate::on_canary(seen, pending) {
        Some(passed) => (Verdict::Passed, passed),
        None => (candidate.verdict, candidate.evaluation.clone()),
    };
    let (version, evaluated) = (pending.version, Evaluated(evaluation));
    let effective = effective(agent, past);
    let is_withdrawn = seen.references.resolved(&effective.spec).is_ok_and(|resolved| unchanged(past, &effective, &resolved).is_some());
    match verdict {
        _ if is_withdrawn => None,
        Verdict::Waits => None,
        Verdict::Passed => Some(Step::Approve { version, evaluated }),
        Verdict::Failed => Some(Step::Reject { version, evaluated }),
    }
}

/// What the annotation of a rollback says.
pub(super) fn asked(agent: &Agent) -> Option<&str> {
    agent.annotations().get(labels::DEPLOY_RELEASE).map(String::as_str)
}

/// The version in the annotation.
pub(super) fn version(text: &str) -> Option<u64> {
    text.trim().trim_start_matches('v').parse().ok().filter(|version| *version > 0)
}

fn rollback(seen: &Seen, text: &str) -> Step {
    let Seen { agent, past, .. } = *seen;
    let refuse = |why: String| Step::Refuse { version: text.chars().take(40).collect(), why };
    let Some(version) = version(text) else {
        return refuse("it is no version; a number is, as in agents.slipway.dev/deploy-release: \"3\"".to_owned());
    };
    let active = past.active.as_ref().filter(|active| active.version == version);
    let Some(active) = active else {
        let Some(asked) = seen.asked.filter(|asked| asked.version == version) else { return Step::Wait(Wait::Unable) };
        let (artifact, status) = match &asked.found {
            Ok(found) => found,
            Err(why) => return refuse(why.clone()),
        };
        if let Err(refused) = lifecycle::next(*status, Event::Deployed) {
            return refuse(refused.to_string());
        }
        return match slipway_release::spec(artifact, &agent.spec) {
            Ok(spec) => Step::Activate { version, note: seen.references.note(artifact, &spec, seen.by.to_owned()) },
            Err(fault) => refuse(fault.to_string()),
        };
    };
    // Asked for since it became active, it is deployed again, and who asked is written down.
    if seen.asked_at.is_some_and(|asked| asked > active.since) {
        return match slipway_release::spec(&active.artifact, &agent.spec) {
            Ok(spec) => Step::Activate { version, note: seen.references.note(&active.artifact, &spec, seen.by.to_owned()) },
            Err(fault) => refuse(fault.to_string()),
        };
    }
    let news = active.is_again() && agent_release(agent) == Some(version);
    if seen.owner.is_some() {
        // What runs is made from the AgentRelease, which therefore comes before the pin.
        let is_same = content(agent).same_content(&active.artifact);
        let pin = (!is_same).then(|| content(agent).content_hash());
        return project(seen, pin).unwrap_or(Step::RemoveAnnotation { news });
    }
    let artifact = if autoscaled(agent) { active.artifact.clone().without_replicas() } else { active.artifact.clone() };
    match slipway_release::rollback(&artifact, &agent.spec) {
        Ok(mut patch) => {
            patch["metadata"] = json!({
                "resourceVersion": agent.resource_version(),
                "annotations": {labels::DEPLOY_RELEASE: Value::Null},
            });
            Step::Patch { patch, news }
        }
        Err(fault) => refuse(fault.to_string()),
    }
}

/// What still keeps the cluster from showing what Git says.
fn project(seen: &Seen, pin: Option<String>) -> Option<Step> {
    let Seen { agent, past, shown, .. } = *seen;
    let candidate = candidate::of(past, shown, seen.runs, seen.allow_heuristic);
    projection::step(past, shown, candidate.as_ref(), seen.runs).or_else(|| {
        let part = agent_status::of(seen, pin, candidate.as_ref());
        let news = past.active.as_ref().is_some_and(|active| agent_release(agent) != Some(active.version));
        agent_status::differs(agent, &part, seen.now).map(|part| Step::WriteAgentStatus { part, news })
    })
}

/// The Agent as it runs: its own spec, or that of the release that it is pinned to.
pub(super) fn effective<'a>(agent: &'a Agent, past: &AgentHistory) -> Cow<'a, Agent> {
    let pinned = past.active.as_ref().filter(|_| pinned_content(agent).is_some());
    match pinned.map(|active| slipway_release::spec(&active.artifact, &agent.spec)) {
        Some(Ok(spec)) => Cow::Owned(Agent { spec, ..agent.clone() }),
        // One that cannot be read was refused before it was pinned.
        _ => Cow::Borrowed(agent),
    }
}

/// What a person asked for by making an AgentRelease, the oldest first.
fn requests(seen: &Seen) -> Option<Step> {
    let Seen { agent, past, shown, .. } = *seen;
    let mut waiting: Vec<_> = shown.iter().filter(|shown| shown.version.is_none() && !shown.deleting && !shown.skipped).collect();
    waiting.sort_by_key(|shown| (shown.created, &shown.name));
    let effective = effective(agent, past);
    for shown in waiting {
        let Some(request) = &shown.request else { continue };
        let unable = match (agent.stopped_by(), seen.references.resolved(&effective.spec)) {
            (Some(why), _) if past.active.is_none() => ("NotDeployed", format!("agent {} was never deployed: {why}", agent.name_any())),
            (_, Err(name)) => ("Unresolved", format!("{name}, which the agent names, is not there, cannot be read or is not ready")),
            (_, Ok(resolved)) => {
                let active = unchanged(past, &effective, &resolved).map(|version| (version, "runs"));
                let waits = || Some((holds(past.pending.as_slice(), &effective, &resolved)?.version, "waits for its evaluation"));
                if let Some((version, stands)) = active.or_else(waits) {
                    let Some(status) = projection::skips(shown, request, version, (stands, seen.now)) else { continue };
                    return Some(Step::WriteReleaseStatus { name: shown.name.clone(), status: Box::new(status) });
                }
                return Some(record(past, draft::requested(&effective, past, resolved, shown, request, seen.now)));
            }
        };
        if let Some(status) = projection::waits(shown, request, unable.0, &unable.1, seen.now) {
            return Some(Step::WriteReleaseStatus { name: shown.name.clone(), status: Box::new(status) });
        }
    }
    None
}

/// The active version, if what runs is what it says.
fn unchanged(past: &AgentHistory, effective: &Agent, resolved: &Resolved) -> Option<u64> {
    let active = past.active.as_ref()?;
    let is_same =
        content(effective).same_content(&active.artifact) && differs(&active.artifact.resolved, &active.note, resolved).is_nothing();
    is_same.then_some(active.version)
}

/// Records a version, which waits if there is a gate.
fn record(past: &AgentHistory, mut draft: Draft) -> Step {
    if gate::score(past.active.as_ref().map(|active| &active.artifact), &draft.artifact).is_some() {
        draft.artifact.metadata.status = Status::PendingEval;
    }
    Step::Record(Box::new(draft))
}

/// The one of these versions that says what the Agent says.
fn holds<'a>(versions: &'a [Pending], effective: &Agent, resolved: &Resolved) -> Option<&'a Pending> {
    let content = content(effective);
    let is_same = |version: &&Pending| {
        content.same_content(&version.artifact) && differs(&version.artifact.resolved, &Note::default(), resolved).is_nothing()
    };
    versions.iter().find(is_same)
}

/// What is recorded though nobody asked: that what runs has changed.
fn automatic(seen: &Seen) -> Step {
    let Seen { agent, past, .. } = *seen;
    if agent.stopped_by().is_some() {
        return Step::Wait(Wait::Unable);
    }
    let effective = effective(agent, past);
    let Ok(resolved) = seen.references.resolved(&effective.spec) else { return Step::Wait(Wait::Unable) };
    let gate = gate::score(past.active.as_ref().map(|active| &active.artifact), &content(&effective));
    let in_time = |step: Step| if seen.patience.content { step } else { Step::Wait(Wait::Change(fingerprint(&effective, &resolved))) };
    let differs = match &past.active {
        // Held by a gate, it has no pods to tell which image they run.
        None if resolved.image.is_none() && effective.spec.replicas > 0 && !seen.patience.image && gate.is_none() => {
            return Step::Wait(Wait::Image);
        }
        None => None,
        Some(active) => {
            let differs = differs(&active.artifact.resolved, &active.note, &resolved);
            if content(&effective).same_content(&active.artifact) && differs.is_nothing() {
                if let Some(pending) = &past.pending {
                    return in_time(Step::Supersede { version: pending.version, by: active.version });
                }
                let settled = settle_image(active, &effective, &resolved);
                let run_hash = || projection::run_hash(agent, past, seen.shown, seen.runs);
                return if settled == Step::Wait(Wait::Done) { run_hash().unwrap_or(settled) } else { settled };
            }
            Some(differs)
        }
    };
    if holds(past.pending.as_slice(), &effective, &resolved).is_some() {
        return Step::Wait(Wait::Done);
    }
    if gate.is_some()
        && let Some(rejected) = holds(&past.rejected, &effective, &resolved)
        // Since then it has passed as a canary.
        && candidate::on_canary(seen, rejected).is_none()
    {
        if let Some(pending) = &past.pending {
            return in_time(Step::Supersede { version: pending.version, by: rejected.version });
        }
        return revert(seen, rejected.version).map_or(Step::Wait(Wait::Done), in_time);
    }
    in_time(record(past, draft::automatic(&effective, past, resolved.clone(), &differs.unwrap_or_default(), seen.now)))
}

/// Brings an Agent back to its active release that has the content of a rejected one, which is not evaluated again by itself.
/// A spec that GitOps owns stays, and so does one that has no release to go back to.
fn revert(seen: &Seen, rejected: u64) -> Option<Step> {
    let Seen { agent, past, .. } = *seen;
    let active = past.active.as_ref().filter(|_| seen.owner.is_none())?;
    // Replicas are no content.
    let mut patch = slipway_release::rollback(&active.artifact.clone().without_replicas(), &agent.spec).ok()?;
    patch.get("spec")?;
    patch["metadata"] = json!({"resourceVersion": agent.resource_version()});
    Some(Step::Revert { patch, rejected })
}

/// The first image that is found after a rollback is the one that was meant.
fn settle_image(active: &Active, effective: &Agent, resolved: &Resolved) -> Step {
    match &resolved.image {
        Some(digest) if active.note.image == Image::Any && pinned_digest(&effective.spec).is_none() => {
            let image =
                if active.artifact.resolved.image.as_ref() == Some(digest) { Image::AsReleased } else { Image::Digest(digest.clone()) };
            Step::Activate { version: active.version, note: Note { image, ..active.note.clone() } }
        }
        _ => Step::Wait(Wait::Done),
    }
}

/// Tells one content from another, while it is waited for it to stand still.
fn fingerprint(effective: &Agent, resolved: &Resolved) -> u64 {
    let resolved = Resolved { image: None, ..resolved.clone() };
    slipway_cluster::json::hash(&json!([content(effective).content(), resolved]))
}
