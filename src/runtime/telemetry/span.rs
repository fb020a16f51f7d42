//! One span while it is open: the bytes that will be sent, to which attributes and events are
//! appended as they become known. A span that is not recorded has no bytes and costs next to
//! nothing, but still has an id to pass on. A span that is dropped without an end was cancelled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::context::{self, SpanId, TraceId};
use super::wire::{self, Value};
use super::{Inner, content};

/// No name or id from outside is longer, in bytes.
const LONGEST_NAME: usize = 256;
const MOST_EVENTS: u16 = 64;
const MOST_GUARDED: usize = 16;

const TRACE_ID: u32 = 1;
const SPAN_ID: u32 = 2;
const TRACE_STATE: u32 = 3;
const PARENT_ID: u32 = 4;
const NAME: u32 = 5;
const KIND: u32 = 6;
const START: u32 = 7;
const END: u32 = 8;
const EVENT: u32 = 11;
const EVENTS_DROPPED: u32 = 12;
const STATUS: u32 = 15;
const FLAGS: u32 = 16;

const SAMPLED: u32 = 1;
/// It is known whether the parent is in another process; and it is.
const REMOTENESS_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

const STATUS_ERROR: u64 = 2;

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Internal = 1,
    Client = 3,
}

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
    bytes: Vec<u8>,
    started: Instant,
    began: u64,
    remote_parent: Option<SpanId>,
    events: u16,
    events_dropped: u64,
    /// What guards did, each thing once.
    guarded: Vec<String>,
}

/// Where a span hangs.
pub(super) enum Above {
    Nothing,
    /// In another process, whose spans only the collector gets.
    Remote(SpanId),
    /// In another process, whose spans MLflow gets as well.
    Shared(SpanId),
    Local(SpanId),
}

impl Span {
    /// None where the operating system has no random bytes to give.
    pub(super) fn begin(trace: &Arc<Trace>, above: &Above, kind: Kind, name: [&str; 2]) -> Option<Self> {
        let id = SpanId::random()?;
        let record = trace.sampled.then(|| Mutex::new(Some(Record::new(trace, id, above, kind, name))));
        Some(Self { trace: Arc::clone(trace), id, record })
    }

    pub(super) fn child(&self, kind: Kind, name: [&str; 2]) -> Option<Self> {
        Self::begin(&self.trace, &Above::Local(self.id), kind, name)
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
    fn new(trace: &Trace, id: SpanId, above: &Above, kind: Kind, [operation, subject]: [&str; 2]) -> Self {
        let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = nanoseconds(began);
        let mut bytes = Vec::with_capacity(512);
        wire::bytes(&mut bytes, TRACE_ID, &trace.id.0);
        wire::bytes(&mut bytes, SPAN_ID, &id.0);
        if let Some(state) = &trace.state {
            wire::bytes(&mut bytes, TRACE_STATE, state.as_bytes());
        }
        let subject = clip(subject);
        let space = if subject.is_empty() { "" } else { " " };
        wire::head(&mut bytes, NAME, operation.len() + space.len() + subject.len());
        for part in [operation, space, subject] {
            bytes.extend_from_slice(part.as_bytes());
        }
        wire::number(&mut bytes, KIND, kind as u64);
        wire::fixed64(&mut bytes, START, began);
        let (remote_parent, remoteness) = match above {
            Above::Nothing => (None, 0),
            Above::Remote(parent) => (Some(*parent), REMOTENESS_KNOWN | REMOTE),
            Above::Shared(parent) | Above::Local(parent) => {
                wire::bytes(&mut bytes, PARENT_ID, &parent.0);
                (None, if matches!(above, Above::Local(_)) { REMOTENESS_KNOWN } else { REMOTENESS_KNOWN | REMOTE })
            }
        };
        wire::fixed32(&mut bytes, FLAGS, SAMPLED | remoteness);
        let mut record = Self { bytes, started: Instant::now(), began, remote_parent, events: 0, events_dropped: 0, guarded: Vec::new() };
        record.set("gen_ai.operation.name", &Value::Text(operation));
        record
    }

    pub(super) fn set(&mut self, key: &str, value: &Value<'_>) {
        wire::attribute(&mut self.bytes, wire::SPAN_ATTRIBUTES, key, value);
    }

    /// A text from outside, bounded; what is empty is not told.
    pub(super) fn text(&mut self, key: &str, value: &str) {
        if !value.is_empty() {
            self.set(key, &Value::Text(clip(value)));
        }
    }

    fn long_text(&mut self, key: &str, value: &str) {
        self.set(key, &Value::Text(value));
    }

    pub(super) fn event(&mut self, name: &str, attributes: &[(&str, &str)]) {
        if self.events == MOST_EVENTS {
            self.events_dropped += 1;
            return;
        }
        self.events += 1;
        let mut event = Vec::with_capacity(128);
        wire::fixed64(&mut event, 1, self.began + nanoseconds(self.started.elapsed()));
        wire::bytes(&mut event, 2, name.as_bytes());
        for (key, value) in attributes.iter().filter(|(_, value)| !value.is_empty()) {
            wire::attribute(&mut event, wire::EVENT_ATTRIBUTES, key, &Value::Text(clip(value)));
        }
        wire::bytes(&mut self.bytes, EVENT, &event);
    }

    pub(super) fn guarded(&mut self, guard: &str, action: &str, kind: &str) {
        self.event("slipway.guard", &[("slipway.guard.name", guard), ("slipway.guard.action", action), ("slipway.guard.kind", kind)]);
        let done = format!("{}:{}", clip(guard), clip(action));
        if self.guarded.len() < MOST_GUARDED && !self.guarded.contains(&done) {
            self.guarded.push(done);
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn end(mut self, telemetry: &Inner, error: Option<&str>) {
        wire::fixed64(&mut self.bytes, END, self.began + nanoseconds(self.started.elapsed()));
        if let Some(error) = error {
            self.set("error.type", &Value::Text(if error.is_empty() { "_OTHER" } else { clip(error) }));
            let mut status = Vec::new();
            wire::number(&mut status, 3, STATUS_ERROR);
            wire::bytes(&mut self.bytes, STATUS, &status);
        }
        if !self.guarded.is_empty() {
            let guarded: Vec<_> = std::mem::take(&mut self.guarded);
            self.set("slipway.guard.actions", &Value::Texts(&guarded.iter().map(String::as_str).collect::<Vec<_>>()));
        }
        if self.events_dropped > 0 {
            wire::number(&mut self.bytes, EVENTS_DROPPED, self.events_dropped);
        }
        // Last, so that what goes to MLflow may end before it.
        let orphan = self.bytes.len();
        if let Some(parent) = self.remote_parent {
            wire::bytes(&mut self.bytes, PARENT_ID, &parent.0);
        }
        telemetry.deliver(&self.bytes, orphan);
    }
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST_NAME)]
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A text that was captured, bounded.
pub(super) fn captured(mut text: String) -> String {
    content::shorten(&mut text);
    text
}
