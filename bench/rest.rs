//! REST: what passing chats on costs beside asking the agent itself and beside nginx in between, as in the default
//! installation (PostgreSQL for the agent, authentication, reviews and limits) and with less of it; how that holds with many
//! agents; and lists and single agents by how many there are.

mod lists;
mod relay;

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::callers::Callers;
use crate::cluster::{Cluster, OPERATED, agent_name};
use crate::load::Answered;
use crate::manager::Manager;
use crate::numbers::median;
use crate::observe::complete;
use crate::start::{Process, cores, pinned};
use crate::{http, streams, table};

/// The agents whose streams are slow do what a message says.
const WARM: &str = r#"{"message": "tokens 1"}"#;
const STREAMS: [u32; 2] = [250, 1000];
const TIMEOUT: Duration = Duration::from_mins(2);
const UNLIMITED: &str = r#"{"team":{"atOnce":0,"perSecond":0,"burst":0},"agent":{"atOnce":0,"perSecond":0,"burst":0},"listeners":0}"#;

pub(crate) struct Rest {
    pub process: Process,
    pub port: u16,
}

impl Rest {
    /// On one core, with the agent at `agent` in the place of all: for these callers as in an installation, or for everybody,
    /// with neither authentication nor limits.
    pub(crate) async fn start(core: &str, agent: u16, callers: Option<&Callers>) -> anyhow::Result<Self> {
        Self::start_with(core, agent, callers, &[]).await
    }

    /// The same with further arguments.
    pub(crate) async fn start_with(core: &str, agent: u16, callers: Option<&Callers>, more: &[&str]) -> anyhow::Result<Self> {
        let (port, health) = (http::free_port()?, http::free_port()?);
        let mut command = pinned("slipway-manager", core)?;
        command.args(["--role", "rest", "--log", "error"]);
        match callers {
            Some(callers) => command.args(callers.arguments()),
            None => command.args(["--auth-enabled", "false", "--default-namespace", OPERATED, "--limits", UNLIMITED]),
        };
        command.args(["--listen", &format!("127.0.0.1:{health}"), "--api-listen", &format!("127.0.0.1:{port}")]);
        command.args(["--agent-address", &format!("http://127.0.0.1:{agent}")]);
        let mut process = Process::spawn(command.args(more))?;
        let begun = Instant::now();
        while http::get(health, "/readyz").is_err() {
            process.check()?;
            if begun.elapsed() > TIMEOUT {
                bail!("REST does not become ready");
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { process, port })
    }
}

pub(crate) async fn measure(cluster: &Cluster, runs: u32) -> anyhow::Result<()> {
    let (core, other) = cores()?;
    cluster.clear().await?;
    let many = relay::AGENTS.into_iter().max().unwrap_or(1);
    // REST passes nothing on to an agent that has no Service, and the operator makes those.
    let manager = Manager::ready().await?;
    tokio::try_join!(cluster.create_agents(OPERATED, many), complete(cluster, OPERATED, many))?;
    drop(manager);
    let callers = Callers::prepare(cluster).await?;
    relay::measure(&core, &other, &callers, runs).await?;
    memory(&core, &path(0, "")).await?;
    lists::measure(cluster, &core, &other, &callers).await
}

/// Where an agent is asked.
fn path(agent: u32, below: &str) -> String {
    format!("/api/v1/agents/{}{below}", agent_name(agent))
}

/// What an open stream takes of REST.
async fn memory(core: &str, agent: &str) -> anyhow::Result<()> {
    table::part("REST: memory of open streams (resident); no authentication, no limits");
    let mut growth = Vec::new();
    for count in STREAMS {
        let (_agent, port) = streams::scripted(core)?;
        let rest = Rest::start(core, port, None).await?;
        http::post(rest.port, &format!("{agent}/chat"), WARM)?;
        let before = rest.process.resident()?;
        let (whole, peak) = streams::open(count, rest.port, &format!("{agent}/chat/stream"), || rest.process.resident()).await?;
        table::alone(&format!("{count} streams at once, ended well"), &whole.to_string(), "all");
        table::alone(&format!("{count} streams, each"), &format!("{:.1} KiB", (peak - before) / f64::from(count)), "");
        if whole < count {
            bail!("{} of {count} streams were dropped", count - whole);
        }
        growth.push((count, peak - before));
    }
    table::growth("growth of their memory", &growth);
    Ok(())
}

fn middle(all: &[Answered]) -> Answered {
    let of = |what: fn(&Answered) -> f64| median(&all.iter().map(what).collect::<Vec<_>>());
    Answered { rate: of(|one| one.rate), p50: of(|one| one.p50), p99: of(|one| one.p99) }
}

fn beside(what: &str, measured: f64, floor: f64, words: fn(f64) -> String, goal: &str) {
    table::beside(what, (&words(measured), measured), (&words(floor), floor), if goal.is_empty() { "none" } else { goal });
}

fn ms(seconds: f64) -> String {
    table::milliseconds(seconds)
}
