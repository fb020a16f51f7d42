//! Property tests with recorded answers in which a few values are replaced, duplicated or removed.

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::*;
use crate::answer::{Stop, Usage};
use crate::anthropic::Anthropic;
use crate::bedrock::Bedrock;
use crate::gemini::Candidates;
use crate::ollama::Ollama;
use crate::openai::OpenAi;

type Sample = (&'static str, Value);

fn openai() -> (Box<dyn EventReader>, Vec<Sample>) {
    let delta = |delta: Value| ("", json!({"choices": [{"delta": delta, "finish_reason": null}]}));
    let call = |call: Value| delta(json!({"tool_calls": [call]}));
    let wire = OpenAi::open("m", crate::openai::PLACE, &|_| None).unwrap_or_else(|fault| panic!("{fault}"));
    let samples = vec![
        delta(json!({"content": "Hello"})),
        delta(json!({"refusal": "No"})),
        call(json!({"index": 0, "id": "a", "function": {"name": "f", "arguments": "{\"x\""}})),
        call(json!({"index": 0, "function": {"arguments": ":1}"}})),
        call(json!({"index": 1, "id": "b", "function": {"name": "g", "arguments": {"x": 1}}})),
        call(json!({"function": {"name": "h", "arguments": "{}"}})),
        ("", json!({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]})),
        ("", json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}})),
        ("error", json!({"error": {"message": "overloaded", "code": 503}})),
    ];
    (wire.reader(), samples)
}

fn anthropic() -> (Box<dyn EventReader>, Vec<Sample>) {
    let wire = Anthropic::open("m", crate::anthropic::PLACE, &|_| None).unwrap_or_else(|fault| panic!("{fault}"));
    let usage = json!({"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3, "output_tokens": 4});
    let samples = vec![
        ("", json!({"type": "message_start", "message": {"usage": usage}})),
        ("", json!({"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "a", "name": "f"}})),
        ("", json!({"type": "content_block_delta", "index": 0, "delta": {"partial_json": "{\"x\": 1}"}})),
        ("", json!({"type": "content_block_delta", "index": 1, "delta": {"text": "Hello"}})),
        ("", json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage})),
        ("", json!({"type": "message_stop"})),
        ("", json!({"type": "error", "error": {"type": "overloaded_error", "message": "later"}})),
    ];
    (wire.reader(), samples)
}

fn bedrock() -> (Box<dyn EventReader>, Vec<Sample>) {
    let wire = Bedrock::open("m", &|_| None).unwrap_or_else(|fault| panic!("{fault}"));
    let usage = json!({"inputTokens": 1, "outputTokens": 2, "cacheReadInputTokens": 3, "cacheWriteInputTokens": 4});
    let samples = vec![
        ("contentBlockStart", json!({"contentBlockIndex": 0, "start": {"toolUse": {"toolUseId": "a", "name": "f"}}})),
        ("contentBlockDelta", json!({"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{}"}}})),
        ("contentBlockDelta", json!({"contentBlockIndex": 1, "delta": {"text": "Hello"}})),
        ("messageStop", json!({"stopReason": "tool_use"})),
        ("metadata", json!({"usage": usage})),
    ];
    (wire.reader(), samples)
}

fn gemini() -> (Box<dyn EventReader>, Vec<Sample>) {
    let usage = json!({"promptTokenCount": 1, "toolUsePromptTokenCount": 2, "candidatesTokenCount": 3, "thoughtsTokenCount": 4, "cachedContentTokenCount": 1});
    let samples = vec![
        ("", json!({"candidates": [{"content": {"parts": [{"text": "Hello"}, {"text": "Hm", "thought": true}]}}]})),
        (
            "",
            json!({"candidates": [{"content": {"parts": [{"functionCall": {"id": "a", "name": "f", "args": {"x": 1}}, "thoughtSignature": "s"}]}}]}),
        ),
        ("", json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": usage})),
        ("", json!({"promptFeedback": {"blockReason": "SAFETY"}})),
        ("", json!({"error": {"code": 429, "message": "later"}})),
    ];
    (Box::new(Candidates::default()), samples)
}

fn ollama() -> (Box<dyn EventReader>, Vec<Sample>) {
    let wire = Ollama::open("m", 8192, &|_| None).unwrap_or_else(|fault| panic!("{fault}"));
    let samples = vec![
        ("", json!({"message": {"content": "Hello"}})),
        ("", json!({"message": {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}})),
        ("", json!({"done": true, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 2})),
        ("", json!({"error": "no"})),
    ];
    (wire.reader(), samples)
}

/// A change of one value within an event.
#[derive(Debug, Clone)]
enum Edit {
    Replace(Value),
    Remove,
    Double,
}

fn edit() -> impl Strategy<Value = Edit> {
    let odd = vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1e300),
        json!(""),
        json!("x"),
        json!("error"),
        json!("stop"),
        json!("{"),
        json!([]),
        json!({}),
        json!([[1]]),
        json!({"error": {}}),
        json!("\u{0}é"),
    ];
    prop_oneof![4 => select(odd).prop_map(Edit::Replace), 1 => Just(Edit::Remove), 1 => Just(Edit::Double)]
}

