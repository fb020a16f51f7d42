//! The four policies that every team begins with.

use super::{GuardrailPolicySpec, GuardrailRule, Operator, RuleType, Severity};

/// Their resources' names, in the order of [`defaults`].
pub const DEFAULT_NAMES: [&str; 4] = ["default-tokens", "default-latency", "default-topics", "default-cost"];

/// What they say when they are made.
pub fn defaults() -> [(&'static str, GuardrailPolicySpec); 4] {
    let [tokens, latency, topics, cost] = DEFAULT_NAMES;
    let policy = |name: &str, description: &str, severity, rule: GuardrailRule| GuardrailPolicySpec {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        severity,
        enabled: true,
        // Every agent is held to it, and would stream no more.
        hold_answers: rule.type_ != RuleType::BlockedTopics,
        rules: vec![rule],
        rollback: false,
    };
    [
        (
            tokens,
            policy(
                "Token Limit",
                "A request takes fewer than 4096 tokens.",
                Severity::Warning,
                GuardrailRule::new(RuleType::MaxTokens, Operator::Lt, "4096"),
            ),
        ),
        (
            latency,
            policy(
                "Latency SLA",
                "An answer takes less than two seconds.",
                Severity::Critical,
                GuardrailRule::new(RuleType::MaxLatency, Operator::Lt, "2000"),
            ),
        ),
        (
            topics,
            policy(
                "Blocked Topics",
                "Neither people nor agents speak of these topics.",
                Severity::Critical,
                GuardrailRule::new(RuleType::BlockedTopics, Operator::Contains, "violence, illegal_activity, self_harm"),
            ),
        ),
        (
            cost,
            policy(
                "Daily Cost Cap",
                "The model costs an agent less than ten US dollars a day.",
                Severity::Warning,
                GuardrailRule::new(RuleType::MaxCostPerDay, Operator::Lt, "10.00"),
            ),
        ),
    ]
}
