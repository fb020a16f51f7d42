//! REST's door: what agents have said and know, one agent's rows at a time.
//!
//! Its login may be one that sees every team's rows, so each question names team and agent, and each transaction is
//! one in which the server lets nothing be written. The one exception is `feedback`, which calls a function of the
//! database through a connection of its own.

use std::fmt;
use std::sync::Arc;

use sqlx::Row;

use crate::connection::{Door, ask, in_time, settings};
use crate::store::Known;
use crate::types::{ConversationSummary, MemoryEntry, Page, StoredMessage};
use crate::{Fault, Readings, Store};

const MAX_CONNECTIONS: u32 = 2;
const MAX_WRITING_CONNECTIONS: u32 = 1;
/// Of the team and the agent whose rows a ping does not read.
const NOBODY: (&str, &str) = ("tk_platform", "ag_platform");
/// What is read, and the functions that are run, as docs/rest.md lists them.
const TABLES: [&str; 5] = ["migrations", "conversations", "messages", "memories", "sampled_scores"];
const FUNCTIONS: [&str; 7] =
    ["team", "give_feedback", "feedback_delivered", "usage_since", "violations_since", "readiness_since", "alerts_of"];
/// The names among them that are there and closed to the login. What an older schema lacks, it does not deny.
const DENIED: &str = "
    SELECT ARRAY(
        SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = 'slipway' AND c.relname = ANY ($1::text[]) AND NOT has_table_privilege(c.oid, 'SELECT')
        UNION
        SELECT p.proname::text FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'slipway' AND p.proname = ANY ($2::text[]) AND NOT has_function_privilege(p.oid, 'EXECUTE')
        ORDER BY 1) AS denied";

#[derive(Clone)]
pub struct Reader {
    door: Arc<Door>,
    schema: Arc<Known>,
    /// For feedback, and nothing else.
    writing: Arc<Door>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    /// Connects to nothing yet.
    pub fn open(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<Self, Fault> {
        let settings = settings(url, password, sslmode)?;
        let writing = Arc::new(Door::new(settings.clone(), MAX_WRITING_CONNECTIONS));
        Ok(Self { door: Arc::new(Door::read_only(settings, MAX_CONNECTIONS)), schema: Arc::default(), writing })
    }

    /// What one Agent has said and knows, by the ids of its team and its own, and its UID: nothing while rows of an
    /// earlier Agent lie under its id.
    pub fn of(&self, team: &str, agent_id: &str, uid: &str) -> Result<Records, Fault> {
        let store = Store::within(self.door.clone(), self.schema.clone(), team, agent_id)?;
        Ok(Records { store, uid: uid.to_owned(), writing: self.writing.clone() })
    }
}

impl Reader {
    /// Whether questions of all kinds would be answered now: the schema is one to work with, and the login may read and run all
    /// that REST does.
    pub async fn ping(&self) -> Result<(), Fault> {
        in_time(async {
            let (mut work, _) = Store::within(self.door.clone(), Arc::default(), NOBODY.0, NOBODY.1)?.begin().await?;
            let row = ask(DENIED)
                .bind(TABLES.map(str::to_owned).to_vec())
                .bind(FUNCTIONS.map(str::to_owned).to_vec())
                .fetch_one(&mut *work)
                .await?;
            work.commit().await?;
            let denied: Vec<String> = row.try_get("denied")?;
            if denied.is_empty() {
                return Ok(());
            }
            Err(Fault::Refused(format!(
                "this login may not use slipway.{}; docs/rest.md has what it has to be granted",
                denied.join(", slipway.")
            )))
        })
        .await
    }

    /// What is read of many agents at once.
    pub fn readings(&self) -> Readings<'_> {
        Readings(&self.door)
    }
}

/// One Agent's rows.
pub struct Records {
    pub(crate) store: Store,
    pub(crate) uid: String,
    pub(crate) writing: Arc<Door>,
}

impl Records {
    /// See [`Store::conversations`].
    pub async fn conversations(&self, limit: u32, cursor: Option<&str>, search: Option<&str>) -> Result<Page<ConversationSummary>, Fault> {
        let page = self.store.conversations(limit, cursor, search).await?;
        Ok(if self.are_its_own().await? { page } else { nothing() })
    }

    /// See [`Store::conversation`].
    pub async fn conversation(&self, id: &str) -> Result<Option<(ConversationSummary, Vec<StoredMessage>)>, Fault> {
        let found = self.store.conversation(id).await?;
        Ok(if found.is_some() && self.are_its_own().await? { found } else { None })
    }

    /// See [`Store::memories`].
    pub async fn memories(&self, limit: u32, cursor: Option<&str>) -> Result<Page<MemoryEntry>, Fault> {
        let page = self.store.memories(limit, cursor).await?;
        Ok(if self.are_its_own().await? { page } else { nothing() })
    }

    /// Asked after the rows have been read: an id that is a later Agent's has none of an earlier one any more.
    async fn are_its_own(&self) -> Result<bool, Fault> {
        in_time(async {
            let (mut work, _) = self.store.begin().await?;
            let known = "SELECT to_regprocedure('slipway.owned_by(text, text, text)') IS NOT NULL AS known";
            // Until the manager has migrated the database, rows go by names.
            let mut own = true;
            if ask(known).fetch_one(&mut *work).await?.try_get("known")? {
                let asked = ask("SELECT slipway.owned_by($1, $2, $3) AS own");
                let row = asked.bind(&self.store.team).bind(&self.store.agent).bind(&self.uid).fetch_one(&mut *work).await?;
                own = row.try_get("own")?;
            }
            work.commit().await?;
            Ok(own)
        })
        .await
    }
}

fn nothing<T>() -> Page<T> {
    Page { items: Vec::new(), next_cursor: None }
}
