//! Results of evaluations, case by case, so that a run goes on where it broke off, and a verdict can be explained. They are kept for a
//! month.

use serde_json::Value;
use sqlx::{AssertSqlSafe, Row};

use crate::connection::{Work, ask, in_long_time, in_time};
use crate::{Fault, Store, Tenants, id};

/// How long a result is kept.
const KEPT_DAYS: i32 = 30;
/// The most rows of one statement.
const BATCH: i64 = 1_000;
/// The most results that one statement writes.
const WRITTEN_AT_ONCE: usize = 100;

/// What came of one case.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationResult {
    /// The case's place in the dataset.
    pub case: usize,
    /// Of the case and of what it was judged by. Empty where no run is to go on with the result.
    pub digest: Vec<u8>,
    pub result: Value,
}

/// The next results of a run, after a place.
async fn page(work: &mut Work, (team, agent, run): (&str, &str, &str), after: Option<usize>) -> Result<Vec<EvaluationResult>, Fault> {
    const RESULTS: &str = "
        SELECT place, digest, result::text AS result FROM slipway.evaluation_results
        WHERE team = $1 AND agent_id = $2 AND run = $3 AND place > $4 ORDER BY place LIMIT $5";
    let after = after.and_then(|after| i32::try_from(after).ok()).unwrap_or(-1);
    let rows = ask(RESULTS).bind(team).bind(agent).bind(run).bind(after).bind(BATCH).fetch_all(&mut **work).await?;
    let mut page = Vec::new();
    for row in &rows {
        let (place, result): (i32, String) = (row.try_get("place")?, row.try_get("result")?);
        let result = serde_json::from_str(&result).map_err(|_| Fault::Broken("a result is not JSON".to_owned()))?;
        page.push(EvaluationResult { case: usize::try_from(place).unwrap_or_default(), digest: row.try_get("digest")?, result });
    }
    Ok(page)
}

fn is_last(page: &[EvaluationResult]) -> bool {
    i64::try_from(page.len()).unwrap_or(i64::MAX) < BATCH
}

impl Store {
    /// The results of a run so far, by their places.
    pub async fn evaluation_results(&self, run: &str) -> Result<Vec<EvaluationResult>, Fault> {
        id::check("run id", run)?;
        let mut all: Vec<EvaluationResult> = Vec::new();
        loop {
            let after = all.last().map(|result| result.case);
            let page = in_time(async {
                let (mut work, _) = self.begin().await?;
                let page = page(&mut work, (&self.team, &self.agent, run), after).await?;
                work.commit().await?;
                Ok(page)
            })
            .await?;
            let is_last = is_last(&page);
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Keeps the result of a case, unless there is one by the same digest. Whether it was kept: a write that is repeated changes
    /// nothing. One by another digest, as of a runtime with other prompts, counts no more and is replaced.
    pub async fn keep_evaluation_result(&self, run: &str, kept: &EvaluationResult) -> Result<bool, Fault> {
        const KEEP: &str = "
            INSERT INTO slipway.evaluation_results AS r (team, agent_id, run, place, digest, result)
            VALUES ($1, $2, $3, $4, $5, $6::json)
            ON CONFLICT (team, agent_id, run, place) DO UPDATE SET digest = excluded.digest, result = excluded.result
            WHERE r.digest <> excluded.digest";
        id::check("run id", run)?;
        let place = i32::try_from(kept.case).map_err(|_| Fault::Refused("the case's place is too great".to_owned()))?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let written = ask(KEEP)
                .bind(&self.team)
                .bind(&self.agent)
                .bind(run)
                .bind(place)
                .bind(&kept.digest)
                .bind(kept.result.to_string())
                .execute(&mut *work)
                .await?;
            work.commit().await?;
            Ok(written.rows_affected() > 0)
        })
        .await
    }

