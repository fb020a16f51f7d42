//! Validates the model's arguments against the tool's JSON Schema before the call. Mistakes that can be corrected without loss
//! are coerced (a number in quotes, `null` for an optional argument); all others are listed in the error for the model.

use serde_json::{Map, Number, Value, json};
use slipway_api::tool::{Parameter, ParameterType};

/// The schema of declared parameters, of which `required` returns the mandatory ones.
pub(crate) fn schema(parameters: &[Parameter], required: impl Fn(&Parameter) -> bool) -> Value {
    let mut properties = Map::new();
    for parameter in parameters {
        let mut property = json!({ "type": type_name(parameter.type_) });
        if let Some(description) = &parameter.description {
            property["description"] = description.clone().into();
        }
        properties.insert(parameter.name.clone(), property);
    }
    let required: Vec<&str> = parameters.iter().filter(|parameter| required(parameter)).map(|parameter| parameter.name.as_str()).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

const fn type_name(type_: ParameterType) -> &'static str {
    match type_ {
        ParameterType::String => "string",
        ParameterType::Integer => "integer",
        ParameterType::Number => "number",
        ParameterType::Boolean => "boolean",
    }
}

/// The arguments as an object that satisfies the schema's `properties`, `required`, `type`, `enum` and
/// `additionalProperties` at the top level. Nested values are left to the tool. The error lists every fault.
pub(crate) fn decode(schema: &Value, arguments: Value) -> Result<Map<String, Value>, String> {
    let mut arguments = match arguments {
        Value::Object(arguments) => arguments,
        Value::Null => Map::new(),
        // Some models quote the whole object.
        Value::String(text) if text.trim().is_empty() => Map::new(),
        Value::String(text) => match serde_json::from_str(&text) {
            Ok(Value::Object(arguments)) => arguments,
            _ => return Err("the arguments must be one JSON object".to_owned()),
        },
        other => return Err(format!("the arguments must be one JSON object, not {}", kind(&other))),
    };
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: Vec<&str> = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let mut faults = Vec::new();

    arguments.retain(|name, value| {
        let optional = !required.contains(&name.as_str());
        !(value.is_null() && optional && properties.get(name).is_some_and(|property| !accepts(property, &Value::Null)))
    });
    if schema.get("additionalProperties") == Some(&Value::Bool(false)) && schema.get("patternProperties").is_none() {
        let known = properties.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "the tool takes none".to_owned() } else { format!("there are: {known}") };
        for name in arguments.keys().filter(|name| !properties.contains_key(*name)) {
            faults.push(format!("{}: there is no such argument; {known}", short(name)));
        }
    }
    for (name, property) in properties {
        match arguments.get_mut(name) {
            Some(value) => {
                if let Err(fault) = fit(property, value) {
                    faults.push(format!("{name}: {fault}"));
                }
            }
            None if required.contains(&name.as_str()) => faults.push(format!("{name}: is required{}", expected(property))),
            None => {}
        }
    }
    for name in required {
        if !properties.contains_key(name) && !arguments.contains_key(name) {
            faults.push(format!("{name}: is required"));
        }
    }
    if faults.is_empty() { Ok(arguments) } else { Err(faults.join("; ")) }
}

fn fit(property: &Value, value: &mut Value) -> Result<(), String> {
    if !accepts(property, value) {
        let coerced = types(property).find_map(|type_| coerce(type_, value));
        *value = coerced
            .ok_or_else(|| format!("must be {}, not {}", types(property).map(article).collect::<Vec<_>>().join(" or "), kind(value)))?;
    }
    match property.get("enum").and_then(Value::as_array) {
        Some(choices) if !choices.contains(value) => {
            let choices = choices.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
            Err(format!("must be one of {}", short(&choices)))
        }
        _ => Ok(()),
    }
}

fn types(property: &Value) -> impl Iterator<Item = &str> {
    let types = property.get("type");
    types.and_then(Value::as_str).into_iter().chain(types.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str))
}

