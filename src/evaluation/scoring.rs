//! Which scorer applies to a case, and what can be said of an answer without a model. `deterministic` decides only what is
//! beyond doubt; `heuristic` compares words, for runs without a judge, and says so in its reasons.

use slipway_api::evaluation_run::Scorer;

use crate::guidelines::{of_case, rules};
use crate::turn::Turn;
use crate::wire::{Case, Score};
use crate::{lexical, matching, tool_calls};

/// Whether a scorer says something about a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applies {
    Yes,
    /// Why not.
    No(&'static str),
}

/// Whether a scorer applies to a case and the turn that was taken for it. `guidelines` are the run's or the dataset's.
pub fn applies(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Applies {
    let fault = match scorer {
        Scorer::Safety | Scorer::RelevanceToQuery | Scorer::Fluency => None,
        Scorer::Correctness | Scorer::Completeness | Scorer::Equivalence => {
            expected(case).is_none().then_some("the case has no expected_output")
        }
        Scorer::Summarization => context(case).is_none().then_some("the case has no context to summarize"),
        Scorer::Guidelines => rules(case, guidelines).is_empty().then_some("neither the run nor the dataset nor the case has guidelines"),
        Scorer::ExpectationsGuidelines => of_case(case).is_empty().then_some("the case has no metadata.guidelines"),
        Scorer::RetrievalRelevance | Scorer::RetrievalGroundedness | Scorer::RetrievalSufficiency => {
            passages(turn).is_empty().then_some("nothing was retrieved for the answer")
        }
        Scorer::ToolCallCorrectness | Scorer::ToolCallEfficiency => tool_calls::hindrance(scorer, case, turn),
    };
    fault.map_or(Applies::Yes, Applies::No)
}

/// The score, where it can be known without a judge: exact and normalised match, equal JSON, matching tool calls.
pub fn deterministic(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Option<Score> {
    if applies(scorer, case, guidelines, turn) != Applies::Yes {
        return None;
    }
    match scorer {
        Scorer::RetrievalRelevance | Scorer::RetrievalSufficiency => None,
        Scorer::ToolCallCorrectness | Scorer::ToolCallEfficiency => tool_calls::score(scorer, case, turn),
        Scorer::Safety if turn.output.trim().is_empty() => {
            Some(Score::scored(scorer, 1.0, "The answer is empty, so it says nothing harmful."))
        }
        _ if turn.output.trim().is_empty() => Some(Score::scored(scorer, 0.0, "The answer is empty.")),
        Scorer::Correctness | Scorer::Completeness | Scorer::Equivalence => {
            let how = matching::same(expected(case)?, &turn.output)?;
            Some(Score::scored(scorer, 1.0, how))
        }
        _ => None,
    }
}

/// The score by a comparison of words, for runs without a judge. What words cannot say is an error, not a guess.
pub fn heuristic(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Score {
    if let Applies::No(reason) = applies(scorer, case, guidelines, turn) {
        return Score::skipped(scorer, reason);
    }
    if let Some(score) = deterministic(scorer, case, guidelines, turn) {
        return score;
    }
    let found = match scorer {
        Scorer::Safety => lexical::safety(&turn.output),
        Scorer::RelevanceToQuery => lexical::relevance(&case.input, expected(case), &turn.output),
        Scorer::Fluency => lexical::fluency(&turn.output),
        Scorer::Correctness | Scorer::Completeness => lexical::correctness(expected(case).unwrap_or_default(), &turn.output),
        Scorer::Equivalence => lexical::equivalence(expected(case).unwrap_or_default(), &turn.output),
        Scorer::Summarization => lexical::summarization(context(case).unwrap_or_default(), &turn.output),
        Scorer::RetrievalRelevance => lexical::retrieval_relevance(&case.input, passages(turn)),
        Scorer::RetrievalGroundedness => lexical::retrieval_groundedness(case, passages(turn), &turn.output),
        Scorer::RetrievalSufficiency => lexical::retrieval_sufficiency(expected(case).unwrap_or(&case.input), passages(turn)),
        Scorer::Guidelines | Scorer::ExpectationsGuidelines => {
            return Score::error(scorer, "Whether an answer keeps rules cannot be told from its words: this takes a judge model.");
        }
        Scorer::ToolCallCorrectness => {
            return Score::error(
                scorer,
                "Whether the right tools were called takes metadata.expected_tool_calls in the case, or a judge model.",
            );
        }
        Scorer::ToolCallEfficiency => lexical::Found { value: 1.0, reason: "No call was repeated with the same result.".to_owned() },
    };
    let lexical::Found { value, reason } = found;
    if (0.0..=1.0).contains(&value) { Score::scored(scorer, value, reason) } else { Score::error(scorer, "The words gave no score.") }
}

/// What the answer should say, if the case has it.
pub(crate) fn expected(case: &Case) -> Option<&str> {
    case.expected_output.as_deref().filter(|text| !text.trim().is_empty())
}

/// What the agent was given to know, if the case has it.
pub(crate) fn context(case: &Case) -> Option<&str> {
    case.context.as_deref().filter(|text| !text.trim().is_empty())
}

/// What was retrieved.
pub(crate) fn passages(turn: &Turn) -> &[String] {
    turn.retrieved.as_deref().unwrap_or_default()
}
