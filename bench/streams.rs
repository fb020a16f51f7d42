//! Streams of the runtime: tokens per second, many of them at once, and what passing a provider's
//! answer on costs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use slipway_peers::mock_llm;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;

use crate::numbers::median;
use crate::start::Process;
use crate::{http, runtime, table};

const TOKENS: u32 = 100_000;
const STREAMS: [u32; 2] = [250, 1000];
/// Four seconds of answer each, so that all of them are open at once.
const SLOW: &str = "sleep 40\ntokens 100";
const ASKED: u32 = 50;
const DONE: &[u8] = b"data: {\"type\":\"done\"";

pub(crate) fn measure(runs: u32, core: &str) -> anyhow::Result<()> {
    tokens(runs, core)?;
    many(core)?;
    overhead(core)
}

/// How fast one stream can be, beside a bare copy of as many bytes through the same loopback.
fn tokens(runs: u32, core: &str) -> anyhow::Result<()> {
    let (_server, port) = scripted(core)?;
    let mut rates = Vec::new();
    for _ in 0..runs {
        let begun = Instant::now();
        let answer = http::post(port, "/chat/stream", &message(&format!("tokens {TOKENS}")))?;
        let came = answer.matches("\"type\":\"token\"").count();
        if came < TOKENS as usize {
            bail!("of {TOKENS} tokens {came} came");
        }
        rates.push(f64::from(TOKENS) / begun.elapsed().as_secs_f64());
    }
    table::part("Runtime: streams, server on one core");
    table::alone("tokens per second, one stream", &table::per_second(median(&rates)), "");
    Ok(())
}

/// Many open streams at once: memory, and whether all of them end well.
fn many(core: &str) -> anyhow::Result<()> {
    let mut growth = Vec::new();
    for count in STREAMS {
        let (server, port) = scripted(core)?;
        http::post(port, "/chat", &message("tokens 1"))?;
        let before = server.resident()?;
        let clients = open(count, port, "/chat/stream", || server.resident());
        let (whole, peak) = block_in_place(|| Handle::current().block_on(clients))?;
        table::alone(&format!("{count} streams at once, ended well"), &whole.to_string(), "all");
        table::alone(&format!("{count} streams at once, memory"), &table::mebibytes(peak), "");
        if whole < count {
            bail!("{} of {count} streams were dropped", count - whole);
        }
        growth.push((count, peak - before));
    }
    table::growth("growth of their memory", &growth);
    Ok(())
}

/// Opens slow streams at once; how many of them ended well, and the most memory that was seen meanwhile.
pub(crate) async fn open(count: u32, port: u16, path: &str, resident: impl Fn() -> anyhow::Result<f64>) -> anyhow::Result<(u32, f64)> {
    let mut streams = JoinSet::new();
    for _ in 0..count {
        streams.spawn(stream(port, path.to_owned()));
    }
    let (mut whole, mut peak) = (0_u32, resident()?);
    while !streams.is_empty() {
        match timeout(Duration::from_millis(100), streams.join_next()).await {
            Ok(Some(ended)) => whole += u32::from(ended.is_ok_and(|ended| ended.is_ok())),
            Ok(None) => break,
            Err(_) => peak = resident()?.max(peak),
        }
    }
    Ok((whole, peak))
}

async fn stream(port: u16, path: String) -> anyhow::Result<()> {
    let mut connection = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let body = message(SLOW);
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n");
    connection.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await?;
    let done = answer.windows(DONE.len()).any(|window| window == DONE);
    if done { Ok(()) } else { bail!("a stream ended early") }
}

/// The time to a provider's whole answer through the agent, beside the same request straight to it. The
/// provider is another party's server on this machine.
fn overhead(core: &str) -> anyhow::Result<()> {
    let provider = mock_llm("{}");
    let port = http::free_port()?;
    let base = format!("{}/v1", provider.url());
    let variables =
        [("RUNTIME_MODEL_TYPE", "openai"), ("RUNTIME_MODEL_ID", "mock"), ("OPENAI_BASE_URL", &base), ("OPENAI_API_KEY", "none")];
    let _agent = runtime::serve(port, core, &variables)?;
    runtime::first_chat(port, Instant::now())?;
    let direct = provider.url().rsplit(':').next().and_then(|port| port.parse().ok()).context("the provider's port")?;
    let asked = r#"{"model": "mock", "stream": true, "messages": [{"role": "user", "content": "How do I get to the station?"}]}"#;
    let (mut through, mut straight) = (Vec::new(), Vec::new());
    for _ in 0..ASKED {
        straight.push(first_byte(direct, "/v1/chat/completions", asked, "authorization: Bearer none")?);
        through.push(first_byte(port, "/chat/stream", &message("How do I get to the station?"), "")?);
    }
    let (measured, floor) = (median(&through), median(&straight));
    table::beside(
        "first byte of a provider's answer",
        (&table::milliseconds(measured), measured),
        (&table::milliseconds(floor), floor),
        "",
    );
    table::remark(&format!("the floor is the provider itself; the agent adds {}", table::milliseconds(measured - floor)));
    Ok(())
}

/// Seconds until the first `data:` line. Headers are `name: value`, one a line.
pub(crate) fn first_byte(port: u16, path: &str, json: &str, headers: &str) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n");
    let more: String = headers.lines().map(|header| [header, "\r\n"].concat()).collect();
    write!(stream, "{head}{more}content-length: {}\r\n\r\n{json}", json.len())?;
    let mut answer = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            bail!("no answer: {}", String::from_utf8_lossy(&answer));
        }
        answer.extend_from_slice(&chunk[..read]);
        if answer.windows(6).any(|window| window == b"data: ") {
            return Ok(begun.elapsed().as_secs_f64());
        }
    }
}

pub(crate) fn scripted(core: &str) -> anyhow::Result<(Process, u16)> {
    let port = http::free_port()?;
    let server = runtime::serve(port, core, &[("RUNTIME_MODEL_ID", "stub-script")])?;
    runtime::wait(port, Instant::now())?;
    Ok((server, port))
}

pub(crate) fn message(text: &str) -> String {
    serde_json::json!({"message": text}).to_string()
}
