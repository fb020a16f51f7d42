//! Retrieval in a turn: knowledge bases are searched, the guards look at the passages as at all that comes in, and the listener
//! and the record are told. A base that does not answer is told too, and ends nothing.

use slipway_database::Role;
use slipway_guards::Side;
use slipway_models::{ToolResult, tokens};
use tracing::debug;

use super::answering::Answering;
use super::event::{Guarded, TurnEvent};
use super::{Order, Said};
use crate::agent::judge;
use crate::knowledge::{self, MAX_SEARCHES, Passage, PassageSource, Query, Retrieved, SearchFindings};
use crate::record::RetrievalRecord;
use crate::settings::Strategy;

/// Of one turn; a model that searches on and on finds little that is new.
const MAX_KEPT: usize = 64;

/// What a turn has found so far.
#[derive(Default)]
pub(super) struct Findings {
    searches: usize,
    /// What the model was shown, each passage once.
    pub(super) passages: Vec<Passage>,
}

impl Findings {
    pub(super) fn sources(&self) -> Vec<PassageSource> {
        self.passages.iter().map(|passage| passage.source.clone()).collect()
    }

    /// Adds what is new, and gives its sources.
    fn add(&mut self, passages: &[Passage]) -> Vec<PassageSource> {
        let mut sources = Vec::new();
        for passage in passages {
            let is_known =
                |known: &Passage| (&known.source.kb_id, &known.source.chunk_id) == (&passage.source.kb_id, &passage.source.chunk_id);
            if self.passages.len() < MAX_KEPT && !self.passages.iter().any(is_known) {
                self.passages.push(passage.clone());
                sources.push(passage.source.clone());
            }
        }
        sources
    }
}

impl Answering<'_> {
    /// Passages for the question, where the model cannot search itself.
    pub(super) async fn retrieve(&self) -> Retrieved {
        if self.agent.strategy != Strategy::Simple || self.agent.knowledge.is_empty() {
            return Retrieved::default();
        }
        let Query(query) = self.query();
        if query.is_empty() {
            return Retrieved::default();
        }
        let began = |base: &str| self.record.retrieval(base, &query, knowledge::CANDIDATES);
        self.agent.knowledge.retrieve(&query, began, RetrievalRecord::finish).await
    }

    fn query(&self) -> Query {
        let Order { said, rehearsal, .. } = self.order;
        match said {
            Said::InConversation { message, .. } => {
                let before = self.history.split_last().map(|(_, before)| before).unwrap_or_default();
                let last = before.iter().rev().find(|message| message.role == Role::User);
                Query::of(message, last.map(|message| message.content.as_str()))
            }
            Said::Alone { messages, .. } => {
                let mut asked =
                    messages.iter().rev().filter(|message| message.role == slipway_models::Role::User).map(slipway_models::Message::text);
                let newest = asked.next().unwrap_or_default();
                // What else stands in a case is not what is asked.
                let question = rehearsal.as_ref().map_or(newest.as_str(), |rehearsal| rehearsal.question.as_str());
                Query::of(question, asked.next().as_deref())
            }
        }
    }

    /// Those of the passages that the guards let through and that fit the prompt.
    pub(super) async fn admit(&mut self, passages: Vec<Passage>) -> Vec<Passage> {
        let question = tokens::estimate(self.order.said.newest().len() as u64);
        // The rest is for the question, its past and the answer.
        let room = (u64::from(self.agent.model.window()) / 2).saturating_sub(question) / 2;
        let fitting = knowledge::fitting(passages, room);
        self.guard_passages(fitting).await
    }

    /// What a document says is looked at like what a person says. A passage that is blocked is left out, others stay.
    async fn guard_passages(&mut self, passages: Vec<Passage>) -> Vec<Passage> {
        if self.guards.is_empty() {
            return passages;
        }
        let mut admitted = Vec::new();
        for mut passage in passages {
            let mut is_blocked = false;
            for text in passage.texts_mut() {
                let verdict = judge(&self.guards, Side::Input, text).await;
                for finding in &verdict.findings {
                    self.guard(Guarded::finding(finding, Side::Input)).await;
                }
                is_blocked |= verdict.blocked.is_some();
                let masked = verdict.text.into_owned();
                *text = masked;
            }
            if is_blocked {
                debug!(chunk_id = passage.source.chunk_id, "a guard withheld a passage");
            } else {
                admitted.push(passage);
            }
        }
        admitted
    }

    /// Notes what the model is shown, and tells where it stands.
    pub(super) async fn tell_sources(&mut self, passages: &[Passage], unavailable: Vec<String>) {
        let sources = self.findings.add(passages);
        if !sources.is_empty() || !unavailable.is_empty() {
            let _ = self.listener.send(TurnEvent::Sources { sources, unavailable }).await;
        }
    }

    /// Whether the model may search once more; if not, what it is told instead.
    pub(super) fn count_search(&mut self) -> Result<(), String> {
        self.findings.searches += 1;
        if self.findings.searches <= MAX_SEARCHES {
            return Ok(());
        }
        Err(format!("not searched: an answer may take {MAX_SEARCHES} searches; answer with what was found"))
    }

    /// The result of a search as the model gets it, and the passages in it.
    pub(super) async fn show_found(&mut self, result: &mut ToolResult, retrieval: Option<RetrievalRecord>) -> Vec<Passage> {
        let found = serde_json::from_str(&result.content).ok().filter(|_| !result.is_error);
        let finish = |outcome: Result<&[Passage], &str>| {
            if let Some(retrieval) = retrieval {
                retrieval.finish(outcome);
            }
        };
        match found {
            Some(SearchFindings::Passages(passages)) => {
                finish(Ok(&passages));
                let passages = self.guard_passages(passages).await;
                result.content = knowledge::found(&passages);
                passages
            }
            Some(SearchFindings::Nothing { kind, why }) => {
                finish(Err(&kind));
                (result.content, result.is_error) = (why, true);
                Vec::new()
            }
            // It was not called as it should be, or given up.
            None => {
                finish(Err("not_searched"));
                self.guard_result(result).await;
                Vec::new()
            }
        }
    }
}
