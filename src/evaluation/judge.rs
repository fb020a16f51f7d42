//! What a judge model is asked, and what its answer means. What is judged is data, and marked as such.

use serde_json::Value;
use slipway_api::evaluation_run::Scorer;

use crate::turn::Turn;
use crate::wire::Case;

/// A question to a judge.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    pub system: String,
    pub user: String,
    /// The JSON schema of the answer.
    pub schema: Value,
    /// The scorer and the version of its prompt, such as `correctness@1`.
    pub version: &'static str,
}

/// What a judge said.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// 0 to 1.
    pub value: f64,
    pub reason: String,
}

/// What a judge is asked about a case; `guidelines` are those that apply to it, its own included.
pub fn question(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Question {
    let _ = (scorer, case, guidelines, turn);
    Question { system: String::new(), user: String::new(), schema: Value::Null, version: "" }
}

/// Reads an answer by the schema, or says what is wrong with it.
pub fn read_answer(scorer: Scorer, answer: &str) -> Result<Judged, String> {
    let _ = answer;
    Err(format!("{} is not built yet", scorer.as_str()))
}

/// What a judge is told whose answer could not be used; it is asked once more.
pub fn repair(fault: &str) -> String {
    fault.to_owned()
}
