//! Violations of policies, by minute and by hour. Runtimes write them in batches, as they write usage.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::connection::{ask, in_time};
use crate::conversation::short;
use crate::types::start_of_minute;
use crate::{Fault, Store};

/// How many conversations of a rule are told apart within a minute.
pub const MAX_CONVERSATIONS: usize = 64;
/// The most rows of one statement.
const BATCH: usize = 1_000;
/// The longest id of a policy, and the longest rule and trace.
const MAX_BYTES: usize = 128;

/// Where a rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    Input,
    Output,
    Limit,
    Tool,
    Model,
}

/// How often one rule was broken within one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViolationMinute {
    pub minute: Timestamp,
    /// The policy's id, `gp_…`.
    pub policy: String,
    /// The rule's type.
    pub rule: String,
    pub stage: Stage,
    pub blocked: bool,
    pub count: i64,
    /// Hashes of the conversations; the first 64 are kept.
    pub conversations: Vec<i64>,
    pub last_trace: Option<String>,
}

impl Stage {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Limit => "limit",
            Self::Tool => "tool",
            Self::Model => "model",
        }
    }

    pub(crate) fn read(text: &str) -> Result<Self, Fault> {
        [Self::Input, Self::Output, Self::Limit, Self::Tool, Self::Model]
            .into_iter()
            .find(|stage| stage.as_str() == text)
            .ok_or_else(|| Fault::Broken("a violation has an unknown stage".to_owned()))
    }
}

impl ViolationMinute {
    pub fn same_key(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    /// Adds another of the same key.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        for conversation in &other.conversations {
            if self.conversations.len() < MAX_CONVERSATIONS && !self.conversations.contains(conversation) {
                self.conversations.push(*conversation);
            }
        }
        if other.last_trace.is_some() {
            self.last_trace.clone_from(&other.last_trace);
        }
    }

    fn key(&self) -> (i64, &str, &str, Stage, bool) {
        (start_of_minute(self.minute).as_second(), &self.policy, &self.rule, self.stage, self.blocked)
    }
}

impl Store {
    /// Adds violations to what is there. All of the batch or none; when a commit's answer is lost on the way, a second try counts twice.
    pub async fn record_violations(&self, batch: &[ViolationMinute]) -> Result<(), Fault> {
        const ADD: &str = "
            WITH broken AS (
                SELECT 'epoch'::timestamptz + m.minute * interval '1 second' AS minute, m.policy, m.rule, m.stage, m.blocked, m.count,
                       m.conversations::bigint[] AS conversations, m.trace
                FROM unnest($5::bigint[], $6::text[], $7::text[], $8::text[], $9::boolean[], $10::bigint[], $11::text[], $12::text[])
                         AS m (minute, policy, rule, stage, blocked, count, conversations, trace)),
            by_hour AS (
                INSERT INTO slipway.violation_hours AS h
                    (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked, count, last_minute, last_trace)
                SELECT $1, $2, b.hour, $3, $4, b.policy, b.rule, b.stage, b.blocked, sum(b.count)::bigint, max(b.minute),
                       (array_agg(b.trace ORDER BY b.minute DESC) FILTER (WHERE b.trace IS NOT NULL))[1]
                FROM (SELECT date_trunc('hour', minute, 'UTC') AS hour, broken.* FROM broken) b
                GROUP BY b.hour, b.policy, b.rule, b.stage, b.blocked ORDER BY b.hour, b.policy, b.rule, b.stage, b.blocked
                ON CONFLICT (team, agent_id, hour, track, run_hash, policy, rule, stage, blocked) DO UPDATE SET
                    count = h.count + excluded.count, last_minute = greatest(h.last_minute, excluded.last_minute),
                    last_trace = CASE WHEN excluded.last_minute < h.last_minute THEN coalesce(h.last_trace, excluded.last_trace)
                                      ELSE coalesce(excluded.last_trace, h.last_trace) END)
            INSERT INTO slipway.policy_violations AS v
                (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked, count, conversations, last_trace)
            SELECT $1, $2, b.minute, $3, $4, b.policy, b.rule, b.stage, b.blocked, b.count, b.conversations, b.trace FROM broken b
            ON CONFLICT (team, agent_id, minute, track, run_hash, policy, rule, stage, blocked) DO UPDATE SET
                count = v.count + excluded.count, last_trace = coalesce(excluded.last_trace, v.last_trace),
                conversations = ARRAY(
                    SELECT c FROM (SELECT c, min(n) AS n FROM unnest(v.conversations || excluded.conversations) WITH ORDINALITY AS u (c, n)
                                   GROUP BY c) told_apart ORDER BY n LIMIT 64)";
        let merged = merge(batch);
        if merged.is_empty() {
            return Ok(());
        }
        in_time(async {
            let (mut work, _) = self.begin().await?;
            for rows in merged.chunks(BATCH) {
                ask(ADD)
                    .bind(&self.team)
                    .bind(&self.agent)
                    .bind(short(&self.run.track, MAX_BYTES))
                    .bind(short(&self.run.hash, MAX_BYTES))
                    .bind(rows.iter().map(|row| row.minute.as_second()).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.policy.clone()).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.rule.clone()).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.stage.as_str()).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.blocked).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.count).collect::<Vec<_>>())
                    .bind(rows.iter().map(conversations).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.last_trace.clone()).collect::<Vec<_>>())
                    .execute(&mut *work)
                    .await?;
            }
            work.commit().await
        })
        .await
    }
}

/// Each key once, in the order of keys, so that two replicas never wait for each other; every text within its bounds.
fn merge(batch: &[ViolationMinute]) -> Vec<ViolationMinute> {
    let mut merged: BTreeMap<(i64, String, String, Stage, bool), ViolationMinute> = BTreeMap::new();
    for row in batch {
        let (policy, rule) = (short(&row.policy, MAX_BYTES), short(&row.rule, MAX_BYTES));
        let key = (start_of_minute(row.minute).as_second(), policy.clone(), rule.clone(), row.stage, row.blocked);
        let empty = || ViolationMinute {
            minute: start_of_minute(row.minute),
            policy,
            rule,
            stage: row.stage,
            blocked: row.blocked,
            count: 0,
            conversations: Vec::new(),
            last_trace: None,
        };
        let known = merged.entry(key).or_insert_with(empty);
        known.add(row);
        known.last_trace = known.last_trace.as_deref().map(|trace| short(trace, MAX_BYTES));
    }
    merged.into_values().collect()
}

/// An array as PostgreSQL writes it: there are no arrays of arrays of different lengths.
fn conversations(row: &ViolationMinute) -> String {
    let hashes: Vec<_> = row.conversations.iter().map(i64::to_string).collect();
    format!("{{{}}}", hashes.join(","))
}
