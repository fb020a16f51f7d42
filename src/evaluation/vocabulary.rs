//! Words of a text, for a comparison that knows no meaning.

use std::collections::BTreeSet;

/// Words that say little about what a text is about. `no` and `not` are none of them.
const STOP_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for", "from",
    "had", "has", "have", "he", "her", "his", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our",
    "please", "she", "should", "so", "that", "the", "their", "them", "there", "these", "they", "this", "those", "to", "us", "was", "we",
    "were", "what", "when", "where", "which", "who", "why", "will", "with", "would", "you", "your",
];

/// Words that turn a sentence into its contrary.
const NEGATIONS: &[&str] = &["not", "no", "never", "none", "neither", "nor", "without", "nothing", "nobody"];

/// The words of a text in order, in lower case. `isn't` is `is not`, `1,000` is `1000`, and a sign written without spaces
/// between words is a word.
pub(crate) fn words(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().filter(|letter| !is_invisible(*letter)).collect();
    let mut found = Vec::new();
    let mut word = String::new();
    let mut shortened = false;
    for (place, &letter) in letters.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| letters.get(before)).copied();
        let after = letters.get(place + 1).copied();
        let digits_after = after.is_some_and(|after| after.is_ascii_digit());
        let digits_around = digits_after && before.is_some_and(|before| before.is_ascii_digit());
        match letter {
            _ if stands_alone(letter) => {
                finish(&mut found, &mut word, &mut shortened);
                found.push(letter.to_string());
            }
            _ if letter.is_alphanumeric() => word.extend(letter.to_lowercase()),
            '\'' | '’' if !word.is_empty() && after.is_some_and(char::is_alphabetic) => shortened = true,
            ',' if digits_around => {}
            '.' if digits_around => word.push('.'),
            '-' | '−' if digits_after && before.is_none_or(|before| before.is_whitespace() || before == '(') => word.push('-'),
            _ => finish(&mut found, &mut word, &mut shortened),
        }
    }
    finish(&mut found, &mut word, &mut shortened);
    found
}

fn finish(found: &mut Vec<String>, word: &mut String, shortened: &mut bool) {
    let word = std::mem::take(word);
    let stem = if std::mem::take(shortened) { word.strip_suffix("nt") } else { word.strip_suffix("not").filter(|stem| *stem == "can") };
    match stem {
        Some(stem) => found.extend([stem.to_owned(), "not".to_owned()]),
        None if word.is_empty() => {}
        None => found.push(word),
    }
}

/// What a text is about: its words without those that say little, and without plurals. If nothing is left, all its words.
pub(crate) fn content(text: &str) -> BTreeSet<String> {
    let words = words(text);
    let telling: BTreeSet<String> = words.iter().filter(|word| !STOP_WORDS.contains(&word.as_str())).map(|word| singular(word)).collect();
    if telling.is_empty() { words.into_iter().collect() } else { telling }
}

/// Whether a text has an odd number of negations.
pub(crate) fn is_negated(words: &[String]) -> bool {
    words.iter().filter(|word| NEGATIONS.contains(&word.as_str())).count() % 2 == 1
}

/// The numbers among the words.
pub(crate) fn numbers(words: &BTreeSet<String>) -> BTreeSet<&str> {
    words.iter().map(String::as_str).filter(|word| word.chars().any(|letter| letter.is_ascii_digit())).collect()
}

fn singular(word: &str) -> String {
    let stem = word.strip_suffix('s').filter(|stem| stem.len() > 2 && !stem.ends_with(['s', 'u', 'i']));
    stem.unwrap_or(word).to_owned()
}

/// Han, kana and Thai are written without spaces.
fn stands_alone(letter: char) -> bool {
    matches!(letter, '\u{0e00}'..='\u{0eff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
        && letter.is_alphanumeric()
}

/// Letters that are not seen, and that could hide a word or an instruction.
pub(crate) fn is_invisible(letter: char) -> bool {
    matches!(letter, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart() {
        for (text, expected) in [
            ("It isn't 1,000.50 euros!", "it is not 1000.50 euros"),
            ("I cannot; I can’t", "i can not i ca not"),
            ("-5 and 3-5", "-5 and 3 5"),
            ("東京です", "東 京 で す"),
            ("k\u{200b}ill", "kill"),
            ("Anna's 'quoted' word", "annas quoted word"),
            ("", ""),
        ] {
            assert_eq!(words(text).join(" "), expected, "{text}");
        }
    }

    #[test]
    fn content_is_what_a_text_is_about() {
        let about = |text: &str| content(text).into_iter().collect::<Vec<_>>().join(" ");
        assert_eq!(about("What are the cats in the house?"), "cat house");
        assert_eq!(about("How are you?"), "are how you");
        assert_eq!(about("glass bus"), "bus glass");
    }
}
