//! What all agents of all teams did within the last day, read at once and shared by all calls.
//!
//! A snapshot is read when a call wants one and the last is old: one reading at a time. A call gets the last one as long as that is at
//! most a minute old, while the next is read behind its back. It holds one reading of fixed size for each agent that the cache knows.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use slipway_api::ids;
use slipway_cluster::Key;
use slipway_database::{AgentKey, Alert, Fault, LATENCY_BOUNDS_MS, LATENCY_BUCKETS, MAX_TRACES, MOST_LISTED, Reader};
use slipway_governance::alert::Topic;
use slipway_governance::{MeasuredUsage, Score, ScoreSource, Share, WINDOW};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::key_of;
use super::prometheus::Prometheus;
use crate::agents::ConversationStorage;
use crate::context::Context;
use crate::evaluations::RunScores;
use crate::fast_map::FastMap;
use crate::platform;

/// From this age on a snapshot is replaced.
const REFRESH_AGE: Duration = Duration::from_secs(30);
/// A snapshot that is older is shown to nobody.
const AGE_MAX: Duration = Duration::from_mins(1);
/// How long a snapshot is kept that lacks what could not be read.
const TROUBLE_AGE_MAX: Duration = Duration::from_secs(5);
/// Of how many agents one question is.
const QUESTION_AGENTS: usize = 1000;
/// The most agents of which anything is read. Of the others nothing is known but their state.
const AGENTS_MAX: usize = 20_000;
/// About how many open alerts are kept at most, the newest; those of one agent; and the bytes of a message.
const ALERTS_MAX: usize = 2000;
const AGENT_ALERTS_MAX: usize = 20;
const MESSAGE_BYTES_MAX: usize = 512;
/// A conversation is active that had a message within this time.
const ACTIVE_SECONDS: i64 = 15 * 60;
/// Scorers of sampled answers that count in scorecards.
pub(super) const SAFETY: &str = "safety";
pub(super) const RELEVANCE: &str = "relevance_to_query";

/// The last snapshot.
#[derive(Default)]
pub(crate) struct Fleet {
    last: RwLock<Option<Arc<Snapshot>>>,
    /// Held by who reads.
    turn: Arc<Mutex<()>>,
}

/// Where figures come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    Database,
    Prometheus,
    /// Only the cluster is known.
    Cluster,
}

pub(crate) struct Snapshot {
    pub taken_at: Timestamp,
    taken: Instant,
    pub origin: Origin,
    /// Why figures are missing that should be there.
    pub trouble: Option<String>,
    /// The upper bounds of the buckets of latency, in milliseconds.
    pub bounds: Vec<i64>,
    /// By agent's id.
    readings: FastMap<String, Reading>,
}

/// What is known of one agent.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// The Agent's: a later one of the same name has nothing of it.
    uid: Box<str>,
    pub usage: Option<MeasuredUsage>,
    /// More was recorded than is read of one agent, so that counts are too low.
    pub is_partial: bool,
    pub readiness: Option<Share>,
    pub last_ready: Option<Timestamp>,
    pub active_conversations: Option<i64>,
    /// Open alerts, the newest first. None where none are kept, or the agent's are older than those that are: its condition has them.
    pub alerts: Option<Vec<Alert>>,
    pub safety: Option<Score>,
    pub relevance_to_query: Option<Score>,
    /// Only of cases with an expected answer, so that it is the accuracy about facts, too.
    pub correctness: Option<Score>,
}

impl Reading {
    /// Whether there is an alert about errors or latency. None where alerts are not known.
    pub(crate) fn is_in_trouble(&self) -> Option<bool> {
        let alerts = self.alerts.as_ref()?;
        Some(alerts.iter().any(|alert| Topic::parse(&alert.metric).is_some_and(Topic::degrades)))
    }
}

impl Snapshot {
    /// The reading of this very Agent.
    pub(crate) fn reading(&self, agent_id: &str, uid: &str) -> Option<&Reading> {
        self.readings.get(agent_id).filter(|reading| *reading.uid == *uid)
    }

    /// The beginning of the window.
    pub(crate) fn since(&self) -> Timestamp {
        before(self.taken_at)
    }

    fn age(&self) -> Duration {
        self.taken.elapsed()
    }

    fn is_fresh(&self) -> bool {
        self.age() < if self.trouble.is_some() { TROUBLE_AGE_MAX } else { REFRESH_AGE }
    }
}

