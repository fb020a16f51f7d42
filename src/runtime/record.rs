//! What a turn leaves behind for those who watch over agents: spans, metrics, usage and what counts
//! against limits, written from one place so that they never disagree. What is dropped on the way
//! was cut off, and is counted all the same.

mod tally;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::Value;
use slipway_database::UsageMinute;
use slipway_guards::{Action, Block, Guards, Name, Side};
use slipway_models::{Content, Fault, Model, Piece, Request, Role, Stop as ModelStop, ToolCall, ToolResult, Usage, cost, tokens};
use slipway_tools::Trace;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use crate::settings::ModelId;
use crate::store::Store;
use crate::telemetry::metrics::{Active, Meters, ModelMeter};
use crate::telemetry::usage::{Sample, Usage as Minutes};
use crate::telemetry::{Answered, Inbound, Message, ModelSpan, Part, StepSpan, Telemetry, ToolSpan, TurnSpan};
use crate::turn::{Guarded, Stop};
use tally::Tally;

/// How often the usage of the minutes that are over is written down.
const WRITTEN_EVERY: Duration = Duration::from_secs(15);
/// How a call ended that nobody waited for.
const CANCELLED: &str = "cancelled";

#[derive(Clone)]
pub(crate) struct Recorder(Arc<Inner>);

struct Inner {
    telemetry: Telemetry,
    meters: Meters,
    /// The chat model's counters, looked up once.
    chat: ModelMeter,
    model: ModelId,
    guards: Guards,
    minutes: Minutes,
}

pub(crate) struct TurnRecord {
    recorder: Recorder,
    span: TurnSpan,
    sample: Sample,
    /// What the calls of its models have taken, those that were cut off included.
    used: Arc<Mutex<Usage>>,
    _active: Active,
}

pub(crate) struct ModelRecord {
    /// Taken at the end.
    span: Option<ModelSpan>,
    recorder: Recorder,
    tally: Tally,
    /// The turn's.
    used: Arc<Mutex<Usage>>,
    began: Instant,
    first: bool,
}

pub(crate) struct ToolRecord {
    /// Taken at the end.
    span: Option<ToolSpan>,
    recorder: Recorder,
    name: String,
    began: Instant,
}

/// A call of a model that nobody waits for, or that belongs to no turn.
pub(crate) struct BackgroundRecord<'a> {
    recorder: &'a Recorder,
    model: &'a dyn Model,
    tally: Tally,
}

impl Recorder {
    pub(crate) fn new(telemetry: Telemetry, meters: Meters, model: ModelId, guards: Guards) -> Self {
        let chat = meters.model(model.provider.as_str(), &model.id);
        Self(Arc::new(Inner { telemetry, meters, chat, model, guards, minutes: Minutes::default() }))
    }

