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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::samples::{self, artifact};
    use crate::{Resolved, Status, strange};

    fn told(changes: &[Change]) -> Vec<String> {
        changes.iter().map(|change| format!("{}: {} -> {}", change.path, change.from, change.to)).collect()
    }

    #[test]
    fn each_value_is_told_with_its_path() {
        let cases: [(&str, &str, &[&str]); 12] = [
            ("", "", &[]),
            ("systemPrompt: a", "systemPrompt: b", &[r#"agent.system_prompt: "a" -> "b""#]),
            ("", "systemPrompt: b", &[r#"agent.system_prompt: null -> "b""#]),
            ("replicas: 0", "", &["runtime.replicas: 0 -> 1"]),
            ("tools: [a, b]", "tools: [b, a]", &[r#"agent.tools: ["a","b"] -> ["b","a"]"#]),
            ("tools: [a]", "", &[r#"agent.tools: ["a"] -> []"#]),
            // The author's label is no version of a release.
            ("version: one", "version: two", &[r#"agent.version: "one" -> "two""#]),
            (
                "",
                "modelType: openai, modelId: gpt-5, governance: {riskProfile: high}",
                &[
                    r#"agent.model.id: "stub-echo" -> "gpt-5""#,
                    r#"agent.model.provider: "stub" -> "openai""#,
                    r#"governance.risk_profile: "standard" -> "high""#,
                ],
            ),
            ("", "resources: {limits: {memory: 64Mi}}", &[r#"runtime.resources.limits.memory: null -> "64Mi""#]),
            ("resources: {limits: {memory: 64Mi}}", "resources: {}", &[r#"runtime.resources.limits.memory: "64Mi" -> null"#]),
            ("", "resources: {}", &["runtime.resources: null -> {}"]),
            (
                "podTemplate: {annotations: {example.com/a: b, plain: x}}",
                "podTemplate: {annotations: {example.com/a: c, plain: y}}",
                &[
                    r#"runtime.pod_template.annotations["example.com/a"]: "b" -> "c""#,
                    r#"runtime.pod_template.annotations.plain: "x" -> "y""#,
                ],
            ),
        ];
        for (from, to, expected) in cases {
            let (from, to) = (artifact(from), artifact(to));
            assert_eq!(told(&diff(&from, &to)), expected);
            let back: Vec<_> = diff(&from, &to).into_iter().map(|Change { path, from, to }| Change { path, from: to, to: from }).collect();
            assert_eq!(diff(&to, &from), back);
        }
    }

    #[test]
    fn five_fields_of_metadata_are_left_out_and_no_others() {
        let from = samples::full();
        let mut to = from.clone();
        to.metadata.version = 4;
        to.metadata.previous = 3;
        to.metadata.timestamp = "2027-01-01T00:00:00Z".parse().unwrap();
        to.metadata.changelog = "Other.".to_owned();
        to.metadata.checksum = "00".to_owned();
        assert_eq!(diff(&from, &to), []);
        to.metadata.author = "bob@example.com".to_owned();
        to.metadata.status = Status::Archived;
        to.resolved.tools.insert("clock".to_owned(), "sha256:11".to_owned());
        let paths: Vec<_> = diff(&from, &to).into_iter().map(|change| change.path).collect();
        assert_eq!(paths, ["metadata.author", "metadata.status", "resolved.tools.clock"]);
    }

    #[test]
    fn lists_of_named_objects_are_compared_element_by_element() {
        let list = |elements: Value| json!({"a": {"list": elements}});
        let cases: [(Value, Value, &[&str]); 7] = [
            (json!([{"name": "x", "v": 1}]), json!([{"name": "x", "v": 2}]), &[r#"a.list[name="x"].v: 1 -> 2"#]),
            (json!([{"name": "x"}]), json!([{"name": "y"}, {"name": "x"}]), &[r#"a.list[name="y"]: null -> {"name":"y"}"#]),
            (json!([{"key": "a.b", "v": 1}]), json!([]), &[r#"a.list[key="a.b"]: {"key":"a.b","v":1} -> null"#]),
            // Another order is a difference too.
            (
                json!([{"name": "x"}, {"name": "y"}]),
                json!([{"name": "y"}, {"name": "x"}]),
                &[r#"a.list: [{"name":"x"},{"name":"y"}] -> [{"name":"y"},{"name":"x"}]"#],
            ),
            (json!([{"name": "x"}, {"name": "x"}]), json!([{"name": "x"}]), &[r#"a.list: [{"name":"x"},{"name":"x"}] -> [{"name":"x"}]"#]),
            (json!([{"v": 1}]), json!([{"v": 2}]), &[r#"a.list: [{"v":1}] -> [{"v":2}]"#]),
            (json!([]), json!([1]), &["a.list: [] -> [1]"]),
        ];
        for (from, to, expected) in cases {
            assert_eq!(told(&changes(&list(from), &list(to))), expected);
        }
    }

    fn without_nulls(value: Value) -> Value {
        match value {
            Value::Object(map) => {
                map.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key, without_nulls(value))).collect()
            }
            other => other,
        }
    }

    proptest! {
        #[test]
        fn nothing_is_told_only_where_nothing_differs(one in samples::spec(), other in samples::spec()) {
            let of = |spec| Artifact::of_spec(spec, "team-a", Resolved::default(), samples::metadata());
            let (one, other) = (of(&one), of(&other));
            let found = diff(&one, &other);
            prop_assert_eq!(found.is_empty(), one == other);
            for change in &found {
                prop_assert_ne!(&change.from, &change.to);
                prop_assert_eq!(found.iter().filter(|twin| twin.path == change.path).count(), 1);
            }
            prop_assert_eq!(diff(&one, &one), vec![]);
        }

        #[test]
        fn trees_are_equal_or_something_is_told(one in strange::value(), other in strange::value()) {
            // Null is what is absent.
            let (one, other) = (without_nulls(one), without_nulls(other));
            prop_assert_eq!(changes(&one, &other).is_empty(), one == other);
        }
    }
}
