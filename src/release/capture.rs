//! What an Agent holds, as the blocks of an artifact. Nothing of a Secret but its name is ever seen here.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde_json::Value;
use slipway_api::agent::{self, RiskProfile};
use slipway_api::{Agent, AgentSpec};

use crate::artifact::{
    AgentBlock, Artifact, Deployment, Governance, GovernanceLimits, Memory, Metadata, Model, PodTemplate, Price, Resources, Runtime,
};
use crate::{API_VERSION, Further, KIND, Resolved};

impl Artifact {
    /// The artifact of an Agent as it stands. `metadata.name` should be the Agent's.
    pub fn of(agent: &Agent, resolved: Resolved, metadata: Metadata) -> Self {
        let mut artifact = Self::of_spec(&agent.spec, agent.metadata.namespace.as_deref().unwrap_or_default(), resolved, metadata);
        if autoscaled(agent) {
            artifact.runtime.replicas = None;
        }
        artifact
    }

    pub(crate) fn of_spec(spec: &AgentSpec, namespace: &str, resolved: Resolved, metadata: Metadata) -> Self {
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            metadata,
            runtime: runtime(spec),
            agent: agent_block(spec),
            governance: governance(spec.governance.as_ref()),
            deployment: Deployment { namespace: namespace.to_owned(), environment: spec.environment.clone(), further: Further::new() },
            resolved,
        }
    }
}

/// Whether an autoscaler has set `replicas`: the API server's book of field owners says so. What somebody set by
/// `kubectl scale` is theirs.
pub fn autoscaled(agent: &Agent) -> bool {
    agent.metadata.managed_fields.iter().flatten().any(|entry| {
        entry.subresource.as_deref() == Some("scale")
            && entry.manager.as_deref() == Some("kube-controller-manager")
            && entry.fields_v1.as_ref().is_some_and(|fields| fields.0.pointer("/f:spec/f:replicas").is_some())
    })
}

fn runtime(spec: &AgentSpec) -> Runtime {
    Runtime {
        image: spec.image.clone(),
        channel: spec.channel.as_str().to_owned(),
        strategy: spec.strategy.as_str().to_owned(),
        replicas: Some(spec.replicas),
        resources: spec.resources.as_ref().map(|resources| {
            let amounts = |map: &BTreeMap<String, Quantity>| map.iter().map(|(name, amount)| (name.clone(), amount.0.clone())).collect();
            Resources { requests: amounts(&resources.requests), limits: amounts(&resources.limits), further: Further::new() }
        }),
        env_secrets: spec.env_secrets.clone(),
        credential_secret: spec.credential_secret.clone(),
        gcp_service_account: spec.gcp_service_account.clone(),
        access: spec.access.map(|access| access.as_str().to_owned()),
        expose: spec.expose.map(|expose| expose.as_str().to_owned()),
        // One that says nothing changes nothing.
        pod_template: spec.pod_template.as_ref().filter(|template| **template != agent::PodTemplate::default()).map(pod_template),
        further: Further::new(),
    }
}

fn pod_template(template: &agent::PodTemplate) -> PodTemplate {
    PodTemplate {
        labels: template.labels.clone(),
        annotations: template.annotations.clone(),
        node_selector: template.node_selector.clone(),
        tolerations: template.tolerations.iter().map(json).collect(),
        affinity: template.affinity.as_ref().map(json),
        priority_class_name: template.priority_class_name.clone(),
        image_pull_secrets: template.image_pull_secrets.iter().map(json).collect(),
        runtime_class_name: template.runtime_class_name.clone(),
        further: Further::new(),
    }
}

fn json(value: &impl Serialize) -> Value {
    // Plain structs with keys that are strings: there is nothing in them that could fail.
    serde_json::to_value(value).unwrap_or_default()
}

fn agent_block(spec: &AgentSpec) -> AgentBlock {
    AgentBlock {
        model: Model {
            provider: spec.model_type.as_str().to_owned(),
            id: spec.model_id.clone(),
            integration: spec.model_integration.clone(),
            further: Further::new(),
        },
        system_prompt: spec.system_prompt.clone(),
        skills: spec.skills.clone(),
        tools: spec.tools.clone(),
        knowledge_bases: spec.knowledge_bases.clone(),
        memory: Memory { backend: spec.storage.map(|storage| storage.as_str().to_owned()), further: Further::new() },
        framework: spec.framework.as_str().to_owned(),
        version: spec.version.clone(),
        background_model: spec.background_model.clone(),
        database_url: spec.database_url.clone(),
        database_credentials_secret: spec.database_credentials_secret.clone(),
        suggestions_provider: spec.suggestions_provider.map(|provider| provider.as_str().to_owned()),
        suggestions: spec.suggestions.clone(),
        judge_model: spec.judge_model.clone(),
        // None asks for as little as 0.
        eval_sample_rate: spec.eval_sample_rate.filter(|rate| *rate != 0),
        further: Further::new(),
    }
}

