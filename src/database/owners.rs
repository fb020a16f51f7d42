//! Whose the rows under an agent's id are. Runtimes name their rows by ids, which are made from names, and names come
//! back; rows belong to UIDs. `slipway.owners` has the UID to each id, and the manager lets no pod of an Agent begin
//! before the id is that Agent's. What lay under it before is deleted or, when it may be wanted again, set aside under
//! a key that no login of a team is ever shown.

use std::collections::HashMap;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::connection::{Work, ask, in_long_time};
use crate::{Fault, Tenants, id};

/// The team of rows that were set aside. Ids of teams begin with `tk_`.
pub(crate) const ASIDE: &str = "aside";
/// For how many days rows are kept that were set aside, or that wait for their Agent after a restore.
pub const HELD_DAYS: i32 = 7;

/// A Team as it is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its id.
    pub team: String,
    pub uid: String,
    /// When it was created, in seconds.
    pub created: i64,
    /// The UID of the Team whose rows it is to have.
    pub adopts: Option<String>,
    /// The UID of the cluster; empty when it is not known.
    pub cluster: String,
}

/// An Agent as it is in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub agent_id: String,
    pub uid: String,
    /// When it was created, in seconds.
    pub created: i64,
    /// The UID of the Agent whose rows it is to have.
    pub adopts: Option<String>,
    /// No pods are left of an earlier Agent of its name.
    pub alone: bool,
}

/// What came of claiming an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Whatever lies under it is the Agent's.
    Held,
    /// Pods of an earlier Agent still run.
    Waits,
    /// Rows of an earlier Agent lie there.
    Taken {
        /// That Agent was of this cluster and is gone from it, so that its rows are nobody's.
        deleted: bool,
    },
}

struct Found {
    uid: String,
    cluster: String,
    open_until: Option<i64>,
}

impl Found {
    fn read(row: &PgRow) -> Result<Self, Fault> {
        Ok(Self { uid: row.try_get("uid")?, cluster: row.try_get("cluster")?, open_until: row.try_get("open_until")? })
    }
}

/// `infinity` is no number of seconds.
const OPEN: &str =
    "CASE WHEN open_until = 'infinity' THEN 9000000000000 ELSE ceil(extract(epoch FROM open_until)) END::bigint AS open_until";

