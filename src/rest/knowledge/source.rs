//! Sources, as callers write them and as the resource has them: `{"type": "google-drive", "folder_id": …}` is
//! `{googleDrive: {folderId: …}}` there.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};
use slipway_http::Error;

use crate::fields::{self, INGESTION, KNOWLEDGE_BASE};

/// The schema of a source that is read once.
pub(super) static ONCE: LazyLock<Value> = LazyLock::new(|| INGESTION["properties"]["source"].clone());
/// The schema of a source of a knowledge base.
pub(super) static NAMED: LazyLock<Value> = LazyLock::new(|| KNOWLEDGE_BASE["properties"]["sources"]["items"].clone());

/// The types of sources in a schema: the field of the resource, and its schema.
fn types(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten().filter(|(_, field)| field["type"] == "object")
}

/// `google-drive` of `googleDrive`.
fn type_of(field: &str) -> String {
    fields::snake(field).replace('_', "-")
}

/// A source of a request, for the resource. `path` names it in messages.
pub(super) fn to_resource(schema: &Value, path: &str, given: Value) -> Result<Value, Error> {
    let wrong = |message: &str| Error::bad_request(format!("{path}{message}"));
    let Value::Object(mut given) = fields::without_nulls(given) else { return Err(wrong(": must be an object")) };
    let known = || types(schema).map(|(field, _)| type_of(field)).collect::<Vec<_>>().join(", ");
    let Some(Value::String(wanted)) = given.remove("type") else {
        return Err(wrong(&format!(".type: is required, one of {}", known())));
    };
    let Some((field, own)) = types(schema).find(|(field, _)| type_of(field) == wanted) else {
        return Err(wrong(&format!(".type: must be one of {}", known())));
    };
    // What is not a field of the type itself: its name, its schedule, its credentials.
    let mut common = Map::new();
    given.retain(|name, value| {
        let spelled = fields::camel(name);
        let is_common =
            own["properties"].get(&spelled).is_none() && schema["properties"].get(&spelled).is_some_and(|field| field["type"] != "object");
        if is_common {
            common.insert(name.clone(), value.take());
        }
        !is_common
    });
    let within = |error: Error| fields::within(path, &error);
    let own = fields::to_resource(own, Value::Object(given)).map_err(within)?;
    let Value::Object(mut source) = fields::to_resource(schema, Value::Object(common)).map_err(within)? else {
        return Err(wrong(": must be an object"));
    };
    source.insert(field.clone(), own);
    Ok(Value::Object(source))
}

/// A source of the resource, for callers.
pub(super) fn to_callers(schema: &Value, source: Value) -> Result<Map<String, Value>, Error> {
    let Value::Object(source) = source else { return Ok(Map::new()) };
    let mut shown = Map::new();
    for (name, value) in source {
        match types(schema).find(|(field, _)| **field == name) {
            Some((field, own)) => {
                shown.insert("type".to_owned(), json!(type_of(field)));
                if let Value::Object(own) = fields::to_callers(own, value)? {
                    shown.extend(own);
                }
            }
            None => drop(shown.insert(fields::snake(&name), value)),
        }
    }
    Ok(shown)
}

/// The schema of a source, as callers write it: one alternative for each type.
pub(super) fn form(schema: &Value) -> Value {
    let common: Map<String, Value> = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, field)| field["type"] != "object")
        .map(|(name, field)| (name.clone(), field.clone()))
        .collect();
    let needed = schema["required"].as_array().cloned().unwrap_or_default();
    let alternatives = types(schema).map(|(field, own)| {
        let mut one = own.clone();
        let mut properties = common.clone();
        properties.extend(own["properties"].as_object().cloned().unwrap_or_default());
        let required = needed.iter().chain(own["required"].as_array().into_iter().flatten()).cloned();
        let required: Vec<Value> = required.chain([json!("type")]).collect();
        properties.insert("type".to_owned(), json!({"type": "string", "enum": [type_of(field)]}));
        one["properties"] = Value::Object(properties);
        one["required"] = Value::Array(required);
        fields::form(&one)
    });
    json!({"oneOf": alternatives.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_read_and_shown_again() {
        for (given, resource) in [
            (json!({"type": "local", "path": "handbook"}), json!({"local": {"path": "handbook"}})),
            (
                json!({"type": "google-drive", "folder_id": "f1", "credentials_secret": "drive"}),
                json!({"googleDrive": {"folderId": "f1"}, "credentialsSecret": "drive"}),
            ),
            (json!({"type": "s3", "bucket": "docs", "prefix": "a/"}), json!({"s3": {"bucket": "docs", "prefix": "a/"}})),
            (
                json!({"type": "confluence", "base_url": "https://x.example", "space_key": "K"}),
                json!({"confluence": {"baseUrl": "https://x.example", "spaceKey": "K"}}),
            ),
            (
                json!({"type": "jira", "base_url": "https://x.example", "project_key": "K"}),
                json!({"jira": {"baseUrl": "https://x.example", "projectKey": "K"}}),
            ),
            (
                json!({"type": "databricks", "host": "https://x.example", "path": "a.b.c"}),
                json!({"databricks": {"host": "https://x.example", "path": "a.b.c"}}),
            ),
        ] {
            let read = to_resource(&ONCE, "source", given.clone()).unwrap();
            assert_eq!(read, resource);
            assert_eq!(Value::Object(to_callers(&ONCE, read).unwrap()), given);
        }
        let named = json!({"name": "wiki", "schedule": "0 3 * * *", "type": "local", "path": "."});
        let read = to_resource(&NAMED, "sources[0]", named.clone()).unwrap();
        assert_eq!(read, json!({"name": "wiki", "schedule": "0 3 * * *", "local": {"path": "."}}));
        assert_eq!(Value::Object(to_callers(&NAMED, read).unwrap()), named);
        let camel = json!({"type": "google-drive", "folderId": "f1", "credentialsSecret": "drive"});
        assert_eq!(to_resource(&ONCE, "source", camel).unwrap()["googleDrive"]["folderId"], "f1");
    }

    #[test]
    fn what_is_wrong_is_named_by_its_path() {
        for (given, says) in [
            (json!("local"), "source: must be an object"),
            (json!({"path": "x"}), "source.type: is required, one of "),
            (json!({"type": "ftp"}), "source.type: must be one of "),
            (json!({"type": "local", "path": "x", "bucket": "b"}), "there is no field `source.bucket`"),
            (json!({"type": "local", "path": 7}), "source.path: must be of type string"),
            (json!({"type": "local", "path": "x".repeat(2000)}), "source.path: must have at most 1024 characters"),
        ] {
            let error = to_resource(&ONCE, "source", given.clone()).unwrap_err();
            assert!(error.message().contains(says), "{given}: {}", error.message());
        }
    }
}
