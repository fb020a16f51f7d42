//! Runs the scorers: each scores an answer by itself or by asking the judge.

use std::time::Duration;

use futures::future::join_all;
use slipway_api::evaluation_run::Scorer;
use slipway_evaluation::wire::{RunCase, Score};
use slipway_evaluation::{Applies, CaseTurn, applies, deterministic, heuristic, question};
use slipway_models::Usage;
use tokio::time::Instant;

use super::judge::{Asked, Judge};
use crate::record::Recorder;

pub(super) struct Scoring {
    pub(super) scorers: Vec<Scorer>,
    /// For all cases.
    pub(super) guidelines: Vec<String>,
    /// Without one words are compared.
    pub(super) judge: Option<Judge>,
    /// Its guards look at what a judge says.
    pub(super) recorder: Recorder,
    /// Of all calls of the judge for one case.
    pub(super) timeout: Duration,
}

impl Scoring {
    /// All scorers at once; the judge bounds its calls. With each score comes what the judge took.
    pub(super) async fn score(&self, case: &RunCase, turn: &CaseTurn) -> Vec<(Score, Usage)> {
        let deadline = Instant::now() + self.timeout;
        join_all(self.scorers.iter().map(|scorer| self.score_by(*scorer, case, turn, deadline))).await
    }

    async fn score_by(&self, scorer: Scorer, case: &RunCase, turn: &CaseTurn, deadline: Instant) -> (Score, Usage) {
        if let Applies::No(why) = applies(scorer, case, &self.guidelines, turn) {
            return (Score::skipped(scorer, why), Usage::default());
        }
        if let Some(score) = deterministic(scorer, case, &self.guidelines, turn) {
            return (score, Usage::default());
        }
        let Some(judge) = &self.judge else { return (heuristic(scorer, case, &self.guidelines, turn), Usage::default()) };
        let Asked { judged, used } = judge.ask(scorer, question(scorer, case, &self.guidelines, turn), deadline).await;
        let score = match judged {
            Ok(judged) => Score::scored(scorer, judged.value, self.shown(&judged.reason)),
            Err(fault) => Score::error(scorer, self.shown(&fault)),
        };
        (score, used)
    }

    /// What a judge says is a model's text: the agent's guards look at it before it is kept.
    fn shown(&self, text: &str) -> String {
        // More is not kept.
        let text = &text[..text.floor_char_boundary(2 * slipway_evaluation::wire::REASON_BYTES_MAX)];
        self.recorder.presentable(text).unwrap_or_else(|| "(withheld by a guard)".to_owned())
    }
}

pub(super) fn tokens(used: &Usage) -> i64 {
    i64::try_from(used.input_tokens.saturating_add(used.output_tokens)).unwrap_or(i64::MAX)
}
