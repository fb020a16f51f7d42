//! The rules that the API server has, and those that are asked without it, judge alike.

use std::sync::LazyLock;

use proptest::prelude::*;
use regex::Regex;
use serde_json::Value;

use super::*;
use crate::contract::policies::{self, PolicyConfig, PolicyFile};
use crate::model_type::ModelType;

fn rule(type_: RuleType, operator: &str, value: &str) -> GuardrailRule {
    let operator = Operator::ALL.iter().copied().find(|known| known.as_str() == operator).unwrap();
    GuardrailRule::new(type_, operator, value)
}

fn policy(rules: Vec<GuardrailRule>) -> GuardrailPolicySpec {
    GuardrailPolicySpec { name: "Policy".into(), severity: Severity::Critical, enabled: true, rules, ..Default::default() }
}

/// The operator that a type takes.
fn operator(type_: RuleType) -> &'static str {
    match type_ {
        RuleType::AllowedModels => "in",
        RuleType::BlockedTopics | RuleType::DeniedTools | RuleType::RequiredGuards => "contains",
        _ => "lte",
    }
}

#[test]
fn the_defaults_are_those_of_the_specification() {
    let made = defaults().map(|(name, spec)| {
        assert_eq!(spec.fault(), None, "{name}");
        let rule = &spec.rules[0];
        let id = crate::ids::guardrail_policy(name);
        format!("{id} | {} | {} | {} {} {}", spec.name, spec.severity.as_str(), rule.type_.as_str(), rule.operator.as_str(), rule.value)
    });
    assert_eq!(
        made,
        [
            "gp_default_tokens | Token Limit | warning | max_tokens lt 4096",
            "gp_default_latency | Latency SLA | critical | max_latency lt 2000",
            "gp_default_topics | Blocked Topics | critical | blocked_topics contains violence, illegal_activity, self_harm",
            "gp_default_cost | Daily Cost Cap | warning | max_cost_per_day lt 10.00",
        ]
    );
    assert_eq!(defaults().map(|(name, _)| name), DEFAULT_NAMES);
    assert_eq!(defaults().map(|(_, spec)| spec.hold_answers), [true, true, false, true], "agents go on streaming");
}

#[test]
fn each_type_takes_its_operators_and_says_which() {
    for type_ in RuleType::ALL.iter().copied() {
        let good = match type_ {
            RuleType::RequiredGuards => "rate-limit",
            _ => "1",
        };
        for word in Operator::ALL.iter().map(|operator| operator.as_str()) {
            let fits = word == operator(type_) || (word == "lt" && operator(type_) == "lte");
            let fault = rule(type_, word, good).fault();
            assert_eq!(fault.is_none(), fits, "{} {word}: {fault:?}", type_.as_str());
            if let Some(fault) = fault {
                assert!(fault.contains(type_.as_str()) && fault.ends_with(&format!(" {}", operator(type_))), "{fault}");
            }
        }
    }
}

#[test]
fn values_have_the_form_of_their_type() {
    use RuleType::{AllowedModels, BlockedTopics, DeniedTools, MaxCostPerDay, MaxLatency, MaxRequestsPerMinute, MaxTokens, RequiredGuards};
    let long = "x".repeat(VALUE_BYTES_MAX);
    let cases: &[(RuleType, &[&str], &[&str])] = &[
        (MaxTokens, &["1", "4096", "999999999999"], &["0", "", "-1", "4096.0", " 1", "1 ", "01", "1e3", "many", "1000000000000", "٣"]),
        (MaxLatency, &["2000"], &["0", "2s", "0.5"]),
        (MaxRequestsPerMinute, &["60"], &["0", "1.5", "inf"]),
        (
            MaxCostPerDay,
            &["10.00", "5", "0.01", "0.000001", "999999999.999999"],
            &["0", "0.00", "0.0000001", "-1", ".5", "5.", "1.2345678", "$5", "NaN", "1,5", "00.1", "1000000000"],
        ),
        (
            BlockedTopics,
            &["violence", "violence, illegal_activity", " weapons of war ,x", "日本", &long],
            &["", " ", ",", "a,", ",a", "a, ,b", "a\nb", "\u{3000}", "a,\u{a0}", "a\u{85}b", "a\0", "!", "a, *", "…"],
        ),
        (DeniedTools, &["send_mail", "a, github_create-issue ,B"], &["", "a b", "a,", "a,,b", "a.b", "github_*", "ä", &"x".repeat(65)]),
        (
            AllowedModels,
            &["gpt-4o-mini", "openai:gpt-4o-mini, anthropic:*", "llama3:8b", "ollama:llama3:8b", "bedrock:a.b-v1:0", " stub:* "],
            &["", "*", "openai:", "acme:*", "openai:gpt-*", "a b", "a,", "a,,b", "openai :*", "openai:*:*", "gpt\t4"],
        ),
        (
            RequiredGuards,
            &["pii-detection", "secrets-scanner, rate-limit ,max-tokens", "prompt-injection,blocked-topics,spend-limit"],
            &["", "latency", "pii", "pii-detection,", "PII-detection", "pii-detection rate-limit", "pii-detection;rate-limit"],
        ),
    ];
    for (type_, good, bad) in cases {
        for value in *good {
            assert_eq!(rule(*type_, operator(*type_), value).fault(), None, "{} {value:?}", type_.as_str());
        }
        for value in *bad {
            let fault = rule(*type_, operator(*type_), value).fault();
            assert!(fault.is_some_and(|fault| fault.starts_with("value: ") && fault.contains(type_.as_str())), "{value:?}: {fault:?}");
        }
    }
    for (topic, most) in [("a ", 32), ("wür-", 32), ("日", 32), ("日x", 16)] {
        assert_eq!(rule(BlockedTopics, "contains", &topic.repeat(most)).fault(), None, "{topic}");
        let fault = rule(BlockedTopics, "contains", &format!("violence, {}", topic.repeat(most + 1))).fault();
        assert_eq!(fault, Some(rules::TOPIC_WORDS), "{topic}");
    }
    assert_eq!(rule(BlockedTopics, "contains", &"a b,".repeat(100)).fault(), Some(rules::TOPICS), "the last topic is empty");
    assert_eq!(rule(BlockedTopics, "contains", &format!("{}c", "a b,".repeat(100))).fault(), None, "each topic by itself");
    assert_eq!(rule(BlockedTopics, "contains", &format!("{long}x")).fault(), Some(rules::VALUE_BYTES));
    assert_eq!(rule(BlockedTopics, "contains", &"ä".repeat(1025)).fault(), Some(rules::VALUE_BYTES));
}

