//! Lowering an agent's gate takes the right `update agents/governance`: without it, whoever fails an evaluation could ask for
//! an easier one.

use std::sync::Arc;

use serde_json::Value;
use slipway_api::AgentSpec;
use slipway_api::agent::{Governance, RiskProfile};
use slipway_http::{Error, StatusCode};

use crate::access::Caller;
use crate::call::Call;
use crate::permission::GOVERN;

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
        match changed(before, change).as_ref().and_then(|after| lowered(before, after)) {
            None => Ok(()),
            Some(field) => {
                let message =
                    format!("{field}: this lowers what releases are held to, and {} may not {GOVERN} in this team", self.caller.name);
                Err(Error::new(StatusCode::FORBIDDEN, message))
            }
        }
    }
}

/// The spec after a merge patch. None if it would not be one, which the cluster refuses.
fn changed(before: &AgentSpec, change: &Value) -> Option<AgentSpec> {
    let mut whole = serde_json::to_value(before).ok()?;
    crate::write::merge(&mut whole, change.clone());
    serde_json::from_value(crate::fields::without_nulls(whole)).ok()
}

/// The field that makes the gate lower. Another dataset or judge may be an easier one.
fn lowered(before: &AgentSpec, after: &AgentSpec) -> Option<&'static str> {
    fn of<'a, T>(spec: &'a AgentSpec, field: impl FnOnce(&'a Governance) -> Option<T>) -> Option<T> {
        spec.governance.as_ref().and_then(field)
    }
    let score = |spec| of(spec, |governance| governance.min_quality_score).unwrap_or(0);
    let rank = |spec| match of(spec, |governance| governance.risk_profile) {
        Some(RiskProfile::Low) => 0,
        None | Some(RiskProfile::Standard | RiskProfile::Medium) => 1,
        Some(RiskProfile::High) => 2,
    };
    let faults = [
        (score(after) < score(before), "governance.min_quality_score"),
        (rank(after) < rank(before), "governance.risk_profile"),
        (dataset(after) != dataset(before), "governance.eval_dataset"),
        (after.judge_model != before.judge_model, "judge_model"),
    ];
    // Without a gate there is nothing to lower.
    faults.into_iter().find(|(lower, _)| *lower && score(before) > 0).map(|(_, field)| field)
}

fn dataset(spec: &AgentSpec) -> Option<String> {
    spec.governance.as_ref()?.eval_dataset.as_deref().map(slipway_api::ids::dataset_name)
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
            (json!({"governance": {"minQualityScore": 79}}), Some("governance.min_quality_score")),
            (json!({"governance": {"minQualityScore": null}}), Some("governance.min_quality_score")),
            (json!({"governance": null}), Some("governance.min_quality_score")),
            (json!({"governance": {"riskProfile": "low"}}), Some("governance.risk_profile")),
            (json!({"governance": {"evalDataset": "easy"}}), Some("governance.eval_dataset")),
            (json!({"governance": {"evalDataset": null}}), Some("governance.eval_dataset")),
            (json!({"judgeModel": "stub:/other"}), Some("judge_model")),
            (json!({"judgeModel": null}), Some("judge_model")),
            (json!({"governance": {"minQualityScore": 90, "riskProfile": "high", "evalDataset": "hard"}}), None),
            (json!({"governance": {"riskProfile": "medium"}}), None),
            (json!({"governance": {"riskProfile": null}}), None),
            (json!({"governance": {"guards": []}, "description": "x"}), None),
        ] {
            let after = changed(&gated, &change).unwrap();
            assert_eq!(lowered(&gated, &after), expected, "{change}");
            assert_eq!(lowered(&spec(json!({})), &after), None, "{change}");
        }
        assert!(changed(&gated, &json!({"governance": {"minQualityScore": "many"}})).is_none());
    }
}
