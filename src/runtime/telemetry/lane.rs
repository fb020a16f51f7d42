//! The way of finished spans to one destination: a bounded queue, and one task that sends what is in
//! it in batches and waits ever longer when the destination fails. Whoever finishes a span only
//! appends bytes; what finds no room is dropped and counted. The HTTP client, with its certificates,
//! lives only while there is something to send.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{info, warn};

use super::post::{Post, Sent};
use super::settings::{Batching, Destination};
use super::wire;

/// However many spans the queue may hold, it holds no more bytes: captured content makes large spans.
const QUEUE_BYTES: usize = 4 << 20;
/// The client is given up after this long without a span.
const CLIENT_IDLE: Duration = Duration::from_mins(1);
/// A batch that could not be sent for so long is dropped.
const OLDEST: Duration = Duration::from_mins(5);
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A destination may ask for more patience than that, up to here.
const LONGEST_HINT: Duration = Duration::from_mins(1);
/// While somebody waits for the queue to empty, a failed batch is tried again sooner.
const URGENT_PAUSE: Duration = Duration::from_millis(250);
/// A lasting failure is logged no more often than this.
const COMPLAINT: Duration = Duration::from_mins(1);

pub(super) struct Lane {
    name: &'static str,
    batching: Batching,
    queue: Mutex<Queue>,
    /// Something is to be done: a first span, a full batch, or somebody is waiting.
    wake: Notify,
    /// The queue is empty and nothing is on its way.
    settled: Notify,
    pub(super) counts: Counts,
}

#[derive(Default)]
struct Queue {
    spans: Vec<u8>,
    count: usize,
    sending: usize,
    urgent: bool,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) exported: AtomicU64,
    /// Found no room in the queue.
    pub(super) dropped: AtomicU64,
    /// Refused by the destination, or not accepted in time.
    pub(super) failed: AtomicU64,
}

struct Batch {
    spans: Vec<u8>,
    count: usize,
}

/// What the sending task remembers.
struct Worker {
    lane: Arc<Lane>,
    post: Post,
    resource: Arc<[u8]>,
    scope: Arc<[u8]>,
    place: String,
    complained: Option<Instant>,
}

