//! What MLflow's own scorers find, from its code or from the file that was written when it was last asked.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use slipway_api::evaluation_run::Scorer;
use slipway_peers::{Server, python, repository};

use super::Outcome::{self, NoValue, Skipped};
use super::cases::ParityCase;
use super::differences::difference;
use super::{GUIDELINES, SCORERS};

const UPDATE: &str = "UPDATE_GOLDEN";

#[derive(Serialize, Deserialize)]
pub(super) struct MlflowScores {
    /// The hash of all that decides what MLflow finds: cases, script, versions of packages.
    of: String,
    /// By scorer, a letter for each case.
    scores: BTreeMap<String, String>,
    /// Over what is not listed as a difference.
    means: BTreeMap<String, f64>,
}

impl MlflowScores {
    pub(super) fn outcome(&self, scorer: Scorer, case: usize) -> Outcome {
        match self.scores[scorer.as_str()].as_bytes()[case] {
            b'y' => Outcome::Value(1.0),
            b'n' => Outcome::Value(0.0),
            b'-' => NoValue,
            b'.' => Skipped,
            letter => panic!("{letter}"),
        }
    }

    pub(super) fn mean(&self, scorer: Scorer) -> Option<f64> {
        self.means.get(scorer.as_str()).copied()
    }
}

pub(super) fn found(judge: &Server, cases: &[ParityCase]) -> MlflowScores {
    let counted = |case: &ParityCase| SCORERS.into_iter().filter(|scorer| difference(case, *scorer).is_none()).collect::<Vec<_>>();
    let sent: Vec<Value> = cases.iter().map(|case| case.theirs(&counted(case))).collect();
    let request = json!({"scorers": SCORERS, "guidelines": GUIDELINES, "tools": ["calculator", "write"], "cases": sent}).to_string();
    let [script, packages, file] = ["peers/scorers.py", "hack/peers.d/requirements.txt", "src/runtime/tests/runtime/parity/mlflow.json"]
        .map(|path| repository().join(path));
    let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
    let packages: String = read(&packages).lines().filter(|line| line.starts_with("mlflow")).collect();
    let of = hex::encode(Sha256::digest([request.as_str(), &read(&script), &packages].concat()));
    if std::env::var_os(UPDATE).is_some() {
        let found = ask(judge, &script, &request, of);
        std::fs::write(&file, serde_json::to_string_pretty(&found).unwrap() + "\n").unwrap();
        return found;
    }
    let found: MlflowScores = serde_json::from_str(&read(&file)).unwrap();
    assert_eq!(found.of, of, "the cases, the script or MLflow are not those of {}: {UPDATE}=1 asks MLflow anew", file.display());
    found
}

fn ask(judge: &Server, script: &std::path::Path, request: &str, of: String) -> MlflowScores {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("request.json");
    std::fs::write(&file, request).unwrap();
    let output = python(script, &["score", file.to_str().unwrap(), &format!("{}/mlflow/v1", judge.url())], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = answer["scores"].as_array().unwrap();
    let letters = |scorer: Scorer| cases.iter().map(|scores| letter(&scores[scorer.as_str()])).collect();
    let mean = |scorer: Scorer| Some((scorer.as_str().to_owned(), answer["means"][format!("{}/mean", scorer.as_str())].as_f64()?));
    MlflowScores {
        of,
        scores: SCORERS.into_iter().map(|scorer| (scorer.as_str().to_owned(), letters(scorer))).collect(),
        means: SCORERS.into_iter().filter_map(mean).collect(),
    }
}

/// MLflow has no word for a scorer that does not apply: it is an error, that says what is missing.
fn letter(score: &Value) -> char {
    if let Some(error) = score["error"].as_str() {
        let missing = ["scorer requires", "Guidelines must be specified", "No retrieval context"];
        let applies = !missing.iter().any(|words| error.contains(words));
        assert!(!applies || error.contains("Failed to parse response") || error.contains("Invalid expected tool call"), "{error}");
        return if applies { '-' } else { '.' };
    }
    match score["value"].as_str() {
        Some("yes") => 'y',
        Some("no") => 'n',
        Some("unknown" | "partly") => '-',
        _ => panic!("{score}"),
    }
}
