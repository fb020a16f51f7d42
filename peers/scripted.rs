//! A server that answers as a test says, for what other people's servers do not do: errors, pauses, lies. It runs on the test's
//! own runtime, so that a test that blocks needs one with several threads.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a client asked for.
#[derive(Debug, Clone)]
pub struct ScriptedRequest {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: HashMap<String, String>,
    pub body: String,
    /// All of it, as it came.
    pub whole: String,
}

/// An answer: the status line and headers without the last line break, and the body.
pub struct ScriptedAnswer(pub String, pub Vec<u8>);

impl ScriptedAnswer {
    pub fn json(body: &serde_json::Value) -> Self {
        Self("200 OK\r\nContent-Type: application/json".into(), body.to_string().into_bytes())
    }

    pub fn status(head: &str) -> Self {
        Self(head.into(), Vec::new())
    }
}

/// A server that runs until its test ends.
pub struct Scripted {
    pub url: String,
    asked: Arc<Mutex<Vec<ScriptedRequest>>>,
}

impl Scripted {
    /// `answer` gets the request and how many came before it.
    pub async fn start(answer: impl Fn(&ScriptedRequest, usize) -> ScriptedAnswer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (asked.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (log, answer) = (log.clone(), answer.clone());
                tokio::spawn(async move { serve(stream, &log, &*answer).await });
            }
        });
        Self { url, asked }
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<ScriptedRequest> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<ScriptedRequest>>,
    answer: &(impl Fn(&ScriptedRequest, usize) -> ScriptedAnswer + ?Sized),
) -> Option<()> {
    let mut bytes = Vec::new();
    let whole = loop {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
            if body.len() >= length.unwrap_or(0) {
                break text;
            }
        }
    };
    let (head, body) = whole.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let headers = lines.filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())));
    let (method, target, headers) = (first.next()?, first.next()?, headers.collect());
    let asked = ScriptedRequest { method, target, headers, body: body.to_owned(), whole: whole.clone() };
    let before = {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(asked.clone());
        log.len() - 1
    };
    let ScriptedAnswer(head, body) = answer(&asked, before);
    let length =
        if head.to_ascii_lowercase().contains("content-length") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    stream.write_all(format!("HTTP/1.1 {head}\r\n{length}Connection: close\r\n\r\n").as_bytes()).await.ok()?;
    stream.write_all(&body).await.ok()?;
    stream.shutdown().await.ok()
}
