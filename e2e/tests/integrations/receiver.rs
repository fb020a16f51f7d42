//! A receiver of messages on the node: it keeps what it hears, answers as it is told to, and knows by the signature whose messages are
//! meant (Standard Webhooks).

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::Value;
use slipway_e2e::poll;
use slipway_peers::skip;

use crate::tools::on_the_node;

/// How far the time of a message may be from ours, in seconds.
const CLOCKS: u64 = 300;

/// A message, and how it was answered.
#[derive(Debug, Clone)]
pub(super) struct Heard {
    pub(super) path: String,
    headers: Vec<(String, String)>,
    body: String,
    pub(super) answered: u16,
}

#[derive(Default)]
struct State {
    heard: Vec<Heard>,
    /// By path: the statuses of the next answers. Others are 200.
    answers: BTreeMap<String, VecDeque<u16>>,
}

pub(super) struct Receiver {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Receiver {
    /// None, which is told, where pods do not reach this machine.
    #[track_caller]
    pub(super) fn start() -> Option<Self> {
        let Some(address) = on_the_node() else {
            skip("pods reach a server of this test only where the node is this machine");
            return None;
        };
        let listener = TcpListener::bind(address).unwrap();
        let receiver = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = Arc::clone(&receiver.state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&state);
                // Who hangs up in the midst has said nothing.
                thread::spawn(move || drop(hear(client, &state)));
            }
        });
        Some(receiver)
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next messages to this path are answered so.
    pub(super) fn answer(&self, path: &str, statuses: &[u16]) {
        self.state.lock().unwrap().answers.insert(path.to_owned(), statuses.iter().copied().collect());
    }

    /// What came to this path so far.
    pub(super) fn heard(&self, path: &str) -> Vec<Heard> {
        self.state.lock().unwrap().heard.iter().filter(|heard| heard.path == path).cloned().collect()
    }

    /// Waits until what came to this path is as wanted.
    #[track_caller]
    pub(super) fn until(&self, path: &str, seconds: u64, what: &str, want: impl Fn(&[Heard]) -> bool) -> Vec<Heard> {
        poll(seconds, || {
            let heard = self.heard(path);
            if want(&heard) { Ok(heard) } else { Err(format!("{path} should hear {what}: {heard:#?}")) }
        })
    }
}

impl Heard {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The body as JSON.
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The id, by which one message is known that comes again.
    pub(super) fn id(&self) -> &str {
        self.header("webhook-id")
    }

    /// Whether it was signed with this secret, just now.
    pub(super) fn is_signed(&self, secret: &str) -> bool {
        let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
        let time = self.header("webhook-timestamp");
        let signed = sign(&Key::new(HMAC_SHA256, &key), format!("{}.{time}.{}", self.id(), self.body).as_bytes());
        let expected = format!("v1,{}", STANDARD.encode(signed.as_ref()));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let is_present = time.parse::<u64>().is_ok_and(|time| time.abs_diff(now) < CLOCKS);
        is_present && !self.id().is_empty() && self.header("webhook-signature").split(' ').any(|found| found == expected)
    }
}

fn hear(client: TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    let mut reader = BufReader::new(client);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length").and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let status = {
        let mut state = state.lock().unwrap();
        let answered = state.answers.get_mut(&path).and_then(VecDeque::pop_front).unwrap_or(200);
        state.heard.push(Heard { path, headers, body: String::from_utf8_lossy(&body).into_owned(), answered });
        answered
    };
    write!(reader.into_inner(), "HTTP/1.1 {status} So\r\ncontent-type: text/plain\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok")
}
