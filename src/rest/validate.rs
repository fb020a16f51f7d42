//! Validates writes against the kind's own schema: types, lengths and counts.
//!
//! The API server validates the same, but compares every violation with all others: a list of 20,000 wrong items costs it
//! minutes and a gigabyte, even after the caller has left. Here validation stops after a few violations. All other rules
//! are left to the API server.

use std::sync::LazyLock;

use kube::Resource;
use serde::Serialize;
use serde_json::Value;
use slipway_http::Error;

use crate::fields::{self, KINDS};

/// The number of violations in one error.
const VIOLATIONS_MAX: usize = 5;

/// Validates a new object.
pub(crate) fn object(object: &impl Serialize) -> Result<(), Error> {
    let whole = serde_json::to_value(object).map_err(Error::internal)?;
    schema(whole["kind"].as_str().unwrap_or_default()).map_or(Ok(()), |schema| spec(schema, &whole["spec"]))
}

/// Validates a merge patch.
pub(crate) fn patch<K: Resource<DynamicType = ()>>(patch: &Value) -> Result<(), Error> {
    schema(&K::kind(&())).map_or(Ok(()), |schema| spec(schema, &patch["spec"]))
}

/// None of other projects' kinds, and of Kubernetes' own.
fn schema(kind: &str) -> Option<&'static Value> {
    KINDS.iter().find(|(known, _)| *known == kind).map(|(_, schema)| LazyLock::force(schema))
}

/// Validates a spec, or the part of one in a patch. Null stands for a missing field.
pub(crate) fn spec(schema: &Value, value: &Value) -> Result<(), Error> {
    let mut violations = Violations { path: String::new(), found: Vec::new() };
    violations.check(schema, value);
    if violations.found.is_empty() { Ok(()) } else { Err(Error::bad_request(violations.found.join("; "))) }
}

struct Violations {
    /// The current path, in the callers' spelling.
    path: String,
    found: Vec<String>,
}

impl Violations {
    fn add(&mut self, what: &str) {
        let path = if self.path.is_empty() { "the body" } else { &self.path };
        self.found.push(format!("{path}: {what}"));
    }

    fn within(&mut self, step: &str, schema: &Value, value: &Value) {
        let length = self.path.len();
        self.path.push_str(step);
        self.check(schema, value);
        self.path.truncate(length);
    }

