//! The answer of an agent with an image of its own, as far as it can be scored. The agent need not report which tools it called,
//! nor what it retrieved: nothing is guessed, and scorers that need it do not run. What does not follow the contract counts as
//! not reported.

use std::collections::HashMap;

use serde_json::Value;
use slipway_evaluation::ToolCall;
use slipway_models::Usage;

use crate::turn::{OUT_OF_TIME, OUT_OF_TOKENS};

/// How many calls, and passages, of an answer count.
const MAX_TOLD: usize = 1000;
const MAX_NAME_BYTES: usize = 256;
const MAX_WORDS_BYTES: usize = 512;
const MAX_TRACE_BYTES: usize = 64;
/// More tokens than any answer takes.
const MAX_TOKENS: u64 = 1_000_000_000;

const CALLS_UNTOLD: &str =
    "the agent's image does not tell of calls of tools: its stream has no tool_start, and no header X-Slipway-Events with tools";
const SOURCES_UNTOLD: &str =
    "the agent's image does not tell what it retrieved: its stream has no sources, and no header X-Slipway-Events with sources";
const TEXT_UNTOLD: &str = "the agent's image does not tell what it retrieved: its sources have no content";
const WHOLE: &str = "the agent's image answers without events, so that neither calls of tools nor sources are known";

/// An answer, and what is known of how it came about.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) output: String,
    /// Or why they are not known.
    pub(crate) tool_calls: Result<Vec<ToolCall>, &'static str>,
    pub(crate) retrieved: Result<Vec<String>, &'static str>,
    /// None where the agent does not tell.
    pub(crate) usage: Option<Usage>,
    pub(crate) trace_id: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unheard {
    /// It ended before it was whole.
    Broken(String),
    /// The agent says so, or says nothing that could be read.
    Failed(String),
}

/// A stream, event by event.
#[derive(Default)]
pub(crate) struct Listening {
    tells_calls: bool,
    tells_sources: bool,
    /// Some source came without its text.
    lacks_text: bool,
    text: String,
    calls: Vec<ToolCall>,
    /// By the id of the call.
    places: HashMap<String, usize>,
    passages: Vec<String>,
    end: Option<Result<Value, String>>,
}

impl Listening {
    /// `told` is what the stream says that it tells of, separated by commas: `tools` and `sources`.
    pub(crate) fn to(told: &str) -> Self {
        let tells = |what: &str| told.split(',').any(|word| word.trim().eq_ignore_ascii_case(what));
        Self { tells_calls: tells("tools"), tells_sources: tells("sources"), ..Self::default() }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end.is_some()
    }

    /// The data of one event. What cannot be read, or is of a kind that nobody knows, is passed over.
    pub(crate) fn hear(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Value>(data) else { return };
        if self.has_ended() {
            return;
        }
        match text(&event, "type") {
            "token" => self.text.push_str(text(&event, "content")),
            "tool_start" => self.called(&event),
            "tool_end" => self.answered(&event),
            "sources" => self.retrieved(&event),
            "error" => {
                let words = [text(&event, "content"), text(&event, "message")].into_iter().find(|words| !words.is_empty());
                self.end = Some(Err(cut(words.unwrap_or("the turn failed"), MAX_WORDS_BYTES)));
            }
            "done" => self.end = Some(Ok(event)),
            _ => {}
        }
    }

    fn called(&mut self, event: &Value) {
        self.tells_calls = true;
        if self.calls.len() >= MAX_TOLD {
            return;
        }
        self.places.insert(text(event, "id").to_owned(), self.calls.len());
        let name = cut(text(event, "name"), MAX_NAME_BYTES);
        let arguments = event.get("arguments").cloned().unwrap_or_default();
        self.calls.push(ToolCall { name, arguments, result: String::new() });
    }

    fn answered(&mut self, event: &Value) {
        self.tells_calls = true;
        let call = self.places.get(text(event, "id")).and_then(|place| self.calls.get_mut(*place));
        if let (Some(call), Some(content)) = (call, event.get("content")) {
            call.result = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        }
    }

