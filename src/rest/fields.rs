//! Field names: `system_prompt` here is `systemPrompt` in the resource. Requests may use both spellings, replies use the
//! first. The schema of the resource tells fields from keys of maps, which stay as they are. Unknown fields are reported
//! with their path.

use std::collections::HashSet;
use std::sync::LazyLock;

use kube::CustomResourceExt;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value, json};
use slipway_http::Error;

use crate::validate;

/// The pattern of resource names, for the OpenAPI document.
pub(crate) const NAME: &str = "^[a-z]([-a-z0-9]*[a-z0-9])?$";

/// The schema of a kind's spec.
pub(crate) type Fields = LazyLock<Value>;

pub(crate) static AGENT: Fields = LazyLock::new(spec::<slipway_api::Agent>);
pub(crate) static SKILL: Fields = LazyLock::new(spec::<slipway_api::Skill>);
pub(crate) static TOOL: Fields = LazyLock::new(spec::<slipway_api::Tool>);
pub(crate) static TEAM: Fields = LazyLock::new(spec::<slipway_api::Team>);
pub(crate) static RELEASE: Fields = LazyLock::new(spec::<slipway_api::AgentRelease>);
pub(crate) static DATASET: Fields = LazyLock::new(spec::<slipway_api::Dataset>);
pub(crate) static EVALUATION_RUN: Fields = LazyLock::new(spec::<slipway_api::EvaluationRun>);
pub(crate) static GUARDRAIL_POLICY: Fields = LazyLock::new(spec::<slipway_api::GuardrailPolicy>);
pub(crate) static KNOWLEDGE_BASE: Fields = LazyLock::new(spec::<slipway_api::KnowledgeBase>);
pub(crate) static INTEGRATION: Fields = LazyLock::new(spec::<slipway_api::Integration>);
pub(crate) static INGESTION: Fields = LazyLock::new(spec::<slipway_api::Ingestion>);

/// The schema of each kind's spec, by the kind.
pub(crate) static KINDS: [(&str, &Fields); 11] = [
    ("Agent", &AGENT),
    ("AgentRelease", &RELEASE),
    ("Dataset", &DATASET),
    ("EvaluationRun", &EVALUATION_RUN),
    ("GuardrailPolicy", &GUARDRAIL_POLICY),
    ("Ingestion", &INGESTION),
    ("Integration", &INTEGRATION),
    ("KnowledgeBase", &KNOWLEDGE_BASE),
    ("Skill", &SKILL),
    ("Team", &TEAM),
    ("Tool", &TOOL),
];

fn spec<K: CustomResourceExt>() -> Value {
    let crd = K::crd();
    let schema = crd.spec.versions.into_iter().next().and_then(|version| version.schema?.open_api_v3_schema);
    let spec = schema.and_then(|schema| schema.properties?.remove("spec"));
    serde_json::to_value(spec).unwrap_or_default()
}

/// Renames the fields of a request for the resource, and validates types and sizes.
pub(crate) fn to_resource(schema: &Value, value: Value) -> Result<Value, Error> {
    let value = walk(schema, value, &mut String::new(), &|name, known| {
        let name = camel(name);
        known.contains_key(&name).then_some(name)
    })?;
    validate::spec(schema, &value)?;
    Ok(value)
}

/// An error about a part of a body, with the part's path in its words.
pub(crate) fn within(path: &str, error: &Error) -> Error {
    let message = error.message();
    let named = ["there is no field `", "the field `"].into_iter().find(|words| message.starts_with(*words));
    Error::bad_request(match named {
        Some(words) => message.replacen(words, &format!("{words}{path}."), 1),
        None => format!("{path}.{message}"),
    })
}

/// Renames the fields of a resource for callers.
pub(crate) fn to_callers(schema: &Value, value: Value) -> Result<Value, Error> {
    walk(schema, value, &mut String::new(), &|name, _| Some(snake(name)))
}

/// The other spelling of a field; none if the schema has no such field.
type Spelled<'a> = &'a dyn Fn(&str, &Map<String, Value>) -> Option<String>;

