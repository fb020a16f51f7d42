//! Watching agents become complete, as any client would.

use std::collections::HashSet;
use std::fmt::Debug;

use anyhow::bail;
use futures::{Stream, StreamExt, pin_mut};
use kube::ResourceExt;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use serde_json::Value;

use crate::cluster::{Cluster, Kind};

/// Ends when `count` agents of a namespace have ConfigMap, Deployment, Service and status.
pub(crate) async fn complete(cluster: &Cluster, namespace: &str, count: u32) -> anyhow::Result<()> {
    let parameters = WatchParams::default();
    let agents = async {
        let stream = cluster.api(Kind::Agent, namespace).watch(&parameters, "0").await?.boxed();
        until(stream, count, has_status).await
    };
    let children = async |kind: Kind| {
        let stream = cluster.api(kind, namespace).watch_metadata(&parameters, "0").await?.boxed();
        until(stream, count, |child| !child.owner_references().is_empty()).await
    };
    tokio::try_join!(agents, children(Kind::ConfigMap), children(Kind::Deployment), children(Kind::Service))?;
    Ok(())
}

fn has_status(agent: &DynamicObject) -> bool {
    let observed = agent.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    observed.is_some() && observed == agent.metadata.generation
}

async fn until<K>(stream: impl Stream<Item = kube::Result<WatchEvent<K>>>, count: u32, done: impl Fn(&K) -> bool) -> anyhow::Result<()>
where
    K: kube::Resource + Debug,
{
    pin_mut!(stream);
    let mut names = HashSet::new();
    while names.len() < usize::try_from(count)? {
        match stream.next().await {
            Some(Ok(WatchEvent::Added(object) | WatchEvent::Modified(object))) if done(&object) => {
                names.insert(object.name_any());
            }
            Some(Ok(WatchEvent::Deleted(object))) => {
                names.remove(&object.name_any());
            }
            Some(Ok(WatchEvent::Error(error))) => bail!("a watch failed: {error:?}"),
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(error.into()),
            None => bail!("a watch ended after {} of {count} objects", names.len()),
        }
    }
    Ok(())
}
