//! A promotion beside `kubectl rollout restart`, of the same Deployment: both replace every pod, by the same strategy.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::json;
use slipway_api::canary::CanaryPhase;
use slipway_api::{Agent, Team, labels};
use tokio::time::sleep;

use crate::cluster::WRITER;
use crate::numbers::median;
use crate::table;

/// How often each is measured.
const RUNS: u32 = 5;
const TEAM: &str = "slipway-bench-canary";
const NAMESPACE: &str = "team-slipway-bench-canary";
const AGENT: &str = "promoted";
const TIMEOUT: Duration = Duration::from_mins(5);

pub(super) async fn measure(kubeconfig: &Path) -> anyhow::Result<()> {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).context("--nodes")?;
    let client = Client::try_from(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?)?;
    let teams: Api<Team> = Api::all(client.clone());
    let team = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": TEAM}, "spec": {"name": "Canaries"}});
    teams.patch(TEAM, &PatchParams::apply(WRITER).force(), &Patch::Apply(&team)).await?;
    let outcome =
        Promoted { agents: Api::namespaced(client.clone(), NAMESPACE), deployments: Api::namespaced(client, NAMESPACE) }.run().await;
    teams.delete(TEAM, &DeleteParams::default()).await?;
    outcome
}

struct Promoted {
    agents: Api<Agent>,
    deployments: Api<Deployment>,
}

impl Promoted {
    async fn run(&self) -> anyhow::Result<()> {
        let spec = json!({"name": "Promoted", "framework": "custom", "replicas": 2, "storage": "memory", "systemPrompt": "Version 0."});
        let agent = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Agent", "metadata": {"name": AGENT}, "spec": spec});
        let apply = PatchParams::apply(WRITER).force();
        // The namespace is on its way.
        let deadline = Instant::now() + TIMEOUT;
        while let Err(error) = self.agents.patch(AGENT, &apply, &Patch::Apply(&agent)).await {
            if Instant::now() > deadline {
                return Err(error).context("the agent cannot be made");
            }
            sleep(Duration::from_millis(200)).await;
        }
        self.rolled(0).await?;
        let (mut promotions, mut restarts) = (Vec::new(), Vec::new());
        for run in 1..=RUNS {
            restarts.push(self.restart().await?);
            promotions.push(self.promote(run).await?);
        }
        let (promotion, restart) = (median(&promotions), median(&restarts));
        table::beside(
            &format!("promotion, median of {RUNS}"),
            (&table::seconds(promotion), promotion),
            (&table::seconds(restart), restart),
            "<= 1.20 x",
        );
        table::remark("the floor is kubectl rollout restart of the agent's Deployment, with the same two pods");
        Ok(())
    }

    /// The seconds of a restart, as kubectl asks for it.
    async fn restart(&self) -> anyhow::Result<f64> {
        let before = self.generation().await?;
        let annotations = json!({"kubectl.kubernetes.io/restartedAt": Timestamp::now().to_string()});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        let begun = Instant::now();
        self.deployments.patch(AGENT, &PatchParams::default(), &Patch::Strategic(&patch)).await?;
        self.rolled(before).await?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// The seconds of a promotion, of a canary that serves.
    async fn promote(&self, run: u32) -> anyhow::Result<f64> {
        let canary = json!({"enabled": true, "weight": 50, "systemPrompt": format!("Version {run}.")});
        self.agents.patch(AGENT, &PatchParams::default(), &Patch::Merge(&json!({"spec": {"canary": canary}}))).await?;
        self.canary(|phase| phase == Some(CanaryPhase::Serving)).await?;
        let before = self.generation().await?;
        let agent = self.agents.get(AGENT).await?;
        let mut patch = slipway_release::promotion(&agent.spec).context("the agent has a canary")?;
        patch["metadata"] = json!({"annotations": {labels::CANARY_ACTION: "promote"}});
        let begun = Instant::now();
        self.agents.patch(AGENT, &PatchParams::default(), &Patch::Merge(&patch)).await?;
        self.rolled(before).await?;
        let took = begun.elapsed().as_secs_f64();
        self.canary(|phase| phase.is_none()).await?;
        Ok(took)
    }

    async fn canary(&self, is_wanted: impl Fn(Option<CanaryPhase>) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let canary = self.agents.get(AGENT).await?.status.and_then(|status| status.canary);
            if is_wanted(canary.as_ref().map(|canary| canary.phase)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the canary does not get on: {canary:?}");
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    async fn generation(&self) -> anyhow::Result<i64> {
        Ok(self.deployments.get(AGENT).await?.metadata.generation.unwrap_or_default())
    }

    /// Waits until a later generation than this one has all of its pods, and no other's are left to replace.
    async fn rolled(&self, before: i64) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let found = self.deployments.get_opt(AGENT).await?;
            if found.as_ref().is_some_and(|deployment| is_rolled(deployment, before)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("the pods are not replaced: {:?}", found.and_then(|deployment| deployment.status));
            }
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// As `kubectl rollout status` sees it.
fn is_rolled(deployment: &Deployment, before: i64) -> bool {
    let generation = deployment.metadata.generation.unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    deployment.status.as_ref().is_some_and(|status| {
        let counts = [status.updated_replicas, status.available_replicas, status.replicas].map(Option::unwrap_or_default);
        generation > before && status.observed_generation == Some(generation) && counts == [wanted; 3]
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn deployment(status: &Value) -> Deployment {
        serde_json::from_value(
            json!({"metadata": {"generation": 4}, "spec": {"replicas": 2, "selector": {}, "template": {}}, "status": status}),
        )
        .unwrap()
    }

    #[test]
    fn a_rollout_ends_with_its_last_pod() {
        let status = |observed: i64, updated: i64, available: i64, all: i64| json!({"observedGeneration": observed, "updatedReplicas": updated, "availableReplicas": available, "replicas": all});
        for (status, before, expected) in [
            (status(4, 2, 2, 2), 3, true),
            (status(4, 2, 2, 2), 4, false),
            (status(3, 2, 2, 2), 3, false),
            (status(4, 1, 2, 3), 3, false),
            (status(4, 2, 1, 2), 3, false),
            (status(4, 2, 2, 3), 3, false),
            (json!({}), 3, false),
        ] {
            assert_eq!(is_rolled(&deployment(&status), before), expected, "{status}");
        }
    }
}
