//! What a canary is, as callers say it: any field of an agent, its weight and its analysis beside each other. In the resource some
//! have a place of their own in spec.canary, and all others are in its overrides.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};
use slipway_api::{AgentSpec, Canary};
use slipway_http::Error;

use crate::fields::{self, AGENT};
use crate::write::merge;

/// An agent's fields that are fields of spec.canary.
const PLACED: [&str; 8] = ["image", "modelType", "modelId", "systemPrompt", "skills", "tools", "version", "replicas"];
/// An agent's fields that no canary has others of, and the name under which a new agent has its id.
const KEPT: [&str; 4] = ["slug", "suspend", "canary", "expose"];
/// What overrides replace as a whole, and callers change in part.
const BLOCKS: [&str; 3] = ["governance", "resources", "podTemplate"];
/// Fields of spec.canary that no agent has.
const OWN: [&str; 2] = ["weight", "analysis"];

/// The canary that a caller asks for, as in the resource but for blocks, of which it has what the caller gave.
pub(super) fn place(mut config: Map<String, Value>) -> Result<Map<String, Value>, Error> {
    if let Some(name) = config.keys().find(|name| KEPT.contains(&fields::camel(name).as_str())) {
        return Err(Error::bad_request(format!("config.{name}: is the agent's own and no canary has another")));
    }
    let mut own: Map<String, Value> = Map::from_iter([("enabled".to_owned(), json!(true))]);
    own.extend(OWN.iter().filter_map(|name| config.remove_entry(*name)));
    let mut canary = object(object(fields::to_resource(&AGENT, json!({"canary": own}))?).remove("canary").unwrap_or_default());
    let mut overrides = Map::new();
    for (name, value) in object(fields::to_resource(&AGENT, Value::Object(config))?) {
        let place = if PLACED.contains(&name.as_str()) { &mut canary } else { &mut overrides };
        place.insert(name, value);
    }
    if let Some((name, _)) = canary.iter().chain(&overrides).find(|(_, value)| value.is_null()) {
        return Err(Error::bad_request(format!("config.{}: a canary sets fields and clears none", fields::snake(name))));
    }
    if !canary.get("weight").and_then(Value::as_i64).is_some_and(|weight| (1..=100).contains(&weight)) {
        return Err(Error::bad_request("config.weight: is needed, from 1 to 100: the percentage of conversations that go to the canary"));
    }
    if !overrides.is_empty() {
        canary.insert("overrides".to_owned(), Value::Object(overrides));
    }
    Ok(canary)
}

/// The same with blocks that are whole: the agent's, with what the caller gave. A null in them clears a field.
pub(super) fn merged(asked: &Map<String, Value>, agent: &AgentSpec) -> Result<Value, Error> {
    let agent = serde_json::to_value(agent).map_err(Error::internal)?;
    let mut canary = Value::Object(asked.clone());
    for block in BLOCKS {
        if let Some(given) = canary.get_mut("overrides").and_then(|overrides| overrides.get_mut(block)) {
            let mut whole = agent.get(block).cloned().unwrap_or_default();
            merge(&mut whole, given.take());
            *given = whole;
        }
    }
    Ok(fields::without_nulls(canary))
}

/// What a canary is, for callers.
pub(super) fn told(canary: &Canary) -> Result<Value, Error> {
    let canary = serde_json::to_value(canary).map_err(Error::internal)?;
    spread(&canary).map(Value::Object)
}

