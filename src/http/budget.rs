//! The memory budget of clients. Memory that a client can make the server allocate is reserved in a pool first and released
//! when it is freed. One caller gets at most a quarter of a pool, one team at most half.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use foldhash::fast::RandomState;
use http::{HeaderValue, StatusCode, header};

use crate::error::Error;
use crate::memory::KIB;

/// hyper's buffer for an unread head or an unsent answer. A longer head ends the connection.
pub(crate) const BUFFER_BYTES: usize = 48 * 1024;
/// One connection: hyper's buffers for reading and writing, its task, and bodies and answers of up to `FREE_BYTES`.
pub const CONNECTION_BYTES: u64 = 32 * KIB;
/// A body or an answer up to this size is part of `CONNECTION_BYTES`.
pub(crate) const FREE_BYTES: usize = 4 * 1024;
/// A head longer than `SMALL_HEAD_BYTES`, in a buffer that doubles as it grows.
pub const HEAD_BYTES: u64 = 96 * KIB;
pub(crate) const SMALL_HEAD_BYTES: usize = 8 * 1024;
/// A stream: hyper's send queue, which is full if the client reads slowly.
pub const STREAM_BYTES: u64 = BUFFER_BYTES as u64;
/// A stream relayed from another server, with the buffers of the connection to that server.
pub const RELAYED_BYTES: u64 = STREAM_BYTES + 32 * KIB;
/// One value of a parsed JSON body, with its share of the enclosing collection.
pub(crate) const VALUE_BYTES: u64 = 128;

/// The holder of reserved bytes: a caller or an address, and a team. Stored as hashes, without the names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holder {
    caller: Option<NonZeroU64>,
    team: Option<NonZeroU64>,
}

impl Holder {
    pub fn new(caller: impl Hash, team: Option<&str>) -> Self {
        static SEEDS: OnceLock<RandomState> = OnceLock::new();
        let seeds = SEEDS.get_or_init(RandomState::default);
        let caller = NonZeroU64::new(seeds.hash_one(("caller", caller)) | 1);
        Self { caller, team: team.and_then(|team| NonZeroU64::new(seeds.hash_one(("team", team)) | 1)) }
    }
}

/// Why a reservation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// More than one caller may ever have.
    TooLarge,
    Caller,
    Team,
    All,
}

impl From<Exhausted> for Error {
    fn from(exhausted: Exhausted) -> Self {
        let (status, message) = match exhausted {
            Exhausted::TooLarge => {
                return Self::new(
                    StatusCode::PAYLOAD_TOO_LARGE,
                    "the request takes more memory than one caller may have; send less at a time",
                );
            }
            Exhausted::Caller => {
                (StatusCode::TOO_MANY_REQUESTS, "your requests use all the memory that one caller may have; try again when some have ended")
            }
            Exhausted::Team => {
                (StatusCode::TOO_MANY_REQUESTS, "the team's requests use all the memory that one team may have; try again in a moment")
            }
            Exhausted::All => (StatusCode::SERVICE_UNAVAILABLE, "the server has no memory left for requests; try again in a moment"),
        };
        Self::new(status, message).with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    }
}

/// A pool of bytes.
#[derive(Debug)]
pub(crate) struct Pool {
    total: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    all: u64,
    of: HashMap<NonZeroU64, u64, RandomState>,
}

/// Reserved bytes of a pool, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    pool: Arc<Pool>,
    holder: Holder,
    bytes: u64,
}

impl Pool {
    pub(crate) fn new(total: u64) -> Arc<Self> {
        Arc::new(Self { total, used: Mutex::default() })
    }

    /// The most that one caller may have.
    pub(crate) fn share(&self) -> u64 {
        self.total / 4
    }

    pub(crate) fn take(self: &Arc<Self>, holder: Holder, bytes: u64) -> Result<Reservation, Exhausted> {
        self.add(holder, bytes)?;
        Ok(Reservation { pool: self.clone(), holder, bytes })
    }

