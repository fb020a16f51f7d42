//! The cases of a run: those that were scored before are taken from the database, the others are put to the agent, a few at
//! once. Results are written down beside that: a database that is away holds nothing up.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use slipway_database::{EvaluationResult, Fault};
use slipway_evaluation::wire::CaseResult;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::case::Bench;
use super::results::Results;
use crate::store::Store;

/// The pauses before a question to the database is asked again; the last one is repeated.
const BACKOFF: [Duration; 4] = [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// For how long a run waits for what was scored before, and at its end for its last results to be written.
const MAX_DATABASE_WAIT: Duration = Duration::from_secs(30);

/// Scores all cases that have no result, unless the agent gives no answers. What is not scored then has not been run.
pub(super) async fn work(bench: Bench, store: Arc<Store>, results: Arc<Results>) {
    if store.persists() && !bench.request.begins_anew {
        load(&bench, &store, &results).await;
    }
    let (scored, written) = mpsc::unbounded_channel();
    // The sender goes with the first future, which tells the second that no more will come.
    tokio::join!(score(&bench, &results, scored), write(&bench, &store, &results, written));
}

async fn score(bench: &Bench, results: &Results, scored: mpsc::UnboundedSender<usize>) {
    let mut waiting = (0..results.total).filter(|case| !results.has(*case));
    let mut running = FuturesUnordered::new();
    loop {
        if results.is_silent() {
            return warn!(run = bench.request.run_id, "an evaluation ends before its last case, as the agent gives no answers");
        }
        while running.len() < bench.limits.cases {
            let Some(case) = waiting.next() else { break };
            running.push(bench.evaluate(case));
        }
        let Some(result) = running.next().await else { return };
        let case = result.case;
        results.add(result);
        // The receiver is there for as long as this.
        let _ = scored.send(case);
    }
}

/// What was scored before, of the same cases by the same scorers.
async fn load(bench: &Bench, store: &Store, results: &Results) {
    let (began, mut attempts) = (Instant::now(), 0);
    let kept = loop {
        match store.evaluation_results(&bench.request.run_id).await {
            Ok(kept) => break kept,
            Err(Fault::Unavailable(fault)) if began.elapsed() < MAX_DATABASE_WAIT => {
                warn!(fault, "earlier results of an evaluation cannot be read yet");
                sleep(pause(&mut attempts)).await;
            }
            Err(fault) => return warn!(%fault, "earlier results of an evaluation cannot be read; all of its cases are scored"),
        }
    };
    let mut known = 0;
    for EvaluationResult { case, digest, result } in kept {
        if case >= results.total || digest != bench.digest(case) {
            continue;
        }
        if let Ok(result) = serde_json::from_value::<CaseResult>(result) {
            results.add(CaseResult { case, ..result });
            known += 1;
        }
    }
    if known > 0 {
        info!(run = bench.request.run_id, known, "cases of an evaluation were scored before");
    }
}

/// Writes results down as they come. While the database is away they wait; after the last case not for long.
async fn write(bench: &Bench, store: &Store, results: &Results, scored: mpsc::UnboundedReceiver<usize>) {
    if !store.persists() {
        return;
    }
    let mut writer = Writer { run: &bench.request.run_id, store, scored, deadline: None, attempts: 0 };
    // Before the first result: this attempt may end early, and what another one left for the other cases is none of its results.
    let digests = (0..results.total).map(|case| bench.digest(case)).collect();
    if !writer.insist(&Write::Removal(digests)).await {
        return;
    }
    while let Some(case) = writer.scored.recv().await {
        let Some(result) = results.json(case) else { continue };
        let kept = EvaluationResult { case, digest: bench.digest(case), result };
        if !writer.insist(&Write::Result(kept)).await {
            return;
        }
    }
}

/// What is written of a run.
enum Write {
    /// The end of results by other digests than these, which are those of all cases.
    Removal(Vec<Vec<u8>>),
    Result(EvaluationResult),
}

struct Writer<'a> {
    run: &'a str,
    store: &'a Store,
    /// The cases that have a result.
    scored: mpsc::UnboundedReceiver<usize>,
    deadline: Option<Instant>,
    attempts: usize,
}

impl Writer<'_> {
    /// Writes once the database is there. False if it is not for too long after the last case.
    async fn insist(&mut self, write: &Write) -> bool {
        loop {
            match self.attempt(write).await {
                Ok(()) => {
                    self.attempts = 0;
                    return true;
                }
                Err(Fault::Unavailable(fault)) => {
                    if self.scored.is_closed() && Instant::now() >= *self.deadline.get_or_insert_with(|| Instant::now() + MAX_DATABASE_WAIT)
                    {
                        warn!(fault, "results of an evaluation stay in this process alone");
                        return false;
                    }
                    if self.attempts == 0 {
                        warn!(fault, "a result of an evaluation cannot be written yet");
                    }
                    sleep(pause(&mut self.attempts)).await;
                }
                Err(fault) => {
                    match write {
                        Write::Removal(_) => warn!(%fault, "results of another attempt of an evaluation cannot be deleted"),
                        Write::Result(_) => warn!(%fault, "a result of an evaluation stays in this process alone"),
                    }
                    return true;
                }
            }
        }
    }

    async fn attempt(&self, write: &Write) -> Result<(), Fault> {
        match write {
            Write::Removal(digests) => {
                let deleted = self.store.delete_other_evaluation_results(self.run, digests).await?;
                if deleted > 0 {
                    info!(run = self.run, deleted, "results of another attempt of an evaluation are deleted");
                }
            }
            Write::Result(kept) => {
                self.store.keep_evaluation_result(self.run, kept).await?;
            }
        }
        Ok(())
    }
}

fn pause(attempts: &mut usize) -> Duration {
    let pause = BACKOFF[(*attempts).min(BACKOFF.len() - 1)];
    *attempts += 1;
    pause
}
