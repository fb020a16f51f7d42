//! What the history keeps beside a version that was evaluated. It stands in `status.yaml` as one sentence that people read too.

use std::fmt;

use slipway_api::evaluation_run::EvaluationProvider;
use slipway_api::release::ReleaseEvaluation;

/// What the history keeps beside a version that was evaluated. It is one sentence, which people read too; cases do not stand in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Evaluated(pub ReleaseEvaluation);

const RUN: &str = "; run ";
const ATTEMPT: &str = ", attempt ";
const SCORE: &str = ", score ";
const OF: &str = " of ";
const BY: &str = ", judged by ";

impl fmt::Display for Evaluated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(ReleaseEvaluation { run, attempt, score, threshold, passed, verdict, provider, worst_cases: _ }) = self;
        let otherwise = if *passed == Some(true) { "PASSED" } else { "FAILED" };
        write!(f, "{}{RUN}{run}{ATTEMPT}{attempt}", verdict.as_deref().unwrap_or(otherwise))?;
        if let (Some(score), Some(threshold)) = (score, threshold) {
            write!(f, "{SCORE}{score}{OF}{threshold}")?;
        }
        provider.map_or(Ok(()), |provider| write!(f, "{BY}{}", provider.as_str()))
    }
}

impl Evaluated {
    /// Reads what [`Display`](fmt::Display) wrote. What somebody else wrote says nothing.
    pub(super) fn read(reason: Option<&str>, passed: bool) -> Option<Self> {
        let (verdict, rest) = reason?.rsplit_once(RUN)?;
        let (run, rest) = rest.split_once(ATTEMPT)?;
        let (rest, provider) = match rest.split_once(BY) {
            Some((rest, word)) => {
                let all = [EvaluationProvider::Slipway, EvaluationProvider::Heuristic, EvaluationProvider::Mock];
                (rest, Some(all.into_iter().find(|provider| provider.as_str() == word)?))
            }
            None => (rest, None),
        };
        let (attempt, scores) = match rest.split_once(SCORE) {
            Some((attempt, scores)) => (attempt, Some(scores.split_once(OF)?)),
            None => (rest, None),
        };
        Some(Self(ReleaseEvaluation {
            run: run.to_owned(),
            attempt: attempt.parse().ok()?,
            score: scores.map(|(score, _)| score.parse()).transpose().ok()?,
            threshold: scores.map(|(_, threshold)| threshold.parse()).transpose().ok()?,
            passed: Some(passed),
            verdict: Some(verdict.to_owned()),
            provider,
            worst_cases: Vec::new(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_evaluated_is_read_as_it_was_written() {
        let evaluation = |verdict: &str, passed, score: Option<f64>, provider| {
            Evaluated(ReleaseEvaluation {
                run: "ev-0".to_owned(),
                attempt: 2,
                score,
                threshold: score.map(|_| 75.0),
                passed: Some(passed),
                verdict: Some(verdict.to_owned()),
                provider,
                worst_cases: Vec::new(),
            })
        };
        for (written, text) in [
            (
                evaluation("PASSED (avg=91.2 >= 75)", true, Some(91.2), Some(EvaluationProvider::Slipway)),
                "PASSED (avg=91.2 >= 75); run ev-0, attempt 2, score 91.2 of 75, judged by slipway",
            ),
            (evaluation("no answer; run away, attempt 9", false, None, None), "no answer; run away, attempt 9; run ev-0, attempt 2"),
        ] {
            assert_eq!(written.to_string(), text);
            assert_eq!(Evaluated::read(Some(text), written.0.passed == Some(true)), Some(written));
        }
        for other in [None, Some(""), Some("superseded by v3"), Some("deployed again; by ann"), Some("x; run ev-0, attempt many")] {
            assert_eq!(Evaluated::read(other, true), None, "{other:?}");
        }
    }
}
