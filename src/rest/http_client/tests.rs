//! Servers that keep connections open, close them unexpectedly, or never answer.

use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;

const SHORT: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
const CHUNKED: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
const WITHOUT_END: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n";

/// Answers each request with `says`, and closes a connection after `each` requests. Counts connections and requests, and
/// reports clients that leave.
struct Server {
    address: String,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    left: mpsc::UnboundedReceiver<()>,
}

impl Server {
    async fn start(says: &'static str, each: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (leaving, left) = mpsc::unbounded_channel();
        let counts = (connections.clone(), requests.clone());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counts.0.fetch_add(1, Ordering::SeqCst);
                let (requests, leaving) = (counts.1.clone(), leaving.clone());
                tokio::spawn(async move {
                    for _ in 0..each {
                        let mut request = Vec::new();
                        while !request.ends_with(b"hello") {
                            let Ok(byte) = stream.read_u8().await else {
                                let _ = leaving.send(());
                                return;
                            };
                            request.push(byte);
                        }
                        let head = String::from_utf8(request).unwrap();
                        assert!(head.starts_with("POST /chat?x=1 HTTP/1.1\r\n") && head.contains("host: 127.0.0.1:"), "{head}");
                        requests.fetch_add(1, Ordering::SeqCst);
                        stream.write_all(says.as_bytes()).await.unwrap();
                    }
                });
            }
        });
        Self { address, connections, requests, left }
    }

    async fn send(&self, connections: &HttpClient) -> Result<Response<ResponseBody>, SendError> {
        connections.send(self.address.clone(), Request::post("/chat?x=1").body(sent("hello")).unwrap()).await
    }

    async fn hear(&self, connections: &HttpClient) {
        let heard = self.send(connections).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(heard.to_bytes(), "ok");
    }

    fn counted(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.requests.load(Ordering::SeqCst))
    }
}

fn sent(words: &'static str) -> RequestBody {
    Full::from(words).map_err(|never| match never {}).boxed_unsync()
}

fn connections() -> HttpClient {
    HttpClient::new(Duration::from_secs(5))
}

#[tokio::test]
async fn one_line_is_enough_for_calls_after_each_other() {
    for says in [SHORT, CHUNKED] {
        let (server, connections) = (Server::start(says, usize::MAX).await, connections());
        for _ in 0..10 {
            server.hear(&connections).await;
        }
        assert_eq!(server.counted(), (1, 10), "{says}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_at_once_have_a_line_each_and_leave_them_to_others() {
    let (server, connections) = (Server::start(SHORT, usize::MAX).await, connections());
    for _ in 0..20 {
        futures::future::join_all((0..8).map(|_| server.hear(&connections))).await;
    }
    let (connections, requests) = server.counted();
    assert!(connections <= 8 && requests == 160, "{connections} connections, {requests} requests");
}

#[tokio::test]
async fn a_line_that_its_server_closed_is_not_used_again() {
    let (server, connections) = (Server::start(SHORT, 1).await, connections());
    for _ in 0..10 {
        server.hear(&connections).await;
        // The server's FIN is on its way.
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(server.counted(), (10, 10));
}

#[tokio::test]
async fn an_answer_that_is_not_heard_to_its_end_closes_its_line() {
    let (mut server, connections) = (Server::start(WITHOUT_END, usize::MAX).await, connections());
    let mut body = server.send(&connections).await.unwrap().into_body();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "ok");
    drop(body);
    timeout(Duration::from_secs(10), server.left.recv()).await.unwrap();
    drop(server.send(&connections).await.unwrap());
    assert_eq!(server.counted(), (2, 2));
}

#[tokio::test]
async fn a_server_that_leaves_is_not_asked_twice() {
    let (server, connections) = (Server::start("", 1).await, connections());
    assert!(matches!(server.send(&connections).await, Err(SendError::Closed(_))));
    assert_eq!(server.counted(), (1, 1));
}

#[tokio::test]
async fn no_more_lines_are_kept_than_are_of_use() {
    let (server, connections) = (Server::start(SHORT, usize::MAX).await, connections());
    let all = futures::future::join_all((0..IDLE_PER_SERVER_MAX + 10).map(|_| server.send(&connections))).await;
    drop(futures::future::join_all(all.into_iter().map(|answer| answer.unwrap().into_body().collect())).await);
    let kept: Vec<usize> = connections.pool.connections().values().map(Vec::len).collect();
    assert_eq!(kept, [IDLE_PER_SERVER_MAX]);
}

#[tokio::test]
async fn idle_lines_are_closed_and_forgotten() {
    let (mut server, connections) = (Server::start(SHORT, usize::MAX).await, connections());
    server.hear(&connections).await;
    connections.pool.prune();
    assert_eq!(connections.pool.connections().len(), 1);
    connections.pool.connections().values_mut().flatten().for_each(|(since, _)| *since -= IDLE_TIMEOUT);
    connections.pool.prune();
    assert!(connections.pool.connections().is_empty());
    server.left.recv().await.unwrap();
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_is_told_apart() {
    let connections = connections();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for server in [closed.to_string(), String::new(), "127.0.0.1:99999".to_owned(), "two words:80".to_owned()] {
        let asked = connections.send(server.clone(), Request::get("/").body(sent("")).unwrap()).await;
        assert!(matches!(asked, Err(SendError::Connect(_))), "{server}");
    }
}

#[test]
fn a_url_names_a_server_and_a_path() {
    for (url, server, path) in [
        ("http://agent:8000", "agent:8000", ""),
        ("http://agent", "agent", ""),
        ("http://[::1]:80/", "[::1]:80", ""),
        ("http://gate.example.com/agents/a/", "gate.example.com", "/agents/a"),
    ] {
        assert_eq!(split_url(url), (server, path), "{url}");
    }
    assert_eq!(host_header("a.team-a.svc.cluster.local.:8000").unwrap(), "a.team-a.svc.cluster.local:8000");
    assert_eq!(host_header("[::1]:80").unwrap(), "[::1]:80");
}
