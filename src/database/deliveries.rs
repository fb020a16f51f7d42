//! Messages about alerts that are to reach integrations: a queue, from which the manager that leads takes what is due. Each integration
//! has a message of an alert once, and gets those of one alert in their order. No team's login has a right on the table.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{Door, ask, in_long_time, in_time};
use crate::conversation::{short, time};
use crate::{Fault, Tenants};

/// How long a payload may be.
pub const MAX_PAYLOAD_BYTES: usize = 8_192;
const MAX_ERROR_BYTES: usize = 512;
/// The most rows of one statement: two integrations hear of a thousand agents at once.
const BATCH: usize = 2_000;
/// How many rows one integration has among those that are due, and how many there are in all.
const DUE_OF_ONE: i64 = 20;
const DUE: i64 = 160;

/// What has become of an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AlertStage {
    Raised,
    /// It is more severe than it was.
    Risen,
    Resolved,
}

impl AlertStage {
    /// In their order.
    pub const ALL: [Self; 3] = [Self::Raised, Self::Risen, Self::Resolved];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raised => "raised",
            Self::Risen => "risen",
            Self::Resolved => "resolved",
        }
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let found = Self::ALL.into_iter().find(|stage| stage.as_str() == text);
        found.ok_or_else(|| Fault::Broken("a message is about an unknown stage of an alert".to_owned()))
    }
}

/// A message that an integration is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    pub team: String,
    pub agent_id: String,
    /// The UID of the Integration.
    pub integration: String,
    pub alert_id: String,
    pub stage: AlertStage,
    pub message_id: String,
    /// JSON of [`MAX_PAYLOAD_BYTES`] at most. Several integrations are sent the same.
    pub payload: Arc<str>,
    /// How many may wait for the integration, this one included.
    pub most: i64,
}

/// A message that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub team: String,
    pub agent_id: String,
    pub integration: String,
    pub alert_id: String,
    pub stage: AlertStage,
    pub message_id: String,
    pub payload: String,
    pub created_at: Timestamp,
    /// How often it was sent in vain.
    pub attempts: i32,
}

/// What came of an attempt that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Postponed {
    pub error: String,
    pub wait: Duration,
    /// Whether anything was sent.
    pub is_attempt: bool,
}

/// How an integration stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    pub integration: String,
    pub count: i64,
    /// When the oldest message that waits was written.
    pub oldest: Option<Timestamp>,
    /// Since when none has arrived, if the last attempt failed.
    pub failing_since: Option<Timestamp>,
    /// Why the last attempt failed, of those that wait.
    pub last_error: Option<String>,
    /// When the last one arrived, and when the last one was given up.
    pub arrived: Option<Timestamp>,
    pub given_up: Option<Timestamp>,
}

/// A message that has waited for too long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenUp {
    pub integration: String,
    pub agent_id: String,
    pub alert_id: String,
    pub stage: AlertStage,
    pub last_error: Option<String>,
}

/// The queue, through the door of [`Tenants`].
pub struct Deliveries<'a>(&'a Door);

impl Tenants {
    /// Messages about alerts that are to reach integrations.
    pub fn deliveries(&self) -> Deliveries<'_> {
        Deliveries(&self.door)
    }
}

