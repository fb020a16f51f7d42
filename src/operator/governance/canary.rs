//! Measurements of canaries and of the stable tracks beside them, each minute, for the agent controller, which decides by them.
//!
//! Usage is counted by track and by what ran, since the canary began. Of an agent whose conversations the platform's database
//! does not hold there is no reading.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use slipway_api::agent::Storage;
use slipway_api::canary::CanaryPhase;
use slipway_api::evaluation_run::{EvaluatedTrack, EvaluationPhase, EvaluationProvider, EvaluationRunStatus};
use slipway_api::{Agent, AgentSpec, CanaryStatus, EvaluationRun, Track};
use slipway_cluster::Key;
use slipway_database::{AgentUsage, Used};

use super::fleet::Watched;
use crate::caches::Caches;
use crate::caches::canary::{Measured, Reading};
use crate::context::Context;
use crate::metrics::{ByAgent, ByPhase};
use crate::registry::Change;
use crate::tenancy::Tenancy;

/// How many canaries are read in one pass. The next pass goes on with the others, which have what was read of them last.
pub(super) const MAX_PER_PASS: usize = 256;

/// Whether requests to both tracks of an agent are counted in the platform's database.
pub(crate) fn is_recorded(agent: &Agent) -> bool {
    let is_of = |spec: &AgentSpec| spec.storage != Some(Storage::Memory) && spec.database_url.is_none();
    is_of(&agent.spec) && agent.canary().is_none_or(|canary| is_of(&canary.over(&agent.spec)))
}

/// What is remembered between passes.
#[derive(Default)]
pub(super) struct CanaryMemory {
    /// The canary that was read last.
    last: Option<Key>,
    /// The agents whose weight is among the metrics.
    counted: HashSet<ByAgent>,
}

/// A canary that has begun.
struct Begun<'a> {
    watched: &'a Watched,
    agent: Agent,
    status: CanaryStatus,
}

/// In the order of keys.
fn begun<'a>(caches: &Caches, fleet: &'a [Watched]) -> Vec<Begun<'a>> {
    let of = |watched: &'a Watched| {
        let agent = caches.agents.get(&watched.key).filter(|agent| agent.canary)?.agent().ok()?;
        let status = agent.canary_status()?.clone();
        let is_itself = agent.metadata.uid.as_deref() == Some(&*watched.row.uid);
        is_itself.then_some(Begun { watched, agent, status })
    };
    fleet.iter().filter_map(of).collect()
}

/// Counts canaries by phase, and shows the weight of each.
pub(super) fn count(context: &Context, fleet: &[Watched], memory: &mut CanaryMemory) {
    let metrics = &context.metrics;
    let all = begun(&context.caches, fleet);
    for phase in CanaryPhase::ALL {
        let there = all.iter().filter(|canary| canary.status.phase == *phase).count();
        metrics.canaries.get_or_create(&ByPhase { phase: phase.as_str() }).set(i64::try_from(there).unwrap_or(i64::MAX));
    }
    let mut counted = HashSet::new();
    for canary in &all {
        let Key { namespace, name } = canary.watched.key.clone();
        let by = ByAgent { agent_namespace: namespace, agent: name };
        metrics.canary_weight.get_or_create(&by).set(i64::from(canary.status.share()));
        counted.insert(by);
    }
    for gone in memory.counted.difference(&counted) {
        metrics.canary_weight.remove(gone);
    }
    memory.counted = counted;
}

