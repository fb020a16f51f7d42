//! Lowering an agent's evaluation gate takes a right of its own. REST writes as itself, so that the cluster's policy cannot ask
//! about the caller; it is asked here.

use std::sync::Arc;

use serde_json::Value;
use slipway_api::AgentSpec;
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
        let touches = ["governance", "judgeModel"].iter().any(|field| change.get(field).is_some());
        let may = !touches || call.context.access.allows(&call.caller, GOVERN, &call.namespace(), None).await?;
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

/// The field by which a merge patch of the spec lowers the gate. None also if the result would not be a spec, which the cluster
/// refuses.
fn lowered(before: &AgentSpec, change: &Value) -> Option<&'static str> {
    let mut whole = serde_json::to_value(before).ok()?;
    write::merge(&mut whole, change.clone());
    let after: AgentSpec = serde_json::from_value(fields::without_nulls(whole)).ok()?;
    gate::lowers((before.governance.as_ref(), before.judge_model.as_deref()), (after.governance.as_ref(), after.judge_model.as_deref()))
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
            assert_eq!(lowered(&gated, &change), expected, "{change}");
            assert_eq!(lowered(&spec(json!({})), &change), None, "{change}");
        }
        assert_eq!(lowered(&gated, &json!({"governance": {"minQualityScore": "many"}})), None, "the cluster refuses it");
    }
}
