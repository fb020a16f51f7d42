//! The connections of a process. sqlx's pool asks each one that comes back whether it lives: a round trip and a task more for every
//! transaction. Here nothing is asked: the first statement of the next transaction finds out, and is sent anew if not.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Error, Executor, PgConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::Fault;

/// How long a transaction waits for a connection, the making of it included.
pub(crate) const ACQUIRE: Duration = Duration::from_secs(3);
/// Idle connections are looked for this often and closed when idle for as long, so each goes after one to two of it.
const IDLE: Duration = Duration::from_secs(40);
/// An older connection is not used again, so that the server gets back what memory its process has gathered.
const LIFETIME: Duration = Duration::from_mins(30);
/// Between attempts to connect to a server that is about to start, or that has too many connections.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Pool {
    settings: PgConnectOptions,
    places: Arc<Semaphore>,
    idle: Arc<Mutex<Idle>>,
}

#[derive(Default)]
struct Idle {
    /// The one used last is the last.
    connections: Vec<IdleConnection>,
    /// Whether a task closes those that stay idle. It ends once there is none left.
    watched: bool,
}

struct IdleConnection {
    connection: PgConnection,
    made: Instant,
    since: Instant,
}

impl Pool {
    /// Connects to nothing yet.
    pub(crate) fn new(settings: PgConnectOptions, most: u32) -> Self {
        let places = Semaphore::new(usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS));
        Self { settings, places: Arc::new(places), idle: Arc::default() }
    }

    pub(crate) fn settings(&self) -> &PgConnectOptions {
        &self.settings
    }

    pub(crate) async fn acquire(&self) -> Result<Work, Error> {
        timeout(ACQUIRE, async {
            let place = self.places.clone().acquire_owned().await.map_err(|_| Error::PoolClosed)?;
            let idle = lock(&self.idle).connections.pop();
            let (connection, made) = match idle {
                Some(idle) => (idle.connection, idle.made),
                None => (self.connect().await?, Instant::now()),
            };
            Ok(Work { connection, made, idle: self.idle.clone(), _place: place })
        })
        .await
        .unwrap_or(Err(Error::PoolTimedOut))
    }

    async fn connect(&self) -> Result<PgConnection, Error> {
        loop {
            match self.settings.connect().await {
                Err(error) if may_soon_accept(&error) => sleep(RETRY_PAUSE).await,
                end => return end,
            }
        }
    }
}

fn may_soon_accept(error: &Error) -> bool {
    match error {
        Error::Io(error) => error.kind() == std::io::ErrorKind::ConnectionRefused,
        Error::Database(error) => matches!(error.code().as_deref(), Some("53300" | "57P03")),
        _ => false,
    }
}

/// One transaction, and its connection. Unless it is committed, the connection is closed: a caller that gave up in the middle of a
/// question leaves answers behind that nobody should wait for.
pub(crate) struct Work {
    connection: PgConnection,
    made: Instant,
    idle: Arc<Mutex<Idle>>,
    _place: OwnedSemaphorePermit,
}

impl Work {
    pub(crate) async fn commit(mut self) -> Result<(), Fault> {
        self.execute(sqlx::raw_sql("COMMIT")).await?;
        self.put_back();
        Ok(())
    }

    /// Keeps the connection for the next transaction. This one has ended well.
    pub(crate) fn put_back(self) {
        let since = Instant::now();
        if since - self.made >= LIFETIME {
            return;
        }
        let mut idle = lock(&self.idle);
        idle.connections.push(IdleConnection { connection: self.connection, made: self.made, since });
        if !idle.watched {
            idle.watched = true;
            tokio::spawn(close_unused(Arc::downgrade(&self.idle)));
        }
    }
}

impl Deref for Work {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Work {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

async fn close_unused(pool: Weak<Mutex<Idle>>) {
    loop {
        sleep(IDLE).await;
        let Some(idle) = pool.upgrade() else { return };
        let (unused, watched) = lock(&idle).take_unused();
        for connection in unused {
            // A server that does not take the farewell is left without.
            let _ = timeout(ACQUIRE, connection.close()).await;
        }
        if !watched {
            return;
        }
    }
}

impl Idle {
    /// And whether others are left.
    fn take_unused(&mut self) -> (Vec<PgConnection>, bool) {
        let unused = self.connections.extract_if(.., |idle| idle.since.elapsed() >= IDLE).map(|idle| idle.connection).collect();
        self.watched = !self.connections.is_empty();
        (unused, self.watched)
    }
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
