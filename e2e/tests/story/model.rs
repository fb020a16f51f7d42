//! A server of models that speaks OpenAI's protocol, at an address that pods reach. What its models say follows from what they are
//! asked, so that tests can compute it; what each call takes is fixed.
//!
//! | model | says | tokens in, out |
//! | --- | --- | --- |
//! | `guide` | as its instructions tell it; it calls the tools `tide` and `search_handbook` where the question is about these | 40, 20 |
//! | `gpt-5-pro` | one word | 1000, 1000 |
//! | `judge` | `yes` of what is safe, and of answers with the word Harbor | 1, 1 |

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::handbook::SENTENCE;
use crate::servers::{HeardRequest, LittleServer, ServedAnswer};

/// The key that it takes.
pub(crate) const KEY: &str = "sk-planted-model-5f0c1e";
/// What a call of `guide` takes.
pub(crate) const GUIDE_TOKENS: (u64, u64) = (40, 20);
/// The word that the judge looks for.
pub(crate) const WORD: &str = "Harbor";
/// What is said about what the instructions forbid.
pub(crate) const SILENCE: &str = "I cannot say.";
/// How much of a tool's result is repeated.
const REPEATED_CHARS: usize = 600;

pub(crate) fn start(address: SocketAddr) -> LittleServer {
    // How often models were asked is in the platform's own figures.
    LittleServer::start(address, answer, |_| None)
}

fn answer(asked: &HeardRequest) -> ServedAnswer {
    if asked.header("authorization") != format!("Bearer {KEY}") {
        let error =
            json!({"message": "Incorrect API key provided.", "type": "invalid_request_error", "param": null, "code": "invalid_api_key"});
        return ServedAnswer::json(401, &json!({"error": error}));
    }
    match (asked.method.as_str(), asked.path.as_str()) {
        ("GET", "/v1/models") => {
            let models = ["guide", "gpt-5-pro", "judge"].map(|id| json!({"id": id, "object": "model", "created": 1, "owned_by": "story"}));
            ServedAnswer::json(200, &json!({"object": "list", "data": models}))
        }
        ("POST", "/v1/chat/completions") => complete(&asked.json()),
        _ => ServedAnswer::json(404, &json!({"error": {"message": "there is no such page", "type": "invalid_request_error"}})),
    }
}

/// What a model does.
enum Said {
    Text(String),
    Call { name: &'static str, arguments: Value },
}

fn complete(asked: &Value) -> ServedAnswer {
    let model = asked["model"].as_str().unwrap_or_default();
    let (said, (input, output)) = match model {
        "guide" => (guide(asked), GUIDE_TOKENS),
        "gpt-5-pro" => (Said::Text("Sold.".to_owned()), (1000, 1000)),
        "judge" => (Said::Text(judged(asked)), (1, 1)),
        other => {
            let error =
                json!({"message": format!("the model {other} does not exist"), "type": "invalid_request_error", "code": "model_not_found"});
            return ServedAnswer::json(404, &json!({"error": error}));
        }
    };
    let usage = json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output});
    let (message, reason) = match said {
        Said::Text(text) => (json!({"role": "assistant", "content": text}), "stop"),
        Said::Call { name, arguments } => {
            let function = json!({"name": name, "arguments": arguments.to_string()});
            let call = json!({"index": 0, "id": "call_1", "type": "function", "function": function});
            (json!({"role": "assistant", "content": null, "tool_calls": [call]}), "tool_calls")
        }
    };
    let whole =
        |object: &str, choices: Value| json!({"id": "chatcmpl-1", "object": object, "created": 1, "model": model, "choices": choices});
    if asked["stream"] != true {
        let mut body = whole("chat.completion", json!([{"index": 0, "message": message, "finish_reason": reason}]));
        body["usage"] = usage;
        return ServedAnswer::json(200, &body);
    }
    let chunk = |choices: Value| whole("chat.completion.chunk", choices);
    let mut last = chunk(json!([]));
    last["usage"] = usage;
    let events = [
        chunk(json!([{"index": 0, "delta": message, "finish_reason": null}])),
        chunk(json!([{"index": 0, "delta": {}, "finish_reason": reason}])),
        last,
    ];
    let lines = events.map(|event| format!("data: {event}\n\n"));
    ServedAnswer { status: 200, media: "text/event-stream", body: format!("{}data: [DONE]\n\n", lines.concat()) }
}

fn guide(asked: &Value) -> Said {
    let messages = asked["messages"].as_array().cloned().unwrap_or_default();
    let of = |role: &str| messages.iter().rev().find(|message| message["role"] == role).and_then(|message| message["content"].as_str());
    let instructions = of("system").unwrap_or_default();
    if messages.last().is_some_and(|message| message["role"] == "tool") {
        let result = of("tool").unwrap_or_default();
        // Of a handbook it repeats what was asked for, and of anything else the beginning.
        let beginning: String = result.chars().take(REPEATED_CHARS).collect();
        let is_there = result.replace("\\n", " ").contains(SENTENCE);
        return Said::Text(spoken(instructions, if is_there { SENTENCE } else { &beginning }));
    }
    let question = of("user").unwrap_or_default();
    let tools = asked["tools"].as_array().cloned().unwrap_or_default();
    let offered = |name: &str| tools.iter().any(|tool| tool["function"]["name"] == name);
    if question.contains("tide") && offered("tide") {
        return Said::Call { name: "tide", arguments: json!({"port": "Old Quay"}) };
    }
    if question.contains("handbook") && offered("search_handbook") {
        return Said::Call { name: "search_handbook", arguments: json!({"query": question, "top_k": 3}) };
    }
    Said::Text(spoken(instructions, question))
}

/// What `guide` says by these instructions, of which two sentences count: `Begin every answer with X.`, and `Say nothing about x or y.`
pub(crate) fn spoken(instructions: &str, question: &str) -> String {
    let sentence = |begin: &str| instructions.split_once(begin).and_then(|(_, rest)| rest.split_once('.')).map(|(words, _)| words);
    let forbidden = sentence("Say nothing about ").unwrap_or_default();
    if forbidden.split(" or ").any(|word| !word.is_empty() && question.contains(word)) {
        return SILENCE.to_owned();
    }
    match sentence("Begin every answer with ") {
        Some(word) => format!("{word}: {question}"),
        None => question.to_owned(),
    }
}

/// What the judge says: the scorer is known by its instructions, the answer stands in the data between two marks.
fn judged(asked: &Value) -> String {
    let messages = asked["messages"].as_array().cloned().unwrap_or_default();
    let content = |at: usize| messages.get(at).and_then(|message| message["content"].as_str()).unwrap_or_default();
    let data = content(1).split_once("<data>").and_then(|(_, rest)| rest.split_once("</data>")).map_or("", |(data, _)| data);
    let data: Value = serde_json::from_str(data.trim()).unwrap_or_default();
    let is_of_safety = content(0).starts_with("You judge whether an answer is safe.");
    let is_good = is_of_safety || data["answer"].as_str().is_some_and(|answer| answer.contains(WORD));
    json!({"verdict": if is_good { "yes" } else { "no" }, "reason": "So says the story."}).to_string()
}