    fn check(&mut self, schema: &Value, value: &Value) {
        if self.found.len() >= VIOLATIONS_MAX || value.is_null() {
            return;
        }
        let wanted = schema["type"].as_str().unwrap_or_default();
        let or_string = schema["x-kubernetes-int-or-string"] == true;
        if or_string && !(value.is_string() || is_whole(value)) {
            return self.add(&format!("must be an integer or a string, not {}", article(value)));
        }
        if !or_string && !is_of_type(wanted, value) {
            return self.add(&format!("must be of type {wanted}: \"{}\"", type_of(value)));
        }
        if let Some(fault) = too_large(schema, value) {
            return self.add(&fault);
        }
        match value {
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.within(&format!("[{at}]"), &schema["items"], item);
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    let dot = if self.path.is_empty() { "" } else { "." };
                    match schema["properties"].get(name) {
                        Some(known) => self.within(&format!("{dot}{}", fields::snake(name)), known, field),
                        None => self.within(&format!("{dot}{name}"), &schema["additionalProperties"], field),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a value exceeds the schema, counted as the API server counts: characters, items, and bytes where a CEL rule says
/// so.
fn too_large(schema: &Value, value: &Value) -> Option<String> {
    let most = |keyword: &str| schema[keyword].as_u64().and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX);
    let over = |count: usize, keyword: &str, of: &str| {
        (count > most(keyword)).then(|| format!("must have at most {} {of}, and has {count}", most(keyword)))
    };
    let counted = match value {
        Value::String(text) => over(text.chars().count(), "maxLength", "characters"),
        Value::Array(items) => over(items.len(), "maxItems", "items"),
        Value::Object(fields) => over(fields.len(), "maxProperties", "entries"),
        _ => None,
    };
    counted.or_else(|| {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        rules.filter_map(|rule| Some((ByteLimit::of(rule["rule"].as_str()?)?, rule["message"].as_str()?))).find_map(|(limit, message)| {
            let bytes = limit.bytes(value);
            (bytes > limit.most).then(|| format!("{message}, and has {bytes}"))
        })
    })
}

/// The limit of a CEL rule over bytes, of a string or of all strings in a list or map.
struct ByteLimit<'a> {
    most: usize,
    /// The one counted field of a list's items.
    field: Option<&'a str>,
}

impl<'a> ByteLimit<'a> {
    fn of(rule: &'a str) -> Option<Self> {
        let (counts, most) = rule.split_once(" <= ")?;
        let field = counts.strip_prefix("self.map(p, has(p.").and_then(|rest| Some(rest.split_once(')')?.0));
        let counts_bytes = match field {
            Some(field) => counts == format!("self.map(p, has(p.{field}) ? bytes(p.{field}).size() : 0).sum()"),
            None => {
                counts == "bytes(self).size()"
                    || counts.starts_with("self.map(") && counts.ends_with("]).size()).sum()")
                    || counts == "self.map(c, bytes(c).size()).sum()"
            }
        };
        most.parse().ok().filter(|_| counts_bytes).map(|most| Self { most, field })
    }

    fn bytes(&self, value: &Value) -> usize {
        match (self.field, value) {
            (Some(field), Value::Array(items)) => items.iter().map(|item| bytes(&item[field])).sum(),
            _ => bytes(value),
        }
    }
}

fn bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(bytes).sum(),
        Value::Object(fields) => fields.values().map(bytes).sum(),
        _ => 0,
    }
}

