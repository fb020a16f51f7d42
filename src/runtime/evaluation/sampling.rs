//! Scores of answers to users, made after they were given: a percentage of the stored answers, one at a time and outside of
//! turns. What does not fit the queue, or the day's budget of all pods, is dropped and counted.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use ring::digest::{SHA256, digest};
use slipway_database::{Fault, Role, SampledScore, SampledTurn, StoredMessage};
use slipway_evaluation::wire::{RunCase, ScoreState};
use slipway_evaluation::{CaseTurn, Profile, ToolCall};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::EvaluationLimits;
use super::judge::Judge;
use super::scoring::{Scoring, tokens};
use crate::agent;
use crate::record::Recorder;
use crate::settings;
use crate::store::Store;
use crate::turn::{Order, Said};

const QUEUE_LENGTH: usize = 32;
/// More than a judge reads of a text, so that it is told where one was cut.
const MAX_TEXT_BYTES: usize = 40 * 1024;
/// The same of what a tool answered, and of a passage; and as many of them as a judge reads.
const MAX_RESULT_BYTES: usize = 5 * 1024;
const MAX_CALLS: usize = 32;
/// What was said before the question, for what it refers to.
const MAX_EARLIER: usize = 4;
const MAX_EARLIER_BYTES: usize = 2 * 1024;
const LIMITS: EvaluationLimits =
    EvaluationLimits { cases: 1, judge_calls: 1, judge_timeout: Duration::from_secs(30), case_timeout: Duration::from_mins(2) };
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// For how long scores wait for a database that is away.
const MAX_WRITE_WAIT: Duration = Duration::from_secs(30);

pub(crate) struct Sampling {
    rate: u32,
    queue: mpsc::Sender<Answered>,
    recorder: Recorder,
}

/// A turn that is to be scored if it comes to an answer.
pub(crate) struct Sample {
    trace_id: String,
    case: RunCase,
}

pub(crate) struct Answered {
    sample: Sample,
    at: Timestamp,
    turn: CaseTurn,
}

impl Sampling {
    /// Without a database nothing is sampled. Says what is wrong with the judge, if anything is.
    pub(crate) fn start(
        settings: settings::Sampling,
        has_knowledge: bool,
        store: &Arc<Store>,
        recorder: &Recorder,
    ) -> Result<Option<Self>, String> {
        let settings::Sampling { rate, per_day, risk, judge: name } = settings;
        let open = |uri: &String| {
            // What the judge takes counts for no budget of the agent.
            let apart = recorder.rehearsing("");
            Judge::open(uri, &agent::variable, LIMITS, apart, recorder.clone()).map_err(|fault| format!("RUNTIME_JUDGE_MODEL: {fault}"))
        };
        let judge = name.as_ref().map(open).transpose()?;
        if !store.persists() {
            warn!("RUNTIME_EVAL_SAMPLE_RATE is set, but no answers are sampled, as RUNTIME_STORAGE is memory");
            return Ok(None);
        }
        // Whether tools were called rightly, words cannot say.
        let scorers = Profile::of(risk).scorers(has_knowledge, judge.is_some());
        let scoring = Scoring { scorers, guidelines: Vec::new(), judge, recorder: recorder.clone(), timeout: LIMITS.case_timeout };
        let (queue, answered) = mpsc::channel(QUEUE_LENGTH);
        let worker = Worker { scoring, judge: name.unwrap_or_default(), per_day, store: Arc::clone(store), recorder: recorder.clone() };
        tokio::spawn(worker.work(answered));
        Ok(Some(Self { rate, queue, recorder: recorder.clone() }))
    }

    /// The turn, if it is one to sample. `history` ends with the message to answer.
    pub(crate) fn pick(&self, order: &Order, history: &[StoredMessage]) -> Option<Sample> {
        let Said::InConversation { message, .. } = &order.said else { return None };
        is_sampled(&order.trace_id, self.rate).then(|| Sample {
            trace_id: order.trace_id.clone(),
            case: RunCase { input: cut(message, MAX_TEXT_BYTES), context: earlier(history), ..RunCase::default() },
        })
    }

    /// Leaves an answer to be scored. Nobody waits for that.
    pub(crate) fn offer(&self, answered: Answered) {
        if self.queue.try_send(answered).is_err() {
            self.recorder.sampled_turn("dropped");
        }
    }
}

impl Sample {
    pub(crate) fn answered(self, output: &str, mut calls: Vec<ToolCall>, retrieved: Option<Vec<String>>) -> Answered {
        calls.truncate(MAX_CALLS);
        for call in &mut calls {
            call.result = cut(&call.result, MAX_RESULT_BYTES);
        }
        let retrieved = retrieved.map(|passages| passages.iter().take(MAX_CALLS).map(|passage| cut(passage, MAX_RESULT_BYTES)).collect());
        let turn = CaseTurn { output: cut(output, MAX_TEXT_BYTES), retrieved, tool_calls: Some(calls), ..CaseTurn::default() };
        Answered { sample: self, at: Timestamp::now(), turn }
    }
}

