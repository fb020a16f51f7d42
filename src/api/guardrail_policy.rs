//! `GuardrailPolicy`: limits and bans that agents of a namespace are held to, no matter who writes the agents.
//!
//! What a rule may say is judged twice by the same measure: by the API server, whose rules stand beside the fields, and by
//! [`GuardrailPolicySpec::fault`] where no API server is asked. `rules` holds the patterns and messages of both.

mod defaults;
mod rules;
#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema;
use crate::words::words;

pub use defaults::{DEFAULT_NAMES, defaults};
pub use rules::ItemList;

/// In `governance.policies`: those of [`DEFAULT_NAMES`] that exist. No policy has this name.
pub const DEFAULT: &str = "default";
/// How many rules a policy may have, and how many bytes the value of one.
pub const RULES_MAX: usize = 16;
pub const VALUE_BYTES_MAX: usize = 2048;
/// How many words a topic may have. Told by [`GuardrailPolicySpec::fault`] alone, as no pattern counts words.
pub const TOPIC_WORDS_MAX: usize = 32;
/// How many bytes a description may have.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
/// How many policies a team may require, and how many a status names that violated one.
pub const REQUIRED_MAX: usize = 16;
pub const VIOLATORS_MAX: usize = 20;

/// Limits and bans that agents of the same namespace are held to. Running agents follow a change within about a minute, without a restart.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Debug, Clone, Default, PartialEq)]
#[kube(
    group = "agents.slipway.dev",
    version = "v1",
    kind = "GuardrailPolicy",
    doc = "Limits and bans that agents of the same namespace are held to. Running agents follow a change within about a minute, without a restart.",
    plural = "guardrailpolicies",
    singular = "guardrailpolicy",
    shortname = "gp",
    category = "slipway",
    namespaced,
    derive = "PartialEq",
    status = "GuardrailPolicyStatus",
    selectable = ".spec.severity",
    selectable = ".spec.enabled",
    printcolumn(name = "Severity", type_ = "string", json_path = ".spec.severity"),
    printcolumn(name = "Enabled", type_ = "boolean", json_path = ".spec.enabled"),
    printcolumn(name = "Agents", type_ = "integer", json_path = ".status.agents"),
    printcolumn(name = "Violations", type_ = "integer", json_path = ".status.violations.total"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type=='Ready')].status"),
    printcolumn(name = "Name", type_ = "string", json_path = ".spec.name", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    validation = kube::core::Rule::new("self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')")
        .message("metadata.name: must begin with a lower-case letter and have at most 63 lower-case letters, digits and hyphens"),
    validation = kube::core::Rule::new("self.metadata.name != 'default'")
        .message("metadata.name: default stands for the four policies that every team begins with; choose another name"),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!self.rollback || self.rules.all(r, r.type == 'blocked_topics')")
        .message(rules::ROLLBACK_RULES),
    validation = kube::core::Rule::new("!self.rollback || self.severity == 'critical'")
        .message(rules::ROLLBACK_SEVERITY),
)]
pub struct GuardrailPolicySpec {
    /// Display name, shown to people.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// What the policy is for. At most 1024 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 1024").message("must have at most 1024 bytes"))]
    pub description: Option<String>,
    /// critical refuses what breaks the policy before the model is asked, or in the texts. warning reports it and lets it pass. What is found only after an answer (max_latency, and the cost of that answer) is reported whatever the severity.
    pub severity: Severity,
    /// Whether agents are held to the policy. Default true.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// What must hold, 1 to 16 rules, each by itself.
    #[schemars(length(min = 1, max = 16))]
    pub rules: Vec<GuardrailRule>,
    /// Brings back the release before, when answers of a new one break the policy significantly more often, in many conversations. It takes severity critical, and rules of type blocked_topics alone. Default false.
    #[serde(default)]
    pub rollback: bool,
    /// Whether a streamed answer is held back until all of it was judged, where severity critical and blocked_topics may block it: no byte of a blocked answer is given out, and the first word comes with the last. false streams words as they come and ends the answer where a topic begins. Default true; default-topics begins with false.
    #[serde(default = "yes")]
    pub hold_answers: bool,
}

