//! The listener: takes connections as many as memory allows, gives each a task of its own, and at shutdown lets
//! what is under way finish within a grace period.

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
use crate::slots::{Leaving, Slots};

/// How often connections are checked for timeouts.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// What a client may take of the server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The bytes that all clients may take together: connections, heads, bodies, answers, streams. `Division` has the parts.
    pub memory: u64,
    /// Connections at a time, if memory allows as many. For a further one another goes that is between requests, or whose
    /// caller is not known; while there is none it waits in the kernel's queue.
    pub connections: usize,
    /// Whether callers are strangers until the handler says that it knows them (`Place::known`).
    pub strangers: bool,
    /// How long a connection may wait for the head of its first request, while its client is a stranger.
    pub stranger: Duration,
    /// The proxies that are believed on whose behalf they ask.
    pub proxies: Proxies,
    /// For a request's head to arrive, counted from when it could have been sent; so also how long a
    /// connection may be idle.
    pub head: Duration,
    /// For a request's body to arrive.
    pub body: Duration,
    /// For a client to take what was sent to it.
    pub stall: Duration,
    /// For requests under way at shutdown.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: memory::for_clients(memory::limit(), 0),
            connections: 1024,
            strangers: false,
            stranger: Duration::from_secs(10),
            proxies: Proxies::default(),
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            stall: Duration::from_mins(1),
            grace: Duration::from_secs(25),
        }
    }
}

impl Limits {
    /// For a port that is asked by the platform alone, beside another that has the process' memory.
    pub fn small() -> Self {
        Self { memory: 8 * memory::MIB, ..Self::default() }
    }
}

/// How a shutdown went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still busy at the end of the grace period and were cut.
    pub cut: usize,
}

/// Serves until `shutdown` resolves, then stops listening, closes idle connections, and returns when
/// the last busy one is done or the grace period is over. A handler that panics costs its own request
/// a 500 and nothing else; one whose client leaves is dropped.
pub async fn serve<H, F>(listener: TcpListener, limits: Limits, handler: H, shutdown: impl Future<Output = ()>) -> Drained
where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Reply, Error>> + Send + 'static,
{
    let handler = Arc::new(handler);
    let slots = Slots::new(limits.clone());
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (closing, closed) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            _ = sweep.tick(), if limits.strangers => slots.sweep(),
            (stream, peer) = accepted(&listener, &slots) => {
                slots.make_room();
                let slot = slots.enter(peer);
                let served = connection::run(stream, slot.clone(), limits.clone(), Arc::clone(&handler), closed.clone());
                let leaving = Leaving(slot.clone());
                let handle = connections.spawn(async move {
                    served.await;
                    drop(leaving);
                });
                slots.ends_by(&slot, handle);
            }
        }
    }
    drop(listener);
    closing.send_replace(true);
    let all = async { while connections.join_next().await.is_some() {} };
    let cut = if timeout(limits.grace, all).await.is_ok() { 0 } else { connections.len() };
    connections.shutdown().await;
    Drained { cut }
}

async fn accepted(listener: &TcpListener, slots: &Slots) -> (TcpStream, IpAddr) {
    slots.room().await;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => return (stream, SocketAddr::ip(&peer).to_canonical()),
            // Out of file descriptors, most likely: others have to close first.
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
