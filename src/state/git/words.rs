//! Output of git for logs and errors: without secrets and control characters, and of limited length.

/// Longer output is cut at its beginning: the end has the error.
const MAX_LINE_BYTES: usize = 600;

/// Output of a child without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scrubbed(String);

impl Scrubbed {
    pub(crate) fn new(bytes: &[u8], secrets: &[String]) -> Self {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        // Longest first: one may contain another.
        let mut secrets: Vec<&str> = secrets.iter().map(String::as_str).filter(|secret| !secret.is_empty()).collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in secrets {
            text = text.replace(secret, "***");
        }
        Self(text)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The output as one line.
    pub(crate) fn line(&self) -> String {
        line(&self.0)
    }
}

pub(crate) fn line(text: &str) -> String {
    let plain: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.len() {
        0..=MAX_LINE_BYTES => line,
        length => format!("…{}", &line[line.ceil_char_boundary(length - MAX_LINE_BYTES)..]),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_and_control_characters_do_not_get_into_a_line() {
        let secrets = ["hunter2".to_owned(), "hunter2-long".to_owned(), String::new()];
        for (said, line) in [
            ("fatal: no\n\tluck\n", "fatal: no luck"),
            ("fatal: https://me:hunter2@host", "fatal: https://me:***@host"),
            ("hunter2-long hunter2", "*** ***"),
            ("\u{1b}[31mred\u{1b}[0m\r\n\0", "[31mred [0m"),
            ("", ""),
        ] {
            assert_eq!(Scrubbed::new(said.as_bytes(), &secrets).line(), line, "{said:?}");
        }
        let long = format!("{}é the end", "x".repeat(1000));
        let line = line(&long);
        assert!(line.len() <= MAX_LINE_BYTES + 4 && line.ends_with("é the end"), "{line}");
    }

    proptest! {
        #[test]
        fn a_line_is_short_plain_and_without_secrets(before in "(?s).{0,400}", after in "(?s).{0,400}", secrets in prop::collection::vec("[a-z]{0,3}", 0..4)) {
            let said = format!("{before}{}{after}", secrets.concat());
            let scrubbed = Scrubbed::new(said.as_bytes(), &secrets);
            for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
                prop_assert!(!scrubbed.as_str().contains(secret.as_str()), "{} in {}", secret, scrubbed.as_str());
            }
            let line = scrubbed.line();
            prop_assert!(line.len() <= MAX_LINE_BYTES + '…'.len_utf8() && !line.contains(char::is_control), "{}", line);
        }
    }
}
