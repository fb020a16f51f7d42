//! Merge patches as API servers read them, for tests that stand in for one.

use serde_json::{Map, Value};

/// As in RFC 7396.
pub fn merge_patch(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else { return *value = patch };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else { return };
    for (name, inner) in patch {
        if inner.is_null() {
            fields.remove(&name);
        } else {
            merge_patch(fields.entry(name).or_insert(Value::Null), inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_sets_merges_and_removes() {
        for (mut value, patch, merged) in [
            (json!({"a": 1, "b": {"c": 2, "d": 3}}), json!({"b": {"c": null, "e": 4}}), json!({"a": 1, "b": {"d": 3, "e": 4}})),
            (json!({"a": [1, 2]}), json!({"a": [3], "b": {"c": null}}), json!({"a": [3], "b": {}})),
            (json!({"a": "text"}), json!({"a": {"b": 1}}), json!({"a": {"b": 1}})),
            (json!({"a": 1}), json!([2]), json!([2])),
        ] {
            merge_patch(&mut value, patch);
            assert_eq!(value, merged);
        }
    }
}
