//! The memory budget of import subprocesses: one for all of them, and a share per team, so that a team whose imports wait
//! for a slow server does not delay other teams.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slipway_http::{Error, HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// The memory of all subprocesses: half of the memory limit of the API's container. Above that limit the kernel would kill
/// the API.
pub const TOTAL_MEBIBYTES: u32 = 128;
/// The memory of one team's subprocesses.
const TEAM_MEBIBYTES: u32 = 64;
/// How long an import waits for memory.
const WAIT_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct MemoryBudget {
    total: Arc<Semaphore>,
    /// The shares of teams with running or waiting imports.
    teams: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// Memory of one subprocess; dropping it returns the memory.
pub(super) struct MemoryPermit {
    _team: OwnedSemaphorePermit,
    _total: OwnedSemaphorePermit,
}

impl Default for MemoryBudget {
    fn default() -> Self {
        Self { total: Arc::new(Semaphore::new(TOTAL_MEBIBYTES as usize)), teams: Mutex::default() }
    }
}

impl MemoryBudget {
    /// Takes memory for a subprocess of `team`. The team's share comes first: a team that waits for it holds nothing of the
    /// total.
    pub(super) async fn acquire(&self, team: &str, mebibytes: u32) -> Result<MemoryPermit, Error> {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        let share = acquire(self.share(team), mebibytes, deadline).await?;
        let share = share.ok_or_else(|| exhausted(&format!("team {team} has as many imports under way as it may have at once")))?;
        let total = acquire(self.total.clone(), mebibytes, deadline).await?;
        let total = total.ok_or_else(|| exhausted("as many imports are under way as there may be at once"))?;
        Ok(MemoryPermit { _team: share, _total: total })
    }

    fn share(&self, team: &str) -> Arc<Semaphore> {
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        // Permits, and imports that wait for one, hold further references.
        teams.retain(|_, share| Arc::strong_count(share) > 1);
        teams.entry(team.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(TEAM_MEBIBYTES as usize))).clone()
    }
}

/// None if the deadline passes first.
async fn acquire(from: Arc<Semaphore>, mebibytes: u32, deadline: Instant) -> Result<Option<OwnedSemaphorePermit>, Error> {
    timeout_at(deadline, from.acquire_many_owned(mebibytes)).await.ok().transpose().map_err(Error::internal)
}

/// 429, with `Retry-After`.
pub(super) fn exhausted(what: &str) -> Error {
    Error::new(StatusCode::TOO_MANY_REQUESTS, format!("{what}; try again in a moment"))
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("15"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_team_cannot_take_all_the_memory() {
        let memory = MemoryBudget::default();
        let first = memory.acquire("team-a", 64).await.unwrap();
        // Further imports of that team wait, and do not delay other teams.
        let (more, other) = tokio::join!(memory.acquire("team-a", 32), memory.acquire("team-b", 32));
        let more = more.map(drop).unwrap_err();
        assert!(more.status() == StatusCode::TOO_MANY_REQUESTS && more.message().contains("team team-a"), "{more:?}");
        let _other = other.unwrap();
        let _third = memory.acquire("team-c", 32).await.unwrap();
        let none_left = memory.acquire("team-d", 32).await.map(drop).unwrap_err();
        assert!(none_left.message().starts_with("as many imports"), "{none_left:?}");
        drop(first);
        memory.acquire("team-a", 64).await.unwrap();
    }

    #[tokio::test]
    async fn teams_that_use_nothing_are_forgotten() {
        let memory = MemoryBudget::default();
        for at in 0..100 {
            drop(memory.acquire(&format!("team-{at}"), 64).await.unwrap());
        }
        assert_eq!(memory.teams.lock().unwrap().len(), 1);
    }
}
