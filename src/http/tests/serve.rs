//! The server over a real socket: panics of handlers, slow clients, and shutdown.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test says what went wrong by panicking")]

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::StreamBody;
use hyper::body::Frame;
use slipway_http::{Drained, Error, Event, LINGER, Reply, Request, ServerLimits, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Drained>,
}

async fn start(limits: ServerLimits) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(serve(listener, limits, answer, async { drop(stopped.await) }));
    Server { address, stop, task }
}

async fn answer(request: Request) -> Result<Reply, Error> {
    match request.path() {
        "/panic" => panic!("hunter2"),
        "/body" => Reply::json(&request.bytes(10).await?.len()),
        "/slow" => {
            let events = stream::unfold(0, async |n| {
                sleep(Duration::from_millis(50)).await;
                (n < 4).then(|| (Event::json(&n).unwrap(), n + 1))
            });
            Ok(Reply::events(events))
        }
        "/broken" => {
            let frames = stream::iter([Ok(Frame::data(Bytes::from("so far"))), Err("it went away")]);
            Ok(Reply::stream("text/plain", StreamBody::new(frames)))
        }
        "/forever" => Ok(Reply::events(stream::pending())),
        path if path.starts_with("/gate/") => Err(Error::internal("the gate is stuck")),
        _ => Ok(Reply::text("ok")),
    }
}

