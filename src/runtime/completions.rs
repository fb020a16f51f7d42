//! `/v1/chat/completions` and `/v1/models`: the agent behind the protocol that most clients speak.
//! The caller keeps the conversation and sends all of it; the agent brings its own instructions,
//! tools and memory.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use slipway_http::{Error, Event, Reply, Request};
use slipway_models::Message;
use tokio::sync::mpsc;
use tracing::error;

use crate::agent::Agent;
use crate::turn::{self, CallerTrace, Order, Said, Stop, TurnAnswer, TurnEvent};
use crate::{failure, ids};

const MAX_MESSAGES: usize = 1000;
const MAX_STOPS: usize = 4;

/// What a caller sends. What has no meaning here (`user`, `seed` and the like) is passed over, as
/// such servers do; what would change the answer and cannot be had is refused.
#[derive(Debug, Deserialize)]
struct Asked {
    messages: Vec<Line>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    temperature: Option<f32>,
    stop: Option<OneOrMany>,
    n: Option<u32>,
    #[serde(default)]
    tools: Vec<Value>,
    response_format: Option<Format>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Format {
    #[serde(rename = "type")]
    type_: String,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct Line {
    role: String,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    type_: String,
    text: Option<String>,
}

/// What every part of one answer repeats.
struct Heading {
    id: String,
    created: u64,
    model: String,
    include_usage: bool,
}

#[derive(Serialize)]
struct Refused<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    type_: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// Errors have the protocol's own form.
pub(crate) async fn answer(agent: &Arc<Agent>, request: Request, caller: CallerTrace) -> Result<Reply, Error> {
    match complete(agent, request, caller).await {
        Ok(reply) => Ok(reply),
        Err(error) => {
            let status = error.status();
            if let Some(cause) = error.cause().filter(|_| status.is_server_error()) {
                error!(status = status.as_u16(), %cause, "a completion failed");
            }
            let type_ = if status.is_client_error() { "invalid_request_error" } else { "server_error" };
            let message = error.message().to_owned();
            Ok(error.with_body(&json!({"error": Refused { message: &message, type_, param: None, code: None }})))
        }
    }
}

pub(crate) fn models(agent: &Agent) -> Result<Reply, Error> {
    let model = json!({"id": agent.identity.agent_name, "object": "model", "created": 0, "owned_by": agent.identity.team});
    Reply::json(&json!({"object": "list", "data": [model]}))
}

async fn complete(agent: &Arc<Agent>, request: Request, caller: CallerTrace) -> Result<Reply, Error> {
    let asked: Asked = request.json().await?;
    let (stream, include_usage) = (asked.stream, asked.stream_options.as_ref().is_some_and(|options| options.include_usage));
    let order = asked.order(ids::make("tr").map_err(Error::internal)?, caller)?;
    let heading = Heading {
        id: order.trace_id.replacen("tr_", "chatcmpl-", 1),
        created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        model: agent.identity.agent_name.clone(),
        include_usage,
    };
    let turn_events = turn::begin(agent, order).await?;
    if stream {
        return Ok(Reply::events(heading.chunks(turn_events)));
    }
    heading.whole(turn_events).await
}

impl Asked {
    fn order(self, trace_id: String, caller: CallerTrace) -> Result<Order, Error> {
        if self.n.is_some_and(|n| n != 1) {
            return Err(Error::bad_request("`n` must be 1: this agent gives one answer"));
        }
        if !self.tools.is_empty() {
            return Err(Error::bad_request("`tools` must be empty: this agent brings its own tools"));
        }
        if let Some(format) = self.response_format.filter(|format| format.type_ != "text") {
            return Err(Error::bad_request(format!("`response_format` {:?} is not supported; text is", format.type_)));
        }
        if self.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            return Err(Error::bad_request("`temperature` must be 0 to 2"));
        }
        let stop = match self.stop {
            None => Vec::new(),
            Some(OneOrMany::One(one)) => vec![one],
            Some(OneOrMany::Many(many)) => many,
        };
        if stop.len() > MAX_STOPS || stop.iter().any(String::is_empty) {
            return Err(Error::bad_request(format!("`stop` may have at most {MAX_STOPS} strings, none empty")));
        }
        let max_output_tokens = self.max_completion_tokens.or(self.max_tokens);
        if max_output_tokens == Some(0) {
            return Err(Error::bad_request("`max_completion_tokens` must be at least 1"));
        }
        let (system, messages) = conversation(self.messages)?;
        Ok(Order {
            said: Said::Alone { system, messages },
            trace_id,
            caller,
            // Nobody could ask for this answer later.
            cancel_with_client: true,
            is_streamed: self.stream,
            max_output_tokens,
            temperature: self.temperature,
            stop,
            rehearsal: None,
        })
    }
}

/// The system's messages as one text, and the others in order; the last must be the user's.
fn conversation(lines: Vec<Line>) -> Result<(Option<String>, Vec<Message>), Error> {
    if lines.len() > MAX_MESSAGES {
        return Err(Error::bad_request(format!("`messages` may have at most {MAX_MESSAGES} elements")));
    }
    let mut system = Vec::new();
    let mut messages = Vec::new();
    for (index, line) in lines.into_iter().enumerate() {
        let at = |what: &str| Error::bad_request(format!("`messages[{index}]` {what}"));
        let text = match line.content {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let texts = parts.into_iter().map(|part| part.text.filter(|_| part.type_ == "text"));
                texts.collect::<Option<String>>().ok_or_else(|| at("may have text parts only"))?
            }
            None => String::new(),
        };
        match line.role.as_str() {
            "system" | "developer" => system.push(text),
            "user" => messages.push(Message::user(text)),
            "assistant" if text.is_empty() => {}
            "assistant" => messages.push(Message::assistant(text)),
            "tool" | "function" => return Err(at("has tool results, but this agent calls its tools itself")),
            _ => return Err(at("has a role that is not known; there are system, user and assistant")),
        }
    }
    let last = messages.last().filter(|message| message.role == slipway_models::Role::User && !message.text().trim().is_empty());
    if last.is_none() {
        return Err(Error::bad_request("`messages` must end with a message of the user that is not empty"));
    }
    Ok(((!system.is_empty()).then(|| system.join("\n\n")), messages))
}

