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

fn request(messages: Vec<Message>) -> ModelRequest {
    ModelRequest { messages, ..ModelRequest::default() }
}

#[test]
fn texts_have_the_counts_that_openai_publishes() {
    // From OpenAI's cookbook, "How to count tokens with tiktoken".
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

/// Texts with their token counts in seven vocabularies; see testdata/README.md.
#[derive(serde::Deserialize)]
struct Sample {
    name: String,
    text: String,
    tokens: std::collections::BTreeMap<String, u64>,
}

#[test]
fn no_vocabulary_counts_more_than_is_estimated() {
    let samples: Vec<Sample> = serde_json::from_str(include_str!("../testdata/tokens.json")).unwrap();
    assert_eq!(samples.len(), 20);
    for Sample { name, text, tokens } in &samples {
        let most = *tokens.values().max().unwrap();
        let claude = tokens["claude2"];
        let recent = ["llama3", "gemma3", "qwen3", "deepseek3"].map(|name| tokens[name]).into_iter().max().unwrap();
        for (provider, id, tokens) in [
            (Provider::Ollama, "llama3.2", recent),
            (Provider::OpenAi, "Qwen/Qwen3-32B", recent),
            (Provider::Ollama, "llama2", most),
            (Provider::OpenAi, "mistral-small", most),
            (Provider::GoogleAi, "gemini-2.5-pro", tokens["gemma3"]),
            (Provider::Anthropic, "claude-opus-4-7", (claude * 13).div_ceil(10)),
            (Provider::Bedrock, "us.anthropic.claude-opus-4-7", (claude * 13).div_ceil(10)),
            (Provider::Bedrock, "meta.llama3-3-70b-instruct-v1:0", most),
        ] {
            let bound = text.len() as u64;
            // A vocabulary may put a space before a text, which is a further token.
            let estimate = count(provider, id, text);
            assert!(estimate >= tokens.min(bound), "{name}: {provider}:{id} has {tokens}, estimated are {estimate}");
            // Too high, but not so high that it wastes the window on common text.
            if matches!(name.as_str(), "eng" | "rust" | "json" | "table") {
                assert!(estimate <= tokens * 2, "{name}: {provider}:{id} has {tokens}, estimated are {estimate}");
            }
        }
    }
    assert_eq!(count(Provider::Ollama, "gpt-oss:20b", "2 + 2 = 4"), 7, "its vocabulary is known");
}

#[test]
fn a_long_run_without_a_break_is_counted_in_reasonable_time() {
    let started = std::time::Instant::now();
    assert!(count(Provider::OpenAi, "gpt-4o", &"a".repeat(1_000_000)) >= 100_000);
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

#[test]
fn a_conversation_that_fits_is_unchanged() {
    let history = vec![Message::user("one"), Message::assistant("two"), Message::user("three")];
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 1000, 100).unwrap();
    assert_eq!(fitted, Fitted { messages: history, dropped: 0, shortened: 0, tokens: fitted.tokens });
    assert!((5..50).contains(&fitted.tokens), "{} tokens", fitted.tokens);
}

#[test]
fn the_oldest_turns_are_dropped_first() {
    let long = "word ".repeat(100);
    let history: Vec<_> = (0..10).flat_map(|_| [Message::user(&long), Message::assistant(&long)]).chain([Message::user("now")]).collect();
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 600, 100).unwrap();
    assert_eq!(fitted.dropped % 2, 0);
    assert!((1..history.len()).contains(&fitted.dropped));
    assert_eq!(fitted.messages, history[fitted.dropped..]);
}

#[test]
fn old_rounds_are_dropped_if_shortening_is_not_enough() {
    let long = "word ".repeat(100);
    let mut history = vec![Message::user("before"), Message::assistant("yes"), Message::user("the question")];
    for id in 0..10 {
        history.extend([call(id, "x"), result(id, &long)]);
    }
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 500, 100).unwrap();
    assert_eq!(fitted.messages[0], Message::user("the question"));
    let kept = &fitted.messages[1..];
    assert_eq!(kept.last(), history.last());
    assert!((4..20).contains(&kept.len()), "{}", kept.len());
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
fn tools_and_system_prompt_count() {
    let tool = ToolSpec { name: "t".into(), description: "word ".repeat(300), schema: json!({}) };
    let history = vec![Message::user("word ".repeat(80)), Message::assistant("ok"), Message::user("now")];
    let with = ModelRequest { tools: vec![tool], system: Some("be brief".into()), ..request(history.clone()) };
    assert_eq!(fit(Provider::OpenAi, "gpt-4o", &request(history), 400, 0).unwrap().dropped, 0);
    assert_eq!(fit(Provider::OpenAi, "gpt-4o", &with, 400, 0).unwrap().dropped, 2);
}

