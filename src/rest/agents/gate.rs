//! Lowering an agent's evaluation gate takes a right of its own. REST writes as itself, so that the cluster's policy cannot ask
//! about the caller; it is asked here.

use serde_json::{Map, Value, json};
use slipway_api::Agent;
use slipway_api::agent::Governance;
use slipway_http::{Error, StatusCode};
use slipway_release::gate;

use super::named;
use crate::call::Call;
use crate::fields;
use crate::permission::Right;

const LOWER_GATE: Right = Right::on("update", "agents").sub("governance");

/// Whether the caller may lower the gate of the path's agent.
pub(super) async fn may_lower(call: &Call) -> Result<bool, Error> {
    let (name, _) = named(call).await?;
    call.context.access.allows(&call.caller, LOWER_GATE, &call.namespace(), Some(&name)).await
}

/// 403 if the patch of the spec asks for less than the agent does.
pub(super) fn refuse_lowering(agent: &Agent, patch: &Value, what: &str) -> Result<(), Error> {
    let (governance, judge) = (agent.spec.governance.as_ref(), agent.spec.judge_model.as_deref());
    let before = json!({"governance": governance, "judgeModel": judge});
    let of_gate: Map<String, Value> =
        ["governance", "judgeModel"].into_iter().filter_map(|field| Some((field.to_owned(), patch.get(field)?.clone()))).collect();
    let after = merged(before, &Value::Object(of_gate));
    // What does not fit the schema, the API server refuses.
    let Ok(after_governance) = serde_json::from_value::<Option<Governance>>(after["governance"].clone()) else { return Ok(()) };
    match gate::lowers((governance, judge), (after_governance.as_ref(), after["judgeModel"].as_str())) {
        None => Ok(()),
        Some(field) => {
            let field = fields::spelled(&format!("spec.{field}"));
            let message = format!(
                "{field}: asks for less than before, and {what} has an evaluation gate; that takes the right to update agents/governance, which admins of the team have"
            );
            Err(Error::new(StatusCode::FORBIDDEN, message))
        }
    }
}

/// What a merge patch (RFC 7386) makes of a value.
fn merged(into: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut into = if let Value::Object(into) = into { into } else { Map::new() };
    for (field, value) in patch {
        let before = into.remove(field).unwrap_or_default();
        if !value.is_null() {
            into.insert(field.clone(), merged(before, value));
        }
    }
    Value::Object(into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_than_before_is_refused_and_more_is_not() {
        let agent = |spec: &str| -> Agent {
            serde_yaml::from_str(&format!("{{metadata: {{name: helper}}, spec: {{name: H, framework: custom, {spec}}}}}")).unwrap()
        };
        let gated = agent("judgeModel: 'openai:/a', governance: {minQualityScore: 75, evalDataset: d, guards: [rate-limit]}");
        for (patch, expected) in [
            (json!({"systemPrompt": "x"}), None),
            (json!({"governance": {"guards": []}}), None),
            (json!({"governance": {"minQualityScore": 90}}), None),
            (json!({"governance": {"minQualityScore": 0}}), Some("min_quality_score")),
            (json!({"governance": {"minQualityScore": null}}), Some("min_quality_score")),
            (json!({"governance": null}), Some("min_quality_score")),
            (json!({"governance": {"evalDataset": "e"}}), Some("eval_dataset")),
            (json!({"judgeModel": null}), Some("judge_model")),
        ] {
            let refused = refuse_lowering(&gated, &patch, "agent helper").err().map(|error| error.message().to_owned());
            match (&refused, expected) {
                (None, None) => {}
                (Some(message), Some(field)) => assert!(message.contains(field) && message.contains("agents/governance"), "{message}"),
                _ => panic!("{patch}: {refused:?}, not {expected:?}"),
            }
            assert!(refuse_lowering(&agent("judgeModel: 'openai:/a'"), &patch, "agent helper").is_ok(), "without a gate: {patch}");
        }
    }
}
