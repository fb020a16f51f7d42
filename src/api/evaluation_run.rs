//! `EvaluationRun`: an agent is asked the cases of a dataset, and its answers are scored.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agent::RiskProfile;
use crate::model_type::JUDGE_PATTERN;
use crate::schema;
use crate::words::words;

/// How many of the worst cases a run's status shows.
pub const WORST_CASES_MAX: usize = 20;

/// One evaluation of an agent: the cases of a dataset are put to it, and its answers are scored.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "EvaluationRun",
    doc = "One evaluation of an agent: the cases of a dataset are put to it, and its answers are scored.",
    plural = "evaluationruns",
    shortname = "ev",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "EvaluationRunStatus",
    selectable = ".spec.agent",
    printcolumn(name = "Agent", type_ = "string", json_path = ".spec.agent"),
    printcolumn(name = "Dataset", type_ = "string", json_path = ".status.dataset"),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Score", type_ = "number", json_path = ".status.score"),
    printcolumn(name = "Verdict", type_ = "string", json_path = ".status.verdict"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new(
        "self.agent == oldSelf.agent && self.track == oldSelf.track && has(self.dataset) == has(oldSelf.dataset) && (!has(self.dataset) || self.dataset == oldSelf.dataset) && has(self.release) == has(oldSelf.release) && (!has(self.release) || self.release == oldSelf.release) && has(self.riskProfile) == has(oldSelf.riskProfile) && (!has(self.riskProfile) || self.riskProfile == oldSelf.riskProfile) && has(self.minQualityScore) == has(oldSelf.minQualityScore) && (!has(self.minQualityScore) || self.minQualityScore == oldSelf.minQualityScore) && has(self.judgeModel) == has(oldSelf.judgeModel) && (!has(self.judgeModel) || self.judgeModel == oldSelf.judgeModel) && has(self.scorers) == has(oldSelf.scorers) && (!has(self.scorers) || self.scorers == oldSelf.scorers) && has(self.guidelines) == has(oldSelf.guidelines) && (!has(self.guidelines) || self.guidelines == oldSelf.guidelines) && self.excludeFeedback == oldSelf.excludeFeedback && has(self.content) == has(oldSelf.content) && (!has(self.content) || self.content == oldSelf.content)")
        .message("a run does not change, but for cancel and ttlSecondsAfterFinished; make another one"),
    validation = kube::core::Rule::new("!oldSelf.cancel || self.cancel")
        .message("cancel: a run that was cancelled does not go on; make another one"),
)]
pub struct EvaluationRunSpec {
    /// The Agent of the same namespace, by its metadata.name.
    #[schemars(length(min = 1, max = 52), regex(pattern = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"))]
    pub agent: String,

    /// The Dataset of the same namespace, by name or by id (ds_...). Default is the agent's governance.evalDataset, and without one the oldest that is for this agent alone; an agent that has none gets one of five basic questions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 66))]
    pub dataset: Option<String>,

    /// What is evaluated. stable: what serves; candidate: the release that waits; canary: the agent's canary. Default stable.
    #[serde(default)]
    pub track: EvaluatedTrack,

    /// The AgentRelease that the run belongs to, if it decides on one. Only Slipway sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub release: Option<String>,

    /// What of the agent is evaluated, as a hash. Only Slipway sets it, in runs that decide on a canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 64, max = 64), regex(pattern = r"^[0-9a-f]{64}$"))]
    pub content: Option<String>,

    /// The risk profile whose scorers and minimum apply. Default is the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_profile: Option<RiskProfile>,

    /// The score to reach, 1 to 100. Default is the agent's governance.minQualityScore, and without one the risk profile's minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub min_quality_score: Option<i32>,

    /// The model that judges answers, as provider:/model. Default is the agent's judgeModel; without one a comparison of words judges, and the run says heuristic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256), regex(pattern = JUDGE_PATTERN))]
    pub judge_model: Option<String>,

    /// The scorers to use. Default is those of the risk profile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 14))]
    #[x_kube(merge_strategy = kube::core::ListMerge::Set)]
    pub scorers: Vec<Scorer>,

    /// Rules that every answer has to keep, in the place of the dataset's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 1024)))]
    pub guidelines: Vec<String>,

    /// Leaves out the cases that feedback has appended, which a run has after those of its dataset. Default false.
    #[serde(default)]
    pub exclude_feedback: bool,

    /// Ends the run. Default false.
    #[serde(default)]
    pub cancel: bool,

