//! The connections of a server, and eviction when there are too many: of the unauthenticated connections of the address that
//! has most of them, the one that has waited longest.
//!
//! A request changes its slot by a few atomic writes. Connections are only searched when there is no room.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::budget::{CONNECTION_BYTES, Exhausted, FREE_BYTES, HEAD_BYTES, Holder, MemoryPlan, Pool, Reservation, SMALL_HEAD_BYTES};
use crate::error::Error;
use crate::serve::ServerLimits;

/// The head of a request is incomplete; also between requests.
const HEAD: u8 = 0;
/// A request runs and is unauthenticated.
const UNAUTHENTICATED: u8 = 1;
/// A request runs and is authenticated, or need not be.
const AUTHENTICATED: u8 = 2;

/// The timeout of an unauthenticated request: documentation is read over slow connections, too.
const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_mins(1);
/// The most connections evicted at once, of those that have waited longer than `STALE_AFTER`, so that a flood costs little.
const EVICTION_BATCH: usize = 32;
const STALE_AFTER: Duration = Duration::from_secs(1);

/// All connections of a server.
pub(crate) struct Slots {
    limits: ServerLimits,
    max: usize,
    begun: Instant,
    heads: Arc<Pool>,
    /// Connections of authenticated callers: seven eighths of all, so that one can always be evicted.
    authenticated: Arc<Pool>,
    work: Arc<Pool>,
    all: Mutex<All>,
    /// Notified when a connection has ended or has become evictable.
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
    /// The time of the last change of state, in milliseconds since the server started.
    since: AtomicU64,
    /// Whether an authenticated caller has used it.
    served: AtomicBool,
    /// The bytes read of the current head, and their reservation if the head is long.
    head: AtomicUsize,
    long: Mutex<Option<Reservation>>,
    /// The number of requests so far.
    requests: AtomicU64,
}

/// The reservations of a request.
#[derive(Default)]
struct Held {
    holder: Holder,
    connection: Option<Reservation>,
    _head: Option<Reservation>,
    work: Option<Reservation>,
}

/// The slot of a request: its memory is charged here. It lives until the request has ended and its answer is sent.
#[derive(Clone)]
pub struct RequestSlot(Arc<RequestState>);

struct RequestState {
    slot: Arc<Slot>,
    /// The number of the request on its connection.
    number: u64,
    held: Mutex<Held>,
}

