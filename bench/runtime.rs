//! The runtime on one core: memory, start to first answer, and chats per second.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::bail;

use crate::load::{Load, SECONDS};
use crate::numbers::median;
use crate::start::{Process, command, cores, pinned};
use crate::{http, streams, table};

pub(crate) const CHAT: &str = r#"{"message": "How do I get to the station?"}"#;
const STARTS: u32 = 20;
const CONNECTIONS: [u32; 3] = [1, 16, 64];

pub(crate) fn measure(runs: u32) -> anyhow::Result<()> {
    let (core, other) = cores()?;
    start()?;
    let port = http::free_port()?;
    let runtime = serve(port, &core, &[])?;
    first_chat(port, Instant::now())?;
    let idle = runtime.resident()?;
    table::part(&format!("Runtime without a database: stub chats per second, server on one core, load from another; {SECONDS} s each"));
    let mut growth = Vec::new();
    for connections in CONNECTIONS {
        let (mut chats, mut probes) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            chats.push(load(port, &other, connections, Some(CHAT))?);
            probes.push(load(port, &other, connections, None)?);
        }
        let rate = |results: &[(f64, f64)]| median(&results.iter().map(|(rate, _)| *rate).collect::<Vec<_>>());
        let slowest = |results: &[(f64, f64)]| median(&results.iter().map(|(_, p99)| *p99).collect::<Vec<_>>());
        let (measured, floor) = (rate(&chats), rate(&probes));
        let goal = |text| if connections == 16 { text } else { "none" };
        let what = |what: &str| format!("{connections} connections, {what}");
        table::beside(
            &what("chats"),
            (&table::per_second(measured), measured),
            (&table::per_second(floor), floor),
            goal(">= 10000/s, 0.50 x"),
        );
        let (measured, floor) = (slowest(&chats), slowest(&probes));
        table::beside(&what("p99"), (&table::milliseconds(measured), measured), (&table::milliseconds(floor), floor), goal("< 5 ms"));
        growth.push((connections, rate(&chats)));
    }
    table::growth("growth of chats per second", &growth[1..]);
    table::remark("the floor is the same server answering GET /healthz");
    table::part("Runtime: memory (resident)");
    table::alone("idle, after one chat", &table::mebibytes(idle), "<= 12 MB");
    table::alone("after the load", &table::mebibytes(runtime.resident()?), "");
    drop(runtime);
    streams::measure(runs, &core)
}

/// From nothing to an answered chat, beside a process that starts and says its version.
fn start() -> anyhow::Result<()> {
    let (mut answered, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        let begun = Instant::now();
        let status = command("slipway-runtime")?.arg("--version").status()?;
        if !status.success() {
            bail!("slipway-runtime --version: {status}");
        }
        bare.push(begun.elapsed().as_secs_f64());
        let port = http::free_port()?;
        let begun = Instant::now();
        let mut command = command("slipway-runtime")?;
        let _runtime = Process::spawn(environment(&mut command, port))?;
        answered.push(first_chat(port, begun)?);
    }
    table::part(&format!("Runtime: start to first answered chat, median of {STARTS}"));
    let (measured, floor) = (median(&answered), median(&bare));
    table::beside("first chat", (&table::milliseconds(measured), measured), (&table::milliseconds(floor), floor), "<= 100 ms");
    table::remark("the floor is the same program started to say its version");
    Ok(())
}

fn environment(command: &mut Command, port: u16) -> &mut Command {
    command.env("RUNTIME_PORT", port.to_string()).env("RUNTIME_LOG_LEVEL", "error").stderr(Stdio::null())
}

pub(crate) fn serve(port: u16, core: &str, variables: &[(&str, &str)]) -> anyhow::Result<Process> {
    Process::spawn(environment(&mut pinned("slipway-runtime", core)?, port).envs(variables.iter().copied()))
}

/// Asks until there is an answer; the seconds since `begun`.
pub(crate) fn first_chat(port: u16, begun: Instant) -> anyhow::Result<f64> {
    first(begun, || http::post(port, "/chat", CHAT))
}

/// Waits until it serves.
pub(crate) fn wait(port: u16, begun: Instant) -> anyhow::Result<f64> {
    first(begun, || http::get(port, "/healthz"))
}

fn first(begun: Instant, ask: impl Fn() -> std::io::Result<String>) -> anyhow::Result<f64> {
    while begun.elapsed() < Duration::from_secs(20) {
        match ask() {
            Ok(_) => return Ok(begun.elapsed().as_secs_f64()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the runtime does not answer")
}

/// Requests per second and the 99th percentile of their latency in seconds.
fn load(port: u16, core: &str, connections: u32, chat: Option<&str>) -> anyhow::Result<(f64, f64)> {
    let path = if chat.is_some() { "/chat" } else { "/healthz" };
    let answered = Load { port, core, connections, paths: path, body: chat, headers: "" }.run()?;
    Ok((answered.rate, answered.p99))
}
