//! REST: what passing chats on costs beside asking the agent itself and beside nginx in between; and lists and single
//! agents by how many there are.

use std::time::{Duration, Instant};

use anyhow::bail;
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::cluster::{Cluster, OPERATED, agent_name};
use crate::load::{Answered, Load, SECONDS};
use crate::nginx::Nginx;
use crate::numbers::{median, percentile};
use crate::start::{Process, cores, pinned};
use crate::{http, runtime, streams, table};

const CHAT: &str = r#"{"message": "How do I get to the station?"}"#;
/// The agents whose streams are slow do what a message says.
const WARM: &str = r#"{"message": "tokens 1"}"#;
const SIZES: [u32; 2] = [1_000, 10_000];
const CONNECTIONS: [u32; 2] = [1, 16];
/// How many streams are begun to see how soon their first byte comes.
const BEGUN: u32 = 500;
const STREAMS: [u32; 2] = [250, 1000];
const PATIENCE: Duration = Duration::from_mins(2);
const UNLIMITED: &str = r#"{"team":{"atOnce":0,"perSecond":0,"burst":0},"agent":{"atOnce":0,"perSecond":0,"burst":0},"listeners":0}"#;

struct Rest {
    process: Process,
    port: u16,
}

impl Rest {
    /// On one core, with the agent at `agent` in the place of all.
    async fn start(core: &str, agent: u16) -> anyhow::Result<Self> {
        let (port, health) = (http::free_port()?, http::free_port()?);
        let mut command = pinned("slipway-manager", core)?;
        command.args([
            "--role",
            "rest",
            "--log",
            "error",
            "--auth-enabled",
            "false",
            "--default-namespace",
            OPERATED,
            "--limits",
            UNLIMITED,
        ]);
        command.args(["--listen", &format!("127.0.0.1:{health}"), "--api-listen", &format!("127.0.0.1:{port}")]);
        command.args(["--agent-address", &format!("http://127.0.0.1:{agent}")]);
        let mut process = Process::spawn(&mut command)?;
        let begun = Instant::now();
        while http::get(health, "/readyz").is_err() {
            process.check()?;
            if begun.elapsed() > PATIENCE {
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
    cluster.create_agents(OPERATED, 1).await?;
    let port = http::free_port()?;
    // The runtime shares its core with the load: what is measured has the other one for itself.
    let _agent = runtime::serve(port, &other, &[("RUNTIME_MODEL_ID", "stub-echo")])?;
    runtime::wait(port, Instant::now())?;
    let prefix = format!("/api/v1/agents/{}", agent_name(0));
    let nginx = Nginx::start(&core, &prefix, port)?;
    let rest = Rest::start(&core, port).await?;
    block_in_place(|| relay(&other, port, &nginx, &rest, &prefix, runs))?;
    drop(nginx);
    memory(&core, &prefix).await?;
    lists(cluster, &core, &other, port).await
}

fn relay(load: &str, direct: u16, nginx: &Nginx, rest: &Rest, prefix: &str, runs: u32) -> anyhow::Result<()> {
    table::part(&format!("REST: chats passed on, REST and nginx on one core, agent and load on the other; {SECONDS} s each"));
    let through = format!("{prefix}/chat");
    for connections in CONNECTIONS {
        let ask = |port, path: &str| Load { port, core: load, connections, path, body: Some(CHAT) }.run();
        let (mut straight, mut plain, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..runs {
            straight.push(ask(direct, "/chat")?);
            plain.push(ask(nginx.port, &through)?);
            ours.push(ask(rest.port, &through)?);
        }
        let what = |what: &str| format!("{connections} connections, {what}");
        let (straight, plain, ours) = (middle(&straight), middle(&plain), middle(&ours));
        beside(&what("chats, beside nginx"), ours.rate, plain.rate, table::per_second, ">= nginx");
        beside(&what("p50, beside nginx"), ours.p50, plain.p50, table::milliseconds, "");
        beside(&what("p99, beside nginx"), ours.p99, plain.p99, table::milliseconds, "");
        let goal = if connections == 1 { "<= 0.5 ms" } else { "" };
        table::alone(&what("p99 added to direct"), &table::milliseconds(ours.p99 - straight.p99), goal);
        let direct = format!("{}, p50 {}, p99 {}", table::per_second(straight.rate), ms(straight.p50), ms(straight.p99));
        table::remark(&format!("direct: {direct}; nginx adds {} to its p99", ms(plain.p99 - straight.p99)));
    }
    table::part("REST: first byte of a stream, each on a connection of its own");
    let (mut straight, mut plain, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BEGUN {
        straight.push(streams::first_byte(direct, "/chat/stream", CHAT)?);
        plain.push(streams::first_byte(nginx.port, &format!("{prefix}/chat/stream"), CHAT)?);
        ours.push(streams::first_byte(rest.port, &format!("{prefix}/chat/stream"), CHAT)?);
    }
    for percent in [50, 99] {
        let at = |values: &[f64]| percentile(values, percent);
        beside(&format!("p{percent}, beside nginx"), at(&ours), at(&plain), table::milliseconds, "");
        let goal = if percent == 99 { "<= 0.5 ms" } else { "" };
        table::alone(&format!("p{percent} added to direct"), &table::milliseconds(at(&ours) - at(&straight)), goal);
    }
    Ok(())
}

/// What an open stream takes of REST.
async fn memory(core: &str, prefix: &str) -> anyhow::Result<()> {
    table::part("REST: memory of open streams (resident)");
    let mut growth = Vec::new();
    for count in STREAMS {
        let (_agent, port) = streams::scripted(core)?;
        let rest = Rest::start(core, port).await?;
        http::post(rest.port, &format!("{prefix}/chat"), WARM)?;
        let before = rest.process.resident()?;
        let (whole, peak) = streams::open(count, rest.port, &format!("{prefix}/chat/stream"), || rest.process.resident()).await?;
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

/// Lists of 100 and single agents; the floor is the same server answering GET /healthz.
async fn lists(cluster: &Cluster, core: &str, load: &str, agent: u16) -> anyhow::Result<()> {
    let mut growth = Vec::new();
    for size in SIZES {
        cluster.clear().await?;
        cluster.create_agents(OPERATED, size).await?;
        let rest = Rest::start(core, agent).await?;
        table::part(&format!("REST: {size} agents, 16 connections; {SECONDS} s each"));
        let one = format!("/api/v1/agents/{}", agent_name(size / 2));
        let ask = |path: &str| block_in_place(|| Load { port: rest.port, core: load, connections: 16, path, body: None }.run());
        let floor = ask("/healthz")?;
        for (what, path) in [("list", "/api/v1/agents?limit=100"), ("search", "/api/v1/agents?limit=100&search=999"), ("one", &one)] {
            let answered = ask(path)?;
            beside(&format!("{what}, per second"), answered.rate, floor.rate, table::per_second, "");
            table::alone(&format!("{what}, p50 and p99"), &format!("{}, {}", ms(answered.p50), ms(answered.p99)), "");
            if what == "list" {
                growth.push((size, answered.p50));
            }
        }
        table::alone("memory (resident)", &table::mebibytes(rest.process.resident()?), "");
    }
    table::growth("growth of a list's p50", &growth);
    table::remark("the floor is the same server answering GET /healthz; one agent is read from the API server");
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
