//! The export queue of one destination: a bounded queue of encoded spans, and one task that sends them in batches, with
//! exponential backoff when the destination fails. A span that finds no room is dropped and counted. The HTTP client, with
//! its certificates, lives only while there is something to send.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tracing::{info, warn};

use super::otlp::ExportRequest;
use super::post::{Post, Sent};
use super::settings::{Batching, Destination};

/// Beside the bound on spans: captured content makes large ones.
const MAX_QUEUE_BYTES: usize = 4 << 20;
/// The client is closed after this long without a span.
const CLIENT_IDLE_TIMEOUT: Duration = Duration::from_mins(1);
/// A batch that could not be sent for this long is dropped.
const MAX_RETRY_TIME: Duration = Duration::from_mins(5);
const MIN_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// A longer `Retry-After` is cut to this.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);
/// During a flush a failed batch is tried again sooner.
const FLUSH_BACKOFF: Duration = Duration::from_millis(250);
/// A lasting failure is logged no more often than this.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

pub(super) struct ExportQueue {
    name: &'static str,
    batching: Batching,
    queue: Mutex<Queue>,
    /// There is a first span, a full batch, or a flush.
    wake: Notify,
    /// The queue is empty and nothing is on its way.
    settled: Notify,
    pub(super) counts: Counts,
}

#[derive(Default)]
struct Queue {
    spans: VecDeque<(Vec<u8>, bool)>,
    bytes: usize,
    /// Spans of the batch that is being sent.
    sending: usize,
    flushing: bool,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) exported: AtomicU64,
    /// Found no room in the queue.
    pub(super) dropped: AtomicU64,
    /// Refused by the destination, or not accepted in time.
    pub(super) failed: AtomicU64,
    /// Turns that nothing else tells of, of batches that were accepted as a whole.
    pub(super) audited: AtomicU64,
}

/// The task that sends.
struct Sender {
    queue: Arc<ExportQueue>,
    post: Post,
    resource: Arc<Resource>,
    place: String,
    /// When a failure was logged last; none after a success.
    logged: Option<Instant>,
}

