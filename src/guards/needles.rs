//! A few words that are looked for in one pass, in any case: a look at each byte, and a closer one where a word may begin.

pub(crate) struct Needles {
    words: &'static [&'static str],
    first: [bool; 256],
}

impl Needles {
    pub(crate) const fn new(words: &'static [&'static str]) -> Self {
        let mut first = [false; 256];
        let mut at = 0;
        while at < words.len() {
            let byte = words[at].as_bytes()[0];
            first[byte.to_ascii_lowercase() as usize] = true;
            first[byte.to_ascii_uppercase() as usize] = true;
            at += 1;
        }
        Self { words, first }
    }

    /// Whether the text holds one of them.
    pub(crate) fn within(&self, text: &[u8]) -> bool {
        (0..text.len()).any(|at| self.begins(&text[at..]))
    }

    /// Whether the text begins with one of them.
    pub(crate) fn begins(&self, text: &[u8]) -> bool {
        let is = |word: &&str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
        text.first().is_some_and(|first| self.first[usize::from(*first)]) && self.words.iter().any(is)
    }
}
