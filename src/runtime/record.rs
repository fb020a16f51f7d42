//! Telemetry of a turn: spans, metrics, usage and what counts against limits, written from one place so that they never disagree.
//! A record that is dropped without an end was cut off, and is counted all the same.

mod call;
mod retrieval;
mod spoken;
mod tally;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::registry::Registry;
use ring::digest::{SHA256, digest};
use serde_json::Value;
use slipway_database::{Stage, UsageMinute, ViolationMinute};
use slipway_guards::{Action, Block, GuardName, Guards, PolicyRule, Ruled, Side};
use slipway_models::{FaultKind, Model, ModelFault, ModelRequest, Provider, ToolCall, Usage, tokens};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::warn;

use crate::policies::Policies;
use crate::settings::ModelId;
use crate::store::Store;
use crate::telemetry::metrics::{Active, Meters, ModelMeter};
use crate::telemetry::usage::{RequestEnd, Sample, UsageByMinute as Minutes};
use crate::telemetry::violations::{Violations, minute};
use crate::telemetry::{Inbound, ModelSpan, SpanMessage, StepSpan, Telemetry, ToolSpan, TurnSpan};
use crate::turn::{Guarded, Stop};
pub(crate) use retrieval::RetrievalRecord;
pub(crate) use spoken::json;
use spoken::spoken;
use tally::Tally;

/// How often the usage of finished minutes is written.
const WRITE_INTERVAL: Duration = Duration::from_secs(15);
/// Of the time at the end, for the usage that only then is known.
const FLUSH_RESERVE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(crate) struct Recorder(Arc<Inner>);

struct Inner {
    telemetry: Telemetry,
    meters: Meters,
    /// The chat model's counters, looked up once.
    chat: ModelMeter,
    model: ModelId,
    policies: Arc<Policies>,
    minutes: Minutes,
    violations: Violations,
    /// The evaluation for which turns are taken.
    evaluation: Option<String>,
}

pub(crate) struct TurnRecord {
    recorder: Recorder,
    /// Those that the turn began with.
    guards: Arc<Guards>,
    whose: Whose,
    /// The store keeps the turn, and not its spans alone.
    is_stored: bool,
    span: TurnSpan,
    counted: Counted,
    /// What the calls of its models have taken, those that were cut off included.
    used: Arc<Mutex<Usage>>,
    _active: Active,
}

/// What one turn, or one thing behind the scenes, adds to the usage.
#[derive(Default)]
struct Counted {
    sample: Sample,
    /// Rules that it broke, where, and whether that was blocked. Each counts once, however many words break it.
    broken: HashSet<(PolicyRule, Stage, bool)>,
}

impl Counted {
    fn behind_the_scenes() -> Self {
        Self { sample: Sample { behind_the_scenes: true, ..Sample::default() }, broken: HashSet::new() }
    }
}

/// In which turn a rule was broken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Whose {
    /// A hash of the conversation. A turn that belongs to none is one of its own.
    conversation: Option<i64>,
    trace: Option<String>,
}

impl Whose {
    pub(crate) fn of(conversation: Option<&str>, trace: &str) -> Self {
        let hash = digest(&SHA256, conversation.unwrap_or(trace).as_bytes());
        Self { conversation: hash.as_ref().first_chunk().copied().map(i64::from_be_bytes), trace: Some(trace.to_owned()) }
    }
}

pub(crate) struct ModelRecord {
    /// Taken at the end.
    span: Option<ModelSpan>,
    recorder: Recorder,
    guards: Arc<Guards>,
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
    pub(crate) fn new(telemetry: Telemetry, meters: Meters, model: ModelId, policies: Arc<Policies>) -> Self {
        let chat = meters.model(model.provider.as_str(), &model.id);
        let (minutes, violations) = (Minutes::default(), Violations::default());
        Self(Arc::new(Inner { telemetry, meters, chat, model, policies, minutes, violations, evaluation: None }))
    }

    /// A recorder for the turns of an evaluation: they have spans, and count nowhere.
    pub(crate) fn rehearsing(&self, run: &str) -> Self {
        let Inner { telemetry, model, policies, .. } = &*self.0;
        let meters = Meters::new(&mut Registry::default());
        let chat = meters.model(model.provider.as_str(), &model.id);
        Self(Arc::new(Inner {
            telemetry: telemetry.clone(),
            meters,
            chat,
            model: model.clone(),
            policies: policies.rehearsing(),
            minutes: Minutes::default(),
            violations: Violations::default(),
            evaluation: Some(run.to_owned()),
        }))
    }

    pub(crate) fn meters(&self) -> Meters {
        self.0.meters.clone()
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
        let own = self.0.policies.own().price(id).map(|price| price.of(used.input_tokens, used.output_tokens));
        own.or_else(|| slipway_models::cost(provider, id, used))
    }

