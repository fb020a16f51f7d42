//! Cuts text for the model at the limit, on a character boundary, with a note.

use crate::outcome::ToolOutcome;

pub(crate) fn clip(content: String, is_error: bool, limit: usize) -> ToolOutcome {
    if content.len() <= limit {
        return ToolOutcome { content, is_error, truncated: false };
    }
    let whole = content.len();
    let content = format!("{}\n[cut here: the first {limit} of {whole} bytes]", &content[..edge(&content, limit)]);
    ToolOutcome { content, is_error, truncated: true }
}

/// The greatest edge of a character that is not beyond `limit`.
pub(crate) fn edge(text: &str, limit: usize) -> usize {
    let mut at = limit.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// At most `limit` bytes of untrusted text on one line, for messages.
pub(crate) fn line(text: &str, limit: usize) -> String {
    let cut = edge(text, limit);
    let mut line: String = text[..cut].chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    if cut < text.len() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_cut_between_characters_and_says_so() {
        assert_eq!(clip("héllo".into(), false, 6), ToolOutcome::ok("héllo"));
        let cut = clip("héllo".into(), true, 2);
        assert_eq!(cut, ToolOutcome { content: "h\n[cut here: the first 2 of 6 bytes]".into(), is_error: true, truncated: true });
        assert_eq!(line("a\nb\u{7}c", 3), "a b…");
    }

    proptest! {
        #[test]
        fn what_is_cut_is_the_beginning_and_no_longer_than_it_may(text in "(?s).{0,60}", limit in 0_usize..80) {
            let outcome = clip(text.clone(), false, limit);
            let begin = outcome.content.split("\n[cut here").next().unwrap_or_default();
            prop_assert_eq!(outcome.truncated, text.len() > limit);
            prop_assert!(!outcome.truncated || text.starts_with(begin) && begin.len() <= limit && begin.len() + 4 > limit);
            let line = line(&text, limit);
            prop_assert!(!line.contains(char::is_control) && line.len() <= limit + '…'.len_utf8());
        }
    }
}