impl Heading {
    async fn whole(&self, mut turn_events: mpsc::Receiver<TurnEvent>) -> Result<Reply, Error> {
        while let Some(turn_event) = turn_events.recv().await {
            match turn_event {
                TurnEvent::Failed(fault) => return Err(failure::of_model(fault)),
                TurnEvent::Done(answer) => {
                    let message = json!({"role": "assistant", "content": answer.content});
                    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer.stop)});
                    let mut whole = self.object("chat.completion", &[choice]);
                    whole["usage"] = usage(&answer);
                    return Reply::json(&whole);
                }
                _ => {}
            }
        }
        Err(Error::internal("the turn ended without a word"))
    }

    fn chunks(self, turn_events: mpsc::Receiver<TurnEvent>) -> impl Stream<Item = Event> {
        let first = self.chunk(&json!({"role": "assistant", "content": ""}), None);
        let rest = stream::unfold((turn_events, self, 0), async |(mut turn_events, heading, mut told)| {
            let turn_event = turn_events.recv().await?;
            let events = heading.events(turn_event, &mut told);
            Some((stream::iter(events), (turn_events, heading, told)))
        });
        stream::iter([first]).chain(rest.flatten()).filter_map(async |event| event.ok())
    }

    /// `told` is how much of the answer was streamed so far, in bytes.
    fn events(&self, turn_event: TurnEvent, told: &mut usize) -> Vec<Result<Event, Error>> {
        match turn_event {
            TurnEvent::Text(text) => {
                *told += text.len();
                vec![self.chunk(&json!({"content": text}), None)]
            }
            TurnEvent::Failed(fault) => {
                error!(id = self.id, %fault, "a stream ended early");
                let refused = Refused { message: fault.message(), type_: "server_error", param: None, code: None };
                vec![Event::json(&json!({"error": refused})), Ok(Event::done())]
            }
            TurnEvent::Done(answer) => {
                let mut events = Vec::new();
                // What a guard says in place of the model was not streamed, nor what an answer ends with that was cut off.
                let rest = if answer.stop == Stop::Guard { &*answer.content } else { answer.content.get(*told..).unwrap_or_default() };
                if !rest.is_empty() {
                    events.push(self.chunk(&json!({"content": rest}), None));
                }
                events.push(self.chunk(&json!({}), Some(finish_reason(answer.stop))));
                if self.include_usage {
                    let mut last = self.object("chat.completion.chunk", &[]);
                    last["usage"] = usage(&answer);
                    events.push(Event::json(&last));
                }
                events.push(Ok(Event::done()));
                events
            }
            _ => Vec::new(),
        }
    }

    fn chunk(&self, delta: &Value, finish_reason: Option<&str>) -> Result<Event, Error> {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason});
        Event::json(&self.object("chat.completion.chunk", &[choice]))
    }

    fn object(&self, object: &str, choices: &[Value]) -> Value {
        json!({"id": self.id, "object": object, "created": self.created, "model": self.model, "choices": choices})
    }
}

fn usage(answer: &TurnAnswer) -> Value {
    let used = answer.usage;
    json!({
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.input_tokens + used.output_tokens,
        "prompt_tokens_details": {"cached_tokens": used.cached_input_tokens},
    })
}

