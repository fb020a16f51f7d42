//! A server with scripted answers that records its requests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

#[derive(Debug, Clone)]
pub(crate) struct ReplayedRequest {
    /// Method and path.
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// The JSON body, or the body as text.
    pub(crate) body: Value,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: &'static str,
    pub(crate) body: String,
    /// The bytes of the body that are sent before the connection closes.
    pub(crate) sent: usize,
}

pub(crate) struct Replay {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<ReplayedRequest>>>,
}

impl Reply {
    pub(crate) fn ok(body: &(impl ToString + ?Sized)) -> Self {
        Self { status: 200, headers: "", body: body.to_string(), sent: usize::MAX }
    }
}

impl Replay {
    /// Calls `answer` with the number of the request, from zero, and the request.
    pub(crate) async fn start(answer: impl Fn(usize, &ReplayedRequest) -> Reply + Send + Sync + 'static) -> Self {
        // reqwest needs a crypto provider.
        rustls::crypto::ring::default_provider().install_default().ok();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, seen) = (Arc::new(answer), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, seen) = (Arc::clone(&answer), Arc::clone(&seen));
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    let request = read(&mut stream).await;
                    let number = {
                        let mut seen = seen.lock().unwrap();
                        seen.push(request.clone());
                        seen.len() - 1
                    };
                    write(stream.into_inner(), &answer(number, &request)).await;
                });
            }
        });
        Self { url, asked }
    }

    pub(crate) fn asked(&self) -> Vec<ReplayedRequest> {
        self.asked.lock().unwrap().clone()
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> ReplayedRequest {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.unwrap();
        let Some((name, value)) = header.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let line = line.rsplit_once(' ').unwrap().0.to_owned();
    let text = String::from_utf8(body).unwrap();
    ReplayedRequest { line, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

async fn write(mut stream: TcpStream, reply: &Reply) {
    let Reply { status, headers, body, sent } = reply;
    let head = format!(
        "HTTP/1.1 {status} So\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body.as_bytes()[..body.len().min(*sent)]).await.unwrap();
    stream.shutdown().await.ok();
}
