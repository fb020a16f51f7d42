//! For tests: Agents, artifacts of them, and every spec that the Agent's schema allows.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use slipway_api::{Agent, AgentSpec};

use crate::strange;
use crate::{Artifact, Metadata, Resolved, Status};

pub(crate) fn agent(spec: &str) -> Agent {
    let yaml = format!("{{metadata: {{name: helper, namespace: team-a}}, spec: {{name: Helper, framework: custom, {spec}}}}}");
    serde_yaml::from_str(&yaml).unwrap()
}

pub(crate) fn metadata() -> Metadata {
    Metadata {
        name: "helper".to_owned(),
        version: 3,
        previous: 2,
        author: "ada@example.com".to_owned(),
        timestamp: "2026-11-21T14:00:00Z".parse().unwrap(),
        changelog: "Speaks of breakfast.".to_owned(),
        checksum: String::new(),
        status: Status::Active,
        deleted_at: None,
    }
}

pub(crate) fn artifact(spec: &str) -> Artifact {
    Artifact::of(&agent(spec), Resolved::default(), metadata())
}

/// An artifact that says something in every block.
pub(crate) fn full() -> Artifact {
    let agent: Agent = serde_yaml::from_str(include_str!("../../testdata/full.in.yaml")).unwrap();
    let digest = |letter: &str| format!("sha256:{}", letter.repeat(64));
    let resolved = Resolved {
        image: Some(digest("a")),
        tools: [("clock".to_owned(), digest("b")), ("weather".to_owned(), digest("c"))].into(),
        skills: [("house-rules".to_owned(), digest("d"))].into(),
        knowledge_bases: [("guide".to_owned(), digest("e"))].into(),
        ..Resolved::default()
    };
    let metadata = Metadata { name: "concierge".to_owned(), ..metadata() };
    Artifact::of(&agent, resolved, metadata).sealed().unwrap()
}

/// The schema of an Agent's spec.
pub(crate) fn schema() -> Value {
    let crds = slipway_api::crd::all();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == "Agent").unwrap();
    let schema = crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
    serde_json::to_value(&schema.properties.as_ref().unwrap()["spec"]).unwrap()
}

/// Every field in a schema that holds a value, with documents that set this field alone.
pub(crate) fn leaves(schema: &Value) -> Vec<(String, Vec<Value>)> {
    let wrapped = |inner: &Value, step: &str, wrap: &dyn Fn(Value) -> Value| {
        let within = leaves(inner).into_iter();
        within.map(|(path, values)| (format!("{step}{path}"), values.into_iter().map(wrap).collect())).collect::<Vec<_>>()
    };
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> = words.iter().filter(|word| !word.is_null()).cloned().collect();
        // One word says nothing. With a second one, the field will be looked at.
        return if words.len() < 2 { Vec::new() } else { vec![(String::new(), words)] };
    }
    if let Some(fields) = schema["properties"].as_object() {
        let each = |(name, inner): (&String, &Value)| wrapped(inner, &format!(".{name}"), &|value| json!({ name: whole(inner, value) }));
        return fields.iter().flat_map(each).collect();
    }
    if !schema["additionalProperties"].is_null() {
        return wrapped(&schema["additionalProperties"], "{}", &|value| json!({ "sample": value }));
    }
    match schema["type"].as_str() {
        Some("array") => wrapped(&schema["items"], "[]", &|value| json!([whole(&schema["items"], value)])),
        Some("boolean") => vec![(String::new(), vec![json!(true), json!(false)])],
        Some("integer") => vec![(String::new(), vec![json!(7)])],
        Some("object") => vec![(String::new(), vec![json!({})])],
        _ => vec![(String::new(), vec![json!("7")])],
    }
}

/// A block or an item of a list, with the fields that none is without.
fn whole(schema: &Value, mut item: Value) -> Value {
    let Some(fields) = item.as_object_mut() else { return item };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        let sample = || leaves(&schema["properties"][name]).into_iter().flat_map(|(_, values)| values).next().unwrap_or_default();
        fields.entry(name).or_insert_with(sample);
    }
    item
}

/// Any spec that has the schema's shape; rules between fields are not kept.
pub(crate) fn spec() -> BoxedStrategy<AgentSpec> {
    shaped(&schema(), true).prop_map(|value| serde_json::from_value(value).unwrap()).boxed()
}

fn shaped(schema: &Value, top: bool) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return prop::sample::select(words.iter().filter(|word| !word.is_null()).cloned().collect::<Vec<_>>()).boxed();
    }
    if let Some(fields) = schema["properties"].as_object() {
        let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|field| field == name));
        let chance = if top { 0.4 } else { 0.3 };
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, inner)| {
                let inner = shaped(inner, false);
                let inner = if required(name) { inner.prop_map(Some).boxed() } else { prop::option::weighted(chance, inner).boxed() };
                let name = name.clone();
                inner.prop_map(move |value| value.map(|value| (name.clone(), value)))
            })
            .collect();
        return fields.prop_map(|fields| fields.into_iter().flatten().collect::<Map<_, _>>().into()).boxed();
    }
    if !schema["additionalProperties"].is_null() {
        let values = shaped(&schema["additionalProperties"], false);
        return prop::collection::btree_map(strange::string(), values, 0..3)
            .prop_map(|map| map.into_iter().collect::<Map<_, _>>().into())
            .boxed();
    }
    match schema["type"].as_str() {
        Some("array") => prop::collection::vec(shaped(&schema["items"], false), 0..3).prop_map(Value::from).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        #[expect(clippy::cast_possible_truncation, reason = "bounds of the schema are whole numbers that fit")]
        Some("integer") => {
            let bound = |keyword: &str, other: i32| schema[keyword].as_f64().map_or(other, |bound| bound as i32);
            (bound("minimum", i32::MIN)..=bound("maximum", i32::MAX)).prop_map(Value::from).boxed()
        }
        Some("object") => Just(json!({})).boxed(),
        _ if schema["x-kubernetes-int-or-string"] == true => {
            prop_oneof![(1..1000).prop_map(Value::from), "[1-9][0-9]{0,3}".prop_map(Value::from)].boxed()
        }
        _ => strange::string().prop_map(Value::from).boxed(),
    }
}