    pub(crate) fn turn(
        &self,
        inbound: Inbound<'_>,
        conversation: Option<&str>,
        trace_id: &str,
        guards: Arc<Guards>,
        is_stored: bool,
    ) -> TurnRecord {
        let span = self.0.telemetry.turn(inbound, conversation.unwrap_or_default(), trace_id);
        if let Some(run) = &self.0.evaluation {
            span.evaluation(run);
        }
        let (whose, used) = (Whose::of(conversation, trace_id), Arc::default());
        let (recorder, counted, active) = (self.clone(), Counted::default(), self.0.meters.conversation());
        TurnRecord { recorder, guards, whose, is_stored, span, counted, used, _active: active }
    }

    /// A turn that a guard refused before it began. It is a request without a duration: nothing was answered.
    pub(crate) fn refused(&self, guarded: &[Guarded], whose: &Whose) {
        let mut counted = Counted::default();
        for guarded in guarded {
            self.guarded(guarded, whose, &mut counted);
        }
        self.0.meters.turn("blocked", None);
        counted.sample.trace.clone_from(&whose.trace);
        self.count(&counted.sample);
    }

    /// Whether a model may be asked behind the scenes.
    pub(crate) fn may_ask(&self, model: &dyn Model) -> Result<(), ModelFault> {
        let ruled = self.0.policies.current().model(model.provider().as_str(), model.id());
        if ruled.is_empty() {
            return Ok(());
        }
        let mut counted = Counted::behind_the_scenes();
        for ruled in &ruled {
            self.guarded(&Guarded::ruled(ruled), &Whose::default(), &mut counted);
        }
        self.count(&counted.sample);
        Ruled::block(&ruled).map_or(Ok(()), |block| Err(ModelFault::new(FaultKind::Refused, block.message)))
    }

    /// The store keeps a turn with its trace.
    pub(crate) fn kept(&self) {
        self.count(&Sample { behind_the_scenes: true, audited: 1, ..Sample::default() });
    }

    /// A call of a model behind the scenes.
    pub(crate) fn background<'a>(&'a self, model: &'a dyn Model, request: &ModelRequest) -> BackgroundRecord<'a> {
        BackgroundRecord { recorder: self, model, tally: Tally::new(tokens::estimate(tokens::bytes(request))) }
    }

    /// A text that is to be kept, with what must not be kept masked; or why it cannot be.
    pub(crate) fn admit(&self, text: &str) -> Result<String, Block> {
        let verdict = self.0.policies.current().check(Side::Input, text);
        let mut counted = Counted::behind_the_scenes();
        for finding in &verdict.findings {
            self.guarded(&Guarded::finding(finding, Side::Input), &Whose::default(), &mut counted);
        }
        if !verdict.findings.is_empty() {
            self.count(&counted.sample);
        }
        verdict.blocked.map_or_else(|| Ok(verdict.text.into_owned()), Err)
    }