fn walk(schema: &Value, value: Value, path: &mut String, spelled: Spelled) -> Result<Value, Error> {
    let within = |path: &mut String, step: &str, schema: &Value, value: Value| {
        let length = path.len();
        path.push_str(step);
        let value = walk(schema, value, path, spelled);
        path.truncate(length);
        value
    };
    match value {
        Value::Object(object) => {
            let mut renamed = Map::new();
            for (name, value) in object {
                let step = if path.is_empty() { name.clone() } else { format!(".{name}") };
                let (name, inner) = if let Some(known) = schema["properties"].as_object() {
                    let Some(other) = spelled(&name, known) else {
                        return Err(Error::bad_request(format!("there is no field `{path}{step}`")));
                    };
                    let inner = known.get(&other).or_else(|| known.get(&name)).unwrap_or(&Value::Null);
                    (other, inner)
                } else {
                    (name, &schema["additionalProperties"])
                };
                let value = within(path, &step, inner, value)?;
                if renamed.insert(name, value).is_some() {
                    return Err(Error::bad_request(format!("the field `{path}{step}` is there twice, in two spellings")));
                }
            }
            Ok(Value::Object(renamed))
        }
        Value::Array(list) => {
            let items = list.into_iter().enumerate();
            items.map(|(at, value)| within(path, &format!("[{at}]"), &schema["items"], value)).collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Number(number) if number.is_f64() && schema["type"] == "integer" => Ok(Value::Number(whole(number))),
        value => Ok(value),
    }
}

/// 1.0 is an integer in JSON Schema, but not for the API server.
fn whole(number: Number) -> Number {
    number.as_f64().and_then(|float| format!("{float}").parse::<i64>().ok()).map_or(number, Number::from)
}

/// An integer, however it is written, of a body that has no schema of the cluster's.
pub(crate) fn integer<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let number = whole(Number::deserialize(from)?);
    number.as_i64().and_then(|number| i32::try_from(number).ok()).ok_or_else(|| D::Error::custom(format!("{number} is no integer")))
}

/// All fields of our kinds whose spelling differs.
static RESPELLED: LazyLock<HashSet<String>> = LazyLock::new(|| {
    fn each(schema: &Value, names: &mut HashSet<String>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            if name.contains(|letter: char| letter.is_ascii_uppercase()) {
                names.insert(name.clone());
            }
            each(field, names);
            each(&field["items"], names);
        }
    }
    let mut names = HashSet::new();
    for (_, schema) in KINDS {
        each(schema, &mut names);
    }
    names
});

/// Renames fields in messages of the API server: `spec.modelType` becomes `model_type`. Quoted text stays.
pub(crate) fn spelled(text: &str) -> String {
    let mut told = String::with_capacity(text.len() + 8);
    for (at, part) in text.split('"').enumerate() {
        if at > 0 {
            told.push('"');
        }
        if at % 2 == 1 {
            told.push_str(part);
            continue;
        }
        let mut rest = part;
        while !rest.is_empty() {
            let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            let path = word == "spec" && after.starts_with('.') && after[1..].starts_with(|letter: char| letter.is_ascii_lowercase());
            if path {
                rest = &after[1..];
                continue;
            }
            told.push_str(&if RESPELLED.contains(word) { snake(word) } else { word.to_owned() });
            let next = after.find(|letter: char| letter.is_ascii_alphanumeric()).unwrap_or(after.len());
            told.push_str(&after[..next]);
            rest = &after[next..];
        }
    }
    told
}

/// Removes fields that are null: for a new object they are the same as missing ones.
pub(crate) fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            let said = object.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(said.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        Value::Array(list) => Value::Array(list.into_iter().map(without_nulls).collect()),
        value => value,
    }
}

