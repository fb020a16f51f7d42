//! Parses `RUNTIME_GUARDS` and `RUNTIME_POLICIES`. Unknown names and settings are refused, so that an agent with a misspelt
//! guard does not run without it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::finding::{Action, GuardName};
use crate::limits::Limit;
use crate::policy::{Demand, Policy, PolicyRequest};
use crate::rule::PolicyRule;

/// The parsed configuration.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct GuardConfig {
    pub(crate) pii: Option<Pii>,
    pub(crate) secrets: Option<Action>,
    pub(crate) injection: Option<Injection>,
    pub(crate) topics: Vec<Topics>,
    pub(crate) limits: Vec<Limit>,
    /// The prices of models, by id.
    pub(crate) prices: BTreeMap<String, Price>,
    pub(crate) denied_tools: Vec<(Vec<String>, Demand)>,
    pub(crate) allowed_models: Vec<(Vec<String>, Demand)>,
    /// Guards that a policy wants and the agent lacks, where the policy only warns.
    pub(crate) lacking: Vec<(GuardName, PolicyRule)>,
    /// How many policies are in force.
    pub(crate) policies: usize,
}

/// The price of a model, in US dollars per million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    pub output: f64,
}

impl Price {
    /// The cost of a number of tokens, in US dollars.
    #[expect(clippy::cast_precision_loss, reason = "counts of tokens stay far below 2^53")]
    pub fn of(self, input: u64, output: u64) -> f64 {
        (input as f64 * self.input + output as f64 * self.output) / 1e6
    }

