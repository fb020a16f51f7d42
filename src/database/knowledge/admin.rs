//! The manager's door: the sibling database, which teams it lets in, and the making and dropping of bases.

use sha2::{Digest, Sha256};
use sqlx::Row;
use sqlx::postgres::PgConnectOptions;

use super::migrate::{KnowledgeMigrated, LATEST, migrate_to, quoted, sibling};
use super::teams;
use super::types::{self, BaseInfo, BaseSpec, Counts, signed};
use crate::connection::{Door, Work, ask, in_long_time, settings};
use crate::tenants::run;
use crate::{Fault, id, roles};

const BATCH: i64 = 1_000;

pub struct KnowledgeAdmin {
    platform: PgConnectOptions,
    /// To the sibling.
    door: Door,
    /// The role that all logins of teams are members of.
    group: String,
}

impl KnowledgeAdmin {
    /// The URL is the platform's database's, the login the one that migrates it. Connects to nothing yet.
    pub fn open(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<Self, Fault> {
        let platform = settings(url, password, sslmode)?;
        let database = platform.get_database().unwrap_or(platform.get_username()).to_owned();
        let door = Door::new(platform.clone().database(&sibling(&database)?), 2);
        Ok(Self { platform, door, group: roles::group(&database) })
    }

    /// The name of the sibling database.
    pub fn database(&self) -> &str {
        self.door.settings().get_database().unwrap_or_default()
    }

    /// Makes the sibling database if it is missing, and brings it to its latest version. Any number of processes may do so at
    /// once. What an administrator has to do first is said in [`Fault::Refused`].
    pub async fn migrate(&self) -> Result<KnowledgeMigrated, Fault> {
        self.migrate_up_to(LATEST).await
    }

    /// Stops at an older version, for tests of what leads on from there.
    #[doc(hidden)]
    pub async fn migrate_up_to(&self, target: i32) -> Result<KnowledgeMigrated, Fault> {
        migrate_to(target, &self.platform, self.door.settings(), &self.group).await
    }

    /// Lets a Team's login, which [`crate::Tenants::ensure`] has made, reach the Team's bases.
    pub async fn admit(&self, team: &str, team_uid: &str, user: &str) -> Result<(), Fault> {
        const ADMIT: &str = "
            INSERT INTO slipway.tenants (team, role, uid) VALUES ($1, $2::text::name, $3)
            ON CONFLICT (team) DO UPDATE SET role = excluded.role, uid = excluded.uid";
        id::check("team", team)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            if !roles::exists(&mut work, &self.group).await? {
                return Err(Fault::Unavailable("teams have no logins of their own yet".to_owned()));
            }
            teams::grant(&mut work, &self.group).await?;
            // A login that an earlier Team of another name had, or one of this name.
            ask("UPDATE slipway.tenants SET team = 'gone ' || role WHERE team = $1 AND role <> $2::text::name")
                .bind(team)
                .bind(user)
                .execute(&mut *work)
                .await?;
            ask("DELETE FROM slipway.tenants WHERE role = $2::text::name AND team <> $1").bind(team).bind(user).execute(&mut *work).await?;
            ask(ADMIT).bind(team).bind(user).bind(team_uid).execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// From here on the team's login reaches no base. What it owns in this database, such as large objects, goes too, so that
    /// its role can be dropped. Doing it again does what has been left undone.
    pub async fn shut_out(&self, team: &str) -> Result<(), Fault> {
        id::check("team", team)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            ask("UPDATE slipway.tenants SET team = 'gone ' || role WHERE team = $1").bind(team).execute(&mut *work).await?;
            for row in ask("SELECT role::text AS role FROM slipway.tenants WHERE team LIKE 'gone %'").fetch_all(&mut *work).await? {
                let role: String = row.try_get("role")?;
                if roles::exists(&mut work, &role).await? {
                    run(&mut work, format!("GRANT {0} TO CURRENT_USER; DROP OWNED BY {0}", quoted(&role))).await?;
                } else {
                    ask("DELETE FROM slipway.tenants WHERE role = $1::text::name").bind(&role).execute(&mut *work).await?;
                }
            }
            work.commit().await
        })
        .await
    }

