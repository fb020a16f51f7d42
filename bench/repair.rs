//! How fast a manual change is put back, beside how fast a watch tells anybody of it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::json;
use tokio::time::timeout;

use crate::cluster::{Cluster, Kind, OPERATED, agent_name};
use crate::numbers::percentile;
use crate::table;

const KEY: &str = "RUNTIME_MODEL_ID";
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time of a repair at the middle, for the growth.
pub(crate) async fn measure(cluster: &Cluster, size: u32, edits: u32) -> anyhow::Result<f64> {
    let api = cluster.api(Kind::ConfigMap, OPERATED);
    let version = api.list_metadata(&ListParams::default()).await?.metadata.resource_version.context("a list without a version")?;
    let mut watch = api.watch(&WatchParams::default(), &version).await?.boxed();
    let (mut told, mut repaired) = (Vec::new(), Vec::new());
    for edit in 0..edits {
        let name = format!("{}-config", agent_name(edit * size / edits));
        let value = format!("edited-{edit}");
        let begun = Instant::now();
        let patch = json!({"data": {KEY: value}});
        let parameters = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
        api.patch(&name, &parameters, &Patch::Merge(&patch)).await?;
        seen(&mut watch, &name, |now| now == value).await.context("the watch did not tell of a change")?;
        told.push(begun.elapsed().as_secs_f64());
        seen(&mut watch, &name, |now| now != value).await.context("a change was not put back")?;
        repaired.push(begun.elapsed().as_secs_f64());
    }
    for percent in [50, 99] {
        let (measured, floor) = (percentile(&repaired, percent), percentile(&told, percent));
        let goal = if percent == 99 { "< 1 s" } else { "none" };
        let what = format!("{size} agents, p{percent} of {edits} changes");
        table::beside(&what, (&table::milliseconds(measured), measured), (&table::milliseconds(floor), floor), goal);
    }
    Ok(percentile(&repaired, 50))
}

/// Waits until the watch tells of an object whose value is as it should be.
async fn seen(
    watch: &mut BoxStream<'_, kube::Result<WatchEvent<DynamicObject>>>,
    name: &str,
    wanted: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let search = async {
        while let Some(event) = watch.try_next().await? {
            let WatchEvent::Modified(object) = event else { continue };
            if object.name_any() == name && object.data["data"][KEY].as_str().is_some_and(&wanted) {
                return Ok(());
            }
        }
        bail!("the watch ended")
    };
    timeout(TIMEOUT, search).await.with_context(|| format!("nothing was heard of ConfigMap {name}"))?
}
