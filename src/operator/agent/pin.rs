//! Agents that run a release in place of their spec: because GitOps owns the spec, or because a gate holds a change that is not
//! approved. The AgentRelease is read when it is needed, and cached for these agents alone, as is a release that waits for its
//! evaluation.

use std::borrow::Cow;
use std::sync::Arc;

use kube::ResourceExt;
use kube::api::{Api, ListParams};
use slipway_api::names::AgentName;
use slipway_api::{Agent, AgentRelease};
use slipway_cluster::Key;
use slipway_cluster::write;
use slipway_release::{Artifact, content_of, pinned_content};

use crate::caches::{HeldRelease, Release};
use crate::context::Context;

/// How many releases are read at a time: each may be as large as its agent.
const PAGE_SIZE: u32 = 4;

/// What the stable track of an Agent runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpecSource {
    Spec,
    /// The release of this version, which the Agent is pinned to.
    Pinned(u64),
    /// The active release, because a gate holds whatever else the spec says.
    Held(u64),
    /// Nothing yet: no release has passed the gate.
    Nothing,
}

pub(super) fn source(agent: &Agent) -> SpecSource {
    let status = agent.status.as_ref();
    let active = status.and_then(|status| status.active_release).and_then(|version| u64::try_from(version).ok());
    match active {
        Some(version) if pinned_content(agent).is_some() => SpecSource::Pinned(version),
        Some(version) if is_gated(agent) => SpecSource::Held(version),
        None if is_gated(agent) => SpecSource::Nothing,
        _ => SpecSource::Spec,
    }
}

/// Whether the spec or the active release asks for a score. The latter counts whatever the spec says.
pub(super) fn is_gated(agent: &Agent) -> bool {
    let own = agent.spec.governance.as_ref().and_then(|governance| governance.min_quality_score);
    let active = agent.status.as_ref().and_then(|status| status.quality_gate);
    own.max(active).is_some_and(|score| score > 0)
}

/// The run that decides on the release that waits, if one does.
pub(super) fn pending_run(agent: &Agent) -> Option<&str> {
    let status = agent.status.as_ref().filter(|status| status.pending_release.is_some())?;
    status.pending_evaluation.as_deref()
}

/// Whether a gate keeps the content of the spec from the stable track.
pub(super) fn is_held(agent: &Agent, context: &Context) -> bool {
    match source(agent) {
        SpecSource::Nothing => true,
        SpecSource::Held(version) => {
            // What an edited Tool would change is no content.
            let is_other = |active: Arc<Release>| !content_of(agent).same_content(&active.artifact);
            pending_run(agent).is_some() || pinned(agent, version, context).is_some_and(is_other)
        }
        SpecSource::Spec | SpecSource::Pinned(_) => false,
    }
}

/// The release of this version that runs in the place of the spec, if it has been read.
pub(super) fn pinned(agent: &Agent, version: u64, context: &Context) -> Option<Arc<Release>> {
    context.caches.pins.get(&Key::of(agent)).filter(|known| known.artifact.metadata.version == version)
}

/// The release that says which Tools the stable track uses: the active one, if there is a gate.
pub(super) fn approved(agent: &Agent, context: &Context) -> Option<Arc<Release>> {
    match source(agent) {
        SpecSource::Pinned(version) | SpecSource::Held(version) if is_gated(agent) => pinned(agent, version, context),
        _ => None,
    }
}

/// The release that waits for its evaluation, if it has been read.
pub(super) fn pending(agent: &Agent, context: &Context) -> Option<Arc<HeldRelease>> {
    let run = pending_run(agent)?;
    context.caches.held.get(&Key::of(agent)).filter(|held| held.run == run)
}

/// Reads the releases that an Agent runs in the place of its spec or evaluates, unless they are known.
pub(super) async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    read_active(agent, context).await?;
    read_pending(agent, context).await
}

async fn read_active(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let (SpecSource::Pinned(version) | SpecSource::Held(version)) = source(agent) else {
        context.caches.pins.remove(&key);
        return Ok(());
    };
    if pinned(agent, version, context).is_some() {
        return Ok(());
    }
    if read_again(&key, version, context).await?.is_none() {
        tracing::debug!(agent = %key, version, "the release that runs in place of the spec is not there yet");
    }
    Ok(())
}

