//! Telling how an object differs from what it should be.

use serde_json::{Map, Value};

/// Everything in `expected` must be in `actual`, lists element by element; `actual` may hold more fields.
#[track_caller]
pub fn assert_holds(what: &str, expected: &Value, actual: &Value) {
    let mut differences = Vec::new();
    compare("", expected, actual, &mut differences);
    assert!(differences.is_empty(), "{what} differs:\n  {}\nwhole: {:#}", differences.join("\n  "), essence(actual));
}

fn compare(path: &str, expected: &Value, actual: &Value, differences: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(fields), Value::Object(_)) => {
            for (name, value) in fields {
                compare(&format!("{path}.{name}"), value, &actual[name], differences);
            }
        }
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => {
            for (index, (value, other)) in wanted.iter().zip(got).enumerate() {
                compare(&format!("{path}[{index}]"), value, other, differences);
            }
        }
        _ if expected == actual => {}
        _ => differences.push(format!("{path}: expected {expected}, got {actual}")),
    }
}

/// An object without what the API server adds: what tells whether a repair restored it.
pub fn essence(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"] {
            metadata.remove(field);
        }
    }
    object
}

/// What somebody decided about an object: labels, owners and everything but status. Annotations are left out, being anyone's.
pub fn settings(object: &Value) -> Value {
    let mut rest: Map<String, Value> = essence(object).as_object().cloned().unwrap_or_default();
    rest.remove("status");
    if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("annotations");
    }
    Value::Object(rest)
}
