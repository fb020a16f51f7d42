//! Conversations and what was said in them: listed, read, renamed, deleted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{ask, in_time};
use crate::types::{ConversationSummary, MOST_LISTED, Page, Role, StoredMessage};
use crate::{Fault, Store, id};

/// The most that is read of one conversation: the newest.
pub(crate) const MESSAGES: i64 = 2_000;
/// The most text of one conversation, in bytes, that is read at once: a pod is small.
pub(crate) const TEXT: i64 = 8 * 1024 * 1024;
const TITLE: usize = 200;

const SUMMARY: &str = "id, title, (extract(epoch FROM created_at) * 1000000)::bigint AS created,
    (extract(epoch FROM updated_at) * 1000000)::bigint AS updated, message_count";

impl Store {
    /// The newest first. `search` looks into titles and what was said, without regard to case.
    pub async fn conversations(&self, limit: u32, cursor: Option<&str>, search: Option<&str>) -> Result<Page<ConversationSummary>, Fault> {
        let limit = page(limit)?;
        let (before, before_id) = match cursor {
            Some(cursor) => read_cursor(cursor).map(|(at, id)| (Some(at), Some(id)))?,
            None => (None, None),
        };
        let search = search.map(str::trim).filter(|text| !text.is_empty()).map(clean);
        // In this collation alone the index by age is used, see step 10 of the schema.
        let query = sqlx::AssertSqlSafe(format!(
            "SELECT {SUMMARY} FROM slipway.conversations c
             WHERE team = $1 AND agent_id = $2 AND team COLLATE \"POSIX\" = $1 AND agent_id COLLATE \"POSIX\" = $2
               AND ($3::bigint IS NULL OR (updated_at, id) < ('epoch'::timestamptz + $3 * interval '1 microsecond', $4))
               AND ($5::text IS NULL OR position(lower($5) IN lower(title)) > 0 OR EXISTS (
                   SELECT 1 FROM slipway.messages m
                   WHERE m.team = $1 AND m.agent_id = $2 AND m.conversation_id = c.id AND m.role <> 'tool'
                     AND position(lower($5) IN lower(m.content)) > 0))
             ORDER BY updated_at DESC, id DESC LIMIT $6"
        ));
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let rows = ask(query)
                .bind(&self.team)
                .bind(&self.agent)
                .bind(before)
                .bind(before_id)
                .bind(search)
                .bind(limit + 1)
                .fetch_all(&mut *work)
                .await?;
            work.commit().await?;
            let mut items = rows.iter().map(summary).collect::<Result<Vec<_>, _>>()?;
            let more = items.len() > usize::try_from(limit).unwrap_or(usize::MAX);
            if more {
                items.pop();
            }
            let next_cursor = items.last().filter(|_| more).map(write_cursor);
            Ok(Page { items, next_cursor })
        })
        .await
    }

    /// With its messages, the oldest first; of a very long one the newest 2,000 or 8 MiB.
    pub async fn conversation(&self, conversation_id: &str) -> Result<Option<(ConversationSummary, Vec<StoredMessage>)>, Fault> {
        id::check("conversation id", conversation_id)?;
        let query =
            sqlx::AssertSqlSafe(format!("SELECT {SUMMARY} FROM slipway.conversations WHERE team = $1 AND agent_id = $2 AND id = $3"));
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let found = ask(query).bind(&self.team).bind(&self.agent).bind(conversation_id).fetch_optional(&mut *work).await?;
            let messages = match found {
                Some(_) => self.messages(&mut work, conversation_id, MESSAGES).await?,
                None => Vec::new(),
            };
            work.commit().await?;
            found.as_ref().map(summary).transpose().map(|found| found.map(|summary| (summary, messages)))
        })
        .await
    }

    /// The newest messages, oldest first, for a prompt.
    pub async fn history(&self, conversation_id: &str, last: u32) -> Result<Vec<StoredMessage>, Fault> {
        id::check("conversation id", conversation_id)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let messages = self.messages(&mut work, conversation_id, i64::from(last).min(MESSAGES)).await?;
            work.commit().await?;
            Ok(messages)
        })
        .await
    }

    async fn messages(&self, work: &mut sqlx::PgConnection, conversation_id: &str, last: i64) -> Result<Vec<StoredMessage>, Fault> {
        const NEWEST: &str = "
            SELECT id, role, content, parts::text AS parts, trace_id, interrupted,
                   (extract(epoch FROM created_at) * 1000000)::bigint AS created
            FROM (SELECT *, sum(octet_length(content) + coalesce(octet_length(parts::text), 0)) OVER (ORDER BY ordinal DESC) AS so_far
                  FROM (SELECT * FROM slipway.messages WHERE team = $1 AND agent_id = $2 AND conversation_id = $3
                        ORDER BY ordinal DESC LIMIT $4) newest) sized
            WHERE so_far <= $5
            ORDER BY ordinal";
        let rows = ask(NEWEST).bind(&self.team).bind(&self.agent).bind(conversation_id).bind(last).bind(TEXT).fetch_all(work).await?;
        rows.iter().map(message).collect()
    }

    /// Whether there was one. An answer that is being made for it is lost with it.
    pub async fn delete_conversation(&self, conversation_id: &str) -> Result<bool, Fault> {
        const DELETE: &str = "DELETE FROM slipway.conversations WHERE team = $1 AND agent_id = $2 AND id = $3";
        id::check("conversation id", conversation_id)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let deleted = ask(DELETE).bind(&self.team).bind(&self.agent).bind(conversation_id).execute(&mut *work).await?;
            work.commit().await?;
            Ok(deleted.rows_affected() > 0)
        })
        .await
    }

    /// Whether there was a conversation to name. Its place in the list does not change.
    pub async fn set_title(&self, conversation_id: &str, title: &str) -> Result<bool, Fault> {
        const RENAME: &str = "UPDATE slipway.conversations SET title = $4 WHERE team = $1 AND agent_id = $2 AND id = $3";
        id::check("conversation id", conversation_id)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let renamed =
                ask(RENAME).bind(&self.team).bind(&self.agent).bind(conversation_id).bind(short_title(title)).execute(&mut *work).await?;
            work.commit().await?;
            Ok(renamed.rows_affected() > 0)
        })
        .await
    }
}

