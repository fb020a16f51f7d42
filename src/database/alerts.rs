//! Alerts of agents. The manager raises, keeps and resolves them; no team's login has a right on the table.

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{ask, in_time};
use crate::conversation::{short, time};
use crate::readings::AgentKey;
use crate::{Fault, Tenants, id};

/// How many traces an alert shows.
pub const MAX_TRACES: usize = 10;
const MAX_NAME_BYTES: usize = 128;
const MAX_MESSAGE_BYTES: usize = 1_024;
const MAX_OPEN: i64 = 10_000;
/// The most rows of one statement.
const BATCH: usize = 1_000;

/// What is wrong now, as a pass of the manager found it. One alert is open for each agent, metric and policy.
#[derive(Clone, Debug, PartialEq)]
pub struct RaisedAlert {
    pub agent: AgentKey,
    pub metric: String,
    /// Empty if it is no policy's.
    pub policy: String,
    /// `warning` or `critical`.
    pub severity: String,
    pub message: String,
    pub value: Option<f64>,
    pub threshold: Option<f64>,
    pub traces: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// `al_` and a ULID.
    pub id: String,
    pub agent: AgentKey,
    pub metric: String,
    pub policy: String,
    pub severity: String,
    pub message: String,
    pub value: Option<f64>,
    pub threshold: Option<f64>,
    pub traces: Vec<String>,
    pub created_at: Timestamp,
    pub last_seen: Timestamp,
    pub resolved_at: Option<Timestamp>,
}

/// An alert as it is in the database now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAlert {
    pub id: String,
    /// It was raised by this call.
    pub is_new: bool,
    pub created_at: Timestamp,
}

impl Alert {
    pub(crate) fn read(row: &PgRow) -> Result<Self, Fault> {
        let resolved: Option<i64> = row.try_get("resolved")?;
        Ok(Self {
            id: row.try_get("id")?,
            agent: AgentKey { team: row.try_get("team")?, agent_id: row.try_get("agent_id")?, uid: row.try_get("uid")? },
            metric: row.try_get("metric")?,
            policy: row.try_get("policy")?,
            severity: row.try_get("severity")?,
            message: row.try_get("message")?,
            value: row.try_get("value")?,
            threshold: row.try_get("threshold")?,
            traces: row.try_get("traces")?,
            created_at: time(row.try_get("created")?)?,
            last_seen: time(row.try_get("seen")?)?,
            resolved_at: resolved.map(time).transpose()?,
        })
    }
}

