//! The results of a run that decides, case by case, in the platform's database. A candidate writes none itself and goes with the verdict,
//! so the manager writes them, before the status has the verdict.

use std::time::Duration;

use slipway_api::ids;
use slipway_cluster::Key;
use slipway_database::EvaluationResult;
use slipway_evaluation::wire::CaseResult;

use super::pod::Ports;
use super::{WAITING_INTERVAL, Work, plan};
use crate::admission;
use crate::tenancy::Tenancy;

/// How long a verdict waits for a database that is away.
const KEEP_TIMEOUT: Duration = Duration::from_secs(30);
const NOT_KEPT: &str = "ResultsNotKept";

impl Work<'_> {
    /// Keeps the results of a run that decides. Returns how long to wait before it is tried again. An evaluator has written its own, and
    /// an agent with a database elsewhere has nothing in the platform's.
    pub(super) async fn keep(&self, ports: &Ports, results: &[CaseResult]) -> Option<Duration> {
        let tenancy = self.controller.context.tenancy.as_ref()?;
        if !plan::decides(self.run) || ports.are_evaluators() {
            return None;
        }
        let why = self.replace(tenancy, results).await.err()?;
        if self.controller.remember(self.key, |under_way| under_way.wait(NOT_KEPT)) < KEEP_TIMEOUT {
            return Some(WAITING_INTERVAL);
        }
        let run = &self.key.name;
        tracing::warn!(run, why, "the results of an evaluation that decides are not kept case by case");
        None
    }

    async fn replace(&self, tenancy: &Tenancy, results: &[CaseResult]) -> Result<(), String> {
        let context = &*self.controller.context;
        let key = Key::new(&self.key.namespace, &self.run.spec.agent);
        let gone = || "the Agent or its Team is gone".to_owned();
        let agent = context.caches.agents.get(&key).and_then(|cached| cached.agent().ok()).ok_or_else(gone)?;
        if agent.spec.database_url.is_some() {
            return Ok(());
        }
        let team = context.caches.team_of(&key.namespace).ok_or_else(gone)?;
        let home = admission::home_of(context, &team).ok_or_else(gone)?;
        let holder = admission::holder(context, &key, &agent).ok_or_else(gone)?;
        // Rows are the Agent's that the database knows. A candidate is let in without.
        tenancy.admit(&home, &holder).await?;
        let row = |result: &CaseResult| {
            // Without a digest: no run goes on with it.
            Some(EvaluationResult { case: result.case, digest: Vec::new(), result: serde_json::to_value(result).ok()? })
        };
        let rows: Vec<EvaluationResult> = results.iter().filter_map(row).collect();
        tenancy.replace_evaluation_results(&team, &ids::agent(&key.namespace, &key.name), &self.run_id(), &rows).await
    }
}
