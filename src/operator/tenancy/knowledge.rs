//! The sibling database, which knowledge bases lie in: its schema, who of the teams' logins may use it, and the bases. A platform
//! whose sibling database cannot be made goes on without knowledge bases, and they say why.

use std::collections::HashMap;
use std::sync::Mutex;

use slipway_api::ids;
use slipway_api::ingestion::{DocumentError, IngestedDocuments};
use slipway_database::knowledge::{
    BaseInfo, BaseSpec, Counts, Ending, IngestionState, KnowledgeAdmin, KnowledgeMigrated, KnowledgeReader, Quota,
};
use slipway_database::{Fault, Home};
use tokio::time::Instant;

use super::{LOGIN_TTL, Tenancy, UNAVAILABLE_TTL, locked};
use crate::settings::QuotaSettings;

/// How many bytes of files may wait to be ingested into a base, and into all bases of a team.
const UPLOAD_QUOTA: u64 = 1024 * 1024 * 1024;
const TEAM_UPLOAD_QUOTA: u64 = 4 * UPLOAD_QUOTA;
const NOT_YET: &str = "the database of knowledge bases has not been looked at yet";
/// How a report says that the ingestion itself has failed, and not one of its documents.
const WHOLE: &str = "";

struct Doors {
    admin: KnowledgeAdmin,
    reader: KnowledgeReader,
}

/// The doors to the sibling database, and what is known of it.
pub(super) struct Knowledge {
    /// Or why there is none, for good.
    doors: Result<Doors, String>,
    schema: Mutex<Schema>,
    away: Mutex<Option<(Instant, String)>>,
    /// By team: the login that was let in, the Team's UID, and when.
    admitted: Mutex<HashMap<String, (String, String, Instant)>>,
    /// By UID of a base: the Team's UID with which it was made or found.
    made: Mutex<HashMap<String, String>>,
}

/// The schema of the sibling database.
enum Schema {
    /// Not looked at yet, or what kept it from being brought up to date and may pass.
    Behind(Option<String>),
    /// Somebody has to change something first. There are no knowledge bases.
    Refused(String),
    Ready,
}

/// How far an ingestion is, in its pod's words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IngestionProgress {
    pub stage: Stage,
    pub documents: IngestedDocuments,
    pub pages: i64,
    pub chunks: i64,
    pub errors: Vec<DocumentError>,
    /// Why the ingestion itself failed.
    pub failure: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Running,
    Completed,
    /// An attempt has; there may be another one.
    Failed,
    /// It read its source to the end and found next to nothing of what was indexed.
    Doubtful,
    /// The team's quota has no room for some of the documents.
    Full,
}

impl IngestionProgress {
    /// The reason of an ingestion that has failed in its pod's words.
    pub fn reason(&self) -> &'static str {
        match self.stage {
            Stage::Doubtful => "RemovalNotConfirmed",
            Stage::Full => "KnowledgeQuotaExceeded",
            Stage::Running | Stage::Completed | Stage::Failed => "IngestionFailed",
        }
    }
}

impl Knowledge {
    pub(super) fn open(url: &str) -> Self {
        let doors = KnowledgeAdmin::open(url, None, None)
            .and_then(|admin| Ok(Doors { admin, reader: KnowledgeReader::open(url, None, None)? }))
            .map_err(|fault| fault.to_string());
        Self { doors, schema: Mutex::new(Schema::Behind(None)), away: Mutex::default(), admitted: Mutex::default(), made: Mutex::default() }
    }

    fn admin(&self) -> Result<&KnowledgeAdmin, String> {
        self.doors().map(|doors| &doors.admin)
    }

    /// The doors, if there is any use in trying them now.
    fn doors(&self) -> Result<&Doors, String> {
        let doors = self.doors.as_ref().map_err(Clone::clone)?;
        match &*locked(&self.schema) {
            Schema::Behind(why) => return Err(why.clone().unwrap_or_else(|| NOT_YET.to_owned())),
            Schema::Refused(why) => return Err(why.clone()),
            Schema::Ready => {}
        }
        match &*locked(&self.away) {
            Some((at, why)) if at.elapsed() < UNAVAILABLE_TTL => Err(why.clone()),
            _ => Ok(doors),
        }
    }

