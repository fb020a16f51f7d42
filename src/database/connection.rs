//! How the server is reached: by few connections, opened by the first question and closed when idle.
//!
//! Every question is one transaction, and no statement is prepared under a name, so that a PgBouncer in
//! transaction mode may stand in between. Limits travel with the transaction (`SET LOCAL`), never with the
//! session, which is not ours then. With [`Options::prepared_statements`] a question of one statement is one round
//! trip, and sets its limits itself.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow, PgSslMode};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, Postgres, SqlSafeStr, SqlStr};
use url::Url;

use crate::Fault;
use crate::pool::Pool;
pub(crate) use crate::pool::Work;

/// How long one statement may take, told to the server, and where it looks for what a statement names: not in public,
/// where many a server lets everybody create operators, which would be run with our login's rights. What is ours is
/// named with its schema.
const STATEMENT: &str =
    "BEGIN; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '2s'";
/// The same where nothing is to be written.
const READING: &str =
    "BEGIN READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = '3s'; SET LOCAL lock_timeout = '2s'";
/// The same for work in the background, in batches.
const LONG: &str =
    "BEGIN; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '10s'";
/// How long a whole question may take: what tells of a server that has gone without a word.
const QUESTION: Duration = Duration::from_millis(3_800);
const LONG_QUESTION: Duration = Duration::from_secs(75);
/// How many prepared statements a connection keeps; a turn has two.
const PREPARED: usize = 8;

/// Where an agent's rows are, and whose they are.
#[derive(Clone)]
pub struct Options {
    /// `postgresql://user@host:5432/database`, with or without a password.
    pub url: String,
    /// Takes the place of a password in the URL.
    pub password: Option<String>,
    /// Takes the place of the URL's `sslmode`: `disable`, `allow`, `prefer`, `require`, `verify-ca`, `verify-full`.
    pub sslmode: Option<String>,
    /// The team's id, as `RUNTIME_TEAM` has it.
    pub team: String,
    pub agent_id: String,
    /// Whether the first connection makes or mends the schema. Only for a database of the agent's own: the
    /// platform's is migrated by the manager.
    pub migrate: bool,
    /// Whether the server, or what stands before it, keeps statements under their names for as long as a connection.
    pub prepared_statements: bool,
    /// What usage is counted for.
    pub run: PodRun,
}

/// What a pod runs, as far as it was told.
#[derive(Clone, Debug, Default)]
pub struct PodRun {
    pub track: String,
    pub hash: String,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, password: _, sslmode, team, agent_id, migrate, prepared_statements, run } = self;
        f.debug_struct("Options")
            .field("sslmode", sslmode)
            .field("team", team)
            .field("agent_id", agent_id)
            .field("migrate", migrate)
            .field("prepared_statements", prepared_statements)
            .field("run", run)
            .finish_non_exhaustive()
    }
}