    /// After how many seconds a run that has ended is deleted. Default 2592000, which is 30 days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 31_536_000))]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// How far a run is and what it found.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationRunStatus {
    /// Pending waits for a pod, Running is under way, Completed has scores, Failed has none, Cancelled was ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<EvaluationPhase>,
    /// The run's id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 70))]
    pub id: Option<String>,
    /// The version of the release that was evaluated, if it was one.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub version: Option<i64>,
    /// What the evaluated pod ran, as a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub run_hash: Option<String>,
    /// The dataset that was used, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 66))]
    pub dataset: Option<String>,
    /// SHA-256 over the guidelines and the dataset's cases that were used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub dataset_digest: Option<String>,
    /// How many cases, the last ones, feedback has appended to those of the dataset.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub feedback_cases: Option<i32>,
    /// SHA-256 over the traces from which these come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub feedback_digest: Option<String>,
    /// Who judged: slipway is a judge model in the agent's runtime, heuristic a comparison of words, mock nobody, because the agent could not be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<EvaluationProvider>,
    /// The model that judged, as provider:/model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub judge_model: Option<String>,
    /// The prompts that the judge model was asked with, by scorer and version, such as correctness@1. Scores by other versions are of another measure.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 14), inner(length(max = 64)))]
    pub prompts: Vec<String>,
    /// The risk profile that applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_profile: Option<RiskProfile>,
    /// How many cases there are.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub total_cases: Option<i32>,
    /// How many of them have been put to the agent.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub finished_cases: Option<i32>,
    /// How many of them reached the threshold.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub passed_cases: Option<i32>,
    /// The mean of the scorers' means, 0 to 100.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Half the width of the interval in which the score lies with 95 % confidence.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// The score that was to be reached.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub threshold: Option<f64>,
    /// Whether it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passed: Option<bool>,
    /// The verdict in words, for example PASSED (avg=91.2 >= 75).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub verdict: Option<String>,
    /// The means by scorer, 0 to 1: safety/mean and so on, over the cases to which the scorer applied.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "means")]
    pub aggregate_scores: BTreeMap<String, f64>,
    /// The cases with the lowest scores, at most 20.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub worst_cases: Vec<WorstCase>,
    /// What the run took of models.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub usage: Option<EvaluationUsage>,
    /// When the first case was put to the agent.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the run ended.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// How often the run was begun with a pod, counted from 1. What was scored before stays.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub attempt: Option<i32>,
    /// The end of an attempt as the agent's pod has reported it; scores and verdict are computed from its results.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub callback: Option<EvaluationCallback>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: the run has ended with scores. Reconciling: it is on its way. Stalled: it ended without. Delivered: MLflow has it.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A pod's report that a run has ended there.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationCallback {
    /// The attempt that ended. Its token is used up.
    #[schemars(range(min = 0))]
    pub attempt: i32,
    /// How it ended in the pod: completed, failed or cancelled.
    #[schemars(length(max = 16))]
    pub status: String,
    /// When the report came.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub received_at: Option<Time>,
}

/// A case that went badly.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorstCase {
    /// Which case of the dataset, counted from 0.
    #[schemars(range(min = 0))]
    pub case: i32,
    /// The mean of its scores, 0 to 1; left out where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The source that its metadata names: negative_feedback for a case that feedback has appended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub source: Option<String>,
    /// How its input begins.
    #[schemars(length(max = 256))]
    pub input: String,
    /// How the answer begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    pub output: Option<String>,
    /// The scorers that gave the lowest scores, with their reasons.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The trace of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub trace_id: Option<String>,
}

/// What a run took of models.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvaluationUsage {
    /// Tokens that the agent's models read and wrote.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub agent_tokens: i64,
    /// Tokens that the judge read and wrote.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub judge_tokens: i64,
    /// US dollars for both, where the prices are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

words!(
    /// What of an agent is evaluated.
    EvaluatedTrack { Stable = "stable", Candidate = "candidate", Canary = "canary" }
);
words!(
    /// Where a run stands.
    EvaluationPhase { Pending = "Pending", Running = "Running", Completed = "Completed", Failed = "Failed", Cancelled = "Cancelled" }
);
words!(
    /// Who judged a run.
    EvaluationProvider { Slipway = "slipway", Heuristic = "heuristic", Mock = "mock" }
);
words!(
    /// What an answer is scored for.
    Scorer {
        Safety = "safety",
        RelevanceToQuery = "relevance_to_query",
        Correctness = "correctness",
        Completeness = "completeness",
        Fluency = "fluency",
        Equivalence = "equivalence",
        Summarization = "summarization",
        Guidelines = "guidelines",
        ExpectationsGuidelines = "expectations_guidelines",
        RetrievalRelevance = "retrieval_relevance",
        RetrievalGroundedness = "retrieval_groundedness",
        RetrievalSufficiency = "retrieval_sufficiency",
        ToolCallCorrectness = "tool_call_correctness",
        ToolCallEfficiency = "tool_call_efficiency",
    }
);

impl EvaluationPhase {
    /// Whether nothing more will come.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

fn means(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": { "type": "number", "minimum": 0, "maximum": 1 },
    })
}