pub(crate) fn camel(name: &str) -> String {
    let mut parts = name.split('_');
    let mut camel = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut letters = part.chars();
        camel.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// An agent's fields in the callers' spelling, for the OpenAPI document.
pub(crate) fn agent_form(_: &mut SchemaGenerator) -> Schema {
    let mut schema = form(&AGENT);
    if let Some(object) = schema.as_object_mut() {
        object.remove("required");
    }
    Schema::try_from(schema).unwrap_or_default()
}

/// A schema with renamed fields, and without the extensions of Kubernetes.
pub(crate) fn form(schema: &Value) -> Value {
    let Some(object) = schema.as_object() else { return schema.clone() };
    let mut renamed = Map::new();
    let int_or_string = schema["x-kubernetes-int-or-string"] == true;
    for (name, value) in object {
        let value = match name.as_str() {
            name if name.starts_with("x-kubernetes-") => continue,
            "nullable" | "default" => continue,
            // Kubernetes keeps only the number of alternatives.
            "anyOf" if int_or_string => continue,
            "properties" => {
                let needed =
                    |name: &String| object.get("required").and_then(Value::as_array).is_some_and(|all| all.iter().any(|one| one == name));
                let fields = value.as_object().into_iter().flatten();
                Value::Object(
                    fields.map(|(name, field)| (snake(name), if needed(name) { form(field) } else { optional(form(field)) })).collect(),
                )
            }
            "required" => value.as_array().into_iter().flatten().filter_map(Value::as_str).map(|name| Value::String(snake(name))).collect(),
            "items" | "additionalProperties" => form(value),
            "anyOf" => value.as_array().into_iter().flatten().map(form).collect(),
            _ => value.clone(),
        };
        renamed.insert(name.clone(), value);
    }
    if int_or_string {
        renamed.insert("type".to_owned(), json!(["integer", "string"]));
        // The API server takes a larger number for one that is no integer.
        renamed.entry("maximum").or_insert(json!(i64::MAX));
    }
    if schema["x-kubernetes-list-type"] == "set" {
        renamed.insert("uniqueItems".to_owned(), json!(true));
    }
    Value::Object(renamed)
}

/// The schema of an optional field, which may be null.
fn optional(mut field: Value) -> Value {
    match field.get_mut("type") {
        Some(Value::Array(kinds)) => kinds.push(json!("null")),
        Some(kind) => *kind = json!([kind.take(), "null"]),
        None => {}
    }
    for several in ["enum", "anyOf"] {
        let null = if several == "enum" { Value::Null } else { json!({"type": "null"}) };
        if let Some(list) = field.get_mut(several).and_then(Value::as_array_mut) {
            list.push(null);
        }
    }
    field
}

/// Any agent fields, in a partial body.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct AgentFields(pub Map<String, Value>);

impl JsonSchema for AgentFields {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AgentConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        agent_form(generator)
    }
}

/// The fields of an agent that is to be made.
#[derive(Debug, Clone, serde::Deserialize)]
#[serde(transparent)]
pub(crate) struct NewAgent(pub Map<String, Value>);

impl JsonSchema for NewAgent {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewAgent".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let config = generator.subschema_for::<AgentFields>().to_value();
        let mut schema = form(&AGENT);
        schema["properties"]["slug"] = json!({"type": ["string", "null"], "maxLength": 52, "pattern": NAME, "description": "What the id, the address and paths are made of. Default: the name in lower case, with hyphens."});
        schema["properties"]["config"] =
            json!({"anyOf": [config, {"type": "null"}], "description": "Fields may stand in here as well, as they do in answers."});
        Schema::try_from(schema).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_kind_is_in_the_table_with_its_own_schema() {
        let all = slipway_api::crd::all();
        for crd in &all {
            let kind = &crd.spec.names.kind;
            let found = KINDS.iter().find(|(known, _)| known == kind);
            let (_, schema) = found.unwrap_or_else(|| panic!("{kind} is not in KINDS, so that its requests are not validated"));
            let crd = serde_json::to_value(crd).unwrap();
            let expected = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
            assert!(expected["properties"].is_object() && ***schema == *expected, "{kind} has the schema of another kind");
        }
        assert_eq!(KINDS.len(), all.len());
    }

    #[test]
    fn both_spellings_are_read_and_one_is_written() {
        for sent in [
            json!({"model_type": "stub", "governance": {"guards": [], "limits": {"daily_cost_usd": 5}}}),
            json!({"modelType": "stub", "governance": {"guards": [], "limits": {"dailyCostUsd": 5}}}),
        ] {
            let resource = to_resource(&AGENT, sent).unwrap();
            assert_eq!(resource, json!({"modelType": "stub", "governance": {"guards": [], "limits": {"dailyCostUsd": 5}}}));
            let back = to_callers(&AGENT, resource).unwrap();
            assert_eq!(back, json!({"model_type": "stub", "governance": {"guards": [], "limits": {"daily_cost_usd": 5}}}));
        }
    }

