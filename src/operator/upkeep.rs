//! The upkeep of the platform's database while this process leads: the schema is migrated, again and again until that
//! succeeds, and the rows of agents and teams that are gone are deleted, as are results of evaluations and feedback after their time.

mod census;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::api::Api;
use slipway_api::{Agent, labels};
use slipway_cluster::Key;
use slipway_cluster::controller::{self, Phase};
use slipway_cluster::event::EventSpec;
use slipway_database::{Fault, HELD_DAYS, Migrated};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::context::Context;
use crate::registry::{Change, Registered};
use crate::tenancy::Tenancy;
use crate::tenancy::rows::{Cleared, Fate, Leavings};
use census::CachedCensus;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_mins(1);
/// The namespace that every cluster has had since it was made, so that its UID is the cluster's.
const FIRST: &str = "kube-system";

pub(crate) struct Upkeep {
    context: Arc<Context>,
}

impl Upkeep {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context }
    }
}

impl Registered for Upkeep {
    /// Notes which Agents have gone, and which of these have lost their last pod: until then it may still write.
    fn changed(&self, change: &Change) {
        let Some(tenancy) = &self.context.tenancy else { return };
        let caches = &self.context.caches;
        if let Some(agent) = change.of::<Agent>()
            && caches.agents.get(agent).is_none()
        {
            tenancy.departed(&agent.namespace, &agent.name, Instant::now());
        }
        if let Change::Pods(agent) = change
            && !caches.pods.has(agent)
            && caches.agents.get(agent).is_none()
        {
            tenancy.emptied(&agent.namespace, &agent.name, Instant::now());
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let context = self.context.clone();
        if context.tenancy.is_none() {
            return Vec::new();
        }
        let work = async move {
            if let Some(tenancy) = &self.context.tenancy {
                run(&self.context, tenancy).await;
            }
        };
        vec![controller::start_beside(&context.tasks, "upkeep of the database", phase.subscribe(), work)]
    }
}

/// Migrates, again and again until it succeeds, and has the teams looked at after each attempt: they say how it went.
/// From then on it deletes what is owed.
async fn run(context: &Context, tenancy: &Tenancy) {
    tenancy.is_of(cluster(context).await);
    let mut pause = FIRST_PAUSE;
    loop {
        let outcome = tenancy.migrate().await;
        context.metrics.database_ready.set(i64::from(outcome.is_ok()));
        context.registry.publish(&Change::Database { ready: outcome.is_ok() });
        match outcome {
            Ok(Migrated { from, to, vectors }) => {
                tracing::info!(from, to, %vectors, "the database's schema is up to date");
                break;
            }
            Err(fault) => {
                context.metrics.database_failures.inc();
                tracing::warn!(%fault, again_in = ?pause, "the database's schema could not be brought up to date; agents go on running");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        }
    }
    let mut leavings = Leavings::default();
    let mut pay_day = Instant::now();
    loop {
        match clear(context, tenancy, &mut leavings).await {
            Ok(next) => tokio::select! {
                () = tokio::time::sleep_until(next.min(pay_day)) => {}
                () = tenancy.next_departure() => {}
            },
            Err(fault) => {
                context.metrics.database_failures.inc();
                tracing::warn!(%fault, again_in = ?MAX_PAUSE, "the rows of agents that are gone cannot be deleted yet");
                tokio::time::sleep(MAX_PAUSE).await;
            }
        }
        if Instant::now() >= pay_day {
            if let Err(fault) = tenancy.settle(&CachedCensus(context), context.settings.feedback_days, &context.settings.retention.0).await
            {
                tracing::warn!(%fault, "the rows of teams that are gone cannot be deleted yet");
            }
            pay_day = Instant::now() + MAX_PAUSE;
        }
    }
}

/// Deletes the rows of agents that are gone, as far as their time has come, and says when to come back.
async fn clear(context: &Context, tenancy: &Tenancy, leavings: &mut Leavings) -> Result<Instant, Fault> {
    let teams = context.caches.teams.keys().into_iter().map(|key| key.name).collect();
    let (cleared, outcome) = leavings.round(tenancy, &CachedCensus(context), &teams, Instant::now()).await;
    for Cleared { team, name, id, rows, fate } in cleared {
        let agent = name.map_or(format!("agent {id}"), |name| format!("agent {name} ({id})"));
        let (reason, note) = match fate {
            Fate::Deleted => ("RowsDeleted", format!("the rows of {agent}, which is gone, were deleted from the database: {rows}")),
            Fate::Replaced => ("RowsDeleted", format!("the rows of an earlier {agent} were deleted from the database: {rows}")),
            Fate::Aside(uid) => (
                "RowsSetAside",
                format!(
                    "the database held rows of another cluster's {agent}; a platform admin can give them to an Agent, within {HELD_DAYS} days, by the annotation {}: {uid}",
                    labels::ADOPT
                ),
            ),
            Fate::Adopted(uid) => ("RowsAdopted", format!("{agent} was given the rows of {uid}: {rows}")),
        };
        tracing::info!(team, note);
        let event = EventSpec { warning: false, reason: reason.to_owned(), action: "Delete", note };
        if let Some(team) = context.caches.teams.get(&Key::new("", &team)).as_ref().and_then(|team| team.0.as_ref().ok()) {
            context.events.publish(&team.object_ref(&()), event).await;
        }
    }
    for team in tenancy.crowded() {
        context.registry.publish(&Change::RowsInTheWay(Key::new("", &team)));
    }
    outcome
}

/// The cluster's UID; empty where this manager may not ask for it.
async fn cluster(context: &Context) -> String {
    let api: Api<Namespace> = Api::all(context.client.clone());
    loop {
        match api.get_metadata_opt(FIRST).await {
            Ok(found) => return found.and_then(|found| found.metadata.uid).unwrap_or_default(),
            Err(kube::Error::Api(refused)) if refused.code == 403 => {
                tracing::warn!(%refused.message, "rows of Agents that went unseen are kept longer, since the cluster cannot be told from others");
                return String::new();
            }
            Err(error) => tracing::warn!(%error, "which cluster this is could not be asked; it is tried again"),
        }
        tokio::time::sleep(FIRST_PAUSE).await;
    }
}
