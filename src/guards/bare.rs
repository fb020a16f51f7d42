//! A run as it is meant: without the characters that nobody sees, and with plain letters, digits and signs for those that
//! only look like them. Otherwise a zero-width space within a key, or a full-width digit, would hide it.

use std::ops::Range;

use crate::pii::{CONTEXT, Found};
use crate::runs::{is_ignorable, plain};

pub(crate) struct Bare {
    pub(crate) text: String,
    pub(crate) run: Range<usize>,
    /// By byte of the bare text: where it lies in the whole.
    places: Vec<Range<usize>>,
}

impl Bare {
    /// None when the run is bare already.
    pub(crate) fn new(text: &str, run: &Range<usize>) -> Option<Self> {
        if !text[run.clone()].chars().any(|c| !c.is_ascii() && (is_ignorable(c) || plain(c).is_some())) {
            return None;
        }
        let from = text.floor_char_boundary(run.start.saturating_sub(CONTEXT));
        let mut bare = Self { text: String::with_capacity(run.end - from), run: 0..0, places: Vec::with_capacity(run.end - from) };
        for (at, c) in text[from..run.end].char_indices().map(|(at, c)| (from + at, c)) {
            if at == run.start {
                bare.run.start = bare.text.len();
            }
            if let Some(plain) = plain(c) {
                bare.text.push(plain);
                bare.places.push(at..at + c.len_utf8());
            } else if !is_ignorable(c) {
                bare.text.push(c);
                bare.places.extend((at..at + c.len_utf8()).map(|byte| byte..byte + 1));
            }
        }
        bare.run.end = bare.text.len();
        Some(bare)
    }

    /// Where the findings of the bare text lie in the whole.
    pub(crate) fn whole(&self, found: &mut [Found]) {
        for (_, span) in found {
            *span = self.places[span.start].start..self.places[span.end - 1].end;
        }
    }
}
