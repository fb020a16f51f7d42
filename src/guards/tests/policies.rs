//! Policies: each type of rule and each severity, and what is wrong with those that cannot be read.
#![expect(clippy::unwrap_used, reason = "settings of tests are right")]

use std::time::{Duration, Instant, UNIX_EPOCH};

use serde_json::{Value, json};
use slipway_guards::{Action, Asked, Budget, GuardName, Guards, Policy, Ruled, Side, Spent, StreamItem};

const ALL_GUARDS: &str =
    r#"["pii-detection", "secrets-scanner", "prompt-injection", "blocked-topics", "max-tokens", "rate-limit", "spend-limit"]"#;

fn policy(severity: &str, rules: &[(&str, &str, &str)]) -> Value {
    let rule = |(kind, operator, value): &(&str, &str, &str)| json!({"type": kind, "operator": operator, "value": value});
    json!({"id": "gp_a", "name": "A", "severity": severity, "enabled": true, "rules": rules.iter().map(rule).collect::<Vec<_>>(), "rollback": false})
}

fn guards(guards: &str, severity: &str, rules: &[(&str, &str, &str)]) -> Guards {
    Guards::compile(guards, &[Policy::read(policy(severity, rules)).unwrap()]).unwrap()
}

fn budget(tokens_in_prompt: u64) -> Budget<'static> {
    let now = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
    Budget { now, tokens_in_prompt, unpriced: None, expected_usd: 0.0, tick: Instant::now(), lease: Asked::NotYet }
}

fn spent(tokens: u64, usd: f64, milliseconds: u64) -> Spent {
    Spent { now: budget(0).now, tokens_in_prompt: 1, tokens, usd, latency: Duration::from_millis(milliseconds) }
}

#[test]
fn a_fault_says_what_would_be_right() {
    let long = "a ".repeat(33);
    for ((kind, operator, value), expected) in [
        (("max_tokens", "contains", "1"), "rule max_tokens does not know the operator `contains`; it takes lt or lte"),
        (("max_latency", ">", "1"), "it takes lt or lte"),
        (("max_cost_per_day", "<", "1"), "it takes lt or lte"),
        (("max_requests_per_minute", "in", "1"), "it takes lt or lte"),
        (("blocked_topics", "in", "x"), "it takes contains"),
        (("denied_tools", "lt", "x"), "it takes contains"),
        (("allowed_models", "contains", "x"), "it takes in"),
        (("required_guards", "in", "pii-detection"), "it takes contains"),
        (("max_size", "lt", "1"), "unknown rule type `max_size`; known are max_tokens, max_latency, max_cost_per_day"),
        (("max_tokens", "lt", "0"), "`0` is not a number above zero; its value is a number of tokens, such as `4096`"),
        (("max_cost_per_day", "lt", "-1"), "a number of US dollars"),
        (("max_latency", "lt", "NaN"), "a number of milliseconds"),
        (("max_requests_per_minute", "lt", "inf"), "a number of requests"),
        (("blocked_topics", "contains", " , "), "names no topic; its value is a list such as `violence, self_harm`"),
        (("blocked_topics", "contains", "!!"), "topic `!!`: `!!` holds no word"),
        (("blocked_topics", "contains", long.as_str()), "a ` has 33 words; it may have 32"),
        (("denied_tools", "contains", ""), "names no tool; its value is a list such as `shell, github`"),
        (("allowed_models", "in", ","), "names no model"),
        (("required_guards", "contains", "pii"), "unknown guard `pii`; known are pii-detection, secrets-scanner"),
        (("required_guards", "contains", "latency"), "unknown guard `latency`"),
    ] {
        let policy = Policy::read(policy("critical", &[(kind, operator, value)])).unwrap();
        let faults = Guards::compile("", &[policy]).unwrap_err();
        assert!(faults.len() == 1 && faults[0].starts_with("policy `gp_a`: ") && faults[0].contains(expected), "{faults:?}");
    }
}

#[test]
fn hostile_policies_are_refused_with_few_words() {
    let long = "x".repeat(3000);
    let many: Vec<_> = (0..17).map(|_| ("max_tokens", "lt", "1")).collect();
    for (value, expected) in [
        (policy("fatal", &[]), "unknown variant"),
        (policy("critical", &many), "it has 17 rules; a policy may have 16"),
        (json!({"id": long, "severity": "warning", "rules": []}), "an `id` of 1 to 128 bytes is missing"),
        (json!({"id": "", "severity": "warning", "rules": []}), "an `id` of 1 to 128 bytes is missing"),
        (json!({"id": "gp_a", "severity": long, "rules": []}), "unknown variant"),
        (json!([1]), "invalid"),
        (json!({"id": {"id": {}}}), "invalid type"),
    ] {
        let fault = Policy::read(value).unwrap_err();
        assert!(fault.contains(expected) && fault.len() < 300, "{fault}");
    }
    for rule in [("blocked_topics", "contains", &*long), (&long, "lt", "1"), ("max_tokens", &long, "1"), ("max_tokens", "lt", &long)] {
        let faults = Guards::compile("", &[Policy::read(policy("critical", &[rule])).unwrap()]).unwrap_err();
        assert!(faults.iter().all(|fault| fault.len() < 300), "{faults:?}");
    }
    // Half a million topics.
    let topics: Vec<String> = (0..16_u32)
        .map(|rule| {
            (0..400_u32).map(|topic| char::from_u32(0x4E00 + rule * 400 + topic).unwrap().to_string()).collect::<Vec<_>>().join(",")
        })
        .collect();
    let rules: Vec<_> = topics.iter().map(|value| ("blocked_topics", "contains", value.as_str())).collect();
    let policies: Vec<_> = (0..82).map(|_| Policy::read(policy("critical", &rules)).unwrap()).collect();
    assert!(Guards::compile("", &policies[..81]).is_ok());
    let faults = Guards::compile("", &policies).unwrap_err();
    assert!(faults[0].contains("524288 words"), "{faults:?}");
}