impl Fleet {
    /// A snapshot that is at most a minute old.
    pub(crate) async fn snapshot(context: &Arc<Context>) -> Arc<Snapshot> {
        let fleet = &context.fleet;
        match fleet.last() {
            Some(last) if last.is_fresh() => return last,
            Some(last) if last.trouble.is_none() && last.age() < AGE_MAX => {
                if let Ok(turn) = fleet.turn.clone().try_lock_owned() {
                    let context = context.clone();
                    tokio::spawn(async move {
                        context.fleet.replace(&context).await;
                        drop(turn);
                    });
                }
                return last;
            }
            _ => {}
        }
        let _turn = fleet.turn.lock().await;
        match fleet.last().filter(|last| last.is_fresh()) {
            Some(last) => last,
            None => fleet.replace(context).await,
        }
    }

    fn last(&self) -> Option<Arc<Snapshot>> {
        self.last.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads a snapshot. One that lacks something does not take the place of one that is whole and not too old.
    async fn replace(&self, context: &Context) -> Arc<Snapshot> {
        let snapshot = Arc::new(Box::pin(read(context)).await);
        if let Some(trouble) = &snapshot.trouble {
            tracing::warn!(trouble, "the figures of agents could not be read");
            if let Some(last) = self.last().filter(|last| last.trouble.is_none() && last.age() < AGE_MAX) {
                return last;
            }
        }
        *self.last.write().unwrap_or_else(PoisonError::into_inner) = Some(snapshot.clone());
        snapshot
    }
}

fn before(now: Timestamp) -> Timestamp {
    now.checked_sub(WINDOW).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// An agent that is asked about.
struct Asked {
    key: AgentKey,
    /// Its usage lies in the platform's database.
    is_recorded: bool,
    /// Its name, and what it runs.
    serves: Serving,
    /// Seconds since 1970.
    created: i64,
}

/// An agent, and what its pods run, as a hash.
pub(super) type Serving = (Key, Option<Box<str>>);

async fn read(context: &Context) -> Snapshot {
    let taken_at = Timestamp::now();
    let mut snapshot = Snapshot {
        taken_at,
        taken: Instant::now(),
        origin: Origin::Cluster,
        trouble: None,
        bounds: LATENCY_BOUNDS_MS.to_vec(),
        readings: FastMap::default(),
    };
    let mut agents = context.caches.agents.collect(None, |namespace, name, item| {
        let key = key_of(namespace, item);
        let is_recorded = item.data.storage == ConversationStorage::Platform;
        Some(Asked { key, is_recorded, serves: (Key::new(namespace, name), item.data.run_hash.clone()), created: item.created })
    });
    agents.truncate(AGENTS_MAX);
    let runs = runs(context, None);
    if let Some(reader) = &context.database {
        snapshot.origin = Origin::Database;
        match recorded(reader, &agents, taken_at).await {
            Ok(readings) => snapshot.readings = readings,
            Err(fault) => {
                tracing::debug!(%fault, "the figures of agents could not be read");
                snapshot.trouble = Some(trouble(&fault).to_owned());
            }
        }
    } else {
        counted(context, &mut snapshot).await;
    }
    for Asked { key, serves, created, .. } in agents {
        let reading = snapshot.readings.entry(key.agent_id).or_default();
        reading.uid = key.uid.into();
        if let Some(run) = runs.get(&serves).filter(|run| run.created >= created) {
            reading.take_scores(&run.scores, taken_at);
        }
    }
    snapshot
}

/// Why there are no figures, for callers.
fn trouble(fault: &Fault) -> &'static str {
    match fault {
        Fault::Unavailable(_) | Fault::Busy => "the database is not available; only what the cluster says is known",
        Fault::Refused(_) | Fault::Full(_) | Fault::Broken(_) => {
            "the database shows no figures: its schema is older than this API, or this API's login may not read them (docs/rest.md has the \
             statements that let it)"
        }
    }
}

impl Reading {
    /// What is known of an agent whose usage is recorded and that has done nothing.
    pub(super) fn idle() -> Self {
        let none = MeasuredUsage { latency: vec![0; LATENCY_BUCKETS], cost_micros: Some(0), unknown: Some(0), ..MeasuredUsage::default() };
        Self { usage: Some(none), ..Self::default() }
    }

