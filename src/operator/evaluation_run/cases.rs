//! The cases of a run. A Dataset may be large, so that none is cached: it is read when a run begins, and when its results are
//! judged.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use sha2::{Digest, Sha256};
use slipway_api::dataset::{CASES_MAX, Case, Dataset, DatasetSpec};
use slipway_api::evaluation_run::EvaluationRunStatus;
use slipway_api::{Agent, EvaluationRun, ids, yaml};
use slipway_cluster::cached::Guarded;
use slipway_cluster::{Key, write};
use slipway_evaluation::{seed, wire};

use super::MANAGER;
use super::plan::{ABSENT_TIMEOUT, Cause, Obstacle};
use crate::context::Context;

/// The time to read YAML grows with the square of its brackets.
const YAML_BRACKETS_MAX: usize = 10_000;
const INPUT_MAX: usize = 32 * 1024;
/// With what a request has besides, a runtime takes 8 MiB.
const REQUEST_BYTES_MAX: usize = 7 * 1024 * 1024;

/// A dataset as a run uses it.
pub(super) struct Cases {
    pub dataset: wire::Dataset,
    /// SHA-256 over guidelines and cases.
    pub digest: String,
}

/// Reads the cases of a run, or says why there are none.
pub(super) async fn read(
    context: &Context,
    run: &EvaluationRun,
    status: &EvaluationRunStatus,
    agent: &Agent,
) -> Result<Result<Cases, Obstacle>, write::Error> {
    let namespace = run.namespace().unwrap_or_default();
    let name = match dataset_name(run, status, agent) {
        Some(name) => name,
        None => default_dataset(context, &namespace, agent).await?,
    };
    let api: Api<Guarded<Dataset>> = Api::namespaced(context.client.clone(), &namespace);
    let Some(found) = api.get_opt(&name).await? else {
        let message = format!("spec.dataset: there is no Dataset {name} in this namespace; the run waits for it");
        return Ok(Err(Obstacle::Waits(Cause::new("DatasetNotFound", message), ABSENT_TIMEOUT)));
    };
    let dataset = match found.0 {
        Ok(dataset) => dataset,
        Err(invalid) => return Ok(Err(invalid_dataset(&name, &invalid.error))),
    };
    if let Some(other) = dataset.spec.agent.as_ref().filter(|other| **other != run.spec.agent) {
        let message = format!("spec.dataset: Dataset {name} is for Agent {other} alone");
        return Ok(Err(Obstacle::Final(Cause::new("DatasetOfAnotherAgent", message))));
    }
    let DatasetSpec { guidelines, cases, cases_from, .. } = dataset.spec;
    let cases = match cases_from {
        None => cases,
        Some(from) => {
            let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), &namespace);
            let text = maps.get_opt(&from.config_map).await?.and_then(|map| map.data?.remove(&from.key));
            let Some(text) = text else {
                let message =
                    format!("Dataset {name}: spec.casesFrom: ConfigMap {} has no key {}; the run waits for it", from.config_map, from.key);
                return Ok(Err(Obstacle::Waits(Cause::new("DatasetNotFound", message), ABSENT_TIMEOUT)));
            };
            match parsed(text).await {
                Ok(cases) => cases,
                Err(fault) => return Ok(Err(invalid_dataset(&name, &fault))),
            }
        }
    };
    if let Some(fault) = fault(&cases) {
        return Ok(Err(invalid_dataset(&name, &fault)));
    }
    let guidelines = if run.spec.guidelines.is_empty() { guidelines } else { run.spec.guidelines.clone() };
    let digest = digest(&guidelines, &cases)?;
    let cases = cases.into_iter().map(wire::Case::from).collect();
    Ok(Ok(Cases { dataset: wire::Dataset { name, guidelines, cases }, digest }))
}

fn invalid_dataset(name: &str, fault: &str) -> Obstacle {
    Obstacle::Final(Cause::new("DatasetInvalid", format!("Dataset {name}: {fault}; mend it and make another run")))
}

/// What a run began with stays; else it is what the run names, or its agent.
fn dataset_name(run: &EvaluationRun, status: &EvaluationRunStatus, agent: &Agent) -> Option<String> {
    let begun = status.dataset.clone();
    let own = agent.spec.governance.as_ref().and_then(|governance| governance.eval_dataset.clone());
    begun.or_else(|| run.spec.dataset.clone().or(own).map(|reference| ids::dataset_name(&reference)))
}

