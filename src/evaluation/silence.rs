//! An agent that gives no answers: when a run need not go on to its last case, as no verdict can come of it, and whether another run could
//! fare better. Each further case of such an agent may take minutes.

use crate::wire::CaseResult;

/// The least number of cases without an answer that ends a run. Of an agent that answers nine cases of ten, as a verdict takes, the
/// first eight are all without one in a run of a hundred million. It is more than the cases under way at once, so that a model which
/// has yet to load does not decide.
pub const SILENT_CASES: usize = 8;

/// How many of the cases that have their result have no answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Silence {
    pub finished: usize,
    pub unanswered: usize,
    /// Of these, the ones that would have none if the agent were asked again.
    pub lasting: usize,
}

impl Silence {
    pub fn of<'a>(results: impl IntoIterator<Item = &'a CaseResult>) -> Self {
        results.into_iter().fold(Self::default(), |Self { finished, unanswered, lasting }, result| {
            let is_unanswered = result.error.is_some();
            Self {
                finished: finished + 1,
                unanswered: unanswered + usize::from(is_unanswered),
                lasting: lasting + usize::from(is_unanswered && result.is_final),
            }
        })
    }

    /// Whether no verdict can come of a run of `total` cases, whatever becomes of the rest.
    pub fn is_too_much(self, total: usize) -> bool {
        is_over_a_tenth(self.unanswered, total)
    }

    /// Whether a run of `total` cases ends though some have no result yet. [`SILENT_CASES`] and more than half of those that finished
    /// have no answer; and either they are too many for a verdict, or no case was answered and as many of them would have no answer if
    /// they were asked again. An agent that answers every other case is asked all of them.
    pub fn ends(self, total: usize) -> bool {
        let is_silent = self.unanswered >= SILENT_CASES && is_most(self.unanswered, self.finished);
        self.finished < total && is_silent && (self.is_too_much(total) || self.is_mute())
    }

    /// Whether another run would end the same way: most of the cases that finished would have no answer in it either.
    pub fn lasts(self) -> bool {
        is_most(self.lasting, self.finished)
    }

    fn is_mute(self) -> bool {
        self.unanswered == self.finished && self.lasting >= SILENT_CASES
    }
}

fn is_over_a_tenth(part: usize, total: usize) -> bool {
    part.saturating_mul(10) > total
}

fn is_most(part: usize, total: usize) -> bool {
    part.saturating_mul(2) > total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_early_where_nothing_can_come_of_it() {
        // Cases, results, results without an answer and those of them that last; whether it ends, and whether another one would.
        for (total, finished, unanswered, lasting, ends, lasts) in [
            // None of the first eight.
            (1000, 7, 7, 7, false, true),
            (1000, 8, 8, 8, true, true),
            (1000, 9, 8, 8, false, true),
            (1000, 9, 9, 8, true, true),
            // A model or a pod that is away may be back.
            (1000, 8, 8, 7, false, true),
            (1000, 30, 30, 8, true, false),
            (1000, 100, 100, 0, false, false),
            (1000, 101, 101, 0, true, false),
            // A tenth is borne.
            (1000, 150, 100, 100, false, true),
            (1000, 150, 101, 101, true, true),
            (1000, 150, 101, 75, true, false),
            (1000, 150, 101, 76, true, true),
            // Where half of the cases are answered, all are asked, however many have no answer.
            (1000, 16, 8, 8, false, false),
            (1000, 201, 101, 101, true, true),
            (1000, 202, 101, 101, false, false),
            (1000, 900, 101, 101, false, false),
            (1000, 900, 450, 450, false, false),
            (1000, 900, 451, 451, true, true),
            (20, 15, 8, 8, true, true),
            (20, 16, 8, 8, false, false),
            (79, 15, 8, 8, true, true),
            (79, 40, 8, 8, false, false),
            // A few cases are not worth the trouble.
            (20, 7, 7, 7, false, true),
            (20, 10, 8, 0, true, false),
            (80, 15, 8, 8, false, true),
            // Nothing is left to end.
            (8, 8, 8, 8, false, true),
            (20, 20, 11, 11, false, true),
            (20, 20, 10, 10, false, false),
            (0, 0, 0, 0, false, false),
        ] {
            let silence = Silence { finished, unanswered, lasting };
            assert_eq!((silence.ends(total), silence.lasts()), (ends, lasts), "{silence:?} of {total}");
        }
    }

    #[test]
    fn what_ends_early_is_mostly_silent_and_allows_no_verdict() {
        let total = 200;
        for unanswered in 0..=total {
            for finished in unanswered..=total {
                for lasting in [0, unanswered / 2, unanswered] {
                    let silence = Silence { finished, unanswered, lasting };
                    if silence.ends(total) {
                        assert!(unanswered >= SILENT_CASES && finished - unanswered < unanswered, "{silence:?}");
                        assert!(silence.is_too_much(total) || unanswered == finished && lasting >= SILENT_CASES, "{silence:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_what_has_no_answer_is_silent() {
        let result = |error: Option<&str>, is_final| CaseResult { error: error.map(str::to_owned), is_final, ..CaseResult::default() };
        let results = [result(None, false), result(Some("away"), false), result(Some("no such model"), true), result(None, true)];
        assert_eq!(Silence::of(&results), Silence { finished: 4, unanswered: 2, lasting: 1 });
    }
}