impl Tenants {
    /// Claims ids of a team for its Agents, in the order in which they are named. It may be asked again and again.
    pub async fn claim(&self, home: &Home, holders: &[Holder]) -> Result<Vec<Claim>, Fault> {
        id::check("team", &home.team)?;
        for holder in holders {
            id::check("agent id", &holder.agent_id)?;
        }
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let known = sqlx::AssertSqlSafe(format!(
                "SELECT agent_id, uid, cluster, {OPEN} FROM slipway.owners WHERE team = $1 AND agent_id = ANY ($2)"
            ));
            let ids: Vec<_> = holders.iter().map(|holder| holder.agent_id.as_str()).collect();
            let rows = ask(known).bind(&home.team).bind(ids).fetch_all(&mut *work).await?;
            let mut known = HashMap::new();
            for row in &rows {
                known.insert(row.try_get::<String, _>("agent_id")?, Found::read(row)?);
            }
            let mut claims = Vec::with_capacity(holders.len());
            for holder in holders {
                claims.push(claim(&mut work, home, holder, known.get(&holder.agent_id)).await?);
            }
            work.commit().await?;
            Ok(claims)
        })
        .await
    }

    /// Moves what lies under an agent's id to where no team's login sees it. Broken off, it is ended by the next call.
    /// Returns the UID under which the rows are kept from now on, and how many they are.
    pub async fn set_aside(&self, team: &str, agent_id: &str) -> Result<(String, u64), Fault> {
        const ENTER: &str = "
            INSERT INTO slipway.owners (team, agent_id, uid, team_uid, cluster, of_team, of_agent)
            SELECT $3, coalesce(o.uid, 'none-' || $2), coalesce(o.uid, 'none-' || $2), coalesce(o.team_uid, $1), coalesce(o.cluster, ''), $1, $2
            FROM (VALUES (1)) one LEFT JOIN slipway.owners o ON o.team = $1 AND o.agent_id = $2
            ON CONFLICT (team, agent_id) DO UPDATE SET since = now()
            RETURNING agent_id";
        id::check("team", team)?;
        let uid: String = in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let row = ask(ENTER).bind(team).bind(agent_id).bind(ASIDE).fetch_one(&mut *work).await?;
            work.commit().await?;
            Ok(row.try_get("agent_id")?)
        })
        .await?;
        let moved = self.transfer((team, agent_id), (ASIDE, &uid)).await?;
        self.delete_agent(team, agent_id).await?;
        Ok((uid, moved))
    }

    /// Gives an Agent the rows of that UID, which were set aside. What it has by itself meanwhile stays. Where the Agent
    /// has not come yet, they wait for it.
    pub async fn bring_back(&self, uid: &str, home: &Home, agent_id: &str) -> Result<u64, Fault> {
        const AWAIT: &str = "
            INSERT INTO slipway.owners (team, agent_id, uid, team_uid, cluster, open_until) VALUES ($1, $2, $3, $4, $5, 'infinity')
            ON CONFLICT DO NOTHING";
        id::check("team", &home.team)?;
        id::check("agent id", agent_id)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let wait = ask(AWAIT).bind(&home.team).bind(agent_id).bind(uid).bind(&home.uid).bind(&home.cluster);
            wait.execute(&mut *work).await?;
            work.commit().await
        })
        .await?;
        let moved = self.transfer((ASIDE, uid), (&home.team, agent_id)).await?;
        self.delete_agent(ASIDE, uid).await?;
        Ok(moved)
    }

    /// What was set aside that these Agents, or the Team with all of its former Agents, are to have: the UIDs, and the
    /// ids under which they go.
    pub async fn adoptable(&self, home: &Home, holders: &[Holder]) -> Result<Vec<(String, String)>, Fault> {
        const OF_TEAM: &str = "SELECT uid, of_agent FROM slipway.owners WHERE team = $1 AND team_uid = $2 AND of_team = $3";
        const THERE: &str = "SELECT uid FROM slipway.owners WHERE team = $1 AND agent_id = ANY ($2)";
        let wanted: Vec<(&str, &str)> =
            holders.iter().filter_map(|holder| Some((holder.adopts.as_deref()?, holder.agent_id.as_str()))).collect();
        if home.adopts.is_none() && wanted.is_empty() {
            return Ok(Vec::new());
        }
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let uids: Vec<_> = wanted.iter().map(|(uid, _)| *uid).collect();
            let rows = ask(THERE).bind(ASIDE).bind(uids).fetch_all(&mut *work).await?;
            let mut found = Vec::new();
            for row in &rows {
                let uid: String = row.try_get("uid")?;
                found.extend(wanted.iter().find(|(of, _)| *of == uid).map(|(_, agent)| (uid.clone(), (*agent).to_owned())));
            }
            if let Some(former) = &home.adopts {
                for row in &ask(OF_TEAM).bind(ASIDE).bind(former).bind(&home.team).fetch_all(&mut *work).await? {
                    let (uid, agent): (String, String) = (row.try_get("uid")?, row.try_get("of_agent")?);
                    if !found.iter().any(|(of, _)| *of == uid) {
                        found.push((uid, agent));
                    }
                }
            }
            work.commit().await?;
            Ok(found)
        })
        .await
    }

    /// Deletes what was set aside long enough ago.
    pub async fn expire(&self) -> Result<u64, Fault> {
        const OLD: &str =
            "SELECT uid FROM slipway.owners WHERE team = $1 AND since < now() - $2 * interval '1 day' ORDER BY since LIMIT 100";
        let old = in_long_time(async {
            let mut work = self.door.begin_long().await?;
            let rows = ask(OLD).bind(ASIDE).bind(HELD_DAYS).fetch_all(&mut *work).await?;
            work.commit().await?;
            rows.iter().map(|row| Ok(row.try_get::<String, _>("uid")?)).collect::<Result<Vec<_>, Fault>>()
        })
        .await?;
        let mut deleted = 0;
        for uid in old {
            deleted += self.delete_agent(ASIDE, &uid).await?;
        }
        Ok(deleted)
    }
}