async fn send(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// All bytes until the server closes the connection.
async fn rest(mut stream: TcpStream) -> String {
    let mut text = String::new();
    timeout(Duration::from_secs(10), stream.read_to_string(&mut text)).await.unwrap().unwrap();
    text
}

async fn get(address: SocketAddr, path: &str) -> String {
    rest(send(address, &format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")).await).await
}

#[tokio::test]
async fn a_panic_fails_one_request_and_is_not_shown() {
    let server = start(ServerLimits::default()).await;
    let answer = get(server.address, "/panic").await;
    assert!(answer.starts_with("HTTP/1.1 500"), "{answer}");
    assert!(answer.contains(r#""error":"Internal Server Error""#) && answer.contains(r#""path":"/panic""#), "{answer}");
    assert!(answer.contains("x-request-id: req_") && !answer.contains("hunter2"), "{answer}");
    assert!(get(server.address, "/").await.starts_with("HTTP/1.1 200"));
}

/// What is logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The server runs on the thread of the test, which alone has this log.
#[tokio::test]
async fn a_secret_in_a_path_is_in_no_log_line_and_no_error() {
    let lines = Lines::default();
    let writer = lines.clone();
    // With one subscriber alone, a line that a thread without it meets first is off for all threads; another test might be that thread.
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().with_max_level(tracing::level_filters::LevelFilter::OFF).finish());
    let log = tracing_subscriber::fmt().with_max_level(tracing::Level::DEBUG).with_writer(move || writer.clone()).finish();
    let logging = tracing::subscriber::set_default(log);
    let server = start(ServerLimits { secret_paths: &["/gate/"], ..ServerLimits::default() }).await;
    for (path, status, shown) in [
        ("/gate/hunter2".to_owned(), 500, "/gate/…"),
        ("/elsewhere/gate/hunter2?hunter2=hunter2".to_owned(), 200, "/elsewhere/gate/…"),
        (format!("/gate/{}", "hunter2".repeat(1300)), 414, "/gate/…"),
        ("/panic".to_owned(), 500, "/panic"),
    ] {
        let answer = get(server.address, &path).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        assert!(status == 200 || body.contains(&format!(r#""path":"{shown}""#)), "{body}");
        assert!(path == "/panic" || !answer.contains("hunter2"), "{answer}");
    }
    drop(logging);
    let told = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(told.contains("/elsewhere/gate/…") && told.contains("the gate is stuck"), "{told}");
    assert_eq!(told.matches("hunter2").count(), 1, "the panic's own words alone: {told}");
}

#[tokio::test]
async fn a_url_or_headers_that_are_too_long_are_refused() {
    let server = start(ServerLimits::default()).await;
    let long = get(server.address, &format!("/{}", "a".repeat(9000))).await;
    assert!(long.starts_with("HTTP/1.1 414") && long.contains("at most 8192 bytes"), "{long:.300}");
    let header = "b".repeat(33_000);
    let wide = rest(send(server.address, &format!("GET / HTTP/1.1\r\nhost: a\r\nx: {header}\r\nconnection: close\r\n\r\n")).await).await;
    assert!(wide.starts_with("HTTP/1.1 431") && wide.contains(r#""path":"/"}"#), "{wide:.300}");
}

#[tokio::test]
async fn a_slow_client_times_out() {
    let short = Duration::from_millis(100);
    let server = start(ServerLimits { head_timeout: short, ..ServerLimits::default() }).await;
    let head = send(server.address, "GET / HTTP/1.1\r\nhost:").await;
    rest(head).await;
    // The head has all the time that it needs, however late this test is with it.
    let server = start(ServerLimits { body_timeout: short, ..ServerLimits::default() }).await;
    let body = send(server.address, "POST /body HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nab").await;
    let answer = rest(body).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
}

#[tokio::test]
async fn a_body_without_a_declared_length_is_bounded_too() {
    let server = start(ServerLimits::default()).await;
    for (chunks, status) in [("5\r\nabcde\r\n5\r\nabcde\r\n0\r\n\r\n", 200), ("5\r\nabcde\r\n6\r\nabcdef\r\n0\r\n\r\n", 413)] {
        let head = "POST /body HTTP/1.1\r\nhost: a\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n";
        let answer = rest(send(server.address, &format!("{head}{chunks}")).await).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
}

#[tokio::test]
async fn connections_over_the_limit_wait() {
    let server = start(ServerLimits { connections: 1, ..ServerLimits::default() }).await;
    let first = send(server.address, "GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await;
    let second = tokio::spawn(async move { get(server.address, "/").await });
    assert!(rest(first).await.contains("data: 3"));
    assert!(second.await.unwrap().starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn frames_before_the_error_of_a_body_are_sent() {
    let server = start(ServerLimits::default()).await;
    let answer = get(server.address, "/broken").await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("\r\n\r\n6\r\nso far\r\n"), "{answer}");
}

#[tokio::test]
async fn running_requests_finish_at_shutdown_and_idle_connections_close() {
    let server = start(ServerLimits::default()).await;
    let idle = send(server.address, "").await;
    let mut live = send(server.address, "GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await;
    live.read_u8().await.unwrap();
    server.stop.send(()).unwrap();
    assert_eq!(rest(idle).await, "");
    assert!(rest(live).await.contains("data: 3"));
    assert_eq!(server.task.await.unwrap(), Drained { cut: 0 });
    assert!(TcpStream::connect(server.address).await.is_err());
}

#[tokio::test]
async fn a_kept_connection_has_one_last_answer_at_shutdown() {
    let server = start(ServerLimits::default()).await;
    let mut kept = send(server.address, "GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut answered = Vec::new();
    while !answered.ends_with(b"ok") {
        answered.push(kept.read_u8().await.unwrap());
    }
    server.stop.send(()).unwrap();
    let stopped = Instant::now();
    // A connection that is refused shows that the shutdown has begun.
    while TcpStream::connect(server.address).await.is_ok() {
        assert!(stopped.elapsed() < LINGER, "it still listens");
        sleep(Duration::from_millis(5)).await;
    }
    kept.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let answer = rest(kept).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("connection: close"), "{answer}");
    // Nobody is left, so nobody is waited for.
    let drained = server.task.await.unwrap();
    assert!(stopped.elapsed() < LINGER, "{:?}", stopped.elapsed());
    assert_eq!(drained, Drained { cut: 0 });
}

#[tokio::test]
async fn requests_that_outlive_the_grace_period_are_cut_and_counted() {
    let server = start(ServerLimits { grace: Duration::from_millis(100), ..ServerLimits::default() }).await;
    let mut live = send(server.address, "GET /forever HTTP/1.1\r\nhost: a\r\n\r\n").await;
    live.read_u8().await.unwrap();
    server.stop.send(()).unwrap();
    assert_eq!(server.task.await.unwrap(), Drained { cut: 1 });
}