    fn noted(&self, fault: &Fault) -> String {
        let why = fault.to_string();
        if matches!(fault, Fault::Unavailable(_)) {
            *locked(&self.away) = Some((Instant::now(), why.clone()));
        }
        why
    }

    /// Lets a Team's login in, unless that was done a moment ago. That it cannot be done keeps nobody from anything else.
    pub(super) async fn admit(&self, home: &Home, user: &str) {
        let known = (user.to_owned(), home.uid.clone());
        let is_known = locked(&self.admitted)
            .get(&home.team)
            .is_some_and(|(user, uid, at)| (user, uid) == (&known.0, &known.1) && at.elapsed() < LOGIN_TTL);
        let Ok(admin) = self.admin() else { return };
        if is_known {
            return;
        }
        match admin.admit(&home.team, &home.uid, user).await {
            Ok(()) => drop(locked(&self.admitted).insert(home.team.clone(), (known.0, known.1, Instant::now()))),
            Err(fault) => {
                tracing::warn!(team = home.team, fault = self.noted(&fault), "a team's login was not let in to its knowledge bases");
            }
        }
    }

    /// Before a team's login and rows go: what it has here.
    pub(super) async fn leave(&self, team: &str) -> Result<(), Fault> {
        locked(&self.admitted).remove(team);
        let Ok(Doors { admin, .. }) = &self.doors else { return Ok(()) };
        match &*locked(&self.schema) {
            Schema::Behind(why) => return Err(Fault::Unavailable(why.clone().unwrap_or_else(|| NOT_YET.to_owned()))),
            // Where it cannot be made there is nothing in it.
            Schema::Refused(_) => return Ok(()),
            Schema::Ready => {}
        }
        admin.shut_out(team).await?;
        for base in admin.bases().await?.into_iter().filter(|base| base.team == team) {
            admin.drop_base(&base.uid).await?;
        }
        Ok(())
    }
}

impl Tenancy {
    /// Makes the sibling database, or brings its schema up to date.
    pub async fn migrate_knowledge(&self) -> Result<KnowledgeMigrated, String> {
        let doors = self.knowledge.doors.as_ref().map_err(Clone::clone)?;
        let outcome = doors.admin.migrate().await;
        *locked(&self.knowledge.schema) = match &outcome {
            Ok(_) => Schema::Ready,
            Err(fault) if fault.is_passing() => Schema::Behind(Some(fault.to_string())),
            Err(fault) => Schema::Refused(fault.to_string()),
        };
        outcome.map_err(|fault| fault.to_string())
    }

    /// Makes a team's base, unless this process has seen it; or says why it cannot.
    pub async fn ensure_base(&self, home: &Home, uid: &str, name: &str, quota: QuotaSettings) -> Result<(), String> {
        let admin = self.knowledge.admin()?;
        if locked(&self.knowledge.made).get(uid) == Some(&home.uid) {
            return Ok(());
        }
        let spec = BaseSpec {
            uid: uid.to_owned(),
            team: home.team.clone(),
            team_uid: home.uid.clone(),
            kb_id: ids::knowledge_base(name),
            upload_quota: UPLOAD_QUOTA,
            team_upload_quota: TEAM_UPLOAD_QUOTA,
            quota: Quota { documents: quota.documents, chunks: quota.chunks },
        };
        admin.ensure_base(&spec).await.map_err(|fault| self.knowledge.noted(&fault))?;
        locked(&self.knowledge.made).insert(uid.to_owned(), home.uid.clone());
        Ok(())
    }

    /// What is in a base.
    pub async fn base(&self, uid: &str) -> Result<Option<(BaseInfo, Counts)>, String> {
        let found = self.knowledge.admin()?.base(uid).await.map_err(|fault| self.knowledge.noted(&fault))?;
        if found.is_none() {
            // It was dropped, by whomever: it is made again.
            locked(&self.knowledge.made).remove(uid);
        }
        Ok(found)
    }

    /// All bases, by UID, with the team's id.
    pub async fn bases(&self) -> Result<Vec<BaseInfo>, String> {
        self.knowledge.admin()?.bases().await.map_err(|fault| self.knowledge.noted(&fault))
    }

    pub async fn drop_base(&self, uid: &str) -> Result<(), String> {
        locked(&self.knowledge.made).remove(uid);
        self.knowledge.admin()?.drop_base(uid).await.map_err(|fault| self.knowledge.noted(&fault))
    }

