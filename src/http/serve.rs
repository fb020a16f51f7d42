//! The listener: takes connections up to a limit, gives each a task of its own, and at shutdown lets
//! what is under way finish within a grace period.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::select;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::connection;
use crate::error::Error;
use crate::reply::Reply;
use crate::request::Request;

/// What a client may take of the server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at a time; further ones wait in the kernel's queue.
    pub connections: usize,
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
            connections: 1024,
            head: Duration::from_secs(30),
            body: Duration::from_secs(30),
            stall: Duration::from_mins(1),
            grace: Duration::from_secs(25),
        }
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
    let slots = Arc::new(Semaphore::new(limits.connections));
    let (closing, closed) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            (stream, slot) = accepted(&listener, &slots) => {
                let served = connection::run(stream, limits, Arc::clone(&handler), closed.clone());
                connections.spawn(async move {
                    served.await;
                    drop(slot);
                });
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

async fn accepted(listener: &TcpListener, slots: &Arc<Semaphore>) -> (TcpStream, Option<OwnedSemaphorePermit>) {
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            // Out of file descriptors, most likely: others have to close first.
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