#[test]
fn what_comes_before_a_turn_blocks_or_is_told() {
    for (rule, broken) in
        [(("max_tokens", "lte", "5"), GuardName::MaxTokens), (("max_requests_per_minute", "lt", "1"), GuardName::RateLimit)]
    {
        for (severity, action) in [("critical", Action::Block), ("warning", Action::Warn)] {
            let turn = guards("", severity, &[rule]).before_turn(&budget(6));
            let [breach] = &turn.breaches[..] else { panic!("{rule:?}: {:?}", turn.breaches) };
            assert_eq!((breach.guard, breach.action, &*breach.policy.as_ref().unwrap().policy), (broken, action, "gp_a"));
            assert_eq!(turn.blocked.is_some(), severity == "critical");
            assert!(turn.blocked.is_none_or(|block| block.message.contains("(policy gp_a)")));
        }
    }
}

#[test]
fn what_is_found_after_a_turn_only_warns_and_a_budget_then_blocks() {
    for severity in ["critical", "warning"] {
        let rules = [("max_latency", "lt", "2000"), ("max_cost_per_day", "lt", "1.00")];
        let guards = guards("", severity, &rules);
        assert!(guards.before_turn(&budget(1)).blocked.is_none());
        let found: Vec<_> = guards.after(&spent(10, 2.0, 2000)).into_iter().map(|breach| (breach.guard, breach.action)).collect();
        assert_eq!(found, [(GuardName::Latency, Action::Warn), (GuardName::SpendLimit, Action::Warn)]);
        assert_eq!(guards.before_turn(&budget(1)).blocked.is_some(), severity == "critical");
    }
}

#[test]
fn the_answer_has_the_tokens_that_the_prompt_leaves() {
    let rule = [("max_tokens", "lt", "100")];
    assert_eq!(guards("", "critical", &rule).tokens_left(60), Some(39));
    assert_eq!(guards("", "critical", &rule).tokens_left(200), Some(0));
    assert_eq!(guards("", "warning", &rule).tokens_left(60), None);
}

#[test]
fn topics_are_judged_in_what_comes_in_and_goes_out() {
    let rule = [("blocked_topics", "contains", "herbs, self_harm, catnip")];
    for (severity, action) in [("critical", Action::Block), ("warning", Action::Warn)] {
        let guards = guards("", severity, &rule);
        for side in [Side::Input, Side::Output] {
            let verdict = guards.check(side, "there is catnip");
            let found: Vec<_> = verdict.findings.iter().map(|found| (&*found.kind, found.action, found.policy.is_some())).collect();
            assert_eq!((found, verdict.blocked.is_some()), (vec![("catnip", action, true)], severity == "critical"));
        }
        assert_eq!(guards.hold_answers(), severity == "critical");
    }
}

#[test]
fn a_needle_that_is_split_anywhere_is_found() {
    let guards = guards("", "critical", &[("blocked_topics", "contains", "purple würfel")]);
    let text = "Well, what they say of the purple  WÜRFEL is true.";
    for first in text.char_indices().map(|(at, _)| at) {
        for second in text[first..].char_indices().map(|(at, _)| first + at) {
            let mut stream = guards.stream();
            let parts = [&text[..first], &text[first..second], &text[second..]];
            let mut items: Vec<_> = parts.iter().flat_map(|part| stream.push(part)).collect();
            items.extend(stream.finish());
            let blocked = items.iter().filter(|item| matches!(item, StreamItem::Blocked(block) if block.policy.is_some())).count();
            let said: String =
                items.iter().filter_map(|item| if let StreamItem::Text(text) = item { Some(&**text) } else { None }).collect();
            assert!(blocked == 1 && !said.to_lowercase().contains("würfel"), "{parts:?}: {items:?}");
        }
    }
}

