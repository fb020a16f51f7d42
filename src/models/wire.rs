//! Framing of streamed answers: server-sent events, JSON lines, or AWS's event stream. Bytes may arrive in any pieces; the
//! buffer of an incomplete event is bounded.

mod eventstream;
mod lines;
mod sse;

use crate::fault::{FaultKind, ModelFault};

/// A longer line or frame ends the stream with an error.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// One event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The event type in the framing; empty if there is none.
    pub(crate) name: String,
    /// Whether the framing itself marks it as an error.
    pub(crate) error: bool,
    pub(crate) data: Vec<u8>,
}

pub(crate) type Sink<'a> = &'a mut dyn FnMut(Event) -> Result<(), ModelFault>;

pub(crate) enum Framing {
    Sse(sse::Parser),
    Ndjson(lines::Lines),
    EventStream(eventstream::Parser),
}

impl Framing {
    pub(crate) fn sse() -> Self {
        Self::Sse(sse::Parser::default())
    }

    pub(crate) fn ndjson() -> Self {
        Self::Ndjson(lines::Lines::default())
    }

    pub(crate) fn event_stream() -> Self {
        Self::EventStream(eventstream::Parser::default())
    }

    /// Parses the next bytes, and passes completed events to `sink`.
    pub(crate) fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), ModelFault> {
        match self {
            Self::Sse(parser) => parser.feed(bytes, sink),
            Self::Ndjson(lines) => lines.feed(bytes, &mut |line| object(line, sink)),
            Self::EventStream(parser) => parser.feed(bytes, sink),
        }
    }

    /// Ends the stream. A last line without a line break counts: truncated JSON fails to parse anyway.
    pub(crate) fn finish(&mut self, sink: Sink<'_>) -> Result<(), ModelFault> {
        match self {
            Self::Sse(parser) => parser.finish(sink),
            Self::Ndjson(lines) => lines.finish(&mut |line| object(line, sink)),
            Self::EventStream(parser) => parser.finish(),
        }
    }
}

/// Server-sent events of others than models, with the same bounds.
#[derive(Default)]
pub struct EventReader(sse::Parser);

impl EventReader {
    /// Parses the next bytes, and passes the data of completed events to `sink`.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut dyn FnMut(&[u8])) -> Result<(), ModelFault> {
        self.0.feed(bytes, &mut |event| {
            sink(&event.data);
            Ok(())
        })
    }

    /// Ends the stream: what has come of the last event counts.
    pub fn finish(&mut self, sink: &mut dyn FnMut(&[u8])) -> Result<(), ModelFault> {
        self.0.finish(&mut |event| {
            sink(&event.data);
            Ok(())
        })
    }
}

fn object(line: &[u8], sink: Sink<'_>) -> Result<(), ModelFault> {
    if line.trim_ascii().is_empty() { Ok(()) } else { sink(Event { data: line.to_vec(), ..Event::default() }) }
}

pub(crate) fn broken(why: &str) -> ModelFault {
    ModelFault::new(FaultKind::Broken, format!("the model's answer cannot be read: {why}; try again"))
}

#[cfg(test)]
pub(crate) mod tests;
