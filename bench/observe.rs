//! Watching agents become complete, as any client would.

use std::collections::HashSet;
use std::fmt::Debug;

use anyhow::bail;
use futures::{Stream, StreamExt, pin_mut};
use kube::ResourceExt;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::core::PartialObjectMeta;
use serde_json::Value;

use crate::cluster::{Cluster, Kind};

/// Ends when `count` agents of a namespace have ConfigMap, Deployment, Service and status.
pub(crate) async fn complete(cluster: &Cluster, namespace: &str, count: u32) -> anyhow::Result<()> {
    let parameters = WatchParams::default();
    let agents = async {
        let api = cluster.api(Kind::Agent, namespace);
        let mut names = HashSet::new();
        while !heard(api.watch(&parameters, "0").await?, &mut names, count, has_status).await? {}
        anyhow::Ok(())
    };
    let children = async |kind: Kind| {
        let api = cluster.api(kind, namespace);
        let mut names = HashSet::new();
        let is_owned = |child: &PartialObjectMeta<DynamicObject>| !child.owner_references().is_empty();
        while !heard(api.watch_metadata(&parameters, "0").await?, &mut names, count, is_owned).await? {}
        anyhow::Ok(())
    };
    tokio::try_join!(agents, children(Kind::ConfigMap), children(Kind::Deployment), children(Kind::Service))?;
    Ok(())
}

fn has_status(agent: &DynamicObject) -> bool {
    let observed = agent.data.pointer("/status/observedGeneration").and_then(Value::as_i64);
    observed.is_some() && observed == agent.metadata.generation
}

/// Follows a watch until there are names enough. False if it ended before: the API server drops a client that is too slow,
/// and after some minutes of everybody; the next one begins with all that there is.
async fn heard<K>(
    stream: impl Stream<Item = kube::Result<WatchEvent<K>>>,
    names: &mut HashSet<String>,
    count: u32,
    done: impl Fn(&K) -> bool,
) -> anyhow::Result<bool>
where
    K: kube::Resource + Debug,
{
    pin_mut!(stream);
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
            None => return Ok(false),
        }
    }
    Ok(true)
}
