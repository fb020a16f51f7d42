//! More clients than the server's memory holds: silent connections are evicted, no caller gets more than its share, and the
//! health endpoint answers throughout.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by panicking")]

use std::net::SocketAddr;
use std::time::Duration;

use slipway_http::{CONNECTION_BYTES, Error, Event, HEAD_BYTES, Holder, MemoryPlan, Reply, Request, ServerLimits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep, timeout};

const MIB: u64 = 1024 * 1024;
/// Memory for 56 connections, a quarter of a mebibyte of heads, and two of work.
const LIMITS: fn() -> ServerLimits = || ServerLimits { memory: 4 * MIB, requires_authentication: true, ..ServerLimits::default() };

async fn start(limits: ServerLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, limits, answer, std::future::pending()));
    address
}

/// The caller is the header X-Caller.
async fn answer(request: Request) -> Result<Reply, Error> {
    if request.path() == "/healthz" {
        return Ok(Reply::text("ok"));
    }
    let caller = request.headers().get("x-caller").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    request.slot().authenticated(Holder::new(&caller, None))?;
    match request.path() {
        "/body" => Reply::json(&request.bytes(usize::try_from(MIB).unwrap()).await?.len()),
        "/json" => Reply::json(&request.json::<serde_json::Value>().await?.is_array()),
        "/large" => Ok(Reply::text("x".repeat(2 * 1024 * 1024))),
        "/events" => Ok(Reply::events(futures::stream::pending::<Event>())),
        _ => Ok(Reply::text("hello")),
    }
}

