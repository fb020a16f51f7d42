//! The controllers: what turns an `Agent` into a Deployment, a `Team` into a namespace, and says how it went.
//!
//! `world` hears what happens in the cluster, `agent`, `team`, `tool` and `skill` decide, `write` writes.

mod agent;
pub mod approval;
mod body;
pub mod database;
pub mod event;
mod live;
pub mod metrics;
mod quantity;
pub mod releases;
mod rollout;
pub mod settings;
mod skill;
mod team;
pub mod tenancy;
mod tool;
pub mod visits;
pub mod world;
mod write;

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use kube::Resource;
use serde::de::DeserializeOwned;
use slipway_api::{Agent, Skill, Team, Tool};
use slipway_cluster::Key;
use slipway_cluster::controller::{self, Next, Options, Phase, Requests};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use world::World;

/// How many Tools, Teams and Skills are reconciled at once, of each kind.
const OTHERS_AT_ONCE: usize = 2;

/// Reconciles for as long as this process leads. When `stop` turns true it finishes the work at hand, leading all the
/// while; when it leads no longer it leaves that where it is, since another may begin any moment: whoever leads next puts
/// right what is half done, as after a kill.
pub async fn run(world: Arc<World>, mut leads: watch::Receiver<bool>, mut stop: watch::Receiver<bool>) {
    let until_stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    tokio::pin!(until_stopped);
    let begun = tokio::select! {
        result = leads.wait_for(|leads| *leads) => result.is_ok(),
        () = &mut until_stopped => false,
    };
    if !begun {
        return;
    }
    let until_lost = async move {
        let _ = leads.wait_for(|leads| !*leads).await;
        tracing::warn!("no longer leading");
    };
    tokio::pin!(until_lost);
    tokio::select! {
        () = world.ready() => {}
        () = &mut until_lost => return,
        () = &mut until_stopped => return,
    }
    tracing::info!(agents = world.agents.keys().len(), "leading; reconciling everything once");
    world.metrics.leader.set(1);
    world.begin_rollout();
    world.resume_rollouts();
    let phase = watch::Sender::new(Phase::Running);
    let concurrency = world.settings.max_concurrent_reconciles.max(1);
    let controllers = [
        run_controller::<Agent, _>(&world, &phase, "agent", concurrency, world.agent_requests.clone(), |world, key| async move {
            agent::reconcile(&world, &key).await
        }),
        run_controller::<Tool, _>(&world, &phase, "tool", OTHERS_AT_ONCE, world.tool_requests.clone(), |world, key| async move {
            tool::reconcile(&world, &key).await
        }),
        run_controller::<Team, _>(&world, &phase, "team", OTHERS_AT_ONCE, world.team_requests.clone(), |world, key| async move {
            team::reconcile(&world, &key).await
        }),
        run_controller::<Skill, _>(&world, &phase, "skill", OTHERS_AT_ONCE, world.skill_requests.clone(), |world, key| async move {
            skill::reconcile(&world, &key).await
        }),
    ];
    let database = world.tenancy.is_some().then(|| {
        let work = world.clone();
        world.tasks.spawn("upkeep of the database", async move { tenancy::keep(&work).await })
    });
    let visits = world.sign.is_some().then(|| {
        let work = world.clone();
        world.tasks.spawn("poll of agents' tools", async move { visits::keep(&work).await })
    });
    world.enqueue_all();
    let finishes = tokio::select! {
        () = &mut until_lost => false,
        () = &mut until_stopped => true,
    };
    for task in database.iter().chain(&visits) {
        task.abort();
    }
    let all_over = futures::future::join_all(controllers);
    tokio::pin!(all_over);
    if finishes {
        tracing::info!("stopping; finishing the reconciles at hand");
        phase.send_replace(Phase::Finishing);
        tokio::select! {
            _ = &mut all_over => {
                world.metrics.leader.set(0);
                return;
            }
            () = &mut until_lost => {}
        }
    }
    phase.send_replace(Phase::Abandoned);
    all_over.await;
    world.metrics.leader.set(0);
}

/// Begins a controller, which takes requests from now on.
fn run_controller<K, F>(
    world: &Arc<World>,
    phase: &watch::Sender<Phase>,
    name: &'static str,
    concurrency: usize,
    requests: Requests,
    reconcile: fn(Arc<World>, Key) -> F,
) -> JoinHandle<()>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    F: Future<Output = Next<write::Error>> + Send + 'static,
{
    let options = Options { name, concurrency, requests, metrics: (*world.metrics).clone(), phase: phase.subscribe() };
    let context = world.clone();
    controller::start::<K, _, _>(&world.tasks, options, move |key| reconcile(context.clone(), key))
}