impl Slots {
    pub(crate) fn new(limits: ServerLimits) -> Arc<Self> {
        let plan = MemoryPlan::of(limits.memory);
        let max = limits.connections.min(plan.connections).max(1);
        let authenticated = max as u64 * CONNECTION_BYTES / 8 * 7;
        Arc::new(Self {
            max,
            begun: Instant::now(),
            heads: Pool::new(plan.heads),
            authenticated: Pool::new(authenticated.max(CONNECTION_BYTES)),
            work: Pool::new(plan.work),
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

    /// Adds a slot for an accepted connection.
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

    /// Sets the handle by which a connection can be closed.
    pub(crate) fn set_abort_handle(&self, slot: &Slot, handle: AbortHandle) {
        if let Some((_, entry)) = self.all().entries.get_mut(&slot.id) {
            *entry = Some(handle);
        }
    }

    /// Waits until there is room for one more connection, or one can be evicted.
    pub(crate) async fn room(&self) {
        loop {
            let freed = self.freed.notified();
            self.full.store(true, Ordering::SeqCst);
            let has_room = {
                let all = self.all();
                all.entries.len() < self.max || all.entries.values().any(|(slot, _)| slot.is_evictable())
            };
            if has_room {
                return self.full.store(false, Ordering::SeqCst);
            }
            freed.await;
        }
    }

    /// Evicts connections if there is no room for one more.
    pub(crate) fn make_room(&self) {
        let mut all = self.all();
        if all.entries.len() < self.max {
            return;
        }
        let now = self.now();
        let mut of: HashMap<IpAddr, usize> = HashMap::new();
        for (slot, _) in all.entries.values().filter(|(slot, _)| slot.is_evictable()) {
            *of.entry(slot.peer).or_default() += 1;
        }
        // The connections of a trusted proxy belong to many clients.
        let weight = |peer: &IpAddr, count: usize| (!self.limits.proxies.trust(*peer), count);
        let heaviest = of.iter().max_by_key(|(peer, count)| weight(peer, **count)).map(|(peer, _)| *peer);
        let mut candidates: Vec<(u64, u64)> = all
            .entries
            .values()
            .filter(|(slot, _)| Some(slot.peer) == heaviest && slot.is_evictable())
            .map(|(slot, _)| (slot.since.load(Ordering::Relaxed), slot.id))
            .collect();
        candidates.sort_unstable();
        let waiting = |since: u64| now.saturating_sub(since) >= u64::try_from(STALE_AFTER.as_millis()).unwrap_or(u64::MAX);
        for (at, (since, id)) in candidates.into_iter().take(EVICTION_BATCH).enumerate() {
            if at > 0 && !waiting(since) {
                return;
            }
            all.end(id);
        }
    }

    /// Closes unauthenticated connections after their timeouts.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        let mut all = self.all();
        let late = |slot: &Slot| {
            let since = Duration::from_millis(now.saturating_sub(slot.since.load(Ordering::Relaxed)));
            match slot.state.load(Ordering::Relaxed) {
                HEAD => !slot.served.load(Ordering::Relaxed) && since > self.limits.unauthenticated_timeout,
                UNAUTHENTICATED => since > UNAUTHENTICATED_TIMEOUT,
                _ => false,
            }
        };
        let late: Vec<u64> = all.entries.values().filter(|(slot, _)| late(slot)).map(|(slot, _)| slot.id).collect();
        for id in late {
            all.end(id);
        }
    }

    /// Reserves bytes for a long head. If none are left, the connection that has waited longest with one is closed.
    fn reserve_long_head(&self) -> Result<Reservation, Exhausted> {
        for _ in 0..2 {
            match self.heads.take(Holder::default(), HEAD_BYTES) {
                Err(Exhausted::All) => {}
                taken => return taken,
            }
            let mut all = self.all();
            let long = all.entries.values().filter(|(slot, _)| slot.is_evictable() && slot.head.load(Ordering::Relaxed) > SMALL_HEAD_BYTES);
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

    fn notify_if_full(&self) {
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
    fn long(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.long.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_evictable(&self) -> bool {
        self.state.load(Ordering::Relaxed) != AUTHENTICATED
    }

    fn turn(&self, state: u8, now: Instant) {
        self.since.store(self.slots.at(now), Ordering::Relaxed);
        self.state.store(state, Ordering::Relaxed);
    }

    /// Counts `bytes` read of a head; an error if no more may be read.
    pub(crate) fn reading(&self, bytes: usize) -> Result<(), Exhausted> {
        if self.state.load(Ordering::Relaxed) != HEAD {
            return Ok(());
        }
        let before = self.head.fetch_add(bytes, Ordering::Relaxed);
        if before <= SMALL_HEAD_BYTES && before + bytes > SMALL_HEAD_BYTES {
            let reservation = self.slots.reserve_long_head()?;
            *self.long() = Some(reservation);
        }
        Ok(())
    }

    fn ended(&self, number: u64) {
        if self.requests.load(Ordering::Relaxed) == number {
            self.turn(HEAD, Instant::now());
            self.slots.notify_if_full();
        }
    }
}

/// Removes the slot at the end of a connection.
pub(crate) struct SlotGuard(pub(crate) Arc<Slot>);

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.0.slots.left(self.0.id);
    }
}

impl RequestSlot {
    /// The slot of a request whose head is complete.
    pub(crate) fn new(slot: &Arc<Slot>, now: Instant) -> Self {
        let is_long = slot.head.swap(0, Ordering::Relaxed) > SMALL_HEAD_BYTES;
        let head = if is_long { slot.long().take() } else { None };
        let number = slot.requests.fetch_add(1, Ordering::Relaxed) + 1;
        slot.turn(if slot.slots.limits.requires_authentication { UNAUTHENTICATED } else { AUTHENTICATED }, now);
        Self(Arc::new(RequestState { slot: slot.clone(), number, held: Mutex::new(Held { _head: head, ..Held::default() }) }))
    }

    /// Marks the request as authenticated: its connection is not evicted, and its memory is charged to the caller and the
    /// team.
    pub fn authenticated(&self, holder: Holder) -> Result<(), Error> {
        let RequestState { slot, .. } = &*self.0;
        let mut held = self.0.held();
        if held.connection.is_none() {
            held.connection = Some(slot.slots.authenticated.take(holder, CONNECTION_BYTES)?);
        }
        held.holder = holder;
        drop(held);
        slot.served.store(true, Ordering::Relaxed);
        slot.state.store(AUTHENTICATED, Ordering::Relaxed);
        Ok(())
    }

    /// Charges bytes that the request is about to allocate, until its answer begins.
    pub fn charge(&self, bytes: u64) -> Result<(), Error> {
        self.0.charge(bytes).map_err(Into::into)
    }

    /// Replaces the charge of the handler by the charge of its answer.
    pub(crate) fn begin_answer(&self, bytes: u64) -> Result<(), Exhausted> {
        let before = self.0.held().work.take();
        drop(before);
        if bytes > FREE_BYTES as u64 { self.0.charge(bytes) } else { Ok(()) }
    }

    /// The client's address: the peer of the connection, or the address that a trusted proxy forwards.
    pub(crate) fn address(&self, headers: &http::HeaderMap) -> IpAddr {
        self.0.slot.slots.limits.proxies.client(self.0.slot.peer, headers)
    }
}

impl RequestState {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, bytes: u64) -> Result<(), Exhausted> {
        let mut held = self.held();
        match &mut held.work {
            Some(reservation) => reservation.grow(bytes)?,
            None => held.work = Some(self.slot.slots.work.take(held.holder, bytes)?),
        }
        Ok(())
    }
}

impl Drop for RequestState {
    fn drop(&mut self) {
        self.slot.ended(self.number);
    }
}

impl std::fmt::Debug for RequestSlot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RequestSlot({})", self.0.slot.peer)
    }
}
