//! The content of a run for MLflow, pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use slipway_api::condition::STALLED;
use slipway_api::evaluation_run::{EvaluationPhase, EvaluationRunStatus, Scorer};
use slipway_api::{EvaluationRun, ids};
use slipway_evaluation::wire::{CaseResult, REASON_BYTES_MAX, RunCase, ScoreState};
use slipway_evaluation::{Mean, summarize};
use slipway_mlflow::{Assessment, Facts, Found, Input, RunStatus, Source, trace_id};

use crate::evaluation_run::cases::Cases;
use crate::evaluation_run::plan::excerpt;

/// As many characters of a digest as MLflow takes with a run; a dataset's name has fewer.
const DIGEST_MAX: usize = 36;
const DIGEST_IN_NAME: usize = 12;
/// By how much a mean may differ from that in a status, which has been text meanwhile.
const MEAN_TOLERANCE: f64 = 1e-6;

/// A dataset with its cases, by a name that stands for this content alone.
pub(super) struct Dataset {
    pub name: String,
    pub tags: Map<String, Value>,
    pub records: Vec<Value>,
}

pub(super) fn run_status(status: &EvaluationRunStatus) -> RunStatus {
    match status.phase {
        Some(EvaluationPhase::Completed) => RunStatus::Finished,
        Some(EvaluationPhase::Cancelled) => RunStatus::Killed,
        _ => RunStatus::Failed,
    }
}

/// When the run began and ended, in milliseconds since 1970.
pub(super) fn times(run: &EvaluationRun, status: &EvaluationRunStatus) -> (i64, i64) {
    let milliseconds = |time: Option<Timestamp>| time.map(Timestamp::as_millisecond);
    let ended = milliseconds(status.completed_at.as_ref().map(|time| time.0)).unwrap_or_default();
    let started = status.started_at.as_ref().or(run.metadata.creation_timestamp.as_ref()).map(|time| time.0);
    (milliseconds(started).unwrap_or(ended), ended)
}

pub(super) fn facts(run: &EvaluationRun, status: &EvaluationRunStatus, team: Option<&str>) -> Facts {
    let namespace = run.namespace().unwrap_or_default();
    let given = |pairs: Vec<(&str, Option<String>)>| {
        let known = pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
        known.collect::<Vec<_>>()
    };
    let params = vec![
        ("agent", Some(run.spec.agent.clone())),
        ("track", Some(run.spec.track.as_str().to_owned())),
        ("version", status.version.map(|version| version.to_string())),
        ("run_hash", status.run_hash.clone()),
        ("dataset", status.dataset.clone()),
        ("dataset_digest", status.dataset_digest.clone()),
        ("risk_profile", status.risk_profile.map(|profile| profile.as_str().to_owned())),
        ("threshold", status.threshold.map(|threshold| threshold.to_string())),
        ("provider", status.provider.map(|provider| provider.as_str().to_owned())),
        ("judge_model", status.judge_model.clone()),
        ("prompts", (!status.prompts.is_empty()).then(|| status.prompts.join(", "))),
    ];
    let stalled = status.conditions.iter().find(|condition| condition.type_ == STALLED && condition.status == "True");
    let tags = vec![
        ("slipway.evaluation_id", status.id.clone()),
        ("slipway.evaluation_uid", run.uid()),
        ("slipway.agent_id", Some(ids::agent(&namespace, &run.spec.agent))),
        ("slipway.team", team.map(ids::team)),
        ("slipway.namespace", Some(namespace)),
        ("slipway.release", run.spec.release.clone()),
        ("slipway.phase", status.phase.map(|phase| phase.as_str().to_owned())),
        ("slipway.passed", status.passed.map(|passed| passed.to_string())),
        ("slipway.reason", stalled.map(|condition| condition.reason.clone())),
        ("mlflow.note.content", status.verdict.clone()),
    ];
    let usage = status.usage.unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "MLflow's metrics are floating-point numbers")]
    let tokens = |count: i64| status.usage.is_some().then_some(count as f64);
    let own = [
        ("score", status.score),
        ("margin", status.margin),
        ("total_cases", status.total_cases.map(f64::from)),
        ("passed_cases", status.passed_cases.map(f64::from)),
        ("agent_tokens", tokens(usage.agent_tokens)),
        ("judge_tokens", tokens(usage.judge_tokens)),
        ("cost_usd", usage.cost_usd),
    ];
    let own = own.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    let metrics = status.aggregate_scores.iter().map(|(key, value)| (key.clone(), *value)).chain(own).collect();
    Facts { params: given(params), metrics, tags: given(tags), at: times(run, status).1 }
}

