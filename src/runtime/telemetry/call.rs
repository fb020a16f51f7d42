//! The spans within a turn: a call of a model, of a tool, and a step such as a search.

use std::sync::Arc;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::content::{self, SpanMessage};
use super::otlp::Value;
use super::span::{Record, Span, captured};
use super::turn::{self, Passed};

/// A call of a chat or embedding model.
pub(crate) struct ModelSpan(pub(super) Option<Span>);

/// A call of a tool.
pub(crate) struct ToolSpan {
    pub(super) span: Option<Span>,
    pub(super) passed: Option<Arc<Passed>>,
}

/// A search in documents or memories, or a change of memories.
pub(crate) struct StepSpan(pub(super) Option<Span>);

/// A search of a knowledge base.
pub(crate) struct RetrievalSpan(Option<Span>);

/// How a model's answer ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Answered<'a> {
    /// With those that were cached.
    pub(crate) input_tokens: u64,
    pub(crate) output_tokens: u64,
    pub(crate) cached_input_tokens: u64,
    /// The provider has not counted them.
    pub(crate) estimated: bool,
    pub(crate) cost_usd: Option<f64>,
    /// Why the model stopped.
    pub(crate) stop: Option<&'a str>,
    /// A word for the kind of failure, such as `timeout`; never the provider's own text.
    pub(crate) error: Option<&'a str>,
}

impl ModelSpan {
    /// The messages the model is given, asked for only where content is captured.
    pub(crate) fn input(&self, messages: impl FnOnce() -> Vec<SpanMessage>) {
        capture(self.0.as_ref(), "gen_ai.input.messages", messages);
    }

    /// The message it gave back.
    pub(crate) fn output(&self, messages: impl FnOnce() -> Vec<SpanMessage>) {
        capture(self.0.as_ref(), "gen_ai.output.messages", messages);
    }

    /// The first piece of the answer has come.
    pub(crate) fn first_token(&self) {
        self.with(|record| {
            let seconds = record.elapsed().as_secs_f64();
            record.set("gen_ai.response.time_to_first_chunk", &Value::Number(seconds));
        });
    }

    pub(crate) fn finish(self, answered: &Answered<'_>) {
        self.with(|record| {
            // A call that failed before any token was counted has no usage, which is not a usage of 0.
            if answered.error.is_none() || answered.input_tokens + answered.output_tokens > 0 {
                record.set("gen_ai.usage.input_tokens", &Value::Count(answered.input_tokens));
                record.set("gen_ai.usage.output_tokens", &Value::Count(answered.output_tokens));
                if answered.estimated {
                    record.set("slipway.usage.estimated", &Value::Flag(true));
                }
            }
            if answered.cached_input_tokens > 0 {
                record.set("gen_ai.usage.cache_read.input_tokens", &Value::Count(answered.cached_input_tokens));
            }
            if let Some(cost) = answered.cost_usd.filter(|cost| cost.is_finite()) {
                record.set("slipway.cost.usd", &Value::Number(cost));
            }
            if let Some(stop) = answered.stop {
                record.set("gen_ai.response.finish_reasons", &Value::Texts(&[stop]));
            }
        });
        end(self.0.as_ref(), answered.error);
    }

    fn with(&self, change: impl FnOnce(&mut Record)) {
        if let Some(span) = &self.0 {
            span.with(change);
        }
    }
}

impl ToolSpan {
    /// What an HTTP request of the tool carries as `traceparent`.
    pub(crate) fn traceparent(&self) -> Option<String> {
        turn::traceparent(self.span.as_ref(), self.passed.as_deref())
    }

    pub(crate) fn tracestate(&self) -> Option<&str> {
        turn::tracestate(self.span.as_ref(), self.passed.as_deref())
    }

    /// The search that the tool makes.
    pub(crate) fn retrieval(&self, base: &str, top: u32) -> RetrievalSpan {
        RetrievalSpan::begin(self.span.as_ref(), base, top)
    }

    /// The arguments as JSON, asked for only where content is captured.
    pub(crate) fn arguments(&self, json: impl FnOnce() -> String) {
        if let Some(span) = &self.span {
            span.capture("gen_ai.tool.call.arguments", || captured(json()));
        }
    }

    pub(crate) fn result(&self, text: impl FnOnce() -> String) {
        if let Some(span) = &self.span {
            span.capture("gen_ai.tool.call.result", || captured(text()));
        }
    }

    /// `error` is a word for the kind of failure; none where the tool did what it should.
    pub(crate) fn finish(self, error: Option<&str>) {
        end(self.span.as_ref(), error);
    }
}

impl RetrievalSpan {
    pub(super) fn begin(parent: Option<&Span>, base: &str, top: u32) -> Self {
        let span = parent.and_then(|parent| parent.child(SpanKind::Client, ["retrieval", base]));
        if let Some(span) = &span {
            span.with(|record| {
                record.text("gen_ai.data_source.id", base);
                record.set("gen_ai.retrieval.top_k", &Value::Count(top.into()));
            });
        }
        Self(span)
    }

    /// What is searched for, asked for only where content is captured.
    pub(crate) fn query(&self, text: impl FnOnce() -> String) {
        if let Some(span) = &self.0 {
            span.capture("gen_ai.retrieval.query.text", || captured(text()));
        }
    }

    /// Ids and scores of what was found, in the conventions' JSON.
    pub(crate) fn finish(self, documents: Option<&str>, error: Option<&str>) {
        if let Some((span, documents)) = self.0.as_ref().zip(documents) {
            span.with(|record| record.set("gen_ai.retrieval.documents", &Value::Text(documents)));
        }
        end(self.0.as_ref(), error);
    }
}

impl StepSpan {
    /// How many things were found or changed.
    pub(crate) fn finish(self, found: Option<u64>, error: Option<&str>) {
        if let Some((span, found)) = self.0.as_ref().zip(found) {
            span.with(|record| record.set("slipway.result.count", &Value::Count(found)));
        }
        end(self.0.as_ref(), error);
    }
}

pub(super) fn capture(span: Option<&Span>, key: &str, messages: impl FnOnce() -> Vec<SpanMessage>) {
    if let Some(span) = span {
        span.capture(key, || content::json(messages()));
    }
}

pub(super) fn end(span: Option<&Span>, error: Option<&str>) {
    if let Some(span) = span {
        span.end(error);
    }
}
