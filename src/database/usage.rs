//! Usage by minute and by what ran: batches of it are added to what is there, in one statement.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sqlx::Row;

use crate::connection::{Work, ask, in_time};
use crate::conversation::{clean, short};
use crate::types::{LATENCY_BUCKETS, UsageMinute, start_of_minute};
use crate::{Fault, Store};

/// The most rows of one statement: two models and a day. Within one statement rows are locked in the order of keys, minutes before sums.
const BATCH: usize = 4_000;
/// The longest trace.
const MAX_TRACE_BYTES: usize = 128;

const ADD: &str = "
    INSERT INTO slipway.usage_by_run AS u
        (team, agent_id, minute, track, run_hash, provider, model, requests, errors, input_tokens, output_tokens, cost_micros,
         guard_blocks, pii, injections, violations, latency)
    SELECT $1, $2, 'epoch'::timestamptz + m.minute * interval '1 second', $8, $9, m.provider, m.model,
           m.counts[1], m.counts[2], m.counts[3], m.counts[4], m.counts[5], m.counts[6], m.counts[7], m.counts[8], m.counts[9],
           m.counts[16:]
    FROM (SELECT minute, provider, model, ($6::bigint[])[(n - 1) * $7 + 1 : n * $7] AS counts
          FROM unnest($3::bigint[], $4::text[], $5::text[]) WITH ORDINALITY AS t (minute, provider, model, n)) m
    ON CONFLICT (team, agent_id, minute, track, run_hash, provider, model) DO UPDATE SET
        requests = u.requests + excluded.requests, errors = u.errors + excluded.errors,
        input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens,
        cost_micros = u.cost_micros + excluded.cost_micros, guard_blocks = u.guard_blocks + excluded.guard_blocks,
        pii = u.pii + excluded.pii, injections = u.injections + excluded.injections,
        violations = u.violations + excluded.violations,
        latency = (SELECT array_agg(coalesce(a, 0) + coalesce(b, 0) ORDER BY i)
                   FROM unnest(u.latency, excluded.latency) WITH ORDINALITY AS l (a, b, i))";
/// From step 14 of the schema on.
const ADD_MEASURED: &str = "
    INSERT INTO slipway.usage_by_run AS u
        (team, agent_id, minute, track, run_hash, provider, model, requests, errors, input_tokens, output_tokens, cost_micros,
         guard_blocks, pii, injections, violations, measured, latency_ms, audited, retrieved, cited, unpriced, cancelled,
         latency)
    SELECT $1, $2, 'epoch'::timestamptz + m.minute * interval '1 second', $8, $9, m.provider, m.model,
           m.counts[1], m.counts[2], m.counts[3], m.counts[4], m.counts[5], m.counts[6], m.counts[7], m.counts[8], m.counts[9],
           m.counts[1], m.counts[10], m.counts[11], m.counts[12], m.counts[13], m.counts[14], m.counts[15], m.counts[16:]
    FROM (SELECT minute, provider, model, ($6::bigint[])[(n - 1) * $7 + 1 : n * $7] AS counts
          FROM unnest($3::bigint[], $4::text[], $5::text[]) WITH ORDINALITY AS t (minute, provider, model, n)) m
    ON CONFLICT (team, agent_id, minute, track, run_hash, provider, model) DO UPDATE SET
        requests = u.requests + excluded.requests, errors = u.errors + excluded.errors,
        input_tokens = u.input_tokens + excluded.input_tokens, output_tokens = u.output_tokens + excluded.output_tokens,
        cost_micros = u.cost_micros + excluded.cost_micros, guard_blocks = u.guard_blocks + excluded.guard_blocks,
        pii = u.pii + excluded.pii, injections = u.injections + excluded.injections,
        violations = u.violations + excluded.violations, measured = coalesce(u.measured, 0) + excluded.measured,
        latency_ms = coalesce(u.latency_ms, 0) + excluded.latency_ms, audited = coalesce(u.audited, 0) + excluded.audited,
        retrieved = coalesce(u.retrieved, 0) + excluded.retrieved, cited = coalesce(u.cited, 0) + excluded.cited,
        unpriced = coalesce(u.unpriced, 0) + excluded.unpriced, cancelled = coalesce(u.cancelled, 0) + excluded.cancelled,
        latency = (SELECT array_agg(coalesce(a, 0) + coalesce(b, 0) ORDER BY i)
                   FROM unnest(u.latency, excluded.latency) WITH ORDINALITY AS l (a, b, i))";

impl Store {
    /// Adds to what was used. All of the batch or none; when a commit's answer is lost on the way, a second try
    /// counts twice.
    pub async fn record_usage(&self, batch: &[UsageMinute]) -> Result<(), Fault> {
        let merged = merge(batch)?;
        if merged.is_empty() {
            return Ok(());
        }
        in_time(async {
            let (mut work, schema) = self.begin().await?;
            let add = if schema.measures { ADD_MEASURED } else { ADD };
            if !schema.traces {
                self.forget_schema();
            }
            for rows in merged.chunks(BATCH) {
                let minutes: Vec<_> = rows.iter().map(|row| start_of_minute(row.minute).as_second()).collect();
                let providers: Vec<_> = rows.iter().map(|row| clean(&row.provider)).collect();
                let models: Vec<_> = rows.iter().map(|row| clean(&row.model)).collect();
                let counts: Vec<_> = rows.iter().flat_map(counts).collect();
                ask(add)
                    .bind(&self.team)
                    .bind(&self.agent)
                    .bind(minutes)
                    .bind(providers)
                    .bind(models)
                    .bind(counts)
                    .bind(WIDTH)
                    .bind(clean(&self.run.track))
                    .bind(clean(&self.run.hash))
                    .execute(&mut *work)
                    .await?;
                if schema.traces {
                    self.note_traces(&mut work, rows).await?;
                }
            }
            work.commit().await
        })
        .await
    }

