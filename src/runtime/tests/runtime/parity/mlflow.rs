//! What MLflow's own scorers find, from its code.

use std::fs;

use serde_json::{Value, json};
use slipway_api::evaluation_run::Scorer;
use slipway_peers::{Server, python, repository};

use super::Outcome::{self, NoValue, Skipped};
use super::cases::ParityCase;
use super::differences::difference;
use super::{GUIDELINES, SCORERS};

/// The answer of `peers/scorers.py`: by case and scorer a `value` or an `error`, and MLflow's means.
pub(super) struct MlflowScores(Value);

impl MlflowScores {
    pub(super) fn version(&self) -> &str {
        self.0["version"].as_str().unwrap_or_default()
    }

    /// As MLflow has it.
    pub(super) fn said(&self, scorer: Scorer, case: usize) -> &Value {
        &self.0["scores"][case][scorer.as_str()]
    }

    /// MLflow has no word for a scorer that does not apply: it is an error, that says what is missing. Any other error is no finding.
    pub(super) fn outcome(&self, scorer: Scorer, case: usize) -> Outcome {
        let said = self.said(scorer, case);
        let error = said["error"].as_str().unwrap_or_default();
        let tells = |words: &[&str]| words.iter().any(|words| error.contains(words));
        match said["value"].as_str() {
            Some("yes") => Outcome::Value(1.0),
            Some("no") => Outcome::Value(0.0),
            Some("unknown" | "partly") => NoValue,
            None if tells(&["scorer requires", "Guidelines must be specified", "No retrieval context"]) => Skipped,
            None if tells(&["Failed to parse response", "Invalid expected tool call"]) => NoValue,
            _ => panic!("{} of case {case}: MLflow {} says {said}", scorer.as_str(), self.version()),
        }
    }

    /// Over what is not listed as a difference.
    pub(super) fn mean(&self, scorer: Scorer) -> Option<f64> {
        self.0["means"][format!("{}/mean", scorer.as_str())].as_f64()
    }
}

/// One process for all cases, as its start alone takes seconds.
pub(super) fn ask(judge: &Server, cases: &[ParityCase]) -> MlflowScores {
    let counted = |case: &ParityCase| SCORERS.into_iter().filter(|scorer| difference(case, *scorer).is_none()).collect::<Vec<_>>();
    let sent: Vec<Value> = cases.iter().map(|case| case.theirs(&counted(case))).collect();
    let request = json!({"scorers": SCORERS, "guidelines": GUIDELINES, "tools": ["calculator", "write"], "cases": sent});
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request.json");
    fs::write(&file, request.to_string()).unwrap();
    let script = repository().join("peers/scorers.py");
    let output = python(&script, &["score", file.to_str().unwrap(), &format!("{}/mlflow/v1", judge.url())], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["scores"].as_array().map(Vec::len), Some(cases.len()), "MLflow has scores of each case");
    MlflowScores(answer)
}