#[test]
fn a_result_that_is_too_long_is_shortened_and_stays_with_its_call() {
    // One tool result exceeds the window of Ollama.
    let long: String = (0..20_000).flat_map(|number| ["line ".to_owned(), number.to_string(), "\n".to_owned()]).collect();
    let history = vec![Message::user("what does the log say?"), call(1, "log"), result(1, &long)];
    let fitted = fit(Provider::Ollama, "llama3.2", &request(history.clone()), 8192, 4096).unwrap();
    assert_eq!((fitted.dropped, fitted.shortened), (0, 1));
    assert_eq!(fitted.messages[..2], history[..2]);
    let [Content::ToolResult(result)] = &fitted.messages[2].content[..] else { panic!("{:?}", fitted.messages[2]) };
    for part in ["line 0\n", "\nline 19999\n", "bytes left out"] {
        assert!(result.content.contains(part), "{part:?} in {}", result.content);
    }
    let tokens = count(Provider::Ollama, "llama3.2", &result.content);
    assert!((3000..4096).contains(&tokens), "{tokens} of some 4000 are used");
}

#[test]
fn older_results_are_shortened_before_the_newest() {
    let long = "word ".repeat(300);
    let mut history = vec![Message::user("the question")];
    for id in 0..4 {
        history.extend([call(id, "x"), result(id, &long)]);
    }
    let fitted = fit(Provider::OpenAi, "gpt-4o", &request(history.clone()), 900, 100).unwrap();
    assert_eq!((fitted.dropped, fitted.shortened), (0, 3));
    assert_eq!(fitted.messages.last(), history.last());
}

#[test]
fn a_call_that_cannot_fit_is_a_fault_that_says_what_to_do() {
    let history = vec![Message::user("write it"), call(1, &"word ".repeat(500)), result(1, "done")];
    let fault = fit(Provider::OpenAi, "gpt-4o", &request(history), 450, 100).unwrap_err();
    assert_eq!(*fault.kind(), FaultKind::ContextOverflow);
    for part in ["what the tools were called with", "450", "fewer tools", "RUNTIME_MODEL_CONTEXT_TOKENS"] {
        assert!(fault.message().contains(part), "{part} in {}", fault.message());
    }
}

fn conversation() -> impl Strategy<Value = Vec<Message>> {
    let text = prop_oneof!["[a-z ]{0,200}", "\\PC{0,60}"];
    let outcome = prop_oneof!["[a-z ]{0,200}", "\\PC{0,60}", "[a-z0-9 \n]{500,3000}"];
    let round = proptest::collection::vec((text.clone(), outcome), 1..3);
    let turn = (text.clone(), proptest::collection::vec(round, 0..4), proptest::option::of(text));
    proptest::collection::vec(turn, 1..8).prop_map(|turns| {
        let mut history = Vec::new();
        for (question, rounds, answer) in turns {
            history.push(Message::user(question));
            for calls in rounds {
                let ids = history.len() * 10..;
                let (asked, answered) =
                    ids.zip(calls).map(|(id, (arguments, outcome))| (call(id, &arguments), result(id, &outcome))).unzip();
                history.extend([together(asked), together(answered)]);
            }
            history.extend(answer.map(Message::assistant));
        }
        history
    })
}

/// Joins several messages to one.
fn together(messages: Vec<Message>) -> Message {
    let role = messages[0].role;
    Message { role, content: messages.into_iter().flat_map(|message| message.content).collect() }
}

/// A message without the text of its results.
fn skeleton(message: &Message) -> Message {
    let mut message = message.clone();
    for content in &mut message.content {
        if let Content::ToolResult(result) = content {
            result.content.clear();
        }
    }
    message
}

fn ids(message: &Message, wanted: fn(&Content) -> Option<&String>) -> Vec<&String> {
    message.content.iter().filter_map(wanted).collect()
}

fn calls_id(content: &Content) -> Option<&String> {
    if let Content::ToolCall(call) = content { Some(&call.id) } else { None }
}

