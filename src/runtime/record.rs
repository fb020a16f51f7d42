//! What a turn leaves behind for those who watch over agents: spans, metrics and usage, written from
//! one place so that the three never disagree.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use slipway_database::UsageMinute;
use slipway_guards::{Action, Name};
use slipway_models::{Content, Provider, Request, Role, Stop as ModelStop, ToolCall, ToolResult, Usage, cost};
use slipway_tools::Trace;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use crate::settings::ModelId;
use crate::store::Store;
use crate::telemetry::metrics::{Active, Meters, ModelMeter};
use crate::telemetry::usage::{Sample, Usage as Minutes};
use crate::telemetry::{Answered, Inbound, Message, ModelSpan, Part, StepSpan, Telemetry, ToolSpan, TurnSpan};
use crate::turn::{Guarded, Stop};

/// How often the usage of the minutes that are over is written down.
const WRITTEN_EVERY: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub(crate) struct Recorder(Arc<Inner>);

struct Inner {
    telemetry: Telemetry,
    meters: Meters,
    /// The chat model's counters, looked up once.
    chat: ModelMeter,
    model: ModelId,
    minutes: Minutes,
}

pub(crate) struct TurnRecord {
    recorder: Recorder,
    span: TurnSpan,
    sample: Sample,
    _active: Active,
}

pub(crate) struct ModelRecord {
    span: ModelSpan,
    recorder: Recorder,
    began: Instant,
    first: bool,
}

pub(crate) struct ToolRecord {
    span: ToolSpan,
    recorder: Recorder,
    name: String,
    began: Instant,
}

impl Recorder {
    pub(crate) fn new(telemetry: Telemetry, meters: Meters, model: ModelId) -> Self {
        let chat = meters.model(model.provider.as_str(), &model.id);
        Self(Arc::new(Inner { telemetry, meters, chat, model, minutes: Minutes::default() }))
    }

    pub(crate) fn turn(&self, inbound: Inbound<'_>, conversation: Option<&str>, trace_id: &str) -> TurnRecord {
        TurnRecord {
            recorder: self.clone(),
            span: self.0.telemetry.turn(inbound, conversation.unwrap_or_default(), trace_id),
            sample: Sample::default(),
            _active: self.0.meters.conversation(),
        }
    }

    /// A turn that a guard refused before it began.
    pub(crate) fn refused(&self, guarded: &[Guarded]) {
        let mut sample = Sample::default();
        for guarded in guarded {
            self.guarded(guarded, &mut sample);
        }
        self.0.meters.turn("blocked", 0.0);
        self.count(&sample);
    }

    /// Tokens that were used behind the scenes.
    pub(crate) fn used(&self, provider: Provider, model: &str, usage: &Usage) {
        let usd = cost(provider, model, usage).unwrap_or_default();
        let meter = self.0.meters.model(provider.as_str(), model);
        meter.tokens(usage.input_tokens, usage.output_tokens, usage.cached_input_tokens);
        meter.cost(usd);
        let (input_tokens, output_tokens) = (usage.input_tokens, usage.output_tokens);
        let sample = Sample { behind_the_scenes: true, input_tokens, output_tokens, cost_micros: micros(usd), ..Sample::default() };
        self.0.minutes.record(Timestamp::now(), provider.as_str(), model, &sample);
    }

    pub(crate) fn extraction(&self, outcome: &'static str) {
        self.0.meters.memory_extraction(outcome);
    }

    /// Writes usage into the database as minutes end, for as long as the process lives.
    pub(crate) async fn write_usage(self, store: Arc<Store>) {
        let mut ticks = interval(WRITTEN_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let minutes = self.0.minutes.take_finished(Timestamp::now());
            self.write(&store, minutes).await;
        }
    }

    /// The last spans and the last usage, as far as they can be delivered in time.
    pub(crate) async fn finish(&self, store: &Store, patience: Duration) {
        let deadline = Instant::now() + patience;
        let rest = self.0.minutes.take_all();
        let written = tokio::time::timeout_at(deadline, self.write(store, rest));
        let (_, lost) = tokio::join!(written, self.0.telemetry.flush(deadline));
        if lost > 0 {
            warn!(lost, "spans could not be delivered before the end");
        }
    }

    async fn write(&self, store: &Store, minutes: Vec<UsageMinute>) {
        if minutes.is_empty() {
            return;
        }
        if let Err(fault) = store.record_usage(&minutes).await {
            let lost = self.0.minutes.give_back(Timestamp::now(), minutes);
            warn!(%fault, lost, "usage could not be written; it is kept for a day");
        }
    }

    fn guarded(&self, guarded: &Guarded, sample: &mut Sample) {
        let action = action(guarded.action);
        self.0.meters.guard(guarded.guard.as_str(), action, &guarded.kind);
        match guarded.guard {
            Name::PiiDetection => sample.pii += 1,
            Name::PromptInjection => sample.injections += 1,
            _ => {}
        }
        if guarded.action == Action::Block {
            sample.guard_blocks += 1;
        }
        if guarded.policy {
            sample.violations += 1;
            self.0.meters.violation(if guarded.action == Action::Block { "critical" } else { "warning" });
        }
    }

