//! The listener: accepts as many connections as memory allows, runs each in its own task, and at shutdown lets running
//! requests finish within a grace period.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::warn;

use crate::connection;
use crate::error::Error;
use crate::memory;
use crate::proxies::Proxies;
use crate::reply::Reply;
use crate::request::Request;
use crate::slots::{SlotGuard, Slots};

/// How often connections are checked for timeouts.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// For how long at shutdown a connection that is open may bring one more request, which is its last. A client that keeps
/// connections sends on one without knowing that it is about to be closed, and cannot repeat what is no GET.
pub const LINGER: Duration = Duration::from_secs(1);

/// The limits of a server for its clients.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// The memory that all clients may take together: connections, heads, bodies, answers, streams. `MemoryPlan` divides it.
    pub memory: u64,
    /// The most connections, if memory allows as many. A further connection evicts one that is idle or unauthenticated; while
    /// there is none, it waits in the kernel's queue.
    pub connections: usize,
    /// Whether requests are unauthenticated until the handler calls `RequestSlot::authenticated`.
    pub requires_authentication: bool,
    /// The timeout for the head of the first request of a connection, while its client is unauthenticated.
    pub unauthenticated_timeout: Duration,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub proxies: Proxies,
    /// Parts of paths behind which a path holds a secret: what follows is in no log line and no error.
    pub secret_paths: &'static [&'static str],
    /// The timeout for the head of a request, from the end of the previous one: also the longest idle time of a connection.
    pub head_timeout: Duration,
    /// The timeout for the body of a request.
    pub body_timeout: Duration,
    /// The timeout for sent bytes to be acknowledged.
    pub send_timeout: Duration,
    /// The grace period for running requests at shutdown.
    pub grace: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            memory: memory::for_clients(memory::limit(), 0),
            connections: 1024,
            requires_authentication: false,
            unauthenticated_timeout: Duration::from_secs(10),
            proxies: Proxies::default(),
            secret_paths: &[],
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            send_timeout: Duration::from_mins(1),
            grace: Duration::from_secs(25),
        }
    }
}

impl ServerLimits {
    /// Limits for a port that only the platform uses, beside another port that has the memory of the process.
    pub fn small() -> Self {
        Self { memory: 8 * memory::MIB, ..Self::default() }
    }
}

/// What a shutdown asks of each connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closing {
    No,
    /// Its next answer is the last.
    AfterAnswer,
    /// It closes at once if it is idle.
    WhenIdle,
}

/// The result of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// The connections that were still busy at the end of the grace period and were closed.
    pub cut: usize,
}

/// Serves until `shutdown` resolves, then stops listening, closes connections after their next answer, those that stay idle after
/// `LINGER`, and returns when the last busy one has ended or the grace period is over. A handler that panics fails its own request
/// with 500; a handler whose client disconnects is dropped.
pub async fn serve<H, F>(listener: TcpListener, limits: ServerLimits, handler: H, shutdown: impl Future<Output = ()>) -> Drained
where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Reply, Error>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let slots = Slots::new(limits.clone());
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (closing, closed) = watch::channel(Closing::No);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            _ = sweep.tick(), if limits.requires_authentication => slots.sweep(),
            (stream, peer) = accepted(&listener, &slots) => {
                slots.make_room();
                let slot = slots.enter(peer);
                let served = connection::run(stream, slot.clone(), limits.clone(), Arc::clone(&handler), closed.clone());
                let guard = SlotGuard(slot.clone());
                let handle = connections.spawn(async move {
                    served.await;
                    drop(guard);
                });
                slots.set_abort_handle(&slot, handle);
            }
        }
    }
    drop(listener);
    closing.send_replace(Closing::AfterAnswer);
    let linger = LINGER.min(limits.grace / 2);
    let cut = if timeout(linger, all(&mut connections)).await.is_ok() {
        0
    } else {
        closing.send_replace(Closing::WhenIdle);
        if timeout(limits.grace.saturating_sub(linger), all(&mut connections)).await.is_ok() { 0 } else { connections.len() }
    };
    connections.shutdown().await;
    Drained { cut }
}

async fn all(connections: &mut JoinSet<()>) {
    while connections.join_next().await.is_some() {}
}

async fn accepted(listener: &TcpListener, slots: &Slots) -> (TcpStream, IpAddr) {
    slots.room().await;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, SocketAddr::ip(&peer).to_canonical()),
            // Most likely out of file descriptors: other connections have to close first.
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
