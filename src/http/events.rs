//! Server-sent events: `data: <json>` and a blank line, optionally with `event:` and `id:` before it. JSON never contains a
//! raw line break, so the data is always one line.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Body, Frame};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::delayed_error::BodyError;
use crate::error::Error;

/// One framed event, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event(Bytes);

impl Event {
    pub fn json(value: &impl Serialize) -> Result<Self, Error> {
        Self::framed(Vec::new(), value)
    }

    /// An event with a name that clients can listen for, and an id. A client that reconnects sends the last id in
    /// `Last-Event-ID`.
    pub fn named(kind: &str, id: Option<&str>, value: &impl Serialize) -> Result<Self, Error> {
        let mut head = Vec::new();
        for (field, text) in [("event", Some(kind)), ("id", id)] {
            let Some(text) = text else { continue };
            if text.contains(['\n', '\r', '\0']) {
                return Err(Error::internal(format!("a line break in the field `{field}` of an event")));
            }
            head.extend_from_slice(format!("{field}: {text}\n").as_bytes());
        }
        Self::framed(head, value)
    }

    fn framed(mut frame: Vec<u8>, value: &impl Serialize) -> Result<Self, Error> {
        frame.extend_from_slice(b"data: ");
        serde_json::to_writer(&mut frame, value).map_err(Error::internal)?;
        frame.extend_from_slice(b"\n\n");
        Ok(Self(frame.into()))
    }

    /// The end marker of a stream in the chat completions protocol.
    pub fn done() -> Self {
        Self(Bytes::from_static(b"data: [DONE]\n\n"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

/// A stream of events as a response body, with a comment whenever no event came for `keep_alive`.
pub(crate) struct EventBody<S> {
    stream: Pin<Box<S>>,
    keep_alive: Interval,
}

impl<S: Stream<Item = Event> + Send + 'static> EventBody<S> {
    pub(crate) fn new(stream: S, keep_alive: Duration) -> Self {
        let mut keep_alive = interval_at(Instant::now() + keep_alive, keep_alive);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self { stream: Box::pin(stream), keep_alive }
    }

    pub(crate) fn boxed_unsync(self) -> UnsyncBoxBody<Bytes, BodyError> {
        UnsyncBoxBody::new(self)
    }
}

impl<S: Stream<Item = Event>> Body for EventBody<S> {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.stream.as_mut().poll_next(context) {
            Poll::Ready(Some(Event(frame))) => {
                self.keep_alive.reset();
                Poll::Ready(Some(Ok(Frame::data(frame))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => self.keep_alive.poll_tick(context).map(|_| Some(Ok(Frame::data(Bytes::from_static(b": keep-alive\n\n"))))),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_frame_is_one_line_and_decodes_to_its_input(text in any::<String>()) {
            let Event(frame) = Event::json(&text).unwrap();
            let line = frame.strip_prefix(b"data: ").unwrap().strip_suffix(b"\n\n").unwrap();
            prop_assert!(!line.iter().any(|byte| matches!(byte, b'\n' | b'\r')));
            prop_assert_eq!(serde_json::from_slice::<String>(line).unwrap(), text);
        }
    }

    #[test]
    fn event_name_and_id_precede_the_data() {
        let Event(frame) = Event::named("Warning", Some("17"), &1).unwrap();
        assert_eq!(frame, "event: Warning\nid: 17\ndata: 1\n\n");
        assert_eq!(Event::named("Normal", None, &1).unwrap().0, "event: Normal\ndata: 1\n\n");
        assert!(Event::named("a\ndata: forged", None, &1).is_err() && Event::named("a", Some("1\r2"), &1).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_sends_keep_alive_comments() {
        let started = Instant::now();
        let mut events = EventBody::new(stream::pending(), Duration::from_secs(15));
        for round in 1..=2 {
            let frame = events.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(frame, ": keep-alive\n\n");
            assert_eq!(started.elapsed().as_secs(), 15 * round);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_come_in_order_and_then_the_body_ends() {
        let sent = stream::iter([Event::json(&1).unwrap(), Event::json(&2).unwrap()]);
        let body = EventBody::new(sent, Duration::from_secs(15)).collect().await.unwrap();
        assert_eq!(body.to_bytes(), "data: 1\n\ndata: 2\n\n");
    }
}
