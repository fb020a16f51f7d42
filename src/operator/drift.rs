//! Comparing what is in the cluster with what should be, without asking the cluster.
//!
//! The API server fills in defaults and others may add annotations, so that equality is the wrong question.
//! The right ones: is everything that we want there ([`covers`])? Is there something that we wanted once and no
//! longer do ([`leftovers`])? Has somebody added to what is ours alone ([`additions`])? Has anything changed since
//! we last looked ([`fingerprint`])?

use std::hash::{Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use serde_json::{Map, Value};
use slipway_cluster::json;

/// Whether `live` holds all of `desired`. A value that says nothing (empty, zero, false) may be absent.
pub(crate) fn covers(desired: &Value, live: &Value) -> bool {
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => desired.iter().all(|(key, value)| covers_at(value, live.get(key))),
        (Value::Array(desired), Value::Array(live)) if desired.iter().all(Value::is_object) => {
            desired.len() <= live.len() && desired.iter().all(|item| live.iter().any(|live| covers(item, live)))
        }
        _ => desired == live,
    }
}

/// The same of what may be absent.
pub(crate) fn covers_at(desired: &Value, live: Option<&Value>) -> bool {
    live.map_or_else(|| says_nothing(desired), |live| covers(desired, live))
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(bool) => !bool,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.values().all(says_nothing),
    }
}

/// A hash over everything in `body` that a person or controller can set: all but the status.
pub(crate) fn fingerprint(labels: &impl Hash, annotations: &impl Hash, owners: &impl Hash, body: &Value) -> u64 {
    let mut hasher = json::hasher();
    labels.hash(&mut hasher);
    annotations.hash(&mut hasher);
    owners.hash(&mut hasher);
    if let Value::Object(body) = body {
        for (key, value) in body.iter().filter(|(key, _)| *key != "status") {
            key.hash(&mut hasher);
            value.hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// JSON pointers to what others have added to the part of an object that is ours alone: everything but
/// metadata, status, and the metadata of a pod template, where sidecars and restarts leave their marks.
///
/// The API server keeps book of who owns which field; this reads the book. Pointers into lists come with the
/// highest index first, so that they can be removed one after the other. What is in `except` is others' to add.
pub(crate) fn additions(fields: &[ManagedFieldsEntry], ours: &str, body: &Value, except: &[&str]) -> Vec<String> {
    let empty = Map::new();
    let is_ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(ours);
    let others: Vec<_> = fields.iter().filter(|entry| !is_ours(entry) && entry.subresource.is_none()).filter_map(tree).collect();
    let mut found = Vec::new();
    // As with nearly all objects, of which there are many.
    if others.is_empty() {
        return found;
    }
    let mut own = Map::new();
    fields.iter().filter(is_ours).filter_map(tree).for_each(|fields| merge(&mut own, fields));
    for theirs in others {
        for (root, theirs) in theirs {
            if matches!(root.as_str(), "f:metadata" | "f:status" | "f:secrets" | "f:imagePullSecrets") {
                continue;
            }
            let ours = own.get(root).and_then(Value::as_object).unwrap_or(&empty);
            let name = root.trim_start_matches("f:");
            let pointer = format!("/{}", escape(name));
            match (own.contains_key(root), theirs.as_object(), body.get(name)) {
                (true, Some(theirs), Some(live)) => walk(theirs, ours, live, &pointer, &mut found),
                (false, _, Some(_)) => found.push(pointer),
                _ => {}
            }
        }
    }
    found.retain(|pointer| !pointer.starts_with("/spec/template/metadata") && !except.contains(&pointer.as_str()));
    found.sort_by_cached_key(|pointer| std::cmp::Reverse(sort_key(pointer)));
    found.dedup();
    found
}

/// What of an object that should be so is others' to add: the replicas of a Deployment that says none.
pub(crate) fn of_others(desired: &Value) -> &'static [&'static str] {
    const REPLICAS: &str = "/spec/replicas";
    if desired["kind"] == "Deployment" && desired.pointer(REPLICAS).is_none() { &[REPLICAS] } else { &[] }
}

fn tree(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    entry.fields_v1.as_ref()?.0.as_object()
}

fn walk(theirs: &Map<String, Value>, ours: &Map<String, Value>, live: &Value, pointer: &str, found: &mut Vec<String>) {
    for (key, inner) in theirs.iter().filter(|(key, _)| *key != ".") {
        let Some((step, value)) = step(key, live) else { continue };
        let pointer = format!("{pointer}/{}", escape(&step));
        match (ours.get(key).and_then(Value::as_object), inner.as_object()) {
            (None, _) => found.push(pointer),
            // A leaf of ours is ours with all that is in it.
            (Some(ours), Some(theirs)) if !ours.is_empty() => walk(theirs, ours, value, &pointer, found),
            _ => {}
        }
    }
}

/// One step down the live object, for one key of the API server's notation.
fn step<'a>(key: &str, live: &'a Value) -> Option<(String, &'a Value)> {
    let (kind, rest) = key.split_once(':')?;
    let index = |matches: &dyn Fn(&Value) -> bool| live.as_array()?.iter().enumerate().find(|(_, item)| matches(item));
    match kind {
        "f" => Some((rest.to_owned(), live.get(rest)?)),
        "k" => {
            let keys: Map<String, Value> = serde_json::from_str(rest).ok()?;
            let (at, item) = index(&|item| keys.iter().all(|(name, value)| item.get(name) == Some(value)))?;
            Some((at.to_string(), item))
        }
        "v" => {
            let value: Value = serde_json::from_str(rest).ok()?;
            let (at, item) = index(&|item| *item == value)?;
            Some((at.to_string(), item))
        }
        "i" => Some((rest.to_owned(), live.get(rest.parse::<usize>().ok()?)?)),
        _ => None,
    }
}

/// Whether we have applied something that we no longer want: a manager that was killed between a change and its
/// write leaves it there, and the next manager no longer knows. The API server's book does.
pub(crate) fn leftovers(fields: &[ManagedFieldsEntry], ours: &str, desired: &Value) -> bool {
    let applied = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(ours) && entry.operation.as_deref() == Some("Apply") && entry.subresource.is_none()
    };
    fields.iter().filter(applied).filter_map(tree).flatten().any(|(key, inner)| left(key, inner, desired))
}

