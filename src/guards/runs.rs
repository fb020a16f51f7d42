//! Splits text into runs: pieces that no pattern (an address, a number, a key) extends across. A run is a word with the white
//! space after it, or several words that may belong together, such as the groups of a number, or a name and its value. The
//! end of a run depends only on the run and one character after it, so that fragments are split exactly like the whole text.

/// The longest run; a longer word is split.
pub(crate) const MAX_RUN_BYTES: usize = 4096;

/// Searches for the end of a run, and remembers its position.
#[derive(Debug, Default)]
pub(crate) struct RunSplitter {
    looked: usize,
    word: usize,
    word_end: usize,
    last: Option<char>,
}

impl RunSplitter {
    /// `text` begins with the run, and with the same bytes as in the last call. `None`: the run is incomplete.
    pub(crate) fn end(&mut self, text: &str) -> Option<usize> {
        let bytes = text.as_bytes();
        if self.last.is_none()
            && let Some(end) = word(bytes)
        {
            return Some(end);
        }
        loop {
            // Fast path: no run ends within an ASCII word.
            if self.last.is_some_and(|last| last.is_ascii_graphic()) {
                let reach = text.len().min(MAX_RUN_BYTES);
                self.looked += bytes[self.looked.min(reach)..reach].iter().take_while(|byte| byte.is_ascii_graphic()).count();
                self.word_end = self.looked;
                self.last = Some(char::from(bytes[self.looked - 1]));
            }
            let at = self.looked;
            let next = text[at..].chars().next()?;
            if let Some(last) = self.last
                && (at + next.len_utf8() > MAX_RUN_BYTES || self.parts(text.as_bytes(), at, last, next))
            {
                *self = Self::default();
                return Some(at);
            }
            if next == '\n' {
                *self = Self::default();
                return Some(at + 1);
            }
            if !is_space(next) {
                self.word_end = at + next.len_utf8();
            }
            self.last = Some(next);
            self.looked = at + next.len_utf8();
        }
    }

    /// Whether a run ends between two characters.
    fn parts(&mut self, text: &[u8], at: usize, last: char, next: char) -> bool {
        if is_space(next) {
            return false;
        }
        if is_space(last) {
            if next.is_ascii() && belong(&text[..self.word_end], self.word, next as u8) {
                self.word = at;
                return false;
            }
            return true;
        }
        if next.is_ascii() && last.is_ascii() {
            return false;
        }
        let joins = |c: char| is_ignorable(c) || (!c.is_ascii() && plain(c).is_some());
        !(joins(next) || joins(last) || (is_letter(next) && is_letter(last)))
    }
}

/// The end of a run of one ASCII word with the spaces after it, the common case.
fn word(bytes: &[u8]) -> Option<usize> {
    let bytes = &bytes[..bytes.len().min(MAX_RUN_BYTES)];
    let word = bytes.iter().take_while(|byte| byte.is_ascii_graphic()).count();
    let end = word + bytes[word..].iter().take_while(|byte| **byte == b' ').count();
    let next = *bytes.get(end)?;
    let alone = 0 < word && word < end && next.is_ascii() && !next.is_ascii_whitespace();
    (alone && !belong(&bytes[..word], 0, next)).then_some(end)
}

/// Whether the word that starts at `word` and the one that begins with `next` may be parts of one finding.
fn belong(run: &[u8], word: usize, next: u8) -> bool {
    let before = &run[word.min(run.len())..];
    let Some(last) = before.last() else { return false };
    // Fast path for most pairs of words.
    if last.is_ascii_lowercase() && !matches!(last, b'r' | b'c') && next.is_ascii_lowercase() && !run.contains(&b'-') {
        return false;
    }
    let numbers = matches!(last, b'0'..=b'9' | b')' | b'-' | b'.' | b'/') && matches!(next, b'0'..=b'9' | b'(' | b'+' | b'-');
    let upper = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit();
    let account = before.len() == 4 && before.iter().all(upper) && upper(&next);
    let value = matches!(last, b'=' | b':' | b'>' | b'`') || matches!(next, b'=' | b':' | b'|' | b'>');
    let bearer = || [b"bearer".as_slice(), b"basic"].iter().any(|scheme| ends_with(before, scheme));
    numbers || account || value || bearer() || opens_key(run)
}

fn ends_with(word: &[u8], end: &[u8]) -> bool {
    word.len() >= end.len() && word[word.len() - end.len()..].eq_ignore_ascii_case(end)
}

/// Whether the run may be the first line of a private key, which has spaces.
fn opens_key(run: &[u8]) -> bool {
    let recent = &run[run.len().saturating_sub(64)..];
    recent.contains(&b'-') && recent.windows(10).any(|window| window == b"-----BEGIN")
}