async fn claim(work: &mut Work, home: &Home, holder: &Holder, found: Option<&Found>) -> Result<Claim, Fault> {
    const ENTER: &str = "
        INSERT INTO slipway.owners (team, agent_id, uid, team_uid, cluster) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    const UNKNOWN: &str = "
        INSERT INTO slipway.owners (team, agent_id, uid, team_uid) VALUES ($1, $2, 'none-' || $2, $1) ON CONFLICT DO NOTHING";
    const TAKE: &str = "
        UPDATE slipway.owners SET uid = $3, team_uid = $4, cluster = $5, open_until = NULL, since = now()
        WHERE team = $1 AND agent_id = $2 AND uid = $6";
    let Some(found) = found else {
        // Rows without an owner were written by a pod that nobody had let in: before this step, or past the manager.
        let oldest = oldest(work, &home.team, &holder.agent_id).await?;
        if oldest.is_some_and(|oldest| oldest < holder.created) {
            ask(UNKNOWN).bind(&home.team).bind(&holder.agent_id).execute(&mut **work).await?;
            return Ok(if holder.alone { Claim::Taken { deleted: false } } else { Claim::Waits });
        }
        let entered =
            ask(ENTER).bind(&home.team).bind(&holder.agent_id).bind(&holder.uid).bind(&home.uid).bind(&home.cluster).execute(&mut **work);
        return Ok(if entered.await?.rows_affected() > 0 { Claim::Held } else { Claim::Waits });
    };
    if found.uid == holder.uid {
        return Ok(Claim::Held);
    }
    let given = found.open_until.is_some_and(|until| holder.created <= until) || holder.adopts.as_ref() == Some(&found.uid);
    if !given {
        if !holder.alone {
            return Ok(Claim::Waits);
        }
        if oldest(work, &home.team, &holder.agent_id).await?.is_some() {
            let deleted = !found.cluster.is_empty() && found.cluster == home.cluster;
            return Ok(Claim::Taken { deleted });
        }
    }
    let taken = ask(TAKE)
        .bind(&home.team)
        .bind(&holder.agent_id)
        .bind(&holder.uid)
        .bind(&home.uid)
        .bind(&home.cluster)
        .bind(&found.uid)
        .execute(&mut **work)
        .await?;
    Ok(if taken.rows_affected() > 0 { Claim::Held } else { Claim::Waits })
}

/// When the oldest row under an id was written, in seconds; none when nothing lies there.
pub(crate) async fn oldest(work: &mut Work, team: &str, agent_id: &str) -> Result<Option<i64>, Fault> {
    const OLDEST: &str = "
        SELECT floor(extract(epoch FROM least(
            (SELECT min(created_at) FROM slipway.conversations WHERE team = $1 AND agent_id = $2),
            (SELECT min(created_at) FROM slipway.memories WHERE team = $1 AND agent_id = $2),
            (SELECT min(minute) + interval '1 minute' FROM slipway.usage_minutes WHERE team = $1 AND agent_id = $2),
            (SELECT min(minute) + interval '1 minute' FROM slipway.usage_by_run WHERE team = $1 AND agent_id = $2),
            (SELECT min(start) + interval '1 hour' FROM slipway.usage_spans WHERE team = $1 AND agent_id = $2 AND span = 60),
            (SELECT min(minute) + interval '1 minute' FROM slipway.policy_violations WHERE team = $1 AND agent_id = $2),
            (SELECT min(hour) + interval '1 hour' FROM slipway.violation_hours WHERE team = $1 AND agent_id = $2),
            (SELECT min(created_at) FROM slipway.evaluation_results WHERE team = $1 AND agent_id = $2),
            (SELECT min(created_at) FROM slipway.sampled_scores WHERE team = $1 AND agent_id = $2))))::bigint AS oldest";
    let row = ask(OLDEST).bind(team).bind(agent_id).fetch_one(&mut **work).await?;
    Ok(row.try_get("oldest")?)
}
