//! `/chat` and `/chat/stream`: the caller's JSON begins a turn, and the turn's events become one answer or a stream of events.

use std::sync::Arc;

use futures::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use slipway_api::contract::EVENTS_HEADER;
use slipway_http::{Error, Event, HeaderName, HeaderValue, Reply};
use slipway_models::Usage;
use tokio::sync::mpsc;
use tracing::error;

use crate::agent::Agent;
use crate::knowledge::PassageSource;
use crate::turn::{self, CallerTrace, Guarded, Order, Said, Stop, TurnAnswer, TurnEvent};
use crate::{failure, ids};

const MAX_ID_BYTES: usize = 64;

/// What a caller sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChatBody {
    message: Option<String>,
    /// Another name for `message`, which wins where both are given.
    input: Option<String>,
    conversation_id: Option<String>,
    /// Without it, a turn goes on when its client leaves.
    #[serde(default)]
    cancel_on_disconnect: bool,
}

/// What goes back beside the text.
#[derive(Debug, Clone, Serialize)]
struct Receipt {
    conversation_id: String,
    trace_id: String,
    usage: Tokens,
    stop_reason: Stop,
    /// False where the conversation does not have the answer, because its store cannot be reached.
    #[serde(skip_serializing_if = "is_true")]
    saved: bool,
}

#[derive(Debug, Clone, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
struct Tokens {
    input_tokens: u64,
    output_tokens: u64,
    /// Of the input, what the provider had read before and bills for less.
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_input_tokens: Option<u64>,
}

impl From<Usage> for Tokens {
    fn from(used: Usage) -> Self {
        let cached_input_tokens = Some(used.cached_input_tokens).filter(|tokens| *tokens > 0);
        Self { input_tokens: used.input_tokens, output_tokens: used.output_tokens, cached_input_tokens }
    }
}

#[derive(Serialize)]
struct Whole<'a> {
    output: &'a str,
    #[serde(flatten)]
    receipt: Receipt,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    guards: &'a [Guarded],
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Token {
        content: &'a str,
    },
    ToolStart {
        id: &'a str,
        name: &'a str,
        arguments: &'a Value,
    },
    ToolEnd {
        id: &'a str,
        name: &'a str,
        is_error: bool,
        content: &'a str,
        duration_ms: u128,
    },
    Sources {
        sources: &'a [PassageSource],
        /// Ids of knowledge bases that did not answer.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        unavailable: &'a [String],
    },
    Guard(&'a Guarded),
    Suggestions {
        suggestions: &'a [String],
    },
    Done {
        content: &'a str,
        #[serde(flatten)]
        receipt: Receipt,
    },
    Error {
        content: &'a str,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_true(value: &bool) -> bool {
    *value
}

/// The ids of a turn, which its answer repeats.
#[derive(Debug)]
struct Ids {
    conversation: String,
    trace: String,
}

impl ChatBody {
    fn order(self, caller: CallerTrace, is_streamed: bool) -> Result<(Ids, Order), Error> {
        let message = self.message.or(self.input).filter(|message| !message.trim().is_empty());
        let message = message.ok_or_else(|| Error::bad_request("`message` is missing or empty"))?;
        let conversation = match self.conversation_id {
            Some(id) if !is_id(&id) => {
                let form = format!("`conversation_id` must have 1 to {MAX_ID_BYTES} letters, digits, `-` or `_`");
                return Err(Error::bad_request(form));
            }
            Some(id) => id,
            None => ids::make("conv").map_err(Error::internal)?,
        };
        let trace = ids::make("tr").map_err(Error::internal)?;
        let order = Order {
            said: Said::InConversation { id: conversation.clone(), message },
            trace_id: trace.clone(),
            caller,
            cancel_with_client: self.cancel_on_disconnect,
            is_streamed,
            max_output_tokens: None,
            temperature: None,
            stop: Vec::new(),
            rehearsal: None,
        };
        Ok((Ids { conversation, trace }, order))
    }
}

/// Whether a conversation may be called this.
pub(crate) fn is_id(text: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=MAX_ID_BYTES).contains(&text.len()) && text.bytes().all(fit)
}

/// The whole answer at once. It has no place for suggestions: they are made when `/suggestions` is asked for.
pub(crate) async fn whole(agent: &Arc<Agent>, turn: ChatBody, caller: CallerTrace) -> Result<Reply, Error> {
    let (ids, order) = turn.order(caller, false)?;
    let mut turn_events = turn::begin(agent, order).await?;
    let mut guards = Vec::new();
    while let Some(turn_event) = turn_events.recv().await {
        match turn_event {
            TurnEvent::Guard(guarded) => guards.push(guarded),
            TurnEvent::Failed(fault) => return Err(failure::of_model(fault)),
            TurnEvent::Done(answer) => {
                let receipt = ids.receipt(&answer);
                return Reply::json(&Whole { output: &answer.content, receipt, guards: &guards });
            }
            TurnEvent::Text(_)
            | TurnEvent::ToolStart { .. }
            | TurnEvent::ToolEnd { .. }
            | TurnEvent::Sources { .. }
            | TurnEvent::Suggestions(_) => {}
        }
    }
    Err(Error::internal("the turn ended without a word"))
}

