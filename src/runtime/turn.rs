//! One turn: a message goes in, events come out, the answer is stored. The turn is a task of its
//! own: a client that leaves takes nothing with it, unless it asked for that.

mod answering;
mod bounds;
mod event;
mod lease;
mod parts;
mod prompt;
mod rehearsal;
mod retrieval;

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use slipway_database::Fault;
use slipway_guards::{Asked, Block, Budget, GuardName, Guards, Hold, Ruled, Side};
use slipway_http::{Error, HeaderMap, HeaderValue, StatusCode, header};
use slipway_models::{Content, Message, Usage};
use tokio::select;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use crate::agent::{Agent, judge};
use crate::evaluation::Sample;
use crate::failure;
use crate::record::Whose;
use crate::telemetry::Inbound;
use crate::turns::{Full, Running};
use answering::Answering;
pub(crate) use event::{Guarded, OUT_OF_TIME, OUT_OF_TOKENS, Stop, TurnAnswer, TurnEvent, UNKNOWN};
use lease::Lease;
pub(crate) use rehearsal::{Rehearsal, Rehearsed, Unanswered, rehearse};

/// How many events may wait for a slow client before the model waits too.
const EVENT_BUFFER: usize = 64;
/// The answer of a turn that is thought to come, as long as none is known.
const EXPECTED_OUTPUT_TOKENS: u64 = 1024;
/// How long a client waits until its whole answer is stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(5);

/// What is asked, and on whose behalf.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) said: Said,
    pub(crate) trace_id: String,
    pub(crate) caller: CallerTrace,
    /// The turn ends when its client leaves.
    pub(crate) cancel_with_client: bool,
    /// The caller hears the answer as it comes, and suggestions before its end; otherwise the whole answer alone.
    pub(crate) is_streamed: bool,
    pub(crate) max_output_tokens: Option<u32>,
    pub(crate) temperature: Option<f32>,
    pub(crate) stop: Vec<String>,
    /// The turn is taken for a case of an evaluation.
    pub(crate) rehearsal: Option<Rehearsal>,
}

impl Order {
    fn whose(&self) -> Whose {
        Whose::of(self.said.conversation(), &self.trace_id)
    }

    fn inbound(&self) -> Inbound<'_> {
        Inbound { traceparent: self.caller.traceparent.as_deref(), tracestate: self.caller.tracestate.as_deref() }
    }
}

/// The trace that a caller is in, from its W3C headers.
#[derive(Debug, Default)]
pub(crate) struct CallerTrace {
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl CallerTrace {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self { traceparent: text("traceparent"), tracestate: text("tracestate") }
    }
}

/// What was said, and who remembers the rest.
#[derive(Debug)]
pub(crate) enum Said {
    /// The store does: the message continues a conversation.
    InConversation { id: String, message: String },
    /// The caller does: all messages come with the request, the last one is to be answered.
    Alone { system: Option<String>, messages: Vec<Message> },
}

impl Said {
    pub(crate) fn conversation(&self) -> Option<&str> {
        match self {
            Self::InConversation { id, .. } => Some(id),
            Self::Alone { .. } => None,
        }
    }

    /// The words to answer.
    fn newest(&self) -> String {
        match self {
            Self::InConversation { message, .. } => message.clone(),
            Self::Alone { messages, .. } => messages.last().map(Message::text).unwrap_or_default(),
        }
    }

    /// All that the caller sent along.
    fn texts(&self) -> Vec<&String> {
        match self {
            Self::InConversation { message, .. } => vec![message],
            Self::Alone { system, messages } => {
                let contents = messages.iter().flat_map(|message| &message.content);
                system
                    .iter()
                    .chain(contents.filter_map(|content| if let Content::Text { text } = content { Some(text) } else { None }))
                    .collect()
            }
        }
    }

    fn texts_mut(&mut self) -> Vec<&mut String> {
        match self {
            Self::InConversation { message, .. } => vec![message],
            Self::Alone { system, messages } => {
                let contents = messages.iter_mut().flat_map(|message| &mut message.content);
                system
                    .iter_mut()
                    .chain(contents.filter_map(|content| if let Content::Text { text } = content { Some(text) } else { None }))
                    .collect()
            }
        }
    }
}

