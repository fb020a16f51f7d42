//! The controllers: what turns an `Agent` into a Deployment, a `Team` into a namespace, and says how it went.
//!
//! `watches` fill the `caches` and publish changes; the controllers (`agent`, `evaluation_run`, `ingestion`, `integration`, `knowledge_base`, `skill`, `team`, `tool` and so on) hear of them, request
//! what depends on them, and reconcile while this process leads; `children` are written in one place. `kinds` is the list.

mod admission;
mod agent;
mod alert_delivery;
mod alert_queue;
mod caches;
mod children;
mod context;
pub mod control_port;
pub mod database;
mod dataset;
mod drift;
mod evaluation_run;
mod fault;
mod feedback;
mod governance;
mod guardrail_policy;
mod held_skill;
mod ingestion;
mod integration;
mod integrations;
mod job;
mod kinds;
mod knowledge_base;
pub mod metrics;
mod optional_kinds;
mod pending_warnings;
mod policy_file;
mod quantity;
mod registry;
mod reported;
pub mod settings;
mod skill;
mod skill_folder;
mod team;
pub mod tenancy;
#[cfg(test)]
#[path = "tests/unit/testing.rs"]
mod testing;
pub mod tool;
mod tool_rules;
mod unchanged;
mod upkeep;
mod watches;
mod worker;
mod worker_call;

use std::sync::Arc;

pub use context::Context;
pub use control_port::Sign;
use slipway_cluster::controller::Phase;
use tokio::sync::watch;

/// Makes the controllers known and starts every watch. They run until the process ends. Without a way to sign nobody is polled.
pub fn open(context: &Arc<Context>, sign: Option<Sign>) {
    kinds::register(context, sign);
}

/// Reconciles for as long as this process leads. When `stop` turns true it finishes the work at hand, leading all the
/// while; when it leads no longer it leaves that where it is, since another may begin any moment: the next leader puts
/// right what is half done, as after a kill.
pub async fn run(context: Arc<Context>, mut leads: watch::Receiver<bool>, mut stop: watch::Receiver<bool>) {
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
        () = context.caches.ready() => {}
        () = &mut until_lost => return,
        () = &mut until_stopped => return,
    }
    tracing::info!(agents = context.caches.agents.keys().len(), "leading; reconciling everything once");
    context.metrics.leader.set(1);
    let phase = watch::Sender::new(Phase::Running);
    let registered = context.registry.all();
    let working = futures::future::join_all(registered.iter().flat_map(|registered| registered.clone().start(&phase)));
    for controller in registered {
        controller.request_all();
    }
    tokio::pin!(working);
    tokio::select! {
        () = &mut until_lost => {}
        () = &mut until_stopped => {
            tracing::info!("stopping; finishing the reconciles at hand");
            phase.send_replace(Phase::Finishing);
            tokio::select! {
                _ = &mut working => {
                    context.metrics.leader.set(0);
                    return;
                }
                () = &mut until_lost => {}
            }
        }
    }
    phase.send_replace(Phase::Abandoned);
    working.await;
    context.metrics.leader.set(0);
}
