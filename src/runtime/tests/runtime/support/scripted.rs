//! A model server that says what it is told to, fragment by fragment; each byte is a write of its own where that is asked for. A turn
//! takes 1000 tokens of input and 100 of output.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::json;

pub(crate) struct Model {
    pub(crate) url: String,
    script: Arc<Mutex<Script>>,
}

#[derive(Default, Clone)]
struct Script {
    fragments: Vec<String>,
    pause: Duration,
    torn: bool,
}

impl Model {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (url, script) = (format!("http://{}/v1", listener.local_addr().unwrap()), Arc::<Mutex<Script>>::default());
        let scripted = Arc::clone(&script);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let script = scripted.lock().unwrap().clone();
                // A client that has read enough leaves.
                thread::spawn(move || _ = answer(stream.unwrap(), &script));
            }
        });
        Self { url, script }
    }

    pub(crate) fn says(&self, fragments: &[&str]) {
        self.script.lock().unwrap().fragments = fragments.iter().map(|text| (*text).to_owned()).collect();
    }

    pub(crate) fn pauses(&self, milliseconds: u64) {
        self.script.lock().unwrap().pause = Duration::from_millis(milliseconds);
    }

    pub(crate) fn tears(&self, torn: bool) {
        self.script.lock().unwrap().torn = torn;
    }
}

fn answer(stream: TcpStream, script: &Script) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    for line in reader.by_ref().lines() {
        let line = line?;
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    reader.read_exact(&mut vec![0; length])?;
    let mut stream = reader.into_inner();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    let delta = |text: &String| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1000, "completion_tokens": 100}});
    for event in script.fragments.iter().map(delta).chain([end]) {
        // Letters outside of ASCII go as they are, so that a byte may be half of one.
        let event = format!("data: {event}\n\n");
        if script.torn {
            for byte in event.bytes() {
                stream.write_all(&[byte])?;
            }
        } else {
            stream.write_all(event.as_bytes())?;
        }
        thread::sleep(script.pause);
    }
    stream.write_all(b"data: [DONE]\n\n")
}