/// Defaults are written out, so that an empty block and a missing one are the same.
fn governance(governance: Option<&agent::Governance>) -> Governance {
    let governance = governance.cloned().unwrap_or_default();
    let profile = match governance.risk_profile.unwrap_or_default() {
        RiskProfile::Medium => RiskProfile::Standard,
        profile => profile,
    };
    Governance {
        guards: governance.guards.iter().map(|guard| guard.as_str().to_owned()).collect(),
        policies: governance.policies,
        risk_profile: profile.as_str().to_owned(),
        eval_dataset: governance.eval_dataset,
        min_quality_score: governance.min_quality_score.unwrap_or_default(),
        limits: governance.limits.filter(|limits| *limits != agent::Limits::default()).map(limits),
        further: Further::new(),
    }
}

fn limits(limits: agent::Limits) -> GovernanceLimits {
    GovernanceLimits {
        max_tokens_per_request: limits.max_tokens_per_request,
        requests_per_minute: limits.requests_per_minute,
        daily_cost_usd: limits.daily_cost_usd.map(amount),
        blocked_topics: limits.blocked_topics,
        prices: limits.prices.into_iter().map(price).collect(),
        further: Further::new(),
    }
}

fn price(price: agent::Price) -> Price {
    let agent::Price { model, input_usd, output_usd } = price;
    Price { model, input_usd: amount(input_usd), output_usd: amount(output_usd), further: Further::new() }
}

fn amount(amount: IntOrString) -> String {
    match amount {
        IntOrString::Int(whole) => whole.to_string(),
        IntOrString::String(text) => text,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use slipway_api::Agent;

    use super::*;
    use crate::samples;

    fn artifact(spec: &Value) -> Artifact {
        let mut whole = json!({"name": "Helper", "framework": "custom"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let spec = serde_json::from_value(whole).unwrap_or_else(|error| panic!("{spec}: {error}"));
        let mut agent = Agent::new("helper", spec);
        agent.metadata.namespace = Some("team-a".to_owned());
        Artifact::of(&agent, Resolved::default(), samples::metadata())
    }

    /// Fields of an Agent that no artifact has, and why: the first two are for people; a stopped agent is no other
    /// agent; and a canary runs beside the release, not in it.
    const ELSEWHERE: [&str; 4] = [".name", ".description", ".suspend", ".canary"];

    #[test]
    fn every_field_that_changes_what_runs_is_in_the_artifact() {
        let before = artifact(&json!({}));
        let leaves = samples::leaves(&samples::schema());
        let without = |seen: &dyn Fn(&Artifact) -> bool| -> BTreeSet<&str> {
            let unseen = leaves.iter().filter(|(_, values)| !values.iter().any(|value| seen(&artifact(value))));
            unseen.map(|(path, _)| path.as_str()).collect()
        };
        assert!(leaves.len() > 100, "{leaves:?}");
        for path in without(&|artifact| *artifact != before) {
            assert!(
                ELSEWHERE.iter().any(|exception| path == *exception || path.starts_with(&format!("{exception}."))),
                "spec{path}: add it to the artifact, or say here why not"
            );
        }
        let mut no_content = without(&|artifact| !artifact.same_content(&before));
        no_content.retain(|path| !path.starts_with(".canary."));
        assert_eq!(no_content, BTreeSet::from([".description", ".name", ".replicas", ".suspend"]));
    }

    #[test]
    fn nothing_of_a_canary_is_in_an_artifact() {
        let before = artifact(&json!({}));
        let leaves = samples::leaves(&samples::schema());
        let of_canaries: Vec<_> = leaves.iter().filter(|(path, _)| path.starts_with(".canary.")).collect();
        assert!(of_canaries.len() > 50, "{of_canaries:?}");
        for (path, values) in of_canaries {
            assert!(values.iter().all(|value| artifact(value) == before), "spec{path} is no part of a release");
        }
    }

    #[test]
    fn artifacts_look_as_they_did() {
        for (name, artifact, committed) in [
            ("full", samples::full(), include_str!("testdata/full.yaml")),
            ("minimal", samples::artifact("").sealed().unwrap(), include_str!("testdata/minimal.yaml")),
        ] {
            let written = artifact.to_yaml();
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                std::fs::write(format!("testdata/{name}.yaml"), &written).unwrap();
            }
            assert!(written == committed, "testdata/{name}.yaml should be:\n{written}");
            assert_eq!(Artifact::from_yaml(&written), Ok(artifact));
        }
    }

    #[test]
    fn replicas_of_an_autoscaler_are_left_out() {
        let entry = |manager: &str, subresource: Option<&str>, field: &str| json!({"manager": manager, "operation": "Update", "subresource": subresource, "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {field: {}}}});
        for (entry, replicas) in [
            (entry("kube-controller-manager", Some("scale"), "f:replicas"), None),
            (entry("kubectl", Some("scale"), "f:replicas"), Some(4)),
            (entry("kube-controller-manager", None, "f:replicas"), Some(4)),
            (entry("kube-controller-manager", Some("scale"), "f:other"), Some(4)),
        ] {
            let mut agent = samples::agent("replicas: 4");
            agent.metadata.managed_fields = Some(vec![serde_json::from_value(entry.clone()).unwrap()]);
            assert_eq!(Artifact::of(&agent, Resolved::default(), samples::metadata()).runtime.replicas, replicas, "{entry}");
        }
    }
}
