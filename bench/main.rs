//! `slipway-bench`: measures what Slipway costs, each figure beside a floor that was measured in the same
//! run. `hack/bench` gives it a control plane of its own and runs it.
#![expect(clippy::print_stdout, reason = "what is measured is printed")]

mod cluster;
mod create;
mod floor;
mod http;
mod idle;
mod load;
mod manager;
mod memory;
mod nginx;
mod numbers;
mod observe;
mod owned;
mod repair;
mod rest;
mod runtime;
mod standing;
mod start;
mod state;
mod streams;
mod table;

use clap::{Parser, ValueEnum};

/// Prints each figure with its floor. The cluster is that of KUBECONFIG; nothing else may work on it.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure. Default all.
    #[arg(long, value_enum, value_delimiter = ',')]
    rows: Vec<Row>,
    /// How many agents: two sizes, so that the growth between them is seen.
    #[arg(long, value_delimiter = ',', default_values_t = [300, 1000])]
    sizes: Vec<u32>,
    /// How often what is short is measured; medians are printed.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// How long an operator at rest is watched, in seconds: three resync periods and some.
    #[arg(long, default_value_t = 95)]
    rest: u64,
    /// How many manual changes are made.
    #[arg(long, default_value_t = 200)]
    edits: u32,
    /// The folder of a history that a process of its own opens and lists, so that its memory is told.
    #[arg(long, hide = true)]
    held: Option<std::path::PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Row {
    /// Time until agents have their objects.
    Create,
    /// Requests at rest, repairs of manual changes, and memory, at each size.
    Standing,
    /// REST: what passing chats on costs, lists and single agents, memory of streams.
    Rest,
    /// The runtime: memory, start, chats per second, streams, what it adds to a provider.
    Runtime,
    /// The release history: releases per second, lists and differences by length, size.
    State,
}

impl Arguments {
    fn wants(&self, row: Row) -> bool {
        self.rows.is_empty() || self.rows.contains(&row)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(folder) = &arguments.held {
        return state::held(folder);
    }
    table::machine();
    if arguments.wants(Row::Runtime) {
        runtime::measure(arguments.runs)?;
    }
    if arguments.wants(Row::State) {
        state::measure(arguments.runs)?;
    }
    if [Row::Create, Row::Standing, Row::Rest].into_iter().any(|row| arguments.wants(row)) {
        let cluster = cluster::Cluster::prepare().await?;
        if arguments.wants(Row::Create) {
            create::measure(&cluster, &arguments.sizes, arguments.runs).await?;
        }
        if arguments.wants(Row::Standing) {
            standing::measure(&cluster, &arguments).await?;
        }
        if arguments.wants(Row::Rest) {
            rest::measure(&cluster, arguments.runs).await?;
        }
        cluster.clear().await?;
    }
    table::machine();
    Ok(())
}
