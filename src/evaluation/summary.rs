//! From the scores of all cases to means with their intervals.

use std::collections::BTreeMap;

use slipway_api::evaluation_run::Scorer;

use crate::wire::{CaseResult, ScoreState};

/// How far a sum of floating point numbers may be off; scores that are nearer than this are equal.
pub(crate) const ROUNDING: f64 = 1e-9;

/// The mean of a scorer over the cases to which it applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    pub scorer: Scorer,
    /// 0 to 1; none if no case was scored.
    pub mean: Option<f64>,
    /// Half the width of the interval that holds the mean with 95 % confidence; none for a single case.
    pub margin: Option<f64>,
    pub scored: usize,
    pub skipped: usize,
    pub errors: usize,
    pub not_run: usize,
}

/// What a run found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunSummary {
    pub means: Vec<Mean>,
    /// The mean of the scorers' means, times 100; none if there is no mean.
    pub score: Option<f64>,
    pub margin: Option<f64>,
    pub total: usize,
    pub finished: usize,
    /// Cases, by their place, whose mean of scores is known, with that mean.
    pub cases: Vec<(usize, f64)>,
}

impl RunSummary {
    /// How many cases reached a threshold of 0 to 100.
    pub fn passed(&self, threshold: f64) -> usize {
        self.cases.iter().filter(|(_, mean)| reaches(mean * 100.0, threshold)).count()
    }
}

/// Counts each case once, whatever the results repeat, and only scores between 0 and 1 of scorers that were asked for.
pub fn summarize(scorers: &[Scorer], total: usize, results: &[CaseResult]) -> RunSummary {
    let mut asked: Vec<Scorer> = Vec::new();
    for scorer in scorers {
        if !asked.contains(scorer) {
            asked.push(*scorer);
        }
    }
    let mut cases: BTreeMap<usize, &CaseResult> = BTreeMap::new();
    for result in results.iter().filter(|result| result.case < total) {
        cases.entry(result.case).or_insert(result);
    }
    let means: Vec<Mean> = asked.iter().map(|scorer| mean_of(*scorer, total, &cases)).collect();
    let known: Vec<(f64, Option<f64>)> = means.iter().filter_map(|mean| Some((mean.mean?, mean.margin))).collect();
    let values: Vec<f64> = known.iter().map(|(mean, _)| *mean).collect();
    // All scorers look at the same answers, so that their errors add up: as if they were independent would be too narrow.
    let margins: Option<Vec<f64>> = known.iter().map(|(_, margin)| *margin).collect();
    RunSummary {
        score: mean(&values).map(|mean| mean * 100.0),
        margin: margins.and_then(|margins| mean(&margins)).map(|margin| margin * 100.0),
        total,
        finished: cases.len(),
        cases: cases
            .iter()
            .filter_map(|(place, result)| {
                let values: Vec<f64> = asked.iter().filter_map(|scorer| counted(result, *scorer).ok()).collect();
                Some((*place, mean(&values)?))
            })
            .collect(),
        means,
    }
}

fn mean_of(scorer: Scorer, total: usize, cases: &BTreeMap<usize, &CaseResult>) -> Mean {
    let mut found = Mean { scorer, mean: None, margin: None, scored: 0, skipped: 0, errors: 0, not_run: total - cases.len() };
    let mut values = Vec::new();
    for result in cases.values() {
        match counted(result, scorer) {
            Ok(value) => {
                found.scored += 1;
                values.push(value);
            }
            Err(ScoreState::Skipped) => found.skipped += 1,
            Err(ScoreState::NotRun) => found.not_run += 1,
            Err(ScoreState::Scored | ScoreState::Error) => found.errors += 1,
        }
    }
    found.mean = mean(&values);
    found.margin = margin(&values);
    found
}

/// The first score that a scorer gave, or why it does not count. One out of range is as good as none.
fn counted(result: &CaseResult, scorer: Scorer) -> Result<f64, ScoreState> {
    let score = result.scores.iter().find(|score| score.scorer == scorer).ok_or(ScoreState::NotRun)?;
    score.counted().ok_or(score.state)
}

/// Whether a score reaches a threshold.
pub(crate) fn reaches(score: f64, threshold: f64) -> bool {
    score + ROUNDING >= threshold
}

/// A part of a whole; 0 of nothing.
pub(crate) fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { count(part) / count(whole) }
}

/// None for no values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| (values.iter().sum::<f64>() / count(values.len())).clamp(0.0, 1.0))
}

/// Half the width of Wilson's interval, with the variance of the values in the place of a proportion's: for values that
/// are all 0 or 1 it is Wilson's own. It is never 0, as the few cases that agree prove little.
fn margin(values: &[f64]) -> Option<f64> {
    const Z: f64 = 1.96;
    let mean = mean(values).filter(|_| values.len() > 1)?;
    let n = count(values.len());
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / n;
    let half = Z / (1.0 + Z * Z / n) * (variance / n + Z * Z / (4.0 * n * n)).sqrt();
    Some(half.min(1.0))
}