    #[test]
    fn whole_numbers_are_integers_however_they_are_written() {
        let resource = to_resource(&AGENT, json!({"replicas": 2.0})).unwrap();
        assert_eq!(resource.to_string(), r#"{"replicas":2}"#);
        assert!(to_resource(&AGENT, json!({"replicas": 2.5})).is_err());
    }

    #[test]
    fn names_within_maps_stay_as_they_are() {
        let sent = json!({"pod_template": {"labels": {"my_label": "a", "myLabel": "b"}, "node_selector": {"disk_type": "ssd"}}});
        let resource = to_resource(&AGENT, sent.clone()).unwrap();
        assert_eq!(resource["podTemplate"]["labels"], sent["pod_template"]["labels"]);
        assert_eq!(to_callers(&AGENT, resource).unwrap(), sent);
    }

    #[test]
    fn the_document_says_what_the_clusters_own_keywords_say() {
        let agent = &form(&AGENT)["properties"];
        let amount = &agent["resources"]["properties"]["limits"]["additionalProperties"];
        assert_eq!((&amount["type"], amount.get("anyOf")), (&json!(["integer", "string"]), None));
        let cost = &agent["governance"]["properties"]["limits"]["properties"]["daily_cost_usd"];
        assert_eq!((&cost["type"], cost.get("anyOf")), (&json!(["integer", "string", "null"]), None));
        assert_eq!(agent["tools"]["uniqueItems"], true);
        assert_eq!(form(&TOOL)["properties"]["parameters"].get("uniqueItems"), None);
    }

    #[test]
    fn a_field_that_does_not_exist_is_named_by_its_path() {
        for (sent, says) in [
            (json!({"colour": 1}), "`colour`"),
            (json!({"governance": {"limits": {"per_day": 1}}}), "`governance.limits.per_day`"),
            (json!({"pod_template": {"tolerations": [{"keys": "x"}]}}), "`pod_template.tolerations[0].keys`"),
            (json!({"model_type": "stub", "modelType": "stub"}), "two spellings"),
        ] {
            let error = to_resource(&AGENT, sent).unwrap_err();
            assert!(error.message().contains(says), "{}", error.message());
        }
    }

    #[test]
    fn what_the_cluster_says_is_respelled_but_for_quotes_and_other_words() {
        for (text, expected) in [
            ("spec.modelType", "model_type"),
            ("spec.podTemplate.tolerations[0].tolerationSeconds", "pod_template.tolerations[0].toleration_seconds"),
            ("spec.envSecrets: Secret \"modelType\" of FooBar", "env_secrets: Secret \"modelType\" of FooBar"),
            ("limits.dailyCostUsd, mcpEndpoint", "limits.daily_cost_usd, mcp_endpoint"),
            ("the spec. And \"an open quote: modelType", "the spec. And \"an open quote: modelType"),
            ("spec", "spec"),
            ("naïve – modelId", "naïve – model_id"),
        ] {
            assert_eq!(spelled(text), expected);
        }
    }

    #[test]
    fn every_field_of_an_agent_comes_back_from_the_other_spelling() {
        fn each(schema: &Value, names: &mut Vec<String>) {
            for (name, field) in schema["properties"].as_object().into_iter().flatten() {
                names.push(name.clone());
                each(field, names);
                each(&field["items"], names);
            }
        }
        let mut names = Vec::new();
        each(&AGENT, &mut names);
        assert!(names.len() > 50, "{names:?}");
        for name in names {
            assert_eq!(camel(&snake(&name)), name);
        }
    }

    proptest! {
        #[test]
        fn no_body_brings_it_down(text in "[a-zA-Z_.]{0,12}", number in any::<i64>()) {
            let _ = to_resource(&AGENT, json!({ text.clone(): number, "governance": { text.clone(): [number] } }));
            let _ = to_callers(&AGENT, json!({ text.clone(): number }));
            let _ = spelled(&text);
        }
    }
}
