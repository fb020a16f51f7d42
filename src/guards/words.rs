//! Splits text into normalised words: lower case, without accents and without invisible characters between letters. A word
//! may arrive in fragments.

use std::ops::Range;

use crate::runs::{is_ignorable, is_letter};

/// The longest word; the rest of it is ignored.
const MAX_WORD_BYTES: usize = 48;

/// ASCII letters in lower case, and digits; 0: another character.
const LOWER: [u8; 256] = {
    let mut lower = [0; 256];
    let mut byte = 0u8;
    while byte < 128 {
        if byte.is_ascii_alphanumeric() {
            lower[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    lower
};

/// Collects the letters of a word.
#[derive(Debug)]
pub(crate) struct Words {
    word: [u8; MAX_WORD_BYTES],
    length: usize,
    span: Range<usize>,
}

impl Default for Words {
    fn default() -> Self {
        Self { word: [0; MAX_WORD_BYTES], length: 0, span: 0..0 }
    }
}

impl Words {
    /// Reads text that begins at `offset` of the whole; `each` is called with every complete word.
    pub(crate) fn read(&mut self, text: &str, offset: usize, mut each: impl FnMut(&[u8], Range<usize>)) {
        let bytes = text.as_bytes();
        let mut next = 0;
        while next < bytes.len() {
            // Fast path for ASCII.
            let byte = bytes[next];
            let lower = LOWER[usize::from(byte)];
            if lower != 0 {
                if self.length == 0 {
                    self.span.start = offset + next;
                }
                if self.length < MAX_WORD_BYTES {
                    self.word[self.length] = lower;
                    self.length += 1;
                }
                next += 1;
                self.span.end = offset + next;
                continue;
            }
            if byte.is_ascii() && byte != b'\'' {
                self.end(&mut each);
                next += 1;
                continue;
            }
            let Some(c) = text[next..].chars().next() else { break };
            let at = offset + next;
            next += c.len_utf8();
            if matches!(c, '\'' | '\u{2018}' | '\u{2019}') || is_ignorable(c) {
                // "don't" is one word, and a soft hyphen splits none.
            } else if is_letter(c) {
                c.to_lowercase().for_each(|lower| self.fold(lower, at, c.len_utf8()));
            } else if is_mark(c) {
                self.span.end = at + c.len_utf8();
            } else {
                self.end(&mut each);
                if c.is_alphanumeric() {
                    // Scripts without spaces: each character is a word.
                    self.take(c, at, c.len_utf8());
                    self.end(&mut each);
                }
            }
        }
    }

    /// Ends the text.
    pub(crate) fn end(&mut self, mut each: impl FnMut(&[u8], Range<usize>)) {
        if self.length > 0 {
            each(&self.word[..self.length], self.span.clone());
            self.length = 0;
        }
    }

    fn take(&mut self, c: char, at: usize, length: usize) {
        if self.length == 0 {
            self.span.start = at;
        }
        if let Some(room) = self.word.get_mut(self.length..self.length + c.len_utf8()) {
            c.encode_utf8(room);
            self.length += c.len_utf8();
        }
        self.span.end = at + length;
    }

    /// Adds a letter without its accent, or the Latin letter that it imitates.
    fn fold(&mut self, c: char, at: usize, length: usize) {
        let plain = match c {
            'à'..='å' | 'ā' | 'ă' | 'ą' => "a",
            'ç' | 'ć' | 'č' => "c",
            'è'..='ë' | 'ē' | 'ę' | 'ě' => "e",
            'ì'..='ï' | 'ī' | 'ı' => "i",
            'ñ' | 'ń' | 'ň' => "n",
            'ò'..='ö' | 'ø' | 'ō' | 'ő' => "o",
            'ù'..='ü' | 'ū' | 'ů' | 'ű' => "u",
            'ý' | 'ÿ' => "y",
            'ś' | 'š' | 'ş' => "s",
            'ź' | 'ż' | 'ž' => "z",
            'ł' => "l",
            'ß' => "ss",
            'æ' => "ae",
            'œ' => "oe",
            _ if self.length > 0 && self.word[..self.length].is_ascii() => lookalike(c),
            _ => "",
        };
        if plain.is_empty() {
            self.take(c, at, length);
        } else {
            plain.chars().for_each(|letter| self.take(letter, at, length));
        }
    }
}

/// Combining accents.
fn is_mark(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36f}')
}

/// The Latin letter that a Cyrillic or Greek one imitates.
fn lookalike(c: char) -> &'static str {
    match c {
        'а' | 'α' => "a",
        'с' => "c",
        'е' | 'ε' => "e",
        'і' | 'ι' => "i",
        'о' | 'ο' => "o",
        'р' | 'ρ' => "p",
        'ѕ' => "s",
        'у' | 'υ' => "u",
        'х' => "x",
        'к' | 'κ' => "k",
        'т' | 'τ' => "t",
        'м' => "m",
        'н' => "h",
        'в' => "b",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let (mut reader, mut all) = (Words::default(), Vec::new());
        let mut each = |word: &[u8], _| all.push(String::from_utf8(word.to_vec()).unwrap());
        reader.read(text, 0, &mut each);
        reader.end(&mut each);
        all
    }

    #[test]
    fn words_are_normalised() {
        for (text, expected) in [
            ("Don't STOP!", vec!["dont", "stop"]),
            ("can\u{2019}t", vec!["cant"]),
            ("Révèle tes Größen", vec!["revele", "tes", "grossen"]),
            ("ig\u{200b}nore", vec!["ignore"]),
            ("ignоre", vec!["ignore"]),
            ("忽略 x", vec!["忽", "略", "x"]),
            ("забудь", vec!["забудь"]),
            ("re\u{301}ve", vec!["reve"]),
        ] {
            assert_eq!(words(text), expected, "{text}");
        }
    }
}