    /// Few minutes have any, so that these are a statement of their own, about rows that are there and locked.
    async fn note_traces(&self, work: &mut Work, rows: &[UsageMinute]) -> Result<(), Fault> {
        const NOTE: &str = "
            UPDATE slipway.usage_by_run u SET last_failed_trace = coalesce(m.failed, u.last_failed_trace),
                   last_injection_trace = coalesce(m.injection, u.last_injection_trace)
            FROM unnest($5::bigint[], $6::text[], $7::text[], $8::text[], $9::text[]) AS m (minute, provider, model, failed, injection)
            WHERE u.team = $1 AND u.agent_id = $2 AND u.track = $3 AND u.run_hash = $4 AND u.provider = m.provider AND u.model = m.model
              AND u.minute = 'epoch'::timestamptz + m.minute * interval '1 second'";
        let traced: Vec<_> = rows.iter().filter(|row| row.last_failed_trace.is_some() || row.last_injection_trace.is_some()).collect();
        if traced.is_empty() {
            return Ok(());
        }
        let bounded = |trace: Option<&str>| trace.map(|trace| short(trace, MAX_TRACE_BYTES));
        ask(NOTE)
            .bind(&self.team)
            .bind(&self.agent)
            .bind(clean(&self.run.track))
            .bind(clean(&self.run.hash))
            .bind(traced.iter().map(|row| start_of_minute(row.minute).as_second()).collect::<Vec<_>>())
            .bind(traced.iter().map(|row| clean(&row.provider)).collect::<Vec<_>>())
            .bind(traced.iter().map(|row| clean(&row.model)).collect::<Vec<_>>())
            .bind(traced.iter().map(|row| bounded(row.last_failed_trace.as_deref())).collect::<Vec<_>>())
            .bind(traced.iter().map(|row| bounded(row.last_injection_trace.as_deref())).collect::<Vec<_>>())
            .execute(&mut **work)
            .await?;
        Ok(())
    }

    /// What the agent has cost from `start` on, in millionths of a US dollar, all of its pods together.
    pub async fn spent_since(&self, start: Timestamp) -> Result<i64, Fault> {
        const SPENT: &str = "
            SELECT coalesce(sum(cost_micros), 0)::bigint AS spent
            FROM (SELECT team, agent_id, minute, cost_micros FROM slipway.usage_minutes
                  UNION ALL SELECT team, agent_id, minute, cost_micros FROM slipway.usage_by_run) used
            WHERE team = $1 AND agent_id = $2 AND minute >= 'epoch'::timestamptz + $3 * interval '1 second'";
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let row = ask(SPENT).bind(&self.team).bind(&self.agent).bind(start.as_second()).fetch_one(&mut *work).await?;
            work.commit().await?;
            Ok(row.try_get("spent")?)
        })
        .await
    }
}

const SCALARS: usize = 15;
#[expect(clippy::cast_possible_wrap, reason = "three dozen")]
const WIDTH: i64 = (SCALARS + LATENCY_BUCKETS) as i64;

fn counts(row: &UsageMinute) -> impl Iterator<Item = i64> {
    let scalars: [i64; SCALARS] = [
        row.requests,
        row.errors,
        row.input_tokens,
        row.output_tokens,
        row.cost_micros,
        row.guard_blocks,
        row.pii,
        row.injections,
        row.violations,
        row.latency_ms,
        row.audited,
        row.retrieved,
        row.cited,
        row.unpriced,
        row.cancelled,
    ];
    scalars.into_iter().chain(row.latency_histogram.iter().copied())
}

/// Each key once, as one statement may not touch a row twice, and in their order.
fn merge(batch: &[UsageMinute]) -> Result<Vec<UsageMinute>, Fault> {
    let mut merged: BTreeMap<(i64, &str, &str), UsageMinute> = BTreeMap::new();
    for row in batch {
        if row.latency_histogram.len() != LATENCY_BUCKETS {
            return Err(Fault::Refused(format!("a latency histogram has {LATENCY_BUCKETS} buckets")));
        }
        let key = (start_of_minute(row.minute).as_second(), row.provider.as_str(), row.model.as_str());
        merged.entry(key).and_modify(|known| known.add(row)).or_insert_with(|| row.clone());
    }
    Ok(merged.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_is_added_up() {
        let row = |second, requests| UsageMinute {
            requests,
            ..UsageMinute { minute: Timestamp::from_second(second).unwrap(), ..UsageMinute::empty(Timestamp::UNIX_EPOCH, "p", "m") }
        };
        let merged = merge(&[row(0, 1), row(59, 2), row(60, 4)]).unwrap();
        assert_eq!(merged.iter().map(|row| row.requests).collect::<Vec<_>>(), [3, 4]);
    }

    #[test]
    fn a_histogram_of_other_bounds_is_refused() {
        let row = UsageMinute { latency_histogram: vec![0; 3], ..UsageMinute::empty(Timestamp::UNIX_EPOCH, "p", "m") };
        assert!(matches!(merge(&[row]), Err(Fault::Refused(_))));
    }
}
