//! The first half of BERT's tokenizer: text to words. Control characters, accents and case are removed, and each punctuation
//! mark and each Chinese character is a word of its own. A long text is only read up to the model's limit.

use std::ops::ControlFlow;

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;

/// Calls `each` with the words of a text in order, until it breaks. The text is taken in the parts between blanks, across which
/// nothing is normalised: those in ASCII need no tables.
pub(super) fn each_word(text: &str, mut each: impl FnMut(&str) -> ControlFlow<()>) {
    let mut buffer = String::new();
    for part in text.split([' ', '\t', '\n', '\r']) {
        let flow =
            if part.is_ascii() { each_ascii_word(part, &mut buffer, &mut each) } else { words(part).try_for_each(|word| each(&word)) };
        if flow.is_break() {
            return;
        }
    }
}

/// The same for a text in ASCII without blanks. `word` is an empty buffer, reused between parts.
fn each_ascii_word(text: &str, word: &mut String, each: &mut impl FnMut(&str) -> ControlFlow<()>) -> ControlFlow<()> {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            word.push(char::from(byte.to_ascii_lowercase()));
        } else if byte.is_ascii_punctuation() {
            if !word.is_empty() {
                each(word)?;
                word.clear();
            }
            each(char::from(byte).encode_utf8(&mut [0; 4]))?;
        }
    }
    if !word.is_empty() {
        each(word)?;
        word.clear();
    }
    ControlFlow::Continue(())
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let categories = CodePointMapData::<GeneralCategory>::new();
    let spaced = text.chars().filter(move |&c| !is_dropped(c, categories.get(c))).flat_map(|c| {
        let around = is_chinese(c).then_some(' ');
        [around, Some(if c.is_whitespace() { ' ' } else { c }), around].into_iter().flatten()
    });
    let mut letters = DecomposingNormalizerBorrowed::new_nfd()
        .normalize_iter(spaced)
        .filter(move |&c| categories.get(c) != GeneralCategory::NonspacingMark)
        .flat_map(char::to_lowercase)
        .peekable();
    let is_mark = move |c: char| c.is_ascii_punctuation() || is_punctuation(categories.get(c));
    std::iter::from_fn(move || {
        while letters.next_if(|c| c.is_whitespace()).is_some() {}
        let first = letters.next()?;
        let mut word = String::from(first);
        if !is_mark(first) {
            while let Some(next) = letters.next_if(|&c| !c.is_whitespace() && !is_mark(c)) {
                word.push(next);
            }
        }
        Some(word)
    })
}

fn is_dropped(c: char, category: GeneralCategory) -> bool {
    use GeneralCategory as Category;
    match c {
        '\t' | '\n' | '\r' => false,
        char::REPLACEMENT_CHARACTER => true,
        _ => matches!(category, Category::Control | Category::Format | Category::PrivateUse),
    }
}

fn is_punctuation(category: GeneralCategory) -> bool {
    use GeneralCategory as Category;
    matches!(
        category,
        Category::ConnectorPunctuation
            | Category::DashPunctuation
            | Category::OpenPunctuation
            | Category::ClosePunctuation
            | Category::InitialPunctuation
            | Category::FinalPunctuation
            | Category::OtherPunctuation
    )
}

/// The blocks of CJK ideographs that BERT splits. Kana and Hangul are not among them.
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF | 0x2_0000..=0x2_A6DF | 0x2_A700..=0x2_B73F
        | 0x2_B740..=0x2_B81F | 0x2_B920..=0x2_CEAF | 0x2_F800..=0x2_FA1F)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// ASCII, letters of any script, and what normalisation moves.
    const PART: &str = "[\\x00-\\x7f]{0,8}|[aB. \t\r\n\u{b}\u{c}\u{7f}]{0,8}|\\PC{0,4}|[a\u{301}\u{323} \u{a0}\u{85}]{0,5}";

    fn all_words(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        each_word(text, |word| {
            all.push(word.to_owned());
            ControlFlow::Continue(())
        });
        all
    }

    proptest! {
        #[test]
        fn ascii_and_parts_have_the_words_of_the_whole(parts in prop::collection::vec(PART, 0..9)) {
            let text = parts.concat();
            prop_assert_eq!(all_words(&text), words(&text).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_text_falls_into_words_as_bert_has_it() {
        let cases: [(&str, &[&str]); 12] = [
            ("Hello, World!", &["hello", ",", "world", "!"]),
            ("", &[]),
            (" \t\r\n\u{a0}\u{2003}\u{2028}", &[]),
            ("Crème BRÛLÉE", &["creme", "brulee"]),
            ("İstanbul Straße", &["istanbul", "straße"]),
            // The mark of で goes, as an accent does.
            ("日本語です", &["日", "本", "語", "てす"]),
            ("a$b^c`d~e", &["a", "$", "b", "^", "c", "`", "d", "~", "e"]),
            ("«quoted»—dash…", &["«", "quoted", "»", "—", "dash", "…"]),
            ("zero\u{200b}width\u{200d}joined", &["zerowidthjoined"]),
            ("nul\0bell\u{7}lost\u{fffd}private\u{e000}next\u{85}line", &["nulbelllostprivatenextline"]),
            ("👩\u{200d}🚀 ok", &["👩🚀", "ok"]),
            ("don't_stop-me", &["don", "'", "t", "_", "stop", "-", "me"]),
        ];
        for (text, expected) in cases {
            let expected: Vec<String> = expected.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(all_words(text), expected, "{text:?}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_looked_at() {
        for endless in ["word ", "word,", "wörter ", "wörter,", "語"] {
            let text = endless.repeat(1_000_000);
            let (started, mut count) = (std::time::Instant::now(), 0);
            each_word(&text, |_| {
                count += 1;
                if count < 256 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            let elapsed = started.elapsed();
            assert_eq!(count, 256);
            // The end of a part is looked for, which takes some milliseconds where there is no blank.
            let limit = if endless.ends_with(' ') { 100 } else { 2_000 };
            assert!(elapsed < std::time::Duration::from_millis(limit), "{endless}: {elapsed:?} for the first words");
        }
    }
}
