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
mod queue;
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

use std::sync::Arc;
use std::time::Instant;

use metrics::{ByCategory, ByController};
use queue::{Key, Queue};
use tokio::sync::watch;
use tokio::task::JoinSet;
use world::World;

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
    let mut workers = JoinSet::new();
    for _ in 0..world.settings.max_concurrent_reconciles.max(1) {
        let world = world.clone();
        workers.spawn(async move {
            work(&world, "agent", |world| &world.agent_queue, async |world, key| agent::reconcile(world, key).await).await;
        });
    }
    for _ in 0..2 {
        let (first, second, third) = (world.clone(), world.clone(), world.clone());
        workers.spawn(async move {
            work(&first, "tool", |world| &world.tool_queue, async |world, key| tool::reconcile(world, key).await).await;
        });
        workers.spawn(async move {
            work(&second, "team", |world| &world.team_queue, async |world, key| team::reconcile(world, key).await).await;
        });
        workers.spawn(async move {
            work(&third, "skill", |world| &world.skill_queue, async |world, key| skill::reconcile(world, key).await).await;
        });
    }
    let database = tokio::spawn({
        let world = world.clone();
        async move { tenancy::keep(&world).await }
    });
    let visits = tokio::spawn({
        let world = world.clone();
        async move { visits::keep(&world).await }
    });
    world.enqueue_all();
    let finishes = tokio::select! {
        () = &mut until_lost => false,
        () = &mut until_stopped => true,
    };
    database.abort();
    visits.abort();
    world.close();
    if finishes {
        tracing::info!("stopping; finishing the reconciles at hand");
        tokio::select! {
            () = async { while workers.join_next().await.is_some() {} } => {}
            () = &mut until_lost => {}
        }
    }
    workers.shutdown().await;
    world.metrics.leader.set(0);
}

type Next = Result<Option<std::time::Duration>, write::Error>;

/// One worker: takes a key, reconciles it, and says when to come back.
async fn work(world: &World, controller: &'static str, queue: fn(&World) -> &Queue<Key>, reconcile: impl AsyncFn(&World, &Key) -> Next) {
    let queue = queue(world);
    let by = ByController { controller };
    while let Some(key) = queue.next().await {
        let begun = Instant::now();
        let result = reconcile(world, &key).await;
        world.metrics.reconciles.get_or_create(&by).inc();
        world.metrics.durations.get_or_create(&by).observe(begun.elapsed().as_secs_f64());
        world.metrics.queue_depth.get_or_create(&by).set(i64::try_from(queue.depth()).unwrap_or(i64::MAX));
        match result {
            Ok(again) => {
                queue.done(&key);
                if let Some(after) = again {
                    queue.add_after(key, after);
                }
            }
            Err(error) => {
                world.metrics.errors.get_or_create(&ByCategory { controller, category: error.category() }).inc();
                tracing::warn!(controller, object = %key, %error, "a reconcile failed and will be tried again");
                queue.failed(&key);
            }
        }
    }
}
