//! A turn: what the user said, and the answer that is being made to it. One at a time in a conversation, over
//! all replicas; whoever makes it holds a lease, and a dead one's answer is found by whoever comes next.

use std::time::Duration;

use sqlx::Row;

use crate::connection::{ask, in_time};
use crate::conversation::{MESSAGES, TEXT, clean, message, role_name, short_title, time};
use crate::types::{Generation, NewMessage, StoredMessage};
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
    /// Writes down what the user said and takes the conversation, which is made if there is none. Returns the `latest`
    /// messages, this one included, the oldest first.
    ///
    /// [`Fault::Busy`] while another turn is alive. What a dead one left is kept as an interrupted message. May be
    /// repeated with the same turn and message when the answer was lost on the way.
    pub async fn begin_turn(&self, turn: &Turn, title_if_new: &str, user: NewMessage, latest: u32) -> Result<Vec<StoredMessage>, Fault> {
        const BEGIN: &str = "SELECT * FROM slipway.begin_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)";
        check(turn, std::slice::from_ref(&user))?;
        let partial = id::new("msg");
        in_time(async {
            let question = || {
                ask(BEGIN)
                    .bind(&self.team)
                    .bind(&self.agent)
                    .bind(&turn.conversation)
                    .bind(short_title(title_if_new))
                    .bind(&turn.id)
                    .bind(LEASE.as_secs_f64())
                    .bind(&user.id)
                    .bind(clean(&user.content))
                    .bind(user.trace_id.as_deref().map(clean))
                    .bind(&partial)
                    .bind(i64::from(latest).min(MESSAGES))
                    .bind(TEXT)
            };
            let rows = self.one(question).await?;
            if rows.first().map(|row| row.try_get("busy")).transpose()?.unwrap_or_default() {
                return Err(Fault::Busy);
            }
            rows.iter().map(message).collect()
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
        const FINISH: &str = "SELECT slipway.finish_turn($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS outcome";
        check(turn, &messages)?;
        in_time(async {
            let texts = |text: fn(&NewMessage) -> Option<String>| messages.iter().map(text).collect::<Vec<_>>();
            let question = || {
                ask(FINISH)
                    .bind(&self.team)
                    .bind(&self.agent)
                    .bind(&turn.conversation)
                    .bind(&turn.id)
                    .bind(texts(|message| Some(message.id.clone())))
                    .bind(texts(|message| Some(role_name(message.role).to_owned())))
                    .bind(texts(|message| Some(clean(&message.content))))
                    .bind(texts(|message| message.parts.as_ref().map(ToString::to_string)))
                    .bind(texts(|message| message.trace_id.as_deref().map(clean)))
                    .bind(messages.iter().map(|message| message.interrupted).collect::<Vec<_>>())
            };
            let rows = self.one(question).await?;
            let outcome = rows.first().ok_or(sqlx::Error::RowNotFound)?;
            match outcome.try_get("outcome")? {
                "kept" => Ok(()),
                "busy" => Err(Fault::Busy),
                _ => Err(Fault::Refused("the conversation has been deleted".to_owned())),
            }
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