#[test]
fn the_fault_of_allowed_models_names_every_provider() {
    let words: Vec<_> = ModelType::ALL.iter().map(|provider| provider.as_str()).collect();
    let (last, others) = words.split_last().unwrap();
    assert!(rules::MODELS.ends_with(&format!(" {} and {last}", others.join(", "))), "{}", rules::MODELS);
}

#[test]
fn a_fault_of_a_policy_says_where() {
    let topics = || rule(RuleType::BlockedTopics, "contains", "violence");
    let tokens = || rule(RuleType::MaxTokens, "lt", "1");
    let cases = [
        (policy(vec![topics(), tokens()]), None),
        (GuardrailPolicySpec { rollback: true, ..policy(vec![topics()]) }, None),
        (policy(vec![topics(), rule(RuleType::MaxTokens, "in", "1")]), Some("rules[1].operator: max_tokens")),
        (policy(vec![rule(RuleType::MaxTokens, "lt", "many")]), Some("rules[0].value: max_tokens")),
        (policy(Vec::new()), Some("rules: must have 1 to 16")),
        (policy(vec![tokens(); 17]), Some("rules: must have 1 to 16")),
        (GuardrailPolicySpec { name: String::new(), ..policy(vec![tokens()]) }, Some("name: must have 1 to 128")),
        (GuardrailPolicySpec { name: "ä".repeat(129), ..policy(vec![tokens()]) }, Some("name: must have 1 to 128")),
        (GuardrailPolicySpec { description: Some("ä".repeat(513)), ..policy(vec![tokens()]) }, Some("description: must have at most 1024")),
        (GuardrailPolicySpec { rollback: true, ..policy(vec![topics(), tokens()]) }, Some(rules::ROLLBACK_RULES)),
        (GuardrailPolicySpec { rollback: true, severity: Severity::Warning, ..policy(vec![topics()]) }, Some(rules::ROLLBACK_SEVERITY)),
    ];
    for (spec, expected) in cases {
        let fault = spec.fault();
        match expected {
            None => assert_eq!(fault, None),
            Some(begin) => assert!(fault.as_ref().is_some_and(|fault| fault.starts_with(begin)), "{begin}: {fault:?}"),
        }
    }
}

/// 64 policies of a team, with all that a policy may have, are more than the file may hold; what one may have is bounded.
#[test]
fn the_largest_policy_has_a_bound_in_bytes() {
    let largest = rule(RuleType::BlockedTopics, "contains", &format!("a{}", "\"".repeat(VALUE_BYTES_MAX - 1)));
    let spec = GuardrailPolicySpec { name: "ä".repeat(128), ..policy(vec![largest; RULES_MAX]) };
    assert_eq!(spec.fault(), None);
    let bytes = serde_json::to_vec(&PolicyConfig::new("gp_a".into(), &spec)).unwrap().len();
    assert!(bytes > 64 * 1024 && bytes < 68 * 1024, "{bytes}");
    assert!(bytes * 7 < policies::FILE_BYTES_MAX && bytes * 8 > policies::FILE_BYTES_MAX);
}

