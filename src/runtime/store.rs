//! Conversations and memories: in PostgreSQL, or in this process for as long as it lives. Callers do not know which.

mod memory;
#[cfg(test)]
mod tests;

use slipway_database::{
    BudgetLease, BudgetRequest, ConversationSummary, Embedding, EvaluationResult, Fault, Generation, MemoryEntry, NewMemory, NewMessage,
    Page, PodRun, Remembered, SampledTurn, StoredMessage, Turn, UsageMinute, ViolationMinute,
};

use crate::settings::{Database, Identity, Storage};
pub(crate) use memory::MemoryStore;

pub(crate) enum Store {
    Memory(Box<MemoryStore>),
    Postgresql(Box<slipway_database::Store>),
}

/// A conversation and its messages.
pub(crate) type Conversation = (ConversationSummary, Vec<StoredMessage>);

/// One call, on whichever store it is.
macro_rules! on_either {
    ($self:ident.$call:ident($($argument:expr),*)) => {
        match $self {
            Store::Memory(store) => store.$call($($argument),*),
            Store::Postgresql(store) => store.$call($($argument),*).await,
        }
    };
}

impl Store {
    /// Does not connect yet: a pod starts while the database is down.
    pub(crate) fn open(storage: Storage, identity: &Identity) -> Result<Self, Fault> {
        let Storage::Postgresql(Database { url, password, sslmode, migrate, prepared_statements }) = storage else {
            return Ok(Self::Memory(Box::default()));
        };
        let Identity { agent_id, team, track, run_hash, .. } = identity.clone();
        let run = PodRun { track: track.unwrap_or_default(), hash: run_hash.unwrap_or_default() };
        let options = slipway_database::Options { url, password, sslmode, team, agent_id, migrate, prepared_statements, run };
        slipway_database::Store::open(&options).map(|store| Self::Postgresql(Box::new(store)))
    }

    /// Whether the content outlives the process.
    pub(crate) fn persists(&self) -> bool {
        matches!(self, Self::Postgresql(_))
    }

    pub(crate) fn backend(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Postgresql(_) => "postgresql",
        }
    }

    pub(crate) async fn conversations(
        &self,
        limit: u32,
        cursor: Option<&str>,
        search: Option<&str>,
    ) -> Result<Page<ConversationSummary>, Fault> {
        on_either!(self.conversations(limit, cursor, search))
    }

    pub(crate) async fn conversation(&self, id: &str) -> Result<Option<Conversation>, Fault> {
        on_either!(self.conversation(id))
    }

    /// The newest messages, oldest first.
    pub(crate) async fn history(&self, id: &str, last: u32) -> Result<Vec<StoredMessage>, Fault> {
        on_either!(self.history(id, last))
    }

    pub(crate) async fn delete_conversation(&self, id: &str) -> Result<bool, Fault> {
        on_either!(self.delete_conversation(id))
    }

    /// Stores the message and takes the lease of the conversation, unless another turn has it. Returns the newest messages,
    /// this one included, oldest first.
    pub(crate) async fn begin_turn(&self, turn: &Turn, title: &str, message: NewMessage, latest: u32) -> Result<Vec<StoredMessage>, Fault> {
        on_either!(self.begin_turn(turn, title, message, latest))
    }

    /// Writes the partial answer and renews the lease.
    pub(crate) async fn progress(&self, turn: &Turn, partial: &str) -> Result<(), Fault> {
        on_either!(self.progress(turn, partial))
    }

    /// Stores the messages of a turn and releases the lease.
    pub(crate) async fn finish_turn(&self, turn: &Turn, messages: Vec<NewMessage>) -> Result<(), Fault> {
        on_either!(self.finish_turn(turn, messages))
    }

    pub(crate) async fn generation(&self, id: &str) -> Result<Option<Generation>, Fault> {
        on_either!(self.generation(id))
    }

    pub(crate) async fn set_title(&self, id: &str, title: &str) -> Result<bool, Fault> {
        on_either!(self.set_title(id, title))
    }

    /// Without a database usage is read from `/metrics`.
    pub(crate) async fn record_usage(&self, minutes: &[UsageMinute]) -> Result<(), Fault> {
        let Self::Postgresql(store) = self else { return Ok(()) };
        store.record_usage(minutes).await
    }

    /// Without a database violations are read from `/metrics`.
    pub(crate) async fn record_violations(&self, batch: &[ViolationMinute]) -> Result<(), Fault> {
        let Self::Postgresql(store) = self else { return Ok(()) };
        store.record_violations(batch).await
    }

    /// Leases of what the agent's replicas share.
    pub(crate) async fn lease_budget(&self, request: &BudgetRequest) -> Result<BudgetLease, Fault> {
        let Self::Postgresql(store) = self else { return Err(Fault::Unavailable("there is no database".to_owned())) };
        store.lease_budget(request).await
    }

    /// The results of an evaluation that were written down.
    pub(crate) async fn evaluation_results(&self, run: &str) -> Result<Vec<EvaluationResult>, Fault> {
        let Self::Postgresql(store) = self else { return Ok(Vec::new()) };
        store.evaluation_results(run).await
    }

    /// Writes down the result of a case. Whether it was the first of that case by its digest.
    pub(crate) async fn keep_evaluation_result(&self, run: &str, kept: &EvaluationResult) -> Result<bool, Fault> {
        let Self::Postgresql(store) = self else { return Ok(false) };
        store.keep_evaluation_result(run, kept).await
    }

    /// Deletes the results of an evaluation that are not by the digests of its cases. Returns how many there were.
    pub(crate) async fn delete_other_evaluation_results(&self, run: &str, digests: &[Vec<u8>]) -> Result<u64, Fault> {
        let Self::Postgresql(store) = self else { return Ok(0) };
        store.delete_other_evaluation_results(run, digests).await
    }

    /// Whether one more answer may be scored today; none without a database.
    pub(crate) async fn claim_sample(&self, most: u32) -> Result<bool, Fault> {
        let Self::Postgresql(store) = self else { return Ok(false) };
        store.claim_sample(most).await
    }

    pub(crate) async fn keep_sample(&self, sample: &SampledTurn) -> Result<(), Fault> {
        let Self::Postgresql(store) = self else { return Ok(()) };
        store.keep_sample(sample).await
    }

    pub(crate) async fn memories(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        on_either!(self.memories(limit, cursor))
    }

    pub(crate) async fn remember(&self, memory: NewMemory) -> Result<Remembered, Fault> {
        on_either!(self.remember(memory))
    }

    pub(crate) async fn search_memories(&self, query: &str, embedding: Option<&Embedding>, top: u32) -> Result<Vec<MemoryEntry>, Fault> {
        on_either!(self.search_memories(query, embedding, top))
    }

    pub(crate) async fn forget(&self, id: &str) -> Result<bool, Fault> {
        on_either!(self.forget(id))
    }

    pub(crate) async fn memory_count(&self) -> Result<i64, Fault> {
        on_either!(self.memory_count())
    }
}
