//! Guardrail policies: `{id, name, severity, enabled, rules: [{type, operator, value}]}`. A critical policy blocks, a warning
//! reports. Latency is only reported, as the turn has ended.

use serde::Deserialize;

use crate::finding::{Action, GuardName};
use crate::limits::Limit;

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Policy {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    pub(crate) severity: Severity,
    #[serde(default = "yes")]
    pub(crate) enabled: bool,
    pub(crate) rules: Vec<Rule>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Severity {
    Warning,
    Critical,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Rule {
    r#type: String,
    operator: String,
    value: String,
}

/// What a rule asks of the guards.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PolicyRequest {
    Limit(Limit),
    Topics(Vec<String>, Action),
}

fn yes() -> bool {
    true
}

impl Policy {
    /// The limits and topics of the policy, empty if it is disabled. Faults are reported even then.
    pub(crate) fn requests(&self, faults: &mut Vec<String>) -> Vec<PolicyRequest> {
        let action = match self.severity {
            Severity::Warning => Action::Warn,
            Severity::Critical => Action::Block,
        };
        let mut requests = Vec::new();
        for rule in &self.rules {
            match rule.requests(&self.id, action) {
                Ok(one) => requests.push(one),
                Err(fault) => faults.push(format!("policy `{}`: {fault}", self.label())),
            }
        }
        if self.enabled { requests } else { Vec::new() }
    }

    fn label(&self) -> &str {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

impl Rule {
    fn requests(&self, policy: &str, action: Action) -> Result<PolicyRequest, String> {
        let guard = match self.r#type.as_str() {
            "max_tokens" => GuardName::MaxTokens,
            "max_latency" => GuardName::Latency,
            "max_cost_per_day" => GuardName::SpendLimit,
            "max_requests_per_minute" => GuardName::RateLimit,
            "blocked_topics" => return self.topics(action),
            other => {
                return Err(format!(
                    "unknown rule type `{other}`; known are max_tokens, max_latency, max_cost_per_day, max_requests_per_minute and blocked_topics"
                ));
            }
        };
        let reached = match self.operator.as_str() {
            "lt" | "<" => true,
            "lte" | "<=" => false,
            other => return Err(format!("rule {} does not know the operator `{other}`; it takes lt or lte", self.r#type)),
        };
        let most = match self.value.trim().parse::<f64>() {
            Ok(most) if most.is_finite() && most >= 0.0 => most,
            _ => return Err(format!("rule {}: `{}` is not a number of zero or more", self.r#type, self.value)),
        };
        Ok(PolicyRequest::Limit(Limit { guard, most, reached, action, policy: Some(policy.to_owned()) }))
    }

    fn topics(&self, action: Action) -> Result<PolicyRequest, String> {
        if self.operator != "contains" {
            return Err(format!("rule blocked_topics does not know the operator `{}`; it takes contains", self.operator));
        }
        let topics: Vec<String> = self.value.split(',').map(str::trim).filter(|topic| !topic.is_empty()).map(str::to_owned).collect();
        if topics.is_empty() {
            return Err("rule blocked_topics names no topic; its value is a list such as `violence, self_harm`".to_owned());
        }
        Ok(PolicyRequest::Topics(topics, action))
    }
}
