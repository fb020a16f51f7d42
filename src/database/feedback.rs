//! What people think of answers. REST writes it, by a function of the database, and the manager reads the cases that come of it. Both
//! send it to MLflow and note what has got there.

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{Work, ask, in_long_time, in_time};
use crate::{Fault, Records, Tenants, id};

/// How many appended cases are read at most. The database keeps as many of an agent, and 4 MiB.
const CASES_MAX: i64 = 500;
/// The most rows of one statement.
const BATCH: i64 = 1_000;
/// How long a new mark is left to the REST that took it, in seconds.
const GRACE_SECONDS: f64 = 5.0;

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

/// A mark that MLflow is to be sent, and on which trace.
#[derive(Clone, Debug, PartialEq)]
pub struct DueFeedback {
    pub team: String,
    pub agent_id: String,
    pub trace: String,
    pub feedback: Feedback,
}

/// A question whose answer was marked badly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppendedCase {
    pub trace: String,
    pub input: String,
}

impl Feedback {
    /// The scale, which follows from the value unless it was given.
    pub fn scale(&self) -> i32 {
        self.scale.unwrap_or(if self.value <= 1.0 { 1 } else { 5 })
    }
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

    /// Notes that MLflow has this mark, so that it is not sent again; false if the login may not. If the mark is another by now that
    /// one is sent.
    pub async fn feedback_delivered(&self, trace: &str, feedback: &Feedback) -> Result<bool, Fault> {
        let key = (&*self.store.team, &*self.store.agent);
        in_time(async { note_delivered(self.writing.begin().await?, key, trace, feedback).await }).await
    }
}

/// Notes that MLflow has a mark, unless it has changed meanwhile; false if the login may not.
async fn note_delivered(mut work: Work, (team, agent): (&str, &str), trace: &str, feedback: &Feedback) -> Result<bool, Fault> {
    const DELIVERED: &str = "SELECT slipway.feedback_delivered($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let Feedback { user, name, value, source, comment, .. } = feedback;
    let asked = ask(DELIVERED).bind(team).bind(agent).bind(trace).bind(user).bind(name);
    match asked.bind(value).bind(feedback.scale()).bind(source).bind(comment).execute(&mut *work).await {
        Err(error) if is_denied(&error) => return Ok(false),
        done => done?,
    };
    work.commit().await?;
    Ok(true)
}

pub(crate) fn is_denied(error: &sqlx::Error) -> bool {
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

    /// Marks that MLflow is to be sent, the oldest first.
    pub async fn due_feedback(&self, limit: u32) -> Result<Vec<DueFeedback>, Fault> {
        const DUE: &str = "
            SELECT team, agent_id, trace_id, user_id, name, value, scale::integer AS scale, source, comment FROM slipway.feedback
            WHERE due_at IS NOT NULL AND due_at < now() - $1 * interval '1 second' ORDER BY due_at LIMIT $2";
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let rows = ask(DUE).bind(GRACE_SECONDS).bind(i64::from(limit)).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(due).collect()
        })
        .await
    }

    /// See [`Records::feedback_delivered`].
    pub async fn feedback_delivered(&self, due: &DueFeedback) -> Result<bool, Fault> {
        let key = (&*due.team, &*due.agent_id);
        in_time(async { note_delivered(self.door.begin().await?, key, &due.trace, &due.feedback).await }).await
    }

    /// Lets a mark wait for about as long as it has waited, between half a minute and a day.
    pub async fn postpone_feedback(&self, due: &DueFeedback) -> Result<(), Fault> {
        const POSTPONE: &str = "
            UPDATE slipway.feedback
            SET due_at = clock_timestamp() + least(greatest(clock_timestamp() - created_at, interval '30 s'), interval '1 day')
            WHERE team = $1 AND agent_id = $2 AND trace_id = $3 AND user_id = $4 AND name = $5 AND due_at IS NOT NULL";
        let DueFeedback { team, agent_id, trace, feedback } = due;
        in_time(async {
            let mut work = self.door.begin().await?;
            let asked = ask(POSTPONE).bind(team).bind(agent_id).bind(trace).bind(&feedback.user).bind(&feedback.name);
            asked.execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// Deletes marks that are older than that, in batches, and returns how many there were. The cases that came of them stay as long
    /// as their conversations.
    pub async fn delete_old_feedback(&self, days: u32) -> Result<u64, Fault> {
        const DELETE: &str = "
            DELETE FROM slipway.feedback WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM slipway.feedback WHERE created_at < now() - $1 * interval '1 day' ORDER BY created_at LIMIT $2))";
        let mut deleted = 0;
        loop {
            let batch = in_long_time(async {
                let mut work = self.door.begin_long().await?;
                let batch = ask(DELETE).bind(f64::from(days)).bind(BATCH).execute(&mut *work).await?.rows_affected();
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

fn due(row: &PgRow) -> Result<DueFeedback, Fault> {
    let trace: String = row.try_get("trace_id")?;
    let feedback = Feedback {
        user: row.try_get("user_id")?,
        trace: Some(trace.clone()),
        name: row.try_get("name")?,
        value: row.try_get("value")?,
        scale: Some(row.try_get("scale")?),
        source: row.try_get("source")?,
        comment: row.try_get("comment")?,
        ..Feedback::default()
    };
    Ok(DueFeedback { team: row.try_get("team")?, agent_id: row.try_get("agent_id")?, trace, feedback })
}