async fn send(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The connection may be evicted during the write.
    let _ = stream.write_all(text.as_bytes()).await;
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await.unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn get(address: SocketAddr, path: &str, caller: &str) -> String {
    rest(send(address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-caller: {caller}\r\nconnection: close\r\n\r\n")).await).await
}

/// The head of an answer on a connection that stays open.
async fn begun(stream: &mut TcpStream) -> String {
    let mut head = vec![0; 1024];
    let read = timeout(Duration::from_secs(20), stream.read(&mut head)).await.unwrap().unwrap();
    String::from_utf8_lossy(&head[..read]).into_owned()
}

#[tokio::test]
async fn connections_with_half_a_head_are_evicted() {
    let address = start(LIMITS()).await;
    let connections = MemoryPlan::of(4 * MIB).connections;
    assert!(connections as u64 * CONNECTION_BYTES <= 2 * MIB, "{connections}");
    let mut halves = Vec::new();
    for _ in 0..4 * connections {
        halves.push(send(address, "GET / HTTP/1.1\r\nhost: a\r\nx: ").await);
        if halves.len() % 50 == 0 {
            assert!(get(address, "/healthz", "").await.ends_with("ok"), "after {}", halves.len());
        }
    }
    let mut gone = 0;
    for half in &mut halves {
        gone += usize::from(matches!(timeout(Duration::from_millis(1), half.read(&mut [0; 16])).await, Ok(Ok(0) | Err(_))));
    }
    assert!(gone >= 3 * connections, "{gone} of {} have gone", halves.len());
    assert!(get(address, "/", "a").await.ends_with("hello"));
}

#[tokio::test]
async fn the_address_with_most_connections_is_evicted_first() {
    let address = start(LIMITS()).await;
    let mut patient = send(address, "GET / HTTP/1.1\r\nhost: a\r\n").await;
    let mut flood = Vec::new();
    for _ in 0..4 * MemoryPlan::of(4 * MIB).connections {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        flood.push(socket.connect(address).await.unwrap());
    }
    assert!(get(address, "/healthz", "").await.ends_with("ok"));
    patient.write_all(b"x-caller: a\r\n\r\n").await.unwrap();
    assert!(begun(&mut patient).await.contains("hello"), "it was there first, and from elsewhere");
}

#[tokio::test]
async fn health_answers_while_callers_hold_all_their_connections() {
    let address = start(ServerLimits { memory: 16 * MIB, connections: 64, ..LIMITS() }).await;
    let (mut held, mut open) = (Vec::new(), 0);
    for at in 0..100 {
        let caller = format!("caller-{}", at % 10);
        let mut stream = send(address, &format!("GET /events HTTP/1.1\r\nhost: a\r\nx-caller: {caller}\r\n\r\n")).await;
        open += usize::from(begun(&mut stream).await.starts_with("HTTP/1.1 200"));
        held.push(stream);
    }
    assert!((40..=56).contains(&open), "{open} of 64; an eighth is never given to callers");
    let refused = get(address, "/", "another").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after: 1"), "{refused}");
    assert!(get(address, "/healthz", "").await.ends_with("ok"));
}

#[tokio::test]
async fn a_silent_unauthenticated_connection_times_out_early() {
    let address = start(ServerLimits { unauthenticated_timeout: Duration::from_secs(1), ..LIMITS() }).await;
    let begin = Instant::now();
    let mut caller = send(address, "GET / HTTP/1.1\r\nhost: a\r\nx-caller: a\r\n\r\n").await;
    assert!(begun(&mut caller).await.contains("hello"));
    rest(send(address, "").await).await;
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    sleep(Duration::from_secs(1)).await;
    caller.write_all(b"GET /again HTTP/1.1\r\nhost: a\r\nx-caller: a\r\n\r\n").await.unwrap();
    assert!(begun(&mut caller).await.contains("hello"));
}

#[tokio::test]
async fn long_heads_have_a_budget_and_the_oldest_is_evicted() {
    let address = start(LIMITS()).await;
    let places = MemoryPlan::of(4 * MIB).heads / HEAD_BYTES;
    let long = format!("GET / HTTP/1.1\r\nhost: a\r\nx-caller: a\r\nx: {}", "x".repeat(20_000));
    let mut halves = Vec::new();
    for _ in 0..=places {
        let half = send(address, &long).await;
        sleep(Duration::from_millis(50)).await;
        halves.push(half);
    }
    let mut first = halves.remove(0);
    assert!(matches!(timeout(Duration::from_secs(5), first.read(&mut [0; 16])).await.unwrap(), Ok(0) | Err(_)));
    let mut last = halves.pop().unwrap();
    last.write_all(b"\r\n\r\n").await.unwrap();
    assert!(begun(&mut last).await.contains("hello"));
}

#[tokio::test]
async fn bodies_of_one_caller_leave_room_for_those_of_others() {
    let address = start(LIMITS()).await;
    let begin = |caller: &str| {
        format!("POST /body HTTP/1.1\r\nhost: a\r\nx-caller: {caller}\r\nconnection: close\r\ncontent-length: 102400\r\n\r\n")
    };
    let (most, rest_of_it) = ("x".repeat(102_399), "x");
    let mut unfinished = Vec::new();
    for _ in 0..20 {
        unfinished.push(send(address, &format!("{}{most}", begin("greedy"))).await);
    }
    sleep(Duration::from_millis(300)).await;
    let other = rest(send(address, &format!("{}{most}{rest_of_it}", begin("other"))).await).await;
    assert!(other.starts_with("HTTP/1.1 200"), "{other}");
    let mut refused = 0;
    for mut stream in unfinished {
        let _ = stream.write_all(rest_of_it.as_bytes()).await;
        let answer = rest(stream).await;
        let is_refusal = answer.starts_with("HTTP/1.1 429") && answer.contains("retry-after: 1");
        assert!(is_refusal || answer.starts_with("HTTP/1.1 200"), "{answer}");
        refused += usize::from(is_refusal);
    }
    assert!((12..20).contains(&refused), "{refused}: a caller's share is five of these");
    let after = rest(send(address, &format!("{}{most}{rest_of_it}", begin("greedy"))).await).await;
    assert!(after.starts_with("HTTP/1.1 200"), "what was refused or answered is given back: {after}");
}

#[tokio::test]
async fn a_short_body_of_too_many_values_is_too_large() {
    let address = start(LIMITS()).await;
    for (values, status) in [(1000, "200"), (100_000, "413")] {
        let body = format!("[{}0]", "0,".repeat(values));
        let head = format!("POST /json HTTP/1.1\r\nhost: a\r\nx-caller: a\r\nconnection: close\r\ncontent-length: {}", body.len());
        let answer = rest(send(address, &format!("{head}\r\ncontent-type: application/json\r\n\r\n{body}")).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{values}: {answer}");
    }
}

#[tokio::test]
async fn unread_streams_and_answers_are_charged() {
    let ask = |path: &str, caller: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-caller: {caller}\r\n\r\n");
    for (path, memory) in [("/events", 4 * MIB), ("/large", 64 * MIB)] {
        let address = start(ServerLimits { memory, ..LIMITS() }).await;
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..12 {
            let mut stream = send(address, &ask(path, "greedy")).await;
            refused += usize::from(begun(&mut stream).await.starts_with("HTTP/1.1 429"));
            held.push(stream);
        }
        assert!((1..12).contains(&refused), "{path}: {refused}");
        let mut other = send(address, &ask(path, "other")).await;
        assert!(begun(&mut other).await.starts_with("HTTP/1.1 200"), "{path}");
        drop(held);
        sleep(Duration::from_millis(200)).await;
        let mut again = send(address, &ask(path, "greedy")).await;
        assert!(begun(&mut again).await.starts_with("HTTP/1.1 200"), "{path}: what ended is given back");
    }
}