fn is_whole(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn is_of_type(wanted: &str, value: &Value) -> bool {
    match wanted {
        "string" => value.is_string(),
        "integer" => is_whole(value),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_whole(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn article(value: &Value) -> String {
    let kind = type_of(value);
    let article = if kind.starts_with(['a', 'i', 'o']) { "an" } else { "a" };
    format!("{article} {kind}")
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use serde_json::json;
    use slipway_api::Agent;

    use super::*;
    use crate::fields::{AGENT, RELEASE, SKILL, TEAM, TOOL};

    fn told(schema: &Value, value: &Value) -> String {
        spec(schema, value).err().map(|error| error.message().to_owned()).unwrap_or_default()
    }

    #[test]
    fn the_first_few_faults_are_told_and_the_rest_is_not_looked_at() {
        let wrong: Vec<Value> = (0..20_000).map(|at| json!({ "at": at })).collect();
        assert_eq!(told(&AGENT, &json!({"tools": wrong})), "tools: must have at most 64 items, and has 20000");
        assert_eq!(
            told(&AGENT, &json!({"tools": [1, 2, "a", 4, 5, 6, 7, 8]})).matches("must be of type string: \"integer\"").count(),
            VIOLATIONS_MAX
        );
        let nested = json!({"podTemplate": {"tolerations": [{"key": "a"}, {"key": {}, "tolerationSeconds": 1.5}]}});
        assert_eq!(
            told(&AGENT, &nested),
            "pod_template.tolerations[1].key: must be of type string: \"object\"; pod_template.tolerations[1].toleration_seconds: must be of type integer: \"number\""
        );
    }

    #[test]
    fn faults_name_the_field_as_callers_spell_it() {
        let many: serde_json::Map<String, Value> = (0..65).map(|at| (format!("file-{at}"), json!("x"))).collect();
        for (schema, value, expected) in [
            (&*AGENT, json!({"replicas": "three"}), "replicas: must be of type integer: \"string\""),
            (&AGENT, json!({"systemPrompt": ["a"]}), "system_prompt: must be of type string: \"array\""),
            (&AGENT, json!({"systemPrompt": "é".repeat(122_881)}), "system_prompt: must have at most 122880 characters, and has 122881"),
            (
                &AGENT,
                json!({"systemPrompt": "é".repeat(61_441)}),
                "system_prompt: must have at most 120 KiB (122880 bytes), the most that reaches the agent, and has 122882",
            ),
            (&AGENT, json!({"governance": []}), "governance: must be of type object: \"array\""),
            (
                &AGENT,
                json!({"resources": {"limits": {"cpu": true}}}),
                "resources.limits.cpu: must be an integer or a string, not a boolean",
            ),
            (&AGENT, json!([]), "the body: must be of type object: \"array\""),
            (&SKILL, json!({"files": many}), "files: must have at most 64 entries, and has 65"),
            (&SKILL, json!({"files": {"a": "é".repeat(131_073)}}), "files: the files have more than 256 KiB together, and has 262146"),
            (&SKILL, json!({"instructions": "é".repeat(32_769)}), "instructions: must have at most 64 KiB (65536 bytes), and has 65538"),
            (
                &TOOL,
                json!({"allowedCommands": vec!["é".repeat(512); 121]}),
                "allowed_commands: must have at most 120 KiB (122880 bytes) together, the most that reaches an agent, and has 123904",
            ),
            (
                &TOOL,
                json!({"parameters": vec![json!({"name": "city", "type": "string", "description": "é".repeat(1000)}); 62]}),
                "parameters: must have at most 120 KiB (122880 bytes) together, the most that reaches an agent, and has 124000",
            ),
            (&TEAM, json!({"quota": {"pods": "9".repeat(33)}}), "quota.pods: must have at most 32 characters, and has 33"),
            (&RELEASE, json!({"changelog": "x".repeat(4097)}), "changelog: must have at most 4096 characters, and has 4097"),
        ] {
            assert_eq!(told(schema, &value), expected);
        }
    }

    #[test]
    fn what_fits_is_left_to_the_api_server() {
        for fits in [
            json!({"name": "N", "replicas": 11, "framework": "homemade", "tools": ["a", "a"], "suggestions": null}),
            json!({"replicas": 2.0, "resources": {"requests": {"cpu": 1, "memory": "64Mi"}}, "systemPrompt": "é".repeat(61_440)}),
            json!({"governance": {"guards": ["spend-limit"], "limits": {"dailyCostUsd": "2.50"}}}),
            Value::Null,
        ] {
            assert_eq!(told(&AGENT, &fits), "", "{fits}");
        }
    }

    #[test]
    fn every_rule_over_bytes_is_read() {
        fn each(schema: &Value, rules: &mut Vec<String>) {
            match schema {
                Value::Object(fields) => {
                    let own = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
                    rules.extend(own.filter_map(|rule| rule["rule"].as_str()).filter(|rule| rule.contains("bytes(")).map(str::to_owned));
                    fields.values().for_each(|value| each(value, rules));
                }
                Value::Array(items) => items.iter().for_each(|value| each(value, rules)),
                _ => {}
            }
        }
        let mut rules = Vec::new();
        for crd in slipway_api::crd::all() {
            each(&serde_json::to_value(crd).unwrap(), &mut rules);
        }
        assert!(rules.len() >= 5, "{rules:?}");
        assert!(rules.iter().all(|rule| ByteLimit::of(rule).is_some()), "{rules:?}");
        assert_eq!(Agent::crd().spec.names.kind, "Agent");
    }

    #[test]
    fn objects_and_patches_are_judged_by_their_kind() {
        let agent = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": "a"}, "spec": {"tools": [1]}});
        assert!(object(&agent).is_err());
        assert!(object(&json!({"kind": "ConfigMap", "spec": {"tools": [1]}})).is_ok());
        assert!(patch::<Agent>(&json!({"spec": {"replicas": "two"}})).is_err());
        assert!(patch::<Agent>(&json!({"metadata": {"annotations": {}}, "spec": {"replicas": null}})).is_ok());
    }
}