impl Tenants {
    /// Raises alerts, or notes that those which are open already go on; in the order in which they are named.
    pub async fn raise_alerts(&self, alerts: &[RaisedAlert]) -> Result<Vec<KeptAlert>, Fault> {
        const RAISE: &str = "
            INSERT INTO slipway.alerts AS a
                (team, agent_id, uid, id, metric, policy, severity, message, value, threshold, traces, created_at, last_seen)
            SELECT r.team, r.agent_id, r.uid, r.id, r.metric, r.policy, r.severity, r.message, r.value, r.threshold,
                   ARRAY(SELECT json_array_elements_text(r.traces::json)), clock_timestamp(), clock_timestamp()
            FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::float8[],
                        $10::float8[], $11::text[])
                     AS r (team, agent_id, uid, id, metric, policy, severity, message, value, threshold, traces)
            ON CONFLICT (team, agent_id, uid, metric, policy) WHERE resolved_at IS NULL DO UPDATE SET
                severity = excluded.severity, message = excluded.message, value = excluded.value, threshold = excluded.threshold,
                traces = CASE WHEN excluded.traces = '{}' THEN a.traces ELSE excluded.traces END, last_seen = excluded.last_seen
            RETURNING team, agent_id, uid, metric, policy, id, (extract(epoch FROM created_at) * 1000000)::bigint AS created";
        // Each key once, and in the order of keys.
        let once: BTreeMap<_, _> = alerts.iter().map(|alert| (key(alert), (id::new("al"), alert))).collect();
        let mut kept = HashMap::new();
        for batch in once.values().collect::<Vec<_>>().chunks(BATCH) {
            let texts = |text: fn(&RaisedAlert) -> &str, most| batch.iter().map(|(_, alert)| short(text(alert), most)).collect::<Vec<_>>();
            let rows = in_time(async {
                let mut work = self.door.begin().await?;
                let rows = ask(RAISE)
                    .bind(texts(|alert| &alert.agent.team, MAX_NAME_BYTES))
                    .bind(texts(|alert| &alert.agent.agent_id, MAX_NAME_BYTES))
                    .bind(texts(|alert| &alert.agent.uid, MAX_NAME_BYTES))
                    .bind(batch.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>())
                    .bind(texts(|alert| &alert.metric, MAX_NAME_BYTES))
                    .bind(texts(|alert| &alert.policy, MAX_NAME_BYTES))
                    .bind(texts(|alert| &alert.severity, MAX_NAME_BYTES))
                    .bind(texts(|alert| &alert.message, MAX_MESSAGE_BYTES))
                    .bind(batch.iter().map(|(_, alert)| alert.value).collect::<Vec<_>>())
                    .bind(batch.iter().map(|(_, alert)| alert.threshold).collect::<Vec<_>>())
                    .bind(batch.iter().map(|(_, alert)| traces(alert)).collect::<Vec<_>>())
                    .fetch_all(&mut *work)
                    .await?;
                work.commit().await?;
                Ok(rows)
            })
            .await?;
            for row in &rows {
                let key: [String; 5] =
                    [row.try_get("team")?, row.try_get("agent_id")?, row.try_get("uid")?, row.try_get("metric")?, row.try_get("policy")?];
                kept.insert(key, (row.try_get::<String, _>("id")?, time(row.try_get("created")?)?));
            }
        }
        let answer = |alert: &RaisedAlert| {
            let key = key(alert);
            let (id, created_at) = kept.get(&key).cloned().ok_or_else(|| Fault::Broken("an alert was not kept".to_owned()))?;
            Ok(KeptAlert { is_new: once.get(&key).is_some_and(|(new, _)| *new == id), id, created_at })
        };
        alerts.iter().map(answer).collect()
    }

    /// Resolves alerts by their ids. Returns how many were open.
    pub async fn resolve_alerts(&self, ids: &[String]) -> Result<u64, Fault> {
        const RESOLVE: &str = "UPDATE slipway.alerts SET resolved_at = clock_timestamp() WHERE id = ANY ($1) AND resolved_at IS NULL";
        in_time(async {
            let mut work = self.door.begin().await?;
            let resolved = ask(RESOLVE).bind(ids).execute(&mut *work).await?.rows_affected();
            work.commit().await?;
            Ok(resolved)
        })
        .await
    }

    /// All open alerts, of every team; 10,000 at most, the oldest first. What was set aside for an Agent to come has none.
    pub async fn open_alerts(&self) -> Result<Vec<Alert>, Fault> {
        self.open_alerts_after("").await
    }

    /// The same, of those that come after this id.
    pub async fn open_alerts_after(&self, id: &str) -> Result<Vec<Alert>, Fault> {
        const OPEN: &str = "
            SELECT id, team, agent_id, uid, metric, policy, severity, message, value, threshold, traces,
                   (extract(epoch FROM created_at) * 1000000)::bigint AS created, (extract(epoch FROM last_seen) * 1000000)::bigint AS seen,
                   NULL::bigint AS resolved
            FROM slipway.alerts WHERE resolved_at IS NULL AND id > $2 ORDER BY id LIMIT $1";
        in_time(async {
            let mut work = self.door.begin().await?;
            let rows = ask(OPEN).bind(MAX_OPEN).bind(id).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(Alert::read).collect()
        })
        .await
    }
}

fn key(alert: &RaisedAlert) -> [String; 5] {
    let AgentKey { team, agent_id, uid } = &alert.agent;
    [team, agent_id, uid, &alert.metric, &alert.policy].map(|part| short(part, MAX_NAME_BYTES))
}

fn traces(alert: &RaisedAlert) -> String {
    let traces: Vec<_> = alert.traces.iter().take(MAX_TRACES).map(|trace| short(trace, MAX_NAME_BYTES)).collect();
    serde_json::Value::from(traces).to_string()
}