/// Reads what there is of each canary, and tells of those of which it is something else. After one that cannot be read the others keep
/// what was read of them last; the next pass begins with these, so that one agent's usage does not keep all from being decided on.
pub(super) async fn look(
    context: &Context,
    tenancy: &Tenancy,
    fleet: &[Watched],
    memory: &mut CanaryMemory,
    now: Timestamp,
) -> Result<(), String> {
    let all = begun(&context.caches, fleet);
    let first = memory.last.as_ref().map_or(0, |last| all.partition_point(|canary| canary.watched.key <= *last));
    let (before, after) = all.split_at(first);
    let (mut found, mut outcome) = (HashMap::with_capacity(all.len()), Ok(()));
    for (nth, canary) in after.iter().chain(before).enumerate() {
        let key = &canary.watched.key;
        let Some(since) = canary.since() else { continue };
        let known = || context.caches.canary_measured.of(key).flatten().filter(|known| known.since == since);
        let reading = if nth < MAX_PER_PASS && outcome.is_ok() {
            memory.last = Some(key.clone());
            match canary.read(context, tenancy, since, now).await {
                Ok(reading) => Some(reading),
                Err(why) => {
                    outcome = Err(why);
                    known()
                }
            }
        } else {
            known()
        };
        found.extend(reading.map(|reading| (key.clone(), reading)));
    }
    for agent in context.caches.canary_measured.set(found) {
        context.registry.publish(&Change::CanaryMeasured(agent));
    }
    outcome
}

impl Begun<'_> {
    /// When it began, if what it and the stable track do is in the platform's database.
    fn since(&self) -> Option<Timestamp> {
        self.status.started_at.as_ref().filter(|_| is_recorded(&self.agent)).map(|started| started.0)
    }

    async fn read(&self, context: &Context, tenancy: &Tenancy, since: Timestamp, now: Timestamp) -> Result<Reading, String> {
        let rows = tenancy.usage_by_run(std::slice::from_ref(&self.watched.row), since).await?;
        let is_partial = rows.iter().any(|row| row.partial);
        let used = |track: Track, run_hash: Option<&String>| {
            let is_of = |row: &&AgentUsage| row.track == track.as_str() && Some(&row.run_hash) == run_hash;
            rows.iter().filter(is_of).fold(Used::default(), |mut sum, row| {
                sum.add(&row.used);
                sum
            })
        };
        let stable = self.agent.status.as_ref().and_then(|status| status.run_hash.as_ref());
        let scores = self.scores(&context.caches, stable);
        Ok(Reading {
            read_at: now,
            since,
            run_hash: self.status.run_hash.clone(),
            stable_run_hash: stable.cloned(),
            canary: Measured::of(&used(Track::Canary, self.status.run_hash.as_ref()), scores.0, is_partial),
            stable: Measured::of(&used(Track::Stable, stable), scores.1, is_partial),
        })
    }

    /// The score of the canary's own run, which its gates ask for, and that of the newest run of what is stable.
    fn scores(&self, caches: &Caches, stable: Option<&String>) -> (Option<f64>, Option<f64>) {
        let Key { namespace, name } = &self.watched.key;
        let own = self.status.evaluation.as_ref().and_then(|run| caches.evaluation_runs.get(&Key::new(namespace, run)));
        let own = own.as_ref().and_then(|run| scored(run.0.as_ref().ok()?, name, EvaluatedTrack::Canary, self.status.run_hash.as_ref()));
        let all = caches.evaluation_runs.in_namespace(namespace);
        let of_stable = all.iter().filter_map(|(_, run)| scored(run.0.as_ref().ok()?, name, EvaluatedTrack::Stable, stable));
        let newest = of_stable.max_by_key(|status| status.completed_at.as_ref().map(|completed| completed.0));
        (own.and_then(|status| status.score), newest.and_then(|status| status.score))
    }
}

/// What a run found that has evaluated this, if somebody has judged it.
fn scored<'a>(run: &'a EvaluationRun, agent: &str, track: EvaluatedTrack, run_hash: Option<&String>) -> Option<&'a EvaluationRunStatus> {
    let status = run.status.as_ref()?;
    let is_judged = status.provider.is_some_and(|provider| provider != EvaluationProvider::Mock);
    let is_of = run.spec.agent == agent && run.spec.track == track && run_hash.is_some() && status.run_hash.as_ref() == run_hash;
    (is_of && is_judged && status.phase == Some(EvaluationPhase::Completed)).then_some(status)
}
