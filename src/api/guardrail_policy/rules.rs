//! What a rule may say: patterns and messages of the API server's rules, and the same judged without one.

use super::{
    DESCRIPTION_BYTES_MAX, GuardrailPolicySpec, GuardrailRule, Operator, RULES_MAX, RuleType, Severity, TOPIC_WORDS_MAX, VALUE_BYTES_MAX,
};
use crate::agent::Guard;
use crate::model_type::{ModelType, providers};

pub(super) const NUMBER_OPERATORS: &str = "operator: max_tokens, max_latency, max_cost_per_day and max_requests_per_minute take lt or lte";
pub(super) const LIST_OPERATORS: &str = "operator: blocked_topics, denied_tools and required_guards take contains";
pub(super) const MODEL_OPERATORS: &str = "operator: allowed_models takes in";
pub(super) const WHOLE_NUMBER: &str =
    "value: max_tokens, max_latency (milliseconds) and max_requests_per_minute take a whole number above 0, such as 4096";
pub(super) const DOLLARS: &str = "value: max_cost_per_day takes US dollars above 0 with at most 6 decimal places, such as 10.00";
pub(super) const TOPICS: &str =
    "value: blocked_topics takes topics separated by commas, each with a letter or a digit, such as violence, self_harm";
pub(super) const TOPIC_WORDS: &str =
    "value: a topic of blocked_topics takes at most 32 words; of a script without spaces between words, each character is one";
pub(super) const TOOLS: &str =
    "value: denied_tools takes names of tools separated by commas, of letters, digits, _ and -, such as send_mail, files_delete";
pub(super) const MODELS: &str = "value: allowed_models takes models separated by commas, such as openai:gpt-4o-mini, or openai:* for all of a provider; the providers are stub, ollama, openai, anthropic, google-ai, vertex-ai and bedrock";
pub(super) const GUARDS: &str = "value: required_guards takes guards separated by commas: pii-detection, secrets-scanner, prompt-injection, blocked-topics, max-tokens, rate-limit, spend-limit";
pub(super) const VALUE_BYTES: &str = "value: must have at most 2048 bytes";
pub(super) const ROLLBACK_RULES: &str =
    "rollback: is possible only where all rules are of type blocked_topics, because nothing else is found in answers";
pub(super) const ROLLBACK_SEVERITY: &str = "rollback: is possible only with severity critical";

pub(super) const WHOLE_PATTERN: &str = "^[1-9][0-9]{0,11}$";
/// And a digit that is not zero.
pub(super) const DOLLARS_PATTERN: &str = "^(0|[1-9][0-9]{0,8})([.][0-9]{1,6})?$";
/// A topic without a word is found in no text, and runtimes refuse it. They take some characters more for letters than this does.
pub(super) const TOPICS_PATTERN: &str = r"^[^,\p{Cc}]*[\p{L}\p{N}][^,\p{Cc}]*(,[^,\p{Cc}]*[\p{L}\p{N}][^,\p{Cc}]*)*$";
pub(super) const TOOLS_PATTERN: &str = "^ *[A-Za-z0-9_-]{1,64} *(, *[A-Za-z0-9_-]{1,64} *)*$";
/// All models of a provider, or one. A model's id may have colons, as `llama3:8b` has.
macro_rules! model {
    () => {
        concat!("((", providers!(), r"):[*]|([^,*\p{Z}\p{Cc}]*[^,*:\p{Z}\p{Cc}]))")
    };
}
pub(super) const MODELS_PATTERN: &str = concat!("^ *", model!(), " *(, *", model!(), " *)*$");
pub(super) const GUARDS_PATTERN: &str = "^ *(pii-detection|secrets-scanner|prompt-injection|blocked-topics|max-tokens|rate-limit|spend-limit) *(, *(pii-detection|secrets-scanner|prompt-injection|blocked-topics|max-tokens|rate-limit|spend-limit) *)*$";

/// The API server's rule that the values of these types match the pattern.
pub(super) fn matches(types: &[RuleType], pattern: &str) -> kube::core::Rule {
    let types: Vec<String> = types.iter().map(|of| format!("'{}'", of.as_str())).collect();
    let pattern = pattern.replace('\\', r"\\");
    let nonzero = if pattern == DOLLARS_PATTERN { " && self.value.matches('[1-9]')" } else { "" };
    kube::core::Rule::new(format!("!(self.type in [{}]) || self.value.matches('{pattern}'){nonzero}", types.join(", ")))
}

/// The entries of a list, without the blanks around them.
pub type ItemList<'a> = std::iter::Map<std::str::Split<'a, char>, fn(&'a str) -> &'a str>;

pub(super) fn items(value: &str) -> ItemList<'_> {
    value.split(',').map(str::trim)
}

