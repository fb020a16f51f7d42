//! The cases of a run. A Dataset may be large, so that none is cached: it is read when a run begins, and when its results are
//! judged.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use slipway_api::agent::Storage;
use slipway_api::dataset::{self, CASES_MAX, Case, Dataset, DatasetSpec};
use slipway_api::evaluation_run::EvaluationRunStatus;
use slipway_api::{Agent, EvaluationRun, ids};
use slipway_cluster::cached::Guarded;
use slipway_cluster::{Key, write};
use slipway_database::AppendedCase;
use slipway_evaluation::{seed, wire};

use super::MANAGER;
use super::plan::{ABSENT_TIMEOUT, Cause, Obstacle};
use crate::context::Context;

const INPUT_MAX: usize = 32 * 1024;
const FORGOTTEN: &str = "(a case of feedback, which has been deleted since)";
/// With what a request has besides, a runtime takes 8 MiB.
const REQUEST_BYTES_MAX: usize = 7 * 1024 * 1024;

/// A dataset as a run uses it.
pub(super) struct Cases {
    pub dataset: wire::Dataset,
    /// SHA-256 over guidelines and cases.
    pub digest: String,
    /// The same without the cases that feedback has appended, and how many cases there are without them.
    pub own_digest: String,
    own: usize,
}

impl Cases {
    /// The cases of a run whose dataset is as it was, but not what feedback had appended: of these only the number is known.
    pub(super) fn with_forgotten(mut self, total: usize) -> Self {
        self.dataset.cases.truncate(self.own);
        let forgotten = wire::Case { input: FORGOTTEN.to_owned(), ..wire::Case::default() };
        self.dataset.cases.resize(total.max(self.own), forgotten);
        self
    }
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
    let mut appended = match appended(context, run, agent).await {
        Ok(appended) => appended,
        Err(obstacle) => return Ok(Err(obstacle)),
    };
    let (own, own_digest) = (cases.len(), dataset::digest(&guidelines, &cases));
    // Cases that came after the run began stand behind those that it has.
    if let Some(total) = status.total_cases.filter(|_| status.started_at.is_some()) {
        appended.truncate(usize::try_from(total).unwrap_or_default().saturating_sub(own));
    }
    let cases = with_appended(cases, &appended);
    let digest = dataset::digest(&guidelines, &cases);
    let cases = cases.into_iter().map(wire::Case::from).collect();
    Ok(Ok(Cases { dataset: wire::Dataset { name, guidelines, cases }, digest, own_digest, own }))
}

/// The cases that feedback has appended for the run's agent. Whoever may chat may add one, so that a run that decides on a release
/// has none of them.
async fn appended(context: &Context, run: &EvaluationRun, agent: &Agent) -> Result<Vec<Case>, Obstacle> {
    let is_elsewhere = agent.spec.storage == Some(Storage::Memory) || agent.spec.database_url.is_some();
    if run.spec.exclude_feedback || run.spec.release.is_some() || is_elsewhere {
        return Ok(Vec::new());
    }
    let (namespace, name) = (run.namespace().unwrap_or_default(), &run.spec.agent);
    let Some((tenancy, team)) = context.tenancy.as_ref().zip(context.caches.team_of(&namespace)) else { return Ok(Vec::new()) };
    let uid = agent.uid().unwrap_or_default();
    match tenancy.appended_cases(&team, &ids::agent(&namespace, name), &uid).await {
        Ok(found) => Ok(found
            .into_iter()
            .map(|AppendedCase { input, metadata }| Case { input, metadata: Some(metadata), ..Case::default() })
            .collect()),
        Err(why) => {
            let message = format!(
                "the cases that feedback has appended cannot be read: {why}; the run waits for them, and a run with spec.excludeFeedback does without"
            );
            Err(Obstacle::Waits(Cause::new("FeedbackUnavailable", message), ABSENT_TIMEOUT))
        }
    }
}

/// The dataset's cases and, as far as there is room, the newest of those that feedback has appended.
fn with_appended(mut cases: Vec<Case>, appended: &[Case]) -> Vec<Case> {
    let size = |case: &Case| serde_json::to_vec(case).map_or(usize::MAX, |text| text.len()).saturating_add(1);
    let mut bytes = cases.iter().map(size).fold(2, usize::saturating_add);
    let room = CASES_MAX.saturating_sub(cases.len());
    let newest = appended.iter().rev().take(room).take_while(|case| {
        bytes = bytes.saturating_add(size(case));
        bytes <= REQUEST_BYTES_MAX
    });
    let fitting = newest.count();
    cases.extend_from_slice(&appended[appended.len() - fitting..]);
    cases
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
    let read = tokio::task::spawn_blocking(move || dataset::parse_cases(&text));
    let found = read.await.unwrap_or_else(|_| Err("the cases cannot be read".to_owned()));
    found.map_err(|fault| format!("spec.casesFrom: {fault}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_the_case() {
        let case = |input: &str| Case { input: input.to_owned(), ..Case::default() };
        assert_eq!(fault(&[case("a")]), None);
        assert!(fault(&[]).unwrap().contains("1 to 2000"));
        assert!(fault(&[case("a"), case("")]).unwrap().starts_with("cases[1].input"));
    }

    #[test]
    fn appended_cases_come_last_as_far_as_there_is_room() {
        let case = |input: String| Case { input, ..Case::default() };
        let inputs = |cases: &[Case]| cases.iter().map(|case| case.input.chars().take(9).collect()).collect::<Vec<String>>();
        let appended = ["old", "new"].map(|input| case(input.to_owned()));
        assert_eq!(inputs(&with_appended(vec![case("own".to_owned())], &appended)), ["own", "old", "new"]);
        assert_eq!(inputs(&with_appended(vec![case("own".to_owned())], &[])), ["own"]);
        let many: Vec<Case> = (1..CASES_MAX).map(|at| case(at.to_string())).collect();
        assert_eq!(inputs(&with_appended(many, &appended)[CASES_MAX - 2..]), ["1999", "new"]);
        let large: Vec<Case> = (0..300).map(|at| case(format!("{at:09}{}", "x".repeat(32_000)))).collect();
        let fitting = with_appended(vec![case("own".to_owned())], &large);
        assert!(fitting.len() > 200 && serde_json::to_vec(&fitting).unwrap().len() <= REQUEST_BYTES_MAX);
        assert_eq!(inputs(&fitting).last().unwrap(), "000000299");
    }
}
