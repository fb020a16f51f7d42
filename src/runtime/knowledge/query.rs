//! The query for knowledge bases, from the user's question. A short question often depends on the one before it.

/// A question of fewer words is searched for together with the last one.
const SHORT_WORDS: usize = 8;
/// Embedding models read no more than some hundred tokens.
const MAX_QUERY_BYTES: usize = 2048;

/// The words to search for; empty where there is nothing to search for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Query(pub(crate) String);

impl Query {
    pub(crate) fn of(question: &str, last: Option<&str>) -> Self {
        let question = question.trim();
        let last = last.map(str::trim).filter(|last| !last.is_empty() && *last != question);
        let is_short = !question.is_empty() && question.split_whitespace().take(SHORT_WORDS).count() < SHORT_WORDS;
        match last.filter(|_| is_short) {
            Some(last) => Self(format!("{}\n{}", start(last, MAX_QUERY_BYTES / 2), start(question, MAX_QUERY_BYTES / 2))),
            None => Self(start(question, MAX_QUERY_BYTES).to_owned()),
        }
    }
}

fn start(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_question_is_searched_for_with_the_one_before() {
        let long = "How many days of leave does a new employee have?";
        for (question, last, expected) in [
            (long, None, long.to_owned()),
            (long, Some("Hello"), long.to_owned()),
            ("And after a year?", Some(long), format!("{long}\nAnd after a year?")),
            ("And after a year?", None, "And after a year?".to_owned()),
            ("again", Some("again"), "again".to_owned()),
            ("  ", Some(long), String::new()),
            (&"é".repeat(5000), None, "é".repeat(1024)),
        ] {
            assert_eq!(Query::of(question, last), Query(expected), "{question} after {last:?}");
        }
    }
}
