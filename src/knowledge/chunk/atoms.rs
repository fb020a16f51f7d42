//! Cuts a text into atoms: words with the blanks before them, and with the line breaks behind them. Tokenizers see no token across
//! these borders, so the tokens of a text are the sum of those of its atoms.

use crate::BlockKind;

/// Longer runs without blanks are cut. It bounds the memory of a chunk, and tokenizers are slow on long runs.
pub(super) const MAX_ATOM_BYTES: usize = 256;

/// What ends after an atom, from the worst place for a cut to the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Edge {
    Word,
    Sentence,
    /// A line of code.
    Line,
    /// A cell of a table row.
    Cell,
    /// A heading or a table's head, which belong to what follows.
    Head,
    Block,
}

/// The atoms of a block's text, each with what ends after it.
pub(super) struct Atoms<'a> {
    rest: &'a str,
    kind: BlockKind,
}

impl<'a> Atoms<'a> {
    pub(super) fn of(text: &'a str, kind: BlockKind) -> Self {
        Self { rest: text, kind }
    }

    fn edge(&self, word: &str, atom: &str) -> Edge {
        match self.kind {
            BlockKind::Heading(_) | BlockKind::TableHead if self.rest.is_empty() => Edge::Head,
            _ if self.rest.is_empty() => Edge::Block,
            BlockKind::Code if atom.ends_with(['\n', '\r']) => Edge::Line,
            BlockKind::Code => Edge::Word,
            BlockKind::TableRow | BlockKind::TableHead if word.trim_start() == "|" => Edge::Cell,
            _ if ends_sentence(word, self.rest) => Edge::Sentence,
            _ => Edge::Word,
        }
    }
}

impl<'a> Iterator for Atoms<'a> {
    type Item = (&'a str, Edge);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (word, end) = first(self.rest);
        let (word, (atom, rest)) = (&self.rest[..word], self.rest.split_at(end));
        self.rest = rest;
        Some((atom, self.edge(word, atom)))
    }
}

/// The ends of the first atom without and with the line breaks behind it.
fn first(text: &str) -> (usize, usize) {
    let bytes = text.as_bytes();
    let limit = text.floor_char_boundary(MAX_ATOM_BYTES);
    let mut at = 0;
    while let Some(length) = blank(text, at).filter(|_| at < limit) {
        at += length;
    }
    while at < limit {
        match bytes[at] {
            b' ' | b'\t' | b'\n' | b'\r' => break,
            0..0x80 => at += 1,
            _ => {
                let Some(char) = text[at..].chars().next() else { break };
                if is_blank(char) {
                    break;
                }
                at += char.len_utf8();
                if pauses(char) && !text[at..].chars().next().is_some_and(|next| pauses(next) || closes(next)) {
                    break;
                }
            }
        }
    }
    let word = at;
    let mut end = at;
    while let Some(length) = blank(text, at).filter(|_| at < limit) {
        let is_break = matches!(bytes[at], b'\n' | b'\r');
        at += length;
        if is_break || at == text.len() {
            end = at;
        }
    }
    (word, end)
}

/// The length of the blank at a place.
fn blank(text: &str, at: usize) -> Option<usize> {
    match text.as_bytes().get(at)? {
        b' ' | b'\t' | b'\n' | b'\r' => Some(1),
        0..0x80 => None,
        _ => text[at..].chars().next().filter(|&char| is_blank(char)).map(char::len_utf8),
    }
}

/// Control characters are not: BERT's tokenizer joins the words around them.
fn is_blank(char: char) -> bool {
    char.is_whitespace() && char != '\u{85}'
}

/// Punctuation after which Chinese and Japanese put no blank.
fn pauses(char: char) -> bool {
    matches!(char, '。' | '！' | '？' | '；' | '，' | '、' | '：')
}

fn closes(char: char) -> bool {
    matches!(char, '"' | '\'' | ')' | ']' | '”' | '’' | '»' | '」' | '』' | '）' | '】' | '》')
}

/// Whether a sentence ends. An abbreviation before a capital letter is taken for an end, too: it only decides where a cut falls.
fn ends_sentence(word: &str, rest: &str) -> bool {
    if word.as_bytes().last().is_none_or(u8::is_ascii_alphanumeric) {
        return false;
    }
    match word.trim_end_matches(closes).chars().next_back() {
        Some('。' | '！' | '？') => true,
        Some('.' | '!' | '?' | '…') => !rest.trim_start().chars().next().is_some_and(char::is_lowercase),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_before_blanks_and_after_line_breaks() {
        for (text, expected) in [
            ("", vec![]),
            ("one two", vec!["one", " two"]),
            (" one  two \n\n three ", vec![" one", "  two \n\n", " three "]),
            ("你好，世界。「好。」再", vec!["你好，", "世界。", "「好。」再"]),
            ("a\u{a0}b\u{85}c", vec!["a", "\u{a0}b\u{85}c"]),
            (" \n ", vec![" \n "]),
        ] {
            let found: Vec<&str> = Atoms::of(text, BlockKind::Paragraph).map(|(atom, _)| atom).collect();
            assert_eq!(found, expected, "{text:?}");
        }
        let long = format!("{} end", "ä".repeat(300));
        let lengths: Vec<usize> = Atoms::of(&long, BlockKind::Paragraph).map(|(atom, _)| atom.len()).collect();
        assert_eq!(lengths, [256, 256, 88, 4], "a long run is cut");
    }

    #[test]
    fn what_ends_after_an_atom_depends_on_the_block() {
        use Edge::{Block, Cell, Head, Line, Sentence, Word};
        for (text, kind, expected) in [
            ("It is. So, e.g. this (yes!) Ok", BlockKind::Paragraph, vec![Word, Sentence, Word, Word, Word, Sentence, Block]),
            ("A title.", BlockKind::Heading(1), vec![Word, Head]),
            ("if x:\n  y()\n", BlockKind::Code, vec![Word, Line, Block]),
            ("| a b | c |", BlockKind::TableRow, vec![Cell, Word, Word, Cell, Word, Block]),
        ] {
            let found: Vec<Edge> = Atoms::of(text, kind).map(|(_, edge)| edge).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
