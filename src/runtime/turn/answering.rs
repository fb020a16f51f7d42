//! The rounds of a turn: the model is asked, the tools that it calls are called, and it is asked
//! again with what came of them, until it answers or a budget ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures::stream::{FuturesUnordered, StreamExt};
use serde_json::Value;
use slipway_database::{NewMessage, StoredMessage};
use slipway_guards::{Action, Block, Guards, Hold, Ruled, Side, Spent, StreamItem};
use slipway_models::{Content, Message, ModelFault, Piece, Role, ToolCall, ToolResult};
use slipway_tools::{Context, Toolbox};
use tokio::sync::mpsc;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

use super::event::{Guarded, Stop, TurnAnswer, TurnEvent, UNKNOWN};
use super::parts::Parts;
use super::prompt::{self, Known, Prompt};
use super::retrieval::Findings;
use super::{Order, Said};
use crate::agent::{Agent, judge};
use crate::chat::is_id;
use crate::knowledge;
use crate::record::{self, TurnRecord};
use crate::settings::Strategy;

/// How many tools run at once in one turn, and what one answer of a model may ask for.
const MAX_PARALLEL_CALLS: usize = 16;
const MAX_CALLS: usize = 64;
/// Of an answer that is held back, in bytes; a longer one ends there. No model answers at such length.
const MAX_HELD_BYTES: usize = 1 << 20;
/// How much of an answer that was held back goes in one event.
const RELEASED_BYTES: usize = 16 * 1024;

/// What a turn came to: the answer, what failed, and what the conversation keeps.
pub(super) struct TurnOutcome {
    pub(super) answer: TurnAnswer,
    pub(super) failure: Option<ModelFault>,
    pub(super) transcript: Vec<NewMessage>,
    /// What the model said and what its tools answered, in order.
    pub(super) said: Vec<Message>,
    /// The passages that it was shown.
    pub(super) retrieved: Vec<String>,
}

pub(super) struct Answering<'a> {
    pub(super) agent: &'a Agent,
    pub(super) order: &'a Order,
    /// Of the conversation, with the message to answer.
    pub(super) history: Vec<StoredMessage>,
    pub(super) listener: &'a mpsc::Sender<TurnEvent>,
    /// The partial answer, which the lease writes to the store.
    partial: &'a Mutex<String>,
    pub(super) record: TurnRecord,
    pub(super) findings: Findings,
    /// Those that the turn began with.
    pub(super) guards: Arc<Guards>,
    guard: Option<slipway_guards::GuardStream>,
    /// The answer so far, where something may block it: nobody hears of it, and nothing of it is written down, before all of it was judged.
    held: Option<String>,
    /// How many rounds have words in it.
    spoken_rounds: u32,
    /// What was blocked in the answer, in words for the caller.
    blocked: Option<String>,
    /// As it was judged before the turn.
    tokens_in_prompt: u64,
    budget_hold: Hold,
    /// What the model said and what its tools answered, in order.
    said: Vec<Message>,
    deadline: Instant,
}

/// One answer of the model.
#[derive(Default)]
struct Round {
    text: String,
    calls: Vec<ToolCall>,
    stop: Option<slipway_models::Stop>,
}

impl<'a> Answering<'a> {
    pub(super) fn new(
        agent: &'a Agent,
        guards: Arc<Guards>,
        order: &'a Order,
        history: Vec<StoredMessage>,
        listener: &'a mpsc::Sender<TurnEvent>,
        partial: &'a Mutex<String>,
    ) -> Self {
        Self {
            agent,
            order,
            history,
            listener,
            partial,
            record: {
                let conversation = order.said.conversation();
                let is_stored = conversation.is_some() && agent.store.persists();
                agent.recorder.turn(order.inbound(), conversation, &order.trace_id, Arc::clone(&guards), is_stored)
            },
            findings: Findings::default(),
            guard: (!guards.is_empty()).then(|| guards.stream()),
            held: guards.hold_answers().then(String::new),
            guards,
            spoken_rounds: 0,
            blocked: None,
            tokens_in_prompt: 0,
            budget_hold: Hold::default(),
            said: Vec::new(),
            deadline: Instant::now() + agent.budget.time,
        }
    }

    /// What was found before the turn: the size of its prompt, and the part of the day's budget that it holds.
    pub(super) fn hold(&mut self, tokens_in_prompt: u64, budget_hold: Hold) {
        (self.tokens_in_prompt, self.budget_hold) = (tokens_in_prompt, budget_hold);
    }

