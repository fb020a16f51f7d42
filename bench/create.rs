//! Time until agents have ConfigMap, Deployment, Service and status, beside a client that only writes them.
//!
//! Measured twice: agents that wait for a manager that starts, and agents that arrive while it runs.

use std::time::Instant;

use crate::cluster::{Cluster, FLOOR, OPERATED};
use crate::floor::{self, Written};
use crate::manager::{Manager, Requests, per_agent, since};
use crate::numbers::median;
use crate::observe::complete;
use crate::table;

#[derive(Default)]
struct Times {
    waiting: Vec<f64>,
    arriving: Vec<f64>,
    /// The floor: creating the agents, then writing what belongs to them.
    created: Vec<f64>,
    written: Vec<f64>,
}

/// The number of agents from which on a run takes minutes: long enough to be done once.
const LONG: u32 = 5000;

pub(crate) async fn measure(cluster: &Cluster, sizes: &[u32], runs: u32) -> anyhow::Result<()> {
    table::part("Time until agents have ConfigMap, Deployment, Service and status");
    let (mut growth, mut floor_growth) = (Vec::new(), Vec::new());
    for &size in sizes {
        let mut times = Times::default();
        let (mut requests, mut written): (Requests, Option<Vec<Written>>) = Default::default();
        for run in 0..if size < LONG { runs } else { 1 } {
            // The first of the two may meet a different machine, so they take turns.
            if let Some(written) = written.as_ref().filter(|_| run % 2 == 1) {
                floor_run(cluster, size, written, &mut times).await?;
                requests = product_run(cluster, size, &mut times).await?.0;
            } else {
                let (counted, read) = product_run(cluster, size, &mut times).await?;
                floor_run(cluster, size, &read, &mut times).await?;
                (requests, written) = (counted, Some(read));
            }
        }
        growth.push((size, median(&times.waiting)));
        floor_growth.push((size, median(&times.written)));
        report(size, &times, &requests);
    }
    table::growth("growth", &growth);
    table::growth("growth of the floor", &floor_growth);
    Ok(())
}

async fn product_run(cluster: &Cluster, size: u32, times: &mut Times) -> anyhow::Result<(Requests, Vec<Written>)> {
    cluster.clear().await?;
    cluster.create_agents(OPERATED, size).await?;
    let begun = Instant::now();
    let manager = Manager::start()?;
    complete(cluster, OPERATED, size).await?;
    times.waiting.push(begun.elapsed().as_secs_f64());
    manager.settle().await?;
    let written = floor::read(cluster).await?;
    drop(manager);

    cluster.clear().await?;
    let manager = Manager::ready().await?;
    manager.settle().await?;
    let before = manager.requests()?;
    let begun = Instant::now();
    tokio::try_join!(cluster.create_agents(OPERATED, size), complete(cluster, OPERATED, size))?;
    times.arriving.push(begun.elapsed().as_secs_f64());
    manager.settle().await?;
    let requests = since(&before, &manager.requests()?);
    Ok((requests, written))
}

async fn floor_run(cluster: &Cluster, size: u32, written: &[Written], times: &mut Times) -> anyhow::Result<()> {
    cluster.clear().await?;
    let begun = Instant::now();
    let uids = cluster.create_agents(FLOOR, size).await?;
    times.created.push(begun.elapsed().as_secs_f64());
    let begun = Instant::now();
    tokio::try_join!(floor::write(cluster, written, &uids), complete(cluster, FLOOR, size))?;
    times.written.push(begun.elapsed().as_secs_f64());
    Ok(())
}

fn report(size: u32, times: &Times, requests: &Requests) {
    let (waiting, arriving) = (median(&times.waiting), median(&times.arriving));
    let floor = median(&times.written);
    let both: Vec<f64> = times.created.iter().zip(&times.written).map(|(created, written)| created + written).collect();
    let with_creation = median(&both);
    let print = |what: &str, measured: f64, floor: f64| {
        table::beside(what, (&table::seconds(measured), measured), (&table::seconds(floor), floor), "<= 1.20 x");
    };
    print(&format!("{size} agents, manager starts"), waiting, floor);
    print(&format!("{size} agents, they arrive"), arriving, with_creation);
    table::remark(&format!("the floor writes {}", table::per_second(f64::from(size * floor::OBJECTS) / floor).replace("/s", " objects/s")));
    table::remark(&format!("requests per agent: {}", per_agent(requests, size)));
}
