//! `slipway-bench`: measures what Slipway costs, each figure beside a floor that was measured in the same
//! run. `hack/bench` gives it a control plane of its own and runs it.
#![expect(clippy::print_stdout, reason = "what is measured is printed")]

mod callers;
mod canary;
mod cluster;
mod create;
mod evaluation;
mod floor;
mod governance;
mod http;
mod idle;
mod integrations;
mod knowledge;
mod load;
mod manager;
mod memory;
mod nginx;
mod numbers;
mod observe;
mod owned;
mod repair;
mod rest;
mod restart;
mod runtime;
mod standing;
mod start;
mod state;
mod stored;
mod streams;
mod table;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Prints each figure with its floor. The cluster is that of KUBECONFIG; nothing else may work on it.
#[derive(Debug, Parser)]
struct Arguments {
    /// What to measure. Default all.
    #[arg(value_enum)]
    parts: Vec<Part>,
    /// How many agents: two sizes at least, so that the growth between them is seen.
    #[arg(long, value_delimiter = ',', default_values_t = [300, 1000])]
    sizes: Vec<u32>,
    /// How often what is short is measured; medians are printed. What takes minutes is measured once.
    #[arg(long, default_value_t = 3)]
    runs: u32,
    /// How long an operator at rest is watched, in seconds: three resync periods and some.
    #[arg(long, default_value_t = 95)]
    rest: u64,
    /// How many manual changes are made.
    #[arg(long, default_value_t = 200)]
    edits: u32,
    /// How many chunks the knowledge bases have that are searched.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000])]
    chunks: Vec<u32>,
    /// The kubeconfig of a cluster with nodes and Slipway, such as that of hack/up, for promotions of canaries.
    #[arg(long)]
    nodes: Option<PathBuf>,
    /// Where the figures go as JSON, besides the screen.
    #[arg(long)]
    json: Option<PathBuf>,
    /// The folder of a history that a process of its own opens and lists, so that its memory is told.
    #[arg(long, hide = true)]
    held: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Time until agents have their objects; requests at rest, repairs, restarts and memory, at each size.
    Operator,
    /// The first half of that: time until agents have their objects.
    Create,
    /// The second half: an operator with this number of agents.
    Standing,
    /// REST: what passing chats on costs, lists and single agents, memory of streams.
    Rest,
    /// The runtime: memory, start, chats per second, streams, what it adds to a provider.
    Runtime,
    /// Evaluation: cases per second, what a judge costs, memory of a run.
    Evaluation,
    /// Policies and guards on a chat, radar and scorecards of many agents.
    Governance,
    /// Canaries: what the choice of a track adds to a chat, and how long a promotion takes.
    Canary,
    /// Integrations: tests, deliveries of alerts, scaffolds, and Tools that name an integration.
    Integrations,
    /// Knowledge bases: pages per second, chunking, searches by number of chunks, memory of an ingestion, a search through REST.
    Knowledge,
    /// The release history: releases per second, lists and differences by length, size.
    State,
}

impl Arguments {
    fn wants(&self, part: Part) -> bool {
        let within = if matches!(part, Part::Create | Part::Standing) { Part::Operator } else { part };
        self.parts.is_empty() || self.parts.contains(&part) || self.parts.contains(&within)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(folder) = &arguments.held {
        return state::held(folder);
    }
    table::machine();
    if arguments.wants(Part::Runtime) {
        stored::measure(arguments.runs)?;
        runtime::measure(arguments.runs)?;
    }
    if arguments.wants(Part::Evaluation) {
        evaluation::measure(arguments.runs)?;
    }
    if arguments.wants(Part::Governance) {
        governance::measure(arguments.runs)?;
    }
    if arguments.wants(Part::Knowledge) {
        knowledge::measure(arguments.runs, &arguments.chunks).await?;
    }
    if arguments.wants(Part::State) {
        state::measure(arguments.runs)?;
    }
    if [Part::Create, Part::Standing, Part::Rest, Part::Governance, Part::Canary, Part::Integrations, Part::Knowledge]
        .into_iter()
        .any(|part| arguments.wants(part))
    {
        let cluster = cluster::Cluster::prepare().await?;
        if arguments.wants(Part::Create) {
            create::measure(&cluster, &arguments.sizes, arguments.runs).await?;
        }
        if arguments.wants(Part::Standing) {
            standing::measure(&cluster, &arguments).await?;
        }
        if arguments.wants(Part::Rest) {
            rest::measure(&cluster, arguments.runs).await?;
        }
        if arguments.wants(Part::Governance) {
            governance::fleet(&cluster).await?;
        }
        if arguments.wants(Part::Canary) {
            canary::measure(&cluster, arguments.nodes.as_deref()).await?;
        }
        if arguments.wants(Part::Integrations) {
            integrations::measure(&cluster, arguments.runs).await?;
        }
        if arguments.wants(Part::Knowledge) {
            knowledge::through_rest(&cluster).await?;
        }
        cluster.clear().await?;
    }
    table::machine();
    if let Some(path) = &arguments.json {
        table::write(path)?;
    }
    Ok(())
}