/// The oldest dataset that is for this agent alone. An agent that has none gets one of five basic questions, which is the team's
/// from then on: it is never written again.
async fn default_dataset(context: &Context, namespace: &str, agent: &Agent) -> Result<String, write::Error> {
    let (name, api) = (agent.name_any(), Api::<Guarded<Dataset>>::namespaced(context.client.clone(), namespace));
    let own = api.list_metadata(&ListParams::default().fields(&format!("spec.agent={name}"))).await?;
    if let Some(oldest) = own.items.into_iter().min_by_key(|dataset| (dataset.creation_timestamp().map(|time| time.0), dataset.name_any()))
    {
        return Ok(oldest.name_any());
    }
    let seed_name = format!("{name}-seed");
    let spec = DatasetSpec {
        agent: Some(name.clone()),
        description: Some("Five basic questions, made because the agent had no dataset. It is yours to change.".to_owned()),
        cases: seed(),
        ..DatasetSpec::default()
    };
    let metadata = ObjectMeta { name: Some(seed_name.clone()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() };
    let dataset = Dataset { metadata, spec, status: None };
    let by = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match Api::<Dataset>::namespaced(context.client.clone(), namespace).create(&by, &dataset).await {
        Ok(_) => {
            tracing::info!(agent = %Key::new(namespace, name), dataset = seed_name, "an agent without a dataset has been given one");
            Ok(seed_name)
        }
        // It may be of another agent; whoever reads it finds out.
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(seed_name),
        Err(error) => Err(error.into()),
    }
}

/// Cases of a ConfigMap, as JSON or YAML. Reading them may take a while.
async fn parsed(text: String) -> Result<Vec<Case>, String> {
    let read = tokio::task::spawn_blocking(move || parse_cases(&text));
    read.await.unwrap_or_else(|_| Err("spec.casesFrom: the cases cannot be read".to_owned()))
}

fn parse_cases(text: &str) -> Result<Vec<Case>, String> {
    if text.trim_start().starts_with('[') {
        return serde_json::from_str(text).map_err(|error| format!("spec.casesFrom: not a JSON list of cases: {error}"));
    }
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count() > YAML_BRACKETS_MAX {
        return Err(format!("spec.casesFrom: YAML may have {YAML_BRACKETS_MAX} brackets at most; write the cases as JSON"));
    }
    yaml::read(text).map_err(|error| format!("spec.casesFrom: not a YAML list of cases: {error}"))
}

fn fault(cases: &[Case]) -> Option<String> {
    if cases.is_empty() || cases.len() > CASES_MAX {
        return Some(format!("cases: 1 to {CASES_MAX} are possible, and there are {}", cases.len()));
    }
    let input = |case: &Case| case.input.is_empty() || case.input.len() > INPUT_MAX;
    if let Some(at) = cases.iter().position(input) {
        return Some(format!("cases[{at}].input: must have 1 to {INPUT_MAX} bytes"));
    }
    let size = serde_json::to_vec(cases).map_or(usize::MAX, |text| text.len());
    (size > REQUEST_BYTES_MAX).then(|| format!("cases: at most {REQUEST_BYTES_MAX} bytes of JSON are possible, and there are {size}"))
}

fn digest(guidelines: &[String], cases: &[Case]) -> Result<String, serde_json::Error> {
    Ok(hex::encode(Sha256::digest(serde_json::to_vec(&(guidelines, cases))?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_a_config_map_are_json_or_yaml() {
        for text in ["- input: a\n  expectedOutput: b\n", r#"[{"input": "a", "expectedOutput": "b"}]"#] {
            let cases = parse_cases(text).unwrap();
            assert_eq!((cases.len(), cases[0].expected_output.as_deref()), (1, Some("b")), "{text}");
        }
        for (text, why) in [
            ("x: 1", "YAML list"),
            ("[1]", "JSON list"),
            (&"[".repeat(20_000)[..], "JSON"),
            (&format!("- {}", "[".repeat(20_000)), "brackets"),
        ] {
            let fault = parse_cases(text).unwrap_err();
            assert!(fault.contains(why), "{fault}");
        }
    }

    #[test]
    fn a_fault_names_the_case() {
        let case = |input: &str| Case { input: input.to_owned(), ..Case::default() };
        assert_eq!(fault(&[case("a")]), None);
        assert!(fault(&[]).unwrap().contains("1 to 2000"));
        assert!(fault(&[case("a"), case("")]).unwrap().starts_with("cases[1].input"));
    }

    #[test]
    fn the_digest_covers_guidelines_and_cases() {
        let cases = [Case { input: "a".to_owned(), ..Case::default() }];
        let all = [digest(&[], &cases), digest(&["be kind".to_owned()], &cases), digest(&[], &[])];
        let all: std::collections::BTreeSet<_> = all.into_iter().map(Result::unwrap).collect();
        assert_eq!(all.len(), 3);
    }
}
