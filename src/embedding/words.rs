//! The first half of BERT's tokenizer: text to words. Control characters, accents and case are removed, and each punctuation
//! mark and each Chinese character is a word of its own. Lazy, so that a long text is only read up to the model's limit.

use icu_normalizer::DecomposingNormalizerBorrowed;
use icu_properties::CodePointMapData;
use icu_properties::props::GeneralCategory;

pub(super) fn words(text: &str) -> impl Iterator<Item = String> {
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
    use super::*;

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
            let found: Vec<String> = words(text).collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn only_what_is_asked_for_is_looked_at() {
        let endless = "word ".repeat(1_000_000);
        let started = std::time::Instant::now();
        assert_eq!(words(&endless).take(256).count(), 256);
        assert!(started.elapsed() < std::time::Duration::from_millis(100), "{:?} for the first words", started.elapsed());
    }
}
