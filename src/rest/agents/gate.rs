//! Lowering an agent's evaluation gate takes a right of its own. REST writes as itself, so that the cluster's policy cannot ask
//! about the caller; it is asked here.

use std::sync::Arc;

use serde_json::Value;
use slipway_api::AgentSpec;
use slipway_api::agent::Governance;
use slipway_http::{Error, StatusCode};
use slipway_release::gate;

use crate::access::Caller;
use crate::call::Call;
use crate::permission::GOVERN;
use crate::{fields, write};

/// Whether the caller of a change may lower the gate.
pub(super) struct Governor {
    caller: Arc<Caller>,
    may: bool,
}

impl Governor {
    /// Asks the cluster if the change touches what a gate consists of.
    pub(super) async fn of(call: &Call, change: &Value) -> Result<Self, Error> {
        let touches = ["governance", "judgeModel", "canary"].iter().any(|field| change.get(field).is_some());
        if touches { Self::asked(call).await } else { Ok(Self { caller: call.caller.clone(), may: true }) }
    }

    /// Asks the cluster. For changes that only the agent tells.
    pub(super) async fn asked(call: &Call) -> Result<Self, Error> {
        let may = call.context.access.allows(&call.caller, GOVERN, &call.namespace(), None).await?;
        Ok(Self { caller: call.caller.clone(), may })
    }

    /// 403 if the change lowers the gate of the agent and the caller may not.
    pub(super) fn check(&self, before: &AgentSpec, change: &Value) -> Result<(), Error> {
        if self.may {
            return Ok(());
        }
        match lowered(before, change) {
            None => Ok(()),
            Some(field) => {
                let field = fields::spelled(&format!("spec.{field}"));
                let message = format!(
                    "{field}: this lowers what releases of the agent are held to, and {} may not {GOVERN} in this team",
                    self.caller.name
                );
                Err(Error::new(StatusCode::FORBIDDEN, message))
            }
        }
    }
}

/// The field by which a merge patch of the spec lowers the gate, or by which another canary would once it is promoted. None also if
/// the result would not be a spec, which the cluster refuses.
fn lowered(before: &AgentSpec, change: &Value) -> Option<String> {
    let mut whole = serde_json::to_value(before).ok()?;
    write::merge(&mut whole, change.clone());
    let after: AgentSpec = serde_json::from_value(fields::without_nulls(whole)).ok()?;
    if let Some(field) = gate::lowers(demands(before), demands(&after)) {
        return Some(field.to_owned());
    }
    let (stood, asked) = (promoted(before), promoted(&after)?);
    let is_another = stood.as_ref().is_none_or(|stood| demands(stood) != demands(&asked));
    gate::lowers(demands(before), demands(&asked)).filter(|_| is_another).map(|field| format!("canary.{field}"))
}

/// What a gate consists of.
fn demands(spec: &AgentSpec) -> (Option<&Governance>, Option<&str>) {
    (spec.governance.as_ref(), spec.judge_model.as_deref())
}

/// The spec after a promotion of its canary, if it has one.
fn promoted(spec: &AgentSpec) -> Option<AgentSpec> {
    spec.canary.as_ref().map(|canary| canary.promoted(spec))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_gate_is_lowered_by_less_and_by_other_measures() {
        let spec = |more: Value| -> AgentSpec {
            let mut whole = json!({"name": "H", "framework": "custom"});
            crate::write::merge(&mut whole, more);
            serde_json::from_value(whole).unwrap()
        };
        let gated = spec(
            json!({"judgeModel": "stub:/judge", "governance": {"minQualityScore": 80, "riskProfile": "standard", "evalDataset": "ds_hard"}}),
        );
        for (change, expected) in [
            (json!({"governance": {"minQualityScore": 79}}), Some("governance.minQualityScore")),
            (json!({"governance": {"minQualityScore": null}}), Some("governance.minQualityScore")),
            (json!({"governance": null}), Some("governance.minQualityScore")),
            (json!({"governance": {"riskProfile": "low"}}), Some("governance.riskProfile")),
            (json!({"governance": {"evalDataset": "easy"}}), Some("governance.evalDataset")),
            (json!({"governance": {"evalDataset": null}}), Some("governance.evalDataset")),
            (json!({"judgeModel": "stub:/other"}), Some("judgeModel")),
            (json!({"judgeModel": null}), Some("judgeModel")),
            (json!({"governance": {"minQualityScore": 90, "riskProfile": "high", "evalDataset": "hard"}}), None),
            (json!({"governance": {"riskProfile": "medium"}}), None),
            (json!({"governance": {"riskProfile": null}}), None),
            (json!({"governance": {"guards": []}, "description": "x"}), None),
        ] {
            assert_eq!(lowered(&gated, &change).as_deref(), expected, "{change}");
            assert_eq!(lowered(&spec(json!({})), &change), None, "{change}");
        }
        assert_eq!(lowered(&gated, &json!({"governance": {"minQualityScore": "many"}})), None, "the cluster refuses it");
        let by_defaults = spec(json!({"governance": {"minQualityScore": 80}}));
        for (change, expected) in [
            (json!({"governance": {"minQualityScore": 90, "evalDataset": "easy"}}), Some("governance.evalDataset")),
            (json!({"judgeModel": "stub:/judge"}), Some("judgeModel")),
            (json!({"canary": {"enabled": true, "weight": 5, "overrides": {"judgeModel": "stub:/judge"}}}), Some("canary.judgeModel")),
            (json!({"governance": {"minQualityScore": 90}}), None),
        ] {
            assert_eq!(lowered(&by_defaults, &change).as_deref(), expected, "{change}");
        }

        let canary = |overrides: Value| json!({"canary": {"enabled": true, "weight": 5, "overrides": overrides}});
        for (change, expected) in [
            (canary(json!({"governance": {"minQualityScore": 79}})), Some("canary.governance.minQualityScore")),
            (canary(json!({"governance": {}})), Some("canary.governance.minQualityScore")),
            (canary(json!({"judgeModel": "stub:/other"})), Some("canary.judgeModel")),
            (canary(json!({"governance": {"minQualityScore": 80, "riskProfile": "high", "evalDataset": "hard"}})), None),
            (canary(json!({"description": "x"})), None),
            (json!({"canary": null}), None),
        ] {
            assert_eq!(lowered(&gated, &change).as_deref(), expected, "{change}");
            assert_eq!(lowered(&spec(json!({})), &change), None, "{change}");
        }
        let mut before = serde_json::to_value(&gated).unwrap();
        crate::write::merge(&mut before, canary(json!({"governance": {}})));
        let before = spec(before);
        for (change, expected) in [
            (json!({"canary": {"weight": 50}}), None),
            (json!({"canary": {"systemPrompt": "Be kind."}}), None),
            (json!({"canary": {"overrides": {"governance": {"riskProfile": "low"}}}}), Some("canary.governance.minQualityScore")),
            (json!({"canary": null, "governance": null}), Some("governance.minQualityScore")),
        ] {
            assert_eq!(lowered(&before, &change).as_deref(), expected, "{change}");
        }
    }
}
