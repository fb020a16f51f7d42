//! A turn for a case of an evaluation. It has no listener and nothing of it is stored. Tools that may change something are not
//! called: their results stand in the case.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use slipway_evaluation::ToolCall;
use slipway_http::header;
use slipway_models::{Content, Message, Usage};
use slipway_tools::{Context, ToolOutcome, Toolbox};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use super::answering::{Answering, TurnOutcome};
use super::event::Stop;
use super::{Order, guard_input};
use crate::agent::Agent;

const NOT_CALLED: &str = "This tool is not called in evaluations, and the case has no result of it. Go on without it.";

/// What a case has for tools that are not called.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    /// What is asked, without what else stands in the case.
    pub(super) question: String,
    results: Map<String, Value>,
    /// The first tool that was to be called and had no result.
    unanswered: Mutex<Option<String>>,
}

/// What came of the turn.
#[derive(Debug)]
pub(crate) struct Rehearsed {
    pub(crate) answer: Result<String, Unanswered>,
    pub(crate) tool_calls: Vec<ToolCall>,
    /// Passages of knowledge bases.
    pub(crate) retrieved: Vec<String>,
    pub(crate) unanswered_tool: Option<String>,
    pub(crate) usage: Usage,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unanswered {
    pub(crate) why: String,
    /// Asking again would change nothing.
    pub(crate) is_final: bool,
}

impl Rehearsal {
    pub(crate) fn new(question: String, results: Map<String, Value>) -> Self {
        Self { question, results, unanswered: Mutex::default() }
    }

    /// A tool that may change something has the result that stands in the case, or none.
    pub(super) async fn call(&self, toolbox: &Toolbox, name: &str, arguments: Value, context: &Context) -> ToolOutcome {
        match toolbox.only_reads(name).await {
            Some(true) => return toolbox.call(name, arguments, context).await,
            Some(false) => {}
            // The agent's own mistake, which scorers are to see.
            None => return ToolOutcome::error("there is no such tool"),
        }
        match self.results.get(name) {
            Some(Value::String(text)) => ToolOutcome::ok(text.clone()),
            Some(result) => ToolOutcome::ok(result.to_string()),
            None => {
                self.unanswered.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(|| name.to_owned());
                ToolOutcome::error(NOT_CALLED)
            }
        }
    }
}

/// Takes the turn within this task, so that dropping the future ends the turn. The agent is one that rehearses.
pub(crate) async fn rehearse(agent: &Agent, mut order: Order) -> Rehearsed {
    let refused =
        |answer| Rehearsed { answer, tool_calls: Vec::new(), retrieved: Vec::new(), unanswered_tool: None, usage: Usage::default() };
    let guards = agent.policies.current();
    let found = match guard_input(agent, &guards, &mut order).await {
        Ok(found) => found,
        Err(error) => {
            let is_final = error.header(&header::RETRY_AFTER).is_none();
            return refused(Err(Unanswered { why: error.message().to_owned(), is_final }));
        }
    };
    if let Some(answer) = found.refusal {
        return refused(Ok(answer.content));
    }
    // Without a receiver, events are dropped at once.
    let (listener, _) = mpsc::channel(1);
    let (started, partial) = (Instant::now(), Mutex::default());
    let mut answering = Answering::new(agent, guards, &order, Vec::new(), &listener, &partial);
    answering.hold(found.tokens_in_prompt, found.hold);
    for guarded in found.guarded {
        answering.guard(guarded).await;
    }
    let stop = select! {
        biased;
        stop = answering.work() => stop,
        () = sleep_until(started + agent.budget.time) => Ok(Stop::TimeBudget),
    };
    let TurnOutcome { answer, failure, said, retrieved, transcript: _ } = answering.end(stop, started.elapsed());
    let unanswered = order.rehearsal.and_then(|rehearsal| rehearsal.unanswered.into_inner().unwrap_or_else(PoisonError::into_inner));
    // Half an answer says nothing of how good a whole one would be.
    let whole = match (failure, answer.stop.cut_off()) {
        (Some(fault), _) => Err(Unanswered { why: fault.message().to_owned(), is_final: !fault.retryable() }),
        (None, Some(why)) => Err(Unanswered { why: why.to_owned(), is_final: true }),
        (None, None) => Ok(answer.content),
    };
    Rehearsed { answer: whole, tool_calls: calls(said), retrieved, unanswered_tool: unanswered, usage: answer.usage }
}

/// The calls in what was said, in their order, each with its result; one that was cut off has none.
pub(super) fn calls(said: Vec<Message>) -> Vec<ToolCall> {
    let (mut calls, mut places) = (Vec::new(), HashMap::new());
    for content in said.into_iter().flat_map(|message| message.content) {
        match content {
            Content::ToolCall(call) => {
                places.insert(call.id, calls.len());
                calls.push(ToolCall { name: call.name, arguments: call.arguments, result: String::new() });
            }
            Content::ToolResult(result) => {
                if let Some(call) = places.get(&result.id).and_then(|place| calls.get_mut(*place)) {
                    call.result = result.content;
                }
            }
            Content::Text { .. } => {}
        }
    }
    calls
}