/// The dataset that the run began with, if it did.
pub(super) fn input(namespace: &str, status: &EvaluationRunStatus) -> Option<Input> {
    let (name, digest) = (status.dataset.clone()?, status.dataset_digest.as_ref()?);
    let source = json!({"namespace": namespace, "dataset": name, "digest": digest});
    Some(Input { name, digest: digest.chars().take(DIGEST_MAX).collect(), source })
}

/// Without the cases that feedback has appended, which are no part of the dataset's digest.
pub(super) fn dataset(namespace: &str, cases: &Cases) -> Dataset {
    let Cases { dataset, digest, feedback, .. } = cases;
    let own = dataset.cases.len().saturating_sub(*feedback);
    let start: String = digest.chars().take(DIGEST_IN_NAME).collect();
    let tags = json!({
        "slipway.dataset": dataset.name,
        "slipway.namespace": namespace,
        "slipway.dataset_digest": digest,
    });
    let records = dataset.cases.iter().take(own).enumerate().map(|(place, case)| record(place, case, &dataset.guidelines));
    Dataset {
        name: format!("{namespace}/{}@{start}", dataset.name),
        tags: tags.as_object().cloned().unwrap_or_default(),
        records: records.collect(),
    }
}

/// A case, with the words that MLflow's own scorers have for what is expected.
fn record(place: usize, case: &RunCase, guidelines: &[String]) -> Value {
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let of = |key: &str| case.metadata.as_ref().and_then(|metadata| metadata.get(key)).cloned();
    let guidelines = of("guidelines").or_else(|| (!guidelines.is_empty()).then(|| json!(guidelines)));
    json!({
        "inputs": object([("input", Some(json!(case.input))), ("context", text(&case.context))]),
        "expectations": object([
            ("expected_response", text(&case.expected_output)),
            ("guidelines", guidelines),
            ("expected_tool_calls", of("expected_tool_calls")),
        ]),
        "tags": {"slipway.case": place.to_string()},
    })
}

