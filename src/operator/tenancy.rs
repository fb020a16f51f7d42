//! The platform's database as the controllers see it: its schema kept up to date by whoever leads, a login for each
//! team, so that the database itself keeps teams apart, and the end of the rows that nobody has any more.
//!
//! A team's password is derived from the platform's key: nothing has to remember it, and all replicas make the same.

pub mod rows;

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::Resource;
use slipway_api::ids;
use slipway_database::{Fault, Isolation, Migrated, Tenants, migrate};
use tokio::time::Instant;

use crate::database::DatabaseUrl;
use crate::event::Happening;
use crate::queue::Key;
use crate::world::World;
use crate::world::secret::keyed_hash;
use rows::{Cleared, Departures, Leavings};

/// How long a login that was made is believed to be there still.
const BELIEVED: Duration = Duration::from_mins(10);
/// How long a database that is away is not asked again: each question waits for its answer, and a Team's other parts with it.
const AWAY: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

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
pub enum Access {
    /// There is no database.
    Without,
    /// Not known yet: what the team's Secret holds stays as it is.
    Unknown,
    Url(DatabaseUrl),
}

/// Where a team stands with the database, for its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
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
    /// Teams that are gone and whose rows are not.
    debts: Mutex<BTreeSet<String>>,
    departures: Departures,
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
    at: Instant,
}

