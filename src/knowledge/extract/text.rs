//! Plain text: paragraphs between empty lines, in any encoding, as a stream.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::output::{BLOCK_BYTES_MAX, Output, Stop};
use super::{ExtractSummary, Extractor, Sink, Unreadable, decode, format};
use crate::BlockKind;

pub struct Text;

impl Extractor for Text {
    fn extract(&self, file: &Path, sink: &mut Sink<'_>) -> Result<ExtractSummary, Unreadable> {
        let opened = File::open(file)?;
        let size = opened.metadata()?.len();
        let mut first = Vec::new();
        (&opened).take(format::SNIFFED_BYTES as u64).read_to_end(&mut first)?;
        refuse_binary(&first)?;
        let encoding = decode::detect(BufReader::new(File::open(file)?))?;
        let mut lines = BufReader::with_capacity(BLOCK_BYTES_MAX, decode::Utf8::new(File::open(file)?, encoding));
        Stop::settle(paragraphs(&mut lines, &mut Output::new(sink, size)))?;
        Ok(ExtractSummary::default())
    }
}

pub(super) fn refuse_binary(first: &[u8]) -> Result<(), Unreadable> {
    let zeros = decode::zeros(first);
    let is_utf16 = decode::detect(first).is_ok_and(|encoding| encoding.name().starts_with("UTF-16"));
    if zeros > 0 && !is_utf16 {
        let what = format::other(first).unwrap_or("a binary file");
        return Err(Unreadable::Broken(format!("it is {what}, not text")));
    }
    Ok(())
}

fn paragraphs(lines: &mut impl BufRead, output: &mut Output<'_, '_>) -> Result<(), Stop> {
    let (mut paragraph, mut line) = (String::new(), Vec::new());
    loop {
        line.clear();
        let read = lines.take(BLOCK_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        // A form feed ends a page, and with it a paragraph.
        let is_blank = text.trim().is_empty();
        if read == 0 || is_blank || text.starts_with('\u{c}') || paragraph.len() + text.len() > BLOCK_BYTES_MAX {
            output.emit(BlockKind::Paragraph, &paragraph, None)?;
            paragraph.clear();
        }
        if read == 0 {
            return Ok(());
        }
        if !is_blank {
            paragraph.push_str(text);
            paragraph.push('\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::extract::extracted;

    #[test]
    fn paragraphs_are_what_empty_lines_part() {
        for (text, expected) in [
            (&b"One\r\ntwo\r\n\r\n  \r\nThree  \n\n\n"[..], vec!["One\ntwo", "Three"]),
            (b"caf\xe9\n", vec!["café"]),
            (b"\xff\xfea\0\n\0\n\0b\0", vec!["a", "b"]),
            (b"a\n\x0cb", vec!["a", "b"]),
            (b"", vec![]),
        ] {
            let (blocks, summary) = extracted(&Text, text);
            assert_eq!(summary.unwrap(), ExtractSummary::default());
            assert_eq!(blocks.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), expected);
        }
        let refusal = extracted(&Text, b"\x7fELF\x02\x01\x01\0\0\0").1.unwrap_err();
        assert_eq!(refusal.to_string(), "the document is broken: it is a program, not text");
    }

    #[test]
    fn a_line_without_end_becomes_blocks() {
        let (blocks, _) = extracted(&Text, &vec![b'<'; 8 << 20]);
        assert_eq!(blocks.iter().map(|(_, text)| text.len()).sum::<usize>(), 8 << 20);
        assert!(blocks.iter().all(|(_, text)| text.len() <= BLOCK_BYTES_MAX));
    }

    proptest! {
        #[test]
        fn no_word_is_lost(text in "([a-z]{1,8}[ \n]{1,3}){0,30}") {
            let (blocks, _) = extracted(&Text, text.as_bytes());
            let words: Vec<String> = blocks.iter().flat_map(|(_, text)| text.split_whitespace().map(str::to_owned)).collect();
            prop_assert_eq!(words, text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_make_text_panic(bytes in any::<Vec<u8>>()) {
            let _ = extracted(&Text, &bytes);
        }
    }
}
