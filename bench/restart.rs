//! How long a manager takes from its start until it has looked at every agent, beside a client that lists what the manager
//! has to know before it can.

use std::time::{Duration, Instant};

use anyhow::bail;
use kube::api::ListParams;
use tokio::time::sleep;

use crate::cluster::{Cluster, Kind, OPERATED};
use crate::manager::Manager;
use crate::table;

const TIMEOUT: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// What one page of a list holds, as clients ask for it.
const PAGE: u32 = 500;

/// The time until all have been looked at, for the growth.
pub(crate) async fn measure(cluster: &Cluster, size: u32) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for kind in Kind::ALL {
        list(cluster, kind).await?;
    }
    let floor = begun.elapsed().as_secs_f64();

    let begun = Instant::now();
    let manager = Manager::start()?;
    let first = reconciled(&manager, 1, begun).await?;
    let all = reconciled(&manager, size, begun).await?;
    manager.settle().await?;
    let resident = table::mebibytes(manager.resident()?);
    let requests: f64 = manager.requests()?.iter().filter(|((verb, _), _)| verb != "LIST").map(|(_, count)| count).sum();
    let print = |what: &str, measured: f64, goal: &str| {
        table::beside(what, (&table::seconds(measured), measured), (&table::seconds(floor), floor), goal);
    };
    print(&format!("{size} agents, the first reconcile"), first, "none");
    print(&format!("{size} agents, each reconciled once"), all, "<= 1.50 x");
    table::remark(&format!("requests besides lists: {requests:.0}; resident after that {resident}"));
    Ok(all)
}

async fn list(cluster: &Cluster, kind: Kind) -> anyhow::Result<()> {
    let api = cluster.api(kind, OPERATED);
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&page).await?;
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// How long after `begun` this number of agents had been reconciled.
async fn reconciled(manager: &Manager, count: u32, begun: Instant) -> anyhow::Result<f64> {
    // It does not answer before it has begun.
    while manager.reconciles().unwrap_or_default() < f64::from(count) {
        if begun.elapsed() > TIMEOUT {
            bail!("the manager does not come to look at {count} agents");
        }
        sleep(POLL_INTERVAL).await;
    }
    Ok(begun.elapsed().as_secs_f64())
}
