use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::message::{ToolCall, ToolResult, ToolSpec};

fn call(id: usize, arguments: &str) -> Message {
    let call = ToolCall { id: id.to_string(), name: "look_up".into(), arguments: json!({"q": arguments}), signature: None };
    Message { role: Role::Assistant, content: vec![Content::ToolCall(call)] }
}

fn result(id: usize, content: &str) -> Message {
    let result = ToolResult { id: id.to_string(), name: "look_up".into(), content: content.into(), is_error: false };
    Message { role: Role::User, content: vec![Content::ToolResult(result)] }
}

fn request(messages: Vec<Message>) -> Request {
    Request { messages, ..Request::default() }
}

#[test]
fn texts_have_the_counts_that_openai_publishes() {
    // From the vocabularies' own documentation: the cookbook's "How to count tokens with tiktoken".
    for (id, text, tokens) in [
        ("gpt-4o", "antidisestablishmentarianism", 6),
        ("gpt-4", "antidisestablishmentarianism", 6),
        ("gpt-4o", "2 + 2 = 4", 7),
        ("gpt-4", "2 + 2 = 4", 7),
        ("gpt-4o", "お誕生日おめでとう", 8),
        ("gpt-4", "お誕生日おめでとう", 9),
    ] {
        assert_eq!(count(Provider::OpenAi, id, text), tokens, "{id} {text}");
    }
}

#[test]
fn other_vendors_are_counted_on_the_safe_side_but_never_beyond_bytes() {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(20);
    let own = count(Provider::OpenAi, "gpt-4o", &text);
    for provider in [Provider::Anthropic, Provider::GoogleAi, Provider::Ollama, Provider::Bedrock] {
        let safe = count(provider, "any", &text);
        assert!(own < safe && safe <= own * 2, "{provider}: {safe} against {own}");
    }
    assert_eq!(count(Provider::Anthropic, "any", "a"), 1);
}

#[test]
fn a_long_run_without_a_break_is_counted_in_reasonable_time() {
    let started = std::time::Instant::now();
    assert!(count(Provider::OpenAi, "gpt-4o", &"a".repeat(1_000_000)) >= 100_000);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn what_fits_is_left_alone() {
    let history = vec![Message::user("one"), Message::assistant("two"), Message::user("three")];
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 1000, 100).unwrap();
    assert_eq!(fitted, Fitted { messages: history, dropped: 0, tokens: fitted.tokens });
    assert!((5..50).contains(&fitted.tokens), "{} tokens", fitted.tokens);
}

#[test]
fn the_oldest_turns_go_first() {
    let long = "word ".repeat(100);
    let history: Vec<_> = (0..10).flat_map(|_| [Message::user(&long), Message::assistant(&long)]).chain([Message::user("now")]).collect();
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 600, 100).unwrap();
    assert_eq!(fitted.dropped % 2, 0);
    assert!((1..history.len()).contains(&fitted.dropped));
    assert_eq!(fitted.messages, history[fitted.dropped..]);
}

#[test]
fn within_the_newest_turn_old_rounds_go_and_the_question_stays() {
    let long = "word ".repeat(100);
    let mut history = vec![Message::user("before"), Message::assistant("yes"), Message::user("the question")];
    for id in 0..10 {
        history.extend([call(id, "x"), result(id, &long)]);
    }
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 500, 100).unwrap();
    assert_eq!(fitted.messages[0], Message::user("the question"));
    let kept = &fitted.messages[1..];
    assert!(!kept.is_empty());
    assert_eq!(kept, &history[history.len() - kept.len()..]);
    assert_eq!(kept[0].role, Role::Assistant);
}

#[test]
fn a_question_that_cannot_fit_is_a_fault_with_numbers() {
    let fault = fit(Provider::OpenAi, "gpt-4o", &request(vec![Message::user("word ".repeat(200))]), 250, 100).unwrap_err();
    assert_eq!(*fault.kind(), FaultKind::ContextOverflow);
    for part in ["209 tokens", "250", "100", "openai:gpt-4o"] {
        assert!(fault.message().contains(part), "{part} in {}", fault.message());
    }
}

#[test]
fn tools_and_system_prompt_take_their_share() {
    let tool = ToolSpec { name: "t".into(), description: "word ".repeat(300), schema: json!({}) };
    let history = vec![Message::user("word ".repeat(80)), Message::assistant("ok"), Message::user("now")];
    let with = Request { tools: vec![tool], system: Some("be brief".into()), ..request(history.clone()) };
    assert_eq!(fit(Provider::OpenAi, "gpt-4o", &request(history), 400, 0).unwrap().dropped, 0);
    assert_eq!(fit(Provider::OpenAi, "gpt-4o", &with, 400, 0).unwrap().dropped, 2);
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let text = prop_oneof!["[a-z ]{0,200}", "\\PC{0,60}"];
    let turn = (text.clone(), proptest::collection::vec((text.clone(), text.clone()), 0..4), proptest::option::of(text));
    proptest::collection::vec(turn, 1..8).prop_map(|turns| {
        let mut history = Vec::new();
        for (question, rounds, answer) in turns {
            history.push(Message::user(question));
            for (arguments, outcome) in rounds {
                let id = history.len();
                history.extend([call(id, &arguments), result(id, &outcome)]);
            }
            history.extend(answer.map(Message::assistant));
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn what_is_kept_fits_is_a_suffix_and_has_whole_pairs(history in conversation(), window in 50_u32..2000, reserve in 0_u32..60) {
        let provider = Provider::OpenAi;
        let asked = request(history.clone());
        let question = history.iter().rposition(said).unwrap();
        let size = |messages: &[Message]| {
            let vocabulary = Vocabulary::of(provider, "gpt-4o");
            messages.iter().map(|message| length(message, &|text| vocabulary.count(text))).sum::<u64>()
        };
        let room = u64::from(window - reserve.min(window));
        let Ok(fitted) = fit(provider, "gpt-4o", &asked, window, reserve) else {
            prop_assert!(size(&history[question..=question]) > room);
            return Ok(());
        };
        let kept = &fitted.messages;
        prop_assert!(size(kept) <= room && fitted.tokens <= room);
        prop_assert_eq!(kept.len() + fitted.dropped, history.len());
        // Whole turns to the end, or the question and the newest rounds of it.
        if kept.len() >= history.len() - question {
            prop_assert_eq!(&kept[..], &history[fitted.dropped..]);
            prop_assert!(fitted.dropped == 0 || said(&kept[0]));
        } else {
            prop_assert_eq!(&kept[0], &history[question]);
            prop_assert_eq!(&kept[1..], &history[history.len() - kept.len() + 1..]);
        }
        let ids = |wanted: fn(&Content) -> Option<&String>| -> Vec<_> {
            kept.iter().flat_map(|message| &message.content).filter_map(wanted).collect()
        };
        let calls = ids(|content| if let Content::ToolCall(call) = content { Some(&call.id) } else { None });
        let results = ids(|content| if let Content::ToolResult(result) = content { Some(&result.id) } else { None });
        prop_assert_eq!(calls, results);
        let again = fit(provider, "gpt-4o", &request(kept.clone()), window, reserve).unwrap();
        prop_assert_eq!((&again.messages, again.dropped), (kept, 0));
    }

    #[test]
    fn a_token_is_never_shorter_than_a_byte(text in "\\PC{0,300}") {
        for provider in Provider::ALL {
            prop_assert!(count(provider, "any", &text) <= text.len() as u64);
        }
    }
}