    /// Makes a base, or mends its quotas. A base of the same name whose object was another is dropped.
    pub async fn ensure_base(&self, spec: &BaseSpec) -> Result<(), Fault> {
        const TEAM: &str = "
            INSERT INTO slipway.teams AS t (team, upload_quota, document_quota, chunk_quota) VALUES ($1, $2, $3, $4)
            ON CONFLICT (team) DO UPDATE
            SET upload_quota = excluded.upload_quota, document_quota = excluded.document_quota, chunk_quota = excluded.chunk_quota
            WHERE (t.upload_quota, t.document_quota, t.chunk_quota)
                  IS DISTINCT FROM (excluded.upload_quota, excluded.document_quota, excluded.chunk_quota)";
        const FORMER: &str =
            "UPDATE slipway.bases SET gone_since = now() WHERE team = $1 AND kb_id = $2 AND uid <> $3 AND gone_since IS NULL";
        const MEND: &str = "
            UPDATE slipway.bases SET team_uid = $2, upload_quota = $3 WHERE uid = $1 AND team = $4 AND kb_id = $5 AND gone_since IS NULL";
        const BASE: &str = "
            INSERT INTO slipway.bases (uid, team, team_uid, kb_id, chunks, upload_quota) VALUES ($1, $2, $3, $4, $5::text::name, $6)";
        id::check("team", &spec.team)?;
        id::check("knowledge base", &spec.kb_id)?;
        id::check("uid of a knowledge base", &spec.uid)?;
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            // Managers one after the other.
            run(&mut work, "LOCK TABLE slipway.builds IN SHARE ROW EXCLUSIVE MODE".to_owned()).await?;
            let team = ask(TEAM).bind(&spec.team).bind(signed(spec.team_upload_quota));
            team.bind(signed(spec.quota.documents)).bind(signed(spec.quota.chunks)).execute(&mut *work).await?;
            ask(FORMER).bind(&spec.team).bind(&spec.kb_id).bind(&spec.uid).execute(&mut *work).await?;
            let mended = ask(MEND).bind(&spec.uid).bind(&spec.team_uid).bind(signed(spec.upload_quota)).bind(&spec.team).bind(&spec.kb_id);
            if mended.execute(&mut *work).await?.rows_affected() == 0 {
                let chunks = format!("chunks_{}", &hex::encode(Sha256::digest(&spec.uid))[..20]);
                let base = ask(BASE).bind(&spec.uid).bind(&spec.team).bind(&spec.team_uid).bind(&spec.kb_id).bind(&chunks);
                base.bind(signed(spec.upload_quota)).execute(&mut *work).await?;
                ask("INSERT INTO slipway.builds (base) VALUES ($1)").bind(&spec.uid).execute(&mut *work).await?;
                ask("SELECT slipway.make_chunks($1::text::name)").bind(&chunks).execute(&mut *work).await?;
            }
            work.commit().await
        })
        .await?;
        self.drop_gone().await
    }

    /// Drops a base with all that is in it. One that is not there is no fault.
    pub async fn drop_base(&self, uid: &str) -> Result<(), Fault> {
        self.mark("UPDATE slipway.bases SET gone_since = now() WHERE uid = $1 AND gone_since IS NULL", &[uid]).await?;
        self.drop_gone().await
    }

    /// Shuts a Team's login out and drops all its bases.
    pub async fn team_has_gone(&self, team: &str, uid: &str) -> Result<(), Fault> {
        let admitted = self.one_team("SELECT 1 FROM slipway.tenants WHERE team = $1 AND uid <> $2", team, uid).await?;
        // A later Team of that name keeps its login and its bases.
        if !admitted {
            self.shut_out(team).await?;
        }
        self.mark("UPDATE slipway.bases SET gone_since = now() WHERE team = $1 AND team_uid = $2 AND gone_since IS NULL", &[team, uid])
            .await?;
        self.drop_gone().await
    }

    /// The bases that there are, to be compared with the objects that there are.
    pub async fn bases(&self) -> Result<Vec<BaseInfo>, Fault> {
        in_long_time(async {
            let mut work = self.door.begin().await?;
            let rows = ask(
                "SELECT uid, team, team_uid, kb_id, model, dimensions, indexed FROM slipway.bases WHERE gone_since IS NULL ORDER BY uid",
            )
            .fetch_all(&mut *work)
            .await?;
            work.commit().await?;
            rows.iter().map(types::info).collect()
        })
        .await
    }

    /// A base and what is in it.
    pub async fn base(&self, uid: &str) -> Result<Option<(BaseInfo, Counts)>, Fault> {
        const BASE: &str = "
            SELECT b.uid, b.team, b.team_uid, b.kb_id, b.model, b.dimensions, b.indexed, c.*
            FROM slipway.bases b, LATERAL (
                SELECT count(*) FILTER (WHERE status = 'ready') AS ready, count(*) FILTER (WHERE status = 'error') AS failed,
                       coalesce(sum(chunk_count), 0)::bigint AS chunks, coalesce(sum(bytes), 0)::bigint AS bytes
                FROM slipway.documents d WHERE d.base = b.uid) c
            WHERE b.uid = $1 AND b.gone_since IS NULL";
        in_long_time(async {
            let mut work = self.door.begin().await?;
            let row = ask(BASE).bind(uid).fetch_optional(&mut *work).await?;
            work.commit().await?;
            row.map(|row| Ok((types::info(&row)?, types::counts(&row)?))).transpose()
        })
        .await
    }

    /// Deletes uploads that nobody finishes or ingests, and ends what an earlier call has left undone.
    pub async fn prune(&self) -> Result<(), Fault> {
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            ask("SELECT slipway.expire_uploads()").execute(&mut *work).await?;
            work.commit().await
        })
        .await?;
        self.drop_gone().await
    }

    async fn one_team(&self, question: &'static str, team: &str, uid: &str) -> Result<bool, Fault> {
        in_long_time(async {
            let mut work = self.door.begin().await?;
            let found = ask(question).bind(team).bind(uid).fetch_optional(&mut *work).await?;
            work.commit().await?;
            Ok(found.is_some())
        })
        .await
    }

    async fn mark(&self, statement: &'static str, values: &[&str]) -> Result<(), Fault> {
        in_long_time(async {
            let mut work = self.door.begin_long().await?;
            values.iter().fold(ask(statement), |question, value| question.bind(*value)).execute(&mut *work).await?;
            work.commit().await
        })
        .await
    }

    /// Ends the bases that nobody finds any more, in steps that may each be the last.
    async fn drop_gone(&self) -> Result<(), Fault> {
        while in_long_time(self.drop_one()).await? {}
        Ok(())
    }

    async fn drop_one(&self) -> Result<bool, Fault> {
        const GONE: &str = "
            SELECT uid, chunks::text AS chunks FROM slipway.bases WHERE gone_since IS NOT NULL ORDER BY gone_since LIMIT 1 FOR UPDATE SKIP LOCKED";
        const ROWS: [&str; 2] = [
            "DELETE FROM slipway.documents WHERE base = $1 AND id IN (SELECT id FROM slipway.documents WHERE base = $1 LIMIT $2)",
            "DELETE FROM slipway.uploads WHERE base = $1 AND id IN (SELECT id FROM slipway.uploads WHERE base = $1 LIMIT $2)",
        ];
        let mut work: Work = self.door.begin_long().await?;
        let Some(row) = ask(GONE).fetch_optional(&mut *work).await? else {
            work.commit().await?;
            return Ok(false);
        };
        let (uid, chunks): (String, String) = (row.try_get("uid")?, row.try_get("chunks")?);
        run(&mut work, format!("DROP TABLE IF EXISTS slipway.{}", quoted(&chunks))).await?;
        for of in ["nearest", "found"] {
            run(&mut work, format!("DROP FUNCTION IF EXISTS slipway.{}", quoted(&format!("{chunks}_{of}")))).await?;
        }
        let mut left = false;
        for rows in ROWS {
            left |= ask(rows).bind(&uid).bind(BATCH).execute(&mut *work).await?.rows_affected() == BATCH.unsigned_abs();
        }
        if !left {
            ask("DELETE FROM slipway.bases WHERE uid = $1").bind(&uid).execute(&mut *work).await?;
        }
        work.commit().await?;
        Ok(true)
    }
}