impl Deliveries<'_> {
    /// Adds messages to the queue. What an integration has already, delivered or not, stays as it is; the end of an alert is added for
    /// those that were to hear of it before. Returns how many messages there was no room for, by integration.
    pub async fn enqueue(&self, messages: &[NewDelivery]) -> Result<Vec<(String, i64)>, Fault> {
        const ENQUEUE: &str = "
            WITH wanted AS (
                SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[])
                    WITH ORDINALITY AS w (team, agent_id, integration, alert_id, stage, message_id, payload, most, place)),
            fresh AS (
                SELECT w.*, row_number() OVER (PARTITION BY w.integration ORDER BY w.place) AS nth FROM wanted w
                WHERE NOT EXISTS (
                          SELECT FROM slipway.alert_deliveries d
                          WHERE d.team = w.team AND d.agent_id = w.agent_id AND d.integration = w.integration AND d.alert_id = w.alert_id
                            AND (d.stage = w.stage OR w.stage = 'raised'))
                  AND (w.stage <> 'resolved' OR EXISTS (
                          SELECT FROM slipway.alert_deliveries d
                          WHERE d.team = w.team AND d.agent_id = w.agent_id AND d.integration = w.integration AND d.alert_id = w.alert_id))),
            counted AS (
                SELECT i.integration, (SELECT count(*) FROM slipway.alert_deliveries d
                                       WHERE d.integration = i.integration AND d.ended_at IS NULL) AS waiting
                FROM (SELECT DISTINCT integration FROM fresh) i),
            kept AS (
                INSERT INTO slipway.alert_deliveries
                    (team, agent_id, integration, alert_id, stage, message_id, payload, created_at, due_at)
                SELECT f.team, f.agent_id, f.integration, f.alert_id, f.stage, f.message_id, f.payload, now(), now()
                FROM fresh f JOIN counted c USING (integration) WHERE c.waiting + f.nth <= f.most
                ON CONFLICT DO NOTHING)
            SELECT f.integration, count(*) AS dropped FROM fresh f JOIN counted c USING (integration)
            WHERE c.waiting + f.nth > f.most GROUP BY f.integration ORDER BY f.integration";
        // One that is too long, which none is, must not keep the others.
        let (fitting, long): (Vec<_>, Vec<_>) = messages.iter().partition(|message| message.payload.len() <= MAX_PAYLOAD_BYTES);
        if !long.is_empty() {
            tracing::error!(messages = long.len(), "messages about alerts are too long to be kept");
        }
        let mut dropped: Vec<(String, i64)> = long.iter().map(|message| (message.integration.clone(), 1)).collect();
        for batch in fitting.chunks(BATCH) {
            let texts = |text: fn(&NewDelivery) -> &str| batch.iter().map(|message| text(message).to_owned()).collect::<Vec<_>>();
            let rows = in_time(async {
                let mut work = self.0.begin().await?;
                let rows = ask(ENQUEUE)
                    .bind(texts(|message| &message.team))
                    .bind(texts(|message| &message.agent_id))
                    .bind(texts(|message| &message.integration))
                    .bind(texts(|message| &message.alert_id))
                    .bind(texts(|message| message.stage.as_str()))
                    .bind(texts(|message| &message.message_id))
                    .bind(texts(|message| &message.payload))
                    .bind(batch.iter().map(|message| message.most).collect::<Vec<i64>>())
                    .fetch_all(&mut *work)
                    .await?;
                work.commit().await?;
                Ok(rows)
            })
            .await?;
            for row in &rows {
                dropped.push((row.try_get("integration")?, row.try_get("dropped")?));
            }
        }
        Ok(dropped)
    }

    /// Messages of these integrations that are due, of one team after the other, and those first that have been for longest. Of each alert
    /// there is the first alone that has not ended; of each integration there are a few.
    pub async fn due(&self, integrations: &[String]) -> Result<Vec<Delivery>, Fault> {
        const DUE_NOW: &str = "
            SELECT m.team, m.agent_id, m.integration, m.alert_id, m.stage, m.message_id, m.payload, m.attempts,
                   (extract(epoch FROM m.created_at) * 1000000)::bigint AS created
            FROM (
                SELECT found.*, row_number() OVER (PARTITION BY found.team ORDER BY found.due_at, found.alert_id, found.integration) AS turn
                FROM unnest($1::text[]) AS i (integration), LATERAL (
                    SELECT d.team, d.agent_id, d.integration, d.alert_id, d.stage, d.due_at FROM slipway.alert_deliveries d
                    WHERE d.integration = i.integration AND d.ended_at IS NULL AND d.due_at <= now()
                      AND NOT EXISTS (
                          SELECT FROM slipway.alert_deliveries e
                          WHERE e.team = d.team AND e.agent_id = d.agent_id AND e.integration = d.integration AND e.alert_id = d.alert_id
                            AND e.ended_at IS NULL
                            AND ((e.stage = 'raised' AND d.stage <> 'raised') OR (e.stage = 'risen' AND d.stage = 'resolved')))
                    ORDER BY d.due_at, d.alert_id LIMIT $2) found
                ORDER BY turn, found.due_at, found.alert_id, found.integration LIMIT $3) f
            JOIN slipway.alert_deliveries m
              ON m.team = f.team AND m.agent_id = f.agent_id AND m.integration = f.integration AND m.alert_id = f.alert_id AND m.stage = f.stage
            ORDER BY f.turn, f.due_at, f.alert_id, f.integration";
        in_time(async {
            let mut work = self.0.begin().await?;
            let rows = ask(DUE_NOW).bind(integrations).bind(DUE_OF_ONE).bind(DUE).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(Delivery::read).collect()
        })
        .await
    }

    /// Notes that a message has arrived. What was sent is not kept.
    pub async fn delivered(&self, message: &Delivery) -> Result<(), Fault> {
        const DELIVERED: &str = "
            UPDATE slipway.alert_deliveries
            SET ended_at = clock_timestamp(), tried_at = clock_timestamp(), attempts = attempts + 1, last_error = NULL, payload = ''
            WHERE team = $1 AND agent_id = $2 AND integration = $3 AND alert_id = $4 AND stage = $5 AND ended_at IS NULL";
        let Delivery { team, agent_id, integration, alert_id, stage, .. } = message;
        in_time(async {
            let mut work = self.0.begin().await?;
            let asked = ask(DELIVERED).bind(team).bind(agent_id).bind(integration).bind(alert_id).bind(stage.as_str());
            asked.execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// Lets a message wait that did not arrive.
    pub async fn failed(&self, message: &Delivery, postponed: &Postponed) -> Result<(), Fault> {
        const FAILED: &str = "
            UPDATE slipway.alert_deliveries
            SET attempts = attempts + $6::integer, failed_at = coalesce(failed_at, clock_timestamp()), tried_at = clock_timestamp(),
                last_error = $7, due_at = clock_timestamp() + $8 * interval '1 second'
            WHERE team = $1 AND agent_id = $2 AND integration = $3 AND alert_id = $4 AND stage = $5 AND ended_at IS NULL";
        let Delivery { team, agent_id, integration, alert_id, stage, .. } = message;
        let Postponed { error, wait, is_attempt } = postponed;
        in_time(async {
            let mut work = self.0.begin().await?;
            let asked = ask(FAILED).bind(team).bind(agent_id).bind(integration).bind(alert_id).bind(stage.as_str());
            let asked = asked.bind(i32::from(*is_attempt)).bind(short(error, MAX_ERROR_BYTES)).bind(wait.as_secs_f64());
            asked.execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// Ends a message that will never arrive.
    pub async fn give_up(&self, message: &Delivery, error: &str) -> Result<(), Fault> {
        const GIVE_UP: &str = "
            UPDATE slipway.alert_deliveries
            SET ended_at = clock_timestamp(), tried_at = clock_timestamp(), attempts = attempts + 1, last_error = $6, gave_up = true,
                payload = ''
            WHERE team = $1 AND agent_id = $2 AND integration = $3 AND alert_id = $4 AND stage = $5 AND ended_at IS NULL";
        let Delivery { team, agent_id, integration, alert_id, stage, .. } = message;
        in_time(async {
            let mut work = self.0.begin().await?;
            let asked = ask(GIVE_UP).bind(team).bind(agent_id).bind(integration).bind(alert_id).bind(stage.as_str());
            asked.bind(short(error, MAX_ERROR_BYTES)).execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// Ends messages of these integrations that have waited for so long.
    pub async fn give_up_older(&self, integrations: &[String], than: Duration) -> Result<Vec<GivenUp>, Fault> {
        const GIVE_UP: &str = "
            UPDATE slipway.alert_deliveries SET ended_at = clock_timestamp(), gave_up = true, payload = ''
            WHERE integration = ANY ($1) AND ended_at IS NULL AND created_at < now() - $2 * interval '1 second'
            RETURNING integration, agent_id, alert_id, stage, last_error";
        in_long_time(async {
            let mut work = self.0.begin_long().await?;
            let rows = ask(GIVE_UP).bind(integrations).bind(than.as_secs_f64()).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(GivenUp::read).collect()
        })
        .await
    }

    /// Makes those messages of these integrations due at once that would be within so long: they may arrive now.
    pub async fn hasten(&self, integrations: &[String], within: Duration) -> Result<(), Fault> {
        const HASTEN: &str = "
            UPDATE slipway.alert_deliveries SET due_at = clock_timestamp()
            WHERE integration = ANY ($1) AND ended_at IS NULL AND due_at > clock_timestamp()
              AND due_at <= clock_timestamp() + $2 * interval '1 second'";
        in_long_time(async {
            let mut work = self.0.begin_long().await?;
            ask(HASTEN).bind(integrations).bind(within.as_secs_f64()).execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// How these integrations stand, in their order.
    pub async fn waiting(&self, integrations: &[String]) -> Result<Vec<Waiting>, Fault> {
        const WAITING: &str = "
            SELECT i.integration, w.count, (extract(epoch FROM w.oldest) * 1000000)::bigint AS oldest, w.error,
                   (extract(epoch FROM CASE WHEN w.tried > coalesce(e.arrived, '-infinity') THEN greatest(w.failed, e.arrived) END)
                    * 1000000)::bigint AS failing,
                   (extract(epoch FROM e.arrived) * 1000000)::bigint AS arrived, (extract(epoch FROM e.given_up) * 1000000)::bigint AS given_up
            FROM unnest($1::text[]) WITH ORDINALITY AS i (integration, place), LATERAL (
                SELECT count(*) AS count, min(d.created_at) AS oldest, min(d.failed_at) AS failed, max(d.tried_at) AS tried,
                       (array_agg(d.last_error ORDER BY d.tried_at DESC) FILTER (WHERE d.tried_at IS NOT NULL))[1] AS error
                FROM slipway.alert_deliveries d WHERE d.integration = i.integration AND d.ended_at IS NULL) w, LATERAL (
                SELECT (SELECT max(d.ended_at) FROM slipway.alert_deliveries d
                        WHERE d.integration = i.integration AND NOT d.gave_up AND d.ended_at IS NOT NULL) AS arrived,
                       (SELECT max(d.ended_at) FROM slipway.alert_deliveries d
                        WHERE d.integration = i.integration AND d.gave_up AND d.ended_at IS NOT NULL) AS given_up) e
            ORDER BY i.place";
        in_time(async {
            let mut work = self.0.begin().await?;
            let rows = ask(WAITING).bind(integrations).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(Waiting::read).collect()
        })
        .await
    }

    /// Deletes messages that wait for integrations which are gone.
    pub async fn forget(&self, integrations: &[String]) -> Result<u64, Fault> {
        const FORGET: &str = "DELETE FROM slipway.alert_deliveries WHERE integration = ANY ($1) AND ended_at IS NULL";
        in_long_time(async {
            let mut work = self.0.begin_long().await?;
            let deleted = ask(FORGET).bind(integrations).execute(&mut *work).await?.rows_affected();
            work.commit().await?;
            Ok(deleted)
        })
        .await
    }
}

impl Delivery {
    fn read(row: &PgRow) -> Result<Self, Fault> {
        Ok(Self {
            team: row.try_get("team")?,
            agent_id: row.try_get("agent_id")?,
            integration: row.try_get("integration")?,
            alert_id: row.try_get("alert_id")?,
            stage: AlertStage::parse(row.try_get("stage")?)?,
            message_id: row.try_get("message_id")?,
            payload: row.try_get("payload")?,
            created_at: time(row.try_get("created")?)?,
            attempts: row.try_get("attempts")?,
        })
    }
}

impl GivenUp {
    fn read(row: &PgRow) -> Result<Self, Fault> {
        Ok(Self {
            integration: row.try_get("integration")?,
            agent_id: row.try_get("agent_id")?,
            alert_id: row.try_get("alert_id")?,
            stage: AlertStage::parse(row.try_get("stage")?)?,
            last_error: row.try_get("last_error")?,
        })
    }
}

impl Waiting {
    fn read(row: &PgRow) -> Result<Self, Fault> {
        Ok(Self {
            integration: row.try_get("integration")?,
            count: row.try_get("count")?,
            oldest: at(row, "oldest")?,
            failing_since: at(row, "failing")?,
            last_error: row.try_get("error")?,
            arrived: at(row, "arrived")?,
            given_up: at(row, "given_up")?,
        })
    }
}

fn at(row: &PgRow, column: &str) -> Result<Option<Timestamp>, Fault> {
    let microseconds: Option<i64> = row.try_get(column)?;
    microseconds.map(time).transpose()
}
