//! Which scorer applies to a case, and what can be said of an answer without a model.

use slipway_api::evaluation_run::Scorer;

use crate::turn::Turn;
use crate::wire::{Case, Score};

/// Whether a scorer says something about a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applies {
    Yes,
    /// Why not.
    No(&'static str),
}

/// Whether a scorer applies to a case and the turn that was taken for it. `guidelines` are the run's or the dataset's.
pub fn applies(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Applies {
    let _ = (scorer, case, guidelines, turn);
    Applies::No("not built yet")
}

/// The score, where it can be known without a judge: exact and normalised match, equal JSON, matching tool calls.
pub fn deterministic(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Option<Score> {
    let _ = (scorer, case, guidelines, turn);
    None
}

/// The score by a comparison of words, for runs without a judge.
pub fn heuristic(scorer: Scorer, case: &Case, guidelines: &[String], turn: &Turn) -> Score {
    let _ = (case, guidelines, turn);
    Score::error(scorer, "not built yet")
}
