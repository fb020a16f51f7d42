//! What is read of many agents at once beside usage: scores of sampled answers, and conversations.

use jiff::Timestamp;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::{AgentKey, Readings, place};
use crate::Fault;

/// The mean of a scorer over an agent's sampled answers, as the judge saw it that scored the most of them, of the release that was
/// scored last: scores of different judges and releases are not comparable.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentScore {
    /// The agent's place among those that were asked for.
    pub agent: usize,
    pub scorer: String,
    /// 0 to 1.
    pub mean: f64,
    pub scored: i64,
}

/// The mean of a scorer over sampled answers of one track and release, as one judge saw it: means of different judges are not comparable.
#[derive(Clone, Debug, PartialEq)]
pub struct RunScore {
    /// The agent's place among those that were asked for.
    pub agent: usize,
    /// Empty where the runtime was not told.
    pub track: String,
    /// What a release names in its `status.runHash`; empty as the track.
    pub run_hash: String,
    /// `provider:/model`; empty where words were compared.
    pub judge: String,
    pub scorer: String,
    /// 0 to 1.
    pub mean: f64,
    pub scored: i64,
}

/// How many conversations an agent has had a message in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentConversations {
    /// The agent's place among those that were asked for.
    pub agent: usize,
    pub count: i64,
}

impl Readings<'_> {
    /// Means of these scorers over answers from `since` on that were not a canary's or a candidate's. Agents without are left out.
    pub async fn sampled_scores(&self, agents: &[AgentKey], scorers: &[&str], since: Timestamp) -> Result<Vec<AgentScore>, Fault> {
        const SCORED: &str = "
            SELECT k.nth, s.scorer, s.mean, s.scored
            FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (team, agent_id, uid, nth)
            CROSS JOIN LATERAL (
                SELECT DISTINCT ON (g.scorer) g.scorer, g.mean, g.scored
                FROM (SELECT c.scorer, c.run_hash, c.judge, avg(c.value) AS mean, count(*) AS scored, max(c.created_at) AS last
                      FROM (SELECT scorer, run_hash, judge, value, created_at FROM slipway.sampled_scores
                            WHERE team = k.team AND agent_id = k.agent_id AND track IN ('', 'stable') AND scorer = ANY ($4)
                              AND value IS NOT NULL AND created_at >= 'epoch'::timestamptz + $5 * interval '1 second'
                            ORDER BY created_at DESC LIMIT 1000) c
                      GROUP BY 1, 2, 3) g
                ORDER BY g.scorer, max(g.last) OVER (PARTITION BY g.scorer, g.run_hash) DESC, g.scored DESC, g.judge) s
            WHERE slipway.owned_by(k.team, k.agent_id, k.uid)";
        let scorers: Vec<String> = scorers.iter().map(|&scorer| scorer.to_owned()).collect();
        self.read(agents, |keys| keys.ask(SCORED).bind(scorers.clone()).bind(since.as_second()), score).await
    }

    /// Means over answers from `since` on by track, release, judge and scorer, over the newest 1,000 scores of an agent. Agents without
    /// are left out.
    pub async fn sampled_by_run(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<RunScore>, Fault> {
        const SCORED: &str = "
            SELECT k.nth, s.*
            FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (team, agent_id, uid, nth)
            CROSS JOIN LATERAL (
                SELECT c.track, c.run_hash, c.judge, c.scorer, avg(c.value) AS mean, count(*) AS scored
                FROM (SELECT left(track, 128) AS track, left(run_hash, 128) AS run_hash, left(judge, 256) AS judge,
                             left(scorer, 64) AS scorer, value
                      FROM slipway.sampled_scores
                      WHERE team = k.team AND agent_id = k.agent_id AND value IS NOT NULL
                        AND created_at >= 'epoch'::timestamptz + $4 * interval '1 second'
                      ORDER BY created_at DESC LIMIT 1000) c
                GROUP BY 1, 2, 3, 4) s
            WHERE slipway.owned_by(k.team, k.agent_id, k.uid)
            ORDER BY k.nth, s.track, s.run_hash, s.judge, s.scorer";
        self.read(agents, |keys| keys.ask(SCORED).bind(since.as_second()), run_score).await
    }

    /// Conversations with a message from `since` on, at most 10,000 of an agent. Agents without are left out.
    pub async fn active_conversations(&self, agents: &[AgentKey], since: Timestamp) -> Result<Vec<AgentConversations>, Fault> {
        const ACTIVE: &str = "
            SELECT k.nth, a.count
            FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS k (team, agent_id, uid, nth)
            CROSS JOIN LATERAL (
                SELECT count(*) AS count
                FROM (SELECT FROM slipway.conversations
                      WHERE team = k.team AND agent_id = k.agent_id AND updated_at >= 'epoch'::timestamptz + $4 * interval '1 second'
                      LIMIT 10000) c) a
            WHERE a.count > 0 AND slipway.owned_by(k.team, k.agent_id, k.uid)";
        self.read(agents, |keys| keys.ask(ACTIVE).bind(since.as_second()), conversations).await
    }
}

fn score(row: &PgRow) -> Result<AgentScore, Fault> {
    Ok(AgentScore { agent: place(row)?, scorer: row.try_get("scorer")?, mean: row.try_get("mean")?, scored: row.try_get("scored")? })
}

fn run_score(row: &PgRow) -> Result<RunScore, Fault> {
    Ok(RunScore {
        agent: place(row)?,
        track: row.try_get("track")?,
        run_hash: row.try_get("run_hash")?,
        judge: row.try_get("judge")?,
        scorer: row.try_get("scorer")?,
        mean: row.try_get("mean")?,
        scored: row.try_get("scored")?,
    })
}

fn conversations(row: &PgRow) -> Result<AgentConversations, Fault> {
    Ok(AgentConversations { agent: place(row)?, count: row.try_get("count")? })
}
