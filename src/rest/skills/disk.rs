//! Disk for archives, from their first byte until they are unpacked. It is taken as the bytes come, so that whoever
//! announces much and sends nothing holds nothing, and one team's unfinished uploads leave room for those of others.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use slipway_http::Error;

use super::room::full;
use crate::map::Map;

/// What all archives may take together: of the 1 GiB that the chart gives, imports from Git take some, too.
const TOGETHER: u64 = 640 * 1024 * 1024;
/// What those of one team may take: two of the largest, with the forms that they come in.
const OF_A_TEAM: u64 = 201 * 1024 * 1024;
/// How many archives one team may send at once.
const AT_ONCE: u32 = 8;

#[derive(Default)]
pub(super) struct Disk(Arc<Mutex<Used>>);

#[derive(Default)]
struct Used {
    bytes: u64,
    teams: Map<String, Share>,
}

#[derive(Default)]
struct Share {
    bytes: u64,
    archives: u32,
}

/// What one archive takes, given back when this goes.
pub(super) struct Place {
    used: Arc<Mutex<Used>>,
    team: String,
    bytes: u64,
}

fn lock(used: &Mutex<Used>) -> MutexGuard<'_, Used> {
    used.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// A place for one more archive of `team`, which has no bytes yet.
    pub(super) fn place(&self, team: &str) -> Result<Place, Error> {
        let mut used = lock(&self.0);
        let share = used.teams.entry(team.to_owned()).or_default();
        if share.archives >= AT_ONCE {
            return Err(full(&format!("team {team} sends {AT_ONCE} archives already, as many as it may at once")));
        }
        share.archives += 1;
        Ok(Place { used: self.0.clone(), team: team.to_owned(), bytes: 0 })
    }
}

impl Place {
    /// Takes this much more, or nothing.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), Error> {
        let mut used = lock(&self.used);
        if used.bytes + bytes > TOGETHER {
            return Err(full("the archives that are being sent take as much room as there is"));
        }
        let Some(share) = used.teams.get_mut(&self.team) else { return Ok(()) };
        if share.bytes + bytes > OF_A_TEAM {
            return Err(full(&format!("the archives that team {} sends take as much room as they may", self.team)));
        }
        share.bytes += bytes;
        used.bytes += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Place {
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
        let disk = Disk::default();
        let mut held: Vec<Place> = (0..AT_ONCE).map(|_| disk.place("team-a").unwrap()).collect();
        refused(disk.place("team-a"), "team team-a sends 8 archives");
        held[0].grow(LARGEST).unwrap();
        held[1].grow(LARGEST).unwrap();
        refused(held[2].grow(LARGEST), "team team-a");
        let mut others: Vec<Place> = ["team-b", "team-c", "team-d"].map(|team| disk.place(team).unwrap()).into();
        for other in &mut others {
            other.grow(LARGEST).unwrap();
        }
        drop(held.pop());
        disk.place("team-a").unwrap();
    }

    #[test]
    fn all_together_take_no_more_than_there_is_and_give_it_back() {
        let disk = Disk::default();
        let mut held = Vec::new();
        for at in 0..6 {
            held.push(disk.place(&format!("team-{at}")).unwrap());
            held[at].grow(LARGEST).unwrap();
        }
        refused(held[0].grow(LARGEST), "as much room as there is");
        held.clear();
        let used = lock(&disk.0);
        assert!(used.bytes == 0 && used.teams.is_empty());
    }
}