    /// A run counts before samples if it ended within the window, as they are of the window; an older one only where there are none.
    pub(super) fn take_scores(&mut self, run: &RunScores, now: Timestamp) {
        let source = if run.is_delivered { ScoreSource::Mlflow } else { ScoreSource::Slipway };
        let is_recent = run.ended >= before(now);
        let of_run = |mean: Option<f64>| mean.map(|mean| Score { mean, source });
        for (score, mean) in [(&mut self.safety, run.safety), (&mut self.relevance_to_query, run.relevance_to_query)] {
            *score = if is_recent { of_run(mean).or(*score) } else { score.or(of_run(mean)) };
        }
        self.correctness = of_run(run.correctness);
    }
}

pub(super) struct Run {
    /// Seconds since 1970.
    pub created: i64,
    pub scores: RunScores,
}

/// The newest completed run of each of what agents ran, of a namespace or of all.
pub(super) fn runs(context: &Context, namespace: Option<&str>) -> FastMap<Serving, Run> {
    let mut newest: FastMap<Serving, Run> = FastMap::default();
    context.caches.evaluations.collect(namespace, |namespace, _, item| {
        let scores = item.data.scores.as_deref()?;
        let serves = (Key::new(namespace, &*item.data.agent), scores.run_hash.clone());
        if newest.get(&serves).is_none_or(|known| known.scores.ended < scores.ended) {
            newest.insert(serves, Run { created: item.created, scores: scores.clone() });
        }
        None::<()>
    });
    newest
}

/// What the database has of these agents.
async fn recorded(reader: &Reader, agents: &[Asked], now: Timestamp) -> Result<FastMap<String, Reading>, Fault> {
    let mut all = FastMap::default();
    let readings = reader.readings();
    for asked in agents.chunks(QUESTION_AGENTS) {
        let keys: Vec<AgentKey> = asked.iter().map(|asked| asked.key.clone()).collect();
        let mut found: Vec<Reading> = asked.iter().map(empty).collect();
        for used in readings.usage(&keys, before(now)).await? {
            let reading = &mut found[used.agent];
            reading.usage = Some(MeasuredUsage::from(&used.used));
            reading.is_partial = used.partial;
        }
        for sampled in readings.readiness(&keys, before(now)).await? {
            let reading = &mut found[sampled.agent];
            reading.readiness = (sampled.samples > 0).then_some(Share { count: sampled.ready, of: sampled.samples });
            reading.last_ready = sampled.last_ready;
        }
        for score in granted(readings.sampled_scores(&keys, &[SAFETY, RELEVANCE], before(now)).await)?.unwrap_or_default() {
            let reading = &mut found[score.agent];
            let place = if score.scorer == SAFETY { &mut reading.safety } else { &mut reading.relevance_to_query };
            *place = Some(Score { mean: score.mean, source: ScoreSource::Slipway });
        }
        let since = Timestamp::from_second(now.as_second() - ACTIVE_SECONDS).unwrap_or(now);
        if let Some(active) = granted(readings.active_conversations(&keys, since).await)? {
            for (reading, asked) in found.iter_mut().zip(asked) {
                reading.active_conversations = asked.is_recorded.then_some(0);
            }
            for active in active {
                found[active.agent].active_conversations = Some(active.count);
            }
        }
        all.extend(keys.into_iter().map(|key| key.agent_id).zip(found));
    }
    alerts(reader, agents, &mut all).await?;
    Ok(all)
}

/// None of what REST's login may not read: it may be one that was made before there was a radar.
pub(super) fn granted<T>(read: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Fault::Broken(why)) => {
            tracing::debug!(why, "REST's login to the database may not read this");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// What is known of an agent that has done nothing: that it has done nothing, if that is where it would be written.
fn empty(asked: &Asked) -> Reading {
    let known = if asked.is_recorded { Reading::idle() } else { Reading::default() };
    Reading { alerts: Some(Vec::new()), ..known }
}

/// Adds the newest open alerts.
async fn alerts(reader: &Reader, agents: &[Asked], readings: &mut FastMap<String, Reading>) -> Result<(), Fault> {
    let mut kept = 0;
    for asked in agents.chunks(slipway_database::MAX_AGENTS) {
        let keys: Vec<AgentKey> = asked.iter().map(|asked| asked.key.clone()).collect();
        let mut cursor = None;
        loop {
            let page = reader.readings().alerts(&keys, true, MOST_LISTED, cursor.as_deref()).await?;
            for alert in page.items {
                let Some(known) = readings.get_mut(&alert.agent.agent_id).and_then(|reading| reading.alerts.as_mut()) else { continue };
                if known.len() < AGENT_ALERTS_MAX {
                    known.push(short(alert));
                    kept += 1;
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() || kept >= ALERTS_MAX {
                break;
            }
        }
        if cursor.is_some() {
            forget_silent(&keys, readings);
        }
    }
    Ok(())
}

/// There are more alerts than are kept: an agent of which there is none among these may have older ones.
fn forget_silent(keys: &[AgentKey], readings: &mut FastMap<String, Reading>) {
    for key in keys {
        if let Some(reading) = readings.get_mut(&key.agent_id)
            && reading.alerts.as_ref().is_some_and(Vec::is_empty)
        {
            reading.alerts = None;
        }
    }
}

fn short(mut alert: Alert) -> Alert {
    let end = alert.message.floor_char_boundary(MESSAGE_BYTES_MAX);
    if end < alert.message.len() {
        alert.message.truncate(end);
        alert.message.push('…');
    }
    alert.traces.truncate(MAX_TRACES);
    alert
}

/// What Prometheus has counted, if the platform names a server.
async fn counted(context: &Context, snapshot: &mut Snapshot) {
    let url = match platform::prometheus_url(context).await {
        Ok(Some(url)) => url,
        Ok(None) => return,
        Err(error) => {
            snapshot.trouble = Some(error.message().to_owned());
            return;
        }
    };
    snapshot.origin = Origin::Prometheus;
    let asked = async { Prometheus::new(&url)?.day().await };
    match asked.await {
        Ok(day) => {
            snapshot.bounds = day.latency_bounds;
            let reading = |usage| Reading { usage: Some(usage), ..Reading::default() };
            snapshot.readings =
                day.agents.into_iter().map(|((namespace, name), usage)| (ids::agent(&namespace, &name), reading(usage))).collect();
        }
        Err(why) => snapshot.trouble = Some(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radar::alerts::example;

    #[test]
    fn ten_thousand_agents_take_sixteen_mebibytes_and_their_alerts_eight() {
        // An id, a UID, and the buckets of latency lie beside the reading itself.
        let reading = size_of::<(String, Reading)>() + 64 + 64 + LATENCY_BUCKETS * 8;
        // A third of a map's places may be free.
        assert!(10_000 * reading * 2 <= 16 << 20, "{reading} bytes");
        let alert = size_of::<Alert>() + MESSAGE_BYTES_MAX + MAX_TRACES * 64 + 8 * 64;
        assert!(ALERTS_MAX * alert <= 8 << 20, "{alert} bytes");
    }

    #[test]
    fn where_alerts_are_cut_off_silence_is_not_calm() {
        let key = |id: &str| AgentKey { team: "tk_a".to_owned(), agent_id: id.to_owned(), uid: "u".to_owned() };
        let alert = example("al_1", "ag_loud", Topic::ErrorRate);
        let mut readings: FastMap<String, Reading> = FastMap::default();
        for (id, alerts) in [("ag_loud", vec![alert]), ("ag_silent", Vec::new()), ("ag_of_another_question", Vec::new())] {
            readings.insert(id.to_owned(), Reading { alerts: Some(alerts), ..Reading::default() });
        }
        forget_silent(&[key("ag_loud"), key("ag_silent"), key("ag_none")], &mut readings);
        let known = ["ag_loud", "ag_silent", "ag_of_another_question"].map(|id| readings[id].is_in_trouble());
        assert_eq!(known, [Some(true), None, Some(false)]);
    }

    #[test]
    fn a_recent_run_counts_before_samples_and_an_old_one_after() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let sample = Some(Score { mean: 0.5, source: ScoreSource::Slipway });
        for (hours, sampled, safety, source) in
            [(1, sample, 0.9, ScoreSource::Mlflow), (25, sample, 0.5, ScoreSource::Slipway), (25, None, 0.9, ScoreSource::Mlflow)]
        {
            let ended = Timestamp::from_second(now.as_second() - hours * 3600).unwrap();
            let run = RunScores {
                ended,
                safety: Some(0.9),
                relevance_to_query: None,
                correctness: Some(0.7),
                is_delivered: true,
                run_hash: None,
            };
            let mut reading = Reading { safety: sampled, relevance_to_query: sampled, ..Reading::default() };
            reading.take_scores(&run, now);
            assert_eq!(reading.safety, Some(Score { mean: safety, source }), "{hours} h");
            assert_eq!((reading.relevance_to_query, reading.correctness.map(|score| score.mean)), (sampled, Some(0.7)), "{hours} h");
        }
    }
}
