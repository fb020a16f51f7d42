//! Checks before the controllers start: CRDs and permissions, with helpful errors.

use anyhow::{Context, bail};
use futures::future::try_join_all;
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use slipway_api::{
    Agent, AgentRelease, Dataset, EvaluationRun, GROUP, GuardrailPolicy, Ingestion, Integration, KnowledgeBase, Skill, Team, Tool,
};

use crate::arguments::ProcessRole;

pub(crate) async fn check(client: &Client, namespaces: &[String], roles: &[ProcessRole]) -> anyhow::Result<()> {
    client.apiserver_version().await.context("the API server cannot be reached")?;
    let kinds = [
        (ApiResource::erase::<Agent>(&()), true),
        (ApiResource::erase::<Tool>(&()), true),
        (ApiResource::erase::<Integration>(&()), true),
        (ApiResource::erase::<KnowledgeBase>(&()), true),
        (ApiResource::erase::<Skill>(&()), true),
        (ApiResource::erase::<EvaluationRun>(&()), true),
        (ApiResource::erase::<Team>(&()), false),
    ];
    // The other roles read releases for pinned agents alone; that one reads no cases, no documents and no policies.
    let release = [ApiResource::erase::<AgentRelease>(&())].into_iter().filter(|_| roles.contains(&ProcessRole::State));
    let others = [ApiResource::erase::<Dataset>(&()), ApiResource::erase::<Ingestion>(&()), ApiResource::erase::<GuardrailPolicy>(&())];
    let others = others.into_iter().filter(|_| roles.iter().any(|role| *role != ProcessRole::State));
    let checks = kinds.into_iter().chain(release.chain(others).map(|kind| (kind, true))).map(|(kind, namespaced)| async move {
        let api: Api<DynamicObject> = match namespaces.first() {
            Some(namespace) if namespaced => Api::namespaced_with(client.clone(), namespace, &kind),
            _ => Api::all_with(client.clone(), &kind),
        };
        match api.list(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => {
                let crd = format!("{}.{GROUP}", kind.plural);
                bail!("CRD {crd} is not installed; install the chart with its CRDs, or run: slipway-manager crds apply")
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                bail!("no permission to list {}: {}; the chart's ClusterRole and its binding give it", kind.plural, status.message)
            }
            Err(error) => Err(error).with_context(|| format!("{} could not be listed", kind.plural)),
        }
    });
    try_join_all(checks).await.map(drop)
}
