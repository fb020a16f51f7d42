//! A run of an evaluation as REST shows it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition as Found;
use kube::ResourceExt;
use schemars::JsonSchema;
use serde::Serialize;
use slipway_api::agent::RiskProfile;
use slipway_api::evaluation_run::{EvaluatedTrack, EvaluationPhase, EvaluationProvider, EvaluationUsage, Scorer, WorstCase};
use slipway_api::{EvaluationRun, condition, ids};

use crate::list_cache::{self, ListEntry};

/// A run as a list shows it: without its worst cases and conditions.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EvaluationSummary")]
pub(crate) struct Summary {
    pub id: String,
    pub agent_id: String,
    /// The number of the release that was evaluated. Empty where it is none, or is not known yet.
    pub agent_version: String,
    /// Null until the run begins, where the run names none.
    pub dataset_name: Option<String>,
    /// What is evaluated: what serves, or a release that waits for its evaluation.
    pub track: EvaluatedTrack,
    pub status: Status,
    /// Why it waits, or has no scores.
    pub message: Option<String>,
    /// Who judged: `slipway` is a judge model, `heuristic` a comparison of words, `mock` nobody, because the agent could not
    /// be reached. Null until it is known.
    pub provider: Option<EvaluationProvider>,
    /// The means by scorer (`safety/mean`), 0 to 1, over the cases to which the scorer applied.
    pub aggregate_scores: BTreeMap<String, f64>,
    /// Null until the run begins.
    pub total_cases: Option<i32>,
    /// How many of these, the last ones, feedback has appended to those of the dataset. Null until the run begins.
    pub feedback_cases: Option<i32>,
    pub finished_cases: i32,
    /// The cases that reached the threshold.
    pub passed_cases: i32,
    /// The mean of the scorers' means, 0 to 100. Null where nothing was scored.
    pub score: Option<f64>,
    /// The score to reach, 0 to 100.
    pub threshold: Option<f64>,
    /// Whether the score reached it. Null where there is no verdict.
    pub passed: Option<bool>,
    /// The verdict in words, for example `PASSED (avg=91.2 >= 75)`.
    pub verdict: Option<String>,
    pub risk_profile: Option<RiskProfile>,
    pub judge_model: Option<String>,
    pub usage: Option<Usage>,
    pub started_at: Option<String>,
    pub completed_at: Option<String>,
    pub resource_version: Option<String>,
    pub created_at: String,
}

/// A run, with the cases that went worst.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Evaluation")]
pub(crate) struct View {
    #[serde(flatten)]
    pub summary: Summary,
    /// Half the width of the interval that holds the score with 95 % confidence.
    pub margin: Option<f64>,
    /// The prompts that the judge model was asked with, by scorer and version (`correctness@1`). Scores by other versions are of
    /// another measure.
    pub prompts: Vec<String>,
    /// The cases with the lowest scores, at most 20.
    pub worst_cases: Vec<Case>,
    pub conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "EvaluationStatus")]
pub(crate) enum Status {
    Pending,
    Running,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    pub(crate) const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn of(run: &EvaluationRun) -> Self {
        match run.status.as_ref().and_then(|status| status.phase) {
            None | Some(EvaluationPhase::Pending) => Self::Pending,
            Some(EvaluationPhase::Running) => Self::Running,
            Some(EvaluationPhase::Completed) => Self::Completed,
            Some(EvaluationPhase::Failed) => Self::Failed,
            Some(EvaluationPhase::Cancelled) => Self::Cancelled,
        }
    }
}

/// What a run took of models.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EvaluationTokens")]
pub(crate) struct Usage {
    pub agent_tokens: i64,
    pub judge_tokens: i64,
    /// For both, where the prices are known.
    pub cost_usd: Option<f64>,
}

impl From<EvaluationUsage> for Usage {
    fn from(EvaluationUsage { agent_tokens, judge_tokens, cost_usd }: EvaluationUsage) -> Self {
        Self { agent_tokens, judge_tokens, cost_usd }
    }
}

/// A case that went badly.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "EvaluationCase")]
#[expect(clippy::struct_field_names, reason = "they are called what the resource calls them")]
pub(crate) struct Case {
    /// Its place in the dataset, counted from 0.
    pub case: i32,
    /// The mean of its scores, 0 to 1. Null where it has none.
    pub score: Option<f64>,
    /// The source that its metadata names: `negative_feedback` for a case that feedback has appended. Null where there is none.
    pub source: Option<String>,
    /// How its input begins.
    pub input: String,
    /// How the answer begins.
    pub output: Option<String>,
    /// The scorers that gave the lowest scores, with their reasons.
    pub reason: String,
    pub trace_id: Option<String>,
}

impl From<WorstCase> for Case {
    fn from(WorstCase { case, score, source, input, output, reason, trace_id }: WorstCase) -> Self {
        Self { case, score, source, input, output, reason, trace_id }
    }
}

