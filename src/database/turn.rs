//! A turn: what the user said, and the answer that is being made to it. One at a time in a conversation, over
//! all replicas; whoever makes it holds a lease, and a dead one's answer is found by whoever comes next.

use std::time::Duration;

use sqlx::{PgConnection, Row};

use crate::connection::{ask, in_time};
use crate::conversation::{clean, role_name, short_title, time};
use crate::types::{Generation, NewMessage, Role};
use crate::{Fault, Store, id};

/// For how long a turn is taken to be alive after the last [`Store::progress`]. Whoever makes an answer calls it
/// more often than this, whether or not there is anything new to tell.
pub const LEASE: Duration = Duration::from_secs(30);
/// The most text of one message, in bytes, and the most of its parts.
pub const LONGEST_MESSAGE: usize = 4 * 1024 * 1024;

/// One turn of a conversation. It holds the lease under its own id, so that of two turns in one process, too, the
/// one that lost its lease to the other is told so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    conversation: String,
    id: String,
}

impl Turn {
    pub fn new(conversation: impl Into<String>) -> Self {
        Self { conversation: conversation.into(), id: id::new("turn") }
    }

    pub fn conversation(&self) -> &str {
        &self.conversation
    }

    pub fn id(&self) -> &str {
        &self.id
    }
}