    fn retrieved(&mut self, event: &Value) {
        self.tells_sources = true;
        for source in event.get("sources").and_then(Value::as_array).into_iter().flatten() {
            match source.get("content").and_then(Value::as_str) {
                Some(content) if self.passages.len() < MAX_TOLD => self.passages.push(content.to_owned()),
                Some(_) => {}
                None => self.lacks_text = true,
            }
        }
    }

    /// What the stream came to.
    pub(crate) fn end(self) -> Result<Heard, Unheard> {
        let done = match self.end {
            Some(Ok(done)) => done,
            Some(Err(words)) => return Err(Unheard::Failed(words)),
            None => return Err(Unheard::Broken("its answer ended before the event done".to_owned())),
        };
        is_whole(&done)?;
        let retrieved = match (self.tells_sources, self.lacks_text) {
            (true, false) => Ok(self.passages),
            (true, true) => Err(TEXT_UNTOLD),
            (false, _) => Err(SOURCES_UNTOLD),
        };
        Ok(Heard {
            output: done.get("content").and_then(Value::as_str).map_or(self.text, str::to_owned),
            tool_calls: if self.tells_calls { Ok(self.calls) } else { Err(CALLS_UNTOLD) },
            retrieved,
            usage: usage(&done),
            trace_id: trace(&done),
        })
    }
}

/// An answer that came at once.
pub(crate) fn whole(body: &[u8]) -> Result<Heard, Unheard> {
    let answer: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(output) = answer.get("output").and_then(Value::as_str) else {
        return Err(Unheard::Failed("its answer is no JSON object with output".to_owned()));
    };
    is_whole(&answer)?;
    Ok(Heard { output: output.to_owned(), tool_calls: Err(WHOLE), retrieved: Err(WHOLE), usage: usage(&answer), trace_id: trace(&answer) })
}

/// Whether an answer was let go on to its end, as far as the agent tells.
fn is_whole(answer: &Value) -> Result<(), Unheard> {
    match text(answer, "stop_reason") {
        // So ends what is under way when a pod goes.
        "cancelled" => Err(Unheard::Broken("it cancelled its answer".to_owned())),
        "time_budget" => Err(Unheard::Failed(OUT_OF_TIME.to_owned())),
        "token_budget" => Err(Unheard::Failed(OUT_OF_TOKENS.to_owned())),
        _ => Ok(()),
    }
}

fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

fn usage(answer: &Value) -> Option<Usage> {
    let usage = answer.get("usage")?;
    let count = |field: &str| usage.get(field)?.as_u64().map(|tokens| tokens.min(MAX_TOKENS));
    let (input_tokens, output_tokens) = (count("input_tokens")?, count("output_tokens")?);
    let cached_input_tokens = count("cached_input_tokens").unwrap_or_default().min(input_tokens);
    Some(Usage { input_tokens, output_tokens, cached_input_tokens })
}