impl Lane {
    /// Begins to send. Must be called within the tokio runtime.
    pub(super) fn open(destination: Destination, batching: Batching, resource: Arc<[u8]>, scope: Arc<[u8]>) -> Arc<Self> {
        let lane = Arc::new(Self {
            name: destination.name,
            batching,
            queue: Mutex::default(),
            wake: Notify::new(),
            settled: Notify::new(),
            counts: Counts::default(),
        });
        let place = destination.place();
        let worker = Worker { lane: Arc::clone(&lane), post: Post::new(destination), resource, scope, place, complained: None };
        tokio::spawn(worker.run());
        lane
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn push(&self, span: &[u8]) {
        let mut queue = self.lock();
        if queue.count >= self.batching.queue_spans || queue.spans.len() + span.len() > QUEUE_BYTES {
            drop(queue);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        wire::span(&mut queue.spans, span);
        queue.count += 1;
        let ripe = queue.count == 1 || queue.count == self.batching.most_spans;
        drop(queue);
        if ripe {
            self.wake.notify_one();
        }
    }

    /// Sends at once and waits until nothing is left, or until the deadline. How many spans are left.
    pub(super) async fn flush(&self, deadline: Instant) -> u64 {
        loop {
            let settled = self.settled.notified();
            let left = {
                let mut queue = self.lock();
                let left = queue.count + queue.sending;
                queue.urgent = left > 0;
                left
            };
            if left == 0 {
                return 0;
            }
            self.wake.notify_one();
            if timeout_at(deadline, settled).await.is_err() {
                let mut queue = self.lock();
                queue.urgent = false;
                return (queue.count + queue.sending) as u64;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn urgent(&self) -> bool {
        self.lock().urgent
    }

    fn take(&self) -> Batch {
        let mut queue = self.lock();
        let count = queue.count.min(self.batching.most_spans);
        let cut = wire::prefix(&queue.spans, count);
        let rest = queue.spans.split_off(cut);
        let spans = std::mem::replace(&mut queue.spans, rest);
        queue.count -= count;
        queue.sending = count;
        Batch { spans, count }
    }

    /// The batch is through, one way or the other.
    fn done(&self) {
        let mut queue = self.lock();
        queue.sending = 0;
        let settled = queue.count == 0;
        if settled {
            queue.urgent = false;
        }
        drop(queue);
        if settled {
            self.settled.notify_waiters();
        }
    }
}

impl Worker {
    async fn run(mut self) {
        loop {
            self.filled().await;
            self.ripe().await;
            let batch = self.lane.take();
            self.deliver(batch).await;
            self.lane.done();
        }
    }

    async fn filled(&mut self) {
        while self.lane.lock().count == 0 {
            if timeout(CLIENT_IDLE, self.lane.wake.notified()).await.is_err() {
                self.post.rest();
                self.lane.wake.notified().await;
            }
        }
    }

    /// Waits for the batch to be full, or old enough, or awaited.
    async fn ripe(&self) {
        let until = Instant::now() + self.lane.batching.delay;
        loop {
            {
                let queue = self.lane.lock();
                if queue.urgent || queue.count >= self.lane.batching.most_spans {
                    return;
                }
            }
            if timeout_at(until, self.lane.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    async fn deliver(&mut self, batch: Batch) {
        let body = wire::request(&self.resource, &self.scope, &batch.spans);
        let count = batch.count as u64;
        drop(batch);
        let oldest = Instant::now() + OLDEST;
        let mut pause = FIRST_PAUSE;
        loop {
            let counts = &self.lane.counts;
            let (why, after) = match self.post.send(&body).await {
                Sent::Accepted { refused } => {
                    let refused = refused.min(count);
                    counts.exported.fetch_add(count - refused, Ordering::Relaxed);
                    counts.failed.fetch_add(refused, Ordering::Relaxed);
                    match refused {
                        0 => self.recovered(),
                        refused => self.complain(&format!("{refused} of {count} spans were refused")),
                    }
                    return;
                }
                Sent::Refused { why } => {
                    counts.failed.fetch_add(count, Ordering::Relaxed);
                    self.complain(&why);
                    return;
                }
                Sent::Later { why, after } => (why, after),
            };
            self.complain(&why);
            let until = Instant::now() + after.map_or_else(|| jittered(pause), |after| after.min(LONGEST_HINT));
            if until >= oldest {
                self.lane.counts.failed.fetch_add(count, Ordering::Relaxed);
                return;
            }
            self.pause(until).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn pause(&self, until: Instant) {
        while Instant::now() < until {
            if self.lane.urgent() {
                let soon = (Instant::now() + URGENT_PAUSE).min(until);
                return sleep_until(soon).await;
            }
            // Spans that arrive meanwhile wake this task, too: they wait in the queue.
            timeout_at(until, self.lane.wake.notified()).await.ok();
        }
    }

    fn complain(&mut self, why: &str) {
        if self.complained.is_none_or(|when| when.elapsed() >= COMPLAINT) {
            let lost = self.lane.counts.dropped.load(Ordering::Relaxed) + self.lane.counts.failed.load(Ordering::Relaxed);
            warn!(destination = self.lane.name, place = self.place, lost, "spans are not delivered: {why}");
            self.complained = Some(Instant::now());
        }
    }

    fn recovered(&mut self) {
        if self.complained.take().is_some() {
            info!(destination = self.lane.name, place = self.place, "spans are delivered again");
        }
    }
}

/// Half to all of a pause, so that many pods do not come back at the same instant.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    getrandom::fill(&mut byte).ok();
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}
