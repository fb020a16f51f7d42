//! Names of people and programs, as they are written down: nothing in them that is not seen.

/// A name on one line of at most this many bytes. Controls, format characters (Unicode's Cf, and with them all that change
/// the direction of text) and what else is drawn as nothing are left out: with them a name could be pushed out of sight,
/// or read as another.
pub fn plain_name(text: &str, most: usize) -> String {
    let seen: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).filter(|letter| !is_unseen(*letter)).collect();
    let words = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    words[..words.floor_char_boundary(most)].trim_end().to_owned()
}

/// Format characters, and those that are drawn as nothing though Unicode counts them among letters and marks.
fn is_unseen(letter: char) -> bool {
    matches!(letter,
        '\u{00ad}' | '\u{034f}' | '\u{0600}'..='\u{0605}' | '\u{061c}' | '\u{06dd}' | '\u{070f}' | '\u{0890}'..='\u{0891}' | '\u{08e2}'
        | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_unseen_stays_in_a_name() {
        for (text, plain) in [
            ("Ann Example", "Ann Example"),
            ("  Zoë\t Müller\n", "Zoë Müller"),
            ("Ann\u{200b}\u{202e}\u{2066}\u{feff}", "Ann"),
            ("\u{3164}\u{115f}\u{2800}\u{fe0f}\u{e0101}\u{e0041}", ""),
            ("a\u{2028}b\u{0}c", "ab c"),
            ("🦀 李雷", "🦀 李雷"),
        ] {
            assert_eq!(plain_name(text, 200), plain, "{text:?}");
        }
        assert_eq!(plain_name("äääß", 5), "ää");
    }
}
