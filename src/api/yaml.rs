//! YAML of strangers: the front matter of a skill, a manifest out of a history that people may edit. Anchors and aliases
//! are refused, because with them a few hundred bytes stand for gigabytes as soon as they are read into values.

use serde::de::{DeserializeOwned, IgnoredAny};
use thiserror::Error;

/// Why a text is not read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum YamlError {
    #[error("an anchor or alias at line {line} column {column}: write out what they stand for, or quote a text that begins with & or *")]
    Alias { line: usize, column: usize },
    #[error("{0}")]
    Malformed(String),
}

/// The one document of a text.
///
/// The text is parsed twice. Within a scalar, a comment or a tag, `&`, `*` and `@` are the same to YAML; at the beginning
/// of a token the first two make an anchor or an alias, and the third is an error. So a text has neither if it can still be
/// parsed with `@` in the place of both, and no reading of it has to agree with the parser's.
///
/// The time that it takes grows with the square of how deep flow collections are nested: who bounds time bounds the length.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_yaml::from_str::<IgnoredAny>(&text.replace(['&', '*'], "@")).map_err(|error| fault(text, &error))?;
    serde_yaml::from_str(text).map_err(|error| YamlError::Malformed(error.to_string()))
}

fn fault(text: &str, error: &serde_yaml::Error) -> YamlError {
    let place = error.location().filter(|place| matches!(text.as_bytes().get(place.index()), Some(b'&' | b'*')));
    match place {
        Some(place) => YamlError::Alias { line: place.line(), column: place.column() },
        None => YamlError::Malformed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use proptest::prelude::*;
    use serde_yaml::Value;

    use super::*;

    fn values(value: &Value) -> usize {
        1 + match value {
            Value::Sequence(list) => list.iter().map(values).sum(),
            Value::Mapping(map) => map.iter().map(|(key, value)| values(key) + values(value)).sum(),
            Value::Tagged(tagged) => values(&tagged.value),
            _ => 0,
        }
    }

    #[test]
    fn anchors_and_aliases_are_refused_where_they_stand() {
        for (text, line, column) in [
            ("a: &x 1\n", 1, 4),
            ("a: &x [1]\nb: *x\n", 1, 4),
            ("- é\n- *x\n", 2, 3),
            ("a:\n  - &x b\n", 2, 5),
            ("&x a: 1\n", 1, 1),
            ("{a: &x 1, b: [*x,*x]}", 1, 5),
            ("[&x,*x ]", 1, 2),
            ("a: !!str &x b\n", 1, 10),
            ("a: &x !!str b\n", 1, 4),
            ("? &x\n: b\n", 1, 3),
            ("<<: *x\n", 1, 5),
            ("# &no\n'a&b': \"*c\"\nd: |\n  &e *f\ng: &x\n", 5, 4),
            ("%YAML 1.1\n---\na: *x\n", 3, 4),
        ] {
            let found = read::<Value>(text);
            assert_eq!(found, Err(YamlError::Alias { line, column }), "{text}");
        }
    }

    #[test]
    fn ampersands_and_asterisks_within_texts_are_kept() {
        let text = "a: R&D *and* more\n'&b': \"*c &d\"\ne: >-\n  *f*\n  &g\nh: i\n  *j* &k\nl: !t*&u v\n# *m\nn&: 1\nn@: 2\nhttps://h/?a=1&b=*: o\n";
        let found: Value = read(text).unwrap();
        assert_eq!(found["a"], "R&D *and* more");
        assert_eq!(found["&b"], "*c &d");
        assert_eq!(found["e"], "*f* &g");
        assert_eq!(found["h"], "i *j* &k");
        assert_eq!((found["n&"].clone(), found["n@"].clone()), (1.into(), 2.into()));
        assert_eq!(found, serde_yaml::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn what_would_take_much_is_refused_at_once() {
        let (list, names) = ("x, ".repeat(4000), "*a, ".repeat(3000));
        let mut laughs = "a0: &a0 [lol]\n".to_owned();
        for at in 1..60 {
            let below = format!("*a{}, ", at - 1).repeat(10);
            writeln!(laughs, "a{at}: &a{at} [{below}]").unwrap();
        }
        for bomb in [format!("a: &a [{list}]\nb: [{names}]\n"), laughs, "a: &a [*a]".to_owned()] {
            assert!(matches!(read::<Value>(&bomb), Err(YamlError::Alias { line: 1, .. })), "{bomb:.60}");
        }
        // Nesting ends at 128, and not with the stack.
        for (open, close) in [("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")] {
            let deep = |levels| format!("{}a{}", open.repeat(levels), close.repeat(levels));
            assert!(read::<Value>(&deep(100)).is_ok() && read::<Value>(&deep(5000)).is_err(), "{open}");
        }
    }

    #[test]
    fn what_is_no_document_says_where() {
        assert!(read::<Value>("a: b: c\n").is_err_and(|error| error.to_string().contains("line 1")));
        assert!(read::<Value>("a: @b\n").is_err_and(|error| error.to_string().contains("line 1 column 4")));
        assert!(read::<Value>("a\n---\nb\n").is_err(), "two documents");
        assert!(read::<Value>("a\n---\n&b b\n").is_err(), "the second has an anchor");
        assert!(read::<Vec<String>>("a: b").is_err_and(|error| error.to_string().contains("sequence")));
    }

    proptest! {
        #[test]
        fn nothing_that_is_read_is_longer_than_its_text(text in "([&*@!%][a-c]{0,2}|[a-c]|[,:?#|>'\"{}\\[\\]\\-]|: |- |, |\n|\n  | |é){0,40}") {
            if let Ok(found) = read::<Value>(&text) {
                prop_assert!(values(&found) <= 2 * text.len() + 1, "{text:?}");
                prop_assert_eq!(serde_yaml::from_str::<Value>(&text).unwrap(), found);
            } else if let Ok(found) = serde_yaml::from_str::<Value>(&text) {
                // Nothing else is refused that could be read.
                prop_assert!(text.contains('&'), "{text:?} is {found:?}");
            }
        }

        #[test]
        fn texts_without_either_sign_are_read_as_ever(text in "\\PC{0,40}|([a-c]|[,:?#|>'\"{}\\[\\]\\-]|: |- |, |\n|\n  | ){0,40}") {
            let text = text.replace(['&', '*'], "");
            prop_assert_eq!(read::<Value>(&text).ok(), serde_yaml::from_str::<Value>(&text).ok());
        }
    }
}
