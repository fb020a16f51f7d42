//! The floor: a client that writes the very objects that the operator wrote, and does nothing else.

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::{AT_ONCE, Cluster, FLOOR, Kind, OPERATED, WRITER};
use crate::owned::applied;

/// The field manager of the operator's agent controller.
const OPERATOR: &str = "slipway/agent";
/// How many objects each agent makes the operator write: its children, and its status.
pub(crate) const OBJECTS: u32 = 4;

/// What the operator wrote for one agent.
pub(crate) struct Written {
    children: Vec<(Kind, Value)>,
    status: Value,
}

/// Reads back what the operator wrote, by order of the agents' names.
pub(crate) async fn read(cluster: &Cluster) -> anyhow::Result<Vec<Written>> {
    let list = async |kind: Kind| -> anyhow::Result<Vec<DynamicObject>> {
        let mut items = cluster.api(kind, OPERATED).list(&ListParams::default()).await?.items;
        items.retain(|object| kind == Kind::Agent || !object.owner_references().is_empty());
        items.sort_by_key(ResourceExt::name_any);
        Ok(items)
    };
    let status = |mut agent: DynamicObject| {
        let body = json!({
            "apiVersion": "agents.slipway.dev/v1",
            "kind": "Agent",
            "metadata": {"name": agent.name_any()},
            "status": agent.data["status"].take(),
        });
        Written { children: Vec::new(), status: body }
    };
    let mut all: Vec<Written> = list(Kind::Agent).await?.into_iter().map(status).collect();
    for kind in Kind::CHILDREN {
        let resource = kind.resource();
        for (written, mut object) in all.iter_mut().zip(list(kind).await?) {
            // Items of a list come without their type.
            object.types = Some(kube::api::TypeMeta { api_version: resource.api_version.clone(), kind: resource.kind.clone() });
            let body = applied(&object, OPERATOR).with_context(|| format!("the operator did not apply {kind:?} {}", object.name_any()))?;
            written.children.push((kind, body));
        }
    }
    Ok(all)
}

/// Writes it all again for agents of these uids, in the namespace that is ours.
pub(crate) async fn write(cluster: &Cluster, all: &[Written], uids: &[String]) -> anyhow::Result<()> {
    let mut bodies = Vec::new();
    for (written, uid) in all.iter().zip(uids) {
        for (kind, body) in &written.children {
            let mut body = body.clone();
            body["metadata"]["ownerReferences"][0]["uid"] = json!(uid);
            bodies.push((*kind, body));
        }
        bodies.push((Kind::Agent, written.status.clone()));
    }
    let apis = Kind::ALL.map(|kind| (kind, cluster.api(kind, FLOOR)));
    let api = |kind: Kind| apis.iter().find(|(of, _)| *of == kind).map(|(_, api)| api.clone());
    let write = |(kind, body): (Kind, Value)| {
        let api = api(kind);
        async move { one(kind, &api.context("a kind without an API")?, &body).await }
    };
    stream::iter(bodies).map(write).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
    Ok(())
}

async fn one(kind: Kind, api: &Api<DynamicObject>, body: &Value) -> anyhow::Result<()> {
    let name = body["metadata"]["name"].as_str().unwrap_or_default();
    let (parameters, patch) = (PatchParams::apply(WRITER).force(), Patch::Apply(body));
    if kind == Kind::Agent {
        api.patch_status(name, &parameters, &patch).await?;
    } else {
        api.patch(name, &parameters, &patch).await?;
    }
    Ok(())
}
