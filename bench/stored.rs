//! The runtime with PostgreSQL, which the default installation has: chats per second beside a client that commits as much
//! and does nothing else, and how much later a stream begins.

use std::process::Command;
use std::time::Instant;

use anyhow::Context;
use slipway_peers::Postgres;

use crate::load::{Answered, Load, SECONDS};
use crate::numbers::median;
use crate::start::cores;
use crate::streams::{first_byte, message};
use crate::{http, runtime, table};

const CONNECTIONS: [u32; 2] = [1, 16];
/// A turn is two transactions: what was asked, which the disk is not waited for, and what was answered.
const COMMITS: f64 = 2.0;
const STREAMS: u32 = 200;
const TABLE: &str = "CREATE TABLE IF NOT EXISTS written (id bigserial PRIMARY KEY, conversation text, content text)";
/// What a turn cannot do without: two rows and a commit.
const SCRIPT: &str = "BEGIN;
INSERT INTO written (conversation, content) VALUES ('conv_1', 'How do I get to the station?');
INSERT INTO written (conversation, content) VALUES ('conv_1', 'How do I get to the station?');
COMMIT;
";

pub(crate) fn measure(runs: u32) -> anyhow::Result<()> {
    let (core, other) = cores()?;
    let postgres = Postgres::durable();
    postgres.psql(TABLE);
    let (alone, unprepared, prepared) = (http::free_port()?, http::free_port()?, http::free_port()?);
    let url = postgres.url();
    let stored = [("RUNTIME_STORAGE", "postgresql"), ("RUNTIME_DATABASE_URL", &*url), ("RUNTIME_DATABASE_MIGRATE", "true")];
    let kept = [&stored[..], &[("RUNTIME_DATABASE_PREPARED_STATEMENTS", "true"), ("RUNTIME_AGENT_ID", "ag_2")]].concat();
    let _servers = [
        runtime::serve(alone, &core, &[])?,
        runtime::serve(unprepared, &core, &[&stored[..], &[("RUNTIME_AGENT_ID", "ag_1")]].concat())?,
        runtime::serve(prepared, &core, &kept)?,
    ];
    for port in [alone, unprepared, prepared] {
        runtime::first_chat(port, Instant::now())?;
    }
    table::part(&format!(
        "Runtime as in the default installation, with PostgreSQL: stub chats, runtime on one core, load from another, PostgreSQL on both; {SECONDS} s each"
    ));
    for connections in CONNECTIONS {
        let (mut floors, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..runs {
            floors.push(floor(&url, connections)?);
            with.push(chats(prepared, &other, connections)?);
            without.push(chats(unprepared, &other, connections)?);
        }
        let rate = |all: &[Answered]| COMMITS * median(&all.iter().map(|one| one.rate).collect::<Vec<_>>());
        let p50 = |all: &[Answered]| median(&all.iter().map(|one| one.p50).collect::<Vec<_>>());
        let committed = median(&floors);
        for (how, all, goals) in [("prepared", &with, [">= 0.5 x at 16", "<= 2 ms at 1"]), ("not prepared", &without, ["none", ""])] {
            let (what, measured) = (|of: &str| format!("{connections} connections, {of}, {how}"), rate(all));
            table::beside(&what("commits"), (&table::per_second(measured), measured), (&table::per_second(committed), committed), goals[0]);
            table::alone(&what("p50 of a chat"), &table::milliseconds(p50(all)), goals[1]);
        }
    }
    table::remark(
        "the floor is pgbench committing two inserts; a chat is two transactions, each with an insert, of which the disk is waited for once",
    );
    first_bytes(alone, prepared)
}

fn chats(port: u16, core: &str, connections: u32) -> anyhow::Result<Answered> {
    Load { port, core, connections, paths: "/chat", body: Some(runtime::CHAT), headers: "" }.run()
}

/// Commits per second.
fn floor(url: &str, connections: u32) -> anyhow::Result<f64> {
    let script = std::env::temp_dir().join(format!("slipway-bench-{}.sql", std::process::id()));
    std::fs::write(&script, SCRIPT)?;
    let mut command = Command::new(slipway_peers::root().join("postgresql/lib/18/bin/pgbench"));
    command.args(["--no-vacuum", "--client", &connections.to_string(), "--time", &SECONDS.to_string(), "--file"]);
    let output = command.arg(&script).arg(url).output().context("pgbench cannot be started")?;
    std::fs::remove_file(&script)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok());
    rate.with_context(|| format!("pgbench said {text}{}", String::from_utf8_lossy(&output.stderr)))
}

fn first_bytes(alone: u16, stored: u16) -> anyhow::Result<()> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..STREAMS {
        without.push(first_byte(alone, "/chat/stream", &message("one two three"), "")?);
        with.push(first_byte(stored, "/chat/stream", &message("one two three"), "")?);
    }
    let (measured, floor) = (median(&with), median(&without));
    table::beside(
        "first byte of a stream",
        (&table::milliseconds(measured), measured),
        (&table::milliseconds(floor), floor),
        "1 ms later at most",
    );
    table::remark("the floor is the same runtime without a database");
    Ok(())
}
