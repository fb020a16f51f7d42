//! Case-insensitive search for a few words in one pass: a table look-up per byte, and a comparison where a word may begin.

pub(crate) struct Needles {
    words: &'static [&'static str],
    /// The possible second bytes by first byte, in both cases.
    begin: [u128; 128],
}

impl Needles {
    pub(crate) const fn new(words: &'static [&'static str]) -> Self {
        let mut begin = [0; 128];
        let mut at = 0;
        while at < words.len() {
            let word = words[at].as_bytes();
            let second = if word.len() == 1 { u128::MAX } else { 1 << word[1].to_ascii_lowercase() | 1 << word[1].to_ascii_uppercase() };
            begin[word[0].to_ascii_lowercase() as usize] |= second;
            begin[word[0].to_ascii_uppercase() as usize] |= second;
            at += 1;
        }
        Self { words, begin }
    }

    /// Whether the text contains one of the words.
    pub(crate) fn within(&self, text: &[u8]) -> bool {
        (0..text.len()).any(|at| self.begins(&text[at..]))
    }

    /// Whether the text begins with one of the words.
    fn begins(&self, text: &[u8]) -> bool {
        let [first, rest @ ..] = text else { return false };
        let second = rest.first().copied().unwrap_or_default();
        let may = first.is_ascii() && self.begin[usize::from(*first)] >> (second & 127) & 1 == 1;
        let is = |word: &&str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
        may && self.words.iter().any(is)
    }
}
