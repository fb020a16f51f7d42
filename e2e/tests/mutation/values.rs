//! What is tried in a field: the edges of its schema and a step beyond, nothing, other types, what is too much, what is
//! written in no alphabet of ours. Most of it has no regard to what the field is for.

use serde_json::{Value, json};

use super::schema::sample;

/// What a field becomes.
#[derive(Clone)]
pub(super) enum Change {
    Absent,
    To(Value),
}

/// Larger than any field may be, and small enough for a request.
const HUGE: usize = 300 * 1024;
/// How large lists and maps are made at most, so that the object with them can be stored.
const STORED: usize = 256 * 1024;
const FOREIGN: &str = "Grüße, 世界 🦀 \u{202e}e\u{301}\u{2028}";
const CONTROL: &str = "a\u{0}b\tc\r\nd\u{7f}";
const EXPANDED: &str = "$(HOME) ${HOME} {{.}} {x} %s ../../etc";

/// Each with words for it, the strangest first. `now` is what the field has.
pub(super) fn values(schema: &Value, now: Option<&Value>) -> Vec<(String, Change)> {
    let now = now.filter(|now| !now.is_null()).cloned().unwrap_or_else(|| sample(schema));
    let mut all = vec![("absent".to_owned(), Change::Absent)];
    let mut add = |what: &str, value: Value| all.push((what.to_owned(), Change::To(value)));
    let number = schema["type"] == "integer" || schema["type"] == "number";
    let either = schema["x-kubernetes-int-or-string"] == true;
    if number || either {
        numbers(schema, &mut add);
    }
    if schema["type"] == "string" || either {
        texts(schema, now.as_str().unwrap_or("a"), &mut add);
    }
    if schema["items"].is_object() {
        lists(schema, &now, &mut add);
    }
    if schema["additionalProperties"].is_object() {
        maps(schema, &now, &mut add);
    }
    if schema["properties"].is_object() {
        add("an empty object", json!({}));
        add("the least object", sample(schema));
    }
    for (at, value) in schema["enum"].as_array().into_iter().flatten().enumerate() {
        add(&format!("choice {at}"), value.clone());
    }
    for (what, value) in others() {
        add(what, value);
    }
    all
}

/// Values of all types, most of which are not the field's.
fn others() -> [(&'static str, Value); 9] {
    [
        ("null", Value::Null),
        ("nothing but huge", json!("x".repeat(HUGE))),
        ("true", json!(true)),
        ("false", json!(false)),
        ("7", json!(7)),
        ("a fraction", json!(1.5)),
        ("a word", json!("seven")),
        ("a list", json!(["seven"])),
        ("an object", json!({"seven": 7})),
    ]
}

fn numbers(schema: &Value, add: &mut impl FnMut(&str, Value)) {
    for (what, limit, beyond) in [("least", "minimum", -1), ("most", "maximum", 1)] {
        if let Some(edge) = edge(schema, limit) {
            add(&format!("the {what}"), json!(edge));
            add(&format!("beyond the {what}"), json!(edge + beyond));
        }
    }
    add("0", json!(0));
    add("-1", json!(-1));
    add("more than 32 bits", json!(1_i64 << 31));
    add("less than 32 bits", json!(-(1_i64 << 31) - 1));
    add("all of 64 bits", json!(i64::MAX));
    add("more than 64 bits", json!(u64::MAX));
    add("1e300", json!(1e300));
}

/// A limit of whole numbers, which schemas write with a point.
pub(super) fn edge(schema: &Value, limit: &str) -> Option<i64> {
    format!("{:.0}", schema[limit].as_f64()?).parse().ok()
}

fn texts(schema: &Value, now: &str, add: &mut impl FnMut(&str, Value)) {
    let last = now.chars().last().unwrap_or('a');
    add("control characters", json!(CONTROL));
    add("other alphabets", json!(FOREIGN));
    add("other alphabets behind it", json!(format!("{now}{FOREIGN}")));
    if let Some(most) = length(schema, "maxLength") {
        add("the longest text of four bytes each", json!("🦀".repeat(most)));
        add("the longest text", json!(padded(now, last, most)));
        add("one character too many", json!(padded(now, last, most + 1)));
    }
    add("what is expanded elsewhere", json!(EXPANDED));
    add("an empty text", json!(""));
    add("a blank", json!(" "));
    add("a letter more", json!(format!("{now}{last}")));
}

fn lists(schema: &Value, now: &Value, add: &mut impl FnMut(&str, Value)) {
    let items = &schema["items"];
    let one = now.get(0).cloned().unwrap_or_else(|| sample(items));
    add("the same twice", json!([one, one]));
    add("an empty list", json!([]));
    if let Some(most) = length(schema, "maxItems") {
        let full = |count: usize| Value::Array((0..count).map(|at| nth(schema, &one, at, STORED / count)).collect());
        add("a full list", full(most));
        add("a list with one too many", full(most + 1));
    }
    if items["enum"].is_array() {
        add("all choices", items["enum"].clone());
    }
    add("a list of null", json!([null]));
    add("a list of one", json!([one]));
}

fn maps(schema: &Value, now: &Value, add: &mut impl FnMut(&str, Value)) {
    let inner = &schema["additionalProperties"];
    let one = now.as_object().and_then(|map| map.values().next()).cloned().unwrap_or_else(|| sample(inner));
    add("an empty map", json!({}));
    for (what, key) in [
        ("an empty key", ""),
        ("a key in other alphabets", FOREIGN),
        ("a key of control characters", CONTROL),
        ("a key with slashes", "a/b/c"),
        ("a long key", &"k".repeat(1024)),
    ] {
        add(what, json!({key: one}));
    }
    add("a null in a map", json!({"a": null}));
    if let Some(most) = length(schema, "maxProperties") {
        let full = |count: usize| -> Value {
            (0..count).map(|at| (format!("k{at}"), largest(inner, &one, STORED / count))).collect::<serde_json::Map<_, _>>().into()
        };
        add("a full map", full(most));
        add("a map with one too many", full(most + 1));
    }
}

/// The n-th of many that differ in what makes them different, and as large as that many can be.
fn nth(list: &Value, one: &Value, at: usize, room: usize) -> Value {
    let items = &list["items"];
    match one {
        Value::String(text) if items["enum"].is_null() => {
            let number = format!("{at:04}");
            let most = length(items, "maxLength").unwrap_or(room).min(room).saturating_sub(number.len());
            let longest = padded(text, 'x', most);
            json!(longest.chars().take(most).collect::<String>() + &number)
        }
        Value::Object(_) => {
            let mut other = one.clone();
            for key in list["x-kubernetes-list-map-keys"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                let text = one[key].as_str().unwrap_or("a");
                other[key] = json!(format!("{text}{at:04}"));
            }
            other
        }
        _ => items["enum"].get(at).unwrap_or(one).clone(),
    }
}

/// Texts in maps may be as long as all of them have room for.
fn largest(schema: &Value, one: &Value, room: usize) -> Value {
    match (one.as_str(), length(schema, "maxLength")) {
        (Some(text), Some(most)) if schema["type"] == "string" => json!(padded(text, ' ', most.min(room))),
        _ => one.clone(),
    }
}

fn length(schema: &Value, limit: &str) -> Option<usize> {
    schema[limit].as_u64()?.try_into().ok()
}

/// The text, with as many of this character behind it as make it that long.
fn padded(text: &str, with: char, length: usize) -> String {
    let has = text.chars().count();
    text.chars().chain(std::iter::repeat_n(with, length.saturating_sub(has))).take(length.max(has)).collect()
}
