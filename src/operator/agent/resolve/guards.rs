//! `RUNTIME_GUARDS`: the guards that an Agent names, each with the limit that is its own.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slipway_api::agent::{AgentSpec, Guard};
use slipway_api::contract::{self, GuardConfig};

use super::{Stop, fault, json};

pub(super) fn guards(spec: &AgentSpec, variables: &mut BTreeMap<&'static str, String>) -> Result<(), Stop> {
    let Some(governance) = spec.governance.as_ref().filter(|governance| !governance.guards.is_empty()) else { return Ok(()) };
    let limits = governance.limits.clone().unwrap_or_default();
    let daily = limits.daily_cost_usd.as_ref().map(usd).transpose()?;
    let config = |name: Guard| {
        let configured = match name {
            Guard::MaxTokens => limits.max_tokens_per_request.map(|limit| GuardConfig::MaxTokens { name, limit }),
            Guard::RateLimit => limits.requests_per_minute.map(|requests| GuardConfig::RateLimit { name, requests }),
            Guard::SpendLimit => daily.map(|usd| GuardConfig::SpendLimit { name, usd }),
            Guard::BlockedTopics => {
                let topics = limits.blocked_topics.clone();
                (!topics.is_empty()).then_some(GuardConfig::BlockedTopics { name, topics })
            }
            Guard::PiiDetection | Guard::SecretsScanner | Guard::PromptInjection => None,
        };
        configured.unwrap_or(GuardConfig::Name(name))
    };
    variables.insert(contract::GUARDS, json(&governance.guards.iter().map(|name| config(*name)).collect::<Vec<_>>()));
    Ok(())
}

/// The API server has refused what is no amount already; what is left are objects older than its rule.
fn usd(amount: &IntOrString) -> Result<f64, Stop> {
    let usd = match amount {
        IntOrString::Int(whole) => f64::from(*whole),
        IntOrString::String(text) => text.parse().unwrap_or(f64::NAN),
    };
    if usd.is_finite() && usd > 0.0 {
        Ok(usd)
    } else {
        let message = format!("spec.governance.limits.dailyCostUsd: {amount:?} is no amount of money above nothing, such as 5 or \"2.50\"");
        Err(fault("InvalidLimit", message))
    }
}