/// Takes the order, or says why not. What is taken runs to its end whatever happens to the receiver.
pub(crate) async fn begin(agent: &Arc<Agent>, mut order: Order) -> Result<mpsc::Receiver<TurnEvent>, Error> {
    let running = agent.turns.begin().map_err(|full| {
        let why = match full {
            Full::Closed => "this agent is shutting down; try again",
            Full::Taken => "this agent has as many turns under way as it can have; try again later",
        };
        Error::unavailable(why).with_header(header::RETRY_AFTER, HeaderValue::from(2))
    })?;
    let guards = agent.policies.for_turn()?;
    let found = guard_input(agent, &guards, &mut order).await?;
    // Nobody listens yet: there must be room for all that is told of a refusal.
    let (listener, turn_events) = mpsc::channel(EVENT_BUFFER.max(found.guarded.len() + 1));
    if let Some(answer) = found.refusal {
        // Nothing of what was refused is kept.
        agent.recorder.refused(&found.guarded, &order.whose());
        for guarded in found.guarded {
            let _ = listener.send(TurnEvent::Guard(guarded)).await;
        }
        let _ = listener.send(TurnEvent::Done(answer)).await;
        return Ok(turn_events);
    }
    let agent = Arc::clone(agent);
    let (began, beginning) = oneshot::channel();
    // From the first question to the store on in a task of its own: a client that leaves meanwhile must not leave
    // half a beginning behind.
    tokio::spawn(async move {
        match take(&agent, &order, &running).await {
            Ok(lease) => {
                let _ = began.send(Ok(()));
                // On the heap: what is large is not moved again with the task.
                Box::pin(run(&agent, guards, order, lease, found, listener, &running)).await;
            }
            Err(fault) => {
                let _ = began.send(Err(fault));
            }
        }
        drop(running);
    });
    let began = beginning.await.map_err(|_| Error::internal("a turn broke off before it began"))?;
    began.map(|()| turn_events).map_err(failure::of_store)
}

async fn take(agent: &Agent, order: &Order, running: &Running) -> Result<Option<Lease>, Fault> {
    let Said::InConversation { id, message } = &order.said else { return Ok(None) };
    Lease::take(agent, running.clone(), id, message, &order.trace_id).await.map(Some)
}

#[derive(Default)]
struct Found {
    guarded: Vec<Guarded>,
    refusal: Option<TurnAnswer>,
    tokens_in_prompt: u64,
    hold: Hold,
}

/// Masks what must not be kept, and finds what must not be answered.
async fn guard_input(agent: &Agent, guards: &Guards, order: &mut Order) -> Result<Found, Error> {
    let mut found = Found::default();
    let model = &agent.model;
    let ruled = guards.model(model.provider().as_str(), model.id());
    found.guarded.extend(ruled.iter().chain(&guards.lacking()).map(Guarded::ruled));
    if let Some(block) = Ruled::block(&ruled) {
        agent.recorder.refused(&found.guarded, &order.whose());
        return Err(over_the_limit(block));
    }
    found.tokens_in_prompt = agent.prompt_tokens(guards, &order.said.texts()).await;
    let expected = Usage { input_tokens: found.tokens_in_prompt, output_tokens: EXPECTED_OUTPUT_TOKENS, cached_input_tokens: 0 };
    let budget = Budget {
        now: SystemTime::now(),
        tokens_in_prompt: found.tokens_in_prompt,
        unpriced: agent.unpriced.as_deref(),
        expected_usd: agent.recorder.cost(model.provider(), model.id(), &expected).unwrap_or_default(),
        tick: std::time::Instant::now(),
        lease: Asked::NotYet,
    };
    let turn = agent.budgets.before_turn(guards, budget).await;
    found.hold = turn.hold;
    found.guarded.extend(turn.breaches.iter().map(|breach| Guarded::breach(breach, Side::Input)));
    if let Some(block) = turn.blocked {
        if turn.lacks_lease {
            return Err(failure::later(Error::unavailable(block.message), 2));
        }
        agent.recorder.refused(&found.guarded, &order.whose());
        return Err(over_the_limit(block));
    }
    if guards.is_empty() {
        return Ok(found);
    }
    for text in order.said.texts_mut() {
        let verdict = judge(guards, Side::Input, text).await;
        found.guarded.extend(verdict.findings.iter().map(|finding| Guarded::finding(finding, Side::Input)));
        let blocked = verdict.blocked.map(|block| TurnAnswer::refused(block.message));
        let masked = verdict.text.into_owned();
        *text = masked;
        found.refusal = found.refusal.or(blocked);
        // There may be many of them.
        yield_now().await;
    }
    Ok(found)
}

/// A limit is not the caller's fault and passes, unless one message alone is too much.
fn over_the_limit(block: Block) -> Error {
    match block.retry_after {
        Some(wait) => Error::new(StatusCode::TOO_MANY_REQUESTS, block.message)
            .with_header(header::RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1))),
        // The agent's author has something to mend.
        None if matches!(block.guard, GuardName::SpendLimit | GuardName::AllowedModels) => Error::unavailable(block.message),
        None => Error::bad_request(block.message),
    }
}

