//! The cases of a run. A Dataset may be large, so that none is cached: it is read when a run begins, and when its results are
//! judged.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use slipway_api::agent::Storage;
use slipway_api::dataset::{self, CASES_MAX, Case, Dataset, DatasetSpec};
use slipway_api::evaluation_run::EvaluationRunStatus;
use slipway_api::{Agent, EvaluationRun, ids};
use slipway_cluster::{Guarded, Key, write};
use slipway_database::AppendedCase;
use slipway_evaluation::{seed, wire};

use super::MANAGER;
use super::plan::{ABSENT_TIMEOUT, Cause, Obstacle, decides};
use crate::caches::evaluation_run::lacks_guidelines;
use crate::context::Context;

const INPUT_MAX: usize = 32 * 1024;
/// What marks a case that feedback has appended.
const FEEDBACK: &str = "negative_feedback";
const FORGOTTEN: &str = "(a case of feedback that cannot be read any more)";
/// With what a request has besides, a runtime takes 8 MiB.
const REQUEST_BYTES_MAX: usize = 7 * 1024 * 1024;

/// A dataset as a run uses it.
pub(super) struct Cases {
    pub dataset: wire::Dataset,
    /// SHA-256 over the dataset's guidelines and cases.
    pub digest: String,
    /// How many of the cases, the last ones, feedback has appended, and SHA-256 over their traces.
    pub feedback: usize,
    pub feedback_digest: Option<String>,
}

/// Reads the cases of a run, or says why there are none. Of one that a pod has been sent, `sent` is their number.
pub(super) async fn read(
    context: &Context,
    run: &EvaluationRun,
    status: &EvaluationRunStatus,
    agent: &Agent,
    sent: Option<usize>,
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
    let of_run = Box::pin(own_guidelines(context, run)).await?;
    let guidelines = if of_run.is_empty() { guidelines } else { of_run };
    let appended = match appended(context, run, agent).await {
        Ok(appended) => appended,
        Err(_) if sent.is_some() => Vec::new(),
        Err(obstacle) => return Ok(Err(obstacle)),
    };
    let own = cases.len();
    let chosen = match (&status.feedback_digest, status.feedback_cases) {
        (Some(digest), Some(count)) => begun_with(&appended, digest, usize::try_from(count).unwrap_or_default()),
        _ if status.started_at.is_some() => &[],
        _ => newest(&cases, &appended),
    };
    let (digest, mut feedback_digest) = (dataset::digest(&guidelines, &cases), traces_digest(chosen));
    let feedback = chosen.iter().map(|case| feedback_case(&case.input, Some(&case.trace)));
    let mut cases: Vec<_> = cases.into_iter().chain(feedback).map(wire::RunCase::from).collect();
    // The pod has the questions; without them its results still count.
    if let Some(total) = sent.map(|sent| sent.clamp(own, CASES_MAX.max(own))).filter(|total| *total != cases.len()) {
        cases.truncate(own);
        cases.resize(total, feedback_case(FORGOTTEN, None).into());
        feedback_digest = None;
    }
    let feedback = cases.len() - own;
    Ok(Ok(Cases { dataset: wire::Dataset { name, guidelines, cases }, digest, feedback, feedback_digest }))
}

/// The guidelines of the run itself, which the cache has not.
async fn own_guidelines(context: &Context, run: &EvaluationRun) -> Result<Vec<String>, write::Error> {
    if !lacks_guidelines(&run.spec) {
        return Ok(run.spec.guidelines.clone());
    }
    let runs: Api<EvaluationRun> = Api::namespaced(context.client.clone(), &run.namespace().unwrap_or_default());
    Ok(runs.get(&run.name_any()).await?.spec.guidelines)
}

/// What feedback has appended for the run's agent. Every user who may chat may add a case, so that a run that decides has none.
async fn appended(context: &Context, run: &EvaluationRun, agent: &Agent) -> Result<Vec<AppendedCase>, Obstacle> {
    let is_elsewhere = agent.spec.storage == Some(Storage::Memory) || agent.spec.database_url.is_some();
    if run.spec.exclude_feedback || decides(run) || is_elsewhere {
        return Ok(Vec::new());
    }
    let (namespace, name) = (run.namespace().unwrap_or_default(), &run.spec.agent);
    let Some((tenancy, team)) = context.tenancy.as_ref().zip(context.caches.team_of(&namespace)) else { return Ok(Vec::new()) };
    let uid = agent.uid().unwrap_or_default();
    tenancy.appended_cases(&team, &ids::agent(&namespace, name), &uid).await.map_err(|why| {
        let message = format!(
            "the cases that feedback has appended cannot be read: {why}; the run waits for them, and a run with spec.excludeFeedback does without"
        );
        Obstacle::Waits(Cause::new("FeedbackUnavailable", message), ABSENT_TIMEOUT)
    })
}