/// The settings of a connection, from a URL. What is wrong with a URL is said without quoting it.
pub(crate) fn settings(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<PgConnectOptions, Fault> {
    const LOOKS: &str = "it should look like postgresql://user@host:5432/database";
    let url = Url::parse(url.trim()).map_err(|error| Fault::Refused(format!("the database URL cannot be read: {error}; {LOOKS}")))?;
    if !matches!(url.scheme(), "postgresql" | "postgres") {
        return Err(Fault::Refused(format!("the database URL begins with another scheme; {LOOKS}")));
    }
    let mut settings = PgConnectOptions::from_url(&url)
        .map_err(|_| Fault::Refused("the database URL has a parameter with a value that cannot be read, such as its sslmode".to_owned()))?;
    if let Some(password) = password {
        settings = settings.password(password);
    }
    if let Some(mode) = sslmode {
        let mode: PgSslMode = mode
            .parse()
            .map_err(|_| Fault::Refused("sslmode is one of disable, allow, prefer, require, verify-ca, verify-full".to_owned()))?;
        settings = settings.ssl_mode(mode);
    }
    // `extra_float_digits` is a start-up parameter that PgBouncer refuses, and the default of PostgreSQL 12 and
    // later is exact. Statements stay out of the log, as callers' words would be in them.
    Ok(settings.statement_cache_capacity(0).extra_float_digits(None).application_name("slipway").disable_statement_logging())
}

/// A server, a login, and how a transaction begins there.
pub(crate) struct Door {
    most: u32,
    /// How a transaction begins.
    beginning: SqlStr,
    /// The same for work in the background.
    long_beginning: SqlStr,
    prepared: bool,
    pool: Pool,
}

impl Door {
    pub(crate) fn new(settings: PgConnectOptions, most: u32) -> Self {
        Self {
            pool: Pool::new(settings, most),
            most,
            beginning: STATEMENT.into_sql_str(),
            long_beginning: LONG.into_sql_str(),
            prepared: false,
        }
    }

    /// One through which nothing is written.
    pub(crate) fn read_only(settings: PgConnectOptions, most: u32) -> Self {
        Self { beginning: READING.into_sql_str(), ..Self::new(settings, most) }
    }

    /// One whose transactions set more than limits. The statements are not a caller's words.
    pub(crate) fn with_statements(self, statements: &str) -> Self {
        let more = |beginning: &SqlStr| AssertSqlSafe(Arc::<str>::from(format!("{}; {statements}", beginning.as_str()))).into_sql_str();
        Self { beginning: more(&self.beginning), long_beginning: more(&self.long_beginning), ..self }
    }

    pub(crate) fn with_prepared_statements(self, prepared: bool) -> Self {
        let kept = if prepared { PREPARED } else { 0 };
        Self { pool: Pool::new(self.settings().clone().statement_cache_capacity(kept), self.most), prepared, ..self }
    }

    pub(crate) fn user(&self) -> &str {
        self.settings().get_username()
    }

    pub(crate) fn settings(&self) -> &PgConnectOptions {
        self.pool.settings()
    }

    /// One statement that is a transaction of its own, that limits itself how long it waits, and that may be repeated.
    /// Its rows are taken one by one, beginning with `none`.
    pub(crate) async fn one<'q, T>(
        &self,
        question: impl Fn() -> Question<'q>,
        none: impl Fn() -> T,
        take: impl Fn(&mut T, PgRow) -> Result<(), Fault>,
    ) -> Result<T, Fault> {
        let mut answer = none();
        if !self.prepared {
            let mut work = self.begin().await?;
            let mut rows = question().fetch(&mut *work);
            while let Some(row) = rows.try_next().await? {
                take(&mut answer, row)?;
            }
            drop(rows);
            work.commit().await?;
            return Ok(answer);
        }
        let mut dead = 0;
        loop {
            let mut work = self.reach().await?;
            let mut rows = question().persistent(true).fetch(&mut *work);
            let end = loop {
                match rows.try_next().await {
                    Ok(Some(row)) => take(&mut answer, row)?,
                    end => break end,
                }
            };
            drop(rows);
            match end {
                Ok(_) => {
                    work.put_back();
                    return Ok(answer);
                }
                Err(error) if dead < self.most && is_dead(&error) => (dead, answer) = (dead + 1, none()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A transaction in one round trip: its beginning, a statement, its end. The statement's values are part of its words, so that
    /// they are the caller's to quote; its rows come as text.
    pub(crate) async fn script<T>(
        &self,
        statement: &str,
        none: impl Fn() -> T,
        take: impl Fn(&mut T, PgRow) -> Result<(), Fault>,
    ) -> Result<T, Fault> {
        let words = AssertSqlSafe(Arc::<str>::from(format!("{}; {statement}; COMMIT", self.beginning.as_str()))).into_sql_str();
        let mut dead = 0;
        loop {
            let mut answer = none();
            let mut work = self.reach().await?;
            let mut rows = work.fetch(sqlx::raw_sql(words.clone()));
            let end = loop {
                match rows.try_next().await {
                    Ok(Some(row)) => take(&mut answer, row)?,
                    end => break end,
                }
            };
            drop(rows);
            match end {
                Ok(_) => {
                    work.put_back();
                    return Ok(answer);
                }
                Err(error) if dead < self.most && is_dead(&error) => dead += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A connection. Whether one that was idle still lives, the first question tells, which is asked anew if not.
    async fn reach(&self) -> Result<Work, Fault> {
        Ok(self.pool.acquire().await?)
    }

    pub(crate) async fn begin(&self) -> Result<Work, Fault> {
        self.begin_with(&self.beginning).await
    }

    pub(crate) async fn begin_long(&self) -> Result<Work, Fault> {
        self.begin_with(&self.long_beginning).await
    }

    async fn begin_with(&self, statements: &SqlStr) -> Result<Work, Fault> {
        let mut dead = 0;
        loop {
            let mut work = self.reach().await?;
            match work.execute(sqlx::raw_sql(statements.clone())).await {
                Ok(_) => return Ok(work),
                Err(error) if dead < self.most && is_dead(&error) => dead += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Whether the connection was closed, in most cases before the server read the question.
fn is_dead(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        // It was told to end, or has lost another of its processes.
        sqlx::Error::Database(error) => matches!(error.code().as_deref(), Some("57P01" | "57P02")),
        _ => false,
    }
}

pub(crate) type Question<'q> = Query<'q, Postgres, PgArguments>;

/// A statement that is prepared without a name: a PgBouncer gives the connection that has the name to others.
pub(crate) fn ask<'q>(sql: impl SqlSafeStr) -> Question<'q> {
    sqlx::query(sql).persistent(false)
}

/// A question's answer, or that none came in time. On the heap: what waits for an answer is large, and callers hold
/// many of them, mostly not yet begun.
pub(crate) fn in_time<'a, T: 'a>(question: impl Future<Output = Result<T, Fault>> + Send + 'a) -> Answer<'a, T> {
    Box::pin(limited(QUESTION, Box::pin(question)))
}

pub(crate) fn in_long_time<'a, T: 'a>(question: impl Future<Output = Result<T, Fault>> + Send + 'a) -> Answer<'a, T> {
    Box::pin(limited(LONG_QUESTION, Box::pin(question)))
}

type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, Fault>> + Send + 'a>>;

async fn limited<T>(limit: Duration, question: Answer<'_, T>) -> Result<T, Fault> {
    match tokio::time::timeout(limit, question).await {
        Ok(answer) => answer,
        Err(_) => Err(Fault::Unavailable(format!("no answer within {:.1} s", limit.as_secs_f64()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_url_is_described_and_not_quoted() {
        for (url, says) in [
            ("db:5432/app", "scheme"),
            ("mysql://u:hunter2@h/d", "scheme"),
            ("postgresql://u:hunter2@h:port/d", "cannot be read"),
            ("postgresql://u:hunter2@h/d?sslmode=hunter2", "parameter"),
            ("", "cannot be read"),
        ] {
            let fault = settings(url, None, None).unwrap_err().to_string();
            assert!(fault.contains(says) && !fault.contains("hunter2"), "{url}: {fault}");
        }
        let fault = settings("postgresql://u@h/d", None, Some("hunter2")).unwrap_err().to_string();
        assert!(fault.contains("verify-full") && !fault.contains("hunter2"), "{fault}");
    }

    #[test]
    fn options_do_not_show_a_password() {
        let options = Options {
            url: "postgresql://u:hunter2@h/d?password=hunter2".into(),
            password: Some("hunter2".into()),
            sslmode: None,
            team: "default".into(),
            agent_id: "ag_1".into(),
            migrate: false,
            prepared_statements: false,
            run: PodRun::default(),
        };
        assert!(!format!("{options:?}").contains("hunter2"));
    }
}