fn trace(answer: &Value) -> Option<String> {
    let id = text(answer, "trace_id");
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    ((1..=MAX_TRACE_BYTES).contains(&id.len()) && id.bytes().all(fits)).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn heard(told: &str, events: &[Value]) -> Result<Heard, Unheard> {
        let mut listening = Listening::to(told);
        for event in events {
            listening.hear(event.to_string().as_bytes());
        }
        listening.end()
    }

    fn done() -> Value {
        json!({"type": "done", "content": "It rains.", "trace_id": "tr_1", "usage": {"input_tokens": 7, "output_tokens": 3}})
    }

    #[test]
    fn a_stream_is_heard_to_its_end() {
        let events = [
            json!({"type": "token", "content": "It "}),
            json!({"type": "mood", "content": "sunny"}),
            json!({"type": "tool_start", "id": "a", "name": "weather", "arguments": {"city": "Rome"}}),
            json!({"type": "tool_end", "id": "a", "content": "rain"}),
            json!({"type": "tool_end", "id": "never begun", "content": "?"}),
            json!({"type": "sources", "sources": [{"source": "a.pdf", "content": "Rain is wet."}]}),
            done(),
            json!({"type": "error", "content": "too late"}),
        ];
        let found = heard("", &events).unwrap();
        let call = ToolCall { name: "weather".to_owned(), arguments: json!({"city": "Rome"}), result: "rain".to_owned() };
        assert_eq!((found.output.as_str(), found.tool_calls, found.trace_id.as_deref()), ("It rains.", Ok(vec![call]), Some("tr_1")));
        assert_eq!(found.retrieved, Ok(vec!["Rain is wet.".to_owned()]));
        assert_eq!(found.usage, Some(Usage { input_tokens: 7, output_tokens: 3, cached_input_tokens: 0 }));
        let bare = heard(
            "",
            &[json!({"type": "token", "content": "Only "}), json!({"type": "token", "content": "tokens"}), json!({"type": "done"})],
        );
        let bare = bare.unwrap();
        assert_eq!((bare.output.as_str(), bare.usage, bare.trace_id), ("Only tokens", None, None));
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        let source = json!({"type": "sources", "sources": [{"source": "a.pdf"}]});
        let nothing = json!({"type": "sources", "sources": []});
        for (told, events, calls, passages) in [
            ("", vec![done()], Err(CALLS_UNTOLD), Err(SOURCES_UNTOLD)),
            ("tools, Sources", vec![done()], Ok(0), Ok(0)),
            ("sources", vec![source.clone(), done()], Err(CALLS_UNTOLD), Err(TEXT_UNTOLD)),
            ("", vec![nothing, done()], Err(CALLS_UNTOLD), Ok(0)),
        ] {
            let found = heard(told, &events).unwrap();
            assert_eq!(
                (found.tool_calls.map(|all| all.len()), found.retrieved.map(|all| all.len())),
                (calls, passages),
                "{told} {events:?}"
            );
        }
        let found = whole(br#"{"output": "yes", "usage": {"input_tokens": 1, "output_tokens": 2}}"#).unwrap();
        assert_eq!((found.output.as_str(), found.tool_calls.is_err(), found.usage.is_some()), ("yes", true, true));
    }

    #[test]
    fn an_answer_that_is_none_says_why() {
        let failed = |words: &str| Err(Unheard::Failed(words.to_owned()));
        let token = json!({"type": "token", "content": "so "});
        assert_eq!(heard("", &[token.clone(), json!({"type": "error", "content": "no key"}), done()]), failed("no key"));
        assert_eq!(heard("", &[json!({"type": "error", "message": "no key"})]), failed("no key"));
        assert!(matches!(heard("", &[token]), Err(Unheard::Broken(_))));
        assert!(matches!(heard("", &[json!({"type": "done", "content": "half", "stop_reason": "cancelled"})]), Err(Unheard::Broken(_))));
        for (reason, why) in [("time_budget", OUT_OF_TIME), ("token_budget", OUT_OF_TOKENS)] {
            let half = json!({"type": "done", "content": "half", "output": "half", "stop_reason": reason});
            assert_eq!((heard("", std::slice::from_ref(&half)), whole(half.to_string().as_bytes())), (failed(why), failed(why)));
        }
        assert!(matches!(whole(br#"{"output": "half", "stop_reason": "cancelled"}"#), Err(Unheard::Broken(_))));
        for body in [&b"yes"[..], b"{}", b"[]", b"{\"output\": 1}"] {
            assert!(matches!(whole(body), Err(Unheard::Failed(_))), "{body:?}");
        }
    }

    proptest! {
        #[test]
        fn whatever_an_agent_says_is_bounded_and_panics_nobody(
            events in prop::collection::vec("\\PC{0,60}|\\{\"type\":\"(token|tool_start|tool_end|sources|done|error|x)\"(,\"(id|name|content|sources|usage|trace_id)\":(1|\"é{0,3}\"|null|\\[1\\]|\\{\\})){0,3}\\}", 0..12),
        ) {
            let mut listening = Listening::to("");
            for event in &events {
                listening.hear(event.as_bytes());
            }
            if let Ok(found) = listening.end() {
                prop_assert!(found.trace_id.is_none_or(|id| id.len() <= MAX_TRACE_BYTES));
                prop_assert!(found.tool_calls.is_err() || events.iter().any(|event| event.contains("tool_")));
            }
        }
    }
}
