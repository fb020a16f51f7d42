//! The release controller, which the role `state` runs: every change of what an agent runs is a version in Git.
//!
//! `context` has the caches, and `git` asks the history; `plan` decides, pure, from all that was `seen` on one `step` at a time, with
//! `references` (what names stand for), `projection` (AgentReleases) and `agent_status`; `act` takes the step.

mod act;
mod agent_status;
mod author;
mod candidate;
mod context;
mod debounce;
mod draft;
mod evaluated;
mod git;
mod gone;
mod history;
mod integrated;
mod name;
mod note;
mod plan;
mod projection;
mod references;
mod run;
mod seen;
mod shown;
mod step;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::Api;
use slipway_api::{Agent, condition, gitops, labels};
use slipway_cluster::Key;
use slipway_cluster::controller::{self, Failure, Next, Options, Phase};
use slipway_state::history::HistoryFault;
use tokio::sync::watch;
use tokio::time::Instant;

use act::Error;
pub use context::{Context, Moved, ReleaseSettings, watch_all};
use history::AgentHistory;
pub use run::is_judged;
use seen::{Patience, RequestedRelease, Seen};
use shown::Shown;
use step::Step;

/// The field manager of what this controller writes.
const MANAGER: &str = "slipway/release";
/// How often each agent is looked at though nothing is known to have changed.
const RESYNC: Duration = Duration::from_mins(5);
/// More steps than this in a row are none that lead anywhere.
const MAX_STEPS: usize = 64;

/// Works until `stop` turns true; ends with the work at hand finished.
pub async fn run(context: Arc<Context>, mut stop: watch::Receiver<bool>) {
    let until_stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(until_stopped);
    tokio::select! {
        () = context.ready() => {}
        () = &mut until_stopped => return,
    }
    tracing::info!(agents = context.agents.keys().len(), "releases: looking at everything once");
    let phase = watch::Sender::new(Phase::Running);
    let options = Options {
        name: "release",
        concurrency: context.settings.max_concurrent_reconciles,
        requests: context.requests.clone(),
        metrics: context.metrics.clone(),
        phase: phase.subscribe(),
    };
    let held = context.clone();
    let controller = controller::start::<Agent, _, _>(&context.tasks, options, move |key| {
        let context = held.clone();
        async move { reconcile_or_say(&context, &key).await }
    });
    context.enqueue_all();
    let looking = context.clone();
    let known = context.tasks.spawn_once("search for agents that are gone", async move { gone::look_for_all(&looking).await });
    until_stopped.await;
    known.abort();
    phase.send_replace(Phase::Finishing);
    drop(controller.await);
}

/// Reconciles; an Agent whose history cannot be asked says so.
async fn reconcile_or_say(context: &Arc<Context>, key: &Key) -> Next<Error> {
    let outcome = Box::pin(reconcile(context, key)).await;
    if let Err(Error::History(fault)) = &outcome
        && let Some(agent) = present(context, key)
    {
        act::unavailable(context, key, &agent, fault).await;
    }
    outcome
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Write(error) => error.category(),
            Self::History(HistoryFault::Damaged(_)) => "damaged",
            Self::History(_) => "history",
        }
    }
}

/// Brings Git to what runs, and the cluster to what Git says.
async fn reconcile(context: &Arc<Context>, key: &Key) -> Result<Option<Duration>, Error> {
    if !is_a_teams(&key.namespace) || !context.watches(&key.namespace) {
        return Ok(None);
    }
    let Some(kept) = context.agents.get(key) else { return gone::reconcile(context, key).await };
    // What cannot be read says so itself.
    let Ok(mut agent) = kept.agent() else { return Ok(Some(RESYNC)) };
    context.still(key, Instant::now());
    context.debounce().entry(key.clone()).and_modify(|debounce| debounce.gone = None);
    if is_nobodys(&agent) {
        return Ok(Some(RESYNC));
    }
    let mut past = None;
    for _ in 0..MAX_STEPS {
        let mut view = Box::pin(View::of(context, key, agent, past.take())).await?;
        let mut step = view.next(context, key, Timestamp::now());
        if (step.needs_live() && !view.is_live) || step.is_skip() {
            // The last word has the API server: what is recorded must be what is there, and the book of its writers
            // is not kept here. Nor is it known here that nothing has changed, however lately the Agent was read.
            let Some(live) = live(context, key).await? else { return Ok(Some(RESYNC)) };
            view = Box::pin(View::live(context, key, live, view.past)).await?;
            step = view.next(context, key, Timestamp::now());
        }
        if let Step::Wait(rest) = step {
            let now = Instant::now();
            let again = context.debounce().get_mut(key).and_then(|debounce| debounce.rest(rest, now));
            return Ok(Some(again.unwrap_or(RESYNC)));
        }
        let recorded = matches!(step, Step::Record(_));
        let done = act::act(context, key, &view.agent, &view.past, step).await?;
        if !done.history && done.agent.as_ref().is_some_and(|agent| agent.metadata.resource_version == view.agent.metadata.resource_version)
        {
            tracing::warn!(agent = %key, "releases: a write changed nothing; another field manager owns what is to go from the status");
            return Ok(Some(RESYNC));
        }
        if recorded && let Some(debounce) = context.debounce().get_mut(key) {
            debounce.recorded();
        }
        agent = done.agent.unwrap_or(view.agent);
        past = (!done.history).then_some(view.past);
    }
    tracing::warn!(agent = %key, "releases: {MAX_STEPS} steps did not come to an end");
    Ok(Some(Duration::from_secs(10)))
}

