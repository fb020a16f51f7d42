//! The release controller, which the role `state` runs: every change of what an agent runs is a version in Git.
//!
//! `world` hears of the cluster and `git` asks the history; `plan` decides, pure, on one step at a time, with `around`
//! (what names stand for), `show` (AgentReleases) and `stand` (the Agent's status); `act` takes the step.

mod act;
mod around;
mod author;
mod draft;
mod git;
mod gone;
mod note;
mod past;
mod plan;
mod quiet;
mod show;
mod stand;
#[cfg(test)]
mod tests;
mod world;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::Api;
use slipway_api::{Agent, condition, gitops, labels};
use slipway_cluster::Key;
use slipway_cluster::controller::{self, Failure, Next, Options, Phase};
use slipway_state::history::Fault;
use tokio::sync::watch;
use tokio::time::Instant;

use act::Error;
use past::Past;
use plan::{Asked, Patience, Seen, Step};
use show::Shown;
pub use world::{Moved, Settings, World, watch_all};

/// The field manager of what this controller writes.
const MANAGER: &str = "slipway/release";
/// How often each agent is looked at though nothing is known to have changed.
const RESYNC: Duration = Duration::from_mins(5);
/// More steps than this in a row are none that lead anywhere.
const STEPS: usize = 64;

/// Works until `stop` turns true; ends with the work at hand finished.
pub async fn run(world: Arc<World>, mut stop: watch::Receiver<bool>) {
    let until_stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(until_stopped);
    tokio::select! {
        () = world.ready() => {}
        () = &mut until_stopped => return,
    }
    tracing::info!(agents = world.agents.keys().len(), "releases: looking at everything once");
    let phase = watch::Sender::new(Phase::Running);
    let options = Options {
        name: "release",
        concurrency: world.settings.max_concurrent_reconciles,
        requests: world.requests.clone(),
        metrics: world.metrics.clone(),
        phase: phase.subscribe(),
    };
    let context = world.clone();
    let controller = controller::start::<Agent, _, _>(&world.tasks, options, move |key| {
        let world = context.clone();
        async move { reconcile_or_say(&world, &key).await }
    });
    world.enqueue_all();
    let known = tokio::spawn({
        let world = world.clone();
        async move { gone::look_for_all(&world).await }
    });
    until_stopped.await;
    known.abort();
    phase.send_replace(Phase::Finishing);
    drop(controller.await);
}

/// Reconciles; an Agent whose history cannot be asked says so.
async fn reconcile_or_say(world: &Arc<World>, key: &Key) -> Next<Error> {
    let outcome = Box::pin(reconcile(world, key)).await;
    if let Err(Error::History(fault)) = &outcome
        && let Some(agent) = present(world, key)
    {
        act::unavailable(world, key, &agent, fault).await;
    }
    outcome
}

impl Failure for Error {
    fn category(&self) -> &'static str {
        match self {
            Self::Write(error) => error.category(),
            Self::History(Fault::Damaged(_)) => "damaged",
            Self::History(_) => "history",
        }
    }
}

