//! Guardrail policies: `{id, name, severity, enabled, rules: [{type, operator, value}]}`. A critical policy blocks, a warning
//! reports. Latency is only reported, as the turn has ended.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::finding::{Action, GuardName};
use crate::limits::Limit;
use crate::rule::{PolicyRule, RuleType};

const MAX_RULES: usize = 16;
/// Of an id, or of a name without one; they stand in metrics and in rows.
const MAX_ID_BYTES: usize = 128;
/// Of a name beside an id: 128 characters of four bytes.
const MAX_NAME_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Policy {
    pub id: String,
    #[serde(default)]
    name: String,
    severity: Severity,
    #[serde(default = "yes")]
    enabled: bool,
    rules: Vec<Rule>,
    /// Nothing of an answer that a topic may block is given out before all of it was judged.
    #[serde(default = "yes")]
    hold_answers: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Warning,
    Critical,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Rule {
    r#type: String,
    operator: String,
    value: String,
}

/// What a rule asks of the guards.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PolicyRequest {
    Limit(Limit),
    Topics(Vec<String>, Demand),
    DeniedTools(Vec<String>, Demand),
    AllowedModels(Vec<String>, Demand),
    RequiredGuards(Vec<GuardName>, Demand),
}

/// What is done about a finding, and which rule of a policy asks for it; none for an entry of `RUNTIME_GUARDS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Demand {
    pub(crate) action: Action,
    pub(crate) policy: Option<PolicyRule>,
    /// Whether an answer is held back whole until it was judged.
    pub(crate) holds: bool,
}

impl Demand {
    /// Of an entry of `RUNTIME_GUARDS`.
    pub(crate) fn own(action: Action) -> Self {
        Self { action, policy: None, holds: false }
    }
}

fn yes() -> bool {
    true
}

impl Policy {
    /// Reads one policy. What the fault quotes of it is short.
    pub fn read(value: Value) -> Result<Self, String> {
        let policy: Self = serde_json::from_value(value).map_err(|error| {
            let error = error.to_string();
            error[..error.floor_char_boundary(200)].to_owned()
        })?;
        if !(1..=MAX_ID_BYTES).contains(&policy.label().len()) || policy.name.len() > MAX_NAME_BYTES {
            return Err(format!("an `id` of 1 to {MAX_ID_BYTES} bytes is missing, or its `name` has more than {MAX_NAME_BYTES}"));
        }
        if policy.rules.len() > MAX_RULES {
            return Err(format!("policy `{}`: it has {} rules; a policy may have {MAX_RULES}", policy.label(), policy.rules.len()));
        }
        Ok(policy)
    }

    /// Whether it is in force where it is named.
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// What the rules ask for, nothing if the policy is disabled. Faults are reported even then.
    pub(crate) fn requests(&self, faults: &mut Vec<String>) -> Vec<PolicyRequest> {
        let action = match self.severity {
            Severity::Warning => Action::Warn,
            Severity::Critical => Action::Block,
        };
        let (id, mut requests): (Arc<str>, _) = (self.label().into(), Vec::new());
        for rule in &self.rules {
            match rule.request(&id, action, self.hold_answers && action == Action::Block) {
                Ok(one) => requests.push(one),
                Err(fault) => faults.push(format!("policy `{id}`: {fault}")),
            }
        }
        if self.enabled { requests } else { Vec::new() }
    }

    fn label(&self) -> &str {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

impl Rule {
    fn request(&self, policy: &Arc<str>, action: Action, holds: bool) -> Result<PolicyRequest, String> {
        let rule = RuleType::read(&self.r#type, &self.operator)?;
        let named = PolicyRule { policy: Arc::clone(policy), rule };
        let demand = Demand { action, policy: Some(named.clone()), holds };
        let guard = match rule {
            RuleType::MaxTokens => GuardName::MaxTokens,
            RuleType::MaxLatency => GuardName::Latency,
            RuleType::MaxCostPerDay => GuardName::SpendLimit,
            RuleType::MaxRequestsPerMinute => GuardName::RateLimit,
            RuleType::BlockedTopics => return Ok(PolicyRequest::Topics(rule.list(&self.value)?, demand)),
            RuleType::DeniedTools => return Ok(PolicyRequest::DeniedTools(rule.list(&self.value)?, demand)),
            RuleType::AllowedModels => return Ok(PolicyRequest::AllowedModels(rule.list(&self.value)?, demand)),
            RuleType::RequiredGuards => {
                let required = rule.list(&self.value)?.iter().map(|name| required(name)).collect::<Result<_, _>>()?;
                return Ok(PolicyRequest::RequiredGuards(required, demand));
            }
        };
        let most = rule.number(&self.value)?;
        Ok(PolicyRequest::Limit(Limit { guard, most, reached: self.operator == "lt", action, policy: Some(named) }))
    }
}

/// A guard that an agent may be required to have.
fn required(name: &str) -> Result<GuardName, String> {
    let known = || GuardName::ALL.into_iter().filter(|guard| *guard != GuardName::Latency);
    known().find(|guard| guard.as_str() == name).ok_or_else(|| {
        let names: Vec<_> = known().map(GuardName::as_str).collect();
        let name = &name[..name.floor_char_boundary(64)];
        format!("rule required_guards: unknown guard `{name}`; known are {}", names.join(", "))
    })
}
