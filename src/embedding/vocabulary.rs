//! The second half of BERT's tokenizer: words to pieces that the model has numbers for. The longest piece of the
//! vocabulary that a word begins with comes first, then the longest of the rest, which is written `##rest`. A word
//! with a rest that is in no piece is unknown as a whole.
//!
//! What a text says is only ever text here: `[SEP]` in it is a bracket, a word and a bracket.

use std::ops::ControlFlow;
use std::path::Path;

use super::words::each_word;
use crate::ModelFileFault;

/// Longer words are unknown.
const MAX_WORD_CHARS: usize = 100;

#[derive(Debug)]
pub struct Vocabulary {
    /// The whole file. One allocation and an index into it stay small, and leave nothing behind when dropped.
    text: String,
    /// Start and length of each line.
    lines: Vec<(u32, u32)>,
    /// The line numbers by the hash of their text, each at the first free place from there and with the tag of its hash, which
    /// spares most comparisons of text. At most half is taken.
    table: Vec<(u32, u32)>,
    /// The longest line in bytes.
    longest: usize,
    start: u32,
    end: u32,
    unknown: u32,
}

impl Vocabulary {
    /// `vocab.txt`: a piece on each line, whose number is its own.
    pub fn read(path: &Path) -> Result<Self, ModelFileFault> {
        let wrong = |why: String| ModelFileFault::new(format!("the vocabulary {} {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|cause| wrong(format!("cannot be read: {cause}")))?;
        Self::parse(text).map_err(wrong)
    }

    fn parse(text: String) -> Result<Self, String> {
        if u32::try_from(text.len()).is_err() {
            return Err("is longer than 4 GiB".to_owned());
        }
        let mut lines = Vec::new();
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            let piece = line.trim_end_matches(['\r', '\n']);
            lines.push((to_u32(at), to_u32(piece.len())));
            at += line.len();
        }
        let mut table = vec![(0, FREE); (2 * lines.len()).next_power_of_two()];
        for (number, &line) in (0..).zip(&lines) {
            let hash = hash(START, piece(&text, line).as_bytes());
            let mut place = place(hash, table.len());
            while table[place].1 != FREE {
                place = (place + 1) % table.len();
            }
            table[place] = (tag(hash), number);
        }
        let longest = lines.iter().map(|&(_, length)| length as usize).max().unwrap_or(0);
        let mut vocabulary = Self { text, lines, table, longest, start: 0, end: 0, unknown: 0 };
        let special = |name: &str| vocabulary.number(hash(START, name.as_bytes()), "", name).ok_or_else(|| format!("has no line `{name}`"));
        (vocabulary.start, vocabulary.end, vocabulary.unknown) = (special("[CLS]")?, special("[SEP]")?, special("[UNK]")?);
        Ok(vocabulary)
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    /// The piece numbers of a text, at most `most` including the two special pieces at the ends.
    pub(super) fn encode(&self, text: &str, most: usize) -> Vec<u32> {
        let mut pieces = vec![self.start];
        self.append(text, most, &mut pieces);
        pieces.truncate(most.saturating_sub(1).max(1));
        pieces.push(self.end);
        pieces
    }

    /// The number of pieces of a text, without the special ones.
    pub fn count(&self, text: &str) -> usize {
        let mut pieces = Vec::new();
        self.append(text, usize::MAX, &mut pieces);
        pieces.len()
    }

    /// Appends the pieces of a text's words, until there are `most`.
    fn append(&self, text: &str, most: usize, pieces: &mut Vec<u32>) {
        let mut hashes = Vec::with_capacity(self.longest);
        each_word(text, |word| {
            self.split(word, pieces, &mut hashes);
            if pieces.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }

    /// Appends the pieces of a word. `hashes` is a buffer, reused between words.
    fn split(&self, word: &str, pieces: &mut Vec<u32>, hashes: &mut Vec<u64>) {
        if word.len() > MAX_WORD_CHARS && word.chars().count() > MAX_WORD_CHARS {
            return pieces.push(self.unknown);
        }
        let (before, mut rest) = (pieces.len(), word);
        while !rest.is_empty() {
            let mark = if rest.len() == word.len() { "" } else { "##" };
            let longest = &rest[..rest.floor_char_boundary(self.longest)];
            let mut so_far = hash(START, mark.as_bytes());
            hashes.clear();
            hashes.extend(longest.bytes().map(|byte| {
                so_far = hash(so_far, &[byte]);
                so_far
            }));
            let mut ends = (1..=longest.len()).rev().filter(|&end| longest.is_char_boundary(end));
            let found = ends.find_map(|end| Some((self.number(hashes[end - 1], mark, &rest[..end])?, end)));
            let Some((number, end)) = found else {
                pieces.truncate(before);
                return pieces.push(self.unknown);
            };
            pieces.push(number);
            rest = &rest[end..];
        }
    }

    /// The line that consists of a mark and a text, which have this hash.
    fn number(&self, hash: u64, mark: &str, text: &str) -> Option<u32> {
        let (tag, mut at) = (tag(hash), place(hash, self.table.len()));
        loop {
            let (tagged, number) = self.table[at];
            if number == FREE {
                return None;
            }
            if tagged == tag && piece(&self.text, self.lines[number as usize]).strip_prefix(mark) == Some(text) {
                return Some(number);
            }
            at = (at + 1) % self.table.len();
        }
    }
}

/// The number at a place of the table without a line.
const FREE: u32 = u32::MAX;

const START: u64 = 0xCBF2_9CE4_8422_2325;

/// FNV-1a, which goes on from the hash of the bytes before.
fn hash(before: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(before, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3))
}

/// The half of a hash that is kept in the table.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The place of a hash in a table whose length is a power of two.
fn place(hash: u64, length: usize) -> usize {
    usize::try_from((hash ^ (hash >> 32)) & (length as u64 - 1)).unwrap_or(0)
}

fn piece(text: &str, (start, length): (u32, u32)) -> &str {
    &text[start as usize..(start + length) as usize]
}

/// For lengths within a text whose length is checked.
fn to_u32(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECES: &str = "[PAD]\n[UNK]\n[CLS]\n[SEP]\nun\n##aff\n##able\n##a\nu\n,\nß\n";

    #[test]
    fn a_word_is_split_into_its_longest_pieces() {
        let vocabulary = Vocabulary::parse(PIECES.to_owned()).unwrap();
        let cases: [(&str, &[u32]); 9] = [
            ("", &[2, 3]),
            ("unaffable", &[2, 4, 5, 6, 3]),
            ("unaffa", &[2, 4, 5, 7, 3]),
            ("unaffx, u", &[2, 1, 9, 8, 3]),
            ("aff", &[2, 1, 3]),
            ("ß", &[2, 10, 3]),
            ("ßß", &[2, 1, 3]),
            ("[SEP] un", &[2, 1, 1, 1, 4, 3]),
            ("ua", &[2, 8, 7, 3]),
        ];
        for (text, expected) in cases {
            assert_eq!(vocabulary.encode(text, 256), expected, "{text:?}");
            assert_eq!(vocabulary.count(text), expected.len() - 2, "{text:?}");
        }
    }

    #[test]
    fn a_long_text_is_cut_and_a_long_word_unknown() {
        let vocabulary = Vocabulary::parse(PIECES.to_owned()).unwrap();
        assert_eq!(vocabulary.encode(&"un ".repeat(50), 5), [2, 4, 4, 4, 3]);
        assert_eq!(vocabulary.encode("unaffable", 4), [2, 4, 5, 3], "the cut may fall within a word");
        let word = |letters: usize| format!("u{}", "a".repeat(letters - 1));
        assert_eq!(vocabulary.encode(&word(100), 256).len(), 102);
        assert_eq!(vocabulary.encode(&word(101), 256), [2, 1, 3]);
    }

    #[test]
    fn a_vocabulary_without_its_marks_is_refused() {
        assert_eq!(Vocabulary::parse("[CLS]\n[UNK]\n".to_owned()).unwrap_err(), "has no line `[SEP]`");
        assert_eq!(Vocabulary::parse(PIECES.replace('\n', "\r\n")).unwrap().encode("un", 9), [2, 4, 3], "lines may end as on Windows");
    }
}
