use std::collections::HashMap;

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::{Block, BlockKind};

fn words(text: &str) -> u32 {
    u32::try_from(text.split_whitespace().count()).unwrap()
}

fn letters(text: &str) -> u32 {
    u32::try_from(text.chars().filter(|char| !char.is_whitespace()).count()).unwrap()
}

fn block(kind: BlockKind, text: &str) -> Block {
    Block { kind, text: text.to_owned(), page: None }
}

fn paged(kind: BlockKind, text: &str, page: u32) -> Block {
    Block { page: Some(page), ..block(kind, text) }
}

fn chunks(blocks: &[Block], tokens: u32, overlap: u32) -> Vec<Chunk> {
    counted(words, blocks, ChunkSize { tokens, overlap })
}

fn counted(counter: fn(&str) -> u32, blocks: &[Block], size: ChunkSize) -> Vec<Chunk> {
    let mut found = Vec::new();
    let mut chunker = Chunker::new(size, counter);
    for block in blocks {
        chunker.push(block, &mut |chunk| found.push(chunk));
    }
    chunker.finish(&mut |chunk| found.push(chunk));
    found
}

fn document(blocks: &[Block]) -> String {
    blocks.iter().flat_map(|block| [block.text.as_str(), "\n"]).collect()
}

fn texts(chunks: &[Chunk]) -> Vec<&str> {
    chunks.iter().map(|chunk| chunk.text.as_str()).collect()
}

use BlockKind::{Code, Heading, ListItem, Paragraph, TableHead, TableRow};

#[test]
fn a_heading_begins_a_chunk_unless_the_last_is_tiny() {
    let long = "word ".repeat(20);
    let blocks = [
        block(Heading(1), "Book"),
        block(Heading(2), "One"),
        block(Paragraph, long.trim()),
        block(Heading(2), "Two"),
        block(Paragraph, "Tiny."),
        block(Heading(3), "Three"),
        block(Paragraph, long.trim()),
    ];
    let found = chunks(&blocks, 64, 0);
    assert_eq!(texts(&found), [format!("Book\nOne\n{}", long.trim()), format!("Two\nTiny.\nThree\n{}", long.trim())]);
    assert_eq!(found[0].section, ["Book", "One"]);
    assert_eq!(found[1].section, ["Book", "Two"], "the heading above all text of the chunk");
    assert_eq!(found[0].embedded(), found[0].text, "its headings are in the text");
    assert_eq!(found[1].embedded(), format!("Book\n{}", found[1].text));
}

#[test]
fn long_sections_are_cut_at_paragraphs_with_overlap() {
    let blocks = [
        paged(Heading(1), "Book", 1),
        paged(Paragraph, "One two tree four five six. Next one.", 1),
        paged(ListItem, "Nine more word here now.", 2),
        paged(Paragraph, "Last text.", 3),
        paged(Heading(1), "End", 4),
        paged(Paragraph, "Done.", 4),
    ];
    let found = chunks(&blocks, 12, 3);
    assert_eq!(
        texts(&found),
        ["Book\nOne two tree four five six. Next one.", "Next one.\nNine more word here now.\nLast text.", "End\nDone."]
    );
    assert_eq!(found[1].embedded(), format!("Book\n{}", found[1].text), "the next chunk is told its section");
    let pages: Vec<Option<u32>> = found.iter().map(|chunk| chunk.page).collect();
    assert_eq!(pages, [Some(1), Some(2), Some(4)], "the page of a chunk's own text");
    assert_eq!(found[1].overlap, 10);
    assert_eq!(found[2].overlap, 0, "overlap does not cross a section");
}

#[test]
fn a_paragraph_is_cut_at_sentences_and_a_sentence_at_words() {
    let found = chunks(&[block(Paragraph, "One two tree. Four five. Six nine ten. More.")], 6, 0);
    assert_eq!(texts(&found), ["One two tree. Four five.", "Six nine ten. More."]);
    let found = chunks(&[block(Paragraph, "one two tree four five six nine")], 4, 1);
    assert_eq!(texts(&found), ["one two tree four", "four five six nine"]);
}

