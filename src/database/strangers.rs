//! Owners of rows, to find orphans.

use sqlx::Row;

use crate::connection::{Work, ask, in_long_time};
use crate::owners::{HELD_DAYS, Home, oldest};
use crate::{Fault, Tenants, id};

/// Of one query; the rest is found after these are deleted.
const MAX_ROWS: i64 = 1_000;
/// The tables that the others refer to, and that of owners: where these have no row of an agent, none has.
const PARENTS: [&str; 17] = [
    "conversations",
    "memories",
    "usage_minutes",
    "usage_by_run",
    "usage_spans",
    "usage_backfill",
    "policy_violations",
    "violation_hours",
    "readiness_hours",
    "alerts",
    "alert_deliveries",
    "budgets",
    "budget_leases",
    "evaluation_results",
    "sampled_scores",
    "sampled_days",
    "owners",
];

/// An id that has rows and no Agent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, which one statement answers")]
pub struct Stranger {
    pub agent_id: String,
    /// Whether its Agent was of this cluster, so that it is known to have gone; else it may only not have come yet.
    pub was_here: bool,
    /// Whether its rows belong to another Team than the present one of that name.
    pub of_former_team: bool,
    /// Rows that an admin has handed over, and whose Agent has still time to come.
    pub awaited: bool,
    owned: bool,
    /// Whether it is an id.
    named: bool,
}

impl Tenants {
    /// The ids of agents that a team has rows of, beside the `known` ones; a thousand of them at most. Rows under what
    /// is no id were written by a team itself, past its runtimes; they are left out and go with the team.
    pub async fn strangers(&self, home: &Home, known: &[String]) -> Result<Vec<Stranger>, Fault> {
        id::check("team", &home.team)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let mut found = strangers(&mut work, home, known).await?;
            work.commit().await?;
            found.retain(|stranger| stranger.named);
            Ok(found)
        })
        .await
    }

    /// Deletes what an earlier Team of that name wrote past the manager, under ids that were no Agent's.
    pub async fn delete_unowned(&self, home: &Home) -> Result<u64, Fault> {
        id::check("team", &home.team)?;
        let found = in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let mut older = Vec::new();
            for stranger in strangers(&mut work, home, &[]).await? {
                if is_older(&mut work, home, &stranger).await? {
                    older.push(stranger.agent_id);
                }
            }
            work.commit().await?;
            Ok(older)
        })
        .await?;
        let mut deleted = 0;
        for agent_id in found {
            deleted += self.delete(&home.team, Some(&agent_id), &|| true).await?;
        }
        Ok(deleted)
    }

    /// Teams that have a login or rows and are of that cluster, by id and UID.
    pub async fn teams_of(&self, cluster: &str) -> Result<Vec<(String, String)>, Fault> {
        const TEAMS: &str = "
            SELECT team, uid FROM slipway.tenants WHERE cluster = $1 AND team NOT LIKE 'gone %'
            UNION SELECT DISTINCT team, team_uid FROM slipway.owners WHERE cluster = $1 AND of_team IS NULL ORDER BY 1, 2";
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let rows = ask(TEAMS).bind(cluster).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(|row| Ok((row.try_get("team")?, row.try_get("uid")?))).collect()
        })
        .await
    }
}

/// It steps from one agent to the next by each table's key, so that it costs as much as there are agents, however many
/// rows they have.
async fn strangers(work: &mut Work, home: &Home, known: &[String]) -> Result<Vec<Stranger>, Fault> {
    let steps = PARENTS.map(|table| {
        format!(
            "{table}_of (agent_id) AS (
                 (SELECT agent_id FROM slipway.{table} WHERE team = $1 ORDER BY agent_id LIMIT 1)
                 UNION ALL
                 SELECT (SELECT t.agent_id FROM slipway.{table} t WHERE t.team = $1 AND t.agent_id > last.agent_id
                         ORDER BY t.agent_id LIMIT 1)
                 FROM {table}_of last WHERE last.agent_id IS NOT NULL)"
        )
    });
    let all = PARENTS.map(|table| format!("SELECT agent_id FROM {table}_of"));
    let question = format!(
        "WITH RECURSIVE {} SELECT found.agent_id AS agent_id, coalesce(o.cluster <> '' AND o.cluster = $4, false) AS was_here,
                coalesce(o.team_uid <> $5 AND (o.team_uid <> $1 OR o.open_until < to_timestamp($6)), false) AS of_former_team,
                coalesce(o.open_until = 'infinity' AND o.since > now() - $7 * interval '1 day', false) AS awaited,
                o.uid IS NOT NULL AS owned, found.agent_id ~ '^[A-Za-z0-9_-]{{1,64}}$' AS named
         FROM ({}) found LEFT JOIN slipway.owners o ON o.team = $1 AND o.agent_id = found.agent_id
         WHERE found.agent_id IS NOT NULL AND found.agent_id <> ALL ($2) ORDER BY 1 LIMIT $3",
        steps.join(", "),
        all.join(" UNION ")
    );
    let rows = ask(sqlx::AssertSqlSafe(question))
        .bind(&home.team)
        .bind(known)
        .bind(MAX_ROWS)
        .bind(&home.cluster)
        .bind(&home.uid)
        .bind(home.created)
        .bind(HELD_DAYS)
        .fetch_all(&mut **work)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(Stranger {
                agent_id: row.try_get("agent_id")?,
                was_here: row.try_get("was_here")?,
                of_former_team: row.try_get("of_former_team")?,
                awaited: row.try_get("awaited")?,
                owned: row.try_get("owned")?,
                named: row.try_get("named")?,
            })
        })
        .collect()
}

/// Whether rows of an earlier Team of that name are there. Those that nobody owns were written past the manager, and
/// tell by their age whose they are.
pub(crate) async fn of_former_team(work: &mut Work, home: &Home) -> Result<bool, Fault> {
    for stranger in strangers(work, home, &[]).await? {
        if stranger.of_former_team || is_older(work, home, &stranger).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn is_older(work: &mut Work, home: &Home, stranger: &Stranger) -> Result<bool, Fault> {
    Ok(!stranger.owned && oldest(work, &home.team, &stranger.agent_id).await?.is_some_and(|at| at < home.created))
}