fn results_id(content: &Content) -> Option<&String> {
    if let Content::ToolResult(result) = content { Some(&result.id) } else { None }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 3))]
    #[test]
    fn the_result_fits_with_complete_rounds_and_the_newest_one(
        history in conversation(), window in 50_u32..3000, reserve in 0_u32..60, ollama in any::<bool>()
    ) {
        let (provider, id) = if ollama { (Provider::Ollama, "llama3.2") } else { (Provider::OpenAi, "gpt-4o") };
        let vocabulary = Vocabulary::of(provider, id);
        let of = |text: &str| vocabulary.count(text);
        let size = |messages: &[Message], most: u64| messages.iter().map(|message| MessageTokens::of(message, &of).at(most)).sum::<u64>();
        let question = history.iter().rposition(said).unwrap();
        let newest = rounds(&history, question).pop().map_or(history.len(), |round| round.start).max(question + 1);
        let room = u64::from(window - reserve.min(window));
        let must = size(&history[question..=question], UNLIMITED) + size(&history[newest..], MIN_RESULT_TOKENS);
        let fitted = match fit(provider, id, &request(history.clone()), window, reserve) {
            Ok(fitted) => fitted,
            Err(fault) => {
                prop_assert_eq!(fault.kind(), &FaultKind::ContextOverflow);
                prop_assert!(must > room, "{} needs {} of {}", fault, must, room);
                return Ok(());
            }
        };
        let kept = &fitted.messages;
        prop_assert!(size(kept, UNLIMITED) <= room);
        prop_assert_eq!(kept.len() + fitted.dropped, history.len());
        // The question and the newest round stay; messages are dropped from the start of the conversation or of its newest turn.
        let skeletons = |messages: &[Message]| messages.iter().map(skeleton).collect::<Vec<_>>();
        if kept.len() >= history.len() - question {
            prop_assert_eq!(skeletons(kept), skeletons(&history[fitted.dropped..]));
            prop_assert!(fitted.dropped == 0 || said(&kept[0]));
        } else {
            prop_assert_eq!(&kept[0], &history[question]);
            prop_assert_eq!(skeletons(&kept[1..]), skeletons(&history[history.len() - kept.len() + 1..]));
            prop_assert!(kept.len() > history.len() - newest);
        }
        // Each call's result is in the message after it, and nowhere else.
        for (at, message) in kept.iter().enumerate() {
            let calls = ids(message, calls_id);
            let results = kept.get(at + 1).map(|next| ids(next, results_id));
            prop_assert_eq!(calls, results.unwrap_or_default());
        }
        prop_assert_eq!(ids(&kept[0], results_id).len(), 0);
        // Shortened results have a mark and were too long; the others are unchanged.
        let changed = kept.iter().rev().zip(history.iter().rev()).take(kept.len() - 1)
            .flat_map(|(kept, was)| kept.content.iter().zip(&was.content)).filter(|(kept, was)| kept != was);
        prop_assert_eq!(changed.clone().count(), fitted.shortened);
        for (kept, was) in changed {
            let (Content::ToolResult(kept), Content::ToolResult(was)) = (kept, was) else { panic!("{kept:?}") };
            prop_assert!(kept.content.contains(" bytes left out") && of(&kept.content) < of(&was.content));
        }
        prop_assert!(size(kept, UNLIMITED) <= fitted.tokens || fitted.tokens == estimate(bytes(&request(history.clone()))));
        let again = fit(provider, id, &request(kept.clone()), window, reserve).unwrap();
        prop_assert_eq!((&again.messages, again.dropped, again.shortened), (kept, 0, 0));
    }

    #[test]
    fn a_token_is_never_shorter_than_a_byte(text in "\\PC{0,300}") {
        for provider in Provider::ALL {
            prop_assert!(count(provider, "any", &text) <= text.len() as u64);
        }
    }

    #[test]
    fn the_shortest_result_has_room_for_its_mark(text in "\\PC{300,3000}") {
        for provider in Provider::ALL {
            let vocabulary = Vocabulary::of(provider, "any");
            let short = shorten::shorten(&text, MIN_RESULT_TOKENS, |text| vocabulary.count(text));
            prop_assert!(vocabulary.count(&short) <= MIN_RESULT_TOKENS, "{short}");
        }
    }
}