#[test]
fn the_file_reads_as_runtimes_expect_it() {
    let [(name, spec), ..] = defaults();
    let id = crate::ids::guardrail_policy(name);
    let file = PolicyFile { policies: vec![PolicyConfig::new(id.clone(), &spec)], default: vec![id.clone()], required: Vec::new() };
    let json = serde_json::to_value(&file).unwrap();
    let expected = serde_json::json!({
        "policies": [{
            "id": "gp_default_tokens", "name": "Token Limit", "severity": "warning", "enabled": true, "rollback": false, "hold_answers": true,
            "rules": [{"type": "max_tokens", "operator": "lt", "value": "4096"}],
        }],
        "default": ["gp_default_tokens"], "required": [],
    });
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_value::<PolicyFile>(json).unwrap(), file);
    assert_eq!(policies::PATH, format!("{}/{}", policies::FOLDER, policies::KEY));
}

/// What a CEL rule demands of a value.
struct Demand {
    types: Vec<String>,
    patterns: Vec<Regex>,
}

/// The rules on values as the CRD has them: `!(self.type in ['…']) || self.value.matches('…') && …`.
static DEMANDS: LazyLock<Vec<Demand>> = LazyLock::new(|| {
    let crd = crate::crd::all().into_iter().find(|crd| crd.spec.names.kind == "GuardrailPolicy").unwrap();
    let schema = serde_json::to_value(&crd.spec.versions[0].schema).unwrap();
    let rules = &schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["rules"]["items"]["x-kubernetes-validations"];
    let rules = rules.as_array().unwrap().iter().filter_map(|rule| rule["rule"].as_str());
    let demands = rules.filter_map(|rule| {
        let (types, patterns) = rule.strip_prefix("!(self.type in ['")?.split_once("']) || self.value.matches('")?;
        let patterns = patterns.strip_suffix("')").unwrap().split("') && self.value.matches('");
        let patterns = patterns.map(|pattern| Regex::new(&pattern.replace(r"\\", r"\")).unwrap());
        Some(Demand { types: types.split("', '").map(str::to_owned).collect(), patterns: patterns.collect() })
    });
    demands.collect()
});

static LETTER: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[\p{L}\p{N}]").unwrap());

#[test]
fn every_type_has_a_rule_on_its_value() {
    let types: Vec<&str> = DEMANDS.iter().flat_map(|demand| &demand.types).map(String::as_str).collect();
    assert_eq!(types.len(), RuleType::ALL.len());
    assert!(RuleType::ALL.iter().all(|type_| types.contains(&type_.as_str())), "{types:?}");
}

/// Values at the edges of what a type takes.
fn values() -> impl Strategy<Value = String> {
    let item =
        "[a-c*:_. -]{0,4}|stub:\\*|acme:\\*|(ollama|openai):[a-c*:]{0,2}|rate-limit|max-tokens| ?pii-detection ?|[\\PC]{0,3}|\\p{Z}{0,2}";
    prop_oneof![
        "[0-9]{0,14}",
        "[0-9]{0,10}[.]?[0-9]{0,7}",
        "0[.]0{0,7}[0-9]?",
        prop::collection::vec(item, 0..4).prop_map(|items| items.join(",")),
        "[a-z,]{0,3}[\\x00-\\x20\\x7f-\\u{a0}\\u{2028}\\u{3000}]{0,2}[a-z,]{0,2}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_crd_and_the_function_take_the_same_values(value in values()) {
        for type_ in RuleType::ALL.iter().copied() {
            let demand = DEMANDS.iter().find(|demand| demand.types.iter().any(|name| name == type_.as_str())).unwrap();
            // The schema demands one character.
            let fits = !value.is_empty() && demand.patterns.iter().all(|pattern| pattern.is_match(&value));
            let fault = rule(type_, operator(type_), &value).fault();
            if type_ == RuleType::BlockedTopics && fault.is_none() && !fits {
                // Signs that count as letters here, and are marks and symbols there.
                let is_odd = |item: &str| !LETTER.is_match(item) && item.contains(char::is_alphanumeric);
                prop_assert!(value.split(',').any(is_odd), "{:?}", value);
                continue;
            }
            prop_assert_eq!(fault.is_none(), fits, "{} {:?}: {:?}", type_.as_str(), value, fault);
        }
    }

    /// Who splits a list as runtimes do finds no entry that is empty.
    #[test]
    fn what_is_taken_has_entries(value in values()) {
        for type_ in [RuleType::BlockedTopics, RuleType::DeniedTools, RuleType::AllowedModels, RuleType::RequiredGuards] {
            let rule = rule(type_, operator(type_), &value);
            if rule.fault().is_none() {
                prop_assert!(rule.items().all(|item| !item.is_empty() && item.trim() == item), "{:?}", value);
            }
        }
    }
}

/// The schema's enumerations are the words of the types.
#[test]
fn unknown_words_are_refused_by_name() {
    for (field, word) in [("type", "max_size"), ("operator", "gt")] {
        let mut json: Value = serde_json::json!({"type": "max_tokens", "operator": "lt", "value": "1"});
        json[field] = word.into();
        let error = serde_json::from_value::<GuardrailRule>(json).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("expected one of"), "{error}");
    }
}