fn accepts(property: &Value, value: &Value) -> bool {
    let mut any = false;
    for type_ in types(property) {
        any = true;
        let fits = match type_ {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "string" => value.is_string(),
            "number" => value.is_number(),
            "integer" => value.is_i64() || value.is_u64(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            // Unknown types are left to the server.
            _ => true,
        };
        if fits {
            return true;
        }
    }
    !any
}

/// The value converted to another type, if that is lossless.
fn coerce(type_: &str, value: &Value) -> Option<Value> {
    match (type_, value) {
        ("integer", Value::String(text)) => match serde_json::from_str(text.trim()).ok()? {
            Value::Number(number) => whole(&number),
            _ => None,
        },
        ("integer", Value::Number(number)) => whole(number),
        ("number", Value::String(text)) => match serde_json::from_str(text.trim()).ok()? {
            Value::Number(number) if !number.is_f64() || digits(text) <= 15 => Some(Value::Number(number)),
            _ => None,
        },
        ("boolean", Value::String(text)) => match text.trim() {
            "true" | "True" => Some(Value::Bool(true)),
            "false" | "False" => Some(Value::Bool(false)),
            _ => None,
        },
        ("string", Value::Number(number)) => {
            let text = number.to_string();
            (!number.is_f64() || digits(&text) <= 15).then_some(Value::String(text))
        }
        ("string", Value::Bool(value)) => Some(Value::String(value.to_string())),
        ("array" | "object", Value::String(text)) => {
            let inner: Value = serde_json::from_str(text).ok()?;
            (if type_ == "array" { inner.is_array() } else { inner.is_object() }).then_some(inner)
        }
        _ => None,
    }
}

/// An integer written as 5.0 or 5e0. Beyond 2^53 floats are not exact.
fn whole(number: &Number) -> Option<Value> {
    if !number.is_f64() {
        return Some(Value::Number(number.clone()));
    }
    let value = number.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "whole and within 2^53")]
    (value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0).then(|| Value::from(value as i64))
}

fn digits(text: &str) -> usize {
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    mantissa.trim_start_matches(['-', '0', '.']).chars().filter(char::is_ascii_digit).count()
}

fn expected(property: &Value) -> String {
    let types = types(property).map(article).collect::<Vec<_>>().join(" or ");
    if types.is_empty() { String::new() } else { format!(" ({types})") }
}

fn article(type_: &str) -> String {
    match type_ {
        "null" => "null".to_owned(),
        "integer" | "array" | "object" => format!("an {type_}"),
        other => format!("a {other}"),
    }
}

fn kind(value: &Value) -> String {
    let text = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("the string {}", Value::from(short(text))),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    short(&text)
}

