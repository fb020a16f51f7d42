//! Group commit: what waits while a question of its kind is under way goes as the next one, in one trip, one transaction
//! and one write to the server's disk for all. Where nothing waits, a question goes alone and at once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use sqlx::Row;
use sqlx::postgres::PgRow;
use tokio::select;
use tokio::sync::oneshot;

use crate::Fault;
use crate::connection::{Door, Question, in_time};

/// Of one batch; a single larger statement goes by itself.
const MAX_BATCH: usize = 64;
const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// How long a statement waits for a lock: in a batch it would delay the others.
const LOCK_TIMEOUT_ALONE: &str = "2s";
const LOCK_TIMEOUT_IN_BATCH: &str = "100ms";

/// What may be asked together with others of its kind, and may be repeated.
pub(crate) trait BatchStep: Send + Sync + Sized + 'static {
    type Answer: Default + Send;

    /// About what it takes to send.
    fn bytes(&self) -> usize;
    /// Those that lock the same rows have the same key. A question locks by the order of keys, so that two never wait for
    /// each other.
    fn key(&self) -> &str;
    /// One statement for all, which waits so long for a lock. Each row has the column `nth`, the place of what it answers,
    /// from 1.
    fn question<'q>(steps: &'q [Self], whose: &'q Whose, lock_timeout: &'static str) -> Question<'q>;
    fn take(answer: &mut Result<Self::Answer, Fault>, row: &PgRow) -> Result<(), Fault>;
}

/// Whose rows are meant.
pub(crate) struct Whose {
    pub(crate) team: String,
    pub(crate) agent: String,
}

pub(crate) struct Batches<S: BatchStep>(Arc<Shared<S>>);

struct Shared<S: BatchStep> {
    door: Arc<Door>,
    whose: Whose,
    queue: Mutex<Queue<S>>,
}

struct Queue<S: BatchStep> {
    waiting: VecDeque<(S, Asker<S>)>,
    /// Whether a task is sending the queue.
    served: bool,
}

type Asker<S> = oneshot::Sender<Result<<S as BatchStep>::Answer, Fault>>;

impl<S: BatchStep> Batches<S> {
    pub(crate) fn new(door: Arc<Door>, whose: Whose) -> Self {
        Self(Arc::new(Shared { door, whose, queue: Mutex::new(Queue { waiting: VecDeque::new(), served: false }) }))
    }

    pub(crate) async fn ask(&self, step: S) -> Result<S::Answer, Fault> {
        let (asker, answer) = oneshot::channel();
        let served = {
            let mut queue = self.0.queue();
            queue.waiting.push_back((step, asker));
            std::mem::replace(&mut queue.served, true)
        };
        if !served {
            // A task of its own: a caller may be cancelled while the statements of others go on.
            tokio::spawn(Arc::clone(&self.0).serve());
        }
        answer.await.unwrap_or_else(|_| Err(Fault::Unavailable("this process is ending".to_owned())))
    }
}

impl<S: BatchStep> Shared<S> {
    async fn serve(self: Arc<Self>) {
        while let Some(batch) = self.next() {
            let (steps, askers): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            // Each by itself, as one that the server refuses is not the others' fault; and beside what comes next.
            if let Some(askers) = self.answer(&steps, askers).await {
                for (step, asker) in steps.into_iter().zip(askers) {
                    let this = Arc::clone(&self);
                    tokio::spawn(async move { this.answer(&[step], vec![asker]).await });
                }
            }
        }
    }

    /// Asks for as long as somebody waits. Gives the askers back where several are to be tried one by one.
    async fn answer(&self, steps: &[S], mut askers: Vec<Asker<S>>) -> Option<Vec<Asker<S>>> {
        let answers = select! {
            answers = self.ask(steps) => answers,
            _ = join_all(askers.iter_mut().map(oneshot::Sender::closed)) => return None,
        };
        match answers {
            Ok(answers) => answers.into_iter().zip(askers).for_each(|(answer, asker)| _ = asker.send(answer)),
            Err(fault) if steps.len() == 1 => askers.into_iter().for_each(|asker| _ = asker.send(Err(fault.clone()))),
            Err(_) => return Some(askers),
        }
        None
    }

    /// What is to be asked together, by its keys; nothing ends the serving.
    fn next(&self) -> Option<Vec<(S, Asker<S>)>> {
        let mut queue = self.queue();
        queue.waiting.retain(|(_, asker)| !asker.is_closed());
        let mut bytes = 0;
        let within = |(step, _): &&(S, Asker<S>)| {
            bytes += step.bytes();
            bytes <= MAX_BATCH_BYTES
        };
        let many = queue.waiting.iter().take(MAX_BATCH).take_while(within).count().max(1).min(queue.waiting.len());
        let mut batch: Vec<_> = queue.waiting.drain(..many).collect();
        batch.sort_by(|(one, _), (other, _)| one.key().cmp(other.key()));
        queue.served = !batch.is_empty();
        queue.served.then_some(batch)
    }

    async fn ask(&self, steps: &[S]) -> Result<Vec<Result<S::Answer, Fault>>, Fault> {
        let none = || steps.iter().map(|_| Ok(S::Answer::default())).collect();
        let take = |answers: &mut Vec<_>, row: PgRow| {
            let nth: i64 = row.try_get("nth")?;
            let answer = usize::try_from(nth - 1).ok().and_then(|place| answers.get_mut(place)).ok_or(sqlx::Error::RowNotFound)?;
            S::take(answer, &row)
        };
        let lock_timeout = if steps.len() == 1 { LOCK_TIMEOUT_ALONE } else { LOCK_TIMEOUT_IN_BATCH };
        in_time(self.door.one(|| S::question(steps, &self.whose, lock_timeout), none, take)).await
    }

    fn queue(&self) -> MutexGuard<'_, Queue<S>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
