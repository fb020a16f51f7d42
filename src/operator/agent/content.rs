//! The content of a canary: the artifact that a release of it would have after a promotion, with the digests of what the Agent
//! names now. The canary's run is found by it, and that run approves a release of the same content.

use slipway_api::{Agent, ids};
use slipway_cluster::Key;
use slipway_release::{Artifact, Resolved, blank, digest};

use crate::context::Context;
use crate::integrations;

/// The Agent as a promotion of its canary would make it. None without a canary.
pub(super) fn promoted(agent: &Agent) -> Option<Agent> {
    let spec = agent.canary()?.promoted(&agent.spec);
    Some(Agent { spec, ..agent.clone() })
}

/// The artifact of the same. None without a canary, and while something that it names cannot be said.
pub(crate) fn canary_artifact(agent: &Agent, context: &Context) -> Option<Artifact> {
    let promoted = promoted(agent)?;
    Some(Artifact::of(&promoted, resolved(&promoted, context)?, blank(&promoted)))
}

/// What an Agent's names stand for now, as the state role looks it up. The image is not looked up, as only pods know it.
fn resolved(agent: &Agent, context: &Context) -> Option<Resolved> {
    let namespace = Key::of(agent).namespace;
    let mut resolved = Resolved::default();
    for name in &agent.spec.tools {
        let tool = context.caches.tools.get(&Key::new(&namespace, name))?;
        let spec = &tool.0.as_ref().ok()?.spec;
        // One that is switched off is no part of what runs.
        if spec.enabled {
            let spec = integrations::tool(&context.caches, &namespace, spec).ok()?;
            resolved.tools.insert(name.clone(), digest(&serde_json::to_value(&spec).ok()?));
        }
    }
    for name in agent.spec.skills.iter().map(|reference| ids::skill_name(reference)) {
        let skill = context.caches.skills.get(&Key::new(&namespace, &name))?;
        let skill = skill.skill().ok()?;
        let status = skill.status.as_ref().filter(|status| status.observed_generation == skill.metadata.generation)?;
        resolved.skills.insert(name, status.digest.clone()?);
    }
    for name in agent.spec.knowledge_bases.iter().map(|reference| ids::knowledge_base_name(reference)) {
        let base = context.caches.knowledge_bases.get(&Key::new(&namespace, &name))?;
        let spec = base.0.as_ref().ok()?.spec.without_sources();
        resolved.knowledge_bases.insert(name, digest(&serde_json::to_value(&spec).ok()?));
    }
    for name in agent.spec.model_integration.iter().map(|reference| ids::integration_name(reference)) {
        let endpoint = integrations::endpoint(&context.caches, &namespace, &name).ok()?;
        resolved.integrations.insert(name, digest(&serde_json::to_value(&endpoint).ok()?));
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use slipway_api::{Integration, KnowledgeBase, Tool};
    use slipway_cluster::Guarded;
    use slipway_release::gate;

    use super::*;
    use crate::agent::pin::tests::agent_of;
    use crate::testing::context;

    #[tokio::test]
    async fn a_canary_is_known_by_what_it_says_and_names() {
        let context = context();
        let of = |canary: &str| agent_of(&format!("tools: [t], canary: {{enabled: true, weight: 10, {canary}}}"));
        let key = |agent: &Agent| canary_artifact(agent, &context).map(|artifact| gate::content_key(&artifact));
        let asked = of("overrides: {knowledgeBases: [kb_docs]}");
        assert_eq!(key(&asked), None, "what it names is not there");
        let tool = |endpoint: &str, enabled: bool| -> Tool {
            let text = format!("{{metadata: {{name: t}}, spec: {{name: t, type: http, endpoint: '{endpoint}', enabled: {enabled}}}}}");
            serde_yaml::from_str(&text).unwrap()
        };
        let give = |tool: Tool| context.caches.tools.insert(Key::new("team-a", "t"), Guarded(Ok(tool)));
        give(tool("https://a", true));
        assert_eq!(key(&asked), None, "nor is its knowledge base");
        let base: KnowledgeBase = serde_yaml::from_str("{metadata: {name: docs}, spec: {name: D}}").unwrap();
        context.caches.knowledge_bases.insert(Key::new("team-a", "docs"), Guarded(Ok(base)));
        let first = key(&asked).unwrap();
        assert_eq!(
            key(&of("overrides: {knowledgeBases: [kb_docs]}, version: canary")),
            Some(first.clone()),
            "the track's name is no content"
        );
        let other = key(&of("overrides: {knowledgeBases: [kb_docs]}, version: '2'")).unwrap();
        give(tool("https://b", true));
        let edited = key(&asked).unwrap();
        give(tool("https://b", false));
        let all = [first, other, edited, key(&asked).unwrap()];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 4, "{all:?}");
        assert_eq!(canary_artifact(&agent_of("replicas: 1"), &context), None);
    }

    #[tokio::test]
    async fn a_canary_is_known_by_what_integrations_give_too() {
        let context = context();
        let give = |name: &str, of: &str, url: &str| {
            let origin = slipway_api::integration::origin_of(url);
            let status = json!({"observedGeneration": 1, "credentialKeys": [], "origin": origin});
            let spec: serde_json::Value = serde_yaml::from_str(&format!("{{name: I, {of}}}")).unwrap();
            let whole = json!({"metadata": {"name": name, "namespace": "team-a"}, "spec": spec, "status": status});
            let integration: Integration = serde_json::from_value(whole).unwrap();
            context.caches.integrations.insert(Key::new("team-a", name), Guarded(Ok(integration)));
        };
        let llm = |url: &str| give("llm", &format!("openai: {{baseUrl: '{url}'}}"), url);
        let metrics = |url: &str| give("metrics", &format!("prometheus: {{url: '{url}'}}"), url);
        let spec = "tools: [t], modelType: openai, modelId: m, canary: {enabled: true, weight: 10, overrides: {modelIntegration: in_llm}}";
        let agent = agent_of(spec);
        let artifact = || canary_artifact(&agent, &context);
        let tool: Tool =
            serde_yaml::from_str("{metadata: {name: t}, spec: {name: t, type: http, endpoint: /q, integration: metrics}}").unwrap();
        context.caches.tools.insert(Key::new("team-a", "t"), Guarded(Ok(tool)));
        llm("https://llm.example/v1");
        assert_eq!(artifact(), None, "the Tool has no server yet");
        metrics("https://p.example");
        let first = artifact().unwrap();
        assert_eq!(first.resolved.integrations["llm"], digest(&json!({"baseUrl": "https://llm.example/v1"})));
        llm("https://other.example/v1");
        let second = artifact().unwrap();
        metrics("https://q.example");
        let keys = [first, second, artifact().unwrap()].map(|artifact| gate::content_key(&artifact));
        assert_eq!(keys.iter().collect::<std::collections::HashSet<_>>().len(), 3, "{keys:?}");
        context.caches.integrations.remove(&Key::new("team-a", "llm"));
        assert_eq!(artifact(), None, "its models have no server");
    }
}
