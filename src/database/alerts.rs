//! Alerts of agents. The manager raises, keeps and resolves them; no team's login has a right on the table.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::conversation::time;
use crate::readings::AgentKey;
use crate::{Fault, Tenants};

/// How many traces an alert shows.
pub const MAX_TRACES: usize = 10;

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
        let _ = alerts;
        Err(Fault::Unavailable("not yet".to_owned()))
    }

    /// Resolves alerts by their ids. Returns how many were open.
    pub async fn resolve_alerts(&self, ids: &[String]) -> Result<u64, Fault> {
        let _ = ids;
        Err(Fault::Unavailable("not yet".to_owned()))
    }

    /// All open alerts, of every team; 10,000 at most, the oldest first.
    pub async fn open_alerts(&self) -> Result<Vec<Alert>, Fault> {
        Err(Fault::Unavailable("not yet".to_owned()))
    }
}
