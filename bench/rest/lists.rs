//! Lists of 100, searches and single agents, by how many there are.

use anyhow::Context;
use kube::ResourceExt;

use super::{Callers, Rest, beside, block_in_place, ms, path};
use crate::cluster::{Cluster, Kind, OPERATED, agent_name};
use crate::load::{Load, SECONDS};
use crate::table;

const SIZES: [u32; 2] = [1_000, 10_000];

pub(super) async fn measure(cluster: &Cluster, core: &str, load: &str, callers: &Callers) -> anyhow::Result<()> {
    let mut growth = Vec::new();
    for size in SIZES {
        cluster.clear().await?;
        cluster.create_agents(OPERATED, size).await?;
        // No agent is asked anything.
        let rest = Rest::start(core, 1, Some(callers)).await?;
        table::part(&format!("REST: {size} agents, 16 connections; a token of the cluster, reviews; {SECONDS} s each"));
        let ask = |paths: &str, headers: &str| {
            block_in_place(|| Load { port: rest.port, core: load, connections: 16, paths, body: None, headers }.run())
        };
        let floor = ask("/healthz", "")?;
        let one = cluster.api(Kind::Agent, OPERATED).get(&agent_name(size / 2)).await?;
        let known = format!("{}\nx-resource-version: {}", callers.account, one.resource_version().context("an agent's version")?);
        let one = path(size / 2, "");
        for (what, path, headers, goal) in [
            ("list", "/api/v1/agents?limit=100", &callers.account, ""),
            ("search", "/api/v1/agents?limit=100&search=999", &callers.account, "p99 <= 10 ms"),
            ("one, from the API server", &one, &callers.account, ""),
            ("one, X-Resource-Version", &one, &known, "p99 <= 10 ms"),
        ] {
            let answered = ask(path, headers)?;
            beside(&format!("{what}, per second"), answered.rate, floor.rate, table::per_second, "");
            table::alone(&format!("{what}, p50 and p99"), &format!("{}, {}", ms(answered.p50), ms(answered.p99)), goal);
            if what == "list" {
                growth.push((size, answered.p50));
            }
        }
        table::alone("memory (resident)", &table::mebibytes(rest.process.resident()?), "");
    }
    table::growth("growth of a list's p50", &growth);
    table::remark("the floor is the same server answering GET /healthz; without X-Resource-Version one agent is read from the API server");
    Ok(())
}