#[test]
fn rows_stay_whole_under_a_copy_of_their_tables_head() {
    let mut blocks = vec![block(Paragraph, "See."), block(TableHead, "| a | b |")];
    blocks.extend((0..9).map(|row| block(TableRow, &format!("| r{row} | v{row} |"))));
    blocks.push(block(Paragraph, "And then."));
    let found = chunks(&blocks, 20, 5);
    assert_eq!(
        texts(&found),
        [
            "See.\n| a | b |\n| r0 | v0 |\n| r1 | v1 |",
            "| a | b |\n| r2 | v2 |\n| r3 | v3 |\n| r4 | v4 |",
            "| a | b |\n| r5 | v5 |\n| r6 | v6 |\n| r7 | v7 |",
            "| a | b |\n| r8 | v8 |\nAnd then.",
        ]
    );
    let text = document(&blocks);
    let place = |chunk: &Chunk| usize::try_from(chunk.start).unwrap()..usize::try_from(chunk.end).unwrap();
    assert_eq!(&text[place(&found[3])], "| r8 | v8 |\nAnd then.", "the copy has no place in the document");
}

#[test]
fn a_row_longer_than_a_chunk_is_cut_at_cells() {
    let row = "| one two tree | four five six | nine ten more | last |";
    let found = chunks(&[block(TableHead, "| h |"), block(TableRow, row)], 12, 0);
    assert_eq!(texts(&found), ["| h |", "| h |\n| one two tree | four five six |", "| h |\nnine ten more | last |"]);
}

#[test]
fn code_is_cut_at_lines_and_keeps_its_blanks() {
    let found = chunks(&[block(Code, "def f():\n    return one + two\n\nclass A:\n    pass")], 7, 0);
    assert_eq!(texts(&found), ["def f():\n    return one + two", "class A:\n    pass"]);
    let found = chunks(&[block(Code, "if ab:\n    x = 1 + 2 + 3\n    y = 2")], 9, 0);
    assert_eq!(texts(&found), ["if ab:\n    x = 1 + 2 + 3", "    y = 2"], "indentation stays");
}

#[test]
fn a_text_without_blanks_is_cut_and_a_blank_one_left_out() {
    let found = counted(letters, &[block(Paragraph, &"x".repeat(1000))], ChunkSize { tokens: 64, overlap: 8 });
    assert!(found.len() > 3 && found.iter().all(|chunk| chunk.tokens <= 64), "{found:?}");
    assert!(chunks(&[block(Paragraph, ""), block(Code, " \n \n"), block(Paragraph, "")], 64, 8).is_empty());
}

#[test]
fn a_document_of_any_size_needs_little_memory() {
    let paragraph = block(Paragraph, &"Some words of a long document. ".repeat(100_000));
    let mut chunker = Chunker::new(ChunkSize { tokens: 512, overlap: 50 }, words);
    let mut last = 0;
    for _ in 0..3 {
        chunker.push(&paragraph, &mut |chunk| {
            assert!(chunk.text.len() < 10_000, "{}", chunk.text.len());
            last = chunk.end;
        });
    }
    assert!(last > 9_000_000, "chunks leave before the end: {last}");
}

fn kinds() -> impl Strategy<Value = BlockKind> {
    prop_oneof![
        2 => (0..8_u8).prop_map(Heading),
        5 => Just(Paragraph),
        2 => Just(ListItem),
        2 => Just(Code),
        1 => Just(TableHead),
        4 => Just(TableRow),
    ]
}

/// Words, sentences, cells, line breaks, scripts without blanks, and any characters at all.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "([a-z]{1,9}[.!]? ?){0,40}",
        2 => r"([|] [a-z]{1,5} ){0,12}[|]",
        2 => "( {0,4}[a-z(]{0,6}\n?){0,30}",
        1 => "[\u{4e00}-\u{4e40}。，]{0,80}",
        2 => any::<String>(),
        1 => "[a-z]{0,600}",
    ]
}

fn documents() -> impl Strategy<Value = Vec<Block>> {
    let blocks = (kinds(), any_text(), proptest::option::of(1..9_u32));
    proptest::collection::vec(blocks.prop_map(|(kind, text, page)| Block { kind, text: text.trim().to_owned(), page }), 0..24)
}

