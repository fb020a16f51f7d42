//! The platform's database as the controllers see it: its schema, a login for each team, so that the database itself keeps
//! teams apart, and the end of the rows that nobody has any more. `upkeep` keeps it so while this process leads.
//!
//! A team's password is derived from the platform's key: nothing has to remember it, and all replicas make the same.

mod deliveries;
mod governance;
pub mod knowledge;
pub mod rows;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use slipway_api::ids;
use slipway_database::{
    AppendedCase, Claim, DueFeedback, Ensured, EvaluationResult, Fault, Holder, Home, Isolation, Migrated, Passwords, Retention, Tenants,
    migrate,
};
use tokio::time::Instant;

use crate::caches::secret::keyed_hash;
use crate::database::DatabaseUrl;
use knowledge::Knowledge;
use rows::{Census, Departures};

/// How long a login that was made is believed to be as it was made: a team may give it another password, which is taken
/// back then.
const LOGIN_TTL: Duration = Duration::from_mins(2);
/// How long a database that is away is not asked again: each question waits for its answer, and a Team's other parts with it.
pub(crate) const UNAVAILABLE_TTL: Duration = Duration::from_secs(5);

/// What shall keep teams apart in the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wanted {
    /// A login for each team. Where the platform's own may not make logins, its own is shared, and Teams say so.
    #[default]
    RolePerTeam,
    /// The platform's login for all.
    Shared,
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "rolePerTeam" => Ok(Self::RolePerTeam),
            "shared" => Ok(Self::Shared),
            other => Err(format!("{other:?} is neither rolePerTeam nor shared")),
        }
    }
}

/// What a team's runtimes log in with.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseAccess {
    /// There is no database.
    Without,
    /// Not known yet: what the team's Secret holds stays as it is.
    Unknown,
    Url(DatabaseUrl),
}

/// Where a team stands with the database, for its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseState {
    Isolated,
    /// All share one login; why, and what that costs.
    Shared(String),
    /// The database was asked and did not do it, in these words. What runs keeps its login.
    Unavailable(String),
}

/// Teams are named by their slugs here; in the database they have the ids that their runtimes are told.
pub struct Tenancy {
    url: DatabaseUrl,
    wanted: Wanted,
    tenants: Tenants,
    key: Vec<u8>,
    schema: Mutex<Schema>,
    /// When the database was last found to be away, and in which words.
    away: Mutex<Option<(Instant, String)>>,
    logins: Mutex<HashMap<String, Known>>,
    /// By id: the UID of the Agent that the rows are known to belong to.
    claims: Mutex<HashMap<String, String>>,
    /// Teams for which something of an earlier Team of their name has to go first.
    crowded: Mutex<BTreeSet<String>>,
    /// Handing over that has been noted: the UIDs of who is to have rows, and of who had them.
    handed: Mutex<HashSet<(String, String)>>,
    /// The UID of the cluster, once it has been asked for; empty when this manager may not know it.
    cluster: OnceLock<String>,
    departures: Departures,
    knowledge: Knowledge,
}

enum Schema {
    /// Not looked at yet, or what kept it from being brought up to date.
    Behind(Option<Fault>),
    Ready,
}

/// What came of asking for a team's login, and when.
struct Known {
    /// None: the platform's own, and why.
    login: Result<DatabaseUrl, String>,
    /// The Team's UID.
    of: String,
    at: Instant,
}

impl fmt::Debug for DatabaseAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Without => "Without",
            Self::Unknown => "Unknown",
            Self::Url(_) => "Url",
        })
    }
}

impl Tenancy {
    /// Connects to nothing yet.
    pub fn open(url: &DatabaseUrl, wanted: Wanted, key: &[u8]) -> Result<Self, Fault> {
        let tenants = Tenants::open(url.complete(), None, None)?;
        let schema = Mutex::new(Schema::Behind(None));
        Ok(Self {
            url: url.clone(),
            wanted,
            tenants,
            key: key.to_vec(),
            schema,
            away: Mutex::default(),
            logins: Mutex::default(),
            claims: Mutex::default(),
            crowded: Mutex::default(),
            handed: Mutex::default(),
            cluster: OnceLock::new(),
            departures: Departures::default(),
            knowledge: Knowledge::open(url.complete()),
        })
    }