fn count(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::Score;

    fn result(case: usize, scores: Vec<Score>) -> CaseResult {
        CaseResult { case, scores, ..CaseResult::default() }
    }

    fn scored(scorer: Scorer, value: f64) -> Score {
        Score::scored(scorer, value, "")
    }

    fn near(a: Option<f64>, b: f64) -> bool {
        a.is_some_and(|a| (a - b).abs() < 1e-6)
    }

    #[test]
    fn the_score_is_the_mean_of_the_scorers_means() {
        let (safety, correctness) = (Scorer::Safety, Scorer::Correctness);
        let results = [
            result(0, vec![scored(safety, 1.0), scored(correctness, 0.5)]),
            result(1, vec![scored(safety, 1.0), Score::skipped(correctness, "")]),
            result(2, vec![scored(safety, 0.7), Score::error(correctness, "")]),
        ];
        let summary = summarize(&[safety, correctness, safety], 4, &results);
        assert_eq!(summary.means.len(), 2, "a scorer that is named twice counts once");
        assert!(near(summary.means[0].mean, 0.9) && near(summary.means[1].mean, 0.5), "{summary:?}");
        assert!(near(summary.score, 70.0), "{summary:?}");
        let Mean { scored, skipped, errors, not_run, margin, .. } = summary.means[1];
        assert_eq!((scored, skipped, errors, not_run, margin), (1, 1, 1, 1, None));
        assert_eq!(summary.margin, None, "one scorer has a single case");
        assert_eq!((summary.total, summary.finished), (4, 3));
        assert_eq!(summary.passed(75.0), 2);
        assert_eq!(summary.passed(70.0), 3);
    }

    #[test]
    fn only_the_first_score_between_0_and_1_counts() {
        let safety = Scorer::Safety;
        let results = [
            result(0, vec![scored(safety, 0.2), scored(safety, 1.0)]),
            result(0, vec![scored(safety, 1.0)]),
            result(1, vec![scored(safety, 7.0)]),
            result(2, vec![scored(safety, f64::NAN)]),
            result(3, vec![scored(safety, -0.1)]),
            result(4, vec![Score { value: Some(1.0), ..Score::error(safety, "") }]),
            result(5, vec![Score { value: None, ..scored(safety, 1.0) }]),
            result(6, vec![scored(Scorer::Fluency, 1.0)]),
            result(99, vec![scored(safety, 1.0)]),
            result(usize::MAX, vec![scored(safety, 1.0)]),
        ];
        let summary = summarize(&[safety], 7, &results);
        let Mean { mean, scored, errors, not_run, .. } = summary.means[0];
        assert!(near(mean, 0.2), "{summary:?}");
        assert_eq!((scored, errors, not_run), (1, 5, 1));
        assert_eq!(summary.finished, 7);
        assert!(summary.cases.len() == 1 && summary.cases[0].0 == 0);
    }

    #[test]
    fn nothing_gives_no_score() {
        assert_eq!(summarize(&[], 0, &[]), RunSummary::default());
        let summary = summarize(&[Scorer::Safety], 3, &[]);
        assert_eq!((summary.score, summary.margin, summary.means[0].not_run), (None, None, 3));
    }

    #[test]
    fn intervals_are_wilsons() {
        // Eight of ten: 0.4902 to 0.9433 by the textbook.
        let values: Vec<f64> = (0..10).map(|place| if place < 8 { 1.0 } else { 0.0 }).collect();
        let half = margin(&values);
        assert!(half.is_some_and(|half| (half - (0.9433 - 0.4902) / 2.0).abs() < 1e-4), "{half:?}");
        assert_eq!(margin(&[1.0]), None);
        assert!(margin(&[1.0, 1.0]).is_some_and(|half| half > 0.3), "two cases prove little");
    }

    proptest! {
        #[test]
        fn means_stay_in_range_and_repeats_change_nothing(
            total in 0_usize..40,
            values in proptest::collection::vec((0_usize..50, proptest::num::f64::ANY), 0..60),
        ) {
            let scorers = [Scorer::Safety, Scorer::Fluency];
            let results: Vec<CaseResult> =
                values.iter().map(|(case, value)| result(*case, vec![scored(scorers[case % 2], *value)])).collect();
            let once = summarize(&scorers, total, &results);
            for mean in &once.means {
                prop_assert_eq!(mean.scored + mean.skipped + mean.errors + mean.not_run, total);
                prop_assert!(mean.mean.is_none_or(|mean| (0.0..=1.0).contains(&mean)));
                prop_assert_eq!(mean.mean.is_some(), mean.scored > 0);
                prop_assert_eq!(mean.margin.is_some(), mean.scored > 1);
            }
            prop_assert!(once.score.is_none_or(|score| (0.0..=100.0).contains(&score)));
            prop_assert!(once.finished <= total);
            let twice: Vec<CaseResult> = results.iter().chain(results.iter().rev()).cloned().collect();
            prop_assert_eq!(once, summarize(&scorers, total, &twice));
        }
    }
}