fn finish_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::EndTurn | Stop::MaxRounds | Stop::Cancelled | Stop::Failed => "stop",
        Stop::MaxTokens | Stop::TokenBudget | Stop::TimeBudget => "length",
        Stop::Filtered | Stop::Guard => "content_filter",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(body: &str) -> Result<Order, Error> {
        serde_json::from_str::<Asked>(body).unwrap().order("tr_1".into(), CallerTrace::default())
    }

    #[test]
    fn messages_become_instructions_and_a_conversation() {
        let order = order(
            r#"{"model": "any", "user": "x", "messages": [
                {"role": "system", "content": "Be kind."}, {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": "Hi"}, {"role": "assistant", "content": null}, {"role": "assistant", "content": "Hello"},
                {"role": "user", "content": [{"type": "text", "text": "How "}, {"type": "text", "text": "are you?"}]}
            ]}"#,
        )
        .unwrap();
        let Said::Alone { system, messages } = order.said else { panic!("kept by the caller") };
        assert_eq!(system.as_deref(), Some("Be kind.\n\nBe brief."));
        assert_eq!(messages, [Message::user("Hi"), Message::assistant("Hello"), Message::user("How are you?")]);
    }

    #[test]
    fn what_cannot_be_had_is_refused() {
        let user = r#"{"role": "user", "content": "Hi"}"#;
        for (fields, word) in [
            (r#""messages": []"#.to_owned(), "`messages`"),
            (r#""messages": [{"role": "user", "content": ""}]"#.to_owned(), "`messages`"),
            (format!(r#""messages": [{user}, {{"role": "assistant", "content": "x"}}]"#), "`messages`"),
            (format!(r#""messages": [{user}, {{"role": "robot", "content": "x"}}]"#), "`messages[1]`"),
            (r#""messages": [{"role": "user", "content": [{"type": "image_url"}]}]"#.to_owned(), "`messages[0]`"),
            (format!(r#""messages": [{user}], "n": 2"#), "`n`"),
            (format!(r#""messages": [{user}], "tools": [{{}}]"#), "`tools`"),
            (format!(r#""messages": [{user}], "temperature": 3"#), "`temperature`"),
            (format!(r#""messages": [{user}], "stop": [""]"#), "`stop`"),
            (format!(r#""messages": [{user}], "response_format": {{"type": "json_object"}}"#), "`response_format`"),
        ] {
            let error = order(&format!("{{{fields}}}")).unwrap_err();
            assert!(error.message().contains(word), "{fields}: {}", error.message());
        }
    }

    /// Values that fit, and others.
    fn value() -> impl Strategy<Value = Value> {
        let fitting = vec![
            json!(null),
            json!(true),
            json!(0),
            json!(1),
            json!(-1),
            json!(u64::MAX),
            json!(1e39),
            json!(0.5),
            json!("text"),
            json!("END"),
            json!(""),
            json!([]),
            json!({}),
            json!(["a", "b"]),
            json!(["", "b"]),
            json!([{"type": "text", "text": "hi"}]),
            json!({"type": "text"}),
            json!({"type": "json_object"}),
            json!({"include_usage": true}),
            json!([{"role": "user", "content": "Hi"}]),
        ];
        prop::sample::select(fitting)
    }

    fn line() -> impl Strategy<Value = Value> {
        let content = prop_oneof![
            "\\PC{0,5}".prop_map(Value::from),
            prop::collection::vec(("text|image_url", prop::option::of("[a-z ]{0,3}")), 0..3)
                .prop_map(|parts| parts.into_iter().map(|(kind, text)| json!({"type": kind, "text": text})).collect()),
            Just(Value::Null),
        ];
        ("system|developer|user|assistant|tool|robot", content).prop_map(|(role, content)| json!({"role": role, "content": content}))
    }

    proptest! {
        #[test]
        fn whatever_is_asked_is_an_order_that_can_be_carried_out_or_refused(
            lines in prop::collection::vec(line(), 0..5),
            fields in prop::collection::btree_map("stream|stream_options|max_tokens|max_completion_tokens|temperature|stop|n|tools|response_format|messages|user", value(), 0..4),
        ) {
            let mut body = json!({"messages": lines});
            body.as_object_mut().unwrap().extend(fields);
            let Ok(asked) = serde_json::from_str::<Asked>(&body.to_string()) else { return Ok(()) };
            let Ok(order) = asked.order("tr_1".into(), CallerTrace::default()) else { return Ok(()) };
            let Said::Alone { messages, .. } = order.said else { panic!("kept by the caller") };
            let last = messages.last().unwrap();
            prop_assert!(last.role == slipway_models::Role::User && !last.text().trim().is_empty());
            prop_assert!(order.max_output_tokens != Some(0) && order.stop.len() <= MAX_STOPS && !order.stop.contains(&String::new()));
            prop_assert!(order.temperature.is_none_or(|temperature| (0.0..=2.0).contains(&temperature)));
        }
    }
}