/// Brings Git to what runs, and the cluster to what Git says.
async fn reconcile(world: &Arc<World>, key: &Key) -> Result<Option<Duration>, Error> {
    if !is_a_teams(&key.namespace) || !world.watches(&key.namespace) {
        return Ok(None);
    }
    let Some(kept) = world.agents.get(key) else { return gone::reconcile(world, key).await };
    // What cannot be read says so itself.
    let Ok(mut agent) = kept.agent() else { return Ok(Some(RESYNC)) };
    world.still(key, Instant::now());
    world.quiet().entry(key.clone()).and_modify(|quiet| quiet.gone = None);
    if is_nobodys(&agent) {
        return Ok(Some(RESYNC));
    }
    let mut past = None;
    for _ in 0..STEPS {
        let mut view = View::of(world, key, agent, past.take()).await?;
        let mut step = view.next(world, key, Timestamp::now());
        if (matches!(step, Step::Record(_)) && !view.is_live) || step.is_skip() {
            // The last word has the API server: what is recorded must be what is there, and the book of its writers
            // is not kept here. Nor is it known here that nothing has changed, however lately the Agent was read.
            let Some(live) = live(world, key).await? else { return Ok(Some(RESYNC)) };
            view = View::live(world, key, live, view.past).await?;
            step = view.next(world, key, Timestamp::now());
        }
        if let Step::Rest(rest) = step {
            let now = Instant::now();
            let again = world.quiet().get_mut(key).and_then(|quiet| quiet.rest(rest, now));
            return Ok(Some(again.unwrap_or(RESYNC)));
        }
        let recorded = matches!(step, Step::Record(_));
        let done = act::act(world, key, &view.agent, &view.past, step).await?;
        if recorded && let Some(quiet) = world.quiet().get_mut(key) {
            quiet.recorded();
        }
        agent = done.agent.unwrap_or(view.agent);
        past = (!done.history).then_some(view.past);
    }
    tracing::warn!(agent = %key, "releases: {STEPS} steps did not come to an end");
    Ok(Some(Duration::from_secs(10)))
}

/// What one decision is made from, gathered.
struct View {
    agent: Agent,
    is_live: bool,
    past: Past,
    shown: Vec<Shown>,
    asked: Option<Asked>,
    owner: Option<String>,
    by: String,
    asked_at: Option<Timestamp>,
}

impl View {
    async fn of(world: &Arc<World>, key: &Key, agent: Agent, past: Option<Past>) -> Result<Self, Error> {
        // Who wrote the annotation, and who owns the spec, is in the managed fields, which are not kept.
        let has_book = agent.metadata.managed_fields.is_some();
        let found = if plan::asked(&agent).is_some() && !has_book { live(world, key).await? } else { None };
        let (agent, is_live) = found.map_or((agent, has_book), |live| (live, true));
        let (of, told, wanted) = (key.clone(), world.shown(key), plan::asked(&agent).and_then(plan::version));
        let seen = git::on(&world.history, move |history| {
            let asked = wanted.map(|version| git::asked(history, &of, version)).transpose()?;
            Ok((git::seen(history, &of, told, past)?, asked))
        });
        let ((shown, past), asked) = seen.await?;
        let owner = gitops::owner(&agent.metadata);
        let by = author::of_annotation(&agent.metadata, labels::DEPLOY_RELEASE);
        let asked_at = author::time_of_annotation(&agent.metadata, labels::DEPLOY_RELEASE);
        Ok(Self { agent, is_live, past, shown, asked, owner, by, asked_at })
    }

    async fn live(world: &Arc<World>, key: &Key, agent: Agent, past: Past) -> Result<Self, Error> {
        Ok(Self { is_live: true, ..Self::of(world, key, agent, Some(past)).await? })
    }

    fn next(&self, world: &World, key: &Key, now: Timestamp) -> Step {
        let target = self.asked.as_ref().and_then(|asked| asked.found.as_ref().ok());
        let target = target.and_then(|(artifact, _)| slipway_release::spec(artifact, &self.agent.spec).ok());
        let effective = plan::effective(&self.agent, &self.past);
        let around = world.around(key, &effective.spec, target.as_ref());
        let patience = world.quiet().get(key).map_or(Patience::OVER, |quiet| quiet.patience(Instant::now()));
        plan::next(&Seen {
            agent: &self.agent,
            past: &self.past,
            shown: &self.shown,
            around: &around,
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
async fn live(world: &World, key: &Key) -> Result<Option<Agent>, Error> {
    Ok(Api::<Agent>::namespaced(world.client.clone(), &key.namespace).get_opt(&key.name).await?)
}

/// The Agent as far as it is known and can be read.
fn present(world: &World, key: &Key) -> Option<Agent> {
    world.agents.get(key)?.agent().ok()
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
