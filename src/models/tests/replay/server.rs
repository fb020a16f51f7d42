//! A server with scripted answers that records its requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, yield_now};

use super::KEY;

/// One answer; the last one is repeated.
#[derive(Clone, Default)]
pub(super) struct ScriptedReply {
    pub(super) status: u16,
    pub(super) headers: String,
    pub(super) parts: Vec<Vec<u8>>,
    /// Chunked with a persistent connection; otherwise the end of the connection ends the answer.
    pub(super) chunked: bool,
    /// The delay before the head.
    pub(super) late: Duration,
    /// Hangs after the parts instead of ending.
    pub(super) hangs: bool,
}

impl ScriptedReply {
    pub(super) fn ok(bytes: &[u8]) -> Self {
        Self { status: 200, parts: vec![bytes.to_vec()], ..Self::default() }
    }

    pub(super) fn error(status: u16, body: &str) -> Self {
        Self { status, headers: "content-type: application/json\r\n".into(), ..Self::ok(body.as_bytes()) }
    }

    pub(super) fn split(mut self, at: impl IntoIterator<Item = usize>) -> Self {
        let bytes = self.parts.concat();
        let mut cuts: Vec<_> = at.into_iter().filter(|at| *at <= bytes.len()).chain([0, bytes.len()]).collect();
        cuts.sort_unstable();
        self.parts = cuts.windows(2).map(|pair| bytes[pair[0]..pair[1]].to_vec()).collect();
        self
    }
}

pub(super) struct Server {
    host: String,
    asked: Arc<Mutex<Vec<String>>>,
    connections: Arc<AtomicUsize>,
    /// The number of connections that clients have closed.
    pub(super) left: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Server {
    pub(super) async fn start(replies: Vec<ScriptedReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let left = Arc::new(AtomicUsize::new(0));
        let replies = Arc::new(Mutex::new(VecDeque::from(replies)));
        let (heard, counted, gone) = (asked.clone(), connections.clone(), left.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let (heard, replies, gone) = (heard.clone(), replies.clone(), gone.clone());
                tokio::spawn(async move {
                    // The client may disconnect at any time.
                    let _ = serve(stream, &heard, &replies).await;
                    gone.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        Self { host, asked, connections, left, accepting }
    }

    pub(super) fn host(&self) -> String {
        self.host.clone()
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// The requests except those for Google's tokens.
    pub(super) async fn asked(&self) -> Vec<String> {
        self.asked.lock().await.clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, asked: &Mutex<Vec<String>>, replies: &Mutex<VecDeque<ScriptedReply>>) -> std::io::Result<()> {
    loop {
        let Some(request) = request(&mut stream).await? else { return Ok(()) };
        if request.starts_with("GET /computeMetadata/") {
            let token = format!(r#"{{"access_token": "{KEY}", "expires_in": 3599, "token_type": "Bearer"}}"#);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{token}", token.len());
            return stream.write_all(head.as_bytes()).await;
        }
        asked.lock().await.push(request);
        let reply = {
            let mut replies = replies.lock().await;
            if replies.len() > 1 { replies.pop_front().unwrap() } else { replies[0].clone() }
        };
        tokio::time::sleep(reply.late).await;
        let end = if reply.chunked { "transfer-encoding: chunked\r\n" } else { "connection: close\r\n" };
        stream.write_all(format!("HTTP/1.1 {} X\r\n{}{end}\r\n", reply.status, reply.headers).as_bytes()).await?;
        for part in reply.parts.iter().filter(|part| !part.is_empty()) {
            if reply.chunked {
                stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await?;
            }
            stream.write_all(part).await?;
            if reply.chunked {
                stream.write_all(b"\r\n").await?;
            }
            yield_now().await;
        }
        if reply.hangs {
            // Until the client disconnects.
            while stream.read(&mut [0; 64]).await? > 0 {}
            return Ok(());
        }
        if !reply.chunked {
            return stream.shutdown().await;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

async fn request(stream: &mut TcpStream) -> std::io::Result<Option<String>> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 8192];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Ok(None);
        }
        bytes.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |length| length.parse().unwrap());
        if body.len() >= length {
            return Ok(Some(text));
        }
    }
}
