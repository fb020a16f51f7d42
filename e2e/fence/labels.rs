//! Which labels a selector selects, as Kubernetes has it.

use serde_json::Value;

/// The empty selector selects everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> Result<bool, String> {
    let same = selector["matchLabels"].as_object().into_iter().flatten().all(|(key, value)| labels[key] == *value);
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let value = &labels[expression["key"].as_str().unwrap_or_default()];
        let listed = expression["values"].as_array().is_some_and(|values| values.contains(value));
        let holds = match expression["operator"].as_str() {
            Some("In") => listed,
            // Who has no such label has none of its values.
            Some("NotIn") => !listed,
            Some("Exists") => !value.is_null(),
            Some("DoesNotExist") => value.is_null(),
            _ => return Err(format!("a selector's operator should be In, NotIn, Exists or DoesNotExist: {expression}")),
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(same)
}
