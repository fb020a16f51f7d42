//! Schema fragments that the derive macros cannot express by themselves, and what schemas let through.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, DeserializeOwned, Deserializer};
use serde_json::{Map, Value, json};

/// The longest name with a domain before it, as keys of labels are: 253 characters, a slash and 63. Names of objects,
/// values of labels and words of Kubernetes' own are shorter.
const MAX_KEY: u64 = 317;

/// The schema of a Kubernetes type that holds names and labels, with a limit on every string, list and map in it.
///
/// Upstream types carry no limits; without them one object could fill the cluster's storage. What is longer, the API
/// server refuses in a pod.
pub(crate) fn bounded<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = generator.subschema_for::<T>();
    if let Some(object) = schema.as_object_mut() {
        limit(object, MAX_KEY);
    }
    schema
}

/// Labels, or what selects by them.
pub(crate) fn label_map(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 63}})
}

/// Annotations.
pub(crate) fn annotations(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string", "maxLength": 1024}})
}

fn limit(schema: &mut Map<String, Value>, longest: u64) {
    let (keyword, most) = match schema.get("type").map(type_name) {
        Some("string") if schema.get("enum").is_none() => ("maxLength", longest),
        Some("array") => ("maxItems", 64),
        Some("object") if schema.contains_key("additionalProperties") => ("maxProperties", 64),
        _ => ("", 0),
    };
    if most > 0 {
        schema.entry(keyword).or_insert(json!(most));
    }
    for value in schema.values_mut() {
        match value {
            Value::Object(inner) => limit(inner, longest),
            Value::Array(list) => list.iter_mut().filter_map(Value::as_object_mut).for_each(|inner| limit(inner, longest)),
            _ => {}
        }
    }
}

/// `"string"` of both `"string"` and `["string", "null"]`.
pub(crate) fn type_name(value: &Value) -> &str {
    let first = value.as_array().and_then(|list| list.first()).unwrap_or(value);
    first.as_str().unwrap_or_default()
}

/// A map from resource name to quantity, accepting `cpu: 1` as well as `cpu: "1"`.
pub(crate) fn quantities(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {
            "x-kubernetes-int-or-string": true,
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "maxLength": 32,
            "minimum": 0,
            "pattern": "^\\+?([0-9]+(\\.[0-9]*)?|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$",
        },
    })
}

/// The same with room for counts of objects by kind.
pub(crate) fn quota(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = quantities(generator);
    schema.insert("maxProperties".to_owned(), json!(64));
    schema
}

/// An amount of money above nothing, accepting `5` as well as `"2.50"`.
pub(crate) fn amount(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maxLength": 16,
        "minimum": 1,
        "pattern": "^(0*[1-9][0-9]*([.][0-9]{1,6})?|0*[.]0*[1-9][0-9]*|0+[.]0*[1-9][0-9]*)$",
    })
}

/// A price, which may be nothing, accepting `3` as well as `"0.25"`.
pub(crate) fn price(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "maxLength": 16,
        "minimum": 0,
        "pattern": "^[0-9]{1,8}([.][0-9]{1,6})?$",
    })
}

/// The standard list of conditions, merged by type.
pub(crate) fn conditions(generator: &mut SchemaGenerator) -> Schema {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    let mut schema = json_schema!({
        "type": "array",
        "items": generator.subschema_for::<Condition>(),
        "maxItems": 32,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    });
    if let Some(items) = schema.get_mut("items").and_then(Value::as_object_mut) {
        limit(items, 1024);
        if let Some(message) = items.get_mut("properties").and_then(|p| p.get_mut("message")) {
            message["maxLength"] = json!(32768);
        }
    }
    schema
}

/// A part of a status, or nothing where it cannot be: the schema takes an empty text for a time and any number for one of 32
/// bits. Such a value must not keep the whole object from being read; the controller that owns the status mends it.
pub(crate) fn readable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AgentStatus;

    #[test]
    fn a_status_with_what_cannot_be_is_read_without_it() {
        let forged = json!({"replicas": 1_i64 << 31, "observedGeneration": 1e300, "firstDeployedAt": "", "id": "ag_1",
            "conditions": [{"type": "Ready", "status": "True", "reason": "X", "message": "", "lastTransitionTime": ""}]});
        let status: AgentStatus = serde_json::from_value(forged).unwrap();
        assert_eq!(status, AgentStatus { id: Some("ag_1".to_owned()), ..Default::default() });
    }
}