/// Whether what we once applied under `key` is more than what is desired there.
fn left(key: &str, inner: &Value, desired: &Value) -> bool {
    let wanted = match key.split_once(':') {
        Some(("f", name)) => desired.get(name),
        Some(("k", keys)) => item(keys, desired),
        Some(("v", value)) => {
            serde_json::from_str(value).ok().and_then(|value: Value| desired.as_array()?.iter().find(|item| **item == value))
        }
        // The item itself, and places in lists, which are replaced as a whole.
        _ => return false,
    };
    let inner = inner.as_object().into_iter().flatten();
    wanted.is_none_or(|wanted| inner.clone().any(|(key, inner)| left(key, inner, wanted)))
}

/// The item of a list that these keys name. The API server names keys by their defaults, too, which we may have left out.
fn item<'a>(keys: &str, list: &'a Value) -> Option<&'a Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    let named = |item: &&Value| keys.iter().all(|(name, value)| item.get(name).is_none_or(|own| own == value));
    list.as_array()?.iter().find(named)
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(key).and_then(Value::as_object_mut), value.as_object()) {
            (Some(into), Some(from)) => merge(into, from),
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
            _ => {}
        }
    }
}

fn escape(step: &str) -> String {
    step.replace('~', "~0").replace('/', "~1")
}

