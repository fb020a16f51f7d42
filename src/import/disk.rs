//! The disk budget of uploaded archives, from their first byte until they are unpacked: one for all, and a share per team.
//! Space is taken as bytes arrive, so that an announced length that is never sent takes none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipway_http::Error;

use super::memory::exhausted;

/// The bytes of all archives. The chart's volume has 1 GiB; imports from Git use it, too.
const TOTAL_BYTES: u64 = 640 * 1024 * 1024;
/// The bytes of one team's archives: two of the largest, each within a form.
const TEAM_BYTES: u64 = 201 * 1024 * 1024;
/// The concurrent uploads of one team.
const TEAM_UPLOADS: u32 = 8;

#[derive(Default)]
pub(super) struct DiskBudget(Arc<Mutex<Used>>);

#[derive(Default)]
struct Used {
    bytes: u64,
    teams: HashMap<String, Share>,
}

#[derive(Default)]
struct Share {
    bytes: u64,
    archives: u32,
}

/// The space of one archive; dropping it returns the space.
pub(super) struct DiskPermit {
    used: Arc<Mutex<Used>>,
    team: String,
    bytes: u64,
}

fn lock(used: &Mutex<Used>) -> MutexGuard<'_, Used> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DiskBudget {
    /// Admits one more upload of `team`, which has no bytes yet.
    pub(super) fn acquire(&self, team: &str) -> Result<DiskPermit, Error> {
        let mut used = lock(&self.0);
        let share = used.teams.entry(team.to_owned()).or_default();
        if share.archives >= TEAM_UPLOADS {
            return Err(exhausted(&format!("team {team} sends {TEAM_UPLOADS} archives already, the most at once")));
        }
        share.archives += 1;
        Ok(DiskPermit { used: self.0.clone(), team: team.to_owned(), bytes: 0 })
    }
}

impl DiskPermit {
    /// Takes `bytes` more, or fails and takes none.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Error> {
        let mut used = lock(&self.used);
        if used.bytes + bytes > TOTAL_BYTES {
            return Err(exhausted("the archives of all teams take all disk space for uploads"));
        }
        let Some(share) = used.teams.get_mut(&self.team) else { return Ok(()) };
        if share.bytes + bytes > TEAM_BYTES {
            return Err(exhausted(&format!("the archives of team {} take all disk space of one team", self.team)));
        }
        share.bytes += bytes;
        used.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for DiskPermit {
    fn drop(&mut self) {
        let mut used = lock(&self.used);
        used.bytes = used.bytes.saturating_sub(self.bytes);
        let Some(share) = used.teams.get_mut(&self.team) else { return };
        share.bytes = share.bytes.saturating_sub(self.bytes);
        share.archives = share.archives.saturating_sub(1);
        if share.archives == 0 {
            used.teams.remove(&self.team);
        }
    }
}

#[cfg(test)]
mod tests {
    use slipway_http::StatusCode;

    use super::*;

    const LARGEST: u64 = 100 * 1024 * 1024;

    fn refused<T>(outcome: Result<T, Error>, says: &str) {
        let error = outcome.err().expect("there is no room");
        assert!(error.status() == StatusCode::TOO_MANY_REQUESTS && error.message().contains(says), "{error:?}");
    }

    #[test]
    fn one_team_leaves_room_for_others() {
        let disk = DiskBudget::default();
        let mut held: Vec<DiskPermit> = (0..TEAM_UPLOADS).map(|_| disk.acquire("team-a").unwrap()).collect();
        refused(disk.acquire("team-a"), "team team-a sends 8 archives");
        held[0].grow(LARGEST).unwrap();
        held[1].grow(LARGEST).unwrap();
        refused(held[2].grow(LARGEST), "team team-a");
        let mut others: Vec<DiskPermit> = ["team-b", "team-c", "team-d"].map(|team| disk.acquire(team).unwrap()).into();
        for other in &mut others {
            other.grow(LARGEST).unwrap();
        }
        drop(held.pop());
        disk.acquire("team-a").unwrap();
    }

    #[test]
    fn the_total_is_limited_and_released() {
        let disk = DiskBudget::default();
        let mut held = Vec::new();
        for at in 0..6 {
            held.push(disk.acquire(&format!("team-{at}")).unwrap());
            held[at].grow(LARGEST).unwrap();
        }
        refused(held[0].grow(LARGEST), "all disk space for uploads");
        held.clear();
        let used = lock(&disk.0);
        assert!(used.bytes == 0 && used.teams.is_empty());
    }
}
