//! The results of a run case by case: a pod of the agent has them for an hour, the platform's database for a month.
//! Those of a run that decides on a release are in the database alone, as the candidate goes with the verdict.

use std::sync::Arc;

use slipway_api::Track;
use slipway_cluster::Key;
use slipway_database::Fault;
use slipway_evaluation::wire::CaseResult;

use crate::context::Context;
use crate::control_port::{Sign, address};
use crate::evaluation_run::plan::Said;
use crate::evaluation_run::pod::Ports;

/// Whose results they are.
pub(super) struct Of<'a> {
    pub context: &'a Context,
    pub sign: Option<&'a Arc<Sign>>,
    pub agent: Key,
    pub agent_id: String,
    pub track: Track,
}

impl Of<'_> {
    /// The results of a run by the id that the runtime knows it by. Neither pod nor rows are believed: who calls checks them.
    pub(super) async fn read(&self, id: &str, total: usize) -> Result<Vec<CaseResult>, Fault> {
        let told = self.ask_pods(id).await;
        if told.len() >= total {
            return Ok(told);
        }
        let kept = self.ask_database(id).await?;
        Ok(if kept.len() > told.len() { kept } else { told })
    }

    async fn ask_pods(&self, id: &str) -> Vec<CaseResult> {
        let Some(sign) = self.sign else { return Vec::new() };
        // An image of the agent's own may tell anything, and has told nothing before: its evaluator has gone with the run.
        let agent = self.context.caches.agents.get(&self.agent).and_then(|cached| cached.agent().ok());
        if agent.is_some_and(|agent| crate::agent::foreign(self.context, &agent, self.track).is_some()) {
            return Vec::new();
        }
        let ports = Ports::of(sign.clone(), self.agent_id.clone(), false);
        let workload = Key::new(&self.agent.namespace, self.track.workload(&self.agent.name));
        for (_, ready) in self.context.caches.pods.ready(&workload) {
            if let Said::Report(report) = ports.results(address(ready.address), id).await {
                return report.results;
            }
        }
        Vec::new()
    }

    async fn ask_database(&self, id: &str) -> Result<Vec<CaseResult>, Fault> {
        let team = self.context.caches.team_of(&self.agent.namespace);
        let (Some(tenancy), Some(team)) = (&self.context.tenancy, team) else { return Ok(Vec::new()) };
        let rows = tenancy.evaluation_results(&team, &self.agent_id, id).await?;
        Ok(rows.into_iter().filter_map(|row| serde_json::from_value(row.result).ok()).collect())
    }
}
