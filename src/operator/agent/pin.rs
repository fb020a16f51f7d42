//! Agents that run a release in the place of their spec, because GitOps owns the spec. What they run is read from the
//! AgentRelease when it is needed, and kept for these agents alone.

use std::borrow::Cow;

use kube::ResourceExt;
use kube::api::{Api, ListParams};
use slipway_api::names::AgentName;
use slipway_api::{Agent, AgentRelease};
use slipway_cluster::Key;
use slipway_cluster::write;
use slipway_release::{Artifact, pinned_content};

use crate::context::Context;

/// How many releases are read at a time: the cluster keeps few of an agent, unless people ask for many.
const PAGE_SIZE: u32 = 16;

/// The version that an Agent is pinned to, if it is.
fn pin(agent: &Agent) -> Option<u64> {
    let version = agent.status.as_ref()?.active_release?;
    pinned_content(agent).is_some().then(|| u64::try_from(version).ok()).flatten()
}

/// Reads what a pinned Agent runs, unless that is known.
pub(super) async fn read(agent: &Agent, context: &Context) -> Result<(), write::Error> {
    let key = Key::of(agent);
    let Some(version) = pin(agent) else {
        context.caches.pins.remove(&key);
        return Ok(());
    };
    if context.caches.pins.get(&key).is_some_and(|known| known.metadata.version == version) {
        return Ok(());
    }
    let api: Api<AgentRelease> = Api::namespaced(context.client.clone(), &key.namespace);
    if let Some(artifact) = find(&api, &key, version).await? {
        context.caches.pins.insert(key, artifact);
    } else {
        tracing::debug!(agent = %key, version, "the release that runs in place of the spec is not there yet");
    }
    Ok(())
}

async fn find(api: &Api<AgentRelease>, agent: &Key, version: u64) -> Result<Option<Artifact>, write::Error> {
    let mut page = ListParams::default().fields(&format!("spec.agent={}", agent.name)).limit(PAGE_SIZE);
    loop {
        let releases = api.list(&page).await?;
        if let Some(artifact) = releases.iter().find_map(|release| artifact(release, agent, version)) {
            return Ok(Some(artifact));
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

/// The Agent as it should run; none while what it is pinned to is not known.
pub(super) fn effective<'a>(agent: &'a Agent, context: &Context) -> Option<Cow<'a, Agent>> {
    let Some(version) = pin(agent) else { return Some(Cow::Borrowed(agent)) };
    let artifact = context.caches.pins.get(&Key::of(agent)).filter(|known| known.metadata.version == version)?;
    let spec = slipway_release::spec(&artifact, &agent.spec).ok()?;
    Some(Cow::Owned(Agent { spec, ..agent.clone() }))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use slipway_api::AgentStatus;
    use slipway_release::{Metadata, Resolved, Status};

    use super::*;
    use crate::testing::context;

    fn agent(prompt: &str) -> Agent {
        let yaml = format!(
            "{{metadata: {{name: helper, namespace: team-a, uid: u}}, spec: {{name: H, framework: custom, systemPrompt: {prompt}}}}}"
        );
        serde_yaml::from_str(&yaml).unwrap()
    }

    fn release(of: &Agent, version: u64) -> AgentRelease {
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
        let artifact = Artifact::of(of, Resolved::default(), metadata).sealed().unwrap();
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
        context.caches.pins.insert(Key::of(&pinned), known);
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
