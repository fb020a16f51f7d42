//! The types of rules that a policy may have: their names, the operators that each takes, and the reading of their values.

use std::sync::Arc;

/// A list in a value may have this many bytes.
pub(crate) const MAX_VALUE_BYTES: usize = 2048;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RuleType {
    MaxTokens,
    MaxLatency,
    MaxCostPerDay,
    MaxRequestsPerMinute,
    BlockedTopics,
    DeniedTools,
    AllowedModels,
    RequiredGuards,
}

/// The rule of a policy that asked for a check.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PolicyRule {
    /// The policy's id.
    pub policy: Arc<str>,
    pub rule: RuleType,
}

impl RuleType {
    pub const ALL: [Self; 8] = [
        Self::MaxTokens,
        Self::MaxLatency,
        Self::MaxCostPerDay,
        Self::MaxRequestsPerMinute,
        Self::BlockedTopics,
        Self::DeniedTools,
        Self::AllowedModels,
        Self::RequiredGuards,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MaxTokens => "max_tokens",
            Self::MaxLatency => "max_latency",
            Self::MaxCostPerDay => "max_cost_per_day",
            Self::MaxRequestsPerMinute => "max_requests_per_minute",
            Self::BlockedTopics => "blocked_topics",
            Self::DeniedTools => "denied_tools",
            Self::AllowedModels => "allowed_models",
            Self::RequiredGuards => "required_guards",
        }
    }

    /// The operators that it takes.
    pub const fn operators(self) -> &'static [&'static str] {
        match self {
            Self::MaxTokens | Self::MaxLatency | Self::MaxCostPerDay | Self::MaxRequestsPerMinute => &["lt", "lte"],
            Self::BlockedTopics | Self::DeniedTools | Self::RequiredGuards => &["contains"],
            Self::AllowedModels => &["in"],
        }
    }

    /// A type and an operator that fit each other, or a message that says what would be right.
    pub(crate) fn read(name: &str, operator: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|rule| rule.as_str() == name);
        let rule =
            known.ok_or_else(|| format!("unknown rule type `{}`; known are {}", cut(name), Self::ALL.map(Self::as_str).join(", ")))?;
        if rule.operators().contains(&operator) {
            return Ok(rule);
        }
        Err(format!("rule {name} does not know the operator `{}`; it takes {}", cut(operator), rule.operators().join(" or ")))
    }

    /// A number above zero.
    pub(crate) fn number(self, value: &str) -> Result<f64, String> {
        let number = value.trim().parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0);
        number.ok_or_else(|| {
            let unit = match self {
                Self::MaxLatency => "milliseconds, such as `2000`",
                Self::MaxCostPerDay => "US dollars, such as `10.00`",
                Self::MaxRequestsPerMinute => "requests, such as `60`",
                _ => "tokens, such as `4096`",
            };
            format!("rule {}: `{}` is not a number above zero; its value is a number of {unit}", self.as_str(), cut(value))
        })
    }

    /// The elements of a list with commas, at least one.
    pub(crate) fn list(self, value: &str) -> Result<Vec<String>, String> {
        let name = self.as_str();
        if value.len() > MAX_VALUE_BYTES {
            return Err(format!("rule {name}: its value has {} bytes; it may have {MAX_VALUE_BYTES}", value.len()));
        }
        let mut listed: Vec<String> = Vec::new();
        for element in value.split(',').map(str::trim).filter(|element| !element.is_empty()) {
            if !listed.iter().any(|known| known == element) {
                listed.push(element.to_owned());
            }
        }
        if !listed.is_empty() {
            return Ok(listed);
        }
        let (what, example) = match self {
            Self::DeniedTools => ("tool", "shell, github"),
            Self::AllowedModels => ("model", "openai:gpt-4o, anthropic:*"),
            Self::RequiredGuards => ("guard", "pii-detection, secrets-scanner"),
            _ => ("topic", "violence, self_harm"),
        };
        Err(format!("rule {name} names no {what}; its value is a list such as `{example}`"))
    }
}

/// Enough of a stranger's text for a message.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}