fn sort_key(pointer: &str) -> Vec<(usize, String)> {
    pointer.split('/').map(|step| (step.parse().unwrap_or(0), step.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::FieldsV1;
    use serde_json::json;

    use super::*;

    #[test]
    fn defaults_and_foreign_keys_do_not_matter_but_changes_do() {
        let desired = json!({"replicas": 2, "paused": false, "ports": [{"port": 80}, {"port": 81}], "args": ["a"]});
        let same = json!({"replicas": 2, "other": 1, "ports": [{"port": 81, "protocol": "TCP"}, {"port": 80}], "args": ["a"]});
        assert!(covers(&desired, &same));
        for (field, value) in
            [("replicas", json!(3)), ("ports", json!([{"port": 80}])), ("args", json!(["a", "b"])), ("paused", json!(true))]
        {
            let mut changed = same.clone();
            changed[field] = value;
            assert!(!covers(&desired, &changed), "{field}");
        }
    }

    fn entry(manager: &str, fields: Value) -> ManagedFieldsEntry {
        ManagedFieldsEntry { manager: Some(manager.to_owned()), fields_v1: Some(FieldsV1(fields)), ..Default::default() }
    }

    #[test]
    fn additions_to_what_is_ours_are_found() {
        let ours = entry(
            "us",
            json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"agent\"}": {
                ".": {}, "f:name": {}, "f:env": {"k:{\"name\":\"A\"}": {".": {}, "f:name": {}, "f:value": {}}}}}}}}}),
        );
        let theirs = entry(
            "kubectl-edit",
            json!({"f:metadata": {"f:annotations": {"f:x": {}}}, "f:spec": {"f:replicas": {}, "f:paused": {},
                "f:template": {"f:metadata": {"f:annotations": {"f:y": {}}}, "f:spec": {
                    "f:hostNetwork": {},
                    "f:containers": {"k:{\"name\":\"agent\"}": {"f:env": {"k:{\"name\":\"B\"}": {".": {}, "f:name": {}}}},
                                     "k:{\"name\":\"extra\"}": {".": {}, "f:name": {}}}}}}}),
        );
        let body = json!({"spec": {"replicas": 1, "paused": true, "template": {"metadata": {"annotations": {"y": "1"}}, "spec": {
            "hostNetwork": true,
            "containers": [{"name": "agent", "env": [{"name": "A"}, {"name": "B"}]}, {"name": "extra"}]}}}});
        let found = additions(&[ours, theirs], "us", &body, &[]);
        assert_eq!(
            found,
            [
                "/spec/template/spec/hostNetwork",
                "/spec/template/spec/containers/1",
                "/spec/template/spec/containers/0/env/1",
                "/spec/paused",
            ]
        );
    }

    #[test]
    fn replicas_that_we_leave_to_others_are_no_addition() {
        let ours = || entry("us", json!({"f:spec": {"f:strategy": {}}}));
        let theirs = || entry("flagger", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}}));
        let body = json!({"spec": {"replicas": 0, "paused": true, "strategy": {}}});
        let found = |desired: Value| additions(&[ours(), theirs()], "us", &body, of_others(&desired));
        assert_eq!(found(json!({"kind": "Deployment", "spec": {"strategy": {}}})), ["/spec/paused"]);
        assert_eq!(found(json!({"kind": "Deployment", "spec": {"strategy": {}, "replicas": 1}})), ["/spec/replicas", "/spec/paused"]);
        assert_eq!(found(json!({"kind": "StatefulSet", "spec": {"strategy": {}}})), ["/spec/replicas", "/spec/paused"]);
    }

    #[test]
    fn what_we_applied_once_and_no_longer_want_is_left_over() {
        let ours = |operation: &str| ManagedFieldsEntry {
            operation: Some(operation.to_owned()),
            ..entry(
                "us",
                json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {".": {}, "v:\"keep\"": {}}},
                    "f:data": {"f:A": {}, "f:B": {}},
                    "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}}}),
            )
        };
        let desired = json!({"metadata": {"name": "x", "labels": {"a": "1"}, "finalizers": ["keep"]}, "data": {"A": "", "B": "2"},
            "ports": [{"port": 80, "name": "http"}]});
        assert!(!leftovers(&[ours("Apply")], "us", &desired));
        for pointer in ["/metadata/labels/a", "/metadata/finalizers/0", "/data/B", "/data", "/ports/0", "/ports/0/name"] {
            let mut less = desired.clone();
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            match less.pointer_mut(parent).unwrap() {
                Value::Array(list) => drop(list.remove(0)),
                within => drop(within.as_object_mut().unwrap().remove(key)),
            }
            assert!(leftovers(&[ours("Apply")], "us", &less), "{pointer}");
            assert!(!leftovers(&[ours("Update")], "us", &less), "an update says nothing of what was wanted");
            assert!(!leftovers(&[ours("Apply")], "others", &less));
        }
    }

    #[test]
    fn list_items_are_removed_from_the_end() {
        let theirs = entry("them", json!({"f:data": {"f:a/b": {}}, "f:list": {"k:{\"n\":1}": {}, "k:{\"n\":10}": {}, "k:{\"n\":2}": {}}}));
        let ours = entry("us", json!({"f:data": {"f:z": {}}, "f:list": {"k:{\"n\":0}": {}}}));
        let items: Vec<Value> = (0..=10).map(|n| json!({"n": n})).collect();
        let found = additions(&[ours, theirs], "us", &json!({"data": {"a/b": "", "z": ""}, "list": items}), &[]);
        assert_eq!(found, ["/list/10", "/list/2", "/list/1", "/data/a~1b"]);
    }
}
