//! Against a real PostgreSQL 18 with pgvector, and a real PgBouncer. Tests that stop the server have one of their
//! own; the others share one and have a database each.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

mod budget;
mod conversations;
mod deletion;
mod deliveries;
mod evaluation;
mod feedback;
mod governance;
mod governance_figures;
mod isolation;
mod knowledge;
mod knowledge_ingestions;
mod knowledge_isolation;
mod knowledge_search;
mod loss;
mod memories;
mod migrations;
mod owners;
mod pgbouncer;
mod plans;
mod reading;
mod sampling;
mod spans;
mod together;
mod usage;

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use slipway_database::{Ensured, Fault, Home, Login, NewMessage, Options, Passwords, PodRun, Role, Store, Tenants, Turn, migrate};
use slipway_peers::Postgres;

pub(crate) static SERVER: LazyLock<Postgres> = LazyLock::new(Postgres::start);
static NEXT: AtomicU32 = AtomicU32::new(0);

/// An empty database on the shared server.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) url: String,
    /// How stores are opened.
    prepared_statements: bool,
}

impl Database {
    pub(crate) fn empty() -> Self {
        let name = format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed));
        SERVER.psql(&format!("create database {name}"));
        let url = SERVER.url_of("postgres", "postgres", &name);
        Self { name, url, prepared_statements: false }
    }

    pub(crate) async fn migrated() -> Self {
        let database = Self::empty();
        migrate(&database.url, None, None).await.unwrap();
        database
    }

    /// One whose stores prepare nothing under a name, and one whose stores do.
    pub(crate) async fn both_ways() -> [Self; 2] {
        [Self::migrated().await, Self { prepared_statements: true, ..Self::migrated().await }]
    }

    /// One agent's door, with the superuser's login.
    pub(crate) fn store(&self, team: &str, agent: &str) -> Store {
        self.open(&self.url, team, agent)
    }

    fn open(&self, url: &str, team: &str, agent: &str) -> Store {
        let prepared_statements = self.prepared_statements;
        Store::open(&Options { prepared_statements, ..options(url, team, agent) }).unwrap()
    }

    pub(crate) fn tenants(&self) -> Tenants {
        Tenants::open(&self.url, None, None).unwrap()
    }

    pub(crate) fn url_of(&self, login: &Login) -> String {
        SERVER.url_of(&login.user, &login.password, &self.name)
    }

    /// One agent's door, with its team's login.
    pub(crate) async fn tenant(&self, team: &str, agent: &str) -> Store {
        let login = self.login(team).await;
        self.open(&self.url_of(&login), team, agent)
    }

    pub(crate) async fn login(&self, team: &str) -> Login {
        login(self.tenants().ensure(&home(team), &passwords(team)).await.unwrap())
    }

    pub(crate) async fn raw(&self, url: &str) -> Raw {
        Raw::connect(url).await
    }
}

pub(crate) fn password(team: &str) -> String {
    format!("a-long-password-of-team-{team}")
}

pub(crate) fn passwords(team: &str) -> Passwords {
    Passwords { own: password(team), before: format!("{}-before", password(team)) }
}

/// A Team that has always been there.
pub(crate) fn home(team: &str) -> Home {
    Home { team: team.into(), uid: format!("uid-of-{team}"), created: 0, adopts: None, cluster: "here".into() }
}

pub(crate) fn login(ensured: Ensured) -> Login {
    match ensured {
        Ensured::Login(login) => login,
        other => panic!("a superuser makes a login, but it is {other:?}"),
    }
}

pub(crate) fn options(url: &str, team: &str, agent: &str) -> Options {
    Options {
        url: url.to_owned(),
        password: None,
        sslmode: None,
        team: team.into(),
        agent_id: agent.into(),
        migrate: false,
        prepared_statements: false,
        run: PodRun::default(),
    }
}

/// A connection that says whatever it likes.
pub(crate) struct Raw(sqlx::PgConnection);

impl Raw {
    pub(crate) async fn connect(url: &str) -> Self {
        Self::try_connect(url).await.unwrap()
    }

    pub(crate) async fn try_connect(url: &str) -> Result<Self, sqlx::Error> {
        use sqlx::Connection;
        Ok(Self(sqlx::PgConnection::connect(url).await?))
    }

    /// Every row's columns as text, or SQLSTATE and message.
    pub(crate) async fn ask(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, String> {
        use sqlx::{Column, Executor, Row, TypeInfo, ValueRef};
        let sql = sqlx::AssertSqlSafe(sql.to_owned());
        let rows = self.0.fetch_all(sqlx::raw_sql(sql)).await.map_err(|error| match error.as_database_error() {
            Some(error) => format!("{} {}", error.code().unwrap_or_default(), error.message()),
            None => error.to_string(),
        })?;
        // The simple protocol gives text, whatever the type.
        let text = |row: &sqlx::postgres::PgRow, column: &sqlx::postgres::PgColumn| {
            let value = row.try_get_raw(column.ordinal()).unwrap();
            let kind = column.type_info().name().to_owned();
            (!value.is_null()).then(|| value.as_str().map_or_else(|_| format!("<{kind}>"), str::to_owned))
        };
        Ok(rows.iter().map(|row| row.columns().iter().map(|column| text(row, column)).collect()).collect())
    }

    pub(crate) async fn one(&mut self, sql: &str) -> String {
        let rows = self.ask(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.first().and_then(|row| row.first()).cloned().flatten().unwrap_or_default()
    }
}

pub(crate) fn user(text: &str) -> NewMessage {
    NewMessage::new(Role::User, text)
}

pub(crate) fn assistant(text: &str) -> NewMessage {
    NewMessage::new(Role::Assistant, text)
}

/// A whole turn.
pub(crate) async fn talk(store: &Store, conversation: &str, question: &str, answer: &str) -> Result<(), Fault> {
    let turn = Turn::new(conversation);
    store.begin_turn(&turn, question, user(question), 0).await?;
    store.finish_turn(&turn, vec![assistant(answer)]).await
}