    fn is_some_price(&self) -> bool {
        [self.input, self.output].iter().all(|usd| usd.is_finite() && *usd >= 0.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pii {
    /// Empty: all kinds.
    pub(crate) kinds: Vec<String>,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Injection {
    pub(crate) threshold: f64,
    pub(crate) action: Action,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topics {
    pub(crate) topics: Vec<Topic>,
    pub(crate) demand: Demand,
}

/// A topic. Without words it is a known topic, or its name is the phrase to find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) name: String,
    pub(crate) words: Vec<String>,
}

impl Topic {
    fn named(name: &str) -> Self {
        Self { name: name.to_owned(), words: Vec::new() }
    }
}

/// The topics of the default policy.
pub(crate) const KNOWN_TOPICS: [&str; 3] = ["violence", "illegal_activity", "self_harm"];
const DEFAULT_MAX_TOKENS: f64 = 4096.0;
const DEFAULT_REQUESTS_PER_MINUTE: f64 = 60.0;
const DEFAULT_USD_PER_DAY: f64 = 10.0;
const DEFAULT_LATENCY_MILLISECONDS: f64 = 2000.0;

impl GuardConfig {
    /// `policies` are in force beside those of the text `policies_json`.
    pub(crate) fn read(guards: &str, policies_json: &str, policies: &[Policy]) -> Result<Self, Vec<String>> {
        let mut faults = Vec::new();
        let mut settings = Self::default();
        let mut named = Vec::new();
        for entry in list("RUNTIME_GUARDS", guards, &mut faults) {
            match GuardEntry::read(entry) {
                Ok(entry) if named.contains(&entry.name) => faults.push(format!("guard `{}` is named twice in RUNTIME_GUARDS", entry.name)),
                Ok(entry) => {
                    named.push(entry.name);
                    settings.add(entry, &mut faults);
                }
                Err(fault) => faults.push(fault),
            }
        }
        let mut required = Vec::new();
        for (at, value) in list("RUNTIME_POLICIES", policies_json, &mut faults).into_iter().enumerate() {
            match Policy::read(value) {
                Ok(policy) => settings.add_policy(&policy, &mut required, &mut faults),
                Err(fault) => faults.push(format!("RUNTIME_POLICIES, entry {}: {fault}", at + 1)),
            }
        }
        for policy in policies {
            settings.add_policy(policy, &mut required, &mut faults);
        }
        // Last, as the agent's own guards count first.
        for (guard, demand) in required {
            settings.require(guard, demand, &mut named, &mut faults);
        }
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    }

    fn add(&mut self, mut entry: GuardEntry, faults: &mut Vec<String>) {
        let name = entry.name;
        let limit = |most, action| Limit { guard: name, most, reached: false, action, policy: None };
        match name {
            GuardName::PiiDetection => {
                let kinds = entry.words("kinds", faults);
                for kind in kinds.iter().filter(|kind| !crate::pii::KINDS.contains(&kind.as_str())) {
                    faults.push(format!("guard `{name}`: unknown kind `{kind}`; known are {}", crate::pii::KINDS.join(", ")));
                }
                self.pii = Some(Pii { kinds, action: entry.action(Action::Mask, faults) });
            }
            GuardName::SecretsScanner => self.secrets = Some(entry.action(Action::Block, faults)),
            GuardName::PromptInjection => {
                let threshold = entry.number("threshold", 1.0, faults);
                self.injection = Some(Injection { threshold, action: entry.action(Action::Block, faults) });
            }
            GuardName::BlockedTopics => {
                let topics = entry.topics(faults);
                self.topics.push(Topics { topics, demand: Demand::own(entry.action(Action::Block, faults)) });
            }
            GuardName::MaxTokens => {
                let most = entry.number("limit", DEFAULT_MAX_TOKENS, faults);
                self.limits.push(limit(most, entry.action(Action::Block, faults)));
            }
            GuardName::RateLimit => {
                let most = entry.number("requests", DEFAULT_REQUESTS_PER_MINUTE, faults);
                self.limits.push(limit(most, entry.action(Action::Block, faults)));
            }
            GuardName::SpendLimit => {
                let most = entry.number("usd", DEFAULT_USD_PER_DAY, faults);
                self.prices = entry.prices(faults);
                self.limits.push(limit(most, entry.action(Action::Block, faults)));
            }
            GuardName::Latency => {
                let most = entry.number("milliseconds", DEFAULT_LATENCY_MILLISECONDS, faults);
                self.limits.push(limit(most, entry.action(Action::Warn, faults)));
            }
            // They are not read from `RUNTIME_GUARDS`.
            GuardName::DeniedTools | GuardName::AllowedModels | GuardName::RequiredGuards => {}
        }
        entry.finish(faults);
    }

    fn add_policy(&mut self, policy: &Policy, required: &mut Vec<(GuardName, Demand)>, faults: &mut Vec<String>) {
        self.policies += usize::from(policy.is_enabled());
        for asked in policy.requests(faults) {
            match asked {
                PolicyRequest::Limit(limit) => self.limits.push(limit),
                PolicyRequest::Topics(names, demand) => {
                    let topics = names.iter().map(|name| Topic::named(name)).collect();
                    self.topics.push(Topics { topics, demand });
                }
                PolicyRequest::DeniedTools(names, demand) => self.denied_tools.push((names, demand)),
                PolicyRequest::AllowedModels(names, demand) => self.allowed_models.push((names, demand)),
                PolicyRequest::RequiredGuards(guards, demand) => {
                    required.extend(guards.into_iter().map(|guard| (guard, demand.clone())));
                }
            }
        }
    }

    /// A guard that a critical policy wants and the agent lacks, or has only to be told, is switched on with its defaults.
    fn require(&mut self, guard: GuardName, demand: Demand, named: &mut Vec<GuardName>, faults: &mut Vec<String>) {
        let has = named.contains(&guard);
        match (demand.action, demand.policy) {
            (Action::Block, _) if !has => {
                named.push(guard);
                self.add(GuardEntry { name: guard, settings: Map::new(), known: Vec::new() }, faults);
            }
            (Action::Block, _) => self.strengthen(guard),
            (_, Some(policy)) if !has => self.lacking.push((guard, policy)),
            _ => {}
        }
    }

    fn strengthen(&mut self, guard: GuardName) {
        let stronger = |action: &mut Action, than: Action| {
            if *action == Action::Warn {
                *action = than;
            }
        };
        match guard {
            GuardName::PiiDetection => self.pii.iter_mut().for_each(|pii| stronger(&mut pii.action, Action::Mask)),
            GuardName::SecretsScanner => self.secrets.iter_mut().for_each(|action| stronger(action, Action::Block)),
            GuardName::PromptInjection => self.injection.iter_mut().for_each(|injection| stronger(&mut injection.action, Action::Block)),
            GuardName::BlockedTopics => {
                let own = self.topics.iter_mut().filter(|topics| topics.demand.policy.is_none());
                own.for_each(|topics| stronger(&mut topics.demand.action, Action::Block));
            }
            _ => {
                let own = self.limits.iter_mut().filter(|limit| limit.guard == guard && limit.policy.is_none());
                own.for_each(|limit| stronger(&mut limit.action, Action::Block));
            }
        }
    }
}

/// Parses a JSON array; an empty text is an empty array.
fn list(variable: &str, json: &str, faults: &mut Vec<String>) -> Vec<Value> {
    if json.trim().is_empty() {
        return Vec::new();
    }
    serde_json::from_str(json).unwrap_or_else(|error| {
        faults.push(format!("{variable} is not a JSON array: {error}"));
        Vec::new()
    })
}

/// One guard with its settings that are not taken yet.
struct GuardEntry {
    name: GuardName,
    settings: Map<String, Value>,
    known: Vec<&'static str>,
}

impl GuardEntry {
    fn read(value: Value) -> Result<Self, String> {
        let (name, settings) = match value {
            Value::String(name) => (name, Map::new()),
            Value::Object(mut settings) => match settings.remove("name") {
                Some(Value::String(name)) => (name, settings),
                _ => return Err("an entry of RUNTIME_GUARDS has no `name`".to_owned()),
            },
            other => return Err(format!("RUNTIME_GUARDS holds {other}; an entry is a name or an object with a `name`")),
        };
        match GuardName::read(&name) {
            Some(name) => Ok(Self { name, settings, known: Vec::new() }),
            None => Err(format!("unknown guard `{name}`; known are {}", GuardName::ALL.map(GuardName::as_str).join(", "))),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.settings.remove(key)
    }

    fn fault(&self, key: &str, expected: &str) -> String {
        format!("guard `{}`: `{key}` must be {expected}", self.name)
    }

    fn action(&mut self, default: Action, faults: &mut Vec<String>) -> Action {
        let allowed: &[Action] = match self.name {
            GuardName::PiiDetection | GuardName::SecretsScanner => &[Action::Warn, Action::Mask, Action::Block],
            GuardName::Latency => &[Action::Warn],
            _ => &[Action::Warn, Action::Block],
        };
        let Some(value) = self.take("action") else { return default };
        match serde_json::from_value(value) {
            Ok(action) if allowed.contains(&action) => action,
            _ => {
                let words: Vec<_> = allowed.iter().filter_map(|action| serde_json::to_string(action).ok()).collect();
                faults.push(self.fault("action", &format!("one of {}", words.join(", "))));
                default
            }
        }
    }

    fn number(&mut self, key: &'static str, default: f64, faults: &mut Vec<String>) -> f64 {
        let Some(value) = self.take(key) else { return default };
        match value.as_f64() {
            Some(number) if number > 0.0 => number,
            _ => {
                faults.push(self.fault(key, "a number above zero"));
                default
            }
        }
    }

    fn prices(&mut self, faults: &mut Vec<String>) -> BTreeMap<String, Price> {
        let Some(value) = self.take("prices") else { return BTreeMap::new() };
        match serde_json::from_value::<BTreeMap<String, Price>>(value) {
            Ok(prices) if prices.values().all(Price::is_some_price) => prices,
            _ => {
                faults
                    .push(self.fault("prices", "an object: a model's id, and {\"input\", \"output\"} in US dollars for a million tokens"));
                BTreeMap::new()
            }
        }
    }

    fn words(&mut self, key: &'static str, faults: &mut Vec<String>) -> Vec<String> {
        let Some(value) = self.take(key) else { return Vec::new() };
        match serde_json::from_value::<Vec<String>>(value) {
            Ok(words) if !words.is_empty() && words.iter().all(|word| !word.trim().is_empty()) => words,
            _ => {
                faults.push(self.fault(key, "a list of words"));
                Vec::new()
            }
        }
    }

    fn topics(&mut self, faults: &mut Vec<String>) -> Vec<Topic> {
        let topic = |value: &Value| match value {
            Value::String(name) if !name.trim().is_empty() => Some(Topic::named(name)),
            Value::Object(fields) if fields.keys().all(|key| key == "name" || key == "words") => {
                let name = fields.get("name")?.as_str()?.to_owned();
                let words: Vec<String> = serde_json::from_value(fields.get("words")?.clone()).ok()?;
                words.iter().all(|word| !word.trim().is_empty()).then_some(Topic { name, words })
            }
            _ => None,
        };
        let Some(value) = self.take("topics") else { return KNOWN_TOPICS.map(Topic::named).to_vec() };
        let topics: Option<Vec<Topic>> = value.as_array().and_then(|all| all.iter().map(topic).collect());
        topics.filter(|topics| !topics.is_empty()).unwrap_or_else(|| {
            faults.push(self.fault("topics", "a list of names or of {\"name\", \"words\"}"));
            Vec::new()
        })
    }

    fn finish(self, faults: &mut Vec<String>) {
        for key in self.settings.keys() {
            faults.push(format!("guard `{}`: unknown setting `{key}`; known are {}", self.name, self.known.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_settings_are_refused_and_the_known_ones_listed() {
        for (guards, policies, fault) in [
            (r#"["pii"]"#, "", "unknown guard `pii`; known are pii-detection, secrets-scanner"),
            (r#"{"name": "pii-detection"}"#, "", "RUNTIME_GUARDS is not a JSON array"),
            ("[7]", "", "RUNTIME_GUARDS holds 7; an entry is a name or an object with a `name`"),
            (r#"[{"limit": 7}]"#, "", "an entry of RUNTIME_GUARDS has no `name`"),
            (r#"["rate-limit", "rate-limit"]"#, "", "guard `rate-limit` is named twice"),
            (r#"[{"name": "max-tokens", "limits": 7}]"#, "", "guard `max-tokens`: unknown setting `limits`; known are limit, action"),
            (r#"[{"name": "max-tokens", "limit": -1}]"#, "", "guard `max-tokens`: `limit` must be a number above zero"),
            (r#"[{"name": "spend-limit", "prices": {"m": {"input": 1}}}]"#, "", "guard `spend-limit`: `prices` must be an object"),
            (r#"[{"name": "spend-limit", "prices": {"m": {"input": -1, "output": 1}}}]"#, "", "guard `spend-limit`: `prices` must be"),
            (r#"[{"name": "max-tokens", "action": "mask"}]"#, "", "guard `max-tokens`: `action` must be one of \"warn\", \"block\""),
            (r#"[{"name": "pii-detection", "kinds": ["mail"]}]"#, "", "unknown kind `mail`; known are email, phone"),
            (r#"[{"name": "blocked-topics", "topics": []}]"#, "", "`topics` must be a list"),
            ("", r#"[{"id": "gp_a", "severity": "fatal", "rules": []}]"#, "RUNTIME_POLICIES, entry 1: unknown variant `fatal`"),
            (
                "",
                r#"[{"id": "gp_a", "severity": "warning", "rules": [{"type": "max_size", "operator": "lt", "value": "1"}]}]"#,
                "policy `gp_a`: unknown rule type `max_size`",
            ),
            (
                "",
                r#"[{"id": "gp_a", "severity": "warning", "rules": [{"type": "max_tokens", "operator": "gt", "value": "1"}]}]"#,
                "rule max_tokens does not know the operator `gt`; it takes lt or lte",
            ),
            (
                "",
                r#"[{"id": "gp_a", "severity": "warning", "enabled": false, "rules": [{"type": "max_tokens", "operator": "lt", "value": "many"}]}]"#,
                "`many` is not a number above zero; its value is a number of tokens, such as `4096`",
            ),
            (
                "",
                r#"[{"id": "gp_a", "severity": "warning", "rules": [{"type": "blocked_topics", "operator": "contains", "value": " , "}]}]"#,
                "names no topic",
            ),
        ] {
            let faults = GuardConfig::read(guards, policies, &[]).unwrap_err();
            assert!(faults.len() == 1 && faults[0].contains(fault), "{guards} {policies}: {faults:?}");
        }
    }

    #[test]
    fn all_faults_are_returned_at_once() {
        let faults = GuardConfig::read(r#"["a", "b", {"name": "rate-limit", "per": 1}]"#, "{}", &[]).unwrap_err();
        assert_eq!(faults.len(), 4, "{faults:?}");
    }

    #[test]
    fn empty_variables_configure_no_guard() {
        assert_eq!(GuardConfig::read("", "", &[]).unwrap(), GuardConfig::default());
        assert_eq!(GuardConfig::read("[]", " [] ", &[]).unwrap(), GuardConfig::default());
    }

    #[test]
    fn the_default_policies_of_the_service_are_valid() {
        let rule = |kind, operator, value| format!(r#"[{{"type": "{kind}", "operator": "{operator}", "value": "{value}"}}]"#);
        let policies = format!(
            r#"[{{"id": "gp_default_tokens", "name": "Token Limit", "severity": "warning", "enabled": true, "rules": {}}},
                {{"id": "gp_default_latency", "name": "Latency SLA", "description": "", "severity": "critical", "rules": {}}},
                {{"id": "gp_default_topics", "name": "Blocked Topics", "severity": "critical", "rules": {}}},
                {{"id": "gp_default_cost", "name": "Daily Cost Cap", "severity": "warning", "rules": {}}},
                {{"id": "gp_off", "name": "", "severity": "critical", "enabled": false, "rules": {}}}]"#,
            rule("max_tokens", "lt", "4096"),
            rule("max_latency", "lt", "2000"),
            rule("blocked_topics", "contains", "violence, illegal_activity, self_harm"),
            rule("max_cost_per_day", "lt", "10.00"),
            rule("max_tokens", "lt", "1"),
        );
        let settings = GuardConfig::read("", &policies, &[]).unwrap();
        let limits: Vec<_> = settings.limits.iter().map(|limit| (limit.guard, limit.most, limit.reached, limit.action)).collect();
        assert_eq!(
            limits,
            [
                (GuardName::MaxTokens, 4096.0, true, Action::Warn),
                (GuardName::Latency, 2000.0, true, Action::Block),
                (GuardName::SpendLimit, 10.0, true, Action::Warn)
            ]
        );
        assert_eq!((settings.topics.len(), settings.topics[0].topics.len(), settings.topics[0].demand.action), (1, 3, Action::Block));
    }
}