/// How a run stands, in the words of Kubernetes.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: String,
}

impl Summary {
    pub(crate) fn of(run: &EvaluationRun) -> Self {
        let (spec, status) = (&run.spec, run.status.clone().unwrap_or_default());
        let ready = status.conditions.iter().find(|found| found.type_ == condition::READY);
        let message = ready.filter(|ready| ready.status != "True").map(|ready| ready.message.clone());
        let time = |time: Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| time.map(|time| time.0.to_string());
        Self {
            id: ids::evaluation_run(&run.name_any()),
            agent_id: ids::agent(&run.namespace().unwrap_or_default(), &spec.agent),
            agent_version: status.version.map(|version| version.to_string()).unwrap_or_default(),
            dataset_name: status.dataset.or_else(|| spec.dataset.as_deref().map(ids::dataset_name)),
            track: spec.track,
            status: Status::of(run),
            message: message.filter(|message| !message.is_empty()),
            provider: status.provider,
            aggregate_scores: status.aggregate_scores,
            total_cases: status.total_cases,
            feedback_cases: status.feedback_cases,
            finished_cases: status.finished_cases.unwrap_or(0),
            passed_cases: status.passed_cases.unwrap_or(0),
            score: status.score,
            threshold: status.threshold.or(spec.min_quality_score.map(f64::from)),
            passed: status.passed,
            verdict: status.verdict,
            risk_profile: status.risk_profile.or(spec.risk_profile),
            judge_model: status.judge_model.or_else(|| spec.judge_model.clone()),
            usage: status.usage.map(Usage::from),
            started_at: time(status.started_at),
            completed_at: time(status.completed_at),
            resource_version: run.resource_version(),
            created_at: crate::agents::time(run.creation_timestamp().map(|time| time.0)),
        }
    }
}

impl View {
    pub(crate) fn of(run: &EvaluationRun) -> Self {
        let status = run.status.clone().unwrap_or_default();
        let conditions = status.conditions.into_iter().map(|condition| Condition {
            kind: condition.type_,
            status: condition.status,
            reason: condition.reason,
            message: condition.message,
            last_transition_time: condition.last_transition_time.0.to_string(),
        });
        Self {
            summary: Summary::of(run),
            margin: status.margin,
            prompts: status.prompts,
            worst_cases: status.worst_cases.into_iter().map(Case::from).collect(),
            conditions: conditions.collect(),
        }
    }
}

/// What lists and events read of a run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunState {
    /// The name of the run's agent.
    pub agent: Box<str>,
    pub status: Status,
    /// What it has found, if that can be said of what serves.
    pub scores: Option<Box<RunScores>>,
}

/// The means of a completed run, 0 to 1. Where a scorer applied to no case, there is none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunScores {
    pub ended: Timestamp,
    /// What was evaluated.
    pub run_hash: Option<Box<str>>,
    pub safety: Option<f64>,
    pub relevance_to_query: Option<f64>,
    pub correctness: Option<f64>,
    /// MLflow has them.
    pub is_delivered: bool,
}

impl RunScores {
    /// None of a run that has not completed, and of one of a candidate that was not good enough to serve.
    fn of(run: &EvaluationRun) -> Option<Box<Self>> {
        let status = run.status.as_ref()?;
        let serves = run.spec.track == EvaluatedTrack::Stable || status.passed == Some(true);
        if status.phase != Some(EvaluationPhase::Completed) || status.provider == Some(EvaluationProvider::Mock) || !serves {
            return None;
        }
        let mean = |scorer: Scorer| status.aggregate_scores.get(&format!("{}/mean", scorer.as_str())).copied();
        let is_delivered = |found: &Found| found.type_ == condition::DELIVERED && found.status == "True";
        Some(Box::new(Self {
            ended: status.completed_at.as_ref()?.0,
            run_hash: status.run_hash.as_deref().map(Into::into),
            safety: mean(Scorer::Safety),
            relevance_to_query: mean(Scorer::RelevanceToQuery),
            correctness: mean(Scorer::Correctness),
            is_delivered: status.conditions.iter().any(is_delivered),
        }))
    }
}