    /// Deletes files that were uploaded and that nobody ingests, and ends what was begun and broken off.
    pub async fn prune_knowledge(&self) -> Result<(), String> {
        self.knowledge.admin()?.prune().await.map_err(|fault| self.knowledge.noted(&fault))
    }

    /// How far an ingestion into a team's base is, by name and UID of the base. None before its pod has begun.
    pub async fn ingestion_progress(
        &self,
        team: &str,
        (name, uid): (&str, &str),
        ingestion: &str,
    ) -> Result<Option<IngestionProgress>, String> {
        let reader = &self.knowledge.doors()?.reader;
        let found = reader.ingestion(&ids::team(team), &ids::knowledge_base(name), uid, ingestion).await;
        Ok(found.map_err(|fault| self.knowledge.noted(&fault))?.map(IngestionProgress::from))
    }
}

impl From<IngestionState> for IngestionProgress {
    fn from(state: IngestionState) -> Self {
        let report = state.report;
        let reached = match state.ended_at.map(|_| Ending::of(&report.phase)) {
            Some(Ending::Succeeded) => Stage::Completed,
            Some(Ending::Failed) => Stage::Failed,
            Some(Ending::Doubtful) => Stage::Doubtful,
            Some(Ending::Full) => Stage::Full,
            None => Stage::Running,
        };
        let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        let (whole, documents): (Vec<_>, Vec<_>) = report.errors.into_iter().partition(|error| error.key == WHOLE);
        Self {
            stage: reached,
            documents: IngestedDocuments {
                seen: count(report.seen),
                changed: count(report.changed),
                unchanged: count(report.unchanged),
                failed: count(report.failed),
                removed: count(report.removed),
            },
            pages: count(report.pages),
            chunks: count(report.chunks),
            errors: documents
                .into_iter()
                .map(|error| DocumentError { document: cut(error.key, 512), message: cut(error.error, 1024) })
                .collect(),
            failure: whole
                .into_iter()
                .next_back()
                .map(|error| error.error)
                .filter(|_| !matches!(reached, Stage::Running | Stage::Completed)),
        }
    }
}

/// The first characters of a text.
fn cut(text: String, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text,
        Some(_) => text.chars().take(most - 1).chain(['…']).collect(),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use slipway_database::knowledge::{DocumentError as Reported, Report};

    use super::*;

    #[test]
    fn progress_is_what_the_pod_reports() {
        let now = Timestamp::UNIX_EPOCH;
        let state = |phase: &str, ended: bool, errors: &[(&str, &str)]| IngestionState {
            uid: "u".to_owned(),
            source: "s".to_owned(),
            report: Report {
                phase: phase.to_owned(),
                seen: 3,
                failed: 1,
                pages: 7,
                errors: errors.iter().map(|(key, error)| Reported { key: (*key).to_owned(), error: (*error).to_owned() }).collect(),
                ..Report::default()
            },
            heartbeat: now,
            started_at: now,
            ended_at: ended.then_some(now),
        };
        let of = |phase, ended, errors: &[(&str, &str)]| IngestionProgress::from(state(phase, ended, errors));
        let running = of("traversing", false, &[("a", "it has a password")]);
        assert_eq!((running.stage, running.documents.seen, running.pages, running.errors.len()), (Stage::Running, 3, 7, 1));
        assert_eq!(of("succeeded", true, &[]).stage, Stage::Completed);
        let failed = of("failed", true, &[("a", "it has a password"), (WHOLE, "the bucket is not there")]);
        assert_eq!((failed.stage, failed.errors.len(), failed.failure.as_deref()), (Stage::Failed, 1, Some("the bucket is not there")));
        let doubtful = of("doubtful", true, &[(WHOLE, "the source lists 0 documents")]);
        assert_eq!((doubtful.reason(), doubtful.failure.is_some(), failed.reason()), ("RemovalNotConfirmed", true, "IngestionFailed"));
        assert_eq!(of("full", true, &[(WHOLE, "there is no room")]).reason(), "KnowledgeQuotaExceeded");
        let long = of("failed", true, &[(&"ä".repeat(600), "x")]);
        assert_eq!(long.errors[0].document.chars().count(), 512);
    }
}