    /// Says which cluster this is, once.
    pub fn is_of(&self, cluster: String) {
        drop(self.cluster.set(cluster));
    }

    /// A Team as the database is to know it.
    pub fn home(&self, slug: &str, uid: &str, created: i64, adopts: Option<String>) -> Home {
        let cluster = self.cluster.get().cloned().unwrap_or_default();
        Home { team: ids::team(slug), uid: uid.to_owned(), created, adopts, cluster }
    }

    /// Brings the schema up to date, and that of the sibling database. Without the second there are no knowledge bases.
    pub async fn migrate(&self) -> Result<Migrated, Fault> {
        let outcome = migrate(self.url.complete(), None, None).await;
        *locked(&self.schema) = match &outcome {
            Ok(_) => Schema::Ready,
            Err(fault) => Schema::Behind(Some(fault.clone())),
        };
        if outcome.is_ok()
            && let Err(fault) = self.migrate_knowledge().await
        {
            tracing::warn!(fault, "the database of knowledge bases could not be brought up to date; all else goes on");
        }
        outcome
    }

    /// Whether the platform's own schema is up to date.
    pub(crate) fn is_migrated(&self) -> bool {
        matches!(&*locked(&self.schema), Schema::Ready)
    }

    /// Makes or mends a Team's login, unless that was done a moment ago, and lets it in to its knowledge bases.
    pub async fn ensure(&self, home: &Home) -> DatabaseState {
        let standing = self.ensure_login(home).await;
        if standing == DatabaseState::Isolated
            && let DatabaseAccess::Url(url) = self.access(ids::team_slug(&home.team), &home.uid)
        {
            self.knowledge.admit(home, url.user()).await;
        }
        standing
    }

    async fn ensure_login(&self, home: &Home) -> DatabaseState {
        if self.wanted == Wanted::Shared {
            return DatabaseState::Shared(
                Isolation::Shared { why: "the chart's value database.isolation is shared".to_owned() }.to_string(),
            );
        }
        let team = ids::team_slug(&home.team);
        if let Some(former) = &home.adopts {
            self.hand_over(team, &home.uid, former);
        }
        if let Some(known) = locked(&self.logins).get(team).filter(|known| known.of == home.uid && known.at.elapsed() < LOGIN_TTL) {
            return known.standing();
        }
        if let Err(why) = self.answers() {
            return DatabaseState::Unavailable(why);
        }
        match self.ask(home).await {
            Ok(Some(login)) => {
                let known = Known { login, of: home.uid.clone(), at: Instant::now() };
                let standing = known.standing();
                locked(&self.logins).insert(team.to_owned(), known);
                locked(&self.crowded).remove(team);
                standing
            }
            Ok(None) => {
                locked(&self.logins).remove(team);
                if locked(&self.crowded).insert(team.to_owned()) {
                    self.departures.look_at(team);
                }
                DatabaseState::Unavailable("the database holds rows of an earlier Team of this name, which are removed first".to_owned())
            }
            Err(fault) => DatabaseState::Unavailable(self.noted(&fault)),
        }
    }

    /// Why there is no use in asking the database now.
    fn answers(&self) -> Result<(), String> {
        if let Schema::Behind(fault) = &*locked(&self.schema) {
            return Err(fault.as_ref().map_or("its schema has not been looked at yet".to_owned(), ToString::to_string));
        }
        match &*locked(&self.away) {
            Some((at, why)) if at.elapsed() < UNAVAILABLE_TTL => Err(why.clone()),
            _ => Ok(()),
        }
    }

    fn noted(&self, fault: &Fault) -> String {
        let why = fault.to_string();
        if matches!(fault, Fault::Unavailable(_)) {
            *locked(&self.away) = Some((Instant::now(), why.clone()));
        }
        why
    }

