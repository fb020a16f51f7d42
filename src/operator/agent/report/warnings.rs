//! Fields of an Agent that do not have the effect that their author may expect. None of them stops the agent; each is a condition
//! of its own, which is there only while it applies.

use slipway_api::Agent;
use slipway_api::agent::Storage;
use slipway_api::condition::{
    ANSWERS_SAMPLED, Finding, MODEL_CONFIGURED, SPENDING_COUNTED, STORAGE_SHARED, TOOLS_AS_RELEASED, TOOLS_UNUSED,
};

use crate::agent::resolve::Plan;

/// The conditions that are warnings.
pub(super) const KINDS: [&str; 6] = [TOOLS_UNUSED, MODEL_CONFIGURED, SPENDING_COUNTED, STORAGE_SHARED, ANSWERS_SAMPLED, TOOLS_AS_RELEASED];

/// All warnings about an Agent that runs by this plan.
pub(super) fn of(agent: &Agent, plan: &Plan) -> Vec<Finding> {
    let mut found = plan.warnings.clone();
    if plan.storage == Storage::Memory && plan.replicas > 1 {
        let message = "storage is memory, so each of the replicas remembers other conversations; use storage: postgresql or one replica";
        found.push(Finding::new(STORAGE_SHARED, false, "MemoryPerReplica", message));
    }
    found.extend(not_sampled(agent, plan.storage));
    found
}

fn not_sampled(agent: &Agent, storage: Storage) -> Option<Finding> {
    (storage == Storage::Memory && agent.spec.eval_sample_rate.is_some_and(|rate| rate > 0)).then(|| {
        let message = "spec.evalSampleRate: storage is memory, and no answers are sampled; use storage: postgresql";
        Finding::new(ANSWERS_SAMPLED, false, "StorageMemory", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::report::tests::agent;

    #[test]
    fn who_keeps_no_answers_is_told_that_none_are_sampled() {
        for (spec, storage, told) in [
            ("evalSampleRate: 5", Storage::Memory, true),
            ("evalSampleRate: 5", Storage::Postgresql, false),
            ("evalSampleRate: 0", Storage::Memory, false),
            ("replicas: 1", Storage::Memory, false),
        ] {
            assert_eq!(not_sampled(&agent(spec), storage).is_some(), told, "{spec} {storage:?}");
        }
    }

    /// A field that is given to nobody has to be a label, or to stand in what pods are made from, or to be warned of here.
    #[test]
    fn every_field_has_an_effect_or_is_named() {
        let crd = serde_json::to_value(<Agent as kube::CustomResourceExt>::crd()).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let known = [
            "access",
            "backgroundModel",
            "canary",
            "channel",
            "credentialSecret",
            "databaseCredentialsSecret",
            "databaseUrl",
            "description",
            "envSecrets",
            "environment",
            "evalSampleRate",
            "expose",
            "framework",
            "gcpServiceAccount",
            "governance",
            "image",
            "judgeModel",
            "knowledgeBases",
            "modelId",
            "modelIntegration",
            "modelType",
            "name",
            "podTemplate",
            "replicas",
            "resources",
            "skills",
            "storage",
            "strategy",
            "suggestions",
            "suggestionsProvider",
            "suspend",
            "systemPrompt",
            "tools",
            "version",
        ];
        let fields: Vec<&String> = spec.as_object().unwrap().keys().collect();
        assert_eq!(fields, known, "a new field has an effect, or is warned of until it has");
        let governance: Vec<&String> = spec["governance"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(governance, ["evalDataset", "guards", "limits", "minQualityScore", "policies", "riskProfile"]);
    }
}