    fn add(&self, holder: Holder, bytes: u64) -> Result<(), Exhausted> {
        let limits = [(holder.caller, self.share(), Exhausted::Caller), (holder.team, self.total / 2, Exhausted::Team)];
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > if holder.caller.is_some() { self.share() } else { self.total } {
            return Err(Exhausted::TooLarge);
        }
        for (key, limit, exhausted) in limits {
            if key.and_then(|key| used.of.get(&key)).is_some_and(|used| used + bytes > limit) {
                return Err(exhausted);
            }
        }
        if used.all + bytes > self.total {
            return Err(Exhausted::All);
        }
        used.all += bytes;
        for key in [holder.caller, holder.team].into_iter().flatten() {
            *used.of.entry(key).or_default() += bytes;
        }
        Ok(())
    }
}

impl Reservation {
    /// Reserves more for the same holder.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), Exhausted> {
        self.pool.add(self.holder, bytes)?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut used = self.pool.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.all = used.all.saturating_sub(self.bytes);
        for key in [self.holder.caller, self.holder.team].into_iter().flatten() {
            if let Some(of) = used.of.get_mut(&key) {
                *of = of.saturating_sub(self.bytes);
                if *of == 0 {
                    used.of.remove(&key);
                }
            }
        }
    }
}

/// The division of the clients' memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The most connections at once.
    pub connections: usize,
    /// Bytes for heads longer than `SMALL_HEAD_BYTES`.
    pub heads: u64,
    /// Bytes for bodies, parsed bodies, answers and streams.
    pub work: u64,
}

impl MemoryPlan {
    pub fn of(clients: u64) -> Self {
        let heads = clients / 16;
        let connections = clients / 16 * 7 / CONNECTION_BYTES;
        let work = clients - heads - connections * CONNECTION_BYTES;
        Self { connections: usize::try_from(connections).unwrap_or(usize::MAX).max(1), heads, work }
    }

    /// The most that clients can make the server allocate.
    pub fn sum(self) -> u64 {
        self.connections as u64 * CONNECTION_BYTES + self.heads + self.work
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MIB, PROGRAM_BYTES, for_clients};

    /// docs/platform.md has this as a table.
    #[test]
    fn the_sum_for_all_clients_stays_below_the_limit() {
        const CHILDREN: u64 = 128 * MIB;
        for limit in [256, 384, 512, 1024, 4096].map(|mib| mib * MIB) {
            let plan = MemoryPlan::of(for_clients(limit, CHILDREN));
            assert!(PROGRAM_BYTES + CHILDREN + plan.sum() <= limit, "{limit}: {plan:?}");
        }
        // A runtime, whose children take no memory of note.
        for limit in [96, 128, 512].map(|mib| mib * MIB) {
            assert!(PROGRAM_BYTES + MemoryPlan::of(for_clients(limit, 0)).sum() <= limit, "{limit}");
        }
        let chart = MemoryPlan::of(for_clients(256 * MIB, CHILDREN));
        assert_eq!((chart.connections, chart.heads, chart.work), (896, 4 * MIB, 32 * MIB));
    }

    #[test]
    fn a_caller_gets_a_quarter_of_the_pool_and_a_team_half() {
        let pool = Pool::new(1000);
        let of = |caller: &str, team: &'static str| Holder::new(caller, Some(team));
        let mut first = pool.take(of("a", "x"), 200).unwrap();
        assert_eq!(pool.take(of("a", "x"), 51).unwrap_err(), Exhausted::Caller);
        assert_eq!(pool.take(of("e", "x"), 251).unwrap_err(), Exhausted::TooLarge);
        first.grow(50).unwrap();
        let second = pool.take(of("b", "x"), 250).unwrap();
        assert_eq!(pool.take(of("c", "x"), 1).unwrap_err(), Exhausted::Team);
        let others = [pool.take(of("c", "y"), 250).unwrap(), pool.take(of("d", "y"), 249).unwrap()];
        assert_eq!(pool.take(of("e", "z"), 2).unwrap_err(), Exhausted::All);
        drop(first);
        pool.take(of("a", "x"), 250).unwrap();
        drop((second, others));
        assert!(pool.used.lock().unwrap().of.is_empty(), "holders without reservations are removed");
    }
}
