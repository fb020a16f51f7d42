//! `RUNTIME_GUARDS`: the guards that an Agent names, each with the limit that is its own.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use slipway_api::agent::{AgentSpec, Guard, Price};
use slipway_api::contract::{self, GuardConfig, ModelPrice};

use super::{Stop, fault, json};

pub(super) fn guards(spec: &AgentSpec, variables: &mut BTreeMap<&'static str, String>) -> Result<(), Stop> {
    let Some(governance) = spec.governance.as_ref().filter(|governance| !governance.guards.is_empty()) else { return Ok(()) };
    let limits = governance.limits.clone().unwrap_or_default();
    let daily = limits.daily_cost_usd.as_ref().map(usd).transpose()?;
    let prices = limits.prices.iter().map(price).collect::<Result<BTreeMap<_, _>, _>>()?;
    let config = |name: Guard| {
        let configured = match name {
            Guard::MaxTokens => limits.max_tokens_per_request.map(|limit| GuardConfig::MaxTokens { name, limit }),
            Guard::RateLimit => limits.requests_per_minute.map(|requests| GuardConfig::RateLimit { name, requests }),
            Guard::SpendLimit => {
                (daily.is_some() || !prices.is_empty()).then(|| GuardConfig::SpendLimit { name, usd: daily, prices: prices.clone() })
            }
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
    number(amount).filter(|usd| *usd > 0.0).ok_or_else(|| {
        let message = format!("spec.governance.limits.dailyCostUsd: {amount:?} is no amount of money above nothing, such as 5 or \"2.50\"");
        fault("InvalidLimit", message)
    })
}

fn price(price: &Price) -> Result<(String, ModelPrice), Stop> {
    let of = |amount: &IntOrString| {
        number(amount).filter(|usd| *usd >= 0.0).ok_or_else(|| {
            let message =
                format!("spec.governance.limits.prices: {amount:?} of {} is no amount of money, such as 3 or \"0.25\"", price.model);
            fault("InvalidLimit", message)
        })
    };
    Ok((price.model.clone(), ModelPrice { input: of(&price.input_usd)?, output: of(&price.output_usd)? }))
}

fn number(amount: &IntOrString) -> Option<f64> {
    let number = match amount {
        IntOrString::Int(whole) => f64::from(*whole),
        IntOrString::String(text) => text.parse().ok()?,
    };
    number.is_finite().then_some(number)
}
