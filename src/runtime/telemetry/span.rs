//! One span while it is open: the OTLP message, to which attributes and events are added as they become known. A span that
//! is not sampled has an id to pass on and no message. A span that is dropped without an end was cancelled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::trace::v1::span::{Event, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{self as proto, Status};

use super::context::{self, SpanId, TraceId};
use super::otlp::{Value, attribute};
use super::{Inner, content};

/// Names and ids from outside are cut to this.
const MAX_NAME_BYTES: usize = 256;
const MAX_EVENTS: usize = 64;
const MAX_GUARD_ACTIONS: usize = 16;

const SAMPLED: u32 = 1;
/// It is known whether the parent is in another process; and it is.
const REMOTENESS_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// What all spans of one turn share.
pub(super) struct Trace {
    pub(super) telemetry: Arc<Inner>,
    pub(super) id: TraceId,
    pub(super) sampled: bool,
    pub(super) state: Option<String>,
    pub(super) conversation: String,
}

pub(super) struct Span {
    pub(super) trace: Arc<Trace>,
    pub(super) id: SpanId,
    record: Option<Mutex<Option<Record>>>,
}

pub(super) struct Record {
    message: proto::Span,
    started: Instant,
    remote_parent: Option<SpanId>,
    /// What guards did, each action once.
    guard_actions: Vec<String>,
    audits: bool,
}

/// The parent of a span.
pub(super) enum SpanParent {
    None,
    /// In another process, whose spans only the collector gets.
    Remote(SpanId),
    /// In another process, whose spans MLflow gets as well.
    Shared(SpanId),
    Local(SpanId),
}

impl Span {
    /// None where the operating system has no random bytes to give.
    pub(super) fn begin(trace: &Arc<Trace>, parent: &SpanParent, kind: SpanKind, name: [&str; 2]) -> Option<Self> {
        let id = SpanId::random()?;
        let record = trace.sampled.then(|| Mutex::new(Some(Record::new(trace, id, parent, kind, name))));
        Some(Self { trace: Arc::clone(trace), id, record })
    }

    pub(super) fn child(&self, kind: SpanKind, name: [&str; 2]) -> Option<Self> {
        Self::begin(&self.trace, &SpanParent::Local(self.id), kind, name)
    }

    pub(super) fn is_recording(&self) -> bool {
        self.record.is_some()
    }

    pub(super) fn traceparent(&self) -> String {
        context::traceparent(self.trace.id, self.id, self.trace.sampled)
    }

    /// Does something with the span unless it is not recorded or has ended.
    pub(super) fn with(&self, change: impl FnOnce(&mut Record)) {
        if let Some(record) = &self.record
            && let Some(record) = record.lock().unwrap_or_else(PoisonError::into_inner).as_mut()
        {
            change(record);
        }
    }

    /// Appends a value that holds content, where that is wanted.
    pub(super) fn capture(&self, key: &str, value: impl FnOnce() -> String) {
        if self.is_recording() && self.trace.telemetry.capture {
            let value = value();
            self.with(|record| record.long_text(key, &value));
        }
    }

    pub(super) fn end(&self, error: Option<&str>) {
        let Some(record) = &self.record else { return };
        let record = record.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(record) = record {
            record.end(&self.trace.telemetry, error);
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.end(Some("cancelled"));
    }
}

impl Record {
    fn new(trace: &Trace, id: SpanId, parent: &SpanParent, kind: SpanKind, [operation, subject]: [&str; 2]) -> Self {
        let now = nanoseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        let (own_parent, remote_parent, remoteness) = match parent {
            SpanParent::None => (None, None, 0),
            SpanParent::Remote(parent) => (None, Some(*parent), REMOTENESS_KNOWN | REMOTE),
            SpanParent::Shared(parent) => (Some(parent), None, REMOTENESS_KNOWN | REMOTE),
            SpanParent::Local(parent) => (Some(parent), None, REMOTENESS_KNOWN),
        };
        let subject = clip(subject);
        let message = proto::Span {
            trace_id: trace.id.0.to_vec(),
            span_id: id.0.to_vec(),
            trace_state: trace.state.clone().unwrap_or_default(),
            parent_span_id: own_parent.map(|parent| parent.0.to_vec()).unwrap_or_default(),
            flags: SAMPLED | remoteness,
            name: if subject.is_empty() { operation.to_owned() } else { format!("{operation} {subject}") },
            kind: kind.into(),
            start_time_unix_nano: now,
            ..proto::Span::default()
        };
        let mut record = Self { message, started: Instant::now(), remote_parent, guard_actions: Vec::new(), audits: false };
        record.set("gen_ai.operation.name", &Value::Text(operation));
        record
    }

    pub(super) fn set(&mut self, key: &str, value: &Value<'_>) {
        self.message.attributes.push(attribute(key, value));
    }

    /// A text from outside, bounded; an empty one is left out.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.set(key, &Value::Text(clip(value)));
        }
    }

    fn long_text(&mut self, key: &str, value: &str) {
        self.set(key, &Value::Text(value));
    }

    pub(super) fn event(&mut self, name: &str, attributes: &[(&str, &str)]) {
        if self.message.events.len() == MAX_EVENTS {
            self.message.dropped_events_count += 1;
            return;
        }
        let attributes = attributes.iter().filter(|(_, value)| !value.is_empty());
        self.message.events.push(Event {
            time_unix_nano: self.now(),
            name: name.to_owned(),
            attributes: attributes.map(|(key, value)| attribute(key, &Value::Text(clip(value)))).collect(),
            ..Event::default()
        });
    }

    pub(super) fn guarded(&mut self, guard: &str, action: &str, kind: &str) {
        self.event("slipway.guard", &[("slipway.guard.name", guard), ("slipway.guard.action", action), ("slipway.guard.kind", kind)]);
        let done = format!("{}:{}", clip(guard), clip(action));
        if self.guard_actions.len() < MAX_GUARD_ACTIONS && !self.guard_actions.contains(&done) {
            self.guard_actions.push(done);
        }
    }

    pub(super) fn audit(&mut self) {
        self.audits = true;
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn now(&self) -> u64 {
        self.message.start_time_unix_nano + nanoseconds(self.started.elapsed())
    }

    fn end(mut self, telemetry: &Inner, error: Option<&str>) {
        self.message.end_time_unix_nano = self.now();
        if let Some(error) = error {
            self.set("error.type", &Value::Text(if error.is_empty() { "_OTHER" } else { clip(error) }));
            self.message.status = Some(Status { code: StatusCode::Error.into(), ..Status::default() });
        }
        if !self.guard_actions.is_empty() {
            let actions = std::mem::take(&mut self.guard_actions);
            self.set("slipway.guard.actions", &Value::Texts(&actions.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        telemetry.deliver(self.message, self.remote_parent, self.audits);
    }
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NAME_BYTES)]
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A text that was captured, bounded.
pub(super) fn captured(mut text: String) -> String {
    content::shorten(&mut text);
    text
}
