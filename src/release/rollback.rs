//! The way back: what has to be written into an Agent's spec so that its content is an artifact's again.
//!
//! Name, description, `suspend` and the canary are the Agent's own and stay. What an artifact says in words that this version does
//! not know cannot be brought back, and nothing is brought back then: half of a release is none.
//!
//! And the way on: what has to be written so that a canary's configuration is the Agent's.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use slipway_api::AgentSpec;
use slipway_api::agent;

use crate::artifact::{Artifact, Governance, GovernanceLimits, PodTemplate, Price, Resources};
use crate::diff::changes;
use crate::read::tree;
use crate::{ArtifactFault, Resolved};

/// The merge patch for the Agent (`{"spec": {…}}`), or `{}` if its content is the artifact's already.
///
/// Lists become empty, replicas go to 0, and what the artifact does not have is null. `replicas` of an agent under an
/// autoscaler are the autoscaler's: see [`Artifact::without_replicas`].
pub fn rollback(artifact: &Artifact, now: &AgentSpec) -> Result<Value, ArtifactFault> {
    let wanted = spec(artifact, now)?;
    let mut patch = Map::new();
    if wanted != *now {
        patch.insert("spec".to_owned(), merge_patch(&tree(now), &tree(&wanted)));
    }
    Ok(Value::Object(patch))
}

/// The merge patch that ends a canary and makes its configuration the Agent's. None without a canary.
pub fn promotion(now: &AgentSpec) -> Option<Value> {
    let canary = now.canary.as_ref()?;
    Some(json!({"spec": merge_patch(&tree(now), &tree(&canary.promoted(now)))}))
}

/// The spec that has the artifact's content, and all else from the spec as it is `now`.
pub fn spec(artifact: &Artifact, now: &AgentSpec) -> Result<AgentSpec, ArtifactFault> {
    let replicas = artifact.runtime.replicas.unwrap_or(now.replicas);
    let captured = |spec: &AgentSpec| {
        let namespace = &artifact.deployment.namespace;
        Artifact::of_spec(spec, namespace, Resolved::default(), artifact.metadata.clone())
    };
    if captured(now).same_content(artifact) {
        return Ok(AgentSpec { replicas, ..now.clone() });
    }
    let wanted = AgentSpec { replicas, ..brought_back(artifact, now)? };
    // What is not found again in the spec was not understood.
    let lost = changes(&captured(&wanted).content(), &artifact.content());
    if lost.is_empty() { Ok(wanted) } else { Err(ArtifactFault::UnknownFields(lost.into_iter().map(|change| change.path).collect())) }
}

impl Artifact {
    /// The artifact for an agent whose replicas somebody else sets.
    #[must_use]
    pub fn without_replicas(mut self) -> Self {
        self.runtime.replicas = None;
        self
    }
}

fn brought_back(artifact: &Artifact, now: &AgentSpec) -> Result<AgentSpec, ArtifactFault> {
    let Artifact { runtime, agent, deployment, .. } = artifact;
    Ok(AgentSpec {
        name: now.name.clone(),
        description: now.description.clone(),
        suspend: now.suspend,
        replicas: now.replicas,
        canary: now.canary.clone(),
        image: runtime.image.clone(),
        channel: word("runtime.channel", &runtime.channel)?,
        strategy: word("runtime.strategy", &runtime.strategy)?,
        resources: runtime.resources.as_ref().map(resources),
        env_secrets: runtime.env_secrets.clone(),
        credential_secret: runtime.credential_secret.clone(),
        gcp_service_account: runtime.gcp_service_account.clone(),
        access: runtime.access.as_deref().map(|found| word("runtime.access", found)).transpose()?,
        expose: runtime.expose.as_deref().map(|found| word("runtime.expose", found)).transpose()?,
        pod_template: runtime.pod_template.as_ref().map(pod_template).transpose()?,
        model_type: word("agent.model.provider", &agent.model.provider)?,
        model_id: agent.model.id.clone(),
        model_integration: agent.model.integration.clone(),
        system_prompt: agent.system_prompt.clone(),
        skills: agent.skills.clone(),
        tools: agent.tools.clone(),
        knowledge_bases: agent.knowledge_bases.clone(),
        storage: agent.memory.backend.as_deref().map(|found| word("agent.memory.backend", found)).transpose()?,
        framework: word("agent.framework", &agent.framework)?,
        version: agent.version.clone(),
        background_model: agent.background_model.clone(),
        database_url: agent.database_url.clone(),
        database_credentials_secret: agent.database_credentials_secret.clone(),
        suggestions_provider: agent.suggestions_provider.as_deref().map(|found| word("agent.suggestions_provider", found)).transpose()?,
        suggestions: agent.suggestions.clone(),
        judge_model: agent.judge_model.clone(),
        eval_sample_rate: agent.eval_sample_rate,
        governance: governance(&artifact.governance)?,
        environment: deployment.environment.clone(),
    })
}

