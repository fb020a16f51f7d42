//! Where our scorers and MLflow's part, and why. docs/scorers.md tells it to users.

use serde_json::json;
use slipway_api::evaluation_run::Scorer;

use super::Outcome::{self, NoValue, Skipped, Value};
use super::cases::ParityCase;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    Partly,
    Matched,
    Empty,
    NoExpectedOutput,
    NoContext,
    Blank,
    NoCalls,
    Unanswered,
    Counted,
    NothingExpected,
    Unread,
}

impl Difference {
    pub(super) const ALL: [Self; 11] = [
        Self::Partly,
        Self::Matched,
        Self::Empty,
        Self::NoExpectedOutput,
        Self::NoContext,
        Self::Blank,
        Self::NoCalls,
        Self::Unanswered,
        Self::Counted,
        Self::NothingExpected,
        Self::Unread,
    ];

    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Partly => "MLflow's judges know yes and no, and another word has no value; ours may find that it holds in part",
            Self::Matched => {
                "an answer that is the expected output is right, and ours ask no judge; of MLflow's only equivalence looks, letter by letter"
            }
            Self::Empty => "an empty answer is harmless and worth nothing, and ours ask no judge",
            Self::NoExpectedOutput => "our completeness looks for the expected output's points; MLflow's reads the question alone",
            Self::NoContext => "ours summarize the case's context; MLflow's takes whatever was asked for the document",
            Self::Blank => "a text of white space is none for ours",
            Self::NoCalls => {
                "where an agent has no tools or calls none there is nothing to judge for ours; MLflow's judge is asked all the same"
            }
            Self::Unanswered => "a tool that changes things was not called, so that nothing can be said of what followed; MLflow calls it",
            Self::Counted => {
                "ours count expected and repeated calls, one by one, and need no judge; MLflow's judge says whether calls are efficient, and its exact \
                 match is yes or no, counts equal calls once, ignores all arguments if one expected call has none, and holds 1 and 1.0 for two"
            }
            Self::NothingExpected => "an empty list of expected calls expects that no tool is called; MLflow takes it for none",
            Self::Unread => {
                "ours read a bare name as a call that is expected, and of a list that cannot be read neither scorer has a value"
            }
        }
    }
}

/// What the two find, if it differs; all else they must agree on.
pub(super) fn difference(case: &ParityCase, scorer: Scorer) -> Option<(Difference, Outcome, Outcome)> {
    let theirs = match case.word(scorer) {
        "yes" => Value(1.0),
        "no" => Value(0.0),
        _ => NoValue,
    };
    let knows_partly = !matches!(scorer, Scorer::Safety | Scorer::Guidelines | Scorer::ExpectationsGuidelines);
    let ours = if case.word(scorer) == "partly" && knows_partly { Value(0.5) } else { theirs };
    let expected = case.expected.as_deref().map(str::trim);
    let found = match scorer {
        Scorer::RetrievalRelevance | Scorer::RetrievalGroundedness | Scorer::RetrievalSufficiency if case.passages.is_empty() => {
            return None;
        }
        Scorer::ToolCallCorrectness => {
            let (difference, our, their) = case.calls.correctness;
            (difference, our.unwrap_or(ours), their.unwrap_or(theirs))
        }
        Scorer::ToolCallEfficiency => {
            let (difference, our) = case.calls.efficiency;
            (difference, our.unwrap_or(ours), theirs)
        }
        Scorer::Completeness if expected.is_none_or(str::is_empty) => (Difference::NoExpectedOutput, Skipped, theirs),
        Scorer::Correctness | Scorer::Equivalence if expected.is_none() => return None,
        Scorer::Correctness | Scorer::Equivalence if expected == Some("") => (Difference::Blank, Skipped, theirs),
        Scorer::Summarization if case.context.is_none() => (Difference::NoContext, Skipped, theirs),
        Scorer::ExpectationsGuidelines if case.guidelines.is_null() || case.guidelines == json!([]) => return None,
        Scorer::ExpectationsGuidelines if case.guidelines == json!([" "]) => (Difference::Blank, Skipped, theirs),
        Scorer::Safety if case.is_empty() => (Difference::Empty, Value(1.0), theirs),
        _ if case.is_empty() => (Difference::Empty, Value(0.0), theirs),
        Scorer::Equivalence if case.expected == case.answer => return None,
        Scorer::Correctness | Scorer::Completeness | Scorer::Equivalence if case.matches => (Difference::Matched, Value(1.0), theirs),
        _ => (Difference::Partly, ours, theirs),
    };
    (found.1 != found.2).then_some(found)
}
