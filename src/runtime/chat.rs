//! One turn of a conversation: the caller's JSON becomes a prompt, the model's fragments become one
//! answer or a stream of events.

use std::time::SystemTime;

use futures::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use slipway_http::{Error, Event, Reply, StatusCode, ulid};
use tracing::error;

use crate::model::{Answer, Fault, Model, Piece, Prompt, Usage};

const LONGEST_ID: usize = 64;

/// What a caller sends.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Turn {
    message: Option<String>,
    /// Another name for `message`, which wins where both are given.
    input: Option<String>,
    conversation_id: Option<String>,
}

/// What goes back beside the text.
#[derive(Debug, Clone, Serialize)]
struct Receipt {
    conversation_id: String,
    trace_id: String,
    usage: Usage,
}

#[derive(Serialize)]
struct Whole<'a> {
    output: &'a str,
    #[serde(flatten)]
    receipt: Receipt,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Token {
        content: &'a str,
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

/// A turn that was found in order: what to ask, and under which ids.
#[derive(Debug)]
pub(crate) struct Accepted {
    message: String,
    receipt: Receipt,
}

impl Turn {
    pub(crate) fn accept(self, now: SystemTime, random: [u128; 2]) -> Result<Accepted, Error> {
        let message = self.message.or(self.input).filter(|message| !message.is_empty());
        let message = message.ok_or_else(|| Error::bad_request("`message` is missing or empty"))?;
        let conversation_id = match self.conversation_id {
            Some(id) if !is_id(&id) => {
                let form = format!("`conversation_id` must have 1 to {LONGEST_ID} letters, digits, `-` or `_`");
                return Err(Error::bad_request(form));
            }
            Some(id) => id,
            None => format!("conv_{}", ulid(now, random[0])),
        };
        let trace_id = format!("tr_{}", ulid(now, random[1]));
        let receipt = Receipt { conversation_id, trace_id, usage: Usage::default() };
        Ok(Accepted { message, receipt })
    }
}

fn is_id(text: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(fit)
}

/// The whole answer at once.
pub(crate) async fn whole(turn: Accepted, model: &dyn Model) -> Result<Reply, Error> {
    let mut receipt = turn.receipt;
    let mut output = String::new();
    let mut answer = model.answer(Prompt { message: turn.message });
    while let Some(piece) = answer.next().await {
        match piece.map_err(|fault| Error::new(StatusCode::BAD_GATEWAY, FAILED).because(fault))? {
            Piece::Text(text) => output.push_str(&text),
            Piece::Usage(usage) => receipt.usage = usage,
        }
    }
    Reply::json(&Whole { output: &output, receipt })
}

/// The answer as it comes: `token` events, then `done` with the full text, or `error`.
pub(crate) fn streamed(turn: Accepted, model: &dyn Model) -> Reply {
    let answer = model.answer(Prompt { message: turn.message });
    Reply::events(parts(answer, turn.receipt))
}

const FAILED: &str = "the model did not answer";

fn parts(answer: Answer, receipt: Receipt) -> impl Stream<Item = Event> {
    let state = Some((answer, receipt, String::new()));
    stream::unfold(state, async |state| {
        let (mut answer, mut receipt, mut content) = state?;
        loop {
            return match answer.next().await {
                Some(Ok(Piece::Text(text))) => {
                    content.push_str(&text);
                    Some((Event::json(&Part::Token { content: &text }), Some((answer, receipt, content))))
                }
                Some(Ok(Piece::Usage(usage))) => {
                    receipt.usage = usage;
                    continue;
                }
                Some(Err(fault)) => Some((failed(&fault, &receipt), None)),
                None => Some((Event::json(&Part::Done { content: &content, receipt }), None)),
            };
        }
    })
    .filter_map(async |event| event.ok())
}

fn failed(fault: &Fault, receipt: &Receipt) -> Result<Event, Error> {
    error!(trace_id = receipt.trace_id, %fault, "a stream ended early");
    Event::json(&Part::Error { content: FAILED })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn accept(body: &str) -> Result<Accepted, Error> {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        serde_json::from_str::<Turn>(body).unwrap().accept(now, [1, 2])
    }

    #[test]
    fn a_turn_needs_a_message_and_gets_the_ids_it_lacks() {
        for (body, message, conversation) in [
            (r#"{"message": "a"}"#, "a", "conv_01HF7YAT000000000000000001"),
            (r#"{"input": "b"}"#, "b", "conv_01HF7YAT000000000000000001"),
            (r#"{"message": "a", "input": "b", "conversation_id": "conv_7"}"#, "a", "conv_7"),
        ] {
            let turn = accept(body).unwrap();
            assert_eq!((turn.message.as_str(), turn.receipt.conversation_id.as_str()), (message, conversation), "{body}");
            assert_eq!(turn.receipt.trace_id, "tr_01HF7YAT000000000000000002");
        }
        for (body, word) in [
            ("{}", "`message`"),
            (r#"{"message": ""}"#, "`message`"),
            (r#"{"message": "a", "conversation_id": ""}"#, "`conversation_id`"),
            (r#"{"message": "a", "conversation_id": "a/../b"}"#, "`conversation_id`"),
        ] {
            let error = accept(body).unwrap_err();
            assert!(error.message().contains(word), "{body}: {}", error.message());
        }
    }

    #[tokio::test]
    async fn a_model_that_fails_ends_the_stream_with_an_error_that_keeps_its_reason() {
        let answer = stream::iter([Ok(Piece::Text("so ".into())), Err(Fault("key hunter2 refused".into()))]);
        let receipt = accept(r#"{"message": "a"}"#).unwrap().receipt;
        let events: Vec<_> = parts(Box::pin(answer), receipt).collect().await;
        assert_eq!(
            events,
            [
                Event::json(&Part::Token { content: "so " }).unwrap(),
                Event::json(&Part::Error { content: "the model did not answer" }).unwrap(),
            ]
        );
    }
}