/// A word of one of the Agent's enumerations.
fn word<T: DeserializeOwned>(field: &'static str, found: &str) -> Result<T, ArtifactFault> {
    serde_json::from_value(Value::from(found)).map_err(|_| ArtifactFault::UnknownWord { field, found: found.to_owned() })
}

/// One of Kubernetes' own objects.
fn object<T: DeserializeOwned>(field: &'static str, found: &Value) -> Result<T, ArtifactFault> {
    serde_json::from_value(found.clone()).map_err(|error| ArtifactFault::Inconsistent { field, problem: error.to_string() })
}

fn objects<T: DeserializeOwned>(field: &'static str, found: &[Value]) -> Result<Vec<T>, ArtifactFault> {
    found.iter().map(|found| object(field, found)).collect()
}

fn resources(resources: &Resources) -> agent::Resources {
    let amounts = |map: &BTreeMap<String, String>| -> BTreeMap<_, _> {
        map.iter().map(|(name, amount)| (name.clone(), Quantity(amount.clone()))).collect()
    };
    agent::Resources { requests: amounts(&resources.requests), limits: amounts(&resources.limits) }
}

fn pod_template(template: &PodTemplate) -> Result<agent::PodTemplate, ArtifactFault> {
    Ok(agent::PodTemplate {
        labels: template.labels.clone(),
        annotations: template.annotations.clone(),
        node_selector: template.node_selector.clone(),
        tolerations: objects("runtime.pod_template.tolerations", &template.tolerations)?,
        affinity: template.affinity.as_ref().map(|found| object("runtime.pod_template.affinity", found)).transpose()?,
        priority_class_name: template.priority_class_name.clone(),
        image_pull_secrets: objects("runtime.pod_template.image_pull_secrets", &template.image_pull_secrets)?,
        runtime_class_name: template.runtime_class_name.clone(),
    })
}

/// The Agent's block, or none if it would only say what holds without it.
fn governance(governance: &Governance) -> Result<Option<agent::Governance>, ArtifactFault> {
    let all = |list: &[String]| list.iter().map(|found| word("governance.guards", found)).collect::<Result<Vec<_>, _>>();
    let profile: agent::RiskProfile = word("governance.risk_profile", &governance.risk_profile)?;
    let block = agent::Governance {
        guards: all(&governance.guards)?,
        policies: governance.policies.clone(),
        risk_profile: (profile != agent::RiskProfile::default()).then_some(profile),
        eval_dataset: governance.eval_dataset.clone(),
        min_quality_score: (governance.min_quality_score != 0).then_some(governance.min_quality_score),
        limits: governance.limits.as_ref().map(limits),
    };
    Ok((block != agent::Governance::default()).then_some(block))
}

fn limits(limits: &GovernanceLimits) -> agent::Limits {
    agent::Limits {
        max_tokens_per_request: limits.max_tokens_per_request,
        requests_per_minute: limits.requests_per_minute,
        daily_cost_usd: limits.daily_cost_usd.clone().map(IntOrString::String),
        blocked_topics: limits.blocked_topics.clone(),
        prices: limits.prices.iter().map(price).collect(),
    }
}

fn price(price: &Price) -> agent::Price {
    let amount = |text: &String| IntOrString::String(text.clone());
    agent::Price { model: price.model.clone(), input_usd: amount(&price.input_usd), output_usd: amount(&price.output_usd) }
}