/// The inverse of `place`.
fn spread(canary: &Value) -> Result<Map<String, Value>, Error> {
    let mut config = object(object(fields::to_callers(&AGENT, json!({"canary": canary}))?).remove("canary").unwrap_or_default());
    config.remove("enabled");
    let overrides = config.remove("overrides").unwrap_or_default();
    config.extend(object(overrides));
    Ok(config)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The form of what a caller asks for.
pub(super) fn start_form(_: &mut SchemaGenerator) -> Schema {
    let form = json!({"type": "object", "properties": properties(), "required": ["weight"]});
    Schema::try_from(form).unwrap_or_default()
}

/// The form of the answer. It is empty without a canary.
pub(super) fn form(_: &mut SchemaGenerator) -> Schema {
    Schema::try_from(json!({"type": "object", "properties": properties()})).unwrap_or_default()
}

fn properties() -> Map<String, Value> {
    let agent: &Value = &AGENT;
    let of_agent = agent["properties"].as_object().into_iter().flatten().filter(|(name, _)| !KEPT.contains(&name.as_str()));
    let of_canary = agent["properties"]["canary"]["properties"].as_object().into_iter().flatten();
    let own = of_canary.filter(|(name, _)| OWN.contains(&name.as_str()));
    of_agent.chain(own).map(|(name, field)| (fields::snake(name), without_null(fields::form(field)))).collect()
}

/// The form of a field that is never null.
fn without_null(mut form: Value) -> Value {
    if let Some(words) = form.get_mut("enum").and_then(Value::as_array_mut) {
        words.retain(|word| !word.is_null());
    }
    form
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(config: Value) -> Result<Value, String> {
        place(object(config)).map(Value::Object).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn what_spec_canary_has_a_field_for_stands_there_and_the_rest_in_overrides() {
        let config = json!({
            "weight": 10.0, "model_id": "m", "systemPrompt": "Be kind.", "tools": [], "replicas": 2, "description": "x", "env_secrets": ["a"],
            "governance": {"min_quality_score": 80}, "analysis": {"interval_seconds": 60, "steps": [25]},
        });
        let expected = json!({
            "enabled": true, "weight": 10, "modelId": "m", "systemPrompt": "Be kind.", "tools": [], "replicas": 2,
            "overrides": {"description": "x", "envSecrets": ["a"], "governance": {"minQualityScore": 80}},
            "analysis": {"intervalSeconds": 60, "steps": [25]},
        });
        assert_eq!(placed(config).unwrap(), expected);
        assert_eq!(placed(json!({"weight": 1})).unwrap(), json!({"enabled": true, "weight": 1}));
    }

    #[test]
    fn what_no_canary_has_is_refused_by_its_name() {
        for (config, says) in [
            (json!({}), "config.weight: is needed"),
            (json!({"weight": 0}), "config.weight: is needed, from 1 to 100"),
            (json!({"weight": 101}), "config.weight"),
            (json!({"weight": null}), "config.weight: a canary sets"),
            (json!({"weight": "ten"}), "canary.weight: must be of type integer"),
            (json!({"weight": 1.5}), "canary.weight: must be of type integer"),
            (json!({"weight": 5, "slug": "x"}), "config.slug: is the agent's own"),
            (json!({"weight": 5, "suspend": false}), "config.suspend: is the agent's own"),
            (json!({"weight": 5, "canary": {}}), "config.canary: is the agent's own"),
            (json!({"weight": 5, "expose": "gateway"}), "config.expose: is the agent's own"),
            (json!({"weight": 5, "description": null}), "config.description: a canary sets"),
            (json!({"weight": 5, "systemPrompt": null}), "config.system_prompt: a canary sets"),
            (json!({"weight": 5, "analysis": null}), "config.analysis: a canary sets"),
            (json!({"weight": 5, "enabled": false}), "there is no field `enabled`"),
            (json!({"weight": 5, "overrides": {}}), "there is no field `overrides`"),
            (json!({"weight": 5, "colour": 1}), "there is no field `colour`"),
            (json!({"weight": 5, "analysis": {"colour": 1}}), "there is no field `canary.analysis.colour`"),
            (json!({"weight": 5, "tools": "a"}), "tools: must be of type array"),
            (json!({"weight": 5, "model_id": "a", "modelId": "b"}), "two spellings"),
        ] {
            let told = placed(config.clone()).unwrap_err();
            assert!(told.contains(says), "{config}: {told}");
        }
    }

    #[test]
    fn blocks_are_the_agents_with_what_is_given() {
        let agent: AgentSpec = serde_json::from_value(json!({
            "name": "H", "framework": "custom", "governance": {"minQualityScore": 80, "riskProfile": "high", "guards": ["max-tokens"]},
        }))
        .unwrap();
        for (given, whole) in [
            (
                json!({"governance": {"min_quality_score": 90}}),
                json!({"minQualityScore": 90, "riskProfile": "high", "guards": ["max-tokens"]}),
            ),
            (json!({"governance": {"risk_profile": null, "guards": []}}), json!({"minQualityScore": 80, "guards": []})),
        ] {
            let mut config = object(given);
            config.insert("weight".to_owned(), json!(5));
            let canary = merged(&place(config).unwrap(), &agent).unwrap();
            assert_eq!(canary, json!({"enabled": true, "weight": 5, "overrides": {"governance": whole}}));
        }
        let config = object(json!({"weight": 5, "resources": {"limits": {"cpu": "1"}}}));
        let canary = merged(&place(config).unwrap(), &agent).unwrap();
        assert_eq!(canary["overrides"]["resources"], json!({"limits": {"cpu": "1"}}), "an agent without a block");
    }

    /// Something that fits the schema.
    fn sample(schema: &Value) -> Value {
        if let Some(word) = schema["enum"].as_array().and_then(|words| words.iter().find(|word| word.is_string())) {
            return word.clone();
        }
        match schema["type"].as_str().unwrap_or_default() {
            "integer" => json!(schema["minimum"].as_i64().unwrap_or(1)),
            "number" => json!(1.5),
            "boolean" => json!(true),
            "array" => json!([sample(&schema["items"])]),
            "object" => match schema["properties"].as_object() {
                Some(fields) => fields.iter().map(|(name, field)| (fields::snake(name), sample(field))).collect::<Map<_, _>>().into(),
                None => json!({"someKey": sample(&schema["additionalProperties"])}),
            },
            _ => json!("x"),
        }
    }

    #[test]
    fn every_field_of_an_agent_is_told_as_it_was_asked_for() {
        let agent: &Value = &AGENT;
        let mut whole = object(json!({"weight": 5, "analysis": {"steps": [20], "paused": true, "gates": {"latency_ratio": 120}}}));
        for (name, field) in agent["properties"].as_object().unwrap() {
            if KEPT.contains(&name.as_str()) {
                continue;
            }
            let config: Map<String, Value> = Map::from_iter([("weight".to_owned(), json!(5)), (fields::snake(name), sample(field))]);
            let canary = Value::Object(place(config.clone()).unwrap());
            assert_eq!(spread(&canary).unwrap(), config, "{name}");
            whole.extend(config);
        }
        assert!(whole.len() > 25, "{whole:?}");
        let canary = Value::Object(place(whole.clone()).unwrap());
        assert_eq!(spread(&canary).unwrap(), whole);
        let names: Vec<String> = properties().into_iter().map(|(name, _)| name).collect();
        assert!(whole.keys().all(|name| names.contains(name)) && names.len() == whole.len(), "{names:?}");
    }

    #[test]
    fn a_canary_is_told_with_its_weight_and_without_its_switch() {
        let canary: Canary = serde_json::from_value(json!({"enabled": true, "weight": 7, "overrides": {"description": "x"}})).unwrap();
        assert_eq!(told(&canary).unwrap(), json!({"weight": 7, "description": "x"}));
    }
}
