//! What people think of answers. REST writes it, by one function of the database, and the manager reads the cases that come of it.

use sqlx::Row;

use crate::connection::{ask, in_long_time, in_time};
use crate::{Fault, Records, Tenants, id};

/// For how long marks are kept. The cases that came of them stay as long as their conversations.
const KEPT_DAYS: i32 = 90;
/// How many appended cases are read at most. The database keeps as many of an agent, and 4 MiB.
const CASES_MAX: i64 = 500;
/// The most rows of one statement.
const BATCH: i64 = 1_000;

/// A mark that somebody gives an answer. At least one of `trace` and `message` says which.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Feedback {
    pub user: String,
    pub trace: Option<String>,
    pub message: Option<String>,
    pub conversation: Option<String>,
    pub name: String,
    pub value: f64,
    /// 1 for values from 0 to 1, 5 for values from 1 to 5; without it the value says which.
    pub scale: Option<i32>,
    pub source: Option<String>,
    pub comment: Option<String>,
}

/// What came of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marked {
    Recorded {
        trace: String,
        /// This mark made the question one of the agent's cases.
        appended: bool,
    },
    /// No conversation of this agent has such a trace or message.
    NotFound,
    /// The user has given this answer as many marks of different names as there may be.
    TooMany,
    /// The login may not call the function: it was made before there was one, and an administrator has to grant it.
    NotGranted,
}

/// A question whose answer was marked badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedCase {
    pub trace: String,
    pub input: String,
}

impl Records {
    /// Records a mark, in place of an earlier one of the same user, trace and name.
    pub async fn give_feedback(&self, feedback: &Feedback) -> Result<Marked, Fault> {
        const GIVE: &str =
            "SELECT outcome, marked_trace, appended FROM slipway.give_feedback($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        let Feedback { user, trace, message, conversation, name, value, scale, source, comment } = feedback;
        in_time(async {
            let mut work = self.writing.begin().await?;
            let row = ask(GIVE)
                .bind(&self.store.team)
                .bind(&self.store.agent)
                .bind(&self.uid)
                .bind(user)
                .bind(trace)
                .bind(message)
                .bind(conversation)
                .bind(name)
                .bind(value)
                .bind(scale)
                .bind(source)
                .bind(comment)
                .fetch_one(&mut *work)
                .await;
            let row = match row {
                Err(error) if is_denied(&error) => return Ok(Marked::NotGranted),
                row => row?,
            };
            work.commit().await?;
            let outcome: String = row.try_get("outcome")?;
            Ok(match outcome.as_str() {
                "recorded" => Marked::Recorded { trace: row.try_get("marked_trace")?, appended: row.try_get("appended")? },
                "too_many" => Marked::TooMany,
                _ => Marked::NotFound,
            })
        })
        .await
    }
}

fn is_denied(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(sqlx::error::DatabaseError::code).is_some_and(|code| code == "42501")
}

impl Tenants {
    /// The cases that feedback has appended for the Agent of that UID, the oldest first.
    pub async fn appended_cases(&self, team: &str, agent_id: &str, uid: &str) -> Result<Vec<AppendedCase>, Fault> {
        const CASES: &str = "
            SELECT trace_id, input FROM (
                SELECT trace_id, input, created_at FROM slipway.feedback_cases
                WHERE team = $1 AND agent_id = $2 AND slipway.owned_by($1, $2, $3) ORDER BY created_at DESC, trace_id DESC LIMIT $4) newest
            ORDER BY created_at, trace_id";
        id::check("team", team)?;
        id::check("agent id", agent_id)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let rows = ask(CASES).bind(team).bind(agent_id).bind(uid).bind(CASES_MAX).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(|row| Ok(AppendedCase { trace: row.try_get("trace_id")?, input: row.try_get("input")? })).collect()
        })
        .await
    }

    /// Deletes marks that are older than three months, in batches, and returns how many there were.
    pub async fn delete_old_feedback(&self) -> Result<u64, Fault> {
        const DELETE: &str = "
            DELETE FROM slipway.feedback WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM slipway.feedback WHERE created_at < now() - $1 * interval '1 day' ORDER BY created_at LIMIT $2))";
        let mut deleted = 0;
        loop {
            let batch = in_long_time(async {
                let mut work = self.door.begin_long().await?;
                let batch = ask(DELETE).bind(KEPT_DAYS).bind(BATCH).execute(&mut *work).await?.rows_affected();
                work.commit().await?;
                Ok(batch)
            })
            .await?;
            deleted += batch;
            if batch < BATCH.unsigned_abs() {
                return Ok(deleted);
            }
        }
    }
}