/// One rule of a policy.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, Eq, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = kube::core::Rule::new("!self.type.startsWith('max_') || self.operator in ['lt', 'lte']")
        .message(rules::NUMBER_OPERATORS),
    validation = kube::core::Rule::new("!(self.type in ['blocked_topics', 'denied_tools', 'required_guards']) || self.operator == 'contains'")
        .message(rules::LIST_OPERATORS),
    validation = kube::core::Rule::new("self.type != 'allowed_models' || self.operator == 'in'")
        .message(rules::MODEL_OPERATORS),
    validation = rules::matches(&[RuleType::MaxTokens, RuleType::MaxLatency, RuleType::MaxRequestsPerMinute], rules::WHOLE_PATTERN)
        .message(rules::WHOLE_NUMBER),
    validation = rules::matches(&[RuleType::MaxCostPerDay], rules::DOLLARS_PATTERN)
        .message(rules::DOLLARS),
    validation = rules::matches(&[RuleType::BlockedTopics], rules::TOPICS_PATTERN)
        .message(rules::TOPICS),
    validation = rules::matches(&[RuleType::DeniedTools], rules::TOOLS_PATTERN)
        .message(rules::TOOLS),
    validation = rules::matches(&[RuleType::AllowedModels], rules::MODELS_PATTERN)
        .message(rules::MODELS),
    validation = rules::matches(&[RuleType::RequiredGuards], rules::GUARDS_PATTERN)
        .message(rules::GUARDS),
)]
pub struct GuardrailRule {
    /// max_tokens: the tokens of a prompt and of its answer. max_latency: the time of an answer in milliseconds. max_cost_per_day: what the model costs the agent in a day (UTC), in US dollars, over all of its pods. max_requests_per_minute: chats with the agent, over all of its pods where the platform has a database. blocked_topics: topics of messages and answers. denied_tools: tools by the names that the model sees, or Tools by their resource's name. allowed_models: the only models that may be asked. required_guards: guards that the agent must have; critical switches those on that it lacks.
    #[serde(rename = "type")]
    pub type_: RuleType,
    /// lt (less than) or lte (at most) of the types that begin with max_; contains of blocked_topics, denied_tools and required_guards; in of allowed_models.
    pub operator: Operator,
    /// Always a text, for example "4096". A whole number above 0; US dollars above 0, of max_cost_per_day; or a list separated by commas: topics, names of tools, models (openai:gpt-4o-mini, openai:* or gpt-4o-mini), or guards (pii-detection, secrets-scanner, prompt-injection, blocked-topics, max-tokens, rate-limit, spend-limit). At most 2048 bytes.
    #[schemars(length(min = 1, max = 2048))]
    #[x_kube(validation = kube::core::Rule::new("bytes(self).size() <= 2048").message(rules::VALUE_BYTES))]
    pub value: String,
}

words!(
    /// What a rule is about.
    #[derive(PartialOrd, Ord, Hash)]
    RuleType {
        MaxTokens = "max_tokens",
        MaxLatency = "max_latency",
        MaxCostPerDay = "max_cost_per_day",
        MaxRequestsPerMinute = "max_requests_per_minute",
        BlockedTopics = "blocked_topics",
        DeniedTools = "denied_tools",
        AllowedModels = "allowed_models",
        RequiredGuards = "required_guards",
    }
);
words!(
    /// How a rule compares.
    Operator { Lt = "lt", Lte = "lte", Contains = "contains", In = "in" }
);
words!(
    /// What becomes of that which breaks a policy.
    #[derive(PartialOrd, Ord, Hash)]
    Severity { Warning = "warning", Critical = "critical" }
);

impl GuardrailPolicySpec {
    /// What is wrong with the policy, field first, in the words of the API server's rules.
    pub fn fault(&self) -> Option<String> {
        rules::spec_fault(self)
    }
}

impl GuardrailRule {
    pub fn new(type_: RuleType, operator: Operator, value: impl Into<String>) -> Self {
        Self { type_, operator, value: value.into() }
    }

    /// What is wrong with the rule, field first, in the words of the API server's rules.
    pub fn fault(&self) -> Option<&'static str> {
        rules::rule_fault(self)
    }

    /// The entries of a value that is a list.
    pub fn items(&self) -> ItemList<'_> {
        rules::items(&self.value)
    }
}

/// Whom the policy holds, and what broke it.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardrailPolicyStatus {
    /// The id in the REST API.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 66))]
    pub id: Option<String>,
    /// Agents that are held to the policy.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub agents: Option<i32>,
    /// What broke the policy in the last 24 hours. Absent while nobody counts, as without a database.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub violations: Option<PolicyViolations>,
    /// Whose violations these were, by agent and type of rule, the most frequent first. At most 20.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub violators: Vec<Violator>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready: agents are given the policy. Stalled: not before somebody changes something.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// How often a policy was broken in the last 24 hours.
#[derive(Serialize, Deserialize, Debug, Clone, Copy, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyViolations {
    /// All violations.
    #[schemars(range(min = 0))]
    pub total: i64,
    /// Those that were refused.
    #[schemars(range(min = 0))]
    pub blocked: i64,
}

/// An agent that broke a rule of a policy in the last 24 hours.
#[derive(Serialize, Deserialize, Debug, Clone, Default, PartialEq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Violator {
    /// The Agent, by name.
    #[schemars(length(max = 63))]
    pub agent: String,
    /// The type of the rule.
    pub rule: RuleType,
    /// How often.
    #[schemars(range(min = 0))]
    pub count: i64,
    /// How often of these it was refused.
    #[schemars(range(min = 0))]
    pub blocked: i64,
    /// When last.
    #[serde(default, deserialize_with = "schema::readable", skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Time>,
    /// The trace of the last one, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub last_trace: Option<String>,
}

const fn yes() -> bool {
    true
}