/// Reads the release of this version, whose AgentRelease may be another one now.
pub(super) async fn read_again(agent: &Key, version: u64, context: &Context) -> Result<Option<Arc<Release>>, write::Error> {
    let Some(release) = find(context, agent, |release| read_release(release, agent, version)).await? else { return Ok(None) };
    context.caches.pins.insert(agent.clone(), release);
    Ok(context.caches.pins.get(agent))
}

fn read_release(release: &AgentRelease, agent: &Key, version: u64) -> Option<Release> {
    Some(Release { name: release.name_any(), uid: release.uid()?, artifact: artifact(release, agent, version)? })
}

async fn read_pending(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let pending = agent.status.as_ref().and_then(|status| status.pending_release).and_then(|version| u64::try_from(version).ok());
    let (Some(run), Some(version)) = (pending_run(agent), pending) else {
        context.caches.held.remove(&key);
        return Ok(());
    };
    if context.caches.held.get(&key).is_some_and(|held| held.run == run) {
        return Ok(());
    }
    let is_named = |release: &&AgentRelease| {
        let evaluation = release.status.as_ref().and_then(|status| status.evaluation.as_ref());
        evaluation.is_some_and(|evaluation| evaluation.run == run)
    };
    let held = |release: &AgentRelease| {
        let release = Some(release).filter(is_named).and_then(|release| read_release(release, &key, version))?;
        Some(HeldRelease { run: run.to_owned(), release: Arc::new(release) })
    };
    if let Some(held) = find(context, &key, held).await? {
        context.caches.held.insert(key, held);
    } else {
        tracing::debug!(agent = %key, version, "the release that waits for its evaluation is not there yet");
    }
    Ok(())
}

async fn find<T>(context: &Context, agent: &Key, wanted: impl Fn(&AgentRelease) -> Option<T>) -> Result<Option<T>, write::Error> {
    let api: Api<AgentRelease> = Api::namespaced(context.client.clone(), &agent.namespace);
    let mut page = ListParams::default().fields(&format!("spec.agent={}", agent.name)).limit(PAGE_SIZE);
    loop {
        let releases = api.list(&page).await?;
        if let Some(found) = releases.iter().find_map(&wanted) {
            return Ok(Some(found));
        }
        match releases.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return Ok(None),
        }
    }
}

/// What a release holds, if it is this version and is what was written.
fn artifact(release: &AgentRelease, agent: &Key, version: u64) -> Option<Artifact> {
    let status = release.status.as_ref()?;
    if status.version.and_then(|found| u64::try_from(found).ok()) != Some(version) {
        return None;
    }
    let name = AgentName::new(&*agent.name).ok()?;
    match Artifact::from_yaml(status.artifact.as_ref()?).and_then(|artifact| artifact.expected(&name, version)) {
        Ok(artifact) if artifact.deployment.namespace == agent.namespace => Some(artifact),
        Ok(artifact) => {
            tracing::warn!(agent = %agent, release = release.name_any(), of = artifact.deployment.namespace, "a release of another namespace is not heeded");
            None
        }
        Err(error) => {
            tracing::warn!(agent = %agent, release = release.name_any(), %error, "a release cannot be read");
            None
        }
    }
}