fn object<const N: usize>(pairs: [(&str, Option<Value>); N]) -> Map<String, Value> {
    pairs.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// The scorers whose means the run has. What others gave does not count.
pub(super) fn scorers(status: &EvaluationRunStatus) -> Vec<Scorer> {
    let named = status.aggregate_scores.keys().filter_map(|key| key.strip_suffix("/mean"));
    named.filter_map(|name| serde_json::from_value(json!(name)).ok()).collect()
}

/// Whether a status can rest on these results: those of all cases have its means. Results of another attempt need not have them. Of
/// some of the cases nothing can be said.
pub(super) fn can_be_of(status: &EvaluationRunStatus, scorers: &[Scorer], total: usize, results: &[CaseResult]) -> bool {
    let is_told = |mean: &Mean| {
        let told = status.aggregate_scores.get(&format!("{}/mean", mean.scorer.as_str()));
        told.zip(mean.mean).is_some_and(|(told, mean)| (told - mean).abs() < MEAN_TOLERANCE)
    };
    results.len() < total || summarize(scorers, total, results).means.iter().all(is_told)
}

/// MLflow's ids of the cases' traces.
pub(super) fn traces(results: &[CaseResult]) -> BTreeMap<usize, String> {
    results.iter().filter_map(|result| Some((result.case, trace_id(result.trace_id.as_deref()?)?))).collect()
}

/// What each scorer found of each case whose trace MLflow has. A scorer that did not apply found nothing.
pub(super) fn assessments(uid: &str, run: &str, status: &EvaluationRunStatus, results: &[CaseResult], found: &Found) -> Vec<Assessment> {
    let traces = traces(results);
    let source = match &status.judge_model {
        Some(model) => Source::Judge(model.clone()),
        None => Source::Code("slipway".to_owned()),
    };
    let mut all = Vec::new();
    for result in results {
        let Some(trace) = traces.get(&result.case).filter(|trace| found.contains_key(*trace)) else { continue };
        for score in &result.scores {
            let reason = excerpt(&score.reason, REASON_BYTES_MAX);
            let value = match (score.state, score.counted()) {
                (ScoreState::Scored, Some(value)) => Ok(value),
                (ScoreState::Error, _) => Err(reason.clone()),
                _ => continue,
            };
            let name = score.scorer.as_str().to_owned();
            let id = format!("a-{}", &hex::encode(Sha256::digest(format!("{uid}/{}/{name}", result.case)))[..32]);
            all.push(Assessment { id, trace: trace.clone(), name, value, rationale: reason, source: source.clone(), run: run.to_owned() });
        }
    }
    all
}

/// What of the cases was sent, in words.
pub(super) fn coverage(status: &EvaluationRunStatus, known: usize, traces: usize, assessments: usize) -> String {
    let total = status.total_cases.unwrap_or_default();
    if status.aggregate_scores.is_empty() {
        return "; there are no scores".to_owned();
    }
    let mut words = format!("; {assessments} assessments on the traces of {traces} of {total} cases");
    if traces < known {
        words.push_str(", as MLflow has no others");
    }
    words
}

/// The results case by case that are not known any more, and why, in words.
pub(super) fn missing(status: &EvaluationRunStatus, known: usize, has_database: bool) -> Option<String> {
    let total = status.total_cases.and_then(|total| usize::try_from(total).ok()).unwrap_or_default();
    let missing = total.saturating_sub(known);
    if status.aggregate_scores.is_empty() || missing == 0 {
        return None;
    }
    let why = if has_database {
        "neither a pod of the agent nor the platform's database has them"
    } else {
        "the pod that had them is gone or has forgotten them, and the platform has no database in which they would be kept"
    };
    Some(format!("the results of {missing} of {total} cases are missing: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use slipway_evaluation::wire::{self, Score};

    use super::*;

    fn run() -> EvaluationRun {
        let text = "
            metadata: {name: ev-1, namespace: team-a, uid: u-1}
            spec: {agent: helper}
            status:
              phase: Completed
              id: ev_1
              dataset: golden
              datasetDigest: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
              totalCases: 3
              passed: true
              score: 75.0
              verdict: PASSED (avg=75 >= 60)
              threshold: 60.0
              aggregateScores: {safety/mean: 0.75}
              usage: {agentTokens: 10}
              startedAt: 2026-01-01T00:00:00Z
              completedAt: 2026-01-01T00:00:05Z";
        serde_yaml::from_str(text).unwrap()
    }

    #[test]
    fn a_run_is_told_with_what_is_known_and_nothing_else() {
        let run = run();
        let status = run.status.clone().unwrap();
        let facts = facts(&run, &status, Some("a"));
        let pairs = |pairs: &[(String, String)]| pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let digest = "0123456789abcdef".repeat(4);
        let params = ["agent=helper", "track=stable", "dataset=golden", &format!("dataset_digest={digest}"), "threshold=60"];
        assert_eq!(pairs(&facts.params), params);
        let judged = EvaluationRunStatus { prompts: vec!["safety@1".to_owned(), "fluency@2".to_owned()], ..status.clone() };
        assert_eq!(pairs(&super::facts(&run, &judged, None).params).last().map(String::as_str), Some("prompts=safety@1, fluency@2"));
        let metrics = [("safety/mean", 0.75), ("score", 75.0), ("total_cases", 3.0), ("agent_tokens", 10.0), ("judge_tokens", 0.0)];
        assert_eq!(facts.metrics, metrics.map(|(key, value)| (key.to_owned(), value)));
        let tags = pairs(&facts.tags);
        for tag in ["slipway.evaluation_id=ev_1", "slipway.team=tk_a", "slipway.passed=true", "mlflow.note.content=PASSED (avg=75 >= 60)"] {
            assert!(tags.iter().any(|other| other == tag), "{tag}: {tags:?}");
        }
        assert_eq!(facts.at - times(&run, &status).0, 5000);
        assert_eq!(input("team-a", &status).unwrap().digest, digest[..36]);
    }

    #[test]
    fn only_what_a_scorer_gave_or_failed_to_give_is_an_assessment() {
        let run = run();
        let status = run.status.clone().unwrap();
        assert_eq!(scorers(&status), [Scorer::Safety]);
        let trace = |end: char| format!("tr_01ARZ3NDEKTSV4RRFFQ69G5FA{end}");
        let result = |case, end, score| CaseResult { case, trace_id: Some(trace(end)), scores: vec![score], ..CaseResult::default() };
        let results = [
            result(0, 'V', Score::scored(Scorer::Safety, 0.5, "so")),
            result(1, 'W', Score::error(Scorer::Safety, "x".repeat(9000))),
            result(2, 'X', Score::skipped(Scorer::Safety, "does not apply")),
            result(3, 'Y', Score::scored(Scorer::Safety, 1.0, "MLflow has no trace of it")),
        ];
        let found: Found = ['V', 'W', 'X'].map(|end| (trace_id(&trace(end)).unwrap(), BTreeSet::new())).into();
        let sent = assessments("u-1", "r", &status, &results, &found);
        assert_eq!(sent.iter().map(|one| one.value.is_ok()).collect::<Vec<_>>(), [true, false]);
        assert!(sent[1].rationale.chars().count() <= REASON_BYTES_MAX);
        assert_eq!(sent, assessments("u-1", "r", &status, &results, &found), "ids are the same each time");
        assert_ne!(sent[0].id, assessments("u-2", "r", &status, &results, &found)[0].id);
    }

    #[test]
    fn results_with_other_means_are_another_attempts() {
        let status = run().status.unwrap();
        let score = |value: Option<f64>| match value {
            Some(value) => Score::scored(Scorer::Safety, value, "so"),
            None => Score::error(Scorer::Safety, "the judge failed"),
        };
        for (values, expected) in [
            (vec![Some(0.5), Some(1.0), Some(0.75)], true),
            (vec![Some(0.5), Some(1.0), None], true),
            (vec![Some(0.5), Some(1.0), Some(1.0)], false),
            (vec![None, None, None], false),
            // Some are missing, as when the database was away.
            (vec![Some(0.1), Some(0.1)], true),
            (vec![], true),
        ] {
            let one = |(case, value)| CaseResult { case, scores: vec![score(value)], ..CaseResult::default() };
            let results: Vec<CaseResult> = values.iter().copied().enumerate().map(one).collect();
            assert_eq!(can_be_of(&status, &scorers(&status), 3, &results), expected, "{values:?}");
        }
    }

    #[test]
    fn results_that_are_missing_are_told_with_why() {
        let status = run().status.unwrap();
        let told = |known, has_database| missing(&status, known, has_database).unwrap_or_default();
        assert_eq!([told(3, true), told(3, false)], [String::new(), String::new()]);
        assert!(told(0, false).starts_with("the results of 3 of 3 cases are missing") && told(0, false).contains("has no database"));
        assert!(told(2, true).starts_with("the results of 1 of 3 cases are missing") && !told(2, true).contains("has no database"));
        let unscored = EvaluationRunStatus { aggregate_scores: BTreeMap::new(), ..status.clone() };
        assert_eq!(missing(&unscored, 0, false), None, "there are none");
    }

    #[test]
    fn a_record_says_what_is_expected_in_mlflows_words() {
        let case = RunCase {
            input: "one".to_owned(),
            expected_output: Some("two".to_owned()),
            metadata: json!({"expected_tool_calls": [{"name": "t"}], "more": 1}).as_object().cloned(),
            ..RunCase::default()
        };
        let cases = Cases {
            dataset: wire::Dataset {
                name: "golden".to_owned(),
                guidelines: vec!["Be kind.".to_owned()],
                cases: vec![case, RunCase { input: "a mark's".to_owned(), ..RunCase::default() }],
            },
            digest: "0123456789abcdef".to_owned(),
            feedback: 1,
            feedback_digest: None,
        };
        let Dataset { name, records, .. } = dataset("team-a", &cases);
        assert_eq!(name, "team-a/golden@0123456789ab");
        let expected = json!({"inputs": {"input": "one"}, "tags": {"slipway.case": "0"},
            "expectations": {"expected_response": "two", "guidelines": ["Be kind."], "expected_tool_calls": [{"name": "t"}]}});
        assert_eq!(records, [expected]);
    }
}
