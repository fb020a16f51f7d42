//! The cluster that the measurements work on: two namespaces, one with the operator's attention.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use slipway_api::{Agent, Team};
use tokio::time::sleep;

use crate::manager::Manager;

/// The field manager of what we write ourselves.
pub(crate) const WRITER: &str = "slipway-bench";
/// How many requests are under way at once, ours as the operator's.
pub(crate) const AT_ONCE: usize = 16;
/// The namespace that the operator looks after.
pub(crate) const OPERATED: &str = "team-slipway-bench";
/// The namespace that only we write to.
pub(crate) const FLOOR: &str = "slipway-bench-floor";

pub(crate) const TEAM: &str = "slipway-bench";
const TIMEOUT: Duration = Duration::from_mins(1);
const CLEARED: Duration = Duration::from_mins(10);

pub(crate) struct Cluster {
    client: Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Agent,
    ConfigMap,
    Deployment,
    Service,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Agent, Self::ConfigMap, Self::Deployment, Self::Service];
    pub(crate) const CHILDREN: [Self; 3] = [Self::ConfigMap, Self::Deployment, Self::Service];

    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::Agent => ApiResource::erase::<Agent>(&()),
            Self::ConfigMap => ApiResource::erase::<ConfigMap>(&()),
            Self::Deployment => ApiResource::erase::<Deployment>(&()),
            Self::Service => ApiResource::erase::<Service>(&()),
        }
    }
}

impl Cluster {
    /// Connects, takes away what an interrupted run has left, and has the operator make the team's namespace.
    pub(crate) async fn prepare() -> anyhow::Result<Self> {
        let cluster = Self { client: Client::try_default().await.context("no cluster to measure on")? };
        for namespace in ["slipway-system", FLOOR] {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            cluster.apply_one(&Api::all(cluster.client.clone()) as &Api<Namespace>, namespace, &body).await?;
        }
        cluster.clear().await?;
        let teams: Api<Team> = Api::all(cluster.client.clone());
        let body = json!({"apiVersion": "agents.slipway.dev/v1", "kind": "Team", "metadata": {"name": TEAM}, "spec": {"name": "Bench"}});
        cluster.apply_one(&teams, TEAM, &body).await?;
        let _manager = Manager::ready().await?;
        let deadline = Instant::now() + TIMEOUT;
        let ready =
            |team: Team| team.status.is_some_and(|status| status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
        while !ready(teams.get(TEAM).await?) {
            if Instant::now() > deadline {
                bail!("Team {TEAM} does not become ready");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(cluster)
    }

    pub(crate) async fn apply_one<K>(&self, api: &Api<K>, name: &str, body: &serde_json::Value) -> anyhow::Result<()>
    where
        K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
    {
        api.patch(name, &PatchParams::apply(WRITER).force(), &Patch::Apply(body)).await.with_context(|| name.to_owned())?;
        Ok(())
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn api(&self, kind: Kind, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &kind.resource())
    }

    /// Takes all agents and their objects away. There may be nobody else who collects garbage.
    pub(crate) async fn clear(&self) -> anyhow::Result<()> {
        for namespace in [OPERATED, FLOOR] {
            for kind in Kind::ALL {
                let api = self.api(kind, namespace);
                let deadline = Instant::now() + CLEARED;
                // A whole collection would be deleted by one worker, in one request that has a minute for it.
                while let names = names(&api).await?
                    && !names.is_empty()
                {
                    let api = &api;
                    let delete = |name: String| async move { api.delete(&name, &DeleteParams::background()).await.err() };
                    let failed: Vec<_> = stream::iter(names).map(delete).buffer_unordered(AT_ONCE).collect().await;
                    if Instant::now() > deadline {
                        bail!("{kind:?}s of {namespace} do not go: {:?}", failed.into_iter().flatten().next());
                    }
                }
            }
        }
        Ok(())
    }

    /// Creates agents; their uids by order of name.
    pub(crate) async fn create_agents(&self, namespace: &str, count: u32) -> anyhow::Result<Vec<String>> {
        self.create_agents_with(namespace, count, &[]).await
    }

    /// The same with these Tools.
    pub(crate) async fn create_agents_with(&self, namespace: &str, count: u32, tools: &[String]) -> anyhow::Result<Vec<String>> {
        let api = self.api(Kind::Agent, namespace);
        let create = |index: u32| {
            let api = api.clone();
            async move {
                let body: DynamicObject = serde_json::from_value(json!({
                    "apiVersion": "agents.slipway.dev/v1",
                    "kind": "Agent",
                    "metadata": {"name": agent_name(index)},
                    "spec": {
                        "name": format!("Agent {index}"),
                        "framework": "custom",
                        "systemPrompt": "You answer what is asked, in two sentences at most.",
                        "tools": tools,
                    },
                }))?;
                let made = api.create(&PostParams::default(), &body).await?;
                made.uid().context("the API server gave no uid")
            }
        };
        stream::iter(0..count).map(create).buffered(AT_ONCE).try_collect().await
    }

    /// Says of the agents' Deployments, as they come, what their pods would have it say: there is neither a controller nor a node here,
    /// and an agent that is down for minutes has an alert.
    pub(crate) async fn make_available(&self, count: u32) -> anyhow::Result<()> {
        let api = self.api(Kind::Deployment, OPERATED);
        // Of this generation, and of those that repairs make.
        let status =
            json!({"observedGeneration": 1_000_000, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1});
        let patch = Patch::Merge(json!({"status": status}));
        let make = |index: u32| {
            let (api, patch) = (&api, &patch);
            async move {
                loop {
                    match api.patch_status(&agent_name(index), &PatchParams::default(), patch).await {
                        Err(kube::Error::Api(status)) if status.code == 404 => sleep(Duration::from_millis(100)).await,
                        end => return end.map(drop),
                    }
                }
            }
        };
        Ok(stream::iter(0..count).map(make).buffer_unordered(AT_ONCE).try_collect().await?)
    }
}

/// Up to 500 objects that are there. Where a controller manager runs, each namespace has one ConfigMap that always comes back.
async fn names(api: &Api<DynamicObject>) -> anyhow::Result<Vec<String>> {
    let page = api.list_metadata(&ListParams::default().limit(500)).await?;
    Ok(page.iter().map(ResourceExt::name_any).filter(|name| name != "kube-root-ca.crt").collect())
}

pub(crate) fn agent_name(index: u32) -> String {
    format!("agent-{index:05}")
}