impl ExportQueue {
    /// Begins to send. Must be called within the tokio runtime.
    pub(super) fn open(destination: Destination, batching: Batching, resource: Arc<Resource>) -> Arc<Self> {
        let queue = Arc::new(Self {
            name: destination.name,
            batching,
            queue: Mutex::default(),
            wake: Notify::new(),
            settled: Notify::new(),
            counts: Counts::default(),
        });
        let place = destination.place();
        let sender = Sender { queue: Arc::clone(&queue), post: Post::new(destination), resource, place, logged: None };
        tokio::spawn(sender.run());
        queue
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn push(&self, span: &Span, audits: bool) {
        let bytes = span.encoded_len();
        let mut queue = self.lock();
        if queue.spans.len() >= self.batching.queue_spans || queue.bytes + bytes > MAX_QUEUE_BYTES {
            drop(queue);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        queue.spans.push_back((span.encode_to_vec(), audits));
        queue.bytes += bytes;
        let wakes = queue.spans.len() == 1 || queue.spans.len() == self.batching.most_spans;
        drop(queue);
        if wakes {
            self.wake.notify_one();
        }
    }

    /// Sends at once and waits until nothing is left, or until the deadline. How many spans are left.
    pub(super) async fn flush(&self, deadline: Instant) -> u64 {
        loop {
            let settled = self.settled.notified();
            let left = {
                let mut queue = self.lock();
                let left = queue.spans.len() + queue.sending;
                queue.flushing = left > 0;
                left
            };
            if left == 0 {
                return 0;
            }
            self.wake.notify_one();
            if timeout_at(deadline, settled).await.is_err() {
                let mut queue = self.lock();
                queue.flushing = false;
                return (queue.spans.len() + queue.sending) as u64;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_flushing(&self) -> bool {
        self.lock().flushing
    }

    /// A batch, and how many turns it audits.
    fn take(&self) -> (Vec<Vec<u8>>, u64) {
        let mut queue = self.lock();
        let count = queue.spans.len().min(self.batching.most_spans);
        let mut audited = 0;
        let batch: Vec<_> = queue.spans.drain(..count).map(|(span, audits)| (audited += u64::from(audits), span).1).collect();
        queue.bytes -= batch.iter().map(Vec::len).sum::<usize>();
        queue.sending = count;
        if queue.spans.is_empty() {
            // A burst leaves no room behind it.
            queue.spans = VecDeque::new();
        }
        (batch, audited)
    }

    /// The batch was delivered or given up.
    fn done(&self) {
        let mut queue = self.lock();
        queue.sending = 0;
        let settled = queue.spans.is_empty();
        if settled {
            queue.flushing = false;
        }
        drop(queue);
        if settled {
            self.settled.notify_waiters();
        }
    }
}

impl Sender {
    async fn run(mut self) {
        loop {
            self.first_span().await;
            self.full_batch().await;
            let (batch, audited) = self.queue.take();
            self.deliver(batch, audited).await;
            self.queue.done();
        }
    }

    async fn first_span(&mut self) {
        while self.queue.lock().spans.is_empty() {
            if timeout(CLIENT_IDLE_TIMEOUT, self.queue.wake.notified()).await.is_err() {
                self.post.rest();
                self.queue.wake.notified().await;
            }
        }
    }

    /// Waits until the batch is full or old enough, or a flush begins.
    async fn full_batch(&self) {
        let until = Instant::now() + self.queue.batching.delay;
        loop {
            {
                let queue = self.queue.lock();
                if queue.flushing || queue.spans.len() >= self.queue.batching.most_spans {
                    return;
                }
            }
            if timeout_at(until, self.queue.wake.notified()).await.is_err() {
                return;
            }
        }
    }

    async fn deliver(&mut self, batch: Vec<Vec<u8>>, audited: u64) {
        let count = batch.len() as u64;
        let body = ExportRequest::new(&self.resource, batch).encode_to_vec();
        let give_up = Instant::now() + MAX_RETRY_TIME;
        let mut pause = MIN_BACKOFF;
        loop {
            let counts = &self.queue.counts;
            let (why, after) = match self.post.send(&body).await {
                Sent::Accepted { refused } => {
                    let refused = refused.min(count);
                    counts.exported.fetch_add(count - refused, Ordering::Relaxed);
                    counts.failed.fetch_add(refused, Ordering::Relaxed);
                    match refused {
                        0 => {
                            counts.audited.fetch_add(audited, Ordering::Relaxed);
                            self.log_recovery();
                        }
                        refused => self.log_failure(&format!("{refused} of {count} spans were refused")),
                    }
                    return;
                }
                Sent::Refused { why } => {
                    counts.failed.fetch_add(count, Ordering::Relaxed);
                    self.log_failure(&why);
                    return;
                }
                Sent::Later { why, after } => (why, after),
            };
            self.log_failure(&why);
            let until = Instant::now() + after.map_or_else(|| jittered(pause), |after| after.min(MAX_RETRY_AFTER));
            if until >= give_up {
                self.queue.counts.failed.fetch_add(count, Ordering::Relaxed);
                return;
            }
            self.pause(until).await;
            pause = (pause * 2).min(MAX_BACKOFF);
        }
    }

    async fn pause(&self, until: Instant) {
        while Instant::now() < until {
            if self.queue.is_flushing() {
                let soon = (Instant::now() + FLUSH_BACKOFF).min(until);
                return sleep_until(soon).await;
            }
            // Spans that arrive meanwhile wake this task, too: they wait in the queue.
            timeout_at(until, self.queue.wake.notified()).await.ok();
        }
    }

    fn log_failure(&mut self, why: &str) {
        if self.logged.is_none_or(|when| when.elapsed() >= LOG_INTERVAL) {
            let lost = self.queue.counts.dropped.load(Ordering::Relaxed) + self.queue.counts.failed.load(Ordering::Relaxed);
            warn!(destination = self.queue.name, place = self.place, lost, "spans are not delivered: {why}");
            self.logged = Some(Instant::now());
        }
    }

    fn log_recovery(&mut self) {
        if self.logged.take().is_some() {
            info!(destination = self.queue.name, place = self.place, "spans are delivered again");
        }
    }
}

/// Half to all of a pause, so that many pods do not come back at the same instant.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    getrandom::fill(&mut byte).ok();
    pause / 2 + pause / 2 * u32::from(byte[0]) / 255
}
