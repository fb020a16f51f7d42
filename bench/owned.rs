//! The part of an object that one writer has set, by the API server's own book of who owns which field.

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

/// What `writer` once applied to make `object` what it is; none if it applied nothing.
pub(crate) fn applied(object: &DynamicObject, writer: &str) -> Option<Value> {
    let entry = object.managed_fields().iter().find(|entry| entry.manager.as_deref() == Some(writer) && entry.subresource.is_none())?;
    let live = serde_json::to_value(object).ok()?;
    let mut body = part(entry.fields_v1.as_ref()?.0.as_object()?, &live);
    for (name, value) in [("apiVersion", &live["apiVersion"]), ("kind", &live["kind"])] {
        body[name] = value.clone();
    }
    body["metadata"]["name"] = json!(object.name_any());
    Some(body)
}

fn part(fields: &Map<String, Value>, live: &Value) -> Value {
    match live {
        Value::Object(live) => {
            let one = |(key, inner): (&String, &Value)| {
                let name = key.strip_prefix("f:")?;
                Some((name.to_owned(), whole_or_part(inner, live.get(name)?)))
            };
            Value::Object(fields.iter().filter_map(one).collect())
        }
        Value::Array(items) => {
            let one = |item: &Value| Some(whole_or_part(fields.iter().find(|(key, _)| names(key, item))?.1, item));
            Value::Array(items.iter().filter_map(one).collect())
        }
        leaf => leaf.clone(),
    }
}

/// A field with nothing below it is owned with all that is in it.
fn whole_or_part(inner: &Value, live: &Value) -> Value {
    match inner.as_object() {
        Some(fields) if !fields.is_empty() => part(fields, live),
        _ => live.clone(),
    }
}

/// Whether a key such as `k:{"name":"http"}` or `v:"x"` means this item of a list.
fn names(key: &str, item: &Value) -> bool {
    match key.split_once(':') {
        Some(("k", json)) => serde_json::from_str::<Map<String, Value>>(json)
            .is_ok_and(|keys| keys.iter().all(|(name, value)| item.get(name) == Some(value))),
        Some(("v", json)) => serde_json::from_str::<Value>(json).is_ok_and(|value| value == *item),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_has_filled_in_is_left_out() {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "uid": "1", "labels": {"x": "y", "of": "others"}, "managedFields": [
                {"manager": "us", "subresource": "status", "fieldsV1": {"f:status": {}}},
                {"manager": "us", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:x": {}}},
                    "f:spec": {"f:selector": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}},
                }},
            ]},
            "spec": {"clusterIP": "10.0.0.1", "selector": {"a": "b"}, "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}]},
        }))
        .unwrap();
        let expected = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a", "labels": {"x": "y"}},
            "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]},
        });
        assert_eq!(applied(&object, "us"), Some(expected));
        assert_eq!(applied(&object, "them"), None);
    }
}
