//! What the kind GuardrailPolicy accepts, a runtime reads, and means the same by it. A policy that the API server takes and
//! runtimes refuse would hold nobody.

use proptest::prelude::*;
use serde_json::json;
use slipway_api::agent::ModelType;
use slipway_api::contract::policies::PolicyConfig;
use slipway_api::guardrail_policy::{
    GuardrailPolicySpec, GuardrailRule, Operator, RULES_MAX, RuleType, Severity, VALUE_BYTES_MAX, defaults,
};
use slipway_guards::Guards;

fn spec(rules: Vec<GuardrailRule>) -> GuardrailPolicySpec {
    GuardrailPolicySpec { name: "Policy".to_owned(), severity: Severity::Critical, enabled: true, rules, ..Default::default() }
}

/// As the file of a team has it.
fn read(spec: &GuardrailPolicySpec) -> Result<Guards, Vec<String>> {
    Guards::read("", &json!([PolicyConfig::new("gp_a".to_owned(), spec)]).to_string())
}

#[test]
fn the_defaults_are_read() {
    for (name, spec) in defaults() {
        assert_eq!(read(&spec).map(|guards| guards.policies()), Ok(1), "{name}");
    }
}

#[test]
fn the_largest_policy_is_read() {
    let rule = GuardrailRule::new(RuleType::BlockedTopics, Operator::Contains, "\u{e9}".repeat(VALUE_BYTES_MAX / 2));
    let largest = GuardrailPolicySpec { name: "\u{1f980}".repeat(128), ..spec(vec![rule; RULES_MAX]) };
    assert_eq!(largest.fault(), None);
    let largest_id = format!("gp_{}", "a".repeat(63));
    let guards = Guards::read("", &json!([PolicyConfig::new(largest_id, &largest)]).to_string());
    assert_eq!(guards.map(|guards| guards.policies()), Ok(1));
}

/// The kind counts no fewer words than runtimes do.
#[test]
fn a_topic_with_as_many_words_as_there_may_be_is_read() {
    for word in ["a ", "w\u{fc}r-", "\u{65e5}", "l'\u{300} ", "\u{1e9e}\u{ad}x_"] {
        for count in 1..80 {
            let rule = GuardrailRule::new(RuleType::BlockedTopics, Operator::Contains, word.repeat(count));
            assert!(rule.fault().is_some() || read(&spec(vec![rule])).is_ok(), "{word:?}, {count} times");
        }
    }
}

#[test]
fn every_provider_is_known_and_none_has_anothers_models() {
    for provider in ModelType::ALL.iter().map(|provider| provider.as_str()) {
        let item = format!("{provider}:m");
        let guards = read(&spec(vec![GuardrailRule::new(RuleType::AllowedModels, Operator::In, item.clone())])).unwrap();
        assert!(guards.model(provider, "m").is_empty() && !guards.model("other", &item).is_empty(), "{item}");
    }
}

#[test]
fn words_and_operators_are_the_same_on_both_sides() {
    let kind: Vec<_> = RuleType::ALL.iter().map(|type_| type_.as_str()).collect();
    assert_eq!(kind, slipway_guards::RuleType::ALL.map(slipway_guards::RuleType::as_str));
    for (type_, read) in RuleType::ALL.iter().zip(slipway_guards::RuleType::ALL) {
        let value = if *type_ == RuleType::RequiredGuards { "rate-limit" } else { "1" };
        let takes = Operator::ALL.iter().filter(|operator| GuardrailRule::new(*type_, **operator, value).fault().is_none());
        assert_eq!(takes.map(|operator| operator.as_str()).collect::<Vec<_>>(), read.operators(), "{}", type_.as_str());
    }
}

/// Values, most of which some type takes.
fn values() -> impl Strategy<Value = String> {
    let item = "[a-zA-Z0-9_-]{1,64}| ?[a-c]{1,3}(:[a-c0-9]{1,3})? ?|(stub|openai|bedrock):([*]|[a-z:.-]{0,6}[a-z])|rate-limit|pii-detection|spend-limit|[\\PC]{1,4}|[ \u{a0}\u{3000}]";
    prop_oneof!["[1-9][0-9]{0,11}", "(0|[1-9][0-9]{0,8})[.][0-9]{1,6}", prop::collection::vec(item, 1..4).prop_map(|items| items.join(",")),]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn what_the_kind_accepts_runtimes_read(value in values()) {
        for type_ in RuleType::ALL.iter().copied() {
            for operator in Operator::ALL.iter().copied() {
                let rule = GuardrailRule::new(type_, operator, value.clone());
                if rule.fault().is_none() {
                    let guards = read(&spec(vec![rule.clone()]));
                    prop_assert_eq!(guards.as_ref().map(Guards::policies), Ok(1), "{:?}", rule);
                    prop_assert!(guards.is_ok_and(|guards| means(&guards, &rule)), "{:?}", rule);
                }
            }
        }
    }
}

/// Each entry of a list counts.
fn means(guards: &Guards, rule: &GuardrailRule) -> bool {
    rule.items().all(|item| match rule.type_ {
        RuleType::DeniedTools => !guards.tool(item, "").is_empty() && !guards.tool("another", item).is_empty(),
        RuleType::AllowedModels => match item.split_once(':') {
            Some((provider, "*")) => guards.model(provider, "any").is_empty(),
            // What is before the colon may be a provider or a part of the id; if it is a provider, it means no other's model.
            Some((provider, model)) => {
                let is_provider = ModelType::ALL.iter().any(|known| known.as_str() == provider);
                guards.model(provider, model).is_empty() && guards.model("other", item).is_empty() != is_provider
            }
            None => guards.model("other", item).is_empty(),
        },
        _ => true,
    })
}

/// As many words as the file of a team can hold: each counts, and none that nobody named.
#[test]
fn all_topics_of_the_largest_file_are_found() {
    let words: Vec<String> = (0..120_000_u32).map(|number| format!("q{number:x}")).collect();
    let mut policies: Vec<PolicyConfig> = Vec::new();
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        let mut rules = Vec::new();
        while rules.len() < RULES_MAX && !rest.is_empty() {
            let mut value = rest[0].clone();
            rest = &rest[1..];
            while let Some(next) = rest.first().filter(|next| value.len() + next.len() < VALUE_BYTES_MAX) {
                value = format!("{value},{next}");
                rest = &rest[1..];
            }
            rules.push(GuardrailRule::new(RuleType::BlockedTopics, Operator::Contains, value));
        }
        policies.push(PolicyConfig::new(format!("gp_{}", policies.len()), &spec(rules)));
    }
    let json = serde_json::to_string(&policies).unwrap();
    assert!(json.len() > 700 * 1024, "{}", json.len());
    let guards = Guards::read("", &json).unwrap();
    let found = |word: &str| !guards.check(slipway_guards::Side::Input, &format!("about {word} and more")).findings.is_empty();
    let lost: Vec<&String> = words.iter().step_by(997).chain(words.last()).filter(|word| !found(word)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(!found("breakfast") && !found("q") && !found("qffffffff"));
}