pub(super) fn spec_fault(spec: &GuardrailPolicySpec) -> Option<String> {
    if !(1..=128).contains(&spec.name.chars().count()) {
        return Some("name: must have 1 to 128 characters".to_owned());
    }
    if spec.description.as_ref().is_some_and(|text| text.len() > DESCRIPTION_BYTES_MAX) {
        return Some(format!("description: must have at most {DESCRIPTION_BYTES_MAX} bytes"));
    }
    if !(1..=RULES_MAX).contains(&spec.rules.len()) {
        return Some(format!("rules: must have 1 to {RULES_MAX} entries"));
    }
    let fault = spec.rules.iter().enumerate().find_map(|(at, rule)| Some(format!("rules[{at}].{}", rule.fault()?)));
    if fault.is_some() || !spec.rollback {
        return fault;
    }
    if spec.rules.iter().any(|rule| rule.type_ != RuleType::BlockedTopics) {
        return Some(ROLLBACK_RULES.to_owned());
    }
    (spec.severity != Severity::Critical).then(|| ROLLBACK_SEVERITY.to_owned())
}

pub(super) fn rule_fault(rule: &GuardrailRule) -> Option<&'static str> {
    use RuleType::{AllowedModels, BlockedTopics, DeniedTools, MaxCostPerDay, MaxLatency, MaxRequestsPerMinute, MaxTokens, RequiredGuards};
    let value = rule.value.as_str();
    let (operators, says): (&[Operator], _) = match rule.type_ {
        MaxTokens | MaxLatency | MaxCostPerDay | MaxRequestsPerMinute => (&[Operator::Lt, Operator::Lte], NUMBER_OPERATORS),
        BlockedTopics | DeniedTools | RequiredGuards => (&[Operator::Contains], LIST_OPERATORS),
        AllowedModels => (&[Operator::In], MODEL_OPERATORS),
    };
    if !operators.contains(&rule.operator) {
        return Some(says);
    }
    if value.len() > VALUE_BYTES_MAX {
        return Some(VALUE_BYTES);
    }
    let (fits, says) = match rule.type_ {
        MaxTokens | MaxLatency | MaxRequestsPerMinute => (is_whole_number(value, 12), WHOLE_NUMBER),
        MaxCostPerDay => (is_dollars(value), DOLLARS),
        BlockedTopics => (!value.contains(char::is_control) && items(value).all(|topic| topic.contains(char::is_alphanumeric)), TOPICS),
        DeniedTools => (every_item(value, is_tool), TOOLS),
        AllowedModels => (every_item(value, is_model), MODELS),
        RequiredGuards => (every_item(value, is_guard), GUARDS),
    };
    if !fits {
        return Some(says);
    }
    (rule.type_ == BlockedTopics && items(value).any(|topic| words(topic) > TOPIC_WORDS_MAX)).then_some(TOPIC_WORDS)
}

/// No fewer than runtimes count, which let some signs stand within a word.
fn words(topic: &str) -> usize {
    let (mut words, mut in_word) = (0, false);
    for letter in topic.chars() {
        let is_letter = letter.is_alphanumeric();
        let has_spaces = u32::from(letter) < 0x0E00;
        if is_letter && !(in_word && has_spaces) {
            words += 1;
        }
        in_word = is_letter && has_spaces;
    }
    words
}

fn is_whole_number(text: &str, digits: usize) -> bool {
    (1..=digits).contains(&text.len()) && !text.starts_with('0') && is_digits(text)
}

fn is_dollars(text: &str) -> bool {
    let (whole, cents) = text.split_once('.').unwrap_or((text, "0"));
    let has_cents = (1..=6).contains(&cents.len()) && is_digits(cents);
    has_cents && (is_whole_number(whole, 9) || (whole == "0" && cents.bytes().any(|digit| digit != b'0')))
}

fn is_digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Spaces are the only blanks here.
fn every_item(value: &str, fits: fn(&str) -> bool) -> bool {
    value.split(',').all(|item| fits(item.trim_matches(' ')))
}

fn is_tool(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

fn is_model(model: &str) -> bool {
    match model.strip_suffix(":*") {
        Some(provider) => ModelType::ALL.iter().any(|known| known.as_str() == provider),
        None => {
            !model.is_empty()
                && !model.ends_with(':')
                && !model.contains(|letter: char| letter == '*' || letter.is_control() || letter.is_whitespace())
        }
    }
}

fn is_guard(name: &str) -> bool {
    Guard::ALL.iter().any(|known| known.as_str() == name)
}