/// What one decision is made from, gathered.
struct View {
    agent: Agent,
    is_live: bool,
    past: AgentHistory,
    shown: Vec<Shown>,
    asked: Option<RequestedRelease>,
    owner: Option<String>,
    by: String,
    asked_at: Option<Timestamp>,
}

impl View {
    async fn of(context: &Arc<Context>, key: &Key, agent: Agent, past: Option<AgentHistory>) -> Result<Self, Error> {
        // Who wrote the annotation, and who owns the spec, is in the managed fields, which are not kept.
        let has_book = agent.metadata.managed_fields.is_some();
        let found = if plan::asked(&agent).is_some() && !has_book { live(context, key).await? } else { None };
        let (agent, is_live) = found.map_or((agent, has_book), |live| (live, true));
        let (of, told, wanted) = (key.clone(), context.shown(key), plan::asked(&agent).and_then(plan::version));
        let seen = git::on(&context.history, move |history| {
            let asked = wanted.map(|version| git::asked(history, &of, version)).transpose()?;
            Ok((git::seen(history, &of, told, past)?, asked))
        });
        let ((shown, past), asked) = seen.await?;
        let owner = gitops::owner(&agent.metadata);
        let by = author::of_annotation(&agent.metadata, labels::DEPLOY_RELEASE);
        let asked_at = author::time_of_annotation(&agent.metadata, labels::DEPLOY_RELEASE);
        Ok(Self { agent, is_live, past, shown, asked, owner, by, asked_at })
    }

    async fn live(context: &Arc<Context>, key: &Key, agent: Agent, past: AgentHistory) -> Result<Self, Error> {
        Ok(Self { is_live: true, ..Self::of(context, key, agent, Some(past)).await? })
    }

    fn next(&self, context: &Context, key: &Key, now: Timestamp) -> Step {
        let target = self.asked.as_ref().and_then(|asked| asked.found.as_ref().ok());
        let target = target.and_then(|(artifact, _)| slipway_release::spec(artifact, &self.agent.spec).ok());
        let effective = plan::effective(&self.agent, &self.past);
        let references = context.references(key, &effective.spec, target.as_ref());
        let patience = context.debounce().get(key).map_or(Patience::OVER, |debounce| debounce.patience(Instant::now()));
        plan::next(&Seen {
            agent: &self.agent,
            past: &self.past,
            shown: &self.shown,
            references: &references,
            runs: &context.runs(key),
            allow_heuristic: context.settings.allow_heuristic_gate,
            asked: self.asked.as_ref(),
            owner: self.owner.as_deref(),
            by: &self.by,
            asked_at: self.asked_at,
            patience,
            now,
        })
    }
}

/// The Agent as the API server has it now.
async fn live(context: &Context, key: &Key) -> Result<Option<Agent>, Error> {
    Ok(Api::<Agent>::namespaced(context.client.clone(), &key.namespace).get_opt(&key.name).await?)
}

/// The Agent as far as it is known and can be read.
fn present(context: &Context, key: &Key) -> Option<Agent> {
    context.agents.get(key)?.agent().ok()
}

fn is_a_teams(namespace: &str) -> bool {
    namespace.strip_prefix("team-").is_some_and(|slug| !slug.is_empty())
}

/// The operator says so of Agents in namespaces that are called like a team's and are none.
fn is_nobodys(agent: &Agent) -> bool {
    let conditions = agent.status.iter().flat_map(|status| &status.conditions);
    conditions
        .into_iter()
        .any(|condition| condition.type_ == condition::STALLED && condition.status == "True" && condition.reason == "NotATeamNamespace")
}
