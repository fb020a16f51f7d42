//! A runtime's door: one agent's rows. Each question is a transaction of its own and is answered, or refused,
//! within four seconds.

use std::sync::{Arc, Mutex, PoisonError};

use sqlx::Row;
use tokio::task::JoinHandle;

use crate::batch::{Batches, Whose};
use crate::connection::{Door, Options, PodRun, Work, ask, in_time, settings};
use crate::migrate::{MINIMUM, Migrated, migrate_with};
use crate::turn::{Beginning, TurnEnd};
use crate::{Fault, id};

/// The version of the schema from which on usage has `measured` and what goes with it.
const MEASURES: i32 = 14;
/// From which on it has traces.
const TRACES: i32 = 16;

pub struct Store {
    pub(crate) door: Arc<Door>,
    pub(crate) team: String,
    pub(crate) agent: String,
    pub(crate) run: PodRun,
    pub(crate) beginnings: Batches<Beginning>,
    pub(crate) ends: Batches<TurnEnd>,
    schema: Arc<Known>,
    migration: tokio::sync::Mutex<Migration>,
}

/// What was found of the schema at the first question.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    /// The schema of the extension vector, quoted, when there are vectors to search in.
    pub(crate) vectors: Option<String>,
    /// Whether usage has the columns of step 14.
    pub(crate) measures: bool,
    /// Whether it has those of step 16.
    pub(crate) traces: bool,
}

/// The schema, once it has been looked at.
pub(crate) type Known = Mutex<Option<Schema>>;

enum Migration {
    NotOurs,
    Owed,
    Running(JoinHandle<Result<Migrated, Fault>>),
    Done,
}

impl Store {
    /// Connects to nothing yet.
    pub fn open(options: &Options) -> Result<Self, Fault> {
        let settings = settings(&options.url, options.password.as_deref(), options.sslmode.as_deref())?;
        let door = Door::new(settings, 2).with_prepared_statements(options.prepared_statements);
        let store = Self::within(Arc::new(door), Arc::default(), &options.team, &options.agent_id)?;
        let migration = if options.migrate { Migration::Owed } else { Migration::NotOurs };
        Ok(Self { run: options.run.clone(), migration: tokio::sync::Mutex::new(migration), ..store })
    }

    /// One agent's rows, behind a door that others share.
    pub(crate) fn within(door: Arc<Door>, schema: Arc<Known>, team: &str, agent: &str) -> Result<Self, Fault> {
        id::check("team", team)?;
        id::check("agent id", agent)?;
        let migration = tokio::sync::Mutex::new(Migration::NotOurs);
        let whose = || Whose { team: team.to_owned(), agent: agent.to_owned() };
        let (beginnings, ends) = (Batches::new(Arc::clone(&door), whose()), Batches::new(Arc::clone(&door), whose()));
        Ok(Self { door, team: team.to_owned(), agent: agent.to_owned(), run: PodRun::default(), beginnings, ends, schema, migration })
    }

    /// Whether a question would be answered now.
    pub async fn ping(&self) -> Result<(), Fault> {
        in_time(async { self.begin().await?.0.commit().await }).await
    }

    /// Whether memories are searched by their vectors. `None` until a first question has been answered.
    pub fn has_vectors(&self) -> Option<bool> {
        self.known_schema().map(|schema| schema.vectors.is_some())
    }

    /// A transaction, on a schema that this runtime can work with.
    pub(crate) async fn begin(&self) -> Result<(Work, Schema), Fault> {
        if let Some(schema) = self.known_schema() {
            return Ok((self.door.begin().await?, schema));
        }
        self.migrated().await?;
        let mut work = self.door.begin().await?;
        let schema = look(&mut work).await?;
        *self.schema.lock().unwrap_or_else(PoisonError::into_inner) = Some(schema.clone());
        Ok((work, schema))
    }

    /// Finds out once whether this runtime can work with the schema.
    pub(crate) async fn check_schema(&self) -> Result<(), Fault> {
        if self.known_schema().is_none() {
            self.begin().await?.0.commit().await?;
        }
        Ok(())
    }

    /// Has the schema looked at again: it may have been migrated since.
    pub(crate) fn forget_schema(&self) {
        *self.schema.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn known_schema(&self) -> Option<Schema> {
        self.schema.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Migrates a database of the agent's own. It goes on when the question that began it has been given up.
    async fn migrated(&self) -> Result<(), Fault> {
        let mut migration = self.migration.lock().await;
        if matches!(*migration, Migration::Owed) {
            *migration = Migration::Running(tokio::spawn(migrate_with(self.door.settings().clone())));
        }
        let Migration::Running(task) = &mut *migration else { return Ok(()) };
        let outcome = task.await.unwrap_or_else(|_| Err(Fault::Unavailable("this process is ending".to_owned())));
        *migration = if outcome.is_ok() { Migration::Done } else { Migration::Owed };
        let migrated = outcome?;
        tracing::info!(from = migrated.from, to = migrated.to, vectors = %migrated.vectors, "the agent's own database has been migrated");
        Ok(())
    }
}

async fn look(work: &mut Work) -> Result<Schema, Fault> {
    const FOUND: &str = "
        SELECT (SELECT coalesce(max(version), 0) FROM slipway.migrations) AS version,
               (SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
                WHERE e.extname = 'vector' AND to_regclass('slipway.memory_vectors') IS NOT NULL) AS vectors";
    let row = ask(FOUND).fetch_one(&mut **work).await?;
    let version: i32 = row.try_get("version")?;
    if version < MINIMUM {
        return Err(Fault::Unavailable(format!(
            "its schema has version {version} and this runtime needs {MINIMUM}; the manager migrates it"
        )));
    }
    Ok(Schema { vectors: row.try_get("vectors")?, measures: version >= MEASURES, traces: version >= TRACES })
}