/// Whether a trace is in a sample of this many percent. Its hash alone decides, so that all replicas say the same.
fn is_sampled(trace_id: &str, rate: u32) -> bool {
    let hash = digest(&SHA256, trace_id.as_bytes());
    let first = hash.as_ref().first_chunk().copied().map(u64::from_be_bytes);
    first.is_some_and(|hash| u128::from(hash) * 100 < u128::from(rate) << 64)
}

fn earlier(history: &[StoredMessage]) -> Option<String> {
    let (_, before) = history.split_last()?;
    let last = &before[before.len().saturating_sub(MAX_EARLIER)..];
    let said = last.iter().map(|message| {
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        format!("{who}: {}", cut(&message.content, MAX_EARLIER_BYTES))
    });
    Some(said.collect::<Vec<_>>().join("\n")).filter(|said| !said.is_empty())
}

fn cut(text: &str, most: usize) -> String {
    text[..text.floor_char_boundary(most)].to_owned()
}

struct Worker {
    scoring: Scoring,
    /// `provider:/model`; empty where words are compared.
    judge: String,
    per_day: u32,
    store: Arc<Store>,
    recorder: Recorder,
}

impl Worker {
    async fn work(self, mut queue: mpsc::Receiver<Answered>) {
        while let Some(answered) = queue.recv().await {
            let outcome = self.score(answered).await;
            self.recorder.sampled_turn(outcome);
        }
    }

    async fn score(&self, answered: Answered) -> &'static str {
        match self.store.claim_sample(self.per_day).await {
            Ok(true) => {}
            Ok(false) => return "over_budget",
            Err(fault) => {
                warn!(%fault, "an answer is not scored, as nobody knows how many were today");
                return "failed";
            }
        }
        let Answered { sample: Sample { trace_id, case }, at, turn } = answered;
        let mut found = Vec::new();
        for (score, used) in self.scoring.score(&case, &turn).await {
            if score.state == ScoreState::Skipped {
                continue;
            }
            let (name, value) = (score.scorer.as_str(), score.counted());
            if let Some(value) = value {
                self.recorder.sampled_score(name, value);
            }
            found.push(SampledScore { scorer: name.to_owned(), value, judge_tokens: tokens(&used) });
        }
        self.keep(&SampledTurn { trace_id, at, judge: self.judge.clone(), scores: found }).await
    }

    async fn keep(&self, sample: &SampledTurn) -> &'static str {
        let deadline = Instant::now() + MAX_WRITE_WAIT;
        loop {
            match self.store.keep_sample(sample).await {
                Ok(()) => return "scored",
                Err(Fault::Unavailable(_)) if Instant::now() < deadline => sleep(RETRY_INTERVAL).await,
                Err(fault) => {
                    warn!(%fault, "scores of an answer could not be kept");
                    return "failed";
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    #[test]
    fn as_many_traces_are_sampled_as_the_rate_says_and_the_same_by_every_replica() {
        const TRACES: u32 = 20_000;
        let traces: Vec<String> = (0..TRACES).map(|_| ids::make("tr").unwrap()).collect();
        let sampled = |rate| traces.iter().filter(|trace| is_sampled(trace, rate)).collect::<Vec<_>>();
        assert_eq!((sampled(0).len(), sampled(100).len()), (0, traces.len()));
        for rate in [1, 5, 37, 50, 99] {
            let expected = f64::from(TRACES) * f64::from(rate) / 100.0;
            let deviation = (expected * (1.0 - f64::from(rate) / 100.0)).sqrt();
            let found = f64::from(u32::try_from(sampled(rate).len()).unwrap());
            // Five standard deviations: once in two million runs.
            assert!((found - expected).abs() < 5.0 * deviation, "{rate} %: {found} of {TRACES}");
            assert!(sampled(rate).iter().all(|trace| is_sampled(trace, rate + 1)), "a higher rate samples these and more");
        }
        // Of another process, and of another version: the hash is part of what replicas agree on.
        let known = ["tr_01jd8x3k5v9m2n4p6q7r8s0tvw", "tr_01jd8x3k5v9m2n4p6q7r8s0tvx", "tr_01jd8x3k5v9m2n4p6q7r8s0tvy"];
        assert_eq!(known.map(|trace| (0..=100).find(|rate| is_sampled(trace, *rate))), [Some(58), Some(15), Some(84)]);
    }
}
