//! Chats that REST passes on, beside nginx before the same agent and beside the agent itself.

use std::time::Instant;

use slipway_api::contract::ACCESS_PUBLIC_KEY;
use slipway_api::ids;
use slipway_peers::Postgres;

use super::{Callers, Rest, beside, block_in_place, middle, ms, path};
use crate::cluster::{OPERATED, agent_name};
use crate::load::{Load, SECONDS};
use crate::nginx::Nginx;
use crate::numbers::percentile;
use crate::start::Process;
use crate::{http, runtime, streams, table};

const CHAT: &str = r#"{"message": "How do I get to the station?"}"#;
const CONNECTIONS: [u32; 2] = [1, 16];
/// Among how many agents chats go round.
pub(super) const AGENTS: [u32; 3] = [1, 100, 1_000];
/// How many streams are begun to see how soon their first byte comes.
const BEGUN: u32 = 500;

/// An agent, with nginx and REST before it.
struct Setting<'a> {
    name: &'a str,
    agent: &'a Agent,
    rest: &'a Rest,
    /// Those of the caller.
    headers: &'a str,
}

struct Agent {
    _process: Process,
    port: u16,
    nginx: Nginx,
}

impl Agent {
    /// The runtime shares its core with the load: what is measured has the other one for itself.
    fn start(core: &str, other: &str, variables: &[(&str, &str)]) -> anyhow::Result<Self> {
        let port = http::free_port()?;
        let process = runtime::serve(port, other, &[&[("RUNTIME_MODEL_ID", "stub-echo")], variables].concat())?;
        runtime::wait(port, Instant::now())?;
        Ok(Self { _process: process, port, nginx: Nginx::start(core, &path(0, ""), port)? })
    }
}

pub(super) async fn measure(core: &str, load: &str, callers: &Callers, runs: u32) -> anyhow::Result<()> {
    let postgres = Postgres::durable();
    let (id, url) = (ids::agent(OPERATED, &agent_name(0)), postgres.url());
    // It looks at what says that a call is meant for it, as agents of an installation do.
    let own = [("RUNTIME_AGENT_ID", id.as_str()), (ACCESS_PUBLIC_KEY, &callers.public_key)];
    let database = [("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_DATABASE_URL", url.as_str()), ("RUNTIME_DATABASE_MIGRATE", "true")];
    let stored = Agent::start(core, load, &[&own[..], &database].concat())?;
    let alone = Agent::start(core, load, &own)?;
    let any = Agent::start(core, load, &[])?;
    let before_stored = Rest::start(core, stored.port, Some(callers)).await?;
    let before_alone = Rest::start(core, alone.port, Some(callers)).await?;
    let before_any = Rest::start(core, any.port, Some(callers)).await?;
    let open = Rest::start(core, any.port, None).await?;
    let of = |name, agent, rest, headers| Setting { name, agent, rest, headers };
    let settings = [
        of("as installed: PostgreSQL, a token of the cluster, reviews, limits", &stored, &before_stored, &callers.account),
        of("no database; a token of the cluster, reviews, limits", &alone, &before_alone, &callers.account),
        of("no database; a token of the issuer, reviews, limits", &alone, &before_alone, &callers.person),
        of("no database, no authentication, no limits", &any, &open, ""),
    ];
    block_in_place(|| {
        table::remark(&format!("REST and nginx are on one core, agent and load on the other; {SECONDS} s each"));
        settings.iter().try_for_each(|setting| chats(load, setting, runs))?;
        by_agents(load, &of("", &any, &before_any, &callers.account), runs)?;
        let [installed, account, _, open] = &settings;
        [installed, account, open].into_iter().try_for_each(first_bytes)
    })
}

fn chats(load: &str, setting: &Setting<'_>, runs: u32) -> anyhow::Result<()> {
    let Setting { name, agent, rest, headers } = setting;
    table::part(&format!("REST: chats passed on, {name}"));
    let through = path(0, "/chat");
    for connections in CONNECTIONS {
        let ask = |port, paths: &str| Load { port, core: load, connections, paths, body: Some(CHAT), headers }.run();
        let (mut straight, mut plain, mut ours) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..runs {
            straight.push(ask(agent.port, "/chat")?);
            plain.push(ask(agent.nginx.port, &through)?);
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
    Ok(())
}

/// One process answers for all agents, so that what grows is REST's.
fn by_agents(load: &str, setting: &Setting<'_>, runs: u32) -> anyhow::Result<()> {
    let Setting { agent, rest, headers, .. } = setting;
    table::part("REST: chats by how many agents they go to in turn; no database; a token of the cluster, reviews, limits; 16 connections");
    for count in AGENTS {
        let paths: Vec<String> = (0..count).map(|agent| path(agent, "/chat")).collect();
        let paths = paths.join("\n");
        let ask = |port| Load { port, core: load, connections: 16, paths: &paths, body: Some(CHAT), headers }.run();
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            plain.push(ask(agent.nginx.port)?);
            ours.push(ask(rest.port)?);
        }
        let (plain, ours) = (middle(&plain), middle(&ours));
        beside(&format!("{count} agents, chats, beside nginx"), ours.rate, plain.rate, table::per_second, "");
        beside(&format!("{count} agents, p99, beside nginx"), ours.p99, plain.p99, table::milliseconds, "");
    }
    Ok(())
}

fn first_bytes(setting: &Setting<'_>) -> anyhow::Result<()> {
    let Setting { name, agent, rest, headers } = setting;
    table::part(&format!("REST: first byte of a stream, each on a connection of its own, {name}"));
    let through = path(0, "/chat/stream");
    let (mut straight, mut plain, mut ours) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..BEGUN {
        straight.push(streams::first_byte(agent.port, "/chat/stream", CHAT, headers)?);
        plain.push(streams::first_byte(agent.nginx.port, &through, CHAT, headers)?);
        ours.push(streams::first_byte(rest.port, &through, CHAT, headers)?);
    }
    for percent in [50, 99] {
        let at = |values: &[f64]| percentile(values, percent);
        beside(&format!("p{percent}, beside nginx"), at(&ours), at(&plain), table::milliseconds, "");
        let goal = if percent == 99 { "<= 0.5 ms" } else { "" };
        table::alone(&format!("p{percent} added to direct"), &table::milliseconds(at(&ours) - at(&straight)), goal);
    }
    Ok(())
}
