//! Texts and JSON that are beyond doubt the same. That two differ here does not mean that they differ in meaning.

use serde_json::Value;

/// How an answer is the same as what was expected, if it is.
pub(crate) fn same(expected: &str, answer: &str) -> Option<&'static str> {
    let (expected, answer) = (expected.trim(), answer.trim());
    if expected == answer {
        return Some("The answer is the expected output, letter by letter.");
    }
    let (expected, answer) = (unfenced(expected), unfenced(answer));
    let plain = normalised(expected);
    if !plain.is_empty() && plain == normalised(answer) {
        return Some("The answer is the expected output, but for case, spaces, quotes around it or a full stop.");
    }
    let (expected, answer) = (structured(expected)?, structured(answer)?);
    same_json(&expected, &answer).then_some("The answer is the expected output, as JSON.")
}

/// Whether two JSON values are the same; `1` and `1.0` are.
pub(crate) fn same_json(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            // Whole numbers are compared as such: as floating point, large neighbours would be one.
            if x.is_f64() || y.is_f64() { x.as_f64() == y.as_f64() } else { x == y }
        }
        (Value::Array(x), Value::Array(y)) => x.len() == y.len() && x.iter().zip(y).all(|(x, y)| same_json(x, y)),
        (Value::Object(x), Value::Object(y)) => x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| same_json(x, y))),
        _ => a == b,
    }
}

/// What stands within a code fence, if the whole text is one.
pub(crate) fn unfenced(text: &str) -> &str {
    let trimmed = text.trim();
    let inner = || {
        let (_, inner) = trimmed.strip_prefix("```")?.strip_suffix("```")?.split_once('\n')?;
        (!inner.contains("```")).then_some(inner.trim())
    };
    inner().unwrap_or(trimmed)
}

/// Objects, lists and numbers; a bare word is no JSON that anybody meant.
fn structured(text: &str) -> Option<Value> {
    serde_json::from_str::<Value>(text).ok().filter(|value| value.is_object() || value.is_array() || value.is_number())
}

/// Without what does not change the meaning. Signs stay: -5 is not 5.
fn normalised(text: &str) -> String {
    let text = text.trim().trim_end_matches(['.', '!']).trim_matches(['"', '\'', '`', '“', '”', '‘', '’', '*']);
    let text = text.trim_end_matches(['.', '!']).to_lowercase();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_beyond_doubt_is_the_same() {
        for (expected, answer, same_text) in [
            ("Paris", "Paris", true),
            ("Paris", "  paris. ", true),
            ("At six  o'clock", "at six o'clock!", true),
            ("Paris", "\"Paris.\"", true),
            ("Paris", "Paris?", false),
            ("5", "-5", false),
            ("5", "5.0", true),
            ("1.5", "15", false),
            ("x > 1", "x < 1", false),
            ("C", "C++", false),
            (r#"{"a": 1, "b": [2, 3]}"#, "```json\n{\"b\":[2.0,3],\"a\":1}\n```", true),
            (r#"{"a": 1}"#, r#"{"a": 2}"#, false),
            ("[1, 2]", "[2, 1]", false),
            ("9007199254740993", "9007199254740992", false),
            ("yes", "no", false),
            ("...", "!", false),
        ] {
            assert_eq!(same(expected, answer).is_some(), same_text, "{expected} beside {answer}");
        }
    }
}