fn feedback_case(input: &str, trace: Option<&str>) -> Case {
    let metadata = [("source", Some(FEEDBACK)), ("trace_id", trace)];
    let metadata = metadata.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into()))).collect();
    Case { input: input.to_owned(), metadata: Some(metadata), ..Case::default() }
}

/// As many of the newest appended cases as there is room for beside the dataset's.
fn newest<'a>(cases: &[Case], appended: &'a [AppendedCase]) -> &'a [AppendedCase] {
    let size = |case: &Case| serde_json::to_vec(case).map_or(usize::MAX, |text| text.len()).saturating_add(1);
    let mut bytes = cases.iter().map(size).fold(2, usize::saturating_add);
    let fitting = appended.iter().rev().take(CASES_MAX.saturating_sub(cases.len())).take_while(|case| {
        bytes = bytes.saturating_add(size(&feedback_case(&case.input, Some(&case.trace))));
        bytes <= REQUEST_BYTES_MAX
    });
    &appended[appended.len() - fitting.count()..]
}

/// The appended cases with which a run began: others may have come after them, and older ones may have gone.
fn begun_with<'a>(appended: &'a [AppendedCase], digest: &str, count: usize) -> &'a [AppendedCase] {
    let found = appended.windows(count.max(1)).rfind(|cases| traces_digest(cases).as_deref() == Some(digest));
    found.unwrap_or_default()
}

fn traces_digest(appended: &[AppendedCase]) -> Option<String> {
    let traces: Vec<String> = appended.iter().map(|case| case.trace.clone()).collect();
    (!traces.is_empty()).then(|| dataset::digest(&traces, &[]))
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

/// The oldest dataset that is for this agent alone, a protected one before all others: whom a gate holds may write the others, and
/// may have had one before. An agent that has none gets one of five basic questions, which is the team's from then on: it is never
/// written again.
async fn default_dataset(context: &Context, namespace: &str, agent: &Agent) -> Result<String, write::Error> {
    let (name, api) = (agent.name_any(), Api::<Guarded<Dataset>>::namespaced(context.client.clone(), namespace));
    for fields in [format!("spec.agent={name},spec.protected=true"), format!("spec.agent={name}")] {
        let own = api.list_metadata(&ListParams::default().fields(&fields)).await?.items.into_iter();
        if let Some(oldest) = own.min_by_key(|dataset| (dataset.creation_timestamp().map(|time| time.0), dataset.name_any())) {
            return Ok(oldest.name_any());
        }
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
        // It may be of another agent; its reader finds out.
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

    fn appended(numbers: std::ops::Range<usize>, length: usize) -> Vec<AppendedCase> {
        let case = |number| AppendedCase { trace: format!("tr_{number}"), input: "x".repeat(length) };
        numbers.map(case).collect()
    }

    #[test]
    fn the_newest_appended_cases_are_taken_as_far_as_there_is_room() {
        let own = |count| vec![Case { input: "own".to_owned(), ..Case::default() }; count];
        let few = appended(0..2, 10);
        assert_eq!(newest(&own(1), &few), few);
        assert_eq!(newest(&own(1), &[]), []);
        assert_eq!(newest(&own(CASES_MAX - 1), &few), &few[1..]);
        assert_eq!(newest(&own(CASES_MAX), &few), []);
        let large = appended(0..300, 32_000);
        let fitting = newest(&own(1), &large);
        assert!(fitting.len() > 200 && fitting.len() < 230 && fitting.last() == large.last(), "{}", fitting.len());
    }

    #[test]
    fn what_a_run_began_with_is_found_again_unless_some_of_it_is_gone() {
        let digest = traces_digest(&appended(3..6, 10)).unwrap();
        let begun_with =
            |appended: &[AppendedCase]| begun_with(appended, &digest, 3).iter().map(|case| case.trace.clone()).collect::<Vec<_>>();
        for then in [3..6, 3..9, 0..6, 5..9, 0..0] {
            let expected: &[&str] = if then.start <= 3 && then.end >= 6 { &["tr_3", "tr_4", "tr_5"] } else { &[] };
            assert_eq!(begun_with(&appended(then.clone(), 10)), expected, "{then:?}");
        }
        let mut without = appended(0..9, 10);
        without.remove(4);
        assert_eq!(begun_with(&without), [""; 0]);
    }

    #[test]
    fn an_appended_case_is_marked_and_has_nothing_that_scorers_read() {
        let case = serde_json::to_value(feedback_case("what?", Some("tr_1"))).unwrap();
        assert_eq!(case, serde_json::json!({"input": "what?", "metadata": {"source": "negative_feedback", "trace_id": "tr_1"}}));
    }
}
