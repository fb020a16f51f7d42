//! The connections that a server has, and which of them goes when there are too many: of those whose clients have not
//! said who they are, the one that has kept the server waiting longest, at the address that has most of them.
//!
//! A request changes its slot by a few atomic writes. Connections are only looked through when there is no room.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::budget::{CONNECTION_BYTES, Division, Exhausted, FREE_BYTES, HEAD_BYTES, Holder, Lease, Pool, SMALL_HEAD_BYTES};
use crate::error::Error;
use crate::serve::Limits;

/// Until a head is whole; also between requests.
const HEAD: u8 = 0;
/// An unauthenticated request.
const STRANGER: u8 = 1;
/// A request that is authenticated, or need not be.
const KNOWN: u8 = 2;

/// How long an unauthenticated request may take: documentation is read over slow connections, too.
const STRANGERS_TIME: Duration = Duration::from_mins(1);
/// How many go at once, of those that keep the server waiting for longer than `WAITING`, so that a flood costs little.
const BATCH: usize = 32;
const WAITING: Duration = Duration::from_secs(1);

/// All connections of a server.
pub(crate) struct Slots {
    limits: Limits,
    most: usize,
    begun: Instant,
    heads: Arc<Pool>,
    /// Connections of authenticated callers. An eighth of all is never theirs, so that one can always be closed.
    known: Arc<Pool>,
    work: Arc<Pool>,
    all: Mutex<All>,
    /// Told when a connection has ended or could go.
    pub(crate) freed: Notify,
    full: AtomicBool,
}

#[derive(Default)]
struct All {
    next: u64,
    entries: HashMap<u64, (Arc<Slot>, Option<AbortHandle>)>,
}

/// One connection.
pub(crate) struct Slot {
    slots: Arc<Slots>,
    id: u64,
    peer: IpAddr,
    state: AtomicU8,
    /// Since when it has been in its state, in milliseconds of the server.
    since: AtomicU64,
    /// Whether a known caller has used it.
    served: AtomicBool,
    /// How much has been read of a head, and what that takes if it is long.
    head: AtomicUsize,
    long: Mutex<Option<Lease>>,
    /// How many requests have come by it.
    requests: AtomicU64,
}

/// What a request holds.
#[derive(Default)]
struct Held {
    holder: Holder,
    connection: Option<Lease>,
    _head: Option<Lease>,
    work: Option<Lease>,
}

/// A request's place among the server's connections: what it may hold is charged here. It lasts as long as the request, its
/// answer, and what of that is yet to be sent.
#[derive(Clone)]
pub struct Place(Arc<Asked>);

struct Asked {
    slot: Arc<Slot>,
    /// Which of its connection's requests it is.
    number: u64,
    held: Mutex<Held>,
}

impl Slots {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        let division = Division::of(limits.memory);
        let most = limits.connections.min(division.connections).max(1);
        let known = most as u64 * CONNECTION_BYTES / 8 * 7;
        Arc::new(Self {
            most,
            begun: Instant::now(),
            heads: Pool::new(division.heads),
            known: Pool::new(known.max(CONNECTION_BYTES)),
            work: Pool::new(division.work),
            all: Mutex::default(),
            freed: Notify::new(),
            full: AtomicBool::new(false),
            limits,
        })
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.begun).as_millis()).unwrap_or(u64::MAX)
    }

    /// A slot for a connection that has come, if there is room or can be made.
    pub(crate) fn enter(self: &Arc<Self>, peer: IpAddr) -> Arc<Slot> {
        let mut all = self.all();
        all.next += 1;
        let slot = Arc::new(Slot {
            slots: self.clone(),
            id: all.next,
            peer,
            state: AtomicU8::new(HEAD),
            since: AtomicU64::new(self.now()),
            served: AtomicBool::new(false),
            head: AtomicUsize::new(0),
            long: Mutex::default(),
            requests: AtomicU64::new(0),
        });
        let id = all.next;
        all.entries.insert(id, (slot.clone(), None));
        slot
    }

    /// Says by what a connection can be ended.
    pub(crate) fn ends_by(&self, slot: &Slot, handle: AbortHandle) {
        if let Some((_, known)) = self.all().entries.get_mut(&slot.id) {
            *known = Some(handle);
        }
    }

    /// Waits until one more may come.
    pub(crate) async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            self.full.store(true, Ordering::SeqCst);
            let has_room = {
                let all = self.all();
                all.entries.len() < self.most || all.entries.values().any(|(slot, _)| slot.may_go())
            };
            if has_room {
                return self.full.store(false, Ordering::SeqCst);
            }
            freed.await;
        }
    }

    /// Ends connections until there is room for one more.
    pub(crate) fn make_room(&self) {
        let mut all = self.all();
        if all.entries.len() < self.most {
            return;
        }
        let now = self.now();
        let mut of: HashMap<IpAddr, usize> = HashMap::new();
        for (slot, _) in all.entries.values().filter(|(slot, _)| slot.may_go()) {
            *of.entry(slot.peer).or_default() += 1;
        }
        // What a trusted proxy has is many people's.
        let weight = |peer: &IpAddr, count: usize| (!self.limits.proxies.trust(*peer), count);
        let heaviest = of.iter().max_by_key(|(peer, count)| weight(peer, **count)).map(|(peer, _)| *peer);
        let mut candidates: Vec<(u64, u64)> = all
            .entries
            .values()
            .filter(|(slot, _)| Some(slot.peer) == heaviest && slot.may_go())
            .map(|(slot, _)| (slot.since.load(Ordering::Relaxed), slot.id))
            .collect();
        candidates.sort_unstable();
        let waiting = |since: u64| now.saturating_sub(since) >= u64::try_from(WAITING.as_millis()).unwrap_or(u64::MAX);
        for (at, (since, id)) in candidates.into_iter().take(BATCH).enumerate() {
            if at > 0 && !waiting(since) {
                return;
            }
            all.end(id);
        }
    }

    /// Ends strangers' connections that have waited for too long.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        let mut all = self.all();
        let late = |slot: &Slot| {
            let since = Duration::from_millis(now.saturating_sub(slot.since.load(Ordering::Relaxed)));
            match slot.state.load(Ordering::Relaxed) {
                HEAD => !slot.served.load(Ordering::Relaxed) && since > self.limits.stranger,
                STRANGER => since > STRANGERS_TIME,
                _ => false,
            }
        };
        let late: Vec<u64> = all.entries.values().filter(|(slot, _)| late(slot)).map(|(slot, _)| slot.id).collect();
        for id in late {
            all.end(id);
        }
    }

    /// Reserves bytes for a long head; where there are none, the connection that has waited longest with one is closed.
    fn long_head(&self) -> Result<Lease, Exhausted> {
        for _ in 0..2 {
            match self.heads.take(Holder::default(), HEAD_BYTES) {
                Err(Exhausted::All) => {}
                taken => return taken,
            }
            let mut all = self.all();
            let long = all.entries.values().filter(|(slot, _)| slot.may_go() && slot.head.load(Ordering::Relaxed) > SMALL_HEAD_BYTES);
            let oldest = long.min_by_key(|(slot, _)| slot.since.load(Ordering::Relaxed)).map(|(slot, _)| slot.clone());
            let Some(oldest) = oldest else { break };
            all.end(oldest.id);
            drop(all);
            drop(oldest.long().take());
        }
        Err(Exhausted::All)
    }

    fn left(&self, id: u64) {
        let left = self.all().entries.remove(&id);
        drop(left);
        self.freed.notify_one();
    }

    fn may_have_freed(&self) {
        if self.full.load(Ordering::Relaxed) {
            self.freed.notify_one();
        }
    }
}