    pub(crate) fn turn(&self, inbound: Inbound<'_>, conversation: Option<&str>, trace_id: &str) -> TurnRecord {
        TurnRecord {
            recorder: self.clone(),
            span: self.0.telemetry.turn(inbound, conversation.unwrap_or_default(), trace_id),
            sample: Sample::default(),
            used: Arc::default(),
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

    /// A call of a model behind the scenes.
    pub(crate) fn background<'a>(&'a self, model: &'a dyn Model, request: &Request) -> BackgroundRecord<'a> {
        BackgroundRecord { recorder: self, model, tally: Tally::new(tokens::estimate(tokens::bytes(request))) }
    }

    /// A text that is to be kept, with what must not be kept masked; or why it cannot be.
    pub(crate) fn admit(&self, text: &str) -> Result<String, Block> {
        let verdict = self.0.guards.check(Side::Input, text);
        let mut sample = Sample { behind_the_scenes: true, ..Sample::default() };
        for finding in &verdict.findings {
            self.guarded(&Guarded::finding(finding, Side::Input), &mut sample);
        }
        if !verdict.findings.is_empty() {
            self.count(&sample);
        }
        verdict.blocked.map_or_else(|| Ok(verdict.text.into_owned()), Err)
    }

    /// What a model said, as others may read it; nothing where a guard would block it.
    pub(crate) fn presentable(&self, text: &str) -> Option<String> {
        let verdict = self.0.guards.check(Side::Output, text);
        verdict.blocked.is_none().then(|| verdict.text.into_owned())
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
    /// `prompt` is how many tokens the request is thought to have.
    pub(crate) fn model_call(&self, request: &Request, prompt: u64) -> ModelRecord {
        let model = &self.recorder.0.model;
        let span = self.span.model_call(model.provider.as_str(), &model.id);
        span.input(|| self.recorder.spoken(request));
        let (recorder, used) = (self.recorder.clone(), Arc::clone(&self.used));
        ModelRecord { span: Some(span), recorder, tally: Tally::new(prompt), used, began: Instant::now(), first: true }
    }

    /// `shown` are the arguments as the guards leave them.
    pub(crate) fn tool_call(&self, call: &ToolCall, shown: &Value, kind: &str) -> ToolRecord {
        let span = self.span.tool_call(&call.name, &call.id, kind);
        span.arguments(|| shown.to_string());
        let name = &call.name;
        ToolRecord { span: Some(span), recorder: self.recorder.clone(), name: name.to_owned(), began: Instant::now() }
    }

    /// What the turn has taken so far.
    pub(crate) fn used(&self) -> Usage {
        *lock(&self.used)
    }

    /// A search for what is remembered.
    pub(crate) fn memory_search(&self) -> StepSpan {
        self.span.memory_search()
    }

    /// What was asked, for those who have content recorded.
    pub(crate) fn asked(&self, request: &Request) {
        self.span.input(|| self.recorder.spoken(request));
    }

    pub(crate) fn guard(&mut self, guarded: &Guarded) {
        self.span.guard(guarded.guard.as_str(), action(guarded.action), &guarded.kind);
        self.recorder.guarded(guarded, &mut self.sample);
    }

    pub(crate) fn finish(mut self, stop: Stop, failure: Option<&'static str>, content: &str, took: Duration) {
        // In place of what was blocked stand the guard's own words.
        if stop != Stop::Guard {
            self.span.output(|| vec![Message::text("assistant", content)]);
        }
        let outcome = match stop {
            Stop::Failed => "error",
            Stop::Guard => "blocked",
            Stop::Cancelled => "cancelled",
            _ => "ok",
        };
        let inner = &self.recorder.0;
        inner.meters.turn(outcome, took.as_secs_f64());
        let used = self.used();
        let price = cost(inner.model.provider, &inner.model.id, &used).unwrap_or_default();
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
    pub(crate) fn hear(&mut self, piece: &Result<Piece, Fault>) {
        self.tally.hear(piece);
        if matches!(piece, Ok(Piece::Text(_))) && std::mem::take(&mut self.first) {
            self.recorder.0.chat.first_token(self.began.elapsed().as_secs_f64());
            self.with_span(ModelSpan::first_token);
        }
    }

    /// What the model said, for those who have content recorded.
    pub(crate) fn said(&self, message: &slipway_models::Message) {
        self.with_span(|span| span.output(|| self.recorder.told(message).into_iter().collect()));
    }

    pub(crate) fn finish(mut self, stop: Option<&ModelStop>, error: Option<&str>) {
        self.end(if error.is_some() { "error" } else { "ok" }, stop, error);
    }

    fn end(&mut self, outcome: &str, stop: Option<&ModelStop>, error: Option<&str>) {
        let Some(span) = self.span.take() else { return };
        let Inner { chat, model, .. } = &*self.recorder.0;
        let used = self.tally.used();
        let cost_usd = cost(model.provider, &model.id, &used);
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
    pub(crate) fn trace(&self) -> Trace {
        let span = self.span.as_ref();
        Trace { parent: span.and_then(ToolSpan::traceparent), state: span.and_then(ToolSpan::tracestate).map(str::to_owned) }
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
    pub(crate) fn hear(&mut self, piece: &Result<Piece, Fault>) {
        self.tally.hear(piece);
    }
}

impl Drop for BackgroundRecord<'_> {
    fn drop(&mut self) {
        let (used, inner) = (self.tally.used(), &self.recorder.0);
        let (provider, model) = (self.model.provider(), self.model.id());
        let price = cost(provider, model, &used).unwrap_or_default();
        let meter = inner.meters.model(provider.as_str(), model);
        meter.tokens(used.input_tokens, used.output_tokens, used.cached_input_tokens);
        meter.cost(price);
        inner.guards.spent_today(SystemTime::now(), price);
        let (input_tokens, output_tokens) = (used.input_tokens, used.output_tokens);
        let sample = Sample { behind_the_scenes: true, input_tokens, output_tokens, cost_micros: micros(price), ..Sample::default() };
        inner.minutes.record(Timestamp::now(), provider.as_str(), model, &sample);
    }
}

impl Recorder {
    fn spoken(&self, request: &Request) -> Vec<Message> {
        let system = request.system.iter().map(|text| Message::text("system", text));
        system.chain(request.messages.iter().filter_map(|message| self.told(message))).collect()
    }

    /// A message in the words of the GenAI conventions. What goes to the model has passed the guards; what it
    /// said may not have, or is kept as it was for its own later rounds.
    fn told(&self, message: &slipway_models::Message) -> Option<Message> {
        let (role, own) = match message.role {
            Role::User => ("user", false),
            Role::Assistant => ("assistant", true),
        };
        let part = |content: &Content| match content.clone() {
            Content::Text { text } if own => Some(Part::Text { content: self.presentable(&text)? }),
            Content::Text { text } => Some(Part::Text { content: text }),
            Content::ToolCall(ToolCall { id, name, arguments, .. }) => {
                Some(Part::ToolCall { id, name, arguments: json(self.presentable(&arguments.to_string())?) })
            }
            Content::ToolResult(ToolResult { id, content, .. }) => Some(Part::ToolResult { id, response: content }),
        };
        let parts: Vec<_> = message.content.iter().filter_map(part).collect();
        (!parts.is_empty()).then_some(Message { role, parts })
    }
}

/// A masked text that was JSON, as JSON again where it still is.
pub(crate) fn json(text: String) -> Value {
    serde_json::from_str(&text).unwrap_or(Value::String(text))
}

fn lock(used: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(sum: &mut Usage, used: Usage) {
    sum.input_tokens += used.input_tokens;
    sum.output_tokens += used.output_tokens;
    sum.cached_input_tokens += used.cached_input_tokens;
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
