//! Cuts a text into windows that a model reads at once: as few as possible, of about the same length, cut at words.

/// Longer words are cut, as tokenizers take quadratic time on them.
const MAX_WORD_BYTES: usize = 256;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Window<'a> {
    pub(super) text: &'a str,
    pub(super) tokens: u32,
}

/// The windows of at most `room` tokens, none of them blank. A single character may have more.
pub(super) fn windows(text: &str, room: u32, count: impl Fn(&str) -> u32) -> Vec<Window<'_>> {
    let room = room.max(1);
    // No vocabulary has a token of less than a byte.
    if text.len() <= room as usize {
        return Vec::from_iter(Some(Window { text, tokens: 1 }).filter(|_| !text.trim().is_empty()));
    }
    let mut words = Vec::new();
    for word in Words(text) {
        measure(word, room, &count, &mut words);
    }
    let total: u32 = words.iter().map(|&(_, tokens)| tokens).sum();
    let target = total.div_ceil(total.div_ceil(room).max(1));
    let (mut windows, mut start, mut end, mut tokens) = (Vec::new(), 0, 0, 0);
    let mut close = |range: std::ops::Range<usize>, tokens| {
        let text = &text[range];
        if !text.trim().is_empty() {
            windows.push(Window { text, tokens });
        }
    };
    for (length, of_word) in words {
        if tokens + of_word > room || tokens >= target {
            close(start..end, tokens);
            (start, tokens) = (end, 0);
        }
        end += length;
        tokens += of_word;
    }
    close(start..end, tokens);
    windows
}

/// Appends the bytes and tokens of a word, or of its halves if it does not fit.
fn measure(word: &str, room: u32, count: &impl Fn(&str) -> u32, into: &mut Vec<(usize, u32)>) {
    let tokens = count(word);
    let middle = word.floor_char_boundary(word.len() / 2).max(word.ceil_char_boundary(1));
    if tokens > room && middle < word.len() {
        measure(&word[..middle], room, count, into);
        return measure(&word[middle..], room, count, into);
    }
    into.push((word.len(), tokens));
}

/// Words, each with the blanks before it.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let begin = self.0.len() - self.0.trim_start().len();
        let end = self.0[begin..].find(char::is_whitespace).map_or(self.0.len(), |length| begin + length);
        let (word, rest) = self.0.split_at(self.0.floor_char_boundary(end.min(MAX_WORD_BYTES)));
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn letters(text: &str) -> u32 {
        u32::try_from(text.chars().filter(|char| !char.is_whitespace()).count()).unwrap()
    }

    #[test]
    fn windows_are_few_and_of_about_the_same_length() {
        let words = |text: &str| u32::try_from(text.split_whitespace().count()).unwrap();
        for (count, room, expected) in [(512, 254, vec![171, 171, 170]), (254, 254, vec![254]), (255, 254, vec![128, 127])] {
            let text = "word ".repeat(count);
            let found: Vec<u32> = windows(&text, room, words).iter().map(|window| window.tokens).collect();
            assert_eq!(found, expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_is_left_out_and_no_window_is_too_long(text in any::<String>(), more in "([a-z]{1,9} ?){0,60}", room in 1..50_u32) {
            let text = format!("{text}{more}");
            let found = windows(&text, room, letters);
            prop_assert!(found.iter().all(|window| letters(window.text) <= room));
            let together: String = found.iter().map(|window| window.text).collect();
            let bare = |text: &str| text.chars().filter(|char| !char.is_whitespace()).collect::<String>();
            prop_assert_eq!(bare(&together), bare(&text));
        }
    }
}