impl fmt::Debug for Access {
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
            debts: Mutex::default(),
            departures: Departures::default(),
        })
    }

    /// Brings the schema up to date.
    pub async fn migrate(&self) -> Result<Migrated, Fault> {
        let outcome = migrate(self.url.complete(), None, None).await;
        *self.schema.lock().unwrap_or_else(PoisonError::into_inner) = match &outcome {
            Ok(_) => Schema::Ready,
            Err(fault) => Schema::Behind(Some(fault.clone())),
        };
        outcome
    }

    /// Makes or mends the login of the team with that slug, unless that was done a moment ago.
    pub async fn ensure(&self, team: &str) -> Standing {
        // Whatever a team of that name left, this one is here now.
        self.debts.lock().unwrap_or_else(PoisonError::into_inner).remove(team);
        if self.wanted == Wanted::Shared {
            return Standing::Shared(Isolation::Shared { why: "the chart's value database.isolation is shared".to_owned() }.to_string());
        }
        if let Some(known) =
            self.logins.lock().unwrap_or_else(PoisonError::into_inner).get(team).filter(|known| known.at.elapsed() < BELIEVED)
        {
            return known.standing();
        }
        if let Schema::Behind(fault) = &*self.schema.lock().unwrap_or_else(PoisonError::into_inner) {
            let why = fault.as_ref().map_or("its schema has not been looked at yet".to_owned(), ToString::to_string);
            return Standing::Unavailable(why);
        }
        if let Some((at, why)) = &*self.away.lock().unwrap_or_else(PoisonError::into_inner)
            && at.elapsed() < AWAY
        {
            return Standing::Unavailable(why.clone());
        }
        match self.ask(team).await {
            Ok(login) => {
                let known = Known { login, at: Instant::now() };
                let standing = known.standing();
                self.logins.lock().unwrap_or_else(PoisonError::into_inner).insert(team.to_owned(), known);
                standing
            }
            Err(fault) => {
                let why = fault.to_string();
                if matches!(fault, Fault::Unavailable(_)) {
                    *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), why.clone()));
                }
                Standing::Unavailable(why)
            }
        }
    }

    async fn ask(&self, team: &str) -> Result<Result<DatabaseUrl, String>, Fault> {
        if let Some(login) = self.tenants.ensure(&ids::team(team), &self.password(team)).await? {
            return Ok(Ok(self.url.clone().with_login(&login.user, &login.password)));
        }
        match self.tenants.isolation().await? {
            shared @ Isolation::Shared { .. } => Ok(Err(shared.to_string())),
            // The right to make logins was given between the two questions.
            Isolation::RolePerTeam => Err(Fault::Unavailable("its rights are just being changed".to_owned())),
        }
    }

    /// What the team's runtimes log in with, as far as is known now.
    pub fn access(&self, team: &str) -> Access {
        if self.wanted == Wanted::Shared {
            return Access::Url(self.url.clone());
        }
        match self.logins.lock().unwrap_or_else(PoisonError::into_inner).get(team).map(|known| known.login.clone()) {
            Some(Ok(url)) => Access::Url(url),
            Some(Err(_)) => Access::Url(self.url.clone()),
            None => Access::Unknown,
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

    /// Deletes a team's rows, and its login. Begun and broken off, it is taken up again by the next call.
    pub async fn remove(&self, team: &str) -> Result<u64, Fault> {
        self.logins.lock().unwrap_or_else(PoisonError::into_inner).remove(team);
        self.tenants.remove(&ids::team(team)).await
    }

    /// Remembers a team whose rows could not be deleted, for as long as this process lives.
    pub fn owe(&self, team: &str) {
        self.debts.lock().unwrap_or_else(PoisonError::into_inner).insert(team.to_owned());
    }

    /// Deletes what is owed, as far as that can be done now.
    pub async fn pay(&self) {
        let debts = self.debts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for team in debts {
            // A team of that name may have come while others were deleted.
            if !self.debts.lock().unwrap_or_else(PoisonError::into_inner).contains(&team) {
                continue;
            }
            match self.remove(&team).await {
                Ok(rows) => {
                    tracing::info!(team, rows, "the rows of a team that is gone were deleted at last");
                    self.debts.lock().unwrap_or_else(PoisonError::into_inner).remove(&team);
                }
                Err(fault) => tracing::warn!(team, %fault, "the rows of a team that is gone cannot be deleted yet"),
            }
        }
    }

    fn password(&self, team: &str) -> String {
        hex::encode(keyed_hash(&self.key, [(b"database login".as_slice(), team.as_bytes())].into_iter()))
    }
}

impl Known {
    fn standing(&self) -> Standing {
        match &self.login {
            Ok(_) => Standing::Isolated,
            Err(why) => Standing::Shared(why.clone()),
        }
    }
}

/// Migrates, again and again until it succeeds, and has the teams looked at after each attempt: they say how it went.
/// From then on it deletes what is owed.
pub(crate) async fn keep(world: &World) {
    let Some(tenancy) = &world.tenancy else { return };
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = tenancy.migrate().await;
        world.metrics.database_ready.set(i64::from(outcome.is_ok()));
        world.teams.keys().into_iter().for_each(|key: Key| world.team_queue.add(key));
        match outcome {
            Ok(Migrated { from, to, vectors }) => {
                tracing::info!(from, to, %vectors, "the database's schema is up to date");
                break;
            }
            Err(fault) => {
                world.metrics.database_failures.inc();
                tracing::warn!(%fault, again_in = ?pause, "the database's schema could not be brought up to date; agents go on running");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
    let mut leavings = Leavings::default();
    let mut pay_day = Instant::now() + LONGEST_PAUSE;
    loop {
        match clear(world, tenancy, &mut leavings).await {
            Ok(next) => tokio::select! {
                () = tokio::time::sleep_until(next.min(pay_day)) => {}
                () = tenancy.departures.next() => {}
            },
            Err(fault) => {
                world.metrics.database_failures.inc();
                tracing::warn!(%fault, again_in = ?LONGEST_PAUSE, "the rows of agents that are gone cannot be deleted yet");
                tokio::time::sleep(LONGEST_PAUSE).await;
            }
        }
        if Instant::now() >= pay_day {
            tenancy.pay().await;
            pay_day = Instant::now() + LONGEST_PAUSE;
        }
    }
}

/// Deletes the rows of agents that are gone, as far as their time has come, and says when to come back.
async fn clear(world: &World, tenancy: &Tenancy, leavings: &mut Leavings) -> Result<Instant, Fault> {
    let teams = world.teams.keys().into_iter().map(|key| key.name).collect();
    let (cleared, outcome) = leavings.round(tenancy, world, &teams, Instant::now()).await;
    for Cleared { team, name, id, rows } in cleared {
        tracing::info!(team, agent = id, name, rows, "the rows of an agent that is gone were deleted");
        let agent = name.map_or(format!("agent {id}"), |name| format!("agent {name} ({id})"));
        let note = format!("the rows of {agent}, which is gone, were deleted from the database: {rows}");
        let happening = Happening { warning: false, reason: "RowsDeleted".to_owned(), action: "Delete", note };
        if let Some(team) = world.teams.get(&Key::new("", &team)).as_ref().and_then(|team| team.0.as_ref().ok()) {
            world.events.publish(&team.object_ref(&()), happening).await;
        }
    }
    outcome
}
