//! The walk through the schemas of `crds/`: every field of every kind, and how to put a value into its place. A field that is
//! added to a kind is found here without a word.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use serde_json::{Map, Value, json};
use slipway_e2e::ROOT;

use super::values::{Change, edge};

/// A kind as its CRD has it.
pub(super) struct Kind {
    pub name: String,
    pub plural: String,
    pub namespaced: bool,
    pub schema: Value,
}

/// One step from a value to a part of it.
#[derive(Clone)]
pub(super) enum PathStep {
    Name(String),
    /// Into the elements of a list.
    Item,
    /// Into the values of a map.
    Entry,
}

/// A place in a kind's spec or status.
pub(super) struct Field {
    pub kind: String,
    pub steps: Vec<PathStep>,
    /// The kind's schema, and that of each step's end.
    schemas: Vec<Value>,
    /// Whether it lies in an object whose schema the kind has in another place already, as it has terms of affinity.
    pub repeated: bool,
}

pub(super) fn kinds() -> Vec<Kind> {
    let read = |path| -> Value { serde_yaml::from_str(&fs::read_to_string(path).unwrap()).unwrap() };
    let mut kinds: Vec<_> = fs::read_dir(format!("{ROOT}/crds")).unwrap().map(|entry| kind(&read(entry.unwrap().path()))).collect();
    kinds.sort_by(|a, b| a.name.cmp(&b.name));
    kinds
}

fn kind(crd: &Value) -> Kind {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    let [version] = &versions[..] else { panic!("which of the versions is mutated? {}", crd["metadata"]["name"]) };
    Kind {
        name: crd["spec"]["names"]["kind"].as_str().unwrap().to_owned(),
        plural: crd["spec"]["names"]["plural"].as_str().unwrap().to_owned(),
        namespaced: crd["spec"]["scope"] == "Namespaced",
        schema: version["schema"]["openAPIV3Schema"].clone(),
    }
}

impl Kind {
    /// Every place in a part of it (`spec`, `status`), the part itself first.
    pub(super) fn fields(&self, part: &str) -> Vec<Field> {
        let schemas = vec![self.schema.clone(), self.schema["properties"][part].clone()];
        let first = Field { kind: self.name.clone(), steps: vec![PathStep::Name(part.to_owned())], schemas, repeated: false };
        let (mut fields, mut known) = (Vec::new(), BTreeSet::new());
        walk(first, &mut fields, &mut known);
        fields
    }
}

fn walk(field: Field, fields: &mut Vec<Field>, known: &mut BTreeSet<String>) {
    let schema = field.schema().clone();
    let below = |step: PathStep, schema: &Value, repeated: bool| Field {
        kind: field.kind.clone(),
        steps: field.steps.iter().cloned().chain([step]).collect(),
        schemas: field.schemas.iter().cloned().chain([schema.clone()]).collect(),
        repeated,
    };
    let mut inner = Vec::new();
    if let Some(properties) = schema["properties"].as_object() {
        let repeated = field.repeated || !known.insert(schema.to_string());
        inner.extend(properties.iter().map(|(name, schema)| below(PathStep::Name(name.clone()), schema, repeated)));
    }
    for (step, schema) in [(PathStep::Item, &schema["items"]), (PathStep::Entry, &schema["additionalProperties"])] {
        if schema.is_object() {
            inner.push(below(step, schema, field.repeated));
        }
    }
    fields.push(field);
    // What a canary has of its agent's blocks is met there, and need only be in force.
    inner.sort_by_key(|field| field.names().next_back() == Some("canary"));
    for field in inner {
        walk(field, fields, known);
    }
}

impl Field {
    pub(super) fn schema(&self) -> &Value {
        self.schemas.last().unwrap_or(&Value::Null)
    }

    /// `spec` or `status`.
    pub(super) fn part(&self) -> &str {
        self.names().next().unwrap_or_default()
    }

    /// The names on the way, the field's own last.
    pub(super) fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.steps.iter().filter_map(|step| if let PathStep::Name(name) = step { Some(name.as_str()) } else { None })
    }

    /// What lies beside it in the same object.
    pub(super) fn siblings(&self) -> impl Iterator<Item = &str> {
        let parents = self.schemas.iter().rev().skip(1);
        parents.take(1).filter_map(|schema| schema["properties"].as_object()).flat_map(|fields| fields.keys().map(String::as_str))
    }

    /// The fields at the top of the part that it is in.
    pub(super) fn neighbours(&self) -> impl Iterator<Item = &str> {
        let parts = self.schemas.get(1).and_then(|schema| schema["properties"].as_object());
        parts.into_iter().flat_map(|fields| fields.keys().map(String::as_str))
    }

    /// What an object has in this place.
    pub(super) fn of<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.steps.iter().try_fold(object, |value, step| match step {
            PathStep::Name(name) => value.get(name),
            PathStep::Item => value.get(0),
            PathStep::Entry => value.as_object()?.values().next(),
        })
    }

    /// The object with another value in this place. What is missing on the way there is made.
    pub(super) fn changed(&self, object: &Value, change: &Change) -> Value {
        let mut whole = object.clone();
        change_in(&mut whole, &self.steps, &self.schemas[1..], change);
        whole
    }
}

fn change_in(value: &mut Value, steps: &[PathStep], schemas: &[Value], change: &Change) {
    let ([step, steps @ ..], [schema, schemas @ ..]) = (steps, schemas) else { return };
    let key = match step {
        PathStep::Name(name) => name.clone(),
        PathStep::Entry => value.as_object().and_then(|map| map.keys().next().cloned()).unwrap_or_else(|| "a".to_owned()),
        PathStep::Item => {
            if !value.is_array() {
                *value = json!([]);
            }
            let Some(list) = value.as_array_mut() else { return };
            if list.is_empty() {
                list.push(sample(schema));
            }
            match (steps, change) {
                ([], Change::Absent) => drop(list.remove(0)),
                ([], Change::To(other)) => list[0] = other.clone(),
                _ => change_in(&mut list[0], steps, schemas, change),
            }
            return;
        }
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Some(map) = value.as_object_mut() else { return };
    match (steps, change) {
        ([], Change::Absent) => drop(map.remove(&key)),
        ([], Change::To(other)) => drop(map.insert(key, other.clone())),
        _ => change_in(map.entry(key).or_insert_with(|| sample(schema)), steps, schemas, change),
    }
}

/// The smallest value that a schema asks for.
pub(super) fn sample(schema: &Value) -> Value {
    if !schema["default"].is_null() {
        return schema["default"].clone();
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema["type"].as_str() {
        Some("string") => json!("a".repeat(schema["minLength"].as_u64().map_or(1, |least| least.max(1).try_into().unwrap()))),
        Some("integer" | "number") => json!(edge(schema, "minimum").unwrap_or(0)),
        Some("boolean") => json!(false),
        Some("array") => json!([]),
        Some("object") => {
            let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            Value::Object(required.map(|name| (name.to_owned(), sample(&schema["properties"][name]))).collect::<Map<_, _>>())
        }
        _ => json!(1),
    }
}

/// As in `Tool.spec.headersFrom[].name` and `Team.spec.quota{}`.
impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        self.steps.iter().try_for_each(|step| match step {
            PathStep::Name(name) => write!(f, ".{name}"),
            PathStep::Item => write!(f, "[]"),
            PathStep::Entry => write!(f, "{{}}"),
        })
    }
}
