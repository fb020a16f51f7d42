//! What is kept: conversations, their messages, memories and usage, as plain values. A runtime without a
//! database keeps the same values in its own memory, so nothing here knows of PostgreSQL.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::id;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationSummary {
    pub id: String,
    pub title: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub message_count: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    User,
    Assistant,
    Tool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// `msg_` and a ULID.
    pub id: String,
    pub role: Role,
    pub content: String,
    /// The message as the model's adapter needs it again, tool calls included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// What there was of an answer that was never finished.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    pub created_at: Timestamp,
}

/// A message on its way into the store. Its id is made here, so that writing it a second time, after a lost
/// connection, adds nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct NewMessage {
    pub id: String,
    pub role: Role,
    pub content: String,
    pub parts: Option<Value>,
    pub trace_id: Option<String>,
    pub interrupted: bool,
}

impl NewMessage {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { id: id::new("msg"), role, content: content.into(), parts: None, trace_id: None, interrupted: false }
    }

    /// What there is of an answer that ended before it was whole.
    #[must_use]
    pub fn interrupted(mut self) -> Self {
        self.interrupted = true;
        self
    }

    #[must_use]
    pub fn with_parts(mut self, parts: Value) -> Self {
        self.parts = Some(parts);
        self
    }

    #[must_use]
    pub fn with_trace(mut self, trace_id: impl Into<String>) -> Self {
        self.trace_id = Some(trace_id.into());
        self
    }
}

/// Whether an answer is being made for a conversation, by whichever replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Generation {
    Idle,
    Generating { partial: String, since: Timestamp },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    Fact,
    Preference,
    Instruction,
    Observation,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MemoryEntry {
    /// `mem_` and a ULID.
    pub id: String,
    pub content: String,
    pub category: Category,
    pub source: String,
    /// 0 to 1, in the answer to a search. With an embedding: the cosine similarity. In full text: the share of the
    /// query's words that were found. The two scales are not comparable.
    #[serde(default)]
    pub relevance: Option<f64>,
    pub created_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub struct NewMemory {
    pub content: String,
    pub category: Category,
    pub source: String,
    pub embedding: Option<Embedding>,
}

/// A text's vector, and the model that made it: vectors of different models are never compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding {
    pub model: String,
    pub vector: Vec<f32>,
}

/// What became of a memory: added, or known already under other words or the same.
#[derive(Clone, Debug, PartialEq)]
pub struct Remembered {
    pub entry: MemoryEntry,
    pub existed: bool,
}

/// The most that one page of a list has, wherever it is kept.
pub const MOST_LISTED: u32 = 200;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    pub next_cursor: Option<String>,
}

/// Upper bounds, in milliseconds, of the buckets of [`UsageMinute::latency_histogram`]; what took longer is in one
/// more bucket, the last.
pub const LATENCY_BOUNDS_MS: [i64; 15] = [10, 25, 50, 100, 250, 500, 1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000];

/// How many buckets a latency histogram has.
pub const LATENCY_BUCKETS: usize = LATENCY_BOUNDS_MS.len() + 1;

/// What one agent used of one model within one minute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageMinute {
    pub minute: Timestamp,
    pub model: String,
    pub provider: String,
    pub requests: i64,
    pub errors: i64,
    pub input_tokens: i64,
    pub output_tokens: i64,
    /// Millionths of a US dollar.
    pub cost_micros: i64,
    /// Requests by how long they took: [`LATENCY_BUCKETS`] counts, not cumulative. Those that had no answer took no time.
    pub latency_histogram: Vec<i64>,
    /// Requests of which a guard blocked something.
    pub guard_blocks: i64,
    pub pii: i64,
    pub injections: i64,
    /// Rules that were broken: once for each turn, stage and whether it was blocked.
    pub violations: i64,
    /// What the requests of the histogram took together, in milliseconds.
    pub latency_ms: i64,
    /// Requests whose turn is stored with its trace, or whose spans an exporter accepted.
    pub audited: i64,
    /// Answers of agents with knowledge that searched it or could.
    pub retrieved: i64,
    /// Of these the answers with sources.
    pub cited: i64,
    /// Requests, and calls behind the scenes, of a model whose price is not known: `cost_micros` lacks them.
    pub unpriced: i64,
    /// Requests for whose end nobody waited: neither errors nor answers.
    pub cancelled: i64,
    /// Of the last request that failed.
    pub last_failed_trace: Option<String>,
    /// Of the last request with an attempt at prompt injection.
    pub last_injection_trace: Option<String>,
}