async fn run(
    agent: &Agent,
    guards: Arc<Guards>,
    order: Order,
    mut lease: Option<Lease>,
    found: Found,
    listener: mpsc::Sender<TurnEvent>,
    running: &Running,
) {
    let started = Instant::now();
    let alone = Mutex::default();
    let history = lease.as_mut().map(|lease| std::mem::take(&mut lease.history)).unwrap_or_default();
    let sample = agent.sampling.as_ref().and_then(|sampling| sampling.pick(&order, &history));
    let partial = lease.as_ref().map_or(&alone, |lease| &lease.partial);
    let mut answering = Answering::new(agent, guards, &order, history, &listener, partial);
    answering.hold(found.tokens_in_prompt, found.hold);
    for guarded in found.guarded {
        answering.guard(guarded).await;
    }
    let left = async { if order.cancel_with_client { listener.closed().await } else { std::future::pending().await } };
    let taken = async { if let Some(lease) = &lease { lease.write_down().await } else { std::future::pending().await } };
    let stop = select! {
        biased;
        stop = answering.work() => stop,
        () = sleep_until(started + agent.budget.time) => Ok(Stop::TimeBudget),
        () = left => Ok(Stop::Cancelled),
        () = taken => Ok(Stop::Cancelled),
        () = running.cut_off() => Ok(Stop::Cancelled),
    };
    let outcome = answering.end(stop, started.elapsed());
    conclude(agent, &order, lease, outcome, sample, &listener).await;
}

/// Keeps the answer, tells it, and leaves the rest to work behind the scenes.
async fn conclude(
    agent: &Agent,
    order: &Order,
    lease: Option<Lease>,
    outcome: answering::TurnOutcome,
    sample: Option<Sample>,
    listener: &mpsc::Sender<TurnEvent>,
) {
    let answering::TurnOutcome { mut answer, failure, mut transcript, said, retrieved } = outcome;
    let Some(lease) = lease else { return tell(agent, order, answer, failure, listener).await };
    for message in &mut transcript {
        message.interrupted = broke_off(answer.stop);
    }
    let sample = sample.filter(|_| failure.is_none() && !broke_off(answer.stop));
    let retrieved = (!agent.knowledge.is_empty()).then_some(retrieved);
    let answered = sample.map(|sample| sample.answered(&answer.content, rehearsal::calls(said), retrieved));
    let mut kept = std::pin::pin!(lease.end(transcript));
    // The client learns early that its answer is not safe yet; the attempts go on.
    let ended = select! {
        // A timer that is looked at wakes the runtime's driver, by a system call.
        biased;
        saved = &mut kept => Some(saved),
        () = sleep(STORE_TIMEOUT) => None,
    };
    answer.saved = ended.unwrap_or(false);
    let rest = async {
        let saved = match ended {
            Some(saved) => saved,
            None => kept.await,
        };
        if saved && agent.store.persists() {
            agent.recorder.kept();
        }
        if let (true, Some(answered), Some(sampling)) = (saved, answered, &agent.sampling) {
            sampling.offer(answered);
        }
    };
    // Together: a client that is slow to listen does not keep its answer from being kept.
    tokio::join!(tell(agent, order, answer, failure, listener), rest);
}

/// Whether the answer would have gone on, had it been let. One that is as long as one may be counts as whole.
fn broke_off(stop: Stop) -> bool {
    match stop {
        Stop::EndTurn | Stop::MaxTokens | Stop::MaxRounds => false,
        Stop::Filtered | Stop::TokenBudget | Stop::TimeBudget | Stop::Guard | Stop::Cancelled | Stop::Failed => true,
    }
}

async fn tell(
    agent: &Agent,
    order: &Order,
    answer: TurnAnswer,
    failure: Option<slipway_models::ModelFault>,
    listener: &mpsc::Sender<TurnEvent>,
) {
    if let Some(fault) = failure {
        let _ = listener.send(TurnEvent::Failed(fault)).await;
        return;
    }
    let message = order.said.newest();
    if answer.stop == Stop::EndTurn && order.said.conversation().is_some() {
        if order.is_streamed {
            // A client that has left asks for them later.
            let suggested = select! {
                biased;
                () = listener.closed() => Vec::new(),
                suggested = agent.suggest(order.said.conversation(), &message, &answer.content) => suggested,
            };
            if !suggested.is_empty() {
                let _ = listener.send(TurnEvent::Suggestions(suggested)).await;
            }
        }
        agent.reflect(order.said.conversation(), &message, &answer.content);
    }
    let _ = listener.send(TurnEvent::Done(answer)).await;
}
