//! Memory for the processes that unpack what strangers send. All of them together stay below a bound, and those of one
//! team below its share: whoever waits for a slow server keeps only the own team waiting.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use slipway_http::{Error, HeaderValue, StatusCode, header};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::map::Map;

/// What all processes may hold together, in MiB: half of what the container of the API has, by which the kernel would end
/// all of it.
const TOGETHER: u32 = 128;
/// What those of one team may hold, in MiB.
const OF_A_TEAM: u32 = 64;
/// How long a further import waits.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Memory {
    all: Arc<Semaphore>,
    /// Of teams that use some.
    teams: Mutex<Map<String, Arc<Semaphore>>>,
}

/// A part of it, given back when this goes.
pub(super) struct Room {
    _own: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Default for Memory {
    fn default() -> Self {
        Self { all: Arc::new(Semaphore::new(TOGETHER as usize)), teams: Mutex::default() }
    }
}

impl Memory {
    /// Room for a process of `team`. The team's own share comes first, so that it stands in nobody's way while it waits.
    pub(super) async fn room(&self, team: &str, mebibytes: u32) -> Result<Room, Error> {
        let until = Instant::now() + PATIENCE;
        let own = taken(self.share(team), mebibytes, until).await?;
        let own = own.ok_or_else(|| full(&format!("team {team} has as many imports under way as it may have at once")))?;
        let of_all = taken(self.all.clone(), mebibytes, until).await?;
        let of_all = of_all.ok_or_else(|| full("as many imports are under way as there may be at once"))?;
        Ok(Room { _own: own, _of_all: of_all })
    }

    fn share(&self, team: &str) -> Arc<Semaphore> {
        let mut teams = self.teams.lock().unwrap_or_else(PoisonError::into_inner);
        // Each room, and each that is waited for, has one more.
        teams.retain(|_, share| Arc::strong_count(share) > 1);
        teams.entry(team.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(OF_A_TEAM as usize))).clone()
    }
}

async fn taken(of: Arc<Semaphore>, mebibytes: u32, until: Instant) -> Result<Option<OwnedSemaphorePermit>, Error> {
    timeout_at(until, of.acquire_many_owned(mebibytes)).await.ok().transpose().map_err(Error::internal)
}

/// 429, with when to try again.
pub(super) fn full(what: &str) -> Error {
    Error::new(StatusCode::TOO_MANY_REQUESTS, format!("{what}; try again in a moment"))
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("15"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_team_cannot_take_all_the_memory() {
        let memory = Memory::default();
        let first = memory.room("team-a", 64).await.unwrap();
        // Others of that team wait, and keep nobody else waiting.
        let (more, other) = tokio::join!(memory.room("team-a", 32), memory.room("team-b", 32));
        let more = more.map(drop).unwrap_err();
        assert!(more.status() == StatusCode::TOO_MANY_REQUESTS && more.message().contains("team team-a"), "{more:?}");
        let _other = other.unwrap();
        let _third = memory.room("team-c", 32).await.unwrap();
        let none_left = memory.room("team-d", 32).await.map(drop).unwrap_err();
        assert!(none_left.message().starts_with("as many imports"), "{none_left:?}");
        drop(first);
        memory.room("team-a", 64).await.unwrap();
    }

    #[tokio::test]
    async fn teams_that_use_nothing_are_forgotten() {
        let memory = Memory::default();
        for at in 0..100 {
            drop(memory.room(&format!("team-{at}"), 64).await.unwrap());
        }
        assert_eq!(memory.teams.lock().unwrap().len(), 1);
    }
}
