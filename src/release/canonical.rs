//! The canonical form: YAML that is the same bytes for the same values, from any writer.
//!
//! Keys are sorted, but `apiVersion`, `kind` and `metadata` come first; nesting is two spaces; a string stands bare
//! where no reader of YAML 1.1 or 1.2 could take it for anything else, as a literal block where it has lines and
//! nothing odd in them, and in double quotes otherwise. Nothing is ever folded. docs/releases.md says it for others.

use std::fmt::Write as _;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Of a document, these come before all other keys.
const FIRST: [&str; 3] = ["apiVersion", "kind", "metadata"];
/// Readers look no further than 1024 characters, or bytes, for the colon after a key.
const KEY_MAX: usize = 1000;

/// The digest by which releases name what they resolved to: SHA-256 of the canonical form, in lower-case hex.
pub fn digest(document: &Value) -> String {
    hex::encode(Sha256::digest(yaml(document)))
}

/// The canonical form of a document.
pub fn yaml(document: &Value) -> String {
    let mut out = String::new();
    match document {
        Value::Object(map) if !map.is_empty() => {
            let first = FIRST.into_iter().filter_map(|key| map.get_key_value(key));
            let rest = sorted(map).into_iter().filter(|(key, _)| !FIRST.contains(&key.as_str()));
            for (at, (key, value)) in first.chain(rest).enumerate() {
                entry(&mut out, key, value, 0, at > 0);
            }
        }
        Value::Array(list) if !list.is_empty() => items(&mut out, list, 0),
        scalar => {
            after(&mut out, scalar, 0);
            out.remove(0);
        }
    }
    out
}

/// The order must not depend on how a map was built.
fn sorted(map: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// A key and its value, `indented` if it begins a line.
fn entry(out: &mut String, key: &str, value: &Value, depth: usize, indented: bool) {
    if indented {
        indent(out, depth);
    }
    let key = if is_plain(key) { key.to_owned() } else { quoted(key) };
    if key.len() > KEY_MAX {
        out.push_str("? ");
        out.push_str(&key);
        out.push('\n');
        indent(out, depth);
        out.push(':');
    } else {
        out.push_str(&key);
        out.push(':');
    }
    after(out, value, depth);
}

/// A value after `key:`, `-` or nothing, with the end of its line.
fn after(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            for (key, value) in sorted(map) {
                entry(out, key, value, depth + 1, true);
            }
        }
        Value::Array(list) if !list.is_empty() => {
            out.push('\n');
            items(out, list, depth + 1);
        }
        Value::String(text) if is_literal(text) => literal(out, text, depth + 1),
        scalar => {
            out.push(' ');
            out.push_str(&bare(scalar));
            out.push('\n');
        }
    }
}

fn items(out: &mut String, list: &[Value], depth: usize) {
    for item in list {
        indent(out, depth);
        out.push('-');
        match item {
            Value::Object(map) if !map.is_empty() => {
                out.push(' ');
                for (at, (key, value)) in sorted(map).into_iter().enumerate() {
                    entry(out, key, value, depth + 1, at > 0);
                }
            }
            other => after(out, other, depth),
        }
    }
}

fn bare(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => fraction(float),
            _ => number.to_string(),
        },
        Value::String(text) if text.is_empty() => "''".to_owned(),
        Value::String(text) if is_plain(text) => text.clone(),
        Value::String(text) => quoted(text),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// A number with a point and, where it has an exponent, its sign: without both, YAML 1.1 reads a string.
fn fraction(float: f64) -> String {
    let text = format!("{float:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let point = if digits.contains('.') { "" } else { ".0" };
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    format!("{digits}{point}e{sign}{exponent}")
}

fn indent(out: &mut String, depth: usize) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// Words that some reader takes for a truth value or for nothing.
const WORDS: [&str; 9] = ["true", "false", "yes", "no", "on", "off", "y", "n", "null"];

/// Whether every reader takes the bare text for a string, and for this one.
fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |at: usize, byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'/' | b'@' => true,
        b' ' | b':' => bytes.get(at + 1).is_some_and(u8::is_ascii_alphanumeric),
        _ => false,
    };
    bytes.first().is_some_and(u8::is_ascii_alphabetic)
        && bytes.iter().enumerate().all(|(at, byte)| inner(at, *byte))
        && !WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
}

