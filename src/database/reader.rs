//! REST's door: what agents have said and know, one agent's rows at a time, to be read and nothing else.
//!
//! Its login may be one that sees every team's rows, so each question names team and agent, and each transaction is
//! one in which the server lets nothing be written.

use std::fmt;
use std::sync::Arc;

use crate::connection::{Door, settings};
use crate::store::Known;
use crate::types::{ConversationSummary, MemoryEntry, Page, StoredMessage};
use crate::{Fault, Store};

/// The most connections that are held at once.
const MOST: u32 = 2;

#[derive(Clone)]
pub struct Reader {
    door: Arc<Door>,
    schema: Arc<Known>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    /// Connects to nothing yet.
    pub fn open(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<Self, Fault> {
        Ok(Self { door: Arc::new(Door::read_only(settings(url, password, sslmode)?, MOST)), schema: Arc::default() })
    }

    /// What one agent has said and knows, by the ids of its team and its own.
    pub fn of(&self, team: &str, agent_id: &str) -> Result<Records, Fault> {
        Store::within(self.door.clone(), self.schema.clone(), team, agent_id).map(Records)
    }
}

/// One agent's rows.
pub struct Records(Store);

impl Records {
    /// See [`Store::conversations`].
    pub async fn conversations(&self, limit: u32, cursor: Option<&str>, search: Option<&str>) -> Result<Page<ConversationSummary>, Fault> {
        self.0.conversations(limit, cursor, search).await
    }

    /// See [`Store::conversation`].
    pub async fn conversation(&self, id: &str) -> Result<Option<(ConversationSummary, Vec<StoredMessage>)>, Fault> {
        self.0.conversation(id).await
    }

    /// See [`Store::memories`].
    pub async fn memories(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        self.0.memories(limit, cursor).await
    }
}
