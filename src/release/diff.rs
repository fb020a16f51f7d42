//! How two artifacts differ: one entry for each value, with the path to it.
//!
//! Maps are compared key by key, lists of objects that have a name element by element, other lists as a whole, because
//! their order means something. A step of a path that is no plain word is written in brackets, as JSON writes it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::artifact::Artifact;
use crate::read::tree;

/// Of `metadata`: what differs between any two releases and tells nothing.
const EXCLUDED: [&str; 5] = ["version", "previous", "timestamp", "checksum", "changelog"];
/// Fields that tell the elements of a list apart, if all of them have one and no two the same.
const KEYS: [&str; 2] = ["name", "key"];

/// One value that differs. What one of the two does not have is null there.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq)]
pub struct Change {
    pub path: String,
    pub from: Value,
    pub to: Value,
}

/// What differs between two artifacts, in the order of the paths.
pub fn diff(from: &Artifact, to: &Artifact) -> Vec<Change> {
    let compared = |artifact: &Artifact| {
        let mut document = tree(artifact);
        if let Some(metadata) = document["metadata"].as_object_mut() {
            metadata.retain(|field, _| !EXCLUDED.contains(&field.as_str()));
        }
        document
    };
    changes(&compared(from), &compared(to))
}

pub(crate) fn changes(from: &Value, to: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare(&mut String::new(), from, to, &mut found);
    found
}

fn compare(path: &mut String, from: &Value, to: &Value, found: &mut Vec<Change>) {
    if from == to {
        return;
    }
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => maps(path, from, to, found),
        // A map that was not there had no values; one that is empty is a value itself.
        (Value::Object(from), Value::Null) if !from.is_empty() => maps(path, from, &Map::new(), found),
        (Value::Null, Value::Object(to)) if !to.is_empty() => maps(path, &Map::new(), to, found),
        (Value::Array(one), Value::Array(other)) => match keyed(one, other) {
            Some(key) => elements(path, key, one, other, found),
            None => found.push(Change { path: path.clone(), from: from.clone(), to: to.clone() }),
        },
        _ => found.push(Change { path: path.clone(), from: from.clone(), to: to.clone() }),
    }
}

fn maps(path: &mut String, from: &Map<String, Value>, to: &Map<String, Value>, found: &mut Vec<Change>) {
    let mut keys: Vec<_> = from.keys().chain(to.keys().filter(|key| !from.contains_key(*key))).collect();
    keys.sort_unstable();
    for key in keys {
        let side = |map: &Map<String, Value>| map.get(key).cloned().unwrap_or_default();
        within(path, &step(path, key), |path| compare(path, &side(from), &side(to), found));
    }
}

fn elements(path: &mut String, key: &str, from: &[Value], to: &[Value], found: &mut Vec<Change>) {
    let named = |list: &[Value], name: &Value| list.iter().find(|element| element[key] == *name).cloned().unwrap_or_default();
    let added = to.iter().filter(|element| named(from, &element[key]).is_null());
    for element in from.iter().chain(added) {
        let name = &element[key];
        let (before, after) = (named(from, name), named(to, name));
        within(path, &format!("[{key}={name}]"), |path| match (&before, &after) {
            // An element comes and goes as one.
            (Value::Null, _) | (_, Value::Null) => found.push(Change { path: path.clone(), from: before, to: after }),
            _ => compare(path, &before, &after, found),
        });
    }
}

/// The field by which the elements of both lists are told apart, unless what they share changed places.
fn keyed(from: &[Value], to: &[Value]) -> Option<&'static str> {
    KEYS.into_iter().find(|key| {
        let names = |list: &[Value]| list.iter().map(|element| element.get(*key)?.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>();
        let (Some(from), Some(to)) = (names(from), names(to)) else { return false };
        let unique = |names: &[String]| names.iter().enumerate().all(|(at, name)| !names[..at].contains(name));
        let shared = |of: &[String], with: &[String]| of.iter().filter(|name| with.contains(name)).cloned().collect::<Vec<_>>();
        unique(&from) && unique(&to) && shared(&from, &to) == shared(&to, &from)
    })
}

/// A key as a step of a path.
fn step<'a>(path: &str, key: &'a str) -> Cow<'a, str> {
    let plain = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    match (plain, path.is_empty()) {
        (true, true) => Cow::Borrowed(key),
        (true, false) => Cow::Owned(format!(".{key}")),
        (false, _) => Cow::Owned(format!("[{}]", Value::from(key))),
    }
}

fn within(path: &mut String, step: &str, f: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push_str(step);
    f(path);
    path.truncate(length);
}