    /// Deletes the results of a run that are not by the digest of their place: those of an attempt before, and of cases that there are
    /// no more. The digests are those of all cases, by their places. Returns how many results there were.
    pub async fn delete_other_evaluation_results(&self, run: &str, digests: &[Vec<u8>]) -> Result<u64, Fault> {
        const DELETE: &str = "
            DELETE FROM slipway.evaluation_results AS r
            WHERE r.team = $1 AND r.agent_id = $2 AND r.run = $3 AND NOT EXISTS (
                SELECT FROM unnest($4::bytea[]) WITH ORDINALITY AS d (digest, nth)
                WHERE d.nth - 1 = r.place AND d.digest = r.digest)";
        id::check("run id", run)?;
        let digests: Vec<&[u8]> = digests.iter().map(Vec::as_slice).collect();
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let deleted = ask(DELETE).bind(&self.team).bind(&self.agent).bind(run).bind(digests).execute(&mut *work).await?;
            work.commit().await?;
            Ok(deleted.rows_affected())
        })
        .await
    }
}

impl Tenants {
    /// The results of a run of any team's agent, by their places.
    pub async fn evaluation_results(&self, team: &str, agent: &str, run: &str) -> Result<Vec<EvaluationResult>, Fault> {
        let mut all: Vec<EvaluationResult> = Vec::new();
        loop {
            let after = all.last().map(|result| result.case);
            let page = in_time(async {
                let mut work = self.door.begin().await?;
                let page = page(&mut work, (team, agent, run), after).await?;
                work.commit().await?;
                Ok(page)
            })
            .await?;
            let is_last = is_last(&page);
            all.extend(page);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Writes the results of a run, one for each of its cases, in the place of all that lie there, forged ones too.
    pub async fn replace_evaluation_results(&self, team: &str, agent: &str, run: &str, results: &[EvaluationResult]) -> Result<(), Fault> {
        const DELETE: &str = "DELETE FROM slipway.evaluation_results WHERE team = $1 AND agent_id = $2 AND run = $3";
        // A pod may write at the same time.
        const WRITE: &str = "
            INSERT INTO slipway.evaluation_results (team, agent_id, run, place, digest, result)
            SELECT $1, $2, $3, r.place, r.digest, r.result::json
            FROM unnest($4::integer[], $5::bytea[], $6::text[]) AS r (place, digest, result)
            ON CONFLICT (team, agent_id, run, place) DO UPDATE SET digest = excluded.digest, result = excluded.result";
        id::check("team", team)?;
        id::check("agent id", agent)?;
        id::check("run id", run)?;
        let mut places = Vec::with_capacity(results.len());
        for result in results {
            places.push(i32::try_from(result.case).map_err(|_| Fault::Refused("the case's place is too great".to_owned()))?);
        }
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            ask(DELETE).bind(team).bind(agent).bind(run).execute(&mut *work).await?;
            for (rows, places) in results.chunks(WRITTEN_AT_ONCE).zip(places.chunks(WRITTEN_AT_ONCE)) {
                ask(WRITE)
                    .bind(team)
                    .bind(agent)
                    .bind(run)
                    .bind(places.to_vec())
                    .bind(rows.iter().map(|row| row.digest.clone()).collect::<Vec<_>>())
                    .bind(rows.iter().map(|row| row.result.to_string()).collect::<Vec<_>>())
                    .execute(&mut *work)
                    .await?;
            }
            work.commit().await
        })
        .await
    }

    /// Deletes results that are older than a month, in batches, and returns how many there were.
    pub async fn delete_old_evaluation_results(&self) -> Result<u64, Fault> {
        self.delete_old("evaluation_results", "created_at").await
    }

    /// Deletes the rows of a table that are older than a month by that column.
    pub(crate) async fn delete_old(&self, table: &str, column: &str) -> Result<u64, Fault> {
        let delete = format!(
            "DELETE FROM slipway.{table} WHERE ctid = ANY (ARRAY(
                 SELECT ctid FROM slipway.{table} WHERE {column} < now() - $1 * interval '1 day' LIMIT $2))"
        );
        let mut deleted = 0;
        loop {
            let batch = in_long_time(async {
                let mut work = self.door.begin_long().await?;
                let delete = ask(AssertSqlSafe(delete.clone()));
                let batch = delete.bind(KEPT_DAYS).bind(BATCH).execute(&mut *work).await?.rows_affected();
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