impl Store {
    /// Writes down what the user said and takes the conversation, which is made if there is none.
    ///
    /// [`Fault::Busy`] while another turn is alive. What a dead one left is kept as an interrupted message. May be
    /// repeated with the same turn and message when the answer was lost on the way.
    pub async fn begin_turn(&self, turn: &Turn, title_if_new: &str, user: NewMessage) -> Result<(), Fault> {
        // The update changes nothing; it locks the row, so that turns of one conversation queue up here.
        const CONVERSATION: &str = "
            INSERT INTO slipway.conversations (team, agent_id, id, title, created_at, updated_at)
            VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp())
            ON CONFLICT (team, agent_id, id) DO UPDATE SET message_count = conversations.message_count
            RETURNING message_count";
        const BEFORE: &str = "
            SELECT holder, partial, lease_until > clock_timestamp() AS alive FROM slipway.turns
            WHERE team = $1 AND agent_id = $2 AND conversation_id = $3";
        const TAKE: &str = "
            INSERT INTO slipway.turns (team, agent_id, conversation_id, holder, since, lease_until)
            VALUES ($1, $2, $3, $4, clock_timestamp(), clock_timestamp() + $5 * interval '1 second')
            ON CONFLICT (team, agent_id, conversation_id) DO UPDATE
            SET holder = excluded.holder, partial = '', since = excluded.since, lease_until = excluded.lease_until";
        let Turn { conversation, id } = turn;
        check(turn, std::slice::from_ref(&user))?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let row = ask(CONVERSATION)
                .bind(&self.team)
                .bind(&self.agent)
                .bind(conversation)
                .bind(short_title(title_if_new))
                .fetch_one(&mut *work)
                .await?;
            let count: i64 = row.try_get("message_count")?;
            let mut messages = vec![user];
            let before = ask(BEFORE).bind(&self.team).bind(&self.agent).bind(conversation).fetch_optional(&mut *work).await?;
            if let Some(before) = before {
                if before.try_get::<&str, _>("holder")? == id && self.are_stored(&mut work, &messages).await? {
                    // A first try has gone through, however long ago.
                    messages.clear();
                } else if before.try_get("alive")? {
                    return Err(work.give_up(Fault::Busy).await);
                } else {
                    let partial: String = before.try_get("partial")?;
                    if !partial.is_empty() {
                        messages.insert(0, NewMessage::new(Role::Assistant, partial).interrupted());
                    }
                }
            }
            self.append(&mut work, conversation, count, &messages).await?;
            ask(TAKE).bind(&self.team).bind(&self.agent).bind(conversation).bind(id).bind(LEASE.as_secs_f64()).execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// Renews the lease and leaves what there is of the answer, for whoever asks [`Store::generation`].
    /// [`Fault::Busy`] when the turn no longer has the conversation.
    pub async fn progress(&self, turn: &Turn, partial: &str) -> Result<(), Fault> {
        const RENEW: &str = "
            UPDATE slipway.turns SET partial = $5, lease_until = clock_timestamp() + $6 * interval '1 second'
            WHERE team = $1 AND agent_id = $2 AND conversation_id = $3 AND holder = $4";
        check(turn, &[])?;
        if partial.len() > LONGEST_MESSAGE {
            return Err(too_long());
        }
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let renewed = ask(RENEW)
                .bind(&self.team)
                .bind(&self.agent)
                .bind(&turn.conversation)
                .bind(&turn.id)
                .bind(clean(partial))
                .bind(LEASE.as_secs_f64())
                .execute(&mut *work)
                .await?;
            work.commit().await?;
            if renewed.rows_affected() == 0 { Err(Fault::Busy) } else { Ok(()) }
        })
        .await
    }

    /// Writes down the answer, with what tools were asked and said on the way, and lets the conversation go.
    /// May be repeated with the same messages.
    ///
    /// A lease that has run out is no obstacle as long as nobody has taken the conversation since: nothing is lost
    /// by being late alone. Once another turn has it, it is [`Fault::Busy`], as the answer would stand after the
    /// next question; [`Fault::Refused`] when the conversation was deleted.
    pub async fn finish_turn(&self, turn: &Turn, messages: Vec<NewMessage>) -> Result<(), Fault> {
        // Two statements: the first may have waited for another turn, whose end only the second then sees.
        const LOCK: &str = "SELECT message_count FROM slipway.conversations WHERE team = $1 AND agent_id = $2 AND id = $3 FOR UPDATE";
        const LET_GO: &str = "DELETE FROM slipway.turns WHERE team = $1 AND agent_id = $2 AND conversation_id = $3 AND holder = $4";
        let Turn { conversation, id } = turn;
        check(turn, &messages)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let found = ask(LOCK).bind(&self.team).bind(&self.agent).bind(conversation).fetch_optional(&mut *work).await?;
            let Some(found) = found else {
                return Err(work.give_up(Fault::Refused("the conversation has been deleted".to_owned())).await);
            };
            let count = found.try_get("message_count")?;
            let let_go = ask(LET_GO).bind(&self.team).bind(&self.agent).bind(conversation).bind(id).execute(&mut *work).await?;
            if let_go.rows_affected() > 0 {
                self.append(&mut work, conversation, count, &messages).await?;
            } else if !self.are_stored(&mut work, &messages).await? {
                return Err(work.give_up(Fault::Busy).await);
            }
            work.commit().await
        })
        .await
    }

    /// `None` for a conversation that is not there. A turn whose lease has run out counts as idle.
    pub async fn generation(&self, conversation_id: &str) -> Result<Option<Generation>, Fault> {
        const STATE: &str = "
            SELECT t.partial, (extract(epoch FROM t.since) * 1000000)::bigint AS since
            FROM slipway.conversations c LEFT JOIN slipway.turns t
              ON t.team = $1 AND t.agent_id = $2 AND t.conversation_id = $3 AND t.lease_until > clock_timestamp()
            WHERE c.team = $1 AND c.agent_id = $2 AND c.id = $3";
        id::check("conversation id", conversation_id)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let row = ask(STATE).bind(&self.team).bind(&self.agent).bind(conversation_id).fetch_optional(&mut *work).await?;
            work.commit().await?;
            let Some(row) = row else { return Ok(None) };
            let partial: Option<String> = row.try_get("partial")?;
            Ok(Some(match partial {
                Some(partial) => Generation::Generating { partial, since: time(row.try_get("since")?)? },
                None => Generation::Idle,
            }))
        })
        .await
    }

    /// Adds messages after the first `count`, in one statement.
    async fn append(&self, work: &mut PgConnection, conversation_id: &str, count: i64, messages: &[NewMessage]) -> Result<(), Fault> {
        const APPEND: &str = "
            WITH added AS (
                INSERT INTO slipway.messages
                    (team, agent_id, conversation_id, ordinal, id, role, content, parts, trace_id, interrupted, created_at)
                SELECT $1, $2, $3, $4 + n, id, role, content, parts::json, trace_id, interrupted, clock_timestamp()
                FROM unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::boolean[])
                    WITH ORDINALITY AS m (id, role, content, parts, trace_id, interrupted, n)
                RETURNING 1)
            UPDATE slipway.conversations SET message_count = $4 + (SELECT count(*) FROM added), updated_at = clock_timestamp()
            WHERE team = $1 AND agent_id = $2 AND id = $3";
        if messages.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = messages.iter().map(|message| message.id.as_str()).collect();
        let roles: Vec<_> = messages.iter().map(|message| role_name(message.role)).collect();
        let contents: Vec<_> = messages.iter().map(|message| clean(&message.content)).collect();
        let parts: Vec<_> = messages.iter().map(|message| message.parts.as_ref().map(ToString::to_string)).collect();
        let traces: Vec<_> = messages.iter().map(|message| message.trace_id.as_deref().map(clean)).collect();
        let interrupted: Vec<_> = messages.iter().map(|message| message.interrupted).collect();
        ask(APPEND)
            .bind(&self.team)
            .bind(&self.agent)
            .bind(conversation_id)
            .bind(count)
            .bind(ids)
            .bind(roles)
            .bind(contents)
            .bind(parts)
            .bind(traces)
            .bind(interrupted)
            .execute(work)
            .await?;
        Ok(())
    }

    /// Whether a first try has gone through whose answer was lost.
    async fn are_stored(&self, work: &mut PgConnection, messages: &[NewMessage]) -> Result<bool, Fault> {
        const STORED: &str = "SELECT count(*) AS stored FROM slipway.messages WHERE team = $1 AND agent_id = $2 AND id = ANY ($3)";
        if messages.is_empty() {
            return Ok(true);
        }
        let ids: Vec<_> = messages.iter().map(|message| message.id.as_str()).collect();
        let row = ask(STORED).bind(&self.team).bind(&self.agent).bind(ids).fetch_one(work).await?;
        let stored: i64 = row.try_get("stored")?;
        Ok(usize::try_from(stored).is_ok_and(|stored| stored == messages.len()))
    }
}

fn check(turn: &Turn, messages: &[NewMessage]) -> Result<(), Fault> {
    id::check("conversation id", &turn.conversation)?;
    for message in messages {
        id::check("message id", &message.id)?;
        let parts = message.parts.as_ref().map_or(0, |parts| parts.to_string().len());
        if message.content.len() > LONGEST_MESSAGE || parts > LONGEST_MESSAGE {
            return Err(too_long());
        }
    }
    Ok(())
}

fn too_long() -> Fault {
    Fault::Refused("a message has at most 4 MiB of text, and as much again in parts".to_owned())
}