impl All {
    fn end(&mut self, id: u64) {
        if let Some((_, Some(handle))) = self.entries.get(&id) {
            handle.abort();
            self.entries.remove(&id);
        }
    }
}

impl Slot {
    fn long(&self) -> MutexGuard<'_, Option<Lease>> {
        self.long.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn may_go(&self) -> bool {
        self.state.load(Ordering::Relaxed) != KNOWN
    }

    fn turn(&self, state: u8, now: Instant) {
        self.since.store(self.slots.at(now), Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
    }

    /// Whether more of a head may be read, of which so much was read now.
    pub(crate) fn reading(&self, bytes: usize) -> Result<(), Exhausted> {
        if self.state.load(Ordering::Relaxed) != HEAD {
            return Ok(());
        }
        let before = self.head.fetch_add(bytes, Ordering::Relaxed);
        if before <= SMALL_HEAD_BYTES && before + bytes > SMALL_HEAD_BYTES {
            let lease = self.slots.long_head()?;
            *self.long() = Some(lease);
        }
        Ok(())
    }

    fn ended(&self, number: u64) {
        if self.requests.load(Ordering::Relaxed) == number {
            self.turn(HEAD, Instant::now());
            self.slots.may_have_freed();
        }
    }
}

/// Leaves the room at the end of a connection.
pub(crate) struct Leaving(pub(crate) Arc<Slot>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.slots.left(self.0.id);
    }
}

impl Place {
    /// That of a request whose head is whole.
    pub(crate) fn new(slot: &Arc<Slot>, now: Instant) -> Self {
        let is_long = slot.head.swap(0, Ordering::Relaxed) > SMALL_HEAD_BYTES;
        let head = if is_long { slot.long().take() } else { None };
        let number = slot.requests.fetch_add(1, Ordering::Relaxed) + 1;
        slot.turn(if slot.slots.limits.strangers { STRANGER } else { KNOWN }, now);
        Self(Arc::new(Asked { slot: slot.clone(), number, held: Mutex::new(Held { _head: head, ..Held::default() }) }))
    }

    /// The request is that of a known caller: its connection is not ended in favour of others, and what it holds is charged
    /// to the caller and the team.
    pub fn known(&self, holder: Holder) -> Result<(), Error> {
        let Asked { slot, .. } = &*self.0;
        let mut held = self.0.held();
        if held.connection.is_none() {
            held.connection = Some(slot.slots.known.take(holder, CONNECTION_BYTES)?);
        }
        held.holder = holder;
        drop(held);
        slot.served.store(true, Ordering::Relaxed);
        slot.state.store(KNOWN, Ordering::Relaxed);
        Ok(())
    }

    /// Charges bytes that the request is about to hold, until its answer begins.
    pub fn charge(&self, bytes: u64) -> Result<(), Error> {
        self.0.charge(bytes).map_err(Into::into)
    }

    /// The handler is done: what it held is exchanged for what its answer takes.
    pub(crate) fn answering(&self, bytes: u64) -> Result<(), Exhausted> {
        let before = self.0.held().work.take();
        drop(before);
        if bytes > FREE_BYTES as u64 { self.0.charge(bytes) } else { Ok(()) }
    }

    /// Where the request came from: the other end of the connection, or whom a trusted proxy names.
    pub(crate) fn address(&self, headers: &http::HeaderMap) -> IpAddr {
        self.0.slot.slots.limits.proxies.client(self.0.slot.peer, headers)
    }
}

impl Asked {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, bytes: u64) -> Result<(), Exhausted> {
        let mut held = self.held();
        match &mut held.work {
            Some(lease) => lease.grow(bytes)?,
            None => held.work = Some(self.slot.slots.work.take(held.holder, bytes)?),
        }
        Ok(())
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.slot.ended(self.number);
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Place({})", self.0.slot.peer)
    }
}