/// Character classes of a run, by which most runs are skipped.
pub(crate) mod signs {
    pub(crate) const DIGIT: u8 = 1;
    pub(crate) const AT: u8 = 2;
    pub(crate) const COLON: u8 = 4;
    pub(crate) const SLASH: u8 = 8;
    pub(crate) const DASH: u8 = 16;
    /// A separator between a name and its value.
    pub(crate) const EQUALS: u8 = 32;
    /// Not ASCII.
    pub(crate) const FOREIGN: u8 = 64;

    const OF: [u8; 256] = {
        let mut of = [FOREIGN; 256];
        let mut byte = 0u8;
        while byte < 128 {
            of[byte as usize] = match byte {
                b'0'..=b'9' => DIGIT,
                b'@' => AT,
                b':' => COLON | EQUALS,
                b'/' => SLASH,
                b'-' => DASH,
                b'=' | b'>' | b',' | b'|' => EQUALS,
                _ => 0,
            };
            byte += 1;
        }
        of
    };

    pub(crate) fn of(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |all, byte| all | OF[usize::from(*byte)])
    }
}

pub(crate) fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || matches!(c, '\u{a0}' | '\u{202f}')
}

/// Letters of scripts that separate words by spaces.
pub(crate) fn is_letter(c: char) -> bool {
    if c.is_ascii() { c.is_ascii_alphanumeric() } else { u32::from(c) < 0x0E00 && c.is_alphanumeric() }
}

/// Invisible characters, which can hide a word from a comparison.
pub(crate) fn is_ignorable(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The ASCII character that another one looks like: full-width forms, hyphens, letters of Greek and Cyrillic.
pub(crate) fn plain(c: char) -> Option<char> {
    let plain = match c {
        '\u{ff01}'..='\u{ff5e}' => char::from_u32(u32::from(c) - 0xfee0)?,
        '\u{2010}'..='\u{2013}' | '\u{2212}' => '-',
        'а' | 'α' => 'a',
        'с' => 'c',
        'е' | 'ε' => 'e',
        'і' | 'ι' => 'i',
        'ј' => 'j',
        'о' | 'ο' => 'o',
        'р' | 'ρ' => 'p',
        'ѕ' => 's',
        'у' | 'υ' => 'y',
        'х' => 'x',
        'А' | 'Α' => 'A',
        'В' | 'Β' => 'B',
        'С' => 'C',
        'Е' | 'Ε' => 'E',
        'Н' | 'Η' => 'H',
        'І' | 'Ι' => 'I',
        'К' | 'Κ' => 'K',
        'М' | 'Μ' => 'M',
        'О' | 'Ο' => 'O',
        'Р' | 'Ρ' => 'P',
        'Т' | 'Τ' => 'T',
        'Х' | 'Χ' => 'X',
        _ => return None,
    };
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str) -> Vec<&str> {
        let (mut rest, mut runs, mut splitter) = (text, Vec::new(), RunSplitter::default());
        while let Some(end) = splitter.end(rest) {
            runs.push(&rest[..end]);
            rest = &rest[end..];
        }
        runs.push(rest);
        runs
    }

    #[test]
    fn words_that_may_belong_together_stay_together() {
        for (text, runs) in [
            ("call me now", vec!["call ", "me ", "now"]),
            ("at +44 (0) 20 7946 0000 or", vec!["at ", "+44 (0) 20 7946 0000 ", "or"]),
            ("GB29 NWBK 6016 13 ok", vec!["GB29 NWBK 6016 13 ", "ok"]),
            ("api_key = \"abc\" x", vec!["api_key = \"abc\" ", "x"]),
            ("Authorization: Bearer abc def", vec!["Authorization: Bearer abc ", "def"]),
            ("-----BEGIN RSA PRIVATE KEY-----\nMII", vec!["-----BEGIN RSA PRIVATE KEY-----\n", "MII"]),
            ("naïve 炸弹 x", vec!["naïve ", "炸", "弹 ", "x"]),
            ("01\u{a0}23", vec!["01\u{a0}23"]),
            ("bo\u{200b}mb it", vec!["bo\u{200b}mb ", "it"]),
        ] {
            assert_eq!(cut(text), runs, "{text}");
        }
    }

    #[test]
    fn no_run_exceeds_the_limit() {
        let text = "aé".repeat(5000);
        let runs = cut(&text);
        assert!(runs.iter().all(|run| run.len() <= MAX_RUN_BYTES), "{:?}", runs.iter().map(|run| run.len()).collect::<Vec<_>>());
        assert_eq!(runs.concat(), text);
    }
}