/// The answer as it comes: events of all kinds, then `done` with the full text, or `error`.
pub(crate) async fn streamed(agent: &Arc<Agent>, turn: ChatBody, caller: CallerTrace) -> Result<Reply, Error> {
    let (ids, order) = turn.order(caller, true)?;
    let turn_events = turn::begin(agent, order).await?;
    // Of passages their text is not told.
    Ok(Reply::events(events(turn_events, ids)).with_header(HeaderName::from_static(EVENTS_HEADER), HeaderValue::from_static("tools")))
}

fn events(turn_events: mpsc::Receiver<TurnEvent>, ids: Ids) -> impl Stream<Item = Event> {
    stream::unfold((turn_events, ids), async |(mut turn_events, ids)| {
        let turn_event = turn_events.recv().await?;
        let event = ids.event(&turn_event);
        Some((event, (turn_events, ids)))
    })
    .filter_map(async |event| event.ok())
}

impl Ids {
    fn receipt(&self, answer: &TurnAnswer) -> Receipt {
        Receipt {
            conversation_id: self.conversation.clone(),
            trace_id: self.trace.clone(),
            usage: answer.usage.into(),
            stop_reason: answer.stop,
            saved: answer.saved,
        }
    }

    fn event(&self, turn_event: &TurnEvent) -> Result<Event, Error> {
        let part = match turn_event {
            TurnEvent::Text(content) => Part::Token { content },
            TurnEvent::ToolStart { id, name, arguments } => Part::ToolStart { id, name, arguments },
            TurnEvent::ToolEnd { id, name, is_error, content, took } => {
                Part::ToolEnd { id, name, is_error: *is_error, content, duration_ms: took.as_millis() }
            }
            TurnEvent::Sources { sources, unavailable } => Part::Sources { sources, unavailable },
            TurnEvent::Guard(guarded) => Part::Guard(guarded),
            TurnEvent::Suggestions(suggestions) => Part::Suggestions { suggestions },
            TurnEvent::Done(answer) => Part::Done { content: &answer.content, receipt: self.receipt(answer) },
            TurnEvent::Failed(fault) => {
                error!(trace_id = self.trace, %fault, "a stream ended early");
                Part::Error { content: fault.message() }
            }
        };
        Event::json(&part)
    }
}

#[cfg(test)]
mod tests {
    use slipway_models::{FaultKind, ModelFault};

    use super::*;

    fn order(body: &str) -> Result<(Ids, Order), Error> {
        serde_json::from_str::<ChatBody>(body).unwrap().order(CallerTrace::default(), true)
    }

    #[test]
    fn a_turn_needs_a_message_and_gets_the_ids_it_lacks() {
        for (body, message, conversation) in [
            (r#"{"message": "a"}"#, "a", None),
            (r#"{"input": "b"}"#, "b", None),
            (r#"{"message": "a", "input": "b", "conversation_id": "conv_7"}"#, "a", Some("conv_7")),
        ] {
            let (ids, order) = order(body).unwrap();
            let Said::InConversation { id, message: said } = order.said else { panic!("{body}") };
            assert_eq!((said.as_str(), id.as_str()), (message, conversation.unwrap_or(&ids.conversation)), "{body}");
            assert!(conversation.is_some() || ids.conversation.len() == "conv_".len() + 26);
            assert_eq!(ids.trace.len(), "tr_".len() + 26);
        }
        for (body, word) in [
            ("{}", "`message`"),
            (r#"{"message": " "}"#, "`message`"),
            (r#"{"message": "a", "conversation_id": ""}"#, "`conversation_id`"),
            (r#"{"message": "a", "conversation_id": "a/../b"}"#, "`conversation_id`"),
        ] {
            let error = order(body).unwrap_err();
            assert!(error.message().contains(word), "{body}: {}", error.message());
        }
    }

    #[tokio::test]
    async fn a_turn_that_fails_ends_its_stream_with_an_error() {
        let (listener, turn_events) = mpsc::channel(4);
        listener.send(TurnEvent::Text("so ".into())).await.unwrap();
        listener.send(TurnEvent::Failed(ModelFault::new(FaultKind::MissingKey, "KEY is not set"))).await.unwrap();
        drop(listener);
        let ids = Ids { conversation: "conv_1".into(), trace: "tr_1".into() };
        let events: Vec<_> = events(turn_events, ids).collect().await;
        let expected = [Part::Token { content: "so " }, Part::Error { content: "KEY is not set" }];
        assert_eq!(events, expected.map(|part| Event::json(&part).unwrap()));
    }
}