/// The Agent as its stable track should run; none while that is not known.
pub(super) fn effective<'a>(agent: &'a Agent, context: &Context) -> Option<Cow<'a, Agent>> {
    let source = source(agent);
    let version = match source {
        SpecSource::Spec => return Some(Cow::Borrowed(agent)),
        SpecSource::Nothing => return None,
        SpecSource::Pinned(version) | SpecSource::Held(version) => version,
    };
    let release = pinned(agent, version, context)?;
    let mut spec = slipway_release::spec(&release.artifact, &agent.spec).ok()?;
    if matches!(source, SpecSource::Held(_)) {
        // They are no content, so that nothing has to be evaluated for them.
        spec.replicas = agent.spec.replicas;
    }
    Some(Cow::Owned(Agent { spec, ..agent.clone() }))
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::Timestamp;
    use slipway_api::AgentStatus;
    use slipway_release::{Metadata, Resolved, Status};

    use super::*;
    use crate::testing::context;

    pub(in crate::agent) fn agent_of(spec: &str) -> Agent {
        let yaml = format!("{{metadata: {{name: helper, namespace: team-a, uid: u}}, spec: {{name: H, framework: custom, {spec}}}}}");
        serde_yaml::from_str(&yaml).unwrap()
    }

    fn agent(prompt: &str) -> Agent {
        agent_of(&format!("systemPrompt: {prompt}"))
    }

    pub(in crate::agent) fn release_of(of: &Agent, version: u64) -> Release {
        Release { name: format!("helper-v{version}"), uid: format!("r{version}"), artifact: artifact_of(of, version) }
    }

    pub(in crate::agent) fn artifact_of(of: &Agent, version: u64) -> Artifact {
        let metadata = Metadata {
            name: of.name_any(),
            version,
            previous: version - 1,
            author: "ann".to_owned(),
            timestamp: Timestamp::UNIX_EPOCH,
            changelog: String::new(),
            checksum: String::new(),
            status: Status::Active,
            deleted_at: None,
        };
        Artifact::of(of, Resolved::default(), metadata).sealed().unwrap()
    }

    fn release(of: &Agent, version: u64) -> AgentRelease {
        let artifact = artifact_of(of, version);
        let status = serde_json::json!({"version": version, "artifact": artifact.to_yaml()});
        let whole = serde_json::json!({"metadata": {"name": "r", "namespace": "team-a"}, "spec": {"agent": "helper"}, "status": status});
        serde_json::from_value(whole).unwrap()
    }

    #[tokio::test]
    async fn a_pinned_agent_runs_its_release_until_its_content_changes_and_nothing_until_that_is_known() {
        let context = context();
        let mut pinned = agent("new");
        let prompt = |agent: &Agent| effective(agent, &context).map(|agent| agent.spec.system_prompt.clone().unwrap());
        assert_eq!(prompt(&pinned).as_deref(), Some("new"));
        let known = artifact(&release(&agent("old"), 3), &Key::new("team-a", "helper"), 3).unwrap();
        let hash = Artifact::of(&pinned, Resolved::default(), known.metadata.clone()).content_hash();
        pinned.status = Some(AgentStatus { active_release: Some(3), pinned_content: Some(hash), ..AgentStatus::default() });
        assert_eq!(prompt(&pinned), None);
        assert!(read(&pinned, &context).await.is_err(), "it is asked for");
        context.caches.pins.insert(Key::of(&pinned), Release { artifact: known, ..release_of(&pinned, 3) });
        read(&pinned, &context).await.unwrap();
        assert_eq!(prompt(&pinned).as_deref(), Some("old"));
        pinned.spec.replicas = 4;
        assert_eq!(effective(&pinned, &context).unwrap().spec.replicas, 1, "a release has replicas too");
        pinned.spec.system_prompt = Some("newer".to_owned());
        assert_eq!(prompt(&pinned).as_deref(), Some("newer"));
        read(&pinned, &context).await.unwrap();
        assert!(context.caches.pins.keys().is_empty(), "it is forgotten when it is not needed");
    }

    #[test]
    fn only_the_release_that_was_written_counts() {
        let key = Key::new("team-a", "helper");
        let good = release(&agent("old"), 3);
        assert_eq!(artifact(&good, &key, 3).unwrap().agent.system_prompt.as_deref(), Some("old"));
        assert!(artifact(&good, &key, 4).is_none(), "another version");
        assert!(artifact(&good, &Key::new("team-a", "other"), 3).is_none(), "another agent's");
        assert!(artifact(&good, &Key::new("team-b", "helper"), 3).is_none(), "another namespace's");
        let mut forged = good.clone();
        let status = forged.status.as_mut().unwrap();
        status.artifact = status.artifact.as_ref().map(|text| text.replace("old", "evil"));
        assert!(artifact(&forged, &key, 3).is_none(), "its checksum tells");
    }
}
