//! The rows of agents that are gone. No finalizer holds an Agent back for their sake, so that a database which is away
//! keeps nobody from deleting Agents. Whoever leads compares the rows that there are with the Agents that there are, soon
//! after one has gone and from time to time; what was missed, or broken off, is found by the next comparison.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slipway_api::ids;
use slipway_database::Fault;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Tenancy;

/// How long an Agent is gone before its rows go. One that comes back under its name by then, or before the last batch,
/// keeps what is there.
pub const GRACE: Duration = Duration::from_secs(10);
/// How long a Team has to exist before rows go of agents that nobody here has seen going. In a cluster that is being
/// restored from a backup, Teams may come well before their Agents.
pub const SETTLED: Duration = Duration::from_hours(1);
/// How often each team is compared though nothing is known to have changed.
const EVERY: Duration = Duration::from_mins(5);
/// When it is tried again after the database, or the API server, had no answer.
const AGAIN: Duration = Duration::from_mins(1);

/// The agents that there are.
pub trait Census: Sync {
    /// The ids of a team's agents as last heard; none while that is not known for sure.
    fn heard(&self, team: &str) -> Option<HashSet<String>>;
    /// The same, asked for now: what is deleted does not come back.
    fn asked(&self, team: &str) -> impl Future<Output = Option<HashSet<String>>> + Send;
    /// For how long the team has existed.
    fn age(&self, team: &str) -> Duration;
}

/// Agents that were seen going, by standing-by replicas too.
#[derive(Default)]
pub(super) struct Departures {
    noted: Mutex<Noted>,
    wake: Notify,
}

#[derive(Default)]
struct Noted {
    /// By id: the name, and when.
    gone: HashMap<String, (String, Instant)>,
    /// Teams that have not been compared since.
    teams: BTreeSet<String>,
    tidied: Option<Instant>,
}

impl Departures {
    /// Notes that an Agent has gone. Seen late, as after a lost watch, it has its grace all the same.
    pub(super) fn note(&self, namespace: &str, name: &str, now: Instant) {
        let Some(team) = namespace.strip_prefix("team-") else { return };
        let mut noted = self.noted();
        // On a replica that never leads nobody takes these away.
        if noted.tidied.is_none_or(|tidied| now.duration_since(tidied) >= AGAIN) {
            noted.gone.retain(|_, (_, at)| now.duration_since(*at) < SETTLED);
            noted.tidied = Some(now);
        }
        noted.gone.insert(ids::agent(namespace, name), (name.to_owned(), now));
        noted.teams.insert(team.to_owned());
        self.wake.notify_one();
    }

    /// The last pod of an Agent has gone: of one that was seen going before, the grace begins now. Pods that go though
    /// their Agent was never here, as in a cluster that is being restored, tell nothing.
    pub(super) fn renew(&self, namespace: &str, name: &str, now: Instant) {
        if self.seen(&ids::agent(namespace, name)).is_some() {
            self.note(namespace, name, now);
        }
    }

    /// Resolves when an Agent has gone since the last time.
    pub(super) async fn next(&self) {
        self.wake.notified().await;
    }

    fn noted(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn teams(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.noted().teams)
    }

    fn seen(&self, id: &str) -> Option<(String, Instant)> {
        self.noted().gone.get(id).cloned()
    }

    fn forget(&self, id: &str) {
        self.noted().gone.remove(id);
    }
}

/// An agent's rows that were deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    pub team: String,
    /// The Agent's name, if it was seen going.
    pub name: Option<String>,
    pub id: String,
    pub rows: u64,
}

/// What whoever leads knows of rows that no agent has.
#[derive(Default)]
pub struct Leavings {
    /// When each team is to be compared next.
    due: BTreeMap<String, Instant>,
    /// By team and id: since when there were rows and no agent.
    found: HashMap<(String, String), Instant>,
}

impl Leavings {
    /// Compares the teams whose time has come; says what was deleted, and when to come back or what is in the way.
    pub async fn round(
        &mut self,
        tenancy: &Tenancy,
        census: &impl Census,
        teams: &BTreeSet<String>,
        now: Instant,
    ) -> (Vec<Cleared>, Result<Instant, Fault>) {
        self.due.retain(|team, _| teams.contains(team));
        self.found.retain(|(team, _), _| teams.contains(team));
        for team in teams {
            self.due.entry(team.clone()).or_insert(now);
        }
        for team in tenancy.departures.teams() {
            self.due.entry(team).and_modify(|at| *at = now);
        }
        let mut cleared = Vec::new();
        let ripe: Vec<String> = self.due.iter().filter(|(_, at)| **at <= now).map(|(team, _)| team.clone()).collect();
        for team in ripe {
            match self.compare(tenancy, census, &team, now, &mut cleared).await {
                Ok(next) => self.due.insert(team, next),
                // What does not answer for one team does not answer for the next.
                Err(fault) if fault.is_passing() => return (cleared, Err(fault)),
                Err(fault) => {
                    tracing::warn!(team, %fault, "the rows of this team's agents that are gone cannot be deleted");
                    self.due.insert(team, now + EVERY)
                }
            };
        }
        (cleared, Ok(self.due.values().min().copied().unwrap_or(now + EVERY)))
    }

    /// Notes a team's rows that no agent has, deletes those that had their grace, and says when to look again.
    async fn compare(
        &mut self,
        tenancy: &Tenancy,
        census: &impl Census,
        team: &str,
        now: Instant,
        cleared: &mut Vec<Cleared>,
    ) -> Result<Instant, Fault> {
        let Some(heard) = census.heard(team) else {
            self.found.retain(|(of, _), _| of != team);
            return Ok(now + AGAIN);
        };
        let known: Vec<String> = heard.into_iter().collect();
        let strangers = tenancy.tenants.agents_except(&ids::team(team), &known).await?;
        self.found.retain(|(of, id), _| of != team || strangers.contains(id));
        let mut next = now + EVERY;
        for id in strangers {
            let since = *self.found.entry((team.to_owned(), id.clone())).or_insert(now);
            let seen = tenancy.departures.seen(&id);
            let from = match &seen {
                Some((_, gone)) => *gone,
                None if census.age(team) < SETTLED => continue,
                None => since,
            };
            if now < from + GRACE {
                next = next.min(from + GRACE);
                continue;
            }
            let still = || census.heard(team).is_some_and(|heard| !heard.contains(&id));
            let Some(asked) = census.asked(team).await else { return Ok(next.min(now + AGAIN)) };
            if asked.contains(&id) || !still() {
                next = next.min(now + AGAIN);
                continue;
            }
            let rows = tenancy.tenants.delete_agent_while(&ids::team(team), &id, &still).await?;
            self.found.remove(&(team.to_owned(), id.clone()));
            if still() {
                tenancy.departures.forget(&id);
                cleared.push(Cleared { team: team.to_owned(), name: seen.map(|(name, _)| name), id, rows });
            } else {
                tracing::info!(team, agent = id, rows, "an agent came back while its rows were being deleted; the rest is kept");
            }
        }
        Ok(next)
    }
}