/// What every list of chunks must be.
fn check(blocks: &[Block], size: ChunkSize) -> Result<(), TestCaseError> {
    let document = document(blocks);
    let found = counted(letters, blocks, size);
    let mut covered = 0;
    for (ordinal, chunk) in found.iter().enumerate() {
        prop_assert_eq!(chunk.ordinal as usize, ordinal);
        let (start, end) = (usize::try_from(chunk.start).unwrap(), usize::try_from(chunk.end).unwrap());
        let slice = &document[start..end];
        prop_assert!(chunk.text.ends_with(slice) && !slice.is_empty(), "{:?} at {}..{}", chunk, start, end);
        let own = start + chunk.overlap as usize;
        prop_assert!(chunk.overlap == 0 || own <= covered + 300, "the overlap ends where the last chunk did");
        prop_assert!(own >= covered && end > own, "in order, and something new: {:?} after {}", chunk, covered);
        let between = &document[covered..own];
        prop_assert!(between.trim().is_empty(), "{:?} is in no chunk", between);
        covered = end;
        let copy = &chunk.text[..chunk.text.len() - slice.len()];
        let heads: Vec<&Block> = blocks.iter().filter(|block| block.kind == TableHead).collect();
        prop_assert!(copy.lines().count() == 0 || !heads.is_empty(), "only heads are repeated: {:?}", copy);
        let context = chunk.embedded().len() - chunk.text.len();
        let embedded = chunk.embedded();
        let path = letters(&embedded[..context]);
        prop_assert!(chunk.tokens <= size.tokens.max(path + size.tokens.div_ceil(2)), "{:?} of {:?}", chunk, size);
        // Lines that are blank count as a token each.
        let blank = u32::try_from(embedded.matches(char::is_whitespace).count()).unwrap();
        prop_assert!((letters(&embedded)..=letters(&embedded) + blank).contains(&chunk.tokens), "{:?}", chunk);
        prop_assert_eq!(chunk.hash, <[u8; 32]>::from(Sha256::digest(&embedded)));
    }
    prop_assert!(document[covered..].trim().is_empty(), "the end is missing: {:?}", &document[covered..]);
    // Again, after another document.
    let (mut again, mut chunker) = (Vec::new(), Chunker::new(size, letters as fn(&str) -> u32));
    for block in blocks.iter().rev() {
        chunker.push(block, &mut |_| {});
    }
    chunker.finish(&mut |_| {});
    for block in blocks {
        chunker.push(block, &mut |chunk| again.push(chunk));
    }
    chunker.finish(&mut |chunk| again.push(chunk));
    prop_assert_eq!(found, again);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn chunks_restore_the_document(blocks in documents(), tokens in 1..300_u32, overlap in 0..90_u32) {
        check(&blocks, ChunkSize { tokens, overlap })?;
    }

    #[test]
    fn rows_that_fit_are_in_one_chunk(cells in proptest::collection::vec("[a-z]{1,8}( [a-z]{1,8}){0,6}", 1..40), size in 40..90_u32) {
        let mut blocks = vec![block(Paragraph, "A few words before."), block(TableHead, "| head | of |")];
        blocks.extend(cells.iter().enumerate().map(|(row, cell)| block(TableRow, &format!("| {row} | {cell} |"))));
        blocks.push(block(Paragraph, "And some after it, which are not few, and have no end, and no end"));
        let found = chunks(&blocks, size, size / 5);
        let mut lines: HashMap<&str, usize> = HashMap::new();
        for chunk in &found {
            for line in chunk.text.lines() {
                *lines.entry(line).or_default() += 1;
            }
            let first = chunk.text.lines().find(|line| line.starts_with('|'));
            prop_assert!(first.is_none_or(|first| first == "| head | of |"), "{:?}", chunk);
        }
        for row in blocks.iter().filter(|block| block.kind == TableRow) {
            prop_assert_eq!(lines.get(row.text.as_str()), Some(&1), "{:?} in {:?}", row, found);
        }
    }
}
