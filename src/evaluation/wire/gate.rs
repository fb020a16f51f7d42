//! What REST and the state role say to each other about quality gates: `POST /gates` has a question of a progressive-delivery
//! controller, and `POST /gates/outcome` what REST has answered where the state role could not.

use std::fmt;

use serde::{Deserialize, Serialize};
use slipway_api::agent::RiskProfile;
use slipway_api::evaluation_run::EvaluatedTrack;

/// The credential of a namespace's gates. `Debug` does not show it.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
#[serde(transparent)]
pub struct GateCredential(pub String);

impl fmt::Debug for GateCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateCredential")
    }
}

/// A question as REST passes it on to the state role, which verifies the credential.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct GateCall {
    pub credential: GateCredential,
    /// The namespace that the credential has to be for.
    pub namespace: String,
    /// The Agent.
    pub agent: String,
    /// The phase of the rollout, in the controller's words.
    #[serde(default)]
    pub phase: String,
    /// Whether it only tells of something.
    #[serde(default)]
    pub is_event: bool,
    /// Whether an evaluation may be begun for it.
    #[serde(default)]
    pub may_evaluate: bool,
}

/// What the state role answers to it.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum GateAnswer {
    /// The credential is not the namespace's.
    NotValid,
    /// Nothing is to be decided.
    Noted,
    /// By a run of the agent.
    Scored(GateScore),
    /// The gate stays shut, and no score would open it.
    Refused { why: String },
    /// No run has scored what runs.
    NoScore { subject: GateSubject, next: GateNext },
    /// The cluster does not answer.
    Unknown { subject: Option<GateSubject> },
}

/// The mean of all scores, 0 to 1, and whether that opens the gate.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, PartialEq)]
pub struct GateScore {
    pub score: f64,
    pub passed: bool,
}

/// What of an agent is asked about.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
pub struct GateSubject {
    pub track: EvaluatedTrack,
    /// What runs there; none while that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_hash: Option<String>,
    pub profile: RiskProfile,
    /// Whether a comparison of words counts.
    pub allow_heuristic: bool,
}

/// How a score may come about.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum GateNext {
    /// By this EvaluationRun, which is under way.
    Runs(String),
    /// By a new EvaluationRun of this name.
    Make(String),
    /// By no further run of this content: the agent gave this EvaluationRun no answers, and would give another one none.
    Unanswered(String),
    /// By nothing that is begun here.
    Nothing,
}

/// What REST has decided where the state role knew no score.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct GateOutcome {
    pub credential: GateCredential,
    pub namespace: String,
    pub agent: String,
    #[serde(default)]
    pub phase: String,
    pub decision: GateDecision,
}

#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum GateDecision {
    /// By a run in MLflow.
    Scored(GateScore),
    /// An EvaluationRun of this name was made.
    Started(String),
    /// Neither the cluster nor MLflow answers, and the gate opened.
    DefaultApproved,
    /// The same, and it stayed shut.
    DefaultRefused,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_credential_is_not_shown() {
        let credential: GateCredential = serde_json::from_value(json!("hunter2")).unwrap();
        assert_eq!((format!("{credential:?}"), json!(credential)), ("GateCredential".to_owned(), json!("hunter2")));
        let call: GateCall = serde_json::from_value(json!({"credential": "hunter2", "namespace": "team-a", "agent": "helper"})).unwrap();
        assert!(!format!("{call:?}").contains("hunter2") && !call.may_evaluate && !call.is_event, "{call:?}");
    }

    #[test]
    fn answers_are_read_as_they_are_written() {
        let subject = GateSubject {
            track: EvaluatedTrack::Canary,
            run_hash: Some("h".to_owned()),
            profile: RiskProfile::High,
            allow_heuristic: false,
        };
        for (answer, written) in [
            (GateAnswer::NotValid, json!("not_valid")),
            (GateAnswer::Scored(GateScore { score: 0.75, passed: true }), json!({"scored": {"score": 0.75, "passed": true}})),
            (
                GateAnswer::NoScore { subject, next: GateNext::Make("ev-1".to_owned()) },
                json!({"no_score": {"subject": {"track": "canary", "run_hash": "h", "profile": "high", "allow_heuristic": false}, "next": {"make": "ev-1"}}}),
            ),
            (GateAnswer::Unknown { subject: None }, json!({"unknown": {"subject": null}})),
        ] {
            assert_eq!(json!(answer), written);
            assert_eq!(serde_json::from_value::<GateAnswer>(written).unwrap(), answer);
        }
        assert!(serde_json::from_value::<GateAnswer>(Value::from("open")).is_err());
    }
}
