//! Sends marks of answers to MLflow that REST could not send at once, because MLflow was away or the trace not there yet. The rows say
//! which these are, so that nothing has to be remembered: a mark that is sent twice is one assessment, a mark that has changed is sent
//! again, and one whose trace is missing waits longer each time, until it is deleted. A trace of another agent is never marked.

use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;
use slipway_cluster::controller::{self, Phase};
use slipway_database::{DueFeedback, Feedback};
use slipway_mlflow::{Fault, LastFailure, Mark, Mlflow};
use thiserror::Error;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::context::Context;
use crate::metrics::ByOutcome;
use crate::registry::{Change, Registered};
use crate::tenancy::Tenancy;

/// How many marks are read at once, and how many of them are sent at once.
const BATCH: u32 = 100;
const AT_ONCE: usize = 4;
/// How often it is looked for marks that are due.
const INTERVAL: Duration = Duration::from_secs(10);
/// After a failure; each further one doubles the time.
const RETRY_MIN: Duration = Duration::from_secs(5);
const RETRY_MAX: Duration = Duration::from_mins(1);

pub(crate) struct FeedbackDelivery {
    context: Arc<Context>,
    /// Another MLflow server is in effect.
    reconfigured: Notify,
    standing: LastFailure,
}

/// Why a batch ended before its end.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Mlflow(#[from] Fault),
    #[error("{0}")]
    Database(String),
}

impl FeedbackDelivery {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        Self { context, reconfigured: Notify::new(), standing: LastFailure::default() }
    }

    async fn run(&self, tenancy: &Tenancy) {
        let mut pause = RETRY_MIN;
        loop {
            let wait = match self.batch(tenancy).await {
                Ok(is_full) => {
                    pause = RETRY_MIN;
                    if is_full { Duration::ZERO } else { INTERVAL }
                }
                Err(trouble) => {
                    // Of the database others tell.
                    if let Trouble::Mlflow(fault) = &trouble {
                        self.count("failed");
                        self.note(Some(fault));
                    }
                    let wait = pause;
                    pause = (pause * 2).min(RETRY_MAX);
                    wait
                }
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.reconfigured.notified() => pause = RETRY_MIN,
            }
        }
    }

    /// Sends marks that are due; says whether there may be more.
    async fn batch(&self, tenancy: &Tenancy) -> Result<bool, Trouble> {
        let Some(uri) = self.context.mlflow_uri() else { return Ok(false) };
        let due = tenancy.due_feedback(BATCH).await.map_err(Trouble::Database)?;
        if due.is_empty() {
            return Ok(false);
        }
        let mlflow = self.context.mlflow.at(&uri)?;
        let mut refused = None;
        for some in due.chunks(AT_ONCE) {
            let sent = try_join_all(some.iter().map(|due| self.send(&mlflow, tenancy, due))).await?;
            refused = sent.into_iter().flatten().last().or(refused);
        }
        self.note(refused.as_ref());
        Ok(due.len() >= BATCH as usize)
    }

    /// Returns what MLflow has against this mark, if it refuses it.
    async fn send(&self, mlflow: &Mlflow, tenancy: &Tenancy, due: &DueFeedback) -> Result<Option<Fault>, Trouble> {
        let (outcome, refused) = match mlflow.mark(&mark(due)).await {
            Ok(true) => ("delivered", None),
            Ok(false) => ("no_trace", None),
            Err(fault @ Fault::Refused { .. }) => ("refused", Some(fault)),
            Err(fault) => return Err(fault.into()),
        };
        let noted = if outcome == "delivered" { tenancy.feedback_delivered(due).await } else { tenancy.postpone_feedback(due).await };
        noted.map_err(Trouble::Database)?;
        self.count(outcome);
        Ok(refused)
    }

    fn count(&self, outcome: &'static str) {
        self.context.metrics.feedback_deliveries.get_or_create(&ByOutcome { outcome }).inc();
    }

    /// Logs a failure that was not there before, and its end.
    fn note(&self, fault: Option<&Fault>) {
        if self.standing.has_changed(fault.map(Fault::reason)) {
            if let Some(fault) = fault {
                tracing::warn!(reason = fault.reason(), %fault, "marks cannot be sent to MLflow; they stay here, and are sent again");
            } else {
                tracing::info!("marks are sent to MLflow again");
            }
        }
    }
}

impl Registered for FeedbackDelivery {
    fn changed(&self, change: &Change) {
        if *change == Change::Platform {
            self.reconfigured.notify_one();
        }
    }

    fn start(self: Arc<Self>, phase: &watch::Sender<Phase>) -> Vec<JoinHandle<()>> {
        let context = self.context.clone();
        if context.tenancy.is_none() {
            return Vec::new();
        }
        let work = async move {
            if let Some(tenancy) = &self.context.tenancy {
                self.run(tenancy).await;
            }
        };
        vec![controller::start_beside(&context.tasks, "delivery of feedback", phase.subscribe(), work)]
    }
}

/// As MLflow is sent it.
fn mark(due: &DueFeedback) -> Mark {
    let DueFeedback { team, agent_id, trace, feedback } = due.clone();
    let scale = feedback.scale();
    let Feedback { user, name, value, source, comment, .. } = feedback;
    Mark { team, agent_id, trace, user, name, value, scale, source, comment }
}

#[cfg(test)]
mod tests;