fn nodes(value: &Value) -> usize {
    1 + match value {
        Value::Array(list) => list.iter().map(nodes).sum(),
        Value::Object(map) => map.values().map(nodes).sum(),
        _ => 0,
    }
}

/// Applies the change to the node with that number, in depth-first order.
fn apply(value: &mut Value, at: &mut usize, edit: &Edit) -> bool {
    if *at == 0 {
        match edit {
            Edit::Replace(other) => *value = other.clone(),
            Edit::Remove => *value = Value::Null,
            Edit::Double => *value = json!([value, value]),
        }
        return true;
    }
    *at -= 1;
    match value {
        Value::Array(list) => list.iter_mut().any(|inner| apply(inner, at, edit)),
        Value::Object(map) => map.values_mut().any(|inner| apply(inner, at, edit)),
        _ => false,
    }
}

/// All pieces up to the end of the answer or the first error.
fn told(mut reader: Box<dyn EventReader>, events: Vec<(&'static str, Value)>) -> Vec<Piece> {
    let mut pieces = Pieces::new();
    let stopped = |pieces: &Pieces| pieces.iter().position(|piece| matches!(piece, Piece::Stopped(_)));
    for (name, value) in events {
        let event = Event { name: name.to_owned(), error: false, data: value.to_string().into_bytes() };
        if reader.read(event, &mut pieces).is_err() || stopped(&pieces).is_some() {
            break;
        }
    }
    if stopped(&pieces).is_none() && reader.finish(&mut pieces).is_err() {
        return pieces.into();
    }
    pieces.truncate(stopped(&pieces).map_or(0, |at| at + 1));
    pieces.into()
}

proptest! {
    #[test]
    fn any_events_are_an_answer_or_a_fault(
        provider in select(vec![openai, anthropic, bedrock, gemini, ollama]),
        order in prop::collection::vec(any::<Index>(), 1..10),
        edits in prop::collection::vec((any::<Index>(), any::<Index>(), edit()), 0..4),
    ) {
        let (reader, samples) = provider();
        let mut events: Vec<Sample> = order.iter().map(|index| index.get(&samples).clone()).collect();
        for (event, node, edit) in edits {
            let at = event.index(events.len());
            let mut node = node.index(nodes(&events[at].1));
            apply(&mut events[at].1, &mut node, &edit);
        }
        let pieces = told(reader, events);
        let mut ends = 0;
        for (at, piece) in pieces.iter().enumerate() {
            match piece {
                Piece::Text(text) => prop_assert!(!text.is_empty()),
                Piece::ToolCall(call) => prop_assert!(!call.id.is_empty(), "an answer to the call could not name it"),
                // Callers add these up.
                Piece::Usage(Usage { input_tokens, output_tokens, cached_input_tokens }) => {
                    prop_assert!([input_tokens, output_tokens, cached_input_tokens].iter().all(|count| **count < 1 << 40));
                }
                Piece::Stopped(stop) => {
                    ends += 1;
                    prop_assert_eq!(at + 1, pieces.len(), "nothing comes after the end");
                    let called = pieces.iter().any(|piece| matches!(piece, Piece::ToolCall(_)));
                    prop_assert!(!called || *stop != Stop::EndTurn, "calls that nobody would make: {:?}", pieces);
                }
            }
        }
        prop_assert!(ends <= 1 && pieces.iter().filter(|piece| matches!(piece, Piece::Usage(_))).count() <= 1);
    }
}
