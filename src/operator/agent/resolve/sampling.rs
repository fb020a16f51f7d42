//! The share of an agent's answers that is scored, and how. An agent that samples none gets none of these variables, so that a
//! change of its judge or risk profile restarts no pod.

use std::collections::BTreeMap;

use slipway_api::agent::{AgentSpec, RiskProfile, Storage};
use slipway_api::contract;

use crate::settings::Settings;

/// Scores lie beside the answers, and all pods share a day's budget there: without a database none are sampled.
pub(super) fn sampling(spec: &AgentSpec, storage: Storage, settings: &Settings, variables: &mut BTreeMap<&'static str, String>) {
    let Some(rate) = spec.eval_sample_rate.filter(|rate| *rate > 0 && storage == Storage::Postgresql) else { return };
    let profile = match spec.governance.as_ref().and_then(|governance| governance.risk_profile).unwrap_or_default() {
        RiskProfile::Medium => RiskProfile::Standard,
        profile => profile,
    };
    variables.insert(contract::EVAL_SAMPLE_RATE, rate.to_string());
    variables.insert(contract::EVAL_SAMPLES_PER_DAY, settings.platform.eval_samples_per_day.to_string());
    variables.insert(contract::RISK_PROFILE, profile.as_str().to_owned());
    if let Some(judge) = &spec.judge_model {
        variables.insert(contract::JUDGE_MODEL, judge.clone());
    }
}