pub(crate) fn item(run: &EvaluationRun) -> Option<ListEntry<RunState>> {
    let mut summary = Summary::of(run);
    summary.message = list_cache::truncate(summary.message);
    let words = [summary.dataset_name.as_deref(), summary.judge_model.as_deref(), summary.verdict.as_deref()];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    Some(ListEntry {
        created: run.creation_timestamp().map_or(0, |time| time.0.as_second()),
        search: format!("{} {} {}", summary.id, summary.status.as_str(), words.join(" ")).to_lowercase().into(),
        json: serde_json::to_string(&summary).ok()?.into(),
        id: summary.id,
        version: 0,
        omitted: None,
        data: RunState { agent: run.spec.agent.as_str().into(), status: summary.status, scores: RunScores::of(run) },
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(name: &str, spec: Value, status: &Value) -> EvaluationRun {
        let metadata = json!({"name": name, "namespace": "team-a", "creationTimestamp": "2026-01-01T00:00:00Z"});
        let mut whole = json!({"metadata": metadata, "spec": {"agent": "helper"}, "status": status});
        crate::write::merge(&mut whole["spec"], spec);
        serde_json::from_value(whole).unwrap()
    }

    fn shown(run: &EvaluationRun) -> Value {
        serde_json::to_value(View::of(run)).unwrap()
    }

    #[test]
    fn a_new_run_is_pending_and_invents_nothing() {
        let view = shown(&run("ev-01jd8z7q3v5x9m2k4n6p8r0s1t", json!({"dataset": "ds_hard_cases", "minQualityScore": 80}), &json!(null)));
        assert_eq!(view["id"], "ev_01jd8z7q3v5x9m2k4n6p8r0s1t");
        assert_eq!((&view["status"], &view["agent_version"], &view["dataset_name"]), (&json!("pending"), &json!(""), &json!("hard-cases")));
        assert_eq!((&view["threshold"], &view["track"], &view["aggregate_scores"]), (&json!(80.0), &json!("stable"), &json!({})));
        for unknown in
            ["provider", "score", "passed", "verdict", "total_cases", "feedback_cases", "usage", "started_at", "completed_at", "margin"]
        {
            assert_eq!(view[unknown], Value::Null, "{unknown}");
        }
    }

    #[test]
    fn only_a_completed_run_of_what_serves_has_scores() {
        let means = json!({"safety/mean": 0.9, "fluency/mean": 0.1});
        let ended = json!({"phase": "Completed", "provider": "slipway", "completedAt": "2026-01-01T00:00:00Z", "aggregateScores": means});
        let delivered =
            json!([{"type": "Delivered", "status": "True", "reason": "Sent", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        for (spec, change, expected) in [
            (json!({}), json!({}), Some((Some(0.9), None, false))),
            (json!({}), json!({"conditions": delivered}), Some((Some(0.9), None, true))),
            (json!({"track": "candidate"}), json!({"passed": true}), Some((Some(0.9), None, false))),
            (json!({"track": "candidate"}), json!({"passed": false}), None),
            (json!({}), json!({"phase": "Failed"}), None),
            (json!({}), json!({"phase": "Running"}), None),
            (json!({}), json!({"provider": "mock"}), None),
        ] {
            let mut status = ended.clone();
            crate::write::merge(&mut status, change.clone());
            let scores = item(&run("nightly", spec.clone(), &status)).unwrap().data.scores;
            let found = scores.map(|scores| (scores.safety, scores.correctness, scores.is_delivered));
            assert_eq!(found, expected, "{spec} {change}");
        }
    }

    #[test]
    fn a_finished_run_shows_what_its_status_says() {
        let condition = json!({"type": "Ready", "status": "False", "reason": "Unreachable", "message": "no pod is ready", "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let status = json!({
            "phase": "Failed", "version": 3, "dataset": "helper-seed", "provider": "mock", "totalCases": 5, "feedbackCases": 1, "finishedCases": 1,
            "usage": {"agentTokens": 7, "judgeTokens": 0}, "prompts": ["safety@1"], "startedAt": "2026-01-01T00:00:00Z", "conditions": [condition],
            "worstCases": [{"case": 0, "score": 0.5, "source": "negative_feedback", "input": "Hello?", "reason": "safety: rude", "traceId": "tr_1"}],
        });
        let failed = run("nightly", json!({}), &status);
        let view = shown(&failed);
        assert_eq!((&view["id"], &view["status"], &view["provider"]), (&json!("ev_nightly"), &json!("failed"), &json!("mock")));
        assert_eq!((&view["message"], &view["agent_version"]), (&json!("no pod is ready"), &json!("3")));
        assert_eq!(view["usage"], json!({"agent_tokens": 7, "judge_tokens": 0, "cost_usd": null}));
        assert_eq!((&view["worst_cases"][0]["trace_id"], &view["prompts"]), (&json!("tr_1"), &json!(["safety@1"])));
        assert_eq!((&view["feedback_cases"], &view["worst_cases"][0]["source"]), (&json!(1), &json!("negative_feedback")));
        assert_eq!((&view["conditions"][0]["type"], &view["started_at"]), (&json!("Ready"), &json!("2026-01-01T00:00:00Z")));
        let listed: Value = serde_json::from_str(&item(&failed).unwrap().json).unwrap();
        assert!(listed.get("worst_cases").is_none() && listed.get("conditions").is_none(), "{listed}");
        assert_eq!(item(&failed).unwrap().data, RunState { agent: "helper".into(), status: Status::Failed, scores: None });
    }
}
