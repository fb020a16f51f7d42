//! A turn: what the user said, and the answer that is being made to it. One at a time in a conversation, over
//! all replicas; the replica that makes it holds a lease, and the next holder finds what a dead one has left of its answer.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::batch::{BatchStep, Whose};
use crate::connection::{Question, ask, in_time};
use crate::conversation::{MESSAGES, TEXT, clean, message, role_name, short_title, time};
use crate::types::{Generation, NewMessage, StoredMessage};
use crate::{Fault, Store, id};

/// How long a turn counts as alive after the last [`Store::progress`], which its holder calls more often than this, with or
/// without new text.
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
    ///
    /// The server does not wait for its disk: the turn's end does, for both. Should it crash within the second, it has
    /// forgotten the beginning, and the end is [`Fault::Busy`] or [`Fault::Refused`].
    pub async fn begin_turn(&self, turn: &Turn, title_if_new: &str, user: NewMessage, latest: u32) -> Result<Vec<StoredMessage>, Fault> {
        check(turn)?;
        let beginning = Beginning {
            turn: turn.clone(),
            title: short_title(title_if_new),
            said: Written::new(user)?,
            partial_id: id::new("msg"),
            latest: i64::from(latest).min(MESSAGES),
        };
        in_time(async {
            self.check_schema().await?;
            self.beginnings.ask(beginning).await
        })
        .await
    }

    /// Renews the lease and writes the partial answer, which [`Store::generation`] reads.
    /// [`Fault::Busy`] when the turn no longer has the conversation.
    pub async fn progress(&self, turn: &Turn, partial: &str) -> Result<(), Fault> {
        const RENEW: &str = "
            UPDATE slipway.turns SET partial = $5, lease_until = clock_timestamp() + $6 * interval '1 second'
            WHERE team = $1 AND agent_id = $2 AND conversation_id = $3 AND holder = $4";
        check(turn)?;
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
        check(turn)?;
        let messages = messages.into_iter().map(Written::new).collect::<Result<_, _>>()?;
        in_time(async {
            self.check_schema().await?;
            self.ends.ask(TurnEnd { turn: turn.clone(), messages }).await
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

/// A message as it is written down.
struct Written {
    id: String,
    role: &'static str,
    content: String,
    parts: Option<String>,
    trace: Option<String>,
    interrupted: bool,
}

impl Written {
    fn new(message: NewMessage) -> Result<Self, Fault> {
        id::check("message id", &message.id)?;
        let parts = message.parts.map(|parts| parts.to_string());
        if message.content.len().max(parts.as_ref().map_or(0, String::len)) > LONGEST_MESSAGE {
            return Err(too_long());
        }
        let trace = message.trace_id.as_deref().map(clean);
        let (role, content) = (role_name(message.role), clean(&message.content));
        Ok(Self { id: message.id, role, content, parts, trace, interrupted: message.interrupted })
    }

    fn bytes(&self) -> usize {
        self.content.len() + self.parts.as_ref().map_or(0, String::len)
    }
}

pub(crate) struct Beginning {
    turn: Turn,
    title: String,
    said: Written,
    partial_id: String,
    latest: i64,
}

impl BatchStep for Beginning {
    type Answer = Vec<StoredMessage>;

    fn bytes(&self) -> usize {
        self.said.bytes()
    }

    fn key(&self) -> &str {
        &self.turn.conversation
    }

    fn question<'q>(steps: &'q [Self], whose: &'q Whose, lock_timeout: &'static str) -> Question<'q> {
        // The team comes from where the settings are made, so that they are made first.
        const BEGIN: &str = "
            SELECT t.nth, b.*
            FROM (SELECT $1 AS team, pg_catalog.set_config('synchronous_commit', 'off', true),
                         pg_catalog.set_config('lock_timeout', $13, true)) AS first,
                 unnest($3, $4, $5, $6, $7, $8, $9, $10)
                     WITH ORDINALITY AS t (conversation, title, turn, said_id, said, trace, partial_id, latest, nth),
                 LATERAL slipway.take_turn(first.team, $2, t.conversation, t.title, t.turn, $11, t.said_id, t.said, t.trace, t.partial_id,
                                            t.latest, $12) AS b";
        let texts = |text: fn(&Self) -> &str| steps.iter().map(text).collect::<Vec<_>>();
        ask(BEGIN)
            .bind(&whose.team)
            .bind(&whose.agent)
            .bind(texts(|step| &step.turn.conversation))
            .bind(texts(|step| &step.title))
            .bind(texts(|step| &step.turn.id))
            .bind(texts(|step| &step.said.id))
            .bind(texts(|step| &step.said.content))
            .bind(steps.iter().map(|step| step.said.trace.as_deref()).collect::<Vec<_>>())
            .bind(texts(|step| &step.partial_id))
            .bind(steps.iter().map(|step| step.latest).collect::<Vec<_>>())
            .bind(LEASE.as_secs_f64())
            .bind(TEXT)
            .bind(lock_timeout)
    }

    fn take(answer: &mut Result<Self::Answer, Fault>, row: &PgRow) -> Result<(), Fault> {
        match answer {
            _ if row.try_get("busy")? => *answer = Err(Fault::Busy),
            Ok(messages) => messages.push(message(row)?),
            Err(_) => {}
        }
        Ok(())
    }
}

/// What a turn came to.
pub(crate) struct TurnEnd {
    turn: Turn,
    messages: Vec<Written>,
}

impl BatchStep for TurnEnd {
    type Answer = ();

    fn bytes(&self) -> usize {
        self.messages.iter().map(Written::bytes).sum()
    }

    fn key(&self) -> &str {
        &self.turn.conversation
    }

    fn question<'q>(steps: &'q [Self], whose: &'q Whose, lock_timeout: &'static str) -> Question<'q> {
        const FINISH: &str = "
            SELECT t.nth, slipway.end_turn(first.team, $2, t.conversation, t.turn,
                                              said.ids, said.roles, said.contents, said.parts, said.traces, said.breaks) AS outcome
            FROM (SELECT $1 AS team, pg_catalog.set_config('lock_timeout', $12, true)) AS first,
                 unnest($3, $4) WITH ORDINALITY AS t (conversation, turn, nth),
                 LATERAL (SELECT coalesce(pg_catalog.array_agg(m.id), '{}') AS ids, pg_catalog.array_agg(m.role) AS roles,
                                 pg_catalog.array_agg(m.content) AS contents, pg_catalog.array_agg(m.parts) AS parts,
                                 pg_catalog.array_agg(m.trace) AS traces, pg_catalog.array_agg(m.interrupted) AS breaks
                          FROM unnest($5, $6, $7, $8, $9, $10, $11) AS m (nth, id, role, content, parts, trace, interrupted)
                          WHERE m.nth OPERATOR(pg_catalog.=) t.nth) said";
        let messages = || (1_i64..).zip(steps).flat_map(|(nth, step)| step.messages.iter().map(move |message| (nth, message)));
        let texts = |text: fn(&Written) -> &str| messages().map(|(_, message)| text(message)).collect::<Vec<_>>();
        let some = |text: fn(&Written) -> Option<&str>| messages().map(|(_, message)| text(message)).collect::<Vec<_>>();
        ask(FINISH)
            .bind(&whose.team)
            .bind(&whose.agent)
            .bind(steps.iter().map(|step| &*step.turn.conversation).collect::<Vec<_>>())
            .bind(steps.iter().map(|step| &*step.turn.id).collect::<Vec<_>>())
            .bind(messages().map(|(nth, _)| nth).collect::<Vec<_>>())
            .bind(texts(|message| &message.id))
            .bind(texts(|message| message.role))
            .bind(texts(|message| &message.content))
            .bind(some(|message| message.parts.as_deref()))
            .bind(some(|message| message.trace.as_deref()))
            .bind(messages().map(|(_, message)| message.interrupted).collect::<Vec<_>>())
            .bind(lock_timeout)
    }

    fn take(answer: &mut Result<(), Fault>, row: &PgRow) -> Result<(), Fault> {
        *answer = match row.try_get("outcome")? {
            "kept" => Ok(()),
            "busy" => Err(Fault::Busy),
            _ => Err(Fault::Refused("the conversation has been deleted".to_owned())),
        };
        Ok(())
    }
}

fn check(turn: &Turn) -> Result<(), Fault> {
    id::check("conversation id", &turn.conversation)
}

fn too_long() -> Fault {
    Fault::Refused("a message has at most 4 MiB of text, and as much again in parts".to_owned())
}
