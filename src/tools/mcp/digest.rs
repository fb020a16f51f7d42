//! The digest of a server's tool list (threat 14): independent of order, and different as soon as a name, a description, a
//! schema or an annotation changes. The status of a Tool stores it, so that a change of this function makes all lists differ.

use std::collections::BTreeMap;

use rmcp::model::Tool;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub(super) fn of(tools: &[Tool]) -> String {
    let mut entries: Vec<String> = tools.iter().map(canonical).collect();
    entries.sort_unstable();
    format!("sha256:{}", hex::encode(Sha256::digest(format!("[{}]", entries.join(",")).as_bytes())))
}

/// The fields of a tool that the digest covers.
pub(super) fn canonical(tool: &Tool) -> String {
    written(&json!({
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": *tool.input_schema,
        "outputSchema": tool.output_schema.as_deref(),
        "annotations": tool.annotations,
    }))
}

/// JSON without white space, with sorted keys.
fn written(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            let entries: Vec<String> =
                sorted.into_iter().map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), written(value))).collect();
            format!("{{{}}}", entries.join(","))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(written).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(value: Value) -> Tool {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn order_does_not_matter_and_every_change_does() {
        let one = tool(json!({"name": "a", "description": "d", "inputSchema": {"type": "object", "properties": {"x": {}, "y": {}}}}));
        let same = tool(json!({"inputSchema": {"properties": {"y": {}, "x": {}}, "type": "object"}, "description": "d", "name": "a"}));
        let other = tool(json!({"name": "b", "inputSchema": {"type": "object"}}));
        let digest = of(&[one.clone(), other.clone()]);
        assert_eq!(digest, of(&[other.clone(), same]));
        assert!(digest.starts_with("sha256:") && digest.len() == 71);
        for changed in [
            json!({"name": "A", "description": "d", "inputSchema": {"type": "object", "properties": {"x": {}, "y": {}}}}),
            json!({"name": "a", "description": "D", "inputSchema": {"type": "object", "properties": {"x": {}, "y": {}}}}),
            json!({"name": "a", "description": "d", "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}, "y": {}}}}),
            json!({"name": "a", "description": "d", "inputSchema": {"type": "object", "properties": {"x": {}, "y": {}}}, "annotations": {"destructiveHint": true}}),
        ] {
            assert_ne!(digest, of(&[tool(changed.clone()), other.clone()]), "{changed}");
        }
        assert_ne!(digest, of(&[one]));
    }
}