    fn count(&self, sample: &Sample) {
        self.0.minutes.record(Timestamp::now(), self.0.model.provider.as_str(), &self.0.model.id, sample);
    }
}

impl TurnRecord {
    pub(crate) fn model_call(&self, request: &Request) -> ModelRecord {
        let model = &self.recorder.0.model;
        let span = self.span.model_call(model.provider.as_str(), &model.id);
        span.input(|| spoken(request));
        ModelRecord { span, recorder: self.recorder.clone(), began: Instant::now(), first: true }
    }

    pub(crate) fn tool_call(&self, call: &ToolCall, kind: &str) -> ToolRecord {
        let span = self.span.tool_call(&call.name, &call.id, kind);
        span.arguments(|| call.arguments.to_string());
        let name = &call.name;
        ToolRecord { span, recorder: self.recorder.clone(), name: name.to_owned(), began: Instant::now() }
    }

    /// A search for what is remembered.
    pub(crate) fn memory_search(&self) -> StepSpan {
        self.span.memory_search()
    }

    /// What was asked, for those who have content recorded.
    pub(crate) fn asked(&self, request: &Request) {
        self.span.input(|| spoken(request));
    }

    pub(crate) fn guard(&mut self, guarded: &Guarded) {
        self.span.guard(guarded.guard.as_str(), action(guarded.action), &guarded.kind);
        self.recorder.guarded(guarded, &mut self.sample);
    }

    pub(crate) fn finish(mut self, stop: Stop, failure: Option<&'static str>, content: &str, used: &Usage, took: Duration) {
        self.span.output(|| vec![Message::text("assistant", content)]);
        let outcome = match stop {
            Stop::Failed => "error",
            Stop::Guard => "blocked",
            Stop::Cancelled => "cancelled",
            _ => "ok",
        };
        let inner = &self.recorder.0;
        inner.meters.turn(outcome, took.as_secs_f64());
        let price = cost(inner.model.provider, &inner.model.id, used).unwrap_or_default();
        self.sample.error = failure.is_some();
        self.sample.latency = took;
        self.sample.input_tokens = used.input_tokens;
        self.sample.output_tokens = used.output_tokens;
        self.sample.cost_micros = micros(price);
        self.recorder.count(&self.sample);
        self.span.finish(failure.map_or(Ok(()), Err));
    }
}

impl ModelRecord {
    pub(crate) fn first_token(&mut self) {
        if std::mem::take(&mut self.first) {
            self.recorder.0.chat.first_token(self.began.elapsed().as_secs_f64());
            self.span.first_token();
        }
    }

    /// What the model said, for those who have content recorded.
    pub(crate) fn said(&self, message: &slipway_models::Message) {
        self.span.output(|| vec![told(message)]);
    }

    pub(crate) fn finish(self, used: &Usage, stop: Option<&ModelStop>, error: Option<&str>) {
        let Inner { chat, model, .. } = &*self.recorder.0;
        let cost_usd = cost(model.provider, &model.id, used);
        chat.call(error.is_some(), self.began.elapsed().as_secs_f64());
        chat.tokens(used.input_tokens, used.output_tokens, used.cached_input_tokens);
        chat.cost(cost_usd.unwrap_or_default());
        let stop = stop.map(|stop| match stop {
            ModelStop::EndTurn => "stop",
            ModelStop::ToolUse => "tool_call",
            ModelStop::MaxTokens => "length",
            ModelStop::Filtered => "content_filter",
            ModelStop::Other(other) => other,
        });
        let Usage { input_tokens, output_tokens, cached_input_tokens } = *used;
        self.span.finish(&Answered { input_tokens, output_tokens, cached_input_tokens, cost_usd, stop, error });
    }
}

impl ToolRecord {
    pub(crate) fn trace(&self) -> Trace {
        Trace { parent: self.span.traceparent(), state: self.span.tracestate().map(str::to_owned) }
    }

    pub(crate) fn finish(self, is_error: bool, content: &str) {
        let outcome = if is_error { "error" } else { "ok" };
        self.recorder.0.meters.tool_call(&self.name, outcome, self.began.elapsed().as_secs_f64());
        self.span.result(|| content.to_owned());
        self.span.finish(is_error.then_some("tool_error"));
    }
}

fn spoken(request: &Request) -> Vec<Message> {
    let system = request.system.iter().map(|text| Message::text("system", text));
    system.chain(request.messages.iter().map(told)).collect()
}

/// A message in the words of the GenAI conventions.
fn told(message: &slipway_models::Message) -> Message {
    let role = match message.role {
        Role::User => "user",
        Role::Assistant => "assistant",
    };
    let part = |content: &Content| match content.clone() {
        Content::Text { text } => Part::Text { content: text },
        Content::ToolCall(ToolCall { id, name, arguments, .. }) => Part::ToolCall { id, name, arguments },
        Content::ToolResult(ToolResult { id, content, .. }) => Part::ToolResult { id, response: content },
    };
    Message { role, parts: message.content.iter().map(part).collect() }
}

fn action(action: Action) -> &'static str {
    match action {
        Action::Warn => "warn",
        Action::Mask => "mask",
        Action::Block => "block",
    }
}

/// Millionths of a dollar; a turn costs less than what would not fit.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float turned into an integer saturates")]
fn micros(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}
