//! A test through REST beside the same server asked directly: REST annotates the Integration, the operator reads its Secret and sends it
//! to the team's worker, which connects; then it writes the status, for which REST waits.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use super::{Integrations, beside};
use crate::numbers::percentile;
use crate::rest::Rest;
use crate::{http, table};

/// In turn, since the operator leaves a second between two tests of one.
const INTEGRATIONS: usize = 20;
const PAUSE: Duration = Duration::from_millis(1_200);
const TESTS: usize = 200;
const QUERY: &str = "/api/v1/query?query=vector(1)";

pub(super) async fn measure(bench: &Integrations<'_>, core: &str) -> anyhow::Result<()> {
    let server = slipway_peers::Prometheus::start(&[], &[]);
    let url = server.url();
    let port = url.rsplit(':').next().and_then(|port| port.parse().ok()).context("the server's URL has a port")?;
    let names: Vec<String> = (0..INTEGRATIONS).map(|nth| format!("metrics-{nth:02}")).collect();
    for name in &names {
        bench.apply(name, &json!({"prometheus": {"url": url}}), Some(("token", "the-token-of-a-bench"))).await?;
    }
    bench.connected(&names).await?;
    let rest = Rest::start(core, 1, None).await?;
    let (through, direct) = block_in_place(|| ask(&names, rest.port, port))?;
    table::part(&format!(
        "Integrations: a test of a Prometheus server by POST /integrations/{{id}}/test, {TESTS} one after the other; no authentication, no limits, REST on one core"
    ));
    for (percent, goal) in [(50, "<= 60 ms"), (95, "<= 150 ms")] {
        let (measured, floor) = (percentile(&through, percent), percentile(&direct, percent));
        beside(&format!("p{percent}"), measured, floor, "none");
        table::alone(&format!("p{percent}, added"), &table::milliseconds(measured - floor), goal);
    }
    table::remark("the floor is the server's answer to the same query, each on a connection of its own");
    Ok(())
}

/// Seconds of each test, and of asking the server itself.
fn ask(names: &[String], rest: u16, server: u16) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut through, mut direct) = (Vec::new(), Vec::new());
    let mut last: Vec<Option<Instant>> = vec![None; names.len()];
    for nth in 0..TESTS {
        let place = nth % names.len();
        let rests = last[place].map_or(Duration::ZERO, |last| PAUSE.saturating_sub(last.elapsed()));
        std::thread::sleep(rests);
        let begun = Instant::now();
        http::get(server, QUERY)?;
        direct.push(begun.elapsed().as_secs_f64());
        let path = format!("/api/v1/integrations/{}/test", names[place]);
        let begun = Instant::now();
        let answer = http::call(rest, "POST", &path, "accept: application/json", None, 200)?;
        through.push(begun.elapsed().as_secs_f64());
        last[place] = Some(Instant::now());
        let answer: Value = serde_json::from_str(&answer)?;
        if answer["data"]["status"] != "connected" {
            bail!("{}: {answer}", names[place]);
        }
    }
    Ok((through, direct))
}
