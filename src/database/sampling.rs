//! Scores of answers of production that were sampled, and how many of these an agent may have a day. They are kept for a month.

use jiff::Timestamp;

use crate::connection::{ask, in_time};
use crate::conversation::clean;
use crate::{Fault, Store, Tenants, id};

/// What scorers found in one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledTurn {
    pub trace_id: String,
    /// When the answer was there.
    pub at: Timestamp,
    /// `provider:/model`; empty where words were compared.
    pub judge: String,
    pub scores: Vec<SampledScore>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SampledScore {
    pub scorer: String,
    /// 0 to 1; none where the judge gave nothing that can be used.
    pub value: Option<f64>,
    pub judge_tokens: i64,
}

impl Store {
    /// Whether one more answer may be scored today, which is a day of UTC by the server's clock. All pods of the agent together
    /// are told so `most` times a day and no more; one that is told so and ends takes its place along.
    pub async fn claim_sample(&self, most: u32) -> Result<bool, Fault> {
        const CLAIM: &str = "
            INSERT INTO slipway.sampled_days AS d (team, agent_id, day, turns)
            SELECT $1, $2, (now() AT TIME ZONE 'UTC')::date, 1 WHERE $3 > 0
            ON CONFLICT (team, agent_id, day) DO UPDATE SET turns = d.turns + 1 WHERE d.turns < $3";
        in_time(async {
            let (mut work, _) = self.begin().await?;
            let most = i32::try_from(most).unwrap_or(i32::MAX);
            let claimed = ask(CLAIM).bind(&self.team).bind(&self.agent).bind(most).execute(&mut *work).await?;
            work.commit().await?;
            Ok(claimed.rows_affected() > 0)
        })
        .await
    }

    /// Keeps all scores of an answer or none. A write that is repeated changes nothing.
    pub async fn keep_sample(&self, sample: &SampledTurn) -> Result<(), Fault> {
        const KEEP: &str = "
            INSERT INTO slipway.sampled_scores
                (team, agent_id, created_at, trace_id, scorer, track, run_hash, judge, value, judge_tokens)
            SELECT $1, $2, 'epoch'::timestamptz + $3 * interval '1 microsecond', $4, s.scorer, $5, $6, $7, s.value, s.tokens
            FROM unnest($8::text[], $9::float8[], $10::bigint[]) AS s (scorer, value, tokens)
            ON CONFLICT DO NOTHING";
        id::check("trace id", &sample.trace_id)?;
        in_time(async {
            let (mut work, _) = self.begin().await?;
            ask(KEEP)
                .bind(&self.team)
                .bind(&self.agent)
                .bind(sample.at.as_microsecond())
                .bind(&sample.trace_id)
                .bind(clean(&self.run.track))
                .bind(clean(&self.run.hash))
                .bind(clean(&sample.judge))
                .bind(sample.scores.iter().map(|score| clean(&score.scorer)).collect::<Vec<_>>())
                .bind(sample.scores.iter().map(|score| score.value).collect::<Vec<_>>())
                .bind(sample.scores.iter().map(|score| score.judge_tokens).collect::<Vec<_>>())
                .execute(&mut *work)
                .await?;
            work.commit().await
        })
        .await
    }
}

impl Tenants {
    /// Deletes scores and counts that are older than a month, in batches, and returns how many there were.
    pub async fn delete_old_samples(&self) -> Result<u64, Fault> {
        Ok(self.delete_old("sampled_scores", "created_at").await? + self.delete_old("sampled_days", "day").await?)
    }
}