    /// Asks the model until it has answered, and gives out what was held back.
    pub(super) async fn work(&mut self) -> Result<Stop, ModelFault> {
        let stop = self.rounds().await?;
        self.release().await;
        Ok(if self.blocked.is_some() { Stop::Guard } else { stop })
    }

    async fn rounds(&mut self) -> Result<Stop, ModelFault> {
        if let Some(id) = self.order.said.conversation() {
            self.agent.background.outdated(id);
        }
        let tools = match self.agent.strategy {
            Strategy::Simple => Vec::new(),
            Strategy::React => self.agent.offered_tools(&self.guards).await,
        };
        let newest = self.order.said.newest();
        let (memories, found) = tokio::join!(self.agent.recall(&newest, &self.record), self.retrieve());
        let passages = self.admit(found.passages).await;
        let known = Known { memories, passages: &passages };
        let first = prompt::first(self.agent, self.order, std::mem::take(&mut self.history), tools, known).await?;
        self.tell_sources(if first.has_passages { &passages[..] } else { &[] }, found.unavailable).await;
        let mut prompt = first.prompt;
        self.record.asked(&prompt.request);
        for round in 1.. {
            let last = round > self.agent.budget.rounds;
            if last {
                // Out of rounds: the model answers with what it has.
                prompt.request.tools.clear();
            }
            if let Some(left) = self.tokens_left() {
                if left == 0 {
                    return Ok(Stop::TokenBudget);
                }
                prompt.request.max_output_tokens = Some(prompt.request.max_output_tokens.map_or(left, |most| most.min(left)));
            }
            let answer = self.ask(&prompt).await?;
            if self.blocked.is_some() {
                return Ok(Stop::Guard);
            }
            if self.is_full() {
                return Ok(Stop::MaxTokens);
            }
            // A model without tools that calls one all the same has answered, unless policies denied it all of them: then it is told so.
            let is_without = prompt.request.tools.is_empty() && (last || !self.may_be_denied());
            if is_without || answer.calls.is_empty() {
                return Ok(if last { Stop::MaxRounds } else { stop(answer.stop.as_ref()) });
            }
            let used = self.record.used();
            if used.input_tokens + used.output_tokens >= self.agent.budget.tokens {
                return Ok(Stop::TokenBudget);
            }
            let results = self.call(answer.calls).await;
            let results = Message { role: Role::User, content: results.into_iter().map(Content::ToolResult).collect() };
            self.said.push(results);
            prompt = prompt::next(self.agent, prompt, self.said.last_chunk::<2>()).await?;
        }
        Ok(Stop::MaxRounds)
    }

    fn may_be_denied(&self) -> bool {
        self.agent.strategy == Strategy::React && self.guards.denies_tools()
    }

    /// The tokens that policies leave for the rest of the answer.
    fn tokens_left(&self) -> Option<u32> {
        let left = self.guards.tokens_left(self.tokens_in_prompt)?;
        Some(u32::try_from(left.saturating_sub(self.record.used().output_tokens)).unwrap_or(u32::MAX))
    }

    /// One question to the model; its words are passed on as they come.
    async fn ask(&mut self, prompt: &Prompt) -> Result<Round, ModelFault> {
        let mut record = self.record.model_call(&prompt.request, prompt.tokens);
        let mut round = Round::default();
        // Words of an earlier round stay apart from those of this one.
        let mut apart = self.said.iter().any(|message| !message.text().is_empty());
        let mut pieces = self.agent.model.answer(prompt.request.clone());
        while let Some(piece) = pieces.next().await {
            // Yields to other tasks: a model may send much at once, without a slow client to wait for.
            consume_budget().await;
            record.hear(&piece);
            match piece {
                Ok(Piece::Text(text)) => {
                    if std::mem::take(&mut apart) {
                        self.pass("\n\n").await;
                    }
                    round.text.push_str(&text);
                    self.pass(&text).await;
                }
                Ok(Piece::ToolCall(call)) => round.calls.push(call),
                Ok(Piece::Usage(_)) => {}
                Ok(Piece::Stopped(stop)) => round.stop = Some(stop),
                Err(fault) => {
                    record.finish(None, Some(fault.kind().name()));
                    return Err(fault);
                }
            }
            if self.blocked.is_some() || self.is_full() {
                break;
            }
        }
        let mut content = Vec::new();
        if !round.text.is_empty() {
            self.spoken_rounds += 1;
            content.push(Content::Text { text: round.text.clone() });
        }
        content.extend(round.calls.iter().cloned().map(Content::ToolCall));
        let message = Message { role: Role::Assistant, content };
        record.said(&message);
        record.finish(round.stop.as_ref(), None);
        self.said.push(message);
        self.pass_rest().await;
        Ok(round)
    }

