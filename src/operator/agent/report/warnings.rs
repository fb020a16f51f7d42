//! What an Agent says that does not come to what its author may believe. Nothing of it stops the agent; each is a
//! condition of its own, there only while there is something to say.

use slipway_api::Agent;
use slipway_api::agent::Storage;
use slipway_api::condition::{
    ANSWERS_SAMPLED, Finding, MODEL_CONFIGURED, NOT_YET_EFFECTIVE, SPENDING_COUNTED, STORAGE_SHARED, TOOLS_AS_RELEASED, TOOLS_UNUSED,
};

use crate::agent::resolve::Plan;

/// The conditions that are warnings.
pub(super) const KINDS: [&str; 7] =
    [NOT_YET_EFFECTIVE, TOOLS_UNUSED, MODEL_CONFIGURED, SPENDING_COUNTED, STORAGE_SHARED, ANSWERS_SAMPLED, TOOLS_AS_RELEASED];

/// All warnings; without a plan, those that the spec alone gives rise to.
pub(super) fn of(agent: &Agent, plan: Option<&Plan>) -> Vec<Finding> {
    let mut found: Vec<Finding> = not_yet_effective(agent).into_iter().collect();
    let Some(plan) = plan else { return found };
    found.extend(plan.warnings.iter().cloned());
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

/// The fields that are taken and kept in releases, and do nothing yet.
fn not_yet_effective(agent: &Agent) -> Option<Finding> {
    let governance = agent.spec.governance.clone().unwrap_or_default();
    (!governance.policies.is_empty()).then(|| {
        let message = "spec.governance.policies has no effect in this version of Slipway; it can stay, and takes effect when that is built";
        Finding::new(NOT_YET_EFFECTIVE, true, "NotBuiltYet", message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::report::tests::agent;

    #[test]
    fn fields_without_effect_are_named() {
        for (spec, fields) in [
            ("replicas: 1", &[][..]),
            ("governance: {riskProfile: low, evalDataset: d, minQualityScore: 75}", &[]),
            ("governance: {guards: [rate-limit], minQualityScore: 0, limits: {requestsPerMinute: 5}}", &[]),
            ("knowledgeBases: [docs]", &[]),
            ("governance: {policies: [default]}", &["spec.governance.policies has no effect"]),
        ] {
            let found = of(&agent(spec), None);
            assert_eq!(found.len(), usize::from(!fields.is_empty()), "{spec}: {found:?}");
            for (finding, words) in found.iter().zip(fields) {
                assert_eq!((finding.kind, finding.holds), (NOT_YET_EFFECTIVE, Some(true)));
                assert!(finding.message.starts_with(words), "{spec}: {}", finding.message);
            }
        }
    }

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

    /// A field that is given to nobody has to be named above, or to be a label, or to stand in what pods are made from.
    #[test]
    fn every_field_has_an_effect_or_is_named() {
        let crd = serde_json::to_value(<Agent as kube::CustomResourceExt>::crd()).unwrap();
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let known = [
            "access",
            "backgroundModel",
            "channel",
            "credentialSecret",
            "databaseCredentialsSecret",
            "databaseUrl",
            "description",
            "envSecrets",
            "environment",
            "evalSampleRate",
            "framework",
            "gcpServiceAccount",
            "governance",
            "image",
            "judgeModel",
            "knowledgeBases",
            "modelId",
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
        assert_eq!(fields, known, "a new field has an effect, or is named by the condition NotYetEffective until it has");
        let governance: Vec<&String> = spec["governance"]["properties"].as_object().unwrap().keys().collect();
        assert_eq!(governance, ["evalDataset", "guards", "limits", "minQualityScore", "policies", "riskProfile"]);
    }
}
