//! A run without invisible characters, and with ASCII for characters that look like it. Otherwise a zero-width space or a
//! full-width digit would hide a key.

use std::ops::Range;

use crate::pii::{CONTEXT_BYTES, Match};
use crate::runs::{is_ignorable, plain};

pub(crate) struct Normalised {
    pub(crate) text: String,
    pub(crate) run: Range<usize>,
    /// The span in the original text, by byte of the normalised text.
    places: Vec<Range<usize>>,
}

impl Normalised {
    /// `None` if the run needs no normalisation.
    pub(crate) fn new(text: &str, run: &Range<usize>) -> Option<Self> {
        if !text[run.clone()].chars().any(|c| !c.is_ascii() && (is_ignorable(c) || plain(c).is_some())) {
            return None;
        }
        let from = text.floor_char_boundary(run.start.saturating_sub(CONTEXT_BYTES));
        let mut normalised = Self { text: String::with_capacity(run.end - from), run: 0..0, places: Vec::with_capacity(run.end - from) };
        for (at, c) in text[from..run.end].char_indices().map(|(at, c)| (from + at, c)) {
            if at == run.start {
                normalised.run.start = normalised.text.len();
            }
            if let Some(plain) = plain(c) {
                normalised.text.push(plain);
                normalised.places.push(at..at + c.len_utf8());
            } else if !is_ignorable(c) {
                normalised.text.push(c);
                normalised.places.extend((at..at + c.len_utf8()).map(|byte| byte..byte + 1));
            }
        }
        normalised.run.end = normalised.text.len();
        Some(normalised)
    }

    /// Maps findings in the normalised text to the original text.
    pub(crate) fn whole(&self, found: &mut [Match]) {
        for (_, span) in found {
            *span = self.places[span.start].start..self.places[span.end - 1].end;
        }
    }
}
