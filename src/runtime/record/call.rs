//! One call of a model or a tool: its span, its metrics, and what it adds to its turn.

use std::time::SystemTime;

use jiff::Timestamp;
use slipway_models::{ModelFault, Piece, Stop as ModelStop, Usage};
use slipway_tools::TraceContext;

use super::spoken::told;
use super::{BackgroundRecord, Inner, ModelRecord, ToolRecord, is_unpriced, lock, micros};
use crate::telemetry::usage::Sample;
use crate::telemetry::{Answered, ModelSpan, ToolSpan};

/// The outcome of a call that was cancelled.
const CANCELLED: &str = "cancelled";

impl ModelRecord {
    pub(crate) fn hear(&mut self, piece: &Result<Piece, ModelFault>) {
        self.tally.hear(piece);
        if matches!(piece, Ok(Piece::Text(_))) && std::mem::take(&mut self.first) {
            self.recorder.0.chat.first_token(self.began.elapsed().as_secs_f64());
            self.with_span(ModelSpan::first_token);
        }
    }

    /// The output, where content is captured.
    pub(crate) fn said(&self, message: &slipway_models::Message) {
        self.with_span(|span| span.output(|| told(&self.guards, message).into_iter().collect()));
    }

    pub(crate) fn finish(mut self, stop: Option<&ModelStop>, error: Option<&str>) {
        self.end(if error.is_some() { "error" } else { "ok" }, stop, error);
    }

    fn end(&mut self, outcome: &str, stop: Option<&ModelStop>, error: Option<&str>) {
        let Some(span) = self.span.take() else { return };
        let Inner { chat, model, .. } = &*self.recorder.0;
        let used = self.tally.used();
        let cost_usd = self.recorder.cost(model.provider, &model.id, &used);
        chat.call(outcome, self.began.elapsed().as_secs_f64());
        chat.tokens(used.input_tokens, used.output_tokens, used.cached_input_tokens);
        chat.cost(cost_usd.unwrap_or_default());
        add(&mut lock(&self.used), used);
        let stop = stop.map(|stop| match stop {
            ModelStop::EndTurn => "stop",
            ModelStop::ToolUse => "tool_call",
            ModelStop::MaxTokens => "length",
            ModelStop::Filtered => "content_filter",
            ModelStop::Other(other) => other,
        });
        let Usage { input_tokens, output_tokens, cached_input_tokens } = used;
        let estimated = self.tally.is_estimate();
        span.finish(&Answered { input_tokens, output_tokens, cached_input_tokens, estimated, cost_usd, stop, error });
    }

    fn with_span(&self, act: impl FnOnce(&ModelSpan)) {
        if let Some(span) = &self.span {
            act(span);
        }
    }
}

impl Drop for ModelRecord {
    fn drop(&mut self) {
        self.end(CANCELLED, None, Some(CANCELLED));
    }
}

impl ToolRecord {
    pub(crate) fn trace(&self) -> TraceContext {
        let span = self.span.as_ref();
        TraceContext { parent: span.and_then(ToolSpan::traceparent), state: span.and_then(ToolSpan::tracestate).map(str::to_owned) }
    }

    pub(crate) fn finish(mut self, is_error: bool, content: &str) {
        if let Some(span) = &self.span {
            span.result(|| content.to_owned());
        }
        self.end(if is_error { "error" } else { "ok" }, is_error.then_some("tool_error"));
    }

    fn end(&mut self, outcome: &'static str, error: Option<&str>) {
        let Some(span) = self.span.take() else { return };
        self.recorder.0.meters.tool_call(&self.name, outcome, self.began.elapsed().as_secs_f64());
        span.finish(error);
    }
}

impl Drop for ToolRecord {
    fn drop(&mut self) {
        self.end(CANCELLED, Some(CANCELLED));
    }
}

impl BackgroundRecord<'_> {
    /// What the call has taken so far.
    pub(crate) fn used(&self) -> Usage {
        self.tally.used()
    }

    pub(crate) fn hear(&mut self, piece: &Result<Piece, ModelFault>) {
        self.tally.hear(piece);
    }
}

impl Drop for BackgroundRecord<'_> {
    fn drop(&mut self) {
        let (used, inner) = (self.tally.used(), &self.recorder.0);
        let (provider, model) = (self.model.provider(), self.model.id());
        let price = self.recorder.cost(provider, model, &used);
        let (is_unpriced, price) = (is_unpriced(price, &used), price.unwrap_or_default());
        let meter = inner.meters.model(provider.as_str(), model);
        meter.tokens(used.input_tokens, used.output_tokens, used.cached_input_tokens);
        meter.cost(price);
        inner.policies.own().spent_aside(SystemTime::now(), price);
        let (input_tokens, output_tokens) = (used.input_tokens, used.output_tokens);
        let cost_micros = micros(price);
        let sample = Sample { behind_the_scenes: true, input_tokens, output_tokens, cost_micros, is_unpriced, ..Sample::default() };
        inner.minutes.record(Timestamp::now(), provider.as_str(), model, &sample);
    }
}

fn add(sum: &mut Usage, used: Usage) {
    sum.input_tokens += used.input_tokens;
    sum.output_tokens += used.output_tokens;
    sum.cached_input_tokens += used.cached_input_tokens;
}
