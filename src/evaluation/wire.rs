//! What the manager and a runtime say to each other about a run: the body of `POST /control/evaluate`, the answer of
//! `GET /control/evaluations/{run}`, which lists what was found case by case, unless the query says `results=0`, and the
//! callback at the end of a run. `gate` has what REST and the state role say to each other about quality gates.

mod gate;

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use slipway_api::evaluation_run::Scorer;

pub use gate::{GateAnswer, GateCall, GateCredential, GateDecision, GateNext, GateOutcome, GateScore, GateSubject};

/// How many bytes of an answer, and of a reason, are kept with a case.
pub const EXCERPT_BYTES_MAX: usize = 4096;
pub const REASON_BYTES_MAX: usize = 512;
/// The longest verdict, and the most scores, of a callback.
pub const VERDICT_BYTES_MAX: usize = 4096;
pub const CALLBACK_SCORES_MAX: usize = 16;

/// A run to begin, or to go on with: what was scored before is not scored again, unless the run is to begin anew.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct RunRequest {
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
    /// Where the runtime reports the end of the run, if it lies under its `RUNTIME_PLATFORM_URL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_token: Option<CallbackToken>,
    /// For an evaluator: where a pod of the agent is, `http://` with its address and port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Results that lie in the database do not count: something may be decided by the run, and any agent of the team may have written
    /// them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub begins_anew: bool,
}

/// Where an evaluator finds the agent from now on: `PUT /control/evaluations/{run}`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct EvaluatorTarget {
    pub target: String,
}

/// The token of a callback. `Debug` does not show it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
#[serde(transparent)]
pub struct CallbackToken(pub String);

impl fmt::Debug for CallbackToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallbackToken")
    }
}

/// What a runtime reports when a run has ended. It is a wake-up call: verdict and scores are computed from the results.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// As in the request.
    pub run_id: String,
    /// `completed`, `failed` or `cancelled`.
    pub status: String,
    /// `<scorer>/mean`, 0 to 1.
    pub scores: BTreeMap<String, f64>,
    pub passed: bool,
    pub verdict: String,
}

/// A callback as REST passes it on to the state role, which verifies the token: `POST /callbacks`.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct CallbackCall {
    /// The path at which it came.
    pub path: String,
    pub token: CallbackToken,
    pub body: Callback,
}

/// What the state role answers to it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Heard {
    /// The token is not valid, or not for this call.
    NotValid,
    /// The controller hears of it. The run's phase, in lower case.
    Noted { status: String },
}

impl Callback {
    /// The first field that says what cannot be, and why.
    pub fn fault(&self) -> Option<String> {
        let is_final = ["completed", "failed", "cancelled"].contains(&self.status.as_str());
        if !is_final {
            return Some("status: must be completed, failed or cancelled".to_owned());
        }
        if self.scores.len() > CALLBACK_SCORES_MAX {
            return Some(format!("scores: must have at most {CALLBACK_SCORES_MAX} entries"));
        }
        if self.verdict.len() > VERDICT_BYTES_MAX {
            return Some(format!("verdict: must have at most {VERDICT_BYTES_MAX} bytes"));
        }
        self.scores.iter().find_map(|(name, value)| {
            let shown = &name[..name.floor_char_boundary(64)];
            let scorer = name.strip_suffix("/mean").map(|scorer| Value::String(scorer.to_owned()));
            if scorer.is_none_or(|scorer| serde_json::from_value::<Scorer>(scorer).is_err()) {
                return Some(format!("scores.{shown}: must be the name of a scorer and /mean"));
            }
            (!(0.0..=1.0).contains(value)).then(|| format!("scores.{shown}: must be between 0 and 1"))
        })
    }
}

/// The cases of a run with the guidelines for all of them.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct Dataset {
    pub name: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub guidelines: Vec<String>,
    pub cases: Vec<RunCase>,
}

/// A question, and what is expected of the answer.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
pub struct RunCase {
    pub input: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Map<String, Value>>,
}

impl From<slipway_api::dataset::Case> for RunCase {
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
    /// The prompts that the judge is asked with, such as `correctness@1`. Empty without a judge.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
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
    /// Whether it would give none if it were asked again, as far as the runtime knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
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
    /// The run ended before, or what it takes is not known.
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

    pub fn not_run(scorer: Scorer, reason: impl Into<String>) -> Self {
        Self { scorer, state: ScoreState::NotRun, value: None, reason: reason.into() }
    }

    /// The value, if it is one that counts: given, and between 0 and 1.
    pub fn counted(&self) -> Option<f64> {
        self.value.filter(|value| self.state == ScoreState::Scored && (0.0..=1.0).contains(value))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn callback(changes: &Value) -> Result<Callback, serde_json::Error> {
        let mut whole =
            json!({"run_id": "ev_1", "status": "completed", "scores": {"safety/mean": 1.0}, "passed": true, "verdict": "PASSED"});
        whole.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(whole)
    }

    #[test]
    fn a_callback_that_says_what_cannot_be_is_refused_by_field() {
        for (changes, names) in [
            (json!({}), None),
            (json!({"status": "failed", "scores": {}, "passed": false}), None),
            (json!({"scores": {"safety/mean": 0.0, "correctness/mean": 1}}), None),
            (json!({"status": "running"}), Some("status: ")),
            (json!({"scores": {"safety/mean": 7.0}}), Some("scores.safety/mean: must be between")),
            (json!({"scores": {"safety/mean": -0.1}}), Some("scores.safety/mean: must be between")),
            (json!({"scores": {"safety": 1.0}}), Some("scores.safety: must be the name")),
            (json!({"scores": {"kindness/mean": 1.0}}), Some("scores.kindness/mean: must be the name")),
            (json!({"scores": {"ü".repeat(99): 1.0}}), Some("scores.üüü")),
            (json!({"verdict": "x".repeat(VERDICT_BYTES_MAX + 1)}), Some("verdict: ")),
        ] {
            let fault = callback(&changes).unwrap().fault();
            assert_eq!(fault.is_some(), names.is_some(), "{changes}: {fault:?}");
            assert!(fault.as_deref().unwrap_or_default().starts_with(names.unwrap_or_default()), "{changes}: {fault:?}");
        }
        let many: Map<String, Value> = (0..=CALLBACK_SCORES_MAX).map(|at| (at.to_string(), json!(1.0))).collect();
        assert!(callback(&json!({"scores": many})).unwrap().fault().unwrap().starts_with("scores: "));
        for unreadable in [json!({"scores": {"safety/mean": "1"}}), json!({"passed": "yes"}), json!({"approve": true})] {
            assert!(callback(&unreadable).is_err(), "{unreadable}");
        }
    }

    #[test]
    fn a_token_is_not_shown() {
        let token: CallbackToken = serde_json::from_value(json!("hunter2")).unwrap();
        assert_eq!((format!("{token:?}"), json!(token)), ("CallbackToken".to_owned(), json!("hunter2")));
    }
}