    /// None while something of an earlier Team is there.
    async fn ask(&self, home: &Home) -> Result<Option<Result<DatabaseUrl, String>>, Fault> {
        let team = ids::team_slug(&home.team);
        let passwords = Passwords { own: self.password(&[team, &home.uid]), before: self.password(&[team]) };
        match self.tenants.ensure(home, &passwords).await? {
            Ensured::Login(login) => return Ok(Some(Ok(self.url.clone().with_login(&login.user, &login.password)))),
            Ensured::Former => return Ok(None),
            Ensured::Shared => {}
        }
        match self.tenants.isolation().await? {
            shared @ Isolation::Shared { .. } => Ok(Some(Err(shared.to_string()))),
            // The right to make logins was given between the two questions.
            Isolation::RolePerTeam => Err(Fault::Unavailable("its rights are just being changed".to_owned())),
        }
    }

    /// What the runtimes of the Team of that UID log in with, as far as is known now.
    pub fn access(&self, team: &str, uid: &str) -> DatabaseAccess {
        if self.wanted == Wanted::Shared {
            return DatabaseAccess::Url(self.url.clone());
        }
        match locked(&self.logins).get(team).filter(|known| known.of == uid).map(|known| known.login.clone()) {
            Some(Ok(url)) => DatabaseAccess::Url(url),
            Some(Err(_)) => DatabaseAccess::Url(self.url.clone()),
            None => DatabaseAccess::Unknown,
        }
    }

    /// Lets an Agent begin, once what lies under its id in the database is its own; or says what it waits for.
    pub async fn admit(&self, home: &Home, holder: &Holder) -> Result<(), String> {
        let team = ids::team_slug(&home.team);
        if let Some(former) = &holder.adopts {
            self.hand_over(team, &holder.uid, former);
        }
        if self.holds(holder) {
            return Ok(());
        }
        self.answers()
            .map_err(|why| format!("waiting for the database, to know whether it holds rows of an earlier Agent of this name: {why}"))?;
        match self.tenants.claim(home, std::slice::from_ref(holder)).await.map(|claims| claims.first().copied()) {
            Ok(Some(Claim::Held)) => {
                self.hold(holder);
                Ok(())
            }
            Ok(Some(Claim::Taken { .. })) => {
                self.departures.look_at(team);
                Err("the database holds rows of an earlier Agent of this name, which are removed first".to_owned())
            }
            Ok(_) => Err("pods of an earlier Agent of this name have yet to end: they could write among this one's rows".to_owned()),
            Err(fault) => {
                Err(format!("waiting for the database, to know whether it holds rows of an earlier Agent: {}", self.noted(&fault)))
            }
        }
    }

    fn holds(&self, holder: &Holder) -> bool {
        locked(&self.claims).get(&holder.agent_id) == Some(&holder.uid)
    }

    fn hold(&self, holder: &Holder) {
        locked(&self.claims).insert(holder.agent_id.clone(), holder.uid.clone());
    }

    /// Has the team's rows looked at when an admin has said that somebody is to have those of somebody else.
    fn hand_over(&self, team: &str, heir: &str, former: &str) {
        if locked(&self.handed).insert((heir.to_owned(), former.to_owned())) {
            self.departures.look_at(team);
        }
    }

    /// Notes that an Agent has gone.
    pub fn departed(&self, namespace: &str, name: &str, now: Instant) {
        self.departures.note(namespace, name, now);
    }

    /// Notes that the last pod of an Agent has gone, after the Agent itself.
    pub fn emptied(&self, namespace: &str, name: &str, now: Instant) {
        self.departures.renew(namespace, name, now);
    }

    /// Resolves when an Agent has gone, or a team is to be compared, since the last time.
    pub(crate) async fn next_departure(&self) {
        self.departures.next().await;
    }

    /// Teams that wait until something of an earlier Team of their name has gone.
    pub(crate) fn crowded(&self) -> BTreeSet<String> {
        locked(&self.crowded).clone()
    }

    /// Deletes a team's rows, and its login. Begun and broken off, it is taken up again by the next call.
    pub async fn remove(&self, team: &str) -> Result<u64, Fault> {
        locked(&self.logins).remove(team);
        self.knowledge.leave(&ids::team(team)).await?;
        self.tenants.remove(&ids::team(team)).await
    }

