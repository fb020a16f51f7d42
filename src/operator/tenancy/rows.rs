//! The rows of agents that are gone. No finalizer holds an Agent back for their sake, so that a database which is away
//! keeps nobody from deleting Agents. The leader compares the owners of the rows that there are with the Agents that
//! there are, by UID, soon after one has gone and from time to time; what was missed, or broken off, is found by the next
//! comparison. Rows of an earlier Agent go before a later one of its name is let in.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use slipway_api::ids;
use slipway_database::{Claim, Fault, Holder, Home};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Tenancy;

/// How long an Agent is gone before its rows go.
pub const GRACE: Duration = Duration::from_secs(10);
/// How long a Team has to exist before rows go of agents that nobody here has seen going. In a cluster that is being
/// restored from a backup, Teams may come well before their Agents.
pub const SETTLED: Duration = Duration::from_hours(1);
/// How often each team is compared though nothing is known to have changed.
const COMPARE_INTERVAL: Duration = Duration::from_mins(5);
/// When it is tried again after the database, or the API server, had no answer.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// The same while an Agent waits for the pods of an earlier one.
const PODS_INTERVAL: Duration = Duration::from_secs(2);

/// The Team and the agents that there are.
#[derive(Debug, Clone)]
pub struct Roll {
    pub home: Home,
    /// By id. Of an Agent that is gone, or cannot be read, there is nothing more than that it, or a pod of it, is there.
    pub agents: HashMap<String, Option<Holder>>,
}

impl Roll {
    fn has(&self, holder: &Holder) -> bool {
        self.agents.get(&holder.agent_id).and_then(Option::as_ref).is_some_and(|there| there.uid == holder.uid)
    }
}

/// Who there is.
pub trait Census: Sync {
    /// A team as last heard; none while that is not known for sure.
    fn heard(&self, team: &str) -> Option<Roll>;
    /// The UIDs of its agents, by id, asked for now: what is deleted does not come back.
    fn asked(&self, team: &str) -> impl Future<Output = Option<HashMap<String, String>>> + Send;
    /// For how long the team has existed.
    fn age(&self, team: &str) -> Duration;
    /// The ids of all Teams, those that are being deleted too, as last heard; none while that is not known for sure.
    fn teams(&self) -> Option<HashSet<String>>;
    /// The same, asked for now.
    fn asked_teams(&self) -> impl Future<Output = Option<HashSet<String>>> + Send;
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
        if noted.tidied.is_none_or(|tidied| now.duration_since(tidied) >= RETRY_INTERVAL) {
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

    /// Has a team compared now.
    pub(super) fn look_at(&self, team: &str) {
        self.noted().teams.insert(team.to_owned());
        self.wake.notify_one();
    }

    /// Resolves when there is something to look at since the last time.
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

/// An agent's rows of which something was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    pub team: String,
    /// The Agent's name, if it was seen going.
    pub name: Option<String>,
    pub id: String,
    pub rows: u64,
    pub fate: Fate,
}

/// What was made of an agent's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// They were deleted, since the Agent is gone.
    Deleted,
    /// The same, and another of its name is there.
    Replaced,
    /// They are kept for a while, under that UID.
    Aside(String),
    /// They were given to the Agent, and were that UID's before.
    Adopted(String),
}

