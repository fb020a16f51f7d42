//! JSON for server-side apply. The API server parses the body as YAML, which is not a superset of JSON: some characters are
//! invalid unescaped, others count as line breaks and would be folded, and keys have a maximum length. Text in prompts (a byte
//! order mark, a line separator) must arrive unchanged.

use std::fmt::Write;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use foldhash::quality::{FoldHasher, RandomState};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Error, Value};

/// The longest key of a Kubernetes object: a prefix, a slash and a name. YAML allows 1024 characters.
const MAX_KEY_CHARS: usize = 253 + 1 + 63;

/// The object as JSON that a YAML parser reads as the same value.
pub fn text(object: &impl Serialize) -> Result<Box<RawValue>, Error> {
    let plain = serde_json::to_string(object)?;
    if !plain.contains(needs_escape) {
        return RawValue::from_string(plain);
    }
    let mut escaped = String::with_capacity(plain.len() + 64);
    for c in plain.chars() {
        if needs_escape(c) {
            // These characters occur in strings only, where the escape means the same.
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    RawValue::from_string(escaped)
}

/// A hash of a value, stable within this process only.
pub fn hash(value: &Value) -> u64 {
    let mut hasher = hasher();
    value.hash(&mut hasher);
    hasher.finish()
}

/// What hashes stable within this process are made with. Its seed is the process's own, so that nobody can choose objects whose
/// hashes are the same; the standard one would take a tenth of a start.
pub fn hasher() -> FoldHasher<'static> {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);
    SEED.build_hasher()
}

fn needs_escape(c: char) -> bool {
    matches!(c, '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// The path of a key that is too long, with a description for an error message.
pub fn long_key(object: &Value) -> Option<String> {
    match object {
        Value::Object(map) => map.iter().find_map(|(key, value)| {
            let length = key.chars().count();
            if length > MAX_KEY_CHARS {
                return Some(format!(
                    ": a key of {length} characters, which begins with {key:.20}, is too long; at most {MAX_KEY_CHARS} are allowed"
                ));
            }
            let inner = long_key(value)?;
            let dot = if inner.starts_with(['[', ':']) { "" } else { "." };
            Some(format!("{key}{dot}{inner}"))
        }),
        Value::Array(list) => list.iter().enumerate().find_map(|(at, value)| {
            let inner = long_key(value)?;
            let dot = if inner.starts_with(['[', ':']) { "" } else { "." };
            Some(format!("[{at}]{dot}{inner}"))
        }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn characters_that_yaml_would_change_are_escaped() {
        let strange = "a\u{7f}b\u{85}c\u{9f}d\u{2028}e\u{2029}f\u{feff}g\u{fffe}h\u{ffff}i ü 世 🦀 \n \u{0} \" \\";
        let object = json!({"data": {strange: strange}});
        let sent = text(&object).unwrap();
        assert!(!sent.get().contains(needs_escape), "{sent}");
        assert!(sent.get().contains("ü 世 🦀"), "{sent}");
        assert_eq!(serde_json::from_str::<Value>(sent.get()).unwrap(), object);
    }

    #[test]
    fn a_long_key_is_reported_with_its_path() {
        let of = |key: &str| json!({"spec": {"limits": [{"type": "Container"}, {"max": {key: "1"}}]}});
        assert_eq!(long_key(&of(&"k".repeat(MAX_KEY_CHARS))), None);
        let told = long_key(&of(&"k".repeat(MAX_KEY_CHARS + 1))).unwrap();
        assert!(told.starts_with("spec.limits[1].max: a key of 318 characters, which begins with kkkk"), "{told}");
    }
}
