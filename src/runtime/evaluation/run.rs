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
async fn write(bench: &Bench, store: &Store, results: &Results, mut scored: mpsc::UnboundedReceiver<usize>) {
    let (mut deadline, mut attempts) = (None, 0);
    while let Some(case) = scored.recv().await {
        if !store.persists() {
            continue;
        }
        let Some(result) = results.json(case) else { continue };
        let kept = EvaluationResult { case, digest: bench.digest(case), result };
        loop {
            match store.keep_evaluation_result(&bench.request.run_id, &kept).await {
                Ok(_) => {
                    attempts = 0;
                    break;
                }
                Err(Fault::Unavailable(fault)) => {
                    if scored.is_closed() && Instant::now() >= *deadline.get_or_insert_with(|| Instant::now() + MAX_DATABASE_WAIT) {
                        return warn!(fault, "results of an evaluation stay in this process alone");
                    }
                    if attempts == 0 {
                        warn!(fault, "a result of an evaluation cannot be written yet");
                    }
                    sleep(pause(&mut attempts)).await;
                }
                Err(fault) => {
                    warn!(%fault, "a result of an evaluation stays in this process alone");
                    break;
                }
            }
        }
    }
}

fn pause(attempts: &mut usize) -> Duration {
    let pause = BACKOFF[(*attempts).min(BACKOFF.len() - 1)];
    *attempts += 1;
    pause
}
