//! What MLflow says of what an agent runs, where the cluster's own evaluations say nothing.

use std::time::Duration;

use slipway_api::ids;
use slipway_evaluation::wire::{GateCall, GateScore, GateSubject};
use slipway_evaluation::{Profile, canary_gate};
use slipway_mlflow::{Fault, Scored};
use tokio::time::timeout;

use crate::context::Context;
use crate::platform;

/// How long MLflow may take, and the platform's configuration before it.
const MLFLOW_TIMEOUT: Duration = Duration::from_secs(3);
const CONFIGURATION_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) enum Tracked {
    Scored(GateScore),
    /// It answers, and has no score of what runs.
    Nothing,
    /// It does not answer, for this reason.
    Away(String),
}

/// Asks MLflow for the scores of what the agent runs. Without a subject only whether it answers.
pub(super) async fn ask(context: &Context, asked: &GateCall, subject: Option<&GateSubject>) -> Tracked {
    let Some(uri) = platform::mlflow_uri_within(context, CONFIGURATION_TIMEOUT).await else {
        return Tracked::Away("there is no MLflow server".to_owned());
    };
    let agent_id = ids::agent(&asked.namespace, &asked.agent);
    let of = subject.and_then(|subject| {
        let not_by: &[&str] = if subject.allow_heuristic { &["mock"] } else { &["mock", "heuristic"] };
        Some(Scored { agent_id: &agent_id, run_hash: subject.run_hash.as_deref()?, not_by })
    });
    let asking = async { context.mlflow.at(&uri)?.scores(&asked.agent, of).await };
    let scores = match timeout(MLFLOW_TIMEOUT, asking).await {
        Ok(Ok(scores)) => scores,
        // It is there, and of another mind.
        Ok(Err(Fault::Refused { status: ..500, .. } | Fault::ExperimentDeleted(_))) => None,
        Ok(Err(fault)) => return Tracked::Away(fault.to_string()),
        Err(_) => return Tracked::Away(format!("MLflow has not answered within {} s", MLFLOW_TIMEOUT.as_secs())),
    };
    let profile = subject.map(|subject| Profile::of(subject.profile));
    let judged = profile.zip(scores).and_then(|(profile, scores)| canary_gate::judge(&profile, &scores));
    judged.map_or(Tracked::Nothing, Tracked::Scored)
}