#[test]
fn tools_and_models_are_those_that_the_policy_says() {
    let rules = [("denied_tools", "contains", "shell, github"), ("allowed_models", "in", "openai:gpt-4o, anthropic:*, llama3.2:1b")];
    for (severity, blocks) in [("critical", true), ("warning", false)] {
        let guards = guards("", severity, &rules);
        for (name, origin, denied) in
            [("shell", "shell", true), ("github_list", "github", true), ("github_list", "github_list", false), ("shell2", "shell2", false)]
        {
            let broken = guards.tool(name, origin);
            assert_eq!((broken.len(), Ruled::block(&broken).is_some()), (usize::from(denied), denied && blocks), "{name} of {origin}");
        }
        for (provider, model, allowed) in [
            ("openai", "gpt-4o", true),
            ("openai", "gpt-4o-mini", false),
            ("anthropic", "any", true),
            ("ollama", "llama3.2:1b", true),
            ("openai", "openai:gpt-4o", true),
            ("open", "ai:gpt-4o", false),
            // A model's own name says nothing of its provider.
            ("ollama", "openai:gpt-4o", false),
            ("ollama", "anthropic:*", false),
        ] {
            let broken = guards.model(provider, model);
            assert_eq!((broken.is_empty(), Ruled::block(&broken).is_some()), (allowed, !allowed && blocks), "{provider}:{model}");
        }
    }
}

#[test]
fn guards_that_are_required_are_switched_on_or_missed() {
    const ADDRESS: &str = "write to ada@mail.example.org";
    let rule = [("required_guards", "contains", "pii-detection, secrets-scanner, rate-limit")];
    let found = |guards: &Guards| guards.check(Side::Input, ADDRESS).findings.iter().map(|found| found.action).collect::<Vec<_>>();
    let (required, warned) = (guards("", "critical", &rule), guards("", "warning", &rule));
    assert_eq!((found(&required), required.lacking().len(), required.hold_answers()), (vec![Action::Mask], 0, false));
    assert_eq!((found(&warned), warned.lacking().len(), warned.hold_answers()), (vec![], 3, false));
    // One that only tells is not what was meant.
    let weak = r#"[{"name": "pii-detection", "action": "warn"}]"#;
    assert_eq!(found(&guards(weak, "critical", &rule)), [Action::Mask]);
    assert_eq!(found(&guards(weak, "warning", &rule)), [Action::Warn]);
    // The agent's own settings count.
    let own = r#"[{"name": "pii-detection", "kinds": ["phone"]}]"#;
    assert_eq!(found(&guards(own, "critical", &rule)), []);
    let all = [(
        "required_guards",
        "contains",
        "pii-detection,secrets-scanner,prompt-injection,blocked-topics,max-tokens,rate-limit,spend-limit",
    )];
    assert_eq!(guards(ALL_GUARDS, "warning", &all).lacking(), []);
    assert!(guards("", "critical", &all).has_budgets());
}

#[test]
fn a_policy_that_is_switched_off_asks_for_nothing() {
    let mut off =
        policy("critical", &[("blocked_topics", "contains", "cats"), ("max_tokens", "lt", "1"), ("denied_tools", "contains", "x")]);
    off["enabled"] = json!(false);
    let guards = Guards::compile("", &[Policy::read(off).unwrap()]).unwrap();
    assert!(guards.is_empty() && guards.policies() == 0);
}

#[test]
fn a_change_of_policies_restores_no_budget() {
    let strict = |value| guards("", "critical", &[("max_cost_per_day", "lt", value), ("max_requests_per_minute", "lt", "3")]);
    let before = Guards::compile("", &[]).unwrap();
    for _ in 0..2 {
        assert!(before.before_turn(&budget(1)).blocked.is_none());
        before.after(&spent(1, 0.6, 1));
    }
    let changed = strict("1.00").continuing(&before);
    let block = changed.before_turn(&budget(1)).blocked.unwrap();
    assert!(block.message.contains("1 USD"), "{}", block.message);
    let changed = strict("5.00").continuing(&changed);
    let block = changed.before_turn(&budget(1)).blocked.unwrap();
    assert_eq!(block.guard, GuardName::RateLimit, "two requests were counted while nothing limited them");
    assert!(strict("1.00").before_turn(&budget(1)).blocked.is_none());
}

#[test]
fn all_whose_topic_it_is_hear_of_it_before_the_answer_ends() {
    let named = |id: &str, severity: &str| {
        let mut policy = policy(severity, &[("blocked_topics", "contains", "cats")]);
        policy["id"] = json!(id);
        Policy::read(policy).unwrap()
    };
    let policies = [named("gp_a", "critical"), named("gp_b", "warning"), named("gp_c", "critical")];
    let guards = Guards::compile(r#"[{"name": "blocked-topics", "topics": ["cats"]}]"#, &policies).unwrap();
    let mut stream = guards.stream();
    let items = stream.push("so, cats are fine. And cats again");
    let told: Vec<_> = items
        .iter()
        .map(|item| match item {
            StreamItem::Text(_) => "text".to_owned(),
            StreamItem::Finding(found) => found.policy.as_ref().map_or("own".to_owned(), |rule| rule.policy.to_string()),
            StreamItem::Blocked(_) => "blocked".to_owned(),
        })
        .collect();
    assert_eq!(told, ["text", "own", "gp_a", "gp_b", "gp_c", "blocked"]);
}