fn short(text: &str) -> String {
    if text.chars().count() <= 200 { text.to_owned() } else { text.chars().take(200).chain(['…']).collect() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn weather() -> Value {
        let parameter = |name: &str, type_, required| Parameter { name: name.into(), type_, description: None, required };
        schema(
            &[
                parameter("city", ParameterType::String, true),
                parameter("days", ParameterType::Integer, false),
                parameter("least", ParameterType::Number, false),
                parameter("metric", ParameterType::Boolean, false),
            ],
            |parameter| parameter.required,
        )
    }

    #[test]
    fn harmless_mistakes_are_coerced() {
        for (given, expected) in [
            (json!({"city": "Bern"}), json!({"city": "Bern"})),
            (json!({"city": "Bern", "days": null}), json!({"city": "Bern"})),
            (json!({"city": "Bern", "days": "3"}), json!({"city": "Bern", "days": 3})),
            (json!({"city": "Bern", "days": " -3 "}), json!({"city": "Bern", "days": -3})),
            (json!({"city": "Bern", "days": 3.0}), json!({"city": "Bern", "days": 3})),
            (json!({"city": "Bern", "days": "3.0"}), json!({"city": "Bern", "days": 3})),
            (json!({"city": "Bern", "least": "1.50"}), json!({"city": "Bern", "least": 1.5})),
            (json!({"city": "Bern", "least": 2}), json!({"city": "Bern", "least": 2})),
            (json!({"city": "Bern", "metric": "true"}), json!({"city": "Bern", "metric": true})),
            (json!({"city": 3011}), json!({"city": "3011"})),
            (json!({"city": 3.5}), json!({"city": "3.5"})),
            (json!({"city": false}), json!({"city": "false"})),
            (json!("{\"city\": \"Bern\"}"), json!({"city": "Bern"})),
        ] {
            assert_eq!(decode(&weather(), given.clone()).map(Value::Object), Ok(expected), "{given}");
        }
    }

    #[test]
    fn every_other_mistake_is_listed() {
        for (given, expected) in [
            (json!({}), "city: is required (a string)"),
            (json!(null), "city: is required (a string)"),
            (json!({"city": null}), "city: must be a string, not null"),
            (json!({"city": ["Bern"]}), "city: must be a string, not an array"),
            (json!({"city": "Bern", "days": "three"}), "days: must be an integer, not the string \"three\""),
            (json!({"city": "Bern", "days": 1.5}), "days: must be an integer, not 1.5"),
            (json!({"city": "Bern", "days": 1e300}), "days: must be an integer, not 1e+300"),
            (json!({"city": "Bern", "days": "99999999999999999999999"}), "days: must be an integer"),
            (json!({"city": "Bern", "days": true}), "days: must be an integer, not true"),
            (json!({"city": "Bern", "least": "0.12345678901234567890"}), "least: must be a number"),
            (json!({"city": "Bern", "least": "NaN"}), "least: must be a number, not the string \"NaN\""),
            (json!({"city": "Bern", "metric": "yes"}), "metric: must be a boolean, not the string \"yes\""),
            (json!({"city": "Bern", "metric": 1}), "metric: must be a boolean, not 1"),
            (json!({"city": "Bern", "town": 1}), "town: there is no such argument; there are: city, days, least, metric"),
            (json!({"days": "x", "town": 1}), "town: there is no such argument; there are: city, days, least, metric; city: is required"),
            (json!([1]), "the arguments must be one JSON object, not an array"),
            (json!("Bern"), "the arguments must be one JSON object"),
        ] {
            let fault = decode(&weather(), given.clone()).unwrap_err();
            assert!(fault.starts_with(expected), "{given}: {fault}");
        }
    }

    #[test]
    fn only_the_top_level_of_a_schema_is_validated() {
        let schema = json!({
            "type": "object",
            "properties": {
                "unit": {"type": "string", "enum": ["C", "F"]},
                "either": {"type": ["integer", "null"]},
                "free": {"anyOf": [{"type": "string"}, {"type": "object"}]},
                "list": {"type": "array", "items": {"type": "string"}},
                "deep": {"type": "object", "required": ["x"]},
            },
            "required": ["unit", "undeclared"],
        });
        for (given, expected) in [
            (json!({"unit": "C", "undeclared": 1}), Ok(json!({"unit": "C", "undeclared": 1}))),
            (json!({"unit": "C", "undeclared": 1, "other": 2}), Ok(json!({"unit": "C", "undeclared": 1, "other": 2}))),
            (json!({"unit": "C", "undeclared": 1, "either": null}), Ok(json!({"unit": "C", "undeclared": 1, "either": null}))),
            (json!({"unit": "C", "undeclared": 1, "either": "7"}), Ok(json!({"unit": "C", "undeclared": 1, "either": 7}))),
            (json!({"unit": "C", "undeclared": 1, "free": 7}), Ok(json!({"unit": "C", "undeclared": 1, "free": 7}))),
            (json!({"unit": "C", "undeclared": 1, "list": "[1]"}), Ok(json!({"unit": "C", "undeclared": 1, "list": [1]}))),
            (json!({"unit": "C", "undeclared": 1, "deep": {}}), Ok(json!({"unit": "C", "undeclared": 1, "deep": {}}))),
            (json!({"unit": "K", "undeclared": 1}), Err("unit: must be one of \"C\", \"F\"")),
            (json!({"unit": "C"}), Err("undeclared: is required")),
            (json!({"unit": "C", "undeclared": 1, "either": "x"}), Err("either: must be an integer or null, not the string \"x\"")),
        ] {
            assert_eq!(decode(&schema, given.clone()).map(Value::Object), expected.map_err(str::to_owned), "{given}");
        }
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("type|enum|required|properties|city|days|[a-z]{1,3}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn nothing_makes_decoding_panic(schema in anything(), given in anything()) {
            let _ = decode(&schema, given);
        }

        #[test]
        fn what_is_decoded_keeps_the_schema(given in anything()) {
            if let Ok(decoded) = decode(&weather(), given) {
                prop_assert!(decoded["city"].is_string());
                prop_assert!(decoded.get("days").is_none_or(|days| days.is_i64() || days.is_u64()));
                prop_assert!(decoded.get("least").is_none_or(Value::is_number));
                prop_assert!(decoded.get("metric").is_none_or(Value::is_boolean));
                prop_assert!(decoded.keys().all(|name| ["city", "days", "least", "metric"].contains(&name.as_str())));
            }
        }
    }
}
