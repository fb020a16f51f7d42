//! What extractors write to: it cleans text, cuts blocks that are too long, and ends an extraction whose text would have no end.

use std::io;
use std::ops::ControlFlow;

use super::{Sink, Unreadable};
use crate::{Block, BlockKind};

/// The length of a block; a longer one becomes several of its kind.
pub(super) const BLOCK_BYTES_MAX: usize = 64 * 1024;
/// How much more text than its bytes a document may have: cells that span others are repeated.
const TEXT_RATIO_MAX: u64 = 8;
const TEXT_BYTES_EXEMPT: u64 = 16 * 1024 * 1024;

/// Why an extraction ends early.
pub(super) enum Stop {
    /// The reader of the blocks has enough.
    Enough,
    Fault(Unreadable),
}

impl<T: Into<Unreadable>> From<T> for Stop {
    fn from(fault: T) -> Self {
        Self::Fault(fault.into())
    }
}

impl Stop {
    /// To have enough is no fault.
    pub(super) fn settle(outcome: Result<(), Self>) -> Result<(), Unreadable> {
        match outcome {
            Ok(()) | Err(Self::Enough) => Ok(()),
            Err(Self::Fault(fault)) => Err(fault),
        }
    }
}

pub(super) struct Output<'s, 'f> {
    sink: &'s mut Sink<'f>,
    left: u64,
}

impl<'s, 'f> Output<'s, 'f> {
    /// `size` is the document's, unpacked, in bytes.
    pub(super) fn new(sink: &'s mut Sink<'f>, size: u64) -> Self {
        Self { sink, left: TEXT_BYTES_EXEMPT.saturating_add(size.saturating_mul(TEXT_RATIO_MAX)) }
    }

    pub(super) fn emit(&mut self, kind: BlockKind, text: &str, page: Option<u32>) -> Result<(), Stop> {
        let text = clean(text, kind == BlockKind::Code);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (piece, after) = cut(rest);
            rest = after;
            self.left = self
                .left
                .checked_sub(piece.len() as u64)
                .ok_or_else(|| Unreadable::TooLarge(format!("its text is more than {TEXT_RATIO_MAX} times as long as the document")))?;
            if (self.sink)(Block { kind, text: piece.to_owned(), page }) == ControlFlow::Break(()) {
                return Err(Stop::Enough);
            }
        }
        Ok(())
    }
}

/// Text without control characters, soft hyphens and surrounding blanks; of code the first line keeps its indentation.
fn clean(text: &str, is_code: bool) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut line_start = 0;
    for letter in text.chars() {
        match letter {
            '\n' => {
                clean.truncate(line_start + clean[line_start..].trim_end().len());
                clean.push('\n');
                line_start = clean.len();
            }
            '\t' => clean.push('\t'),
            '\u{a0}' | '\u{202f}' => clean.push(' '),
            '\u{ad}' | '\u{feff}' | '\u{200b}' | '\u{2060}' => {}
            letter if letter.is_control() => {}
            letter => clean.push(letter),
        }
    }
    let trimmed = clean.trim_end();
    if is_code { trimmed.trim_start_matches('\n') } else { trimmed.trim_start() }.to_owned()
}

/// The first piece of a text that fits into a block, and the rest. It is cut at a blank if there is one.
fn cut(text: &str) -> (&str, &str) {
    if text.len() <= BLOCK_BYTES_MAX {
        return (text, "");
    }
    let end = text.floor_char_boundary(BLOCK_BYTES_MAX);
    let blank = text[..end].rfind(char::is_whitespace).filter(|at| *at > BLOCK_BYTES_MAX / 2).unwrap_or(end);
    let (piece, rest) = text.split_at(blank);
    (piece.trim_end(), rest.trim_start())
}

/// The whole document, if it is no longer than `most`.
pub(super) fn read_whole(file: &std::path::Path, most: u64, what: &str) -> Result<Vec<u8>, Unreadable> {
    use io::Read;
    let file = std::fs::File::open(file)?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(Unreadable::TooLarge(format!("{what} of more than {} MiB cannot be read", most >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn emitted(kind: BlockKind, text: &str) -> Vec<String> {
        let mut texts = Vec::new();
        let mut sink = |block: Block| {
            texts.push(block.text);
            ControlFlow::Continue(())
        };
        assert!(Output::new(&mut sink, text.len() as u64).emit(kind, text, None).is_ok());
        texts
    }

    #[test]
    fn text_is_cleaned() {
        for (kind, text, expected) in [
            (BlockKind::Paragraph, "  a\u{a0}b \n c\0\u{7} ", "a b\n c"),
            (BlockKind::Paragraph, "co\u{ad}operate\u{feff}", "cooperate"),
            (BlockKind::Code, "\n    x\n  y  \n", "    x\n  y"),
        ] {
            assert_eq!(emitted(kind, text), [expected], "{text:?}");
        }
        assert_eq!(emitted(BlockKind::Paragraph, " \u{a0}\u{200b}\n"), [""; 0]);
    }

    #[test]
    fn a_long_block_becomes_several() {
        let words = "word ".repeat(30_000);
        let pieces = emitted(BlockKind::Paragraph, &words);
        assert!(pieces.len() == 3 && pieces.iter().all(|piece| piece.len() <= BLOCK_BYTES_MAX), "{}", pieces.len());
        assert_eq!(pieces.join(" "), words.trim_end());
    }

    #[test]
    fn text_without_end_is_a_fault() {
        let mut sink = |_: Block| ControlFlow::Continue(());
        let mut output = Output::new(&mut sink, 0);
        let text = "x".repeat(BLOCK_BYTES_MAX);
        let faulty = (0..=TEXT_BYTES_EXEMPT / BLOCK_BYTES_MAX as u64).find_map(|_| output.emit(BlockKind::Code, &text, None).err());
        assert!(matches!(faulty, Some(Stop::Fault(Unreadable::TooLarge(_)))));
    }

    proptest! {
        #[test]
        fn cutting_loses_blanks_alone(text in "[a-zä \u{1f600}]{0,40}", times in 1..6000_usize) {
            let text = text.repeat(times);
            let joined: String = emitted(BlockKind::Paragraph, &text).concat();
            prop_assert_eq!(joined.replace(' ', ""), text.replace(' ', ""));
        }
    }
}
