//! The body that describes a guardrail policy.

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use slipway_api::guardrail_policy::{Operator, RuleType, Severity};
use slipway_api::{GuardrailPolicySpec, guardrail_policy, names};
use slipway_http::Error;

use crate::fields::{self, GUARDRAIL_POLICY, NAME};

const NAME_MAX: usize = 63;

/// A policy that is to be made.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct NewPolicy(Map<String, Value>);

impl JsonSchema for NewPolicy {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NewGuardrailPolicy".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut form = fields::form(&GUARDRAIL_POLICY);
        let about = "What the id and paths are made of. Default: the name in lower case, with hyphens.";
        form["properties"]["slug"] = json!({"type": ["string", "null"], "maxLength": NAME_MAX, "pattern": NAME, "description": about});
        Schema::try_from(form).unwrap_or_default()
    }
}

/// What takes the place of a policy.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Replacement(Map<String, Value>);

impl JsonSchema for Replacement {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "GuardrailPolicyFields".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(fields::form(&GUARDRAIL_POLICY)).unwrap_or_default()
    }
}

impl NewPolicy {
    /// The name of the resource, and its spec.
    pub(super) fn read(self) -> Result<(String, GuardrailPolicySpec), Error> {
        let mut given = self.0;
        given.retain(|_, value| !value.is_null());
        let (field, name) = match (given.remove("slug"), given.get("name")) {
            (Some(slug), _) => ("slug", slug),
            (None, Some(name)) => ("name", name.clone()),
            (None, None) => return Err(Error::bad_request("name: is required")),
        };
        let Value::String(name) = name else { return Err(Error::bad_request(format!("{field}: must be a string"))) };
        let slug = names::slugify(&name).map_err(|error| Error::bad_request(format!("{field}: {error}")))?;
        if slug.len() > NAME_MAX {
            return Err(Error::bad_request(format!("{field}: {slug:?} is longer than {NAME_MAX} characters")));
        }
        if slug == guardrail_policy::DEFAULT {
            let message = format!("{field}: {slug} stands for the four policies that every team begins with; choose another name");
            return Err(Error::bad_request(message));
        }
        Ok((slug, read(given)?))
    }
}

impl Replacement {
    pub(super) fn read(self) -> Result<GuardrailPolicySpec, Error> {
        read(self.0)
    }
}

/// Judged here as by the API server, which judges it again: all replicas give the same answer.
fn read(given: Map<String, Value>) -> Result<GuardrailPolicySpec, Error> {
    let spec = fields::without_nulls(fields::to_resource(&GUARDRAIL_POLICY, Value::Object(given))?);
    words(&spec)?;
    let spec: GuardrailPolicySpec =
        serde_json::from_value(spec).map_err(|error| Error::bad_request(format!("the body does not fit: {error}")))?;
    match spec.fault() {
        None => Ok(spec),
        Some(fault) => Err(Error::bad_request(fault)),
    }
}

/// That words are such as there are, with the field's name, which the parser does not say.
fn words(spec: &Value) -> Result<(), Error> {
    let known = |field: String, value: &Value, all: &[&str]| match value.as_str() {
        Some(word) if !all.contains(&word) => Err(Error::bad_request(format!("{field}: must be one of {}", all.join(", ")))),
        _ => Ok(()),
    };
    let severities: Vec<&str> = Severity::ALL.iter().map(|known| known.as_str()).collect();
    let types: Vec<&str> = RuleType::ALL.iter().map(|known| known.as_str()).collect();
    let operators: Vec<&str> = Operator::ALL.iter().map(|known| known.as_str()).collect();
    known("severity".to_owned(), &spec["severity"], &severities)?;
    for (at, rule) in spec["rules"].as_array().into_iter().flatten().enumerate() {
        known(format!("rules[{at}].type"), &rule["type"], &types)?;
        known(format!("rules[{at}].operator"), &rule["operator"], &operators)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(body: Value) -> Result<(String, GuardrailPolicySpec), String> {
        serde_json::from_value::<NewPolicy>(body).unwrap().read().map_err(|error| error.message().to_owned())
    }

    fn with(change: &Value) -> Result<(String, GuardrailPolicySpec), String> {
        let rule = json!({"type": "max_tokens", "operator": "lt", "value": "2048"});
        let mut body = json!({"name": "Short Answers", "severity": "critical", "rules": [rule]});
        crate::write::merge(&mut body, change.clone());
        new(body)
    }

    #[test]
    fn a_body_becomes_a_policy() {
        let (name, spec) = with(&json!({"description": null})).unwrap();
        assert_eq!((&*name, &*spec.name, spec.severity.as_str(), spec.enabled), ("short-answers", "Short Answers", "critical", true));
        assert_eq!((spec.rules.len(), spec.rules[0].value.as_str(), spec.rollback), (1, "2048", false));
        assert_eq!(
            with(&json!({"slug": "brief", "enabled": false})).map(|(name, spec)| (name, spec.enabled)),
            Ok(("brief".to_owned(), false))
        );
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_named() {
        let rule = |kind: &str, operator: &str, value: Value| json!({"rules": [{"type": kind, "operator": operator, "value": value}]});
        for (change, says) in [
            (json!({"name": null}), "name: is required"),
            (json!({"name": 7}), "name: must be a string"),
            (json!({"name": "Default"}), "stands for the four policies"),
            (json!({"slug": "x".repeat(64)}), "longer than 63"),
            (json!({"colour": 1}), "`colour`"),
            (json!({"severity": "fatal"}), "severity: must be one of warning, critical"),
            (json!({"severity": null}), "severity"),
            (json!({"rules": []}), "rules: must have 1 to 16"),
            (json!({"rules": {}}), "rules: must be of type array"),
            (rule("max_tokens", "contains", json!("1")), "rules[0].operator: "),
            (rule("max_tokens", "contains", json!("1")), "lt or lte"),
            (rule("blocked_topics", "lt", json!("violence")), "take contains"),
            (rule("allowed_models", "contains", json!("openai:*")), "takes in"),
            (rule("max_tokens", "lt", json!("many")), "rules[0].value: "),
            (rule("max_tokens", "lt", json!(4096)), "rules[0].value: must be of type string"),
            (rule("max_weight", "lt", json!("1")), "rules[0].type: must be one of max_tokens, "),
            (rule("max_tokens", "eq", json!("1")), "rules[0].operator: must be one of lt, "),
            (rule("blocked_topics", "contains", json!("é".repeat(1025))), "2048"),
            (json!({"rollback": true}), "rollback: "),
        ] {
            let fault = with(&change).unwrap_err();
            assert!(fault.contains(says), "{change}: {fault}");
        }
    }
}