impl UsageMinute {
    /// Nothing used yet, in the minute that `at` lies in.
    pub fn empty(at: Timestamp, provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            minute: start_of_minute(at),
            model: model.into(),
            provider: provider.into(),
            requests: 0,
            errors: 0,
            input_tokens: 0,
            output_tokens: 0,
            cost_micros: 0,
            latency_histogram: vec![0; LATENCY_BUCKETS],
            guard_blocks: 0,
            pii: 0,
            injections: 0,
            violations: 0,
            latency_ms: 0,
            audited: 0,
            retrieved: 0,
            cited: 0,
            unpriced: 0,
            cancelled: 0,
            last_failed_trace: None,
            last_injection_trace: None,
        }
    }

    /// The bucket of a request that took this many milliseconds.
    pub fn bucket(milliseconds: i64) -> usize {
        LATENCY_BOUNDS_MS.partition_point(|bound| *bound < milliseconds)
    }

    /// Whether both count the same minute, provider and model.
    pub fn same_key(&self, other: &Self) -> bool {
        (start_of_minute(self.minute), &self.provider, &self.model) == (start_of_minute(other.minute), &other.provider, &other.model)
    }

    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.cost_micros += other.cost_micros;
        self.guard_blocks += other.guard_blocks;
        self.pii += other.pii;
        self.injections += other.injections;
        self.violations += other.violations;
        self.latency_ms += other.latency_ms;
        self.audited += other.audited;
        self.retrieved += other.retrieved;
        self.cited += other.cited;
        self.unpriced += other.unpriced;
        self.cancelled += other.cancelled;
        for (mine, theirs) in self.latency_histogram.iter_mut().zip(&other.latency_histogram) {
            *mine += theirs;
        }
        for (mine, theirs) in
            [(&mut self.last_failed_trace, &other.last_failed_trace), (&mut self.last_injection_trace, &other.last_injection_trace)]
        {
            if theirs.is_some() {
                mine.clone_from(theirs);
            }
        }
    }
}

pub(crate) fn start_of_minute(at: Timestamp) -> Timestamp {
    let second = at.as_second();
    Timestamp::from_second(second - second.rem_euclid(60)).unwrap_or(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (milliseconds, bucket) in [(0, 0), (10, 0), (11, 1), (1_000, 6), (120_000, 14), (120_001, 15)] {
            assert_eq!(UsageMinute::bucket(milliseconds), bucket, "{milliseconds} ms");
        }
    }

    #[test]
    fn a_minute_starts_at_its_zeroth_second_before_1970_too() {
        for (second, start) in [(59, 0), (60, 60), (121, 120), (-1, -60)] {
            assert_eq!(start_of_minute(Timestamp::from_second(second).unwrap()).as_second(), start);
        }
    }

    #[test]
    fn usage_of_the_same_key_adds_up() {
        let at = Timestamp::from_second(90).unwrap();
        let mut one = UsageMinute { requests: 1, cost_micros: 5, ..UsageMinute::empty(at, "stub", "stub-echo") };
        one.latency_histogram[UsageMinute::bucket(30)] += 1;
        let two = one.clone();
        assert!(one.same_key(&two));
        assert!(!one.same_key(&UsageMinute::empty(at, "stub", "other")));
        one.add(&two);
        assert_eq!((one.requests, one.cost_micros, one.latency_histogram[2]), (2, 10, 2));
    }

    #[test]
    fn a_message_looks_like_this_on_the_wire() {
        let message = StoredMessage {
            id: "msg_1".into(),
            role: Role::Assistant,
            content: "hello".into(),
            parts: None,
            trace_id: None,
            interrupted: false,
            created_at: Timestamp::UNIX_EPOCH,
        };
        let wire = serde_json::json!({"id": "msg_1", "role": "assistant", "content": "hello", "created_at": "1970-01-01T00:00:00Z"});
        assert_eq!(serde_json::to_value(&message).unwrap(), wire);
        assert_eq!(serde_json::from_value::<StoredMessage>(wire).unwrap(), message);
    }
}