    /// The calls of a round, a bounded number in parallel; the results are in the order of the calls.
    async fn call(&mut self, calls: Vec<ToolCall>) -> Vec<ToolResult> {
        let too_many = format!("not called: one round may have {MAX_CALLS} calls; make the rest in the next one");
        let mut results: Vec<_> = calls
            .iter()
            .map(|call| ToolResult { id: call.id.clone(), name: call.name.clone(), content: too_many.clone(), is_error: true })
            .collect();
        let mut waiting = calls.into_iter().take(MAX_CALLS).enumerate();
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < MAX_PARALLEL_CALLS {
                let Some((index, call)) = waiting.next() else { break };
                let ruled = self.agent.rules_of_tool(&self.guards, &call.name).await;
                for ruled in &ruled {
                    self.guard(Guarded::ruled(ruled)).await;
                }
                if let Some(block) = Ruled::block(&ruled) {
                    results[index].content = format!("The call was withheld: {}", block.message);
                    continue;
                }
                let shown = match self.guard_call(&call).await {
                    Ok(shown) => shown,
                    Err(block) => {
                        results[index].content = format!("The call was withheld: {}", block.message);
                        continue;
                    }
                };
                let base = self.agent.knowledge.of_tool(&call.name);
                if base.is_some()
                    && let Err(told) = self.count_search()
                {
                    results[index].content = told;
                    continue;
                }
                let (toolbox, rehearsal) = (&self.agent.toolbox, self.order.rehearsal.as_ref());
                let named = named(toolbox, &call, (self.said.len(), index)).await;
                let record = self.record.tool_call(&named, &shown, toolbox.kind(&call.name));
                let query = call.arguments["query"].as_str().unwrap_or_default();
                let retrieval = base.and_then(|base| record.retrieval(base, query, knowledge::wanted(&call.arguments)));
                let start = TurnEvent::ToolStart { id: named.id.clone(), name: named.name.clone(), arguments: shown };
                let _ = self.listener.send(start).await;
                let context = Context::until(self.deadline).with_trace(record.trace());
                running.push(async move {
                    let started = Instant::now();
                    let outcome = match rehearsal {
                        None => toolbox.call(&call.name, call.arguments, &context).await,
                        Some(rehearsal) => rehearsal.call(toolbox, &call.name, call.arguments, &context).await,
                    };
                    (index, named, record, base.is_some(), retrieval, outcome, started.elapsed())
                });
            }
            let Some((index, named, record, is_search, retrieval, outcome, took)) = running.next().await else { return results };
            let result = &mut results[index];
            result.is_error = outcome.is_error;
            result.content = outcome.content;
            // Nobody hears of a result before the guards have seen it.
            let passages = if is_search {
                self.show_found(result, retrieval).await
            } else {
                self.guard_result(result).await;
                Vec::new()
            };
            record.finish(result.is_error, &result.content);
            let (ToolCall { id, name, .. }, is_error, content) = (named, result.is_error, result.content.clone());
            let _ = self.listener.send(TurnEvent::ToolEnd { id, name, is_error, content, took }).await;
            self.tell_sources(&passages, Vec::new()).await;
        }
    }

    /// What the model says to a tool is looked at like what it says to a person. The arguments as others may see
    /// them: the tool gets those that were meant.
    async fn guard_call(&mut self, call: &ToolCall) -> Result<Value, Block> {
        if self.guards.is_empty() {
            return Ok(call.arguments.clone());
        }
        let text = call.arguments.to_string();
        let verdict = judge(&self.guards, Side::Output, &text).await;
        for finding in &verdict.findings {
            self.guard(Guarded::finding(finding, Side::Output)).await;
        }
        verdict.blocked.map_or_else(|| Ok(record::json(verdict.text.into_owned())), Err)
    }

    /// What a tool brings in is looked at like what a person says.
    pub(super) async fn guard_result(&mut self, result: &mut ToolResult) {
        if self.guards.is_empty() {
            return;
        }
        let content = std::mem::take(&mut result.content);
        let verdict = judge(&self.guards, Side::Input, &content).await;
        for finding in &verdict.findings {
            self.guard(Guarded::finding(finding, Side::Input)).await;
        }
        match verdict.blocked {
            Some(block) => {
                result.content = format!("The result was withheld: {}", block.message);
                result.is_error = true;
            }
            None => result.content = verdict.text.into_owned(),
        }
    }

    pub(super) async fn guard(&mut self, guarded: Guarded) {
        self.record.guard(&guarded);
        let _ = self.listener.send(TurnEvent::Guard(guarded)).await;
    }

    /// Text towards the client, by way of the guards.
    async fn pass(&mut self, text: &str) {
        match self.guard.as_mut().map(|guard| guard.push(text)) {
            None => self.tell(text.to_owned()).await,
            Some(outs) => self.pass_guarded(outs).await,
        }
    }

    /// What the guards still held back at the end of an answer; the next one is looked at afresh.
    async fn pass_rest(&mut self) {
        if let Some(mut guard) = self.guard.take() {
            self.pass_guarded(guard.finish()).await;
            self.guard = Some(self.guards.stream());
        }
    }

    /// The turn may be cut off wherever it waits: what was found is written down, and the answer blocked, before anybody is told.
    async fn pass_guarded(&mut self, outs: Vec<StreamItem>) {
        for out in &outs {
            match out {
                StreamItem::Text(_) => {}
                StreamItem::Finding(finding) => self.record.guard(&Guarded::finding(finding, Side::Output)),
                StreamItem::Blocked(block) => self.blocked = Some(block.message.clone()),
            }
        }
        for out in outs {
            match out {
                StreamItem::Text(text) => self.tell(text).await,
                StreamItem::Finding(finding) => {
                    let _ = self.listener.send(TurnEvent::Guard(Guarded::finding(&finding, Side::Output))).await;
                }
                StreamItem::Blocked(_) => {}
            }
        }
    }

    async fn tell(&mut self, text: String) {
        if let Some(held) = &mut self.held {
            return held.push_str(&text);
        }
        self.partial().push_str(&text);
        if self.order.is_streamed {
            // Nobody listens any more: the turn goes on all the same.
            let _ = self.listener.send(TurnEvent::Text(text)).await;
        }
    }

    fn is_full(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.len() > MAX_HELD_BYTES)
    }

    /// Gives out the answer that was held back, unless it is blocked. Rounds were judged one by one: what is said across them is found here.
    async fn release(&mut self) {
        let Some(held) = self.held.take().filter(|_| self.blocked.is_none()) else { return };
        let text = if self.spoken_rounds > 1 {
            let guards = Arc::clone(&self.guards);
            let verdict = judge(&guards, Side::Output, &held).await;
            if let Some(block) = verdict.blocked {
                let blocking = verdict.findings.into_iter().filter(|finding| finding.action == Action::Block);
                let items = blocking.map(StreamItem::Finding).chain([StreamItem::Blocked(block)]);
                return self.pass_guarded(items.collect()).await;
            }
            verdict.text.into_owned()
        } else {
            held
        };
        let mut rest = &*text;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.floor_char_boundary(RELEASED_BYTES));
            self.tell(piece.to_owned()).await;
            rest = later;
        }
    }

    fn partial(&self) -> std::sync::MutexGuard<'a, String> {
        self.partial.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes stock: what is answered, what is kept, what is counted.
    pub(super) fn end(mut self, ended: Result<Stop, ModelFault>, took: Duration) -> TurnOutcome {
        self.take_rest();
        let text = std::mem::take(&mut *self.partial());
        let (stop, failure) = match ended {
            // What is blocked in the last words is blocked, however the turn ended.
            Ok(_) if self.blocked.is_some() => (Stop::Guard, None),
            Ok(stop) => (stop, None),
            Err(fault) => (Stop::Failed, Some(fault)),
        };
        let content = match self.blocked.take() {
            Some(words) => words,
            None if text.is_empty() && stop == Stop::TimeBudget => "The time for this answer ran out.".to_owned(),
            None if text.is_empty() && stop == Stop::TokenBudget => "The tokens for this answer ran out.".to_owned(),
            None => text,
        };
        let spent = self.spent(took);
        self.guards.after(&spent).iter().for_each(|breach| self.record.guard(&Guarded::breach(breach, Side::Output)));
        drop(std::mem::take(&mut self.budget_hold));
        if !self.agent.knowledge.is_empty() && !matches!(stop, Stop::Failed | Stop::Guard | Stop::Cancelled) {
            self.record.answered_from_knowledge(!self.findings.passages.is_empty());
        }
        let transcript = self.transcript(&content, stop);
        let usage = self.record.used();
        self.record.finish(stop, failure.as_ref().map(|fault| fault.kind().name()), &content, took);
        let retrieved = self.findings.passages.into_iter().map(|passage| passage.content).collect();
        TurnOutcome { answer: TurnAnswer { content, usage, stop, saved: true }, failure, transcript, said: self.said, retrieved }
    }

    /// What was held back when the turn was cut off belongs to what is kept of it.
    fn take_rest(&mut self) {
        let mut rest = String::new();
        for out in self.guard.take().map(|mut guard| guard.finish()).into_iter().flatten() {
            match out {
                StreamItem::Text(text) => rest.push_str(&text),
                StreamItem::Finding(finding) => self.record.guard(&Guarded::finding(&finding, Side::Output)),
                StreamItem::Blocked(block) => self.blocked = Some(block.message),
            }
        }
        let Some(mut held) = self.held.take() else { return self.partial().push_str(&rest) };
        held.push_str(&rest);
        let guards = Arc::clone(&self.guards);
        let verdict = guards.check(Side::Output, &held);
        match verdict.blocked.filter(|_| self.blocked.is_none()) {
            Some(block) => {
                for finding in verdict.findings.iter().filter(|finding| finding.action == Action::Block) {
                    self.record.guard(&Guarded::finding(finding, Side::Output));
                }
                self.blocked = Some(block.message);
            }
            None if self.blocked.is_none() => self.partial().push_str(&verdict.text),
            None => {}
        }
    }

    fn spent(&self, took: Duration) -> Spent {
        let (model, taken) = (&self.agent.model, self.record.used());
        let usd = self.agent.recorder.cost(model.provider(), model.id(), &taken).unwrap_or_default();
        let tokens_in_prompt = self.tokens_in_prompt;
        Spent { now: SystemTime::now(), tokens_in_prompt, tokens: taken.input_tokens + taken.output_tokens, usd, latency: took }
    }

    /// One message for the answer, with the calls that led to it. A turn that said nothing leaves nothing.
    fn transcript(&self, content: &str, stop: Stop) -> Vec<NewMessage> {
        let Said::InConversation { .. } = self.order.said else { return Vec::new() };
        if content.is_empty() {
            return Vec::new();
        }
        let called = self.said.iter().any(|message| message.role == Role::User);
        // What a guard withheld, and a call without its result, are not for later prompts.
        let answered = self.said.last().is_some_and(|message| !message.content.iter().any(|part| matches!(part, Content::ToolCall(_))));
        let whole = answered && matches!(stop, Stop::EndTurn | Stop::MaxTokens | Stop::MaxRounds);
        let steps = if called && whole && self.guards.is_empty() { self.said.clone() } else { Vec::new() };
        // What a guard says in place of an answer has no sources.
        let sources = if stop == Stop::Guard { Vec::new() } else { self.findings.sources() };
        let parts = Parts { steps, sources }.write();
        let message = NewMessage { parts, ..NewMessage::new(slipway_database::Role::Assistant, content) };
        vec![message.with_trace(&self.order.trace_id)]
    }
}

/// A call as others hear of it: a name that the model made up is not repeated, nor an id that may say something. `place` tells such ids apart.
async fn named(toolbox: &Toolbox, call: &ToolCall, place: (usize, usize)) -> ToolCall {
    let name = if toolbox.origin(&call.name).await.is_some() { call.name.clone() } else { UNKNOWN.to_owned() };
    let id = if is_id(&call.id) { call.id.clone() } else { format!("call_{}_{}", place.0, place.1) };
    ToolCall { id, name, ..ToolCall::default() }
}

fn stop(stop: Option<&slipway_models::Stop>) -> Stop {
    match stop {
        Some(slipway_models::Stop::MaxTokens) => Stop::MaxTokens,
        Some(slipway_models::Stop::Filtered) => Stop::Filtered,
        Some(slipway_models::Stop::EndTurn | slipway_models::Stop::ToolUse | slipway_models::Stop::Other(_)) | None => Stop::EndTurn,
    }
}
