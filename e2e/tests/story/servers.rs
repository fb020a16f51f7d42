//! A small HTTP server of a test's own, at an address that pods reach: it keeps what it hears and answers by a function.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// No client needs longer to send a request that it has begun.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The platform never sends more.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeardRequest {
    pub(crate) method: String,
    pub(crate) path: String,
    /// By their names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl HeardRequest {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The body; null where it is no JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// What is answered.
pub(crate) struct ServedAnswer {
    pub(crate) status: u16,
    pub(crate) media: &'static str,
    pub(crate) body: String,
}

impl ServedAnswer {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self { status, media: "application/json", body: body.to_string() }
    }
}

/// It ends with the test's process.
pub(crate) struct LittleServer {
    pub(crate) url: String,
    heard: Arc<Mutex<Vec<HeardRequest>>>,
}

impl LittleServer {
    /// One that keeps what `keeps` says of a request, which may be nothing.
    pub(crate) fn start(
        address: SocketAddr,
        answers: impl Fn(&HeardRequest) -> ServedAnswer + Send + Sync + 'static,
        keeps: impl Fn(&HeardRequest) -> Option<HeardRequest> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap_or_else(|error| panic!("nobody can listen at {address}: {error}"));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (kept, answers, keeps) = (Arc::clone(&heard), Arc::new(answers), Arc::new(keeps));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answers, keeps) = (Arc::clone(&kept), Arc::clone(&answers), Arc::clone(&keeps));
                thread::spawn(move || {
                    let Ok(asked) = read(&stream) else { return };
                    if let Some(asked) = keeps(&asked) {
                        kept.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
                    }
                    // Who has gone needs no answer.
                    let _ = write(&stream, &answers(&asked));
                });
            }
        });
        Self { url: format!("http://{address}"), heard }
    }

    /// What it was asked so far.
    pub(crate) fn heard(&self) -> Vec<HeardRequest> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(stream: &TcpStream) -> std::io::Result<HeardRequest> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let mut asked =
        HeardRequest { method: words.next().unwrap_or_default(), path: words.next().unwrap_or_default(), ..HeardRequest::default() };
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        asked.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = asked.header("content-length").parse().unwrap_or(0).min(BODY_BYTES_MAX);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    asked.body = String::from_utf8_lossy(&body).into_owned();
    Ok(asked)
}

fn write(mut stream: &TcpStream, answer: &ServedAnswer) -> std::io::Result<()> {
    let ServedAnswer { status, media, body } = answer;
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} -\r\nContent-Type: {media}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")?;
    stream.flush()
}