    /// What a model said, as others may read it; nothing where a guard would block it.
    pub(crate) fn presentable(&self, text: &str) -> Option<String> {
        presentable(&self.0.policies.current(), text)
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
            let now = Timestamp::now();
            self.count_exported();
            self.write(&store, self.0.minutes.take_finished(now)).await;
            self.write_violations(&store, self.0.violations.take_finished(now)).await;
        }
    }

    /// The last spans and the last usage, as far as they can be delivered in time.
    pub(crate) async fn finish(&self, store: &Store, patience: Duration) {
        let deadline = Instant::now() + patience;
        let lost = self.0.telemetry.flush(deadline - FLUSH_RESERVE).await;
        if lost > 0 {
            warn!(lost, "spans could not be delivered before the end");
        }
        self.count_exported();
        let (minutes, violations) = (self.0.minutes.take_all(), self.0.violations.take_all());
        let written = async {
            tokio::join!(self.write(store, minutes), self.write_violations(store, violations));
        };
        if tokio::time::timeout_at(deadline, written).await.is_err() {
            warn!("the last usage could not be written before the end");
        }
    }

    /// Turns that only their spans tell of count as audited once these were accepted.
    fn count_exported(&self) {
        let audited = self.0.telemetry.take_audited();
        if audited > 0 {
            self.count(&Sample { behind_the_scenes: true, audited, ..Sample::default() });
        }
    }

    async fn write_violations(&self, store: &Store, violations: Vec<ViolationMinute>) {
        if violations.is_empty() {
            return;
        }
        if let Err(fault) = store.record_violations(&violations).await {
            let lost: u64 = violations.into_iter().map(|violation| self.0.violations.add(violation)).sum();
            warn!(%fault, lost, "violations of policies could not be written; the newest are kept");
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

    /// A guard has found something. What scorecards compare with requests counts once a turn; findings of personal data and attempts at
    /// injection are counted one by one.
    fn guarded(&self, guarded: &Guarded, whose: &Whose, counted: &mut Counted) {
        let is_block = guarded.action == Action::Block;
        self.0.meters.guard(guarded.guard.as_str(), action(guarded.action), &guarded.kind);
        let Counted { sample, broken } = counted;
        match guarded.guard {
            GuardName::PiiDetection => sample.pii += 1,
            GuardName::PromptInjection => sample.injections += 1,
            _ => {}
        }
        sample.is_blocked |= is_block;
        if let Some(rule) = &guarded.policy
            && broken.insert((rule.clone(), guarded.stage, is_block))
        {
            sample.violations += 1;
            self.violated(rule, guarded.stage, is_block, whose);
        }
    }

    fn violated(&self, PolicyRule { policy, rule }: &PolicyRule, stage: Stage, blocked: bool, whose: &Whose) {
        self.0.meters.violation(policy, rule.as_str(), stage.as_str(), blocked);
        let violation = ViolationMinute {
            minute: minute(Timestamp::now()),
            policy: policy.to_string(),
            rule: rule.as_str().to_owned(),
            stage,
            blocked,
            count: 1,
            conversations: whose.conversation.into_iter().collect(),
            last_trace: whose.trace.clone(),
        };
        self.0.violations.add(violation);
    }

    fn count(&self, sample: &Sample) {
        self.0.minutes.record(Timestamp::now(), self.0.model.provider.as_str(), &self.0.model.id, sample);
    }
}

impl TurnRecord {
    /// `prompt` is how many tokens the request is thought to have.
    pub(crate) fn model_call(&self, request: &ModelRequest, prompt: u64) -> ModelRecord {
        let model = &self.recorder.0.model;
        let span = self.span.model_call(model.provider.as_str(), &model.id);
        span.input(|| spoken(&self.guards, request));
        let (recorder, guards, used) = (self.recorder.clone(), Arc::clone(&self.guards), Arc::clone(&self.used));
        ModelRecord { span: Some(span), recorder, guards, tally: Tally::new(prompt), used, began: Instant::now(), first: true }
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
    pub(crate) fn asked(&self, request: &ModelRequest) {
        self.span.input(|| spoken(&self.guards, request));
    }

    pub(crate) fn guard(&mut self, guarded: &Guarded) {
        self.span.guard(guarded.guard.as_str(), action(guarded.action), &guarded.kind);
        self.recorder.guarded(guarded, &self.whose, &mut self.counted);
    }

    /// The agent has knowledge, and this is an answer; whether it has sources.
    pub(crate) fn answered_from_knowledge(&mut self, has_sources: bool) {
        (self.counted.sample.retrieved, self.counted.sample.cited) = (1, u64::from(has_sources));
    }

    pub(crate) fn finish(mut self, stop: Stop, failure: Option<&'static str>, content: &str, took: Duration) {
        // In place of what was blocked stand the guard's own words.
        if stop != Stop::Guard {
            self.span.output(|| vec![SpanMessage::text("assistant", content)]);
        }
        let outcome = match stop {
            Stop::Failed => "error",
            Stop::Guard => "blocked",
            Stop::Cancelled => "cancelled",
            _ => "ok",
        };
        let inner = &self.recorder.0;
        // When somebody leaves says nothing of how long an answer takes.
        let took = (stop != Stop::Cancelled).then_some(took);
        inner.meters.turn(outcome, took.map(|took| took.as_secs_f64()));
        let used = self.used();
        let price = self.recorder.cost(inner.model.provider, &inner.model.id, &used);
        let sample = &mut self.counted.sample;
        sample.end = match (stop, failure) {
            (Stop::Cancelled, _) => RequestEnd::Cancelled,
            (_, Some(_)) => RequestEnd::Failed,
            (_, None) => RequestEnd::Answered,
        };
        sample.latency = took;
        sample.input_tokens = used.input_tokens;
        sample.output_tokens = used.output_tokens;
        sample.cost_micros = micros(price.unwrap_or_default());
        sample.is_unpriced = is_unpriced(price, &used);
        sample.trace = self.whose.trace.take();
        self.recorder.count(&self.counted.sample);
        self.span.outcome(outcome);
        if !self.is_stored {
            self.span.audit();
        }
        self.span.finish(failure.map_or(Ok(()), Err));
    }
}

/// What a model said, as others may read it; nothing where a guard would block it.
fn presentable(guards: &Guards, text: &str) -> Option<String> {
    let verdict = guards.check(Side::Output, text);
    verdict.blocked.is_none().then(|| verdict.text.into_owned())
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

/// Whether tokens were used of a model whose price is not known.
fn is_unpriced(price: Option<f64>, used: &Usage) -> bool {
    price.is_none() && (used.input_tokens, used.output_tokens) != (0, 0)
}

/// Millionths of a dollar; a turn costs less than what would not fit.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float turned into an integer saturates")]
fn micros(usd: f64) -> u64 {
    (usd * 1e6).round() as u64
}