/// Whether the text has lines and reads in a literal block as it is.
fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\t', '\n'])
        && text.chars().all(|letter| matches!(letter, '\n' | '\t') || is_printable(letter))
        && text.split('\n').all(|line| line.is_empty() || line.bytes().any(|byte| byte != b' '))
}

/// Whether a character may stand as it is. Tabs and what looks like a line break to somebody may not.
fn is_printable(letter: char) -> bool {
    matches!(letter, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

fn literal(out: &mut String, text: &str, depth: usize) {
    let body = text.trim_end_matches('\n');
    let breaks = text.len() - body.len();
    out.push_str(match breaks {
        0 => " |-\n",
        1 => " |\n",
        _ => " |+\n",
    });
    for line in body.split('\n') {
        if !line.is_empty() {
            indent(out, depth);
            out.push_str(line);
        }
        out.push('\n');
    }
    out.extend(std::iter::repeat_n('\n', breaks.saturating_sub(1)));
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        let code = u32::from(letter);
        // Writing to a String cannot fail.
        let _ = match letter {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\t' => out.write_str("\\t"),
            '\r' => out.write_str("\\r"),
            letter if is_printable(letter) => out.write_char(letter),
            _ if code <= 0xff => write!(out, "\\x{code:02X}"),
            _ => write!(out, "\\u{code:04X}"),
        };
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::strange;

    fn read(text: &str) -> Value {
        serde_yaml::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
    }

    #[test]
    fn a_value_is_written_in_one_way() {
        let cases = [
            (json!({}), "{}\n"),
            (json!([]), "[]\n"),
            (json!("yes"), "\"yes\"\n"),
            (
                json!({"b": 1, "metadata": {"z": 1, "a": 2}, "kind": "K", "a": [], "apiVersion": "v1"}),
                "apiVersion: v1\nkind: K\nmetadata:\n  a: 2\n  z: 1\na: []\nb: 1\n",
            ),
            (json!({"a": ["x", {"b": 1, "c": [2]}, []]}), "a:\n  - x\n  - b: 1\n    c:\n      - 2\n  - []\n"),
            (json!({"a": [["x", "y"], [{"b": "c"}]]}), "a:\n  -\n    - x\n    - \"y\"\n  -\n    - b: c\n"),
            (json!({"a": ""}), "a: ''\n"),
            (json!({"a": "one\ntwo"}), "a: |-\n  one\n  two\n"),
            (json!({"a": "one\n\n  two\n"}), "a: |\n  one\n\n    two\n"),
            (json!({"a": "one\n\n", "b": 0}), "a: |+\n  one\n\nb: 0\n"),
            (json!({"a": " one\ntwo"}), "a: \" one\\ntwo\"\n"),
            (json!({"a": "1.0", "b": 1.0, "c": 1e20, "d": -2.5e-9}), "a: \"1.0\"\nb: 1.0\nc: 1.0e+20\nd: -2.5e-9\n"),
            (json!({"a": "\u{7f}\u{85}\u{2028}\u{feff}\r\t\"\\"}), "a: \"\\x7F\\x85\\u2028\\uFEFF\\r\\t\\\"\\\\\"\n"),
            (json!({"no": {"a b": null}}), "\"no\":\n  a b: null\n"),
        ];
        for (value, expected) in cases {
            assert_eq!(yaml(&value), expected, "{value}");
            assert_eq!(read(expected), value, "{expected}");
        }
    }

    /// The form never changes: what was written years ago must still be what its checksum was made of.
    #[test]
    fn strange_values_are_written_as_they_were() {
        let written = yaml(&strange::document());
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write("testdata/strange.yaml", &written).unwrap();
        }
        assert!(written == include_str!("testdata/strange.yaml"), "testdata/strange.yaml: the canonical form has changed");
        assert_eq!(read(&written), strange::document());
    }

    #[test]
    fn a_key_that_is_too_long_for_readers_is_announced() {
        let key = "k".repeat(KEY_MAX + 1);
        assert_eq!(yaml(&json!({ key.clone(): ["a"] })), format!("? {key}\n:\n  - a\n"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.saturating_mul(8)))]
        #[test]
        fn what_is_written_is_read_again(value in strange::value()) {
            let text = yaml(&value);
            prop_assert_eq!(&read(&text), &value, "{}", text);
            prop_assert_eq!(yaml(&read(&text)), text);
        }
    }
}
