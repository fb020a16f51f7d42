//! What the manager and a runtime say to each other about a run: the body of `POST /control/evaluate`, and the answer of
//! `GET /control/evaluations/{run}`, which lists what was found case by case, unless the query says `results=0`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_api::evaluation_run::Scorer;

/// How many bytes of an answer, and of a reason, are kept with a case.
pub const EXCERPT_BYTES_MAX: usize = 4096;
pub const REASON_BYTES_MAX: usize = 512;

/// A run to begin, or to go on with: what was scored before is not scored again.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Request {
    /// The EvaluationRun's id: `ev_` and a ULID.
    pub run_id: String,
    /// The id of the agent.
    pub agent: String,
    /// The version of the release that runs, as text; empty if it is none.
    #[serde(default)]
    pub version: String,
    pub dataset: Dataset,
    /// `low`, `standard` or `high`.
    pub risk_profile: String,
    pub scorers: Vec<Scorer>,
    /// `provider:/model`; without it words are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judge_model: Option<String>,
    /// 0 to 100. The runtime decides nothing with it.
    #[serde(default)]
    pub min_quality_score: f64,
}

/// The cases of a run with the guidelines for all of them.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Dataset {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidelines: Vec<String>,
    pub cases: Vec<Case>,
}

/// A question, and what is expected of the answer.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Case {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl From<slipway_api::dataset::Case> for Case {
    fn from(case: slipway_api::dataset::Case) -> Self {
        let slipway_api::dataset::Case { input, expected_output, context, metadata } = case;
        Self { input, expected_output, context, metadata }
    }
}

/// How far a run is, and what it found.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Report {
    pub run_id: String,
    pub status: Progress,
    /// Why the run failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub total: usize,
    /// How many cases have their result.
    #[serde(default)]
    pub finished: usize,
    /// By their place in the dataset; a case that is not there has not been put to the agent. Empty where only progress was asked for.
    #[serde(default)]
    pub results: Vec<CaseResult>,
}

/// Where a run stands in the runtime.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// What came of one case.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct CaseResult {
    /// Its place in the dataset, counted from 0.
    pub case: usize,
    /// How the answer begins; none if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Why the agent gave no answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub scores: Vec<Score>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    #[serde(default)]
    pub agent_tokens: i64,
    #[serde(default)]
    pub judge_tokens: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<f64>,
}

/// What a scorer found in one case.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Score {
    pub scorer: Scorer,
    pub state: ScoreState,
    /// 0 to 1; there exactly if the state is scored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The judge's reason, or why there is no value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Whether there is a value, and why not.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum ScoreState {
    Scored,
    /// It does not apply to this case.
    Skipped,
    /// The judge or the agent gave nothing that can be used.
    Error,
    /// The run ended before.
    NotRun,
}

impl Score {
    pub fn scored(scorer: Scorer, value: f64, reason: impl Into<String>) -> Self {
        Self { scorer, state: ScoreState::Scored, value: Some(value), reason: reason.into() }
    }

    pub fn skipped(scorer: Scorer, reason: impl Into<String>) -> Self {
        Self { scorer, state: ScoreState::Skipped, value: None, reason: reason.into() }
    }

    pub fn error(scorer: Scorer, reason: impl Into<String>) -> Self {
        Self { scorer, state: ScoreState::Error, value: None, reason: reason.into() }
    }

    /// The value, if it is one that counts: given, and between 0 and 1.
    pub fn counted(&self) -> Option<f64> {
        self.value.filter(|value| self.state == ScoreState::Scored && (0.0..=1.0).contains(value))
    }
}
