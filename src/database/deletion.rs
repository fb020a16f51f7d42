//! The end of an agent's or a team's rows: in batches, each a transaction of its own, so that no lock is held for
//! long and a kill loses at most one batch. What was begun is ended by doing it again.

use sqlx::Row;

use crate::connection::{ask, in_long_time, in_time};
use crate::tenants::{isolation, run, shut_out};
use crate::{Fault, Isolation, Tenants, id, roles};

const BATCH: i64 = 1_000;
/// What refers to others before what it refers to, so that no batch is more than it seems.
const TABLES: [&str; 21] = [
    "turns",
    "feedback",
    "feedback_cases",
    "messages",
    "conversations",
    "memory_vectors",
    "memories",
    "usage_minutes",
    "usage_by_run",
    "evaluation_results",
    "sampled_scores",
    "sampled_days",
    // After what they are summed up from: a runtime that still writes makes them again.
    "usage_spans",
    "usage_backfill",
    "policy_violations",
    "violation_hours",
    "readiness_hours",
    "alerts",
    "alert_deliveries",
    "budgets",
    "budget_leases",
];
/// What is nobody's row and is not counted; it goes last, since it says whose the others are.
const OWNERS: &str = "owners";

impl Tenants {
    /// Deletes an agent's rows and returns how many there were. Nothing left to delete is no fault.
    pub async fn delete_agent(&self, team: &str, agent_id: &str) -> Result<u64, Fault> {
        self.delete_agent_while(team, agent_id, &|| true).await
    }

    /// The same, for as long as `still` says so, which is asked before each batch: an agent of that id may come back.
    pub async fn delete_agent_while(&self, team: &str, agent_id: &str, still: &(dyn Fn() -> bool + Send + Sync)) -> Result<u64, Fault> {
        id::check("agent id", agent_id)?;
        self.delete(team, Some(agent_id), still).await
    }

    /// Takes a team's login away, then its rows, then the role. Returns how many rows there were.
    pub async fn remove(&self, team: &str) -> Result<u64, Fault> {
        id::check("team", team)?;
        in_time(async {
            let mut work = self.door.begin().await?;
            shut_out(&mut work, team).await?;
            work.commit().await
        })
        .await?;
        let rows = self.delete(team, None, &|| true).await?;
        self.drop_roles().await?;
        Ok(rows)
    }

    pub(crate) async fn delete(&self, team: &str, agent_id: Option<&str>, still: &(dyn Fn() -> bool + Send + Sync)) -> Result<u64, Fault> {
        id::check("team", team)?;
        let mut deleted = 0;
        for table in TABLES {
            while still() {
                let (batch, more) = in_long_time(self.delete_batch(table, team, agent_id)).await?;
                deleted += batch;
                if !more {
                    break;
                }
            }
        }
        while still() && in_long_time(self.delete_batch(OWNERS, team, agent_id)).await?.1 {}
        Ok(deleted)
    }

    /// Returns how many rows went, and whether there are more: a row that was being changed stays for the next batch.
    async fn delete_batch(&self, table: &str, team: &str, agent_id: Option<&str>) -> Result<(u64, bool), Fault> {
        let mut work = self.door.begin_long().await?;
        let there = ask("SELECT to_regclass('slipway.' || $1) IS NOT NULL AS there").bind(table).fetch_one(&mut *work).await?;
        if !there.try_get("there")? {
            work.commit().await?;
            return Ok((0, false));
        }
        let delete = sqlx::AssertSqlSafe(format!(
            "DELETE FROM slipway.{table} WHERE ctid = ANY (ARRAY(
                 SELECT ctid FROM slipway.{table} WHERE team = $1 AND ($2::text IS NULL OR agent_id = $2) LIMIT $3))"
        ));
        let left = sqlx::AssertSqlSafe(format!(
            "SELECT EXISTS (SELECT 1 FROM slipway.{table} WHERE team = $1 AND ($2::text IS NULL OR agent_id = $2)) AS more"
        ));
        let batch = ask(delete).bind(team).bind(agent_id).bind(BATCH).execute(&mut *work).await?;
        let more = ask(left).bind(team).bind(agent_id).fetch_one(&mut *work).await?.try_get("more")?;
        work.commit().await?;
        Ok((batch.rows_affected(), more))
    }

    /// Drops the logins that were shut out.
    pub async fn drop_roles(&self) -> Result<(), Fault> {
        const GONE: &str = "SELECT role::text AS role FROM slipway.tenants WHERE team LIKE 'gone %' ORDER BY role";
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let may = isolation(&mut work, self.door.user()).await? == Isolation::RolePerTeam;
            for row in ask(GONE).fetch_all(&mut *work).await? {
                let user: String = row.try_get("role")?;
                if may && roles::exists(&mut work, &user).await? {
                    // The role's own things, such as large objects, which any login may make. One has to be a member
                    // to drop them, and the creator of a role may become it.
                    run(&mut work, format!("GRANT {user} TO CURRENT_USER; DROP OWNED BY {user}; DROP ROLE {user}")).await?;
                }
                ask("DELETE FROM slipway.tenants WHERE role = $1::text::name").bind(&user).execute(&mut *work).await?;
            }
            work.commit().await
        })
        .await
    }
}