/// What the leader knows of rows that no agent has.
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
                    self.due.insert(team, now + COMPARE_INTERVAL)
                }
            };
        }
        (cleared, Ok(self.due.values().min().copied().unwrap_or(now + COMPARE_INTERVAL)))
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
        let Some(roll) = census.heard(team) else {
            self.found.retain(|(of, _), _| of != team);
            return Ok(now + RETRY_INTERVAL);
        };
        let home = &roll.home;
        let known: Vec<String> = roll.agents.keys().cloned().collect();
        let mut next = now + COMPARE_INTERVAL;
        let waiting = admit(tenancy, census, team, &roll, cleared).await?;
        if waiting {
            next = next.min(now + PODS_INTERVAL);
        }
        let strangers = tenancy.tenants.strangers(home, &known).await?;
        self.found.retain(|(of, id), _| of != team || strangers.iter().any(|stranger| stranger.agent_id == *id));
        for stranger in strangers {
            let id = stranger.agent_id;
            if stranger.of_former_team {
                // No Agent of the present Team has it, and no login of the earlier one opens anything.
                let Some(asked) = census.asked(team).await else { return Ok(next.min(now + RETRY_INTERVAL)) };
                if asked.contains_key(&id) {
                    next = next.min(now + PODS_INTERVAL);
                    continue;
                }
                let (fate, rows) = remove(tenancy, home, &id, stranger.was_here, &|| true).await?;
                cleared.push(Cleared { team: team.to_owned(), name: None, id, rows, fate });
                continue;
            }
            if stranger.awaited {
                continue;
            }
            let since = *self.found.entry((team.to_owned(), id.clone())).or_insert(now);
            let seen = tenancy.departures.seen(&id);
            let from = match &seen {
                Some((_, gone)) => *gone,
                None if !stranger.was_here && census.age(team) < SETTLED => continue,
                None => since,
            };
            if now < from + GRACE {
                next = next.min(from + GRACE);
                continue;
            }
            let still = || census.heard(team).is_some_and(|roll| !roll.agents.contains_key(&id));
            let Some(asked) = census.asked(team).await else { return Ok(next.min(now + RETRY_INTERVAL)) };
            if asked.contains_key(&id) || !still() {
                next = next.min(now + RETRY_INTERVAL);
                continue;
            }
            let rows = tenancy.tenants.delete_agent_while(&home.team, &id, &still).await?;
            self.found.remove(&(team.to_owned(), id.clone()));
            if !still() {
                tracing::info!(team, agent = id, rows, "an agent of that name came while the rows of the earlier one were being deleted");
                next = next.min(now + PODS_INTERVAL);
                continue;
            }
            tenancy.departures.forget(&id);
            if rows > 0 {
                cleared.push(Cleared { team: team.to_owned(), name: seen.map(|(name, _)| name), id, rows, fate: Fate::Deleted });
            }
        }
        tenancy.tenants.delete_unowned(home).await?;
        Ok(next)
    }
}

/// Claims the ids of a team's Agents for them, and removes what earlier ones left there. Whether one has to wait.
async fn admit(tenancy: &Tenancy, census: &impl Census, team: &str, roll: &Roll, cleared: &mut Vec<Cleared>) -> Result<bool, Fault> {
    let home = &roll.home;
    let holders: Vec<Holder> = roll.agents.values().flatten().cloned().collect();
    let claims = tenancy.tenants.claim(home, &holders).await?;
    let mut waiting = false;
    let mut held = HashSet::new();
    for (holder, claim) in holders.iter().zip(claims) {
        let mut claim = claim;
        if let Claim::Taken { deleted } = claim {
            let still = || census.heard(team).is_some_and(|roll| roll.has(holder));
            let Some(asked) = census.asked(team).await else { return Ok(true) };
            if asked.get(&holder.agent_id) == Some(&holder.uid) && still() {
                let (fate, rows) = remove(tenancy, home, &holder.agent_id, deleted, &still).await?;
                cleared.push(Cleared { team: team.to_owned(), name: None, id: holder.agent_id.clone(), rows, fate });
                claim = tenancy.tenants.claim(home, std::slice::from_ref(holder)).await?.first().copied().unwrap_or(Claim::Waits);
            }
        }
        if claim == Claim::Held {
            tenancy.hold(holder);
            held.insert(&holder.agent_id);
        } else {
            waiting = true;
        }
    }
    for (uid, id) in tenancy.tenants.adoptable(home, &holders).await? {
        // Of an Agent that has yet to be let in, what it is given would be taken for an earlier one's.
        if held.contains(&id) || !roll.agents.contains_key(&id) {
            let rows = tenancy.tenants.bring_back(&uid, home, &id).await?;
            cleared.push(Cleared { team: team.to_owned(), name: None, id, rows, fate: Fate::Adopted(uid) });
        }
    }
    Ok(waiting)
}

/// Takes an earlier Agent's rows away: for good, if it is known to have gone from this cluster.
async fn remove(
    tenancy: &Tenancy,
    home: &Home,
    id: &str,
    for_good: bool,
    still: &(dyn Fn() -> bool + Send + Sync),
) -> Result<(Fate, u64), Fault> {
    if for_good {
        return Ok((Fate::Replaced, tenancy.tenants.delete_agent_while(&home.team, id, still).await?));
    }
    let (uid, rows) = tenancy.tenants.set_aside(&home.team, id).await?;
    Ok((Fate::Aside(uid), rows))
}