    /// The cases that feedback has appended for an Agent of the team, or why they cannot be read.
    pub async fn appended_cases(&self, team: &str, agent_id: &str, uid: &str) -> Result<Vec<AppendedCase>, String> {
        self.answers()?;
        self.tenants.appended_cases(&ids::team(team), agent_id, uid).await.map_err(|fault| self.noted(&fault))
    }

    /// Marks that MLflow is to be sent, the oldest first, or why they cannot be read.
    pub async fn due_feedback(&self, limit: u32) -> Result<Vec<DueFeedback>, String> {
        self.answers()?;
        self.tenants.due_feedback(limit).await.map_err(|fault| self.noted(&fault))
    }

    /// Notes that MLflow has a mark.
    pub async fn feedback_delivered(&self, due: &DueFeedback) -> Result<(), String> {
        self.tenants.feedback_delivered(due).await.map(drop).map_err(|fault| self.noted(&fault))
    }

    /// Lets a mark wait.
    pub async fn postpone_feedback(&self, due: &DueFeedback) -> Result<(), String> {
        self.tenants.postpone_feedback(due).await.map_err(|fault| self.noted(&fault))
    }

    /// What a run of an agent found case by case, as far as the agent's runtime or the manager has written it to this database.
    pub async fn evaluation_results(&self, team: &str, agent: &str, run: &str) -> Result<Vec<EvaluationResult>, Fault> {
        self.tenants.evaluation_results(&ids::team(team), agent, run).await
    }

    /// Writes what a run of an agent found case by case in the place of all that lies there, or says why not.
    pub async fn replace_evaluation_results(&self, team: &str, agent: &str, run: &str, results: &[EvaluationResult]) -> Result<(), String> {
        self.answers()?;
        let replaced = self.tenants.replace_evaluation_results(&ids::team(team), agent, run, results).await;
        replaced.map_err(|fault| self.noted(&fault))
    }

    /// Deletes the rows of Teams that are gone from this cluster, what was set aside long enough ago, results of evaluations
    /// and scores of samples after a month, and feedback after `feedback_days`. Whose rows there are is asked of the database, and who is
    /// there of the API server: nothing has to be remembered.
    pub async fn settle(&self, census: &impl Census, feedback_days: u32, retention: &Retention) -> Result<(), Fault> {
        if let Some(cluster) = self.cluster.get().filter(|cluster| !cluster.is_empty()) {
            let known = self.tenants.teams_of(cluster).await?;
            if known.iter().any(|(team, _)| census.teams().is_some_and(|teams| !teams.contains(team)))
                && let Some(asked) = census.asked_teams().await
            {
                let gone: BTreeSet<&String> = known.iter().map(|(team, _)| team).filter(|team| !asked.contains(*team)).collect();
                for team in gone {
                    let rows = self.remove(ids::team_slug(team)).await?;
                    tracing::info!(team, rows, "the rows of a team that is gone were deleted");
                }
            }
        }
        self.tenants.drop_roles().await?;
        let expired = self.tenants.expire().await?;
        if expired > 0 {
            tracing::info!(rows = expired, "rows that nobody asked for since they were set aside were deleted");
        }
        let old = self.tenants.delete_old_evaluation_results().await? + self.tenants.delete_old_samples().await?;
        if old > 0 {
            tracing::info!(rows = old, "results of evaluations and scores of samples that are older than a month were deleted");
        }
        let old = self.tenants.delete_old_feedback(feedback_days).await?;
        if old > 0 {
            tracing::info!(rows = old, feedback_days, "old feedback was deleted");
        }
        self.prune(retention).await
    }

    fn password(&self, of: &[&str]) -> String {
        hex::encode(keyed_hash(&self.key, of.iter().map(|part| (b"database login".as_slice(), part.as_bytes()))))
    }
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Known {
    fn standing(&self) -> DatabaseState {
        match &self.login {
            Ok(_) => DatabaseState::Isolated,
            Err(why) => DatabaseState::Shared(why.clone()),
        }
    }
}
