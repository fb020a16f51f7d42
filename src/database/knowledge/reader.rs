//! REST's door: what documents a base has and how its ingestions went, in transactions that write nothing.
//!
//! Its login is the platform's or one that can read, so each question names team, base and the base's UID.

use std::fmt;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Row};

use super::base::page;
use super::migrate::{LATEST, recent, sibling};
use super::types::{self, Counts, DOCUMENT, IngestionState, Report, StoredDocument, document};
use crate::connection::{Door, Question, ask, in_time, settings};
use crate::conversation::time;
use crate::{Fault, Page};

const MAX_CONNECTIONS: u32 = 2;
const BASE: &str = "SELECT b.uid FROM slipway.bases b WHERE b.team = $1 AND b.kb_id = $2 AND b.uid = $3 AND b.gone_since IS NULL";

#[derive(Clone)]
pub struct KnowledgeReader {
    door: Arc<Door>,
    /// The platform's database, and the name of the one beside it.
    platform: Arc<Door>,
    name: String,
}

impl fmt::Debug for KnowledgeReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KnowledgeReader").finish_non_exhaustive()
    }
}

impl KnowledgeReader {
    /// The URL is the platform's database's. Connects to nothing yet.
    pub fn open(url: &str, password: Option<&str>, sslmode: Option<&str>) -> Result<Self, Fault> {
        let platform = settings(url, password, sslmode)?;
        let name = sibling(platform.get_database().unwrap_or(platform.get_username()))?;
        let door = Arc::new(Door::read_only(platform.clone().database(&name), MAX_CONNECTIONS));
        Ok(Self { door, platform: Arc::new(Door::read_only(platform, 1)), name })
    }

    /// Whether there can be knowledge bases now: the database is there and has been migrated, with a pgvector that is new enough, whose
    /// version it gives. None where the database is there, and this login may not look into it.
    pub async fn ping(&self) -> Result<Option<String>, Fault> {
        const THERE: &str = "SELECT has_database_privilege(d.oid, 'CONNECT') AS open FROM pg_database d WHERE d.datname = $1::text";
        const FOUND: &str = "
            SELECT (SELECT coalesce(max(version), 0) FROM slipway.migrations) AS version,
                   (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'vector') AS vector";
        in_time(async {
            let mut work = self.platform.begin().await?;
            let there = ask(THERE).bind(&self.name).fetch_optional(&mut *work).await?;
            work.commit().await?;
            let there = there.ok_or_else(|| Fault::Unavailable(format!("there is no database {}; the manager makes it", self.name)))?;
            if !there.try_get::<bool, _>("open")? {
                return Ok(None);
            }
            let mut work = self.door.begin().await?;
            let found = ask(FOUND).fetch_one(&mut *work).await?;
            work.commit().await?;
            let vector: Option<String> = found.try_get("vector")?;
            let vector = vector.ok_or_else(|| Fault::Refused(format!("the database {} has no pgvector", self.name)))?;
            recent(&vector)?;
            let version: i32 = found.try_get("version")?;
            if version < LATEST {
                let why = format!("the schema of {} has version {version} of {LATEST}; the manager migrates it", self.name);
                return Err(Fault::Unavailable(why));
            }
            Ok(Some(vector))
        })
        .await
    }

    /// The newest first. Nothing while there is no such base.
    pub async fn documents(
        &self,
        team: &str,
        kb_id: &str,
        uid: &str,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Page<StoredDocument>, Fault> {
        let limit = limit.clamp(1, 1_000);
        let query = AssertSqlSafe(format!(
            "SELECT {DOCUMENT} FROM slipway.documents d WHERE d.base = ({BASE}) AND ($4::text IS NULL OR d.id < $4) ORDER BY d.id DESC LIMIT $5"
        ));
        let rows = self.rows(ask(query).bind(team).bind(kb_id).bind(uid).bind(cursor).bind(i64::from(limit) + 1)).await?;
        Ok(page(rows.iter().map(document).collect::<Result<_, _>>()?, limit))
    }

    pub async fn counts(&self, team: &str, kb_id: &str, uid: &str) -> Result<Counts, Fault> {
        let query = AssertSqlSafe(format!(
            "SELECT count(*) FILTER (WHERE status = 'ready') AS ready, count(*) FILTER (WHERE status = 'error') AS failed,
                    coalesce(sum(chunk_count), 0)::bigint AS chunks, coalesce(sum(bytes), 0)::bigint AS bytes
             FROM slipway.documents d WHERE d.base = ({BASE})"
        ));
        let rows = self.rows(ask(query).bind(team).bind(kb_id).bind(uid)).await?;
        rows.first().map_or(Ok(Counts::default()), types::counts)
    }

    /// An ingestion by the UID of its object; none before it has begun.
    pub async fn ingestion(&self, team: &str, kb_id: &str, uid: &str, ingestion: &str) -> Result<Option<IngestionState>, Fault> {
        let query = AssertSqlSafe(format!(
            "SELECT i.uid, i.source, i.phase, i.seen, i.changed, i.unchanged, i.failed, i.removed, i.pages, i.chunks, i.errors::text AS errors,
                    (extract(epoch FROM i.heartbeat) * 1000000)::bigint AS heartbeat, (extract(epoch FROM i.started_at) * 1000000)::bigint AS started,
                    (extract(epoch FROM i.ended_at) * 1000000)::bigint AS ended
             FROM slipway.ingestions i WHERE i.base = ({BASE}) AND i.uid = $4"
        ));
        let rows = self.rows(ask(query).bind(team).bind(kb_id).bind(uid).bind(ingestion)).await?;
        rows.first().map(state).transpose()
    }

    async fn rows(&self, question: Question<'_>) -> Result<Vec<sqlx::postgres::PgRow>, Fault> {
        in_time(async {
            let mut work = self.door.begin().await?;
            let rows = question.fetch_all(&mut *work).await?;
            work.commit().await?;
            Ok(rows)
        })
        .await
    }
}

fn state(row: &sqlx::postgres::PgRow) -> Result<IngestionState, Fault> {
    let count = |name| Ok::<u64, Fault>(row.try_get::<i64, _>(name)?.unsigned_abs());
    let report = Report {
        phase: row.try_get("phase")?,
        seen: count("seen")?,
        changed: count("changed")?,
        unchanged: count("unchanged")?,
        failed: count("failed")?,
        removed: count("removed")?,
        pages: count("pages")?,
        chunks: count("chunks")?,
        errors: serde_json::from_str(row.try_get("errors")?).unwrap_or_default(),
    };
    Ok(IngestionState {
        uid: row.try_get("uid")?,
        source: row.try_get("source")?,
        report,
        heartbeat: time(row.try_get("heartbeat")?)?,
        started_at: time(row.try_get("started")?)?,
        ended_at: row.try_get::<Option<i64>, _>("ended")?.map(time).transpose()?,
    })
}