/// How many a page may have.
pub(crate) fn page(limit: u32) -> Result<i64, Fault> {
    if (1..=MOST_LISTED).contains(&limit) {
        return Ok(i64::from(limit));
    }
    Err(Fault::Refused(format!("`limit` must be a number, 1 to {MOST_LISTED}")))
}

/// One line of at most 200 characters.
pub(crate) fn short_title(title: &str) -> String {
    let line = clean(title).split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= TITLE {
        return line;
    }
    line.chars().take(TITLE - 1).chain(['…']).collect()
}

/// PostgreSQL's text holds everything but U+0000.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// The longest beginning of a text that fits into this many bytes.
pub(crate) fn short(text: &str, most: usize) -> String {
    let mut text = clean(text);
    text.truncate(text.floor_char_boundary(most));
    text
}

pub(crate) fn time(microseconds: i64) -> Result<Timestamp, Fault> {
    Timestamp::from_microsecond(microseconds).map_err(|_| Fault::Broken("a time is out of range".to_owned()))
}

fn summary(row: &PgRow) -> Result<ConversationSummary, Fault> {
    Ok(ConversationSummary {
        id: row.try_get("id")?,
        title: row.try_get("title")?,
        created_at: time(row.try_get("created")?)?,
        updated_at: time(row.try_get("updated")?)?,
        message_count: row.try_get("message_count")?,
    })
}

pub(crate) fn message(row: &PgRow) -> Result<StoredMessage, Fault> {
    let parts: Option<String> = row.try_get("parts")?;
    let unreadable = |_| Fault::Broken("a message's parts are no JSON".to_owned());
    Ok(StoredMessage {
        id: row.try_get("id")?,
        role: role(row.try_get("role")?)?,
        content: row.try_get("content")?,
        parts: parts.map(|parts| serde_json::from_str(&parts)).transpose().map_err(unreadable)?,
        trace_id: row.try_get("trace_id")?,
        interrupted: row.try_get("interrupted")?,
        created_at: time(row.try_get("created")?)?,
    })
}

fn role(name: &str) -> Result<Role, Fault> {
    match name {
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        "tool" => Ok(Role::Tool),
        _ => Err(Fault::Broken("a message has a role from the future".to_owned())),
    }
}

pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    }
}

/// After which conversation the next page begins; opaque to clients.
fn write_cursor(last: &ConversationSummary) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}:{}", last.updated_at.as_microsecond(), last.id))
}

fn read_cursor(cursor: &str) -> Result<(i64, String), Fault> {
    let read = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
        let (at, id) = text.split_once(':')?;
        let at: i64 = at.parse().ok()?;
        // A time that PostgreSQL knows, too.
        Timestamp::from_microsecond(at).ok()?;
        id::check("conversation id", id).ok()?;
        Some((at, id.to_owned()))
    };
    read().ok_or_else(|| Fault::Refused("the cursor is not one that a page gave".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_written_and_a_strangers_is_refused() {
        let last = ConversationSummary {
            id: "conv_1".into(),
            title: String::new(),
            created_at: Timestamp::UNIX_EPOCH,
            updated_at: Timestamp::from_microsecond(1_234_567).unwrap(),
            message_count: 0,
        };
        assert_eq!(read_cursor(&write_cursor(&last)), Ok((1_234_567, "conv_1".to_owned())));
        for cursor in ["", "MTIz", "%%", &URL_SAFE_NO_PAD.encode("9999999999999999999:x"), &URL_SAFE_NO_PAD.encode("9223372036854775807:x")]
        {
            assert!(read_cursor(cursor).is_err(), "{cursor}");
        }
    }

    #[test]
    fn a_title_is_one_short_line() {
        for (title, short) in [("  a\n b\0 ", "a b\u{fffd}".to_owned()), (&"ä".repeat(300), format!("{}…", "ä".repeat(199)))] {
            assert_eq!(short_title(title), short);
        }
    }
}
