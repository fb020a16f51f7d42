//! What a turn leaves behind for those who watch over agents: spans, metrics, usage and what counts
//! against limits, written from one place so that they never disagree. What is dropped on the way
//! was cut off, and is counted all the same.

mod call;
mod retrieval;
mod spending;
mod spoken;
mod tally;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use serde_json::Value;
use slipway_database::UsageMinute;
use slipway_guards::{Action, Block, GuardName, Guards, Side};
use slipway_models::{Model, Provider, Request, ToolCall, Usage, tokens};
use tokio::sync::OnceCell;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use crate::settings::ModelId;
use crate::store::Store;
use crate::telemetry::metrics::{Active, Meters, ModelMeter};
use crate::telemetry::usage::{Sample, Usage as Minutes};
use crate::telemetry::{Inbound, Message, ModelSpan, StepSpan, Telemetry, ToolSpan, TurnSpan};
use crate::turn::{Guarded, Stop};
pub(crate) use retrieval::RetrievalRecord;
pub(crate) use spoken::json;
use tally::Tally;

/// How often the usage of finished minutes is written.
const WRITE_INTERVAL: Duration = Duration::from_secs(15);

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
    /// Set once the guards know what was spent before.
    spending: OnceCell<()>,
    /// The evaluation for which turns are taken.
    evaluation: Option<String>,
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

/// A background call of a model, or one that belongs to no turn.
pub(crate) struct BackgroundRecord<'a> {
    recorder: &'a Recorder,
    model: &'a dyn Model,
    tally: Tally,
}

impl Recorder {
    pub(crate) fn new(telemetry: Telemetry, meters: Meters, model: ModelId, guards: Guards) -> Self {
        let chat = meters.model(model.provider.as_str(), &model.id);
        let (minutes, spending) = (Minutes::default(), OnceCell::new());
        Self(Arc::new(Inner { telemetry, meters, chat, model, guards, minutes, spending, evaluation: None }))
    }

    /// A recorder for the turns of an evaluation: they have spans, and count nowhere.
    pub(crate) fn rehearsing(&self, run: &str) -> Self {
        let Inner { telemetry, model, guards, .. } = &*self.0;
        let meters = Meters::new(&mut Registry::default());
        let chat = meters.model(model.provider.as_str(), &model.id);
        Self(Arc::new(Inner {
            telemetry: telemetry.clone(),
            meters,
            chat,
            model: model.clone(),
            guards: guards.without_limits(),
            minutes: Minutes::default(),
            spending: OnceCell::new(),
            evaluation: Some(run.to_owned()),
        }))
    }

    pub(crate) fn evaluation_case(&self, outcome: &'static str) {
        self.0.meters.evaluation_case(outcome);
    }

    pub(crate) fn judge_call(&self, outcome: &'static str, took: Duration) {
        self.0.meters.judge_call(outcome, took.as_secs_f64());
    }

    pub(crate) fn judge_tokens(&self, used: &Usage) {
        self.0.meters.judge_tokens(used.input_tokens, used.output_tokens);
    }

    pub(crate) fn sampled_turn(&self, outcome: &'static str) {
        self.0.meters.sampled_turn(outcome);
    }

    pub(crate) fn sampled_score(&self, scorer: &'static str, value: f64) {
        self.0.meters.sampled_score(scorer, value);
    }

    /// What a model's answer cost: by the agent's own prices, else by the platform's table.
    pub(crate) fn cost(&self, provider: Provider, id: &str, used: &Usage) -> Option<f64> {
        let own = self.0.guards.price(id).map(|price| price.of(used.input_tokens, used.output_tokens));
        own.or_else(|| slipway_models::cost(provider, id, used))
    }

    pub(crate) fn turn(&self, inbound: Inbound<'_>, conversation: Option<&str>, trace_id: &str) -> TurnRecord {
        let span = self.0.telemetry.turn(inbound, conversation.unwrap_or_default(), trace_id);
        if let Some(run) = &self.0.evaluation {
            span.evaluation(run);
        }
        TurnRecord { recorder: self.clone(), span, sample: Sample::default(), used: Arc::default(), _active: self.0.meters.conversation() }
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
        let mut ticks = interval(WRITE_INTERVAL);
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
        let written = async {
            self.ask_spending(store).await?;
            store.record_usage(&minutes).await
        };
        if let Err(fault) = written.await {
            let lost = self.0.minutes.give_back(Timestamp::now(), minutes);
            warn!(%fault, lost, "usage could not be written; it is kept for a day");
        }
    }

    fn guarded(&self, guarded: &Guarded, sample: &mut Sample) {
        let action = action(guarded.action);
        self.0.meters.guard(guarded.guard.as_str(), action, &guarded.kind);
        match guarded.guard {
            GuardName::PiiDetection => sample.pii += 1,
            GuardName::PromptInjection => sample.injections += 1,
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

    /// The input, where content is captured.
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
        let price = self.recorder.cost(inner.model.provider, &inner.model.id, &used).unwrap_or_default();
        self.sample.error = failure.is_some();
        self.sample.latency = took;
        self.sample.input_tokens = used.input_tokens;
        self.sample.output_tokens = used.output_tokens;
        self.sample.cost_micros = micros(price);
        self.recorder.count(&self.sample);
        self.span.finish(failure.map_or(Ok(()), Err));
    }
}

fn lock(used: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
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
