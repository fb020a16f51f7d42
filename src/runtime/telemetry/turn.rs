//! The root span of one turn, `invoke_agent`, and what happens within it. Names follow OpenTelemetry's
//! conventions for generative AI; what they have no name for begins with `slipway.`.

use std::sync::Arc;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::call::{ModelSpan, RetrievalSpan, StepSpan, ToolSpan, capture, end};
use super::content::SpanMessage;
use super::span::{Record, Span};

/// One turn of a conversation. Where telemetry is off it holds no more than what it passes on.
pub(crate) struct TurnSpan {
    pub(super) span: Option<Span>,
    /// Headers of the caller, which go on to tools untouched where telemetry is off.
    pub(super) passed: Option<Arc<Passed>>,
}

pub(super) struct Passed {
    pub(super) traceparent: String,
    pub(super) tracestate: Option<String>,
}

impl TurnSpan {
    #[cfg(test)]
    pub(crate) fn is_recording(&self) -> bool {
        self.span.as_ref().is_some_and(Span::is_recording)
    }

    /// What requests within this turn carry as `traceparent` where they have no span of their own.
    #[cfg(test)]
    pub(crate) fn traceparent(&self) -> Option<String> {
        traceparent(self.span.as_ref(), self.passed.as_deref())
    }

    #[cfg(test)]
    pub(crate) fn tracestate(&self) -> Option<&str> {
        tracestate(self.span.as_ref(), self.passed.as_deref())
    }

    /// `provider` as in `RUNTIME_MODEL_TYPE`.
    pub(crate) fn model_call(&self, provider: &str, model: &str) -> ModelSpan {
        self.model("chat", provider, model)
    }

    fn model(&self, operation: &str, provider: &str, model: &str) -> ModelSpan {
        let span = self.child(SpanKind::Client, [operation, model]);
        if let Some(span) = &span {
            span.with(|record| {
                record.text("gen_ai.provider.name", convention(provider));
                record.text("gen_ai.request.model", model);
                record.text("gen_ai.conversation.id", &span.trace.conversation);
            });
        }
        ModelSpan(span)
    }

    /// `kind` is how the tool is made: `http`, `cli`, `mcp` or `builtin`.
    pub(crate) fn tool_call(&self, name: &str, call_id: &str, kind: &str) -> ToolSpan {
        let span = self.child(SpanKind::Internal, ["execute_tool", name]);
        if let Some(span) = &span {
            span.with(|record| {
                record.text("gen_ai.tool.name", name);
                record.text("gen_ai.tool.call.id", call_id);
                record.text("gen_ai.tool.type", "function");
                record.text("slipway.tool.kind", kind);
            });
        }
        ToolSpan { span, passed: self.passed.clone() }
    }

    pub(crate) fn memory_search(&self) -> StepSpan {
        StepSpan(self.child(SpanKind::Client, ["search_memory", ""]))
    }

    /// A search of a knowledge base, by its id.
    pub(crate) fn retrieval(&self, base: &str, top: u32) -> RetrievalSpan {
        RetrievalSpan::begin(self.span.as_ref(), base, top)
    }

    /// The turn is taken for a case of an evaluation.
    pub(crate) fn evaluation(&self, run: &str) {
        if let Some(span) = &self.span {
            span.with(|record| record.text("slipway.evaluation.run", run));
        }
    }

    /// A guard found something: its name, what it did and what it found, never the text itself.
    pub(crate) fn guard(&self, name: &str, action: &str, kind: &str) {
        if let Some(span) = &self.span {
            span.with(|record| record.guarded(name, action, kind));
        }
    }

    /// What the caller said, asked for only where content is captured.
    pub(crate) fn input(&self, messages: impl FnOnce() -> Vec<SpanMessage>) {
        capture(self.span.as_ref(), "gen_ai.input.messages", messages);
    }

    /// What the caller was answered.
    pub(crate) fn output(&self, messages: impl FnOnce() -> Vec<SpanMessage>) {
        capture(self.span.as_ref(), "gen_ai.output.messages", messages);
    }

    /// `ok`, `error`, `blocked` or `cancelled`.
    pub(crate) fn outcome(&self, outcome: &str) {
        if let Some(span) = &self.span {
            span.with(|record| record.text("slipway.turn.outcome", outcome));
        }
    }

    /// Nothing but its spans tells of this turn: it counts as audited once they were accepted.
    pub(crate) fn audit(&self) {
        if let Some(span) = &self.span {
            span.with(Record::audit);
        }
    }

    /// `Err` has a word for the kind of failure, such as `model_timeout`.
    pub(crate) fn finish(self, outcome: Result<(), &str>) {
        end(self.span.as_ref(), outcome.err());
    }

    fn child(&self, kind: SpanKind, name: [&str; 2]) -> Option<Span> {
        self.span.as_ref()?.child(kind, name)
    }
}

pub(super) fn traceparent(span: Option<&Span>, passed: Option<&Passed>) -> Option<String> {
    span.map(Span::traceparent).or_else(|| Some(passed?.traceparent.clone()))
}

pub(super) fn tracestate<'a>(span: Option<&'a Span>, passed: Option<&'a Passed>) -> Option<&'a str> {
    match span {
        Some(span) => span.trace.state.as_deref(),
        None => passed?.tracestate.as_deref(),
    }
}

/// The conventions' names for those providers that have other ones here.
fn convention(provider: &str) -> &str {
    match provider {
        "google-ai" => "gcp.gemini",
        "vertex-ai" => "gcp.vertex_ai",
        "bedrock" => "aws.bedrock",
        other => other,
    }
}
