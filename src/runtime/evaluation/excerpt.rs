//! How much is kept of answers and reasons. A run has a byte budget for its texts, of which each case has the same share, so
//! that the whole is bounded whatever the models say.

use slipway_evaluation::wire::{CaseResult, EXCERPT_BYTES_MAX, REASON_BYTES_MAX};

/// Of all cases of a run together.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// Marks what was cut; as long as a mark may be.
const MARK: &str = "…";

#[derive(Debug, Clone, Copy)]
pub(super) struct Excerpts {
    output: usize,
    reason: usize,
}

impl Excerpts {
    pub(super) fn new(cases: usize, scorers: usize) -> Self {
        // An answer has a half of a case's share, the reasons of its scores have the other.
        let half = MAX_TEXT_BYTES / cases.max(1) / 2;
        Self { output: half.min(EXCERPT_BYTES_MAX), reason: (half / scorers.max(1)).min(REASON_BYTES_MAX) }
    }

    pub(super) fn fit(self, result: &mut CaseResult) {
        for text in [&mut result.output, &mut result.error].into_iter().flatten() {
            // There is one or the other.
            cut(text, self.output);
        }
        for score in &mut result.scores {
            cut(&mut score.reason, self.reason);
        }
    }
}

/// Cuts a text between two characters and lets go of the bytes beyond.
fn cut(text: &mut String, most: usize) {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text.shrink_to_fit();
}

#[cfg(test)]
mod tests {
    use slipway_api::evaluation_run::Scorer;
    use slipway_evaluation::wire::Score;

    use super::*;

    #[test]
    fn the_texts_of_a_run_are_bounded_whatever_is_said() {
        for (cases, scorers, output, reason) in [(1, 1, 4096, 512), (512, 3, 4096, 512), (1000, 3, 2097, 512), (2000, 14, 1048, 74)] {
            let excerpts = Excerpts::new(cases, scorers);
            assert_eq!((excerpts.output, excerpts.reason), (output, reason), "{cases} cases");
            let said = "é".repeat(10_000);
            let scores = vec![Score::scored(Scorer::Safety, 1.0, said.clone()); scorers];
            let mut result = CaseResult { output: Some(said), scores, ..CaseResult::default() };
            excerpts.fit(&mut result);
            let kept = result.output.as_ref().unwrap();
            assert!(kept.len() <= output && kept.ends_with("é…"), "{kept}");
            let bytes = kept.len() + result.scores.iter().map(|score| score.reason.len()).sum::<usize>();
            assert!(bytes * cases <= MAX_TEXT_BYTES, "{bytes} bytes of a case");
        }
    }

    #[test]
    fn a_short_text_stays_as_it_is() {
        let mut text = "well".to_owned();
        cut(&mut text, 4);
        assert_eq!(text, "well");
    }
}