/// The smallest merge patch (RFC 7386) that makes `to` out of `from`. Neither has a null in it.
fn merge_patch(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let kept = to.iter().filter(|(key, value)| from.get(*key) != Some(value));
    gone.chain(kept.map(|(key, value)| (key.clone(), merge_patch(from.get(key).unwrap_or(&Value::Null), value)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::samples;

    type Altered = fn(&mut Artifact);

    /// What the API server makes of a merge patch: the patch, then the schema's defaults.
    fn patched(now: &AgentSpec, patch: &Value) -> AgentSpec {
        let mut agent = json!({ "spec": tree(now) });
        json_patch::merge(&mut agent, patch);
        serde_json::from_value(agent["spec"].clone()).unwrap_or_else(|error| panic!("{error}: {agent}"))
    }

    #[test]
    fn only_what_differs_is_written() {
        let cases = [
            ("", "", json!({})),
            ("", "tools: [a]", json!({"spec": {"tools": null}})),
            ("tools: [b]", "tools: [a]", json!({"spec": {"tools": ["b"]}})),
            ("replicas: 0", "replicas: 3", json!({"spec": {"replicas": 0}})),
            ("envSecrets: []", "", json!({"spec": {"envSecrets": []}})),
            ("systemPrompt: a", "systemPrompt: b, suspend: true, description: Mine.", json!({"spec": {"systemPrompt": "a"}})),
            ("", "systemPrompt: b", json!({"spec": {"systemPrompt": null}})),
            ("", "governance: {guards: [pii-detection]}", json!({"spec": {"governance": null}})),
            ("", "governance: {riskProfile: medium}", json!({})),
            (
                "governance: {guards: [max-tokens]}",
                "governance: {guards: [max-tokens], limits: {maxTokensPerRequest: 5}, riskProfile: high}",
                json!({"spec": {"governance": {"limits": null, "riskProfile": null}}}),
            ),
            (
                "podTemplate: {labels: {a: b}}",
                "podTemplate: {labels: {a: c, d: e}, affinity: {nodeAffinity: {}}}",
                json!({"spec": {"podTemplate": {"labels": {"a": "b", "d": null}, "affinity": null}}}),
            ),
            ("resources: {}", "resources: {limits: {cpu: 1}}", json!({"spec": {"resources": {"limits": null}}})),
        ];
        for (target, now, expected) in cases {
            let (target, now) = (samples::artifact(target), samples::agent(now).spec);
            assert_eq!(rollback(&target, &now), Ok(expected));
        }
    }

    #[test]
    fn what_is_not_understood_is_not_half_brought_back() {
        let now = samples::agent("").spec;
        let cases: [(Altered, &str); 5] = [
            (|a| a.runtime.strategy = "clever".to_owned(), "runtime.strategy: \"clever\" is not known to this version of Slipway"),
            (|a| a.governance.guards.push("telepathy".to_owned()), "governance.guards: \"telepathy\" is not known"),
            (|a| drop(a.agent.model.further.insert("temperature".to_owned(), json!(1))), "agent.model.temperature: not known"),
            (|a| drop(a.runtime.further.insert("autoscaling".to_owned(), json!({"cpu": 80}))), "runtime.autoscaling.cpu: not known"),
            (
                |a| a.runtime.pod_template.as_mut().unwrap().affinity = Some(json!({"moonPhase": "full"})),
                "runtime.pod_template.affinity.moonPhase: not known",
            ),
        ];
        for (change, expected) in cases {
            let mut artifact = samples::artifact("podTemplate: {affinity: {}}");
            change(&mut artifact);
            let fault = rollback(&artifact, &now).expect_err(expected).to_string();
            assert!(fault.contains(expected), "should say {expected:?}: {fault}");
        }
    }

    #[test]
    fn a_promotion_writes_what_the_canary_has_and_ends_it() {
        for (now, expected) in [
            ("", None),
            ("canary: {enabled: true, weight: 5}", Some(json!({"spec": {"canary": null}}))),
            (
                "systemPrompt: a, tools: [x], canary: {enabled: true, weight: 5, systemPrompt: b, tools: [], version: canary}",
                Some(json!({"spec": {"canary": null, "systemPrompt": "b", "tools": null}})),
            ),
            (
                "version: one, governance: {riskProfile: high}, canary: {enabled: true, weight: 5, version: two, overrides: {governance: {policies: [p]}}}",
                Some(json!({"spec": {"canary": null, "version": "two", "governance": {"riskProfile": null, "policies": ["p"]}}})),
            ),
        ] {
            assert_eq!(promotion(&samples::agent(now).spec), expected, "{now}");
        }
    }

    #[test]
    fn an_autoscalers_replicas_stay() {
        let artifact = samples::artifact("replicas: 1, systemPrompt: a").without_replicas();
        let now = samples::agent("replicas: 7").spec;
        assert_eq!(rollback(&artifact, &now), Ok(json!({"spec": {"systemPrompt": "a"}})));
    }

    proptest! {
        #[test]
        fn any_agent_is_brought_back(then in samples::spec(), now in samples::spec()) {
            let of = |spec| Artifact::of_spec(spec, "team-a", Resolved::default(), samples::metadata());
            let artifact = of(&then);
            let back = patched(&now, &rollback(&artifact, &now).unwrap());
            prop_assert!(of(&back).same_content(&artifact), "{back:#?}\nshould have the content of\n{artifact:#?}");
            prop_assert_eq!(back.replicas, then.replicas);
            prop_assert_eq!((&back.name, &back.description, back.suspend), (&now.name, &now.description, now.suspend));
            prop_assert_eq!(&back.canary, &now.canary);
            prop_assert_eq!(rollback(&artifact, &back), Ok(json!({})));
            prop_assert_eq!(spec(&artifact, &now), Ok(back));
        }

        #[test]
        fn any_promotion_makes_the_spec_what_the_canary_ran(now in samples::spec()) {
            let promoted = promotion(&now).map(|patch| patched(&now, &patch));
            prop_assert_eq!(promoted, now.canary.as_ref().map(|canary| canary.promoted(&now)));
        }
    }
}
